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

One `Renewer` per process renews all leases from one timer, which runs only while there are leases and only reads
clocks, so a loss is noticed on time whatever a backend does. Each place (host or folder of the locks) has one worker
for requests and one for callbacks; a worker is a thread that lives while it has work. A hanging backend delays only its
own renewals, a hanging callback only its neighbours. The number of threads does not grow with the number of leases. A
lease that is released within a third of its time costs one entry in a set.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from ...environment import SYSTEM, Environment, Process, SystemEnvironment, Timer
from ...errors import LakeLatchError, LockLostError
from ..interface import Release
from .backend import EXPIRED, FORKED, MAX_HOLD, RELEASED, STOLEN, UNREACHABLE, Grant
from .events import current, scheme_of
from .thread_queue import Ticket

RenewMany = Callable[[Sequence[Grant]], "list[bool | Exception]"]  # `Backend.renew_many`

_log = logging.getLogger("lakelatch.locks")

_MEANING = {
    EXPIRED: "its deadline passed before it was renewed (this process was paused or too slow)",
    STOLEN: "somebody else ended it or took the key over",
    UNREACHABLE: "the lock backend did not answer any renewal before the deadline",
    MAX_HOLD: "it was held for as long as max_hold allows",
    FORKED: "it belongs to the parent process; a child of fork holds nothing",
    RELEASED: "it was released",
}
LOSSES = tuple(reason for reason in _MEANING if reason != RELEASED)
_NO_ANSWER = "a renewal was sent and not answered"
_TICK_S_MAX = 0.5  # a loss is reported within a second of the deadline, however long the lease
_TICKS_PER_LEASE = 12
_IDLE_TICKS = 2
_SLOW_DOWN_TICKS = 100  # how often it checks whether a slower tick would do

_shared: weakref.WeakValueDictionary[tuple[object, ...], Renewer] = weakref.WeakValueDictionary()


def _renew_each(grants: Sequence[Grant]) -> list[bool | Exception]:
    return [grant.renew() for grant in grants]


class LeaseState:
    """The state of one lease, shared by its handle and the renewer."""

    __slots__ = (
        "__weakref__", "_callbacks", "_done", "_gone", "_hold_until", "_io", "_mark", "_outcome", "_process", "_retry_s",
        "_since", "_ticket", "batch_max", "deadline", "due_at", "env", "failure", "grant", "handle", "key", "lease_s",
        "next_at", "owner", "place", "renew_many",
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
        renew_many: RenewMany = _renew_each,
        batch_max: int = 1,
        done: Callable[[LeaseState], None] = lambda _: None,
    ) -> None:
        self.place = place
        self.key = key
        self.owner = owner
        self.grant = grant
        self.lease_s = lease_s
        self.env = env
        self.renew_many = renew_many
        self.batch_max = batch_max
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
        # By identity first: this is asked for each lease at each tick, and comparing two processes costs more.
        process = self.env.process()
        if process is not self._process and process != self._process:
            return FORKED
        if self._gone is None and self.env.monotonic() >= self.deadline:
            if self.deadline >= self._hold_until:
                self.end(MAX_HOLD)
            else:
                self.end(UNREACHABLE if self.failure else EXPIRED)
        return self._gone

    def wanted(self) -> bool:
        """True while the lease is held and its handle is alive."""
        return self.handle() is not None and self.gone() is None

    def end(self, reason: str) -> str:
        """Mark the lease as gone. The first reason stays and is returned."""
        with self._mark:
            if self._gone is not None:
                return self._gone
            self._gone = reason
        # Not called from here: the caller may hold a lock of its own, which a callback might want too.
        self.next_at = 0.0  # the renewer runs the callbacks at its next tick
        if reason == RELEASED:
            self.log(logging.DEBUG, "released")
        else:
            self.log(logging.WARNING, "lost, %s; %s", _MEANING[reason], self.failure or "no failure before")
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
            # Several retries fit between the first failure and the deadline, and none waits so long that the last of
            # them is missed.
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
            f"The lease on lock {self.key!r} (token {self.grant.token}) is gone: {_MEANING.get(reason, reason)}. "
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
        if self.gone() == FORKED:
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


