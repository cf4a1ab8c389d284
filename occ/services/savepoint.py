"""Savepoints: a savepoint keeps a state of the table from cleanings until it is deleted.

    begin    announces it in the log;
             pending cleans and archivals are executed first: their files can no longer be kept
    check    the state is whole: no clean has been decided that deletes from it
    commit   loses against a clean of the same file groups decided meanwhile, and retries
    publish  `T_C.savepoint`, with T of the commit whose state it is, as in Hudi

Source: Apache Hudi's savepoints; `HoodieSavepointMetadata`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from ...arguments import text
from ...errors import ConflictError, InputError, RolledBackError
from ...hudi.timeline import Instant, file_name, same_time, to_epoch_ms
from ..entries import by_partition
from ..session import Savepoint, savepoints
from .execution import Service
from .planned_service import service_operation
from .scheduling import finish_decided

if TYPE_CHECKING:
    from ...hudi.timeline import Timeline
    from ..session import Session

T = TypeVar("T")
_SAVEPOINT = service_operation("savepoint", "SAVEPOINT")
_DELETION = service_operation("savepoint", "SAVEPOINT_DELETE")
_ATTEMPTS = 5


def savepoint(session: Session, instant: str | None, comment: str) -> Savepoint:
    """See `Table.savepoint`."""
    text(comment, "comment", empty=True)
    return again(session, lambda: _savepoint(session, instant, comment))


def _savepoint(session: Session, instant: str | None, comment: str) -> Savepoint:
    finish_decided(session)
    with Service(session, "savepoint", _SAVEPOINT) as txn:
        txn.refuse_beside_archival()
        timeline = session.timeline()
        commit = commit_at(session, timeline, instant)
        if any(each.instant == commit.requested for each in savepoints(session.store, timeline)):
            raise InputError(
                f"{session.url}: commit {commit.requested} has a savepoint already", instant=commit.requested
            )
        slices = session.snapshot(as_of_completion=(moment := commit.completed or commit.requested)).file_slices()
        files = by_partition(path for each in slices for path in each.paths)
        txn.settle({"slices": files, "by": session.writer, "comment": comment}, named=commit.requested)
    assert txn.result is not None
    shown = Instant(commit.requested, "savepoint", "completed", txn.result.completion)
    # Not read back: it is committed even if its instant could not be published yet.
    return Savepoint(commit.requested, moment, shown, session.writer, comment, to_epoch_ms(txn.attempt.instant), files)


def delete_savepoint(session: Session, instant: str) -> None:
    """See `Table.delete_savepoint`."""
    again(session, lambda: _delete(session, instant))


def _delete(session: Session, instant: str) -> None:
    with Service(session, "savepoint_delete", _DELETION) as txn:
        found = next(
            (each for each in savepoints(session.store, session.timeline()) if same_time(each.instant, instant)), None
        )
        if found is None:
            raise InputError(f"{session.url} has no savepoint {instant}; `lakelatch savepoint list` shows them")
        txn.settle({"slices": {}}, undone=[file_name(found.shown)])


def commit_at(session: Session, timeline: Timeline, instant: str | None) -> Instant:
    """Return the completed commit with that T in 17 digits (None: the newest); raise `InputError` if there is none."""
    commits = timeline.commits
    found = commits[-1:] if instant is None else [each for each in commits if same_time(each.requested, instant)]
    if not found:
        shown = ", ".join(each.requested for each in commits[-3:]) or "none"
        before = timeline.completed_by(completed=instant)
        then = f"{before[-1].requested} was the newest one at that time; " if before else ""
        raise InputError(
            f"{instant} is no commit on the timeline of {session.url}; {then}the newest are {shown} (`lakelatch timeline` "
            "lists all)",
            instant=instant,
        )
    return found[0]


def again(session: Session, attempt: Callable[[], T]) -> T:
    """Run a short service, and retry a few times if it loses a conflict."""
    for number in range(_ATTEMPTS):
        try:
            return attempt()
        except (ConflictError, RolledBackError):
            if number == _ATTEMPTS - 1:
                raise
            # Jittered, so that two services that ended each other do not meet again.
            session.env.sleep(session.env.random() * 0.2 * 2**number)
    raise AssertionError
