"""The threads of one handle that wait for the table's lock: what they ask of its holder goes through memory.

    t=0  A holds the lock or waits for it among the processes; B and C, threads of the same handle, wait behind A
    t=1  A appends an entry with what B and C have asked for in memory; nothing of that lay beside the log
    t=2  A gives the lock back, and B and C find in the log that they have landed

Whoever is the first of its handle puts its request beside the log as well, since other processes may hold the lock. What is
asked is a hint here too: the log alone tells who has landed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection

from ..entries import Commit, Request

_ENTRIES = 64  # of which it is remembered that they are on disk


class InLine:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._waiting: dict[str, None] = {}  # T, the first of them first
        self._asked: dict[str, Request] = {}  # by path
        self._on_disk: deque[tuple[str, str]] = deque(maxlen=_ENTRIES)

    def enter(self, instant: str) -> None:
        """That transaction is about to ask for the lock. Twice is fine."""
        with self._mutex:
            self._waiting[instant] = None

    def leave(self, instant: str) -> None:
        """It does not want the lock any more. Twice is fine."""
        with self._mutex:
            self._waiting.pop(instant, None)

    def is_first(self, instant: str) -> bool:
        """Whether no other transaction of this handle holds the lock, or waits for it longer."""
        with self._mutex:
            return next(iter(self._waiting), instant) == instant

    def ask(self, request: Request) -> None:
        """Another thread of this handle that gets the lock may land it."""
        with self._mutex:
            self._asked[request.path] = request

    def withdraw(self, path: str) -> None:
        """Its outcome is known. Twice is fine."""
        with self._mutex:
            self._asked.pop(path, None)

    def asked(self, wanted: Collection[str]) -> list[Request]:
        """What the transactions that are ``wanted`` have asked for, oldest first."""
        with self._mutex:
            return sorted((each for each in self._asked.values() if each.instant in wanted), key=lambda each: each.path)

    def has_flushed(self, first: Commit) -> None:
        """The entry that begins with that commit, which this handle has appended, is on disk."""
        with self._mutex:
            self._on_disk.append((first.instant, first.completion))

    def is_flushed(self, first: Commit | None) -> bool:
        """Whether it was this handle that appended the entry, and brought it to disk."""
        with self._mutex:
            return first is not None and (first.instant, first.completion) in self._on_disk
