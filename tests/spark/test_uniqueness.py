"""New keys, unique constraints and conditions of deletes, with writes of Spark."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.spark.reading.filters import comparisons
from lakelatch.spark.writing import jobs

from .driver import ROUTES, meanwhile

SCHEMA = "id string, city string, email string, n long"


def frame(spark: Any, *rows: tuple) -> Any:
    return spark.createDataFrame(list(rows), SCHEMA)


def ids(table: Any) -> list[str]:
    return sorted(row["id"] for row in table.read(columns=["id"]).collect())


@pytest.mark.parametrize("sizes", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("bucket_count", [None, 2], ids=["simple", "bucket"])
def test_two_upserts_of_one_new_key_leave_one_row(make, spark, bucket_count, sizes) -> None:
    table = make(bucket_count=bucket_count, sizes=sizes)
    table.upsert(frame(spark, ("a", "sf", "a@x", 1)))
    meanwhile(table, lambda: table.upsert(frame(spark, ("new", "la", "n@x", 1))))
    table.upsert(frame(spark, ("new", "la", "n@x", 2), ("newer", "la", "m@x", 2)))
    assert ids(table) == ["a", "new", "newer"]


@pytest.mark.parametrize("sizes", ROUTES.values(), ids=ROUTES)
def test_the_later_of_two_inserts_of_one_new_key_is_told(make, spark, sizes) -> None:
    table = make(sizes=sizes)
    meanwhile(table, lambda: table.insert(frame(spark, ("new", "la", "n@x", 1))))
    with pytest.raises(lakelatch.DuplicateKeyError, match="both inserted the same new key"):
        table.insert(frame(spark, ("new", "la", "n@x", 2)))
    assert ids(table) == ["new"]


@pytest.mark.parametrize("sizes", ROUTES.values(), ids=ROUTES)
def test_a_unique_constraint_holds(make, spark, sizes) -> None:
    table = make(unique_constraints=["email"], sizes=sizes)
    table.insert(frame(spark, ("a", "sf", "a@x", 1), ("b", "sf", None, 1)))
    with pytest.raises(lakelatch.ConstraintError, match="email='a@x' in rows 'c' and 'a'"):
        table.upsert(frame(spark, ("c", "la", "a@x", 2)))
    table.upsert(frame(spark, ("a", "sf", "a@x", 2), ("c", "la", None, 2)))
    meanwhile(table, lambda: table.upsert(frame(spark, ("d", "sf", "d@x", 1))))
    with pytest.raises(lakelatch.ConstraintError, match="email='d@x' in rows 'e' and 'd'"):
        table.upsert(frame(spark, ("e", "la", "d@x", 2)))
    assert ids(table) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("sizes", ROUTES.values(), ids=ROUTES)
def test_values_that_a_rebase_computes_are_compared(make, spark, sizes) -> None:
    """In the round the condition is met by a row that another writer has changed meanwhile."""
    table = make(unique_constraints=["email"], sizes=sizes)
    table.insert(frame(spark, ("a", "sf", "a@x", 1), ("b", "sf", "b@x", 2), ("c", "sf", "c@x", 3)))
    meanwhile(table, lambda: table.upsert(frame(spark, ("b", "sf", "b@x", 1))))
    with pytest.raises(lakelatch.ConstraintError, match="email='same'"):
        table.update_where("n = 1", {"email": "same"})
    assert sorted(row["email"] for row in table.read().collect()) == ["a@x", "b@x", "c@x"]
    meanwhile(table, lambda: table.upsert(frame(spark, ("b", "sf", "d@x", 1))))
    table.update_where("n = 3", {"email": "same"})
    assert sorted(row["email"] for row in table.read().collect()) == ["a@x", "d@x", "same"]


@pytest.mark.parametrize("sizes", ROUTES.values(), ids=ROUTES)
def test_a_row_that_moved_to_another_file_group_stands_once(make, spark, sizes) -> None:
    """The ordering field settles the row, so that the first attempt's round would insert it again where it was."""
    table = make(ordering_field="n", sizes=sizes, small_file_bytes=0)
    table.insert(frame(spark, ("a", "sf", "a@x", 1), ("b", "sf", "b@x", 1)))

    def moves() -> None:
        table.delete(spark.createDataFrame([("a", "sf")], "id string, city string"))
        table.insert(frame(spark, ("a", "sf", "a@x", 2)))

    meanwhile(table, moves)
    table.upsert(frame(spark, ("a", "sf", "new@x", 3)))
    assert ids(table) == ["a", "b"]


