"""Archival: move completed instants that nobody needs on the active timeline to the history (`history.py`).

    plan      chooses the instants; it is appended to the log under the lock, so no restore or savepoint is decided beside it
    run       in any process, in several at once: write the history, its manifest, the manifest's number; then delete the
              instants from the active timeline, the oldest T first, each T's pending files before its completed one
    commit    the log records that they have left, so nobody publishes one of them again

A crash leaves each instant on the timeline, in the history, or in both, where it counts as archived. Readers count every
file older than the first active commit as committed. So before the first active commit moves on, files of replaced groups
and of transactions that never committed must be gone: ours are swept, and at those of others the archival stops.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from ...arguments import number
from ...errors import ConfigError, CorruptTableError
from ...hudi.files import BaseFile, FileGroupId, Listing, LogFile, list_data_files
from ...hudi.timeline import (
    COMMIT_ACTIONS,
    COMPLETED_AS,
    Archived,
    Instant,
    build,
    file_name,
    is_time,
    note_archived_files,
    parse,
)
from ..entries import Content
from ..liveness import instants_with_markers
from ..log import LogState, Publisher
from ..session import cleaned_to, savepoints
from .planned_service import PlannedService, service_operation

if TYPE_CHECKING:
    from ...hudi.timeline import Timeline
    from ..liveness import ReaderLease
    from ..session import Session
    from .execution import Execution

# Apache Hudi's hoodie.keep.min.commits and hoodie.keep.max.commits.
KEEP_MIN, KEEP_MAX = 20, 30
# Bounds of one plan: it is one log entry, and its instants are in memory together.
_INSTANTS_MAX, _BYTES_MAX = 500, 32 << 20
_LISTING_S = 1.0  # longer than another engine lists the timeline
# As in Hudi: restores and savepoints stay until they are deleted.
_GOES = COMMIT_ACTIONS | {"clean", "rollback"}


@dataclass(frozen=True, slots=True)
class Archival:
    """The outcome of an archival.

    Attributes:
        instants: number of archived instants.
        first_active: T of the oldest commit on the active timeline now.
        kept_by: the reason, in words, why no more instants went.
    """

    instants: int
    first_active: str | None
    kept_by: str


@dataclass(frozen=True, slots=True)
class Keep:
    """Archival begins when there are more than ``most`` commits, and leaves ``least``."""

    least: int = KEEP_MIN
    most: int = KEEP_MAX

    @classmethod
    def asked(cls, least: int | None, most: int | None) -> Keep:
        """Validate the given bounds; a missing one is Hudi's default, or as far from the other as Hudi's are."""
        for value, name in ((least, "keep_min"), (most, "keep_max")):
            if value is not None:
                number(value, name, least=1, whole=True, error=ConfigError)
        if least is None:
            least = KEEP_MIN if most is None else max(most - KEEP_MAX + KEEP_MIN, 1)
        most = least + KEEP_MAX - KEEP_MIN if most is None else most
        if least > most:
            raise ConfigError(
                f"keep_min={least} exceeds keep_max={most}: with more than keep_max commits the oldest go until keep_min are left"
            )
        return cls(least, most)


def find(session: Session, state: LogState, least: int, leases: Iterable[ReaderLease]) -> tuple[Content | None, str]:
    """Return the content of an archival as of that state of the log, or None; and the reason why no more may go."""
    timeline = session.timeline()
    commits = sorted(timeline.commits, key=lambda each: each.requested)
    times = [each.requested for each in commits]
    stay, why = len(commits) - least, f"the newest {least} commits stay"
    if stay <= 0:
        return None, why
    for bound, reason in _bounds(session, timeline, state, commits[:stay]):
        # The oldest commit that stays is what readers go by, so it must not be younger.
        if (before := max(bisect_right(times, bound) - 1, 0)) < stay:
            stay, why = before, reason
    for moment, reason in _moments(state, leases):
        late = next((n for n, each in enumerate(commits[:stay]) if (each.completed or "") > moment), stay)
        if late < stay:
            stay, why = late, reason
    names = _names(session, timeline, commits, stay)
    if not names:
        return None, why
    going = sum(each.action in COMMIT_ACTIONS for name in names if (each := parse(name, layout=2)))
    return {"slices": {}, "archived": names, "before": commits[going].requested}, why


def _bounds(session: Session, timeline: Timeline, state: LogState, old: list[Instant]) -> Iterator[tuple[str, str]]:
    """Yield the times that must not be older than the first active commit, each with the reason."""
    yield from _moments(state, ())
    landed = {each.requested for each in timeline.commits}
    for each in _shown(session)[0]:
        if each.requested not in landed:
            yield each.requested, f"{each.requested} was archived or taken back, and is on the timeline again"
    for each in timeline.pending:
        yield each.requested, f"{each.action} {each.requested} is pending on the timeline"
    for saved in savepoints(session.store, timeline):
        yield saved.instant, f"commit {saved.instant} has a savepoint"
    for instant in instants_with_markers(session.store):
        yield instant, f"{instant} has left markers; `lakelatch rollback` removes those of dead writers"
    yield from _of_files(timeline, old, list_data_files(session.store))
    for each in reversed(timeline.commits):
        if timeline.metadata(each).schema:
            yield each.requested, f"{each.requested} is the newest commit with the table's schema"
            return


def _of_files(timeline: Timeline, old: list[Instant], listing: Listing) -> Iterator[tuple[str, str]]:
    landed, first = {each.requested for each in timeline.commits}, timeline.first_active or ""
    files: list[BaseFile | LogFile] = [*listing.bases, *listing.logs]
    for file in files:
        if file.instant > first and file.instant not in landed:
            yield (
                file.instant,
                f"{file.path} belongs to no commit, and would be read; `lakelatch check` says what to do",
            )
    for log in listing.logs:
        # It belongs to the newest base file not younger than its C, and only the active timeline gives readers that C.
        yield log.instant, f"{log.path} is not compacted and cleaned away yet"
    there = {file.group for file in files}
    for each in old:
        if each.action == "replacecommit":
            replaced = timeline.metadata(each).replaced
            if any(FileGroupId(partition, file_id) in there for partition, ids in replaced.items() for file_id in ids):
                yield each.requested, f"file groups that {each.requested} replaced are not cleaned away yet"


def _moments(state: LogState, leases: Iterable[ReaderLease]) -> Iterator[tuple[str, str]]:
    """Yield the completion times up to which the active timeline must keep commits apart, each with the reason."""
    for begin in state.open.values():
        yield begin.instant, f"{begin.operation.lower()} {begin.instant} of {begin.writer} is open"
    for lease in leases:
        yield lease.at, f"{lease.writer} reads the state of {lease.at}"


def _names(session: Session, timeline: Timeline, commits: list[Instant], stay: int) -> list[str]:
    """The instants that leave with the commits before ``commits[stay]``, in order of T; at least those of one commit."""
    if stay <= 0:
        return []
    sizes = {each.name: each.size for each in session.store.list(session.config.timeline_folder)}
    completion = {each.requested: each.completed or each.requested for each in timeline.commits}
    cleans = [each for each in timeline.completed if each.action == "clean"]
    # The clean that reaches furthest stays: it shows other engines which states are whole.
    kept = max(
        cleans, key=lambda each: (cleaned_to(session.store, timeline, each, completion), each.requested), default=None
    )
    going = [
        each
        for each in timeline.completed
        # Empty cleans and rollbacks stay: Hudi writes them, and fails on them in the history.
        if each.action in COMMIT_ACTIONS or (each.action in _GOES and each != kept and sizes.get(file_name(each)))
    ]
    going.sort(key=lambda each: each.requested)
    names: list[str] = []
    size = 0
    for stays in commits[1 : stay + 1]:
        end = bisect_left(going, stays.requested, lo=len(names), key=lambda each: each.requested)
        more = [file_name(each) for each in going[len(names) : end]]
        size += sum(sizes.get(name, 0) for name in more)
        if names and (len(names) + len(more) > _INSTANTS_MAX or size > _BYTES_MAX):
            break
        names += more
    return names


def run(execution: Execution) -> None:
    """Write the plan's instants to the history, then take them off the active timeline; idempotent."""
    session = execution.session
    instants = [instant for name in execution.content["archived"] if (instant := parse(name, layout=2))]
    rows = [row for each in _lacking(session, instants) if (row := _row(session, each))]
    # Read again: an instant that vanished while its row was read has been archived by another execution.
    lacking = set(_lacking(session, instants))
    rows = [row for row in rows if row.instant in lacking]
    # Flushed before the first instant leaves the timeline: a deleted file that came back after that would count.
    listing = _secure_deletions(session)
    before = execution.content.get("before")
    if isinstance(before, str) and is_time(before):
        going = [row.instant.requested for row in rows if row.instant.action in COMMIT_ACTIONS]
        files: list[BaseFile | LogFile] = [*listing.bases, *listing.logs]
        note_archived_files(session.store, session.history, going, before, files, _newest(session, listing))
    if rows:
        execution.check()
        session.history.add(rows)
    execution.check()
    _take_away(session, instants)
    execution.report.add(len(instants))


