"""Record keys of Arrow rows, and the bucket of each key.

The text of a key is the one that Hudi makes of the same value: the bare value for one field, ``f1:v1,f2:v2`` for several. The
bucket is ``(List.hashCode(values) & 0x7fffffff) % buckets``, so a JVM writer finds the same file group.

Source: Apache Hudi, ``SimpleKeyGenerator``, ``ComplexKeyGenerator`` and ``BucketIdentifier``; checked against 1.2.0.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError

RECORD_KEY = "_hoodie_record_key"
_SHOWN = 5
_FEW = 1 << 15  # octets hashed at a time, and the number of cached powers of a base
_U32 = npt.NDArray[np.uint32]
# 31 is odd, so it can be inverted modulo 2^32; the same holds for the second multiplier modulo 2^64.
_JAVA = (np.uint32(31), np.uint32(pow(31, -1, 2**32)))
_WIDE = (np.uint64(0x9E3779B97F4A7C15), np.uint64(pow(0x9E3779B97F4A7C15, -1, 2**64)))


def refuse_key_type(name: str, kind: pa.DataType) -> None:
    """Raise `InputError` for a type whose text differs between Arrow, Spark and Hudi."""
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= 6:
        return  # with more digits Java writes small values as 1E-7
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_boolean, pa.types.is_date32)
    if not any(test(kind) for test in tests):
        raise InputError(
            f"column {name!r} of type {kind} cannot be a record key: its text differs between engines; use a string, "
            "an integer, a date, a boolean or a decimal of up to 6 digits after the point",
            column=name,
        )


def record_keys(table: pa.Table, fields: Sequence[str]) -> pa.Array:
    """Return the record key of every row as text.

    Raises:
        InputError: a key column is missing, or null or empty in some rows (the message names a few of them).
    """
    parts = key_parts(table, fields)
    if len(parts) == 1:
        return parts[0]
    pieces: list[Any] = []
    for number, (name, part) in enumerate(zip(fields, parts, strict=True)):
        pieces += [f"{',' if number else ''}{name}:", part]
    return pc.binary_join_element_wise(*pieces, "")


def key_parts(table: pa.Table, fields: Sequence[str]) -> list[pa.Array]:
    """Return the text of each key field; errors as in `record_keys`."""
    parts = []
    for name in fields:
        if name not in table.column_names:
            raise _no_column(table, name, fields)
        column = table.column(name)
        refuse_key_type(name, column.type)
        part = one_array(column if pa.types.is_string(column.type) else column.cast(pa.string()))
        _refuse_blank(table, name, part)
        parts.append(part)
    return parts


def refuse_blank(table: pa.Table, fields: Sequence[str]) -> None:
    """Raise what `key_parts` raises, for rows in many pieces, without joining them. Memory: a bit for each row."""
    for name in fields:
        if name not in table.column_names:
            raise _no_column(table, name, fields)
        column = table.column(name)
        refuse_key_type(name, column.type)
        text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        # An empty text is no key either: Hudi refuses it.
        blank = pc.fill_null(pc.equal(column, ""), fill_value=True) if text else column.is_null()
        if pc.any(blank, min_count=0).as_py():
            raise _blank(table, name, blank)


def _refuse_blank(table: pa.Table, name: str, part: pa.Array) -> None:
    if part.null_count or not np.diff(_offsets(part)).all():
        raise _blank(table, name, pc.fill_null(pc.equal(part, ""), fill_value=True))


def _no_column(table: pa.Table, name: str, fields: Sequence[str]) -> InputError:
    return InputError(
        f"the rows have no column {name!r}, which is part of the table's record key ({', '.join(fields)}); "
        f"their columns are {', '.join(table.column_names)}",
        column=name,
    )


def _blank(table: pa.Table, name: str, blank: Any) -> InputError:
    rows = table.filter(blank)
    return InputError(
        f"{rows.num_rows} of {table.num_rows} rows have no record key: column {name!r} is null or empty, for "
        f"example in {_some_rows(rows)}; drop these rows or give them a key",
        column=name,
        rows=rows.num_rows,
    )


def _some_rows(rows: pa.Table) -> str:
    few = rows.slice(0, 3).select(rows.column_names[:8]).to_pylist()
    return "; ".join(str(row) for row in few)


def bucket_ids(parts: Sequence[pa.Array], buckets: int) -> npt.NDArray[np.int32]:
    """Return the bucket of every row, from the text of its key fields (`key_parts`)."""
    total = np.ones(len(parts[0]), np.uint32)
    for part in parts:
        total = np.uint32(31) * total + _java_hashes(part)
    return ((total & np.uint32(0x7FFFFFFF)) % np.uint32(buckets)).astype(np.int32)


def _java_hashes(strings: pa.Array) -> _U32:
    """Return Java's ``String.hashCode`` of every string.

    The hash of one string is the sum of ``unit[i] * 31^(end-1-i)``. With ``c`` the running sum of ``byte[i] * 31^-i`` over
    the whole buffer that is ``(c[end] - c[start]) * 31^(end-1)``: no loop over rows. Java counts UTF-16 units, so rows with
    non-ASCII characters are hashed one by one.
    """
    hashes: _U32
    hashes, octets, offsets = _polynomial(strings, *_JAVA)
    if octets.size and octets.max() > 127:
        above = np.concatenate([[0], np.cumsum(octets > 127)])
        for row in np.flatnonzero(above[offsets[1:]] > above[offsets[:-1]]):
            hashes[row] = _slow_java_hash(strings[int(row)].as_py())
    return hashes


def _slow_java_hash(text: str) -> int:
    value = 0
    units = np.frombuffer(text.encode("utf-16-le"), "<u2")
    for unit in units.tolist():
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


def wide_hashes(keys: pa.Array) -> npt.NDArray[np.uint64]:
    """Return 64 bits per key: equal keys have equal hashes, so unequal hashes prove that there is no duplicate."""
    hashes: npt.NDArray[np.uint64]
    hashes, _, offsets = _polynomial(keys, *_WIDE)
    # Sums modulo 2^64 leave the low bits weak and "a" equal to "\0a": mix, and let the length take part.
    hashes ^= hashes >> np.uint64(29)
    hashes *= np.uint64(0xBF58476D1CE4E5B9)
    hashes += np.diff(offsets).astype(np.uint64)
    hashes ^= hashes >> np.uint64(32)
    return hashes


def _polynomial(strings: pa.Array, base: Any, inverse: Any) -> tuple[Any, npt.NDArray[np.uint8], Any]:
    """Return for every string the sum of ``octet[i] * base^(end-1-i)``, and the octets and offsets it was made from."""
    assert pa.types.is_string(strings.type), strings.type
    assert strings.null_count == 0
    kind = base.dtype
    if not len(strings):
        return np.zeros(0, kind), np.zeros(0, np.uint8), np.zeros(1, np.int32)
    offsets = _offsets(strings)
    first, last = int(offsets[0]), int(offsets[-1])
    offsets = offsets - first
    octets = np.frombuffer(strings.buffers()[2], np.uint8)[first:last] if last > first else np.zeros(0, np.uint8)
    hashes = np.empty(len(strings), kind)
    begin = 0
    while begin < len(strings):
        # A batch of rows at a time fits into the processor's cache, and needs only powers that are kept.
        end = max(int(np.searchsorted(offsets, offsets[begin] + _FEW, side="right")) - 1, begin + 1)
        low, high = int(offsets[begin]), int(offsets[end])
        hashes[begin:end] = _of_some(octets[low:high], offsets[begin : end + 1] - low, base, inverse)
        begin = end
    return hashes, octets, offsets


def _offsets(strings: pa.Array) -> npt.NDArray[np.int32]:
    """Return the offset of each string among the octets, and the end of the last one."""
    if not len(strings):
        return np.zeros(1, np.int32)
    return np.frombuffer(strings.buffers()[1], np.int32)[strings.offset : strings.offset + len(strings) + 1]


def _of_some(octets: npt.NDArray[np.uint8], offsets: Any, base: Any, inverse: Any) -> Any:
    size = len(octets)
    if not size:
        return np.zeros(len(offsets) - 1, base.dtype)
    sums = np.zeros(size + 1, base.dtype)
    np.cumsum(octets * _powers(inverse, size), out=sums[1:], dtype=base.dtype)
    start, end = offsets[:-1], offsets[1:]
    # An empty string has no last position; its sum is zero whatever the power.
    return (sums[end] - sums[start]) * _powers(base, size)[np.maximum(end - 1, 0)]


def _powers(base: Any, size: int) -> Any:
    return _first_powers(base)[:size] if size <= _FEW else _all_powers(base, size)


@functools.cache
def _first_powers(base: Any) -> Any:
    return _all_powers(base, _FEW)


def _all_powers(base: Any, size: int) -> Any:
    powers = np.full(size, base, base.dtype)
    powers[:1] = 1
    return np.multiply.accumulate(powers, dtype=base.dtype)


def shown(keys: pa.Array | Sequence[str]) -> str:
    """Return a few keys for a message."""
    few = [str(k) for k in keys[:_SHOWN]]
    return ", ".join(repr(k) for k in few) + (", ..." if len(keys) > _SHOWN else "")


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """Return a column as one contiguous array."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.combine_chunks()
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks)


