"""Mergers that keep several values in a list or a text: all of them, the distinct ones, the greatest ones.

A row brings one value, or a list of them. Nulls are ignored, as in Spark's ``collect_list``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..arguments import brief, text
from ..errors import InputError
from .choice import ages, ranks, refuse_unordered
from .interface import Groups, Laws

BOUND = 1000  # the default length of a list: without a bound a busy key grows until no task can read it


def _element(kind: pa.DataType, what: str) -> pa.DataType:
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        raise InputError(f"{what} keeps a list, and the column holds {kind}; make it list<{kind}>")
    return kind.value_type


def _listed(values: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    """Return lists as they are, and any other value as a list of itself."""
    element = _element(kind, what)
    if pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        return values if values.type == kind else values.cast(kind)
    # A null makes an empty list.
    alone = np.concatenate([[0], np.cumsum(np.asarray(values.is_valid()))])
    return _lists(alone, values.drop_null().cast(element), kind)


def _lists(offsets: npt.NDArray[np.int64], values: pa.Array, kind: pa.DataType) -> pa.Array:
    width, make = (pa.int32(), pa.ListArray) if pa.types.is_list(kind) else (pa.int64(), pa.LargeListArray)
    return make.from_arrays(pa.array(offsets, pa.int64()).cast(width), values, type=kind)


def members(values: pa.Array, groups: Groups) -> tuple[pa.Array, npt.NDArray[np.int64]]:
    """Return the elements of all lists without nulls, and each one's group number; elements of a group are adjacent."""
    owner = groups.codes[np.asarray(pc.list_parent_indices(values))]
    flat = values.flatten()
    if flat.null_count:
        there = flat.is_valid()
        flat, owner = flat.filter(there), owner[np.asarray(there)]
    return flat, owner


def _kept(flat: pa.Array, owner: npt.NDArray[np.int64], groups: Groups, kind: pa.DataType) -> pa.Array:
    """Return the elements as one list for each group."""
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(groups)))])
    return _lists(offsets, flat, kind)


