"""Events of streams from Spark: shuffled to their buckets, and put into log files where they are. Nothing else is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self, Unpack

import pyarrow as pa

from ...arguments import suggesting
from ...hudi.timeline import WriteStat
from ...occ.incoming import Incoming
from ...occ.staging import Files, StreamPlan, append_events, refuse_if_over, slices_by_partition
from ...occ.transaction import Transaction, WriteOptions, WriteResult
from ...occ.writing import stream_writes
from ..reading import columns
from ..tasks import Answer, Task, table_of
from .incoming import Source
from .rebase import stats_of
from .sink import each_once


class Jobs(Protocol):
    """What is needed of a table's writes."""

    def within(self, options: WriteOptions) -> Self: ...
    def events(self, name: str, rows: Any, *, deletes: bool) -> WriteResult: ...
    def tasks(self, rows: Any | None) -> int: ...
    def collect(self, txn: Transaction, rows: Any, task: Task, operation: str) -> list[Answer]: ...


@suggesting
class SparkStream:
    """Writes the events of one stream of a table from DataFrames, as `TableStream` does from other rows.

    Of several events of one key in one DataFrame the newest counts; which of equally new ones does is not said. Both methods
    take the bounds of `Table.run` and ``progress``, as `SparkTable.upsert` does, but in a transaction.
    """

    def __init__(self, writes: Jobs, name: str) -> None:
        self._writes, self.name = writes, name

    def upsert(self, rows: Any, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Set the stream's columns of these rows. See `TableStream.upsert`."""
        return self._within(retries).events(self.name, rows, deletes=False)

    def delete(self, keys: Any, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Do what the stream's ``on_delete`` says. See `TableStream.delete`."""
        return self._within(retries).events(self.name, keys, deletes=True)

    def sink(self, *, source: str | None = None) -> Callable[[Any, int], WriteResult]:
        """For ``foreachBatch``: the events of each micro-batch land once. ``source`` as of `SparkTable.sink`."""
        return each_once(self.upsert, source)

    def _within(self, options: WriteOptions) -> Jobs:
        return self._writes.within(options) if options else self._writes


def write_events(
    writes: Jobs, txn: Transaction, name: str, source: Source, schema: pa.Schema, *, deletes: bool
) -> list[WriteStat]:
    """The log files of one attempt; by the driver itself where the rows are few."""
    url = txn.url
    if source.small is not None:
        return stream_writes.stage(txn, name, Incoming(source.small, url, txn.session.config), deletes=deletes)
    plan = stream_writes.plan_of(txn, name, deletes=deletes)
    stream_writes.checked(plan, Incoming(schema.empty_table(), url, plan.spec.config).source(plan.spec.schema), url)
    if plan.idle:
        return []
    plan = StreamPlan(plan.spec, plan.stream, plan.kind, slices_by_partition(txn.current.file_slices()))
    config, buckets = plan.spec.config, plan.spec.bucket_count or 0

    def shuffle(rows: Any) -> Any:
        places = columns.partition_columns(schema, config.partition_fields)
        bucket = columns.bucket_column(config.record_key_fields, buckets)
        return rows.repartition(writes.tasks(rows), *places, bucket)

    with txn.workspace.staging():
        stats = stats_of(
            writes.collect(txn, source.shuffled("bucket", shuffle), EventsTask(plan, url), f"stream {name}")
        )
        txn.workspace.add(stats)
    return stats


@dataclass
class EventsTask(Task):
    """Events into log files. All of one bucket meet in one task."""

    does: ClassVar = "appends events"
    plan: StreamPlan
    url: str

    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:
        """Memory is the task's rows, and their log files."""
        spec = self.plan.spec
        refuse_if_over(spec.store, spec.instant)
        rows = table_of(list(batches))
        if not rows.num_rows:
            return Answer([])
        rows = stream_writes.checked(self.plan, Incoming(rows, self.url, spec.config).source(spec.schema), self.url)
        with Files(spec, task) as files:
            append_events(self.plan, in_one_order(rows), files)
            return Answer(files.stats())


def in_one_order(rows: pa.Table) -> pa.Table:
    """The rows in an order that every run of a task gives them, so that each writes the same bytes."""
    by = [name for name, kind in zip(rows.schema.names, rows.schema.types, strict=True) if not pa.types.is_nested(kind)]
    return rows.sort_by([(name, "ascending") for name in by])
