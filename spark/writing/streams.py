"""Events of streams from Spark: shuffled to their buckets and written to log files there. No other file is read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, Self, Unpack

import pyarrow as pa

from ...arguments import suggesting
from ...hudi.files import bucket_of
from ...hudi.timeline import WriteStat
from ...occ.incoming import Incoming
from ...occ.session import Partition
from ...occ.staging import (
    StreamPlan,
    TaskFiles,
    append_events,
    refuse_if_over,
    replace_events,
    slices_by_partition,
)
from ...occ.transaction import Transaction, WriteOptions, WriteResult
from ...occ.writing import Verb, partitions_of, replace_with, stream_writes
from ..reading import columns
from ..tasks import Answer, Task, table_of
from .incoming import Source
from .rebase import stats_of
from .sink import each_once

PLACE = "_lakelatch_place"  # the column with a row's position in its DataFrame


class Jobs(Protocol):
    """The part of a table's writes that streams need."""

    def within(self, options: WriteOptions) -> Self: ...
    def events(self, name: str, rows: Any, verb: Verb, partitions: Iterable[Partition] | None) -> WriteResult: ...
    def events_plainly(self, name: str, verb: Verb, rows: Any, options: WriteOptions, **more: Any) -> WriteResult: ...
    def tasks(self, rows: Any | None) -> int: ...
    def collect(self, txn: Transaction, rows: Any, task: Task, operation: str) -> list[Answer]: ...


@suggesting
class SparkStream:
    """A stream of a table, written from DataFrames, as `TableStream` writes other rows.

    The events of a DataFrame count in its order: its partitions one after the other, and the rows of each in order. All
    methods take the bounds of `Table.run` and ``progress``, as `SparkTable.upsert` does, except in a transaction; and other rows
    than DataFrames, as that does.
    """

    def __init__(self, writes: Jobs, name: str) -> None:
        self._writes, self.name = writes, name

    def upsert(self, rows: Any, *, zone: str | None = None, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Set the stream's columns of these rows. See `TableStream.upsert`."""
        return self._write("upsert", rows, zone, retries)

    def delete(self, keys: Any, *, zone: str | None = None, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Do what the stream's ``on_delete`` says. See `TableStream.delete`."""
        return self._write("delete", keys, zone, retries)

    def retract(self, events: Any, *, zone: str | None = None, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Take back the events with these ids. See `TableStream.retract`."""
        return self._write("retract", events, zone, retries)

    def overwrite(
        self,
        rows: Any,
        *,
        partitions: Iterable[Partition] | None = None,
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Put these events in place of all that the stream has said in their partitions. See `TableStream.overwrite`."""
        return self._write("overwrite", rows, zone, retries, partitions)

    def sink(self, *, source: str | None = None) -> Callable[[Any, int], WriteResult]:
        """Return a function for ``foreachBatch`` that commits each micro-batch once. ``source`` as in `SparkTable.sink`."""
        return each_once(self.upsert, source)

    def _write(
        self,
        verb: Verb,
        rows: Any,
        zone: str | None,
        options: WriteOptions,
        partitions: Iterable[Partition] | None = None,
    ) -> WriteResult:
        if columns.is_plain(rows, zone):
            more = {"partitions": partitions} if verb == "overwrite" else {}
            return self._writes.events_plainly(self.name, verb, rows, options, zone=zone, **more)
        writes = self._writes.within(options) if options else self._writes
        return writes.events(self.name, rows, verb, partitions)


def write_events(
    writes: Jobs,
    txn: Transaction,
    name: str,
    source: Source,
    schema: pa.Schema,
    verb: Verb,
    named: Collection[Partition] | None,
) -> list[WriteStat]:
    """Write the files of one attempt, by the driver itself where the rows are few; ``named``: partitions to overwrite."""
    url, workspace, replaces = txn.url, txn.workspace, verb == "overwrite"
    if source.small is not None:
        return stream_writes.stage(txn, name, Incoming(source.small, url, txn.session.config), verb, named)
    with workspace.replacing_events() if replaces else nullcontext():
        plan = stream_writes.plan_of(txn, name, verb)
        none = Incoming(schema.empty_table(), url, plan.spec.config).source(plan.spec.schema)
        none = stream_writes.checked(plan, none, url)
        if plan.idle:
            return []
        plan = replace(plan, slices=slices_by_partition(txn.current.file_slices()))
        config, buckets = plan.spec.config, plan.spec.bucket_count or 0

        def shuffle(rows: Any) -> Any:
            from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

            places = columns.partition_columns(schema, config.partition_fields)
            bucket = columns.bucket_column(config.record_key_fields, buckets)
            numbered = rows.withColumn(PLACE, F.monotonically_increasing_id())  # a shuffle keeps no order
            return numbered.repartition(writes.tasks(rows), *places, bucket)

        with workspace.staging():
            task = EventsTask(plan, url, replaces)
            stats = stats_of(writes.collect(txn, source.shuffled("bucket", shuffle), task, f"stream {name}"))
            if not replaces:
                workspace.add(stats)
        if replaces:
            written = {(each.partition, bucket_of(each.file_id)) for each in stats}
            wanted = partitions_of(txn.session, {each.partition for each in stats}, named, plan.spec.schema)
            # The tasks have met only the buckets of their rows.
            rest = {
                path: tuple(
                    each for each in plan.slices.get(path, ()) if (path, bucket_of(each.file_id)) not in written
                )
                for path in wanted
            }
            replace_with(txn, wanted, lambda: [*stats, *replace_events(replace(plan, slices=rest), none)])
    return stats


@dataclass
class EventsTask(Task):
    """Write events into log files. All of one bucket meet in one task."""

    does: ClassVar = "writes events"
    plan: StreamPlan
    url: str
    replaces: bool

    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:
        """Write. Memory is the task's rows, and their log files."""
        spec = self.plan.spec
        refuse_if_over(spec.store, spec.instant)
        rows = table_of(list(batches))
        if not rows.num_rows:
            return Answer([])
        rows = as_they_came(rows, spec.config.record_key_fields)
        rows = stream_writes.checked(self.plan, Incoming(rows, self.url, spec.config).source(spec.schema), self.url)
        if self.replaces:
            return Answer(replace_events(self.plan, rows, rest=False))
        with TaskFiles(spec, task) as files:
            append_events(self.plan, rows, files)
            return Answer(files.stats())


def as_they_came(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Return the rows of each key in the order of the DataFrame, and the keys in an order that every run of a task gives them.

    So each run writes the same bytes, even where the source returns its rows in another order the next time.
    """
    return rows.sort_by([(name, "ascending") for name in (*keys, PLACE)]).drop_columns([PLACE])
