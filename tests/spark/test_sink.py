"""A streaming query that dies between a commit and Spark's note of it: each of its batches lands once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelatch
import lakelatch.spark
from lakelatch.errors import InputError

EVENTS = "id string, n long"


class _Died(Exception):
    pass


def run_until_it_ends(
    spark: Any, folder: Path, land: Callable[[Any, int], Any], *, dies_after: set[int]
) -> list[tuple[int, bool]]:
    """The batches and whether each was a repetition, of a query that is started again until all rows have come."""
    from pyspark.errors import StreamingQueryException

    told: list[tuple[int, bool]] = []
    left = set(dies_after)

    def each(rows: Any, number: int) -> None:
        told.append((number, land(rows, number).repeated))
        if number in left:
            left.remove(number)
            raise _Died

    for _ in range(len(dies_after) + 1):
        query = (
            spark.readStream.schema(EVENTS).option("maxFilesPerTrigger", 1).json(str(folder / "events"))
            .writeStream.foreachBatch(each).option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        try:
            query.awaitTermination()
            return told
        except StreamingQueryException as e:
            if "_Died" not in str(e):
                raise
    raise AssertionError("it did not end")


def events(folder: Path, count: int) -> None:
    (folder / "events").mkdir()
    for number in range(count):
        rows = [{"id": "a", "n": 1}, {"id": f"only {number}", "n": 10}]
        (folder / "events" / f"{number}.json").write_text("\n".join(map(json.dumps, rows)))


def test_a_query_that_dies_after_its_commits_counts_each_batch_once(spark: Any, tmp_path: Path) -> None:
    events(tmp_path, 3)
    with lakelatch.create(str(tmp_path / "t"), record_key="id", merge={"n": "sum"}) as plain:
        table = lakelatch.spark.open(spark, plain)
        told = run_until_it_ends(spark, tmp_path, table.sink("upsert"), dies_after={0, 2})
        assert told == [(0, False), (0, True), (1, False), (2, False), (2, True)]
        found = {row["id"]: row["n"] for row in plain.read().to_pylist()}
        assert found == {"a": 3, "only 0": 10, "only 1": 10, "only 2": 10}
        rows = spark.createDataFrame([("a", 1)], EVENTS)
        with pytest.raises(InputError, match="hand the sink to foreachBatch"):
            table.sink()(rows, 0)
        assert not table.sink(source="by hand")(rows, 5).repeated
        assert table.upsert(rows, batch=("by hand", 5)).repeated
        assert plain.last_batch("by hand") == 5
        with pytest.raises(InputError, match="written by upsert"):
            table.sink("read")


def test_a_query_that_begins_again_after_a_restore_repeats_what_was_taken_back(spark: Any, tmp_path: Path) -> None:
    """Its checkpoint is new, and its numbers are those of before, under a name of its own: what stands is not counted twice."""
    events(tmp_path, 3)
    with lakelatch.create(str(tmp_path / "t"), record_key="id", merge={"n": "sum"}) as plain:
        table = lakelatch.spark.open(spark, plain)
        assert run_until_it_ends(spark, tmp_path, table.sink(source="events"), dies_after=set()) == [
            (number, False) for number in range(3)
        ]
        plain.restore(plain.commits()[-2][0].requested)
        assert plain.last_batch("events") == 1
        (tmp_path / "checkpoint").rename(tmp_path / "old checkpoint")
        told = run_until_it_ends(spark, tmp_path, table.sink(source="events"), dies_after=set())
        assert told == [(0, True), (1, True), (2, False)]
        assert {row["id"]: row["n"] for row in plain.read().to_pylist()}["a"] == 3


def test_two_queries_of_one_table_do_not_share_their_numbers(spark: Any, tmp_path: Path) -> None:
    with lakelatch.create(str(tmp_path / "t"), record_key="id", merge={"n": "sum"}) as plain:
        table = lakelatch.spark.open(spark, plain)
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            events(tmp_path / name, 1)
            told = run_until_it_ends(spark, tmp_path / name, table.sink(), dies_after=set())
            assert told == [(0, False)]
        assert {row["id"]: row["n"] for row in plain.read().to_pylist()} == {"a": 2, "only 0": 20}
