"""Conflict strategies decide which of two transactions yields. The name is a setting of the table.

A committed candidate cannot yield any more, so it wins under every strategy. Strategies differ in what a committing
transaction does about a pending one that would lose if ours committed first.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConfigError
from .operations import UNCHECKED_IN_JVM, YIELDS_ALWAYS, YIELDS_BY_PLAN, YIELDS_TO_INGESTION, Kind


@dataclass(frozen=True, slots=True)
class Strategy:
    """A rule for which transaction yields.

    Attributes:
        name: as in the settings.
        yields: (ours, theirs) kinds for which ours yields to a pending one.
        needs_buckets: True if it is only for tables with a bucket index.
        by_priority: True if the smaller priority yields; ``yields`` decides between equal ones.
        source: where the rule comes from.
    """

    name: str
    yields: frozenset[tuple[Kind, Kind]]
    source: str
    needs_buckets: bool = False
    by_priority: bool = False

    def yields_to(self, ours: Kind, theirs: Kind, *, lead: int = 0, stranger: bool = False) -> bool:
        """Return whether ours yields to a pending transaction that it would beat.

        Args:
            lead: our priority minus theirs.
            stranger: theirs belongs to an engine that reads no log and may not check at its own commit.
        """
        if stranger and theirs in UNCHECKED_IN_JVM:
            # What it compacts is replaced all the same.
            return (ours, theirs) != (Kind.OVERWRITE, Kind.COMPACTION)
        # Priorities do not apply where a side must always yield, whatever its priority: next to a restore, for example.
        if self.by_priority and lead and YIELDS_ALWAYS.isdisjoint({(ours, theirs), (theirs, ours)}):
            return lead < 0
        return (ours, theirs) in self.yields


_STRATEGIES = {
    each.name: each
    for each in (
        Strategy("simple", YIELDS_BY_PLAN, "Apache Hudi, SimpleConcurrentFileWritesConflictResolutionStrategy"),
        Strategy(
            "bucket",
            YIELDS_BY_PLAN,
            "Apache Hudi, BucketIndexConcurrentFileWritesConflictResolutionStrategy",
            needs_buckets=True,
        ),
        Strategy("prefer-writer", YIELDS_TO_INGESTION, "Apache Hudi, PreferWriterConflictResolutionStrategy"),
        Strategy("priority", YIELDS_BY_PLAN, "RFC-22 leaves room for it: declared per writer", by_priority=True),
    )
}


def strategy(name: str) -> Strategy:
    """Return the strategy of that name. Raises `ConfigError` that lists the known ones."""
    if name not in _STRATEGIES:
        raise ConfigError(f"no conflict strategy {name!r}; known: {', '.join(strategy_names())}", strategy=name)
    return _STRATEGIES[name]


def strategy_names() -> list[str]:
    """Return all names, in the order of the documents."""
    return list(_STRATEGIES)


def refuse_contradiction(name: str, *, bucket_count: int | None, priority: int | None = None) -> None:
    """Raise `ConfigError` if a strategy does not suit the table's index or the writer's priority."""
    chosen = strategy(name)
    if chosen.needs_buckets and bucket_count is None:
        raise ConfigError(
            f"strategy {name!r} compares buckets, and the table has no bucket index; set buckets, or use 'simple'",
            strategy=name,
        )
    if priority is not None and (isinstance(priority, bool) or not isinstance(priority, int)):
        raise ConfigError(f"priority is {priority!r}, must be a whole number; the larger one goes first")
    if priority and not chosen.by_priority:
        raise ConfigError(
            f"priority {priority} has no effect under the table's strategy {name!r}; set strategy='priority' on the table, "
            "or leave the priority out",
            strategy=name,
            priority=priority,
        )
