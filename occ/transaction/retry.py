"""Retry a whole transaction that lost: fresh instant, fresh snapshot, jittered, bounded."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from inspect import isawaitable, iscoroutine
from types import FunctionType, GeneratorType, MethodType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ...arguments import kind_of, number, work_of
from ...errors import CommitError, ConflictError, InputError, LockTimeoutError, LockUnavailableError, RolledBackError
from ...tracing import step
from ..entries import BatchGiven, Origin
from ..turns import BoundedWait, touched
from .transaction import begin

if TYPE_CHECKING:
    from tenacity import RetryCallState

    from ..session import CommitResult, Session
    from ..turns import Asked
    from .transaction import Transaction


# Detect state that a function keeps between calls, as far as it is visible from outside: exhausted iterators.
#
# A list that grew, a counter or a file that was read may be intended. An exhausted iterator that the function was made
# with is a mistake: its second call gets other rows than its first.

_DEPTH = 3  # levels of functions wrapped in functions


def used_up(function: Callable[..., Any]) -> list[str]:
    """The names of the exhausted iterators that a function holds."""
    return sorted({name for name, value in _held(function, _DEPTH) if isinstance(value, Iterator) and _is_empty(value)})


def _held(function: Any, depth: int) -> Iterator[tuple[str, Any]]:
    for name, value in _directly(function):
        yield name, value
        if depth and isinstance(value, FunctionType | MethodType | partial):
            yield from _held(value, depth - 1)


def _directly(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield bound arguments, closure and defaults, and the attributes of the object that it is a method of."""
    if isinstance(function, partial):
        yield "its function", function.func
        yield from ((f"argument {number}", value) for number, value in enumerate(function.args, 1))
        yield from function.keywords.items()
    elif isinstance(function, MethodType):
        yield "its function", function.__func__
        yield from getattr(function.__self__, "__dict__", {}).items()
    elif isinstance(function, FunctionType):
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:  # not yet assigned
                continue
        given = function.__defaults__ or ()
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        yield from zip(names[len(names) - len(given) :], given, strict=True)
        yield from (function.__kwdefaults__ or {}).items()


def _is_empty(iterator: Iterator[Any]) -> bool:
    # Taking an item to find out would change the function that is checked. A finished generator has no frame.
    if isinstance(iterator, GeneratorType):
        return iterator.gi_frame is None
    return operator.length_hint(iterator, 1) == 0  # 1: the iterator does not say


T = TypeVar("T")
_log = logging.getLogger("lakelatch.retry")
# Errors that a fresh attempt can mend. Bad input and unknown outcomes are not among them.
MENDABLE = (ConflictError, RolledBackError, LockTimeoutError, LockUnavailableError)


def refuse_unawaited(value: object) -> None:
    """Raise `InputError` if ``work`` was an ``async`` function: what it would do nobody does."""
    if isawaitable(value):
        if iscoroutine(value):
            value.close()
        raise InputError(f"work returned {kind_of(value)}, which nothing awaits; let it do the work itself")


