"""An upsert of one percent of the rows on a standalone cluster of two workers with one core each, and on ``local[2]``.

    python -m benchmarks.spark.cluster [--rows 50000000] [--rounds 2] [--folder F]

The cluster is that of ``make demo-cluster``: processes of this machine on two addresses, the table in S3 (versitygw, which has
to be on the PATH). Changed keys lie evenly in all file groups, so that each upsert rewrites all of them. Both ways take
turns, each time with a new driver. Told of each: seconds; CPU seconds of all processes, the S3 server among them; and the most
memory of each worker: its executor and the Python processes of that, shared pages counted once (Pss). Goal: 1 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import lakelatch
from lakelatch.demo.cluster import s3_server, spark_cluster, until

from .._report import machine, show
from .data import folder_bytes
from .timing import TreeClock

FILE_ROWS = 1_000_000  # of a file group; two make a partition
EVERY = 100  # of so many rows one is changed
_LOOK_EVERY_S = 0.25


def driver(master: str, rows: int, url: str, storage: dict[str, str]) -> None:
    """One application: tells when it is ready, and does what it is told: to load the table, or to upsert."""
    from pyspark.sql import SparkSession

    import lakelatch.spark

    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.memory", "512m" if master.startswith("spark:") else "1g")
        .config("spark.executor.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(0, 4, 1, 4).mapInArrow(lambda batches: batches, "id long").count()  # executors and Python are there
    columns = [
        "concat(lower(hex(xxhash64(id))), '-', id) id",
        f"cast(id div {2 * FILE_ROWS} as string) part",
        "{n} n",
        "xxhash64(id, 1) / 7.0 x",
        "concat('text ', xxhash64(id, 2) % 9973) t",
    ]
    with lakelatch.open(url, storage=storage) as table:
        t = lakelatch.spark.open(spark, table)
        print("ready", flush=True)
        for line in sys.stdin:
            began, added = time.perf_counter(), int(line)
            whole = spark.range(0, rows, 1, -(-rows // FILE_ROWS))
            changed = whole if added == 0 else whole.where(f"id % {EVERY} = 7")
            frame = changed.selectExpr(*(each.format(n=f"-(id + {added})" if added else "id") for each in columns))
            result = t.bulk_insert(frame) if added == 0 else t.upsert(frame)
            seconds = time.perf_counter() - began
            print(
                json.dumps({"seconds": seconds, "inserted": result.inserted, "updated": result.updated}),
                flush=True,
            )
    spark.stop()


class Memory:
    """The most that groups of processes have resident at once, in MB, by the name of the group; while the block lasts."""

    def __init__(self, groups: Callable[[], dict[str, Iterable[int]]]) -> None:
        self.most: dict[str, float] = {}
        self._groups, self._over = groups, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            below = _children()
            for name, pids in self._groups().items():
                # Of an executor the Python processes are below it.
                for kind, whole in (("", True), (", its Python", False)) if name != "all" else (("", True),):
                    size = sum(_resident_mb(pid) for pid in _tree(pids, below) if whole or pid not in pids)
                    self.most[name + kind] = max(self.most.get(name + kind, 0.0), size)


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            found.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    return found


def _tree(pids: Iterable[int], below: dict[int, list[int]]) -> list[int]:
    todo, found = list(pids), list[int]()
    while todo:
        found.append(todo.pop())
        todo += below.get(found[-1], [])
    return found


def _resident_mb(pid: int) -> float:
    with suppress(OSError, StopIteration):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024
    return 0.0


class Application:
    """A driver of its own process."""

    def __init__(self, master: str, rows: int, url: str, storage: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.spark.cluster", "--driver", master, "--rows", str(rows), "--url", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYSPARK_PYTHON": sys.executable, "BENCH_STORAGE": json.dumps(storage)},
        )
        self.pid = self._process.pid

    def __enter__(self) -> Application:
        assert self._line() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, f"the driver ended with {self._process.wait()}"
        return line

    def does(self, added: int) -> dict[str, Any]:
        """0: load the table; else a number that the changed rows get."""
        assert self._process.stdin is not None
        print(added, file=self._process.stdin, flush=True)
        return dict(json.loads(self._line()))


def measured(app: Application, groups: Callable[[], dict[str, Iterable[int]]], added: int) -> dict[str, Any]:
    """Measure the application, with the CPU seconds of all processes below this one, and the memory of groups of them."""
    with Memory(groups) as memory, TreeClock() as clock:
        told = app.does(added)
    most = {name: round(size) for name, size in memory.most.items()}
    load = round(os.getloadavg()[0], 1)
    return {**told, "seconds": round(told["seconds"], 1), "cpu_s": round(clock.cpu_s, 1), "mb": most, "load": load}


def run(rows: int, rounds: int, folder: Path) -> None:
    """Load, then upsert on both in turns; at the end the rows are looked at."""
    with s3_server(folder) as (bucket, storage, objects), spark_cluster(folder) as cluster:
        url = f"{bucket}/t"
        lakelatch.create(url, record_key="id", partition_by="part", storage=storage, lock="none://").close()

        def of_cluster() -> dict[str, Iterable[int]]:
            return {f"worker {n}": [pid] for n, pid in enumerate(sorted(cluster.executors()))}

        with Application(cluster.url, rows, url, storage) as app:
            show("load", measured(app, of_cluster, 0))
        with lakelatch.open(url, storage=storage) as table:
            groups = len(table.snapshot())
        show("table", {"rows": rows, "file_groups": groups, "mb": folder_bytes(objects) >> 20})
        found: dict[str, list[dict[str, Any]]] = {"cluster": [], "local[2]": []}
        last = 0
        for _ in range(rounds):
            for way, told in found.items():
                until(lambda: not cluster.executors(), "executors of the last application stay")
                master = cluster.url if way == "cluster" else way
                with Application(master, rows, url, storage) as app:
                    pid = app.pid
                    them = of_cluster if way == "cluster" else lambda pid=pid: {"all": [pid]}
                    last += 1
                    told.append(measured(app, them, last))
                show(way, told[-1])
                with lakelatch.open(url, storage=storage) as table:
                    table.clean(retain_commits=0)
        for what in ("seconds", "cpu_s"):
            pairs = zip(*found.values(), strict=True)
            show(f"cluster to local[2], {what}", round(statistics.median(a[what] / b[what] for a, b in pairs), 2))
        with lakelatch.open(url, storage=storage) as table:
            assert table.read().count() == rows
            assert table.read(where="n < 0").count() == len(range(7, rows, EVERY))
            (one,) = table.read(where="id like '%-7'", partitions=[{"part": "0"}]).to_pylist()
            assert one["n"] == -(7 + last), one


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=50_000_000)
    options.add_argument("--rounds", type=int, default=2)
    options.add_argument("--folder", default=None)
    options.add_argument("--driver", default="", help=argparse.SUPPRESS)
    options.add_argument("--url", default="", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.driver:
        driver(given.driver, given.rows, given.url, json.loads(os.environ["BENCH_STORAGE"]))
        return
    show("machine", machine("pyspark"))
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        run(given.rows, given.rounds, Path(folder))


if __name__ == "__main__":
    main()
