"""Table services: planning, execution by one or several processes, cancelling.

    schedule   compute a plan on a static view, at a slot of the log; under the lock, check it against newer entries and
               append begin(T) with it: the plan is decided and never changes;
               then write the requested instant, in one piece
    execute    in any process, in several at once, even if the scheduler has died; each keeps the heartbeat of T;
               candidates are all commits from the slot that the plan was computed at;
               commit(T, C): one of the executions commits, the others report its result
    cancel     append abort(T), then delete the files of its executions

A plan for others has no heartbeat, because perhaps nobody works on it; silence ends it only when a writer has to wait for
it (`FailedWriteCleaner.end_if_left`). A plan that its maker executes at once (`perform`) lives while somebody works on it,
like any transaction. Two executions write the same files under the same names, so the second one meets those of the first
and deletes nothing.

**A clean is decided when it is planned.** Any process may delete its files once the begin entry is in the log: no retained
state sees them, and no later one can. A reader that began before the plan's slot is in its state of the log, or put a lease
before the leases were listed; one that begins afterwards sees the newest slices, which stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...conflict import INGESTION, Kind, kind_of
from ...errors import (
    ConflictError,
    CorruptTableError,
    InputError,
    LakeLatchError,
    RolledBackError,
    StorageError,
    TableError,
)
from ...hudi.files import FileGroupId
from ...hudi.timeline import COMPLETED_AS, Instant, file_name
from ...progress import Reporter
from ...storage import Outcome
from ..entries import Begin, Commit, Content, LogEntry, extent, groups_of, held, hold, plan_body, write_set_of
from ..log import Follower, LogState, commits_since, plain_metadata_of
from ..session import undisturbed
from . import archive, compaction, log_compaction
from .execution import Execution, Runner, end_plan, one_by_one
from .foreign_plans import taken_over
from .planned_service import Find, PlannedService
from .registry import SERVICES, is_decided
from .rewriting import Damaged

if TYPE_CHECKING:
    from ..session import Session

_log = logging.getLogger("lakelatch.services")
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Executed:
    """An executed plan.

    Attributes:
        instant: its requested time T.
        completion: its completion time C.
        files: number of data files it deleted or read, or of instants it archived.
        by: the writer whose execution committed.
        mine: True if that was this execution.
    """

    instant: str
    completion: str
    files: int
    by: str
    mine: bool


class _Stale(Exception):
    """The state that a plan was computed on has changed."""


def schedule(session: Session, service: PlannedService, find: Find, *, executes: bool = False) -> Begin | None:
    """Compute a plan and append it to the log; return None if there is nothing to do.

    Args:
        find: returns the content of the plan as of a state of the log, or None.
        executes: this process executes the plan next and already beats for it; `execute` announces it.

    Raises:
        ConflictError: the table changed under the plan at every attempt; nothing was written, a retry is safe.
    """
    # Compactions re-read the timeline: another engine's log file that completed before the plan and is not in it would be lost.
    compacts, name = service.operation.action in COMPLETED_AS and session.config.merge_on_read, service.name
    last: _Stale | None = None
    for _ in range(_ATTEMPTS):
        # Follow before reading the state, so that no entry between the two is missed.
        follower = session.log.follow(Follower())
        try:
            state, slot = session.log.catch_up(), session.log.next_slot
            session.publish_last()  # so that the timeline shows each commit before that slot
            content = _found(session, find, state, follower)
            if content is None:
                return None
            look = True if compacts or session.lock.shared_with_jvm else None
            with session.lease(f"planning {name}"):
                begin = session.log.append(_entry(session, service, content, slot, follower, executes), look=look)
        except _Stale as e:
            last = e
            _log.info("%s: %s is planned again: %s", session.url, name, e)
            session.env.sleep(0.1 + session.env.random() / 2)
            session.look_after_others()
        else:
            assert isinstance(begin, Begin)
            if executes:
                session.heart.start(begin.instant, shared=True)
            else:
                announce(session, begin)
            return begin
        finally:
            session.log.unfollow(follower)
    raise ConflictError.without_winner(
        f"{session.url}: {name} could not be planned, because the table changed below it {_ATTEMPTS} times, at last: "
        f"{last}; nothing was written, try again",
        table=session.url,
        instant="",
        rule="what a plan was computed on must not change before it is in the log",
    )


def _found(session: Session, find: Find, state: LogState, follower: Follower) -> Content | None:
    def stale() -> Exception | None:
        session.log.catch_up()
        restored = not follower.complete or any(commit.restores for commit in follower.commits)
        return _Stale("a restore took away what was looked at") if restored else None

    return undisturbed(lambda: find(state), stale, lambda: session.timeline().completed)


def _entry(
    session: Session, service: PlannedService, content: Content, slot: int, follower: Follower, executes: bool
) -> Callable[[LogState], LogEntry | None]:
    groups, operation = groups_of(content), service.operation
    archives = service is archive.SERVICE

    def build(state: LogState) -> LogEntry:
        planned: Content = content
        if not follower.complete:
            raise _Stale("the commit log was made again")
        # The log may be pruned, since no open entry holds this slot yet.
        if slot < session.log.first_slot:
            raise _Stale("the commit log has gone on to another epoch")
        for other in state.open.values():
            if kind_of(other.operation) is Kind.RESTORE or (archives and other.action == "savepoint"):
                raise _Stale(f"{other.action} {other.instant} is under way")
            if archives and other.action == "archive":
                raise _Stale(f"archive {other.instant} is planned already")
            if other.plan is not None and not groups.isdisjoint(groups_of(held(session.store, other.plan))):
                raise _Stale(f"{other.action} {other.instant} is planned for the same file groups")
        for commit in follower.commits:
            planned = _beside(session, service, planned, groups, commit)
        instant = session.next_instant(state.top)
        return Begin(
            instant,
            operation.action,
            operation.hudi_name,
            session.writer,
            session.env.process(),
            plan=hold(session.store, instant, planned, inline_bytes=session.inline_bytes),
            planned_at=slot,
            executes=executes,
        )

    return build


def _beside(
    session: Session, service: PlannedService, planned: Content, groups: frozenset[FileGroupId], commit: Commit
) -> Content:
    """Adapt the plan of these file groups to a commit made meanwhile. Raises `_Stale` if it must be planned again."""
    if service.decided and kind_of(commit.operation) not in (Kind.SAVEPOINT, Kind.RESTORE):
        return planned  # superseded files and old instants stay so
    plain = plain_metadata_of(session.store, commit)
    writes = write_set_of(session.store, commit, plain)
    if commit.restores or service.decided or not groups.isdisjoint(writes.groups):
        more = None
        common = groups & writes.groups
        if service is log_compaction.SERVICE and kind_of(commit.operation) in INGESTION and common <= writes.appended:
            more = planned if log_compaction.stands_beside(planned, commit.instant, common) else None
        elif service is compaction.SERVICE and session.streams and not (commit.restores or writes.region):
            more = compaction.grown(planned, commit.completion, plain)
        if more is None:
            raise _Stale(f"{commit.operation} {commit.instant} has landed")
        return more
    return planned


def perform(
    session: Session,
    service: PlannedService,
    find: Find,
    report: Reporter | None = None,
    damaged: Damaged | None = None,
    runner: Runner = one_by_one,
) -> Executed | None:
    """Plan and execute in this process; return None if there is nothing to do. Plans of dead makers are ended first.

    Args:
        damaged: the file groups that ``find`` skips. A group with an unreadable log file is added: the rest is planned again
            and executed, then the error is raised.
    """
    _end_left(session, service.operation.action)
    damaged = damaged or Damaged()
    while (begin := schedule(session, service, find, executes=True)) is not None:
        try:
            done = execute(session, begin.instant, report, runner)
        except BaseException as e:
            assert begin.plan is not None
            met = isinstance(e, TableError) and damaged.met(session, held(session.store, begin.plan), e)
            # Cancel after Ctrl-C, and after an error that each execution would meet: nobody else was to execute the plan.
            if met or isinstance(e, CorruptTableError) or not isinstance(e, LakeLatchError):
                with suppress(StorageError):
                    if end_plan(session, begin, f"{type(e).__name__} while it was executed") and not met:
                        e.add_note(f"{session.url}: {service.name} {begin.instant} was cancelled; nothing of it landed")
            if met:
                continue
            raise
        finally:
            session.heart.stop(begin.instant)
        if error := damaged.told(service.name, done.instant):
            raise error
        return done
    if damaged.error:
        raise damaged.error
    return None


def _end_left(session: Session, action: str) -> None:
    """End plans of that action whose makers died, to free their file groups; wait out the time-out of silent ones."""
    since = session.env.monotonic()
    while True:
        session.cleaner.look(session.heart.instants)
        left_s = session.cleaner.wait_s(session.heart.instants, since=since, action=action)
        if left_s <= 0:
            return
        session.env.sleep(min(left_s, max(session.settings.heartbeat_interval_s / 2, 0.05)))


def announce(session: Session, begin: Begin) -> None:
    """Show the plan on the timeline, for Hudi's other tools; idempotent."""
    if begin.action == "archive":  # Hudi has no instant of it
        return
    name = file_name(Instant(begin.instant, begin.action, "requested"))
    path = f"{session.config.timeline_folder}/{name}"
    if session.store.head(path) is None:
        # "bytes": the instant only informs. Only `Publisher.secure` flushes this folder: it can handle a failed flush.
        put = session.store.put_if_absent(path, plan_body(session.store, begin), durable="bytes")
        if put.outcome is Outcome.UNKNOWN:
            _log.warning(
                "%s: the plan %s is in the log, but perhaps not on the timeline: %s", session.url, name, put.cause
            )


