"""Early conflict detection: before a merge is made, a look whether others are making one of the same file groups.

    off    nobody looks: both merge, and who lands second merges the file groups that they share once more
    wait   a transaction that has done nothing yet ends, waits until the others have ended, and begins anew: one merge
    fail   it loses against whoever goes first, before the work instead of after it

For progress only: nothing is kept locked, what cannot be read does not count, and what may land is decided at the commit.

**Nobody waits in a circle.** Who waits is not in the log: it has no snapshot, no marker and no reservation, so nobody
waits for it. When it begins anew it has reserved what it is about to write, so that those who waited for the same go one
after another, in the order of the log. It does not look again: whoever has markers there by then waits for *it*, at its
commit. Under ``fail`` only those count that go first, so of two one always goes on.

Source: Apache Hudi's RFC-56. There the candidates are found by comparing requested times, and the younger one aborts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Protocol

import pyarrow as pa

from ...conflict import INGESTION, NOWHERE, Claim, Region, Reservation, WriteSet, kind_of
from ...errors import ConflictError, StorageError
from ...hudi.files import FileGroupId
from ..liveness import beat_age_s
from ..log import FAIL, OFF, Begin
from ..session import Session, beaten_early
from ..staging import NEW, Plan, holders, owners, placed
from .reservations import bounded
from .waiting import BoundedWait

# The file groups that a merge will write, of the partitions where others are at work.
Targets = Callable[[Region], Iterable[FileGroupId]]
_log = logging.getLogger("lakelatch.waiting")


class TurnTaker(Protocol):
    """What a transaction shows of itself to take its turn.

    Attributes:
        claim: its rank among others, and what it has reserved.
        fresh: nothing was done with it yet, so that it could as well begin later.
        has_lock: it holds the table's lock.
        lost_on: the file groups on which it gives way.
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
    def announced(self, other: Begin) -> WriteSet:
        """What another open transaction will write, as far as it has said so."""

    def abort(self, reason: str) -> None:
        """End it; nothing of it lands."""

    def begin_anew(self, reserved: Reservation | None) -> None:
        """In place of one that is over and had done nothing."""


def take_turn(txn: TurnTaker, targets: Targets, *, by_itself: bool = False) -> None:
    """Whoever is at work on the same file groups has ended when this returns, or it is not worth waiting for.

    Args:
        txn: the transaction; it may have another instant and a new snapshot afterwards.
        targets: asked only when somebody is at work.
        by_itself: the writer has looked at the snapshot for it, so that only the writer can begin anew.

    Raises:
        ConflictError: ours gives way; nothing was written by this merge.
    """
    session = txn.session
    mode = session.settings.early_conflict_detection
    # Who has reserved or holds the lock goes first: others wait for it.
    if mode == OFF or txn.claim.reserved or txn.has_lock:
        return
    gives_way = by_itself or mode == FAIL
    if not gives_way and not txn.fresh:
        return  # what was done on this snapshot would be done twice
    try:
        others = _at_work(txn, older_only=mode == FAIL)
    except StorageError as e:
        _log.warning("%s: who else is at work is not known, so %s goes on: %s", txn.url, txn.instant, e)
        return
    if not others:
        return
    near = NOWHERE
    for _begin, theirs in others:
        near |= theirs.region | Region(frozenset(group.partition for group in theirs.groups))
    mine = frozenset(targets(near))
    bucketed = session.settings.bucket_count is not None
    meets = ((begin, theirs.met_by(WriteSet(mine), bucketed=bucketed)) for begin, theirs in others)
    met = [(begin, overlap) for begin, overlap in meets if overlap and not _seems_dead(session, begin)]
    if met and gives_way:
        begin, overlap = met[0]
        txn.lost_on = overlap
        raise beaten_early(txn, begin, overlap)
    if met:
        _wait(txn, [begin for begin, _overlap in met], bounded(NOWHERE, mine))


def _at_work(txn: TurnTaker, *, older_only: bool) -> list[tuple[Begin, Reservation]]:
    """Who is writing rows now, with the places where; one listing of markers for each of them."""
    session = txn.session
    state = session.log.catch_up()
    by_priority = state.settings.strategy == "priority"
    mine = state.open[txn.instant].claim if txn.instant in state.open else txn.claim
    found = []
    for begin in list(state.open.values()):
        first = begin.claim.outranks(mine, by_priority=by_priority)
        waits_for_ours = by_priority and begin.priority < mine.priority
        service = begin.plan is not None or kind_of(begin.operation) not in INGESTION
        if begin.instant == mine.instant or service or waits_for_ours or (older_only and not first):
            continue
        writes = txn.announced(begin)
        places = Reservation(writes.region, writes.groups)
        if first and begin.reserved and session.reservations.counts(begin):
            places |= begin.reserved
        if places:
            found.append((begin, places))
    return found


def _seems_dead(session: Session, begin: Begin) -> bool:
    """Whether its heartbeat is too old, although nobody has watched long enough to end it.

    A writer that died hours ago must fail nobody, nor be waited for. A clock that is wrong costs work at worst: the commit
    decides.
    """
    try:
        age_s = beat_age_s(session.store, session.env, begin.instant)
    except StorageError:
        return False
    return age_s is not None and age_s >= session.settings.heartbeat_timeout_s


def _wait(txn: TurnTaker, others: list[Begin], wanted: Reservation) -> None:
    names = {begin.instant for begin in others}
    txn.abort("it waits for its turn")
    try:
        over = BoundedWait(txn.session).until(
            lambda state: names.isdisjoint(state.open),
            who=f"{txn.operation} of {txn.session.writer}",
            whom=", ".join(f"{begin.operation} {begin.instant} of {begin.writer}" for begin in others),
            why="at work on the same file groups",
        )
    except StorageError:
        over = False
    try:
        txn.begin_anew(wanted if over else None)
    except ConflictError:  # others have had the place reserved for as long again
        txn.begin_anew(None)


def targets(plan: Plan, rows: pa.Table) -> set[FileGroupId]:
    """The file groups that `rewrite.apply` would write: those of the plan, and of buckets that have none yet."""
    found: set[FileGroupId] = set()
    for partition, place, unit in placed(plan, rows):
        if isinstance(place, str):
            if not place.startswith(NEW):
                found.add(FileGroupId(partition, place))
        elif place is not None:
            found.add(FileGroupId(partition, plan.spec.group_id(partition, 0, place, bucket=place)))
        elif plan.delete:
            found |= {old.group for old, _ in holders(plan, partition, unit)}
        else:
            found |= {old.group for old, _ in owners(plan, partition, unit)[0]}
    return found
