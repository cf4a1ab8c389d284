"""The write methods of `SparkTable` and `SparkTransaction`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..occ.transaction import WriteResult
from .write import Writes


class Writing:
    """Write methods that tables and transactions share."""

    def __init__(self, writes: Writes) -> None:
        self._writes = writes

    def insert(self, rows: Any) -> WriteResult:
        """Add rows with new keys. Existing keys are not looked up, except with buckets.

        A key that occurs twice in the rows is resolved by the ordering field, or refused.
        """
        return self._writes.insert(rows, operation="insert")

    def bulk_insert(self, rows: Any) -> WriteResult:
        """As `insert`, but without the check for duplicate keys in the rows."""
        return self._writes.insert(rows, operation="bulk_insert")

    def upsert(self, rows: Any) -> WriteResult:
        """Replace rows with the same key in the same partition; insert the others.

        With an ordering field an older row never replaces a newer one.
        """
        return self._writes.upsert(rows)

    def delete(self, keys: Any) -> WriteResult:
        """Remove the rows with these keys: the record key columns, and the partition columns if they are known."""
        return self._writes.delete(keys)

    def delete_where(self, condition: Any) -> WriteResult:
        """Remove the rows for which a condition is true; none is left when this returns.

        It is SQL text, a Column, terms or an expression of pyarrow (docs/conditions.md). Without a condition it
        raises `InputError`; use `delete_all`.
        """
        return self._writes.delete_where(condition)

    def delete_all(self) -> WriteResult:
        """Remove all rows; none is left when this returns."""
        return self._writes.delete_all()

    def overwrite(self, rows: Any, *, partitions: Sequence[str] | None = None) -> WriteResult:
        """Replace the partitions that the rows belong to; with ``partitions`` (paths) exactly these, empty ones too."""
        return self._writes.overwrite(rows, partitions=partitions)

    def overwrite_table(self, rows: Any) -> WriteResult:
        """Replace all rows of the table."""
        return self._writes.overwrite_table(rows)
