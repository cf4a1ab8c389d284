"""Replay a transaction's changes, row by row, onto the slices that others made of its file groups.

    slice it began with   own file (lost)   the winner's slice   the new file
    a=1 b=1 c=1           a=2 b=1 c=1       a=1 b=1 c=3          a=2 b=1 c=3

All its changes are in its own superseded file: the rows with its commit time, and the keys that the original slice
has and the file has not. So no incoming row has to be kept, and no user code runs again.

If both changed a row, the table's ordering field decides, as in every merge. Without one, and for a deletion, which has
no ordering value, it is a conflict, and the first to commit wins. If both deleted it, there is no conflict. If the
table merges columns (`Rule`) and the order makes no difference, our contribution is merged onto the winner's row,
provided it is known: the row in our file was already merged with the row before.

The same code runs in Spark's workers, each with its own units. Memory: the rows that we changed and one base file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import CorruptTableError
from ...hudi.files import DELETE, StoredParquet, Torn, read_blocks
from ...hudi.merge import (
    Effects,
    Merged,
    cleared_keys,
    comparable,
    logged_rows,
    merge,
    merge_by,
    plain,
    remove,
    stored_texts,
)
from ...hudi.table import RECORD_KEY, array_of_column
from ...hudi.timeline import FileSlice, WriteStat
from ..staging import (
    COMMIT_TIME,
    FileSpec,
    Kept,
    TaskFiles,
    WritePlan,
    appends,
    held_keys,
    log_change,
    read_slice,
    write_successor,
)
from .rebase import Appended, Lost, OwnFile, Unit


def merge_rows(lost: Lost, kept: Kept | None = None) -> list[WriteStat]:
    """Write the files of one round. ``kept``: changes of ours that are already known, by the path of their file."""
    # First, because this only reads: a conflict found here has cost no file.
    for each in lost.appended:
        refuse_same_rows(lost, each)
    with TaskFiles(lost.spec, 0, round=lost.round) as files:
        files.kept = kept
        for unit in lost.units:
            merge_unit(lost, unit, files)
        return files.stats()


def copies(lost: Lost, slices: Iterable[FileSlice]) -> list[WriteStat]:
    """Write successors with the same rows as these slices."""
    with TaskFiles(lost.spec, 0, round=lost.round) as files:
        for each in slices:
            writer = files.begin(each.partition, lost.file_id(each))
            # The rows are copies, so the statistics of the commit must not count them as written by ours.
            writer.counts(inserts=0, updates=0, deletes=0)
            writer.write(read_slice(lost.spec, each))
            files.end(writer)
        return files.stats()


def merge_unit(lost: Lost, unit: Unit, files: TaskFiles) -> None:
    """Write successors of the unit's current slices that we change; ``files.stats()`` publishes them.

    Raises:
        ConflictError: others changed the same rows, and nothing decides between them.
    """
    mine = effects_of(lost.spec, unit, files.kept or {})
    if len(unit.current) == 1:
        _redo(lost, unit.current[0], mine, files)
        return
    # A winner moved rows between file groups, so only the keys say which slice has a row now.
    held = [held_keys(lost.spec, each) for each in unit.current]
    for number, current in enumerate(unit.current):
        _redo(lost, current, _part(mine, held, number), files)


def _part(mine: Effects, held: list[pa.Array], number: int) -> Effects:
    """The effects on one of several slices, by the keys that each holds; keys that none holds go to the first one."""

    def rows(table: pa.Table) -> pa.Table:
        return table.filter(_belongs(array_of_column(table, RECORD_KEY), held, number))

    removed = mine.removed.filter(_belongs(mine.removed, held, number))
    return Effects(rows(mine.updated), rows(mine.added), removed, mine.settled)


def _belongs(keys: pa.Array, held: list[pa.Array], number: int) -> pa.Array:
    here = pc.is_in(keys, value_set=held[number])
    # Keys that no slice holds are inserts, and exactly one slice must take them.
    return here if number else pc.or_(here, pc.invert(pc.is_in(keys, value_set=pa.concat_arrays(held))))


def _redo(lost: Lost, current: FileSlice, mine: Effects, files: TaskFiles) -> None:
    if not (mine.updated.num_rows or mine.added.num_rows or len(mine.removed)):
        return
    ordering = WritePlan(lost.spec).ordering
    base = read_slice(lost.spec, current)
    rows = pa.concat_tables([mine.updated, mine.added])
    theirs, rule = _theirs(lost, base), lost.spec.rule
    _refuse_same(lost, theirs, mine.removed)
    if rule.plain:
        alone = not ordering
    else:
        alone = mine.settled or not (ordering or rule.commutes(lost.spec.schema))
    if alone:
        _refuse_same(lost, theirs, array_of_column(rows, RECORD_KEY))
        # An update of a row that a winner deleted has no row to go to. Inserting it would undo the delete.
        missing = _not_in(array_of_column(mine.updated, RECORD_KEY), array_of_column(base, RECORD_KEY))
        if len(missing):
            raise lost.same_row(missing.slice(0, 100).to_pylist())
    left = remove(base, mine.removed) if len(mine.removed) else Merged(base)
    merged = _merged(left.rows, rows, theirs, lost.spec, settled=mine.settled)
    done = Merged(merged.rows, merged.inserts, merged.updates, left.deletes)
    path = write_successor(files, current, done, lost.file_id(current))
    if files.kept is not None and path:
        # The next round then need not read this file to find our changes in it.
        files.kept[path] = lambda: mine


def _merged(base: pa.Table, rows: pa.Table, theirs: pa.Table, spec: FileSpec, *, settled: bool) -> Merged:
    """Merge our rows by the table's rule; where no other changed the row, ours is final already."""
    if not rows.num_rows:
        return Merged(base)
    if not settled:
        return merge_by(spec.rule, base, rows)
    both = pc.is_in(rows.column(RECORD_KEY), value_set=array_of_column(theirs, RECORD_KEY))
    first = merge_by(spec.rule, base, rows.filter(both))
    rest = merge(first.rows, rows.filter(pc.invert(both)))
    return Merged(rest.rows, rest.inserts, first.updates + rest.updates)


