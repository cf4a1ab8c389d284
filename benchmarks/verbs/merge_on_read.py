"""Merge-on-read against copy-on-write, in plain Python: what an upsert costs, and what its log files cost a reader.

    python -m benchmarks.verbs.merge_on_read [--rows 1000000] [--groups 48] [--rounds 3] [--folder DIR]

upsert    1 % of the rows, spread over all file groups: log files, against rewritten base files
read      all data columns, through `Table.read`: no log files, in a tenth of the slices, in all; against the base files alone
compact   all log files into base files; the bytes that it read, of those of the base and log files there (goal <= 1.05)

Both tables have a bucket index with one bucket a partition. Printed: medians of seconds and CPU seconds, versions in turn.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from unittest import mock

import numpy as np
import pyarrow as pa

import lakelatch
from lakelatch.storage.local.store import LocalStore

from .._report import machine

TYPES = ("copy_on_write", "merge_on_read")


def rows(ids: np.ndarray, groups: int, seen: int) -> pa.Table:
    """Ten columns, of which the last change from write to write."""
    rng = np.random.default_rng(seen)
    columns = {"id": pa.array(ids), "part": pa.array(ids % groups), "seen": pa.array(np.full(len(ids), seen))}
    columns |= {f"n{n}": pa.array(rng.random(len(ids))) for n in range(4)}
    columns |= {f"s{n}": pa.array(rng.integers(0, 5000, len(ids))).cast(pa.string()) for n in range(3)}
    return pa.table(columns)


def timed(call: Callable[[], object]) -> tuple[float, float]:
    """Seconds, and CPU seconds of this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return time.perf_counter() - wall, time.process_time() - cpu


class Read:
    """A file that counts what is read of it; ``total`` is of all."""

    total = 0

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def read(self, *size: int) -> bytes:
        found = self._stream.read(*size)
        Read.total += len(found)
        return found


def read_bytes(call: Callable[[], object]) -> int:
    """Count the bytes that a call reads of the table's data files: base files are opened, log files got whole."""
    opened, got = LocalStore.open, LocalStore.get

    @contextmanager
    def open_(store: LocalStore, path: str, *, size: int | None = None) -> Iterator[Any]:
        with opened(store, path, size=size) as stream:
            yield Read(stream)

    def get(store: LocalStore, path: str) -> Any:
        found = got(store, path)
        Read.total += len(found.body) if found and ".log." in path else 0
        return found

    Read.total = 0
    with mock.patch.object(LocalStore, "open", open_), mock.patch.object(LocalStore, "get", get):
        call()
    return Read.total


def told(name: str, found: list[tuple[float, float]], beside: list[tuple[float, float]] | None = None) -> float:
    """Print the medians, and in parts of the others'; returns the seconds."""
    wall, cpu = (statistics.median(each) for each in zip(*found, strict=True))
    ratio = ""
    if beside:
        other, other_cpu = (statistics.median(each) for each in zip(*beside, strict=True))
        ratio = f"  {wall / other:5.2f} of it, CPU {cpu / other_cpu:5.2f}"
    print(f"{name:40} {wall:7.2f} s  CPU {cpu:7.2f} s{ratio}", flush=True)
    return wall


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--groups", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where the tables are made")
    given = parser.parse_args()
    ids, rng = np.arange(given.rows), np.random.default_rng(0)
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        tables = {
            kind: lakelatch.create(
                str(Path(folder) / kind),
                record_key="id",
                partition_by="part",
                ordering_field="seen",
                bucket_count=1,
                type=kind,
            )
            for kind in TYPES
        }
        for table in tables.values():
            table.run(lambda txn: txn.upsert(rows(ids, given.groups, 0)))
        logged = tables["merge_on_read"]

        def reads() -> list[tuple[float, float]]:
            return [timed(lambda: logged.read().to_arrow()) for _ in range(given.rounds)]

        plain = reads()
        told("read, no log files", plain)
        tenth = ids[ids % given.groups < max(given.groups // 10, 1)]
        some = np.sort(rng.choice(tenth, len(tenth) // 100, replace=False))
        for table in tables.values():
            table.run(lambda txn: txn.upsert(rows(some, given.groups, 1)))
        told("read, log files in a tenth", reads(), plain)
        upserts: dict[str, list[tuple[float, float]]] = {kind: [] for kind in TYPES}
        for seen in range(2, 2 + given.rounds):
            some = np.sort(rng.choice(ids, given.rows // 100, replace=False))
            new = rows(some, given.groups, seen)
            for kind, table in tables.items():
                upserts[kind].append(timed(lambda table=table, new=new: table.run(lambda txn: txn.upsert(new))))
        told("upsert of 1 %, base files rewritten", upserts["copy_on_write"])
        told("upsert of 1 %, log files", upserts["merge_on_read"], upserts["copy_on_write"])
        told(f"read, {given.rounds} log files in each", reads(), plain)
        there = sum(
            sum(file.size for file in (each.base, *each.logs) if file) for each in logged.snapshot().file_slices()
        )
        read = read_bytes(lambda: told("compact", [timed(logged.compact)]))
        print(f"{'bytes read / bytes there':40} {read / there:7.3f}")
        assert logged.read().to_arrow().sort_by("id").equals(tables["copy_on_write"].read().to_arrow().sort_by("id"))
        for table in tables.values():
            table.close()


if __name__ == "__main__":
    main()
