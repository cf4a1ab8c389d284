"""Open the store for a URL. A store's client library is imported at its first use."""

from __future__ import annotations

import errno
import os
from typing import Any

from .interface import Store
from .location import parse


def open_store(url: str | os.PathLike[str], **options: Any) -> Store:
    """Open the store at ``url``; no request is sent yet.

    Cloud options (endpoint, region, keys, allow_http ...) are named as obstore names them and come from ``options``,
    then the URL's query, then the environment variables that obstore reads. A local folder has one, ``flush``: the
    function that flushes an open file to disk, `os.fsync` by default.
    """
    flush = options.pop("flush", os.fsync)
    place = parse(url, options)
    if place.kind == "file":
        from .local import LocalStore

        return LocalStore(place.path, flush=flush)
    from .cloud import CloudStore

    return CloudStore(place)


def open_beside(store: Store, url: str) -> Store:
    """Open the store of another table, with the options of this one if both are of one kind."""
    beside = getattr(store, "beside", None)
    found: Store = beside(url) if beside is not None else open_store(url)
    return found


__all__ = ["read_input"]

_BYTES_MAX = 1 << 24


def read_input(path: str) -> bytes:
    """Return the whole file, which may be the pipe of a shell's ``<(...)``. Does not wait for a pipe's other end to be opened.

    Raises:
        OSError: it cannot be read, or has more than 16 MiB.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    try:
        os.set_blocking(fd, True)
        pieces, size = [], 0
        while size <= _BYTES_MAX and (piece := os.read(fd, 1 << 20)):
            pieces.append(piece)
            size += len(piece)
    finally:
        os.close(fd)
    if size > _BYTES_MAX:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
    return b"".join(pieces)
