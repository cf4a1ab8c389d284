"""Blocks of log files as bytes: rows in Parquet or Avro, and deleted keys. Reverses `log_blocks`. Pure.

The ordering value of a delete bounds the versions that it removes. It is written in the branch of a union that matches the
ordering column's type; readers fail on a block with two branches. Dates and times are written as numbers: Hudi 1.2.0 has
branches for them, and fails on their values. A delete of all earlier versions has the 32-bit number 0, as in Hudi's own
blocks: without a value Hudi 1.2.0 fails on a row of an earlier log file, where rows are ordered.

Source: log files that Hudi 1.2.0 wrote and read. The Avro of a delete block is assembled here by hand, because encoders that
choose a branch by the value choose the wrong one.
"""

from __future__ import annotations

import functools
import io
import json
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Context, Decimal, localcontext
from typing import Any

import pyarrow as pa

from ...errors import InputError
from ..table import as_numbers
from .log_blocks import AVRO, COMPACTED, DELETE, INSTANT, MAGIC, PARQUET, SCHEMA

_NATURAL = b"\x04\0"  # the branch of 32 bits, and 0
_ROWS_AT_ONCE = 1000
_ARRAY = 12  # the branch of several values
# Hudi's DecimalWrapper has one precision and scale for decimals of every type.
_PRECISION, _SCALE = 30, 15


def parquet_block(instant: str, schema: str, content: bytes, *, merged: Iterable[str] = ()) -> bytes:
    """Return a block of rows.

    Args:
        instant: T of the commit; readers skip a block that names another.
        schema: Avro JSON of the rows, meta columns included.
        content: a whole Parquet file.
        merged: for a log compaction, T of the commits that it merged.
    """
    return _block(PARQUET, _header(instant, schema, merged), content)


def avro_block(instant: str, schema: str, rows: pa.Table, *, merged: Iterable[str] = ()) -> bytes:
    """Return a block of rows, encoded one by one: several times slower to write and read than `parquet_block`.

    Needed where a text orders rows: Hudi 1.2.0 takes the text of a Parquet block's last row for that of every row.

    Args:
        rows: rows with all columns of ``schema``, in plain types.

    Raises:
        InputError: Avro cannot hold a value.
    """
    import fastavro

    parsed, body = _encoder_of(schema), io.BytesIO()
    plain = rows.cast(pa.schema([pa.field(each.name, as_numbers(each.type)) for each in rows.schema]))
    body.write(struct.pack(">ii", 3, plain.num_rows))
    for batch in plain.to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in _python_rows(batch):
            record = io.BytesIO()
            fastavro.schemaless_writer(record, parsed, row)
            body.write(struct.pack(">i", record.tell()))
            body.write(record.getbuffer())
    return _block(AVRO, _header(instant, schema, merged), body.getvalue())


def _python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows as the encoder takes them. Raise `InputError` for values that Parquet holds and Avro does not."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values = column.to_pylist()
            columns.append(values if (made := _with_dicts(column.type)) is None else [made(each) for each in values])
        except (_KeyTwiceError, UnicodeDecodeError) as e:
            what = "a map that has a key twice" if isinstance(e, _KeyTwiceError) else "a text that is no UTF-8"
            raise InputError(
                f"column {name!r} holds {what}. The table orders rows by a text, so its log files are in Avro, which holds no "
                "such value; nothing was written. Mend these rows, or order them by a number or a time",
                column=name,
            ) from e
    return [dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True)]


class _KeyTwiceError(Exception):
    """A key that is twice in a map; a dict would lose one of its values."""


