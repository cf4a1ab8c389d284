"""A queue of kernel file locks: waiters sleep in the kernel, and a release or death wakes the next.

It gives order and speed, never safety: the head of the queue still has to win a generation
(backend.py). A paused process that keeps its place delays others but cannot block them. On a file
system without locks, waiters poll instead.

A place is a lock on one byte of the file, at the number of nanoseconds since 1970: the *ticket*. The head has
no locked byte before its own. Every other place sleeps until the nearest byte before it is free, then checks again:

    bytes    ...100   ...250   ...371
    held by  A        B        C           A is the head; B sleeps for 100, C sleeps for 250
             -        B        C           A has left or died: the kernel wakes B and nobody else
             -        -        C   ...402  B was killed while it waited or held: C is next; A is back, behind C

A process that has just left cannot overtake, unlike with a single lock, which is free for a moment
at every hand-over.
Hosts share the order as far as their clocks agree. The file is never unlinked; otherwise waiters would stand in the
queues of two different files of one name.

Open-file-description locks make this possible: they exclude threads, and are not dropped when another descriptor of the
file is closed. Systems without them get ``flock``: one lock for all, and an order that is only nearly kept.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import threading
import weakref
from contextlib import suppress
from typing import Protocol

from ...environment import Environment, Event
from ...errors import StorageError
from ...storage.local import BUSY as _BUSY
from ...storage.local import OFD as _OFD
from ...storage.local import byte_lock, open_file

_log = logging.getLogger("lakelatch.locks")

_END = 1 << 62
_STAND_TRIES = 4

_open: weakref.WeakSet[KernelPlace] = weakref.WeakSet()


def _forget_after_fork() -> None:
    """Close the copies in a child of fork: left open, they would keep the parent's place after its death."""
    for place in list(_open):
        place.forget()
    _open.clear()


os.register_at_fork(after_in_child=_forget_after_fork)


class KernelPlace:
    """One process's place in the queue of one file: out, waiting (a thread sleeps in the kernel), in, parked, gone."""

    def __init__(self, path: str, env: Environment, *, block: bool) -> None:
        self._env = env
        self._block = block  # False under a fake clock, which cannot interrupt the kernel: no thread sleeps there
        self._lock = threading.Lock()
        self._state = "out"
        self._woken: Event | None = None
        opened = open_file(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW)
        if opened is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        self._fd = opened[0]
        self._line: _Line = _Tickets(self._fd, env) if _OFD else _OneLock(self._fd)
        _open.add(self)

    @property
    def inside(self) -> bool:
        """True while this process is the one at the head."""
        return self._state == "in"

    def enter(self) -> bool:
        """Return whether this process is at the head now. Never waits."""
        with self._lock:
            if self._state == "out":
                try:
                    if self._line.at_head():
                        self._state = "in"
                except OSError as e:
                    self._unusable(e)
            return self._state == "in"

    def wait(self, limit_s: float) -> None:
        """Wait until this process is at the head, at most ``limit_s``."""
        with self._lock:
            if self._state == "in":
                return
            woken = self._woken = self._env.event()
            start = self._state == "out" and self._block
            if start:
                self._state = "waiting"
        if start:
            # The kernel call has no time limit, so a separate thread makes it.
            self._env.thread(self._sleep_in_kernel, name="lakelatch-queue")
        woken.wait(limit_s)
        if not self._block:
            self.enter()

    def _sleep_in_kernel(self) -> None:
        while True:
            try:
                with self._lock:
                    if self._state != "waiting":
                        self._close()  # its waiter is gone
                        return
                    # False if another waiter, further back, has adopted this thread.
                    if self._line.at_head():
                        self._state = "in"
                        if self._woken is not None:
                            self._woken.set()
                        return
                self._line.sleep()
            except OSError as e:
                with self._lock:
                    self._unusable(e)
                return

    def leave(self, parked: dict[str, KernelPlace], path: str) -> None:
        """Give the place up.

        A thread that sleeps in the kernel is parked for the next waiter: one per file.
        """
        with self._lock:
            if self._state == "waiting":
                self._state = "parked"
                parked[path] = self
                with suppress(OSError):  # then the line shows it until its thread wakes up
                    self._line.step_out()
            elif self._state != "parked":
                self._close()

    def adopt(self) -> bool:
        """Rejoin the queue with a parked thread. Return False when that thread has left meanwhile."""
        with self._lock:
            if self._state != "parked":
                return False
            self._state = "waiting"
            try:
                self._line.stand()
            except OSError as e:
                self._unusable(e)
            return True

    def forget(self) -> None:
        """Close the copy in a child of fork, and only there. The parent keeps its lock."""
        self._lock = threading.Lock()
        if self._state != "gone":
            self._state = "gone"
            os.close(self._fd)

    def _unusable(self, error: OSError) -> None:
        # Some file systems have no locks at all. Then waiters poll now and then.
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
            self._line.leave()
        except OSError as e:
            _log.debug("kernel queue: %s", e)
        os.close(self._fd)
        _open.discard(self)


