"""The writes, as the driver sees them: plan, one Spark action (or none), stage.

    insert      rows -> new files, where Spark has them; no shuffle
    upsert      rows -> shuffled so that a file group's rows meet -> the worker merges them into the base file itself
    delete      as upsert, with keys; by condition: Spark's scan names the rows by file and position
    overwrite   as insert, then the old file groups are dropped in the same commit

Batches that Spark knows to be small are merged on the driver: no job but the one that brings the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from ..errors import InputError
from ..occ.avro import WriteStat
from ..occ.retry import RunResult
from ..occ.snapshot import Snapshot
from ..occ.table import Table
from ..occ.transaction import Transaction
from . import columns
from .jobs import collect
from .prune import matching_partitions, pinned_partitions
from .read import scan, with_meta
from .result import WriteResult
from .rewrite import GROUP_COLUMN, NEW, PARTITION_COLUMN, Files, Plan, apply, slices_by_partition
from .source import SMALL_ROWS, Source, estimated_bytes, small_rows
from .worker import FILE_COLUMN, ROW_COLUMN, Answer, InsertTask, MergeTask, RemoveTask, repeated_keys

_HERE_BYTES_MAX = 32 << 20  # of base files; more are merged by Spark's tasks
_TASK_BYTES = 64 << 20
_TASKS_PER_CORE = 4
# A partition is looked up by one task; above this size a table of few partitions is looked up by a join instead.
_LOOKUP_BYTES = 64 << 20


class _RepeatedKeys(Exception):
    """Two inserted rows may have the same key: do it again with rows shuffled by key, which can tell."""


class Writes:
    """The writes of one table in one session."""

    def __init__(self, spark: Any, table: Table) -> None:
        self._spark, self._table = spark, table

    # Insert ------------------------------------------------------------------------------------------------------

    def insert(self, rows: Any, *, operation: str) -> WriteResult:
        """Rows into new file groups; with buckets, into those of their buckets."""
        schema = self._checked(rows)
        if self._table.settings.buckets is not None:
            return self.upsert(rows)
        return self._insert(rows, schema, operation, lambda _txn, _stats: None)

    def overwrite(self, rows: Any, *, partitions: Sequence[str] | None) -> WriteResult:
        """The partitions of the rows hold these rows and no others."""
        named = None if partitions is None else set(partitions)

        def drop(txn: Transaction, stats: Sequence[WriteStat]) -> None:
            written = {s.partition for s in stats}
            if named is not None and (others := sorted(written - named)):
                raise InputError(
                    f"rows of partition {others[0]!r} are not among the partitions to overwrite "
                    f"({', '.join(sorted(named))}); filter the rows, or name that partition too",
                    partitions=others,
                )
            for partition in sorted(written | (named or set())):
                txn.overwrites(partition)
                txn.drop(txn.snapshot.file_groups(partition))

        return self._overwrite(rows, "insert_overwrite", drop)

    def overwrite_table(self, rows: Any) -> WriteResult:
        """The table holds these rows and no others."""

        def drop(txn: Transaction, _stats: Sequence[WriteStat]) -> None:
            txn.overwrites(None)
            txn.drop(txn.snapshot.file_groups())

        return self._overwrite(rows, "insert_overwrite_table", drop)

    def _overwrite(
        self, rows: Any, operation: str, drop: Callable[[Transaction, Sequence[WriteStat]], None]
    ) -> WriteResult:
        schema = self._checked(rows)
        if self._table.settings.buckets is None:
            return self._insert(rows, schema, operation, drop)
        return self._merge(rows, schema, operation, drop, keep_old=False)

    def _insert(
        self,
        rows: Any,
        schema: pa.Schema,
        operation: str,
        finish: Callable[[Transaction, Sequence[WriteStat]], None],
    ) -> WriteResult:
        small = small_rows(rows)
        exact = False
        with Source(rows).until_done() as source:

            def work(txn: Transaction) -> list[WriteStat]:
                spec = txn.file_spec(schema)
                if small is not None:
                    answers = [_raised(InsertTask(spec, exact=True).run(small.to_batches(), 0))]
                elif exact:
                    fields = spec.config.record_key_fields
                    spread = [
                        *columns.partition_columns(schema, spec.config.partition_fields),
                        columns.key_column(fields),
                    ]
                    shuffled = source.use().repartition(self._tasks(source.rows), *spread)
                    answers = self._collect(txn, shuffled, InsertTask(spec, exact=True), operation)
                else:
                    task = InsertTask(spec, check=operation != "bulk_insert")
                    answers = self._collect(txn, source.use(), task, operation)
                    if repeated_keys(answers):
                        raise _RepeatedKeys
                stats = _stats(answers)
                txn.add(stats)
                finish(txn, stats)
                return stats

            try:
                return self._run(work, operation)
            except _RepeatedKeys:
                exact = True
                return self._run(work, operation)

    # Upsert ------------------------------------------------------------------------------------------------------

    def upsert(self, rows: Any) -> WriteResult:
        """Rows into the file groups that hold their keys; new keys are inserted."""
        return self._merge(rows, self._checked(rows), "upsert", lambda _txn, _stats: None)

    def _merge(
        self,
        rows: Any,
        schema: pa.Schema,
        operation: str,
        finish: Callable[[Transaction, Sequence[WriteStat]], None],
        *,
        keep_old: bool = True,
    ) -> WriteResult:
        small = small_rows(rows)
        with Source(rows).until_done() as source:

            def work(txn: Transaction) -> list[WriteStat]:
                spec = txn.file_spec(schema)
                old = txn.snapshot if keep_old else Snapshot()
                here = None if small is None else _here(Plan(spec), small, old)
                if small is not None and here is not None:
                    answers = [_applied(here, small)]
                else:
                    plan = Plan(spec, slices_by_partition(old.file_groups()))
                    incoming = source.use() if small is None else self._spark.createDataFrame(small)
                    answers = self._collect(txn, self._routed(plan, incoming, schema), MergeTask(plan), operation)
                stats = _stats(answers)
                txn.add(stats)
                finish(txn, stats)
                return stats

            return self._run(work, operation)

    def _routed(self, plan: Plan, rows: Any, schema: pa.Schema) -> Any:
        """The rows shuffled so that all rows of a unit of work are in one task."""
        config, tasks = plan.spec.config, self._tasks(rows)
        if PARTITION_COLUMN in schema.names:
            places: list[Any] = [PARTITION_COLUMN]
        else:
            places = columns.partition_columns(schema, config.partition_fields)
        if plan.spec.buckets is not None:
            bucket = columns.bucket_column(config.record_key_fields, plan.spec.buckets)
            named = rows.withColumn(columns.BUCKET_COLUMN, bucket)
            return named.repartition(tasks, *places, columns.BUCKET_COLUMN).drop(columns.BUCKET_COLUMN)
        size = sum(s.size for group in plan.slices.values() for s in group)
        if places and (len(plan.slices) >= 2 * self._cores or size <= _LOOKUP_BYTES):
            return rows.repartition(tasks, *places)
        if size <= _LOOKUP_BYTES // 4:
            return rows.repartition(1)
        return self._joined(plan, rows, schema, tasks)

    def _joined(self, plan: Plan, rows: Any, schema: pa.Schema, tasks: int) -> Any:
        """Simple index by a join with the key column of the base files, for large tables of few partitions."""
        from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

        config = plan.spec.config
        slices = [s for group in plan.slices.values() for s in group]
        held = scan(self._spark, self._table, slices, with_meta(plan.spec.schema))
        if PARTITION_COLUMN in schema.names:
            ours, theirs = [F.col(PARTITION_COLUMN)], [F.col("_hoodie_partition_path")]
        else:
            ours = columns.partition_columns(schema, config.partition_fields)
            theirs = columns.partition_columns(plan.spec.schema, config.partition_fields)
        ours, theirs = [*ours, columns.key_column(config.record_key_fields)], [*theirs, F.col("_hoodie_record_key")]
        names = [f"_lakelatch_{number}" for number in range(len(theirs))]
        group = F.split_part(F.col("_metadata.file_name"), F.lit("_"), F.lit(1)).alias(GROUP_COLUMN)
        held = held.select(*(column.alias(name) for column, name in zip(theirs, names, strict=True)), group)
        # Null partition values are equal here, as they are in a path.
        same = [column.eqNullSafe(held[name]) for column, name in zip(ours, names, strict=True)]
        slot = F.concat(F.lit(NEW), F.pmod(F.xxhash64(ours[-1]), F.lit(tasks)).cast("string"))
        placed = (
            rows.join(held, same, "left").withColumn(GROUP_COLUMN, F.coalesce(F.col(GROUP_COLUMN), slot)).drop(*names)
        )
        return placed.repartition(tasks, *ours[:-1], GROUP_COLUMN)

    # Delete ------------------------------------------------------------------------------------------------------

    def delete(self, keys: Any) -> WriteResult:
        """The rows with these keys are gone; in all partitions when the keys come without partition columns."""
        config = self._table.config
        given = columns.arrow_schema(keys.schema)
        columns.refuse_missing(given, config, delete=True)
        located = all(n in given.names for n in config.partition_fields)
        names = [*config.record_key_fields, *(n for n in config.partition_fields if located)]
        chosen = keys.select(*dict.fromkeys(names))
        schema = pa.schema([given.field(n) for n in chosen.columns])
        small = small_rows(chosen)
        with Source(chosen).until_done() as source:

            def work(txn: Transaction) -> list[WriteStat]:
                if txn.schema is None:
                    return []
                plan = Plan(txn.file_spec(txn.schema), delete=True)
                everywhere = None if located else txn.snapshot.partitions()
                if small is not None:
                    spread = small if everywhere is None else _in_each(small, everywhere)
                    here = _here(plan, spread, txn.snapshot)
                    if here is not None:
                        stats = _stats([_applied(here, spread)])
                        txn.add(stats)
                        return stats
                plan = Plan(plan.spec, slices_by_partition(txn.snapshot.file_groups()), delete=True)
                incoming = source.use() if small is None else self._spark.createDataFrame(small)
                wide = schema
                if everywhere is not None:
                    paths = pa.table({PARTITION_COLUMN: pa.array(everywhere, pa.string())})
                    incoming = incoming.crossJoin(self._spark.createDataFrame(paths))
                    wide = schema.append(pa.field(PARTITION_COLUMN, pa.string()))
                stats = _stats(self._collect(txn, self._routed(plan, incoming, wide), MergeTask(plan), "delete"))
                txn.add(stats)
                return stats

            return self._run(work, "delete")

    def delete_where(self, condition: Any) -> WriteResult:
        """The rows for which the condition is true are gone, also ones that other writers add meanwhile."""

        def work(txn: Transaction) -> list[WriteStat]:
            schema, config = txn.schema, self._table.config
            if schema is None:
                return []
            pinned = pinned_partitions(self._spark, config, schema, condition)
            for partition in sorted(pinned) if pinned is not None else [None]:
                txn.reads(partition)
            wanted = matching_partitions(self._spark, config, schema, txn.snapshot.partitions(), condition)
            slices = [s for s in txn.snapshot.file_groups() if s.partition in wanted]
            if not slices:
                return []
            plan = Plan(txn.file_spec(schema), slices_by_partition(slices), delete=True)
            found = scan(self._spark, self._table, slices, schema).where(condition)
            named = found.selectExpr(f"_metadata.file_name as {FILE_COLUMN}", f"_metadata.row_index as {ROW_COLUMN}")
            shuffled = named.repartition(min(self._tasks(None), len(slices)), FILE_COLUMN)
            stats = _stats(self._collect(txn, shuffled, RemoveTask(plan), "delete"))
            txn.add(stats)
            return stats

        return self._run(work, "delete")

    # Common ------------------------------------------------------------------------------------------------------

    def _checked(self, rows: Any) -> pa.Schema:
        schema = columns.arrow_schema(rows.schema)
        columns.refuse_missing(schema, self._table.config)
        return schema

    def _collect(self, txn: Transaction, rows: Any, task: Any, operation: str) -> list[Answer]:
        text = f"{operation} into {self._table.url} ({txn.instant})"
        return collect(self._spark, self._table.store, txn, rows, task, text=text)

    def _run(self, work: Callable[[Transaction], list[WriteStat]], operation: str) -> WriteResult:
        done: RunResult[list[WriteStat]] = self._table.run(work, operation=operation)
        commit = done.commit
        return WriteResult(
            operation,
            commit.instant if commit else None,
            commit.completion if commit else None,
            done.attempts,
            done.losses,
            tuple(done.value) if commit else (),
        )

    @property
    def _cores(self) -> int:
        return int(self._spark.sparkContext.defaultParallelism)

    def _tasks(self, rows: Any | None) -> int:
        """Some tasks for each core, so that uneven ones even out; more when their rows would not fit in memory."""
        size = estimated_bytes(rows) if rows is not None else None
        return max(_TASKS_PER_CORE * self._cores, (size or 0) // _TASK_BYTES)


def _here(plan: Plan, rows: pa.Table, old: Snapshot) -> Plan | None:
    """The plan with the slices that the rows may touch, or None when they are too much for the driver."""
    if rows.num_rows > SMALL_ROWS:
        return None
    if PARTITION_COLUMN in rows.column_names:
        partitions = old.partitions()
    else:
        from ..occ.partition_path import partition_paths

        partitions = partition_paths(rows, plan.spec.config).unique().to_pylist()
    slices = {p: tuple(old.file_groups(p)) for p in partitions}
    if sum(s.size for group in slices.values() for s in group) > _HERE_BYTES_MAX:
        return None
    return Plan(plan.spec, slices, plan.delete)


def _applied(plan: Plan, rows: pa.Table) -> Answer:
    with Files(plan.spec, 0) as files:
        apply(plan, rows, files)
        return Answer(files.stats())


def _in_each(rows: pa.Table, partitions: Sequence[str]) -> pa.Table:
    pieces = [
        rows.append_column(PARTITION_COLUMN, pa.repeat(pa.scalar(p, pa.string()), rows.num_rows)) for p in partitions
    ]
    return (
        pa.concat_tables(pieces)
        if pieces
        else rows.slice(0, 0).append_column(PARTITION_COLUMN, pa.array([], pa.string()))
    )


def _stats(answers: Iterable[Answer]) -> list[WriteStat]:
    return [stat for answer in answers for stat in answer.stats]


def _raised(answer: Answer) -> Answer:
    if answer.error is not None:
        raise answer.error
    return answer
