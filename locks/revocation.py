"""Ask the holder of a lock to release it, on any lock service.

The asker takes a second lock beside the first, ``KEY~revoke``, for as long as it asks. Its reason names the token
that is meant, so the request never reaches a successor. A holder that accepts requests reads that lock every third
of its lease. Nothing is taken away: a holder that ignores requests stays the holder.

    t=0    A holds flights with token 7 and reads flights~revoke every 10 s
    t=4    B takes flights~revoke, reason "token 7: deploy"
    t=10   A reads it, finishes its file and releases the lock at t=12
    t=12   B sees that token 7 is no longer the holder, and releases flights~revoke
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Self

from ..environment import SYSTEM, Environment, Timer
from ..errors import ConfigError, LockError, StorageError
from .interface import Holder, Lease, LockProvider
from .lock_url import normal_key

_log = logging.getLogger("lakelatch.locks")

_LOOK_S = 1.0  # how often an asker checks whether the lock was released
_LOOK_S_MIN = 0.05


def ask_revoke(locks: LockProvider, key: str, *, wait_s: float, reason: str = "", env: Environment = SYSTEM) -> bool:
    """Ask the holder of ``key`` to release the lock, for ``wait_s`` at most.

    Return True when that lease has ended or there was no holder; False when the holder still has it. The lock itself is
    not taken; others may be queued. Holders learn of it within a third of their lease if they gave ``on_revoke``.

    Raises `ConfigError` where all keys of a URL are one lock, so the request has no lock of its own.
    """
    holder = locks.inspect(key)
    until = env.monotonic() + wait_s
    wish: Lease | None = None
    try:
        while holder is not None:
            now = locks.inspect(key)
            if now is None or now.token != holder.token:
                return True
            if wish is None:  # else another process asks already
                wish = locks.try_acquire(_wish_key(key), reason=_words(holder.token, reason))
                if wish is None:
                    _check_apart(locks, key, holder.token)
            left_s = until - env.monotonic()
            if left_s <= 0:
                return False
            env.sleep(min(left_s, _LOOK_S))
        return True
    finally:
        if wish is not None:
            wish.release()


class Listening:
    """A listener for the block's duration: calls ``call`` once, on its own thread, when a process asks for ``lease``."""

    def __init__(self, locks: LockProvider, lease: Lease, call: Callable[[Holder], None], env: Environment) -> None:
        self._locks = locks
        self._lease = lease
        self._call = call
        self._env = env
        self._timer: Timer | None = None

    def __enter__(self) -> Self:
        """Start listening. Raises `ConfigError` where no process could ask."""
        _check_apart(self._locks, self._lease.key, self._lease.token)
        period_s = max(_LOOK_S_MIN, (self._lease.deadline - self._env.monotonic()) / 3)
        self._timer = self._env.every(period_s, self._look, name="lakelatch-revoke")
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._stop()

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        if self._lease.lost is not None:
            self._stop()
            return
        try:
            asker = self._locks.inspect(_wish_key(self._lease.key))
        except (LockError, StorageError) as e:
            _log.info("lock %r: whether somebody asks for it is not known: %s", self._lease.key, e)
            return
        meant = _words(self._lease.token, "")
        if asker is not None and asker.reason.startswith(meant):
            self._stop()
            self._call(replace(asker, key=self._lease.key, reason=asker.reason.removeprefix(meant)))


def _wish_key(key: str) -> str:
    return f"{normal_key(key)}~revoke"


def _words(token: int, reason: str) -> str:
    return f"token {token}: {reason}"


def _check_apart(locks: LockProvider, key: str, token: int) -> None:
    """Raise `ConfigError` if the lock for requests is the lock itself, as with ``key=`` in the URL."""
    other = locks.inspect(_wish_key(key))
    if other is not None and other.token == token and not other.reason.startswith(_words(token, "")):
        raise ConfigError(
            f"All keys of {locks.url} are one lock, so nobody can ask its holder to give it back (on_revoke, ask_revoke). "
            "Use a URL without key=, jvm=lock and layout=hudi, or break_lease",
            url=locks.url, key=key,
        )  # fmt: skip
