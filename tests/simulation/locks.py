"""Lock servers in memory, as unreliable as the store: answers get lost, holders are forgotten, clocks differ."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from lakelatch.errors import LockUnavailableError
from lakelatch.locks.core.backend import Backend, Contender, Grant, LockRequest
from lakelatch.locks.core.provider import LeasedLocks
from lakelatch.locks.interface import BreakRecord, Holder, Release
from lakelatch.locks.lock_url import parse_lock_url

from .environment import SimEnvironment
from .faults import Network
from .scheduler import SimProcess

T = TypeVar("T")


@dataclass
class Tenure:
    """The last time that a process had the lock: from when on, and whether it gave it back itself."""

    owner: str
    since: float
    over: bool = False


@dataclass
class LockServer:
    """One key, by the scheduler's clock. ``granted`` and ``ends`` are kept for the judge, whatever the server forgets."""

    token: int = 0
    holder: Holder | None = None
    until: float = 0.0
    lease_s: float = 0.0
    granted: set[int] = field(default_factory=set)
    ends: dict[str, float] = field(default_factory=dict)  # by owner: when its lease ends
    last: dict[SimProcess, Tenure] = field(default_factory=dict)

    def has(self, process: SimProcess, now: float) -> bool:
        """Whether it holds the lock."""
        tenure = self.last.get(process)
        return tenure is not None and self.holder is not None and self.holder.owner == tenure.owner and now < self.until

    def forget(self) -> None:
        """A fail-over to a replica that had not heard of the last grant: two may hold it now, and tokens repeat."""
        self.holder = None
        self.token = max(0, self.token - 1)

    def give_up(self, *, owner: str | None = None, token: int | None = None) -> bool:
        holder = self.holder
        for each in self.last.values():
            if owner == each.owner:
                each.over = True
        if holder is None or (owner or holder.owner) != holder.owner or (token or holder.token) != holder.token:
            return False
        self.holder = None
        return True


class SimBackend(Backend):
    fair = False
    durable_tokens = False
    lifts_tokens = True

    def __init__(self, server: LockServer, env: SimEnvironment, network: Network) -> None:
        self.server, self.env, self._network = server, env, network

    @property
    def now(self) -> float:
        return self._network.scheduler.now

    def line_up(self, key: str) -> Contender:
        return _Contender(self)

    def try_grant(self, request: LockRequest, contender: Contender) -> _Grant | None:
        assert isinstance(contender, _Contender)

        def grant() -> _Grant | None:
            server, now = self.server, self.now
            if server.holder is not None and now < server.until:
                return None
            server.token = max(server.token, request.token_above) + 1
            server.until, server.lease_s = now + request.lease_s, request.lease_s
            server.ends[request.owner] = server.until
            server.granted.add(server.token)
            server.last[self._network.process] = Tenure(request.owner, now)
            server.holder = Holder(request.key, request.owner, server.token, self.env.now(), None, request.reason)
            return _Grant(self, request.owner, server.token)

        contender.owner = request.owner
        return self.request("grant", grant)

    def inspect(self, key: str) -> Holder | None:
        server = self.server
        return self.request("inspect", lambda: server.holder if self.now < server.until else None)

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        return self.request("end", lambda: self.server.give_up(token=token))

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        return ()

    def request(self, op: str, act: Callable[[], T]) -> T:
        """One round trip."""
        network, step = self._network, f"lock {op}"
        fault = network.before(step)
        if fault == "refuse":
            raise LockUnavailableError("no answer from the lock server (simulated)")
        answer = act()
        if network.scheduler.trace is not None:
            network.scheduler.note(f"{step} -> {getattr(answer, 'token', answer)}")
        if fault == "forget":
            self.server.forget()
        if network.after(fault):
            raise LockUnavailableError("the answer of the lock server was lost (simulated)")
        return answer


class _Contender(Contender):
    def __init__(self, backend: SimBackend) -> None:
        self._backend = backend
        self.owner: str | None = None

    def wait(self, limit_s: float) -> None:
        env = self._backend.env
        env.sleep(min(limit_s, 0.05 + 0.4 * env.random()))

    def leave(self) -> None:
        # Also what a lost answer may have granted.
        if self.owner is not None:
            with suppress(LockUnavailableError):  # it ends with its lease
                self._backend.request("leave", lambda: self._backend.server.give_up(owner=self.owner))


class _Grant(Grant):
    def __init__(self, backend: SimBackend, owner: str, token: int) -> None:
        self._backend, self._owner, self.token = backend, owner, token

    def _ours(self) -> bool:
        server = self._backend.server
        return server.holder is not None and server.holder.owner == self._owner and self._backend.now < server.until

    def renew(self) -> bool:
        def renew() -> bool:
            server = self._backend.server
            if not self._ours():
                return False
            server.until = server.ends[self._owner] = self._backend.now + server.lease_s
            return True

        return self._backend.request("renew", renew)

    def check(self) -> bool:
        return self._backend.request("check", self._ours)

    def release(self) -> Release:
        done = self._backend.request("release", lambda: self._backend.server.give_up(owner=self._owner))
        return Release.RELEASED if done else Release.WAS_LOST

    def ends_at(self) -> float:
        """When the server takes this lease for ended, by the scheduler's clock."""
        return self._backend.server.ends[self._owner]


def open_locks(url: str, server: LockServer, env: SimEnvironment, network: Network) -> LeasedLocks:
    """The provider of one simulated process."""
    return LeasedLocks(SimBackend(server, env, network), parse_lock_url(url), env)
