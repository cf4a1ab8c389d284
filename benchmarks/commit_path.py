"""Commits a second without Spark: N processes on one table, ours against delta-rs, on the same disk.

    python benchmarks/commit_path.py [--seconds 8] [--writers 1,4,16] [--work append,disjoint] [--folder DIR] [--rest 60]

append    every commit adds one small file (10 rows): nothing can conflict
disjoint  every writer replaces the one file of its own partition: nothing should conflict

Both write the same rows as Parquet; ours with every durable write flushed to disk, delta-rs as it is. An abort here is
a false one. Printed: goodput (acknowledged commits a second), false aborts, slowest/fastest writer, latencies; and of ours
the share of the writers' CPU that comparing with others takes (asked of us: less than 5 % at 16 writers).
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
from _report import machine, percentile, show

ROWS = 10


def rows(writer: int, number: int) -> pa.Table:
    return pa.table(
        {
            "id": [f"{writer}-{number}-{i}" for i in range(ROWS)],
            "part": [f"p{writer}"] * ROWS,
            "value": [number] * ROWS,
        }
    )


class Ours:
    name = "lakelatch"

    def __init__(self, url: str, lock: str = "table") -> None:
        self.url, self.lock = url, lock

    def create(self, writers: int) -> None:
        import lakelatch

        with lakelatch.create(
            self.url, record_key="id", partition_by="part", schema=rows(0, 0).schema, lock=self.lock,
            unique_keys=False,  # nor does the peer promise anything of keys
        ) as t:  # fmt: skip
            for w in range(writers):
                with t.transaction("insert") as txn:
                    txn.new_file(f"part=p{w}").write(rows(w, 0))

    def open(self, writer: int) -> None:
        import lakelatch

        self.table = lakelatch.open(self.url, writer=f"w{writer}")
        self.partition = f"part=p{writer}"

    def append(self, batch: pa.Table) -> None:
        with self.table.transaction("insert") as txn:
            txn.new_file(self.partition).write(batch)

    def disjoint(self, batch: pa.Table) -> None:
        with self.table.transaction("upsert") as txn:
            for group in txn.snapshot.file_slices(self.partition):
                txn.rewrite(group).write(batch)

    def rows(self) -> int:
        return int(self.table.read(columns=["id"]).count())


class Delta:
    name = "delta-rs"

    def __init__(self, url: str) -> None:
        self.url = url

    def create(self, writers: int) -> None:
        import deltalake

        for w in range(writers):
            deltalake.write_deltalake(self.url, rows(w, 0), mode="append", partition_by=["part"])

    def open(self, writer: int) -> None:
        import deltalake

        self.table, self.part = deltalake.DeltaTable(self.url), f"p{writer}"

    def append(self, batch: pa.Table) -> None:
        import deltalake

        deltalake.write_deltalake(self.table, batch, mode="append", partition_by=["part"])

    def disjoint(self, batch: pa.Table) -> None:
        import deltalake

        self.table.update_incremental()
        deltalake.write_deltalake(self.table, batch, mode="overwrite", predicate=f"part = '{self.part}'")

    def rows(self) -> int:
        import deltalake

        return int(deltalake.DeltaTable(self.url).to_pyarrow_table(columns=["id"]).num_rows)


def comparing() -> list[float]:
    """CPU seconds of all conflict checks from now on: to read what others wrote, and to resolve."""
    from lakelatch.occ.transaction.validator import CommitValidator

    decide, spent = CommitValidator.decide, [0.0]

    def timed(*given: Any, **named: Any) -> Any:
        began = time.thread_time()
        try:
            return decide(*given, **named)
        finally:
            spent[0] += time.thread_time() - began

    CommitValidator.decide = timed  # type: ignore[method-assign]
    return spent


def writer(system: Any, number: int, work: str, seconds: float, start: Any, out: Any) -> None:
    system.open(number)
    while True:  # one commit before the clock starts: imports and first looks are not what is measured
        try:
            getattr(system, work)(rows(number, 0))
            break
        except Exception:
            continue
    checks = comparing() if system.name == "lakelatch" else [0.0]
    start.wait()
    cpu = time.process_time()
    end = time.monotonic() + seconds
    done, aborted, taken, why = 0, 0, [], ""
    while time.monotonic() < end:
        batch = rows(number, done + aborted + 1)
        began = time.monotonic()
        try:
            getattr(system, work)(batch)
        except Exception as e:
            aborted, why = aborted + 1, f"{type(e).__name__}: {e}"[:200]
        else:
            done += 1
            taken.append(time.monotonic() - began)
    out.put((number, done, aborted, taken, why, checks[0], time.process_time() - cpu))


def measure(system: Any, work: str, writers: int, seconds: float) -> dict[str, Any]:
    system.create(writers)
    context = mp.get_context("spawn")
    start, out = context.Barrier(writers), context.Queue()
    processes = [context.Process(target=writer, args=(system, w, work, seconds, start, out)) for w in range(writers)]
    for p in processes:
        p.start()
    results = [out.get() for _ in processes]
    for p in processes:
        p.join()
    done = [r[1] for r in results]
    taken = [t for r in results for t in r[3]]
    system.open(0)
    expected = ROWS * (sum(done) + 2 * writers) if work == "append" else ROWS * writers
    return {
        "commits_per_s": round(sum(done) / seconds, 1),
        "false_aborts": sum(r[2] for r in results),
        "slowest_to_fastest": round(min(done) / max(max(done), 1), 2),
        "p50_ms": round(percentile(taken, 0.5) * 1e3, 1),
        "p99_ms": round(percentile(taken, 0.99) * 1e3, 1),
        "checks_of_cpu": round(sum(r[5] for r in results) / sum(r[6] for r in results), 4),
        "per_writer": sorted(done),
        "rows_right": system.rows() == expected,
        "why": next((r[4] for r in results if r[4]), ""),
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=8)
    options.add_argument("--writers", default="1,4,16")
    options.add_argument("--work", default="append,disjoint")
    options.add_argument("--folder", type=Path, default=None, help="on the disk to measure; a temporary one otherwise")
    options.add_argument(
        "--rest", type=float, default=0, help="seconds of rest before each (docs/benchmarks.md says why)"
    )
    options.add_argument("--no-delta", action="store_true", help="ours alone")
    options.add_argument("--no-lock", action="store_true", help="also ours without a lock (none://)")
    given = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="latch", dir=given.folder))
    show("machine", machine("deltalake"))
    try:
        for work in given.work.split(","):
            for n in map(int, given.writers.split(",")):
                systems: list[Any] = [Ours(str(folder / f"ours-{work}-{n}"))]
                if given.no_lock:
                    systems.append(Ours(str(folder / f"free-{work}-{n}"), "none://"))
                if not given.no_delta:
                    systems.append(Delta(str(folder / f"delta-{work}-{n}")))
                found = []
                for system in systems:
                    label = system.name + (" none://" if getattr(system, "lock", "") == "none://" else "")
                    time.sleep(given.rest)  # what the one before has deleted slows this ext4 for a minute
                    found.append(measure(system, work, n, given.seconds))
                    show(f"{work} N={n} {label}", found[-1])
                if len(found) > 1:
                    ratio = found[0]["commits_per_s"] / max(found[-1]["commits_per_s"], 0.01)
                    print(f"{work} N={n} ratio {systems[0].name}/{systems[-1].name}: {ratio:.1f}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