def renew(leases: Sequence[LeaseState], ask: RenewMany) -> None:
    """Renew leases of one backend together.

    Whatever happens, each gets an answer or keeps its deadline.
    """
    # Do not wait for a release: it may take as long as the service does, and the other leases of the batch would run
    # out.
    locked = [lease for lease in leases if lease._io.acquire(blocking=False)]  # the others are being released
    try:
        live = [lease for lease in locked if not lease.gone() and lease._outcome is None]
        if not live:
            return
        # The lease runs from before the request: the service may have counted from any moment until the answer.
        asked_at = live[0].env.monotonic()
        try:
            answers = ask([lease.grant for lease in live])
        except Exception as e:  # noqa: BLE001 (a bug in the backend also counts as no answer, and is logged)
            answers = [e] * len(live)
        for lease, answer in zip(live, answers, strict=True):
            lease.answered(asked_at, answer)
    finally:
        for lease in locked:
            lease._io.release()


class HeldLease:
    """A `Lease` on a `Grant` of any backend."""

    def __init__(self, state: LeaseState, renewer: Renewer) -> None:
        self._state = state
        self._renewer = renewer
        self.key = state.key
        self.owner = state.owner
        self.token = state.grant.token
        self._asked_release = False
        renewer.add(state, self)

    def __repr__(self) -> str:
        return f"<lease on {self.key!r}, token {self.token}, {self.lost or 'held'}>"

    @property
    def deadline(self) -> float:
        """The local monotonic time after which the lease must not be relied on; renewals move it."""
        return self._state.deadline

    @property
    def lost(self) -> str | None:
        """The reason why the lease is gone, or None while it is held; "released" after an own `release`."""
        return self._state.gone()

    def ensure_held(self, *, fresh: bool = False) -> None:
        """Raise `LockLostError` unless held now; ``fresh`` also asks the backend."""
        self._state.ensure(fresh=fresh)

    def on_lost(self, call: Callable[[str], None]) -> None:
        """Call ``call`` once with the reason, within a second of the loss.

        Callbacks for one place run one after another on their own thread, so keep them short. If
        the lease is already lost, ``call`` runs at once on the caller's thread.
        """
        self._state.on_lost(call)

    def release(self) -> Release:
        """Release the lock. Never raises for a lost lease and never touches a successor's."""
        self._asked_release = True
        outcome = self._state.release()
        self._renewer.released(self._state)
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
            raise self._state.error(reason)
        exc.add_note(f"The lease on lock {self.key!r} (token {self.token}) was lost meanwhile: {_MEANING[reason]}")


def shared_renewer(env: Environment) -> Renewer:
    """Return the renewer of this process. A forked child gets a new one."""
    name = (id(env), env.process())
    found = _shared.get(name)
    if found is None:
        # Two threads at once may create two; both work.
        found = _shared.setdefault(name, Renewer(env))
    return found


def all_renewers() -> list[Renewer]:
    """Return the renewers of this process that run in real time."""
    here = SYSTEM.process()
    return [
        each
        for (_, process), each in list(_shared.items())
        if process == here and isinstance(each._env, SystemEnvironment)
    ]


