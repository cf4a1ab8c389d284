"""Rows that move: where keys are unique in the whole table, an upsert takes a row away from the partition that it was in.

The row is deleted there and written here in one commit. The key is under a unique constraint (`table_keys`), so the commit
conflicts with any other that writes the key since the begin, into whatever partition; the verbs then run again. What moves
rows is not merged again: its deletes were chosen by the rows that it found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...hudi.table import partition_paths, record_keys
from ..entries import TABLE_KEYS
from ..staging import PARTITION_COLUMN, FileSpec, TaskFiles, WritePlan, apply, holders, slices_by_partition

if TYPE_CHECKING:
    from ...hudi.timeline import Snapshot
    from ..session import Session
    from ..workspace import Workspace


def moves_rows(session: Session) -> bool:
    """Return whether upserts into the table look for their keys in other partitions."""
    return session.settings.unique_keys == TABLE_KEYS and bool(session.config.partition_fields)


def without_moved(workspace: Workspace, spec: FileSpec, rows: pa.Table) -> pa.Table:
    """Delete stored rows that have the keys of these rows in other partitions; return the rows that are to be written here.

    Rows that are older than a stored one, by the ordering field, are left out.
    """
    elsewhere = stored_elsewhere(spec, workspace.current, rows)
    if not elsewhere.num_rows:
        return rows
    newer = take_away(workspace, spec, elsewhere)
    if not len(newer):
        return rows
    return rows.filter(pc.invert(pc.is_in(record_keys(rows, spec.config.record_key_fields), value_set=newer)))


def stored_elsewhere(spec: FileSpec, current: Snapshot, rows: pa.Table) -> pa.Table:
    """Return the keys of rows that another partition holds, with the rows' ordering values; `PARTITION_COLUMN` names it."""
    config = spec.config
    every = record_keys(rows, config.record_key_fields)
    keys = every.unique()
    _, first = np.unique(np.asarray(pc.index_in(every, value_set=keys)), return_index=True)
    here = np.asarray(partition_paths(rows, config).take(pa.array(first)).to_pylist(), object)
    names = [*config.record_key_fields, *(name for name in config.newer_by if name in rows.column_names)]
    pieces = [rows.select(names).slice(0, 0).append_column(PARTITION_COLUMN, pa.array([], pa.string()))]
    plan = WritePlan(spec, slices_by_partition(current.file_slices()))
    for partition in plan.slices:
        if len(places := np.flatnonzero(_held(plan, partition, keys) & (here != partition))):
            some = rows.select(names).take(pa.array(first[places]))
            pieces.append(some.append_column(PARTITION_COLUMN, pa.repeat(pa.scalar(partition), len(places))))
    return pa.concat_tables(pieces)


def take_away(workspace: Workspace, spec: FileSpec, elsewhere: pa.Table) -> pa.Array:
    """Stage the deletion of what `stored_elsewhere` found; return the record keys whose stored rows are newer, and stay."""
    slices = slices_by_partition(workspace.current.file_slices())
    named = elsewhere.column(PARTITION_COLUMN).unique().to_pylist()
    plan = WritePlan(spec, {each: slices[each] for each in named}, delete=True)
    with workspace.staging(), TaskFiles(spec, 0, threads=workspace.session.threads, report=workspace.report) as files:
        apply(plan, elsewhere, files)
        workspace.add(files.stats())
    for place in files.looked:
        workspace.mark_lookup(*place)
    workspace.runs_again()
    keys = record_keys(elsewhere, spec.config.record_key_fields)
    if not spec.config.newer_by:
        return keys.slice(0, 0)
    left, unique = WritePlan(spec, slices_by_partition(workspace.current.file_slices())), keys.unique()
    stay = [unique.filter(pa.array(_held(left, each, unique))) for each in named]
    return pa.concat_arrays(stay)


def _held(plan: WritePlan, partition: str, keys: pa.Array) -> npt.NDArray[np.bool_]:
    """Mark the keys that a partition holds."""
    marks = np.zeros(len(keys), bool)
    for _, found, _ in holders(plan, partition, keys):
        marks |= found
    return marks
