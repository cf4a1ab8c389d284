"""Python values as Arrow arrays. A column that mixes kinds of values is refused, because Arrow would lose some silently.

Arrow's inference turns a time beside a date into a date, a text beside bytes into bytes, and drops the zone of a time beside
one without; and it turns each dict into a struct, so maps need the table's type.
"""

from __future__ import annotations

import datetime as dt
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as types

from ...arguments import brief, encodable, kind_of, values_of
from ...errors import InputError

_DEPTH_MAX = 32  # levels of nesting; far below Python's recursion limit, and more than tables hold
_NUMBERS, _PLAIN = frozenset({int, float}), frozenset({str, bool, bytes})
# Kinds that may not be mixed with others in a column.
_APART = ("a time with a zone", "a time without zone", "a date", "text", "bytes", "a bool", "a mapping", "a list")


def table_of(rows: Sequence[Mapping[str, Any]], known: Mapping[str, pa.DataType]) -> pa.Table:
    """Return rows as a table with the union of their columns; missing values are null.

    Args:
        rows: values by column name.
        known: the table's types, which decide for maps; other types are inferred from the values.

    Raises:
        InputError: the values of a column are of different kinds, or Arrow has no type for them.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    if strange := [name for name in names if not isinstance(name, str)]:
        raise InputError(f"a row has {strange[0]!r} as the name of a column, which is {kind_of(strange[0])}, no text")
    arrays = [array_of([row.get(name) for row in rows], known.get(name), name) for name in names]
    return counted_table(arrays, list(names), len(rows))


def counted_table(arrays: list[pa.Array], names: list[str], rows: int) -> pa.Table:
    """A table of so many rows, also where they have no columns: nobody takes such rows for none."""
    return pa.Table.from_arrays(arrays, names=names) if names else pa.table({"": pa.nulls(rows)}).select([])


def array_of(values: Sequence[Any], wanted: pa.DataType | None, name: str) -> pa.Array:
    """Return the values of one column as an array, ``None`` as null; arguments and errors as for `table_of`."""
    if name.count(".") > _DEPTH_MAX:
        raise InputError(
            f"column {name.partition('.')[0]!r} is nested too deep; store it flat, or as text; nothing was written",
            column=name.partition(".")[0],
        )
    types_of = {*map(type, values)} - {type(None)}
    if types_of <= _NUMBERS or (
        len(types_of) == 1 and types_of <= _PLAIN
    ):  # nearly all columns; Arrow infers them right
        return _inferred(values, name)
    # Arrow takes arrays quickly, but not beside lists.
    arrays = types_of == {np.ndarray}
    values = [_plain(value, name, arrays=arrays) for value in values]
    kinds: dict[str, Any] = {}
    for value in values:
        if value is not None:
            kinds.setdefault(_kind(value), value)
    apart = [each for each in kinds if each in _APART]
    if apart and len(kinds) > 1:
        some, other = sorted(kinds, key=lambda kind: kind not in _APART)[:2]
        raise InputError(
            f"column {name!r} holds {some} ({_shown(kinds[some])}) and {other} ({_shown(kinds[other])}); a column has values "
            "of one type; nothing was written",
            column=name,
        )
    if apart == ["a mapping"]:
        return _map(values, wanted, name) if wanted and types.is_map(wanted) else _struct(values, wanted, name)
    if apart == ["a list"]:
        return _list(values, wanted, name)
    # pandas has nanoseconds; Arrow would cut them off silently.
    if fine := [value for value in values if getattr(value, "nanosecond", 0)]:
        raise _too_fine(fine[0], name)
    return _inferred(values, name)


def _too_fine(value: Any, name: str) -> InputError:
    return InputError(
        f"column {name!r} holds parts of a microsecond, which no table does: {_shown(value)}; nothing was written",
        column=name,
    )


def _inferred(values: Sequence[Any], name: str) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
        raise _untaken(values, name) from e


def _untaken(values: Sequence[Any], name: str) -> InputError:
    """Return the error for the first value of a column that Arrow takes neither alone nor beside those before it.

    Arrow's own words are not shown: they speak of C types and of its inference.
    """
    row = next((row for row in range(len(values)) if not _taken(values[row : row + 1])), None)
    if row is None:  # each has a type, and together they have none
        row = bisect_left(range(len(values)), True, key=lambda last: not _taken(values[: last + 1]))
        why = "which goes into no type with the values before it; a column has values of one type"
    else:
        why = _why(values[row])
    # Rows of lists and structs are counted within them.
    where = "" if "." in name else f" in row {row}"
    return InputError(
        f"column {name!r} holds {_shown(values[row])}{where}, {why}; nothing was written",
        column=name,
        value=_shown(values[row]),
        row=None if "." in name else row,
    )


def _taken(values: Sequence[Any]) -> bool:
    try:
        pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return False
    return True


def _why(value: Any) -> str:
    """Say why no column can hold a value that Arrow refuses, and what to give instead."""
    from ...conditions import Sql

    match value:
        case int():
            return "and whole numbers have 64 bits; give a decimal.Decimal or a float"
        case Decimal():
            return "and a decimal is a finite number of at most 38 digits; give None, or a float"
        case str() if not encodable(value):
            return "which has half of a surrogate pair, and UTF-8 cannot hold that; leave it out"
        case Sql():
            return "and lakelatch.sql belongs into `update_where` and `merge`; give the value itself"
        case _ if values_of(value) is not None:
            return "and lists are lists of Python; give `.tolist()` of it"
    return f"and no column holds {kind_of(value)}; convert it, for example to text"


def _plain(value: Any, name: str, *, arrays: bool) -> Any:
    """Return a value in a form that Arrow infers right: None for pandas' NA and NaT, Python's own for numpy's times and sets."""
    match value:
        case set() | frozenset():
            return list(value)
        case np.ndarray() if not arrays or value.dtype == object or value.ndim != 1:
            return value.tolist()
        case np.datetime64():
            return _time(value, name)
        case dt.date() if value != value:  # pandas' NaT is a date, and unequal to itself
            return None
    return None if type(value).__name__ == "NAType" else value


