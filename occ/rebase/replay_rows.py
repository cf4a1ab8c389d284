"""What a transaction changed in some file groups, row by row onto the slices that others have made of them meanwhile.

    slice it began with   own file (lost)   the winner's slice   the new file
    a=1 b=1 c=1           a=2 b=1 c=1       a=1 b=1 c=3          a=2 b=1 c=3

All that it did is in its own superseded file: the rows with its commit time, and the keys that the slice it was made
from has and the file has not. So no incoming row has to be kept, and nobody's code runs again.

A row that both changed: the table's ordering field settles it, as in every merge. Without one, and for a deletion,
which has no ordering value, it is a conflict: the first to land wins. Both deleted it: no conflict. Where the table
merges columns (`Rule`) and the order makes no difference, what ours contributed is merged onto the winner's row, as long as
it is known: what stands in our file was merged with the row before.

The same code runs in Spark's workers, for the units that were given to each. Memory: the rows that ours changed and one
base file.
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
from ...hudi.table import RECORD_KEY
from ...hudi.timeline import FileSlice, WriteStat
from ..staging import (
    COMMIT_TIME,
    Files,
    FileSpec,
    Kept,
    Plan,
    appends,
    held_keys,
    log_change,
    read_slice,
    write_successor,
)
from .rebase import Appended, Lost, OwnFile, Unit


def merge_rows(lost: Lost, kept: Kept | None = None) -> list[WriteStat]:
    """The files of one round. ``kept``: what is known already of what ours did, by the path of its file."""
    for each in lost.appended:
        refuse_same_rows(lost, each)
    with Files(lost.spec, 0, round=lost.round) as files:
        files.kept = kept
        for unit in lost.units:
            merge_unit(lost, unit, files)
        return files.stats()


def copies(lost: Lost, slices: Iterable[FileSlice]) -> list[WriteStat]:
    """The successors of slices in which nothing changes."""
    with Files(lost.spec, 0, round=lost.round) as files:
        for each in slices:
            writer = files.begin(each.partition, lost.file_id(each))
            writer.counts(inserts=0, updates=0, deletes=0)
            writer.write(read_slice(lost.spec, each))
            files.end(writer)
        return files.stats()


def merge_unit(lost: Lost, unit: Unit, files: Files) -> None:
    """The successors of the unit's current slices, where ours changes anything in them; ``files.stats()`` publishes.

    Raises:
        ConflictError: others changed the same rows, and nothing settles it.
    """
    mine = effects_of(lost.spec, unit, files.kept or {})
    if len(unit.current) == 1:
        _redo(lost, unit.current[0], mine, files)
        return
    held = [held_keys(lost.spec, each) for each in unit.current]
    for number, current in enumerate(unit.current):
        _redo(lost, current, _part(mine, held, number), files)


def _part(mine: Effects, held: list[pa.Array], number: int) -> Effects:
    """What concerns one of several slices, by the keys that each holds; what none of them holds goes to the first one."""

    def rows(table: pa.Table) -> pa.Table:
        return table.filter(_belongs(_array(table, RECORD_KEY), held, number))

    removed = mine.removed.filter(_belongs(mine.removed, held, number))
    return Effects(rows(mine.updated), rows(mine.added), removed, mine.settled)


def _belongs(keys: pa.Array, held: list[pa.Array], number: int) -> pa.Array:
    here = pc.is_in(keys, value_set=held[number])
    return here if number else pc.or_(here, pc.invert(pc.is_in(keys, value_set=pa.concat_arrays(held))))


def _redo(lost: Lost, current: FileSlice, mine: Effects, files: Files) -> None:
    if not (mine.updated.num_rows or mine.added.num_rows or len(mine.removed)):
        return
    ordering = Plan(lost.spec).ordering
    base = read_slice(lost.spec, current)
    rows = pa.concat_tables([mine.updated, mine.added])
    theirs, rule = _theirs(lost, base), lost.spec.rule
    _refuse_same(lost, theirs, mine.removed)
    if rule.plain:
        alone = not ordering
    else:
        alone = mine.settled or not (ordering or rule.commutes(lost.spec.schema))
    if alone:
        _refuse_same(lost, theirs, _array(rows, RECORD_KEY))
        missing = _not_in(_array(mine.updated, RECORD_KEY), _array(base, RECORD_KEY))
        if len(missing):
            raise lost.same_row(missing.slice(0, 100).to_pylist())
    left = remove(base, mine.removed) if len(mine.removed) else Merged(base)
    merged = _merged(left.rows, rows, theirs, lost.spec, settled=mine.settled)
    done = Merged(merged.rows, merged.inserts, merged.updates, left.deletes)
    path = write_successor(files, current, done, lost.file_id(current))
    if files.kept is not None and path:
        files.kept[path] = lambda: mine


def _merged(base: pa.Table, rows: pa.Table, theirs: pa.Table, spec: FileSpec, *, settled: bool) -> Merged:
    """The table's rule decides between ours and theirs; what was there before both, ours has settled already."""
    if not rows.num_rows:
        return Merged(base)
    if not settled:
        return merge_by(spec.rule, base, rows)
    both = pc.is_in(rows.column(RECORD_KEY), value_set=_array(theirs, RECORD_KEY))
    first = merge_by(spec.rule, base, rows.filter(both))
    rest = merge(first.rows, rows.filter(pc.invert(both)))
    return Merged(rest.rows, rest.inserts, first.updates + rest.updates)


