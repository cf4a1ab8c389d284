"""A lock provider made of a backend: waiting, time limits, errors and leases, written once.

A backend says how to take a key once, how to wait in its own line, who holds a key and how to end that. The order of
things in `acquire` is the same for all: front of this process's queue, a place in the backend's line, grant, lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Protocol, Self

from ..environment import Environment, Process
from ..errors import ConfigError, LockError, LockTimeoutError
from .config import LockUrl, check_lease, check_max_hold
from .held import STOLEN, Grant, HeldLease, Hold
from .interface import BreakRecord, Holder
from .queue import Ticket, shared_queue
from .renewer import shared_renewer


@dataclass(frozen=True, slots=True)
class Ask:
    """One request for a key, as a backend sees it."""

    key: str
    owner: str
    process: Process
    lease_s: float
    max_hold_s: float | None
    above: int
    reason: str
    waits: bool  # True: the caller will wait, so it must not overtake those who wait already


class Place(Protocol):
    """A place in the backend's own line for one key."""

    def wait(self, limit_s: float) -> None:
        """Block until another try is worth its cost, at most ``limit_s``. The backend decides the pace."""
        ...

    def leave(self) -> None:
        """Leave no trace. Called once if no grant came; with a grant, the grant has taken the place over."""
        ...


class Backend(Protocol):
    """The few things that differ between lock services. Raises `StorageError` or `LockError` when it cannot answer.

    ``max_leases`` is the number of leases that one process can keep alive here, as measured (None: as many as fit in
    memory); more are refused. ``requests`` counts the requests that went to the server since the backend was opened.
    """

    fair: bool
    durable_tokens: bool
    lifts_tokens: bool
    max_leases: int | None
    requests: int

    def line_up(self, key: str) -> Place:
        """A place for one request; touches the backend if that needs to know who waits."""
        ...

    def try_grant(self, ask: Ask, place: Place) -> Grant | None:
        """One try; None when the key is busy. Raises `TokenBehindError` where a token above ``ask.above`` cannot be had."""
        ...

    def inspect(self, key: str) -> Holder | None:
        """Who holds the key now."""
        ...

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """Break the grant that has ``token`` and keep a record; False when it is not the holder."""
        ...

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """What `end` did to the key, oldest first."""
        ...

    def close(self) -> None:
        """Free connections and threads; grants stay."""
        ...