class Renewer:
    """The process's renewer: renews each lease after a third of it, and retries a failure with backoff until the deadline."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self._lock = threading.Lock()
        self._leases: set[LeaseState] = set()
        self._counts: Counter[str] = Counter()
        self._workers: dict[tuple[str, str], _Worker] = {}
        self._timer: Timer | None = None
        self._period_s = 0.0
        self._idle = 0
        self._ticks = 0

    def add(self, lease: LeaseState, handle: HeldLease) -> None:
        """Watch ``lease`` until it is released or lost."""
        # Weak, so that a handle that its owner dropped without a release is not kept alive by its own renewals.
        lease.handle = weakref.ref(handle)
        with self._lock:
            self._idle = 0
            period_s = _period(lease.lease_s)
            if self._timer is None or period_s < self._period_s:
                self._pace(period_s)
            self._leases.add(lease)
            self._counts[lease.place] += 1

    def released(self, lease: LeaseState) -> None:
        """Stop watching ``lease``. A lost one stays until its callbacks have run."""
        if lease.gone() == RELEASED:
            self._forget(lease)

    def leases(self) -> list[LeaseState]:
        """Return the leases that are held now."""
        with self._lock:
            return [lease for lease in self._leases if lease.gone() is None]

    def counts(self) -> dict[str, int]:
        """Return the number of watched leases by place."""
        with self._lock:
            return dict(self._counts)

    def count(self, place: str) -> int:
        """Return the number of watched leases of a place."""
        return self._counts[place]

    def find(self, place: str, key: str, token: int) -> list[LeaseState]:
        """Return this process's lease with ``token``, if there is one."""
        with self._lock:
            return [
                lease for lease in self._leases if (lease.place, lease.key, lease.grant.token) == (place, key, token)
            ]

    def lost(self, lease: LeaseState, reason: str) -> None:
        """Record a loss and schedule its callbacks. Thread-safe; never waits for a backend."""
        if lease.end(reason) != RELEASED and self._forget(lease):
            # On two workers: a slow callback must not delay the release, nor a hanging backend the callbacks.
            self._worker(lease.place, "lost").put(lease.tell)
            self._worker(lease.place, "renew").put(lease.release)

    def _forget(self, lease: LeaseState) -> bool:
        with self._lock:
            if lease not in self._leases:
                return False
            self._leases.remove(lease)
            self._counts[lease.place] -= 1
            return True

    def _pace(self, period_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._period_s = period_s
        self._timer = self._env.every(period_s, self._tick, name="lakelatch-renewer")

    def _tick(self) -> None:
        now = self._env.monotonic()
        with self._lock:
            due = [lease for lease in self._leases if lease.next_at <= now]
            self._idle = 0 if self._leases else self._idle + 1
            self._ticks += 1
            if self._idle > _IDLE_TICKS and self._timer is not None:
                self._timer.cancel()
                self._timer = None
            elif self._leases and self._ticks % _SLOW_DOWN_TICKS == 0:
                period_s = _period(min(lease.lease_s for lease in self._leases))
                if period_s > self._period_s:
                    self._pace(period_s)
            workers = list(self._workers.values())
        # Requests are made by the workers: a backend that hangs must not hold up the leases of the others.
        batches: dict[tuple[str, RenewMany], list[LeaseState]] = {}
        for lease in due:
            reason = lease.gone()
            if reason is not None:
                self.lost(lease, reason)
                continue
            # A request that hangs must not be sent again at every tick.
            lease.next_at = lease.deadline  # until there is an answer
            if lease.handle() is not None:  # else the handle was dropped: the lease runs out
                lease.failure = lease.failure or _NO_ANSWER
                batches.setdefault((lease.place, lease.renew_many), []).append(lease)
        for (place, renew_many), leases in batches.items():
            for start in range(0, len(leases), size := leases[0].batch_max):
                self._worker(place, "renew").put(partial(renew, leases[start : start + size], renew_many))
        for worker in workers:
            worker.wake()

    def _worker(self, place: str, kind: str) -> _Worker:
        with self._lock:
            return self._workers.setdefault((place, kind), _Worker(self._env, f"lakelatch-{kind}"))


def _period(lease_s: float) -> float:
    return min(_TICK_S_MAX, lease_s / _TICKS_PER_LEASE)


class _Worker:
    """A queue of calls, run one after another on a thread that ends when the queue is empty."""

    def __init__(self, env: Environment, name: str) -> None:
        self._env = env
        self._name = name
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], object]] = deque()
        self._running = False

    def put(self, call: Callable[[], object]) -> None:
        """Queue ``call``."""
        with self._lock:
            self._calls.append(call)
        self.wake()

    def wake(self) -> None:
        """Start the thread if there is something to do."""
        with self._lock:
            if self._running or not self._calls:
                return
            self._running = True
        try:
            self._env.thread(self._run, name=self._name)
        except RuntimeError as e:
            # Out of threads, or the interpreter is exiting: retried at the next tick.
            with self._lock:
                self._running = False
            _log.debug("%s: %s", self._name, e)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._calls:
                    self._running = False
                    return
                call = self._calls.popleft()
            try:
                call()
            except Exception:  # noqa: BLE001 (one failed call must not end all the others)
                _log.exception("%s failed; it goes on", self._name)
