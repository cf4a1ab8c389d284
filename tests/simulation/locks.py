"""A lock server in memory, as unreliable as the store: answers get lost, holders are forgotten, clocks differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from lakelatch.errors import LockUnavailableError
from lakelatch.locks.backend import Ask, Place
from lakelatch.locks.config import parse_lock_url
from lakelatch.locks.interface import BreakRecord, Holder, Release
from lakelatch.locks.leased import LeasedLocks

from .environment import SimEnvironment

from .store import Faults

T = TypeVar("T")


@dataclass
class LockServer:
    """One key. ``now`` of the server is the scheduler's."""

    token: int = 0
    holder: Holder | None = None
    until: float = 0.0
    lease_s: float = 0.0
    grants: int = 0

    def forget(self) -> None:
        """A fail-over to a replica that had not heard of the last grant: two may hold it now, and tokens repeat."""
        self.holder = None
        self.token = max(0, self.token - 1)


class SimBackend:
    fair = False
    durable_tokens = False
    lifts_tokens = True
    max_leases = None
    requests = 0

    def __init__(self, server: LockServer, env: SimEnvironment, faults: Faults) -> None:
        self.server, self.env, self.scheduler, self._faults = server, env, env.scheduler, faults

    def line_up(self, key: str) -> Place:
        return _Place(self)

    def try_grant(self, ask: Ask, place: Place) -> _Grant | None:
        assert isinstance(place, _Place)

        def grant() -> _Grant | None:
            server, now = self.server, self.scheduler.now
            if server.holder is not None and now < server.until:
                return None
            server.token = max(server.token, ask.above) + 1
            server.until, server.lease_s = now + ask.lease_s, ask.lease_s
            server.holder = Holder(ask.key, ask.owner, server.token, self.env.now(), None, ask.reason)
            server.grants += 1
            return _Grant(self, ask.owner, server.token)

        place.owner = ask.owner
        return self.request("grant", grant)

    def inspect(self, key: str) -> Holder | None:
        server = self.server
        return self.request("inspect", lambda: server.holder if self.scheduler.now < server.until else None)

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        return self.request("end", lambda: self.give_up(token=token))

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        return ()

    def close(self) -> None:
        pass

    def give_up(self, *, owner: str | None = None, token: int | None = None) -> bool:
        holder = self.server.holder
        if holder is None or (owner or holder.owner) != holder.owner or (token or holder.token) != holder.token:
            return False
        self.server.holder = None
        return True

    def request(self, op: str, act: Callable[[], T]) -> T:
        """One round trip."""
        scheduler, step = self.scheduler, f"lock {op}"
        fault = self._faults.draw(scheduler, step)
        if fault == "crash before":
            scheduler.kill(self.env.sim)
        elif fault == "stop":
            scheduler.stop(self.env.sim, scheduler.random.uniform(1.0, self._faults.long_s))
        self._travel(fault == "slow")
        if fault in ("refuse", "late"):
            raise LockUnavailableError("no answer from the lock server (simulated)")
        answer = act()
        scheduler.note(f"{step} -> {getattr(answer, 'token', answer)}")
        if fault == "twice":
            self.server.forget()
        if fault == "crash after":
            scheduler.kill(self.env.sim)
        self._travel(False)
        if fault == "lose reply":
            raise LockUnavailableError("the answer of the lock server was lost (simulated)")
        return answer

    def _travel(self, slow: bool) -> None:
        seconds = self.scheduler.random.random()
        self.scheduler.pause(seconds * self._faults.long_s if slow else seconds * 0.01)


class _Place:
    def __init__(self, backend: SimBackend) -> None:
        self._backend = backend
        self.owner: str | None = None

    def wait(self, limit_s: float) -> None:
        env = self._backend.env
        env.sleep(min(limit_s, 0.05 + 0.2 * env.random()))

    def leave(self) -> None:
        # Also what a lost answer may have granted.
        if self.owner is not None:
            try:
                self._backend.request("leave", lambda: self._backend.give_up(owner=self.owner))
            except LockUnavailableError:
                pass  # it ends with its lease


class _Grant:
    def __init__(self, backend: SimBackend, owner: str, token: int) -> None:
        self._backend, self._owner, self.token = backend, owner, token

    def _ours(self) -> bool:
        server, now = self._backend.server, self._backend.scheduler.now
        return server.holder is not None and server.holder.owner == self._owner and now < server.until

    def renew(self) -> bool:
        def renew() -> bool:
            server = self._backend.server
            if not self._ours():
                return False
            server.until = self._backend.scheduler.now + server.lease_s
            return True

        return self._backend.request("renew", renew)

    def check(self) -> bool:
        return self._backend.request("check", self._ours)

    def release(self) -> Release:
        done = self._backend.request("release", lambda: self._backend.give_up(owner=self._owner))
        return Release.RELEASED if done else Release.WAS_LOST

    def listen(self, call: Callable[[str], None]) -> None:
        pass


def open_locks(server: LockServer, env: SimEnvironment, faults: Faults) -> LeasedLocks:
    """The provider of one simulated process."""
    return LeasedLocks(SimBackend(server, env, faults), parse_lock_url("sim://server"), env)



