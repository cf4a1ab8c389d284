"""Reading a table: `Table.read` against `pyarrow.dataset` over the same files, in turns.

    python -m benchmarks.verbs.read [--rows 5000000] [--partitions 12] [--rounds 7] [--folder DIR]

whole        all data columns
projection   two of them
selective    a condition that one row in a thousand meets, anywhere in the files
clustered    a condition that only some row groups can meet, by their statistics
partition    a condition that one partition can meet
stream       all data columns, batch by batch, nothing kept

Both read the data columns alone; ours includes finding the files, the peer is handed them. Each has a process of its own,
because otherwise one of them gets the memory that the other has just given back. Printed: medians of seconds and
CPU seconds, and ours in parts of the peer's; how many bytes of Arrow memory each stream had at its peak; what the timer
costs by which a long scan puts its reader's lease.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

import lakelatch
from lakelatch.environment import SYSTEM

from .._report import machine, show

CASES: dict[str, tuple[list[str] | None, str | None, Callable[[int], pc.Expression] | None]] = {
    "whole": (None, None, None),
    "projection": (["origin", "delay"], None, None),
    "selective": (None, "distance < 5", lambda _rows: pc.field("distance") < 5),
    "clustered": (None, "at < {few}", lambda rows: pc.field("at") < rows // 50),
    "partition": (None, "month = 3", lambda _rows: pc.field("month") == 3),
    "stream": (None, None, None),
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


class Reader:
    """One side, in a process of its own."""

    def __init__(self, url: str, rows: int, *, ours: bool) -> None:
        self._url, self._rows, self._ours = url, rows, ours
        with lakelatch.open(url) as table:
            self.files, self.names = files_of(table)

    def _read(self, case: str) -> int:
        columns, where, peers_where = CASES[case]
        if not self._ours:
            files = ds.dataset(self.files, format="parquet")
            asked = {"columns": columns or self.names, "filter": peers_where(self._rows) if peers_where else None}
            if case == "stream":
                return sum(batch.num_rows for batch in files.to_batches(**asked))
            return int(files.to_table(**asked).num_rows)
        with lakelatch.open(self._url) as table:
            scan = table.read(columns=columns, where=where.format(few=self._rows // 50) if where else None)
            if case == "stream":
                return sum(batch.num_rows for batch in scan.to_batches())
            return int(scan.to_arrow().num_rows)

    def serve(self, pipe: Connection) -> None:
        """Answer each case with seconds, CPU seconds and rows, and what is no case with the peak of Arrow's memory."""
        while (case := pipe.recv()) is not None:
            if case not in CASES:
                pipe.send(pa.default_memory_pool().max_memory())
                continue
            wall, cpu = time.perf_counter(), time.process_time()
            count = self._read(case)
            pipe.send((time.perf_counter() - wall, time.process_time() - cpu, count))


def start(url: str, rows: int, *, ours: bool) -> Connection:
    """A process that reads, and the pipe by which it is asked."""
    here, there = mp.Pipe()
    mp.get_context("spawn").Process(target=Reader(url, rows, ours=ours).serve, args=(there,), daemon=True).start()
    return here


def ask(pipe: Connection, what: str) -> Any:
    """The reader's answer."""
    pipe.send(what)
    return pipe.recv()


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
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        url = f"{folder}/flights"
        make(url, args.rows, args.partitions)
        with lakelatch.open(url) as table:
            files, _ = files_of(table)
        show("machine", machine() | {"arrow_threads": pa.cpu_count(), "files": len(files), "rows": args.rows})
        streams = [start(url, args.rows, ours=each) for each in (True, False)]  # fresh ones, for their memory
        peaks = dict(
            zip(("ours", "dataset"), [[ask(p, "stream"), ask(p, "peak")][1] >> 20 for p in streams], strict=True)
        )
        pipes = [start(url, args.rows, ours=each) for each in (True, False)]
        for case in CASES:
            took: tuple[list[tuple[float, float, int]], ...] = ([], [])
            for pipe in pipes:
                ask(pipe, case)  # the first time finds no memory and no code loaded
            for _ in range(args.rounds):
                for pipe, found in zip(pipes, took, strict=True):
                    found.append(ask(pipe, case))
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
        show("peak of a stream, MiB", peaks)
        for pipe in (*streams, *pipes):
            pipe.send(None)
        show("timer of a reader's lease, us", round(lease_timer_us()))


def files_of(table: lakelatch.Table) -> tuple[list[str], list[str]]:
    """Paths of the base files, and the names of the data columns."""
    view = table.view()
    schema = view.arrow_schema()
    assert schema is not None
    return [table.store.uri(each.path).removeprefix("file://") for each in view.snapshot.file_slices()], schema.names


if __name__ == "__main__":
    main()
