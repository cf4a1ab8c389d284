"""The queue of this process's threads in front of a key.

Every backend stands behind it, for three reasons: threads of one process are served strictly in the order they came;
only one of them talks to the backend, which spares round trips; and no backend has to tell threads of one process
apart (some file locks cannot).
"""

from __future__ import annotations

import threading
import weakref
from collections import deque

from ..environment import Environment, Event

_WAIT_S_MAX = 3600.0  # one blocking call; an endless wait is many of these

# One queue per environment, process and place, shared by all provider objects for it. Two threads that both find none
# would make two; the backend still excludes them, so this needs no lock (which could be held at a fork).
_shared: weakref.WeakValueDictionary[tuple[object, ...], FrontQueue] = weakref.WeakValueDictionary()


def shared_queue(env: Environment, place: str) -> FrontQueue:
    """The queue of this process for a place; a child of fork gets one of its own."""
    name = (id(env), env.process(), place)
    found = _shared.get(name)
    if found is None:
        found = _shared.setdefault(name, FrontQueue(env))
    return found


class FrontQueue:
    """First in, first out, per key. Passing on is by name: nobody can overtake the thread that was handed the key."""

    def __init__(self, env: Environment) -> None:
        self._env = env  # also keeps id(env) from being used again while this object lives
        self._lock = threading.Lock()
        self._lines: dict[str, deque[Event]] = {}  # a key is here while somebody is at its front; those behind wait

    def enter(self, key: str, *, until: float | None) -> Ticket | None:
        """Stand at the front of ``key``, or None if ``until`` (monotonic) passes first; ``until=None`` never waits."""
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                self._lines[key] = deque()
                return Ticket(self, key)
            if until is None:
                return None
            mine = self._env.event()
            line.append(mine)
        while not mine.is_set():
            left = until - self._env.monotonic()
            if left <= 0:
                break
            try:
                mine.wait(min(left, _WAIT_S_MAX))
            except BaseException:  # KeyboardInterrupt in a waiter must not leave its place behind
                if not self._give_up(key, mine):
                    self.leave(key)
                raise
        if not mine.is_set() and self._give_up(key, mine):
            return None
        return Ticket(self, key)

    def _give_up(self, key: str, mine: Event) -> bool:
        """Leave the line without a trace; False when the key was handed over in this very moment."""
        with self._lock:
            if mine.is_set():
                return False
            self._lines[key].remove(mine)
            return True

    def leave(self, key: str) -> None:
        """Hand the key to the next thread; called once, by the ticket."""
        with self._lock:
            line = self._lines[key]
            if line:
                line.popleft().set()
            else:
                del self._lines[key]


class Ticket:
    """The front place of one key. Leaving twice is fine."""

    def __init__(self, queue: FrontQueue, key: str) -> None:
        self._queue = queue
        self._key = key
        self._once = threading.Lock()

    def leave(self) -> None:
        """Let the next thread in."""
        if self._once.acquire(blocking=False):
            self._queue.leave(self._key)
