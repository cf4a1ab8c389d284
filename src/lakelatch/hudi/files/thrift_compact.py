"""Thrift's compact protocol without a schema, the encoding of Parquet footers, read and written field by field.

A struct is a dict from field number to `Field`; unknown fields survive. Source: Apache Thrift, "Thrift Compact Protocol".
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

_TRUE, _FALSE, _BYTE, I16, I32, I64, _DOUBLE, BINARY, LIST, _SET, _MAP, STRUCT = range(1, 13)
_INTEGERS = frozenset({I16, I32, I64})


class Field(NamedTuple):
    """A field's value and type. A boolean is its type alone; a list has the type of its elements too."""

    kind: int
    value: Any


class Elements(NamedTuple):
    """A list: the type of its elements, and its elements."""

    kind: int
    values: list[Any]


Struct = dict[int, Field]


def decode(body: bytes) -> Struct:
    """Return the struct at the start of the bytes. Raises `ValueError` if there is none."""
    try:
        found, _end = _struct(body, 0)
    except (IndexError, struct.error, RecursionError) as e:
        raise ValueError(f"{len(body)} bytes are no struct of Thrift's compact protocol") from e
    return found


def encode(value: Struct) -> bytes:
    """Reverse `decode`."""
    out = bytearray()
    _put_struct(out, value)
    return bytes(out)


def _varint(body: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        octet = body[at]
        at += 1
        found |= (octet & 0x7F) << shift
        if octet < 0x80:
            return found, at
        shift += 7


def _integer(body: bytes, at: int) -> tuple[int, int]:
    found, at = _varint(body, at)
    return found >> 1 ^ -(found & 1), at


def _struct(body: bytes, at: int) -> tuple[Struct, int]:
    found: Struct = {}
    number = 0
    while True:
        head = body[at]
        at += 1
        if not head:
            return found, at
        kind = head & 15
        # A field's number is stored as the distance from the one before, if that fits into four bits.
        if head >> 4:
            number += head >> 4
        else:
            number, at = _integer(body, at)
        if kind <= _FALSE:
            found[number] = Field(kind, None)
        else:
            value, at = _value(body, at, kind)
            found[number] = Field(kind, value)


def _value(body: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in _INTEGERS:
        return _integer(body, at)
    if kind == BINARY:
        size, at = _varint(body, at)
        if at + size > len(body):
            raise IndexError
        return body[at : at + size], at + size
    if kind == STRUCT:
        return _struct(body, at)
    if kind in (LIST, _SET):
        size, of = body[at] >> 4, body[at] & 15
        at += 1
        # Up to 14 elements the number is in the same octet as their type.
        if size == 15:
            size, at = _varint(body, at)
        values = []
        for _ in range(size):
            value, at = _value(body, at, of)
            values.append(value)
        return Elements(of, values), at
    if kind in (_TRUE, _FALSE, _BYTE):  # a boolean in a list has an octet
        return body[at], at + 1
    if kind == _DOUBLE:
        return struct.unpack_from("<d", body, at)[0], at + 8
    raise ValueError(f"Parquet's footers have no Thrift type {kind}")


def _put_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_integer(out: bytearray, value: int) -> None:
    _put_varint(out, value << 1 if value >= 0 else ~value << 1 | 1)


def _put_struct(out: bytearray, fields: Struct) -> None:
    before = 0
    for number in sorted(fields):
        kind, value = fields[number]
        if 0 < number - before < 16:
            out.append(number - before << 4 | kind)
        else:
            out.append(kind)
            _put_integer(out, number)
        before = number
        if kind > _FALSE:
            _put(out, kind, value)
    out.append(0)


def _put(out: bytearray, kind: int, value: Any) -> None:
    if kind in _INTEGERS:
        _put_integer(out, value)
    elif kind == BINARY:
        _put_varint(out, len(value))
        out += value
    elif kind == STRUCT:
        _put_struct(out, value)
    elif kind in (LIST, _SET):
        size = len(value.values)
        out.append(min(size, 15) << 4 | value.kind)
        if size >= 15:
            _put_varint(out, size)
        for each in value.values:
            _put(out, value.kind, each)
    elif kind == _DOUBLE:
        out += struct.pack("<d", value)
    else:
        out.append(value)
