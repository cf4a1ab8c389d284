"""The one renewer of a process: a single slow timer for all leases, started with the first and stopped when idle.

It only looks at clocks. Each renewal and each report of a loss runs on a short thread of its own, so that a backend
that hangs delays nobody else's renewal. A hold shorter than a third of its lease costs an entry in a dictionary.
"""

from __future__ import annotations

import threading
import weakref

from ..environment import Environment, Timer
from .held import RELEASED, HeldLease, Hold

_TICKS_PER_LEASE = 12
_IDLE_TICKS = 8

_shared: weakref.WeakValueDictionary[tuple[object, ...], Renewer] = weakref.WeakValueDictionary()


def shared_renewer(env: Environment) -> Renewer:
    """The renewer of this process; a child of fork gets a new one, because its parent's thread is not in it."""
    name = (id(env), env.process())
    found = _shared.get(name)
    if found is None:
        # Two threads that come at once may make two: both work.
        found = _shared.setdefault(name, Renewer(env))
    return found


class Renewer:
    """Renews at a third of each lease, then at every tick (a twelfth) until it succeeds or the deadline has passed."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._lock = threading.Lock()
        self._holds: dict[Hold, weakref.ref[HeldLease]] = {}
        self._timer: Timer | None = None
        self._period_s = 0.0
        self._idle = 0

    def add(self, hold: Hold, handle: HeldLease) -> None:
        """Watch ``hold`` until it is released or lost."""
        period_s = hold.lease_s / _TICKS_PER_LEASE
        with self._lock:
            self._holds[hold] = weakref.ref(handle)
            self._idle = 0
            if self._timer is None or period_s < self._period_s:
                if self._timer is not None:
                    self._timer.cancel()
                self._period_s = period_s
                self._timer = self._env.every(period_s, self._tick, name="lakelatch-renewer")

    def released(self, hold: Hold) -> None:
        """Stop watching; a hold that was lost stays until its loss has been told."""
        if hold.gone() == RELEASED:
            with self._lock:
                self._holds.pop(hold, None)

    def lose(self, key: str, token: int, reason: str) -> None:
        """Make a lease of this process notice now what its next renewal would tell it."""
        with self._lock:
            found = [hold for hold in self._holds if (hold.key, hold.grant.token) == (key, token)]
        for hold in found:
            hold.end(reason)
            hold.finish_lost()

    def _tick(self) -> None:
        now = self._env.monotonic()
        with self._lock:
            holds = list(self._holds.items())
            self._idle = 0 if holds else self._idle + 1
            if self._idle > _IDLE_TICKS and self._timer is not None:
                self._timer.cancel()
                self._timer = None
                self._idle = 0
        for hold, handle in holds:
            if hold.gone() is not None:
                with self._lock:
                    known = self._holds.pop(hold, None)
                if known is not None:
                    self._env.thread(hold.finish_lost, name="lakelatch-lost")
            elif handle() is not None and now >= hold.renew_at and not hold.renewing:
                # A handle that nobody has any more is not renewed: its lease ends by itself.
                hold.renewing = True
                self._env.thread(hold.renew, name="lakelatch-renew")
