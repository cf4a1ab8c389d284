"""Each merger once more, in plain Python over the values of one key, the oldest first."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any


def place(value: Any) -> Any:
    """Spark's order: null, values, NaN; beyond it -0.0 before 0.0."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value, math.copysign(1.0, value))
    if isinstance(value, dict):
        return (1, *(place(each) for each in value.values()))
    return (1, value)


def there(values: list[Any]) -> list[Any]:
    return [each for each in values if each is not None]


def distinct(values: list[Any]) -> list[Any]:
    found: dict[Any, Any] = {place(each): each for each in values}
    return [found[each] for each in sorted(found)]


def flat(values: list[Any]) -> list[Any]:
    return there([each for one in values if one is not None for each in (one if isinstance(one, list) else [one])])


def total(values: list[Any]) -> Any:
    left = there(values)
    return None if not left else sum(left[1:], left[0])


def top(values: list[Any], count: int, by: str | None) -> list[Any]:
    found = distinct(flat(values))
    if by is not None:
        found.sort(key=lambda each: (place(each[by]), place({k: v for k, v in each.items() if k != by})))
    return found[::-1][:count]


def union(maps: list[Any], by: str | None) -> list[Any]:
    found: dict[Any, Any] = {}
    for key, value in (pair for each in there(maps) for pair in each):
        new, old = (
            ((place(each[by]), *(place(v) for k, v in each.items() if k != by), 1) if each else ()) if by else ()
            for each in (value, found.get(key))
        )
        if key not in found or new >= old:
            found[key] = value
    return [(key, found[key]) for key in sorted(found, key=place)]


def table(lists: list[Any], keys: tuple[str, ...], by: str | None) -> list[Any]:
    found: dict[Any, Any] = {}
    for row in flat(lists):
        key = tuple(place(row[each] + 0.0 if isinstance(row[each], float) else row[each]) for each in keys)
        new, old = (
            (place(each[by]), *(place(v) for k, v in each.items() if k != by)) if by and each else ()
            for each in (row, found.get(key))
        )
        if key not in found or new >= old:
            found[key] = row
    return [found[each] for each in sorted(found)]


MODEL: dict[str, Callable[[list[Any]], Any]] = {
    "last": lambda v: v[-1],
    "first": lambda v: v[0],
    "last_non_null": lambda v: (there(v) or [None])[-1],
    "first_non_null": lambda v: (there(v) or [None])[0],
    "last_unless(3)": lambda v: ([each for each in v if each != 3] or v)[-1],
    "sum": total,
    "product": lambda v: math.prod(there(v)) if there(v) else None,
    "count": lambda v: sum(1 for _ in there(v)),
    "min": lambda v: min(there(v), key=place, default=None),
    "max": lambda v: max(there(v), key=place, default=None),
    "bool_and": lambda v: all(there(v)) if there(v) else None,
    "bool_or": lambda v: any(there(v)) if there(v) else None,
    "collect_list(3)": lambda v: flat(v)[-3:],
    "listagg(', ')": lambda v: ", ".join(there(v)) if there(v) else None,
    "collect_set(3)": lambda v: distinct([each + 0.0 if isinstance(each, float) else each for each in flat(v)])[:3],
    "top_n(2)": lambda v: top(v, 2, None),
    "top_n(2, by='ts')": lambda v: top(v, 2, "ts"),
    "merge_map": lambda v: union(v, None),
    "merge_map(2, by='ts')": lambda v: union(v, "ts")[:2],
    "nested_update('name')": lambda v: table(v, ("name",), None),
    "nested_update(['name', 'x'], by='ts', count=2)": lambda v: table(v, ("name", "x"), "ts")[:2],
}


def bits(value: Any) -> Any:
    """Equal for the same value to the bit, whichever NaN it is."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else struct.pack("d", value)
    if isinstance(value, list | tuple):
        return [bits(each) for each in value]
    if isinstance(value, dict):
        return {key: bits(each) for key, each in value.items()}
    return value
