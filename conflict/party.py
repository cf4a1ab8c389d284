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
