"""Rows into and out of a table in plain Python, by key or by condition; each stages its files and its own rebase.

Memory: the rows handed in and one base file. Larger work belongs to Spark, which runs the same code in its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conflict import Region
from ...errors import InputError
from ...hudi.files import FileGroupId
from ...hudi.merge import Effects
from ...hudi.table import TableConfig, named_values, partition_path, partition_paths, record_keys
from ...hudi.timeline import FileSlice, Snapshot, WriteStat
from ..rebase import merge_rows, refuse_known, refuse_same_rows, remove_marked
from ..session import known_partition
from ..staging import PARTITION_COLUMN, Files, Incoming, Plan, apply, read_slice
from ..turns import TurnTaker, take_turn, targets

if TYPE_CHECKING:
    from ...conditions import Condition, Given
    from ..rebase import Lost
    from ..session import Partition
    from .workspace import Workspace


class Writer(TurnTaker, Protocol):
    """A transaction that writes rows; its workspace is another one after it has begun anew."""

    @property
    def workspace(self) -> Workspace: ...


def upsert(txn: Writer, given: Any, missing: str, zone: str | None) -> None:
    """See `Transaction.upsert`."""
    txn.workspace.refuse_merge("upsert")
    incoming = Incoming(given, txn.url, txn.session.config, missing=missing, zone=zone)

    def planned() -> tuple[Plan, pa.Table] | None:
        now, rows = txn.workspace.current, incoming.rows(txn.workspace.written_schema)
        if not rows.num_rows:
            return None
        spec = txn.workspace.file_spec(rows.schema)
        return Plan(spec, _slices(now, partition_paths(rows, spec.config).unique().to_pylist())), rows

    _apply(txn, planned)


def delete(txn: Writer, given: Any) -> None:
    """See `Transaction.delete`."""
    txn.workspace.refuse_merge("delete")
    config = txn.session.config
    incoming = Incoming(given, txn.url, config)

    def planned() -> tuple[Plan, pa.Table] | None:
        now, schema = txn.workspace.current, txn.workspace.written_schema
        if schema is None:
            return None
        rows = incoming.keys(schema)
        if not rows.num_rows:
            return None
        spec = txn.workspace.file_spec(schema)
        if all(name in rows.column_names for name in config.partition_fields):
            partitions = partition_paths(rows, config).unique().to_pylist()
        else:
            partitions = now.partitions()
            copies = [rows.append_column(PARTITION_COLUMN, pa.repeat(pa.scalar(p), rows.num_rows)) for p in partitions]
            if not copies:
                return None
            rows = pa.concat_tables(copies)
        return Plan(spec, _slices(now, partitions), delete=True), rows

    _apply(txn, planned)


def _apply(txn: Writer, planned: Callable[[], tuple[Plan, pa.Table] | None]) -> None:
    def aimed_at(near: Region) -> Iterable[FileGroupId]:
        if (made := planned()) is None:
            return ()
        slices = {partition: each for partition, each in made[0].slices.items() if near.covers(partition)}
        return map(txn.workspace.changes.place_of, targets(replace(made[0], slices=slices), made[1]))

    take_turn(txn, aimed_at)
    workspace = txn.workspace
    workspace.next_write()
    if (made := planned()) is None:
        return
    plan, rows = made
    hook = workspace.hook_of(_RowsAgain)
    with workspace.staging(), Files(plan.spec, 0) as files:
        files.kept = hook.kept
        apply(plan, rows, files)
        workspace.add(files.stats())
    for place in files.looked:
        workspace.mark_lookup(*place)
    if not plan.delete:
        hook.batches.append(rows)


class _RowsAgain:
    """What a transaction's upserts and deletes by key have done, for its rebase."""

    by_condition: ClassVar = False

    def __init__(self) -> None:
        self.kept: dict[str, Effects] = {}
        self.batches: list[pa.Table] = []

    def __call__(self, lost: Lost) -> list[WriteStat]:
        # Keys to delete that somebody has written since are not looked for: to delete first is an order too.
        for each in lost.appeared:
            for rows in self.batches:
                refuse_known(lost, each, _keys_in(rows, each.partition, lost.spec.config))
        return merge_rows(lost, self.kept)


