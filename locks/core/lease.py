"""Leases on a backend's grants: local deadline, renewal, loss, release.

A backend gives a `Grant` (renew, check, release); `HeldLease` makes a `Lease` of it. One rule
holds throughout: **the holder judges by its own monotonic clock, from before the request was sent**.

    t=0    A asks; the backend answers at t=0.2: held until t=10, not t=10.2
    t=4    the renewer asks again; no answer comes; it retries until the deadline
    t=10   A's lease is lost (unreachable), whatever the backend says later
    t=10.1 the answer to an old renewal arrives and says "still yours": too late, the lease is not revived,
           because a caller may have read it as lost at t=10.05

The user's handle and the `LeaseState` behind it are separate objects. So a dropped handle is
noticed: its lease is no longer renewed and runs out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Protocol, Self

from ...environment import Environment, Process
from ...errors import LakeLatchError, LockLostError
from ..interface import Release
from .events import current, scheme_of
from .grant import EXPIRED, FORKED, MAX_HOLD, MEANING, NO_ANSWER, RELEASED, STOLEN, UNREACHABLE, Grant, RenewMany
from .thread_queue import Ticket

# Backends take these from here.
__all__ = ["EXPIRED", "NO_ANSWER", "RELEASED", "STOLEN", "Grant", "HeldLease", "LeaseState", "RenewMany", "renew"]

_log = logging.getLogger("lakelatch.locks")


class LeaseState:
    """The state of one lease, shared by its handle and the renewer."""

    __slots__ = (
        "__weakref__", "_callbacks", "_done", "_gone", "_hold_until", "_io", "_mark", "_outcome", "_process", "_retry_s",
        "_since", "_ticket", "deadline", "due_at", "env", "failure", "grant", "handle", "key", "lease_s", "next_at",
        "owner", "place", "renew_many",
    )  # fmt: skip

    def __init__(
        self,
        *,
        place: str,
        key: str,
        owner: str,
        grant: Grant,
        asked_at: float,
        lease_s: float,
        max_hold_s: float | None,
        env: Environment,
        process: Process,
        ticket: Ticket,
        renew_many: RenewMany | None = None,
        done: Callable[[LeaseState], None] = lambda _: None,
    ) -> None:
        self.place = place
        self.key = key
        self.owner = owner
        self.grant = grant
        self.lease_s = lease_s
        self.env = env
        self.renew_many = renew_many
        self.failure = ""
        self.handle: Callable[[], HeldLease | None] = lambda: None  # a weak reference, set by the renewer
        self._since = asked_at
        self._process = process
        self._hold_until = float("inf") if max_hold_s is None else asked_at + max_hold_s
        self._ticket = ticket
        self._done = done
        self._gone: str | None = None
        self._mark = threading.Lock()  # guards _gone and _callbacks; never held during a call to the outside
        self._io = threading.Lock()  # renewal and release never overlap: a late renewal must not follow a release
        self._callbacks: list[Callable[[str], None]] = []
        self._outcome: Release | None = None
        self._extend(asked_at)
        ticket.held = self

    def _extend(self, asked_at: float) -> None:
        self.failure = ""
        self.deadline = min(asked_at + self.lease_s, self._hold_until)
        self.due_at = asked_at + self.lease_s / 3  # when the next renewal is due
        self.next_at = min(self.due_at, self.deadline)  # when the renewer checks it again
        self._retry_s = self.lease_s / 48

    def log(self, level: int, text: str, *values: object, error: BaseException | None = None) -> None:
        """Log a record about this lease, with its facts as fields."""
        if _log.isEnabledFor(level):
            facts = {"key": self.key, "owner": self.owner, "token": self.grant.token}
            _log.log(
                level, "lock %r (token %d): " + text, self.key, self.grant.token, *values, extra=facts, exc_info=error
            )

    def gone(self) -> str | None:
        """Return why the lease is not held, or None. Sends no request.

        Takes no lock before it knows that this process is not a fork of the holder's.
        """
        if self._is_copy():
            return FORKED
        if self._gone is None and self.env.monotonic() >= self.deadline:
            if self.deadline >= self._hold_until:
                self.end(MAX_HOLD)
            else:
                self.end(UNREACHABLE if self.failure else EXPIRED)
        return self._gone

    def _is_copy(self) -> bool:
        process = self.env.process()
        return process is not self._process and process != self._process

    def wanted(self) -> bool:
        """True while the lease is held and its handle is alive."""
        return self.handle() is not None and self.gone() is None

    def end(self, reason: str) -> str:
        """Mark the lease as gone. The first reason stays and is returned."""
        with self._mark:
            if self._gone is not None:
                return self._gone
            self._gone = reason
        self.next_at = 0.0  # the renewer runs the callbacks at its next tick
        if reason == RELEASED:
            self.log(logging.DEBUG, "released")
        else:
            self.log(logging.WARNING, "lost, %s; %s", MEANING[reason], self.failure or "no failure before")
        if current.observer is not None:
            current.observer.ended(scheme_of(self.place), self.key, self.env.monotonic() - self._since, reason)
        return reason

    def answered(self, asked_at: float, answer: bool | Exception) -> None:
        """Apply the answer to a renewal.

        After a failure the deadline stays and the renewer retries.
        """
        if isinstance(answer, Exception):
            self.failure = str(answer) or type(answer).__name__
            expected = isinstance(answer, LakeLatchError | OSError)
            self.log(logging.WARNING, "renewal failed: %s", self.failure, error=None if expected else answer)
            self.next_at = min(self.env.monotonic() + self._retry_s, self.deadline)
            self._retry_s = min(2 * self._retry_s, self.lease_s / 12)
        if current.observer is not None:
            outcome = "failed" if isinstance(answer, Exception) else "ok" if answer else "refused"
            current.observer.renewed(scheme_of(self.place), self.key, outcome, max(0.0, asked_at - self.due_at))
        if answer is False:
            self.end(STOLEN)
        elif answer is True and not self.gone():
            # Checked again after the answer: an expired lease is never revived.
            self._extend(asked_at)

    def ensure(self, *, fresh: bool) -> None:
        """Raise `LockLostError` unless held now."""
        reason, cause = self.gone(), None
        if fresh and reason is None:
            try:
                if not self.grant.check():
                    self.end(STOLEN)
                reason = self.gone()
            except (LakeLatchError, OSError) as e:
                reason, cause = UNREACHABLE, e
        if reason is not None:
            raise self.error(reason) from cause

    def error(self, reason: str) -> LockLostError:
        """Build the error for a lost lease."""
        return LockLostError(
            f"The lease on lock {self.key!r} (token {self.grant.token}) is gone: {MEANING.get(reason, reason)}. "
            "Take the lock again and validate again before anything is published",
            key=self.key,
            token=self.grant.token,
            reason=reason,
            cause=self.failure,
        )

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Register ``call``, or run it now if the lease is lost."""
        reason = self.gone()
        if reason is None:
            with self._mark:
                if self._gone is None:
                    self._callbacks.append(call)
                    return
                reason = self._gone
        if reason != RELEASED:
            call(reason)

    def tell(self) -> None:
        """Run the callbacks of a lost lease. Called on the callback thread."""
        reason = str(self.gone())
        with self._mark:
            calls, self._callbacks = self._callbacks, []
        for call in calls:
            try:
                call(reason)
            except Exception as e:  # noqa: BLE001 (user code; the other callbacks must still run)
                self.log(logging.ERROR, "a callback for the lost lease failed", error=e)

    def release(self) -> Release:
        """Release the grant once; every call returns the same answer."""
        if self._is_copy():
            return Release.WAS_LOST
        with self._io:
            if self._outcome is not None:
                return self._outcome
            reason = self.gone() or self.end(RELEASED)
            outcome = Release.UNKNOWN
            try:
                # Also after a loss: it ends this token only, and saves others the wait when max_hold ran out.
                outcome = self.grant.release()
            except Exception as e:  # noqa: BLE001 (a release never raises; its outcome is unknown)
                expected = isinstance(e, LakeLatchError | OSError)
                self.log(logging.WARNING, "no answer to the release: %s", e, error=None if expected else e)
            finally:
                self._outcome = outcome if reason == RELEASED else Release.WAS_LOST
                self._ticket.held = None
                self._ticket.leave()
                self._done(self)
            return self._outcome


