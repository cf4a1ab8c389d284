"""The decision whether a transaction may still commit.

Each check is a function; `_AGAINST_LANDED` and `_AGAINST_PENDING` list them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..errors import ConfigError
from ..hudi.files import FileGroupId
from .operations import COMPLETED, INDIFFERENT, INGESTION, MAKES_GROUPS, PLANNED, Kind
from .predicate import may_match
from .reservation import Party
from .strategies import Strategy, strategy
from .write_set import EVERYWHERE, NEW_KEYS, Pairs, ReadSet, Scan, WriteSet, meeting_of, shared

# Isolation levels: the reads of a transaction that count, and the check whether a candidate changed them.
#
#     snapshot              what it writes: file groups, overwritten partitions, its own condition
#     write-serializable    what it read too, but not rows that a blind insert added meanwhile: it comes before that insert
#     serializable          all that it read: the result is that of running in commit order
#
# Under ``snapshot`` two transactions may both commit although each read what the other changed (write skew), and a row may
# appear among the rows that one has read (a phantom). docs/conflicts.md has an example of each.

SNAPSHOT, WRITE_SERIALIZABLE, SERIALIZABLE = "snapshot", "write-serializable", "serializable"
ISOLATION_LEVELS = (SNAPSHOT, WRITE_SERIALIZABLE, SERIALIZABLE)  # from the weakest to the strongest
_UNKNOWN = (Scan(EVERYWHERE),)


def refuse_isolation(level: str, *, below: str = SNAPSHOT) -> None:
    """Raise `ConfigError` for an unknown level, or one weaker than the table's (``below``)."""
    if level not in ISOLATION_LEVELS:
        raise ConfigError(f"no isolation level {level!r}; known: {', '.join(ISOLATION_LEVELS)}", isolation=str(level))
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


_AGAIN = "run the write again on the new snapshot: Table.run does"
_PLAN_AGAIN = "leave the plan and schedule a new one"
_WAIT = "wait until it has ended, then commit: what it leaves decides"
_MERGE = "merge again what both changed, on the new file slices"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A conflict: winner, loser, overlap, rule, and the loser's next step.

    ``overlap`` holds file groups, or partitions as groups without file id. ``waits``: the winner is still pending; if it ends
    without committing, the loser may commit without a retry. ``final``: a retry does not help, because the rows conflict.
    """

    winner: Party
    loser: Party
    overlap: tuple[FileGroupId, ...]
    rule: str
    advice: str
    waits: bool = False
    final: bool = False


@dataclass(frozen=True, slots=True)
class Repeatable:
    """The work that the committing transaction can redo instead of losing.

    Attributes:
        groups: its file groups that it can merge again onto the versions that others committed.
        looks: True if it can evaluate its condition and look up its keys again.
    """

    groups: frozenset[FileGroupId] = frozenset()
    looks: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision about one transaction: it commits, merges again, or has lost.

    Attributes:
        lost: the conflict by which it must not commit, or None.
        beats: conflicts with pending transactions that will lose.
        again: conflicts that repeating the outdated work settles; ``groups`` are its own file groups concerned.
        schema: the table's schema after its commit; None if the table has none.
    """

    lost: Conflict | None = None
    beats: tuple[Conflict, ...] = ()
    again: tuple[Conflict, ...] = ()
    groups: frozenset[FileGroupId] = frozenset()
    schema: str | None = None

    @property
    def commits(self) -> bool:
        """True if it may commit as it is."""
        return not (self.lost or self.again)


