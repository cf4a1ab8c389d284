"""Upserts and deletes in plain Python, by key or by condition; each stages its files and its own rebase.

Memory: the rows passed in, or for a reader's rows the keys of a partition or bucket; and for each thread a row group of a
base file, by condition the whole file. Larger work belongs to Spark, which runs the same code in its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...arguments import brief, values_of
from ...conflict import Region
from ...errors import InputError
from ...hudi.files import FileGroupId
from ...hudi.merge import Merged, remove_where, widened
from ...hudi.table import TableConfig, partition_list, partition_paths, record_keys
from ...hudi.timeline import FileSlice, Snapshot, WriteStat
from ..incoming import Incoming
from ..rebase import merge_rows, refuse_known, refuse_same_rows, write_changes
from ..session import known_partition, partition_path_of, refuse_misspelled
from ..staging import COMMIT_TIME, PARTITION_COLUMN, FileSpec, Kept, TaskFiles, WritePlan, apply, read_slice
from ..turns import TurnTaker, take_turn, targets
from .moves import moves_rows, without_moved
from .new_values import NewValues, with_values

if TYPE_CHECKING:
    from ...arguments import OperationName
    from ...conditions import Condition, Given
    from ..rebase import Lost
    from ..session import Partition, Session
    from ..workspace import Workspace


class Writer(TurnTaker, Protocol):
    """A transaction that writes rows; it gets another workspace when it restarts."""

    @property
    def workspace(self) -> Workspace: ...


@dataclass(frozen=True)
class Write:
    """One write, for a transaction begun as ``operation``.

    ``staged`` executes it. ``incoming`` are its rows, if it has any.
    """

    operation: OperationName
    staged: Callable[[Writer], None]
    incoming: Received | None = None

    def stage(self, txn: Writer) -> None:
        """Execute the write in this transaction, once per attempt. Raises `RolledBackError` if others have ended that."""
        with txn.workspace.explaining():
            self.staged(txn)


@dataclass(frozen=True)
class Received:
    """The rows of a write, as a context manager around all of its attempts.

    Entering reads a reader's rows, before any attempt begins: however long that takes, no transaction waits for them. Leaving
    frees them and their temporary file.

    Args:
        fit: a method of ``rows`` that fits them to the table's present columns.
    """

    session: Session
    rows: Incoming
    fit: Callable[[pa.Schema | None], object]

    def __enter__(self) -> Self:
        if self.rows.unread:
            self.fit(self.session.schema())
        return self

    def __exit__(self, *_: object) -> None:
        self.rows.release()


_SOME_ROWS = 1 << 20  # rows of a batch that are processed at a time
Change = Callable[[pa.Table], pa.Table]  # maps a slice's rows; returns the same table if nothing changes


def upsert(session: Session, given: Any, missing: str, new_columns: str, zone: str | None) -> Write:
    """See `Transaction.upsert`."""
    incoming = Incoming(given, session.url, session.config, missing=missing, new_columns=new_columns, zone=zone)
    return Write("upsert", lambda txn: stage_upsert(txn, incoming), Received(session, incoming, incoming.rows))


def stage_upsert(txn: Writer, incoming: Incoming, verb: str = "upsert") -> None:
    """Merge rows into the file groups that hold their keys."""
    txn.workspace.refuse_merge(verb)

    def planned() -> tuple[WritePlan, pa.Table] | None:
        now, rows = txn.workspace.current, txn.workspace.received(incoming)
        if not rows.num_rows:
            return None
        spec = txn.workspace.file_spec(rows.schema)
        return WritePlan(spec, _slices(now, partition_list(rows, spec.config)), on_disk=incoming.on_disk), rows

    _apply(txn, incoming, planned)


def delete(session: Session, given: Any) -> Write:
    """See `Transaction.delete`."""
    incoming = Incoming(_keyed(given, session), session.url, session.config)

    def keys(schema: pa.Schema | None) -> None:
        if schema is not None:  # an empty table has no row to delete and no types for keys
            incoming.keys(schema)

    return Write("delete", lambda txn: _stage_delete(txn, incoming), Received(session, incoming, keys))


def _keyed(given: Any, session: Session) -> Any:
    """Return keys as rows; keys of one column may come as a list or array of values."""
    values, fields = values_of(given), session.config.record_key_fields
    if values is None or any(isinstance(each, Mapping | pa.RecordBatch) for each in values):
        return given
    if not values:
        return given if isinstance(given, list | tuple) else pa.table({name: pa.nulls(0) for name in fields})
    if len(fields) > 1 or any(each is None for each in values):
        what = "hold a null" if len(fields) == 1 else f"are no rows of {', '.join(fields)}"
        raise InputError(f"the keys ({brief(given)}) {what}, and name no rows of {session.url}; nothing was deleted")
    return [{fields[0]: each} for each in values]


def _stage_delete(txn: Writer, incoming: Incoming) -> None:
    txn.workspace.refuse_merge("delete")
    config = txn.session.config

    def planned() -> tuple[WritePlan, pa.Table] | None:
        now, schema = txn.workspace.current, txn.workspace.written_schema
        if schema is None:
            return None
        rows = incoming.keys(schema)
        if not rows.num_rows:
            return None
        spec = txn.workspace.file_spec(schema)
        if all(name in rows.column_names for name in config.partition_fields):
            partitions = partition_list(rows, config)
        else:
            partitions = now.partitions()
            copies = [rows.append_column(PARTITION_COLUMN, pa.repeat(pa.scalar(p), rows.num_rows)) for p in partitions]
            if not copies:
                return None
            rows = pa.concat_tables(copies)
        return WritePlan(spec, _slices(now, partitions), delete=True), rows

    _apply(txn, incoming, planned)


def _apply(txn: Writer, incoming: Incoming, planned: Callable[[], tuple[WritePlan, pa.Table] | None]) -> None:
    def aimed_at(near: Region) -> Iterable[FileGroupId]:
        if (made := planned()) is None:
            return ()
        slices = {partition: each for partition, each in made[0].slices.items() if near.covers(partition)}
        return map(txn.workspace.changes.place_of, targets(replace(made[0], slices=slices), made[1]))

    take_turn(txn, aimed_at)
    # Read and planned only now: the transaction may have waited, and restarted with another workspace.
    workspace = txn.workspace
    workspace.next_write()
    if (made := planned()) is None:
        return
    plan, rows = made
    if not plan.delete and moves_rows(txn.session):
        rows = without_moved(workspace, plan.spec, rows)
        workspace.next_write()
        if (made := planned()) is None or not rows.num_rows:
            return
        plan = made[0]
    hook = workspace.hook_of(_RowsAgain)
    incoming.kept_by(hook.forget)
    with (
        workspace.staging(),
        TaskFiles(plan.spec, 0, threads=txn.session.threads, report=txn.workspace.report) as files,
    ):
        files.kept = hook.kept
        apply(plan, rows, files)
        workspace.add(files.stats())
    for place in files.looked:
        workspace.mark_lookup(*place)
    if not plan.delete:
        hook.batches.append(rows)
    hook.deletes |= plan.delete
    if hook.deletes and hook.batches and workspace.rebase is not None:
        workspace.merge_on_conflict(hook, looks_again=False)


class _RowsAgain:
    """The rebase of a transaction's upserts and deletes by key.

    Attributes:
        deletes: True if some rows were deleted. A transaction with deletes and upserts does not look keys up again: keys
            that it did not find stay, if others have inserted them, since the upserts may have to come after those.
    """

    by_condition: ClassVar = False

    def __init__(self) -> None:
        self.kept: Kept = {}
        self.batches: list[pa.Table] = []
        self.deletes = False

    def forget(self) -> None:
        """Drop the rows: no rebase follows."""
        self.kept.clear()
        self.batches.clear()

    def __call__(self, lost: Lost) -> list[WriteStat]:
        # Keys to delete that others have inserted since are not looked up: "delete first, then insert" is a valid order.
        for each in lost.appeared:
            for rows in self.batches:
                refuse_known(lost, each, _keys_in(rows, each.partition, lost.spec.config))
        return merge_rows(lost, self.kept)


def _keys_in(rows: pa.Table, partition: str, config: TableConfig) -> pa.Array:
    found = []
    for start in range(0, rows.num_rows, _SOME_ROWS):
        some = rows.slice(start, _SOME_ROWS)
        here = some.filter(pc.equal(partition_paths(some, config), partition))
        found.append(record_keys(here, config.record_key_fields))
    return pa.concat_arrays(found)


def _slices(now: Snapshot, partitions: Iterable[str]) -> dict[str, tuple[FileSlice, ...]]:
    return {each: tuple(now.file_slices(each)) for each in partitions}


# --- by condition ------------------------------------------------------------------------------------------------


def delete_where(session: Session, where: Given, partition: Partition | None) -> Write:
    """See `Transaction.delete_where`."""
    if where is None or (isinstance(where, Sequence) and not where):
        raise InputError(
            f"no condition says which rows of {session.url} are to be deleted ({brief(where)}); nothing was written. Give one, "
            "as 'amount < 10', or say `delete_all`"
        )
    return _by_condition("delete_where", where, partition, lambda condition, _spec: _Removal(condition))


def delete_all(partition: Partition | None) -> Write:
    """See `Transaction.delete_all`."""
    return _by_condition("delete_all", (), partition, lambda condition, _spec: _Removal(condition))


def update_where(session: Session, where: Given, given: Mapping[str, Any], partition: Partition | None) -> Write:
    """See `Transaction.update_where`."""
    config = session.config
    if where is None or (isinstance(where, Sequence) and not where):
        raise InputError(
            f"no condition says which rows of {session.url} are to be changed ({brief(where)}); nothing was written. Give one, "
            "as 'amount < 10', or 'true' for all"
        )

    def setting(condition: Condition | None, spec: FileSpec) -> Change:
        return _Setting(condition, NewValues(given, spec.schema, spec.schema, session.url, config, spec.required))

    return _by_condition("update_where", where, partition, setting)


def _by_condition(
    name: str, where: Given, named: Partition | None, made: Callable[[Condition | None, FileSpec], Change]
) -> Write:
    def stage(txn: Writer) -> None:
        txn.workspace.refuse_merge(name)
        _stage_by_condition(txn, where, named, made)

    return Write("upsert" if name == "update_where" else "delete", stage)


def _stage_by_condition(
    txn: Writer, where: Given, named: Partition | None, made: Callable[[Condition | None, FileSpec], Change]
) -> None:
    def aimed_at(near: Region) -> Iterable[FileGroupId]:
        now = txn.workspace
        slices = now.may_match(now.snapshot, _path(txn, named), now.condition(where))
        return [each.group for each in slices if near.covers(each.partition)]

    take_turn(txn, aimed_at)
    # Read only now: the transaction may have waited, and restarted with another workspace.
    workspace = txn.workspace
    workspace.next_write()
    partition = _path(txn, named)
    if partition is not None:
        partition = known_partition(txn.session.store, txn.session.config, workspace.current, partition)
    condition = workspace.condition(where)
    slices = workspace.depends_on(partition, where=condition or ())
    workspace.reads_complete()
    schema = workspace.written_schema
    if schema is None:
        return
    spec = workspace.file_spec(schema)
    change = made(condition, spec)
    hook = workspace.hook_of(_ConditionsAgain)
    with workspace.staging(), TaskFiles(spec, 0, threads=txn.session.threads, report=txn.workspace.report) as files:
        with files.pool(slices) as pool:
            for each in slices:
                pool.do(_change, files, each, [change])
        workspace.add(files.stats())
    hook.changes.append((partition, change))


def _path(txn: Writer, named: Partition | None) -> str | None:
    """Return the path of a partition, named by the values of all partition columns or by its path."""
    if named is None:
        return None
    if not isinstance(named, str | Mapping):
        refuse_misspelled(txn.url, txn.session.config, named, txn.workspace.current.partitions())
    return partition_path_of(txn.url, txn.session.config, txn.workspace.written_schema, named)


class _ConditionsAgain:
    """The rebase of a transaction's changes by condition: apply them again to all that was committed there."""

    by_condition: ClassVar = True

    def __init__(self) -> None:
        self.changes: list[tuple[str | None, Change]] = []

    def __call__(self, lost: Lost) -> list[WriteStat]:
        # Our delete blocks are written, though a row may no longer meet the condition.
        for mine in lost.appended:
            refuse_same_rows(lost, mine, read=True)
        with TaskFiles(lost.spec, 0, round=lost.round) as files:
            changed = (current for unit in lost.units for current in unit.current)
            for each in (*changed, *(appended.current for appended in lost.appended), *lost.appeared):
                here = [change for partition, change in self.changes if partition in (None, each.partition)]
                _change(files, each, here, lost)
            return files.stats()


