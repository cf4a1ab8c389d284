"""What a merger is: a function over Arrow arrays, and the laws that it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Laws:
    """What holds for ``+``, the merge of two values. `lakelatch.testing.check_merger` tries whether it does.

    Attributes:
        commutative: ``a + b == b + a``. Otherwise the merger needs its rows in order, and takes a late row for a new one.
        associative: ``(a + b) + c == a + (b + c)``: values may be merged ahead, by a compaction or in a batch.
        idempotent: ``a + a == a``: a row that arrives twice changes nothing.
    """

    commutative: bool
    associative: bool
    idempotent: bool


@dataclass(frozen=True, slots=True)
class Groups:
    """Which rows belong to one key: those of a key stand together, the oldest first, and every key has at least one.

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
    """Makes one value of the values that a column has in the rows of one key.

    What is stored is the merged value and nothing else, so a merger must be able to go on from it.
    """

    def laws(self, kind: pa.DataType) -> Laws:
        """The laws that hold for a column of this type.

        Raises:
            InputError: a column of this type can't be merged so.
        """
        ...

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """What each new row contributes, in the type of the column: a count makes 1 of a value, a collection a list of it.

        Raises:
            InputError: these values contribute nothing to a column of this type.
        """
        ...

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """One value for each group, in the type of ``values``.

        Raises:
            InputError: the result does not fit into the type.
        """
        ...
