"""The stream into the file in which an object is collected before it has its name."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from typing import IO, NoReturn

__all__ = ["stream_into"]


class _File(io.FileIO):
    """A file that reports a failed write to the disk as its store reports every other failure."""

    def __init__(self, fd: int, refuse: Callable[[OSError], NoReturn]) -> None:
        super().__init__(fd, "wb")
        self._refuse = refuse

    def write(self, body: object, /) -> int:
        try:
            return super().write(body)  # type: ignore[arg-type]
        except OSError as error:
            self._refuse(error)


def stream_into(fd: int, refuse: Callable[[OSError], NoReturn]) -> IO[bytes]:
    """Return a buffered stream into an open file, on a descriptor of its own: a Parquet writer may close it early.

    Args:
        refuse: raises the error for the store's caller, from wherever the stream is written, or here if no descriptor is left.
    """
    try:
        own = os.dup(fd)
    except OSError as error:
        refuse(error)
    return io.BufferedWriter(_File(own, refuse))
