"""Remove old epochs of the commit log when nothing needs them.

An epoch may go when no open transaction began in it or earlier (its candidates are there), and its commits are on the
timeline or older than it, and every table of a transaction over several has its outcome. A zombie's put into an emptied
slot does not count: every append and every read checks for the newest epoch (`python -m tests.model --traces` prints the
schedules). So several processes may empty a folder at once, leave it half empty, or find it again with a zombie's entry,
and the next one goes on.

    t=0  entries go upwards, the open entry first: an epoch without it no longer counts for anybody
    t=1  the pruner dies; the next one finds the rest by the number of the folder
    t=2  a zombie puts an entry into the folder that is gone; the next one removes it

A zombie that has put an entry there may read on from it: its abort stands where a commit was, its close where the true
one was, and a put of the open entry may have come back. Therefore a reader continues in the next epoch only if that
begins at this slot and with the state it has read; else it starts over there (`CommitLog.catch_up`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...hudi.timeline import EARLIEST
from ...storage import Store
from ..entries import SIDES, Begin, Commit, Single
from ..log import LOG, CommitLog, LogState, Publisher, chain, epochs, first_slot, read_to_the_tear
from .heartbeat import HEARTBEATS
from .markers import instants_with_markers
from .rollback import FailedWriteCleaner

_log = logging.getLogger("lakelatch.prune")


class Pruner:
    """The remover of old epochs. One per table handle.

    Attributes:
        settled: return whether the other tables of a transaction over several have the outcome of this commit, its home's.
    """

    def __init__(self, store: Store, log: CommitLog, cleaner: FailedWriteCleaner, publisher: Publisher) -> None:
        self._store, self._log, self._cleaner, self._publisher = store, log, cleaner, publisher
        self._looked_at = 0
        self.settled: Callable[[Commit], bool] = lambda _: True

    def look(self) -> list[int]:
        """Prune if the log has reached another epoch since the last call; otherwise read nothing."""
        return self.prune() if self._log.epoch != self._looked_at else []

    def prune(self) -> list[int]:
        """Remove all but the newest ``log_epochs`` epochs that nothing needs; return their numbers. Idempotent."""
        state = self._log.catch_up()
        self._looked_at = self._log.epoch
        numbers = epochs(self._store)
        ours = set(chain(numbers))
        removed: list[int] = []
        for epoch in numbers[: -state.settings.log_epochs]:
            # A replaced log has no open transactions, and the timeline has its commits.
            if epoch in ours and not self._may_go(epoch, state):
                break
            self._remove(epoch)
            removed.append(epoch)
        if removed:
            _log.info("%s: removed epochs %s of the commit log", self._store.url, removed)
        return removed

    def _may_go(self, epoch: int, state: LogState) -> bool:
        ends_at = first_slot(self._store, epoch + 1)
        if any(_needs_from(begin) < ends_at for begin in state.open.values()):
            return False
        landed = [e for e in self._entries(epoch) if isinstance(e, Commit)]
        if not all(self.settled(each) for each in landed if each.several):
            return False
        missing = self._publisher.lacking(landed)
        if missing:  # a savepoint deleted since is missing too, and only the log says so
            undone = {name for e in self._log.entries() if isinstance(e, Commit) for name in e.undone}
            missing = self._publisher.lacking(landed, but=undone)
        if missing:
            _log.warning(
                "%s: epoch %d of the commit log stays, since it has %s, which the timeline lacks; see `lakelatch check`",
                self._store.url, epoch, ", ".join(missing[:3]),
            )  # fmt: skip
        return not missing

    def _remove(self, epoch: int) -> None:
        # The order matters: once the entries are gone, the log can no longer say what became of these transactions.
        entries = self._entries(epoch)
        self._sweep({entry.instant for entry in entries if isinstance(entry, Begin)})
        commits = [entry for entry in entries if isinstance(entry, Commit)]
        self._publisher.keep_away(commits)
        landed = {entry.instant for entry in commits}
        for side in self._store.list(SIDES):
            if side.name.partition("-")[0] in landed:
                self._store.delete(side.path)
        # Upwards, the open entry first: without it the rest does not count, whenever this stops.
        for found in self._store.list(f"{LOG}/{epoch:013d}"):
            self._store.delete(found.path)

    def _sweep(self, begun: set[str]) -> None:
        """Remove the leftovers of ended transactions now, because later their outcome is unknown."""
        left = {*instants_with_markers(self._store), *self._store.names(HEARTBEATS)}
        left |= {each.requested for each in self._publisher.since(EARLIEST) if each.state != "completed"}
        for instant in sorted(left & begun):
            self._cleaner.sweep(instant)

    def _entries(self, epoch: int) -> list[Single]:
        return list(read_to_the_tear(self._store, epoch, newest=-1))


def _needs_from(begin: Begin) -> int:
    """The first slot whose commits are candidates of that transaction."""
    return begin.slot if begin.planned_at < 0 else min(begin.slot, begin.planned_at)
