"""Reservations of open transactions, and the order among them. Pure.

A reservation is part of its transaction's begin entry and ends with it. It serves progress only: validation still decides
what commits.

The larger priority goes first (under strategy ``priority``), then a transaction with a reservation, then the older one. The
age is the slot of the *first* attempt and is carried along, so a job that lost grows older until none outranks it. Of
transactions that began by one entry, at one slot, the smaller T goes first. So reservations are totally ordered, the first
waits for none of the others, and there is no deadlock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from ..hudi.files import FileGroupId
from .operations import BLIND, INGESTION, Kind, kind_of
from .write_set import EVERYWHERE, NOWHERE, Region, WriteSet, meeting_of

_NO_T = "~"  # stands for the T of a transaction that has not begun; larger than any


@dataclass(frozen=True, slots=True)
class Reservation:
    """Partitions (or the whole table) with all that appears in them, and single file groups."""

    region: Region = field(default=NOWHERE)
    groups: frozenset[FileGroupId] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.region or self.groups)

    def __or__(self, other: Reservation) -> Reservation:
        return Reservation(self.region | other.region, self.groups | other.groups)

    def __str__(self) -> str:
        if self.region.whole_table:
            return "the table"
        parts = [f"partition {each or '(root)'}" for each in sorted(self.region.partitions)]
        if self.groups:
            parts.append(f"{len(self.groups)} file group{'s' if len(self.groups) > 1 else ''}")
        return ", ".join(parts) or "nothing"

    def met_by(self, writes: WriteSet, *, bucketed: bool) -> tuple[FileGroupId, ...]:
        """Return the reserved places that another's writes touch; a partition is a group without file id.

        () if they touch none.
        """
        met = {group for group in writes.groups if self.region.covers(group.partition)}
        met |= {theirs for _mine, theirs in meeting_of(self.groups, bucketed=bucketed)(writes.groups)}
        met |= {group for group in self.groups if writes.region.covers(group.partition)}
        if self.region.meets(writes.region):
            both = (self.region.partitions or writes.region.partitions) & (
                writes.region.partitions or self.region.partitions
            )
            met |= {FileGroupId(each, "") for each in both or ("",)}
        return tuple(sorted(met))

    def meets(self, other: Reservation, *, bucketed: bool) -> bool:
        """Return whether some place, present or future, is in both."""
        return bool(self.met_by(WriteSet(other.groups, other.region), bucketed=bucketed))

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a log entry."""
        return {"region": self.region.to_json(), "groups": sorted(map(list, self.groups))}

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> Reservation | None:
        """Reverse `to_json`."""
        if value is None:
            return None
        return cls(Region.from_json(value["region"]), frozenset(FileGroupId(p, f) for p, f in value["groups"]))


@dataclass(frozen=True, slots=True)
class Claim:
    """The rank of one open transaction among others that may have to wait; ``age`` is a slot, None: not begun yet."""

    instant: str
    age: int | None
    priority: int = 0
    reserved: Reservation | None = None

    def outranks(self, other: Claim, *, by_priority: bool) -> bool:
        """Return whether this transaction goes before the other."""
        if by_priority and self.priority != other.priority:
            return self.priority > other.priority
        if bool(self.reserved) != bool(other.reserved):
            return bool(self.reserved)
        # A transaction that has not begun has no slot, and goes after all that have.
        if self.age is None or other.age is None:
            return other.age is None and self.age is not None
        # Transactions that began by one entry are of one age. One without a T yet comes after them.
        return (self.age, self.instant or _NO_T) < (other.age, other.instant or _NO_T)


def in_rank_order(claims: Iterable[Claim], *, by_priority: bool) -> list[Claim]:
    """Sort claims by rank; the first one waits for none."""
    return sorted(
        claims,
        key=lambda c: (-c.priority * by_priority, not c.reserved, c.age is None, c.age or 0, c.instant or _NO_T),
    )


