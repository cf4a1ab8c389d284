"""What one handle remembers of others from one transaction to the next; it is in no file."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from ...conflict import Claim, first_in_the_way
from ...environment import Environment
from ..entries import Begin
from ..log import CommitLog, LogState


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


class Reservations:
    """What one handle knows of others' reservations: how long it has seen each, by its own monotonic clock."""

    def __init__(self, env: Environment, log: CommitLog) -> None:
        self._env, self._log = env, log
        self._mutex = threading.Lock()
        self._seen: dict[str, float] = {}

    def counts(self, begin: Begin) -> bool:
        """Whether an open transaction has reserved something, and not for too long."""
        if not begin.reserved:
            return False
        now, state = self._env.monotonic(), self._log.state
        with self._mutex:
            since = self._seen.setdefault(begin.instant, now)
            if len(self._seen) > 2 * len(state.open) + 100:
                self._seen = {each: at for each, at in self._seen.items() if each in state.open}
        return now - since < state.settings.reservation_s

    def first_in_the_way(self, state: LogState, mine: Claim) -> Claim | None:
        """Who must have ended before this one may begin."""
        settings = state.settings
        return first_in_the_way(
            mine,
            self.claims(state),
            by_priority=settings.strategy == "priority",
            bucketed=settings.bucket_count is not None,
        )

    def claims(self, state: LogState) -> list[Claim]:
        """All that are in force, for people to see."""
        return [begin.claim for begin in state.open.values() if self.counts(begin)]
