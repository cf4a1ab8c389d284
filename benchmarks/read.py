"""Reading a table: `Table.read` against `pyarrow.dataset` over the same files, in turns, in one process.

    python benchmarks/read.py [--rows 5000000] [--partitions 12] [--rounds 7] [--folder DIR]

whole        all data columns
projection   two of them
selective    a condition that one row in a thousand meets, anywhere in the files
clustered    a condition that only some row groups can meet, by their statistics
partition    a condition that one partition can meet
stream       all data columns, batch by batch, nothing kept

Both read the data columns alone; ours includes finding the files, the peer is handed them. Printed: medians of seconds and
CPU seconds, and ours in parts of the peer's; how many bytes of Arrow memory each stream had at its peak; what the timer
costs by which a long scan puts its reader's lease.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from _report import machine, show

import lakelatch
from lakelatch.environment import SYSTEM

CASES: dict[str, tuple[list[str] | None, str | None, Callable[[int], pc.Expression] | None]] = {
    "whole": (None, None, None),
    "projection": (["origin", "delay"], None, None),
    "selective": (None, "distance < 5", lambda _rows: pc.field("distance") < 5),
    "clustered": (None, "at < {few}", lambda rows: pc.field("at") < rows // 50),
    "partition": (None, "month = 3", lambda _rows: pc.field("month") == 3),
}


def make(url: str, rows: int, partitions: int) -> None:
    """A table of flights, loaded in four commits of ascending ``at``."""
    with lakelatch.create(url, record_key="id", partition_by="month") as table:
        part = rows // 4
        for number in range(4):
            at = pa.array(range(number * part, (number + 1) * part))
            mixed = pc.bit_wise_and(pc.multiply(at, 2654435761), 0x7FFFFFFF)
            names = pa.array([f"N{n:04d}" for n in range(4000)])
            batch = pa.table(
                {
                    "id": pc.binary_join_element_wise("k", at.cast(pa.string()), ""),
                    "month": pc.add(_modulo(mixed, partitions), 1),
                    "origin": pa.array(["JFK", "LGA", "EWR"]).take(_modulo(mixed, 3)),
                    "tail": names.take(_modulo(mixed, 4000)),
                    "delay": pc.divide(_modulo(mixed, 100_000).cast(pa.float64()), 1000.0),
                    "distance": _modulo(pc.divide(mixed, 7), 5000),
                    "at": at,
                    "landed": pc.add(pc.multiply(at, 1_000_000), 1_700_000_000_000_000).cast(
                        pa.timestamp("us", tz="UTC")
                    ),
                }
            )
            table.run(lambda txn, batch=batch: txn.upsert(batch), operation="insert")


def _modulo(values: pa.Array, by: int) -> pa.Array:
    return pc.subtract(values, pc.multiply(pc.divide(values, by), by))


def ours(url: str, case: str, rows: int) -> int:
    columns, where, _ = CASES[case]
    condition = where.format(few=rows // 50) if where else None
    with lakelatch.open(url) as table:
        return int(table.read(columns=columns, where=condition).to_arrow().num_rows)


def theirs(files: list[str], names: list[str], case: str, rows: int) -> int:
    columns, _, where = CASES[case]
    found = ds.dataset(files, format="parquet").to_table(
        columns=columns or names, filter=where(rows) if where else None
    )
    return int(found.num_rows)


def stream_ours(url: str) -> int:
    with lakelatch.open(url) as table:
        return sum(batch.num_rows for batch in table.read().to_batches())


def stream_theirs(files: list[str], names: list[str]) -> int:
    return sum(batch.num_rows for batch in ds.dataset(files, format="parquet").to_batches(columns=names))


def timed(call: Callable[[], int]) -> tuple[float, float, int]:
    wall, cpu = time.perf_counter(), time.process_time()
    count = call()
    return time.perf_counter() - wall, time.process_time() - cpu, count


def peak_mib(*words: str) -> int:
    """Arrow memory of one stream, in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--peak", *words], capture_output=True, text=True, check=True)
    return int(done.stdout) >> 20


def lease_timer_us() -> float:
    start = time.perf_counter()
    for _ in range(200):
        SYSTEM.every(10.0, lambda: None, name="benchmark").cancel(join_s=5.0)
    return (time.perf_counter() - start) / 200 * 1e6


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--folder", default=None, help="where the table is made; a temporary folder otherwise")
    parser.add_argument("--peak", nargs=2, default=None, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak:
        who, url = args.peak
        with lakelatch.open(url) as table:
            files, names = files_of(table)
        stream_ours(url) if who == "ours" else stream_theirs(files, names)
        print(pa.default_memory_pool().max_memory())
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        url = f"{folder}/flights"
        make(url, args.rows, args.partitions)
        with lakelatch.open(url) as table:
            files, names = files_of(table)
        show("machine", machine() | {"arrow_threads": pa.cpu_count(), "files": len(files), "rows": args.rows})
        calls = {
            case: (
                lambda case=case: ours(url, case, args.rows),
                lambda case=case: theirs(files, names, case, args.rows),
            )
            for case in CASES
        } | {"stream": (lambda: stream_ours(url), lambda: stream_theirs(files, names))}
        for case, pair in calls.items():
            took: tuple[list[tuple[float, float, int]], ...] = ([], [])
            for _ in range(args.rounds):
                for call, found in zip(pair, took, strict=True):
                    found.append(timed(call))
            assert len({count for found in took for _, _, count in found}) == 1, "both read the same rows"
            seconds, cpu = ([statistics.median(each[n] for each in found) for found in took] for n in (0, 1))
            show(
                case,
                {
                    "rows": took[0][0][2],
                    "ours_s": round(seconds[0], 4),
                    "dataset_s": round(seconds[1], 4),
                    "of_dataset": round(seconds[0] / seconds[1], 2),
                    "ours_cpu_s": round(cpu[0], 3),
                    "dataset_cpu_s": round(cpu[1], 3),
                },
            )
        show("peak of a stream, MiB", {who: peak_mib(who, url) for who in ("ours", "dataset")})
        show("timer of a reader's lease, us", round(lease_timer_us()))


def files_of(table: lakelatch.Table) -> tuple[list[str], list[str]]:
    """Paths of the base files, and the names of the data columns."""
    view = table.view()
    schema = view.arrow_schema()
    assert schema is not None
    return [table.store.uri(each.path).removeprefix("file://") for each in view.snapshot.file_slices()], schema.names


if __name__ == "__main__":
    main()
