"""The memory of one handle about other writers, from one transaction to the next; it is in no file."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ...conflict import Claim, first_in_the_way
from ...environment import Environment
from ..entries import Begin
from ..log import CommitLog, LogState


@dataclass
class Contention:
    """The contention seen on a table; after a recent loss the next attempts take the lock before their snapshot.

    An attempt under the lock cannot lose. It costs others their concurrency, so it ends with the contention, and long
    work is never done under the lock: others would wait for it, or time out.
    """

    calm_after_s: float = 5.0
    short_s: float = 5.0
    _lost_at: float | None = None

    def lost(self, now: float, *, took_s: float) -> None:
        """Note a loss at this monotonic time, after so many seconds of work."""
        self._lost_at = now if took_s <= self.short_s else None

    def lasts(self, now: float) -> bool:
        """Return whether a loss is recent."""
        return self._lost_at is not None and now - self._lost_at < self.calm_after_s


class Reservations:
    """The reservations that one handle has seen, and since when, by its own monotonic clock."""

    def __init__(self, env: Environment, log: CommitLog) -> None:
        self._env, self._log = env, log
        self._mutex = threading.Lock()
        self._seen: dict[str, float] = {}

    def counts(self, begin: Begin) -> bool:
        """Return whether an open transaction has a reservation that has not expired."""
        if not begin.reserved:
            return False
        now, state = self._env.monotonic(), self._log.state
        with self._mutex:
            since = self._seen.setdefault(begin.instant, now)
            # Forget ended transactions now and then, so that the memory does not grow with the history.
            if len(self._seen) > 2 * len(state.open) + 100:
                self._seen = {each: at for each, at in self._seen.items() if each in state.open}
        return now - since < state.settings.reservation_s

    def first_in_the_way(self, state: LogState, mine: Claim) -> Claim | None:
        """The transaction that must end before this one may begin; None if there is none."""
        settings = state.settings
        return first_in_the_way(
            mine,
            self.claims(state),
            by_priority=settings.strategy == "priority",
            bucketed=settings.bucket_count is not None,
        )

    def claims(self, state: LogState) -> list[Claim]:
        """All reservations in force, for people to see."""
        return [begin.claim for begin in state.open.values() if self.counts(begin)]
