"""Tables that merge columns, written by Spark: the same rows as a dictionary has, on the driver and in tasks."""

from __future__ import annotations

import random
from typing import Any

import pytest

import lakelatch
from lakelatch.errors import InputError
from lakelatch.spark import JobSizes

RULE = {"clicks": "sum", "low": "min", "times": "count"}
COLUMNS = "id string, clicks bigint, low double, times int"


def test_tasks_and_driver_merge_as_plain_python_does(tmp_path: Any, spark: Any) -> None:
    chance = random.Random(5)
    for number, (sizes, kind, buckets) in enumerate(
        [
            (JobSizes(small_rows=0), "copy_on_write", None),
            (JobSizes(small_rows=0), "merge_on_read", 2),
            (JobSizes(), "copy_on_write", 2),
        ]
    ):
        url, model = str(tmp_path / f"t{number}"), {}
        lakelatch.create(url, record_key="id", type=kind, table_version=9, merge=RULE, bucket_count=buckets).close()
        table = lakelatch.spark.open(spark, url, sizes=sizes)
        for verb in ("insert", "upsert", "upsert"):
            rows = [
                (f"k{n}", chance.choice([None, 1, 20]), chance.choice([None, -1.5, 2.0]), chance.choice([None, 7]))
                for n in (chance.randint(0, 9) for _ in range(25))
            ]
            getattr(table, verb)(spark.createDataFrame(rows, COLUMNS))
            for key, clicks, low, times in rows:
                old = model.get(key, (None, None, 0))
                sums = [each for each in (old[0], clicks) if each is not None]
                lows = [each for each in (old[1], low) if each is not None]
                model[key] = (sum(sums) if sums else None, min(lows, default=None), old[2] + (times is not None))
            found = {row["id"]: (row["clicks"], row["low"], row["times"]) for row in table.read().collect()}
            assert found == model, (number, verb)
        table.table.close()


def test_a_key_that_comes_twice_is_refused_where_spark_would_decide_which_is_newer(tmp_path: Any, spark: Any) -> None:
    url = str(tmp_path / "t")
    lakelatch.create(url, record_key="id", merge={"n": "sum"}).close()
    table = lakelatch.spark.open(spark, url)
    with pytest.raises(InputError, match="occur more than once"):
        table.upsert(spark.createDataFrame([("a", 1, "x"), ("a", 2, "y")], "id string, n bigint, name string"))
    table.table.close()
