"""Key ranges: the smallest and the largest record key of the files of a partition, kept in one small object beside the log.

A process that meets a partition for the first time then opens only the files that may hold its keys. The object is a cache.
It may be lost, torn, late or stale: a file counts only under its own name with its own size, neither of which another file of
the table ever has, and a file of which nothing is kept is opened. Only a file that is named here may be passed over. Whoever had
to open many files writes the object, whole, with the files that its transaction sees; so files that are gone leave it by
themselves, and of two writers the later one stays. Hudi knows nothing of it. `check` compares it with the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

RANGES = ".hoodie/.lakelatch/keys"
RANGES_BYTES = 16 << 20  # of one object at most
_KEY_BYTES = 512  # of a key at most; a file with a longer one is opened
_NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

KeyRange = tuple[int, bytes, bytes]  # the file's size, its smallest and its largest key


def ranges_path(partition: str) -> str:
    """Where the key ranges of a partition lie."""
    return f"{RANGES}/{hashlib.sha256(partition.encode(errors='surrogatepass')).hexdigest()[:32]}"


def encode_ranges(partition: str, ranges: Mapping[str, KeyRange]) -> bytes:
    """A checksum, and plain values as JSON; by file name. Leaves out what is too large."""
    files, room = [], RANGES_BYTES - 1024 - len(json.dumps(partition))
    for name, (size, low, high) in ranges.items():
        if max(len(low), len(high)) > _KEY_BYTES:
            continue
        try:
            file = [name, size, low.decode(), high.decode()]
        except UnicodeDecodeError:
            continue
        room -= len(json.dumps(file)) + 2
        if room < 0:
            break
        files.append(file)
    text = json.dumps({"v": 1, "partition": partition, "files": files}).encode()
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def decode_ranges(partition: str | None, body: bytes) -> dict[str, KeyRange] | None:
    """The reverse; None for what is torn, of another version or of another partition (None: of any), or cannot be."""
    digest, _, text = body.partition(b"\n")
    if len(body) > RANGES_BYTES or hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    try:
        raw = json.loads(text)
        if raw["v"] != 1 or (partition is not None and raw["partition"] != partition):
            return None
        return dict(_range(each) for each in raw["files"])
    except _NOT_UNDERSTOOD:
        return None


def _range(raw: Any) -> tuple[str, KeyRange]:
    name, size, low, high = raw
    if type(name) is not str or type(size) is not int or size <= 0 or type(low) is not str or type(high) is not str:
        raise ValueError("no range of a file")
    # In one of the two orders of keys it is a range; else everything would lie outside.
    if low > high and low.encode("utf-16-be") > high.encode("utf-16-be"):
        raise ValueError("no range of keys")
    return name, (size, low.encode(), high.encode())
