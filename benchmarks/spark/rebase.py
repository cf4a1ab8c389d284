"""Two Spark upserts of 1 % random rows each over the same 48 file groups (12 partitions x 4 buckets) at the same time.

    python -m benchmarks.spark.rebase [--rows 1000000] [--rounds 3] [--index bucket simple] [--route tasks driver]

Both begin on one snapshot and merge; the first lands, the second merges the file groups that it lost again, and lands.
Asked of us: the second costs at most 2.1 times the CPU of an upsert that nobody disturbs when all its file groups
collide, and at most 1.3 times when a tenth does, or when all do and it waits for its turn. Also shown: what it costs to
run a lost write again, as a conflict that is none of rows still does, against its first attempt. At the end the rows are
compared with those of the writes one after another, as read by us and by hudi-rs.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hudi
import pyarrow as pa
import pyarrow.compute as pc

import lakelatch
import lakelatch.spark
from lakelatch.occ.table.table import Table
from lakelatch.occ.transaction.retry import RunResult
from lakelatch.spark import JobSizes
from lakelatch.spark.writing import write

from .data import BUCKETS, copies, flights, head, report, session, store
from .timing import timed

SHARE = 100  # one row in a hundred
WAITS = "all collide, it waits for its turn"
BARS = {"all collide": 2.1, "a tenth collides": 1.3, WAITS: 1.3}


class Held:
    """A write that is begun and merged but not committed."""

    def __init__(self, spark: Any, url: str, rows: Any, sizes: JobSizes) -> None:
        self._handle = lakelatch.open(url)
        self._handle.session.merged_bytes_s = 1  # where it may wait it does, however small its file groups are
        self._handle.run = self._run  # type: ignore[method-assign, assignment]
        lakelatch.spark.open(spark, self._handle, sizes=sizes).upsert(rows)

    def _run(self, work: Callable[[Any], Any], *, operation: str, **_: Any) -> RunResult[Any]:
        self._txn = self._handle.transaction(operation)
        return RunResult(work(self._txn), None)

    def commit(self) -> None:
        """It lands. Raises when it lost."""
        self._txn.commit()
        self._handle.close()


class Ends(logging.Handler):
    """Lets a write land when somebody waits for it, and knows what that cost."""

    def __init__(self, held: Held) -> None:
        super().__init__()
        self.held, self.spent = held, [0.0, 0.0]

    def emit(self, _record: logging.LogRecord) -> None:
        wall, cpu, _ = timed(self.held.commit)
        self.spent = [wall, cpu]


class Work:
    """One table, and the versions of its rows that the writes so far leave behind."""

    def __init__(self, spark: Any, table: Table, rows: pa.Table, scratch: Path, sizes: JobSizes) -> None:
        self._spark, self._table, self._rows, self._scratch, self._sizes = spark, table, rows, scratch, sizes
        self._clock = 10**7
        self.expected = dict(zip(rows["id"].to_pylist(), rows["ts"].to_pylist(), strict=True))
        self._round = 0

    def change(self, first: int, *, among: pa.Table | None = None) -> Any:
        """1 % of the rows with new times, as a DataFrame over files; another ``first``, other rows."""
        rows = self._rows if among is None else among
        chosen = rows.take(pa.array(range(first, rows.num_rows, SHARE)))
        self._clock += 1
        times = pa.repeat(pa.scalar(self._clock, pa.int64()), chosen.num_rows)
        chosen = chosen.set_column(chosen.column_names.index("ts"), "ts", times)
        self.expected.update(dict.fromkeys(chosen["id"].to_pylist(), self._clock))
        self._round += 1
        return self._spark.read.parquet(store(chosen, self._scratch / str(self._round)))

    def few_groups(self) -> pa.Table:
        """The rows of every tenth file group."""
        chosen = self._table.snapshot().file_slices()[::10]
        keys = pa.concat_arrays([self._table.read_slice(s, columns=["id"])["id"].combine_chunks() for s in chosen])
        return self._rows.filter(pc.is_in(self._rows["id"], value_set=keys))

    def second(self, mine: Any, winner: Any | None) -> tuple[float, float]:
        """Wall and CPU seconds of a write, the winner's landing in between left out."""
        wall, cpu, held = timed(lambda: Held(self._spark, self._table.url, mine, self._sizes))
        if winner is not None:
            with lakelatch.open(self._table.url) as handle:
                lakelatch.spark.open(self._spark, handle, sizes=self._sizes).upsert(winner)
        more_wall, more_cpu, _ = timed(held.commit)
        return wall + more_wall, cpu + more_cpu

    def waiting(self, mine: Any, winner: Any) -> tuple[float, float]:
        """The same where the winner is at work already and lands when the second waits for it."""
        log = logging.getLogger("lakelatch.waiting")
        self._table.change_settings(early_conflict_detection="direct")
        ends = Ends(Held(self._spark, self._table.url, winner, self._sizes))
        log.addHandler(ends)
        log.setLevel(logging.INFO)
        wall, cpu = self.second(mine, None)
        log.removeHandler(ends)
        self._table.change_settings(early_conflict_detection="off")
        assert ends.spent[0], "it did not wait"
        return wall - ends.spent[0], cpu - ends.spent[1]

    def verify(self) -> None:
        """Raise when a reader sees other rows than those of the writes one after another."""
        ours = self._table.read(columns=["id", "ts"])
        theirs = pa.Table.from_batches(hudi.HudiTableBuilder.from_base_uri(self._table.url).build().read())
        for read in (ours, theirs):
            found = dict(zip(read["id"].to_pylist(), read["ts"].to_pylist(), strict=True))
            assert len(found) == read.num_rows
            assert found == self.expected


