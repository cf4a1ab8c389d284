"""Locks within one process: ``memory://name``.

All providers of one name in a process share their keys; another process, a child of fork included, has its own.
Tokens grow for as long as the process lives, also when a provider is closed and opened again. For tests, for notebooks
and for tables that only one process writes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from ..environment import Environment, Event
from ..errors import ConfigError
from .config import parse_lock_url
from .held import Grant
from .interface import Holder, Release
from .leased import Ask, LeasedLocks, Place


def open_memory_locks(url: str, *, env: Environment) -> LeasedLocks:
    """The provider for a ``memory://name`` URL."""
    settings = parse_lock_url(url)
    name = settings.host + settings.path
    if not name:
        raise ConfigError("memory:// needs a name, such as memory://tests; providers of one name share keys.", url=url)
    return LeasedLocks(MemoryBackend(name, env), settings, env)


@dataclass
class _Slot:
    """One key; ``holder`` and ``deadline`` (monotonic) are those of the last grant."""

    token: int = 0
    holder: Holder | None = None
    deadline: float = 0.0
    waiting: list[Event] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


class _Space:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.slots: dict[str, _Slot] = {}

    def slot(self, key: str) -> _Slot:
        return self.slots.setdefault(key, _Slot())


# Kept for the life of the process, because tokens must never go back. The name includes the process: a child of fork
# inherits this dictionary and must find nothing in it, least of all a lock that a thread of its parent held.
_spaces: dict[tuple[object, str], _Space] = {}


class MemoryBackend:
    """Slots in a dictionary."""

    fair = True
    durable_tokens = False

    def __init__(self, name: str, env: Environment) -> None:
        self._name = name
        self._env = env

    @property
    def _space(self) -> _Space:
        return _spaces.setdefault((self._env.process(), self._name), _Space())

    def line_up(self, key: str) -> Place:
        """A place that is only an event, made when it waits."""
        return _MemoryPlace(self._space, key, self._env)

    def try_grant(self, ask: Ask, place: Place) -> Grant | None:  # noqa: ARG002 (the place is only for waiting)
        """Take the slot if its holder is gone or silent."""
        space, env = self._space, self._env
        with space.lock:
            slot = space.slot(ask.key)
            if slot.holder is not None and env.monotonic() < slot.deadline:
                return None
            slot.token = max(slot.token, ask.above) + 1
            slot.deadline = env.monotonic() + ask.lease_s
            slot.holder = Holder(
                key=ask.key, owner=ask.owner, token=slot.token, since=env.now(), until=env.now() + ask.lease_s,
                reason=ask.reason, host=ask.process.host, pid=ask.process.pid,
            )  # fmt: skip
            return _MemoryGrant(space, ask, slot.token, env)

    def inspect(self, key: str) -> Holder | None:
        """Read the slot."""
        space = self._space
        with space.lock:
            slot = space.slots.get(key)
            if slot is None or slot.holder is None or self._env.monotonic() >= slot.deadline:
                return None
            return slot.holder

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """Empty the slot and write down who did it."""
        space = self._space
        with space.lock:
            slot = space.slots.get(key)
            if slot is None or slot.holder is None or slot.token != token:
                return False
            slot.broken.append(f"token {token} broken by {who} at {self._env.now():.3f}: {reason}")
            _free(slot)
            return True

    def records(self, key: str) -> list[str]:
        """What `end` did to the key, oldest first."""
        return list(self._space.slot(key).broken)

    def close(self) -> None:
        """Nothing is open."""


class _MemoryGrant:
    def __init__(self, space: _Space, ask: Ask, token: int, env: Environment) -> None:
        self.token = token
        self._space = space
        self._ask = ask
        self._env = env

    def _ours(self) -> _Slot | None:
        slot = self._space.slot(self._ask.key)
        return slot if slot.token == self.token and slot.holder is not None else None

    def renew(self) -> bool:
        with self._space.lock:
            slot = self._ours()
            if slot is None or slot.holder is None or self._env.monotonic() >= slot.deadline:
                return False
            slot.deadline = self._env.monotonic() + self._ask.lease_s
            slot.holder = replace(slot.holder, until=self._env.now() + self._ask.lease_s)
            return True

    def check(self) -> bool:
        with self._space.lock:
            return self._ours() is not None

    def release(self) -> Release:
        with self._space.lock:
            slot = self._ours()
            if slot is None:
                return Release.WAS_LOST
            _free(slot)
            return Release.RELEASED


def _free(slot: _Slot) -> None:
    slot.holder = None
    for event in slot.waiting:
        event.set()


class _MemoryPlace:
    """Woken by a release; looks again at the holder's deadline."""

    def __init__(self, space: _Space, key: str, env: Environment) -> None:
        self._space = space
        self._key = key
        self._env = env

    def wait(self, limit_s: float) -> None:
        event = self._env.event()
        with self._space.lock:
            slot = self._space.slot(self._key)
            if slot.holder is None:
                return
            left_s = max(0.0, slot.deadline - self._env.monotonic())
            slot.waiting.append(event)
        try:
            event.wait(min(limit_s, left_s))
        finally:
            with self._space.lock:
                slot.waiting.remove(event)

    def leave(self) -> None:
        pass  # nothing is kept while it does not wait
