"""The interface of a merger: a function over Arrow arrays, and the laws that it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Laws:
    """The laws of ``+``, the merge of two values. `lakelatch.testing.check_merger` checks them.

    Attributes:
        commutative: ``a + b == b + a``. Otherwise the merger needs its rows in order, and mistakes a late row for a new one.
        associative: ``(a + b) + c == a + (b + c)``: values may be merged ahead, by a compaction or in a batch.
        idempotent: ``a + a == a``: a row that arrives twice changes nothing.
    """

    commutative: bool
    associative: bool
    idempotent: bool


@dataclass(frozen=True, slots=True)
class Groups:
    """The rows of each key: rows of one key are adjacent, oldest first, and every key has at least one.

    Attributes:
        offsets: ``int64[keys + 1]``; the rows of key number ``k`` are ``offsets[k]`` to ``offsets[k + 1] - 1``.
    """

    offsets: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The first row of each key."""
        return self.offsets[:-1]

    @property
    def codes(self) -> npt.NDArray[np.int64]:
        """The number of its key, for each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.offsets))


class Merger(Protocol):
    """A function that reduces the values that a column has in the rows of one key to one value.

    Only the merged value is stored, so a merger must be able to continue from it. One that takes some values of a type only,
    such as bytes of a form, may also have ``samples(kind)``, which returns some, null among them, for the checks of its laws.
    """

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws for a column of this type.

        Raises:
            InputError: this merger can't merge a column of this type.
        """
        ...

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return each new row's contribution, in the column's type: a count makes 1 of a value, a collection a list of it.

        Raises:
            InputError: these values cannot contribute to a column of this type.
        """
        ...

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return one value for each group, in the type of ``values``.

        Raises:
            InputError: the result does not fit into the type.
        """
        ...
