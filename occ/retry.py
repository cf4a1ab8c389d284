"""Running a whole transaction again when it lost: fresh instant, fresh snapshot, jittered, bounded."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

import tenacity

from ..errors import ConflictError, LockTimeoutError, LockUnavailableError, RolledBackError

if TYPE_CHECKING:
    from .over import CommitResult
    from .table import Table
    from .transaction import Transaction

T = TypeVar("T")
_log = logging.getLogger("lakelatch.retry")
# What a fresh attempt can mend. Bad input and unknown outcomes are not among them.
_MENDABLE = (ConflictError, RolledBackError, LockTimeoutError, LockUnavailableError)


@dataclass(frozen=True, slots=True)
class RunResult(Generic[T]):
    """What became of `Table.run`.

    Attributes:
        value: what the function returned in the attempt that landed.
        commit: the transaction that landed, None when it had nothing to commit.
        attempts: how often the function ran.
        losses: the errors of the attempts before, oldest first.
        wasted_s: seconds that they took.
    """

    value: T
    commit: CommitResult | None
    attempts: int = 1
    losses: tuple[Exception, ...] = field(default=())
    wasted_s: float = 0.0


@dataclass
class Contention:
    """Remembers that this table is contended, so that the next attempts take the lock before their snapshot.

    An attempt under the lock cannot lose. It costs others their concurrency, so it ends with the contention, and work
    that takes long is never done under the lock: others would wait for it, or give up.
    """

    calm_after_s: float = 5.0
    short_s: float = 5.0
    _lost_at: float | None = None

    def lost(self, now: float, *, took_s: float) -> None:
        """An attempt lost at this monotonic time, after so many seconds."""
        self._lost_at = now if took_s <= self.short_s else None

    def lasts(self, now: float) -> bool:
        """Whether a loss is recent."""
        return self._lost_at is not None and now - self._lost_at < self.calm_after_s


def run(
    table: Table, work: Callable[[Transaction], T], *, operation: str, attempts: int, time_s: float, pause_s: float
) -> RunResult[T]:
    """See `Table.run`."""
    env = table.env
    began = env.monotonic()
    losses: list[Exception] = []
    attempt_began = began
    wasted = 0.0

    def attempt() -> RunResult[T]:
        nonlocal attempt_began
        attempt_began = env.monotonic()
        with table.transaction(operation, lock_first=table.contention.lasts(attempt_began)) as transaction:
            value = work(transaction)
        return RunResult(value, transaction.result, len(losses) + 1, tuple(losses), wasted)

    def lost(state: tenacity.RetryCallState) -> None:
        nonlocal wasted
        error = state.outcome.exception() if state.outcome else None
        assert isinstance(error, Exception)
        losses.append(error)
        now = env.monotonic()
        wasted += now - attempt_began
        if isinstance(error, ConflictError):
            table.contention.lost(now, took_s=now - attempt_began)
        _log.info("attempt %d of %s lost, running it again: %s", len(losses), operation, error)

    def pause(state: tenacity.RetryCallState) -> float:
        # Full jitter: writers that lost together must not come back together.
        return env.random() * min(pause_s * 2.0 ** (state.attempt_number - 1), 5.0)

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(_MENDABLE),
        stop=lambda state: state.attempt_number >= attempts or env.monotonic() - began >= time_s,
        wait=pause,
        before_sleep=lost,
        sleep=env.sleep,
        reraise=True,
    )
    try:
        return retrying(attempt)
    except _MENDABLE as e:
        e.add_note(
            f"gave up after {len(losses) + 1} attempts and {env.monotonic() - began:.1f} s "
            f"(attempts={attempts}, time_s={time_s:g})"
        )
        raise