def _places(owner: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each element's number within its group; groups are adjacent."""
    first = np.concatenate([[True], owner[1:] != owner[:-1]]) if len(owner) else np.zeros(0, bool)
    starts = np.maximum.accumulate(np.where(first, np.arange(len(owner)), 0)) if len(owner) else np.zeros(0, np.int64)
    return np.arange(len(owner)) - starts


def refuse_bound(count: int, what: str) -> None:
    """Raise `InputError` for a bound that is none."""
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= 1_000_000:
        raise InputError(f"{what} keeps {count!r} values; say a whole number from 1 to 1000000")


@dataclass(frozen=True)
class CollectList:
    """All values in order; the newest ``count`` if there are more."""

    count: int = BOUND

    def __post_init__(self) -> None:
        refuse_bound(self.count, "collect_list")

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises unless the column holds lists."""
        _element(kind, "collect_list")
        return Laws(commutative=False, associative=True, idempotent=False)

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return a list of the value, or the list that it is."""
        return _listed(values, kind, "collect_list")

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the lists of each group, one after the other."""
        flat, owner = members(values, groups)
        # The newest elements are at the end of a group, so the oldest are cut.
        sizes = np.bincount(owner, minlength=len(groups))
        if (sizes > self.count).any():
            newest = sizes[owner] - _places(owner) <= self.count
            flat, owner = flat.filter(pa.array(newest)), owner[newest]
        return _kept(flat, owner, groups, values.type)


@dataclass(frozen=True)
class ListAgg:
    """All texts in order, with a separator between two of them; it has no bound."""

    separator: str = ","

    def __post_init__(self) -> None:
        text(self.separator, "listagg's separator", empty=True)

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises unless the column holds texts."""
        if not pa.types.is_string(kind):
            raise InputError(f"listagg joins texts, and the column holds {kind}; make it string")
        return Laws(commutative=False, associative=True, idempotent=False)

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return the values as texts."""
        self.laws(kind)
        return values if values.type == kind else values.cast(kind)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the texts of each group, joined."""
        counts = np.bincount(groups.codes[np.asarray(values.is_valid())], minlength=len(groups))
        # The long types, since the texts of all groups may exceed the 2 GiB of the short one.
        long = values.drop_null().cast(pa.large_string())
        lists = _lists(np.concatenate([[0], np.cumsum(counts)]), long, pa.large_list(pa.large_string()))
        joined = pc.binary_join(lists, pa.scalar(self.separator, pa.large_string()))
        return pc.if_else(pa.array(counts > 0), joined, None).cast(values.type)


@dataclass(frozen=True)
class CollectSet:
    """The distinct values in ascending order; the smallest ``count`` if there are more, so the order of rows does not matter.

    -0.0 is 0.0, and all NaN are one, as in Spark.
    """

    count: int = BOUND

    def __post_init__(self) -> None:
        refuse_bound(self.count, "collect_set")

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises unless the column holds lists of comparable values."""
        refuse_unordered(_element(kind, "collect_set"), "collect_set")
        return Laws(commutative=True, associative=True, idempotent=True)

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return a list of the value, or the list that it is."""
        return _listed(values, kind, "collect_set")

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the union of the lists of each group."""
        flat, owner = members(values, groups)
        # The order below tells -0.0 from 0.0, which are one value of a set.
        if pa.types.is_floating(flat.type):
            flat = pc.add(flat, pa.scalar(0.0, flat.type))  # -0.0 + 0.0 is 0.0
        return _best(flat, owner, [ranks(flat)], self.count, groups, values.type)


@dataclass(frozen=True)
class TopN:
    """The ``count`` greatest values, greatest first; of structs the ones with the greatest field ``by``.

    Equal values are kept once, so a row that arrives twice changes nothing. Among equal ``by`` the other fields decide, in
    the struct's order, so the order of rows does not matter. Null is less than anything, NaN greater.
    """

    count: int
    by: str | None = None

    def __post_init__(self) -> None:
        refuse_bound(self.count, "top_n")
        if self.by is not None and not isinstance(self.by, str):
            raise InputError(f"top_n(by={self.by!r}): say the name of a field")

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises unless the column holds lists of comparable values, or of structs of them."""
        element = _element(kind, "top_n")
        fields = list(element) if pa.types.is_struct(element) else []
        if self.by is not None and self.by not in [field.name for field in fields]:
            raise InputError(f"top_n(by={self.by!r}) needs structs with that field, and the list holds {element}")
        for each in [field.type for field in fields] or [element]:
            refuse_unordered(each, "top_n")
        return Laws(commutative=True, associative=True, idempotent=True)

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return a list of the value, or the list that it is."""
        return _listed(values, kind, "top_n")

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the greatest of all lists of each group."""
        flat, owner = members(values, groups)
        if pa.types.is_struct(flat.type):
            # `~` reverses the order; a minus would overflow for the smallest integer.
            keys = [~each for each in _ages_by(self.by, _fields(flat))]
        else:
            keys = [~ranks(flat)]
        return _best(flat, owner, keys, self.count, groups, values.type)


def _best(
    flat: pa.Array,
    owner: npt.NDArray[np.int64],
    keys: list[npt.NDArray[np.int64]],
    count: int,
    groups: Groups,
    kind: pa.DataType,
) -> pa.Array:
    """Return the first ``count`` distinct elements of each group, in ascending order of the keys."""
    # Sorting puts equal elements of a group next to each other, so duplicates are found by comparing neighbours.
    order = np.lexsort((*reversed(keys), owner))
    owner = owner[order]
    same = np.zeros(len(order), bool)
    if len(order):
        same[1:] = owner[1:] == owner[:-1]
    for key in keys:
        same[1:] &= key[order][1:] == key[order][:-1]
    order, owner = order[~same], owner[~same]
    within = _places(owner) < count
    return _kept(flat.take(pa.array(order[within])), owner[within], groups, kind)


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
        order, owner = _newest(owner, [ranks(keys)], self._ages(items), self.count)
        kept, offsets = pa.array(order), np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(groups)))])
        made = pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), keys.take(kept), items.take(kept))
        return made.cast(kind)

    def _ages(self, items: pa.Array) -> list[npt.NDArray[np.int64]]:
        if self.by is None:
            return []
        # A null differs from a struct of nulls.
        return [*_ages_by(self.by, _fields(items)), np.asarray(items.is_valid()).astype(np.int64)]


