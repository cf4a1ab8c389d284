"""Locks within one process: ``memory://name``.

All providers of one name in a process share their keys; another process, a child of fork included, has its own.
Tokens grow as long as the process lives, even when a provider is closed and reopened. Use it for
tests, notebooks and tables with a single writing process. It is the smallest backend, so read it
before you write another.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..environment import Environment, Event
from ..errors import ConfigError
from .core import STOLEN, Backend, Contender, Grant, LeasedLocks, LockRequest
from .interface import BREAKS_KEPT, BreakRecord, Holder, Release
from .lock_url import LEASE_S, parse_lock_url


def open_memory_locks(url: str, *, env: Environment, lease_s: float = LEASE_S) -> LeasedLocks:
    """Return the provider for a ``memory://name`` URL."""
    settings = parse_lock_url(url, lease_s=lease_s)
    name = settings.host + settings.path
    if not name:
        raise ConfigError("memory:// needs a name, such as memory://tests; providers of one name share keys", url=url)
    return LeasedLocks(MemoryBackend(name, env), settings, env)


@dataclass
class _Slot:
    """The state of one key.

    ``holder``, ``deadline`` (monotonic) and ``tell`` (called when it is lost) belong to the last grant.
    """

    token: int = 0
    holder: Holder | None = None
    deadline: float = 0.0
    tell: Callable[[str], None] | None = None
    line: list[_MemoryContender] = field(default_factory=list)
    broken: deque[BreakRecord] = field(default_factory=lambda: deque(maxlen=BREAKS_KEPT))

    def free(self) -> None:
        self.holder = self.tell = None
        self.wake()

    def wake(self) -> None:
        if self.line:
            self.line[0].woken.set()


class _Space:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.slots: dict[str, _Slot] = {}

    def slot(self, key: str) -> _Slot:
        return self.slots.get(key) or self.slots.setdefault(key, _Slot())


# Kept for the life of the process, because tokens must never go back. The name includes the process: a child of fork
# inherits this dictionary and must find nothing in it, least of all a lock that a thread of its parent held.
_spaces: dict[tuple[object, str], _Space] = {}


class MemoryBackend(Backend):
    """The locks of this process, in a dictionary."""

    fair = True
    durable_tokens = False
    lifts_tokens = True

    def __init__(self, name: str, env: Environment) -> None:
        self._name = name
        self._env = env

    @property
    def _space(self) -> _Space:
        name = (self._env.process(), self._name)
        return _spaces.get(name) or _spaces.setdefault(name, _Space())

    def line_up(self, key: str) -> Contender:
        """Create a contender. It joins the queue at its first wait."""
        return _MemoryContender(self._space, key, self._env)

    def try_grant(self, request: LockRequest, contender: Contender) -> Grant | None:
        """Take the slot if its holder is gone or its lease has ended and no other waiter is ahead."""
        assert isinstance(contender, _MemoryContender)
        space, env = self._space, self._env
        contender.owner = request.owner
        with space.lock:
            slot = space.slot(request.key)
            if slot.holder is not None and env.monotonic() < slot.deadline:
                return None
            if slot.line and slot.line[0] is not contender:
                return None
            contender.step_out(slot)
            slot.token = max(slot.token, request.token_above) + 1
            slot.deadline = env.monotonic() + request.lease_s
            slot.tell = None
            slot.holder = Holder(
                key=request.key, owner=request.owner, token=slot.token, since=env.now(), until=env.now() + request.lease_s,
                reason=request.reason, host=request.process.host, pid=request.process.pid,
            )  # fmt: skip
            return _MemoryGrant(space, request, slot.token, env)

    def inspect(self, key: str) -> Holder | None:
        """Return the holder of the slot, or None."""
        space = self._space
        with space.lock:
            slot = space.slots.get(key)
            if slot is None or slot.holder is None or self._env.monotonic() >= slot.deadline:
                return None
            return replace(slot.holder, queue=tuple(each.owner for each in slot.line))

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """End the grant with that token and record the break."""
        space = self._space
        with space.lock:
            slot = space.slots.get(key)
            if slot is None or slot.holder is None or slot.token != token:
                return False
            slot.broken.append(BreakRecord(key, token, reason, who, self._env.now()))
            tell = slot.tell
            slot.free()
        if tell is not None:
            tell(STOLEN)
        return True

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """Return the break records of the key, oldest first."""
        space = self._space
        with space.lock:
            return tuple(space.slots[key].broken) if key in space.slots else ()


class _MemoryGrant(Grant):
    def __init__(self, space: _Space, request: LockRequest, token: int, env: Environment) -> None:
        self.token = token
        self._space = space
        self._request = request
        self._env = env

    def _ours(self) -> _Slot | None:
        slot = self._space.slot(self._request.key)
        return slot if slot.token == self.token and slot.holder is not None else None

    def renew(self) -> bool:
        with self._space.lock:
            slot = self._ours()
            if slot is None or slot.holder is None or self._env.monotonic() >= slot.deadline:
                return False
            slot.deadline = self._env.monotonic() + self._request.lease_s
            slot.holder = replace(slot.holder, until=self._env.now() + self._request.lease_s)
            return True

    def check(self) -> bool:
        with self._space.lock:
            return self._ours() is not None

    def release(self) -> Release:
        with self._space.lock:
            slot = self._ours()
            if slot is None:
                return Release.WAS_LOST
            slot.free()
            return Release.RELEASED

    def listen(self, call: Callable[[str], None]) -> None:
        with self._space.lock:
            slot = self._ours()
            if slot is not None:
                slot.tell = call
                return
        call(STOLEN)


class _MemoryContender(Contender):
    """A waiter, queued at its first wait. A release or the holder's deadline wakes the head."""

    owner = ""
    woken: Event  # set only while it is queued

    def __init__(self, space: _Space, key: str, env: Environment) -> None:
        self._space = space
        self._key = key
        self._env = env

    def wait(self, limit_s: float) -> None:
        with self._space.lock:
            slot = self._space.slot(self._key)
            self.woken = self._env.event()
            if self not in slot.line:
                slot.line.append(self)
            if slot.line[0] is self:
                if slot.holder is None:
                    return
                limit_s = min(limit_s, max(0.0, slot.deadline - self._env.monotonic()))
        self.woken.wait(limit_s)

    def leave(self) -> None:
        with self._space.lock:
            self.step_out(self._space.slot(self._key))

    def step_out(self, slot: _Slot) -> None:
        """Leave the queue and wake the next waiter."""
        if self in slot.line:
            slot.line.remove(self)
            slot.wake()