class _Line(Protocol):
    def stand(self) -> object: ...
    def at_head(self) -> bool: ...
    def sleep(self) -> None: ...
    def step_out(self) -> None: ...
    def leave(self) -> None: ...


class _Tickets:
    """A queue of byte locks; the module docstring explains it."""

    def __init__(self, fd: int, env: Environment) -> None:
        self._fd = fd
        self._env = env
        self._ticket: int | None = None

    def at_head(self) -> bool:
        """Take a ticket if there is none, and return whether no other is before it."""
        return _find(self._fd, 0, self.stand()) is None

    def sleep(self) -> None:
        """Sleep until at the head, or out of the queue."""
        while (mine := self._ticket) is not None and (before := _last(self._fd, mine)) is not None:
            byte_lock(self._fd, fcntl.F_OFD_SETLKW, fcntl.F_RDLCK, before)
            byte_lock(self._fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, before)

    def step_out(self) -> None:
        """Leave the queue at once, although a thread sleeps for this place."""
        ticket, self._ticket = self._ticket, None
        if ticket is not None:
            byte_lock(self._fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, ticket)

    def leave(self) -> None:
        byte_lock(self._fd, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, 0, 0)

    def stand(self) -> int:
        """Return our ticket, taken now if there is none."""
        tries = 0
        while self._ticket is None:
            ticket = int(self._env.now() * 1e9) + tries
            tries += 1
            try:
                byte_lock(self._fd, fcntl.F_OFD_SETLK, fcntl.F_WRLCK, ticket)
            except OSError as e:
                if e.errno not in _BUSY:
                    raise
                continue  # another place has this very number
            if tries < _STAND_TRIES and _find(self._fd, ticket + 1, _END) is not None:
                # We were slow between the clock and the lock: a later ticket may be at the head already.
                self.leave()
            else:
                self._ticket = ticket
        return self._ticket


class _OneLock:
    """``flock`` on the whole file."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def stand(self) -> None:
        """Do nothing: only the sleeping thread holds a place."""

    def at_head(self) -> bool:
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            if e.errno not in _BUSY:
                raise
            return False
        return True

    def sleep(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX)

    def step_out(self) -> None:
        """Do nothing: a thread cannot leave the kernel's queue."""

    def leave(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_UN)


def tickets(path: str) -> list[int]:
    """Return all tickets in the queue, the head first, as nanoseconds since 1970; empty where they cannot be read."""
    found: list[int] = []
    if not _OFD:
        return found
    try:
        opened = open_file(path, os.O_RDWR)
    except (OSError, StorageError):
        return found
    if opened is None:
        return found
    fd = opened[0]
    try:
        end = _END
        while (last := _last(fd, end)) is not None:
            found.append(last)
            end = last
    except OSError as e:
        _log.debug("no kernel queue: %s", e)
    finally:
        os.close(fd)
    return found[::-1]


def _last(fd: int, end: int) -> int | None:
    """Return the greatest locked byte below ``end``.

    The kernel reports any one of a range, so the range is narrowed.
    """
    last, start = None, 0
    while start < end and (found := _find(fd, start, end)) is not None:
        last, start = found, found + 1
    return last


def _find(fd: int, start: int, end: int) -> int | None:
    """Return a byte from ``start`` on and below ``end`` that another place has locked, or None."""
    kind, found = byte_lock(fd, fcntl.F_OFD_GETLK, fcntl.F_RDLCK, start, end - start)
    return None if kind == fcntl.F_UNLCK else found