@dataclass(frozen=True, slots=True)
class RunResult(Generic[T]):
    """The result of `Table.run`, and of `lakelatch.run` over several tables.

    Attributes:
        value: the return value of the function in the committed attempt.
        commit: the committed transaction; None if there was nothing to commit.
        attempts: the number of calls of the function.
        losses: the errors of the attempts before, oldest first.
        wasted_s: seconds that they took.
        took_s: seconds of all attempts, with what was waited for.
        commits: over several tables, the committed transaction of each, by URL; ``commit`` is that of the home, which decides.
    """

    value: T
    commit: CommitResult | None
    attempts: int = 1
    losses: tuple[Exception, ...] = field(default=())
    wasted_s: float = 0.0
    took_s: float = 0.0
    commits: Mapping[str, CommitResult] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of `run`, named as in `Table.run`."""

    attempts: int = 20
    timeout_s: float = 600.0
    backoff_s: float = 0.05
    lost_work_max_s: float | None = None
    reserve_after: int | None = 1

    def __post_init__(self) -> None:
        number(self.attempts, "attempts", least=1, whole=True)
        number(self.timeout_s, "timeout_s", least=0)
        number(self.backoff_s, "backoff_s", least=0)
        if self.lost_work_max_s is not None:
            number(self.lost_work_max_s, "lost_work_max_s", least=0)
        if self.reserve_after is not None:
            number(self.reserve_after, "reserve_after", least=0, whole=True)


class _Run(Generic[T]):
    """One run: the cost of its attempts, and the reservation learned from them."""

    def __init__(
        self,
        session: Session,
        work: Callable[[Transaction], T],
        bounds: Bounds,
        *,
        operation: str,
        isolation: str | None,
        reserve: Asked | None,
        origin: Origin,
    ) -> None:
        self._session, self._work, self._bounds, self._origin = session, work, bounds, origin
        self._operation, self._isolation, self._reserve = operation, isolation, reserve
        self._declared = reserve is not None
        self._losses: list[Exception] = []
        self._begun: list[str] = []
        self._staged = False
        self._first: int | None = None
        self._began = self._attempt_began = session.env.monotonic()
        self._wasted = 0.0

    def attempt(self) -> RunResult[T]:
        """Run one transaction, from begin to commit."""
        session = self._session
        self._attempt_began = session.env.monotonic()
        # An attempt that holds the lock since its snapshot cannot lose, so short work needs no reservation. Events of streams
        # land without the lock: only a reservation keeps them back.
        lock_first = not (self._declared or session.streams) and session.contention.lasts(self._attempt_began)
        transaction = begin(
            session,
            self._operation,
            lock_first=lock_first,
            isolation=self._isolation,
            reserve=None if lock_first else self._reserve,
            first=self._first,
            origin=self._origin,
        )
        self._begun.append(transaction.instant)
        # Every retry keeps the age of the first attempt, so that work that keeps losing goes before newer work.
        self._first = transaction.begin_slot if self._first is None else self._first
        transaction.workspace.reserves_next = self._reserves_next
        try:
            with transaction:
                value = self._work(transaction)
                refuse_unawaited(value)
                self._look_for_kept_state(transaction)
        except CommitError as e:
            # It may have begun again with another T (`occ.turns`).
            self._begun[-1] = transaction.instant
            self._refuse_kept_transaction(e)
            if isinstance(e, ConflictError):
                self._learn(transaction)
            raise
        return RunResult(
            value, transaction.result, len(self._losses) + 1, tuple(self._losses), self._wasted, self._spent()
        )

    @property
    def _reserves_next(self) -> bool:
        """True if a loss of this attempt is followed by an attempt with a reservation."""
        after = self._bounds.reserve_after
        return not self._declared and after is not None and len(self._losses) + 1 >= after

    def _learn(self, transaction: Transaction) -> None:
        after = self._bounds.reserve_after
        if self._reserves_next and after is not None:
            self._reserve = touched(
                transaction.workspace.changes,
                transaction.lost_on,
                isolation=transaction.isolation,
                attempt=len(self._losses) + 2 - after,
            )

    def _look_for_kept_state(self, transaction: Transaction) -> None:
        if transaction.workspace.staged:
            self._staged = True
        elif self._staged and (empty := used_up(self._work)):
            raise InputError(
                f"{self._session.url}: the function takes its rows from {', '.join(empty)}, which its earlier call has used up, "
                "and staged nothing now. Nothing landed. Keep the rows in a list or table, or make the iterator inside",
                names=empty,
            )
        elif self._staged:
            _log.warning(
                "%s: attempt %d of %s staged nothing although an earlier one did; does the function keep state between its "
                "calls, such as an iterator that is used up? It may be called several times",
                self._session.url, len(self._begun), self._operation,
            )  # fmt: skip

    def _refuse_kept_transaction(self, error: CommitError) -> None:
        # Exactly this type: it is the error for using a transaction that is over. Its subclasses report other ends.
        if type(error) is CommitError and error.details.get("instant") in self._begun[:-1]:
            raise InputError(
                f"{self._session.url}: the function used the transaction {error.instant} of an earlier attempt, which is over. "
                "Nothing landed. Use the one that it is called with, and what was made through it, and keep neither",
                instant=error.instant,
            ) from error

    def lost(self, state: RetryCallState) -> None:
        """Note the cost of a lost attempt."""
        error = state.outcome.exception() if state.outcome else None
        assert isinstance(error, Exception)
        self._losses.append(error)
        now = self._session.env.monotonic()
        took = now - self._attempt_began
        self._wasted += took
        # an early loss does not show how long the work takes
        if isinstance(error, ConflictError) and "early" not in error.details:
            self._session.contention.lost(now, took_s=took)
        _log.info("attempt %d of %s lost, running it again: %s", len(self._losses), self._operation, error)

    def pause(self, state: RetryCallState) -> float:
        """Return the pause in seconds, with full jitter: writers that lost together must not come back together."""
        return self._session.env.random() * min(self._bounds.backoff_s * 2.0 ** (state.attempt_number - 1), 5.0)

    def sleep(self, seconds: float) -> None:
        """Back off, or wait for a winner that is still running: a retry before its end would lose again."""
        session, winner = self._session, getattr(self._losses[-1], "winner", None)
        if winner in session.log.catch_up().open:
            # A new one, because the waits of the lost attempt are spent; bounded by the time that is left for the run.
            BoundedWait(session, wait_s=max(self._bounds.timeout_s - self._spent(), 0.0)).until(
                lambda state: winner not in state.open,
                who=f"the next attempt of {self._operation}",
                whom=str(winner),
                why="it won and has not ended",
            )
        else:
            session.env.sleep(seconds)

    def enough(self, state: RetryCallState) -> bool:
        """Return whether no further attempt may begin. Called before the last loss is noted."""
        bounds, now = self._bounds, self._session.env.monotonic()
        worked = self._wasted + now - self._attempt_began
        return (
            state.attempt_number >= bounds.attempts
            or self._spent() >= bounds.timeout_s
            or (bounds.lost_work_max_s is not None and worked >= bounds.lost_work_max_s)
        )

    def _spent(self) -> float:
        return self._session.env.monotonic() - self._began

    def gave_up(self) -> str:
        """The note on the error of the last attempt."""
        bounds, spent = self._bounds, self._spent()
        worked = self._wasted + self._session.env.monotonic() - self._attempt_began
        return (
            f"gave up after {len(self._losses) + 1} attempts and {spent:.1f} s, of which {worked:.1f} s of work were wasted "
            f"(attempts={bounds.attempts}, timeout_s={bounds.timeout_s:g}, "
            f"lost_work_max_s={'no bound' if bounds.lost_work_max_s is None else format(bounds.lost_work_max_s, 'g')})"
        )


def run(
    session: Session,
    work: Callable[[Transaction], T],
    bounds: Bounds,
    *,
    operation: str,
    isolation: str | None = None,
    reserve: Asked | None = None,
    batch: BatchGiven | None = None,
    note: Mapping[str, str] | None = None,
) -> RunResult[T]:
    """See `Table.run`."""
    import tenacity  # with asyncio, which takes as long as a tenth of the library

    work_of(work, "work")
    origin = Origin.of(batch, note)
    this = _Run(session, work, bounds, operation=operation, isolation=isolation, reserve=reserve, origin=origin)
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(lambda e: isinstance(e, MENDABLE) and e.retryable),
        stop=this.enough,
        wait=this.pause,
        before_sleep=this.lost,
        sleep=this.sleep,
        reraise=True,
    )
    try:
        with step("run", table=session.url, operation=operation):
            return retrying(this.attempt)
    except MENDABLE as e:
        e.add_note(this.gave_up())
        raise