def _theirs(lost: Lost, rows: pa.Table, *more: str) -> pa.Table:
    """Key and commit time of the rows that others have set since ours began, and ``more`` columns."""
    told = rows.select([COMMIT_TIME, RECORD_KEY, *more])
    times = plain(told.column(COMMIT_TIME))
    return told.filter(pc.is_in(times, value_set=pa.array(sorted(lost.winners), pa.string())))


def _refuse_same(lost: Lost, theirs: pa.Table, keys: pa.Array) -> None:
    """Raise when one of these is the key of a row that others changed."""
    if not len(keys) or not theirs.num_rows:
        return
    same = theirs.filter(pc.is_in(theirs.column(RECORD_KEY), value_set=keys))
    if same.num_rows:
        winner = same.column(COMMIT_TIME)[0].as_py()
        raise lost.same_row(same.column(RECORD_KEY).slice(0, 100).to_pylist(), winner=winner)


def refuse_known(lost: Lost, slice_: FileSlice, keys: pa.Array) -> None:
    """Raise when others have written one of these keys into a slice where we had not found it."""
    if slice_.logs:
        rows = read_slice(lost.spec, slice_, columns=())
    else:
        with lost.spec.store.open(slice_.path) as stream:
            file = StoredParquet(lost.spec.store, slice_.path, stream)
            rows = file.read([COMMIT_TIME, RECORD_KEY], use_threads=False)
    _refuse_same(lost, _theirs(lost, rows), keys)


# --- log files -----------------------------------------------------------------------------------------------------


def refuse_same_rows(lost: Lost, appended: Appended, *, read: bool = False) -> None:
    """Raise when others have changed rows that our log files change too, and nothing settles it for every reader.

    ``read``: what ours wrote came of what it had read there, so nothing settles that either.

    An ordering field settles it, unless its values are equal: then readers take the row of the larger T, and before and
    after a compaction that must be the one that landed later, which is ours. To delete, and to write again what others
    have deleted, settles nothing: a delete has no ordering value. Nor does it where the table merges columns: our row was
    merged with the one that we found.

    Raises:
        ConflictError: names the rows; a retry has a larger T, and sees theirs.
    """
    spec = lost.spec
    ordering = Plan(spec).ordering if spec.rule.as_hudi else ()
    rows, deleted = _logged(spec, appended)
    told = read_slice(spec, appended.current, columns=ordering)
    theirs = _theirs(lost, told, *ordering)
    _refuse_same(lost, theirs, deleted)
    keys = _array(rows, RECORD_KEY)
    gone = _not_in(keys, _array(told, RECORD_KEY))
    # By its larger T a delete of theirs, also of a key that was not there, would take our row in turn.
    later = tuple(log for log in appended.current.logs if log.instant in lost.winners and log.instant > spec.instant)
    taken = cleared_keys(spec.store, replace(appended.current, logs=later)).intersection(keys.to_pylist())
    # And by its larger T a row of theirs hides our delete, also one that lost against the base file's, which then comes back.
    for each in logged_rows(spec.store, later, [RECORD_KEY]) if len(deleted) else ():
        theirs_too = _array(each, RECORD_KEY)
        taken.update(theirs_too.filter(pc.is_in(theirs_too, value_set=deleted)).to_pylist())
    if taken:
        raise lost.same_row(taken)
    if appended.old is not None and len(gone):
        before = _array(read_slice(spec, appended.old, columns=()), RECORD_KEY)
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
    """Raise when others have changed, deleted or inserted rows with one of these keys, which ours has looked up there."""
    now = read_slice(lost.spec, appended.current, columns=())
    _refuse_same(lost, _theirs(lost, now), keys)
    if appended.old is not None:
        before = _array(read_slice(lost.spec, appended.old, columns=()), RECORD_KEY)
        gone = _not_in(before.filter(pc.is_in(before, value_set=keys)), _array(now, RECORD_KEY))
        if len(gone):
            raise lost.same_row(gone.slice(0, 100).to_pylist())


