"""May this transaction still commit? The checks, as a table of contents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from .isolation import SERIALIZABLE, SNAPSHOT, changed, scans_that_count
from .meeting import Pairs, meeting_of
from .operations import COMPLETED, INGESTION, MAKES_GROUPS, PLANNED, Kind
from .party import Party
from .strategies import Strategy, strategy
from .unique import NEW_KEYS, shared
from .write_set import FileGroupId, ReadSet, Scan

_AGAIN = "run the write again on the new snapshot: Table.run does"
_PLAN_AGAIN = "leave the plan and schedule a new one"
_WAIT = "wait until it has ended, then commit: what it leaves decides"
_MERGE = "merge again what both changed, on the new file slices"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Who wins, who loses, where both meet, by which rule, and what the loser does next.

    ``overlap`` holds file groups, or partitions as groups without file id. ``waits``: the winner is still pending, and
    when it has ended without landing the loser may commit without having to run again. ``final``: to run again does not
    help, because the rows themselves are in the way.
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
    """What the committing transaction can do once more, rather than lose.

    Attributes:
        groups: those of its file groups that it can merge again onto what others have made of them.
        looks: whether it can evaluate its condition and look up its keys again.
    """

    groups: frozenset[FileGroupId] = frozenset()
    looks: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer: ``lost`` is why the transaction must not land, ``beats`` the pending ones that lose if it does.

    ``again``: nothing else is in the way, and these are no loss if the transaction repeats what they made outdated;
    ``groups`` are those of its own file groups that are concerned.
    """

    lost: Conflict | None
    beats: tuple[Conflict, ...] = ()
    again: tuple[Conflict, ...] = ()
    groups: frozenset[FileGroupId] = frozenset()


def resolve(
    ours: Party,
    reads: ReadSet,
    candidates: Sequence[Party],
    *,
    by: str = "simple",
    isolation: str = SNAPSHOT,
    bucketed: bool = False,
    repeatable: Repeatable | None = None,
) -> Verdict:
    """Whether ``ours`` may land: the first candidate in its way, in the order given, or none.

    Pure: reads nothing and keeps nothing, so the same inputs give the same answer.

    Args:
        ours: the committing transaction.
        reads: its read set.
        candidates: what landed since it began in the order of landing, and pending ones; see `party.candidates`.
        by: name of the strategy.
        isolation: level of protection of what it read.
        bucketed: the table has a bucket index, so two file groups of one bucket are the same place.
        repeatable: what ours can merge again; None: nothing.

    Raises:
        ConfigError: there is no strategy of that name.

    Source: step 4 of "Optimistic Concurrency using Locking" in Apache Hudi's RFC-22, with write sets that include
    the absent (docs/protocol.md), and kinds of transactions (`operations`).
    """
    rules = strategy(by)
    meet = meeting_of(ours.writes.groups, bucketed=bucketed)
    mends = repeatable or Repeatable()
    looks = mends.looks and isolation != SERIALIZABLE
    beats, again, groups = [], [], set[FileGroupId]()
    for each in candidates:
        pairs = meet(each.writes.groups)
        if each.landed:
            mergeable = [(a, b) for a, b in pairs if a in mends.groups and _rows_only(ours, each, a, b)]
            if mergeable:
                pairs = [pair for pair in pairs if pair not in mergeable]
            lost = (
                _taken_back(ours, each)
                or _excluded(ours, each)
                or _same_file_group(ours, each, pairs)
                or _region(ours, each)
                or _overwritten_below(ours, each, blind=reads.blind)
                or _same_value(ours, each, blind=reads.blind)
                or (None if looks else _changed_where_our_condition_looked(ours, each, reads))
                or _changed_what_we_read(ours, each, reads, isolation, lookups=not looks)
            )
            if (
                repeatable
                and not lost
                and (outdated := _outdated(ours, each, mergeable, reads, isolation, looks=looks))
            ):
                again.append(replace(outdated, advice=_MERGE))
                groups.update(a for a, _b in mergeable)
        else:
            lost = (
                _taken_back(ours, each)
                or _still_to_say(ours, each, rules)
                or _reserved(ours, each, rules, bucketed=bucketed)
            )
            if not lost and (meets := _would_lose(each, ours, [(theirs, mine) for mine, theirs in pairs])):
                lost = _yield_or_not(ours, each, meets, rules)
                if lost.winner is ours:
                    beats.append(lost)
                    lost = None
        if lost:
            return Verdict(lost)
    if again and isolation != SNAPSHOT and (lost := _read_before_it_moves(ours, candidates, reads)):
        return Verdict(lost)
    return Verdict(None, tuple(beats), tuple(again), frozenset(groups))