def _change(files: TaskFiles, each: FileSlice, changes: Iterable[Change], lost: Lost | None = None) -> None:
    base = rows = read_slice(files.spec, each)
    for change in changes:
        rows = change(rows)
    if rows is base:
        return
    updates = rows.column(COMMIT_TIME).null_count
    write_changes(files, each, base, Merged(rows, updates=updates, deletes=base.num_rows - rows.num_rows), lost)


@dataclass(frozen=True)
class _Removal:
    """A `Change` that deletes the rows for which a condition is true (None: all)."""

    where: Condition | None

    def __call__(self, rows: pa.Table) -> pa.Table:
        gone = np.ones(rows.num_rows, bool) if self.where is None else _mask(self.where, rows)
        return remove_where(rows, gone).rows


@dataclass(frozen=True)
class _Setting:
    """A `Change` that sets values in the rows for which a condition is true (None: all)."""

    where: Condition | None
    values: NewValues

    def __call__(self, rows: pa.Table) -> pa.Table:
        chosen = np.ones(rows.num_rows, bool) if self.where is None else _mask(self.where, rows)
        return replaced(rows, np.flatnonzero(chosen), self.values.of)


def replaced(
    rows: pa.Table, places: npt.NDArray[np.int64], values: Callable[[pa.Table], Mapping[str, pa.ChunkedArray]]
) -> pa.Table:
    """Return the rows with new values at some places, which are marked as changed."""
    if not len(places):
        return rows
    old = rows.take(pa.array(places))
    new = with_values(old, values(old))
    known = set(rows.column_names)
    schema = pa.schema([*rows.schema, *(each for each in new.schema if each.name not in known)])
    source = np.arange(rows.num_rows)
    source[places] = rows.num_rows + np.arange(len(places))
    return pa.concat_tables([widened(rows, schema), widened(new, schema)]).take(pa.array(source))


def _mask(where: Condition, rows: pa.Table) -> npt.NDArray[np.bool_]:
    return np.asarray(where.mask(rows).to_numpy(zero_copy_only=False), bool)
