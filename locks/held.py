"""What holding means, written once for every backend: local deadline, renewal, loss, release.

A backend gives a `Grant` (renew, check, release); `HeldLease` makes a `Lease` of it. The rule that everything here
follows: **the holder judges itself by its own monotonic clock, from before the request was sent, and asks nobody**.

    t=0    A asks; the backend answers at t=0.2: held until t=10, not t=10.2
    t=4    the renewer asks again; no answer comes; it tries again and again
    t=10   A's lease is lost (unreachable), whatever the backend says later
    t=10.1 the answer to an old renewal arrives and says "still yours": too late, the lease is not revived,
           because somebody may have looked at t=10.05

The handle that users have and the `Hold` behind it are two objects, so that a forgotten handle can be noticed: its
lease is no longer renewed and ends by itself.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from ..environment import Environment
from ..errors import LatchError, LockLostError
from .interface import Release
from .queue import Ticket

if TYPE_CHECKING:
    from .renewer import Renewer

_log = logging.getLogger("lakelatch.locks")

EXPIRED, STOLEN, UNREACHABLE, MAX_HOLD, FORKED = "expired", "stolen", "unreachable", "max_hold", "forked"
RELEASED = "released"  # not a loss, but the lease is as gone

_MEANING = {
    EXPIRED: "its deadline passed before it was renewed (this process was paused or too slow)",
    STOLEN: "somebody else ended it or took the key over",
    UNREACHABLE: "the lock backend did not answer any renewal before the deadline",
    MAX_HOLD: "it was held for as long as max_hold allows",
    FORKED: "it belongs to the parent process; a child of fork holds nothing",
    RELEASED: "it was released",
}


class Grant(Protocol):
    """What a backend hands out: proof and the three questions. Raises `LatchError` or `OSError` when no answer came."""

    token: int

    def renew(self) -> bool:
        """True when the grant was still ours after the backend had taken the sign of life; False when it is not."""
        ...

    def check(self) -> bool:
        """True when the backend still knows this grant as the holder's."""
        ...

    def release(self) -> Release:
        """End this grant and nobody else's; also frees what this process keeps for it. Twice is fine."""
        ...

    def listen(self, call: Callable[[str], None]) -> None:
        """Have ``call`` told the reason (``STOLEN``, ``EXPIRED``) if the backend itself brings the news that the grant
        has ended; it may be called on any thread and more than once. A backend that brings no news does nothing."""
        ...


