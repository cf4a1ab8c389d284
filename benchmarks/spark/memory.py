"""Memory of one upsert task: Arrow's peak against the incoming rows of the task and the base file that it holds.

    python -m benchmarks.spark.memory [--rows 1000000]

The task merges one eighth of the rows of a 20 % upsert into the groups they belong to, as Spark's worker does.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

import lakelatch
from lakelatch.occ.staging.apply_rows import Plan, TaskFiles, apply, read_slice, slices_by_partition
from lakelatch.spark.tasks import InsertTask

from .data import copies, flights, head, updates


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    given = arguments.parse_args()
    head("memory of one upsert task and of one insert task")
    scratch = Path(tempfile.mkdtemp(prefix="lakelatch-bench-"))

    def peak(call: Callable[[], object]) -> float:
        pool = pa.proxy_memory_pool(whole)  # counts from here
        pools.append(pool)  # has to live as long as anything that it gave out
        pa.set_memory_pool(pool)
        call()
        pa.set_memory_pool(whole)
        return pool.max_memory() / 1e6

    whole, pools = pa.default_memory_pool(), []
    try:
        table = lakelatch.create(
            str(scratch / "t"), record_key="id", partition_by="part", ordering_field="ts", bucket_count=4
        )
        base = flights()
        rounds = max(1, round(given.rows / base.num_rows))
        months = [f"m{n:02}" for n in range(1, 13)]
        for month in months:
            part = base.filter(pc.equal(base["part"], month))
            with table.transaction("upsert") as txn, TaskFiles(txn.file_spec(base.schema), 0) as files:
                apply(Plan(files.spec), copies(part, rounds * part.num_rows), files)
                txn.add(files.stats())
        incoming = updates(copies(base.filter(pc.is_in(base["part"], pa.array(months[:2]))), given.rows // 6), 0.2)
        with table.transaction("upsert") as txn:
            spec = txn.file_spec(base.schema)
            plan = Plan(spec, slices_by_partition(txn.snapshot.file_slices()))
            one = max(txn.snapshot.file_slices(), key=lambda s: s.size)
            base_mb = read_slice(spec, one).nbytes / 1e6
            with TaskFiles(spec, 1) as files:
                mb = peak(lambda: apply(plan, incoming, files))
                files.stats()
            print(
                f"upsert: incoming {incoming.nbytes / 1e6:.0f} MB, largest base file {base_mb:.0f} MB in memory, peak {mb:.0f} MB"
            )
            txn.abort()
        plain = lakelatch.create(str(scratch / "i"), record_key="id", partition_by="part")
        many = copies(base, given.rows)
        with plain.transaction("insert") as txn:
            spec = txn.file_spec(many.schema)
            mb = peak(lambda: InsertTask(spec).run(many.to_batches(max_chunksize=65536), 0))
            print(
                f"insert: {many.num_rows} rows, {many.nbytes / 1e6:.0f} MB, 12 open files, peak {mb:.0f} MB beside them"
            )
            txn.abort()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
