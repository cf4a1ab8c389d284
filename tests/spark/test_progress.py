"""How far Spark's jobs have come is told by their tasks; what is told ends them by raising, and nothing is left behind."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelatch import Progress
from lakelatch.errors import InputError
from lakelatch.hudi.files import list_data_files
from lakelatch.occ.check.check import check
from lakelatch.spark.writing.job_progress import JobProgress
from lakelatch.testing.contention import until

from .driver import ROUTES, meanwhile

COLUMNS = "id long, city string, v long"


def frame(spark: Any, first: int, count: int, v: int = 0) -> Any:
    rows = [(n, ("Oslo", "Rome", "Bern")[n % 3], v) for n in range(first, first + count)]
    return spark.createDataFrame(rows, COLUMNS)


@pytest.fixture
def table(make: Callable[..., Any], spark: Any) -> Any:
    table = make(sizes=ROUTES["tasks"])
    table.insert(frame(spark, 0, 30))
    return table


@pytest.fixture(autouse=True)
def _nothing_left(spark: Any) -> Iterator[None]:
    """No thread of ours outlives its write, and no property of a job."""
    yield
    assert [each.name for each in threading.enumerate() if each.name.startswith("lakelatch-progress")] == []
    assert not spark.sparkContext.getJobTags()
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "insert": lambda t, s, told: t.insert(frame(s, 90, 9), progress=told),
    "upsert": lambda t, s, told: t.upsert(frame(s, 20, 20, 1), progress=told),
    "delete": lambda t, s, told: t.delete(frame(s, 0, 9), progress=told),
    "delete_where": lambda t, s, told: t.delete_where("id < 5", progress=told),
    "update_where": lambda t, s, told: t.update_where("id < 5", {"v": 5}, progress=told),
    "insert_overwrite": lambda t, s, told: t.overwrite(frame(s, 0, 3, 3), progress=told),
    "insert_overwrite_table": lambda t, s, told: t.overwrite_table(frame(s, 0, 3, 3), progress=told),
    "merge": lambda t, s, told: t.merge(frame(s, 20, 20, 3), progress=told).when_matched(update="all").run(),
}


@pytest.mark.parametrize("call", CALLS)
def test_each_write_tells_the_tasks_of_its_jobs_and_what_they_have_written(table, spark, call):
    from pyspark.accumulators import _accumulatorRegistry

    told: list[Progress] = []
    done = CALLS[call](table, spark, told.append)
    assert {(each.what, each.unit) for each in told} == {
        ({"merge": "upsert", "delete_where": "delete", "update_where": "upsert"}.get(call, call), "tasks")
    }
    assert all(each.total is not None and 0 <= each.done <= each.total for each in told)
    assert told[-1].done == told[-1].total > 0
    written = [base for base in list_data_files(table.table.store).bases if base.instant == done.instant]
    rows = sum(pq.read_metadata(Path(table.table.url.removeprefix("file://"), base.path)).num_rows for base in written)
    assert (told[-1].files, told[-1].rows, told[-1].bytes) == (len(written), rows, sum(base.size for base in written))
    assert not [number for number in _accumulatorRegistry if number >= 0]  # others are those of PySpark itself


def test_rows_that_the_driver_writes_are_told_as_rows(make, spark):
    table = make(sizes=ROUTES["driver"])
    told: list[Progress] = []
    table.insert(frame(spark, 0, 30), progress=told.append)
    assert told == [Progress("insert", 30, None, "rows")]
    told.clear()
    table.upsert(frame(spark, 27, 6, 1), progress=told.append)
    assert told[-1].unit == "rows"


def test_it_is_told_while_the_job_runs(table, spark, tmp_path):
    flag = str(tmp_path / "told")

    def patient(batches: Any) -> Any:
        end = time.monotonic() + 600
        while not Path(flag).exists() and time.monotonic() < end:
            time.sleep(0.02)
        yield from batches

    told: list[Progress] = []

    def tell(now: Progress) -> None:
        told.append(now)
        Path(flag).touch()

    rows = frame(spark, 100, 8).repartition(4).mapInArrow(patient, COLUMNS)
    table.insert(rows, progress=tell)
    assert told[0].files == 0 < told[-1].files
    assert told[-1].done == told[-1].total


def test_the_end_is_told_also_where_sparks_tracker_has_heard_of_no_job_yet(spark):
    told: list[Progress] = []
    progress = JobProgress(spark.sparkContext, "lakelatch-nobody", told.append, "upsert")
    with progress.watching():
        progress.answered = 3
    assert told == [Progress("upsert", 3, 3, "tasks", 0, 0, 0)]


class _Enough(Exception):
    pass


@pytest.mark.parametrize(("verb", "error"), [("insert", _Enough), ("upsert", KeyboardInterrupt)])
def test_what_is_told_cancels_the_jobs_by_raising(table, spark, verb, error):
    def stuck(batches: Any) -> Any:
        for batch in batches:
            time.sleep(600)
            yield batch

    before = table.read().count(), list_data_files(table.table.store).bases

    def enough(_now: Progress) -> None:
        raise error("enough")

    began = time.monotonic()
    with pytest.raises(error, match="enough"):
        getattr(table, verb)(frame(spark, 100, 8).repartition(4).mapInArrow(stuck, COLUMNS), progress=enough)
    assert time.monotonic() - began < 300  # and not 600
    # Spark tells of its end a moment later.
    until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), "a job goes on")
    assert not table.table.timeline().pending
    assert (table.read().count(), list_data_files(table.table.store).bases) == before
    assert not [each for each in check(table.table.store).findings if each.severity != "note"]


def test_what_is_told_last_still_ends_the_write(table, spark):
    def enough(now: Progress) -> None:
        if now.done == now.total:
            raise _Enough

    with pytest.raises(_Enough):
        table.upsert(frame(spark, 20, 20, 1), progress=enough)
    assert table.read().where("v = 1").count() == 0
    table.upsert(frame(spark, 20, 20, 1))
    assert table.read().where("v = 1").count() == 20


def test_an_attempt_that_lost_begins_again(table, spark):
    other = frame(spark, 60, 3)
    meanwhile(table, lambda: table.insert(other))
    told: list[Progress] = []
    result = table.overwrite_table(frame(spark, 0, 3, 3), progress=told.append)
    assert result.attempts == 2
    assert sum(each.done == each.total for each in told) >= 2
    assert table.read().count() == 3


def test_jobs_have_descriptions_that_say_what_they_do(table, spark):
    jobs = spark.sparkContext._jsc.sc().statusStore()

    def seen() -> bool:
        found = jobs.jobsList(None)
        texts = [str(found.apply(n).description()) for n in range(found.length())]
        return any(f"upsert into {table.table.url}: merges rows into their file groups" in each for each in texts)

    table.upsert(frame(spark, 20, 20, 1))
    until(seen, "no job has the description")  # Spark tells of its jobs a moment later


def test_what_cannot_be_called_is_refused_and_so_is_progress_in_a_transaction(table, spark):
    with pytest.raises(InputError, match="cannot be called"):
        table.upsert(frame(spark, 0, 3), progress=3)
    with pytest.raises(InputError, match="part of a transaction"):
        table.run(lambda txn: txn.upsert(frame(spark, 0, 3), progress=print))


def test_events_of_a_stream_are_told_too(make, spark):
    fields = [("id", pa.int64()), ("city", pa.string()), ("v", pa.int64()), ("at", pa.int64())]
    table = make(sizes=ROUTES["tasks"], schema=pa.schema(fields), type="merge_on_read", table_version=9, bucket_count=2)
    told: list[Progress] = []
    events = frame(spark, 0, 9).selectExpr("*", "v at")
    table.stream("a", columns=["v"], ordering="at").upsert(events, progress=told.append)
    assert (told[-1].what, told[-1].unit) == ("upsert", "tasks")
    assert told[-1].done == told[-1].total > 0


def test_true_draws_a_bar_for_writes_and_services(
    spark: Any, table: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in a terminal
    for n in range(3):
        table.upsert(frame(spark, 0, 10, n))
    for call in (
        lambda: table.upsert(frame(spark, 0, 10, 1), progress=True),
        lambda: table.clean(retain_commits=1, progress=True),
    ):
        capsys.readouterr()
        call()
        drawn = capsys.readouterr().err
        assert "tasks" in drawn or "files" in drawn
        assert drawn.endswith("\x1b[2K"), "the line is taken away"