def _with_dicts(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function that turns the pairs of maps into dicts, at any depth; None if the type contains no map."""
    made: Callable[[Any], Any]
    if pa.types.is_map(kind):
        item = _with_dicts(kind.item_type)

        def made(pairs: Any) -> Any:
            found = {key: value if item is None else item(value) for key, value in pairs}
            if len(found) < len(pairs):
                raise _KeyTwiceError
            return found

    elif pa.types.is_list(kind) and (of_item := _with_dicts(kind.value_type)):

        def made(values: Any) -> Any:
            return [of_item(each) for each in values]

    elif pa.types.is_struct(kind) and (parts := {each.name: of for each in kind if (of := _with_dicts(each.type))}):

        def made(values: Any) -> Any:
            return values | {name: of(values[name]) for name, of in parts.items()}

    else:
        return None
    return lambda value: None if value is None else made(value)


@functools.lru_cache(maxsize=16)
def _encoder_of(text: str) -> Any:
    import fastavro

    def plain(each: Any) -> Any:
        if isinstance(each, list):
            return [plain(one) for one in each]
        if not isinstance(each, dict):
            return each
        # The encoder is given numbers for dates and times (`as_numbers`), so it must not convert them itself.
        number = each.get("logicalType") in ("date", "timestamp-micros")
        return {key: plain(value) for key, value in each.items() if not (number and key == "logicalType")}

    return fastavro.parse_schema(plain(json.loads(text)))


def delete_block(
    instant: str,
    schema: str,
    keys: Iterable[tuple[str, str, Any]],
    ordering: Sequence[pa.DataType] = (),
    *,
    merged: Iterable[str] = (),
) -> bytes:
    """Return a block of deletes.

    Args:
        instant: T of the commit.
        schema: as for `parquet_block`; readers ask for it, though no row follows.
        keys: (record key, partition path, ordering value as `Block.deletes` gives it, or None for a delete of all that
            came before).
        ordering: types of the ordering columns.
        merged: as for `parquet_block`.

    Raises:
        InputError: the type, or one of the values, cannot order a delete.
    """
    write, natural = _writer_of(ordering), _long(0) if ordering else _NATURAL
    pieces = [
        _text(key) + _text(partition) + (natural if value is None else write(value)) for key, partition, value in keys
    ]
    # An Avro array is a block of items behind their count, and an empty block at the end.
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
    """Encode a number as Avro does: zig-zag, of variable length."""
    number, out = (number << 1) ^ (number >> 63), bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _octets(value: bytes) -> bytes:
    return _long(len(value)) + value


def _text(value: str) -> bytes:
    """Encode a text in the second branch of ``["null", "string"]``."""
    return _long(1) + _octets(value.encode())


def _writer_of(kinds: Sequence[pa.DataType]) -> Callable[[Any], bytes]:
    """Return an encoder of ordering values with their branch of the union; several columns make an array."""
    each = [_writer_of_one(kind) for kind in kinds]
    if len(each) > 1:
        head = _long(_ARRAY) + _long(1) + _long(len(each))
        return lambda values: head + b"".join(write(v) for write, v in zip(each, values, strict=True)) + _long(0)
    write = each[0] if each else _writer_of_one(None)

    def alone(value: Any) -> bytes:
        if (encoded := write(value)) == _NATURAL:
            raise InputError(
                "a delete cannot be ordered by 0 in a column of 32 bits, or by the first day of 1970: Hudi's readers take that "
                "number for a delete of every version. Delete without an ordering value, or order by a column of 64 bits",
                value=0,
            )
        return encoded

    return alone


def _writer_of_one(kind: pa.DataType | None) -> Callable[[Any], bytes]:
    for is_kind, branch, encode in _ORDERED:
        if kind is not None and is_kind(kind):
            return lambda value: _long(branch) + encode(value)

    def refuse(value: Any) -> bytes:
        raise InputError(
            f"a delete cannot be ordered by {value!r}: the ordering column is of type {kind}. Delete without an ordering value",
            value=repr(value),
        )

    return refuse


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


# The test for a type, its branch in Hudi's union of ordering values, and its encoder.
_ORDERED: tuple[tuple[Callable[[pa.DataType], bool], int, Callable[[Any], bytes]], ...] = (
    (pa.types.is_boolean, 1, lambda value: bytes([value])),
    (pa.types.is_int32, 2, _long),
    (pa.types.is_int64, 3, _long),
    (pa.types.is_float32, 4, lambda value: struct.pack("<f", value)),
    (pa.types.is_float64, 5, lambda value: struct.pack("<d", value)),
    (pa.types.is_binary, 6, _octets),
    (pa.types.is_string, 7, lambda value: _octets(value.encode())),
    (pa.types.is_date32, 2, _long),
    (pa.types.is_decimal, 9, _decimal),
    (pa.types.is_timestamp, 3, _long),
)
