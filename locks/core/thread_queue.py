"""A queue for the threads of this process that want the same key.

It stands in front of every backend, for three reasons. Threads of one process are served strictly
in order. Only one of them talks to the backend, which saves round trips. And no backend has to separate
threads of one process, which some file locks cannot do.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ...environment import SYSTEM, Environment, Event

WAIT_S_MAX = 3600.0  # one blocking call; an endless wait is many of these
LOOK_S = 1.0  # how soon a waiter notices that its caller has given up

# One queue per environment, process and place, shared by all its providers. Two threads at once may
# create two; the backend still excludes them, so no lock is needed (it could be held at a fork).
_shared: weakref.WeakValueDictionary[tuple[object, ...], FrontQueue] = weakref.WeakValueDictionary()


def shared_queue(env: Environment, place: str) -> FrontQueue:
    """Return the queue of this process for a place. A forked child gets its own."""
    name = (id(env), env.process(), place)
    found = _shared.get(name)
    if found is None:
        found = _shared.setdefault(name, FrontQueue(env, place))
    return found


def all_queues() -> list[FrontQueue]:
    """Return the queues of this process."""
    here = SYSTEM.process()
    return [queue for (_, process, _), queue in list(_shared.items()) if process == here]


class Held(Protocol):
    """The lease of the thread at the front, as the queue sees it."""

    def wanted(self) -> bool:
        """True while the lease is held and its handle is alive."""
        ...


@dataclass(slots=True, eq=False)
class _Waiter:
    owner: str
    turn: Event


class FrontQueue:
    """A first-in, first-out queue per key.

    The key is handed to one named thread, so no other can overtake it.
    """

    def __init__(self, env: Environment, place: str = "") -> None:
        self.place = place
        self._env = env  # also keeps id(env) from being used again while this object lives
        self._lock = threading.Lock()
        # A key is in both while a thread is at its front; the threads behind it wait.
        self._lines: dict[str, deque[_Waiter]] = {}
        self._fronts: dict[str, Ticket] = {}

    def enter(
        self,
        key: str,
        *,
        until: float | None,
        owner: str = "",
        given_up: Callable[[], bool] | None = None,
    ) -> Ticket | int:
        """Wait for the front of ``key`` until ``until`` (monotonic; None: do not wait), or until ``given_up()``.

        Return the ticket, or how many were ahead at the end: 0 when the caller gave up just as its turn came.
        """
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                self._lines[key] = deque()
                return self._front(key)
            if until is None:
                return len(line) + 1
            mine = _Waiter(owner, self._env.event())
            line.append(mine)
        while not mine.turn.is_set():
            try:
                left = until - self._env.monotonic()
                if left <= 0 or (given_up is not None and given_up()):
                    break
                mine.turn.wait(min(left, WAIT_S_MAX if given_up is None else LOOK_S))
            except BaseException:  # KeyboardInterrupt in a waiter must not leave its place behind
                if not self._give_up(key, mine):
                    self.leave(key)
                raise
        # The key may be handed over between the time-out and `_give_up`, which then returns 0: the turn is ours.
        if not mine.turn.is_set() and (ahead := self._give_up(key, mine)):
            return ahead
        try:
            # The caller may give up just as its turn comes; the key then goes straight to the next.
            if given_up is not None and given_up():
                self.leave(key)
                return 0
        except BaseException:
            self.leave(key)
            raise
        with self._lock:
            return self._front(key)

    def waiting(self, key: str) -> tuple[str, ...]:
        """Return the owners behind the front, next one first."""
        with self._lock:
            return tuple(waiter.owner for waiter in self._lines.get(key, ()))

    def is_held(self, key: str) -> bool:
        """Return whether a live lease of this process is at the front."""
        with self._lock:
            front = self._fronts.get(key)
        return front is not None and front.held is not None and front.held.wanted()

    def depths(self) -> dict[str, int]:
        """Return how many threads wait for each taken key."""
        with self._lock:
            return {key: len(line) for key, line in self._lines.items()}

    def _front(self, key: str) -> Ticket:
        ticket = self._fronts[key] = Ticket(self, key)
        return ticket

    def _give_up(self, key: str, mine: _Waiter) -> int:
        """Leave the queue. Returns how many were ahead, or 0 when the key was just handed over."""
        with self._lock:
            if mine.turn.is_set():
                return 0
            line = self._lines[key]
            ahead = line.index(mine) + 1
            line.remove(mine)
            return ahead

    def leave(self, key: str) -> None:
        """Hand the key to the next thread; called once, by the ticket."""
        with self._lock:
            line = self._lines[key]
            if line:
                line.popleft().turn.set()
            else:
                del self._lines[key], self._fronts[key]


class Ticket:
    """The front place of one key. `leave` is idempotent."""

    __slots__ = ("_key", "_left", "_queue", "held")

    def __init__(self, queue: FrontQueue, key: str) -> None:
        self.held: Held | None = None
        self._queue = queue
        self._key = key
        self._left = threading.Lock()

    def leave(self) -> None:
        """Let the next thread in."""
        if self._left.acquire(blocking=False):
            self._queue.leave(self._key)
