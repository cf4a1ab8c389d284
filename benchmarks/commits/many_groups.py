"""Memory of a transaction over very many file groups: from staging to the published instant.

The data files themselves are not made: the commit does not look at them. Their stats are, with statistics of COLUMNS
columns each, as workers would send them.

python -m benchmarks.commits.many_groups [--groups 100000] [--columns 8] [--folder F]
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import uuid
from pathlib import Path

import pyarrow as pa

import lakelatch
from lakelatch.conflict.predicate import ColumnStatistics, FileStatistics
from lakelatch.hudi.timeline.commit_metadata import WriteStat, decode_commit
from lakelatch.occ.entries.column_statistics import encoded
from lakelatch.occ.entries.side_objects import SIDES
from lakelatch.occ.entries.value_hashes import FileFacts

from .._report import machine, show

PARTITIONS = 1000


def stat(number: int, instant: str, columns: int) -> WriteStat:
    partition, file_id = f"part={number % PARTITIONS:04}", f"{uuid.UUID(int=number)}-0"
    known = {f"column_{n}": ColumnStatistics(number * 1000 + n, number * 1000 + 999, 0) for n in range(columns)}
    return WriteStat(
        file_id=file_id,
        path=f"{partition}/{file_id}_0-0-0_{instant}.parquet",
        partition=partition,
        num_writes=1000,
        num_inserts=1000,
        total_write_bytes=1 << 20,
        file_size=1 << 20,
        facts=FileFacts(encoded(FileStatistics(1000, known)), {}),
    )


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--groups", type=int, default=100_000)
    options.add_argument("--columns", type=int, default=8)
    options.add_argument("--folder", default="")
    given = options.parse_args()
    show("machine", machine())
    with tempfile.TemporaryDirectory(dir=given.folder or None) as folder:
        schema = pa.schema([("id", pa.string()), ("part", pa.string())])
        table = lakelatch.create(f"{folder}/t", record_key="id", partition_by="part", schema=schema)
        with table.transaction("insert") as txn:  # everything is imported, and warm
            txn.new_file("part=x").write(pa.table({"id": ["x"], "part": ["x"]}))
        reads: list[str] = []
        for name in ("get", "open"):
            real = getattr(table.store, name)
            setattr(table.store, name, lambda path, real=real: reads.append(path) or real(path))
        before = peak_mib()
        cpu = resource.getrusage(resource.RUSAGE_SELF)
        txn = table.transaction("bulk_insert")
        txn.add(stat(n, txn.instant, given.columns) for n in range(given.groups))
        staged = peak_mib()
        result = txn.commit()
        assert result is not None
        after = resource.getrusage(resource.RUSAGE_SELF)
        name = f"{result.instant}_{result.completion}.commit"
        body = Path(f"{folder}/t/.hoodie/timeline/{name}").read_bytes()
        grown = peak_mib() - before
        facts = {
            "groups": given.groups,
            "columns": given.columns,
            "grown_mib": round(grown, 1),
            "of_that_staged_mib": round(staged - before, 1),
            "cpu_s": round(after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime, 2),
            "side_mib": round(sum(p.stat().st_size for p in Path(f"{folder}/t/{SIDES}").iterdir()) / 2**20, 1),
            "instant_mib": round(len(body) / 2**20, 1),
            "reads_of_side_objects": sum(path.startswith(SIDES) for path in reads),
            "stats_on_timeline": len(decode_commit(body, name=name, layout=2).stats),
        }
        table.close()
    show("commit", facts)


if __name__ == "__main__":
    main()
