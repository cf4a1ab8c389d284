"""Find other writers of rows in a table, their places, and whether they are alive.

Writers of this library are in the log, so one without markers costs one listing. An engine that does not read the
log is known only by its folder of markers; it counts if its requested time is smaller, as in Apache Hudi's
`MarkerBasedEarlyConflictDetectionRuntimeServiceStrategy`, and its instant on the timeline is one of rows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Protocol

from ...conflict import INGESTION, Claim, Conflict, Reservation, WriteSet, kind_of
from ...hudi.files import BaseFile, FileGroupId, LogFile
from ..entries import Begin
from ..liveness import instants_with_markers, lag_s, list_markers
from ..session import Session


class TurnTaker(Protocol):
    """The parts of a transaction needed to take its turn.

    Attributes:
        claim: its rank, and its reservation.
        fresh: nothing was done yet, so that it might as well begin later.
        has_lock: it holds the table's lock.
        merges: its writes so far can be merged again.
        lost_on: the file groups on which it yields.
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

    def abort(self, reason: str) -> None:
        """End it; nothing of it is committed."""

    def begin_anew(self, reserved: Reservation | None) -> None:
        """Begin again in place of an attempt that is over and had done nothing."""


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
