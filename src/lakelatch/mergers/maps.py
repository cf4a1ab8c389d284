"""The merger of maps: the union of their keys, of which each keeps one value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from ..errors import InputError
from .interface import Groups, Laws
from .lists import BOUND, members, refuse_bound
from .order import ranks, refuse_unordered


@dataclass(frozen=True)
class MergeMap:
    """The union of maps, by key ascending; the ``count`` smallest keys if there are more.

    Of a key in several maps the newest value counts. With ``by``, a field of values that are structs, the one with the
    greatest field does, among equal ones by the other fields, so the order of rows does not matter. Null is less than
    anything, NaN greater.
    """

    count: int = BOUND
    by: str | None = None

    def __post_init__(self) -> None:
        refuse_bound(self.count, "merge_map")
        if self.by is not None and not isinstance(self.by, str):
            raise InputError(f"merge_map(by={self.by!r}): say the name of a field")

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises unless the column holds maps, with ``by`` of structs with that field and comparable others."""
        if not pa.types.is_map(kind):
            raise InputError(f"merge_map keeps a map, and the column holds {kind}; make it map<string, {kind}>")
        refuse_unordered(kind.key_type, "merge_map")
        if self.by is None:
            return Laws(commutative=False, associative=True, idempotent=True)
        fields = list(kind.item_type) if pa.types.is_struct(kind.item_type) else []
        if self.by not in [field.name for field in fields]:
            raise InputError(
                f"merge_map(by={self.by!r}) needs structs with that field, and the map holds {kind.item_type}"
            )
        for each in fields:
            refuse_unordered(each.type, "merge_map")
        return Laws(commutative=True, associative=True, idempotent=True)

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return the maps as they are."""
        return values if values.type == kind else values.cast(kind)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the union of the maps of each group."""
        kind = values.type
        # As lists, because the keys and items of a map array begin before a slice of it.
        entries, owner = members(values.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))), groups)
        keys, items = entries.flatten()
        place = ranks(keys)
        order = np.lexsort((*reversed(self._ages(items)), place, owner))
        owner, place = owner[order], place[order]
        # The last entry of a key within its group is the one that counts.
        last = np.ones(len(order), bool)
        last[:-1] = (owner[1:] != owner[:-1]) | (place[1:] != place[:-1])
        order, owner = order[last], owner[last]
        sizes = np.bincount(owner, minlength=len(groups))
        within = np.arange(len(owner)) - (np.cumsum(sizes) - sizes)[owner] < self.count
        kept = pa.array(order[within])
        offsets = np.concatenate([[0], np.cumsum(np.minimum(sizes, self.count))])
        made = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys.take(kept), items.take(kept))
        return made.cast(kind)

    def _ages(self, items: pa.Array) -> list[np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """Return what decides between values of a key, the first key of it first; the order of arrival where nothing does."""
        if self.by is None:
            return []
        names = sorted([field.name for field in items.type], key=lambda name: name != self.by)
        fields = dict(zip([field.name for field in items.type], items.flatten(), strict=True))
        # A null differs from a struct of nulls.
        return [*(ranks(fields[name]) for name in names), np.asarray(items.is_valid()).astype(np.int64)]