def array_of_column(rows: pa.Table, name: str) -> Any:
    """Return a column of the rows as one contiguous array."""
    return one_array(rows.column(name))


# The two orders of record keys: by UTF-8 bytes, as Parquet compares them, and by UTF-16 units, as Java does.
#
# They differ where a character beyond the BMP meets one from U+E000 to U+FFFF: in Java the first is two surrogates, which are
# smaller. ``hoodie_min_record_key`` and ``hoodie_max_record_key`` of a file may be in either order: the JVM compares Java texts
# when it writes Avro records, and bytes when it writes Spark's rows.
#
# Source: Apache Hudi 1.2.0, `BloomIndexFileInfo`, `HoodieBloomFilterWriteSupport`, `HoodieBloomFilterRowWriteSupport`.

Span = tuple[str, str]  # smallest and largest

# The lead bytes of U+E000 to U+FFFF change places with two that are above all others: bytes then compare as UTF-16 does.
_SWAPPED = bytes(range(0xEE)) + b"\xfe\xff" + bytes(range(0xF0, 0xFE)) + b"\xee\xef"
_SWAPS = np.frombuffer(_SWAPPED, np.uint8)
_BEYOND = 0xF0  # the lead bytes of characters beyond the BMP begin here
_SORTED_MAX = 16_384  # keys that are sorted in Python; more of them leave few files out


