"""A Spark job as one transaction: it reads one snapshot, and its reads are validated at commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..arguments import suggesting
from ..occ.session import Partition
from ..occ.table import Table
from ..occ.transaction import Transaction
from .reading import Reads, one_of
from .writing import SIZES, JobSizes, SparkStream, Writes, Writing


@suggesting
class SparkTransaction(Writing):
    """A transaction of `SparkTable.run`, which commits it. Each step sees what was staged before.

    A write is staged when it returns. Overwrites need a transaction begun as ``insert_overwrite``, which has no other writes.

    Attributes:
        txn: the transaction, for anything beyond reads and writes; reads use its ``current`` state.
    """

    def __init__(
        self, spark: Any, table: Table, txn: Transaction, sizes: JobSizes = SIZES, reads: Reads | None = None
    ) -> None:
        self.txn, self._reads = txn, reads or Reads(spark, table)
        super().__init__(Writes(spark, table, sizes, self._reads, txn))

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
        whatever it excludes by partition or file statistics. Arguments as for `SparkTable.read`; a path in ``partitions`` need
        not exist yet.
        """
        return self._reads.in_transaction(
            self.txn, columns=columns, condition=one_of(filter, where), partitions=partitions, meta=meta
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return self.txn.__reduce__()

    def stream(self, name: str) -> SparkStream:
        """Return a stream of the table, whose events are committed with this transaction, which then writes nothing else."""
        self.txn.stream(name)
        return SparkStream(self._writes, name)
