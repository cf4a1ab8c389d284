"""Spark's read of all columns of a merge-on-read table, against plain scans of its base files and of the same rows, in turns.

    python -m benchmarks.spark.read [--rows 10000000] [--rounds 3]

48 file groups (12 partitions x 4 buckets); first without log files, then after an upsert of 1 % of the rows of five of them,
then of 1 % of the rows of all. Asked, of reads of 2 s and more: at most 1.02, 1.2 and 2 times the seconds.
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
from .timing import timed
from .upsert import noop

BARS = {"no log files": 1.02, "log files in a tenth": 1.2, "log files in all": 2.0}


def in_turns(spark: Any, table: Any, scratch: Path, name: str, rounds: int) -> None:
    """Print how long the table takes, its base files alone, and files that Spark has written; and the ratios."""
    written = str(scratch / "written")
    table.read().write.option("compression", "zstd").parquet(written)  # as ours
    bases = [f"{table.table.url}/{each.base.path}" for each in table.table.snapshot().file_slices()]
    columns = table.read().columns
    ways = {
        "table": table.read,
        "base files": lambda: spark.read.parquet(*bases).select(columns),
        "Spark's files": lambda: spark.read.parquet(written),
    }
    found: dict[str, list[tuple[float, float]]] = {each: [] for each in ways}
    for _ in range(rounds + 1):
        for each, call in ways.items():
            found[each].append(timed(lambda call=call: noop(call()))[:2])
    medians = {each: report(f"{each}, {name}", runs[1:]) for each, runs in found.items()}  # the first ones warm up
    wall, cpu = medians.pop("table")
    for each, other in medians.items():
        print(f"{name}, table / {each}: wall {wall / other[0]:.2f} (asked <= {BARS[name]})  cpu {cpu / other[1]:.2f}")
    print(flush=True)
    shutil.rmtree(written)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=10_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="lakelatch-bench-"))
    spark = session()
    try:
        rows = copies(flights(), given.rows)
        base, changed = store(rows, scratch / "base"), store(updates(rows, 0.01), scratch / "changed")
        head(f"reads of {rows.num_rows} rows in 48 file groups")
        del rows
        made = lakelatch.create(
            str(scratch / "table"),
            record_key="id",
            partition_by="part",
            ordering_field="ts",
            bucket_count=BUCKETS,
            type="merge_on_read",
        )
        with made:
            table = lakelatch.spark.open(spark, made)
            table.bulk_insert(spark.read.parquet(base).repartition(4))
            in_turns(spark, table, scratch, "no log files", given.rounds)
            five = [Path(each.base.path).name for each in made.snapshot().file_slices()][:: 48 // 5 + 1]
            there = table.read(["id", "_hoodie_file_name"], meta=True)
            there = there.where(there["_hoodie_file_name"].isin(five)).select("id")
            table.upsert(spark.read.parquet(changed).join(there, "id", "left_semi"))
            assert sum(bool(each.logs) for each in made.snapshot().file_slices()) == len(five) == 5
            in_turns(spark, table, scratch, "log files in a tenth", given.rounds)
            table.upsert(spark.read.parquet(changed))
            assert all(each.logs for each in made.snapshot().file_slices())
            in_turns(spark, table, scratch, "log files in all", given.rounds)
    finally:
        spark.stop()
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