def _secure_deletions(session: Session) -> Listing:
    """Flush the partition folders, so that no deleted data file comes back, and return the data files.

    t=0  a clean deletes the files of a replaced file group; an archival takes the replacecommit off the timeline
    t=1  power fails; the disk has lost the instant's name but still has the files' names: they would count as committed
    """
    listing = list_data_files(session.store)
    for partition in listing.partitions:
        session.store.sync(partition)
    return listing


def _newest(session: Session, listing: Listing) -> list[BaseFile]:
    """Return the base files that readers of the newest state need, also those that another program has deleted."""
    timeline = session.timeline()
    named = session.named(timeline, {each.requested: each.completed or each.requested for each in timeline.commits})
    try:
        slices = build(listing, timeline.view(), session.config, named=named).file_slices()
    except CorruptTableError:  # two base files of a group: no reader gets past it, and the next archival notes more
        return []
    return [each.base for each in slices if each.base is not None]


def _lacking(session: Session, instants: list[Instant]) -> list[Instant]:
    there = session.history.instants(first=instants[0].requested, last=instants[-1].requested)
    return [each for each in instants if file_name(each) not in there]


def _row(session: Session, instant: Instant) -> Archived | None:
    folder = session.config.timeline_folder
    stored = session.store.get(f"{folder}/{file_name(instant)}")
    if stored is None:
        return None
    for action in ("clean", *COMPLETED_AS):
        if COMPLETED_AS.get(action, action) == instant.action:
            plan = session.store.get(f"{folder}/{file_name(Instant(instant.requested, action, 'requested'))}")
            if plan is not None and plan.body:
                return Archived(instant, stored.body, plan.body)
    return Archived(instant, stored.body)


