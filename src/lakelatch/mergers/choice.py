"""Mergers that take the value of one of the rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError
from .interface import Groups, Laws
from .order import order_of, refuse_unordered

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
