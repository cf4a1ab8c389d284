"""Early conflict detection: before a merge, check whether others are merging into one of the same file groups.

The result depends on whether the merge could be made again (docs/starvation.md):

- It could: it never fails here. A transaction that has done nothing yet waits for the others' end and begins again, if
  merging the shared part again would take longer than that. How long the others work is unknown, so it waits no longer
  than merging again would take: it never loses more than twice the time.
- It could not: it yields to writers of higher rank, now and while it works (`watcher`).

For progress only: nothing is kept locked, unreadable objects do not count, and the commit check decides.

**Nobody waits in a circle.** A waiting transaction is not in the log: it has no snapshot, no marker and no reservation,
so nobody waits for it. When it begins again it reserves the file groups it is about to write, so that transactions that
waited for the same ones go one after another, in the order of the log. It does not check again: a writer that has
markers there by then waits for *it*, at its commit. A writer yields only to a higher rank, so of two one always goes
on.

Source: Apache Hudi's RFC-56. There the candidates are found by comparing requested times, and the younger one aborts.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from ...conflict import EVERYWHERE, INGESTION, NOWHERE, Claim, Conflict, Kind, Region, Reservation, WriteSet, kind_of
from ...errors import CommitError, ConflictError, LakeLatchError, StorageError
from ...hudi.files import BaseFile, FileGroupId, LogFile, bucket_of
from ..entries import OFF, Begin
from ..liveness import instants_with_markers, lag_s, list_markers
from ..session import Saved, Session, beaten_early, ended_by_others, lost_early
from ..staging import NEW, WritePlan, holders, owners, units
from .reservations import bounded
from .waiting import BoundedWait


class TurnTaker(Protocol):
    """The parts of a transaction needed to take its turn.

    Attributes:
        claim: its rank, and its reservation.
        fresh: nothing was done yet, so that it might as well begin later.
        has_lock: it holds the table's lock.
        merges: its writes so far can be merged again.
        lost_on: the file groups on which it yields.
        watcher: its conflict watch; after it begins again another one.
    """

    url: str
    operation: str
    session: Session
    lost_on: tuple[FileGroupId, ...]

    @property
    def instant(self) -> str: ...
    @property
    def claim(self) -> Claim: ...
    @property
    def fresh(self) -> bool: ...
    @property
    def has_lock(self) -> bool: ...
    @property
    def merges(self) -> bool: ...
    def announced(self, other: Begin) -> WriteSet:
        """The write set of another open transaction, as far as it has announced it."""

    def lost_already(self, groups: frozenset[FileGroupId], *, merges: bool) -> Conflict | None:
        """The conflict with a commit since its begin, if it writes these file groups; None if there is none."""

    def size_of(self, groups: Collection[FileGroupId]) -> int:
        """The bytes of these file groups in its snapshot."""

    @property
    def watcher(self) -> ConflictWatcher: ...
    def abort(self, reason: str) -> None:
        """End it; nothing of it is committed."""

    def begin_anew(self, reserved: Reservation | None) -> None:
        """Begin again in place of an attempt that is over and had done nothing."""


# Find other writers of rows in a table, their places, and whether they are alive.
#
# Writers of this library are in the log, so one without markers costs one listing. An engine that does not read the
# log is known only by its folder of markers; it counts if its requested time is smaller, as in Apache Hudi's
# `MarkerBasedEarlyConflictDetectionRuntimeServiceStrategy`, and its instant on the timeline is one of rows.

_JVM_SILENT_S = 120.0  # Hudi's own: a heartbeat each 60 s, of which two may be missed
_OF_ROWS = frozenset({"commit", "deltacommit", "replacecommit"})


@dataclass(frozen=True, slots=True)
class Rival:
    """Another transaction at work, and its places; ``begin`` None: of an engine that does not read the log."""

    instant: str
    operation: str
    writer: str
    places: Reservation
    begin: Begin | None = None


def before(txn: TurnTaker) -> list[Begin]:
    """The open transactions of rows that rank before ours, whether or not they have announced anything."""
    return [begin for begin, first in _others(txn) if first]


def rivals(txn: TurnTaker, *, older_only: bool) -> list[Rival]:
    """The writers of rows in the log that have announced or reserved places; one listing of markers for each."""
    found = []
    for begin, first in _others(txn):
        if older_only and not first:
            continue
        writes = txn.announced(begin)
        places = Reservation(writes.region, writes.groups)
        if first and begin.reserved and txn.session.reservations.counts(begin):
            places |= begin.reserved
        if places:
            found.append(Rival(begin.instant, begin.operation, begin.writer, places, begin))
    return found


def _others(txn: TurnTaker) -> list[tuple[Begin, bool]]:
    """The other open transactions of rows, and whether each ranks before ours."""
    state = txn.session.log.catch_up()
    by_priority = state.settings.strategy == "priority"
    mine = state.open[txn.instant].claim if txn.instant in state.open else txn.claim
    found = []
    # A copy, because another thread that reads the log changes the dictionary.
    for begin in list(state.open.values()):
        waits_for_ours = by_priority and begin.priority < mine.priority
        service = begin.plan is not None or kind_of(begin.operation) not in INGESTION
        if begin.instant != mine.instant and not service and not waits_for_ours:
            found.append((begin, begin.claim.outranks(mine, by_priority=by_priority)))
    return found


def strangers(session: Session, instant: str) -> list[Rival]:
    """The writers of other engines with a smaller requested time, by their markers."""
    state = session.log.state
    found = []
    for other in instants_with_markers(session.store):
        if other < instant and other not in state.open and other not in state.ended:
            paths = [marker.path for marker in list_markers(session.store, other)]
            files = [BaseFile.at(path, 0) or LogFile.at(path, 0) for path in paths]
            groups = frozenset(file.group for file in files if file is not None)
            if groups:
                found.append(Rival(other, "write", "another engine", Reservation(groups=groups)))
    return found


def is_alive(session: Session, rival: Rival, instant: str) -> bool:
    """Return whether a rival is alive, without watching it: dead writers have markers until they are swept.

    Detects a process of this host that has ended, and a heartbeat older than that of ``instant`` by the time-out, both
    dated by the store.
    """
    begin = rival.begin
    if begin is not None and begin.process is not None and session.env.is_dead(begin.process):
        return False
    timeout_s = _JVM_SILENT_S if begin is None else session.settings.heartbeat_timeout_s
    if lag_s(session.store, rival.instant, behind=instant) >= timeout_s:
        return False
    if begin is not None:
        return True
    # Markers of another engine may be leftovers. Only a pending instant of rows shows that its writer is at work.
    return any(each.requested == rival.instant and each.action in _OF_ROWS for each in session.timeline().pending)


def overlap_of(rival: Rival, mine: frozenset[FileGroupId], *, bucketed: bool) -> tuple[FileGroupId, ...]:
    """The file groups of ours that a rival is at work on."""
    return rival.places.met_by(WriteSet(mine), bucketed=bucketed)


# Detect conflicts while a transaction works, so that work that cannot commit ends at once: check before each data file.
#
# The marker comes before the check. Of two writers that announce one file group at the same time, the second to announce
# therefore sees the first; in the other order both might check and see nothing. Spark's tasks announce by themselves: the
# driver checks for them, by their markers.
#
# Two things end a transaction early, before its commit would:
#
# - a *commit* since its begin, if the commit check would refuse for the same reason. That cannot be a false alarm;
# - an *open* transaction of higher rank at work on the same file groups, if our work there could not be merged again.
#
# An unreadable object or an unavailable lock ends nothing: the commit check decides.

_STRANGERS_EVERY_S = 1.0


class ConflictWatcher:
    """The conflict watch of one attempt. Safe to share between threads: writers, a job's watcher.

    Costs no request while the setting is ``off``, or once its transaction is at its commit (`close`).
    """

    def __init__(self, txn: TurnTaker) -> None:
        self._txn, self._session = txn, txn.session
        self._mutex = threading.Lock()
        self._opened: set[FileGroupId] = set()
        self._aimed: frozenset[FileGroupId] = frozenset()
        self._merges = self._by_tasks = self._closed = False
        self._error: CommitError | None = None
        self._began = self._session.env.monotonic()
        self._strangers_at: float | None = None
        self._seen_strangers: list[Rival] = []

    @property
    def idle(self) -> bool:
        """True if there is nothing to check."""
        settings = self._session.settings
        # stream events do not conflict by file groups
        events = bool(settings.streams) and kind_of(self._txn.operation) is not Kind.OVERWRITE
        over = self._closed or self._txn.has_lock or events
        return over or settings.early_conflict_detection == OFF

    @property
    def merges(self) -> bool:
        """True if our writes can be merged again, so that no open transaction is a reason to end."""
        return self._session.settings.rebase and (self._merges or self._txn.merges)

    def begin(self, *, merges: bool) -> None:
        """Begin a write; ``merges``: it can be done again on others' changes of its file groups."""
        self._began = self._session.env.monotonic()
        self._merges |= merges

    def aim(self, groups: frozenset[FileGroupId]) -> None:
        """Declare the file groups about to be written."""
        self._aimed |= groups

    def targets_wanted(self) -> bool:
        """Return whether finding the target file groups in advance is worth it."""
        return bool(before(self._txn)) or bool(self._foreign())

    @contextmanager
    def announcing(self, group: FileGroupId) -> Iterator[None]:
        """Context of putting a data file's marker; raises afterwards if its transaction must end.

        Raises:
            ConflictError: another writer has committed or goes first, and both cannot stand.
            RolledBackError: another process has ended the transaction.
        """
        if self.idle:
            yield
            return
        yield
        with self._mutex:
            self._opened.add(group)
        self.look()
        self.refuse_if_beaten()

    def look_for_tasks(self) -> None:
        """Check on behalf of a job whose tasks write the files; raises like `announcing`."""
        self._by_tasks = True
        self.look()
        self.refuse_if_beaten()

    def refuse_if_beaten(self) -> None:
        """Raise the error found by the checks so far; not after `close`."""
        if self._error is not None and not self._closed:
            raise self._error

    def look(self) -> None:
        """Check once. The error found is kept, and raised by the working thread."""
        with self._mutex:
            if self._error is not None or self.idle:
                return
            try:
                # The certain reasons first: a rollback and a commit are facts, an open rival may still abort.
                self._error = self._ended() or self._lost_already() or self._beaten()
            except LakeLatchError as e:
                _log.warning(
                    "%s: who else is at work is not known, so %s goes on: %s", self._txn.url, self._txn.instant, e
                )

    def close(self) -> None:
        """Stop; from here the commit check decides."""
        self._closed = True

    def _ended(self) -> CommitError | None:
        ended = self._txn.instant not in self._session.log.catch_up().open
        return ended_by_others(self._txn) if ended and not self._closed else None

    def _lost_already(self) -> CommitError | None:
        # Groups that are only aimed at may stay unwritten in the end. If ours can be merged again, they are no reason
        # to end it.
        mine = frozenset(self._opened) if self.merges else self._mine()
        conflict = self._txn.lost_already(mine, merges=self.merges)
        if conflict is None:
            return None
        self._txn.lost_on = conflict.overlap
        return lost_early(self._txn, conflict, self._saved())

    def _beaten(self) -> CommitError | None:
        if self.merges:
            return None
        found = [*rivals(self._txn, older_only=True), *self._foreign()]
        mine = self._mine() if found else frozenset()
        for rival in found:
            overlap = overlap_of(rival, mine, bucketed=self._session.settings.bucket_count is not None)
            if overlap and is_alive(self._session, rival, self._txn.instant):
                self._txn.lost_on = overlap
                return beaten_early(self._txn, rival, overlap, self._saved())
        return None

    def _foreign(self) -> list[Rival]:
        now = self._session.env.monotonic()
        if self._strangers_at is None or now - self._strangers_at >= _STRANGERS_EVERY_S:
            self._strangers_at, self._seen_strangers = now, strangers(self._session, self._txn.instant)
        return self._seen_strangers

    def _mine(self) -> frozenset[FileGroupId]:
        mine = self._aimed | self._opened
        return mine | self._of_tasks() if self._by_tasks else mine

    def _of_tasks(self) -> frozenset[FileGroupId]:
        paths = [marker.path for marker in list_markers(self._session.store, self._txn.instant)]
        files = [BaseFile.at(path, 0) or LogFile.at(path, 0) for path in paths]
        return frozenset(file.group for file in files if file is not None)

    def _saved(self) -> Saved:
        """The work left, in bytes of file slices, and its seconds at the pace so far."""
        begun = self._opened | (self._of_tasks() if self._by_tasks else frozenset())
        left = self._txn.size_of(self._aimed - begun)
        done, spent_s = self._txn.size_of(begun), self._session.env.monotonic() - self._began
        pace = done / spent_s if done and spent_s > 0 else self._session.merged_bytes_s
        return Saved(left / pace, left, spent_s)


