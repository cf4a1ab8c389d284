"""A driver that somebody interrupts, as by Ctrl-C, while it writes, runs a service, or reads.

    python -m tests.spark.cancel_job FOLDER STEP...     # a step is VERB@PLACE; its table is FOLDER/VERB

Where a step has come to its place, FOLDER/STEP-waits appears, and the step waits to be interrupted. Each ends with a line of
JSON on standard output: the error, its notes, and the rows that the table has then.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakelatch.testing.contention import until
from lakelatch.testing.faults import Call, FaultStore, On, Pause

from .driver import DriverStore
from .service_job import OfData, Wait

OLD, NEW = 40, 7
_WAIT_S_MAX = 600.0


@dataclass(frozen=True)
class Publishing:
    """The completed instant of a write or service is put on the timeline: its commit entry is in the log."""

    def __call__(self, call: Call) -> bool:
        return call.op == "put_if_absent" and call.path.endswith((".commit", ".replacecommit"))


def stuck(flag: str) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Tasks tell by a file that they run, and go on when there is one with ``-on``."""

    def through(batches: Iterable[Any]) -> Iterator[Any]:
        import pathlib
        import time

        for batch in batches:
            pathlib.Path(f"{flag}-waits").touch()
            end = time.monotonic() + 600
            while not pathlib.Path(f"{flag}-on").exists() and time.monotonic() < end:
                time.sleep(0.02)
            yield batch

    through.__module__ = "__main__"  # it travels by value
    return through


def rows(spark: Any, prefix: str, count: int) -> Any:
    return spark.range(0, count, 1, 2).selectExpr(f"concat('{prefix}', id) id", "concat('c', id % 2) city", "id n")


def _store(inner: Any, place: str, flag: Path) -> Any:
    def wait() -> None:
        Path(f"{flag}-waits").touch()
        end = time.monotonic() + _WAIT_S_MAX
        while time.monotonic() < end:
            time.sleep(0.2)  # a signal that comes in the moment before a wait is heard after it

    places = {"begin": Pause(On("put_if_absent", ".requested"), wait), "commit": Pause(On("settled"), wait)}
    places["landed"] = Pause(Publishing(), wait)
    if place in places:
        return DriverStore(inner, places[place])
    return FaultStore(inner, Pause(OfData("publish"), Wait(flag.parent, flag.name), forever=True))


def main() -> None:
    from pyspark.sql import SparkSession

    import lakelatch
    import lakelatch.spark
    from lakelatch.occ.table import Table
    from lakelatch.storage import open_store

    folder, steps = Path(sys.argv[1]), sys.argv[2:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    tracker = spark.sparkContext.statusTracker()
    sizes = lakelatch.spark.JobSizes(small_rows=0, driver_bytes=0, tasks_per_core=1)
    for verb in dict.fromkeys(step.partition("@")[0] for step in steps):
        with lakelatch.create(str(folder / verb), record_key="id", partition_by="city") as made:
            table = lakelatch.spark.open(spark, made, sizes=sizes)
            for part in "ab" if verb == "cluster" else "a":
                table.insert(rows(spark, part, OLD))
    for step in steps:
        verb, _, place = step.partition("@")
        flag = folder / step
        through = stuck(str(flag))
        with Table(_store(open_store(str(folder / verb)), place, flag)) as table:
            t = lakelatch.spark.open(spark, table, sizes=sizes)
            told: dict[str, Any] = {"step": step, "error": None, "notes": []}
            try:
                if verb == "cluster":
                    t.cluster()
                elif verb == "read":
                    found = t.read()
                    found.mapInArrow(through, found.schema).collect()
                else:
                    new = rows(spark, step, NEW)
                    t.upsert(new.mapInArrow(through, new.schema) if place == "job" else new)
            except BaseException as e:
                told |= {"error": type(e).__name__, "notes": getattr(e, "__notes__", [])}
        if verb == "read":  # PySpark has no way to it
            Path(f"{flag}-on").touch()
        until(lambda: not tracker.getActiveJobsIds(), "a job goes on")
        with lakelatch.open(str(folder / verb)) as plain:
            print(json.dumps(told | {"rows": plain.read().count()}), flush=True)
    for verb in dict.fromkeys(step.partition("@")[0] for step in steps):  # the session writes on
        with lakelatch.open(str(folder / verb)) as plain:
            result = lakelatch.spark.open(spark, plain, sizes=sizes).upsert(rows(spark, "last", NEW))
            print(json.dumps({"step": verb, "inserted": result.inserted}), flush=True)
    spark.stop()


if __name__ == "__main__":
    # What the store of a task consists of travels by the name of its module.
    from tests.spark import cancel_job

    cancel_job.main()
