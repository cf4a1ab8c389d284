"""Measure the least cost of a lock in a folder, and that of other libraries.

The floor is one open-file-description lock in the kernel: no lease, no token, nothing to read for others, and nothing
that reaches a second host. Anyone who needs those pays for them; the ratio says how much.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from filelock import FileLock

_WRITE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_UNLOCK = struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)


def folder_of(url: str) -> str:
    """The folder of a ``file://`` URL, made if it is not there."""
    path = unquote(urlsplit(url).path)
    os.makedirs(path, exist_ok=True)
    return path


class Floor:
    """fcntl(F_OFD_SETLKW), which waits in the kernel."""

    def __init__(self, url: str, worker: int) -> None:  # noqa: ARG002 (every worker is the same)
        self._fd = os.open(os.path.join(folder_of(url), "floor"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def cycle(self, hold: Callable[[], None]) -> float:
        """Take, hold, give; the seconds waited."""
        before = time.monotonic()
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLKW, _WRITE)
        waited_s = time.monotonic() - before
        hold()
        fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, _UNLOCK)
        return waited_s

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class FileLockPeer:
    """``filelock.FileLock``, which polls; at 5 ms, where its default is 50 ms."""

    def __init__(self, url: str, worker: int) -> None:  # noqa: ARG002
        self._lock = FileLock(os.path.join(folder_of(url), "filelock"))

    def cycle(self, hold: Callable[[], None]) -> float:
        """Take, hold, give; the seconds waited."""
        before = time.monotonic()
        self._lock.acquire(poll_interval=0.005)
        waited_s = time.monotonic() - before
        hold()
        self._lock.release()
        return waited_s

    def close(self) -> None:
        """Nothing is open between cycles."""


PEERS = {"filelock": FileLockPeer}
