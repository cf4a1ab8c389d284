"""All reads of a table through Spark: which file slices of which state, and the lease that keeps their files meanwhile.

    a read of a table           the newest state, or a past one
    a read in a transaction     its snapshot, with what it has staged; it declares what it reads
    an incremental read         the rows that some commits have written, as a later state has them
    a write by a condition      the places of the rows for which it is true
    an upsert by a join         the keys that are in some slices

Each takes the slices of a state that partitions and the condition leave, and makes DataFrames of them (`slice_rows`).
A user's DataFrame has a reader's lease; a write's transaction protects its reads by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ...arguments import flag
from ...errors import InputError
from ...hudi.table import META_COLUMNS
from ...hudi.timeline import FileSlice, Time
from ...occ.scan import Explanation, ScannedFile, seen, times_that_may_match
from ...occ.session import Partition, chosen_partitions
from ...occ.table import Table
from ...occ.transaction import Transaction
from ...occ.writing import reading
from .filters import comparisons, in_spark
from .leases import ScanLease
from .partition_pruning import matching_partitions, refusing
from .slice_rows import by_reader, places_of, rows_of

COMMIT_TIME = META_COLUMNS[0]


@dataclass(frozen=True)
class _Selected:
    """The slices that a read takes of one state, the reasons why it leaves out others, and the condition in Spark's form."""

    schema: pa.Schema
    completion: str | None
    condition: Any
    slices: Sequence[FileSlice]
    pruned: Sequence[ScannedFile]


