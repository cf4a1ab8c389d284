"""May this transaction still commit? The checks, as a table of contents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .strategies import strategy
from .write_set import FileGroupId, ReadSet, WriteSet


@dataclass(frozen=True, slots=True)
class Candidate:
    """A commit that landed after the committing transaction began."""

    instant: str
    completion: str
    operation: str
    writer: str
    writes: WriteSet


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why not: who won, where both meet (file groups, or partitions as groups without file id), by which rule."""

    winner: Candidate
    overlap: tuple[FileGroupId, ...]
    rule: str
    advice: str


def resolve(
    writes: WriteSet, reads: ReadSet, candidates: Sequence[Candidate], *, by: str = "simple"
) -> Conflict | None:
    """The first conflict with a candidate, oldest first, or None when the transaction may land.

    Pure: reads nothing and keeps nothing, so the same inputs give the same answer.

    Args:
        writes: the write set of the committing transaction.
        reads: its read set.
        candidates: commits after its begin slot, in slot order; may be empty.
        by: name of the strategy that says when two write sets meet.

    Raises:
        ConfigError: there is no strategy of that name.

    Source: step 4 of "Optimistic Concurrency using Locking" in Apache Hudi's RFC-22, with write sets that include
    the absent (docs/protocol.md).
    """
    meet = strategy(by)
    for candidate in candidates:
        conflict = (
            _same_file_group(writes, candidate, meet(writes, candidate.writes))
            or _created_where_ours_overwrites(writes, candidate)
            or _two_overwrites(writes, candidate)
            or _overwritten_below_us(writes, reads, candidate)
            or _changed_where_we_read(reads, candidate)
        )
        if conflict:
            return conflict
    return None


def _same_file_group(_writes: WriteSet, candidate: Candidate, overlap: frozenset[FileGroupId]) -> Conflict | None:
    return _conflict(
        candidate,
        overlap,
        "both changed the same file group",
        "run the write again on the new snapshot: Table.run does",
    )


def _created_where_ours_overwrites(writes: WriteSet, candidate: Candidate) -> Conflict | None:
    # The overwrite's snapshot did not hold these rows, so it would not replace them, and no serial order gives that.
    met = frozenset(g for g in candidate.writes.groups if writes.region.covers(g.partition))
    return _conflict(
        candidate,
        met,
        "it wrote into a partition that ours overwrites",
        "run the overwrite again: it will replace these too",
    )


def _two_overwrites(writes: WriteSet, candidate: Candidate) -> Conflict | None:
    # Two overwrites of an empty partition share no file group; without this rule both would survive.
    if not writes.region.meets(candidate.writes.region):
        return None
    both = (writes.region.partitions or candidate.writes.region.partitions) & (
        candidate.writes.region.partitions or writes.region.partitions
    )
    met = frozenset(FileGroupId(p, "") for p in both) or frozenset({FileGroupId("", "")})
    return _conflict(
        candidate, met, "both overwrite the same partition", "decide which overwrite is to stay, then run it again"
    )


def _overwritten_below_us(writes: WriteSet, reads: ReadSet, candidate: Candidate) -> Conflict | None:
    if reads.blind:
        return None
    met = frozenset(g for g in writes.groups if candidate.writes.region.covers(g.partition))
    return _conflict(
        candidate, met, "it overwrote a partition that ours had read", "run the write again on the new snapshot"
    )


def _changed_where_we_read(reads: ReadSet, candidate: Candidate) -> Conflict | None:
    met = frozenset(g for g in candidate.writes.groups if reads.region.covers(g.partition))
    if not met and reads.region.meets(candidate.writes.region):
        met = frozenset(FileGroupId(p, "") for p in candidate.writes.region.partitions) or frozenset(
            {FileGroupId("", "")}
        )
    return _conflict(
        candidate,
        met,
        "it changed a partition that our condition was evaluated on",
        "evaluate the condition again: Table.run does",
    )


def _conflict(winner: Candidate, overlap: frozenset[FileGroupId], rule: str, advice: str) -> Conflict | None:
    return Conflict(winner, tuple(sorted(overlap)), rule, advice) if overlap else None
