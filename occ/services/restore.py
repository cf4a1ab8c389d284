"""Restore: return the table to the state of a commit, and undo all later commits for good.

    begin    blocks commits: a writer that reads this entry waits, and loses once the restore has committed;
             pending cleans and archivals, being decided, are executed first
    check    the state is whole and fits the settings; no undone commit has a savepoint
    commit   the log names the undone instants: nobody publishes them again
    publish  the undone instants leave the timeline, the newest first; `T_C.restore` appears when all are gone
    sweep    their files go last, and only if no reader's lease is older

A restore neither waits for open writers nor ends them: they find it at their commit. It is short, because it writes no
data. Only its commit entry undoes anything; a restore that dies earlier has changed nothing.

A stalled publisher may put an undone instant on the timeline again. The next process that reads on or opens the table
removes it (`Publisher.reconcile`); its files are gone.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import ConfigError, CorruptTableError, InputError, LakeLatchError, UnsupportedTableError
from ...hudi.files import list_data_files
from ...hudi.timeline import COMMIT_ACTIONS, COMPLETED_AS, Instant, Snapshot, file_name, read_timeline
from ...storage import Outcome
from ...streams import refuse_undeclared
from ..check import data_files, refuse_misplaced
from ..entries import SIDES, Operation
from ..liveness import ReaderLeases, delete_data_file
from ..log import commits_by, standing_batches
from ..session import refuse_cleaned, savepoints
from ..workspace.unique_constraints import refuse_broken, refuse_repeated
from .execution import Service, end_plan
from .savepoint import again, commit_at
from .scheduling import finish_decided

if TYPE_CHECKING:
    import pyarrow as pa

    from ...hudi.timeline import Timeline
    from ..entries import Landed
    from ..session import Session, View

RESTORE = Operation("restore", "RESTORE", service=True)  # announced, unlike other services
_log = logging.getLogger("lakelatch.restore")


@dataclass(frozen=True, slots=True)
class Restored:
    """A committed restore.

    Attributes:
        instant: T of the commit whose state the table has now.
        completion: C of the restore; None if there was nothing to undo.
        undone: requested times of the undone commits, the newest first.
        files: number of data files deleted; a later cleaning deletes files that a reader may still need.
    """

    instant: str
    completion: str | None
    undone: tuple[str, ...] = ()
    files: int = 0


def restore(session: Session, instant: str, leases: ReaderLeases) -> Restored:
    """See `Table.restore`."""
    completion, undone = again(session, lambda: _restore(session, instant))
    if completion is None:
        return Restored(instant, None)
    files = 0
    try:
        for begin in list(session.log.catch_up().open.values()):
            # The restore has doomed this plan, and ingestion would wait for it.
            if begin.action in COMPLETED_AS and begin.instant < completion:
                end_plan(session, begin, f"a restore to {instant} stands alone")
        files = remove_undone(session, leases)
    except LakeLatchError:  # the restore is committed; the next cleaning deletes the rest
        _log.warning(
            "%s: the restore to %s has landed, but its files are still there", session.url, instant, exc_info=True
        )
    return Restored(instant, completion, undone, files)


def _restore(session: Session, instant: str) -> tuple[str | None, tuple[str, ...]]:
    finish_decided(session)
    with Service(session, "restore", RESTORE) as txn:
        txn.refuse_beside_archival()
        target, later, standing = txn.attempt.seen(lambda: _to_take_back(session, instant))
        if not later:
            txn.abort("nothing to take back")
            return None, ()
        # Newest first, as they leave.
        undone = [file_name(each) for each in reversed(later)]
        txn.settle({"slices": {}, "to": target.requested}, undone=undone, standing=standing)
    return txn.result.completion if txn.result else None, tuple(each.requested for each in reversed(later))


def _to_take_back(session: Session, instant: str) -> tuple[Instant, tuple[Instant, ...], tuple[Landed, ...]]:
    """Return the commit to go back to, the later ones, the oldest first, and `_standing`."""
    # Complete: it has each commit before the begin slot, and none can follow.
    timeline = session.timeline()
    target = commit_at(session, timeline, instant)
    commits = timeline.commits
    later = commits[commits.index(target) + 1 :]
    if later:
        _refuse_to_lose(session, timeline, target, later)
    return target, later, _standing(session, timeline, target, later)


def _standing(session: Session, timeline: Timeline, target: Instant, later: tuple[Instant, ...]) -> tuple[Landed, ...]:
    """The newest batches, in the target's state, of the sources whose newest batch is undone."""
    taken = {each.requested for each in later}
    sources = [each.batch.source for each in session.log.state.batches if each.instant in taken]
    completed = target.completed or target.requested
    return standing_batches(commits_by(timeline, session.history, completed), sources)


