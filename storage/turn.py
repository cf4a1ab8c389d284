"""Who puts an object that another is just putting waits for a moment, rather than flush for a name that will be taken.

Exclusion is the link's business; this spares work. Of sixteen writers every second one met another at the slot of the log
that it wanted, and a flush that is lost costs the lock's holder as much as one that counts.

    t=0  A takes the turn of slot 7 and flushes its entry        t=1  B wants slot 7 too, and waits
    t=2  A links it and gives the turn back                      t=3  B finds the name taken: LOST, for a few microseconds

A turn is a lock on one byte of a file that is there for nothing else, at the number that the name hashes to. Not the lock
on the folder (`disk.exclusive`): a suspended writer would keep everybody from deleting something there.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

_WAIT_S, _PAUSE_S = 0.02, 0.0002
# A lock of the open file excludes threads too. struct flock of 64-bit Linux; elsewhere nobody waits.
_SET = getattr(fcntl, "F_OFD_SETLK", None) if struct.calcsize("l") == 8 else None
_FLOCK = struct.Struct("hhqqi4x")


@contextmanager
def turn(file: str, name: str) -> Iterator[None]:
    """Wait while another has the turn of that name, 20 ms at most, then have it for the block.

    ``file`` is made if its folder is there; without that, and where it cannot be locked, nobody waits.
    """
    fd = -1
    try:
        if _SET is not None:
            fd = _locked(file, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, zlib.crc32(name.encode()), 1, 0), _SET)
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def _locked(file: str, byte: bytes, command: int) -> int:
    """The open file, locked or not."""
    try:
        fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError:
        return -1
    give_up = time.monotonic() + _WAIT_S
    while True:
        try:
            fcntl.fcntl(fd, command, byte)
        except (BlockingIOError, PermissionError):  # another has it
            if time.monotonic() < give_up:
                time.sleep(_PAUSE_S)
                continue
        except OSError:
            pass  # no such locks here
        return fd