def resolve(
    ours: Party,
    reads: ReadSet,
    candidates: Sequence[Party],
    *,
    by: str = "simple",
    isolation: str = SNAPSHOT,
    bucketed: bool = False,
    repeatable: Repeatable | None = None,
) -> Decision:
    """Decide whether ``ours`` may commit. The first conflicting candidate, in order, decides.

    Pure: reads nothing and keeps nothing, so the same inputs give the same answer.

    Args:
        ours: the committing transaction.
        reads: its read set.
        candidates: transactions committed since it began, in commit order, and pending ones; see `party.candidates`.
        by: name of the strategy.
        isolation: the level that decides which reads count.
        bucketed: the table has a bucket index, so two file groups of one bucket are the same place.
        repeatable: the work that ours can redo; None: nothing.

    Raises:
        ConfigError: the strategy is unknown.

    Source: step 4 of "Optimistic Concurrency using Locking" in Apache Hudi's RFC-22, with write sets that include
    the absent (docs/protocol.md), and kinds of transactions (`operations`).
    """
    rules, meet, only = strategy(by), meeting_of(ours.writes.groups, bucketed=bucketed), ours.only_kind
    mends = repeatable or Repeatable()
    looks = mends.looks and isolation != SERIALIZABLE
    beats, again, groups = [], [], set[FileGroupId]()
    for theirs in candidates:
        # Two stream commits may share 100,000 file groups without a conflict, so their groups are not even compared.
        pairs = [] if (only, theirs.only_kind) in INDIFFERENT else meet(theirs.writes.groups)
        # Set aside what can be merged again, so that the checks below find only conflicts that merging cannot settle.
        mergeable = _mergeable(ours, theirs, pairs, mends.groups) if theirs.landed else []
        if apart := set(mergeable):
            pairs = [pair for pair in pairs if pair not in apart]
        case = _Case(ours, theirs, pairs, reads, rules, isolation, bucketed, looks)
        if theirs.landed:
            lost = _first(_AGAINST_LANDED, case)
            if repeatable and not lost and (outdated := _outdated(case.over(mergeable))):
                again.append(replace(outdated, advice=_MERGE))
                groups.update(mine for mine, _theirs in mergeable)
        else:
            lost = _first(_AGAINST_PENDING, case)
            # A pending candidate is in the way only if it would lose by ours committing first. Then one of the two has to
            # yield.
            if not lost and (meets := _first(_WOULD_LOSE, case.turned())):
                lost = _yield_or_not(case, meets)
                if lost.winner is ours:
                    beats.append(lost)
                    lost = None
        if lost:
            return Decision(lost)
    # Merging again moves ours behind every committed candidate, so it must also have read what they left.
    if again and isolation != SNAPSHOT and (lost := _read_before_it_moves(ours, candidates, reads)):
        return Decision(lost)
    return Decision(None, tuple(beats), tuple(again), frozenset(groups))


class _Case(NamedTuple):
    """The committing transaction and one candidate: the argument of every check.

    A tuple, because a commit may have ten thousand candidates.

    Attributes:
        pairs: file groups of ours and of theirs that are one place; [] if their kinds never conflict.
        reads: what ours has read.
        looks: True if ours can evaluate its condition and look up its keys once more.
    """

    ours: Party
    theirs: Party
    pairs: Pairs
    reads: ReadSet
    rules: Strategy
    isolation: str
    bucketed: bool
    looks: bool

    def over(self, pairs: Pairs) -> _Case:
        """Return the case of these pairs only."""
        return self._replace(pairs=pairs)

    def turned(self) -> _Case:
        """Return the same case from the other side: theirs commits after ours."""
        pairs = [(theirs, mine) for mine, theirs in self.pairs]
        # What theirs read is not known here. Its own commit will check it.
        reads = ReadSet(blind=self.theirs.blind)
        return _Case(self.theirs, self.ours, pairs, reads, self.rules, SNAPSHOT, self.bucketed, looks=False)


_Check = Callable[[_Case], Conflict | None]


def _first(checks: Iterable[_Check], case: _Case) -> Conflict | None:
    for check in checks:
        if found := check(case):
            return found
    return None


# --- against a committed one ---------------------------------------------------------------------------------