def java_order(text: str) -> bytes:
    """Return a sort key that orders texts as Java does."""
    return text.encode("utf-8", "surrogatepass").translate(_SWAPPED)


def java_span(keys: pa.Array | pa.ChunkedArray, span: Span, before: Span | None = None) -> Span:
    """Return the keys' span in Java's order, given the one in byte order; include the span ``before``."""
    if _has_beyond(keys):
        swapped = pc.min_max(_swapped(keys))
        low, high = (swapped[side].as_py().translate(_SWAPPED).decode() for side in ("min", "max"))
    else:
        low, high = span
    return joined_span((low, high), before)


def joined_span(span: Span, before: Span | None) -> Span:
    """Return the span that covers both, in Java's order."""
    lows, highs = [span[0], *(before or ())[:1]], [span[1], *(before or ())[1:]]
    return min(lows, key=java_order), max(highs, key=java_order)


def may_be_span(said: Span, span: Span) -> bool:
    """Return whether the span ``said`` in a file may be that of texts whose byte-order ``span`` is given, in either order."""
    low_fits = said[0] == span[0] or (said[0] > span[0] and java_order(said[0]) < java_order(span[0]))
    high_fits = said[1] == span[1] or (said[1] < span[1] and java_order(said[1]) > java_order(span[1]))
    return low_fits and high_fits


class SoughtKeys:
    """Keys sought in many files, sorted once. Of very many keys only the smallest and largest are kept."""

    def __init__(self, keys: pa.Array) -> None:
        self.keys = keys
        self._beyond = _has_beyond(keys)

    @cached_property
    def _sorted(self) -> list[bytes]:
        return self._in_order(self.keys.cast(pa.binary()))

    @cached_property
    def _sorted_swapped(self) -> list[bytes]:
        return self._in_order(_swapped(self.keys))

    def _in_order(self, keys: pa.Array) -> list[bytes]:
        # Among very many keys nearly every file has some in its span, so the exact search would leave few files out.
        if len(keys) <= _SORTED_MAX:
            return sorted(keys.to_pylist())
        span = pc.min_max(keys)
        return [span["min"].as_py(), span["max"].as_py()]

    def outside(self, low: bytes, high: bytes) -> bool:
        """Return True if none of the keys is in a file's span (UTF-8), whichever order the span is in."""
        if not self._none_in(self._sorted, low, high):
            return False
        # The orders agree unless some text has a character beyond the BMP; only then is the second search worth its time.
        alike = not self._beyond and max(low + high, default=0) < _BEYOND
        return alike or self._none_in(self._sorted_swapped, low.translate(_SWAPPED), high.translate(_SWAPPED))

    def _none_in(self, ordered: list[bytes], low: bytes, high: bytes) -> bool:
        if len(self.keys) > _SORTED_MAX:
            return ordered[1] < low or ordered[0] > high
        at = bisect_left(ordered, low)
        return at == len(ordered) or ordered[at] > high


def _octets(keys: pa.Array) -> tuple[Any, Any]:
    """Return all octets up to the last of the array, and the offset of each text among them."""
    offsets = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return np.frombuffer(keys.buffers()[2] or b"", np.uint8)[: offsets[-1]], offsets


def _has_beyond(keys: pa.Array | pa.ChunkedArray) -> bool:
    if isinstance(keys, pa.ChunkedArray):
        return any(_has_beyond(chunk) for chunk in keys.chunks)
    if not len(keys):
        return False
    octets, offsets = _octets(keys)
    return bool(octets[offsets[0] :].max(initial=0) >= _BEYOND)


def _swapped(keys: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if isinstance(keys, pa.ChunkedArray):
        return pa.chunked_array([_swapped(chunk) for chunk in keys.chunks if len(chunk)], pa.binary())
    octets, offsets = _octets(keys)
    return pa.Array.from_buffers(pa.binary(), len(keys), [None, pa.py_buffer(offsets), pa.py_buffer(_SWAPS[octets])])
