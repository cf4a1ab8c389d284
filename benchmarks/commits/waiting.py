"""Measure a commit when many processes wait for the lock: CPU seconds of all of them, so that a busy machine may do.

    python -m benchmarks.commits.waiting [--writers 1,16,32,64] [--commits 8] [--folder /dev/shm]

Each writer is a process with a handle and a partition of its own, which adds one row in each commit as fast as it can, on the
table's own lock. Counted is from the moment when all have made one commit: the CPU
of a process with all its threads, and how often it was woken up. Afterwards every row has to be there once.

A rate is told as well, but it says more of what else the machine has to do. Where that is much, commits take longer, and a
writer that looks now and then looks more often for each of them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from .._report import machine, show


def create(url: str) -> None:
    """An empty table."""
    import pyarrow as pa

    import lakelatch

    schema = pa.schema([("id", pa.string()), ("part", pa.string())])
    lakelatch.create(url, record_key="id", partition_by="part", schema=schema).close()


def write(number: int, url: str, commits: int, ready: Any, start: Any, told: Any) -> None:
    """One writer."""
    import pyarrow as pa

    import lakelatch

    with lakelatch.open(url, writer=f"w{number}") as table:

        def commit(count: int) -> None:
            table.insert(pa.table({"id": [f"{number}-{count}"], "part": [f"p{number}"]}))

        commit(0)
        ready.release()
        start.wait()
        began, cpu_s, woken = time.monotonic(), time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        for count in range(commits):
            commit(count + 1)
        used = resource.getrusage(resource.RUSAGE_SELF)
        told.put((began, time.monotonic(), time.process_time() - cpu_s, used.ru_nvcsw - woken))


def count_rows(url: str, told: Any) -> None:
    """Count the rows of the table."""
    import lakelatch

    with lakelatch.open(url) as table:
        told.put(table.read(columns=["id"]).to_arrow().num_rows)


def measure(writers: int, commits: int, folder: str | None) -> dict[str, object]:
    """Measure one new table."""
    # What is imported costs each writer nothing; anyone who opens a table does so in a process that was forked before.
    import pyarrow as pa  # noqa: F401
    import pyarrow.parquet as pq  # noqa: F401

    import lakelatch
    import lakelatch.occ.table  # noqa: F401

    fork = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory(dir=folder) as place:
        url = str(Path(place, "t"))
        ready, start, told = fork.Semaphore(0), fork.Event(), fork.SimpleQueue()

        def child(work: Any, *given: Any) -> Any:
            process = fork.Process(target=work, args=given)
            process.start()
            return process

        child(create, url).join()
        pool = [child(write, number, url, commits, ready, start, told) for number in range(writers)]
        for _ in pool:
            ready.acquire()
        start.set()
        found = [told.get() for _ in pool]
        for each in pool:
            each.join()
        last = child(count_rows, url, told)
        rows = told.get()
        last.join()
        assert rows == writers * (commits + 1), f"{rows} rows of {writers * (commits + 1)}"
    count = writers * commits
    seconds = max(ended for _, ended, _, _ in found) - min(began for began, _, _, _ in found)
    return {
        "writers": writers,
        "cpu_ms": round(1000 * sum(cpu_s for _, _, cpu_s, _ in found) / count, 1),
        "woken": round(sum(woken for _, _, _, woken in found) / count, 1),
        "commits_per_s": round(count / seconds, 1),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--writers", default="1,16,32,64")
    options.add_argument("--commits", type=int, default=8, help="of each writer, after one that is not counted")
    options.add_argument("--folder", help="where the tables are; otherwise where temporary files are")
    given = options.parse_args()
    for writers in map(int, given.writers.split(",")):
        show("machine", machine())
        show("one table", measure(writers, given.commits, given.folder))


if __name__ == "__main__":
    main()
