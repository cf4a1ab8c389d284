"""The two orders of record keys: by UTF-8 bytes, as Parquet compares them, and by UTF-16 units, as Java does.

They differ where a character beyond the BMP meets one from U+E000 to U+FFFF: in Java the first is two surrogates, which are
smaller. ``hoodie_min_record_key`` and ``hoodie_max_record_key`` of a file may be in either order: the JVM compares Java texts
when it writes Avro records, and bytes when it writes Spark's rows.

Source: Apache Hudi 1.2.0, `BloomIndexFileInfo`, `HoodieBloomFilterWriteSupport`, `HoodieBloomFilterRowWriteSupport`.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