def execute(session: Session, instant: str, report: Reporter | None = None, runner: Runner = one_by_one) -> Executed:
    """Execute a pending plan, or report the execution that committed it. ``runner`` does the parts of the work.

    Raises:
        InputError: there is no such plan.
        ConflictError: a later commit conflicts with the plan, which can never commit; it has been cancelled.
        RolledBackError: the plan was cancelled meanwhile.
    """
    begin = _plan(session, instant, theirs=True)
    # Again or for the first time: the scheduler may have died between the log entry and the instant.
    announce(session, begin)
    assert begin.plan is not None
    files, service = extent(held(session.store, begin.plan)), SERVICES[begin.operation]
    try:
        with (run := Execution(session, begin, service, report, runner)):
            service.run(run)
    except ConflictError as e:
        # A plan that lost to a committed change, at its commit or while it read, can never commit: end it for all.
        if session.log.outcome(e.winner) == "commit":
            end_plan(session, begin, str(e))
        raise
    except RolledBackError:
        # Or another execution committed, and a clean has deleted the plan's files since.
        if (completion := session.landed(instant)) is None:
            raise
    else:
        assert run.result is not None
        completion = run.result.completion
        if run.mine:
            return Executed(instant, completion, files, session.writer, mine=True)
    landed = commits_since(session.store, begin.slot) or ()
    by = next((commit.writer for commit in landed if commit.instant == instant), "")
    return Executed(instant, completion, files, by, mine=False)


