"""Measure the first upsert of a process in a partition of many files: calls of the store, files opened, CPU.

    python -m benchmarks.verbs.first_upsert [--files 1003] [--folder DIR]

Each upsert is that of a new handle, of a key that exists and one that does not, far apart. The first one finds no key ranges
(`.hoodie/.lakelatch/keys`) and keeps them for the others.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa

import lakelatch
from lakelatch.occ.table.table import Table
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import FaultStore


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--files", type=int, default=1003)
    arguments.add_argument("--folder", default=None)
    given = arguments.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="lakelatch-bench-", dir=given.folder))
    folder, last = scratch / "t", given.files - 1

    def rows(*keys: str) -> pa.Table:
        return pa.table({"id": list(keys), "p": ["1"] * len(keys), "v": [1] * len(keys)})

    try:
        table = lakelatch.create(str(folder), record_key="id", partition_by="p")
        with table, table.transaction("insert") as txn:
            for number in range(given.files):
                txn.new_file("p=1").write(rows(f"k{number:06}a", f"k{number:06}z"))
        for which in ("first", "second", "third"):
            store = FaultStore(LocalStore(folder))
            with Table(store) as table:
                begun, cpu = time.perf_counter(), time.process_time()
                table.upsert(rows("k000007a", f"k{last:06}{which}"))
                took, cpu = time.perf_counter() - begun, time.process_time() - cpu
            calls = Counter(call.op for call in store.calls)
            opened = len({call.path for call in store.calls if call.op == "open"})
            print(f"{which}: {calls.total():,} calls, {opened:,} files opened, {took:.2f} s, CPU {cpu:.2f} s")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
