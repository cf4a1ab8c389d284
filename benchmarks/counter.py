"""Eight processes count in one row: attempts for each acknowledged increment, and none lost.

python benchmarks/counter.py [--writers 8] [--increments 40] [--lock table|none://]
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from _report import machine, show


def counter(value: int) -> pa.Table:
    return pa.table({"id": ["n"], "value": [value]})


def count(url: str, increments: int, start: Any, out: Any) -> None:
    import lakelatch

    table = lakelatch.open(url)

    def increment(txn: lakelatch.Transaction) -> None:
        (group,) = txn.snapshot.file_slices()
        txn.rewrite(group).write(counter(txn.read_slice(group)["value"][0].as_py() + 1))

    start.wait()
    began, attempts, worst = time.monotonic(), 0, 0
    for _ in range(increments):
        ran = table.run(increment, attempts=100).attempts
        attempts, worst = attempts + ran, max(worst, ran)
    out.put((attempts, worst, time.monotonic() - began))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--writers", type=int, default=8)
    options.add_argument("--increments", type=int, default=40)
    options.add_argument("--lock", default="table")
    options.add_argument("--folder", type=Path, default=None)
    given = options.parse_args()
    import lakelatch

    folder = Path(tempfile.mkdtemp(prefix="latch", dir=given.folder))
    show("machine", machine())
    try:
        url = str(folder / "counter")
        table = lakelatch.create(url, record_key="id", schema=counter(0).schema, lock=given.lock)
        with table.transaction("insert") as txn:
            txn.new_file().write(counter(0))
        context = mp.get_context("spawn")
        start, out = context.Barrier(given.writers), context.Queue()
        for _ in range(given.writers):
            context.Process(target=count, args=(url, given.increments, start, out), daemon=True).start()
        results = [out.get() for _ in range(given.writers)]
        acknowledged = given.writers * given.increments
        show(
            "counter",
            {
                "acknowledged": acknowledged,
                "value": table.read().to_arrow()["value"][0].as_py(),
                "lost": acknowledged - table.read().to_arrow()["value"][0].as_py(),
                "attempts_per_increment": round(sum(r[0] for r in results) / acknowledged, 3),
                "worst_attempts": max(r[1] for r in results),
                "increments_per_s": round(acknowledged / max(r[2] for r in results), 1),
            },
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
