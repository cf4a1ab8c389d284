"""A driver that runs services of some tables at once, each until a task of it is about to publish or delete its first data file.

    python -m tests.spark.service_job FOLDER SERVICE...     # the table of a service is FOLDER/SERVICE

That task waits for the file ``SERVICE-on`` in FOLDER. Flags there: ``SERVICE-waits``; ``SERVICE-gone``, when it has
deleted a data file afterwards; ``jvm``, the process id of Spark's JVM.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from lakelatch.hudi.files import BaseFile, LogFile
from lakelatch.testing.faults import Call, FaultStore, Pause

CALLS = {
    "cluster": lambda table: table.cluster(),
    "compact": lambda table: table.compact(),
    "compact_logs": lambda table: table.compact_logs(min_logs=2),
    "clean": lambda table: table.clean(retain_commits=0),
}
_WAIT_S_MAX = 600.0


@dataclass(frozen=True)
class OfData:
    """Calls of that method for data files."""

    op: str

    def __call__(self, call: Call) -> bool:
        return call.op == self.op and bool(BaseFile.at(call.path, 0) or LogFile.at(call.path, 0))


@dataclass(frozen=True)
class Wait:
    """The first task that comes here waits."""

    folder: Path
    service: str

    def __call__(self) -> None:
        try:
            (self.folder / f"{self.service}-waits").touch(exist_ok=False)
        except FileExistsError:
            return
        until = time.monotonic() + _WAIT_S_MAX
        while not (self.folder / f"{self.service}-on").exists() and time.monotonic() < until:
            time.sleep(0.02)


@dataclass(frozen=True)
class Tell:
    """The task that has waited came here."""

    folder: Path
    service: str

    def __call__(self) -> None:
        if (self.folder / f"{self.service}-on").exists():
            (self.folder / f"{self.service}-gone").touch()


def main() -> None:
    from pyspark.sql import SparkSession

    import lakelatch.spark
    from lakelatch.occ.table import Table
    from lakelatch.storage import open_store

    folder, services = Path(sys.argv[1]), sys.argv[2:]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        # A core for each task that waits, and one for the others.
        SparkSession.builder.master(f"local[{len(services) + 1}]")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .getOrCreate()
    )
    (folder / "jvm").write_text(str(spark.sparkContext._gateway.proc.pid))
    sizes = lakelatch.spark.JobSizes(driver_bytes=0)
    threads = []
    for service in services:
        written = "delete" if service == "clean" else "publish"
        store = FaultStore(
            open_store(str(folder / service)),
            Pause(OfData(written), Wait(folder, service), forever=True),
            Pause(OfData("delete"), Tell(folder, service), after=True, forever=True),
        )
        table = lakelatch.spark.open(spark, Table(store, writer="killed"), sizes=sizes)
        threads.append(threading.Thread(target=CALLS[service], args=[table]))
        threads[-1].start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    # What the store of a task consists of travels by the name of its module.
    from tests.spark import service_job

    service_job.main()
