"""The writes on the driver: plan, run one Spark action or none, stage.

    insert      rows -> new files, where Spark has them; no shuffle
    upsert      rows -> shuffled so that a file group's rows meet -> the worker merges them into the base file itself
    delete      as upsert, with keys; by condition: Spark's scan names the rows by file and position
    overwrite   as insert, then the old file groups are dropped in the same commit

Batches that Spark knows to be small are merged on the driver: no job but the one that brings the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial, reduce
from operator import and_
from typing import Any, Self, cast

import pyarrow as pa

from ...arguments import NewColumns, OperationName, one_of
from ...conditions import Given
from ...conflict import Region, where_of
from ...errors import BatchLandedError, InputError
from ...hudi.files import FileGroupId
from ...hudi.table import ROW_ID, partition_paths, with_new_fields
from ...hudi.timeline import FileSlice, Snapshot, WriteStat
from ...occ.entries import slices_that_may_match
from ...occ.incoming import ADD, NULL, REFUSE, Incoming, refuse_new_columns, refuse_some_of_the_order, stored_type
from ...occ.session import Partition, known_partition, listed, partition_path_of, refuse_misspelled
from ...occ.staging import GROUP_COLUMN, NEW, PARTITION_COLUMN, Kept, WritePlan, slices_by_partition
from ...occ.table import Table
from ...occ.transaction import Retries, Transaction, WriteOptions, WriteResult, refuse_unknown
from ...occ.turns import take_turn
from ...occ.writing import (
    Asked,
    Clauses,
    Computed,
    NewValues,
    Verb,
    merging,
    moves_rows,
    stage_merge,
    stream_writes,
    take_away,
    without_moved,
)
from ...occ.writing import Merge as MergeInto
from ...progress import Reporter, drawn
from ..reading import Reads, columns, in_spark, value_in_spark
from ..shipping import workers_refusals
from ..tasks import FILE_COLUMN, Answer, ChosenTask, InsertTask, Task, looked_at, repeated_keys
from ..versions import frame_of, spark_schema, to_arrow
from .bulk_order import ordered
from .clauses import ClausesTargetsTask, ClausesTask, NotAgain, in_sql, is_expression
from .fit import fit
from .incoming import Shuffled, Source, estimated_bytes, small_rows
from .jobs import collect, described, explaining
from .merge_plan import Merge, Planned, in_each, plan_here
from .rebase import ConditionAgain, RowsAgain, stats_of
from .sizes import JobSizes
from .streams import write_events

_SLOT, _SMALL, _KEY = "_lakelatch_slot", "_lakelatch_small", "_lakelatch_key"


class _RepeatedKeys(Exception):
    """Two inserted rows may have the same key: retry with rows shuffled by key, which shows it."""


class Writes:
    """The writes of one table in one session, each a transaction of its own, or one of those of ``txn``."""

    def __init__(
        self,
        spark: Any,
        table: Table,
        sizes: JobSizes,
        reads: Reads,
        txn: Transaction | None = None,
        options: WriteOptions | None = None,
    ) -> None:
        self._spark, self._table, self._sizes, self._reads, self._txn = spark, table, sizes, reads, txn
        self._told = (options or {}).get("progress")
        Reporter(self._told)  # refuses a bad ``progress`` before anything begins
        bounds = {name: value for name, value in (options or {}).items() if name != "progress"}
        self._retries = cast("Retries", bounds)

    def within(self, options: WriteOptions) -> Self:
        """Return the same writes, retried within these bounds. `InputError` for unknown ones, and in a transaction."""
        refuse_unknown(options, WriteOptions)
        if self._txn is not None:
            raise InputError(
                f"{min(options)!r} is for a write of its own, and this one is part of a transaction; give it to `run`; "
                "nothing was written"
            )
        return type(self)(self._spark, self._table, self._sizes, self._reads, options=options)

    def plainly(self, verb: str, rows: Any, options: WriteOptions, **how: Any) -> WriteResult:
        """Write rows that are no DataFrame as plain Python does: by the driver, without a job."""
        if self._txn is None:
            return cast("WriteResult", getattr(self._table, verb)(rows, **how, **options))
        if options:
            self.within(options)
        return self._staged(lambda txn: getattr(txn, verb)(rows, **how))

    def events_plainly(self, name: str, verb: Verb, rows: Any, options: WriteOptions, **more: Any) -> WriteResult:
        """Write events that are no DataFrame as `plainly` does."""
        if self._txn is None:
            return cast("WriteResult", getattr(self._table.stream(name), verb)(rows, **more, **options))
        if options:
            self.within(options)
        return self._staged(lambda txn: getattr(txn.stream(name), verb)(rows, **more))

    def merge_plainly(
        self, rows: Any, new_columns: NewColumns, zone: str | None, options: WriteOptions
    ) -> MergeInto[WriteResult]:
        """Return a merge of rows that are no DataFrame."""
        if self._txn is None:
            return self._table.merge(rows, new_columns=new_columns, zone=zone, **options)
        if options:
            self.within(options)
        return merging(self._txn.session, rows, new_columns, zone, lambda write: self._staged(write.stage))

    def _staged(self, stage: Callable[[Transaction], object]) -> WriteResult:
        """Stage one write of plain Python in the transaction."""
        txn = self._txn
        assert txn is not None
        before = set(txn.files)
        stage(txn)
        return WriteResult(txn.operation, None, None, 1, (), tuple(each for each in txn.files if each not in before))

    def filled(self, rows: Any, missing: str, new_columns: str) -> Any:
        """Return the rows as they can be written, with null in missing columns where ``missing`` says so.

        Raises:
            InputError: they have columns that the table lacks, and ``new_columns`` does not say that these are added to it.
        """
        from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

        one_of(missing, "missing", (REFUSE, NULL), then="; nothing was written")
        one_of(new_columns, "new_columns", (REFUSE, ADD), then="; nothing was written")
        rows, schema = self._received(rows, fill=missing == NULL, grow=new_columns == ADD), self._known
        if new_columns == REFUSE:
            refuse_new_columns(rows.columns, schema, self._table.url)
        if missing == REFUSE or schema is None:
            return rows
        config, there = self._table.config, {name.lower() for name in rows.columns}
        needed = {*config.record_key_fields, *config.placed_by, *config.ordered_by}
        lacking = [each for each in spark_schema(schema) if each.name.lower() not in there and each.name not in needed]
        return rows.select("*", *(F.lit(None).cast(each.dataType).alias(each.name) for each in lacking))

    @property
    def _known(self) -> pa.Schema | None:
        """The columns of the table; None when they are not known yet."""
        return self._table.session.schema() if self._txn is None else self._txn.written_schema

    def _received(self, rows: Any, *, fill: bool = False, grow: bool = False) -> Any:
        """Check the names of the rows' columns, and return the rows in the types of the table.

        ``grow``: with the fields that only their structs have.
        """
        rows, known = columns.at_the_door(rows, self._table.url), self._known
        if self._table.config.row_ids and ROW_ID not in rows.columns:
            raise InputError(
                f"{self._table.url} was made without a key, and a DataFrame brings no {ROW_ID}: Spark may run a task again, and "
                "each run would give its rows other ids. Add a column of that name whose values stay the same, or insert the "
                "rows from Arrow, pandas or a list. Nothing was written"
            )
        if grow and known is not None:
            known = with_new_fields(known, columns.arrow_schema(rows.schema), stored_type)
        return columns.with_time_column(fit(rows, known, fill=fill), self._table.config)

    # Insert ------------------------------------------------------------------------------------------------------

    def insert(self, rows: Any, *, operation: OperationName) -> WriteResult:
        """Write rows into new file groups; with buckets, into those of their buckets."""
        self._refuse_merge("insert")
        schema = self._checked(rows)
        if self._table.settings.bucket_count is not None:
            return self._merge(rows, schema, "upsert", lambda _txn, _stats: None, verb="insert")
        return self._insert(rows, schema, operation, lambda _txn, _stats: None)

    def bulk_insert(self, rows: Any, *, sort: str, sort_by: Sequence[str] | str | None) -> WriteResult:
        """Insert rows after sorting them."""
        schema, config = self._checked(rows), self._table.config
        size = estimated_bytes(rows)
        tasks = max(self._slots(rows), (size or 0) // self._sizes.task_bytes)
        # Sorted here, by Spark: the tasks write their rows in the order in which they come.
        arranged = ordered(rows, schema, config, sort, sort_by, tasks)
        if arranged is not rows and (self._txn is not None or self._table.settings.bucket_count is not None):
            why = (
                "has a bucket index"
                if self._txn is None
                else "is written in a transaction, which looks for repeated keys"
            )
            raise InputError(
                f"sort={sort!r}: {self._table.url} {why}, and so the rows go where their keys say; nothing was written. Leave "
                "it out, and use cluster(sort_by=...) later"
            )
        return self.insert(arranged, operation="bulk_insert")

    def overwrite(self, rows: Any, *, partitions: Iterable[Partition] | None) -> WriteResult:
        """Replace the rows of these rows' partitions."""
        named = None if partitions is None else self._paths(listed(partitions), self._checked(rows))
        self._refuse_overwrite("overwrite", "insert_overwrite")

        def drop(txn: Transaction, stats: Sequence[WriteStat]) -> None:
            written = {s.partition for s in stats}
            if named is not None and (others := sorted(written - named)):
                raise InputError(
                    f"rows of partition {others[0]!r} are not among the partitions to overwrite "
                    f"({', '.join(sorted(named))}); filter the rows, or name that partition too",
                    partitions=others,
                )
            # After the tasks: only their files tell which partitions the rows are of.
            for partition in sorted(written | (named or set())):
                txn.overwrites(partition)
                txn.drop_file_groups(txn.current.file_slices(partition))

        return self._overwrite(rows, "insert_overwrite", drop)

    def _paths(self, named: Iterable[Partition], schema: pa.Schema) -> set[str]:
        url, config = self._table.url, self._table.config
        found = {partition_path_of(url, config, schema, each) for each in named}
        for each in found:
            refuse_misspelled(url, config, each)
        return found

    def overwrite_table(self, rows: Any) -> WriteResult:
        """Replace all rows of the table."""
        self._refuse_overwrite("overwrite_table", "insert_overwrite_table", "insert_overwrite")

        def drop(txn: Transaction, _stats: Sequence[WriteStat]) -> None:
            txn.overwrites(None)
            txn.drop_file_groups(txn.current.file_slices())

        return self._overwrite(rows, "insert_overwrite_table", drop)

    def _overwrite(
        self, rows: Any, operation: OperationName, drop: Callable[[Transaction, Sequence[WriteStat]], None]
    ) -> WriteResult:
        def finish(txn: Transaction, stats: Sequence[WriteStat]) -> None:
            drop(txn, stats)
            txn.reads_complete()

        schema = self._checked(rows)
        if self._table.settings.bucket_count is None:
            return self._insert(rows, schema, operation, finish)
        return self._merge(rows, schema, operation, finish, keep_old=False)

    def _insert(
        self,
        rows: Any,
        schema: pa.Schema,
        operation: OperationName,
        finish: Callable[[Transaction, Sequence[WriteStat]], None],
    ) -> WriteResult:
        # After repeated keys, only a transaction of its own can be retried here.
        exact = self._txn is not None
        with Source(rows, self._few(rows)).until_done() as source:
            small = source.small

            def work(txn: Transaction) -> list[WriteStat]:
                txn.workspace.next_write()
                spec = txn.file_spec(schema)
                if small is not None:
                    answers = [_raised(InsertTask(spec, exact=True).run(small.to_batches(), 0))]
                    txn.workspace.report.add(sum(each.num_writes for each in answers[0].stats))
                elif exact:
                    fields = spec.config.record_key_fields
                    # Equal keys meet in one task, which can then refuse or merge them.
                    spread = [
                        *columns.partition_columns(schema, spec.config.partition_fields),
                        columns.key_column(fields),
                    ]
                    shuffled = source.use().repartition(self.tasks(source.rows), *spread)
                    answers = self.collect(txn, shuffled, InsertTask(spec, exact=True), operation)
                else:
                    task = InsertTask(spec, check=operation != "bulk_insert")
                    answers = self.collect(txn, source.use(), task, operation)
                    # Several tasks may have had rows of one key, and then files of the attempt hold it twice: its
                    # work is thrown away.
                    if repeated_keys(answers):
                        raise _RepeatedKeys
                stats = stats_of(answers)
                finish(txn, stats)
                txn.add(stats)
                txn.workspace.written_unasked()
                return stats

            try:
                return self._run(work, operation)
            except _RepeatedKeys:
                exact = True
                return self._run(work, operation)

    # Upsert ------------------------------------------------------------------------------------------------------

    def upsert(self, rows: Any) -> WriteResult:
        """Merge rows into the file groups that hold their keys; new keys are inserted."""
        self._refuse_merge("upsert")
        return self._merge(rows, self._checked(rows), "upsert", lambda _txn, _stats: None)

    def _merge(
        self,
        rows: Any,
        schema: pa.Schema,
        operation: OperationName,
        finish: Callable[[Transaction, Sequence[WriteStat]], None],
        *,
        keep_old: bool = True,
        verb: str = "upsert",
    ) -> WriteResult:
        with Source(rows, self._few(rows)).until_done() as source:
            small = source.small
            moving = verb == "upsert" and keep_old and moves_rows(self._table.session)

            def planned(txn: Transaction) -> Planned:
                spec = txn.file_spec(schema)
                old = txn.current if keep_old else Snapshot()
                here = None if small is None else plan_here(WritePlan(spec), small, old, self._sizes)
                if here is not None:
                    return Planned(here, small)
                return Planned(WritePlan(spec, slices_by_partition(old.file_slices())))

            def work(txn: Transaction) -> list[WriteStat]:
                nonlocal small
                kept: Kept = {}
                small = source.small
                txn.workspace.changes.verbs.add(verb)
                if keep_old:
                    merge.take_turn(txn)
                txn.workspace.next_write()
                if moving:
                    left = self._without_moved(txn, source, schema)
                    small = left.small
                    txn.workspace.next_write()
                    with left.until_done() if left is not source else nullcontext():
                        answers = self._merge_of(planned, left, schema, operation).answers(txn, kept)
                else:
                    answers = merge.answers(txn, kept)
                stats = stats_of(answers)
                finish(txn, stats)
                txn.add(stats)
                if keep_old:
                    self._rebases(txn, answers, operation, kept)
                return stats

            merge = self._merge_of(planned, source, schema, operation)
            return self._run(work, operation)

    def _without_moved(self, txn: Transaction, source: Source, schema: pa.Schema) -> Source:
        """Delete stored rows that have the keys of these rows in other partitions; return the rows to be written here.

        What is deleted is rewritten on the driver, and the keys that move are in its memory.
        """
        from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

        spec = txn.file_spec(schema)
        if source.small is not None:
            left = without_moved(txn.workspace, spec, source.small)
            return source if left.num_rows == source.small.num_rows else Source(source.rows, left)
        config, names = spec.config, columns.partition_columns
        held = self._reads.rows(txn.current.file_slices(), spec.schema)
        there = names(spec.schema, config.partition_fields)
        places = [f"_lakelatch_{number}" for number in range(len(there))]
        path = F.col("_hoodie_partition_path").alias(PARTITION_COLUMN)
        held = held.select(
            F.col("_hoodie_record_key").alias(_KEY),
            path,
            *(each.alias(n) for each, n in zip(there, places, strict=True)),
        )
        rows, key = source.use(), columns.key_column(config.record_key_fields)
        here = zip(names(schema, config.partition_fields), places, strict=True)
        same = [each.eqNullSafe(held[n]) for each, n in here]
        wanted = [*config.record_key_fields, *config.newer_by]
        away = rows.join(held, [key == held[_KEY], ~reduce(and_, same)]).select(*wanted, PARTITION_COLUMN)
        found = to_arrow(away)
        if not found.num_rows:
            return source
        found = found.cast(pa.schema([*(schema.field(n) for n in wanted), pa.field(PARTITION_COLUMN, pa.string())]))
        newer = take_away(txn.workspace, spec, found)
        if not len(newer):
            return source
        stay = F.broadcast(frame_of(self._spark, pa.table({_KEY: newer})))
        return Source(rows.join(stay, key == stay[_KEY], "left_anti"), None)

    def _merge_of(
        self,
        planned: Callable[[Transaction], Planned | None],
        source: Source,
        schema: pa.Schema,
        operation: OperationName,
        *,
        by_clauses: bool = False,
    ) -> Merge:
        def run(txn: Transaction, made: Planned, task: Task) -> list[Answer]:
            return self.collect(txn, self._shuffled(made.plan, source, schema, made.everywhere), task, operation)

        if by_clauses:
            url = self._table.url
            return Merge(planned, run, partial(ClausesTask, url=url), partial(ClausesTargetsTask, url=url))
        return Merge(planned, run)

    def _shuffled(
        self, plan: WritePlan, source: Source, schema: pa.Schema, everywhere: Sequence[str] | None = None
    ) -> Shuffled:
        """Shuffle the rows, or keys of all the partitions ``everywhere``, so that those of a unit of work are in one task."""
        if everywhere is not None:
            schema = schema.append(pa.field(PARTITION_COLUMN, pa.string()))
        config = plan.spec.config
        named = PARTITION_COLUMN in schema.names
        places = [PARTITION_COLUMN] if named else columns.partition_columns(schema, config.partition_fields)
        slices = [s for group in plan.slices.values() for s in group]
        size = sum(s.total_size for s in slices)
        # A join looks for keys in base files, by Spark's own scan.
        logged = not self._reads.only_by_spark(slices)
        slots = self._slots(source.rows)
        if plan.spec.bucket_count is not None:
            way = "bucket"
        elif not plan.slices:
            way = "new"
        elif places and (logged or len(plan.slices) >= 2 * self._cores or size <= self._sizes.lookup_bytes):
            way = "partition"
        else:
            way = "one task" if logged or (slots == 1 and size <= self._sizes.lookup_bytes // 4) else ""

        def shuffle(rows: Any) -> Any:
            tasks = self.tasks(rows)
            if everywhere is not None:
                paths = pa.table({PARTITION_COLUMN: pa.array(everywhere, pa.string())})
                rows = rows.crossJoin(frame_of(self._spark, paths))
            match way:
                case "bucket":
                    bucket = columns.bucket_column(config.record_key_fields, plan.spec.bucket_count or 0)
                    return rows.repartition(tasks, *places, bucket)
                case "new":
                    slot = columns.slot_column(config.record_key_fields, slots)
                    return rows.withColumn(GROUP_COLUMN, slot).repartition(tasks, *places, GROUP_COLUMN)
                case "partition":
                    return rows.repartition(tasks, *places)
                case "one task":
                    return rows.repartition(1)
                case _:
                    return self._joined(plan, rows, schema, tasks)

        # A join depends on the files of the snapshot, so another attempt cannot use its shuffle.
        return source.shuffled((way, *(everywhere or ())) if way else None, shuffle)

    def _joined(self, plan: WritePlan, rows: Any, schema: pa.Schema, tasks: int) -> Any:
        """Look keys up by a join with the key column of the base files (a simple index), for large tables of few partitions."""
        from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

        config = plan.spec.config
        slices = [s for group in plan.slices.values() for s in group]
        if PARTITION_COLUMN in schema.names:
            ours, theirs = [F.col(PARTITION_COLUMN)], [F.col("_hoodie_partition_path")]
        else:
            ours = columns.partition_columns(schema, config.partition_fields)
            theirs = columns.partition_columns(plan.spec.schema, config.partition_fields)
        ours, theirs = [*ours, columns.key_column(config.record_key_fields)], [*theirs, F.col("_hoodie_record_key")]
        names = [f"_lakelatch_{number}" for number in range(len(theirs))]
        group = F.split_part(F.col("_metadata.file_name"), F.lit("_"), F.lit(1)).alias(GROUP_COLUMN)

        def of(some: Sequence[FileSlice]) -> Any:
            held = self._reads.rows(some, plan.spec.schema)
            return held.select(*(column.alias(name) for column, name in zip(theirs, names, strict=True)), group)

        held = of(slices)
        # Null partition values are equal here, as they are in a path.
        same = [column.eqNullSafe(held[name]) for column, name in zip(ours, names, strict=True)]
        size = estimated_bytes(rows)
        slots = max(self._slots(rows), (size or 0) // self._sizes.task_bytes)
        slot = columns.slot_column(config.record_key_fields, slots)
        placed = (
            rows.join(held, same, "left").withColumn(GROUP_COLUMN, F.coalesce(F.col(GROUP_COLUMN), slot)).drop(*names)
        )
        # Else new keys would begin a file in each slot, however small the files are that the partition has.
        if small := _small(plan, slots):
            # The rows of a slot join a small file of the partition, in the task that merges the other rows of that file.
            named = F.create_map(*(F.lit(text) for pair in small.items() for text in pair))[F.col(GROUP_COLUMN)]
            near = of([each for each in slices if each.file_id in small]).drop(names[-1]).distinct()
            near = near.withColumn(_SLOT, named).withColumnRenamed(GROUP_COLUMN, _SMALL)
            mine = zip([*ours[:-1], F.col(GROUP_COLUMN)], [*names[:-1], _SLOT], strict=True)
            placed = placed.join(F.broadcast(near), [column.eqNullSafe(near[name]) for column, name in mine], "left")
            placed = placed.withColumn(GROUP_COLUMN, F.coalesce(F.col(_SMALL), F.col(GROUP_COLUMN)))
            placed = placed.drop(*names[:-1], _SLOT, _SMALL)
        return placed.repartition(tasks, *ours[:-1], GROUP_COLUMN)

    # Delete ------------------------------------------------------------------------------------------------------

    def delete(self, keys: Any) -> WriteResult:
        """Delete the rows with these keys; in all partitions when the keys come without partition columns."""
        self._refuse_merge("delete")
        columns.refuse_no_frame(keys, self._table.url)
        config = self._table.config
        used = {
            *config.record_key_fields,
            *config.partition_fields,
            *config.placed_by,
            *config.newer_by,
        }  # the others are not read
        keys = fit(keys, pa.schema([each for each in self._known or () if each.name in used]))
        keys = columns.with_time_column(keys, config)
        given = columns.arrow_schema(keys.schema)
        columns.refuse_missing(given, config, delete=True)
        located = all(n in given.names for n in config.partition_fields)
        names = [*config.record_key_fields, *(n for n in config.partition_fields if located)]
        # It spares rows that are newer.
        ordering = [name for name in config.newer_by if name in given.names]
        refuse_some_of_the_order(ordering, config)
        names += ordering
        chosen = keys.select(*dict.fromkeys(names))
        schema = pa.schema([given.field(n) for n in chosen.columns])
        with Source(chosen, self._few(chosen)).until_done() as source:

            def planned(txn: Transaction) -> Planned | None:
                now, schema = txn.current, txn.written_schema
                if schema is None:
                    return None
                plan = WritePlan(txn.file_spec(schema), delete=True)
                everywhere = None if located else now.partitions()
                if source.small is not None:
                    spread = source.small if everywhere is None else in_each(source.small, everywhere)
                    if (here := plan_here(plan, spread, now, self._sizes)) is not None:
                        return Planned(here, spread)
                return Planned(replace(plan, slices=slices_by_partition(now.file_slices())), None, everywhere)

            def work(txn: Transaction) -> list[WriteStat]:
                kept: Kept = {}
                merge.take_turn(txn)
                txn.workspace.next_write()
                answers = merge.answers(txn, kept)
                stats = stats_of(answers)
                txn.add(stats)
                self._rebases(txn, answers, "delete", kept)
                return stats

            merge = self._merge_of(planned, source, schema, "delete")
            return self._run(work, "delete")

    def delete_where(self, condition: Given, *, partition: Partition | None) -> WriteResult:
        """Delete the rows for which the condition is true, also those that other writers add meanwhile."""
        self._refuse_merge("delete_where")
        columns.refuse_no_condition(condition, self._table.url, "deleted", "or say `delete_all`")
        return self._by_condition(condition, partition, "delete")

    def delete_all(self, *, partition: Partition | None) -> WriteResult:
        """Delete all rows, also those that other writers add meanwhile."""
        from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

        if self._table.session.streams:

            def drop(txn: Transaction) -> list[WriteStat]:
                before = set(txn.files)
                stream_writes.delete_all(txn.session, partition).stage(txn)
                return [each for each in txn.files if each not in before]

            return self._run(drop, "delete_partition")
        self._refuse_merge("delete_all")
        return self._by_condition(F.lit(True), partition, "delete")

    def update_where(self, condition: Given, given: Mapping[str, Any], *, partition: Partition | None) -> WriteResult:
        """Set new values in the rows for which the condition is true, also in those that other writers add meanwhile."""
        self._refuse_merge("update_where")
        columns.refuse_no_condition(condition, self._table.url, "changed", "or 'true' for all")
        return self._by_condition(condition, partition, "upsert", given)

    def _by_condition(
        self, given: Given, named: Partition | None, operation: OperationName, new: Mapping[str, Any] | None = None
    ) -> WriteResult:
        def path_of(txn: Transaction) -> str | None:
            schema = txn.written_schema
            return None if named is None else partition_path_of(self._table.url, self._table.config, schema, named)

        def matching(txn: Transaction, schema: pa.Schema, condition: Any, path: str | None) -> list[FileSlice]:
            return self._reads.matching(schema, txn.current.file_slices(path), condition)

        def aimed_at(txn: Transaction, near: Region) -> set[FileGroupId]:
            if (schema := txn.written_schema) is None:
                return set()
            condition = in_spark(schema, given)
            slices = [s for s in matching(txn, schema, condition, path_of(txn)) if near.covers(s.partition)]
            where = where_of(self._reads.comparisons(schema, condition))
            found = slices_that_may_match(self._table.store, slices, where)
            return {txn.workspace.changes.place_of(each.group) for each in found}

        def work(txn: Transaction) -> list[WriteStat]:
            take_turn(txn, partial(aimed_at, txn))
            txn.workspace.next_write()
            schema, config, path = txn.written_schema, self._table.config, path_of(txn)
            if path is not None:
                path = known_partition(self._table.store, config, txn.current, path)
            if schema is None:
                return []
            condition = in_spark(schema, given)
            values, computed = (None, []) if new is None else self._new_values(new, schema, txn.workspace.required)
            where = self._reads.comparisons(schema, condition)
            txn.depends_on(path, where=where, met=())  # a slice that has such a row is rewritten
            txn.reads_complete()
            slices = matching(txn, schema, condition, path)
            run = partial(self.collect, txn, operation=operation)
            again = txn.workspace.hook_of(ConditionAgain, run)
            if not again.add(condition, lambda each, slices: self._named(each, schema, slices, computed), values):
                txn.workspace.rebase = None
            # The declarations above count all the same: a row that appears there later is a conflict, or met by the
            # rebase.
            if not slices:
                return []
            plan = WritePlan(txn.file_spec(schema), slices_by_partition(slices))
            stats = stats_of(run(self._named(condition, schema, slices, computed), ChosenTask(plan, values)))
            txn.add(stats)
            return stats

        return self._run(work, operation)

    def _new_values(
        self, given: Mapping[str, Any], schema: pa.Schema, required: Sequence[str]
    ) -> tuple[NewValues, list[Any]]:
        """Return the values to set, and the columns by which Spark computes some of them."""
        computed: list[Any] = []
        made = dict(given) if isinstance(given, Mapping) else given
        for name, value in given.items() if isinstance(given, Mapping) else ():
            if is_expression(value):
                alias = f"_lakelatch_set_{len(computed)}"
                made[name] = Computed(alias)
                computed.append(value_in_spark(schema, value).alias(alias))
        return NewValues(made, schema, schema, self._table.url, self._table.config, required), computed

    def _named(self, condition: Any, schema: pa.Schema, slices: list[FileSlice], more: Sequence[Any] = ()) -> Any:
        """Return the rows of some slices for which the condition is true, by file and position; a file's rows meet in a task.

        ``more``: columns that are computed of them.
        """
        named = self._reads.places(slices, schema, condition, more)
        return named.repartition(min(self.tasks(None), len(slices)), FILE_COLUMN)

    # Merge by clauses --------------------------------------------------------------------------------------------

    def merge(self, rows: Any, new_columns: str) -> MergeInto[WriteResult]:
        """Return a merge to add clauses to; its `run` runs it."""
        self._table.session.require_open()
        self._refuse_merge("merge")
        rows = self._received(rows)
        given = columns.arrow_schema(rows.schema)
        incoming = partial(Incoming, url=self._table.url, config=self._table.config, new_columns=new_columns)
        # Refuses unfit columns here, before the user writes the clauses.
        incoming(given.empty_table())
        return MergeInto(self._table.url, partial(self._merge_by_clauses, rows, given, incoming))

    def _merge_by_clauses(
        self, rows: Any, given: pa.Schema, incoming: Callable[[pa.Table], Incoming], matched: Asked, new: Asked
    ) -> WriteResult:
        self._refuse_merge("merge")
        url, config = self._table.url, self._table.config
        none = incoming(given.empty_table())

        def asked(txn: Transaction) -> tuple[pa.Schema | None, pa.Schema, Asked, Asked]:
            known = txn.written_schema
            source = none.source(known).schema
            s, t = (pa.field(name, pa.struct(list(each))) for name, each in (("s", source), ("t", known or source)))
            sides = pa.schema([s, t]), pa.schema([s])
            return known, source, *(in_sql(self._spark, *each) for each in zip((matched, new), sides, strict=True))

        with Source(rows, self._few(rows)).until_done() as source:

            def planned(txn: Transaction) -> Planned:
                known, columns_of, when, new_ones = asked(txn)
                clauses = Clauses.of(
                    when, new_ones, known, columns_of, url, config, txn.workspace.required, adds=none.adds
                )
                spec = txn.file_spec(clauses.schema)
                return Planned(WritePlan(spec, slices_by_partition(txn.current.file_slices()), combine=clauses))

            def work(txn: Transaction) -> list[WriteStat]:
                # A Spark job costs more than the whole merge of a few rows.
                if source.small is not None and self._fits(txn, source.small):
                    before = set(txn.files)
                    _, _, *clauses = asked(txn)
                    stage_merge(txn, incoming(source.small), *clauses)
                    return [each for each in txn.files if each not in before]
                merge.take_turn(txn)
                txn.workspace.next_write()
                answers = merge.answers(txn, {})
                stats = stats_of(answers)
                txn.add(stats)
                for place in looked_at(answers):
                    txn.mark_lookup(*place)
                txn.workspace.hook_of(NotAgain)
                txn.workspace.rebase = None
                return stats

            merge = self._merge_of(planned, source, given, "upsert", by_clauses=True)
            return self._run(work, "upsert")

    def _fits(self, txn: Transaction, rows: pa.Table) -> bool:
        """Return whether the driver merges these rows by itself."""
        if rows.num_rows > self._sizes.small_rows:
            return False
        partitions = partition_paths(rows, self._table.config).unique().to_pylist() if rows.num_rows else []
        sizes = (each.total_size for path in partitions for each in txn.current.file_slices(path))
        return sum(sizes) <= self._sizes.driver_bytes

    # Streams -----------------------------------------------------------------------------------------------------

    def events(self, name: str, rows: Any, verb: Verb, partitions: Iterable[Partition] | None = None) -> WriteResult:
        """Write events of a stream, which wait for no lock and conflict with no other write; or overwrite some."""
        rows = self._received(rows)
        schema, named = columns.arrow_schema(rows.schema), None if partitions is None else listed(partitions)
        with Source(rows, self._few(rows)).until_done() as source:
            return self._run(
                lambda txn: write_events(self, txn, name, source, schema, verb, named),
                stream_writes.OPERATIONS[verb],
            )

    # Common ------------------------------------------------------------------------------------------------------

    def _few(self, rows: Any) -> pa.Table | None:
        """Return the rows if they are so few that the driver may write them by itself, else None."""
        what = f"write into {self._table.url}: looks whether its rows are few"
        with described(self._spark, what), workers_refusals():
            return small_rows(rows, self._sizes.small_rows)

    def _checked(self, rows: Any) -> pa.Schema:
        schema = columns.arrow_schema(rows.schema)
        columns.refuse_missing(schema, self._table.config)
        return schema

    def collect(self, txn: Transaction, rows: Any, task: Any, operation: str) -> list[Answer]:
        """Return the answers of the tasks of a job of the transaction."""
        text = f"{operation} into {self._table.url}: {task.does} ({txn.instant})"
        store, told = self._table.store, self._told if callable(self._told) else None
        return collect(self._spark, store, txn, rows, task, text=text, sizes=self._sizes, told=told, what=txn.operation)

    def _rebases(self, txn: Transaction, answers: Sequence[Answer], operation: OperationName, kept: Kept) -> None:
        """Declare where keys were looked up, and how a rebase repeats the work there."""
        for place in looked_at(answers):
            txn.mark_lookup(*place)
        run = partial(self.collect, txn, operation=operation)
        again = txn.workspace.hook_of(RowsAgain, self._spark, run, self.tasks(None), self._sizes.driver_bytes)
        again.kept.update(kept)
        again.idle |= any(answer.idle for answer in answers)
        again.kinds.add(operation)
        mixed = "delete" in again.kinds and len(again.kinds) > 1
        if (again.idle or mixed) and txn.workspace.rebase is not None:
            # A row that changed nothing is in no file, so a rebase does not check it; nor a key to delete beside upserts.
            txn.merge_on_conflict(again, looks_again=False)

    def _refuse_merge(self, what: str) -> None:
        if self._txn is not None:
            self._txn.workspace.refuse_merge(what)

    def _refuse_overwrite(self, what: str, *operations: str) -> None:
        """Raise `InputError` in a transaction of another operation."""
        if self._txn is not None:
            self._txn.workspace.refuse_unless_overwrite(what, *operations)

    def _run(self, work: Callable[[Transaction], list[WriteStat]], operation: OperationName) -> WriteResult:
        def attempt(txn: Transaction) -> Transaction:
            txn.workspace.report = Reporter(self._told, operation)
            with explaining(txn):
                work(txn)
            return txn

        if self._txn is not None:
            with explaining(self._txn), self._txn.workspace.staging():
                return WriteResult(operation, None, None, 1, (), tuple(work(self._txn)))
        given = self._told
        try:
            with drawn(given) as self._told:
                return WriteResult.of(self._table.run(attempt, operation=operation, **self._retries))
        except BatchLandedError as e:
            return WriteResult.again(operation, e)
        finally:
            self._told = given

    @property
    def _cores(self) -> int:
        return int(self._spark.sparkContext.defaultParallelism)

    def _slots(self, rows: Any) -> int:
        """Return how many tasks share the new keys of a partition, and so its files: all cores, fewer for few rows."""
        size = estimated_bytes(rows)
        return self._cores if size is None else max(1, min(self._cores, size // self._sizes.slot_bytes))

    def tasks(self, rows: Any | None) -> int:
        """Return some tasks for each core, so that uneven ones even out; more when their rows would not fit in memory."""
        size = estimated_bytes(rows) if rows is not None else None
        return max(self._sizes.tasks_per_core * self._cores, (size or 0) // self._sizes.task_bytes)


def _small(plan: WritePlan, slots: int) -> dict[str, str]:
    """Return the file ids of small slices, with the slot of their partition whose new keys join each."""
    spec = plan.spec
    if plan.delete or spec.config.merge_on_read:
        return {}
    found: dict[str, str] = {}
    for slices in plan.slices.values():
        small = sorted((each for each in slices if each.size < spec.small_file_bytes), key=lambda each: each.size)
        found |= {each.file_id: f"{NEW}{number}" for number, each in enumerate(small[:slots])}
    return found


def _raised(answer: Answer) -> Answer:
    if answer.error is not None:
        raise answer.error
    return answer
