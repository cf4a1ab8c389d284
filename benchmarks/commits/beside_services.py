"""Ingestion beside each table service, against ingestion alone: latency, attempts, and how long who held the lock.

    python -m benchmarks.commits.beside_services [--seconds 8] [--rounds 3] [--rate 4] [--folder F]

One process ingests, an open loop: each fourth of a second a write of ten rows becomes due, whether or not the last one has ended.
``insert`` adds new keys; ``upsert`` changes known ones in any partition, so that it meets the services' file groups. Another
process runs one service again and again, one call each half second. Every run has a table of its own, with 24 small files in
four partitions, or with log files in 16 buckets. Alone and beside take turns. Latency counts from when a write was due. On a busy
machine trust the counts, the CPU seconds and the ratios of one run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch
from lakelatch.errors import LakeLatchError
from lakelatch.locks import observe

from .._report import machine, percentile, show

PARTS, KEYS = 4, 2_000
EVERY_S = 0.5
PLAIN = ("cluster", "clean", "archive")
LOGS = ("compact", "compact_logs")
VERBS = ("insert", "upsert")
CALLS: dict[str, Callable[[Any], Any]] = {
    "cluster": lambda table: table.cluster(),
    "clean": lambda table: table.clean(retain_commits=2),
    "archive": lambda table: table.archive(keep_min=5, keep_max=6),
    "compact": lambda table: table.compact(),
    "compact_logs": lambda table: table.compact_logs(min_logs=2),
}


def rows(first: int, count: int, value: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {"id": [f"k{n}" for n in numbers], "part": [f"p{n % PARTS}" for n in numbers], "v": [value] * count},
        schema=pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())]),
    )


def made(url: str, kind: str) -> None:
    """A table for services of that kind to work on."""
    more: dict[str, Any] = {"type": "merge_on_read", "bucket_count": 4} if kind == "logs" else {}
    with lakelatch.create(url, record_key="id", partition_by="part", **more) as table:
        size = KEYS // 6
        for number in range(6):
            table.insert(rows(number * size, size, 0))


class Held:
    """How often and how long this process has had the lock, and waited for it."""

    def __init__(self) -> None:
        self.held: list[float] = []
        self.waits: list[float] = []

    def waited(self, _scheme: str, _key: str, seconds: float, *, granted: bool) -> None:  # noqa: ARG002
        self.waits.append(seconds)

    def renewed(self, *_: object) -> None:
        """See `locks.Observer`."""

    def ended(self, _scheme: str, _key: str, seconds: float, _reason: str) -> None:
        self.held.append(seconds)

    def broke(self, *_: object) -> None:
        """See `locks.Observer`."""

    def told(self) -> dict[str, Any]:
        return {
            "locks": len(self.held),
            "held_ms": round(1000 * statistics.median(self.held), 2) if self.held else 0,
            "held_max_ms": round(1000 * max(self.held, default=0), 2),
            "waited_max_ms": round(1000 * max(self.waits, default=0), 2),
        }


def ingest(url: str, verb: str, seconds: float, rate: float, start: float) -> dict[str, Any]:
    late, attempts, lost, held = list[float](), 0, Counter[str](), Held()
    with lakelatch.open(url, writer="ingestion") as table:

        def write(number: int) -> Any:
            if verb == "insert":
                new = rows(10**6 * (1 + number), 10, number)
            else:
                new = rows(number * 7 % (KEYS // 2), 10, number)
            return table.run(lambda txn: getattr(txn, verb)(new), operation=verb)

        for number in range(2):
            write(number)
        observe(held)
        print("ready", flush=True)
        time.sleep(max(0.0, start - time.monotonic()))
        cpu_s = time.process_time()
        for number in range(int(seconds * rate)):
            due = start + number / rate
            time.sleep(max(0.0, due - time.monotonic()))
            done = write(2 + number)
            late.append(time.monotonic() - due)
            attempts += done.attempts
            lost.update(str(getattr(each, "details", {}).get("rule") or type(each).__name__) for each in done.losses)
        cpu_s = time.process_time() - cpu_s
        observe(None)
    return {
        "p50_ms": round(1000 * percentile(late, 0.5), 1),
        "p99_ms": round(1000 * percentile(late, 0.99), 1),
        "cpu_ms": round(1000 * cpu_s / len(late), 1),
        "attempts": round(attempts / len(late), 3),
        "lost": dict(lost),
        **held.told(),
    }


def serve(url: str, name: str, seconds: float, start: float) -> dict[str, Any]:
    took, held, outcomes = list[float](), Held(), Counter[str]()
    with lakelatch.open(url, writer="services") as table:
        table.snapshot()
        observe(held)
        print("ready", flush=True)
        due = start
        while due < start + seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            began = time.monotonic()
            try:
                outcomes["done" if CALLS[name](table) else "nothing to do"] += 1
            except LakeLatchError as e:
                outcomes[type(e).__name__] += 1
            took.append(time.monotonic() - began)
            due = max(due + EVERY_S, time.monotonic())
        observe(None)
    return {"outcomes": dict(outcomes), "took_ms": round(1000 * statistics.median(took)), **held.told()}


def hand() -> None:
    """A process that does what it is told, again and again, so that it starts only once."""
    for line in sys.stdin:
        job = json.loads(line)
        work = {"ingest": ingest, "serve": serve}[job.pop("work")]
        # The start is some time ahead, and both are ready by then, or the run begins late for both.
        print(json.dumps(work(**job)), flush=True)


class Hand:
    def __init__(self) -> None:
        command = [sys.executable, "-m", "benchmarks.commits.beside_services", "--hand"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout

    def told(self, **job: Any) -> None:
        print(json.dumps(job), file=self._in, flush=True)

    def line(self) -> str:
        line = self._out.readline().strip()
        assert line, f"it ended with {self._process.wait()}"
        return line

    def close(self) -> None:
        self._in.close()
        self._process.wait()
        self._out.close()
