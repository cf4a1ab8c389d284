"""Key ranges: the smallest and largest record key of each file of a partition, in one small object beside the log.

A process new to a partition then opens only the files that may hold its keys. The object is a cache: it may be lost,
torn, late or stale. A file counts only under its own name with its own size, which no other file of the table ever has,
and a file without a range is opened. Only a file with a range may be skipped. A process that had to open many files
writes the whole object, with the files that its transaction sees; so removed files leave it by themselves, and of two
writers the later one wins. Hudi knows nothing of it. `check` compares it with the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

RANGES = ".hoodie/.lakelatch/keys"
RANGES_BYTES = 16 << 20  # of one object at most
_KEY_BYTES = 512  # the longest key; a file with a longer one is opened
_NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

KeyRange = tuple[int, bytes, bytes]  # the file's size, its smallest and its largest key


def ranges_path(partition: str) -> str:
    """The path of a partition's key ranges."""
    return f"{RANGES}/{hashlib.sha256(partition.encode(errors='surrogatepass')).hexdigest()[:32]}"


def encode_ranges(partition: str, ranges: Mapping[str, KeyRange]) -> bytes:
    """The ranges by file name: a checksum, and plain values as JSON. Ranges that are too large are left out."""
    files, room = [], RANGES_BYTES - 1024 - len(json.dumps(partition))
    for name, (size, low, high) in ranges.items():
        if max(len(low), len(high)) > _KEY_BYTES:
            continue
        try:
            file = [name, size, low.decode(), high.decode()]
        except UnicodeDecodeError:
            continue  # a file that is left out is opened: slower, never wrong
        room -= len(json.dumps(file)) + 2
        if room < 0:
            break
        files.append(file)
    text = json.dumps({"v": 1, "partition": partition, "files": files}).encode()
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def decode_ranges(partition: str | None, body: bytes) -> dict[str, KeyRange] | None:
    """Decode ranges; None if they are torn, invalid, of another version or of another partition (None: of any)."""
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
    # A range must be one in at least one of the two key orders; otherwise every key would be outside it.
    if low > high and low.encode("utf-16-be") > high.encode("utf-16-be"):
        raise ValueError("no range of keys")
    return name, (size, low.encode(), high.encode())
