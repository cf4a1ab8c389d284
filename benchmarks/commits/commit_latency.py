"""Latency of one commit: does it grow with history, and how far is it from what the disk alone costs?

    python -m benchmarks.commits.commit_latency [--history 10000] [--samples 200]

history  p50 of a warm handle's commit with 100 and with --history commits on the timeline, and a cold open of each
floor    p50 of a commit against the raw puts that it makes, by plain system calls: the same files flushed alike, and the same
         number of puts each flushed with its folder
import   `import lakelatch` in a fresh process, and which heavy modules it loads
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch
from lakelatch.occ.table.table import Table
from lakelatch.storage import open_store

from .._report import machine, show

BLOCK = 10  # commits, then the same puts made raw


class Recording:
    """A store that writes down which puts a commit makes, and how they are flushed."""

    def __init__(self, store: Any) -> None:
        self._store, self.puts = store, []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def put_if_absent(self, path: str, body: bytes, **how: Any) -> Any:
        self.puts.append((path, body, how.get("durable", True)))
        return self._store.put_if_absent(path, body, **how)


def rows(number: int) -> pa.Table:
    return pa.table({"id": [f"{number}-{i}" for i in range(10)], "value": [number] * 10})


def commit(table: Table, number: int) -> float:
    began = time.perf_counter()
    with table.transaction("insert") as txn:
        txn.new_file().write(rows(number))
    return time.perf_counter() - began


def p50(table: Table, first: int, samples: int) -> float:
    return statistics.median(commit(table, first + i) for i in range(samples)) * 1e3


def cold_open(url: str) -> float:
    began = time.perf_counter()
    with lakelatch.open(url) as table:
        table.snapshot()
    return (time.perf_counter() - began) * 1e3


def history(url: str, most: int, samples: int) -> dict[str, float]:
    with lakelatch.create(url, record_key="id", schema=rows(0).schema) as table:
        for number in range(100):
            commit(table, number)
        young, opened_young = p50(table, 100, samples), cold_open(url)
        done = 100 + samples
        while done < most:
            commit(table, done)
            done += 1
            if done % 1000 == 0:
                print(f"  {done} commits", file=sys.stderr)
        old = p50(table, done, samples)
        return {
            "p50_ms_at_100": round(young, 2),
            f"p50_ms_at_{most}": round(old, 2),
            "ratio": round(old / young, 2),
            "cold_open_ms_at_100": round(opened_young, 1),
            f"cold_open_ms_at_{most}": round(cold_open(url), 1),
        }


def floor(folder: Path, samples: int) -> dict[str, Any]:
    url = str(folder / "floor")
    lakelatch.create(url, record_key="id", schema=rows(0).schema).close()
    store = Recording(open_store(url))
    with Table(store) as table:
        for number in range(20):
            commit(table, number)
        data = next(Path(url).glob("*.parquet")).read_bytes()
        ours: list[float] = []
        raw: dict[str, list[float]] = {"alike": [], "each": []}
        for block in range(0, samples, BLOCK):
            # In turn, because the disk's speed drifts; synced in between, because what one leaves unflushed the next one's
            # flushes would pay for.
            puts = []
            os.sync()
            for i in range(block, block + BLOCK):
                store.puts.clear()
                ours.append(commit(table, 20 + i))
                puts.append([*store.puts, ("data.parquet", data, True)])
            for flushed, times in raw.items():
                os.sync()
                for i, one in enumerate(puts, block):
                    began = time.perf_counter()
                    for n, (path, body, durable) in enumerate(one):
                        wanted = durable if flushed == "alike" else True
                        raw_put(folder / flushed / os.path.dirname(path), f"{i}-{n}", body, durable=wanted)
                    times.append(time.perf_counter() - began)
    kinds = Counter(str(durable) for _, _, durable in puts[-1])
    p50s = {flushed: statistics.median(times) * 1e3 for flushed, times in raw.items()}
    mine = statistics.median(ours) * 1e3
    return {
        "commit_p50_ms": round(mine, 2),
        "raw_p50_ms": {flushed: round(p50, 2) for flushed, p50 in p50s.items()},
        "ratio": {flushed: round(mine / p50, 2) for flushed, p50 in p50s.items()},
        "puts_by_durability": dict(kinds),
    }


def raw_put(folder: Path, name: str, body: bytes, *, durable: Any) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.tmp", "xb") as file:
        file.write(body)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    os.link(folder / f"{name}.tmp", folder / name)
    os.unlink(folder / f"{name}.tmp")
    if durable is True:
        fd = os.open(folder, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def import_time() -> dict[str, Any]:
    code = (
        "import time; t=time.perf_counter(); import lakelatch; d=time.perf_counter()-t; import sys; "
        "print(d*1e3, [m for m in ('pyarrow','pyspark','boto3','obstore','fastavro') if m in sys.modules])"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        for _ in range(5)
    ]
    return {
        "p50_ms": round(statistics.median(float(r.split()[0]) for r in runs), 1),
        "heavy": runs[0].split(" ", 1)[1].strip(),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--history", type=int, default=10_000)
    options.add_argument("--samples", type=int, default=200)
    options.add_argument("--folder", type=Path, default=None)
    given = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="latch", dir=given.folder))
    show("machine", machine())
    try:
        show("import", import_time())
        show("floor", floor(folder, given.samples))
        show("history", history(str(folder / "history"), given.history, given.samples))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
