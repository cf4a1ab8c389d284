"""Values that no two rows may share, as commits carry them: 64 bits for each, collected while files are written.

- a file: hashes of the keys it inserts and of the values under each unique constraint that it writes
- a commit: those of all its files, sorted, as differences: about 6 bytes for each of a million
- its entry: the spans; the hashes beside them if they are few, else in a side object that is seldom read
"""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conflict import NEW_KEYS, Values
from ...errors import InputError
from ...hudi.table import one_array, wide_hashes
from ...storage import Store
from .side_objects import read_aside

Hashes = npt.NDArray[np.uint64]
_INLINE_BYTES = 8192  # of packed hashes; every writer reads the entries committed beside its own
_FEW = 32
_SPAN_CHARS = 64
_ODD = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, eq=False)
class Hashed:
    """Values of one kind in one file: their span, and 64 bits of each, in any order."""

    low: str
    high: str
    hashes: Hashes


@dataclass(frozen=True, slots=True, eq=False)
class FileFacts:
    """The facts of one file beyond Hudi's counts: statistics (`statistics.encoded`), values by name."""

    statistics: bytes
    values: Mapping[str, Hashed]


def hashed_keys(keys: pa.Array) -> Hashed | None:
    """The hashes of record keys; None if there are none."""
    return _hashed(keys, wide_hashes(keys)) if len(keys) else None


def _hashed(texts: pa.Array, hashes: Hashes) -> Hashed:
    span = pc.min_max(texts)
    return Hashed(span["min"].as_py(), span["max"].as_py(), hashes)


def joined(pieces: Iterable[Hashed | None]) -> Hashed | None:
    """All pieces as one; None if there are none."""
    found = [each for each in pieces if each is not None]
    if len(found) < 2:
        return found[0] if found else None
    low, high = min(each.low for each in found), max(each.high for each in found)
    return Hashed(low, high, np.concatenate([each.hashes for each in found]))


def without(values: Hashed, others: Hashed | None) -> Hashed | None:
    """The values that are not among the others; None if none are left."""
    if others is None:
        return values
    left = values.hashes[~np.isin(values.hashes, others.hashes)]
    return Hashed(values.low, values.high, left) if len(left) else None


def keys_in(partition: str, keys: Hashed) -> Hashed:
    """Salt record keys by their partition: a key may exist once in each partition."""
    return Hashed(keys.low, keys.high, keys.hashes ^ _salt(partition))


@functools.lru_cache(maxsize=1024)
def _salt(partition: str) -> np.uint64:
    return np.uint64(int.from_bytes(hashlib.blake2b(partition.encode(), digest_size=8).digest(), "little"))


# --- unique constraints -------------------------------------------------------------------------------------------


def name_of(constraint: Sequence[str]) -> str:
    """The name of a constraint in entries and messages."""
    return ", ".join(constraint)


def constraint_values(rows: pa.Table, constraint: Sequence[str]) -> Hashed | None:
    """The values of the rows under a constraint; rows with a null in it have none."""
    columns = [rows.column(name) for name in constraint]
    if any(column.null_count for column in columns):
        valid = functools.reduce(pc.and_, [column.is_valid() for column in columns])
        columns = [column.filter(valid) for column in columns]
    texts = [_text(column) for column in columns]
    total = wide_hashes(texts[0])
    for each in texts[1:]:
        # Multiplied, because (a, b) and (b, a) are different values.
        total = (total * _ODD) ^ wide_hashes(each)
    return _hashed(texts[0], total) if len(total) else None


def _text(column: Any) -> pa.Array:
    return one_array(column if pa.types.is_string(column.type) else column.cast(pa.string()))


def refuse_type(name: str, kind: pa.DataType) -> None:
    """Raise `InputError` for a type whose values are not equal exactly when their texts are."""
    exact = (
        pa.types.is_string,
        pa.types.is_large_string,
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_date32,
        pa.types.is_decimal,
        pa.types.is_timestamp,
    )
    if not any(test(kind) for test in exact):
        raise InputError(
            f"column {name!r} of type {kind} cannot be under a unique constraint; use a text, a whole number, a "
            "decimal, a date, a timestamp or a boolean",
            column=name,
        )


