"""Blocks of log files as bytes: rows in Parquet, and keys that are deleted. The reverse of `log_blocks`. Pure.

A delete says by an ordering value up to which version it takes a row, in the branch of a union that stands for the
type of the ordering column; readers fail on a block with two of them. A date or a time is a number: Hudi 1.2.0 has
branches for them, and fails on what they hold. To take whatever came before it says the number 0
of 32 bits, as Hudi's do: with no value at all Hudi 1.2.0 fails on a row of an earlier log file, where rows are ordered.

Source: log files that Hudi 1.2.0 wrote and read; the Avro in a delete block is put together here, because encoders
that choose a branch by the value choose the wrong one.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Context, Decimal, localcontext
from typing import Any

import pyarrow as pa

from ...errors import InputError
from .log_blocks import COMPACTED, DELETE, INSTANT, MAGIC, PARQUET, SCHEMA

_NATURAL = b"\x04\0"  # the branch of 32 bits, and 0
# Hudi's DecimalWrapper, which holds whatever decimal the column is of.
_PRECISION, _SCALE = 30, 15


def parquet_block(instant: str, schema: str, content: bytes, *, merged: Iterable[str] = ()) -> bytes:
    """A block of rows.

    Args:
        instant: T of the commit; a block with another one does not count.
        schema: Avro JSON of the rows, meta columns included.
        content: a whole Parquet file.
        merged: of a log compaction, T of the commits that it has merged.
    """
    return _block(PARQUET, _header(instant, schema, merged), content)


def delete_block(
    instant: str,
    schema: str,
    keys: Iterable[tuple[str, str, Any]],
    ordering: pa.DataType | None = None,
    *,
    merged: Iterable[str] = (),
) -> bytes:
    """A block of deletes.

    Args:
        instant: T of the commit.
        schema: as of `parquet_block`; readers ask for it, though no row follows.
        keys: (record key, partition path, ordering value as `Block.deletes` gives it, or None for a delete of whatever
            came before).
        ordering: type of the ordering column.
        merged: as of `parquet_block`.

    Raises:
        InputError: the type, or one of the values, cannot order a delete.
    """
    write, natural = _writer_of(ordering), _NATURAL if ordering is None else _long(0)
    pieces = [
        _text(key) + _text(partition) + (natural if value is None else write(value)) for key, partition, value in keys
    ]
    listed = _long(len(pieces)) + b"".join(pieces) + _long(0) if pieces else _long(0)
    return _block(DELETE, _header(instant, schema, merged), struct.pack(">ii", 3, len(listed)) + listed)


def _header(instant: str, schema: str, merged: Iterable[str]) -> dict[int, str]:
    header, named = {INSTANT: instant, SCHEMA: schema}, ",".join(merged)
    return header | {COMPACTED: named} if named else header


def _block(kind: int, header: Mapping[int, str], content: bytes) -> bytes:
    packed = struct.pack(">i", len(header))
    for key, text in header.items():
        octets = text.encode()
        packed += struct.pack(">ii", key, len(octets)) + octets
    inner = struct.pack(">ii", 1, kind) + packed + struct.pack(">q", len(content)) + content + struct.pack(">i", 0)
    size = len(inner) + 8
    return MAGIC + struct.pack(">q", size) + inner + struct.pack(">q", size + len(MAGIC))


# --- Avro ---------------------------------------------------------------------------------------------------------


def _long(number: int) -> bytes:
    """Avro's zig-zag number of variable length."""
    number, out = (number << 1) ^ (number >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _octets(value: bytes) -> bytes:
    return _long(len(value)) + value


def _text(value: str) -> bytes:
    """A text in the second branch of ``["null", "string"]``."""
    return _long(1) + _octets(value.encode())


def _writer_of(kind: pa.DataType | None) -> Callable[[Any], bytes]:
    """Encodes an ordering value with its branch of the union."""
    for is_kind, branch, encode in _ORDERED:
        if kind is not None and is_kind(kind):
            return lambda value: _long(branch) + encode(value)

    def refuse(value: Any) -> bytes:
        raise InputError(
            f"a delete cannot be ordered by {value!r}: the ordering column is of type {kind}. Delete without an ordering value",
            value=repr(value),
        )

    return refuse


def _int(value: int) -> bytes:
    if value == 0:
        raise InputError(
            "a delete cannot be ordered by 0 in a column of 32 bits, or by the first day of 1970: Hudi's readers take that "
            "number for a delete of every version. Delete without an ordering value, or order by a column of 64 bits",
            value=0,
        )
    return _long(value)


def _decimal(value: Decimal) -> bytes:
    with localcontext(Context(prec=60)):
        scaled = value.scaleb(_SCALE)
        whole = scaled.to_integral_value()
    if scaled != whole or abs(whole) >= 10**_PRECISION:
        raise InputError(
            f"a delete cannot be ordered by {value}: Hudi stores {_PRECISION - _SCALE} digits before the point and {_SCALE} "
            "behind it. Delete without an ordering value",
            value=str(value),
        )
    number = int(whole)
    return _octets(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True))


_ORDERED: tuple[tuple[Callable[[pa.DataType], bool], int, Callable[[Any], bytes]], ...] = (
    (pa.types.is_boolean, 1, lambda value: bytes([value])),
    (pa.types.is_int32, 2, _int),
    (pa.types.is_int64, 3, _long),
    (pa.types.is_float32, 4, lambda value: struct.pack("<f", value)),
    (pa.types.is_float64, 5, lambda value: struct.pack("<d", value)),
    (pa.types.is_binary, 6, _octets),
    (pa.types.is_string, 7, lambda value: _octets(value.encode())),
    (pa.types.is_date32, 2, _int),
    (pa.types.is_decimal, 9, _decimal),
    (pa.types.is_timestamp, 3, _long),
)