# --- against one that has landed ---------------------------------------------------------------------------------


def _taken_back(ours: Party, theirs: Party) -> Conflict | None:
    if ours.instant in theirs.undoes:
        return Conflict(theirs, ours, (), f"{theirs.kind} {theirs.instant} takes this transaction back", _AGAIN)
    if theirs.landed and theirs.instant in ours.undoes:
        return Conflict(
            theirs, ours, (), "it has landed meanwhile, so there is nothing to take back", "leave it as it is"
        )
    return None


def _excluded(ours: Party, theirs: Party) -> Conflict | None:
    if COMPLETED[ours.kind, theirs.kind] != "X":
        return None
    rule = "a restore stands alone: nothing lands beside it"
    return Conflict(theirs, ours, (), rule, _next(ours))


def _same_file_group(ours: Party, theirs: Party, pairs: Pairs) -> Conflict | None:
    met = pairs and [(a, b) for a, b in pairs if COMPLETED[ours.kind_at(a), theirs.kind_at(b)] == "x"]
    if not met:
        return None
    same = "both changed the same file group"
    if {ours.kind, theirs.kind} == {Kind.CLEAN, Kind.SAVEPOINT}:
        same = "a clean and a savepoint name the same file group"
    elif any(a != b for a, b in met):
        same = "both changed the same bucket"
    return _conflict(theirs, ours, (b for _a, b in met), same, _next(ours))


def _outdated(
    ours: Party, theirs: Party, mergeable: Pairs, reads: ReadSet, isolation: str, *, looks: bool
) -> Conflict | None:
    """What ours can do once more because of this one."""
    if found := _same_file_group(ours, theirs, mergeable):
        return found
    if not looks:
        return None
    return _changed_where_our_condition_looked(ours, theirs, reads) or _changed_what_we_read(
        ours, theirs, reads, isolation, lookups=True
    )


def _rows_only(ours: Party, theirs: Party, mine: FileGroupId, other: FileGroupId) -> bool:
    """Whether both changed rows of a file group and nothing else, so that ours can be merged again."""
    return ours.kind_at(mine) is theirs.kind_at(other) is Kind.REWRITE and not theirs.stranger


def _region(ours: Party, theirs: Party) -> Conflict | None:
    """What appeared where ours overwrites, and two overwrites of one place."""
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


def _overwritten_below(ours: Party, theirs: Party, *, blind: bool) -> Conflict | None:
    if blind or not theirs.writes.region or ours.kind not in INGESTION | PLANNED:
        return None
    met = [g for g in ours.writes.groups if theirs.writes.region.covers(g.partition)]
    return _conflict(theirs, ours, met, "it overwrote a partition that ours had read", _next(ours))


def _same_value(ours: Party, theirs: Party, *, blind: bool) -> Conflict | None:
    """Two rows where there may be one: of the same new key, or of one value under a unique constraint."""
    for name, mine in ours.writes.unique.items():
        other = theirs.writes.unique.get(name)
        if other is None or not (places := shared(mine, other)):
            continue
        met = tuple(sorted(FileGroupId(place, "") for place in places if place))
        if name != NEW_KEYS:
            rule = f"both wrote the same value of what is unique ({name})"
            return Conflict(theirs, ours, met, rule, "run the write again: it will name the rows")
        rule = "both inserted the same new key"
        if blind:  # an insert does not look for its keys, so that running it again would make the rows stand twice
            return Conflict(
                theirs, ours, met, rule, "leave out the rows that are there now, or upsert them", final=True
            )
        return Conflict(theirs, ours, met, rule, _AGAIN)
    return None