# --- of a whole transaction ---------------------------------------------------------------------------------------


def together(files: Iterable[tuple[str, Mapping[str, Hashed]]]) -> dict[str, Values]:
    """Combine the values written to all files of a transaction, by name; each file comes with its partition."""
    spans: dict[str, dict[str, tuple[str, str]]] = {}
    pieces: dict[str, list[Hashes]] = {}
    for partition, found in files:
        for name, values in found.items():
            # Keys are unique in each partition, values of constraints in the whole table.
            place = partition if name == NEW_KEYS else ""
            low, high = values.low[:_SPAN_CHARS], _above(values.high)
            before = spans.setdefault(name, {}).setdefault(place, (low, high))
            spans[name][place] = (min(before[0], low), max(before[1], high))
            pieces.setdefault(name, []).append(values.hashes)
    return {name: Values(spans[name], functools.cache(functools.partial(_sorted, pieces[name]))) for name in spans}


def _above(text: str) -> str:
    # A prefix sorts before the text that it was cut from; the largest character behind it keeps the bound.
    return text if len(text) <= _SPAN_CHARS else text[:_SPAN_CHARS] + "\U0010ffff"


def _sorted(pieces: list[Hashes]) -> Hashes:
    if len(pieces) == 1 and len(pieces[0]) == 1:
        return pieces[0]
    found = np.concatenate(pieces)
    found.sort()  # np.unique may hash first, which takes many times as long
    again = found[1:] == found[:-1]
    return found[np.append(True, ~again)] if again.any() else found


def pack(hashes: Hashes) -> bytes:
    """Pack sorted hashes as differences of equal width, which is the first byte; a few as they are, after a zero."""
    # Little-endian by name, because machines of another byte order read this too.
    if len(hashes) < _FEW:
        return b"\0" + hashes.astype("<u8", copy=False).tobytes()
    steps = np.diff(hashes, prepend=np.uint64(0)).astype("<u8", copy=False)
    width = max(1, (int(steps.max(initial=0)).bit_length() + 7) // 8)
    packed = np.empty(1 + width * len(steps), np.uint8)
    packed[0] = width
    packed[1:].reshape(-1, width)[:] = steps.view(np.uint8).reshape(-1, 8)[:, :width]
    return packed.tobytes()


def unpack(packed: bytes) -> Hashes:
    """The reverse of `pack`."""
    if not packed[0]:
        return np.frombuffer(packed, "<u8", offset=1)
    narrow = np.frombuffer(packed, np.uint8, offset=1).reshape(-1, packed[0])
    wide = np.zeros((len(narrow), 8), np.uint8)
    wide[:, : packed[0]] = narrow
    return np.cumsum(wide.view("<u8").ravel(), dtype=np.uint64)


def to_entry(values: Mapping[str, Values], put_aside: Callable[[bytes], dict[str, str]]) -> dict[str, Any]:
    """Plain values for a log entry. ``put_aside`` stores bytes and returns their place, with their hash."""
    plain: dict[str, Any] = {}
    for name, each in values.items():
        packed = pack(each.hashes())
        few = len(packed) <= _INLINE_BYTES
        where = {"hashes": base64.b64encode(packed).decode()} if few else {"side": put_aside(packed)}
        plain[name] = {"spans": {place: list(span) for place, span in each.spans.items()}} | where
    return plain


def from_entry(store: Store, plain: Mapping[str, Any]) -> dict[str, Values]:
    """The reverse of `to_entry`; a side object is read when it is first needed, and once."""
    return {
        name: Values(
            {place: (low, high) for place, (low, high) in each["spans"].items()},
            functools.cache(functools.partial(_stored, store, each)),
        )
        for name, each in plain.items()
    }


def _stored(store: Store, plain: Mapping[str, Any]) -> Hashes | None:
    # None stands for any value: a writer that meets it runs again, and then the values are part of its snapshot.
    try:
        if "hashes" in plain:
            return unpack(base64.b64decode(plain["hashes"]))
        found = read_aside(store, plain["side"]["path"], plain["side"]["sha256"])
        return None if found is None else unpack(found)
    except (ValueError, IndexError):
        return None
