"""Spark insert, whole commit, against a plain partitioned Parquet write of the same rows in the same session.

    python -m benchmarks.spark.insert [--rows 1000000] [--rounds 5]

Asked of us: at most 1.10 times the wall time and 1.1 times the bytes, both with zstd.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import lakelatch
import lakelatch.spark

from .data import copies, flights, folder_bytes, head, report, session, store
from .timing import timed


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    spark = session()
    scratch = Path(tempfile.mkdtemp(prefix="lakelatch-bench-"))
    try:
        source = store(copies(flights(), given.rows), scratch / "source", pieces=2)
        rows = spark.read.parquet(source)
        head(f"insert of {rows.count()} rows into 12 partitions, {rows.rdd.getNumPartitions()} tasks, zstd")
        runs: dict[str, list[tuple[float, float]]] = {"plain": [], "insert": [], "bulk_insert": []}
        size: dict[str, int] = {}
        for number in range(given.rounds + 1):
            for name in runs:
                target = scratch / f"{name}-{number}"
                if name == "plain":

                    def write(target: Path = target) -> None:
                        # The column is in the files as well, as in a Hudi table.
                        copy = rows.withColumn("part_", rows["part"])
                        copy.write.option("compression", "zstd").partitionBy("part_").parquet(str(target))
                else:
                    table = lakelatch.spark.open(
                        spark, lakelatch.create(str(target), record_key="id", partition_by="part", ordering_field="ts")
                    )

                    def write(table: lakelatch.spark.SparkTable = table, name: str = name) -> None:
                        getattr(table, name)(rows)

                wall, cpu, _ = timed(write)
                size[name] = folder_bytes(target)
                if number:  # the first round warms up
                    runs[name].append((wall, cpu))
                shutil.rmtree(target)
        medians = {name: report(name, found) for name, found in runs.items()}
        for name in ("insert", "bulk_insert"):
            wall, cpu = (medians[name][i] / medians["plain"][i] for i in (0, 1))
            print(f"{name} / plain: wall {wall:.2f}  cpu {cpu:.2f}  bytes {size[name] / size['plain']:.2f}")
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
