"""Transactions as conflict resolution sees them, and the candidates for a commit."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ..hudi.files import FileGroupId
from .operations import BLIND, INGESTION, Kind, kind_of
from .reservation import Claim, Reservation
from .write_set import WriteSet


@dataclass(frozen=True, slots=True)
class Party:
    """One transaction: the committing one, or a candidate, which may be in its way.

    Attributes:
        instant: its requested time T.
        completion: its completion time C; "" while it is pending.
        operation: Hudi's name of the operation; for clean, rollback, savepoint and restore the action.
        writer: its name.
        writes: what it writes; of a pending one what its plan, its markers or its inflight instant name.
        priority: as its writer declared; the larger one goes first under strategy ``priority``.
        stranger: it belongs to an engine that does not read the log, such as JVM Hudi.
        undoes: requested times of what a rollback or restore takes back.
        silent: pending, alive, and nothing is known yet of what it will write.
        reads_too: an insert that looked at rows all the same, so that it is not blind.
        reserved: what it keeps for itself while it is pending.
        age: slot of its first attempt's begin; decides between two who have reserved.
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
        """Whether it has landed."""
        return bool(self.completion)

    @property
    def kind(self) -> Kind:
        """What it does; where it only appends to some file groups, `kind_at` is more exact."""
        return kind_of(self.operation)

    @property
    def blind(self) -> bool:
        """Whether it adds rows and read none. Unknown, so False, for a foreign engine's insert."""
        return self.operation in BLIND and not self.stranger and not self.reads_too

    @property
    def only_kind(self) -> Kind | None:
        """What it does to each of its file groups, if that is the same; None where it is not. Looks at none of them."""
        kind, writes = self.kind, self.writes
        if kind not in INGESTION or not writes.appended:
            return kind
        return self._append if writes.only_appends else None

    def kind_at(self, group: FileGroupId) -> Kind:
        """What it does to one of its file groups."""
        kind = self.kind
        if kind in INGESTION and group in self.writes.appended:
            return self._append
        return kind

    @property
    def _append(self) -> Kind:
        return Kind.STREAM if self.writes.streamed else Kind.APPEND


def candidates(landed_before: Collection[str], now: Iterable[Party], *, own: str) -> list[Party]:
    """Return the transactions that a commit must be compared with: landed since its begin, or pending.

    This depends on what had landed at its begin, not on times. A transaction that was requested
    earlier and lands later is a candidate (HUDI-3355); one that was requested later but is in the
    snapshot is not.

    Args:
        landed_before: requested times of all transactions in its snapshot.
        now: what there is at the commit, in the order of landing; ``own`` is left out.
    """
    return [each for each in now if each.instant != own and each.instant not in landed_before]
