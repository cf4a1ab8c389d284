"""Values that no two rows may share: new record keys, and the columns of unique constraints. Pure.

A transaction carries the values that it wrote as 64-bit hashes. Two transactions conflict if they have one in common. Two
different values collide with a probability of 2^-64, which costs a retry and no row. Spans are compared first: the hashes of
a large commit are in an object of their own, which is read only if its spans overlap ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_FEW = 64
NEW_KEYS = ""  # the name for new record keys; a constraint is named by its columns


@dataclass(frozen=True, slots=True, eq=False)
class Values:
    """The values of one kind that a transaction wrote.

    Attributes:
        spans: smallest and largest text for each partition; for what is unique in the whole table there is one, "".
        hashes: returns them as a sorted ``numpy.uint64`` array, the partition mixed in; None if they are no
            longer known, so any value may be among them. It may read, so it is called only if spans overlap.
    """

    spans: Mapping[str, tuple[str, str]]
    hashes: Callable[[], Any]


def shared(ours: Values, theirs: Values) -> tuple[str, ...]:
    """Return the keys of the spans in which both may have written the same value; () if there are none."""
    few, many = ours.spans, theirs.spans
    if len(few) > len(many):
        few, many = many, few
    near = tuple(place for place, span in few.items() if place in many and _overlap(span, many[place]))
    return near if near and _meet(ours.hashes(), theirs.hashes()) else ()


def _overlap(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _meet(ours: Any, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return True
    few, many = (ours, theirs) if len(ours) <= len(theirs) else (theirs, ours)
    if not len(few):
        return False
    if len(many) <= _FEW:  # most concurrent commits are this small, and there may be thousands
        return not set(few.tolist()).isdisjoint(many.tolist())
    import numpy as np

    places = np.searchsorted(many, few)
    return bool((many[np.minimum(places, len(many) - 1)] == few).any())
