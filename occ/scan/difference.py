"""The difference between two states of a table, row by row: added, changed, removed.

A row is identified by partition path and record key. File groups with the same files in both states are not read. For the
others both states are compared in memory, group by group. Rows found on one side only are kept until their partition ends,
because a clustering or an overwrite moves rows to other file groups. Several rows with one key are compared in order, the
first with the first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...hudi.table import RECORD_KEY, as_numbers
from ...hudi.timeline import FileSlice, Time
from .of_table import scan_slices, wanted_of

if TYPE_CHECKING:
    from ...hudi.timeline import Snapshot
    from ..session import Session
    from .row_groups import Wanted

_NTH = "_lakelatch_nth"


@dataclass(frozen=True, slots=True)
class Difference:
    """Rows of one partition; ``before`` and ``after`` have the record key and the data columns of the later state.

    Attributes:
        partition: its path.
        kind: added, changed or removed.
        before: the earlier rows; None for added ones.
        after: the later rows, in the same order; None for removed ones.
    """

    partition: str
    kind: str
    before: pa.Table | None
    after: pa.Table | None

    @property
    def rows(self) -> int:
        """The number of rows."""
        rows = self.before if self.after is None else self.after
        assert rows is not None
        return int(rows.num_rows)


def differences(session: Session, before: Time, after: Time) -> Iterator[Difference]:
    """Yield the differences, partition by partition, between the states as of two requested times.

    Raises:
        InputError: one is not a time, the table had no commit yet, or the first is the later one.
    """
    session.require_open()
    first, second = session.time_of(before, "before"), session.time_of(after, "after")
    if first > second:
        raise InputError(f"{first} is later than {second}; name the earlier state first")
    old, new = session.view(as_of=first), session.view(as_of=second)
    names = [RECORD_KEY, *(new.arrow_schema() or pa.schema([])).names]

    wanted = wanted_of(session, new.arrow_schema(), names, None)
    yield from between(session, old.snapshot, new.snapshot, wanted)


def between(
    session: Session, old: Snapshot, new: Snapshot, wanted: Wanted, partitions: Iterable[str] | None = None
) -> Iterator[Difference]:
    """Yield as `differences` between two snapshots; ``wanted`` has the record key and no condition.

    ``partitions``: only these; None: all.
    """

    def rows_of(each: FileSlice | None) -> pa.Table:
        return _numbered(scan_slices(session, [each] if each else [], wanted).to_arrow())

    for partition in sorted({*old.partitions(), *new.partitions()} if partitions is None else set(partitions)):
        was = {each.file_id: each for each in old.file_slices(partition)}
        now = {each.file_id: each for each in new.file_slices(partition)}
        gone, come = [], []
        for group in sorted({*was, *now}):
            a, b = was.get(group), now.get(group)
            if a is not None and b is not None and a.paths == b.paths:
                continue
            found = _compared(rows_of(a), rows_of(b))
            gone.append(found.removed)
            come.append(found.added)
            yield from _told(partition, "changed", found.before, found.after)
        # Rows without a partner in their own file group may have moved to another group of the partition.
        if gone:
            found = _compared(*(_numbered(pa.concat_tables(rows).drop_columns([_NTH])) for rows in (gone, come)))
            yield from _told(partition, "changed", found.before, found.after)
            yield from _told(partition, "removed", found.removed, None)
            yield from _told(partition, "added", None, found.added)


@dataclass(frozen=True, slots=True)
class _Compared:
    removed: pa.Table
    added: pa.Table
    before: pa.Table
    after: pa.Table


def _compared(before: pa.Table, after: pa.Table) -> _Compared:
    keys = _keys(before)
    place = pc.index_in(_keys(after), value_set=keys)
    there = pc.is_valid(place)
    met = pc.drop_null(place)
    left = np.ones(before.num_rows, dtype=bool)
    left[met.to_numpy(zero_copy_only=False)] = False
    was, now = before.take(met), after.filter(there)
    differ = np.zeros(now.num_rows, dtype=bool)
    for name in now.column_names:
        differ |= ~_equal(was.column(name), now.column(name))
    mask = pa.array(differ)
    return _Compared(
        before.filter(pa.array(left)), after.filter(pc.invert(there)), was.filter(mask), now.filter(mask)
    )  # fmt: skip


def _keys(rows: pa.Table) -> pa.Array:
    """Join number and key into one text, unique per pair because a number has no colon."""
    number = rows.column(_NTH).cast(pa.string())
    return pc.binary_join_element_wise(number, rows.column(RECORD_KEY), ":").combine_chunks()


def _numbered(rows: pa.Table) -> pa.Table:
    """Add a column with the number of each row among those of its key."""
    keys = rows.column(RECORD_KEY)
    if len(pc.unique(keys)) == rows.num_rows:
        numbers = np.zeros(rows.num_rows, dtype=np.int64)
    else:
        _, inverse = np.unique(keys.to_numpy(zero_copy_only=False), return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        starts = np.r_[0, np.flatnonzero(np.diff(inverse[order])) + 1]
        numbers = np.empty(rows.num_rows, dtype=np.int64)
        numbers[order] = np.arange(rows.num_rows) - np.repeat(starts, np.diff(np.r_[starts, rows.num_rows]))
    return rows.append_column(_NTH, pa.array(numbers))


def _equal(a: pa.ChunkedArray, b: pa.ChunkedArray) -> np.ndarray:
    """Mark equal values; null equals null, and NaN equals NaN."""
    if pa.types.is_nested(a.type):
        was, now = (column.cast(as_numbers(column.type)).to_pylist() for column in (a, b))
        return np.array([repr(x) == repr(y) for x, y in zip(was, now, strict=True)], dtype=bool)
    same = pc.fill_null(pc.equal(a, b), False)
    same = pc.or_(same, pc.and_(pc.is_null(a), pc.is_null(b)))
    if pa.types.is_floating(a.type):
        both = pc.and_(pc.is_nan(a), pc.is_nan(b))
        same = pc.or_(same, pc.fill_null(both, False))
    return np.asarray(same.to_numpy())


def _told(partition: str, kind: str, before: pa.Table | None, after: pa.Table | None) -> Iterator[Difference]:
    found = Difference(
        partition, kind, *(None if each is None else each.drop_columns([_NTH]) for each in (before, after))
    )  # fmt: skip
    if found.rows:
        yield found
