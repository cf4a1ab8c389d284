"""One writer process: ``python -m lakelatch.demo.writer JOB.json FOLDER``, with a folder for Spark's files.

It tells its parent what happens, as JSON lines.

The parent holds every writer's first attempt at one point, after its files are written and before it commits, so
that the conflicts that the demonstration promises are certain and not a matter of luck.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import CommitError
from ..hudi.table import META_COLUMNS
from ..occ.table import Table
from ..occ.table import open as open_table
from ..occ.transaction import RunResult, Transaction
from ..storage import open_store
from .story import Task, mark

T = TypeVar("T")


class Events:
    """JSON lines to the parent, on what was standard output; what else is printed goes to standard error."""

    def __init__(self) -> None:
        self._out = os.fdopen(os.dup(1), "w", buffering=1)
        os.dup2(2, 1)  # Spark's JVM inherits it

    def tell(self, event: str, **facts: Any) -> None:
        """Send one event."""
        self._out.write(json.dumps({"event": event, "at": time.time(), **facts}) + "\n")

    def wait(self) -> None:
        """Return when the parent says go; leave when the parent is gone."""
        if not sys.stdin.readline():
            raise SystemExit(3)


class Losses(logging.Handler):
    """Turns the library's own log of lost attempts into events, as they happen."""

    def __init__(self, events: Events) -> None:
        super().__init__(logging.INFO)
        self._events = events

    def emit(self, record: logging.LogRecord) -> None:
        for error in record.args if isinstance(record.args, tuple) else ():
            if isinstance(error, CommitError):
                winner = error.details.get("winner_writer")
                self._events.tell("lost", instant=error.instant, winner=winner, error=type(error).__name__)


class WatchedTable(Table):
    """A table that tells what its transactions do, and holds the first attempt before its commit."""

    def __init__(self, url: str, storage: dict[str, str], writer: str, events: Events) -> None:
        super().__init__(open_store(url, **storage), writer=writer)
        self._events = events

    def run(self, work: Callable[[Transaction], T], **options: Any) -> RunResult[T]:
        attempts = 0

        def told(txn: Transaction) -> T:
            nonlocal attempts
            attempts += 1
            self._events.tell("began", instant=txn.instant, attempt=attempts)
            files = work(txn)
            self._events.tell("written", instant=txn.instant, files=len(txn.files))
            if attempts == 1:
                self._events.wait()
            return files

        result = super().run(told, **options)
        if result.commit is not None:
            self._events.tell("landed", instant=result.commit.instant, completion=result.commit.completion)
        return result


def session_in(scratch: str, name: str, settings: Mapping[str, str] | None = None) -> Any:
    """Return a small Spark session of this process that keeps its files in a folder; ``settings`` win, ``spark.master`` too."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    from pyspark.sql import SparkSession

    builder = (
        # One core and a small heap each: several of these run on one machine.
        SparkSession.builder.master("local[1]")
        .appName(f"lakelatch-demo-{name}")
        .config("spark.driver.memory", "768m")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")  # for short lives
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.local.dir", scratch)
        .config("spark.sql.warehouse.dir", scratch)
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for key, value in (settings or {}).items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def with_spark(table: Table, task: Task, job: dict[str, Any], scratch: str, events: Events) -> None:
    """Do the task as a PySpark job."""
    from .. import spark as latch

    settings = job["spark"]
    session = session_in(scratch, task.name, settings)
    events.tell("session", application=session.sparkContext.applicationId)
    # On a cluster it is the executors that write, also few rows.
    flights = latch.open(session, table, sizes=latch.JobSizes(small_rows=0) if settings else latch.JobSizes())
    if task.kind == "upsert":
        flights.upsert(session.read.parquet(job["rows"]))
    else:
        flights.delete_where(f"carrier = '{task.carrier}'")
    if task.loses_executor:
        events.tell("executors", lost_tasks=tasks_of_the_dead(session))
    session.stop()


def tasks_of_the_dead(session: Any) -> int:
    """Count the tasks that executors had begun and not ended when they died.

    From the tasks themselves: what Spark counts for an executor lacks the tasks whose end it hears of after its executor's.
    """
    context, jvm = session.sparkContext, session.sparkContext._jvm
    context._jsc.sc().listenerBus().waitUntilEmpty(300_000)
    store = context._jsc.sc().statusStore()
    none, no_quantiles = jvm.java.util.ArrayList(), context._gateway.new_array(jvm.double, 0)
    stages = store.stageList(none, False, False, no_quantiles, none)
    lost = 0
    for number in range(stages.size()):
        stage = stages.apply(number)
        tasks = store.taskList(stage.stageId(), stage.attemptId(), stage.numTasks() + stage.numFailedTasks())
        errors = [tasks.apply(each).errorMessage() for each in range(tasks.size())]
        lost += sum(error.isDefined() and error.get().startswith("ExecutorLostFailure") for error in errors)
    return lost


def with_pyarrow(table: Table, task: Task) -> None:
    """Do the task without Spark: the transaction in a writer's own commit path."""
    wanted, note = mark(task)

    def work(txn: Transaction) -> list[Any]:
        files = []
        for month in task.months:
            txn.depends_on(f"month={month}")  # all of the month, also what others add to it meanwhile
            for group in txn.snapshot.file_slices(f"month={month}"):
                rows = txn.read_slice(group, meta=True)
                chosen = pc.is_null(rows["dep_time"]) if wanted == "cancelled" else pc.equal(rows["origin"], wanted)
                with txn.rewrite(group) as new:
                    new.write(_marked(rows, chosen, note))
                files.append(new)
        return files

    table.run(work)


