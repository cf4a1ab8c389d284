"""The write methods of `SparkTable` and `SparkTransaction`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Unpack

from ...arguments import BulkSort, Missing, NewColumns, suggesting
from ...errors import InputError
from ...occ.session import Partition
from ...occ.transaction import WriteOptions, WriteResult
from ...occ.writing import Merge
from ..reading import columns
from .bulk_order import NONE
from .write import Writes


@suggesting
class Writing:
    """Write methods that tables and transactions share.

    On a table each takes the bounds of `Table.run` (``attempts``, ``timeout_s``, ``isolation`` and so on); a transaction is
    retried as a whole, so there they are refused. ``missing="null"`` fills columns that the rows lack, and
    ``new_columns="add"`` adds new columns to the table; both are refused otherwise.

    Rows are a DataFrame of Spark, or anything that plain Python takes (`Transaction.upsert`): these the driver writes by itself,
    without a job, so a few rows take milliseconds. ``zone`` is for such rows only.

    On a table each takes ``progress`` too: it is called, a few times a second and on another thread, with a `Progress` of
    the tasks that have ended, of those that Spark has planned so far; and of rows where the driver writes by itself. An
    exception from it cancels the jobs, rolls the write back, and is raised.
    """

    def __init__(self, writes: Writes) -> None:
        self._writes = writes

    def _within(self, options: WriteOptions) -> Writes:
        return self._writes.within(options) if options else self._writes

    def insert(
        self,
        rows: Any,
        *,
        missing: Missing = "refuse",
        new_columns: NewColumns = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Add rows with new keys. Existing keys are not looked up, except with buckets.

        A key that occurs twice in the rows is resolved by the ordering field, or refused.
        """
        if columns.is_plain(rows, zone):
            return self._writes.plainly("insert", rows, retries, missing=missing, new_columns=new_columns, zone=zone)
        return self._within(retries).insert(self._writes.filled(rows, missing, new_columns), operation="insert")

    def bulk_insert(
        self,
        rows: Any,
        *,
        sort: BulkSort = NONE,
        sort_by: Sequence[str] | str | None = None,
        missing: Missing = "refuse",
        new_columns: NewColumns = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Insert without the check for duplicate keys in the rows; otherwise as `insert`.

        Args:
            sort: ``none``; ``partition`` sorts the rows of each task by partition and ``sort_by``, so that later reads can skip
                row groups; ``global`` sorts all rows so, by a shuffle: few files for each partition, which reads can skip too.
            sort_by: columns; the record key comes after them.
        """
        if columns.is_plain(rows, zone):
            if sort != NONE or sort_by:
                raise InputError(
                    "bulk_insert(sort=...): Spark sorts a DataFrame only; leave it out. Nothing was written"
                )
            return self._writes.plainly("insert", rows, retries, missing=missing, new_columns=new_columns, zone=zone)
        writes = self._within(retries)
        return writes.bulk_insert(self._writes.filled(rows, missing, new_columns), sort=sort, sort_by=sort_by)

    def upsert(
        self,
        rows: Any,
        *,
        missing: Missing = "refuse",
        new_columns: NewColumns = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Replace rows with the same key in the same partition; insert the others.

        With an ordering field an older row never replaces a newer one.
        """
        if columns.is_plain(rows, zone):
            return self._writes.plainly("upsert", rows, retries, missing=missing, new_columns=new_columns, zone=zone)
        return self._within(retries).upsert(self._writes.filled(rows, missing, new_columns))

    def delete(self, keys: Any, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Remove the rows with these keys: the record key columns, and the partition columns if they are known."""
        if columns.is_plain(keys):
            return self._writes.plainly("delete", keys, retries)
        return self._within(retries).delete(keys)

    def delete_where(
        self, where: Any, *, partition: Partition | None = None, **retries: Unpack[WriteOptions]
    ) -> WriteResult:
        """Remove the rows for which a condition is true; none is left when this returns.

        Args:
            where: SQL text, Column, terms or an expression of pyarrow (docs/conditions.md). Without one this raises
                `InputError`; use `delete_all`.
            partition: only in this one; by value, ``{"origin": "JFK"}``, or its path.
        """
        return self._within(retries).delete_where(where, partition=partition)

    def delete_all(self, *, partition: Partition | None = None, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Remove all rows, or those of a partition; none is left when this returns."""
        return self._within(retries).delete_all(partition=partition)

    def update_where(
        self,
        where: Any,
        set: Mapping[str, Any],  # noqa: A002 - the word of SQL
        *,
        partition: Partition | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Set new values in the rows for which a condition is true, also in those that others add meanwhile.

        Args:
            where: as in `delete_where`; ``"true"`` for all. Spark evaluates it, so it may call Spark's functions and yours.
            set: values by column: a plain value, or one computed from the row as it was: `lakelatch.sql("delay + 1")`, a Column
                or an expression of pyarrow. A plain text is a value.
            partition: as in `delete_where`.

        Raises:
            InputError: a column of the record key or partition, or a result that its column cannot hold unchanged.
        """
        return self._within(retries).update_where(where, set, partition=partition)

    def merge(
        self, rows: Any, *, new_columns: NewColumns = "refuse", zone: str | None = None, **retries: Unpack[WriteOptions]
    ) -> Merge[WriteResult]:
        """Merge rows (``s``) with those of the same key and partition (``t``) by clauses.

            table.merge(df).when_matched("s.updated > t.updated", update="all").when_not_matched(insert="all").run()

        The clauses are those of plain Python; conditions and values are SQL text, Columns such as ``F.col("s.updated")`` or
        expressions of pyarrow, as far as docs/conditions.md goes. ``new_columns`` as of `Transaction.merge`.
        """
        if columns.is_plain(rows, zone):
            return self._writes.merge_plainly(rows, new_columns, zone, retries)
        return self._within(retries).merge(rows, new_columns)

    def overwrite(
        self,
        rows: Any,
        *,
        partitions: Iterable[Partition] | None = None,
        missing: Missing = "refuse",
        new_columns: NewColumns = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Replace the partitions that the rows belong to; with ``partitions`` exactly these, empty ones too.

        They are named by value, ``[{"origin": "JFK"}]``, or by path.
        """
        if columns.is_plain(rows, zone):
            return self._writes.plainly(
                "overwrite", rows, retries, partitions=partitions, missing=missing, new_columns=new_columns, zone=zone
            )
        return self._within(retries).overwrite(self._writes.filled(rows, missing, new_columns), partitions=partitions)

    def overwrite_table(
        self,
        rows: Any,
        *,
        missing: Missing = "refuse",
        new_columns: NewColumns = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Replace all rows of the table."""
        if columns.is_plain(rows, zone):
            return self._writes.plainly(
                "overwrite_table", rows, retries, missing=missing, new_columns=new_columns, zone=zone
            )
        return self._within(retries).overwrite_table(self._writes.filled(rows, missing, new_columns))
