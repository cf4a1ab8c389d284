"""Remedies for a lost transaction: evaluate the rules of `conflict` again, with one change at a time.

Pure. Each remedy is derived from a decision of `resolve` on the changed facts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...conflict import (
    ISOLATION_LEVELS,
    Conflict,
    Kind,
    Party,
    ReadSet,
    Repeatable,
    Reservation,
    kind_of,
    resolve,
    strategy,
    strategy_names,
)

_LANDED = "99991231235959999"  # any time will do: `resolve` only checks that there is one
_ROWS = frozenset({Kind.REWRITE})


@dataclass(frozen=True, slots=True)
class Way:
    """One remedy.

    Attributes:
        change: ``isolation``, ``merging``, ``ordering_field``, ``strategy``, ``priority``, ``reservation``, ``order``,
            ``operation``, ``early_conflict_detection`` or ``yield_wait_s``.
        value: the new value.
        lands: ``both`` commit; or ``ours`` commits, and the other one loses and is retried.
        how: the instruction, as a sentence.
    """

    change: str
    value: str
    lands: str
    how: str


@dataclass(frozen=True, slots=True)
class Case:
    """A loss, with all inputs of `resolve`.

    Attributes:
        ours: the loser, with its write set.
        reads: its read set.
        candidates: the commits since its begin, then the pending transactions, the winner among them.
        winner: T of the winner.
        isolation: the level in force for ours; ``floor`` is the table's.
        merges: ours could merge again; ``hook``: it could, if the setting ``rebase`` allowed it.
        repeatable: the groups that it could merge again; None: all.
        rebase: the table's setting that lets writers merge again.
        same_rows: a lower bound for the number of rows that both changed.
        ordering: the table has an ordering field.
        early: ours yielded before its commit.
    """

    ours: Party
    reads: ReadSet
    candidates: tuple[Party, ...]
    winner: str
    by: str = "simple"
    isolation: str = "snapshot"
    floor: str = "snapshot"
    bucketed: bool = False
    merges: bool = False
    hook: bool = False
    repeatable: Repeatable | None = None
    rebase: bool = True
    same_rows: int = 0
    ordering: bool = False
    early: bool = False

    def lost(self, **changes: object) -> Conflict | None:
        """Return the conflict that the rules find for ours with some facts changed, or None."""
        case = replace(self, **changes) if changes else self  # type: ignore[arg-type]
        every = (case.repeatable or Repeatable(case.ours.writes.groups, looks=True)) if case.merges else None
        return resolve(
            case.ours, case.reads, case.candidates, by=case.by, isolation=case.isolation, bucketed=case.bucketed,
            repeatable=every,
        ).lost  # fmt: skip

    @property
    def rival(self) -> Party | None:
        """The winner; None if it is not among the candidates."""
        return next((each for each in self.candidates if each.instant == self.winner), None)


def explained(case: Case, rule: str) -> Case:
    """Add to the case the unique values that ours must have shared with the winner, if only they explain the rule.

    The log keeps the unique values of a commit, but none of a loser's.
    """
    rival = case.rival
    if rival is None or not rival.writes.unique or _says(case, rule):
        return case
    for name, values in rival.writes.unique.items():
        shared = replace(case, ours=replace(case.ours, writes=replace(case.ours.writes, unique={name: values})))
        if _says(shared, rule):
            return shared
    return case


def _says(case: Case, rule: str) -> bool:
    found = case.lost()
    return found is not None and found.rule == rule


def ways(case: Case) -> list[Way]:
    """Return the remedies, the smallest change first."""
    if case.rival is None:
        return []
    found = [*_merged(case), *_weaker(case), *_earlier(case), *_ruled_otherwise(case), *_reserved(case), *_later(case)]
    return list({(way.change, way.value): way for way in found}.values())


def _merged(case: Case) -> Iterator[Way]:
    if case.lost(merges=True) is not None:
        return
    settled = case.ordering and case.ours.operation != "DELETE"
    if case.same_rows and not case.ordering and case.ours.operation != "DELETE":
        yield Way(
            "ordering_field",
            "a column",
            "both",
            "give the table an ordering field: of a row that both changed the newer version stays"
            + ("" if case.merges else ", when ours is merged again (txn.upsert, or txn.merge_on_conflict())"),
        )
    if case.merges or (case.same_rows and not settled):
        return
    only = "" if settled else ", as long as the two changed different rows"
    if case.hook:
        yield Way("merging", "rebase=true", "both", f"set rebase=true: what both changed is merged again{only}")
        return
    setting = "" if case.rebase else "set rebase=true and "
    every = Repeatable(case.ours.writes.groups)
    if case.lost(merges=True, repeatable=every) is None:
        how = "write with txn.upsert, delete or delete_where, or call txn.merge_on_conflict()"
        yield Way("merging", "merge_on_conflict", "both", f"{setting}{how}: it is merged again{only}")
    else:
        how = "give txn.merge_on_conflict a function that looks again at what appeared (looks_again=True)"
        yield Way("merging", "looks_again", "both", f"{setting}{how}{only}")


def _weaker(case: Case) -> Iterator[Way]:
    if case.merges and case.same_rows and not case.ordering:
        return  # it lost during its rebase, when the isolation's checks had passed already
    for level in reversed(ISOLATION_LEVELS[: ISOLATION_LEVELS.index(case.isolation)]):
        if case.lost(isolation=level) is None:
            below = ISOLATION_LEVELS.index(level) < ISOLATION_LEVELS.index(case.floor)
            how = f"set isolation={level} on the table" if below else f"begin it with isolation={level!r} at most"
            yield Way("isolation", level, "both", f"{how}, if its result may be older than what it read")
            return


def _earlier(case: Case) -> Iterator[Way]:
    if case.early and case.rival and not case.rival.landed:
        how = "set early_conflict_detection=off: the first to land wins, and the other one is run again"
        yield Way("early_conflict_detection", "off", "ours", how)


def _ruled_otherwise(case: Case) -> Iterator[Way]:
    rival = case.rival
    assert rival is not None
    for name in strategy_names():
        rules = strategy(name)
        if name == case.by or (rules.needs_buckets and not case.bucketed):
            continue
        asked = replace(case, by=name)
        if rules.by_priority:
            number = rival.priority + 1
            asked = replace(asked, ours=replace(case.ours, priority=number))
            if lands := _first(asked):
                how = f"set strategy=priority and open ours with priority={number}"
                yield _in_turn("priority", str(number), rival, lands, how)
        elif lands := _first(asked):
            yield _in_turn("strategy", name, rival, lands, f"set strategy={name}")
    if case.by == "priority" and case.ours.priority <= rival.priority:
        number = rival.priority + 1
        if lands := _first(replace(case, ours=replace(case.ours, priority=number))):
            yield _in_turn("priority", str(number), rival, lands, f"open ours with priority={number}")


def _reserved(case: Case) -> Iterator[Way]:
    rival, ours = case.rival, case.ours
    assert rival is not None
    wanted = Reservation(ours.writes.region | case.reads.region, ours.writes.groups)
    if not wanted or ours.reserved:
        return
    if lands := _first(replace(case, ours=replace(ours, reserved=wanted, age=-1))):
        yield _in_turn("reservation", str(wanted), rival, lands, f"reserve {wanted} at its begin (reserve=)")


def _first(case: Case) -> str:
    """Return who commits if the winner meets ours while that is pending; "" if the winner would not wait.

    ``both``; ``merged``: both, if the winner can merge ours' changes, which the log does not record; ``same rows``: likewise,
    but it may have changed the same rows; ``ours``.
    """
    rival = case.rival
    assert rival is not None
    theirs, reads = replace(rival, completion=""), ReadSet(blind=rival.blind, scans=())
    waits = resolve(theirs, reads, [case.ours], by=case.by, bucketed=case.bucketed).lost
    if waits is None or not waits.waits:
        return ""
    if case.lost(candidates=tuple(each for each in case.candidates if each.instant != rival.instant)) is not None:
        return ""
    landed = [replace(case.ours, completion=_LANDED)]
    if resolve(theirs, reads, landed, by=case.by, bucketed=case.bucketed).lost is None:
        return "both"
    if not case.rebase or rival.kind not in _ROWS:
        return "ours"
    again = Repeatable(rival.writes.groups, looks=True)
    lost = resolve(theirs, reads, landed, by=case.by, bucketed=case.bucketed, repeatable=again).lost
    if lost is None:
        return "same rows" if case.same_rows and not case.ordering else "merged"
    return "ours"


def _in_turn(change: str, value: str, rival: Party, lands: str, how: str) -> Way:
    ends = {
        "both": " and lands after it",
        "merged": " and is merged again (where it was written by txn.upsert, delete or delete_where)",
        "same rows": ", and is then merged again or, where both changed the same row, run again",
        "ours": ", then loses and is run again",
    }
    told = f"{how}: {rival.operation.lower()} {rival.instant} waits for it{ends[lands]}"
    return Way(change, value, "both" if lands in ("both", "merged") else "ours", told)


def _later(case: Case) -> Iterator[Way]:
    """Yield the remedy of running ours after the winner, and after the other candidates in its way."""
    rest, last = case.candidates, case.winner
    while (at := next((n for n, each in enumerate(rest) if each.instant == last), None)) is not None:
        rest = rest[at + 1 :]
        if (found := case.lost(candidates=rest)) is None:
            break
        last = found.winner.instant
    rival = next(each for each in case.candidates if each.instant == last)
    if not rival.landed:
        how = f"raise yield_wait_s, or begin it when {last} has ended"
        yield Way("yield_wait_s", "longer", "both", how)
        return
    told = case.lost()
    if told is not None and told.final:
        how = "write these rows with upsert: what is run again after the other finds their keys"
        yield Way("operation", "upsert", "both", how)
        return
    again = "schedule a new plan" if _planned(case.ours.operation) else "run it again (Table.run does)"
    yield Way("order", f"after {last}", "both", f"{again}: what begins after {last} has landed sees what it did")


def _planned(operation: str) -> bool:
    return kind_of(operation) in (Kind.CLUSTERING, Kind.COMPACTION, Kind.LOG_COMPACTION)