def _marked(rows: pa.Table, chosen: Any, note: str) -> pa.Table:
    """Return the rows with a note on the chosen ones; those lose their meta columns, so they count as changed."""
    columns = {name: rows[name] for name in rows.column_names}
    for name in META_COLUMNS:
        columns[name] = pc.if_else(chosen, None, columns[name])
    columns["note"] = pc.if_else(chosen, note, columns["note"])
    return pa.table(columns)


def send_events(job: dict[str, Any], scratch: str, events: Events, *, doomed: bool) -> None:
    """Send a stream's events to its table, batch by batch.

    Killed, the job is started again and begins with its first batch: what has landed before changes nothing when it comes
    again. One that is doomed is to be killed before it is at its end, so it waits for that before its last batch.
    """
    with open_table(job["table"], writer=job["stream"]) as table:
        session: Any = None
        stream: Any = None
        if job["spark"]:
            from .. import spark as latch

            session = session_in(scratch, job["stream"])
            stream = latch.open(session, table).stream(job["stream"])
        else:
            stream = table.stream(job["stream"])
        for number, batch in enumerate(job["batches"]):
            if doomed and number == len(job["batches"]) - 1:
                sys.stdin.read()  # until its parent is gone
            done = stream.upsert(session.read.parquet(batch) if session else pq.read_table(batch))
            events.tell("landed", batch=number, instant=done.instant, lost=len(done.losses))
        if session:
            session.stop()


def write_beside(job: dict[str, Any], scratch: str, events: Events, *, doomed: bool) -> None:
    """Write or delete the rows of each round beside JVM jobs; one that is doomed waits before its second commit."""
    from .neighbours import rows_to_delete, rows_to_write

    name = job["beside"]
    with open_table(job["table"], writer=name) as table:
        session: Any = None
        if name == "spark":
            from .. import spark as latch

            session = session_in(scratch, name)
            shared = latch.open(session, table, sizes=latch.JobSizes(small_rows=0))
        for number in range(job["rounds"]):

            def delete(txn: Transaction, number: int = number) -> None:
                txn.delete(rows_to_delete(number))
                if doomed and number == 1:
                    events.tell("written", round=number)
                    sys.stdin.read()  # until its parent is gone

            if session:
                frame = session.createDataFrame(rows_to_write(name, number).to_pandas())
                losses = shared.upsert(frame).losses
            else:
                losses = table.run(delete, operation="delete").losses
            for _ in losses:
                events.tell("lost", round=number)
            events.tell("landed", round=number)
        if session:
            session.stop()


def main(path: str, scratch: str, *how: str) -> int:
    """Do the job; returns the exit code."""
    events, job = Events(), json.loads(Path(path).read_text())
    if "stream" in job:
        send_events(job, scratch, events, doomed="doomed" in how)
        return 0
    if "beside" in job:
        write_beside(job, scratch, events, doomed="doomed" in how)
        return 0
    retries = logging.getLogger("lakelatch.retry")
    retries.setLevel(logging.INFO)
    retries.addHandler(Losses(events))
    task = Task(**job["task"] | {"months": tuple(job["task"]["months"])})
    with WatchedTable(job["table"], job["storage"], task.name, events) as table:
        if task.spark:
            with_spark(table, task, job, scratch, events)
        else:
            with_pyarrow(table, task)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
