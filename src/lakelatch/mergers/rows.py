"""Mergers of whole rows: one row per key, joins of what several writers know of a key, and the first N rows of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..arguments import instance
from ..errors import InputError
from .choice import Last, LastNonNull, LastUnless, ages, in_time, ranks
from .interface import Groups, Merger

Ties = Literal["last", "first"]
_LAST = Last()


def combine(
    rows: pa.Table,
    *,
    key: str,
    mergers: Mapping[str, Merger],
    ordering: Sequence[str] = (),
    ties: Ties = "last",
    one_by_one: bool = False,
) -> pa.Table:
    """Return one row per key, in order of first occurrence; a column without a merger has the newest row's value.

    Args:
        rows: in order of arrival; columns hold contributions (`Merger.lift`) or merged values.
        ordering: columns by which a row is newer than another, the first one first; null is older than any value.
            () makes the later row newer.
        ties: which of two rows with equal ordering values is newer, the one that arrived last or first.
        one_by_one: make ``last_non_null`` and ``last_unless`` give the result of one call per row, starting from the first
            row: a late row fills a missing value, and does not replace a value that another late row filled.

    Raises:
        InputError: a merged value does not fit its column's type, which the message names.
    """
    rows = rows.combine_chunks()
    encoded = _array(rows, key).dictionary_encode()
    if encoded.null_count:
        raise InputError(f"{encoded.null_count} rows have no {key}, so that nothing says which belong together")
    # Codes are numbered by first occurrence, so groups sorted by code keep the order of the keys.
    codes = np.asarray(encoded.indices).astype(np.int64)
    if len(codes) == len(encoded.dictionary) and not mergers:
        return rows  # with mergers even a single row is merged: a list is cut to its bound
    order, groups = _sorted(codes, [_array(rows, name) for name in ordering], ties)
    places = filling = pa.array(order)
    if ordering and one_by_one:
        # Late rows come first, the earliest arrival last among them, then rows in time: the last one that sets a value wins.
        arrival = np.arange(len(codes))
        filling = pa.array(np.lexsort((np.where(in_time(codes, order), arrival, ~arrival), codes)))
    # A column without a merger needs no sorting of its values.
    last = pa.array(order[groups.offsets[1:] - 1])
    columns = []
    for field in rows.schema:
        values = _array(rows, field.name)
        if (merger := mergers.get(field.name)) is None or merger == _LAST:
            columns.append(values.take(last))
            continue
        try:
            fills = isinstance(merger, LastNonNull | LastUnless)
            columns.append(merger.merge(values.take(filling if fills else places), groups))
        except InputError as e:
            raise InputError(f"column {field.name!r}: {e}", column=field.name) from e
    return pa.Table.from_arrays(columns, schema=rows.schema)


def _sorted(codes: npt.NDArray[np.int64], by: Sequence[pa.Array], ties: Ties) -> tuple[npt.NDArray[np.int64], Groups]:
    """Return the indexes of the rows by key, then age, and the groups of each key."""
    if by:
        arrival = np.arange(len(codes)) if ties == "last" else np.arange(len(codes), 0, -1)
        order = np.lexsort((arrival, *(ages(each) for each in reversed(by)), codes))
    else:
        order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes))
    return order, Groups(np.concatenate([[0], ends]).astype(np.int64))


def join(rows: pa.Table, how: Literal["left", "right", "inner", "outer"], *, left: str, right: str) -> pa.Table:
    """Return the rows that a join of two sources would have; ``rows`` hold by key what both know of it.

    Either source may come first, so rows of one side alone must be stored; a join drops them when it is read.

    Args:
        left: a column that every row of the left source fills, such as its ordering field; ``right`` the same.
    """
    instance(rows, pa.Table, "rows", "a pyarrow Table, as `table.read().to_arrow()`")
    for name in filled(how, left, right):
        rows = rows.filter(pc.is_valid(_array(rows, name)))
    return rows


def filled(how: str, left: str, right: str) -> list[str]:
    """Return the columns that have a value in every row of such a join. Raise `InputError` if there is none of that name."""
    if how not in ("left", "right", "inner", "outer"):
        raise InputError(f"there is no join {how!r}; say left, right, inner or outer")
    return {"left": [left], "right": [right], "inner": [left, right], "outer": []}[how]


def top_n_per_key(rows: pa.Table, count: int, *, key: Sequence[str], by: str) -> pa.Table:
    """Return for each key the ``count`` rows with the greatest ``by``, in their order; among equals the first. Null is least.

    To keep the rows themselves in one row of the key, use the merger ``top_n``.
    """
    instance(rows, pa.Table, "rows", "a pyarrow Table, as `table.read().to_arrow()`")
    refuse_count(count)
    if not rows.num_rows:
        return rows
    codes = np.zeros(rows.num_rows, np.int64)
    for name in key:
        each = np.unique(ranks(_array(rows, name)), return_inverse=True)[1].astype(np.int64)
        # The combined code is made dense again at every column, so that the product never overflows.
        codes = np.unique(codes * (int(each.max()) + 1) + each, return_inverse=True)[1].astype(np.int64)
    order = np.lexsort((np.arange(len(codes)), ~ages(_array(rows, by)), codes))
    starts = np.cumsum(np.bincount(codes)) - np.bincount(codes)
    place: Any = np.arange(len(order)) - starts[codes[order]]
    return rows.take(pa.array(np.sort(order[place < count])))


def refuse_count(count: object) -> None:
    """Raise `InputError` if no key can keep so many rows."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InputError(f"top_n_per_key keeps {count!r} rows; say a whole number from 1")


def _array(rows: pa.Table, name: str) -> pa.Array:
    if name not in rows.column_names:
        raise InputError(f"the rows have no column {name!r}; they have {', '.join(rows.column_names)}", column=name)
    column = rows.column(name).combine_chunks()
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)
