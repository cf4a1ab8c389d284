"""Spark upsert of 20 % of the rows over all 48 file groups (12 partitions x 4 buckets), bucket and simple index.

    python -m benchmarks.spark.upsert [--rows 1000000] [--rounds 3] [--jvm]
    python -m benchmarks.spark.upsert --share 0.01 --logs [--jvm]

``--jvm`` runs the same work with JVM Hudi 1.2.0 through ``jvm_upsert.py`` in its own environment (see there), in the
same rounds. Asked of us: at 1 M rows >= 6 times its speed with buckets and >= 3.5 times with the simple index, at 5 M
>= 8 and >= 3.5 times; touching one partition of 12 costs at most 0.25 of touching all.

``--logs`` appends log files instead, with buckets: against rewritten base files, and against the JVM's merge-on-read table.
Then it reads all columns with log files in all slices: against plain Parquet of the same rows, and against the JVM's read.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import lakelatch
import lakelatch.spark

from .data import BUCKETS, copies, flights, head, report, session, store, updates
from .jvm_upsert import Peer
from .timing import timed

INDEXES = {"bucket": BUCKETS, "simple": None}


def noop(rows: Any) -> None:
    rows.write.format("noop").mode("overwrite").save()


def with_logs(spark: Any, scratch: Path, paths: dict[str, str], rounds: int, *, jvm: bool) -> None:
    """Append log files, and read with them."""
    kinds = {"base files rewritten": "copy_on_write", "log files": "merge_on_read"}
    tables: dict[str, Any] = {}
    peer: Peer | None = None
    try:
        for name, kind in kinds.items():
            made = lakelatch.create(
                str(scratch / kind),
                record_key="id",
                partition_by="part",
                ordering_field="ts",
                bucket_count=BUCKETS,
                type=kind,
            )
            tables[name] = lakelatch.spark.open(spark, made)
            tables[name].bulk_insert(spark.read.parquet(paths["base"]).repartition(4))
        peer = Peer(scratch / "jvm", "bucket", BUCKETS, paths["base"], kind="MERGE_ON_READ") if jvm else None
        appends: dict[str, list[tuple[float, float]]] = {}
        for number in range(rounds + 1):
            for name, table in tables.items():
                incoming = spark.read.parquet(paths["all"])
                taken = timed(lambda table=table, incoming=incoming: table.upsert(incoming))[:2]
                appends.setdefault(f"upsert, {name}", []).append(taken)
            if peer:
                appends.setdefault("upsert, JVM Hudi's log files", []).append(peer.upsert(paths["all"]))
            print(f"round {number} is over", flush=True)
        logged = tables["log files"]
        assert all(each.logs for each in logged.table.snapshot().file_slices()), "log files in all slices"
        plain = str(scratch / "plain")
        logged.read().write.parquet(plain)
        reads: dict[str, list[tuple[float, float]]] = {}
        for _ in range(rounds + 1):
            reads.setdefault("read, plain Parquet", []).append(timed(lambda: noop(spark.read.parquet(plain)))[:2])
            reads.setdefault("read, log files", []).append(timed(lambda: noop(logged.read()))[:2])
            if peer:
                reads.setdefault("read, JVM Hudi's log files", []).append(peer.read())
        medians = {name: report(name, found[1:]) for name, found in (appends | reads).items()}  # the first ones warm up
        for ours, other in (
            ("upsert, log files", "upsert, base files rewritten"),
            ("upsert, log files", "upsert, JVM Hudi's log files"),
            ("read, log files", "read, plain Parquet"),
            ("read, log files", "read, JVM Hudi's log files"),
        ):
            if other in medians:
                (wall, cpu), (their_wall, their_cpu) = medians[ours], medians[other]
                print(f"{other} / {ours}: wall {their_wall / wall:.2f}  cpu {their_cpu / cpu:.2f}")
        assert logged.read().count() == tables["base files rewritten"].read().count()
    finally:
        if peer:
            peer.close()
        for table in tables.values():
            table.table.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--jvm", action="store_true", help="compare with JVM Hudi 1.2.0")
    arguments.add_argument("--share", type=float, default=0.2, help="of the rows that change")
    arguments.add_argument("--logs", action="store_true", help="merge-on-read: append log files, and read with them")
    given = arguments.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="lakelatch-bench-"))
    spark = session()
    peers: dict[str, Peer] = {}
    try:
        rows = copies(flights(), given.rows)
        all_parts, one_part = updates(rows, given.share), updates(rows, given.share, part="m01")
        paths = {
            "base": store(rows, scratch / "base"),
            "all": store(all_parts, scratch / "all"),
            "one": store(one_part, scratch / "one"),
        }
        head(f"upsert of {all_parts.num_rows} rows onto {rows.num_rows} in 48 file groups, zstd, no metadata table")
        if given.logs:
            with_logs(spark, scratch, paths, given.rounds, jvm=given.jvm)
            return
        new = {i for t in (all_parts, one_part) for i in t["id"].to_pylist() if i.endswith("-new")}
        total = rows.num_rows + len(new)
        tables: dict[str, Any] = {}
        for index, bucket_count in INDEXES.items():
            table = lakelatch.create(
                str(scratch / index),
                record_key="id",
                partition_by="part",
                ordering_field="ts",
                bucket_count=bucket_count,
            )
            tables[index] = lakelatch.spark.open(spark, table)
            # With the simple index four tasks hold a piece of each partition: 48 groups as well.
            tables[index].bulk_insert(spark.read.parquet(paths["base"]).repartition(4))
            assert len(table.snapshot()) == 48, len(table.snapshot())
            if given.jvm:
                peers[index] = Peer(scratch / f"jvm-{index}", index, BUCKETS, paths["base"])
        runs: dict[str, list[tuple[float, float]]] = {}
        for number in range(given.rounds + 1):
            for index, table in tables.items():
                for what in ("all", "one"):
                    incoming = spark.read.parquet(paths[what])
                    wall, cpu, result = timed(lambda table=table, incoming=incoming: table.upsert(incoming))
                    assert result.updated + result.inserted == incoming.count()
                    if number:
                        runs.setdefault(f"ours {index}, {what} partitions", []).append((wall, cpu))
                if index in peers:
                    taken = peers[index].upsert(paths["all"])
                    if number:
                        runs.setdefault(f"JVM Hudi {index}, all partitions", []).append(taken)
        medians = {name: report(name, found) for name, found in runs.items()}
        for index, table in tables.items():
            count = table.read().count()
            assert count == total, (count, total)
            everything = medians[f"ours {index}, all partitions"][0]
            one = medians[f"ours {index}, one partitions"][0]
            print(f"{index}: one partition of 12 / all: wall {one / everything:.2f}")
            if index in peers:
                theirs = medians[f"JVM Hudi {index}, all partitions"]
                ours = medians[f"ours {index}, all partitions"]
                print(f"{index}: JVM Hudi / ours: wall {theirs[0] / ours[0]:.1f}  cpu {theirs[1] / ours[1]:.1f}")
    finally:
        for peer in peers.values():
            peer.close()
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
