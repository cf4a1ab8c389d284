"""A table of very many file groups and partitions: what planning, reading, opening, committing and its services cost.

    python -m benchmarks.scale [--groups 100000] [--partitions 10000] [--rows 200000] [--folder F]

plan     in a process of its own: a transaction that upserts ten rows into one partition, cold and warm: CPU seconds until it has
         staged its files, and by how much the memory of the process has grown since the imports
read     one partition of ten files with so many rows each, by a warm handle, against pyarrow.dataset on the same files
growth   CPU seconds of opening (with all file slices), of begin and commit of one file, of a clean and of a check that opens no
         file, at every power of ten of file groups from 100 on; the exponents

The file groups are hard links to a few files of ten rows, and the commit that names them is a real one. So what is measured is
the library and the kernel's cache of names, and no disk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

import lakelatch
from lakelatch.hudi.files import PARTITION_METADATA, partition_metadata
from lakelatch.occ.check import check
from lakelatch.occ.table.table import Table

from ._report import machine, show
from .commits.growth import exponent, stat_of

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
LINKS = 30_000  # of one file; ext4 allows 65,000
READ = 10  # files of the partition that is read
ROUNDS = 5


def rows(part: int, first: int, count: int) -> pa.Table:
    """New rows of one partition."""
    numbers = range(first, first + count)
    return pa.table([[f"{part}-{n:09}" for n in numbers], [str(part)] * count, list(numbers)], schema=SCHEMA)


def fill(url: str, groups: int, partitions: int, read_rows: int) -> None:
    """A table with so many file groups, evenly in so many partitions; the files of partition 0 have rows of their own."""
    root = Path(url)
    with lakelatch.create(url, record_key="id", partition_by="part", schema=SCHEMA, unique_keys=False) as table:
        with table.transaction("bulk_insert") as txn:
            for number in range(READ if read_rows else 1):
                txn.new_file("part=0").write(rows(0, number * read_rows, max(read_rows, 10)))
            for number in range(groups // LINKS + 1):
                txn.new_file("part=1").write(rows(1, number * 10, 10))
        sources = sorted((root / "part=1").glob("*.parquet"))
        with table.transaction("bulk_insert") as txn:
            sizes = [each.stat().st_size for each in sources]
            stats = [stat_of(n, 1 + n % (partitions - 1), txn.instant, sizes[n // LINKS]) for n in range(groups - READ)]
            for number, each in enumerate(stats):
                if not (folder := root / each.partition).exists():
                    folder.mkdir()
                    (folder / PARTITION_METADATA).write_bytes(partition_metadata(txn.instant, each.partition))
                os.link(sources[number // LINKS], root / each.path)
            txn.add(stats)


def cpu(work: Callable[[], Any], rounds: int = ROUNDS) -> float:
    """CPU seconds, the median."""
    spent = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        spent.append(time.process_time() - began)
    return statistics.median(spent)


def plan(url: str) -> dict[str, Any]:
    """Measure a process that has done nothing else: the first upsert into a partition, and another one."""
    import numpy  # noqa: F401 - what every write imports is not the table's size
    import pyarrow.parquet  # noqa: F401

    import lakelatch.occ.staging

    before = _most_memory_kb()
    began = time.process_time()
    found: dict[str, Any] = {}
    with lakelatch.open(url) as table:
        for name in ("cold", "warm"):
            txn = table.transaction("upsert")
            txn.upsert(rows(2, 0, 10))
            found[f"{name}_s"] = round(time.process_time() - began, 3)
            txn.abort()
            began = time.process_time()
    found["grown_mb"] = (_most_memory_kb() - before) >> 10
    return found


def _most_memory_kb() -> int:
    """Return the peak of this program; `ru_maxrss` has that of the process that has started it."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def reading(url: str) -> dict[str, Any]:
    """One partition, by a handle that has read it before."""
    with lakelatch.open(url) as table:
        there = [f"{url}/{each.path}" for each in table.snapshot().file_slices("part=0")]
        names = SCHEMA.names

        def ours() -> pa.Table:
            return table.read(partitions=["part=0"]).to_arrow()

        def direct() -> pa.Table:
            return ds.dataset(there, format="parquet").to_table(columns=names)

        assert ours().num_rows == direct().num_rows
        pairs = [(cpu(ours, 1), cpu(direct, 1)) for _ in range(ROUNDS)]  # in turns
    mine, theirs = (statistics.median(each) for each in zip(*pairs, strict=True))
    return {
        "rows": ours_rows(there),
        "ours_s": round(mine, 3),
        "direct_s": round(theirs, 3),
        "ratio": round(statistics.median(a / b for a, b in pairs), 2),
    }


def ours_rows(paths: list[str]) -> int:
    """Count the rows of the files."""
    return ds.dataset(paths, format="parquet").count_rows()


def services(url: str) -> dict[str, float]:
    """CPU seconds of one handle's work on the table as it is."""

    def opened() -> None:
        with lakelatch.open(url) as table:
            table.snapshot().file_slices()

    found = {"open": cpu(opened)}
    with lakelatch.open(url) as table:
        count = iter(range(10**6))

        def commit() -> None:
            with table.transaction("insert") as txn:
                txn.new_file("part=1").write(rows(1, 10**6 + 10 * next(count), 10))

        commit()
        found["commit"] = cpu(commit, 15)
        found["clean"] = cpu(lambda: table.clean(retain_commits=1), 1)
        found["check"] = cpu(lambda: _checked(table), 1)
    return found


def _checked(table: Table) -> None:
    findings = check(table.store).findings
    assert not findings, findings[:3]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--groups", type=int, default=100_000)
    options.add_argument("--partitions", type=int, default=10_000)
    options.add_argument("--rows", type=int, default=200_000, help="of each file of the partition that is read")
    options.add_argument("--folder", default=None)
    options.add_argument("--plan", default="", help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.plan:
        print(json.dumps(plan(given.plan)))
        return
    show("machine", machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        url, began = f"{folder}/t", time.process_time()
        fill(url, given.groups, given.partitions, given.rows)
        show(
            "table",
            {"groups": given.groups, "partitions": given.partitions, "made_s": round(time.process_time() - began, 1)},
        )
        command = [sys.executable, "-m", "benchmarks.scale", "--plan", url]
        show("plan", json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        show("read", reading(url))
    points: dict[str, list[tuple[int, float]]] = {}
    size = 100
    while size <= given.groups:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            fill(f"{folder}/t", size, max(size // 10, 2), 0)
            found = services(f"{folder}/t")
        show("growth", {"groups": size, **{name: round(value * 1000, 1) for name, value in found.items()}})
        for name, value in found.items():
            points.setdefault(name, []).append((size, value))
        size *= 10
    show("exponents", {name: round(exponent(each), 2) for name, each in points.items()})


if __name__ == "__main__":
    main()