class Hold:
    """The state of one lease, shared by its handle and the renewer."""

    def __init__(
        self,
        *,
        key: str,
        owner: str,
        grant: Grant,
        asked_at: float,
        lease_s: float,
        max_hold_s: float | None,
        env: Environment,
        ticket: Ticket,
    ) -> None:
        self.key = key
        self.owner = owner
        self.grant = grant
        self.lease_s = lease_s
        self.env = env
        self.renewing = False
        self.failure = ""
        self.renew_at = asked_at + lease_s / 3
        self._process = env.process()
        self._hold_until = float("inf") if max_hold_s is None else asked_at + max_hold_s
        self.deadline = min(asked_at + lease_s, self._hold_until)
        self._ticket = ticket
        self._gone: str | None = None
        self._mark = threading.Lock()  # guards _gone and _callbacks; never held during a call to the outside
        self._io = threading.Lock()  # renewal and release never overlap: a late renewal must not follow a release
        self._callbacks: list[Callable[[str], None]] = []
        self._outcome: Release | None = None

    def gone(self) -> str | None:
        """Why this is not held now, or None. Asks nobody; takes no lock before it knows that this is no fork."""
        if self.env.process() != self._process:
            return FORKED
        if self._gone is None and self.env.monotonic() >= self.deadline:
            if self.deadline >= self._hold_until:
                self.end(MAX_HOLD)
            else:
                self.end(UNREACHABLE if self.failure else EXPIRED)
        return self._gone

    def end(self, reason: str) -> str:
        """Mark as gone; the first reason stays, and is returned."""
        with self._mark:
            self._gone = self._gone or reason
            return self._gone

    def renew(self) -> None:
        """One renewal. A failure leaves the deadline where it was; the renewer comes again."""
        try:
            with self._io:
                if self.gone() or self._outcome is not None:
                    return
                asked_at = self.env.monotonic()
                try:
                    ours = self.grant.renew()
                except (LatchError, OSError) as e:
                    self.failure = str(e) or type(e).__name__
                    _log.warning("lock %r (token %d): renewal failed: %s", self.key, self.grant.token, self.failure)
                    return
                if not ours:
                    self.end(STOLEN)
                elif not self.gone():  # asked again after the answer: a lease that has run out is never revived
                    self.failure = ""
                    self.deadline = min(asked_at + self.lease_s, self._hold_until)
                    self.renew_at = asked_at + self.lease_s / 3
        finally:
            self.renewing = False

    def ensure(self, *, fresh: bool) -> None:
        """Raise `LockLostError` unless held now."""
        reason, cause = self.gone(), None
        if fresh and reason is None:
            try:
                if not self.grant.check():
                    self.end(STOLEN)
                reason = self.gone()
            except (LatchError, OSError) as e:
                reason, cause = UNREACHABLE, e
        if reason is not None:
            raise self.error(reason) from cause

    def error(self, reason: str) -> LockLostError:
        """The error that tells the whole story."""
        return LockLostError(
            f"The lease on lock {self.key!r} (token {self.grant.token}) is gone: {_MEANING.get(reason, reason)}. "
            "Take the lock again and validate again before anything is published.",
            key=self.key,
            token=self.grant.token,
            reason=reason,
            cause=self.failure,
        )

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Remember ``call``, or make it now."""
        reason = self.gone()
        if reason is None:
            with self._mark:
                if self._gone is None:
                    self._callbacks.append(call)
                    return
                reason = self._gone
        if reason != RELEASED:
            call(reason)

    def finish_lost(self) -> None:
        """After a loss, on a thread of the renewer: tell who wants to know, then let the backend and the queue go."""
        reason = self.gone()
        with self._mark:
            calls, self._callbacks = self._callbacks, []
        for call in calls:
            try:
                call(str(reason))
            except Exception:  # noqa: BLE001 (it is the user's code; the others must still be told)
                _log.exception("lock %r: a callback for the lost lease failed", self.key)
        self.release()

    def release(self) -> Release:
        """Give back what is there to give back; the same answer every time."""
        if self.env.process() != self._process:
            return Release.WAS_LOST
        with self._io:
            if self._outcome is not None:
                return self._outcome
            reason = self.gone() or self.end(RELEASED)
            try:
                # Also after a loss: it ends only this very token, and spares others the wait when max_hold ran out.
                outcome = self.grant.release()
            except (LatchError, OSError) as e:
                _log.warning("lock %r (token %d): no answer to the release: %s", self.key, self.grant.token, e)
                outcome = Release.UNKNOWN
            finally:
                self._ticket.leave()
            self._outcome = outcome if reason == RELEASED else Release.WAS_LOST
            return self._outcome


class HeldLease:
    """A `Lease` on a `Grant` of any backend."""

    def __init__(self, hold: Hold, renewer: Renewer) -> None:
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
        """Local monotonic time after which the lease must not be relied on; renewals move it."""
        return self._hold.deadline

    @property
    def lost(self) -> str | None:
        """Why the lease is gone, or None while it is held; "released" after an own `release`."""
        return self._hold.gone()

    def ensure_held(self, *, fresh: bool = False) -> None:
        """Raise `LockLostError` unless held now; ``fresh`` also asks the backend."""
        self._hold.ensure(fresh=fresh)

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Call once with the reason within a twelfth of the lease after the loss; at once if it is lost already."""
        self._hold.on_lost(call)

    def release(self) -> Release:
        """Give the lock back. Never raises for a lost lease and never touches a successor's."""
        self._asked_release = True
        outcome = self._hold.release()
        self._renewer.released(self._hold)
        return outcome

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Release. A loss that nobody noticed is raised; if the body failed, it becomes a note on that error."""
        if self._asked_release:
            return  # the answer was given then
        self.release()
        reason = str(self.lost)
        if reason == RELEASED or isinstance(exc, LockLostError):
            return
        if exc is None:
            raise self._hold.error(reason)
        exc.add_note(f"The lease on lock {self.key!r} (token {self.token}) was lost meanwhile: {_MEANING[reason]}.")
