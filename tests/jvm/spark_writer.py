"""Writes tables through lakelatch.spark in a session of its own: a program, no test module.

    python spark_writer.py STORIES.json LANDED.json

A story is ``{"path", "writes": [[method of SparkTable, rows], ...]}``; what landed is ``[T, C]`` of each write.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

import lakelatch.spark
from lakelatch.spark.versions import spark_schema


def main(stories_path: str, landed_path: str) -> None:
    builder = SparkSession.builder.master("local[2]").appName("spark_writer")
    builder = builder.config("spark.ui.enabled", "false").config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    landed = []
    for story in json.loads(Path(stories_path).read_text(encoding="utf-8")):
        table = lakelatch.spark.open(spark, story["path"])
        columns = spark_schema(table.table.schema())
        for method, rows in story["writes"]:
            frame = spark.createDataFrame([tuple(row[name] for name in columns.names) for row in rows], columns)
            result = getattr(table, method)(frame)
            landed.append([result.instant, result.completion])
        table.table.close()
    spark.stop()
    Path(landed_path).write_text(json.dumps(landed), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
