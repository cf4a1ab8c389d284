"""Foreign commits: made by engines that do not read the log, on the timeline and not in the log.

The log cannot tell whether they overlap with ours, so a writer that sees one stops writing until `adopt` has taken it
over. A new handle checks when it verifies its epoch. Every handle checks again now and then, with one ranged listing
and a bounded share of its time (readers once a second). The closer of an epoch checks right before, so commits older
than the epoch are known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ...environment import Environment
from ...errors import UnsupportedTableError
from ...hudi.timeline import EARLIEST, Instant
from ..entries import Commit
from .state import LogState

_SHARE, _EVERY_S = 0.001, 1.0  # the share of time that checks may take, and the shortest pause between two
_AWAITED_S = 600.0  # how long a pending foreign instant makes every check due; its writer may also have died


class _Log(Protocol):
    """The part of the commit log that is used here."""

    @property
    def state(self) -> LogState: ...
    def catch_up(self) -> LogState:
        """Read to the head."""


class ForeignCommits:
    """The foreign commits and rollbacks that one handle of a log knows.

    Args:
        log: can read on; its ``state`` is that of the last read.
        since: returns the instants of commits, pending ones too, from a given T on, without those whose T the given
            function knows.

    Attributes:
        found: T of completed foreign commits, in order.
        rollbacks: T of other engines' rollbacks. One may be of a commit of ours, whose files are then gone.
        planned: their rollbacks that are not completed yet.
        pending: their other instants that are not completed.
        ahead: T of our own commits that are completed there and whose entries the log lacks (with neighbours).
        newest: the largest T or C of the last listing, pending ones included.
    """

    def __init__(
        self, log: _Log, env: Environment, since: Callable[[str, Callable[[str], bool]], Sequence[Instant]]
    ) -> None:
        self._log, self._env, self._since = log, env, since
        self.found: list[str] = []
        self.rollbacks: set[str] = set()
        self.planned: list[Instant] = []
        self.pending: list[Instant] = []
        self.ahead: list[str] = []
        self.newest = EARLIEST
        self._top = self._from = EARLIEST
        self._next_at = self._looked_at = 0.0
        self._at_work: dict[str, float] = {}  # T -> when it was first seen pending, by the monotonic clock

    def epoch_begins(self, top: str) -> None:
        """Forget what was found: the closer of the previous epoch checked the timeline up to ``top``."""
        self.found, self._top = [], top

    def look(self, *, now: bool = False, every_s: float | None = None) -> None:
        """List the timeline if a check is due, or ``now``. May read on in the log.

        ``every_s``: due if the last listing is older. Once a foreign commit was found, list every time: its engine may
        have taken it back.
        """
        began = self._env.monotonic()
        awaited = any(began < seen + _AWAITED_S for seen in self._at_work.values())
        due = began >= (self._next_at if every_s is None else self._looked_at + every_s)
        if not (now or self.found or awaited or due):
            return
        beside = self._log.state.settings.timeline_first
        self.judge(self._since(self.listed_from, self._has_ended) if beside else self._since(self._from, self._is_ours))
        ended = self._env.monotonic()
        self._looked_at = began
        self._next_at = ended + max((ended - began) / _SHARE, _EVERY_S)

    def postpone(self) -> None:
        """Note a fresh listing made elsewhere, so that the next periodic check is due later."""
        self._looked_at = self._env.monotonic()

    def judge(self, shown: Sequence[Instant]) -> None:
        """Pick the foreign instants out of a listing. May read on: an instant begun since our last read may be ours."""
        self.rollbacks.update(each.requested for each in shown if each.action == "rollback" and each.completed)
        self.planned = [each for each in shown if each.action == "rollback" and not each.completed]
        self.newest = max([self.newest, *(each.completed or each.requested for each in shown)])
        shown = [each for each in shown if each.action != "rollback"]
        if self._ahead_of_the_log(shown) or any(self.is_unknown(each) for each in shown):
            self._log.catch_up()
        self.ahead = self._ahead_of_the_log(shown)
        unknown = [each for each in shown if self.is_unknown(each)]
        self.found = sorted(each.requested for each in unknown if each.state == "completed")
        seen, at = self._at_work, self._env.monotonic()
        self.pending = [each for each in unknown if each.state != "completed"]
        self._at_work = {each.requested: seen.get(each.requested, at) for each in unknown}
        # A pending instant completes later under the T that it has, so the next listing must start no later than there.
        self._from = min([self._top, *(each.requested for each in unknown)])

    def unknown(self, shown: Sequence[Instant]) -> list[Instant]:
        """Return the completed instants of a listing that the log lacks, those of its open transactions among them."""
        completed = [each for each in shown if each.state == "completed" and each.action != "rollback"]
        ended = self._log.state.ended
        return [
            each
            for each in completed
            if each.requested in self._log.state.open
            or self.is_unknown(each)
            or ended.get(each.requested) in ("rollback", "abort")
        ]

    @property
    def at_work(self) -> tuple[str, ...]:
        """T of the transactions that are not completed, as of the last listing."""
        return tuple(sorted({each.requested for each in self.pending}))

    @property
    def listed_from(self) -> str:
        """The T from which a listing shows everything that may be unknown."""
        return min([self._from, *self._log.state.open])

    def _ahead_of_the_log(self, shown: Sequence[Instant]) -> list[str]:
        state = self._log.state
        completed = (each for each in shown if each.state == "completed" and state.settings.timeline_first)
        return [each.requested for each in completed if each.requested in state.open]

    def _has_ended(self, requested: str) -> bool:
        return requested in self._log.state.ended

    def _is_ours(self, requested: str) -> bool:
        state = self._log.state
        return requested in state.ended or requested in state.open

    def is_unknown(self, each: Instant) -> bool:
        """Return whether the log does not have it, and it is not older than the epoch."""
        if self._is_ours(each.requested):
            return False
        # Everything completed before the epoch opened is known. A later completion shows in its C, unless its writer was
        # paused between its C and its put: then it was pending at the close.
        late = each.requested in self._log.state.pending
        return each.state != "completed" or late or max(each.requested, each.completed or "") > self._top

    def error(self, table: str, *, left: Commit | None = None) -> UnsupportedTableError:
        """The error for a writer that would write beside foreign commits; ``left``: a commit not published because of them."""
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
