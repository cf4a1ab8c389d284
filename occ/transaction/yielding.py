"""What a transaction does while it is not at the log: it lets others go first, and merges again what they changed.

Nobody waits here with the lock in hand. The protocol is `transaction`; this is what it calls between two tries.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...conflict import Claim, Conflict, Reservation, WriteSet
from ...errors import StorageError
from ...hudi.timeline import Instant, State, file_name
from ...storage import Outcome
from ..log import Begin, LogState
from ..rebase import ROUNDS_MAX, MergeAgain, Round
from ..session import ended_by_others, lost_against, reserved_by, waited_in_vain
from ..turns import BoundedWait, touched
from .validator import CommitValidator
from .workspace import Work

if TYPE_CHECKING:
    from ..session import Session, TableLease

_SHORT_S = 5.0  # a merge that took longer is not done under the lock: others would wait for it, or give up
_log = logging.getLogger("lakelatch.transaction")


class Yielding(Work):
    """The part of a `Transaction` between its begin and its commit entry that is about others."""

    _lease: TableLease | None = None

    def __init__(self, session: Session, name: str, *, isolation: str | None, claim: Claim) -> None:
        super().__init__(session, name)
        self._judge = CommitValidator(
            session.store,
            self.changes,
            session.settings,
            isolation=isolation,
            priority=session.priority,
            counts=session.reservations.counts,
        )
        self._patience = BoundedWait(session)
        self.claim, self._isolation = claim, isolation
        self._announced_as = self.changes.operation.action

    # --- letting others go first -----------------------------------------------------------------------------

    def _first_in_the_way(self, state: LogState) -> Begin | None:
        # In the same step as the begin entry: there is no gap between what is reserved and the snapshot.
        if self.changes.operation.service:
            return None
        found = self.session.reservations.first_in_the_way(state, self.claim)
        return state.open[found.instant] if found else None

    def _wait_to_begin(self, before: Begin) -> None:
        session = self.session
        self._release()  # nobody waits with the lock in hand
        over = self._patience.until(
            lambda state: before.instant not in state.open or not session.reservations.counts(before),
            who=f"{self.operation} of {session.writer}",
            whom=f"{before.operation} {before.instant} of {before.writer}",
            why=f"it has reserved {before.reserved}",
        )
        if not over:
            raise reserved_by(self, before, session.settings.yield_wait_s)

    def _wait_for(self, conflict: Conflict) -> None:
        winner = conflict.winner
        over = self._patience.until(
            lambda state: self._has_ended(state, winner.instant, conflict),
            who=f"{self.operation} {self.instant}",
            whom=f"{winner.operation} {winner.instant} of {winner.writer}",
            why=conflict.rule,
        )
        if not over:
            begin = self.session.log.state.open.get(winner.instant)
            raise waited_in_vain(self, conflict, planned=begin is not None and begin.plan is not None)

    def _has_ended(self, state: LogState, winner: str, conflict: Conflict) -> bool:
        self._require_in(state)
        begin = state.open.get(winner)
        if begin is not None and begin.plan is not None and self.session.cleaner.end_if_left(begin):
            return True
        return begin is None or (conflict.winner.reserved is not None and not self.session.reservations.counts(begin))

    @property
    def has_lock(self) -> bool:
        """Whether it holds the table's lock."""
        return self._lease is not None

    def announced(self, other: Begin) -> WriteSet:
        """What another open transaction will write, as far as its plan or its markers say."""
        return self._judge.announced(other)

    @property
    def isolation(self) -> str:
        """The level in force for it."""
        return self._judge.isolation(self.session.settings)

    def touched(self, *, attempt: int) -> Reservation:
        """What an attempt after this lost one has to reserve; ``attempt`` counts the reserving ones."""
        return touched(self.changes, self.lost_on, isolation=self.isolation, attempt=attempt)

    # --- merging again ---------------------------------------------------------------------------------------

    def _merge_again(self, lost: MergeAgain) -> None:
        """One round: outside the lock at first; later, where it is quick, under it, because then nobody comes between."""
        session, rebase = self.session, self._rebase
        assert rebase is not None
        if rebase.round and rebase.took_s <= _SHORT_S and self._lease is None:
            # What has to be merged is decided anew under the lease, which is kept to the commit, within bounds.
            self._lease = session.lease(f"{self.operation}, merging again", max_hold_s=session.settings.lock_wait_s / 2)
            return
        spec = self._spec or self.file_spec(self.schema)
        task = None if rebase.round >= ROUNDS_MAX else rebase.prepare(lost, self._follower.commits, spec)
        if task is None or not session.settings.rebase:
            raise lost_against(self, lost.conflicts[0])
        _log.info("%s %s merges again, round %d: %s", self.operation, self.instant, rebase.round, lost)
        self._announce_as("replacecommit")
        try:
            rebase.run(task)
        except Exception as e:
            if not self._is_outdated(task, lost.slot):
                raise
            _log.info("%s %s: what round %d read has been cleaned: %s", self.operation, self.instant, rebase.round, e)
            rebase.take_back()

    def _is_outdated(self, task: Round, slot: int) -> bool:
        """Whether slices of a round are gone because others have landed since: of those a clean keeps only what is newer."""
        session = self.session
        session.log.catch_up()
        if all(commit.slot < slot for commit in self._follower.commits):
            return False
        return any(session.store.head(path) is None for each in task.slices.values() for path in each.paths)

    # --- the pending instant ---------------------------------------------------------------------------------

    def _announce(self, path: str) -> None:
        # Empty and not flushed: the begin entry is the record. But a reader takes files older than the first instant
        # it knows for committed ones, so on a young table nothing of ours may exist before this does.
        store = self.session.store
        put = store.put_if_absent(path, b"", durable=False)
        if put.outcome is Outcome.UNKNOWN and store.head(path) is None:
            raise StorageError(f"{path} could not be written: {put.cause}; nothing landed, try again", path=path)

    def _pending_path(self, action: str, state: State) -> str:
        return f"{self.session.config.timeline_folder}/{file_name(Instant(self.instant, action, state))}"

    def _announce_as(self, action: str) -> None:
        """The pending instant has the action that the commit will have; before the first file of that commit."""
        if action != self._announced_as:
            # "": should this fail half-way, the abort deletes what stands there of any action.
            before, self._announced_as = self._announced_as, ""
            for state in self.changes.operation.announced:
                self._announce(self._pending_path(action, state))
            for state in reversed(self.changes.operation.announced):
                self.session.store.delete(self._pending_path(before, state))
            self._announced_as = action

    # --- guards ----------------------------------------------------------------------------------------------

    def _release(self) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            lease.release()

    def _require_in(self, state: LogState) -> None:
        if self.instant not in state.open:
            raise ended_by_others(self)
