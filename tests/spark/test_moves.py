"""Tables whose keys are unique over all partitions: a DataFrame moves rows too, few on the driver and many by tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakelatch.errors import ConstraintError
from lakelatch.spark import JobSizes

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.int64())])
COLUMNS = "id long, p string, v long"
WAYS = {"on the driver": JobSizes(), "by tasks": JobSizes(small_rows=0, lookup_bytes=0)}


@pytest.fixture(params=WAYS)
def table(request: pytest.FixtureRequest, make: Callable[..., Any]) -> Any:
    sizes = WAYS[request.param]
    made = make(sizes=sizes, partition_by="p", ordering_field="v", schema=SCHEMA, unique_keys="table")
    made.table.insert([{"id": n, "p": "ab"[n % 2], "v": n} for n in range(6)])
    return made


def content(table: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in table.read(columns=["id", "p", "v"]).collect()), key=lambda row: row[0])


def test_an_upsert_moves_rows_and_leaves_newer_ones(spark: Any, table: Any) -> None:
    given = spark.createDataFrame([(0, "b", 50), (5, "a", 1), (3, "b", 33), (4, None, 44), (9, "c", 9)], COLUMNS)
    done = table.upsert(given)
    assert (done.inserted, done.updated, done.deleted) == (3, 1, 2)
    assert content(table) == [
        (0, "b", 50),
        (1, "b", 1),
        (2, "a", 2),
        (3, "b", 33),
        (4, None, 44),
        (5, "b", 5),
        (9, "c", 9),
    ]
    table.upsert(spark.createDataFrame([(4, "a", 45)], COLUMNS))
    assert (4, "a", 45) in content(table)


def test_what_would_store_a_key_twice_is_refused(spark: Any, table: Any) -> None:
    before = content(table)
    for rows in ([(0, "b", 50)], [(9, "a", 1), (9, "b", 1)]):
        given = spark.createDataFrame(rows, COLUMNS)
        with pytest.raises(ConstraintError, match=r"unique in this table \(id\)"):
            table.insert(given)
    with pytest.raises(ConstraintError, match=r"unique in this table \(id\)"):
        table.upsert(given)
    assert content(table) == before


def test_a_key_that_was_put_elsewhere_meanwhile_is_found_by_the_next_attempt(spark: Any, table: Any) -> None:
    given, met = spark.createDataFrame([(0, "b", 50), (9, "a", 9)], COLUMNS), []

    def work(txn: Any) -> None:
        txn.upsert(given)
        if not met:
            met.append(table.table.upsert([{"id": 0, "p": "c", "v": 10}, {"id": 9, "p": "c", "v": 1}]))

    done = table.run(work)
    assert done.attempts == 2
    assert {(0, "b", 50), (9, "a", 9)} <= set(content(table))
    assert len(content(table)) == 7
