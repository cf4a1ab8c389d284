"""A lock provider on top of a backend: waiting, time limits, errors and leases.

`acquire` always takes the same steps: the front of this process's queue, a contender in the backend's
queue, a grant, a lease.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from types import TracebackType
from typing import Any, Self

from ...arguments import number, text
from ...environment import Environment, Process
from ...errors import (
    ConfigError,
    InputError,
    LakeLatchError,
    LockError,
    LockTimeoutError,
    LockUnavailableError,
    TokenRegressedError,
)
from ..interface import BreakRecord, Holder
from ..lock_url import LockUrl, check_lease, check_max_hold, normal_key
from . import at_exit
from .backend import STOLEN, Backend, Contender, Grant, LockRequest
from .events import current
from .lease import HeldLease, LeaseState, Renewer, shared_renewer
from .thread_queue import LOOK_S, WAIT_S_MAX, FrontQueue, Ticket, shared_queue

_log = logging.getLogger("lakelatch.locks")

_OUTAGE_S = 0.5  # between two tries while the server does not answer


@dataclass(frozen=True, slots=True)
class _Patience:
    """A caller's patience. ``wait_s`` None: it tries once, and a busy key is no error."""

    env: Environment
    began: float
    wait_s: float | None
    given_up: Callable[[], bool] | None

    @property
    def until(self) -> float | None:
        return None if self.wait_s is None else self.began + self.wait_s

    @property
    def left_s(self) -> float:
        return 0.0 if self.wait_s is None else self.began + self.wait_s - self.env.monotonic()

    @property
    def waited_s(self) -> float:
        return self.env.monotonic() - self.began


