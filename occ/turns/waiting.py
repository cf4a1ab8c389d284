"""Waiting for transactions of higher rank to end. Never while holding a lease, never without bound.

A waiting writer reads the log again and again and looks after dead writers, so that an abandoned transaction is
rolled back. All wait in one order (`conflict.reservation`), so nobody waits in a circle.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from ...conflict import Conflict, WriteSet, in_rank_order
from ...hudi.files import BaseFile
from ...tracing import step
from ..entries import Begin
from ..liveness import list_markers
from ..log import LogState

if TYPE_CHECKING:
    from ..session import Session

_FIRST_S, _LONGEST_S = 0.05, 1.0
_log = logging.getLogger("lakelatch.waiting")


class InTheWay(Exception):
    """A pending transaction goes first; ours decides again after its end."""

    def __init__(self, conflict: Conflict) -> None:
        super().__init__(conflict.rule)
        self.conflict = conflict


class BoundedWait:
    """The waiting of one transaction, at most ``wait_s`` in total from its first wait on.

    Args:
        wait_s: the table's ``yield_wait_s`` when None.
    """

    def __init__(self, session: Session, wait_s: float | None = None) -> None:
        self._session, self._wait_s = session, wait_s
        self._give_up: float | None = None

    def until(self, over: Callable[[LogState], bool], *, who: str, whom: str, why: str) -> bool:
        """Wait until ``over`` is true of the state at the head of the log, and return True; False if the time is up."""
        session, env = self._session, self._session.env
        if self._give_up is None:
            wait_s = session.settings.yield_wait_s if self._wait_s is None else self._wait_s
            self._give_up = env.monotonic() + wait_s
        _log.info("%s: %s waits for %s: %s", session.url, who, whom, why)
        pause = _FIRST_S
        with step("wait", reason=why):
            while not over(session.log.catch_up()):
                left = self._give_up - env.monotonic()
                if left <= 0:
                    return False
                # With jitter, so that writers that wait for the same one do not all read the log at once.
                env.sleep(min(pause * (0.5 + env.random()), left))
                pause = min(pause * 2, _LONGEST_S)
                # The awaited writer may be dead, with nobody else there to roll it back.
                session.look_after_others()
            return True


def queue(session: Session) -> list[tuple[Begin, list[str]]]:
    """The open transactions in the order of their rank, each with those it waits for by its announced files.

    Those with a reservation come first.
    """
    state = session.log.catch_up()
    by_priority, bucketed = state.settings.strategy == "priority", state.settings.bucket_count is not None
    begun = {begin.instant: begin for begin in list(state.open.values())}  # a copy, because other threads read on
    ranked = in_rank_order((begin.claim for begin in begun.values()), by_priority=by_priority)
    found = []
    for claim in ranked:
        files = [BaseFile.at(marker.path, 0) for marker in list_markers(session.store, claim.instant)]
        writes = WriteSet(frozenset(file.group for file in files if file))
        ahead = [
            other.instant
            for other in session.reservations.claims(state)
            if other.reserved
            and other.outranks(claim, by_priority=by_priority)
            and other.reserved.met_by(writes, bucketed=bucketed)
        ]
        found.append((begun[claim.instant], ahead))
    return found
