"""Reading a wide row that streams have filled, against the sort-merge join of their sources, in Spark.

    python -m benchmarks.spark.streams [--keys 500000] [--rounds 3] [--bucketed]

Three streams of six columns each (one of them orders events), eight buckets. The join's side is three plain Parquet tables of
the same rows, each in an order of its own, broadcast off; with ``--bucketed`` three tables of Spark, bucketed and sorted by the
key into as many buckets, which join without a shuffle. Read in turns:

all        every column
few        one value of each stream, under a condition
groups     grouped by two texts, four aggregates
top        the ten greatest of each group

Once compacted, once with log files of 1 % of the keys of every stream in every bucket. The sources of the second join hold these
events already. Printed: medians of wall and CPU seconds of driver, JVM and workers, and the join's in parts of ours.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import lakelatch
import lakelatch.spark

from .data import head, session, store
from .timing import timed

STREAMS, BUCKETS = "abc", 8
_WORDS = pa.array([f"word {n:03d}" for n in range(300)])

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        *(
            (f"{name}_{column}", kind)
            for name in STREAMS
            for column, kind in (
                ("at", pa.int64()),
                ("n", pa.int64()),
                ("m", pa.int64()),
                ("x", pa.float64()),
                ("word", pa.string()),
                ("text", pa.string()),
            )
        ),
    ]
)


def events(name: str, keys: np.ndarray[Any, Any], at: int, seed: int) -> pa.Table:
    """One event of each key, in random order."""
    rng = np.random.default_rng(seed)
    keys = rng.permutation(keys)
    count = len(keys)
    return pa.table(
        {
            "id": pa.array([f"customer-{key:08d}" for key in keys]),
            f"{name}_at": pa.array(np.full(count, at)),
            f"{name}_n": pa.array(rng.integers(0, 1_000, count)),
            f"{name}_m": pa.array(rng.integers(0, 1_000_000_000, count)),
            f"{name}_x": pa.array(rng.random(count)),
            f"{name}_word": _WORDS.take(pa.array(rng.integers(0, len(_WORDS), count))),
            f"{name}_text": pa.array([f"text {n}" for n in rng.integers(0, 1_000_000, count)]),
        }
    )


def all_columns(rows: Any) -> Any:
    return rows


def few(rows: Any) -> Any:
    return rows.where("a_n < 500").select("a_n", "b_x", "c_m")


def groups(rows: Any) -> Any:
    from pyspark.sql import functions as f

    return rows.groupBy("a_word", "b_word").agg(f.sum("c_n"), f.avg("b_x"), f.max("a_m"), f.min("c_x"))


def top(rows: Any) -> Any:
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    place = f.row_number().over(Window.partitionBy("a_word").orderBy(f.desc("b_x")))
    return rows.select("a_word", "b_x", "c_m").withColumn("place", place).where("place <= 10")


# With the columns that each asks for: Spark does not tell Python workers what it needs, so `read` is told.
QUERIES: dict[str, tuple[Callable[[Any], Any], list[str] | None]] = {
    "all": (all_columns, None),
    "few": (few, ["a_n", "b_x", "c_m"]),
    "groups": (groups, ["a_word", "b_word", "c_n", "b_x", "a_m", "c_x"]),
    "top": (top, ["a_word", "b_x", "c_m"]),
}


def compare(title: str, wide: Callable[..., Any], joined: Callable[[], Any], rounds: int) -> None:
    """Print what each query costs on both, which have to have the same rows."""

    def sums(rows: Any) -> Any:
        parts = ", ".join(f"sum(cast({name}_m as decimal(38))), count({name}_text)" for name in STREAMS)
        return rows.selectExpr(*(f"{each}" for each in parts.split(", ")), "count(*)").collect()

    assert sums(wide()) == sums(joined()), "both have the same rows"
    for name, (query, columns) in QUERIES.items():
        took: dict[str, list[tuple[float, float]]] = {"wide": [], "joined": []}
        for _ in range(rounds):
            for side, rows in (("wide", lambda: wide(columns=columns)), ("joined", joined)):  # noqa: B023
                wall, cpu, _ = timed(lambda: query(rows()).write.format("noop").mode("overwrite").save())  # noqa: B023
                took[side].append((wall, cpu))
        (ours, ours_cpu), (theirs, theirs_cpu) = (
            tuple(statistics.median(each) for each in zip(*found, strict=True)) for found in took.values()
        )
        print(
            f"{title:22} {name:8} wide {ours:6.2f} s CPU {ours_cpu:6.2f}   join {theirs:6.2f} s CPU {theirs_cpu:6.2f}"
            f"   {theirs / ours:5.2f}x, CPU {theirs_cpu / ours_cpu:5.2f}x",
            flush=True,
        )


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bucketed", action="store_true", help="the sources are bucketed by the key")
    given = parser.parse_args()
    head("stitched reads against the join of their sources")
    folder = Path(tempfile.mkdtemp(prefix="lakelatch-bench-"))
    spark = session()
    spark.conf.set("spark.sql.autoBroadcastJoinThreshold", -1)
    spark.conf.set("spark.sql.shuffle.partitions", BUCKETS)
    try:
        url = str(folder / "wide")
        made = lakelatch.create(
            url, record_key="id", schema=SCHEMA, type="merge_on_read", table_version=9, bucket_count=BUCKETS
        )
        sources = {name: events(name, np.arange(given.keys), 1, seed) for seed, name in enumerate(STREAMS)}
        for name, rows in sources.items():
            columns = [each for each in rows.column_names if each.startswith(name) and not each.endswith("_at")]
            made.stream(name, columns=columns, ordering=f"{name}_at").upsert(rows)
        made.compact()
        table = lakelatch.spark.open(spark, made)

        def join(version: int) -> Callable[[], Any]:
            paths = [store(rows, folder / f"{name}{version}") for name, rows in sources.items()]

            names = [f"{name}{version}" for name in sources]
            if given.bucketed:
                for name, path in zip(names, paths, strict=True):
                    made = (
                        spark.read.parquet(path).repartition(BUCKETS, "id").write.bucketBy(BUCKETS, "id").sortBy("id")
                    )
                    made.option("path", f"{path}-bucketed").saveAsTable(name)

            def joined() -> Any:
                if given.bucketed:
                    first, *others = (spark.table(name) for name in names)
                else:
                    first, *others = (spark.read.parquet(path) for path in paths)
                for each in others:
                    first = first.join(each, "id", "left")
                if given.bucketed:
                    assert "Exchange" not in first._jdf.queryExecution().executedPlan().toString()
                return first

            return joined

        print(f"{given.keys:,} keys, {given.rounds} rounds")
        compare("compacted", table.read, join(0), given.rounds)
        rng = np.random.default_rng(99)
        for seed, name in enumerate(STREAMS, 10):
            fresh = events(name, rng.choice(given.keys, given.keys // 100, replace=False), 2, seed)
            made.stream(name).upsert(fresh)
            old = sources[name]
            kept = old.filter(pc.invert(pc.is_in(old["id"], value_set=fresh["id"].combine_chunks())))
            sources[name] = pa.concat_tables([kept, fresh])
        compare("1 % in fresh log files", table.read, join(1), given.rounds)
        made.close()
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