class LeasedLocks:
    """The `LockProvider` of every built-in backend.

    Args:
        account: separates places that share a URL but belong to different accounts; never shown.
    """

    def __init__(self, backend: Backend, url: LockUrl, env: Environment, *, account: str = "") -> None:
        self.url = str(url)
        # Providers of one place share a queue and a renewer in this process.
        self.place = self._address + (f"#{account}" if account else "")
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

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the addresses only: queue, renewer and leases belong to a process."""
        # A lease stays with the process that took it. A copy that believed it held one would release it under its
        # holder.
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
        request = self._request(key, lease_s, max_hold_s, token_above, reason, waits=False)
        return self._grant(request, _Patience(self._env, self._env.monotonic(), None, None))

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
    ) -> HeldLease:
        """Wait for the key and return its lease.

        ``given_up()`` is called once the key is found busy, about every second from then on, and before the next
        try; when it returns True the wait is over. It is for callers that cannot interrupt this thread. Raises
        `LockTimeoutError`, which names the holder.
        """
        number(wait_s, "wait_s", least=0, endless=True)
        request = self._request(key, lease_s, max_hold_s, token_above, reason, waits=wait_s > 0)
        lease = self._grant(request, _Patience(self._env, self._env.monotonic(), wait_s, given_up))
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
        number(token, "token", whole=True)
        text(reason, "reason", empty=True)
        text(who, "who", empty=True)
        # Before the grant ends: afterwards a renewal may notice the loss first and forget the lease.
        ours = self._renewer.find(self.place, key, token)
        ended = self._backend.end(key, token=token, reason=reason, who=who)
        if ended:
            facts = {"key": key, "owner": who, "token": token}
            _log.warning("lock %r (token %d): broken by %s: %s", key, token, who, reason, extra=facts)
            if current.observer is not None:
                current.observer.broke(self._settings.scheme, key)
            for lease in ours:
                self._renewer.lost(lease, STOLEN)
                lease.release()
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

    def _done(self, lease: LeaseState) -> None:
        self._live.discard(lease)
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

    def _request(
        self, key: str, lease_s: float | None, max_hold_s: float | None, token_above: int, reason: str, *, waits: bool
    ) -> LockRequest:
        process, above_max = self._ready(), self._backend.above_max
        text(reason, "reason", empty=True)
        if not (isinstance(token_above, int) and 0 <= token_above <= above_max):
            raise InputError(
                f"A token above {token_above} was asked for at {self._address}, which counts from 0 to {above_max} there. "
                "Nothing is held; begin a new generation of tokens",
                key=str(key),
            )
        key = self.spell(key)
        lease_s = self._settings.lease_s if lease_s is None else check_lease(lease_s)
        return LockRequest(
            key=key,
            owner=f"{self._name}-{next(self._numbers)}",
            process=process,
            max_hold_s=self._settings.max_hold_s if max_hold_s is None else check_max_hold(max_hold_s),
            lease_s=min(lease_s, self._backend.lease_s_max()),
            token_above=token_above,
            reason=reason,
            waits=waits,
        )

    def spell(self, key: str) -> str:
        """Return the key as the lock service knows it."""
        if not isinstance(key, str) or not key.strip():
            raise ConfigError(f"A lock key is a text that is not empty, not {key!r}", key=str(key))
        return self._settings.key or normal_key(key)

    def _grant(self, request: LockRequest, patience: _Patience) -> HeldLease | None:
        """Return the lease. When busy: None if the caller does not wait, else `LockTimeoutError`."""
        most = self._backend.max_leases
        if most is not None and self._renewer.count(self.place) >= most:
            raise LockError(
                f"This process holds {most} leases at {self._address}, which is as many as it can keep alive there. Lock "
                f"{request.key!r} was not taken; release others first, or spread the work over more processes",
                key=request.key, max_leases=most,
            )  # fmt: skip
        lease = None
        if current.observer is not None:
            current.observer.asked(self._settings.scheme, request.key)
        try:
            ticket = self._front.enter(
                request.key,
                until=patience.until,
                owner=request.owner,
                given_up=patience.given_up,
            )
            if isinstance(ticket, Ticket):
                lease = self._take(request, ticket, patience)
            elif patience.wait_s is not None:
                if patience.given_up is not None and patience.left_s > 0:
                    raise _nobody_waits(request, patience)
                raise self._busy(request, patience.wait_s, ticket or None, ours=self._front.is_held(request.key))
        finally:
            if current.observer is not None:
                granted = lease is not None
                current.observer.waited(self._settings.scheme, request.key, patience.waited_s, granted=granted)
        return lease

    def _take(self, request: LockRequest, ticket: Ticket, patience: _Patience) -> HeldLease | None:
        """Acquire with a ticket. Leaves ticket and contender unless a lease took them over."""
        env = self._env
        contender: Contender | None = None
        lease = None
        answered = False
        try:
            while True:
                # The place in line survives a failed try; only a grant uses it up.
                contender = contender or self._backend.line_up(request.key)
                # t=0 we ask; t=1 the service grants and counts the lease from here; t=2 the answer arrives. Counted
                # from t=0, our lease ends before the service's does, never after.
                asked_at = env.monotonic()
                grant, failure = self._try(request, contender, answered=answered)
                answered = True
                if grant is not None:
                    contender = None  # the grant has it
                    # A grant that came while waiting began no later than it says.
                    asked_at = asked_at if grant.asked_at is None else min(asked_at, grant.asked_at)
                    if env.monotonic() < asked_at + request.lease_s:
                        lease = self._hand_out(request, grant, asked_at, ticket)
                        return lease
                    # The lease expired while the answer was on its way: never hand out a lost lease.
                    # Released rather than kept: the backend would still show us as the holder for the rest of the
                    # lease it counts.
                    _give_back(request, grant)
                left_s = patience.left_s
                if left_s <= 0:
                    if patience.wait_s is None:
                        return None
                    raise failure or self._busy(request, patience.wait_s, None)
                # Asked between tries only. A caller that gives up in the middle of one would leave a grant that
                # nobody releases.
                if patience.given_up is not None and patience.given_up():
                    raise failure or _nobody_waits(request, patience)
                if failure is not None:
                    env.sleep(min(left_s, _OUTAGE_S * (0.5 + env.random())))
                elif contender is not None and _wait(request, contender, patience, left_s):
                    raise _nobody_waits(request, patience)
        finally:
            try:
                if contender is not None:
                    contender.leave()
            except (LakeLatchError, OSError) as e:
                # The answer is known, whatever happens to the contender; the outage that is raised is not told twice.
                level = logging.DEBUG if str(e) == str(e.__context__) else logging.WARNING
                _log.log(level, "lock %r: a waiter may have left a trace: %s", request.key, e, extra=_facts(request, 0))
            finally:
                if lease is None:
                    ticket.leave()

    def _try(
        self, request: LockRequest, contender: Contender, *, answered: bool
    ) -> tuple[Grant | None, LockUnavailableError | None]:
        """Try once. A waiter that the service has ``answered`` sits out an outage until its wait ends."""
        try:
            return self._backend.try_grant(request, contender), None
        except LockUnavailableError as e:
            if not (answered and request.waits):
                raise
            return None, e

    def _hand_out(self, request: LockRequest, grant: Grant, asked_at: float, ticket: Ticket) -> HeldLease:
        lease = None
        try:
            # Checked here for every backend: a token that goes back would let a stale holder pass for the present
            # one.
            if grant.token <= request.token_above:
                raise TokenRegressedError(
                    f"Lock {request.key!r} would be granted with token {grant.token}, but token {request.token_above} was seen "
                    f"before: the counter at {self._address} went back (it was rebuilt or emptied) and could not be lifted. "
                    "Nothing is held; begin a new generation of tokens",
                    key=request.key, token=grant.token, token_above=request.token_above,
                )  # fmt: skip
            state = LeaseState(
                place=self.place, key=request.key, owner=request.owner, grant=grant, asked_at=asked_at,
                lease_s=request.lease_s, max_hold_s=request.max_hold_s, env=self._env, process=request.process,
                ticket=ticket, renew_many=self._backend.renew_many, batch_max=self._backend.batch_max, done=self._done,
            )  # fmt: skip
            renewer = self._renewer
            lease = HeldLease(state, renewer)
            # In this order: the lease counts as open before its loss can be reported, so `close` waits for it.
            self._live.add(state)
            at_exit.watch(self._env)
            grant.listen(lambda reason: renewer.lost(state, reason))
        except BaseException:
            # Also when no thread could be started: the grant would never be released.
            if lease is None:
                _give_back(request, grant)
            else:
                lease.release()
            raise
        state.log(logging.DEBUG, "granted for %g s", request.lease_s)
        return lease

    def _busy(self, request: LockRequest, wait_s: float, ahead: int | None, *, ours: bool = False) -> LockTimeoutError:
        """Build the timeout error. Called before the queue is left, so that the backend still shows our place in it."""
        holder = None
        try:
            holder = self._backend.inspect(request.key)
        except LockUnavailableError:
            raise  # an outage says more than a busy key
        except (LakeLatchError, OSError) as e:
            _log.info("lock %r: its holder cannot be told: %s", request.key, e, extra=_facts(request, 0))
        if holder is not None and request.owner in holder.queue:
            ahead = holder.queue.index(request.owner) + 1
        return _timeout(request.key, wait_s, holder, ahead, ours=ours)


def _wait(request: LockRequest, contender: Contender, patience: _Patience, left_s: float) -> bool:
    """Wait until another try is worthwhile. Return True if the caller has given up."""
    env, given_up = patience.env, patience.given_up
    if given_up is None:
        with suppress(LockUnavailableError):  # the next try meets it too
            contender.wait(min(left_s, WAIT_S_MAX))
        return False
    # Each try may cost a request, so where leases are long it tries less often than the caller is asked.
    end = env.monotonic() + min(left_s, max(LOOK_S, request.lease_s / 10))
    while (rest_s := end - env.monotonic()) > 0:
        began, limit_s = env.monotonic(), min(rest_s, LOOK_S)
        with suppress(LockUnavailableError):
            contender.wait(limit_s)
        if given_up():
            return True
        if env.monotonic() < began + limit_s:
            return False
    return False


def time_text(at: float) -> str:
    """Return a time for people. A record's time may be any number."""
    try:
        return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError, OSError):
        return "a time that is none"