def _keys_in(rows: pa.Table, partition: str, config: TableConfig) -> pa.Array:
    here = rows.filter(pc.equal(partition_paths(rows, config), partition))
    return pa.chunked_array(record_keys(here, config.record_key_fields)).combine_chunks()


def _slices(now: Snapshot, partitions: Iterable[str]) -> dict[str, tuple[FileSlice, ...]]:
    return {each: tuple(now.file_slices(each)) for each in partitions}


# --- by condition ------------------------------------------------------------------------------------------------


def delete_where(txn: Writer, where: Given, partition: Partition | None) -> None:
    """See `Transaction.delete_where`."""
    txn.workspace.refuse_merge("delete_where")
    if where is None or (isinstance(where, Sequence) and not where):
        raise InputError(
            f"no condition says which rows of {txn.url} are to be deleted ({where!r}); nothing was written. Give one, as "
            "'amount < 10', or say `delete_all`"
        )
    _delete(txn, where, partition)


def delete_all(txn: Writer, partition: Partition | None) -> None:
    """See `Transaction.delete_all`."""
    txn.workspace.refuse_merge("delete_all")
    _delete(txn, (), partition)


def _delete(txn: Writer, where: Given, named: Partition | None) -> None:
    def aimed_at(near: Region) -> Iterable[FileGroupId]:
        now = txn.workspace
        slices = now.may_match(now.snapshot, _path(txn, named), now.condition(where))
        return [each.group for each in slices if near.covers(each.partition)]

    take_turn(txn, aimed_at)
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
    hook = workspace.hook_of(_ConditionsAgain)
    with workspace.staging(), Files(workspace.file_spec(schema), 0) as files:
        for each in slices:
            _remove(files, each, [condition])
        workspace.add(files.stats())
    hook.conditions.append((partition, condition))


def _path(txn: Writer, named: Partition | None) -> str | None:
    """The path of a partition that is named by the values of all partition columns, or by its path."""
    if not isinstance(named, Mapping):
        return named
    config, schema = txn.session.config, txn.workspace.written_schema
    if schema is None:
        raise InputError(f"{txn.url} has no columns yet, and so no partition {dict(named)!r}; write some rows first")
    values = named_values(named, config, schema)
    if missing := [field for field in config.partition_fields if field not in values]:
        raise InputError(
            f"partition={dict(named)!r} lacks {', '.join(missing)} of {txn.url}; put values of some partition columns into "
            "the condition",
            columns=missing,
        )
    return partition_path([values[field] for field in config.partition_fields], config)


class _ConditionsAgain:
    """The conditions by which a transaction deletes, for its rebase: all that landed there is looked at again."""

    by_condition: ClassVar = True

    def __init__(self) -> None:
        self.conditions: list[tuple[str | None, Condition | None]] = []

    def __call__(self, lost: Lost) -> list[WriteStat]:
        for mine in lost.appended:  # whose delete blocks stand, though a row may not meet the condition any more
            refuse_same_rows(lost, mine)
        with Files(lost.spec, 0, round=lost.round) as files:
            changed = (current for unit in lost.units for current in unit.current)
            for each in (*changed, *(appended.current for appended in lost.appended), *lost.appeared):
                here = [where for partition, where in self.conditions if partition in (None, each.partition)]
                _remove(files, each, here, lost)
            return files.stats()


def _remove(files: Files, each: FileSlice, conditions: Iterable[Condition | None], lost: Lost | None = None) -> None:
    base = read_slice(files.spec, each)
    gone = np.zeros(base.num_rows, bool)
    for where in conditions:
        gone |= True if where is None else where.mask(base).to_numpy(zero_copy_only=False)
    remove_marked(files, each, base, gone, lost)
