"""A backend that answers as told, for tests of what is written once above all backends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from lakelatch.environment import Environment
from lakelatch.locks import BreakRecord, Holder, Release
from lakelatch.locks.core.backend import Backend, Contender, Grant, LockRequest
from lakelatch.locks.core.provider import LeasedLocks
from lakelatch.locks.lock_url import parse_lock_url
from lakelatch.testing.contention import PATIENCE_S


@dataclass(eq=False)
class ScriptedGrant(Grant):
    """``answer`` is that of `renew` and `check`: a bool or an error. While ``hangs`` is cleared, no call returns."""

    token: int
    answer: bool | Exception = True
    given_back: Release | Exception = Release.RELEASED
    hangs: threading.Event = field(default_factory=lambda: _set())
    renewals: int = 0
    releases: int = 0
    news: Callable[[str], None] | None = None

    def renew(self) -> bool:
        self.renewals += 1
        self.hangs.wait(PATIENCE_S)
        return self.check()

    def check(self) -> bool:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def release(self) -> Release:
        self.releases += 1
        self.hangs.wait(PATIENCE_S)
        if isinstance(self.given_back, Exception):
            raise self.given_back
        return self.given_back

    def listen(self, call: Callable[[str], None]) -> None:
        self.news = call


class ScriptedContender(Contender):
    """Waits at once and counts."""

    def __init__(self, backend: ScriptedBackend) -> None:
        self._backend = backend

    def wait(self, limit_s: float) -> None:
        self._backend.on_wait(limit_s)

    def leave(self) -> None:
        self._backend.left += 1
        if self._backend.leave_error is not None:
            raise self._backend.leave_error


class ScriptedBackend(Backend):
    """Grants one after another from ``grants``; then everything is busy."""

    fair = durable_tokens = lifts_tokens = False

    def __init__(self, *grants: ScriptedGrant) -> None:
        self.grants = list(grants)
        self.holder: Holder | None = None
        self.left = 0
        self.closed = 0
        self.leave_error: Exception | None = None
        self.inspect_error: Exception | None = None
        self.on_grant: Callable[[], None] = lambda: None
        self.on_wait: Callable[[float], None] = lambda _: None

    def line_up(self, key: str) -> ScriptedContender:
        return ScriptedContender(self)

    def try_grant(self, request: LockRequest, contender: Contender) -> Grant | None:
        self.asked = request
        self.on_grant()
        return self.grants.pop(0) if self.grants else None

    def inspect(self, key: str) -> Holder | None:
        if self.inspect_error is not None:
            raise self.inspect_error
        return self.holder

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        return True

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        return ()

    def close(self) -> None:
        self.closed += 1


def provider(backend: ScriptedBackend, env: Environment, *, place: str = "place", query: str = "") -> LeasedLocks:
    """The provider that `LeasedLocks` makes of it."""
    return LeasedLocks(backend, parse_lock_url(f"scripted://{place}{query}"), env)


def _set() -> threading.Event:
    event = threading.Event()
    event.set()
    return event
