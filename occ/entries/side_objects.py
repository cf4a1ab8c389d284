"""Side objects: content too large for a log entry is stored beside the log, and the entry names it with its hash.

A side object is written and read back before the entry that names it. Its name begins with T of its transaction, so
that it can be found when that is over.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from ...errors import StorageError
from ...storage import Store, secured

SIDES = ".hoodie/.lakelatch/sides"
INLINE_BYTES = 64 * 1024  # the largest content in the entry itself, which every writer reads
_PIECE_BYTES = 1 << 20


def is_side(path: Any) -> bool:
    """Return whether it is the path of a side object."""
    name = path.removeprefix(f"{SIDES}/") if type(path) is str else ""
    return bool(name) and name != path and "/" not in name


def put_aside(store: Store, name: str, pieces: Iterable[bytes]) -> tuple[str, str]:
    """Write a side object of that name; return its path and its hash.

    Raises:
        StorageError: it could not be stored whole.
    """
    path, written, size = f"{SIDES}/{name}", hashlib.sha256(), 0
    with store.create(path) as new:
        for piece in pieces:
            written.update(piece)
            size += len(piece)
            new.stream.write(piece)
        put = new.publish()
    # If not done, the object may still be there, by an earlier try or a lost reply; then it is flushed.
    kept = put.done or secured(store, path).done
    digest = written.hexdigest()
    # Read back: the name may have existed already, and a reply may have been lost.
    if not kept or _stored_hash(store, path, size) != digest:
        raise StorageError(
            f"{store.url}: the side object {path} could not be written; nothing landed, try again", path=path
        )
    return path, digest


def _stored_hash(store: Store, path: str, size: int) -> str | None:
    if size <= _PIECE_BYTES:  # one request; a stream takes two
        stored = store.get(path)
        return None if stored is None else hash_of([stored.body])
    try:
        with store.open(path) as stream:
            return hash_of(iter(lambda: stream.read(_PIECE_BYTES), b""))
    except StorageError:
        return None


def read_aside(store: Store, path: str, digest: str) -> bytes | None:
    """The bytes of a side object; None if it is gone or altered."""
    stored = store.get(path)
    return None if stored is None or hash_of([stored.body]) != digest else stored.body


def hash_of(pieces: Iterable[bytes]) -> str:
    """The SHA-256 in hexadecimal."""
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece)
    return found.hexdigest()
