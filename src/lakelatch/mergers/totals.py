"""Mergers that add up, or multiply: sums, counts and products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ..errors import InputError
from .interface import Groups, Laws

_LIMB = np.int64(0xFFFF_FFFF)
_EXACT = Laws(commutative=True, associative=True, idempotent=False)
# Float addition rounds, so the last digits of a sum depend on the order.
_ROUNDED = Laws(commutative=True, associative=False, idempotent=False)


@dataclass(frozen=True)
class Sum:
    """The sum in the column's own type: nulls are ignored, NaN stays NaN, and an overflow is refused."""

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; integers and decimals add exactly, floats are not associative. Raises for other types."""
        if pa.types.is_float32(kind) or pa.types.is_float64(kind):
            return _ROUNDED
        if pa.types.is_integer(kind) or pa.types.is_decimal128(kind):
            return _EXACT
        raise InputError(f"sum adds numbers, and the column holds {kind}")

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return the values as they are."""
        return values if values.type == kind else values.cast(kind)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the sum of each group; null if all values are.

        Raises:
            InputError: a sum does not fit into the type.
        """
        if not len(groups):
            return values
        none = ~np.logical_or.reduceat(np.asarray(values.is_valid()), groups.starts)
        kind = values.type
        if pa.types.is_floating(kind):
            # Floats are summed as doubles and rounded once at the end.
            numbers = np.asarray(values.cast(pa.float64()).fill_null(-0.0))  # -0.0 + x is x, also for -0.0
            with np.errstate(over="ignore", invalid="ignore"):
                total = np.add.reduceat(numbers, groups.starts).astype(kind.to_pandas_dtype())
            return pa.array(total, mask=none)
        # Summed in pieces of 32 bits, a column of up to 2^31 values cannot overflow before the check at the end.
        limbs = [np.add.reduceat(limb, groups.starts) for limb in _limbs(values)]
        return _of_limbs(limbs, kind, none)


@dataclass(frozen=True)
class Count:
    """The number of values that were not null. The column holds an integer; rows may bring a value of any type."""

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises for anything but integers."""
        if not pa.types.is_integer(kind):
            raise InputError(f"count keeps an integer, and the column holds {kind}")
        return _EXACT

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return 1 for each value, 0 for a null."""
        return values.is_valid().cast(pa.uint8()).cast(kind)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the sum of the counts."""
        return Sum().merge(values.fill_null(0), groups)


@dataclass(frozen=True)
class Product:
    """The product of floats: nulls are ignored, NaN stays NaN. Whole numbers and decimals would soon not fit their column."""

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises for anything but floats."""
        if not pa.types.is_floating(kind):
            raise InputError(f"product multiplies floats, and the column holds {kind}; make it double")
        return _ROUNDED

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return the values as they are."""
        return values if values.type == kind else values.cast(kind)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the product of each group, rounded to the type once; null if all values are."""
        if not len(groups):
            return values
        none = ~np.logical_or.reduceat(np.asarray(values.is_valid()), groups.starts)
        numbers = np.asarray(values.cast(pa.float64()).fill_null(1.0))
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            total = np.multiply.reduceat(numbers, groups.starts).astype(values.type.to_pandas_dtype())
        return pa.array(total, mask=none)


def _limbs(values: pa.Array) -> list[npt.NDArray[np.int64]]:
    """Return each value as 32-bit digits, lowest first; the last one carries the sign. Null is zero."""
    if pa.types.is_decimal(values.type):
        # A decimal is stored as two little-endian words of 64 bits.
        filled = values.fill_null(pa.scalar(0, values.type))
        words = np.frombuffer(filled.buffers()[1], np.int64)[2 * filled.offset : 2 * (filled.offset + len(filled))]
        low, high = words[0::2], words[1::2]
        return [low & _LIMB, (low >> 32) & _LIMB, high & _LIMB, high >> 32]
    if values.type == pa.uint64():
        whole = np.asarray(values.fill_null(0))
        return [(whole & np.uint64(_LIMB)).astype(np.int64), (whole >> np.uint64(32)).astype(np.int64)]
    whole = np.asarray(values.fill_null(0)).astype(np.int64)
    return [whole & _LIMB, whole >> 32]


def _of_limbs(limbs: list[Any], kind: pa.DataType, none: npt.NDArray[np.bool_]) -> pa.Array:
    """Return numbers of the type; raise `InputError` if one does not fit."""
    # Carry each digit's excess into the next one.
    for number in range(len(limbs) - 1):
        limbs[number + 1] = limbs[number + 1] + (limbs[number] >> 32)
        limbs[number] = limbs[number] & _LIMB
    if pa.types.is_decimal(kind):
        top = limbs[3]
        if ((top >= -(2**31)) & (top < 2**31)).all():
            words = np.empty(2 * len(top), np.int64)
            words[0::2], words[1::2] = limbs[0] | (limbs[1] << 32), limbs[2] | (top << 32)
            valid = pa.array(~none).buffers()[1]
            found = pa.Array.from_buffers(kind, len(top), [valid, pa.py_buffer(words)])
            try:
                found.validate(full=True)
            except pa.ArrowInvalid:
                pass
            else:
                return found
        raise InputError(f"a sum has more digits than {kind} holds; give the column more, or a smaller contribution")
    unsigned = kind == pa.uint64()
    limit = 2**32 if unsigned else 2**31
    # The carry is in the last digit now: beyond this limit the sum does not fit into 64 bits.
    fits = (limbs[1] < limit) & (limbs[1] >= (0 if unsigned else -limit))
    total = limbs[0].astype(np.uint64) | (limbs[1].astype(np.uint64) << np.uint64(32))
    try:
        if fits.all():
            return pa.array(total if unsigned else total.view(np.int64), mask=none).cast(kind)
    except pa.ArrowInvalid:
        pass
    raise InputError(f"a sum does not fit into {kind}; give the column a wider type, or a smaller contribution")