# Returns the file groups that a merge will write, in the partitions where others are at work.
Targets = Callable[[Region], Iterable[FileGroupId]]
_WORTH_S = 0.5  # ending and beginning again takes about as long
_log = logging.getLogger("lakelatch.waiting")


@dataclass(frozen=True)
class _Met:
    """The writers at work on some of the file groups that ours will write."""

    rivals: list[Rival]
    shared: frozenset[FileGroupId]
    mine: frozenset[FileGroupId]


def take_turn(txn: TurnTaker, targets: Targets, *, by_itself: bool = False) -> None:
    """Wait until other writers on the same file groups have ended, unless that is not worth it.

    Args:
        txn: the transaction; it may have another instant and a new snapshot afterwards.
        targets: called only if another writer is at work.
        by_itself: the writer has read the snapshot for its work, so that only the writer can do it again.

    Raises:
        ConflictError: ours yields; nothing was written by this merge.
    """
    merges = txn.session.settings.rebase and not by_itself
    if txn.watcher.idle:
        return
    txn.watcher.begin(merges=merges)
    met = None
    try:
        if merges:
            met = _meets(txn, targets)
        elif txn.watcher.targets_wanted():
            txn.watcher.aim(frozenset(targets(EVERYWHERE)))
            txn.watcher.look()
    except StorageError as e:
        _log.warning("%s: who else is at work is not known, so %s goes on: %s", txn.url, txn.instant, e)
        return
    txn.watcher.refuse_if_beaten()
    if met is not None:
        _wait_if_worth(txn, met)
        # The watcher may be another one now, because waiting can begin the transaction again.
        txn.watcher.begin(merges=True)


