"""Memory of writes whose rows come from a reader: the largest `RssAnon` of the process, above what it began with.

    python -m benchmarks.verbs.reader_memory [--rows 1000000,5000000,20000000] [--upserts 5000000] [--folder DIR] [--tables]

Rows have four narrow columns and come in batches of 65,536 from a generator. `RssAnon` is anonymous memory: it leaves out mapped
files, whose pages the system takes back when it wants them. Temporary files are in DIR. Each measurement has a
process of its own.

insert        of so many rows into an empty table: one partition; 12 partitions; 12 partitions of 4 buckets
upsert        half known keys, half new ones, onto a table of as many rows
--tables      the same rows handed in as a table, which is made before; its memory is not counted
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakelatch

from .._report import machine, show

_BATCH = 65_536
_SCHEMA = pa.schema([("id", pa.string()), ("month", pa.int64()), ("delay", pa.float64()), ("updated", pa.int64())])
_SHAPES: dict[str, dict[str, Any]] = {
    "one partition": {},
    "one partition, unique_keys=False": {"unique_keys": False},
    "12 partitions": {"partition_by": "month"},
    "12 partitions, 4 buckets": {"partition_by": "month", "bucket_count": 4},
}


def batches(first: int, rows: int, updated: int) -> Iterator[pa.RecordBatch]:
    """Rows with the keys from ``first`` on."""
    for start in range(first, first + rows, _BATCH):
        at = np.arange(start, min(start + _BATCH, first + rows))
        mixed = (at * 2654435761) & 0x7FFFFFFF
        keys = pc.binary_join_element_wise("k", pa.array(at).cast(pa.string()), "")
        columns = [
            keys,
            pa.array(mixed % 12 + 1),
            pa.array(mixed % 100_000 / 1000.0),
            pa.array(np.full(len(at), updated)),
        ]
        yield pa.record_batch(columns, schema=_SCHEMA)


class _Peak:
    """The largest anonymous memory while the block lasts, in MiB."""

    def __enter__(self) -> _Peak:
        self.before = self.mib = _anonymous()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            self.mib = max(self.mib, _anonymous())

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) >> 10
    raise OSError("no RssAnon in /proc/self/status")


def _measure(verb: str, url: str, first: int, rows: int, as_table: bool, pipe: Connection) -> None:
    given: Any = pa.RecordBatchReader.from_batches(_SCHEMA, batches(first, rows, first))
    given = given.read_all() if as_table else given
    with lakelatch.open(url) as table:
        wall = time.perf_counter()
        with _Peak() as peak:
            getattr(table, verb)(given)
        pipe.send({"MiB": peak.mib - peak.before, "s": round(time.perf_counter() - wall, 1), "MiB before": peak.before})


def measured(verb: str, url: str, first: int, rows: int, *, as_table: bool) -> dict[str, Any]:
    """Figures of one process."""
    here, there = mp.Pipe()
    process = mp.get_context("spawn").Process(target=_measure, args=(verb, url, first, rows, as_table, there))
    process.start()
    there.close()
    found: dict[str, Any] = here.recv()
    process.join()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default="1000000,5000000,20000000")
    parser.add_argument("--upserts", type=int, default=5_000_000)
    parser.add_argument("--shapes", default=",".join(map(str, range(len(_SHAPES)))))
    parser.add_argument("--folder")
    parser.add_argument("--tables", action="store_true")
    given = parser.parse_args()
    show("machine", machine("numpy"))
    folder = tempfile.mkdtemp(prefix="lakelatch-bench-", dir=given.folder)
    os.environ["TMPDIR"] = folder
    shapes = list(_SHAPES)
    try:
        for name in (shapes[int(each)] for each in given.shapes.split(",")):
            for rows in map(int, given.rows.split(",")):
                url = _created(folder, name)
                show(f"insert {rows}, {name}", measured("insert", url, 0, rows, as_table=given.tables))
                shutil.rmtree(url)
            if given.upserts:
                url = _created(folder, name)
                measured("insert", url, 0, given.upserts, as_table=False)
                found = measured("upsert", url, given.upserts // 2, given.upserts, as_table=given.tables)
                show(f"upsert {given.upserts}, {name}", found)
                shutil.rmtree(url)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _created(folder: str, name: str) -> str:
    url = f"{folder}/{name.replace(' ', '-')}"
    lakelatch.create(url, record_key="id", ordering_field="updated", schema=_SCHEMA, **_SHAPES[name]).close()
    return url


if __name__ == "__main__":
    main()
