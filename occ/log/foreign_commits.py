"""Commits of engines that do not read the log: on the timeline, and not in it.

The log cannot tell whether they overlap with ours, so whoever notices one writes no more until `adopt` has taken it
over. A new handle looks when it verifies its epoch, every handle again now and then (one ranged listing, bounded in
its share of the time; who reads, once a second), and whoever closes an epoch right before: what is older than the epoch is
known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...environment import Environment
from ...errors import UnsupportedTableError
from ...hudi.timeline import EARLIEST, Instant
from ..entries import Commit
from .state import LogState

_SHARE, _EVERY_S = 0.001, 1.0  # of the time, what looking may cost; and not more often than that
_AWAITED_S = 600.0  # whoever was seen at work is looked for every time, for so long: it may also have died


class _Log(Protocol):
    """What is asked of the commit log."""

    @property
    def state(self) -> LogState: ...
    def catch_up(self) -> LogState:
        """Read to the head."""


class Strangers:
    """What one handle of a log knows of them.

    Args:
        log: reads on; its ``state`` is that of the last reading.
        since: the instants of commits, pending ones too, from the T on that is its argument, without those whose T
            is known by its second one.

    Attributes:
        found: T of those that have committed, in order.
        rollbacks: T of the rollbacks of other engines that were seen. One may be of a commit of ours, whose files are gone.
    """

    def __init__(
        self, log: _Log, env: Environment, since: Callable[[str, Callable[[str], bool]], Sequence[Instant]]
    ) -> None:
        self._log, self._env, self._since = log, env, since
        self.found: list[str] = []
        self.rollbacks: set[str] = set()
        self._top = self._from = EARLIEST
        self._next_at = self._looked_at = 0.0
        self._at_work: dict[str, float] = {}  # T -> when it was first seen pending, by the monotonic clock

    def epoch_begins(self, top: str) -> None:
        """All that the timeline showed up to that time is known: who closed the epoch before had looked."""
        self.found, self._top = [], top

    def look(self, *, now: bool = False, every_s: float | None = None) -> None:
        """Look on the timeline, if it is time to or ``now``. May read on in the log.

        ``every_s``: it is time to when the last look is older. Once there is one, every time: its own engine may have taken
        it back.
        """
        began = self._env.monotonic()
        awaited = any(began < seen + _AWAITED_S for seen in self._at_work.values())
        due = began >= (self._next_at if every_s is None else self._looked_at + every_s)
        if not (now or self.found or awaited or due):
            return
        self.judge(self._since(self._from, self._is_ours))
        ended = self._env.monotonic()
        self._looked_at = began
        self._next_at = ended + max((ended - began) / _SHARE, _EVERY_S)

    def postpone(self) -> None:
        """Who looks every few seconds has just seen the timeline."""
        self._looked_at = self._env.monotonic()

    def judge(self, shown: Sequence[Instant]) -> None:
        """Sort out which of these are strangers'. May read on: one that began since we read the log is none."""
        self.rollbacks.update(each.requested for each in shown if each.action == "rollback" and each.completed)
        shown = [each for each in shown if each.action != "rollback"]
        if any(self._is_unknown(each) for each in shown):
            self._log.catch_up()
        unknown = [each for each in shown if self._is_unknown(each)]
        self.found = sorted(each.requested for each in unknown if each.state == "completed")
        seen, at = self._at_work, self._env.monotonic()
        pending = [each.requested for each in unknown if each.state != "completed"]
        self._at_work = {instant: seen.get(instant, at) for instant in pending}
        # One that is at work now will complete under the T that it has.
        self._from = min([self._top, *(each.requested for each in unknown)])

    def _is_ours(self, requested: str) -> bool:
        state = self._log.state
        return requested in state.ended or requested in state.open

    def _is_unknown(self, each: Instant) -> bool:
        if self._is_ours(each.requested):
            return False
        # Whatever had completed when the epoch was opened is known, and what completes later says so by its C.
        return each.state != "completed" or max(each.requested, each.completed or "") > self._top

    def error(self, table: str, *, left: Commit | None = None) -> UnsupportedTableError:
        """What a writer is told who would have to write beside them; ``left``: a commit that may not be published over them."""
        unpublished = (
            f" {left.instant} of {left.writer} is in the log, did not reach the timeline before that, and is not put there now."
            if left is not None
            else ""
        )
        return UnsupportedTableError(
            f"{table}: another engine has committed {', '.join(self.found[:3])} without the commit log, so overlaps with it "
            f"cannot be seen.{unpublished} Nothing was written. `lakelatch check` names what one has written over the other so "
            "far. When its writers have stopped, `lakelatch adopt URL LOCK` takes its commits over",
            table=table,
            strangers=tuple(self.found),
        )
