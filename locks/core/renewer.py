"""Renew all leases of a process from one timer, which runs only while there are leases.

The timer only reads clocks, so a loss is noticed on time whatever a backend does. Each place (host
or folder of the locks) has one worker for requests and one for callbacks; a worker is a thread that
lives while it has work. A hanging backend delays only its own renewals, a hanging callback only its
neighbours. The number of threads does not grow with the number of leases. A hold shorter than a
third of its lease costs one entry in a set.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Any

from ...environment import SYSTEM, Environment, SystemEnvironment, Timer
from .lease import NO_ANSWER, RELEASED, Grant, HeldLease, LeaseState, renew

_log = logging.getLogger("lakelatch.locks")

_TICK_S_MAX = 0.5  # a loss is reported within a second of the deadline, however long the lease
_TICKS_PER_LEASE = 12
_IDLE_TICKS = 2
_SLOW_DOWN_TICKS = 100  # how often it checks whether a slower tick would do
_BATCH_MAX = 256  # leases in one request; the release of one of them waits for the answer

_shared: weakref.WeakValueDictionary[tuple[object, ...], Renewer] = weakref.WeakValueDictionary()


def shared_renewer(env: Environment) -> Renewer:
    """Return the renewer of this process. A forked child gets a new one."""
    name = (id(env), env.process())
    found = _shared.get(name)
    if found is None:
        # Two threads at once may create two; both work.
        found = _shared.setdefault(name, Renewer(env))
    return found


def all_renewers(env: Environment) -> list[Renewer]:
    """Return the renewers of this process."""
    return [renewer for (_, process), renewer in list(_shared.items()) if process == env.process()]


def every_renewer() -> list[Renewer]:
    """Return the renewers of this process that run in real time."""
    here = SYSTEM.process()
    return [
        each
        for (_, process), each in list(_shared.items())
        if process == here and isinstance(each._env, SystemEnvironment)
    ]


class Renewer:
    """The process's renewer: renews each lease after a third of it, and retries a failure with backoff until the deadline."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._lock = threading.Lock()
        self._holds: set[LeaseState] = set()
        self._counts: Counter[str] = Counter()
        self._workers: dict[tuple[str, str], _Worker] = {}
        self._timer: Timer | None = None
        self._period_s = 0.0
        self._idle = 0
        self._ticks = 0

    def add(self, hold: LeaseState, handle: HeldLease) -> None:
        """Watch ``hold`` until it is released or lost."""
        hold.handle = weakref.ref(handle)
        with self._lock:
            self._idle = 0
            period_s = _period(hold.lease_s)
            if self._timer is None or period_s < self._period_s:
                self._pace(period_s)
            self._holds.add(hold)
            self._counts[hold.place] += 1

    def released(self, hold: LeaseState) -> None:
        """Stop watching ``hold``. A lost one stays until its callbacks have run."""
        if hold.gone() == RELEASED:
            self._forget(hold)

    def holds(self) -> list[LeaseState]:
        """Return the leases that are held now."""
        with self._lock:
            return [hold for hold in self._holds if hold.gone() is None]

    def counts(self) -> dict[str, int]:
        """Return the number of watched leases by place."""
        with self._lock:
            return dict(self._counts)

    def count(self, place: str) -> int:
        """Return the number of watched leases of a place."""
        return self._counts[place]

    def find(self, place: str, key: str, token: int) -> list[LeaseState]:
        """Return this process's lease with ``token``, if there is one."""
        with self._lock:
            return [hold for hold in self._holds if (hold.place, hold.key, hold.grant.token) == (place, key, token)]

    def lost(self, hold: LeaseState, reason: str) -> None:
        """Record a loss and schedule its callbacks. Thread-safe; never waits for a backend."""
        if hold.end(reason) != RELEASED and self._forget(hold):
            # On two workers: a slow callback must not delay the release, nor a hanging backend the callbacks.
            self._worker(hold.place, "lost").put(hold.tell)
            self._worker(hold.place, "renew").put(hold.release)

    def _forget(self, hold: LeaseState) -> bool:
        with self._lock:
            if hold not in self._holds:
                return False
            self._holds.remove(hold)
            self._counts[hold.place] -= 1
            return True

    def _pace(self, period_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._period_s = period_s
        self._timer = self._env.every(period_s, self._tick, name="lakelatch-renewer")

    def _tick(self) -> None:
        now = self._env.monotonic()
        with self._lock:
            due = [hold for hold in self._holds if hold.next_at <= now]
            self._idle = 0 if self._holds else self._idle + 1
            self._ticks += 1
            if self._idle > _IDLE_TICKS and self._timer is not None:
                self._timer.cancel()
                self._timer = None
            elif self._holds and self._ticks % _SLOW_DOWN_TICKS == 0:
                period_s = _period(min(hold.lease_s for hold in self._holds))
                if period_s > self._period_s:
                    self._pace(period_s)
            workers = list(self._workers.values())
        batches: dict[tuple[str, Any], list[LeaseState]] = {}
        for hold in due:
            reason = hold.gone()
            if reason is not None:
                self.lost(hold, reason)
                continue
            hold.next_at = hold.deadline  # until there is an answer
            if hold.handle() is not None:  # else the handle was dropped: the lease runs out
                hold.failure = hold.failure or NO_ANSWER
                batches.setdefault((hold.place, hold.renew_many or hold), []).append(hold)
        for (place, _), holds in batches.items():
            for start in range(0, len(holds), _BATCH_MAX):
                ask = holds[0].renew_many or _renew_one
                self._worker(place, "renew").put(partial(renew, holds[start : start + _BATCH_MAX], ask))
        for worker in workers:
            worker.wake()

    def _worker(self, place: str, kind: str) -> _Worker:
        with self._lock:
            return self._workers.setdefault((place, kind), _Worker(self._env, f"lakelatch-{kind}"))


def _period(lease_s: float) -> float:
    return min(_TICK_S_MAX, lease_s / _TICKS_PER_LEASE)


def _renew_one(grants: list[Grant]) -> list[bool | Exception]:
    return [grant.renew() for grant in grants]


class _Worker:
    """A queue of calls, run one after another on a thread that ends when the queue is empty."""

    def __init__(self, env: Environment, name: str) -> None:
        self._env = env
        self._name = name
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], object]] = deque()
        self._running = False

    def put(self, call: Callable[[], object]) -> None:
        """Queue ``call``."""
        with self._lock:
            self._calls.append(call)
        self.wake()

    def wake(self) -> None:
        """Start the thread if there is something to do."""
        with self._lock:
            if self._running or not self._calls:
                return
            self._running = True
        try:
            self._env.thread(self._run, name=self._name)
        except RuntimeError as e:  # out of threads, or the interpreter is exiting: retried at the next tick
            with self._lock:
                self._running = False
            _log.debug("%s: %s", self._name, e)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._running = False
                    return
                call = self._calls.popleft()
            try:
                call()
            except Exception:  # noqa: BLE001 (one failed call must not end all the others)
                _log.exception("%s failed; it goes on", self._name)