def _taken_back(case: _Case) -> Conflict | None:
    ours, theirs = case.ours, case.theirs
    if ours.instant in theirs.undoes:
        return Conflict(theirs, ours, (), f"{theirs.kind} {theirs.instant} takes this transaction back", _AGAIN)
    if theirs.landed and theirs.instant in ours.undoes:
        return Conflict(
            theirs, ours, (), "it has landed meanwhile, so there is nothing to take back", "leave it as it is"
        )
    return None


def _restore_stands_alone(case: _Case) -> Conflict | None:
    ours, theirs = case.ours, case.theirs
    if COMPLETED[ours.kind, theirs.kind] != "X":
        return None
    rule = "a restore stands alone: nothing lands beside it"
    return Conflict(theirs, ours, (), rule, _next(ours))


def _same_file_group(case: _Case) -> Conflict | None:
    ours, theirs = case.ours, case.theirs
    met = case.pairs and [(a, b) for a, b in case.pairs if COMPLETED[ours.kind_at(a), theirs.kind_at(b)] == "x"]
    if not met:
        return None
    same = "both changed the same file group"
    if {ours.kind, theirs.kind} == {Kind.CLEAN, Kind.SAVEPOINT}:
        same = "a clean and a savepoint name the same file group"
    elif any(a != b for a, b in met):
        same = "both changed the same bucket"
    return _conflict(theirs, ours, (b for _a, b in met), same, _next(ours))


_ROWS = {Kind.REWRITE, Kind.APPEND}


def _outdated(case: _Case) -> Conflict | None:
    """Return the conflict over pairs that ours can settle by redoing work, or None."""
    if (found := _same_file_group(case)) or not case.looks:
        return found
    return _where_our_condition_looked(case) or _read(case, lookups=True)


def _mergeable(ours: Party, theirs: Party, pairs: Pairs, repeatable: frozenset[FileGroupId]) -> Pairs:
    """Return the pairs of file groups of which both only changed rows, so that ours can be merged again."""
    if not repeatable or theirs.stranger:
        return []
    return [(a, b) for a, b in pairs if a in repeatable and {ours.kind_at(a), theirs.kind_at(b)} <= _ROWS]


def _meets_our_overwrite(case: _Case) -> Conflict | None:
    """Check groups that appeared where ours overwrites, and two overwrites of one place."""
    ours, theirs = case.ours, case.theirs
    mine, other = ours.writes.region, theirs.writes.region
    if not mine:
        return None
    if theirs.kind in MAKES_GROUPS:
        # The overwrite's snapshot did not hold these rows, so it would not replace them; no serial order gives that.
        met = [g for g in theirs.writes.groups if mine.covers(g.partition)]
        if met:
            rule = "it wrote into a partition that ours overwrites"
            return _conflict(theirs, ours, met, rule, "run the overwrite again: it will replace these too")
    if mine.meets(other):
        # Two overwrites of an empty partition share no file group; without this rule both would survive.
        both = (mine.partitions or other.partitions) & (other.partitions or mine.partitions)
        advice = "decide which overwrite is to stay, then run it again"
        return _conflict(theirs, ours, _as_groups(both), "both overwrite the same partition", advice)
    return None


def _overwritten_below(case: _Case) -> Conflict | None:
    ours, theirs = case.ours, case.theirs
    if case.reads.blind or not theirs.writes.region or ours.kind not in INGESTION | PLANNED:
        return None
    met = [g for g in ours.writes.groups if theirs.writes.region.covers(g.partition)]
    return _conflict(theirs, ours, met, "it overwrote a partition that ours had read", _next(ours))


def _same_value(case: _Case) -> Conflict | None:
    """Check for two rows where one is allowed: the same new key, or one value under a unique constraint."""
    ours, theirs = case.ours, case.theirs
    for name, mine in ours.writes.unique.items():
        other = theirs.writes.unique.get(name)
        if other is None or not (places := shared(mine, other)):
            continue
        met = tuple(sorted(FileGroupId(place, "") for place in places if place))
        if name != NEW_KEYS:
            rule = f"both wrote the same value of what is unique ({name})"
            return Conflict(theirs, ours, met, rule, "run the write again: it will name the rows")
        rule = "both inserted the same new key"
        # An insert does not look up its keys, so a retry would insert duplicates.
        if case.reads.blind:
            return Conflict(
                theirs, ours, met, rule, "leave out the rows that are there now, or upsert them", final=True
            )
        return Conflict(theirs, ours, met, rule, _AGAIN)
    return None