def _theirs(lost: Lost, rows: pa.Table, *more: str) -> pa.Table:
    """Key and commit time, and the columns ``more``, of the rows that others have set since our begin."""
    told = rows.select([COMMIT_TIME, RECORD_KEY, *more])
    times = plain(told.column(COMMIT_TIME))
    return told.filter(pc.is_in(times, value_set=pa.array(sorted(lost.winners), pa.string())))


def _refuse_same(lost: Lost, theirs: pa.Table, keys: pa.Array) -> None:
    """Raise if one of these keys belongs to a row that others changed."""
    if not len(keys) or not theirs.num_rows:
        return
    same = theirs.filter(pc.is_in(theirs.column(RECORD_KEY), value_set=keys))
    if same.num_rows:
        winner = same.column(COMMIT_TIME)[0].as_py()
        raise lost.same_row(same.column(RECORD_KEY).slice(0, 100).to_pylist(), winner=winner)


def refuse_known(lost: Lost, slice_: FileSlice, keys: pa.Array) -> None:
    """Raise if others have written one of these keys into a slice that did not have it in our snapshot."""
    if slice_.logs:
        rows = read_slice(lost.spec, slice_, columns=())
    else:
        with lost.spec.store.open(slice_.path) as stream:
            file = StoredParquet(lost.spec.store, slice_.path, stream)
            rows = file.read([COMMIT_TIME, RECORD_KEY], use_threads=False)
    _refuse_same(lost, _theirs(lost, rows), keys)


# --- log files -----------------------------------------------------------------------------------------------------


