"""Spark upsert of 20 % of the rows over all 48 file groups (12 partitions x 4 buckets), bucket and simple index.

    python -m benchmarks.spark.upsert [--rows 1000000] [--rounds 3] [--jvm]

``--jvm`` runs the same work with JVM Hudi 1.2.0 through ``jvm_upsert.py`` in its own environment (see there), in the
same rounds. Asked of us: at 1 M rows >= 6 times its speed with buckets and >= 3.5 times with the simple index, at 5 M
>= 8 and >= 3.5 times; touching one partition of 12 costs at most 0.25 of touching all.
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


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--jvm", action="store_true", help="compare with JVM Hudi 1.2.0")
    given = arguments.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="lakelatch-bench-"))
    spark = session()
    peers: dict[str, Peer] = {}
    try:
        rows = copies(flights(), given.rows)
        all_parts, one_part = updates(rows, 0.2), updates(rows, 0.2, part="m01")
        paths = {
            "base": store(rows, scratch / "base"),
            "all": store(all_parts, scratch / "all"),
            "one": store(one_part, scratch / "one"),
        }
        head(f"upsert of {all_parts.num_rows} rows onto {rows.num_rows} in 48 file groups, zstd, no metadata table")
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
