"""Isolation levels: the reads of a transaction that count, and the check whether a candidate changed them.

    snapshot              what it writes: file groups, overwritten partitions, its own condition
    write-serializable    what it read too, but not rows that a blind insert added meanwhile: it comes before that insert
    serializable          all that it read: the result is that of running in commit order

Under ``snapshot`` two transactions may both commit although each read what the other changed (write skew), and a row may
appear among the rows that one has read (a phantom). docs/conflicts.md has an example of each.
"""

from __future__ import annotations

from ..errors import ConfigError
from ..hudi.files import FileGroupId
from .predicate import may_match
from .write_set import EVERYWHERE, ReadSet, Scan, WriteSet

SNAPSHOT, WRITE_SERIALIZABLE, SERIALIZABLE = "snapshot", "write-serializable", "serializable"
ISOLATION_LEVELS = (SNAPSHOT, WRITE_SERIALIZABLE, SERIALIZABLE)  # from the weakest to the strongest
_UNKNOWN = (Scan(EVERYWHERE),)


def refuse_isolation(level: str, *, below: str = SNAPSHOT) -> None:
    """Raise `ConfigError` for an unknown level, or one weaker than the table's (``below``)."""
    if level not in ISOLATION_LEVELS:
        raise ConfigError(f"no isolation level {level!r}; known: {', '.join(ISOLATION_LEVELS)}", isolation=level)
    if ISOLATION_LEVELS.index(level) < ISOLATION_LEVELS.index(below):
        raise ConfigError(
            f"isolation {level!r} is weaker than the table's {below!r}; a transaction can only raise it",
            isolation=level,
        )


def scans_that_count(reads: ReadSet, level: str, *, blind_insert: bool, lookups: bool = True) -> tuple[Scan, ...]:
    """Return the reads that a candidate must not have changed.

    Args:
        blind_insert: the candidate only added rows and read nothing.
        lookups: True if key lookups count as reads too.
    """
    if level == SNAPSHOT or (level == WRITE_SERIALIZABLE and blind_insert):
        return ()
    if reads.scans is None:
        return () if reads.blind else _UNKNOWN
    return (*reads.scans, *reads.lookups) if lookups else reads.scans


def changed(scan: Scan, writes: WriteSet) -> frozenset[FileGroupId]:
    """Return the file groups by which ``writes`` may have changed the result of the scan.

    Groups that an overwrite removed are among its groups; claiming a partition changes no result by itself.
    """
    met = frozenset() if scan.groups.isdisjoint(writes.groups) else scan.groups & writes.groups
    region, where, known = scan.region, scan.where, writes.statistics
    if not region:
        return met
    # The scan's own groups were compared above. Any other group may hold rows that are new to the scan.
    new = writes.groups if region.whole_table else [g for g in writes.groups if g[0] in region.partitions]
    return met.union(g for g in new if may_match(where, known.get(g))) if where else met.union(new)