@dataclass(frozen=True)
class NestedUpdate:
    """A list of structs as a small table: of each key the newest, by key ascending; the ``count`` smallest if there are more.

    ``key`` names a field, or several. With ``by``, a field, the struct with the greatest one counts, among equal ones by the
    other fields, so the order of rows does not matter. Null is less than anything, NaN greater, and -0.0 is 0.0.
    """

    key: str | Sequence[str]
    by: str | None = None
    count: int = BOUND

    def __post_init__(self) -> None:
        refuse_bound(self.count, "nested_update")
        named = (self.key,) if isinstance(self.key, str) else self.key
        if not isinstance(named, list | tuple) or not named or not all(isinstance(each, str) for each in named):
            raise InputError(f"nested_update(key={brief(self.key)}): say the name of a field, or a list of names")
        if self.by is not None and not isinstance(self.by, str):
            raise InputError(f"nested_update(by={brief(self.by)}): say the name of a field")
        object.__setattr__(self, "key", tuple(named))  # which can be hashed

    def laws(self, kind: pa.DataType) -> Laws:
        """Return the laws; raises unless the column holds lists of structs with these fields, which can be compared."""
        element = _element(kind, "nested_update")
        fields = {each.name: each.type for each in element} if pa.types.is_struct(element) else {}
        for name in (*self.key, *(() if self.by is None else (self.by,))):
            if name not in fields:
                raise InputError(f"nested_update needs structs with the field {name!r}, and the list holds {element}")
        for name in self.key if self.by is None else fields:
            refuse_unordered(fields[name], "nested_update")
        return Laws(commutative=self.by is not None, associative=True, idempotent=True)

    def lift(self, values: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return a list of the struct, or the list that it is."""
        return _listed(values, kind, "nested_update")

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        """Return the newest struct of each key in the lists of each group."""
        flat, owner = members(values, groups)
        fields = _fields(flat)
        newer = [] if self.by is None else _ages_by(self.by, fields)
        order, owner = _newest(owner, [ages(fields[name]) for name in self.key], newer, self.count)
        return _kept(flat.take(pa.array(order)), owner, groups, values.type)


def _fields(structs: pa.Array) -> dict[str, pa.Array]:
    return dict(zip([field.name for field in structs.type], structs.flatten(), strict=True))


def _ages_by(by: str | None, fields: dict[str, pa.Array]) -> list[npt.NDArray[np.int64]]:
    """Return what decides between structs of a key: the field ``by``, if there is one, then the others in their order."""
    return [ranks(fields[name]) for name in sorted(fields, key=lambda name: name != by)]


def _newest(
    owner: npt.NDArray[np.int64], keys: list[npt.NDArray[np.int64]], ages: list[npt.NDArray[np.int64]], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the newest element of each key, by keys ascending, ``count`` of a group at most; and their groups.

    The first of ``ages`` in which two differ decides, and among equal ones the order of arrival.
    """
    order = np.lexsort((*reversed(ages), *reversed(keys), owner))
    owner = owner[order]
    last = np.ones(len(order), bool)
    last[:-1] = owner[1:] != owner[:-1]
    for key in keys:
        last[:-1] |= key[order][1:] != key[order][:-1]
    order, owner = order[last], owner[last]
    within = _places(owner) < count
    return order[within], owner[within]
