"""Merge-on-read tables through Spark: what is appended, read and deleted there is what plain Python does and reads."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakelatch.spark
from lakelatch.errors import ConflictError
from lakelatch.hudi.files import BaseFile, LogFile, list_data_files
from lakelatch.hudi.timeline import FileSlice
from lakelatch.spark import SparkTransaction
from lakelatch.spark.reading.merged_slices import dealt

from .driver import ROUTES

SCHEMA = "id string, city string, seen long"
KEYS = [f"{city}{n}" for city in "xy" for n in range(6)]


def frame(spark: Any, values: dict[str, int]) -> Any:
    return spark.createDataFrame([(key, key[0], value) for key, value in values.items()], SCHEMA)


def by_spark(table: Any, **given: Any) -> dict[str, int]:
    rows = table.read(**given).collect()
    assert len({row.id for row in rows}) == len(rows)
    return {row.id: row.seen for row in rows}


def by_python(table: Any) -> dict[str, int]:
    read = table.table.read().to_arrow()
    return dict(zip(read["id"].to_pylist(), read["seen"].to_pylist(), strict=True))


def logs(table: Any) -> int:
    return len(list_data_files(table.table.store).logs)


@pytest.mark.parametrize(("route", "bucket_count"), [("driver", None), ("tasks", None), ("tasks", 2)])
def test_rows_are_those_of_a_model_after_each_write(spark, make, route, bucket_count):
    rng = random.Random(f"{route} {bucket_count}")
    settings = {"bucket_count": bucket_count} if bucket_count else {}
    table = make(type="merge_on_read", ordering_field="seen", sizes=ROUTES[route], **settings)
    model: dict[str, int] = {}
    table.insert(frame(spark, first := dict.fromkeys(KEYS[::2], 5)))
    model |= first
    for kind in ("upsert", "delete", "where", "upsert", "compact", "upsert", "where", "upsert"):
        if kind == "upsert":
            new = {rng.choice(KEYS): rng.randint(0, 9) for _ in range(4)}
            table.upsert(frame(spark, new))
            model |= {key: value for key, value in new.items() if value >= model.get(key, value)}
        elif kind == "delete":
            gone = rng.sample(KEYS, 3)
            table.delete(frame(spark, dict.fromkeys(gone, 0)).select("id", "city"))
            model = {key: value for key, value in model.items() if key not in gone}
        elif kind == "where":
            below = rng.randint(2, 4)
            table.delete_where(f"seen < {below} and city in ('x', 'y')")
            model = {key: value for key, value in model.items() if value >= below}
        else:
            assert logs(table)
            table.table.compact()
        assert by_spark(table) == by_python(table) == model, kind
        assert by_spark(table, filter="city = 'x' and seen > 4") == {
            key: value for key, value in model.items() if key[0] == "x" and value > 4
        }
    assert logs(table) > 2


def test_a_read_tells_which_slices_go_which_way_and_may_leave_log_files_out(spark, make):
    table = make(type="merge_on_read")
    first = table.insert(frame(spark, {"x0": 1, "x1": 1, "y0": 1}))
    for value in (2, 3):
        table.upsert(frame(spark, {"x0": value}))
    told = table.explain()
    assert sorted((each.path[0], each.why) for each in told.read) == [
        ("c", "by Spark's own scan"),
        ("c", "by a Python worker: with 2 log files"),
    ]
    (left,) = table.explain("city = 'x'").pruned
    assert (left.why, "city=y" in left.path) == ("the condition excludes its partition", True)
    assert {each.why for each in table.explain(read_optimized=True).files} == {"by Spark's own scan"}
    assert by_spark(table, read_optimized=True) == {"x0": 1, "x1": 1, "y0": 1}
    assert table.table.compact_logs(min_logs=2)
    assert by_spark(table) == by_python(table) == {"x0": 3, "x1": 1, "y0": 1}
    assert by_spark(table, as_of_completion=first.completion) == {"x0": 1, "x1": 1, "y0": 1}


def test_an_incremental_read_has_rows_of_log_files(spark, make):
    table = make(type="merge_on_read")
    first = table.insert(frame(spark, {"x0": 1, "x1": 1, "y0": 1}))
    second = table.upsert(frame(spark, {"x0": 2}))
    rows = table.read_incremental(after=first.completion).collect()
    assert [(row.id, row.seen) for row in rows] == [("x0", 2)]
    fed = table.change_feed(after=first.completion, columns=["id", "seen"]).orderBy("seen").collect()
    assert [(row["_change"], row.id, row.seen) for row in fed] == [
        ("update_before", "x0", 1),
        ("update_after", "x0", 2),
    ]
    assert {row["_commit_instant"] for row in fed} == {second.instant}
    assert table.read_incremental(after=second.completion).count() == 0
    assert by_spark(table, as_of_completion=first.completion) == {"x0": 1, "x1": 1, "y0": 1}
    assert table.read(columns=["seen"]).where("seen = 2").count() == 1


@pytest.mark.parametrize("route", ROUTES)
def test_two_that_append_to_one_file_group_both_land_unless_the_row_is_the_same(spark, make, route):
    table = make(type="merge_on_read", sizes=ROUTES[route])
    table.insert(frame(spark, {"x0": 1, "x1": 1, "x2": 1}))
    other = lakelatch.open(table.table.url)
    met = []

    def job(txn: Any) -> None:
        txn.upsert(frame(spark, {"x0": 2}))
        txn.delete_where("seen = 1 and id = 'x2'")
        if not met:
            met.append(other.run(lambda mine: mine.upsert([{"id": "x1", "city": "x", "seen": 7}])))

    table.run(job)
    assert by_spark(table) == by_python(table) == {"x0": 2, "x1": 7}

    txn = table.table.transaction()  # `run`, after the conflict above, would hold the lock from its begin on
    SparkTransaction(spark, table.table, txn, ROUTES[route]).upsert(frame(spark, {"x0": 3}))
    other.run(lambda mine: mine.upsert([{"id": "x0", "city": "x", "seen": 8}]))
    with pytest.raises(ConflictError, match="both changed the same rows"):
        txn.commit()
    assert by_spark(table) == {"x0": 8, "x1": 7}
    other.close()


def test_a_key_that_only_a_log_file_has_is_found(spark, make):
    """With buckets a log file may hold what no base file does; then no join looks keys up in base files."""
    table = make(type="merge_on_read", bucket_count=1, partition_by=(), sizes=ROUTES["tasks"])
    rows = spark.createDataFrame([("a", "x", 1)], SCHEMA)
    table.insert(rows)
    table.upsert(spark.createDataFrame([("b", "x", 1)], SCHEMA))
    table.upsert(spark.createDataFrame([("b", "x", 2)], SCHEMA))
    assert by_spark(table) == {"a": 1, "b": 2}
    table.delete(spark.createDataFrame([("b",)], "id string"))
    assert by_spark(table) == by_python(table) == {"a": 1}


def sliced(number: int, size: int) -> FileSlice:
    base = BaseFile(f"{number}.parquet", "", f"{number}", "0-0-0", "1", "parquet", size - size // 2)
    return FileSlice(base.group, base, (LogFile(f".{number}.log", "", f"{number}", "2", 1, "0-0-0", size // 2),))


@given(st.lists(st.integers(0, 1 << 28), min_size=1, max_size=40), st.integers(1, 4))
def test_slices_are_dealt_to_tasks_by_their_bytes(sizes, cores):
    slices = [sliced(number, size) for number, size in enumerate(sizes)]
    tasks = dealt(slices, cores)
    assert all(tasks)
    assert sorted(each.file_id for some in tasks for each in some) == sorted(each.file_id for each in slices)
    assert min(cores, len(slices)) <= len(tasks) <= min(4 * cores, len(slices))
    totals = [sum(sizes[int(each.file_id)] for each in some) for some in tasks]
    assert max(totals) - min(totals) <= max(sizes) + len(sizes), "no task has a slice more than another needs"
    assert len(tasks) <= cores or sum(sizes) >= len(tasks) << 25, "more tasks than cores only for what takes long"


def test_slices_with_log_files_are_spread_over_tasks_without_a_shuffle(spark, make):
    table = make(type="merge_on_read")
    table.insert(frame(spark, dict.fromkeys(["x0", "y0"], 1)))
    table.upsert(frame(spark, dict.fromkeys(["x0", "y0"], 2)))
    rows = table.read()
    assert rows.rdd.getNumPartitions() == 2
    assert "Exchange" not in rows._jdf.queryExecution().executedPlan().toString()
    assert by_spark(table) == {"x0": 2, "y0": 2}