def refuse_same_rows(lost: Lost, appended: Appended, *, read: bool = False) -> None:
    """Raise if others changed rows that our log files change too, and nothing decides for every reader.

    ``read``: our values were computed from the rows read there, so nothing decides between them.

    An ordering field decides, unless its values are equal: then readers take the row of the larger T, and before and
    after a compaction that must be the later commit, which is ours. Nothing decides between a delete and a write,
    because a delete has no ordering value, nor on tables that merge columns, because our row was merged with the one in
    our snapshot.

    Raises:
        ConflictError: names the rows. A retry is safe: it has a larger T, and sees theirs.
    """
    spec = lost.spec
    ordering = WritePlan(spec).ordering if spec.rule.as_hudi else ()
    rows, deleted = _logged(spec, appended)
    told = read_slice(spec, appended.current, columns=ordering)
    theirs = _theirs(lost, told, *ordering)
    _refuse_same(lost, theirs, deleted)
    keys = array_of_column(rows, RECORD_KEY)
    gone = _not_in(keys, array_of_column(told, RECORD_KEY))
    # A delete of theirs with a larger T would remove our row, even if the key was not there when they deleted it.
    later = tuple(log for log in appended.current.logs if log.instant in lost.winners and log.instant > spec.instant)
    taken = cleared_keys(spec.store, replace(appended.current, logs=later)).intersection(keys.to_pylist())
    # A row of theirs with a larger T hides our delete. If that row lost against the base file's, the base row comes
    # back.
    for each in logged_rows(spec.store, later, [RECORD_KEY]) if len(deleted) else ():
        theirs_too = array_of_column(each, RECORD_KEY)
        taken.update(theirs_too.filter(pc.is_in(theirs_too, value_set=deleted)).to_pylist())
    if taken:
        raise lost.same_row(taken)
    if appended.old is not None and len(gone):
        before = array_of_column(read_slice(spec, appended.old, columns=()), RECORD_KEY)
        if (lacking := gone.filter(pc.is_in(gone, value_set=before))) and len(lacking):
            raise lost.same_row(lacking.slice(0, 100).to_pylist())
    if not ordering or read:
        _refuse_same(lost, theirs, keys)
        return
    ours = dict(zip(keys.to_pylist(), _values(rows, ordering), strict=True))
    times = (theirs.column(n).to_pylist() for n in (RECORD_KEY, COMMIT_TIME))
    for key, time, values in zip(*times, _values(theirs, ordering), strict=True):
        if key in ours and time > spec.instant and not any(map(_differ, ours[key], values)):
            raise lost.same_row([key], winner=time)


def _values(rows: pa.Table, names: Iterable[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(comparable(rows.column(name)).to_pylist() for name in names), strict=True))


def refuse_read_rows(lost: Lost, appended: Appended, keys: pa.Array) -> None:
    """Raise if others changed, deleted or inserted rows with one of these keys, which we looked up there."""
    now = read_slice(lost.spec, appended.current, columns=())
    _refuse_same(lost, _theirs(lost, now), keys)
    if appended.old is not None:
        before = array_of_column(read_slice(lost.spec, appended.old, columns=()), RECORD_KEY)
        gone = _not_in(before.filter(pc.is_in(before, value_set=keys)), array_of_column(now, RECORD_KEY))
        if len(gone):
            raise lost.same_row(gone.slice(0, 100).to_pylist())


def write_changes(
    files: TaskFiles, slice_: FileSlice, base: pa.Table, merged: Merged, lost: Lost | None = None
) -> None:
    """Write the merged rows of a slice (``base``) into its successor, or as a log file onto it.

    Args:
        lost: in a round of a rebase. A base file of ours is then replaced by a base file.

    Raises:
        ConflictError: a log file of ours cannot express the change, because others wrote newer rows there.
    """
    if not merged.changed:
        return
    whole = lost is not None and any(slice_ in unit.current for unit in lost.units)
    change = None if whole else log_change(files.spec, slice_, base, merged)
    if change is None:
        if lost is not None and not whole and appends(files.spec, slice_):
            raise lost.same_row(array_of_column(merged.rows, RECORD_KEY).slice(0, 100).to_pylist())
        write_successor(files, slice_, merged, lost.file_id(slice_) if lost else "")
        return
    if lost is not None:
        keys = [*change.deleted, *(change.rows.column(RECORD_KEY).to_pylist() if change.rows is not None else ())]
        mine = pc.is_in(base.column(RECORD_KEY), value_set=pa.array(keys, pa.string()))
        _refuse_later(lost, base.select([COMMIT_TIME, RECORD_KEY]).filter(mine))
    files.append(slice_, change.rows, change.deleted, inserts=merged.inserts, inserted=merged.inserted_keys)


def _refuse_later(lost: Lost, rows: pa.Table) -> None:
    """Raise if a row that our log file changes has a larger T: readers would keep that row."""
    later = rows.filter(pc.greater(rows.column(COMMIT_TIME), lost.spec.instant))
    if later.num_rows:
        winner = later.column(COMMIT_TIME)[0].as_py()
        raise lost.same_row(later.column(RECORD_KEY).slice(0, 100).to_pylist(), winner=winner)