def _nobody_waits(request: LockRequest, patience: _Patience) -> LockTimeoutError:
    """The error for a caller that has given up. It does not name the holder: finding out is the costliest request here."""
    return _timeout(request.key, round(patience.waited_s, 3), None, None)


def _timeout(
    key: str, wait_s: float, holder: Holder | None, ahead: int | None, *, ours: bool = False
) -> LockTimeoutError:
    """The error when the wait for the key timed out. Nothing is held.

    ``ahead`` counts the holder and the waiters before us, where known. ``ours``: a lease of this
    process holds the key. It may not be the caller's own: pool threads and tasks
    change places, and a lease may be handed on.
    """
    line = "" if ahead is None else f" (number {ahead} in line)"
    hint = (
        ". It is held by a lease of this process. If that is the caller's own, it has waited for itself: locks are not "
        "re-entrant, so hand the lease on to the code that needs it, or release it first"
        if ours
        else ""
    )
    if holder is None:
        return LockTimeoutError(
            f"Lock {key!r} was busy for {wait_s:g} s{line}; who holds it now is not known. Nothing is held; try again "
            f"or wait longer{hint}",
            key=key, wait_s=wait_s, holder=None, position=ahead,
        )  # fmt: skip
    since = time_text(holder.since)
    # A JVM names itself otherwise.
    who = f"process {holder.pid}" if holder.pid else repr(holder.owner)
    purpose = f" for {holder.reason!r}" if holder.reason else ""
    return LockTimeoutError(
        f"Lock {key!r} was busy for {wait_s:g} s{line}: held by {who} on {holder.host or 'some host'}"
        f"{purpose} since {since} by its clock (token {holder.token}). Nothing is held; wait longer, ask for it back "
        f"(`lakelatch locks revoke`), or end that holder with break_lease(key, token={holder.token}, ...), a table's with "
        f"`lakelatch locks break`, if it is known to be stuck{hint}",
        key=key, wait_s=wait_s, holder=holder, position=ahead,
    )  # fmt: skip


def _give_back(request: LockRequest, grant: Grant) -> None:
    """Release a grant that became no lease. If that fails, its lease runs out."""
    try:
        grant.release()
    except (LakeLatchError, OSError) as e:
        _log.warning("lock %r: a grant was not given back: %s", request.key, e, extra=_facts(request, grant.token))


def _facts(request: LockRequest, token: int) -> dict[str, Any]:
    return {"key": request.key, "owner": request.owner, "token": token}
