"""Reading a wide row with log files in every slice, in plain Python, against its base files alone.

    python -m benchmarks.verbs.stream_read [--rows 1000000] [--buckets 8] [--rounds 7] [--folder DIR]

Three streams of four columns; each has written 1 % of the keys since the compaction. Printed: the smallest CPU seconds of merging
all slices and of reading all data columns of the base files with Arrow, in turns, and their ratio.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import lakelatch
from lakelatch.streams import slice_rows

from .._report import machine

COLUMNS = {"at": pa.int64(), "n": pa.int64(), "x": pa.float64(), "word": pa.string()}
SCHEMA = pa.schema([("id", pa.string()), *((f"{s}_{name}", kind) for s in "abc" for name, kind in COLUMNS.items())])


def events(stream: str, keys: Any, at: int) -> pa.Table:
    """One event of each key."""
    rng, count = np.random.default_rng(at), len(keys)
    values = (np.full(count, at), rng.integers(0, 1000, count), rng.random(count))
    columns = {f"{stream}_{name}": pa.array(each) for name, each in zip(COLUMNS, values, strict=False)}
    words = pa.array(rng.integers(0, 5000, count)).cast(pa.string())
    return pa.table({"id": [f"c-{key:08d}" for key in keys], **columns, f"{stream}_word": words})


def cpu(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("rows", 1_000_000), ("buckets", 8), ("rounds", 7)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", help="where the table is made")
    given, rng = parser.parse_args(), np.random.default_rng(0)
    print(machine())
    streams = {s: {"columns": [f"{s}_n", f"{s}_x", f"{s}_word"], "ordering": f"{s}_at"} for s in "abc"}
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as folder,
        lakelatch.create(
            f"{folder}/t", record_key="id", schema=SCHEMA, streams=streams, bucket_count=given.buckets
        ) as table,
    ):
        for name in streams:
            table.stream(name).upsert(events(name, rng.permutation(given.rows), 1))
        table.compact()
        for name in streams:
            table.stream(name).upsert(events(name, rng.choice(given.rows, given.rows // 100, replace=False), 2))
        slices = table.snapshot().file_slices()

        def merged() -> list[pa.Table]:
            return [
                slice_rows(table.store, table.config, table.streams, each, columns=SCHEMA.names, meta=False)
                for each in slices
            ]

        def base() -> list[pa.Table]:
            return [pq.ParquetFile(f"{folder}/t/{each.path}").read(SCHEMA.names, use_threads=False) for each in slices]

        ours, theirs = (
            min(each) for each in zip(*((cpu(merged), cpu(base)) for _ in range(given.rounds)), strict=True)
        )
        print(f"with log files {ours:.3f} s, base files {theirs:.3f} s, {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
