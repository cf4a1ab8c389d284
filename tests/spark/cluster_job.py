"""A driver on a cluster: writes one table in S3, while its tasks, or the test, kill what they run on.

    python -m tests.spark.cluster_job MASTER FOLDER STEP...     # the place of the table as JSON on standard input

Each step is a write; it ends with a line on standard output: how many of its rows are there, or the error. ``FOLDER`` has
the flags that tasks leave for each other.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROWS, PARTS = 4_000, 4
SLOW_S = 60.0


def once(folder: str, name: str) -> bool:
    """True for the first that asks."""
    try:
        (Path(folder) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def kill_the_executor() -> None:
    """The JVM that this Python worker belongs to: the parent of the daemon that forked it."""
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(executor, signal.SIGKILL)


def drawn(batch: Any) -> Any:
    """The batch with values that are others in each run of its task. Spark's own `uuid()` repeats its values."""
    import pyarrow as pa

    place = batch.schema.get_field_index("drawn")
    return batch.set_column(place, "drawn", pa.array([uuid.uuid4().hex for _ in range(batch.num_rows)], pa.string()))


def dying(folder: str, name: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Rows as they come; once, after the first batch, the executor dies."""

    def through(batches: Iterable[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            yield drawn(batch)
            if number == 1 and once(folder, name):
                kill_the_executor()

    return through


def slow(folder: str, name: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Rows as they come; the first run of one task stops after its first batch until a second run of it has begun."""

    def through(batches: Iterable[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        context = TaskContext.get()
        mine = context is not None and context.partitionId() == 0
        if mine and not once(folder, name):
            once(folder, f"{name}-copy")
        for number, batch in enumerate(batches):
            yield drawn(batch)
            if mine and number == 0 and not (Path(folder) / f"{name}-copy").exists():
                until = time.monotonic() + SLOW_S
                while not (Path(folder) / f"{name}-copy").exists() and time.monotonic() < until:
                    time.sleep(0.05)
                time.sleep(SLOW_S if (Path(folder) / f"{name}-copy").exists() else 0)  # until Spark ends this run

    return through


def waiting(folder: str, name: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Rows as they come; every task stops after its first batch until the test says so, or for good."""

    def through(batches: Iterable[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            yield drawn(batch)
            if number == 0:
                once(folder, name)
                until = time.monotonic() + SLOW_S
                while not (Path(folder) / f"{name}-on").exists() and time.monotonic() < until:
                    time.sleep(0.05)

    return through


def rows(spark: Any, step: str) -> Any:
    """Each step has keys of its own, and values that `drawn` draws."""
    return spark.range(0, ROWS, 1, PARTS).selectExpr(
        f"concat('{step}-', id) id", "concat('c', id % 3) city", "id v", "'' drawn"
    )


def main() -> int:
    master, folder, *steps = sys.argv[1:]
    given = json.load(sys.stdin)
    logging.basicConfig(level=logging.WARNING)
    from pyspark.sql import SparkSession

    import lakelatch
    import lakelatch.spark

    builder = (
        SparkSession.builder.master(master)
        .appName("lakelatch-cluster")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.cores", "1")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
        .config("spark.speculation", "true")
        .config("spark.speculation.interval", "200ms")
        .config("spark.speculation.quantile", "0.5")
        .config("spark.speculation.multiplier", "1.5")
        .config("spark.speculation.minTaskRuntime", "500ms")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.compress", "false")
        .config("spark.eventLog.dir", f"file://{given['events']}")
        .config("spark.ui.showConsoleProgress", "false")
    )
    for name, value in given.get("settings", {}).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    with lakelatch.open(given["url"], storage=given["storage"]) as table:
        sizes = lakelatch.spark.JobSizes(small_rows=0, tasks_per_core=2)
        t = lakelatch.spark.open(spark, table, sizes=sizes)
        for step in steps:
            frame = rows(spark, step)
            kind, _, verb = step.partition("+")
            if kind == "plain":  # without a function of the tests, which a bare worker lacks
                frame = frame.selectExpr("id", "city", "v", "uuid() drawn")
            else:
                through = {"dying": dying, "slow": slow}.get(kind, waiting)(folder, step)
                frame = frame.mapInArrow(through, frame.schema)
            try:
                getattr(t, verb)(frame)
                print(step, t.read(filter=f"id like '{step}-%'").count(), flush=True)
            except Exception as e:
                said = " ".join([str(e), *getattr(e, "__notes__", ())])
                print(step, type(e).__name__, " | ".join(said.splitlines()), flush=True)
    spark.stop()
    return 0


if __name__ == "__main__":
    # Functions of the program itself travel by value, those of a module by name.
    from tests.spark import cluster_job

    sys.exit(cluster_job.main())
