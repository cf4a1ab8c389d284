"""A Spark job as one transaction: it reads one snapshot, and its reads are validated at commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..conflict import SNAPSHOT
from ..errors import InputError
from ..hudi.timeline import FileSlice
from ..occ.session import Partition, chosen_partitions
from ..occ.table import Table
from ..occ.transaction import Transaction
from .reading import (
    ScanLease,
    comparisons,
    in_spark,
    matching_partitions,
    narrowed,
    one_of,
    pinned_partitions,
    with_meta,
)
from .writing import SIZES, JobSizes, SparkStream, Writes, Writing


class SparkTransaction(Writing):
    """A transaction of `SparkTable.run`, which commits it. Each step sees what was staged before.

    A write is staged when it returns. Overwrites want a transaction begun as ``insert_overwrite``, which has no others.

    Attributes:
        txn: the transaction, for anything beyond reads and writes; its ``current`` state is what is read.
    """

    def __init__(
        self, spark: Any, table: Table, txn: Transaction, sizes: JobSizes = SIZES, lease: ScanLease | None = None
    ) -> None:
        self.txn, self._spark, self._table = txn, spark, table
        self._lease = lease or ScanLease(spark, table.session)
        super().__init__(Writes(spark, table, sizes, txn))

    def read(
        self,
        columns: Sequence[str] | None = None,
        filter: Any | None = None,  # noqa: A002 - the word Spark's users look for
        *,
        where: Any | None = None,
        partitions: Iterable[Partition] | None = None,
        meta: bool = False,
    ) -> Any:
        """Return the rows of the snapshot, with the transaction's own writes so far, as a DataFrame.

        Isolation above ``snapshot`` protects what the snapshot holds.
        Its files are kept as those of `SparkTable.read` are, also when the transaction has ended.
        Put conditions into ``filter`` rather than a later ``where``: other writers may then change
        whatever it excludes by partition or file statistics. Arguments as for `SparkTable.read`.
        """
        self._table.config.refuse_reading()
        schema = self.txn.written_schema
        if schema is None:
            raise InputError(
                f"{self._table.url} has no schema yet, because nothing was written to it; write some rows first"
            )
        filter = one_of(filter, where)  # noqa: A001 - as above
        if filter is not None:
            filter = in_spark(schema, filter)  # noqa: A001 - as above
        chosen = None
        if partitions is not None:
            table, now = self._table, self.txn.current
            chosen = set(chosen_partitions(table.store, table.config, schema, now, partitions))
        slices = self._declared(schema, filter, chosen)
        rows = narrowed(self._spark, self._table, slices, with_meta(schema) if meta else schema, filter, columns)
        if slices:
            # No commit completes at T, so the state at that time is the one that the transaction began with.
            self._lease.hold(rows, self.txn.instant)
        return rows

    def stream(self, name: str) -> SparkStream:
        """A stream of the table, whose events land with this transaction. It writes nothing else then."""
        self.txn.stream(name)
        return SparkStream(self._writes, name)

    def _declared(self, schema: Any, condition: Any | None, chosen: set[str] | None) -> list[FileSlice]:
        """The slices to read; the transaction knows of them, and of the rows that are not there."""
        if condition is None:
            return [each for path in _some(chosen) for each in self.txn.mark_scanned(path)]
        spark, config = self._spark, self._table.config
        # Its statistics are looked up only where they count.
        where = comparisons(spark, schema, condition) if self.txn.isolation != SNAPSHOT else ()
        pinned = pinned_partitions(spark, config, schema, condition)
        if chosen is not None:
            pinned = chosen if pinned is None else chosen & pinned
        slices = [each for partition in _some(pinned) for each in self.txn.mark_scanned(partition, where=where)]
        wanted = matching_partitions(spark, config, schema, sorted({s.partition for s in slices}), condition)
        return [each for each in slices if each.partition in wanted]


def _some(partitions: set[str] | None) -> list[str | None]:
    """The partitions, or None for all of them."""
    return [None] if partitions is None else [*sorted(partitions)]
