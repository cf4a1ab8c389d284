"""Compute the reservation of a transaction: as its writer asked for it, or as a lost attempt has learned it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from ...arguments import brief, many
from ...conflict import EVERYWHERE, SNAPSHOT, Region, Reservation
from ...errors import InputError
from ...hudi.files import FileGroupId
from ...hudi.timeline import FileSlice
from ..session import refuse_misspelled, some
from ..staging import Staged

if TYPE_CHECKING:
    from ..session import Session

TABLE = "table"
_NAMES_MAX = 256  # of one reservation; more file groups are widened to partitions, more partitions to the table
_CREATE_PARTITIONS = frozenset({"insert", "bulk_insert", "upsert", "insert_overwrite", "insert_overwrite_table"})

# "table", or any of: partition paths, file slices, file groups as (partition, file id).
Asked = str | Iterable["str | FileSlice | tuple[str, str]"] | Reservation


def reservation_of(session: Session, wanted: Asked, operation: str) -> Reservation:
    """The reservation that a writer asked for.

    A partition that does not exist yet is accepted if the operation can create it: another writer may be about to.

    Raises:
        InputError: there is no such file group or partition; nothing was written.
    """
    if isinstance(wanted, Reservation):
        return wanted
    if isinstance(wanted, str) and wanted == TABLE:
        return Reservation(EVERYWHERE)
    if isinstance(wanted, str):
        raise InputError(
            f"reserve={brief(wanted)}: give 'table', or a list: reserve=[{brief(wanted)}] is the partition of that name"
        )
    partitions: set[str] = set()
    groups: set[FileGroupId] = set()
    for each in many(wanted, "reserve"):
        match each:
            case str():
                partitions.add(each)
            case FileSlice():
                groups.add(each.group)
            case (str(), str()):
                groups.add(FileGroupId(*each))
            case _:
                raise InputError(
                    f"reserve names {brief(each)}, which is no partition, file slice or (partition, file id); give these"
                )
    _refuse_unknown(session, partitions, groups, operation)
    return bounded(Region(frozenset(partitions)), groups)


def _refuse_unknown(session: Session, partitions: set[str], groups: set[FileGroupId], operation: str) -> None:
    snapshot = session.view().snapshot
    if gone := sorted(group for group in groups if snapshot.get(group) is None):
        raise InputError(
            f"{session.url} has no file group {gone[0]}, which was to be reserved; nothing was written. Take them from the "
            "table's snapshot, or reserve their partition",
            groups=tuple(map(str, gone)),
        )
    known = set(snapshot.partitions())
    for partition in sorted(partitions - known):
        if operation not in _CREATE_PARTITIONS:
            raise InputError(
                f"{session.url} has no partition {partition!r}, which was to be reserved for {operation}; nothing was written. "
                f"It has {some(sorted(known))}",
                partition=partition,
            )
        refuse_misspelled(session.url, session.config, partition, sorted(known))


def touched(staged: Staged, lost_on: Iterable[FileGroupId], *, isolation: str, attempt: int) -> Reservation:
    """The next attempt's reservation: the groups and regions that the lost one wrote, claimed, read and lost on.

    Each further loss reserves more, file groups then their partitions then the table: rows may have moved since, and a
    job that keeps losing has to end.
    """
    writes, reads = staged.write_set(), staged.read_set()
    region = writes.region | staged.looked_where
    if isolation != SNAPSHOT and not staged.untouched:
        # Without a declaration anything in the table may have been read.
        if reads.scans is None and not reads.blind:
            return Reservation(EVERYWHERE)
        for scan in reads.scans or ():
            region |= scan.region
    groups = {group for group in (*writes.groups, *lost_on) if group.file_id}
    region |= Region(frozenset(group.partition for group in lost_on if not group.file_id))
    if attempt > 2:
        return Reservation(EVERYWHERE)
    if attempt > 1:
        region |= Region(frozenset(group.partition for group in groups))
    return bounded(region, groups)


def bounded(region: Region, groups: Collection[FileGroupId]) -> Reservation:
    """The reservation of these places, or of larger ones if they are too many for a begin entry."""
    groups = frozenset(group for group in groups if not region.covers(group.partition))
    if len(groups) > _NAMES_MAX:
        region, groups = region | Region(frozenset(group.partition for group in groups)), frozenset()
    if region.whole_table or len(region.partitions) > _NAMES_MAX:
        return Reservation(EVERYWHERE)
    return Reservation(region, groups)
