"""Lossless conversion of Arrow columns: each value stays the same, or the first that would change is refused.

into text, binary     every form in memory of the same (large, view, dictionary); fixed-size into binary
into int, bigint      whole numbers that fit, of any integer, float or decimal type
into float, double    numbers that it holds exactly
into decimal          whole numbers and decimals that fit, with all their digits
into date             dates, and times without zone that are midnight
into timestamp        times of any zone and unit, without parts of a microsecond; without zone where one is given
lists, structs, maps  the same rules inside
into anything         nulls
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as types

from ...errors import InputError
from ...hudi.table import python_value, storable
from ...plain_text import visible

_SHOWN = 80
Convert = Callable[[pa.Array], pa.Array]


def fitted(
    column: pa.ChunkedArray,
    wanted: pa.DataType,
    name: str,
    *,
    zone: str | None = None,
    fill: bool = False,
    first: int | None = 0,
    chunk_bytes_max: int = 1 << 30,
) -> pa.ChunkedArray:
    """Convert a column to a type that tables hold (`storable`).

    Args:
        name: the column's name, for messages.
        zone: the time zone of times without one; ``None`` refuses such times.
        fill: fill fields that structs lack with null; otherwise refuse them.
        first: number of the first row, for messages; None if unknown.
        chunk_bytes_max: split larger pieces; a piece of text must stay below 2 GiB.

    Raises:
        InputError: a value would change; names the column, the value and its row.
    """
    if column.type.equals(wanted):
        return column
    pieces, row = [], first
    for chunk in column.chunks:
        parts = chunk.nbytes // chunk_bytes_max + 1
        size = max(-(-len(chunk) // parts), 1)
        for start in range(0, len(chunk), size):
            piece = chunk.slice(start, size)
            pieces.append(_fitted(piece, wanted, _Place(name, zone, fill, row)))
            row = None if row is None else row + len(piece)
    return pa.chunked_array(pieces, wanted)


def stored_type(kind: pa.DataType, name: str, *, zone: str | None = None) -> pa.DataType:
    """Return the type that a new column gets for values of this type. Raises `InputError` if readers have none."""
    return storable(pa.schema([pa.field(name, _in_zone(kind) if zone else kind)])).field(name).type


def _in_zone(kind: pa.DataType) -> pa.DataType:
    """Return the type with UTC in place of missing zones."""
    if _is_local(kind):
        return pa.timestamp(kind.unit, "UTC")
    if types.is_struct(kind):
        return pa.struct([each.with_type(_in_zone(each.type)) for each in map(kind.field, range(kind.num_fields))])
    if types.is_map(kind):
        return pa.map_(kind.key_type, _in_zone(kind.item_type))
    if types.is_dictionary(kind):
        return _in_zone(kind.value_type)
    return pa.list_(_in_zone(kind.value_type)) if _is_list(kind) else kind


@dataclass(frozen=True)
class _Place:
    """The place of values, for messages: a path of names, and the row of the first; ``None`` inside lists."""

    name: str
    zone: str | None
    fill: bool
    row: int | None

    def below(self, name: str, *, counted: bool = False) -> _Place:
        return replace(self, name=f"{self.name}.{name}", row=self.row if counted else None)

    def refuse(self, values: pa.Array, wanted: pa.DataType, why: str) -> InputError:
        """Return the error for the first of these values."""
        example = visible(repr(python_value(values[0])))
        example = example if len(example) <= _SHOWN else f"{example[:_SHOWN]}..."
        where = f" in row {self.row}" if self.row is not None else ""
        return InputError(
            f"column {self.name!r} is {values.type} in the rows and {wanted} in the table, {why}: {example}{where}; "
            "nothing was written",
            column=self.name,
            value=example,
            row=self.row,
        )


def _fitted(values: pa.Array, wanted: pa.DataType, place: _Place) -> pa.Array:
    kind = values.type
    if kind.equals(wanted):
        return values
    if values.null_count == len(values) or types.is_null(kind):
        return pa.nulls(len(values), wanted)
    if types.is_dictionary(kind):
        known = _plain(values.dictionary)
        return _fitted(known.take(values.indices), wanted, place)
    if types.is_run_end_encoded(kind):
        return _fitted(pc.run_end_decode(values), wanted, place)
    if types.is_struct(wanted) and types.is_struct(kind):
        return _struct(values, wanted, place)
    if types.is_map(wanted) and (types.is_map(kind) or _is_list_of_pairs(kind)):
        return _map(values, wanted, place)
    if types.is_list(wanted) and _is_list(kind):
        offsets, inner = _items(values)
        inner = _fitted(inner, wanted.value_type, place.below("element"))
        return pa.ListArray.from_arrays(offsets, inner).cast(wanted)
    return _leaf(values, wanted, place)


def _leaf(values: pa.Array, wanted: pa.DataType, place: _Place) -> pa.Array:
    convert, why = _rule(values.type, wanted, place.zone)
    row = place.row
    if convert is not None:
        try:
            return convert(values)
        except pa.ArrowNotImplementedError:
            why = "and such values are not cast"
        except pa.ArrowInvalid as e:
            at = _first_bad(values, convert)
            raise replace(place, row=None if row is None else row + at).refuse(values.slice(at, 1), wanted, why) from e
    at = int(np.flatnonzero(np.asarray(values.is_valid()))[0])
    raise replace(place, row=None if row is None else row + at).refuse(values.slice(at, 1), wanted, why)


def _first_bad(values: pa.Array, convert: Convert) -> int:
    """Find the first value that cannot be converted by bisection; there is one, and conversions are value by value."""
    first, count = 0, len(values)
    while count > 1:
        half = count // 2
        try:
            convert(values.slice(first, half))
        except pa.ArrowInvalid:
            count = half
        else:
            first, count = first + half, count - half
    return first


# --- single values -----------------------------------------------------------------------------------------------


def _rule(kind: pa.DataType, wanted: pa.DataType, zone: str | None) -> tuple[Convert | None, str]:
    """Return the conversion between two types, None if there is none, and the reason why values may be refused."""

    def cast(values: pa.Array) -> pa.Array:
        return values.cast(wanted)

    whole = types.is_integer(kind)
    if types.is_string(wanted) and _is_text(kind):
        return _plain, "and such values are not cast"
    if types.is_binary(wanted) and (_is_bytes(kind) or types.is_fixed_size_binary(kind)):
        return _plain, "and such values are not cast"
    if types.is_integer(wanted) and (whole or types.is_floating(kind) or types.is_decimal(kind)):
        return (lambda values: _single(values).cast(wanted)), "which does not hold every value"
    if types.is_floating(wanted) and (whole or types.is_floating(kind)):
        return (lambda values: _float(_single(values), wanted)), "which does not hold every value exactly"
    if types.is_decimal(wanted) and (whole or types.is_decimal(kind)):
        # Holds any integer; a direct cast would refuse by the type, not by the values.
        digits = pa.decimal128(20, 0)
        convert = (lambda values: values.cast(digits).cast(wanted)) if whole else cast
        return convert, "which does not hold every digit"
    if types.is_timestamp(kind) or types.is_date64(kind):
        return _rule_of_times(kind, wanted, zone)
    return None, "and such values are not cast"


def _rule_of_times(kind: pa.DataType, wanted: pa.DataType, zone: str | None) -> tuple[Convert | None, str]:
    if types.is_date32(wanted) and (types.is_date64(kind) or _is_local(kind)):
        return _days, "which has no times of a day"
    if not types.is_timestamp(wanted) or types.is_date64(kind):
        return None, "and such values are not cast"
    if not _is_local(kind):
        return (lambda values: values.cast(wanted)), "which holds whole microseconds"
    if zone is None:
        return None, 'which has a zone; say which one the times are in (`zone="UTC"`), or give them one'
    if zone == "UTC":
        return (lambda values: values.cast(pa.timestamp("us")).cast(wanted)), "which holds whole microseconds"
    return (
        lambda values: _of_zone(values, zone).cast(wanted)
    ), f"which holds whole microseconds of times that {zone} has once, up to 2036"


def _plain(values: pa.Array) -> pa.Array:
    """Convert texts and bytes to the form that all kernels support."""
    kind = values.type
    wanted = (
        pa.string() if _is_text(kind) else pa.binary() if _is_bytes(kind) or types.is_fixed_size_binary(kind) else kind
    )
    try:
        return values if kind == wanted else values.cast(wanted)
    except pa.ArrowNotImplementedError:  # the oldest supported pyarrow casts no views
        return pa.array(values.to_pylist(), wanted)


def _single(values: pa.Array) -> pa.Array:
    return values.cast(pa.float32()) if types.is_float16(values.type) else values


def _float(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    found = values.cast(wanted)
    if types.is_float64(values.type):  # Arrow's own cast rounds
        same = pc.or_(pc.equal(found.cast(values.type), values), pc.is_nan(values))
        if pc.all(same, min_count=0).as_py() is False:
            raise pa.ArrowInvalid("rounded")
    return found


def _days(values: pa.Array) -> pa.Array:
    found = values.cast(pa.date32())
    if pc.all(pc.equal(found.cast(values.type), values), min_count=0).as_py() is False:
        raise pa.ArrowInvalid("not midnight")
    return found


def _of_zone(values: pa.Array, zone: str) -> pa.Array:
    found = pc.assume_timezone(values, zone)
    # Arrow knows the rules of a zone up to 2037, and extends the last offset beyond, summer or winter.
    if pc.any(pc.greater(pc.year(values), 2036), min_count=0).as_py():
        raise pa.ArrowInvalid("too far ahead")
    return found


def _is_local(kind: pa.DataType) -> bool:
    return bool(types.is_timestamp(kind) and kind.tz is None)


def _is_text(kind: pa.DataType) -> bool:
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_binary_view(kind))


# --- values made of others ---------------------------------------------------------------------------------------


def _is_list(kind: pa.DataType) -> bool:
    views = types.is_list_view(kind) or types.is_large_list_view(kind)
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind) or views)


def _is_list_of_pairs(kind: pa.DataType) -> bool:
    """Return whether this is a list of key-value structs, the form of a map in systems without maps."""
    if not _is_list(kind) or not types.is_struct(kind.value_type):
        return False
    return [each.name for each in map(kind.value_type.field, range(kind.value_type.num_fields))] == ["key", "value"]


def _items(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return the offsets, null for null lists, and the items of all other lists."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(values), 0))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    nulls = np.append(np.asarray(values.is_null()), [False])
    return pa.array(offsets, mask=nulls), values.flatten()


def _map(values: pa.Array, wanted: pa.DataType, place: _Place) -> pa.Array:
    if types.is_map(values.type):
        entry = pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])
        values = values.cast(pa.list_(entry))
    offsets, pairs = _items(values)
    keys, items = pairs.flatten()
    if keys.null_count:
        raise place.refuse(values, wanted, "which has no null among its keys")
    keys = _fitted(keys, wanted.key_type, place.below("key"))
    items = _fitted(items, wanted.item_type, place.below("value"))
    return pa.MapArray.from_arrays(offsets, keys, items).cast(wanted)


def _struct(values: pa.Array, wanted: pa.DataType, place: _Place) -> pa.Array:
    fields = [wanted.field(number) for number in range(wanted.num_fields)]
    parts = dict(zip((each.name for each in values.type), values.flatten(), strict=True))
    expected = [each.name for each in fields]
    if any(name not in expected for name in parts) or len(parts) < values.type.num_fields:
        raise place.refuse(
            values.drop_null(),
            wanted,
            f"which has the fields {', '.join(expected)} and no others (`add_column` adds one)",
        )
    if not place.fill and (lacking := [name for name in expected if name not in parts]):
        why = f'and the rows lack {", ".join(lacking)} (`missing="null"` fills them with null)'
        raise place.refuse(values.drop_null(), wanted, why)
    children = [
        _fitted(parts[each.name], each.type, place.below(each.name, counted=True))
        if each.name in parts
        else pa.nulls(len(values), each.type)
        for each in fields
    ]
    return pa.StructArray.from_arrays(children, fields=fields, mask=values.is_null())