def again(spark: Any, table: Table, rows: Any, sizes: JobSizes) -> list[float]:
    """CPU seconds of each attempt of a write whose first attempt is told that it lost."""
    taken: list[float] = []
    with lakelatch.open(table.url) as handle:
        plain = handle.transaction

        def transaction(*given: Any, **named: Any) -> Any:
            taken.append(0.0)
            return plain(*given, **named)

        handle.transaction = transaction  # type: ignore[method-assign]
        collected = write.collect

        def collect(*given: Any, **named: Any) -> Any:
            _, cpu, answers = timed(lambda: collected(*given, **named))
            taken[-1] += cpu
            if len(taken) == 1:
                raise lakelatch.ConflictError("told so by the benchmark", table=table.url)
            return answers

        write.collect = collect
        try:
            result = lakelatch.spark.open(spark, handle, sizes=sizes).upsert(rows)
        finally:
            write.collect = collected
    assert result.attempts == 2
    return taken


def measure(spark: Any, scratch: Path, rows: pa.Table, *, index: str, route: str, rounds: int) -> None:
    """All figures of one index by one route."""
    # Tasks: as if there were more than the driver does by itself.
    sizes = JobSizes(small_rows=0, driver_bytes=0) if route == "tasks" else JobSizes()
    scratch = scratch / f"{index}-{route}"
    table = lakelatch.create(
        str(scratch / "table"),
        record_key="id",
        partition_by="part",
        ordering_field="ts",
        bucket_count=BUCKETS if index == "bucket" else None,
    )
    base = spark.read.parquet(store(rows, scratch / "base"))
    lakelatch.spark.open(spark, table).bulk_insert(base.repartition(4))
    work = Work(spark, table, rows, scratch / "changes", sizes)
    among = {"alone": None, "all collide": rows, "a tenth collides": work.few_groups()}
    runs: dict[str, list[tuple[float, float]]] = {}
    for number in range(rounds + 1):
        first = 4 * number
        for name, theirs in among.items():
            winner = None if theirs is None else work.change(first + 50, among=theirs)
            taken = work.second(work.change(first), winner)
            if number:
                runs.setdefault(name, []).append(taken)
        taken = work.waiting(work.change(first), work.change(first + 50))
        if number:
            runs.setdefault(WAITS, []).append(taken)
        if route == "tasks":
            tried = again(spark, table, work.change(first + 1), sizes)
            for which, cpu in zip(("first", "second"), tried, strict=True):
                if number:
                    runs.setdefault(f"{which} attempt, its Spark action", []).append((0.0, cpu))
    medians = {name: report(f"{index}, {route}: {name}", found)[1] for name, found in runs.items()}
    for name, bar in BARS.items():
        print(f"{index}, {route}: {name} / alone: cpu {medians[name] / medians['alone']:.2f} (at most {bar})")
    if route == "tasks":
        one, two = (medians[f"{which} attempt, its Spark action"] for which in ("first", "second"))
        print(f"{index}, {route}: an attempt that runs again / the first one: cpu {two / one:.2f}")
    work.verify()
    table.close()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--index", nargs="+", choices=("bucket", "simple"), default=["bucket", "simple"])
    arguments.add_argument("--route", nargs="+", choices=("tasks", "driver"), default=["tasks", "driver"])
    given = arguments.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="lakelatch-bench-"))
    spark = session()
    try:
        rows = copies(flights(), given.rows)
        head(f"upserts of {rows.num_rows // SHARE} random rows each onto {rows.num_rows} in 48 file groups")
        for route in given.route:
            for index in given.index:
                measure(spark, scratch, rows, index=index, route=route, rounds=given.rounds)
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
