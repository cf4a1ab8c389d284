"""`SparkTable`: what a PySpark user calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..occ.table import Table
from ..occ.table import open as open_table
from . import read as reads
from .result import WriteResult
from .write import Writes


class SparkTable:
    """A table in a Spark session; safe to use from several threads of one session.

    Each write is one transaction. File groups that it lost to another writer are merged again; it is run again with a
    fresh snapshot when that does not do, and its Spark jobs are cancelled when it is over. Writes raise `InputError`
    for rows that the table cannot hold, and `ConflictError` when they kept losing; nothing landed then.
    """

    def __init__(self, spark: Any, table: Table) -> None:
        self.spark, self.table = spark, table
        self._writes = Writes(spark, table)
        reads.prepare_session(spark)

    # Writing -----------------------------------------------------------------------------------------------------

    def insert(self, rows: Any) -> WriteResult:
        """Add rows whose keys are new. Keys that the table holds already are not looked for, except with buckets.

        A key that occurs twice in the rows is resolved by the ordering field, or refused.
        """
        return self._writes.insert(rows, operation="insert")

    def bulk_insert(self, rows: Any) -> WriteResult:
        """As `insert`, without the look for keys that occur twice in the rows."""
        return self._writes.insert(rows, operation="bulk_insert")

    def upsert(self, rows: Any) -> WriteResult:
        """Rows replace those with the same key in the same partition; new keys are inserted.

        With an ordering field an older row never replaces a newer one.
        """
        return self._writes.upsert(rows)

    def delete(self, keys: Any) -> WriteResult:
        """Remove the rows with these keys: the record key columns, and the partition columns if they are known."""
        return self._writes.delete(keys)

    def delete_where(self, condition: Any) -> WriteResult:
        """Remove the rows for which a condition (SQL text or Column) is true; none is left when this returns."""
        return self._writes.delete_where(condition)

    def overwrite(self, rows: Any, *, partitions: Sequence[str] | None = None) -> WriteResult:
        """Replace the partitions that the rows belong to; with ``partitions`` (paths) exactly these, empty ones too."""
        return self._writes.overwrite(rows, partitions=partitions)

    def overwrite_table(self, rows: Any) -> WriteResult:
        """Replace all rows of the table."""
        return self._writes.overwrite_table(rows)

    # Reading -----------------------------------------------------------------------------------------------------

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: Any | None = None,  # noqa: A002 - the word Spark's users look for
        *,
        as_of: str | None = None,
        as_of_completion: str | None = None,
        meta: bool = False,
    ) -> Any:
        """The rows as a DataFrame over Spark's own Parquet scan, fixed to the moment of this call.

        Args:
            columns: names; all data columns otherwise.
            filter: SQL text or Column. Partitions that it rules out are not even listed for Spark.
            as_of: requested time T, as Hudi's readers travel in time.
            as_of_completion: completion time C.
            meta: with Hudi's five meta columns.
        """
        return reads.read(
            self.spark,
            self.table,
            columns=columns,
            condition=filter,
            as_of=as_of,
            as_of_completion=as_of_completion,
            meta=meta,
        )

    def read_incremental(self, after: str, until: str | None = None, *, meta: bool = False) -> Any:
        """The newest version of the rows changed by commits with completion time in (after, until].

        Keep the completion time of the last commit seen as the next ``after``: commits appear in the order of
        completion times, so none is skipped. Deleted rows are not told.
        """
        return reads.read_incremental(self.spark, self.table, after=after, until=until, meta=meta)

    def __repr__(self) -> str:
        return f"<lakelatch.spark.SparkTable {self.table.url}>"


def open(  # noqa: A001 - lakelatch.spark.open, as lakelatch.open
    spark: Any, table: Table | str, **options: Any
) -> SparkTable:
    """A table in a Spark session; ``options`` are those of `lakelatch.open`.

    Sets two options of the session that are at their defaults and would cost much:
    ``spark.sql.execution.arrow.maxRecordsPerBatch`` (65536) and
    ``spark.sql.sources.parallelPartitionDiscovery.threshold`` (100000).
    """
    return SparkTable(spark, open_table(table, **options) if isinstance(table, str) else table)
