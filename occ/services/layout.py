"""The layout of the rows that a clustering writes: sorted by columns, along a z-curve through them, or by buckets.

Sorted rows serve conditions on the first column; the z-curve serves conditions on each column, less well. Both use the ranks
of the values, so that columns count alike whatever their types and distributions. Nulls are last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from ...arguments import many, text
from ...errors import ConfigError, CorruptTableError, InputError
from ...hudi.table import bucket_ids, key_parts

if TYPE_CHECKING:
    import pyarrow as pa

# The words of Apache Hudi's hoodie.layout.optimize.strategy.
LINEAR: Final = "linear"
Z_ORDER: Final = "z-order"
NOTE = "lakelatch.layout"  # the footer entry that names the layout of a file's rows
_BITS = 63  # bits of a position on the curve
_BITS_OF_ONE = 21  # bits of one column, at most: finer than row groups can separate
_COLUMNS_MAX = 8


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout by these columns, the most important first."""

    by: tuple[str, ...]
    curve: str = LINEAR

    @classmethod
    def asked(cls, sort_by: Iterable[str] | str | None, curve: str) -> Layout | None:
        """Validate a caller's layout; None: rows keep their order."""
        if curve not in (LINEAR, Z_ORDER):
            raise ConfigError(f"layout={curve!r} is neither {LINEAR!r} nor {Z_ORDER!r}; nothing was planned")
        if sort_by is None:
            if curve != LINEAR:
                raise ConfigError(f"layout={curve!r} needs columns: sort_by=[...]; nothing was planned")
            return None
        names = [
            text(each, "sort_by") for each in ([sort_by] if isinstance(sort_by, str) else many(sort_by, "sort_by"))
        ]
        if not 0 < len(names) <= _COLUMNS_MAX or len(set(names)) < len(names):
            raise ConfigError(
                f"sort_by={names!r}: name one to {_COLUMNS_MAX} columns, and none twice; nothing was planned"
            )
        return cls(tuple(names), curve)

    @classmethod
    def planned(cls, content: Mapping[str, Any]) -> Layout | None:
        """Read the layout of a plan; None if it has none."""
        said = content.get("layout")
        if said is None:
            return None
        try:
            found = cls.asked([*said["by"]], said["curve"])
        except (ConfigError, InputError, KeyError, TypeError) as e:
            raise CorruptTableError(f"a clustering plan has a layout that is not understood: {said!r:.80}") from e
        return found

    @property
    def said(self) -> dict[str, Any]:
        """The layout in JSON form, for plans and for the footer entry `NOTE`."""
        return {"by": [*self.by], "curve": self.curve}

    def refuse(self, schema: pa.Schema, url: str) -> None:
        """Raise `InputError` unless the table has these columns, of types that have an order."""
        import pyarrow as pa

        for name in self.by:
            if name not in schema.names:
                raise InputError(
                    f"{url} has no column {name!r} to sort by; it has {', '.join(schema.names)}", column=name
                )
            if pa.types.is_nested(kind := schema.field(name).type):
                raise InputError(f"{url} cannot be sorted by {name!r}: {kind} has no order", column=name)

    def share(self, rows: pa.Table, number: int, of: int) -> npt.NDArray[np.int64]:
        """Return the row numbers of one of so many files."""
        order = self.order(rows)
        return order[len(order) * number // of : len(order) * (number + 1) // of]

    def order(self, rows: pa.Table) -> npt.NDArray[np.int64]:
        """Return the row numbers in the order of the layout; rows with equal values keep their order."""
        ranks = [_ranks(rows.column(name)) for name in self.by]
        if self.curve == LINEAR or len(ranks) == 1:
            return np.lexsort(ranks[::-1])
        return np.argsort(_on_curve(ranks), kind="stable")


@dataclass(frozen=True, slots=True)
class Buckets:
    """A layout of one file for each bucket of the record keys, in which rows keep their order."""

    by: tuple[str, ...]

    @property
    def said(self) -> dict[str, Any]:
        """The layout in JSON form, as of `Layout.said`."""
        return {"by": [*self.by], "buckets": True}

    def share(self, rows: pa.Table, number: int, of: int) -> npt.NDArray[np.int64]:
        """Return the row numbers of one of so many buckets."""
        return np.flatnonzero(bucket_ids(key_parts(rows, self.by), of) == number)


def _ranks(column: Any) -> npt.NDArray[np.uint64]:
    """The rank of each value among the distinct ones, from 0 on."""
    import pyarrow.compute as pc

    return np.asarray(pc.rank(column, sort_keys="ascending", tiebreaker="dense")).astype(np.uint64) - np.uint64(1)


def _on_curve(ranks: list[npt.NDArray[np.uint64]]) -> npt.NDArray[np.uint64]:
    """Interleave the bits of all ranks, the highest bit of the first one first.

    Each is first scaled to the same number of bits, so that a column of few values counts as much as one of many.
    """
    bits = min(_BITS // len(ranks), _BITS_OF_ONE)
    places = np.zeros(len(ranks[0]), np.uint64)
    for turn, each in enumerate(reversed(ranks)):
        most = int(each.max(initial=0))
        spread = each * np.uint64((1 << bits) - 1) // np.uint64(max(most, 1))
        for bit in range(bits):
            places |= ((spread >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * len(ranks) + turn)
    return places