def write_changes(files: Files, slice_: FileSlice, base: pa.Table, merged: Merged, lost: Lost | None = None) -> None:
    """What was made of the rows of a slice (``base``) is in its successor, or in a log file onto it.

    Args:
        lost: in a round of a rebase. Where ours had a base file, a base file takes its place.

    Raises:
        ConflictError: a log file of ours cannot say it, because what others wrote there is newer.
    """
    if not merged.changed:
        return
    whole = lost is not None and any(slice_ in unit.current for unit in lost.units)
    change = None if whole else log_change(files.spec, slice_, base, merged)
    if change is None:
        if lost is not None and not whole and appends(files.spec, slice_):
            raise lost.same_row(_array(merged.rows, RECORD_KEY).slice(0, 100).to_pylist())
        write_successor(files, slice_, merged, lost.file_id(slice_) if lost else "")
        return
    if lost is not None:
        keys = [*change.deleted, *(change.rows.column(RECORD_KEY).to_pylist() if change.rows is not None else ())]
        mine = pc.is_in(base.column(RECORD_KEY), value_set=pa.array(keys, pa.string()))
        _refuse_later(lost, base.select([COMMIT_TIME, RECORD_KEY]).filter(mine))
    files.append(slice_, change.rows, change.deleted, inserts=merged.inserts, inserted=merged.inserted_keys)


def _refuse_later(lost: Lost, rows: pa.Table) -> None:
    """Raise when one of these rows, which a log file of ours shall change, has a larger T: readers would keep it."""
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
    names = [RECORD_KEY, *Plan(spec).ordering]
    table = pa.concat_tables([each.select(names) for each in rows]) if rows else _none(names, spec)
    return table, pa.array(deleted, pa.string())


def _none(names: list[str], spec: FileSpec) -> pa.Table:
    return pa.table(
        {name: pa.array([], pa.string() if name == RECORD_KEY else spec.schema.field(name).type) for name in names}
    )


# --- what ours did -----------------------------------------------------------------------------------------------


def effects_of(spec: FileSpec, unit: Unit, kept: Kept) -> Effects:
    """What the transaction of ``spec`` did in its files of this unit."""
    found = [kept[own.path]() if own.path in kept else _effects(spec, own) for own in unit.ours]
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
    """One row of each key: of a key that stood in several file groups each of them was given the same row."""
    codes = np.asarray(pc.dictionary_encode(_array(rows, RECORD_KEY)).indices)
    _, first = np.unique(codes, return_index=True)
    return rows if len(first) == rows.num_rows else rows.take(pa.array(np.sort(first)))


def _effects(spec: FileSpec, own: OwnFile) -> Effects:
    rows, keys = _rows_of(spec, own.path)
    before = held_keys(spec, own.old) if own.old else pa.array([], pa.string())
    known = pc.is_in(rows.column(RECORD_KEY), value_set=before)
    return Effects(rows.filter(known), rows.filter(pc.invert(known)), _not_in(before, keys), settled=True)


def _rows_of(spec: FileSpec, path: str) -> tuple[pa.Table, pa.Array]:
    """The rows of a file that the transaction of ``spec`` has set, and the keys of all.

    Column by column, texts as codes of their dictionary: the few rows that are wanted cost little more than their bytes.
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


def _array(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name).combine_chunks()
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
