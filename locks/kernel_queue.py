"""A queue made of a kernel file lock: who waits sleeps in the kernel, and a release or a death wakes the next.

It gives order and speed, never safety: whoever is handed this lock still has to win a generation (file.py). So a
paused process that keeps it delays others but cannot block them, and where the file system has no locks, everything
goes on without.

Open-file-description locks are used where the system has them: they exclude threads, are not dropped when another
descriptor of the file is closed, and are handed out more evenly than ``flock``. The file is never unlinked; otherwise
waiters would stand in the queues of two different files of one name.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import struct
import threading
import weakref

from ..environment import Environment, Event

_log = logging.getLogger("lakelatch.locks")

_BUSY = (errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK)
# struct flock of 64-bit Linux: type, whence, start, length, pid (must be 0). Elsewhere flock() is used.
_OFD = hasattr(fcntl, "F_OFD_SETLK") and struct.calcsize("l") == 8
_WRITE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
_UNLOCK = struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)

_open: weakref.WeakSet[KernelPlace] = weakref.WeakSet()


def _forget_after_fork() -> None:
    """A child shares its parent's open files: left open, they would keep the parent's place after its death."""
    for place in list(_open):
        place.forget()
    _open.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


class KernelPlace:
    """One process's place in the queue of one file: out, waiting (a thread sleeps in the kernel), in, parked, gone."""

    def __init__(self, path: str, env: Environment, *, block: bool) -> None:
        self._env = env
        self._block = block  # a fake clock cannot interrupt the kernel: under one, nobody sleeps there
        self._lock = threading.Lock()
        self._state = "out"
        self._woken: Event | None = None
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        _open.add(self)

    @property
    def inside(self) -> bool:
        """True while this process is the one at the head."""
        return self._state == "in"

    def enter(self) -> bool:
        """At the head now? Never waits."""
        with self._lock:
            if self._state == "out":
                try:
                    _take(self._fd, wait=False)
                    self._state = "in"
                except OSError as e:
                    if e.errno not in _BUSY:
                        self._unusable(e)
            return self._state == "in"

    def wait(self, limit_s: float) -> None:
        """Until at the head, at most ``limit_s``."""
        with self._lock:
            if self._state == "in":
                return
            woken = self._woken = self._env.event()
            start = self._state == "out" and self._block
            if start:
                self._state = "waiting"
        if start:
            # The call in the kernel has no time limit, so a thread of its own makes it.
            self._env.thread(self._sleep_in_kernel, name="lakelatch-queue")
        woken.wait(limit_s)
        if not self._block:
            self.enter()

    def _sleep_in_kernel(self) -> None:
        try:
            _take(self._fd, wait=True)
        except OSError as e:
            with self._lock:
                self._unusable(e)
            return
        with self._lock:
            if self._state == "waiting":
                self._state = "in"
                if self._woken is not None:
                    self._woken.set()
            else:
                self._close()  # its waiter is gone: straight back

    def leave(self, parked: dict[str, KernelPlace], path: str) -> None:
        """Give the place up. A thread that sleeps in the kernel is parked for the next waiter: one per file."""
        with self._lock:
            if self._state == "waiting":
                self._state = "parked"
                parked[path] = self
            elif self._state != "parked":
                self._close()

    def adopt(self) -> bool:
        """Wait on with a parked thread; False when it has left meanwhile."""
        with self._lock:
            if self._state == "parked":
                self._state = "waiting"
                return True
            return False

    def forget(self) -> None:
        """Only for a child of fork: close the copy. The parent keeps its lock."""
        self._lock = threading.Lock()
        if self._state != "gone":
            self._state = "gone"
            os.close(self._fd)

    def _unusable(self, error: OSError) -> None:
        # Some file systems have no locks at all. Then waiters look by themselves now and then.
        _log.debug("no kernel queue: %s", error)
        self._block = False
        if self._state == "waiting":
            self._state = "out"
        elif self._state == "parked":
            self._close()

    def _close(self) -> None:
        if self._state == "gone":
            return
        self._state = "gone"
        # Unlocked before it is closed: a forked program may hold a copy of the descriptor.
        try:
            _give(self._fd)
        except OSError as e:
            _log.debug("kernel queue: %s", e)
        os.close(self._fd)
        _open.discard(self)


def _take(fd: int, *, wait: bool) -> None:
    if _OFD:
        try:
            return _fcntl(fd, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, _WRITE)
        except OSError as e:
            if e.errno != errno.EINVAL:  # a kernel that does not know them
                raise
    return fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def _give(fd: int) -> None:
    if _OFD:
        try:
            return _fcntl(fd, fcntl.F_OFD_SETLK, _UNLOCK)
        except OSError as e:
            if e.errno != errno.EINVAL:
                raise
    return fcntl.flock(fd, fcntl.LOCK_UN)


def _fcntl(fd: int, command: int, lock: bytes) -> None:
    fcntl.fcntl(fd, command, lock)