def _differ(one: Any, other: Any) -> bool:
    return one is not None and other is not None and bool(one < other or one > other)


def _logged(spec: FileSpec, appended: Appended) -> tuple[pa.Table, pa.Array]:
    """The rows that our log files set, and the keys that they delete."""
    rows, deleted = [], []
    for stat in appended.logs:
        for block in read_blocks(spec.store.body(stat.path) or b"", stat.path):
            if isinstance(block, Torn):
                raise CorruptTableError(f"{stat.path} is torn from byte {block.start} to {block.end}", path=stat.path)
            if block.kind == DELETE:
                deleted += [key for key, _ in block.deletes()]
            else:
                rows.append(block.rows())
    names = [RECORD_KEY, *WritePlan(spec).ordering]
    table = pa.concat_tables([each.select(names) for each in rows]) if rows else _none(names, spec)
    return table, pa.array(deleted, pa.string())


def _none(names: list[str], spec: FileSpec) -> pa.Table:
    return pa.table(
        {name: pa.array([], pa.string() if name == RECORD_KEY else spec.schema.field(name).type) for name in names}
    )


# --- what ours did -----------------------------------------------------------------------------------------------


def effects_of(spec: FileSpec, unit: Unit, kept: Kept) -> Effects:
    """The effects of the transaction of ``spec`` in its files of this unit."""
    found = [kept[own.path]() if own.path in kept else _effects(spec, own) for own in unit.ours]
    # Kept effects may hold rows as they came in, effects read from a file hold merged rows (``settled``). A unit must
    # not mix the two, so all are read from the files then.
    if len({each.settled for each in found}) > 1:
        found = [_effects(spec, own) for own in unit.ours]
    if len(found) == 1:
        return found[0]
    return Effects(
        _once(pa.concat_tables([each.updated for each in found], promote_options="permissive")),
        _once(pa.concat_tables([each.added for each in found], promote_options="permissive")),
        pa.concat_arrays([each.removed for each in found]),
        found[0].settled,
    )


def _once(rows: pa.Table) -> pa.Table:
    """Keep one row per key: if several file groups held a key, each was given the same row."""
    codes = np.asarray(pc.dictionary_encode(array_of_column(rows, RECORD_KEY)).indices)
    _, first = np.unique(codes, return_index=True)
    return rows if len(first) == rows.num_rows else rows.take(pa.array(np.sort(first)))


def _effects(spec: FileSpec, own: OwnFile) -> Effects:
    rows, keys = _rows_of(spec, own.path)
    before = held_keys(spec, own.old) if own.old else pa.array([], pa.string())
    known = pc.is_in(rows.column(RECORD_KEY), value_set=before)
    # A key that the old slice lacks was inserted by ours; a key that our file lacks was deleted.
    return Effects(rows.filter(known), rows.filter(pc.invert(known)), _not_in(before, keys), settled=True)


def _rows_of(spec: FileSpec, path: str) -> tuple[pa.Table, pa.Array]:
    """The rows of a file that the transaction of ``spec`` has set, and the keys of all rows.

    Reads column by column, texts as dictionary codes, so that the few rows wanted cost little more than their bytes.
    """
    with spec.store.open(path) as stream:
        metadata = StoredParquet(spec.store, path, stream).metadata
        file = StoredParquet(spec.store, path, stream, metadata=metadata, read_dictionary=stored_texts(metadata))

        def column(name: str) -> pa.ChunkedArray:
            return file.read([name], use_threads=False).column(0)

        mine = pc.equal(column(COMMIT_TIME).cast(pa.string()), spec.instant)
        keys = column(RECORD_KEY).cast(pa.string())
        found = {RECORD_KEY: keys.filter(mine)}
        there = set(file.schema_arrow.names)
        for each in spec.schema:
            found[each.name] = (
                column(each.name).filter(mine).cast(each.type)
                if each.name in there
                else pa.nulls(len(found[RECORD_KEY]), each.type)
            )
    return pa.table(found), keys.combine_chunks()


def _not_in(keys: pa.Array, among: pa.Array) -> pa.Array:
    return keys.filter(pc.invert(pc.is_in(keys, value_set=among)))
