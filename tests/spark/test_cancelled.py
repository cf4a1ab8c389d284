"""Writes, services and reads that are cancelled by a tag or a job group, or interrupted by Ctrl-C: nothing of them lands, or
the error says that it has; the table and the session go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
import lakelatch.spark
from lakelatch.demo.cluster import until
from lakelatch.occ.table import Table
from lakelatch.spark import JobSizes
from lakelatch.testing.faults import FaultStore, Pause

from ..thorough import THOROUGH
from .cancel_job import NEW, OLD, Publishing, rows, stuck
from .driver import DriverStore, started, swept
from .service_job import OfData, Wait

PATIENCE_S = 300.0
SIZES = JobSizes(small_rows=0, driver_bytes=0, tasks_per_core=1)
SERVICES: dict[str, Callable[[Any], Any]] = {
    "cluster": lambda t: t.cluster(),
    "compact": lambda t: t.compact(),
}


def filled(place: str, what: str) -> int:
    """A table with something to do for that service; how many rows it has."""
    settings: dict[str, Any] = {"record_key": "id", "partition_by": "city"}
    if what == "compact":
        settings |= {"type": "merge_on_read", "bucket_count": 1}

    def some(prefix: str, v: int) -> pa.Table:
        keys = range(OLD)
        return pa.table(
            {"id": [f"{prefix}{n}" for n in keys], "city": [f"c{n % 2}" for n in keys], "n": pa.array([v] * OLD)}
        )

    with lakelatch.create(place, **settings) as table:
        table.insert(some("a", 0))
        if what == "cluster":
            table.insert(some("b", 0))
        elif what == "compact":
            table.upsert(some("a", 1))
            table.upsert(some("a", 2))
        return table.read().count()


def sound(place: str, count: int) -> None:
    """So many rows are there, nothing is left over, and it can be written."""
    with lakelatch.open(place) as table:
        table.rollback_failed_writes()
        assert table.plans() == []
        swept(table)
        assert table.read().count() == count
        table.upsert([{"id": "last", "city": "c0", "n": 1}])
        assert table.read().count() == count + 1


@contextmanager
def in_a_job_of(spark: Any, call: Callable[[], object], waits: Path) -> Iterator[list[BaseException]]:
    """The block runs while a task of the call waits; afterwards the call has ended. Its error is in the list."""
    errors: list[BaseException] = []

    def run() -> None:
        spark.sparkContext.setJobGroup("mine", "what I do")
        try:
            call()
        except BaseException as e:
            errors.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    until(lambda: waits.exists() or not thread.is_alive(), "no task", PATIENCE_S)
    yield errors
    thread.join()
    until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), "a job goes on", PATIENCE_S)


# A write, a service and a read; by each of the two ways.
@pytest.mark.parametrize(
    ("what", "way"),
    [
        ("upsert", "group"),
        ("compact", "tag"),
        ("read", "tag"),
        *([("insert", "tag"), ("cluster", "group"), ("read", "group")] if THOROUGH else []),
    ],
)
def test_what_is_cancelled_leaves_nothing(spark: Any, tmp_path: Path, what: str, way: str) -> None:
    place, flag, context = str(tmp_path / "t"), tmp_path / "flag", spark.sparkContext
    count = filled(place, what)
    with lakelatch.open(place) as plain:
        store = plain.store
        if what in SERVICES:  # a task is about to publish a file, and waits
            store = FaultStore(store, Pause(OfData("publish"), Wait(tmp_path, "flag"), forever=True))
        with Table(store) as table:
            t = lakelatch.spark.open(spark, table, sizes=SIZES)

            def call() -> object:
                if what in SERVICES:
                    return SERVICES[what](t)
                frame = t.read() if what == "read" else rows(spark, "new", NEW)
                if what == "read":
                    spark.sparkContext.addJobTag("mine")  # those of reads are the user's
                frame = frame.mapInArrow(stuck(str(flag)), frame.schema)
                return frame.collect() if what == "read" else getattr(t, what)(frame)

            with in_a_job_of(spark, call, tmp_path / "flag-waits") as errors:
                if way == "group":
                    context.cancelJobGroup("mine")
                elif what == "read":
                    context.cancelJobsWithTag("mine")
                else:
                    (begun,) = table.session.log.catch_up().open
                    context.cancelJobsWithTag(f"lakelatch-{begun}")
            assert len(errors) == 1
            assert "cancelled" in str(errors[0])
            told = " ".join(getattr(errors[0], "__notes__", ()))
            assert what == "read" or ("nothing of it landed" if what in SERVICES else "nothing landed") in told
    sound(place, count)


@pytest.mark.parametrize("what", ["upsert", "cluster"])
def test_what_is_cancelled_when_its_jobs_are_done_lands(spark: Any, tmp_path: Path, what: str) -> None:
    """A commit is no job of Spark's: there is nothing to cancel any more, and it is told as landed."""
    place, context = str(tmp_path / "t"), spark.sparkContext
    count = filled(place, what)
    cancelled = []

    def cancel() -> None:
        context.cancelJobGroup("mine")
        context.cancelAllJobs()
        cancelled.append(True)

    with lakelatch.open(place) as plain, Table(DriverStore(plain.store, Pause(Publishing(), cancel))) as table:
        t = lakelatch.spark.open(spark, table, sizes=SIZES)
        done = t.cluster() if what == "cluster" else t.upsert(rows(spark, "new", NEW))
        assert done.completion
    assert cancelled
    sound(place, count + (NEW if what == "upsert" else 0))


STEPS = {
    "upsert@begin": "nothing landed",
    "upsert@job": "nothing landed",
    "upsert@commit": "nothing landed",
    "upsert@landed": "has landed all the same",
    "cluster@job": "nothing of it landed",
    "cluster@landed": "has landed all the same",
    "read@job": "",
}


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process with a session of Spark that runs these steps."""
    process = started("cancel_job", tmp_path, *STEPS, stdout=subprocess.PIPE)
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def test_ctrl_c_leaves_nothing_or_says_that_it_has_landed(tmp_path: Path, driver: subprocess.Popen[str]) -> None:
    """At each place: before the first job, in a job, in the commit before the moment that counts, and behind it."""
    assert driver.stdout is not None
    there = {"upsert": OLD, "cluster": 2 * OLD, "read": OLD}
    for step, note in STEPS.items():
        flag = tmp_path / f"{step}-waits"
        until(lambda flag=flag: flag.exists() or driver.poll() is not None, f"no {step}", PATIENCE_S)  # type: ignore[misc]
        assert flag.exists(), (tmp_path / "log").read_text()[-3000:]
        driver.send_signal(signal.SIGINT)
        told = json.loads(driver.stdout.readline())
        verb = step.partition("@")[0]
        if step == "upsert@landed":
            there[verb] += NEW
        assert (told["step"], told["error"], told["rows"]) == (step, "KeyboardInterrupt", there[verb])
        assert note in " ".join(told["notes"])
    for verb in there:
        assert json.loads(driver.stdout.readline()) == {"step": verb, "inserted": NEW}
    assert driver.wait(PATIENCE_S) == 0
    for verb, count in there.items():
        sound(str(tmp_path / verb), count + NEW)
