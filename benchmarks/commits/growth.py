"""Measure how the cost of a commit grows, in CPU seconds and calls of the store: those do not change on a busy machine.

    python -m benchmarks.commits.growth [--commits 10000] [--groups 100000] [--partitions 10000] [--writers 64] [--folder F]

commits     on the timeline before
groups      file groups of the table, whose data files are one file under many names
partitions  of the table, one file group in each
writers     with a handle each, which commit in turns: each reads what the others have landed since

Each is measured at every power of ten (of two for writers), up to its option: a commit of a warm handle (one new file of ten
rows), and the opening of the table with a list of its file slices. The exponent is the slope of the logarithms, over all sizes
and over the last two. The bottleneck is what has grown most from the smallest size to the largest, by a profile that is taken
afterwards.
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import math
import os
import pstats
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch
from lakelatch.hudi.timeline import WriteStat
from lakelatch.occ.table.table import Table
from lakelatch.storage import open_store

from .._report import machine, show

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string())])
SAMPLES = 15
CALLS = frozenset(
    {
        "put_if_absent", "replace_if_match", "put", "secure", "sync", "get", "body", "head", "list", "names", "folders", "delete",
        "create", "open",
    }
)  # fmt: skip


class Counted:
    """A store that counts its calls."""

    def __init__(self, store: Any) -> None:
        self._store, self.calls = store, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        if name in CALLS:
            self.calls[name] += 1
        return getattr(self._store, name)


@dataclass(frozen=True)
class Cost:
    """The cost of one thing, once."""

    cpu_ms: float
    calls: float


def commit(table: Table, number: int) -> None:
    """One new file of ten rows."""
    with table.transaction("insert") as txn:
        txn.new_file("part=0").write(pa.table([[f"{number}-{n}" for n in range(10)], ["0"] * 10], schema=SCHEMA))


def fill(table: Table, root: Path, groups: int, partitions: int) -> None:
    """Write this many file groups, evenly in as many partitions, in one commit."""
    commit(table, -1)
    written = next((root / "part=0").glob("*.parquet"))
    txn = table.transaction("bulk_insert")
    stats = [stat_of(n, n % partitions, txn.instant) for n in range(groups)]
    for partition in range(1, partitions):
        (root / f"part={partition}").mkdir()
    for each in stats:
        os.link(written, root / each.path)
    txn.add(stats)
    txn.commit()


def stat_of(number: int, partition: int, instant: str, size: int = 1000) -> WriteStat:
    """Ten rows in a file of its own group."""
    folder, file_id = f"part={partition}", f"{uuid.UUID(int=number + 1)}-0"
    return WriteStat(
        file_id=file_id,
        path=f"{folder}/{file_id}_0-0-0_{instant}.parquet",
        partition=folder,
        num_writes=10,
        num_inserts=10,
        total_write_bytes=size,
        file_size=size,
    )


class Handles:
    """Some writers of one table in one process, which take turns."""

    def __init__(self, url: str, writers: int) -> None:
        self._stack = ExitStack()
        self.stores = [Counted(open_store(url)) for _ in range(writers)]
        self.tables = [self._stack.enter_context(Table(store, writer=f"w{n}")) for n, store in enumerate(self.stores)]
        self._numbers = count()
        for table in self.tables:
            commit(table, next(self._numbers))

    def turns(self, times: int) -> None:
        """Make this many commits."""
        for _ in range(times):
            number = next(self._numbers)
            commit(self.tables[number % len(self.tables)], number)

    def calls(self) -> int:
        return sum(sum(store.calls.values()) for store in self.stores)

    def close(self) -> None:
        self._stack.close()


def cost(work: Callable[[], object], calls: Callable[[], int]) -> Cost:
    """The median of `SAMPLES`. The collector of cycles runs between them: its moments are not the work's."""
    spent, called = [], []
    gc.collect()
    gc.disable()
    try:
        for _ in range(SAMPLES):
            before, began = calls(), time.process_time()
            work()
            spent.append(time.process_time() - began)
            called.append(calls() - before)
    finally:
        gc.enable()
    return Cost(statistics.median(spent) * 1000, statistics.mean(called))


def opened(url: str, stores: list[Counted]) -> None:
    """A cold open, and which files a reader of the whole table would read."""
    stores.append(Counted(open_store(url)))
    with Table(stores[-1]) as table:
        table.snapshot().file_slices()


@dataclass
class Point:
    """Measurements at one size."""

    size: int
    commit: Cost
    open: Cost
    profiles: dict[str, dict[str, float]]