def _time(value: np.datetime64, name: str) -> dt.date | None:
    """Return a time of numpy, whose units Arrow does not mix, as a date if it is no finer than that, else as a time."""
    if np.isnat(value):
        return None
    coarse = np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D")
    time = value.astype("datetime64[D]" if coarse else "datetime64[us]")
    if time != value:
        raise _too_fine(value, name)
    plain = time.item()
    if not isinstance(plain, dt.date):  # numpy gives the number where Python has no such year
        raise InputError(
            f"column {name!r} holds {_shown(value)}, and times are of the years 1 to 9999; nothing was written",
            column=name,
        )
    return plain


def _kind(value: Any) -> str:
    match value:
        case bool() | np.bool_():
            return "a bool"
        case dt.datetime():
            return "a time without zone" if value.tzinfo is None else "a time with a zone"
        case dt.date():
            return "a date"
        case str():
            return "text"
        case bytes() | bytearray() | memoryview():
            return "bytes"
        case Mapping():
            return "a mapping"
        case list() | tuple():
            return "a list"
    return kind_of(value)


def _shown(value: Any) -> str:
    text = brief(value)
    return text if len(text) < 60 else f"{text[:60]}..."


def _offsets(sizes: Iterable[int | None]) -> pa.Array:
    """Return the offsets of lists of these sizes; None is a null list."""
    found: list[int | None] = []
    end = 0
    for size in sizes:
        found.append(None if size is None else end)
        end += size or 0
    return pa.array([*found, end], pa.int32())


def _list(values: Sequence[Any], wanted: pa.DataType | None, name: str) -> pa.Array:
    inner = wanted.value_type if wanted and types.is_list(wanted) else None
    items = array_of([item for value in values for item in value or ()], inner, f"{name}.element")
    return pa.ListArray.from_arrays(_offsets(None if each is None else len(each) for each in values), items)


def _map(values: Sequence[Any], wanted: pa.DataType, name: str) -> pa.Array:
    keys = array_of([key for value in values for key in value or ()], wanted.key_type, f"{name}.key")
    items = [item for value in values for item in (value or {}).values()]
    offsets = _offsets(None if each is None else len(each) for each in values)
    return pa.MapArray.from_arrays(offsets, keys, array_of(items, wanted.item_type, f"{name}.value"))


def _struct(values: Sequence[Any], wanted: pa.DataType | None, name: str) -> pa.Array:
    known = {each.name: each.type for each in wanted} if wanted and types.is_struct(wanted) else {}
    names = dict.fromkeys(key for value in values for key in value or ())
    if not names or not all(isinstance(key, str) for key in names):
        raise InputError(
            f"column {name!r} holds mappings ({_shown(next(filter(lambda v: v is not None, values)))}) and is no map in the "
            "table; the fields of a struct have names; nothing was written",
            column=name,
        )
    children = []
    for key in names:
        inner = [None if value is None else value.get(key) for value in values]
        children.append(array_of(inner, known.get(key), f"{name}.{key}"))
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, list(names), mask=missing)
