"""Waiting for other transactions to end: those that go first. Never with a lease in hand, never without bound.

Whoever waits looks at the log again and again, and after writers that have died, so that one that nobody will end is
rolled back and found. It is waited for in one order (`conflict.reservation`), so nobody waits in a circle.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...conflict import Claim, Conflict, WriteSet, first_in_the_way, in_rank_order
from ...hudi.files import BaseFile
from ..liveness import list_markers
from ..log import Begin, LogState

if TYPE_CHECKING:
    from ..table import Table

_FIRST_S, _LONGEST_S = 0.05, 1.0
_log = logging.getLogger("lakelatch.waiting")


class InTheWay(Exception):
    """A pending transaction goes first; ours decides again when that one has ended."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict.rule)
        self.conflict = conflict


class BoundedWait:
    """One transaction's waiting, all of it within ``wait_s`` from the first time that it has to wait.

    Args:
        wait_s: the table's ``yield_wait_s`` when None.
    """

    def __init__(self, table: Table, wait_s: float | None = None) -> None:
        self._table, self._wait_s = table, wait_s
        self._give_up: float | None = None

    def until(self, over: Callable[[LogState], bool], *, who: str, whom: str, why: str) -> bool:
        """True when ``over`` says so of the state at the head of the log; False when the time is up."""
        table, env = self._table, self._table.env
        if self._give_up is None:
            wait_s = table.settings.yield_wait_s if self._wait_s is None else self._wait_s
            self._give_up = env.monotonic() + wait_s
        _log.info("%s: %s waits for %s: %s", table.url, who, whom, why)
        pause = _FIRST_S
        while not over(table.log.catch_up()):
            left = self._give_up - env.monotonic()
            if left <= 0:
                return False
            env.sleep(min(pause * (0.5 + env.random()), left))
            pause = min(pause * 2, _LONGEST_S)
            table.look_after_others()
        return True


class Reservations:
    """What one handle knows of others' reservations: how long it has seen each, by its own monotonic clock."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._mutex = threading.Lock()
        self._seen: dict[str, float] = {}

    def counts(self, begin: Begin) -> bool:
        """Whether an open transaction has reserved something, and not for too long."""
        if not begin.reserved:
            return False
        now, table = self._table.env.monotonic(), self._table
        with self._mutex:
            since = self._seen.setdefault(begin.instant, now)
            if len(self._seen) > 2 * len(table.log.state.open) + 100:
                self._seen = {each: at for each, at in self._seen.items() if each in table.log.state.open}
        return now - since < table.settings.reservation_s

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


def queue(table: Table) -> list[tuple[Begin, list[str]]]:
    """The open transactions, each with the instants of those that it has to wait for by what it has announced so far.

    Those that have reserved come first, in the order in which they go.
    """
    state = table.log.catch_up()
    by_priority, bucketed = state.settings.strategy == "priority", state.settings.bucket_count is not None
    ranked = in_rank_order((begin.claim for begin in state.open.values()), by_priority=by_priority)
    found = []
    for claim in ranked:
        files = [BaseFile.at(marker.path, 0) for marker in list_markers(table.store, claim.instant)]
        writes = WriteSet(frozenset(file.group for file in files if file))
        ahead = [
            other.instant
            for other in table.reservations.claims(state)
            if other.reserved
            and other.outranks(claim, by_priority=by_priority)
            and other.reserved.met_by(writes, bucketed=bucketed)
        ]
        found.append((state.open[claim.instant], ahead))
    return found
