"""What an attempt does between two tries to land: it lets others go first, and merges again what they changed.

Nobody waits here with the lock in hand. The protocol is `landing`; this is what it calls between two tries.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...errors import ConstraintError
from ...tracing import step
from ..rebase import ROUNDS_MAX
from ..session import lost_against, waited_in_vain

if TYPE_CHECKING:
    from ...conflict import Conflict
    from ...hudi.timeline import Snapshot
    from ..log import LogState
    from ..rebase import MergeAgain
    from ..workspace import Attempt, Workspace

_SHORT_S = 5.0  # a merge that took longer is not done under the lock: others would wait for it, or give up
_log = logging.getLogger("lakelatch.transaction")


def wait_for(attempt: Attempt, conflict: Conflict) -> None:
    """Let the winner end first; `ConflictError` when it does not within the time that is waited."""
    winner = conflict.winner
    over = attempt.patience.until(
        lambda state: _has_ended(attempt, state, conflict),
        who=f"{attempt.operation} {attempt.instant}",
        whom=f"{winner.operation} {winner.instant} of {winner.writer}",
        why=conflict.rule,
    )
    if not over:
        begin = attempt.session.log.state.open.get(winner.instant)
        raise waited_in_vain(attempt, conflict, planned=begin is not None and begin.plan is not None)


def _has_ended(attempt: Attempt, state: LogState, conflict: Conflict) -> bool:
    attempt.require_in(state)
    session, begin = attempt.session, state.open.get(conflict.winner.instant)
    if begin is not None and begin.plan is not None and session.cleaner.end_if_left(begin):
        return True
    return begin is None or (conflict.winner.reserved is not None and not session.reservations.counts(begin))


def merge_again(attempt: Attempt, workspace: Workspace, lost: MergeAgain) -> None:
    """One round: outside the lock at first; later, where it is quick, under it, because then nobody comes between.

    One that takes long and does not shrink lands when the others pause, and perhaps never. Whose caller runs it again with
    what it needs reserved has less to do than several such rounds.
    """
    session, rebase = attempt.session, workspace.rebase
    assert rebase is not None
    if rebase.round and rebase.took_s <= _SHORT_S and attempt.lease is None:
        # What has to be merged is decided anew under the lease, which is kept to the commit, within bounds.
        attempt.lease = session.lease(
            f"{attempt.operation}, merging again", max_hold_s=session.settings.lock_wait_s / 2
        )
        return
    spec = workspace.spec
    slow = rebase.took_s > _SHORT_S
    task = None if rebase.round >= ROUNDS_MAX else rebase.prepare(lost, attempt.follower.commits, spec)
    if task is None or not session.settings.rebase or (slow and rebase.stalls and workspace.reserves_next):
        raise lost_against(attempt, lost.conflicts[0])
    _log.info("%s %s merges again, round %d: %s", attempt.operation, attempt.instant, rebase.round, lost)
    attempt.announce_as("replacecommit")
    try:
        with step("merge"):
            rebase.run(task)
        workspace.check_constraints()  # values are computed in every round
    except Exception as e:
        if isinstance(e, ConstraintError) or not _is_outdated(attempt, rebase.base, lost.slot):
            raise
        _log.info("%s %s: what round %d read has been cleaned: %s", attempt.operation, attempt.instant, rebase.round, e)
        rebase.take_back()


def _is_outdated(attempt: Attempt, base: Snapshot, slot: int) -> bool:
    """Whether slices of a round's state are gone because others have landed since: a clean keeps only what is newer."""
    session = attempt.session
    session.log.catch_up()
    if all(commit.slot < slot for commit in attempt.follower.commits):
        return False
    return any(session.store.head(path) is None for each in base.file_slices() for path in each.paths)