class Reads:
    """All reads of one table in one session; safe to use from several threads."""

    def __init__(self, spark: Any, table: Table) -> None:
        self._spark, self._table = spark, table
        self._lease = ScanLease(spark, table.session)  # for the DataFrames that users get

    # What users read ---------------------------------------------------------------------------------------------

    def of_table(self, *, columns: Sequence[str] | None, meta: bool, **which: Any) -> Any:
        """Return the rows for `SparkTable.read`; ``which`` as in `explain`."""
        found = self._selected(**which)
        return self._kept(found.schema, found.slices, found.condition, columns, meta=meta, at=found.completion)

    def explain(self, **which: Any) -> Explanation:
        """Explain a read for `SparkTable.explain`, whose arguments these are."""
        found = self._selected(**which)
        whole, others = by_reader(self._spark, self._table, found.slices)
        told = [ScannedFile(_shown(each), True, "by Spark's own scan") for each in whole]
        for each in others:
            why = f"with {len(each.logs)} log files" if each.logs else "Spark does not reach the store"
            told.append(ScannedFile(_shown(each), True, f"by a Python worker: {why}"))
        return Explanation((*told, *found.pruned))

    def in_transaction(
        self,
        txn: Transaction,
        *,
        columns: Sequence[str] | None,
        condition: Any | None,
        partitions: Iterable[Partition] | None,
        meta: bool,
    ) -> Any:
        """Return the rows for `SparkTransaction.read`."""
        self._table.config.refuse_reading()
        schema = self._known(txn.written_schema)
        if condition is not None:
            condition = in_spark(with_meta(schema), condition)
        terms = () if condition is None else self.comparisons(schema, condition)
        slices = reading.declared(txn.workspace, partitions, terms, isolation=txn.isolation)
        slices = self.matching(schema, slices, condition)
        # No commit completes at T, so the state at that time is the one that the transaction began with.
        return self._kept(schema, slices, condition, columns, meta=meta, at=txn.instant)

    def incremental(self, *, after: Time | None, until: Time | None, meta: bool) -> Any:
        """Return the rows for `SparkTable.read_incremental`."""
        table = self._table
        table.config.refuse_reading()
        commits = table.commits(after=after, until=until)
        view, completion = seen(table.session, None, until)
        schema = self._known(view.arrow_schema())
        groups = {(stat.partition, stat.file_id) for _, commit in commits for stat in commit.stats}
        slices = [each for each in view.snapshot.file_slices() if tuple(each.group) in groups]
        rows = self._kept(schema, slices, None, None, meta=True, at=completion)
        rows = rows.where(_in(COMMIT_TIME, [instant.requested for instant, _ in commits]))
        return rows if meta else rows.select(*schema.names)

    # What writes read --------------------------------------------------------------------------------------------

    def rows(self, slices: Sequence[FileSlice], schema: pa.Schema) -> Any:
        """Return all rows of slices, with Hudi's meta columns."""
        return rows_of(self._spark, self._table, slices, with_meta(schema))

    def places(self, slices: Sequence[FileSlice], schema: pa.Schema, condition: Any, more: Sequence[Any] = ()) -> Any:
        """Return the places of the rows in slices for which a condition is true; see `places_of`."""
        return places_of(self._spark, self._table, slices, schema, condition, more)

    def only_by_spark(self, slices: Sequence[FileSlice]) -> bool:
        """Return whether Spark's own scan reads all slices, so that a join over their rows needs no Python worker."""
        return not by_reader(self._spark, self._table, slices)[1]

    # What a condition says before any row is read ----------------------------------------------------------------

    def comparisons(self, schema: pa.Schema, condition: Any) -> list[tuple[Any, ...]]:
        """Return the comparisons that the condition implies on data columns: other columns have no statistics."""
        return [each for each in comparisons(self._spark, with_meta(schema), condition) if each[0] in schema.names]

    def matching(self, schema: pa.Schema, slices: Sequence[FileSlice], condition: Any | None) -> list[FileSlice]:
        """Return the slices whose partitions may hold rows for which the condition is true; None: all."""
        if condition is None:
            return list(slices)
        there = sorted({each.partition for each in slices})
        config = self._table.config
        if config.time_unit:
            there = times_that_may_match(there, config, schema, self.comparisons(schema, condition))
        wanted = matching_partitions(self._spark, config, schema, there, condition)
        return [each for each in slices if each.partition in wanted]

    # How ---------------------------------------------------------------------------------------------------------

    def _selected(
        self,
        *,
        condition: Any | None,
        partitions: Iterable[Partition] | None,
        as_of: Time | None,
        as_of_completion: Time | None,
        read_optimized: bool,
    ) -> _Selected:
        flag(read_optimized, "read_optimized")
        table = self._table
        table.config.refuse_reading()
        view, completion = seen(table.session, as_of, as_of_completion)
        schema = self._known(view.arrow_schema())
        slices, pruned = view.snapshot.file_slices(), list[ScannedFile]()
        if read_optimized:
            slices = [replace(each, logs=()) for each in slices if each.base is not None]

        def narrow(wanted: Collection[FileSlice], why: str) -> None:
            nonlocal slices
            left = {each.group for each in wanted}
            pruned.extend(ScannedFile(_shown(each), False, why) for each in slices if each.group not in left)
            slices = list(wanted)

        if partitions is not None:
            chosen = set(chosen_partitions(table.store, table.config, schema, view.snapshot, partitions))
            narrow([each for each in slices if each.partition in chosen], "of no partition that was asked for")
        if condition is not None:
            condition = in_spark(with_meta(schema), condition)
            narrow(self.matching(schema, slices, condition), "the condition excludes its partition")
        return _Selected(schema, completion, condition, slices, pruned)

    def _kept(
        self,
        schema: pa.Schema,
        slices: Sequence[FileSlice],
        condition: Any,
        columns: Any,
        *,
        meta: bool,
        at: str | None,
    ) -> Any:
        """Return the DataFrame of a user's read, with the lease on the state at that time."""
        full = with_meta(schema) if meta else schema
        with refusing("the columns", columns):
            rows = rows_of(self._spark, self._table, slices, full, condition, columns)
        if slices:
            self._lease.hold(rows, at)
        return rows

    def _known(self, schema: pa.Schema | None) -> pa.Schema:
        if schema is None:
            raise InputError(
                f"{self._table.url} has no schema yet, because nothing was written to it; write some rows first"
            )
        return schema


def with_meta(schema: pa.Schema) -> pa.Schema:
    """Return the data columns with Hudi's meta columns in front."""
    return pa.schema([*(pa.field(n, pa.string()) for n in META_COLUMNS), *schema])


def _shown(each: FileSlice) -> str:
    return each.base.path if each.base else each.logs[-1].path


def _in(column: str, values: Sequence[str]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    return F.col(column).isin(list(values))