def renew(holds: Sequence[LeaseState], ask: RenewMany) -> None:
    """Renew leases of one backend together.

    Whatever happens, each gets an answer or keeps its deadline.
    """
    locked = [hold for hold in holds if hold._io.acquire(blocking=False)]  # the others are being released
    try:
        live = [hold for hold in locked if not hold.gone() and hold._outcome is None]
        if not live:
            return
        asked_at = live[0].env.monotonic()
        try:
            answers = ask([hold.grant for hold in live])
        except Exception as e:  # noqa: BLE001 (a bug in the backend also counts as no answer, and is logged)
            answers = [e] * len(live)
        for hold, answer in zip(live, answers, strict=True):
            hold.answered(asked_at, answer)
    finally:
        for hold in locked:
            hold._io.release()


class Keeper(Protocol):
    """The process's renewer: renews leases while their handles live."""

    def add(self, hold: LeaseState, handle: HeldLease) -> None:
        """Renew ``hold`` from now on."""

    def released(self, hold: LeaseState) -> None:
        """Record that ``hold`` was released."""


class HeldLease:
    """A `Lease` on a `Grant` of any backend."""

    def __init__(self, hold: LeaseState, renewer: Keeper) -> None:
        self._hold = hold
        self._renewer = renewer
        self.key = hold.key
        self.owner = hold.owner
        self.token = hold.grant.token
        self._asked_release = False
        renewer.add(hold, self)

    def __repr__(self) -> str:
        return f"<lease on {self.key!r}, token {self.token}, {self.lost or 'held'}>"

    @property
    def deadline(self) -> float:
        """The local monotonic time after which the lease must not be relied on; renewals move it."""
        return self._hold.deadline

    @property
    def lost(self) -> str | None:
        """The reason why the lease is gone, or None while it is held; "released" after an own `release`."""
        return self._hold.gone()

    def ensure_held(self, *, fresh: bool = False) -> None:
        """Raise `LockLostError` unless held now; ``fresh`` also asks the backend."""
        self._hold.ensure(fresh=fresh)

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Call ``call`` once with the reason, within a second of the loss.

        Callbacks for one place run one after another on their own thread, so keep them short. If
        the lease is already lost, ``call`` runs at once on the caller's thread.
        """
        self._hold.on_lost(call)

    def release(self) -> Release:
        """Release the lock. Never raises for a lost lease and never touches a successor's."""
        self._asked_release = True
        outcome = self._hold.release()
        self._renewer.released(self._hold)
        return outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release. An unnoticed loss is raised, or noted on the body's exception if that failed."""
        if self._asked_release:
            return  # released in the block
        self.release()
        reason = str(self.lost)
        if reason == RELEASED or isinstance(exc, LockLostError):
            return
        if exc is None:
            raise self._hold.error(reason)
        exc.add_note(f"The lease on lock {self.key!r} (token {self.token}) was lost meanwhile: {MEANING[reason]}")