def point(url: str, size: int, writers: int) -> Point:
    """Measure a table that is as large as it should be."""
    handles, stores = Handles(url, writers), []
    handles.turns(writers)
    try:
        work = {"commit": lambda: handles.turns(1), "open": lambda: opened(url, stores)}
        landing = cost(work["commit"], handles.calls)
        opening = cost(work["open"], lambda: sum(sum(store.calls.values()) for store in stores))
        return Point(size, landing, opening, {name: profile(each) for name, each in work.items()})
    finally:
        handles.close()


def profile(work: Callable[[], object]) -> dict[str, float]:
    """CPU milliseconds that each function took by itself, in one go."""
    profiler = cProfile.Profile(time.process_time)
    profiler.enable()
    for _ in range(SAMPLES):
        work()
    profiler.disable()
    found: dict[str, float] = {}
    for (file, _, name), (_, _, own, _, _) in pstats.Stats(profiler).stats.items():  # type: ignore[attr-defined]
        where = name if file == "~" else f"{'/'.join(Path(file).with_suffix('').parts[-2:])}.{name}"
        found[where] = found.get(where, 0.0) + own * 1000 / SAMPLES
    return found


def exponent(points: list[tuple[int, float]]) -> float:
    """Slope of the logarithms by least squares."""
    xs = [math.log(size) for size, _ in points]
    ys = [math.log(max(value, 1e-9)) for _, value in points]
    x, y = statistics.mean(xs), statistics.mean(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


def grown(points: list[Point], what: str) -> list[str]:
    """The functions whose own time grew most, and by how much."""
    first, last = points[0].profiles[what], points[-1].profiles[what]
    more = {name: value - first.get(name, 0.0) for name, value in last.items()}
    most = sorted(more, key=lambda name: -more[name])[:3]
    return [f"{name} +{more[name]:.2f} ms" for name in most if more[name] > 0.05]


def sizes(most: int, factor: int, least: int = 1) -> list[int]:
    found = []
    while least <= most:
        found.append(least)
        least *= factor
    return found


def made(url: str) -> Table:
    return lakelatch.create(url, record_key="id", partition_by="part", schema=SCHEMA, unique_keys=False)


def by_commits(folder: Path, most: int) -> list[Point]:
    """One table, which grows."""
    url, done, found = str(folder / "commits"), 0, []
    made(url).close()
    for size in sizes(most, 10, 10):
        with lakelatch.open(url) as table:
            while done < size:
                commit(table, -done - 1)
                done += 1
        found.append(point(url, size, 1))
    return found


def by_size(folder: Path, name: str, most: int) -> list[Point]:
    """A table for each number of file groups, or of partitions."""
    found = []
    for size in sizes(most, 10):
        url = str(folder / f"{name}{size}")
        with made(url) as table:
            fill(table, Path(url), size, size if name == "partitions" else 1)
        found.append(point(url, size, 1))
    return found


def by_writers(folder: Path, most: int) -> list[Point]:
    found = []
    for size in sizes(most, 2):
        url = str(folder / f"writers{size}")
        made(url).close()
        found.append(point(url, size, size))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--commits", type=int, default=10_000, help="at most; 0: not measured, as of the others")
    options.add_argument("--groups", type=int, default=100_000)
    options.add_argument("--partitions", type=int, default=10_000)
    options.add_argument("--writers", type=int, default=64)
    options.add_argument("--folder", type=Path, default=None)
    given = options.parse_args()
    show("machine", machine())
    with tempfile.TemporaryDirectory(prefix="latch", dir=given.folder) as place:
        folder = Path(place)
        measured: dict[str, Callable[[], list[Point]]] = {
            "writers": lambda: by_writers(folder, given.writers),
            "partitions": lambda: by_size(folder, "partitions", given.partitions),
            "groups": lambda: by_size(folder, "groups", given.groups),
            "commits": lambda: by_commits(folder, given.commits),
        }
        for axis, work in measured.items():
            if not getattr(given, axis):
                continue
            points = work()
            for each in points:
                facts = {
                    "size": each.size, "commit_cpu_ms": round(each.commit.cpu_ms, 2), "commit_calls": round(each.commit.calls, 1),
                    "open_cpu_ms": round(each.open.cpu_ms, 2), "open_calls": round(each.open.calls, 1),
                }  # fmt: skip
                show(axis, facts)
            if len(points) < 2:
                print(f"{axis}: one size has no exponent", file=sys.stderr)
                continue
            for what in ("commit", "open"):
                cpu = [(each.size, getattr(each, what).cpu_ms) for each in points]
                calls = [(each.size, getattr(each, what).calls) for each in points]
                facts = {
                    "exponent_cpu": round(exponent(cpu), 2), "of_the_last_two": round(exponent(cpu[-2:]), 2),
                    "exponent_calls": round(exponent(calls), 2), "grew": grown(points, what),
                }  # fmt: skip
                show(f"{axis}, {what}", facts)


if __name__ == "__main__":
    main()