def _changed_where_our_condition_looked(case: _Case) -> Conflict | None:
    return None if case.looks else _where_our_condition_looked(case)


def _where_our_condition_looked(case: _Case) -> Conflict | None:
    reads = case.reads
    scans = (Scan(reads.region), *reads.condition) if reads.region else reads.condition
    if not scans:  # here and below: asked of every candidate, and most have nothing to answer
        return None
    rule = "it changed a partition that our condition was evaluated on"
    advice = "evaluate the condition again: Table.run does"
    return _changed(case.ours, case.theirs, scans, rule, advice)


def _changed_what_we_read(case: _Case) -> Conflict | None:
    return _read(case, lookups=not case.looks)


def _read(case: _Case, *, lookups: bool) -> Conflict | None:
    scans = scans_that_count(case.reads, case.isolation, blind_insert=case.theirs.blind, lookups=lookups)
    if not scans:
        return None
    rule = f"it changed what ours had read, which counts under isolation {case.isolation}"
    return _changed(case.ours, case.theirs, scans, rule, _AGAIN)


def _read_before_it_moves(ours: Party, candidates: Iterable[Party], reads: ReadSet) -> Conflict | None:
    """Check what ours read against all committed candidates, blind inserts too: merged again, ours comes after them."""
    rule = "it changed what ours had read, and to be merged again ours would have to come after it"
    found = (_changed(ours, each, reads.scans or (), rule, _AGAIN) for each in candidates if each.landed)
    return next((lost for lost in found if lost), None)


def _changed(ours: Party, theirs: Party, scans: Iterable[Scan], rule: str, advice: str) -> Conflict | None:
    # A table service moves rows and changes none, so no read is outdated by it.
    if theirs.kind not in INGESTION:
        return None
    for scan in scans:
        if met := changed(scan, theirs.writes):
            return _conflict(theirs, ours, met, rule, advice)
    return None


# --- against a pending one ---------------------------------------------------------------------------------------


def _still_to_say(case: _Case) -> Conflict | None:
    """Check for a pending restore, and for ingestion with a write set still unknown: both block everything that yields to
    them.
    """
    ours, theirs, rules = case.ours, case.theirs, case.rules
    if COMPLETED[ours.kind, theirs.kind] == "X" and rules.yields_to(ours.kind, theirs.kind):
        return Conflict(theirs, ours, (), "a restore stands alone: nothing lands beside it", _WAIT, waits=True)
    if theirs.silent and ours.kind in PLANNED and rules.yields_to(ours.kind, theirs.kind):
        return Conflict(theirs, ours, (), "a table service waits for ingestion that has begun", _WAIT, waits=True)
    return None


def _reserved(case: _Case) -> Conflict | None:
    """Check for a reservation of a transaction that goes first."""
    ours, theirs = case.ours, case.theirs
    if not theirs.reserved or ours.kind not in INGESTION | PLANNED:
        return None
    if not theirs.claim.outranks(ours.claim, by_priority=case.rules.by_priority):
        return None
    rule = f"it has reserved {theirs.reserved} and goes first"
    return _conflict(theirs, ours, theirs.reserved.met_by(ours.writes, bucketed=case.bucketed), rule, _WAIT, waits=True)


def _has_right_of_way(ours: Party, theirs: Party, rules: Strategy) -> bool:
    """Return whether ours goes before a pending table service: it has a reservation, and the service may be waiting for it."""
    if not ours.reserved or theirs.stranger or theirs.kind not in PLANNED:
        return False
    return ours.claim.outranks(theirs.claim, by_priority=rules.by_priority)