def first_in_the_way(mine: Claim, others: Iterable[Claim], *, by_priority: bool, bucketed: bool) -> Claim | None:
    """Return the transaction that must end before this one begins, or None.

    It is the first by rank that outranks this one and has reserved what it wants. A transaction without a reservation waits
    only for one that has reserved the whole table, because its own writes are not known yet.
    """
    wanted = mine.reserved or Reservation(EVERYWHERE)
    for each in in_rank_order(others, by_priority=by_priority):
        if not each.reserved or not each.outranks(mine, by_priority=by_priority):
            continue
        # Without a reservation ours takes its chance against others at validation; waiting is worth it only for the whole
        # table.
        concerned = mine.reserved or each.reserved.region.whole_table
        if concerned and each.reserved.meets(wanted, bucketed=bucketed):
            return each
    return None


# Transactions as conflict resolution sees them, and the candidates for a commit.


@dataclass(frozen=True, slots=True)
class Party:
    """One transaction: the committing one, or a candidate that may conflict with it.

    Attributes:
        instant: its requested time T.
        completion: its completion time C; "" while it is pending.
        operation: Hudi's name of the operation; for clean, rollback, savepoint and restore the action.
        writer: its name.
        writes: its write set; while it is pending, as its plan, its markers or its inflight instant name it.
        priority: declared by its writer; the larger one goes first under strategy ``priority``.
        stranger: it belongs to an engine that does not read the log, such as JVM Hudi.
        undoes: requested times of the transactions that a rollback or restore undoes.
        silent: pending and alive, and its write set is still unknown.
        reads_too: an insert that read rows all the same, so it is not blind.
        reserved: the places reserved for it while it is pending.
        age: slot of its first attempt's begin; decides between two reservations.
    """

    instant: str
    completion: str
    operation: str
    writer: str
    writes: WriteSet = field(default_factory=WriteSet)
    priority: int = 0
    stranger: bool = False
    undoes: frozenset[str] = frozenset()
    silent: bool = False
    reads_too: bool = False
    reserved: Reservation | None = None
    age: int | None = None

    @property
    def claim(self) -> Claim:
        """Its rank among waiting transactions."""
        return Claim(self.instant, self.age, self.priority, self.reserved)

    @property
    def landed(self) -> bool:
        """True if it has committed."""
        return bool(self.completion)

    @property
    def kind(self) -> Kind:
        """Its kind; `kind_at` is more exact where it only appends to some file groups."""
        return kind_of(self.operation)

    @property
    def blind(self) -> bool:
        """True if it added rows and read none. False, because unknown, for a foreign engine's insert."""
        return self.operation in BLIND and not self.stranger and not self.reads_too

    @property
    def only_kind(self) -> Kind | None:
        """Its kind at every one of its file groups; None if kinds differ. Costs nothing per group."""
        kind, writes = self.kind, self.writes
        # Only ingestion mixes base files and log files in one commit.
        if kind not in INGESTION or not writes.appended:
            return kind
        return self._append if writes.only_appends else None

    def kind_at(self, group: FileGroupId) -> Kind:
        """Return its kind at one of its file groups."""
        kind = self.kind
        if kind in INGESTION and group in self.writes.appended:
            return self._append
        return kind

    @property
    def _append(self) -> Kind:
        return Kind.STREAM if self.writes.streamed else Kind.APPEND


def candidates(landed_before: Collection[str], now: Iterable[Party], *, own: str) -> list[Party]:
    """Return the transactions that a commit must be compared with: committed since its begin, or pending.

    The snapshot decides, not times. A transaction requested earlier and committed later is a candidate (HUDI-3355); one
    requested later but in the snapshot is not.

    Args:
        landed_before: requested times of all transactions in its snapshot.
        now: all transactions at the commit, in commit order; ``own`` is left out.
    """
    return [each for each in now if each.instant != own and each.instant not in landed_before]
