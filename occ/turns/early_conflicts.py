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
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from ...conflict import EVERYWHERE, NOWHERE, Region
from ...errors import ConflictError, StorageError
from ...hudi.files import FileGroupId, bucket_of
from ..staging import NEW, Plan, holders, owners, units
from .conflict_watcher import Watchful
from .reservations import bounded
from .rivals import Rival, is_alive, overlap_of, rivals
from .waiting import BoundedWait

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


def take_turn(txn: Watchful, targets: Targets, *, by_itself: bool = False) -> None:
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


def _meets(txn: Watchful, targets: Targets) -> _Met | None:
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


def _wait_if_worth(txn: Watchful, met: _Met) -> None:
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


def targets(plan: Plan, rows: pa.Table) -> set[FileGroupId]:
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
