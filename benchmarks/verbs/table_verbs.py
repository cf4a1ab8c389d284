"""`Table.upsert` and its load in plain Python, against delta-rs, in turns: rows upserted onto a table of some partitions.

    python -m benchmarks.verbs.table_verbs [--rows 5000000] [--upserts 1000000] [--partitions 12] [--rounds 3] [--folder DIR]
    python -m benchmarks.verbs.table_verbs --pyiceberg --rows 10000 --upserts 2000    # pyiceberg too, at what it can finish

load     `insert` of all rows into an empty table       `write_deltalake`, partitioned
upsert   half known keys, half new ones                 `merge`, matched by key and partition, update all, insert all

Ours with the simple index and with 4 buckets a partition. Each measurement has a process of its own, which makes the rows,
runs once, and tells seconds, CPU seconds and its largest resident memory (which includes the rows that it was handed).
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import lakelatch

from .._report import machine, show

_SIDES = ("lakelatch, simple index", "lakelatch, 4 buckets", "delta-rs")


def flights(first: int, rows: int, partitions: int, updated: int) -> pa.Table:
    """Rows with the keys from ``first`` on."""
    at = pa.array(range(first, first + rows))
    mixed = pc.bit_wise_and(pc.multiply(at, 2654435761), 0x7FFFFFFF)
    return pa.table(
        {
            "id": pc.binary_join_element_wise("k", at.cast(pa.string()), ""),
            "month": pc.add(_modulo(mixed, partitions), 1),
            "origin": pa.array(["JFK", "LGA", "EWR"]).take(_modulo(mixed, 3)),
            "tail": pa.array([f"N{n:04d}" for n in range(4000)]).take(_modulo(mixed, 4000)),
            "delay": pc.divide(_modulo(mixed, 100_000).cast(pa.float64()), 1000.0),
            "distance": _modulo(pc.divide(mixed, 7), 5000),
            "updated": pa.repeat(pa.scalar(updated), rows),
        }
    )


def _modulo(values: pa.Array, by: int) -> pa.Array:
    return pc.subtract(values, pc.multiply(pc.divide(values, by), by))


def load(side: str, url: str, rows: pa.Table) -> None:
    """All rows into a new table."""
    if side == "delta-rs":
        from deltalake import write_deltalake

        write_deltalake(url, rows, partition_by=["month"])
        return
    if side == "pyiceberg":
        from pyiceberg.transforms import IdentityTransform

        table = _iceberg(url).create_table("flights.all", schema=rows.schema)
        with table.update_spec() as spec:
            spec.add_field("month", IdentityTransform())
        table.append(rows)
        return
    more: dict[str, Any] = {"bucket_count": 4} if "buckets" in side else {}
    with lakelatch.create(url, record_key="id", partition_by="month", ordering_field="updated", **more) as table:
        table.insert(rows)


def upsert(side: str, url: str, rows: pa.Table) -> None:
    """Rows into the table."""
    if side == "delta-rs":
        from deltalake import DeltaTable

        same = "s.id = t.id and s.month = t.month"
        merge = DeltaTable(url).merge(rows, same, source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return
    if side == "pyiceberg":
        _iceberg(url).load_table("flights.all").upsert(rows, join_cols=["id", "month"])
        return
    with lakelatch.open(url) as table:
        table.upsert(rows)


def _iceberg(folder: str) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    Path(folder).mkdir(exist_ok=True)
    catalog = SqlCatalog("local", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
    catalog.create_namespace_if_not_exists("flights")
    return catalog


def _measure(
    work: Callable[..., None], side: str, url: str, asked: tuple[int, int, int, int], pipe: Connection
) -> None:
    rows = flights(*asked)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    wall, cpu = time.perf_counter(), time.process_time()
    work(side, url, rows)
    took = time.perf_counter() - wall, time.process_time() - cpu
    pipe.send((*took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10, before >> 10))


def measured(work: Callable[..., None], side: str, url: str, asked: tuple[int, int, int, int]) -> tuple[float, ...]:
    """Seconds, CPU seconds, MiB at most, and MiB before, of one process."""
    here, there = mp.Pipe()
    process = mp.get_context("spawn").Process(target=_measure, args=(work, side, url, asked, there))
    process.start()
    there.close()
    found: tuple[float, ...] = here.recv()
    process.join()
    return found


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--upserts", type=int, default=1_000_000)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pyiceberg", action="store_true", help="measure it too; of a million rows it takes minutes")
    parser.add_argument("--folder", default=None, help="where the tables are made; a temporary folder otherwise")
    args = parser.parse_args()
    sides = (*_SIDES, "pyiceberg") if args.pyiceberg else _SIDES
    peers = ("deltalake", "pyiceberg") if args.pyiceberg else ("deltalake",)
    show("machine", machine(*peers) | {"arrow_threads": pa.cpu_count(), "rows": args.rows, "upserts": args.upserts})
    took: dict[tuple[str, str], list[tuple[float, ...]]] = {}
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            for side in sides:
                url = str(Path(folder) / "table")
                first = args.rows - args.upserts // 2
                whole, some = (0, args.rows, args.partitions, 1), (first, args.upserts, args.partitions, 2)
                took.setdefault(("load", side), []).append(measured(load, side, url, whole))
                took.setdefault(("upsert", side), []).append(measured(upsert, side, url, some))
                shutil.rmtree(url)
    for (what, side), found in sorted(took.items()):
        middle = [statistics.median(each) for each in zip(*found, strict=True)]
        peer = statistics.median(each[0] for each in took[what, "delta-rs"])
        memory = statistics.median(each[2] for each in took[what, "delta-rs"])
        facts = {"s": round(middle[0], 2), "cpu_s": round(middle[1], 2), "peak_mib": middle[2], "rows_mib": middle[3]}
        show(
            f"{what}, {side}",
            facts | {"of_delta": round(middle[0] / peer, 2), "of_its_memory": round(middle[2] / memory, 2)},
        )


if __name__ == "__main__":
    main()
