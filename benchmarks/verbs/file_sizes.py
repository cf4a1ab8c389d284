"""Count the files and bytes of many small writes, and compare the cost of ways to merge log files.

    python -m benchmarks.verbs.file_sizes [--writes 100] [--rows 500] [--loaded 200000] [--folder DIR]

upsert    so many upserts of new rows into a loaded table, by the size up to which a file takes new rows (0: none does)
upkeep    so many small upserts of known rows into a merge-on-read table, and after every fifth one all log files compacted,
          log-compacted, or a round of services, which chooses

Printed: files at the end, bytes written against bytes of the rows written, CPU seconds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import lakelatch
from lakelatch.hudi.files import list_data_files

from .._report import machine

SMALL = {"0": 0, "4 MiB, the default": 4 << 20, "100 MiB, as Hudi": 100 << 20}
UPKEEP: dict[str, Callable[[lakelatch.Table], object]] = {
    "compact": lambda table: table.compact(),
    "compact_logs": lambda table: table.compact_logs(),
    "run_services": lambda table: table.run_services(retain_commits=10_000),
}


def rows(ids: np.ndarray) -> pa.Table:
    """Some 100 bytes each that nothing compresses."""
    rng = np.random.default_rng(int(ids[0]) + len(ids))
    texts = np.char.mod("%x", rng.integers(0, 1 << 62, (4, len(ids))))
    return pa.table({"id": pa.array(ids)} | {f"s{n}": pa.array(each) for n, each in enumerate(texts)})


def written(table: lakelatch.Table) -> int:
    """Bytes of all data files that the table has ever had, since nothing is cleaned."""
    listing = list_data_files(table.store)
    return sum(each.size for each in (*listing.bases, *listing.logs))


def told(name: str, table: lakelatch.Table, before: int, put: int, cpu: float) -> None:
    """Print a line."""
    slices = table.snapshot().file_slices()
    files = sum(len(each.paths) for each in slices)
    grown = written(table) - before
    print(f"{name:32} {files:5} files  {grown / put:6.1f} bytes written for each  CPU {cpu:6.2f} s", flush=True)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--writes", type=int, default=100)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--loaded", type=int, default=200_000)
    parser.add_argument("--folder", help="where the tables are made")
    given = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        alone = lakelatch.create(str(Path(folder) / "alone"), record_key="id")
        alone.insert(rows(np.arange(given.loaded)))
        put = written(alone) * given.rows * given.writes / given.loaded
        for name, small in SMALL.items():
            with lakelatch.create(
                str(Path(folder) / f"upsert {small}"), record_key="id", small_file_bytes=small
            ) as table:
                table.upsert(rows(np.arange(given.loaded)))
                before, cpu = written(table), time.process_time()
                for n in range(given.writes):
                    begin = given.loaded + n * given.rows
                    table.upsert(rows(np.arange(begin, begin + given.rows)))
                told(f"upsert, small: {name}", table, before, int(put), time.process_time() - cpu)
        for name, act in UPKEEP.items():
            made = {"record_key": "id", "type": "merge_on_read", "bucket_count": 1}
            with lakelatch.create(str(Path(folder) / name), **made) as table:
                table.upsert(rows(np.arange(given.loaded)))
                before, cpu = written(table), time.process_time()
                for n in range(given.writes):
                    table.upsert(rows(np.arange(n * given.rows, (n + 1) * given.rows) % given.loaded))
                    if n % 5 == 4:
                        act(table)
                told(f"upkeep: {name}", table, before, int(put), time.process_time() - cpu)


if __name__ == "__main__":
    main()
