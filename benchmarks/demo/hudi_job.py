"""A JVM job of Hudi: a program of .cache/jvm/venv with PySpark 3.5, which imports nothing of this package.

    python hudi_job.py BUNDLE.jar JOB.json

The job is ``{"table", "options", "rounds": [rows, ...]}``: it upserts the rows round by round, each again until it lands, and
tells its parent as JSON lines. Without rounds it tells the rows of the table. More, for measurements: ``first`` is the number
of the first round, ``slow_s`` how long the rows take to come, ``idle_s`` how long it stays afterwards.
"""

import json
import os
import sys
import time
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

TRIES_MAX = 60


def session(bundle: str, *, cores: int = 1, java: str = "") -> SparkSession:
    """Return a session with Hudi; ``java``: more options of the JVM."""
    settings = {
        "spark.jars": bundle,
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        # The second compiler and a collector with threads of its own cost more than they save here.
        "spark.driver.extraJavaOptions": f"-Duser.timezone=UTC -XX:TieredStopAtLevel=1 -XX:+UseSerialGC {java}",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder: Any = SparkSession.builder.master(f"local[{cores}]").appName("hudi_job")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main(bundle: str, path: str) -> None:
    """Run the job."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what Hudi prints is no event

    def tell(event: str, **facts: Any) -> None:
        out.write(json.dumps({"event": event, "at": time.time(), **facts}) + "\n")

    with open(path, encoding="utf-8") as stream:
        job = json.load(stream)
    spark = session(bundle)
    table = spark.read.format("hudi").load(job["table"])
    columns = [name for name in table.columns if not name.startswith("_hoodie_")]
    schema = table.select(columns).schema
    if not job["rounds"]:
        tell("rows", rows=[row.asDict() for row in table.select(columns).collect()])
    for number, rows in enumerate(job["rounds"], job.get("first", 0)):
        frame = spark.createDataFrame([tuple(row[name] for name in columns) for row in rows], schema)
        if slow_s := job.get("slow_s"):
            frame = spark.createDataFrame(frame.rdd.coalesce(1).mapPartitions(partial(_slowly, slow_s)), schema)
        for attempt in range(1, TRIES_MAX + 1):
            tell("began", round=number, attempt=attempt)
            try:
                frame.write.format("hudi").options(**job["options"]).mode("append").save(job["table"])
            except Exception as error:
                # What Hudi says to the one that loses; its callers run again.
                if "Cannot resolve conflicts" not in str(error) or attempt == TRIES_MAX:
                    raise
                tell("lost", round=number)
            else:
                tell("landed", round=number, attempt=attempt)
                break
    time.sleep(job.get("idle_s", 0))  # an idle job beside which others are measured
    spark.stop()


def _slowly(seconds: float, rows: Any) -> Any:
    time.sleep(seconds)  # stands for the work of a job
    yield from rows


if __name__ == "__main__":
    main(*sys.argv[1:])