def test_rows_that_a_delete_does_not_mean_are_no_conflict(make, spark) -> None:
    table = make(statistics=["n"])
    table.insert(frame(spark, ("a", "sf", "a@x", 1), ("b", "sf", "b@x", 9), ("c", "sf", "c@x", 3)))
    alone = table.delete_where("n < 2")
    meanwhile(table, lambda: table.insert(frame(spark, ("new", "sf", "n@x", 7))))
    beside = table.delete_where("n < 5")
    assert beside.attempts == 1
    assert ids(table) == ["b", "new"]
    ran = [
        spark.sparkContext._jsc.sc().statusTracker().getJobIdsForTag(jobs.tag_of(d.instant)) for d in (alone, beside)
    ]
    assert len(ran[0]) == len(ran[1]), "the condition was evaluated again on what it excludes"
    meanwhile(table, lambda: table.insert(frame(spark, ("small", "sf", "n@x", 6))))
    table.delete_where("n < 8 and city = 'sf'")
    assert ids(table) == ["b"]


def test_what_a_condition_says_in_comparisons(spark) -> None:
    schema = pa.schema(
        [
            ("s", pa.string()),
            ("i", pa.int32()),
            ("l", pa.int64()),
            ("f", pa.float64()),
            ("d", pa.date32()),
            ("t", pa.timestamp("us", "UTC")),
            ("c", pa.decimal128(6, 2)),
            ("b", pa.bool_()),
        ]
    )
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    for text, said in {
        "s = 'x'": [("s", "=", "x")],
        "l < 5": [("l", "<", 5)],
        "5 >= i": [("i", "<=", 5)],
        "f > 0.5D": [("f", ">", 0.5)],
        "d >= '2024-01-02'": [("d", ">=", dt.date(2024, 1, 2))],
        "t < timestamp'2024-01-01 12:00:00'": [("t", "<", noon)],
        "c = cast(0.5 as decimal(6, 2))": [("c", "=", Decimal("0.50"))],
        "s in ('x', 'y') and l is not null": [("s", "in", ("x", "y")), ("l", "is not null")],
        "s is null and (l = 1 or l = 2)": [("s", "is null")],
        "b = true": [("b", "=", True)],
        "l = 1.5": [],  # the column is cast
        "upper(s) = 'X'": [],
        "s = rand()": [],
        "l < i": [],
        "not (l = 1)": [],
        "s = null": [],
        "d = current_date()": [],
    }.items():
        assert comparisons(spark, schema, text) == said, text


@pytest.mark.thorough
def test_a_table_without_a_key_takes_frames_that_bring_the_ids_and_gives_them_to_other_rows(spark, tmp_path) -> None:
    with lakelatch.spark.create(spark, tmp_path / "t", record_key=None, schema="n bigint") as table:
        with pytest.raises(lakelatch.InputError, match="brings no row_id"):
            table.insert(spark.range(5).withColumnRenamed("id", "n"))
        table.insert([{"n": 5}])
        table.bulk_insert(spark.range(5).selectExpr("id as n", "concat('r-', id) as row_id"))
        table.update_where("n > 3", {"n": lakelatch.sql("n + 10")})
        table.delete_where("n = 0")
        assert sorted(row["n"] for row in table.read().collect()) == [1, 2, 3, 14, 15]
        assert lakelatch.open(table.table.url).read().count() == 5
