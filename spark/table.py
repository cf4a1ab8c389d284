"""`SparkTable`, the table that PySpark users work with."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Self, TypeVar, Unpack

from ..arguments import OperationName, Sink, suggesting, work_of
from ..errors import BatchLandedError, ConfigError, InputError
from ..hudi.timeline import Time
from ..occ.scan import Explanation
from ..occ.services import Executed, ServiceRound
from ..occ.session import Partition
from ..occ.table import Table
from ..occ.table import create as create_table
from ..occ.table import open as open_table
from ..occ.transaction import Retries, RunResult, SeveralTransaction, Transaction, WriteResult
from ..progress import ProgressOption, draws
from .reading import Reads, arrow_schema, one_of
from .session import of_connect, settle
from .transaction import SparkTransaction
from .versions import IS_4, frame_of
from .writing import SIZES, JobSizes, ServiceJobs, SparkStream, Writes, Writing, each_once, explaining

T = TypeVar("T")
SINKS = ("upsert", "insert", "bulk_insert", "delete", "overwrite", "overwrite_table")


@suggesting
class SparkTable(Writing):
    """A table in a Spark session; safe to use from several threads of one session.

    Each write is one transaction. File groups that it lost to another writer are merged again; where
    that is not enough, the write is retried on a fresh snapshot. Its Spark jobs are cancelled when
    it ends. Writes raise `InputError` for rows that the table cannot hold, and `ConflictError` after
    the last retry; then nothing landed.

    Args:
        spark: a session; `open` refuses an unsuitable one.
        table: its table.
        owned: `close` closes that table too.
        sizes: the work that the driver does by itself, and each task's share.
    """

    def __init__(self, spark: Any, table: Table, sizes: JobSizes = SIZES, *, owned: bool = False) -> None:
        self.spark, self.table, self._sizes, self._owned = spark, table, sizes, owned
        self._reads = Reads(spark, table)
        super().__init__(Writes(spark, table, sizes, self._reads))

    def close(self) -> None:
        """Close the table, as the end of a ``with`` block does. A `Table` that `open` was given stays open. Idempotent."""
        if self._owned:
            self.table.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(
        self, job: Callable[[SparkTransaction], T], *, operation: OperationName = "upsert", **bounds: Unpack[Retries]
    ) -> RunResult[T]:
        """Read and write in one transaction, retried as a whole when what it read has changed.

        Args:
            job: called with the transaction; reads and writes through it. It may run several times.
            operation: of the write; an overwrite has to be begun as ``insert_overwrite``.
            bounds: ``isolation``, ``attempts`` and the others of `Table.run`.

        Raises:
            ConflictError: of the last attempt.
        """
        work_of(job, "job")

        def attempt(txn: Transaction) -> T:
            with explaining(txn):
                return job(SparkTransaction(self.spark, self.table, txn, self._sizes, self._reads))

        return self.table.run(attempt, operation=operation, **bounds)

    def within(self, txn: SeveralTransaction) -> SparkTransaction:
        """Return this table's part of a transaction over several tables (`lakelatch.transaction`), for Spark's writes.

        Raises:
            InputError: the table is none of the transaction's.
        """
        self.table.session.require_open()
        return SparkTransaction(self.spark, self.table, txn[self.table], self._sizes, self._reads)

    # Streams -----------------------------------------------------------------------------------------------------

    def stream(self, name: str, **declaration: Any) -> SparkStream:
        """Return a stream of the table, to write its events from DataFrames; declared with the arguments of `Table.stream`."""
        self.table.stream(name, **declaration)
        return SparkStream(self._writes, name)

    def sink(
        self,
        write: Sink = "upsert",
        *,
        streams: Mapping[str, Callable[[Any], Any]] | None = None,
        source: str | None = None,
        **options: Any,
    ) -> Callable[[Any, int], WriteResult]:
        """Return a function for ``foreachBatch`` that commits each micro-batch once, even after a crash.

            query = rows.writeStream.foreachBatch(table.sink("upsert"))

        Args:
            write: the method that writes it: ``upsert``, ``insert``, ``bulk_insert``, ``delete``, ``overwrite`` or
                ``overwrite_table``.
            streams: for several streams of the table, written in one commit: by name a function that makes the events of the
                stream from the rows of a micro-batch.
            source: the name under which the table remembers its batches; by default the id of the query, which Spark keeps in
                its checkpoint. Give another when a query continues with a new checkpoint and other batch numbers.
            options: of the method.

        Returns:
            a function of a DataFrame and a batch number. `Table.last_batch` returns the last one that is remembered.

        Raises:
            InputError: no such method or stream.
        """
        self.table.session.require_open()
        if write not in SINKS:
            raise InputError(f"sink({write!r}): a micro-batch is written by {', '.join(SINKS)}; name one of them")
        if streams is None:
            return each_once(partial(getattr(self, write), **options), source)
        if write != "upsert" or not isinstance(streams, Mapping) or not all(map(callable, streams.values())):
            raise InputError(
                "sink(streams=...) upserts events; give a function by the name of each stream, as "
                '{"orders": lambda rows: rows.where("kind = \'order\'").select("id", "amount", "paid_at")}'
            )
        for name in streams:
            self.table.stream(name)
        return each_once(partial(self._events_of, dict(streams), options), source)

    def _events_of(
        self, streams: Mapping[str, Callable[[Any], Any]], options: Mapping[str, Any], rows: Any, *, batch: Any
    ) -> WriteResult:
        """Write the events of several streams in one commit. The rows are kept meanwhile: each stream reads them."""

        def attempt(txn: Transaction) -> Transaction:
            with explaining(txn):
                job = SparkTransaction(self.spark, self.table, txn, self._sizes, self._reads)
                for name, events in streams.items():
                    job.stream(name).upsert(events(rows))
            return txn

        rows.persist()
        try:
            return WriteResult.of(self.table.run(attempt, operation="upsert", batch=batch, **options))
        except BatchLandedError as e:
            return WriteResult.again("upsert", e)
        finally:
            rows.unpersist()

    # Services ----------------------------------------------------------------------------------------------------

    @draws
    def cluster(self, *, progress: ProgressOption | None = None, **options: Any) -> Executed | None:
        """Join small files and lay out rows, by tasks of Spark; None when there is nothing to do.

        The driver alone executes a plan whose files have `JobSizes.driver_bytes` together or less; so do the other services.
        Any executor may finish a plan that another one has begun, with Spark or without it.

        Args:
            progress: called with the number of tasks that have ended, or of file groups where the driver works alone. An
                exception from it, Ctrl-C, or a cancelled job cancels the plan.
            options: of `Table.cluster`.
        """
        return self.table.cluster(runner=self._services(progress), **options)

    @draws
    def compact(self, *, progress: ProgressOption | None = None, **options: Any) -> Executed | None:
        """Merge log files into base files, by tasks of Spark; as `cluster`, with the options of `Table.compact`."""
        return self.table.compact(runner=self._services(progress), **options)

    @draws
    def compact_logs(self, *, progress: ProgressOption | None = None, **options: Any) -> Executed | None:
        """Merge log files into log files, by tasks of Spark; as `cluster`, with the options of `Table.compact_logs`."""
        return self.table.compact_logs(runner=self._services(progress), **options)

    @draws
    def clean(self, *, progress: ProgressOption | None = None, **options: Any) -> Executed | None:
        """Delete superseded files, by tasks of Spark; as `cluster`, with the options of `Table.clean`.

        A plan is final: the next clean finishes an interrupted one.
        """
        return self.table.clean(runner=self._services(progress), **options)

    @draws
    def execute(self, instant: str, *, progress: ProgressOption | None = None) -> Executed:
        """Execute a pending plan of any writer by tasks of Spark. See `Table.execute`."""
        return self.table.execute(instant, runner=self._services(progress))

    @draws
    def run_services(self, *, progress: ProgressOption | None = None, **options: Any) -> ServiceRound:
        """Run the services that are due, once, by tasks of Spark.

        Options are those of `Table.run_services`; ``progress`` as in `cluster`.
        """
        return self.table.run_services(runner=self._services(progress), progress=progress, **options)

    def _services(self, told: ProgressOption | None) -> ServiceJobs:
        return ServiceJobs(self.spark, self._sizes, told)

    # Reading -----------------------------------------------------------------------------------------------------

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: Any | None = None,  # noqa: A002 - the word Spark's users look for
        *,
        where: Any | None = None,
        partitions: Iterable[Partition] | None = None,
        as_of: Time | None = None,
        as_of_completion: Time | None = None,
        read_optimized: bool = False,
        meta: bool = False,
    ) -> Any:
        """Return the rows at the time of this call as a DataFrame over Spark's own Parquet scan.

        Args:
            columns: names; all data columns otherwise.
            filter: SQL text, Column, terms or an expression of pyarrow (docs/conditions.md). Partitions that it rules out
                are not even listed for Spark.
            where: the same as ``filter``, by the name that it has in plain Python.
            partitions: only of these, by value (``{"origin": "JFK"}``; of some columns, where there are several) or by
                path. Null and an empty text have one partition.
            as_of: requested time T, as Hudi's readers travel in time; an instant, a date (its start), a time or a
                datetime, as for `Table.snapshot`.
            as_of_completion: completion time C.
            read_optimized: base files only, as of `Table.read`: all of it by Spark's own scan.
            meta: with Hudi's five meta columns.
        """
        return self._reads.of_table(
            columns=columns,
            condition=one_of(filter, where),
            partitions=partitions,
            as_of=as_of,
            as_of_completion=as_of_completion,
            read_optimized=read_optimized,
            meta=meta,
        )

    def explain(
        self,
        filter: Any | None = None,  # noqa: A002 - as of `read`
        *,
        where: Any | None = None,
        partitions: Iterable[Partition] | None = None,
        as_of: Time | None = None,
        as_of_completion: Time | None = None,
        read_optimized: bool = False,
    ) -> Explanation:
        """Return which file groups a `read` with these arguments takes, by Spark's own scan or by Python workers, and which not.

        `DataFrame.explain` shows what Spark's scan then skips within a file by its statistics.
        """
        return self._reads.explain(
            condition=one_of(filter, where),
            partitions=partitions,
            as_of=as_of,
            as_of_completion=as_of_completion,
            read_optimized=read_optimized,
        )

    def read_incremental(self, after: Time | None, until: Time | None = None, *, meta: bool = False) -> Any:
        """Return the newest version of rows changed by commits that completed in (after, until].

        ``after`` None is the beginning. Keep the completion time of the last commit seen as the next one: commits appear
        in the order of completion times, so none is skipped. Deleted rows are not reported.
        """
        return self._reads.incremental(after=after, until=until, meta=meta)

    def change_feed(
        self, *, after: Time | None = None, until: Time | None = None, columns: Sequence[str] | None = None
    ) -> Any:
        """Return the rows that commits have inserted, updated and deleted, as a DataFrame; see `Table.change_feed`.

        The driver computes it and holds it: meant for spans of moderate size.
        """
        feed = self.table.change_feed(after=after, until=until, columns=columns)
        return frame_of(self.spark, feed.to_arrow())

    def __reduce__(self) -> tuple[Any, ...]:
        raise InputError(
            f"{self!r} belongs to the driver of its Spark session and cannot travel; hand its `table` to other processes, or "
            "open the table there"
        )

    def __repr__(self) -> str:
        return f"<lakelatch.spark.SparkTable {self.table.url}>"


@suggesting
def create(
    spark: Any, url: str | os.PathLike[str], *, schema: Any = None, sizes: JobSizes = SIZES, **options: Any
) -> SparkTable:
    """Create an empty table and open it in a Spark session.

    Args:
        spark: as for `open`, as is ``sizes``.
        schema: a StructType, such as ``df.schema``, or as for `lakelatch.create`, whose arguments ``options`` are.

    Raises:
        InputError: a column of a type that tables cannot hold; and as `lakelatch.create` does.
        ConfigError: a session of Spark Connect, or Spark below 3.5.
    """
    settle(spark)
    if schema is not None:
        options["schema"] = arrow_schema(schema) if hasattr(schema, "fieldNames") else schema
    return SparkTable(spark, create_table(url, **options), sizes, owned=True)


@suggesting
def open(  # noqa: A001 - lakelatch.spark.open, as lakelatch.open
    spark: Any, table: Table | str | os.PathLike[str], *, sizes: JobSizes = SIZES, **options: Any
) -> SparkTable:
    """Open a table in a Spark session; ``options`` are those of `lakelatch.open`, ``sizes`` of `SparkTable`.

    Raises:
        ConfigError: a session of Spark Connect, or Spark below 3.5.
    """
    settle(spark)
    if isinstance(table, Table):
        return SparkTable(spark, table, sizes)
    return SparkTable(spark, open_table(table, **options), sizes, owned=True)


@suggesting
def register(spark: Any) -> None:
    """Make ``spark.read.format("lakelatch")`` and ``spark.readStream.format("lakelatch")`` known to a Spark session.

    It may be one of Spark Connect, whose server then needs lakelatch in its Python.

    Raises:
        ConfigError: not a session, or Spark below 4.0.
    """
    if not of_connect(spark):
        settle(spark)
    if not IS_4:
        raise ConfigError(
            f"Spark {spark.version} has no data sources in Python; read by `lakelatch.spark.open(spark, url).read()`, or take "
            "PySpark 4.0 or newer"
        )
    # Only here: it needs Spark's data source classes.
    from .reading.data_source import register as made_known

    made_known(spark)