def _shown(session: Session) -> tuple[list[Instant], list[Instant]]:
    """The completed and the pending commits in the timeline folder, in order of T, regardless of log and history."""
    names = session.store.names(session.config.timeline_folder)
    found = sorted((i for name in names if (i := parse(name, layout=2))), key=lambda each: each.requested)
    commits = [each for each in found if COMPLETED_AS.get(each.action, each.action) in COMMIT_ACTIONS]
    return [i for i in commits if i.state == "completed"], [i for i in commits if i.state != "completed"]


def take_archived_away(session: Session) -> int:
    """Delete instants that a dead archival or a late put left on the active timeline; return their number.

        t=0  A ends T=10 by its abort entry; B commits T=20; an archival takes T=20 away; the log forgets T=10
        t=1  a delayed put of T=10's inflight file arrives: it is the first active instant now, and readers take B's files,
             which are younger and of no active commit, for those of a dead writer

    No archival passes a pending instant or an open transaction, so a pending instant older than an archived commit appeared
    after the archival.
    """
    if not session.history.begun():
        return 0
    commits, pending = _shown(session)
    first = min((each.requested for each in (*commits, *pending)), default="")
    try:
        archived = session.history.instants(first=first) if first else {}
    except CorruptTableError:  # `check` reports it; it must not block cleaning
        return 0
    # Only up to the first commit that is not archived: deleting beyond an older one would leave a hole.
    gone = list(takewhile(lambda each: file_name(each) in archived, commits))
    over, there = {each.requested: each for each in archived.values() if each.action in COMMIT_ACTIONS}, {*commits}
    late = [over[each.requested] for each in pending if each.requested in over and over[each.requested] not in there]
    below = [each for each in pending if each.requested not in over and each.requested < max(over, default="")]
    if below:
        still = session.log.catch_up().open
        late += [each for each in below if each.requested not in still]
    if gone:
        _secure_deletions(session)
    _take_away(session, [*gone, *late])
    return len(gone) + len(late)


def _take_away(session: Session, instants: Sequence[Instant]) -> None:
    publisher = Publisher(session.store, session.env, session.config.timeline_folder)
    publisher.take_archived(instants, pause_s=_LISTING_S if session.settings.timeline_first else 0.0)


SERVICE = PlannedService("archive", service_operation("archive", "ARCHIVE"), run, decided=True)
