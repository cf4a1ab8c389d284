"""Plan a merge of rows or of keys to delete: in Spark tasks, or on the driver where that is faster."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ...conflict import Region
from ...hudi.files import FileGroupId
from ...hudi.table import partition_paths
from ...hudi.timeline import Snapshot
from ...occ.staging import PARTITION_COLUMN, Kept, TaskFiles, WritePlan
from ...occ.transaction import Transaction
from ...occ.turns import take_turn, targets
from ..tasks import Answer, MergeTask, TargetsTask, Task, applied, looked_at
from .sizes import JobSizes


@dataclass(frozen=True)
class Planned:
    """A merge before it runs: of the rows ``here`` on the driver, or of those of the source by tasks.

    Attributes:
        everywhere: the partitions in which all keys are looked up.
    """

    plan: WritePlan
    here: pa.Table | None = None
    everywhere: Sequence[str] | None = None


@dataclass(frozen=True)
class Merge:
    """The work of each attempt, with a plan on its snapshot.

    Args:
        planned: None when there is nothing to merge into.
        run: runs a task over the source's rows; each time over the same shuffled ones.
        task: merges the rows of a plan; ``targets`` only finds where.
    """

    planned: Callable[[Transaction], Planned | None]
    run: Callable[[Transaction, Planned, Task], list[Answer]]
    task: Callable[[WritePlan], Task] = MergeTask
    targets: Callable[[WritePlan], Task] = TargetsTask

    def take_turn(self, txn: Transaction) -> None:
        """Take the transaction's turn; see `occ.turns.take_turn`."""

        def aimed_at(near: Region) -> set[FileGroupId]:
            if (made := self.planned(txn)) is None:
                return set()
            plan = replace(made.plan, slices={p: each for p, each in made.plan.slices.items() if near.covers(p)})
            if made.here is not None:
                found = targets(plan, made.here)
            else:
                found = looked_at(self.run(txn, made, self.targets(plan)))
            return {txn.workspace.changes.place_of(group) for group in found}

        take_turn(txn, aimed_at)

    def answers(self, txn: Transaction, kept: Kept) -> list[Answer]:
        """Merge the rows into the slices that hold their keys; ``kept`` remembers the driver's part, for a rebase."""
        if (made := self.planned(txn)) is None:
            return []
        if made.here is None:
            return self.run(txn, made, self.task(made.plan))
        with TaskFiles(made.plan.spec, 0, report=txn.workspace.report) as files:
            files.kept = kept
            return [applied(made.plan, made.here, files)]


def plan_here(plan: WritePlan, rows: pa.Table, old: Snapshot, sizes: JobSizes) -> WritePlan | None:
    """Return the plan with the slices that the rows may touch, or None when they are too much for the driver."""
    if rows.num_rows > sizes.small_rows:
        return None
    if PARTITION_COLUMN in rows.column_names:
        partitions = old.partitions()
    else:
        partitions = partition_paths(rows, plan.spec.config).unique().to_pylist()
    slices = {p: tuple(old.file_slices(p)) for p in partitions}
    if sum(s.total_size for group in slices.values() for s in group) > sizes.driver_bytes:
        return None
    return WritePlan(plan.spec, slices, plan.delete)


def in_each(rows: pa.Table, partitions: Sequence[str]) -> pa.Table:
    """Return a copy of the rows for each partition, which is named in a column of its own."""
    pieces = [
        rows.append_column(PARTITION_COLUMN, pa.repeat(pa.scalar(p, pa.string()), rows.num_rows)) for p in partitions
    ]
    return (
        pa.concat_tables(pieces)
        if pieces
        else rows.slice(0, 0).append_column(PARTITION_COLUMN, pa.array([], pa.string()))
    )
