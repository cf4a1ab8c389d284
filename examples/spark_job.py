"""A PySpark job: insert, upsert, delete by condition, read, and read only what has changed.

python examples/spark_job.py [FOLDER]
"""

from __future__ import annotations

import os
import sys
import tempfile

from pyspark.sql import SparkSession

import lakelatch
import lakelatch.spark


def main(url: str) -> int:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    # `updated` says which version of a row is newer; an older one never replaces a newer one.
    lakelatch.create(url, record_key="id", partition_by="origin", ordering_field="updated").close()
    flights = lakelatch.spark.open(spark, url)

    columns = "id string, origin string, delay long, updated long"
    first = flights.insert(spark.createDataFrame([("B6-1", "JFK", 4, 1), ("DL-2", "JFK", 0, 1)], columns))
    flights.upsert(spark.createDataFrame([("B6-1", "JFK", 9, 2), ("DL-2", "JFK", 7, 0)], columns))
    flights.delete_where("delay = 0")

    rows = [tuple(row) for row in flights.read(["id", "delay"]).collect()]
    changed = [row["id"] for row in flights.read_incremental(after=first.completion).collect()]
    print(f"rows: {rows}, changed since the first commit: {changed}")
    spark.stop()
    return 0 if rows == [("B6-1", 9)] and changed == ["B6-1"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
