"""Hudi and this library write one table in one session of PySpark 3.5. A program of .cache/jvm/venv, no test module.

    python one_session.py BUNDLE.jar TABLE OPTIONS.json

Each writes rows of its own; both read all of them. Prints what each has read, as JSON.
"""

import json
import sys
from pathlib import Path

import lakelatch.spark

sys.path.append(str(Path(__file__).parents[2] / "benchmarks/demo"))
from hudi_job import session


def main(bundle: str, path: str, options: str) -> None:
    spark = session(bundle)
    columns = "id string, part string, v bigint"
    with lakelatch.spark.open(spark, path, sizes=lakelatch.spark.JobSizes(small_rows=0)) as table:
        table.upsert(spark.createDataFrame([("p0a", "a", 1), ("new", "b", 1)], columns))
        theirs = spark.createDataFrame([("j0a", "a", 2), ("p1a", "a", 2)], columns)
        theirs.write.format("hudi").options(**json.loads(Path(options).read_text())).mode("append").save(path)
        table.upsert([{"id": "p2b", "part": "b", "v": 3}])
        table.delete_where("v = 1 and part = 'b'")
        ours = table.read(filter="v > 0").select("id", "v").collect()
        hudi = spark.read.format("hudi").load(path).where("v > 0").select("id", "v").collect()
        print("read:", json.dumps([sorted(map(list, rows)) for rows in (ours, hudi)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
