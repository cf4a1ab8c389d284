"""Read the small files that people name: tokens, certificates, options, schemas."""

from __future__ import annotations

import errno
import os

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
