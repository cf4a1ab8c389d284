"""Locks on single bytes of an open file (Linux).

They also exclude threads, and survive when another descriptor of the file is closed. The kernel
frees those of a dead process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct

OFD = hasattr(fcntl, "F_OFD_SETLK") and struct.calcsize("l") == 8
# Another has it. Not EPERM, by which a sandbox forbids all locks.
BUSY = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
# struct flock of 64-bit Linux: type, whence, start, length, pid (must be 0).
_FLOCK = struct.Struct("hhqqi4x")


def byte_lock(fd: int, command: int, kind: int, start: int, length: int = 1) -> tuple[int, int]:
    """Carry out an ``F_OFD_...`` command for those bytes. Return the kind and the first byte of the kernel's answer.

    Raises `OSError`, with an errno of `BUSY` where the lock is another's and the command does not wait.
    """
    kind, _, first, _, _ = _FLOCK.unpack(fcntl.fcntl(fd, command, _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)))
    return kind, first
