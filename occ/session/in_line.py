"""The line of one handle's threads for the table's lock. Their commit requests go to its holder through memory.

    t=0  A holds the lock or waits for it among the processes; B and C, threads of the same handle, wait behind A
    t=1  A appends an entry with the requests of B and C from memory; none of them was put beside the log
    t=2  A gives the lock back, and B and C read in the log that they are committed

The first in line puts its request beside the log as well, because another process may hold the lock. A request is a
hint here too: only the log says what is committed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection

from ..entries import Commit, Request

_ENTRIES = 64  # entries remembered as flushed


class InLine:
    """The line. Safe to share between threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: dict[str, None] = {}  # T, in order of arrival
        self._asked: dict[str, Request] = {}  # by path
        self._on_disk: deque[tuple[str, str]] = deque(maxlen=_ENTRIES)

    def enter(self, instant: str) -> None:
        """Join the line before asking for the lock. Idempotent."""
        with self._mutex:
            self._waiting[instant] = None

    def leave(self, instant: str) -> None:
        """Leave the line. Idempotent."""
        with self._mutex:
            self._waiting.pop(instant, None)

    def is_first(self, instant: str) -> bool:
        """Return whether no other transaction of this handle holds the lock or is ahead in line."""
        with self._mutex:
            return next(iter(self._waiting), instant) == instant

    def ask(self, request: Request) -> None:
        """Register a request, so that another thread of this handle that gets the lock may commit it."""
        with self._mutex:
            self._asked[request.path] = request

    def withdraw(self, path: str) -> None:
        """Remove a request; its outcome is known. Idempotent."""
        with self._mutex:
            self._asked.pop(path, None)

    def asked(self, wanted: Collection[str]) -> list[Request]:
        """The requests of the ``wanted`` transactions, oldest first."""
        with self._mutex:
            return sorted((each for each in self._asked.values() if each.instant in wanted), key=lambda each: each.path)

    def has_flushed(self, first: Commit) -> None:
        """Note that the entry beginning with this commit, appended by this handle, is on disk."""
        with self._mutex:
            self._on_disk.append((first.instant, first.completion))

    def is_flushed(self, first: Commit | None) -> bool:
        """Return whether this handle appended the entry and flushed it."""
        with self._mutex:
            return first is not None and (first.instant, first.completion) in self._on_disk