def _yield_or_not(case: _Case, meets: Conflict) -> Conflict:
    ours, theirs, rules = case.ours, case.theirs, case.rules
    lead = ours.priority - theirs.priority
    if _has_right_of_way(ours, theirs, rules):
        return Conflict(ours, theirs, meets.overlap, meets.rule, meets.advice)
    if rules.yields_to(ours.kind, theirs.kind, lead=lead, stranger=theirs.stranger):
        by_number = rules.by_priority and lead < 0
        why = (
            f"priority {ours.priority} yields to {theirs.priority}"
            if by_number
            else f"{ours.kind} yields to {theirs.kind}"
        )
        return Conflict(theirs, ours, meets.overlap, f"{meets.rule}, and {why} while it is pending", _WAIT, waits=True)
    return Conflict(ours, theirs, meets.overlap, meets.rule, meets.advice)


# --- the checks, in order: the first that finds something names the conflict -----------------

_AGAINST_LANDED: tuple[_Check, ...] = (
    _taken_back,
    _restore_stands_alone,
    _same_file_group,
    _meets_our_overwrite,
    _overwritten_below,
    _same_value,
    _changed_where_our_condition_looked,
    _changed_what_we_read,
)
_AGAINST_PENDING: tuple[_Check, ...] = (_taken_back, _still_to_say, _reserved)
_WOULD_LOSE: tuple[_Check, ...] = (
    _restore_stands_alone,
    _same_file_group,
    _meets_our_overwrite,
    _overwritten_below,
)  # at its own commit


# --- words -------------------------------------------------------------------------------------------------------


def _next(loser: Party) -> str:
    return _AGAIN if loser.kind in INGESTION else _PLAN_AGAIN


def _as_groups(partitions: Iterable[str]) -> list[FileGroupId]:
    return [FileGroupId(p, "") for p in partitions] or [FileGroupId("", "")]


def _conflict(
    winner: Party, loser: Party, overlap: Iterable[FileGroupId], rule: str, advice: str, *, waits: bool = False
) -> Conflict | None:
    groups = tuple(sorted(overlap))
    return Conflict(winner, loser, groups, rule, advice, waits) if groups else None


# The schema of a table after two writers.
#
# Pure: schemas are texts, and only compared for equality.


def settle_schema(
    ours: Party,
    began: str | None,
    wanted: str | None,
    later: Sequence[tuple[Party, str | None]],
    dropped: Callable[[str], Collection[str]] = lambda _: (),
) -> str | Conflict | None:
    """Return the schema for our commit, or the conflict with the first candidate that changed it.

    Args:
        ours: the committing transaction; a table service changes no schema and takes over what it finds.
        began: the table's schema at our begin; None if it has none.
        wanted: the schema that we write; None or ``began`` if we change nothing.
        later: candidates in slot order, each with the schema that it left; None or "" if it recorded none.
        dropped: return the columns that a candidate's schema has lost since our begin.

    Source: the eight scenarios of Apache Hudi's RFC-82.
    """
    settled = (wanted if ours.kind in INGESTION else None) or began
    for candidate, schema in later:
        if not schema or schema in (began, settled):
            continue
        # Both changed it, and to different schemas: neither contains the other's columns for certain.
        if settled != began:
            return Conflict(
                candidate,
                ours,
                (),
                "both changed the table's schema",
                "run the write again on the new schema: Table.run does",
            )
        # Rows of ours, planned with a column that is gone, would lose its values unasked.
        if wanted is not None and ours.kind in INGESTION and (gone := dropped(schema)):
            return Conflict(
                candidate,
                ours,
                (),
                f"it dropped {', '.join(gone)}, and rows were written here when the table had that",
                "run the write again: Table.run does. Rows that name the column are refused then",
            )
        # We changed nothing, so theirs becomes the base that later candidates are compared with.
        settled = began = schema
    return settled