def _meets(txn: TurnTaker, targets: Targets) -> _Met | None:
    """Return the writers on the same file groups that ours could wait for, or None."""
    # A transaction with a reservation has its turn, and others wait for it. Work done on this snapshot would be done
    # twice.
    others = rivals(txn, older_only=False) if txn.fresh and not txn.claim.reserved else []
    if not others:
        return None
    near = NOWHERE
    for each in others:
        near |= each.places.region | Region(frozenset(group.partition for group in each.places.groups))
    mine = frozenset(targets(near))
    bucketed = txn.session.settings.bucket_count is not None
    overlaps = ((each, overlap_of(each, mine, bucketed=bucketed)) for each in others)
    theirs = [each for each in overlaps if each[1] and is_alive(txn.session, each[0], txn.instant)]
    if not theirs:
        return None
    return _Met([each for each, _ in theirs], frozenset(group for _, shared in theirs for group in shared), mine)


def _wait_if_worth(txn: TurnTaker, met: _Met) -> None:
    again_s = txn.size_of(met.shared) / txn.session.merged_bytes_s
    whom = ", ".join(f"{each.operation} {each.instant} of {each.writer}" for each in met.rivals)
    if again_s < _WORTH_S:
        _log.info(
            "%s: %s %s goes on beside %s; what both change is merged again, in about %.1f s",
            txn.url, txn.operation, txn.instant, whom, again_s,
        )  # fmt: skip
        return
    names, wanted = {each.instant for each in met.rivals}, bounded(NOWHERE, met.mine)
    # Before the wait, because others would have to wait for an open transaction: two could wait for each other.
    txn.abort("it waits for its turn")
    try:
        over = BoundedWait(txn.session, min(again_s, txn.session.settings.yield_wait_s)).until(
            lambda state: names.isdisjoint(state.open),
            who=f"{txn.operation} of {txn.session.writer}",
            whom=whom,
            why="at work on the same file groups",
        )
    except StorageError:
        over = False
    try:
        txn.begin_anew(wanted if over else None)
    except ConflictError:  # others have kept a reservation there for as long again
        txn.begin_anew(None)


def targets(plan: WritePlan, rows: pa.Table) -> set[FileGroupId]:
    """The file groups that `rewrite.apply` would write: those of the plan, and of buckets that have none yet."""
    found: set[FileGroupId] = set()
    for partition, place, unit in units(plan.spec, rows, on_disk=plan.on_disk):
        if isinstance(place, str):
            if not place.startswith(NEW):
                found.add(FileGroupId(partition, place))
        elif place is not None:
            there = {old.group for old in plan.slices.get(partition, ()) if bucket_of(old.file_id) == place}
            found |= there or {FileGroupId(partition, plan.spec.group_id(partition, 0, place, bucket=place))}
        elif plan.delete:
            found |= {old.group for old, _, _ in holders(plan, partition, unit.keys)}
        else:
            found |= {old.group for old, _, _ in owners(plan, partition, unit.keys.unique())[0]}
    return found
