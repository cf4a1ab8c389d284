"""A session of Spark Connect reads a table, by DataFrames, SQL and a stream, and is refused what it cannot do: connect.py FOLDER.

A program of its own, because a process has either such sessions or classic ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import lakelatch


def refused(call: Callable[[], Any]) -> str:
    """The message of the error that it has to raise."""
    try:
        call()
    except Exception as e:
        return str(e)
    raise AssertionError("it was not refused")


def main(place: str) -> None:
    with lakelatch.create(place, record_key="id", partition_by="origin") as table:
        table.upsert([{"id": f"k{n}", "origin": "JFK" if n % 2 else "LGA", "n": n} for n in range(10)])
    spark: Any = SparkSession.builder.remote("local[1]").getOrCreate()
    told = refused(lambda: lakelatch.spark.open(spark, place))
    assert "Spark Connect session" in told, told
    if spark.version.startswith("3."):
        assert "no data sources in Python" in refused(lambda: lakelatch.spark.register(spark))
        return
    lakelatch.spark.register(spark)
    read = spark.read.format("lakelatch").load(place)
    assert [each.id for each in read.where("origin = 'JFK'").orderBy("id").collect()] == ["k1", "k3", "k5", "k7", "k9"]
    read.createOrReplaceTempView("t")
    found = spark.sql("select origin, sum(n) as n from t group by origin order by origin").collect()
    assert [tuple(each) for each in found] == [("JFK", 25), ("LGA", 20)], found
    stream = spark.readStream.format("lakelatch").load(place)
    query = stream.writeStream.format("memory").queryName("rows").trigger(availableNow=True).start()
    query.awaitTermination()
    assert spark.table("rows").count() == 10
    told = refused(lambda: read.write.format("lakelatch").mode("append").save(place))
    assert "Nothing was written" in told, told
    with lakelatch.open(place) as table:
        assert table.read().count() == 10
        assert len(table.commits()) == 2
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