def _changed_where_our_condition_looked(ours: Party, theirs: Party, reads: ReadSet) -> Conflict | None:
    scans = (Scan(reads.region), *reads.condition) if reads.region else reads.condition
    if not scans:  # here and below: asked of every candidate, and most have nothing to answer
        return None
    rule = "it changed a partition that our condition was evaluated on"
    advice = "evaluate the condition again: Table.run does"
    return _changed(ours, theirs, scans, rule, advice)


def _changed_what_we_read(
    ours: Party, theirs: Party, reads: ReadSet, isolation: str, *, lookups: bool
) -> Conflict | None:
    scans = scans_that_count(reads, isolation, blind_insert=theirs.blind, lookups=lookups)
    if not scans:
        return None
    rule = f"it changed what ours had read, which counts under isolation {isolation}"
    return _changed(ours, theirs, scans, rule, _AGAIN)


def _read_before_it_moves(ours: Party, candidates: Iterable[Party], reads: ReadSet) -> Conflict | None:
    """To be merged again is to come after all that has landed, a blind insert too: what was read must be so there."""
    rule = "it changed what ours had read, and to be merged again ours would have to come after it"
    found = (_changed(ours, each, reads.scans or (), rule, _AGAIN) for each in candidates if each.landed)
    return next((lost for lost in found if lost), None)


def _changed(ours: Party, theirs: Party, scans: Iterable[Scan], rule: str, advice: str) -> Conflict | None:
    # A service moves rows and changes none, so what was read is still so.
    if theirs.kind not in INGESTION:
        return None
    for scan in scans:
        if met := changed(scan, theirs.writes):
            return _conflict(theirs, ours, met, rule, advice)
    return None


# --- against a pending one ---------------------------------------------------------------------------------------


def _would_lose(theirs: Party, ours: Party, pairs: Pairs) -> Conflict | None:
    """Whether theirs would lose at its commit if ours landed now."""
    return (
        _excluded(theirs, ours)
        or _same_file_group(theirs, ours, pairs)
        or _region(theirs, ours)
        or _overwritten_below(theirs, ours, blind=theirs.blind)
    )


def _still_to_say(ours: Party, theirs: Party, rules: Strategy) -> Conflict | None:
    """A restore that is pending, and ingestion that has not yet said what it writes, are in the way of everything."""
    if COMPLETED[ours.kind, theirs.kind] == "X" and rules.yields_to(ours.kind, theirs.kind):
        return Conflict(theirs, ours, (), "a restore stands alone: nothing lands beside it", _WAIT, waits=True)
    if theirs.silent and ours.kind in PLANNED and rules.yields_to(ours.kind, theirs.kind):
        return Conflict(theirs, ours, (), "a table service waits for ingestion that has begun", _WAIT, waits=True)
    return None


def _reserved(ours: Party, theirs: Party, rules: Strategy, *, bucketed: bool) -> Conflict | None:
    """What another one keeps for itself, and it goes first."""
    if not theirs.reserved or ours.kind not in INGESTION | PLANNED:
        return None
    if not theirs.claim.outranks(ours.claim, by_priority=rules.by_priority):
        return None
    rule = f"it has reserved {theirs.reserved} and goes first"
    return _conflict(theirs, ours, theirs.reserved.met_by(ours.writes, bucketed=bucketed), rule, _WAIT, waits=True)


def _has_right_of_way(ours: Party, theirs: Party, rules: Strategy) -> bool:
    """Whoever has reserved waits for no table service: it may be waiting for us, and for others who have reserved."""
    if not ours.reserved or theirs.stranger or theirs.kind not in PLANNED:
        return False
    return ours.claim.outranks(theirs.claim, by_priority=rules.by_priority)


def _yield_or_not(ours: Party, theirs: Party, meets: Conflict, rules: Strategy) -> Conflict:
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