class LeasedLocks:
    """The `LockProvider` of every built-in backend."""

    def __init__(self, backend: Backend, url: LockUrl, env: Environment) -> None:
        self.url = str(url)
        self.fair = backend.fair
        self.durable_tokens = backend.durable_tokens
        self.lifts_tokens = backend.lifts_tokens
        self._backend = backend
        self._settings = url
        self._env = env
        self._closed = False
        # Queue and renewer are shared in a process, kept alive from here, and looked up again after a fork.
        self._process: Process | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Addresses only: queue and renewer belong to a process."""
        return {**self.__dict__, "_process": None, "_front": None, "_renewer": None}

    def __repr__(self) -> str:
        return f"<locks at {self.url}>"

    def try_acquire(
        self,
        key: str,
        *,
        lease_s: float | None = None,
        above: int = 0,
        reason: str = "",
        max_hold_s: float | None = None,
    ) -> HeldLease | None:
        """A lease whose token exceeds ``above``, or None when the key is busy."""
        ask = self._ask(key, lease_s, max_hold_s, above, reason, waits=False)
        ticket = self._front.enter(key, until=None)
        return None if ticket is None else self._take(ask, ticket, until=None)

    def acquire(
        self,
        key: str,
        *,
        wait_s: float,
        lease_s: float | None = None,
        above: int = 0,
        reason: str = "",
        max_hold_s: float | None = None,
    ) -> HeldLease:
        """Wait for the key. Raises `LockTimeoutError` naming the holder; nothing is held then."""
        ask = self._ask(key, lease_s, max_hold_s, above, reason, waits=wait_s > 0)
        until = self._env.monotonic() + wait_s
        ticket = self._front.enter(key, until=until)
        lease = None if ticket is None else self._take(ask, ticket, until=until)
        if lease is None:
            raise self._busy(key, wait_s)
        return lease

    def inspect(self, key: str) -> Holder | None:
        """Who holds the key now, or None."""
        return self._backend.inspect(self._check_key(key))

    def break_(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """End the lease that has ``token``, leaving an audit record; False when that is no longer the holder.

        The holder learns it at its next renewal or ``ensure_held(fresh=True)``; until then it believes that it holds.
        """
        self._ready()
        ended = self._backend.end(self._check_key(key), token=token, reason=reason, who=who)
        if ended:
            self._renewer.lose(key, token, STOLEN)
        return ended

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """What `break_` did to the key, oldest first."""
        return self._backend.breaks(self._check_key(key))

    def close(self) -> None:
        """Take nothing more; leases that are held stay held until they are released or end. Twice is fine."""
        if not self._closed:
            self._closed = True
            self._backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _ready(self) -> Process:
        process = self._env.process()
        if process != self._process:
            self._front = shared_queue(self._env, self.url.partition("?")[0])
            self._renewer = shared_renewer(self._env)
            self._process = process
        return process

    def _ask(
        self, key: str, lease_s: float | None, max_hold_s: float | None, above: int, reason: str, *, waits: bool
    ) -> Ask:
        if self._closed:
            raise LockError(f"The lock provider {self.url} is closed; open it again.", key=key)
        process = self._ready()
        return Ask(
            key=self._check_key(key),
            owner=f"{process.host}:{process.pid}:{self._env.uuid()[-12:]}",
            process=process,
            lease_s=self._settings.lease_s if lease_s is None else check_lease(lease_s),
            max_hold_s=self._settings.max_hold_s if max_hold_s is None else check_max_hold(max_hold_s),
            above=above,
            reason=reason,
            waits=waits,
        )

    @staticmethod
    def _check_key(key: str) -> str:
        if not isinstance(key, str) or not key:
            raise ConfigError(f"A lock key is a text that is not empty, not {key!r}.", key=key)
        return key

    def _take(self, ask: Ask, ticket: Ticket, *, until: float | None) -> HeldLease | None:
        """The lease, or None at the time limit; ticket and place are left unless a lease took them over."""
        env = self._env
        taken = False
        try:
            place = self._backend.line_up(ask.key)
            try:
                while True:
                    asked_at = env.monotonic()
                    grant = self._backend.try_grant(ask, place)
                    if grant is not None and env.monotonic() < asked_at + ask.lease_s:
                        taken = True
                        hold = Hold(
                            key=ask.key, owner=ask.owner, grant=grant, asked_at=asked_at, lease_s=ask.lease_s,
                            max_hold_s=ask.max_hold_s, env=env, ticket=ticket,
                        )  # fmt: skip
                        return self._hand_out(hold)
                    if grant is not None:
                        # The lease ran out while the answer was on its way: never hand out what is lost already.
                        grant.release()
                        place = self._backend.line_up(ask.key)
                    left = 0.0 if until is None else until - env.monotonic()
                    if left <= 0:
                        return None
                    place.wait(left)
            finally:
                if not taken:
                    place.leave()
        finally:
            if not taken:
                ticket.leave()

    def _hand_out(self, hold: Hold) -> HeldLease:
        try:
            return HeldLease(hold, self._renewer)
        except BaseException:  # no thread could be started: nobody would ever release it
            hold.release()
            raise

    def _busy(self, key: str, wait_s: float) -> LockTimeoutError:
        holder = self._backend.inspect(key)
        if holder is None:
            return LockTimeoutError(
                f"Lock {key!r} was busy for {wait_s:g} s (free just now; others were first). Nothing is held; "
                "try again or wait longer.",
                key=key, wait_s=wait_s, holder=None,
            )  # fmt: skip
        since = datetime.fromtimestamp(holder.since, UTC).isoformat(timespec="seconds")
        purpose = f" for {holder.reason!r}" if holder.reason else ""
        return LockTimeoutError(
            f"Lock {key!r} was busy for {wait_s:g} s: held by process {holder.pid} on {holder.host or 'some host'}"
            f"{purpose} since {since} by its clock (token {holder.token}). Nothing is held; wait longer, or end that "
            f"holder with break_(key, token={holder.token}, ...) if it is known to be stuck.",
            key=key, wait_s=wait_s, holder=holder,
        )  # fmt: skip
