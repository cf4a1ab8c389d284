"""A lock provider on top of a backend: waiting, time limits, errors and leases.

`acquire` always takes the same steps: the front of this process's queue, a place in the backend's
queue, a grant, a lease.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from types import TracebackType
from typing import Any, Self

from ...environment import Environment, Process
from ...errors import ConfigError, InputError, LakeLatchError, LockError, LockTimeoutError, LockUnavailableError
from ..interface import BreakRecord, Holder
from ..lock_keys import normal_key
from ..lock_url import LockUrl, check_lease, check_max_hold
from . import at_exit
from . import messages as refusals
from .backend import Backend, Contender, LockRequest
from .events import current
from .lease import STOLEN, Grant, HeldLease, LeaseState
from .renewer import Renewer, shared_renewer
from .thread_queue import LOOK_S, WAIT_S_MAX, FrontQueue, Ticket, shared_queue

__all__ = ["Backend", "Contender", "LeasedLocks", "LockRequest"]

_log = logging.getLogger("lakelatch.locks")

_ABOVE_MAX = 2**62  # tokens are integers of 64 bits somewhere, and must have room to grow
_OUTAGE_S = 0.5  # between two tries while the server does not answer


class LeasedLocks:
    """The `LockProvider` of every built-in backend.

    Args:
        account: separates places that share a URL but belong to different accounts; never shown.
    """

    def __init__(self, backend: Backend, url: LockUrl, env: Environment, *, account: str = "") -> None:
        self.url = str(url)
        self._account = account
        self._backend = backend
        self._settings = url
        self._env = env
        self._closed = False
        # Queue and renewer are shared in a process, kept alive from here, and looked up again after a fork.
        self._process: Process | None = None
        self._front: FrontQueue
        self._renewer: Renewer
        self._name: str  # every request has an owner of its own: this, and a number
        self._numbers: Iterator[int]
        self._live: set[LeaseState] = set()

    @property
    def fair(self) -> bool:
        """True when waiters are served in order."""
        return self._backend.fair

    @property
    def durable_tokens(self) -> bool:
        """True when tokens survive a restart of the backend; some backends know only after they were reached."""
        return self._backend.durable_tokens

    @property
    def lifts_tokens(self) -> bool:
        """True when the backend can grant above a token that it never gave."""
        return self._backend.lifts_tokens

    @property
    def max_leases(self) -> int | None:
        """The measured number of leases that one process can keep alive; None: no limit."""
        return self._backend.max_leases

    @property
    def requests(self) -> int:
        """The number of requests sent to the server since this provider was opened."""
        return self._backend.requests

    @property
    def _address(self) -> str:
        return self.url.partition("?")[0]

    @property
    def place(self) -> str:
        """The name of the place; providers of one place share a queue and a renewer in this process."""
        return self._address + (f"#{self._account}" if self._account else "")

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the addresses only: queue, renewer and leases belong to a process."""
        state = {**self.__dict__, "_process": None, "_live": set()}
        for name in ("_front", "_renewer", "_name", "_numbers"):
            state.pop(name, None)
        return state

    def __repr__(self) -> str:
        return f"<locks at {self.url}>"

    def try_acquire(
        self,
        key: str,
        *,
        lease_s: float | None = None,
        token_above: int = 0,
        reason: str = "",
        max_hold_s: float | None = None,
    ) -> HeldLease | None:
        """Return a lease with a token greater than ``token_above``, or None when the key is busy."""
        return self._grant(self._ask(key, lease_s, max_hold_s, token_above, reason, waits=False), wait_s=None)

    def acquire(
        self,
        key: str,
        *,
        wait_s: float,
        lease_s: float | None = None,
        token_above: int = 0,
        reason: str = "",
        max_hold_s: float | None = None,
        given_up: Callable[[], bool] | None = None,
        look_s: float = LOOK_S,
    ) -> HeldLease:
        """Wait for the key and return its lease.

        ``given_up()`` is called once the key is found busy, about every ``look_s`` from then on, and before the next
        try; when it returns True the wait is over. It is for callers that cannot interrupt this thread, or that may no
        longer need the key. Raises `LockTimeoutError`, which names the holder.
        """
        ask = self._ask(key, lease_s, max_hold_s, token_above, reason, waits=wait_s > 0)
        lease = self._grant(ask, wait_s=wait_s, given_up=given_up, look_s=look_s)
        assert lease is not None
        return lease

    def inspect(self, key: str) -> Holder | None:
        """Return the current holder of the key, or None.

        Its ``queue`` lists the backend's waiters, then the waiting threads of this process.
        """
        self._ready()
        key = self.spell(key)
        holder = self._backend.inspect(key)
        return holder and replace(holder, queue=holder.queue + self._front.waiting(key))

    def break_lease(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """End the lease with ``token`` and keep an audit record. Return False when it is not the holder.

        A holder in this process learns it at once. Others learn it from a notification of the
        backend, or at their next renewal or ``ensure_held(fresh=True)``.
        """
        self._ready()
        key = self.spell(key)
        ours = self._renewer.find(self.place, key, token)
        ended = self._backend.end(key, token=token, reason=reason, who=who)
        if ended:
            facts = {"key": key, "owner": who, "token": token}
            _log.warning("lock %r (token %d): broken by %s: %s", key, token, who, reason, extra=facts)
            if current.observer is not None:
                current.observer.broke(self._settings.scheme, key)
            for hold in ours:
                self._renewer.lost(hold, STOLEN)
                hold.release()
        return ended

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """Return the break records of the key, oldest first."""
        self._ready()
        return self._backend.breaks(self.spell(key))

    def close(self) -> None:
        """Refuse new requests. Leases stay held until they are released or end. Idempotent."""
        if not self._closed:
            self._ready()
            self._closed = True
            self._close_when_idle()

    def _close_when_idle(self) -> None:
        if self._closed and not self._live:
            self._backend.close()

    def _done(self, hold: LeaseState) -> None:
        self._live.discard(hold)
        self._close_when_idle()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def _ready(self) -> Process:
        if self._closed:
            raise LockError(f"The lock provider {self.url} is closed; open it again", key="")
        process = self._env.process()
        if process is not self._process and process != self._process:
            self._front = shared_queue(self._env, self.place)
            self._renewer = shared_renewer(self._env)
            self._live = set()  # a child of fork holds nothing
            self._name = f"{process.host}:{process.pid}:{self._env.uuid()[-12:]}"
            self._numbers = count(1)
            self._process = process
        return process

    def _ask(
        self, key: str, lease_s: float | None, max_hold_s: float | None, token_above: int, reason: str, *, waits: bool
    ) -> LockRequest:
        process = self._ready()
        above_max = getattr(self._backend, "above_max", _ABOVE_MAX)
        if not (isinstance(token_above, int) and 0 <= token_above <= above_max):
            raise InputError(
                f"A token above {token_above} was asked for at {self._address}, which counts from 0 to {above_max} there. "
                "Nothing is "
                "held; begin a new generation of tokens",
                key=key, token_above=token_above,
            )  # fmt: skip
        return LockRequest(
            key=self.spell(key),
            owner=f"{self._name}-{next(self._numbers)}",
            process=process,
            lease_s=self._settings.lease_s if lease_s is None else check_lease(lease_s),
            max_hold_s=self._settings.max_hold_s if max_hold_s is None else check_max_hold(max_hold_s),
            token_above=token_above,
            reason=reason,
            waits=waits,
        )

    def spell(self, key: str) -> str:
        """Return the key as the lock service knows it."""
        if not isinstance(key, str) or not key.strip():
            raise ConfigError(f"A lock key is a text that is not empty, not {key!r}", key=key)
        return self._settings.key or normal_key(key)

    def _grant(
        self,
        ask: LockRequest,
        *,
        wait_s: float | None,
        given_up: Callable[[], bool] | None = None,
        look_s: float = LOOK_S,
    ) -> HeldLease | None:
        """Return the lease. When busy: None if ``wait_s`` is None, else `LockTimeoutError`."""
        most = self._backend.max_leases
        if most is not None and self._renewer.count(self.place) >= most:
            raise refusals.too_many(ask, self._address, most)
        start = self._env.monotonic()
        until = None if wait_s is None else start + wait_s
        lease = None
        try:
            ticket = self._front.enter(ask.key, until=until, owner=ask.owner, given_up=given_up, look_s=look_s)
            if isinstance(ticket, Ticket):
                lease = self._take(ask, ticket, wait_s, until, given_up, look_s)
            elif wait_s is not None:
                if given_up is not None and self._env.monotonic() < start + wait_s:
                    raise _nobody_waits(ask, self._env.monotonic() - start)
                raise self._busy(ask, wait_s, ticket or None, ours=self._front.is_held(ask.key))
        finally:
            if current.observer is not None:
                waited_s = self._env.monotonic() - start
                current.observer.waited(self._settings.scheme, ask.key, waited_s, granted=lease is not None)
        return lease

    def _take(
        self,
        ask: LockRequest,
        ticket: Ticket,
        wait_s: float | None,
        until: float | None,
        given_up: Callable[[], bool] | None,
        look_s: float,
    ) -> HeldLease | None:
        """Acquire with a ticket. Leaves ticket and place unless a lease took them over."""
        env = self._env
        place: Contender | None = None
        lease = None
        answered = False
        try:
            while True:
                place = place or self._backend.line_up(ask.key)
                asked_at = env.monotonic()
                grant, failure = self._try(ask, place, answered=answered)
                answered = True
                if grant is not None:
                    place = None  # the grant has it
                    asked_at = min(asked_at, getattr(grant, "asked_at", asked_at))  # it came while waiting: not later
                    if env.monotonic() < asked_at + ask.lease_s:
                        lease = self._hand_out(ask, grant, asked_at, ticket)
                        return lease
                    # The lease expired while the answer was on its way: never hand out a lost lease.
                    # Released rather than kept: the backend would still show us as the holder for the rest of the
                    # lease it counts.
                    _give_back(ask, grant)
                left = 0.0 if until is None else until - env.monotonic()
                if left <= 0:
                    if wait_s is None:
                        return None
                    raise failure or self._busy(ask, wait_s, None)
                if given_up is not None and given_up():
                    raise failure or _nobody_waits(ask, (wait_s or 0.0) - left)
                if failure is not None:
                    env.sleep(min(left, _OUTAGE_S * (0.5 + env.random())))
                elif self._look_out(ask, place, left, given_up, look_s):
                    raise _nobody_waits(ask, (wait_s or 0.0) - (until or 0.0) + env.monotonic())
        finally:
            try:
                if place is not None:
                    place.leave()
            except (LakeLatchError, OSError) as e:  # the answer is known, whatever happens to the place
                _log.warning("lock %r: a waiter may have left a trace: %s", ask.key, e, extra=_facts(ask, 0))
            finally:
                if lease is None:
                    ticket.leave()

    def _look_out(
        self,
        ask: LockRequest,
        place: Contender | None,
        left: float,
        given_up: Callable[[], bool] | None,
        look_s: float,
    ) -> bool:
        """Wait until another try is worthwhile. Return True if the caller has given up."""
        env = self._env
        if place is None:
            return False
        if given_up is None:
            _wait(place, min(left, WAIT_S_MAX))
            return False
        # Each try may cost a request, so where leases are long it tries less often.
        end = env.monotonic() + min(left, max(LOOK_S, ask.lease_s / 10))
        while (rest := end - env.monotonic()) > 0:
            began, limit = env.monotonic(), min(rest, look_s)
            _wait(place, limit)
            if given_up():
                return True
            if env.monotonic() < began + limit:
                break
        return False

    def _try(
        self, ask: LockRequest, place: Contender, *, answered: bool
    ) -> tuple[Grant | None, LockUnavailableError | None]:
        """Try once.

        A waiter that the service has ``answered`` sits out an outage until its wait ends.
        """
        try:
            return self._backend.try_grant(ask, place), None
        except LockUnavailableError as e:
            if not (answered and ask.waits):
                raise
            return None, e

    def _hand_out(self, ask: LockRequest, grant: Grant, asked_at: float, ticket: Ticket) -> HeldLease:
        lease = None
        try:
            if grant.token <= ask.token_above:
                raise refusals.token_behind(ask, self._address, grant.token)
            hold = LeaseState(
                place=self.place, key=ask.key, owner=ask.owner, grant=grant, asked_at=asked_at, lease_s=ask.lease_s,
                max_hold_s=ask.max_hold_s, env=self._env, process=ask.process, ticket=ticket, done=self._done,
                renew_many=getattr(self._backend, "renew_many", None),
            )  # fmt: skip
            renewer = self._renewer
            lease = HeldLease(hold, renewer)
            self._live.add(hold)
            at_exit.watch(self._env)
            grant.listen(lambda reason: renewer.lost(hold, reason))
        except BaseException:  # also when no thread could be started: the grant would never be released
            if lease is None:
                _give_back(ask, grant)
            else:
                lease.release()
            raise
        hold.log(logging.DEBUG, "granted for %g s", ask.lease_s)
        return lease

    def _busy(self, ask: LockRequest, wait_s: float, ahead: int | None, *, ours: bool = False) -> LockTimeoutError:
        """Build the timeout error. Called before the place is left, so that the backend's queue still shows it."""
        holder = None
        try:
            holder = self._backend.inspect(ask.key)
        except LockUnavailableError:
            raise  # an outage says more than a busy key
        except (LakeLatchError, OSError) as e:
            _log.info("lock %r: its holder cannot be told: %s", ask.key, e, extra=_facts(ask, 0))
        if holder is not None and ask.owner in holder.queue:
            ahead = holder.queue.index(ask.owner) + 1
        return refusals.busy(ask, wait_s, holder, ahead, ours=ours)


def _nobody_waits(ask: LockRequest, waited_s: float) -> LockTimeoutError:
    """The error for a caller that has given up. It does not name the holder: finding out is the costliest request here."""
    return refusals.busy(ask, round(waited_s, 3), None, None)


def _wait(place: Contender, limit_s: float) -> None:
    with suppress(LockUnavailableError):  # the next try meets it too
        place.wait(limit_s)


def _give_back(ask: LockRequest, grant: Grant) -> None:
    """Release a grant that became no lease. If that fails, its lease runs out."""
    try:
        grant.release()
    except (LakeLatchError, OSError) as e:
        _log.warning("lock %r: a grant was not given back: %s", ask.key, e, extra=_facts(ask, grant.token))


def _facts(ask: LockRequest, token: int) -> dict[str, Any]:
    return {"key": ask.key, "owner": ask.owner, "token": token}
