"""A total order of the values of any scalar type, as integers: null, then values, then NaN, as Spark sorts them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError

_Ints = npt.NDArray[np.int64]


def refuse_unordered(kind: pa.DataType, what: str) -> None:
    """Raise `InputError` unless values of this type have an order."""
    if pa.types.is_nested(kind) or pa.types.is_null(kind) or pa.types.is_dictionary(kind):
        raise InputError(
            f"{what} needs values that can be compared, and those of {kind} can't; merge the column otherwise"
        )


def ranks(values: pa.Array) -> _Ints:
    """Return a number for each value that preserves the order: equal values have equal numbers, null is less than all.

    -0.0 comes before 0.0.
    """
    found = order_of(values)
    if not values.null_count:
        return found
    # Dense numbers start at 0, so that -1 is less than every value.
    return np.where(np.asarray(values.is_null()), -1, np.unique(found, return_inverse=True)[1].astype(np.int64))


def ages(values: pa.Array) -> _Ints:
    """Return `ranks` of an ordering column, with -0.0 equal to 0.0: of these two the later to arrive is the newer."""
    if pa.types.is_floating(values.type):
        values = pc.add(values.cast(pa.float64()), 0.0)
    return ranks(values)


def ages_of(columns: Sequence[pa.Array]) -> _Ints:
    """Return `ages` of rows that several columns order: the first in which two rows differ decides."""
    found = ages(columns[0])
    for each in columns[1:]:
        more = np.unique(ages(each), return_inverse=True)[1].astype(np.int64)
        found = np.unique(found, return_inverse=True)[1].astype(np.int64) * (int(more.max(initial=0)) + 1) + more
    return found


def in_time(codes: _Ints, order: _Ints) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows that are newer than every row of their key that arrived before them; the others are late.

    Args:
        codes: for each row, in order of arrival, the number of its key.
        order: the indexes of the rows by key, then age, so that each is newer than the one before it.
    """
    by_arrival, ages = np.argsort(codes, kind="stable"), np.empty(len(codes), np.int64)
    # All ages of a key are larger than those of the key before it.
    ages[order] = np.arange(len(codes))
    marks = np.empty(len(codes), bool)
    marks[by_arrival] = ages[by_arrival] == np.maximum.accumulate(ages[by_arrival])
    return marks


def order_of(values: pa.Array) -> _Ints:
    """Return `ranks`, but with any number for nulls."""
    kind = values.type
    if pa.types.is_floating(kind):
        return _float_order(values)
    if pa.types.is_boolean(kind):
        return np.asarray(values.cast(pa.uint8()).fill_null(0)).astype(np.int64)
    if pa.types.is_integer(kind) and kind != pa.uint64():
        return np.asarray(values.fill_null(0)).astype(np.int64)
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        whole = values.view(pa.int64() if kind.bit_width == 64 else pa.int32())
        return np.asarray(whole.fill_null(0)).astype(np.int64)
    return _dense(values)


def _float_order(values: pa.Array) -> _Ints:
    """Return the bits of floats as integers in the order of the floats; the bits of negative ones are reversed."""
    numbers = np.asarray(values.cast(pa.float64()).fill_null(0.0), np.float64)
    bits = np.where(np.isnan(numbers), np.nan, numbers).view(np.int64)
    found: _Ints = bits ^ ((bits >> 63) & np.int64(0x7FFF_FFFF_FFFF_FFFF))
    return found


def _dense(values: pa.Array) -> _Ints:
    # Only the distinct values are sorted.
    encoded = values.dictionary_encode()
    order = np.asarray(pc.sort_indices(encoded.dictionary))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    codes = np.asarray(encoded.indices.fill_null(-1)).astype(np.int64)
    return np.where(codes < 0, -1, places[codes] if len(places) else -1)