def cancel(session: Session, instant: str, *, reason: str = "asked to") -> bool:
    """End a pending plan and delete the files of its executions. Returns False if it has committed or ended already."""
    plan = _plan(session, instant)
    if is_decided(plan.operation):
        raise InputError(
            f"{session.url}: {plan.action} {instant} cannot be cancelled, because what it takes may be gone already; execute it",
            instant=instant,
        )
    return end_plan(session, plan, reason)


def _plan(session: Session, instant: str, *, theirs: bool = False) -> Begin:
    """Return the plan; with ``theirs`` also one of another engine, which is ours then."""
    begin = session.log.catch_up().open.get(instant)
    if begin is None and theirs:
        begin = taken_over(session, instant)
    if begin is not None and begin.plan is not None:
        return begin
    words = {"commit": "it has been executed", "abort": "it was cancelled", "rollback": "it was cancelled"}
    said = words.get(session.log.outcome(instant) or "", "it is none of a table service")
    raise InputError(f"{instant} is no pending plan of {session.url}: {said}", instant=instant)


def finish_decided(session: Session) -> list[Executed]:
    """Execute all pending cleans and archivals: they are decided, so waiting gains nothing."""
    done = []
    for begin in list(session.log.catch_up().open.values()):
        if is_decided(begin.operation) and begin.plan is not None:
            try:
                done.append(execute(session, begin.instant))
            except (InputError, ConflictError, RolledBackError) as e:
                # Another was quicker, or it can never commit.
                _log.info("%s: %s", session.url, e)
    return done
