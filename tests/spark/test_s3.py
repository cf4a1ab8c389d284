"""Tables in S3, by Spark's own scan where it has a file system for them, and by Python workers where it has none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import lakelatch
import lakelatch.spark
from lakelatch.spark import JobSizes
from lakelatch.spark.reading.file_systems import reach

from ..servers import KEY, Bucket, missing, versitygw
from ..servers.spark_cluster import S3A

WORKERS = {"connect_timeout": "5s"}  # an option that S3A has no word for
TASKS = JobSizes(small_rows=0, tasks_per_core=1)


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bucket]:
    with versitygw(tmp_path_factory.mktemp("s3")) as made:
        yield made


@pytest.fixture(params=["spark", "workers"])
def options(request: pytest.FixtureRequest, bucket: Bucket) -> dict[str, str]:
    if request.param == "spark" and not S3A.is_dir():
        missing("hadoop-aws is not installed; scripts/ensure_tools.sh all installs it")
    return bucket.options | (WORKERS if request.param == "workers" else {})


def rows(spark: Any, first: int, count: int, value: str = "id") -> Any:
    return spark.range(first, first + count).selectExpr(
        "concat('k', id) id", "concat('c{', id % 3, '%') city", f"{value} v", "cast(null as string) note"
    )


def test_a_table_in_s3_is_written_changed_and_read(
    spark: Any, bucket: Bucket, options: dict[str, str], request: pytest.FixtureRequest
) -> None:
    by_spark = request.node.callspec.params["options"] == "spark"
    url = f"{bucket.url}/{'spark' if by_spark else 'workers'} ü/t"
    with lakelatch.create(url, record_key="id", partition_by="city", storage=options, unique_keys=False) as table:
        assert (reach(spark, table.store) is not None) == by_spark
        t = lakelatch.spark.open(spark, table, sizes=TASKS)
        t.upsert(rows(spark, 0, 300))
        t.upsert(rows(spark, 200, 200, "-id"))  # a hundred of them are known
        t.delete_where("v = 7")
        t.update_where("v = 8", set={"note": "eight"})
        with table.transaction() as txn:
            txn.delete([{"id": "k9", "city": "c{0%"}])

        expected = {f"k{n}": n for n in range(200) if n not in (7, 9)} | {f"k{n}": -n for n in range(200, 400)}
        assert {row.id: row.v for row in t.read().collect()} == expected
        assert {row["id"]: row["v"] for row in table.read().to_pylist()} == expected
        assert [row[0] for row in t.read(columns=["V"], filter="NOTE = 'eight'").collect()] == [8]
        assert t.read(columns=[]).count() == len(expected)
        assert t.read(filter="city = 'c{1%'").where("v < 0").count() == sum(
            -v % 3 == 1 for v in expected.values() if v < 0
        )
        assert t.read_incremental(after=None).count() == len(expected)


def test_the_keys_of_a_table_are_in_no_setting_of_the_session_and_no_plan(spark: Any, bucket: Bucket) -> None:
    if not S3A.is_dir():
        missing("hadoop-aws is not installed; scripts/ensure_tools.sh all installs it")
    with lakelatch.create(f"{bucket.url}/keys", record_key="id", storage=bucket.options) as table:
        t = lakelatch.spark.open(spark, table)
        t.upsert(spark.createDataFrame([("a", 1)], "id string, v long"))
        frame = t.read()
        assert frame.count() == 1
        plan = frame._jdf.queryExecution().toString() + frame._jdf.queryExecution().executedPlan().toJSON()
        settings = json.dumps(spark.sparkContext.getConf().getAll())
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()
        assert KEY not in plan
        assert KEY not in settings
        assert hadoop.get(f"fs.s3a.bucket.{bucket.url.rpartition('/')[2]}.access.key") is None
        # The session's own s3a stays as its user configured it: without keys here.
        assert hadoop.get("fs.s3a.access.key") is None


def test_two_sets_of_keys_for_one_bucket_are_two_ways(spark: Any, bucket: Bucket) -> None:
    with lakelatch.create(f"{bucket.url}/ways", record_key="id", storage=bucket.options) as table:
        one = reach(spark, table.store)
    if one is None:
        missing("hadoop-aws is not installed; scripts/ensure_tools.sh all installs it")
    from lakelatch.storage import open_store

    two = reach(spark, open_store(f"{bucket.url}/ways", **(bucket.options | {"secret_access_key": "another"})))
    assert two is not None
    assert one.scheme != two.scheme
    assert KEY not in repr(one)
