"""The work of an attempt between two tries to commit: wait for a winner, merge again after its changes.

Nobody waits here while holding the lock. `landing` has the protocol and calls these.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ...errors import ConflictError, ConstraintError
from ...tracing import step
from ..rebase import ROUNDS_MAX
from ..session import await_outcome, lost_against, waited_in_vain

if TYPE_CHECKING:
    from collections.abc import Collection

    from ...conflict import Conflict
    from ...hudi.files import FileGroupId
    from ...hudi.timeline import Instant, Snapshot
    from ..entries import Prepare
    from ..log import LogState
    from ..rebase import MergeAgain
    from ..workspace import Attempt, Workspace

_SHORT_S = 5.0  # a longer merge is not done under the lock, where others would wait for it or time out
_log = logging.getLogger("lakelatch.transaction")


def yield_to_neighbours(attempt: Attempt, workspace: Workspace) -> None:
    """Wait for a live writer of another engine that has lost the same file groups before, for ``yield_wait_s`` at most.

    Its retry has a larger T than ours, so nothing else shows that it has waited. Then go on in any case.
    """
    session, groups = attempt.session, workspace.changes.write_set().groups
    before = session.neighbours.first_to_wait_for(session.log.pending(), groups, session.log.has_committed)
    if before is None:
        return

    def over(state: LogState) -> bool:
        attempt.require_in(state)
        pending = {each.requested for each in session.log.pending(now=True)}
        return before.requested not in pending or not session.neighbours.lives(before)

    if not attempt.patience.until(
        over,
        who=f"{attempt.operation} {attempt.instant}",
        whom=f"{before.action} {before.requested} of another engine",
        why="it has lost the same file groups before",
    ):
        _log.warning(
            "%s: %s of another engine is not waited for any longer by %s",
            session.url,
            before.requested,
            attempt.instant,
        )


class NeighbourInTheWayError(Exception):
    """Another engine is at work on something that ours may not commit beside (`NeighboursAtWork.in_the_way`)."""

    def __init__(self, theirs: Instant) -> None:
        super().__init__(theirs.requested)
        self.theirs = theirs


def refuse_neighbour_in_the_way(attempt: Attempt, groups: Collection[FileGroupId]) -> None:
    """Raise `NeighbourInTheWayError` if there is one. Under the lock, after a look at the timeline."""
    session = attempt.session
    if found := session.neighbours.in_the_way(session.log.pending(), attempt.instant, attempt.kind.action, groups):
        raise NeighbourInTheWayError(found)


def wait_for_neighbour(attempt: Attempt, groups: Collection[FileGroupId], error: NeighbourInTheWayError) -> None:
    """Wait until it is in the way no more; raise `ConflictError` if it still is in the end."""
    session, action, theirs = attempt.session, attempt.kind.action, error.theirs

    def over(state: LogState) -> bool:
        attempt.require_in(state)
        found = session.neighbours.in_the_way(session.log.pending(now=True), attempt.instant, action, groups)
        return found is None or found.requested != theirs.requested

    whom = f"{theirs.requested} of another engine"
    if theirs.action == "restore":
        whom, why = f"restore {whom}", "it takes commits back, and nothing may land beside it"
        next_ = "If it has died, run it again there: until it ends, Hudi's own writers stop as well"
    elif theirs.action == "clustering":
        whom, why = (
            f"clustering {whom}",
            "it rewrites file groups as they were when it was planned, without this commit",
        )
        next_ = "If nobody runs it, run it there or roll it back: until it ends, Hudi's own writers of these are refused too"
    elif action == "restore":
        why = "it may have read what the restore takes back, and would bring it back"
        next_ = "If that writer is dead, its heartbeat ends in two minutes"
    else:
        why = "it has taken a smaller T and may not have read the timeline yet"
        next_ = "It is waited for some seconds only; raise yield_wait_s"
    if not attempt.patience.until(over, who=f"{attempt.operation} {attempt.instant}", whom=whom, why=why):
        raise ConflictError(
            f"{attempt.url}: {attempt.operation} {attempt.instant} has waited for {whom} in vain: {why}. Nothing of ours "
            f"landed; a retry is safe. {next_}",
            table=attempt.url,
            instant=attempt.instant,
            winner=theirs.requested,
            winner_op={"restore": "RESTORE", "clustering": "CLUSTER"}.get(theirs.action, "UNKNOWN"),
            winner_writer="another engine",
            overlap=(),
            rule=why,
        )


def wait_for(attempt: Attempt, conflict: Conflict) -> None:
    """Wait for the winner to end; raise `ConflictError` if it does not in time."""
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


def wait_for_outcome(attempt: Attempt, prepared: Prepare) -> None:
    """Wait until a commit that is prepared here has its outcome; its coordinator is taken for dead after ``yield_wait_s``."""
    commit, home = prepared.commit, prepared.home
    await_outcome(
        attempt.session,
        prepared,
        lambda over: attempt.patience.until(
            over,
            who=f"{attempt.operation} {attempt.instant}",
            whom=f"{commit.operation} {commit.instant} of {commit.writer}",
            why=f"it waits for the outcome of {home.instant} of {home.url}",
        ),
    )


def merges_under_lock(attempt: Attempt, workspace: Workspace) -> bool:
    """Return whether the next round of merging begins with the lock: the last one was quick, and others came between."""
    rebase = workspace.rebase
    return rebase is not None and bool(rebase.round) and rebase.took_s <= _SHORT_S and attempt.lease is None


def merge_again(attempt: Attempt, workspace: Workspace, lost: MergeAgain) -> None:
    """Run one round of merging: first without the lock, later, if quick, under it so that no other commit can
    intervene.

    A slow rebase that does not shrink may never commit; failing lets `Table.run` retry with a reservation.
    """
    session, rebase = attempt.session, workspace.rebase
    assert rebase is not None
    if merges_under_lock(attempt, workspace):
        # Decide again under the lease what must be merged. The lease is kept until the commit, within bounds.
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
    if task.lost.units or task.lost.appeared:  # log files stay where they are, and replace nothing
        attempt.announce_as("replacecommit")
    try:
        with step("merge"):
            rebase.run(task)
        workspace.check_constraints()  # every round computes values again
    except Exception as e:
        # A clean removes slices that later commits replaced. The error is then only the sign of a stale round: the next
        # one reads newer slices. A constraint that is violated stays so.
        if isinstance(e, ConstraintError) or not _is_outdated(attempt, rebase.base, lost.slot):
            raise
        _log.info("%s %s: what round %d read has been cleaned: %s", attempt.operation, attempt.instant, rebase.round, e)
        rebase.take_back()


def _is_outdated(attempt: Attempt, base: Snapshot, slot: int) -> bool:
    """Return whether slices that the round read are gone: later commits replaced them and a clean removed them."""
    session = attempt.session
    session.log.catch_up()
    if all(commit.slot < slot for commit in attempt.follower.commits):
        return False
    return any(session.store.head(path) is None for each in base.file_slices() for path in each.paths)