def _refuse_to_lose(session: Session, timeline: Timeline, target: Instant, later: tuple[Instant, ...]) -> None:
    taken = {each.requested for each in later}
    if standing := [each.instant for each in savepoints(session.store, timeline) if each.instant in taken]:
        raise InputError(
            f"{session.url}: commit {standing[0]} would be taken back, and it has a savepoint; delete that first "
            f"(`lakelatch savepoint delete {session.url} {standing[0]}`)",
            savepoints=standing,
        )
    moment = target.completed or target.requested
    refuse_cleaned(session, as_of_completion=moment)
    if moment < session.history.newest_completion():
        raise InputError(
            f"{session.url}: commits that completed after {target.requested} have been archived, and cannot be taken back; "
            "restore to a later one",
            instant=target.requested,
        )
    left = [
        i.requested
        for i in (*timeline.completed, *timeline.pending)
        if COMPLETED_AS.get(i.action, i.action) in COMMIT_ACTIONS and i.requested not in taken
    ]
    if min(taken) < min(left):
        # Files older than the first active instant count as an archived commit's, so the undone ones would stay visible.
        raise UnsupportedTableError(
            f"{session.url}: {min(taken)} cannot be taken back, because it was requested before every commit that stays on "
            "the timeline; restore to an earlier commit",
            instant=min(taken),
        )
    _refuse_incomplete(session, timeline, target)
    settings = session.settings
    if (
        settings.unique_constraints
        or settings.check
        or settings.merge
        or settings.streams
        or settings.bucket_count is not None
    ):
        _refuse_broken_rules(session, target, session.view(as_of_completion=moment))


def _refuse_broken_rules(session: Session, target: Instant, then: View) -> None:
    """Raise if the target's state breaks today's settings, which were only checked against later rows."""
    settings, schema, slices = session.settings, then.arrow_schema(), then.snapshot.file_slices()
    if schema is not None:
        _refuse_lacking(session, target, schema)
        session.refuse_rule(settings, schema)
    next_ = (
        f"Nothing was changed, and the state of {target.requested} has these rows: restore to another commit, or drop the "
        f"constraint first (`lakelatch settings {session.url} '%s=[]'`)"
    )
    for constraint in settings.unique_constraints:
        refuse_repeated(session, constraint, slices, next_ % "unique_constraints")
    if settings.check and schema is not None:
        refuse_broken(session, settings.check, schema, slices, next_ % "check")
    if settings.bucket_count is not None:
        # Present files were checked when the number of buckets was set, or written since.
        there = {path for each in session.snapshot().file_slices() for path in each.paths}
        brought = [each for each in slices if not each.paths <= there]
        refuse_misplaced(session.store, session.config, brought, settings.bucket_count)
        for each in brought if settings.streams else ():  # they may be older than the first stream
            refuse_undeclared(session.store, settings.streams, each.logs)


def _refuse_lacking(session: Session, target: Instant, schema: pa.Schema) -> None:
    for name in (session.schema() or schema).names:
        if name not in schema.names and (uses := session.settings.uses_of(name)):
            raise ConfigError(
                f"{session.url} cannot go back to {target.requested}: it had no column {name!r} then, which is named by "
                f"{uses[0]}, so writers would stop. Nothing was changed. Change that setting first, or restore to a commit "
                "that has the column",
                table=session.url,
                setting=uses[0],
                column=name,
                instant=target.requested,
            )


def _refuse_incomplete(session: Session, timeline: Timeline, target: Instant) -> None:
    """Raise `CorruptTableError` if a file is missing that the active timeline names in the target's state."""
    commits = timeline.completed_by(completed=target.completed)
    then = Snapshot().after_all((timeline.metadata(i).to_json(), *i.order[::-1]) for i in commits)
    there = {file.path for file in data_files(list_data_files(session.store))}
    if missing := sorted(path for each in then.file_slices() for path in each.paths - there):
        raise CorruptTableError(
            f"{session.url}: the state of {target.requested} lacks {len(missing)} of its files ({missing[0]} and so on); "
            "nothing was changed. Another engine has cleaned them; choose a later commit",
            instant=target.requested,
            paths=tuple(missing),
        )


def remove_undone(session: Session, leases: ReaderLeases) -> int:
    """Delete the data files of undone commits, unless an older reader may need them; return their number. Idempotent."""
    timeline = read_timeline(session.store, session.config)
    undone = timeline.taken_back()
    newest = max((i.completed or i.requested for i in timeline.completed if i.action == "restore"), default="")
    for each in timeline.commits:
        # A publisher that stalled during the restore may have put it back.
        if each.requested in undone and session.store.delete(timeline.path(each)) is Outcome.UNKNOWN:
            return 0
    if not undone or any(lease.at < newest for lease in leases.alive(timeout_s=session.settings.heartbeat_timeout_s)):
        return 0
    paths = [file.path for file in data_files(list_data_files(session.store)) if file.instant in undone]
    for path in paths:
        delete_data_file(session.store, path)
    for side in session.store.list(SIDES):
        if side.name.partition("-")[0] in undone:
            session.store.delete(side.path)
    return len(paths)
