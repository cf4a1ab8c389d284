"""Old epochs of the commit log go when nothing needs them.

An epoch may go when nothing that is open began in it or in an earlier one (its candidates lie there), and what it
committed is on the timeline or older than it. A put of a zombie into an emptied slot counts for nothing: whoever appends
or reads looks up the newest epoch (`python -m tests.model --traces` prints the schedules). So a folder may be emptied by
several at once, be left half, or come to life again with a zombie's entry, and the next one goes on.

    t=0  entries go upwards, the open entry first: an epoch without it tells nobody anything any more
    t=1  the pruner dies; the next one finds the rest by the number of the folder
    t=2  a zombie puts an entry into the folder that is gone; the next one removes it

A zombie that has put an entry there may read on from it: its abort stands where a commit was, its close where the true one
was, and a put of the open entry may have come back. Therefore whoever comes to the next epoch goes on in it only if it begins at
this slot and with what he has read; else he begins anew there (`CommitLog.catch_up`).
"""

from __future__ import annotations

import logging

from ...hudi.timeline import EARLIEST
from ...storage import Store
from ..entries import SIDES, Begin, Commit, Single
from ..log import LOG, CommitLog, LogState, Publisher, chain, epochs, first_slot, read_to_the_tear
from .heartbeat import HEARTBEATS
from .markers import instants_with_markers
from .rollback import FailedWriteCleaner

_log = logging.getLogger("lakelatch.prune")


class Pruner:
    """Removes old epochs. One per table handle."""

    def __init__(self, store: Store, log: CommitLog, cleaner: FailedWriteCleaner, publisher: Publisher) -> None:
        self._store, self._log, self._cleaner, self._publisher = store, log, cleaner, publisher
        self._looked_at = 0

    def look(self) -> list[int]:
        """Prune if the log has gone on to another epoch since the last time; nothing is read otherwise."""
        return self.prune() if self._log.epoch != self._looked_at else []

    def prune(self) -> list[int]:
        """Remove all but the newest ``log_epochs`` epochs that nothing needs; returns their numbers. Safe to repeat."""
        state = self._log.catch_up()
        self._looked_at = self._log.epoch
        numbers = epochs(self._store)
        ours = set(chain(numbers))
        removed: list[int] = []
        for epoch in numbers[: -state.settings.log_epochs]:
            # Of a log that was replaced nothing is open, and what counts of it the timeline has.
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
        missing = self._publisher.lacking(landed)
        if missing:  # a savepoint that was deleted since, as only the log tells
            undone = {name for e in self._log.entries() if isinstance(e, Commit) for name in e.undone}
            missing = self._publisher.lacking(landed, but=undone)
        if missing:
            _log.warning(
                "%s: epoch %d of the commit log stays, since it has %s, which the timeline lacks; see `lakelatch check`",
                self._store.url, epoch, ", ".join(missing[:3]),
            )  # fmt: skip
        return not missing

    def _remove(self, epoch: int) -> None:
        entries = self._entries(epoch)
        self._sweep({entry.instant for entry in entries if isinstance(entry, Begin)})
        commits = [entry for entry in entries if isinstance(entry, Commit)]
        self._publisher.keep_away(commits)
        landed = {entry.instant for entry in commits}
        for side in self._store.list(SIDES):
            if side.name.partition("-")[0] in landed:
                self._store.delete(side.path)
        for found in self._store.list(f"{LOG}/{epoch:013d}"):
            self._store.delete(found.path)

    def _sweep(self, begun: set[str]) -> None:
        """What ended transactions left goes now: later nobody knows their outcome."""
        left = {*instants_with_markers(self._store), *self._store.names(HEARTBEATS)}
        left |= {each.requested for each in self._publisher.since(EARLIEST) if each.state != "completed"}
        for instant in sorted(left & begun):
            self._cleaner.sweep(instant)

    def _entries(self, epoch: int) -> list[Single]:
        return list(read_to_the_tear(self._store, epoch, newest=-1))


def _needs_from(begin: Begin) -> int:
    """The first slot whose commits are candidates of that transaction."""
    return begin.slot if begin.planned_at < 0 else min(begin.slot, begin.planned_at)
