"""Mergers that take the value of one of the rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from .interface import Groups, Laws

# A total order of the values of any scalar type, as integers: null, then values, then NaN, as Spark sorts them.

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


_BAND = Laws(commutative=False, associative=True, idempotent=True)
_LATTICE = Laws(commutative=True, associative=True, idempotent=True)


class _Chosen:
    """The common part of these mergers: a column of any type, to which each row contributes its own value."""

    def laws(self, kind: pa.DataType) -> Laws:  # noqa: ARG002 - the laws of some other mergers depend on it
        """Return the laws; another order of rows makes another one first or last."""
        return _BAND

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return the values as they are."""
        return values if values.type == kind else values.cast(kind)


@dataclass(frozen=True)
class Last(_Chosen):
    """The value of the newest row, null included: the rule of a column without a merger."""

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the last value of each group."""
        return values.take(pa.array(groups.offsets[1:] - 1))


@dataclass(frozen=True)
class First(_Chosen):
    """The value of the oldest row, null included."""

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the first value of each group."""
        return values.take(pa.array(groups.starts))


@dataclass(frozen=True)
class LastNonNull(_Chosen):
    """The newest value that is not null: a null keeps the old value."""

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the last value of each group that is not null; null if there is none."""
        return _last_where(values, np.asarray(values.is_valid()), groups)


@dataclass(frozen=True)
class FirstNonNull(_Chosen):
    """The oldest value that is not null: once set, it stays."""

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the first value of each group that is not null; null if there is none."""
        # A null gets an index past the end, so the minimum is the first value that is there.
        places = np.where(np.asarray(values.is_valid()), np.arange(len(values)), len(values))
        first = np.minimum.reduceat(places, groups.starts) if len(groups) else places
        return values.take(pa.array(first, mask=first == len(values)))


@dataclass(frozen=True)
class LastUnless(_Chosen):
    """The newest value, null included, that is not ``marker``: the marker keeps the old value.

    Sources of change data send a marker for a large value that they did not read; Debezium ``__debezium_unavailable_value``.
    A key that never had another value keeps the marker.
    """

    marker: str | int | float | bool

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises for a type that cannot hold the marker."""
        self._stored(kind)
        return _BAND

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the last value of each group that is not the marker; the marker if there is no other."""
        marker = self._stored(values.type)
        told = np.asarray(pc.fill_null(pc.not_equal(values, marker), fill_value=True))
        only = np.logical_or.reduceat(told, groups.starts) if len(groups) else told
        # A group of markers only keeps the marker, so there every row counts.
        return _last_where(values, told | ~only[groups.codes], groups)

    def _stored(self, kind: pa.DataType) -> pa.Scalar:
        try:
            found = pa.scalar(self.marker, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            raise InputError(f"last_unless({self.marker!r}): a column of {kind} can't hold this marker ({e})") from e
        if found.as_py() != self.marker:
            raise InputError(f"last_unless({self.marker!r}): a column of {kind} would hold {found.as_py()!r} instead")
        return found


@dataclass(frozen=True)
class Extreme(_Chosen):
    """The smallest or the greatest value; nulls are ignored, NaN is the greatest of all, as in Spark."""

    greatest: bool

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises for a type without an order."""
        refuse_unordered(kind, "max" if self.greatest else "min")
        return _LATTICE

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the extreme of each group; null if all are. -0.0 is less than 0.0, so the order of rows does not matter."""
        if not len(groups):
            return values
        # `order_of` gives nulls any number, so they get the limit that never wins.
        order, there = order_of(values), np.asarray(values.is_valid())
        limits = np.iinfo(np.int64)
        if self.greatest:
            best = np.maximum.reduceat(np.where(there, order, limits.min), groups.starts)
        else:
            best = np.minimum.reduceat(np.where(there, order, limits.max), groups.starts)
        return _last_where(values, there & (order == best[groups.codes]), groups)


@dataclass(frozen=True)
class Both(_Chosen):
    """True if every value is true, or with ``any`` if one is; nulls are ignored, as in Spark."""

    any: bool

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises for anything but booleans."""
        if not pa.types.is_boolean(kind):
            raise InputError(f"{'bool_or' if self.any else 'bool_and'} merges booleans, and the column holds {kind}")
        return _LATTICE

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return a boolean for each group; null if all are."""
        return Extreme(greatest=self.any).merge(values, groups)


def _last_where(values: pa.Array, mark: npt.NDArray[np.bool_], groups: Groups) -> pa.Array:
    """Return the last marked value of each group; null if none is."""
    places: Any = np.where(mark, np.arange(len(values)), -1)
    last = np.maximum.reduceat(places, groups.starts) if len(groups) else places
    return values.take(pa.array(last, mask=last < 0))
