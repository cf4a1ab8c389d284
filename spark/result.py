"""The result of a write."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..hudi.timeline import WriteStat


@dataclass(frozen=True)
class WriteResult:
    """A write that landed; ``instant`` is None when there was nothing to change, or its transaction has not ended yet.

    Attributes:
        instant: requested time T.
        completion: completion time C, the checkpoint for `SparkTable.read_incremental`.
        attempts: how often the transaction ran; all but the last lost to another writer.
        losses: the errors of the lost attempts.
        stats: one entry for each file written.
    """

    operation: str
    instant: str | None
    completion: str | None
    attempts: int
    losses: tuple[Exception, ...]
    stats: tuple[WriteStat, ...] = field(repr=False)

    @property
    def inserted(self) -> int:
        """Inserted rows."""
        return sum(s.num_inserts for s in self.stats)

    @property
    def updated(self) -> int:
        """Updated rows."""
        return sum(s.num_updates for s in self.stats)

    @property
    def deleted(self) -> int:
        """Deleted rows."""
        return sum(s.num_deletes for s in self.stats)
