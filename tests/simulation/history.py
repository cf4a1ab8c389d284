"""What the transactions of a schedule saw and did, and whether the log, the timeline and the table agree with it.

Every file group holds a list, and a transaction appends its own name to the lists of the groups that it changes. So
each state of a group tells its whole history, and a lost, doubled or reordered write shows (the list-append workload of
Elle; Kingsbury and Alvaro, VLDB 2020). Beside the list stand a counter, which must be its length, and a balance, whose
sum over the table only changes when a transaction says so. `graph` judges the same history without looking at the log.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from lakelatch.conflict import FileGroupId
from lakelatch.conflict.write_set import WriteSet
from lakelatch.occ.log_state import Begin, Commit, End, LogEntry, Open, Setting
from lakelatch.occ.publish import plain_metadata_of
from lakelatch.occ.staging import write_set_of
from lakelatch.storage import Store


class Value(NamedTuple):
    """What a file group holds."""

    names: tuple[str, ...]
    count: int
    balance: int


FOUNDER = "founder"  # wrote first to each group that was there from the beginning
State = dict[FileGroupId, Value]


class Roots:
    """A rebase may move a list to another file group. In a history it keeps the name that it had first, its root."""

    def __init__(self) -> None:
        self._roots: dict[FileGroupId, FileGroupId] = {}

    def __call__(self, group: FileGroupId) -> FileGroupId:
        return self._roots.get(group, group)

    def moved(self, group: FileGroupId, root: FileGroupId) -> None:
        """This file group, when it comes to be, holds the list of that one."""
        if group != root:
            self._roots[group] = root


class Anomaly(AssertionError):
    """The history is not one that the isolation level allows, or a promise was broken on the way."""


@dataclass
class Attempt:
    """One transaction as its writer knows it; ``outcome`` stays "cut off" when the writer died.

    Attributes:
        instant: its T, "" until it has begun.
        level: the isolation level that it ran at.
        reads: groups whose value it read; a group that it found absent is not in here.
        scanned: partitions of which it knows all groups.
        writes: groups and the value that it gave them.
        drops: groups that it took away; ``removed`` is the balance that went with them.
        region: partitions that it overwrote.
        merged: groups that it merged again, and what it found there in its last round.
        winner: who it was told to have lost against.
        began, ended: by the scheduler's clock.
    """

    name: str
    instant: str = ""
    level: str = "snapshot"
    reads: State = field(default_factory=dict)
    scanned: frozenset[str] = frozenset()
    writes: State = field(default_factory=dict)
    drops: set[FileGroupId] = field(default_factory=set)
    removed: int = 0
    region: frozenset[str] = frozenset()
    merged: State = field(default_factory=dict)
    outcome: str = "cut off"
    winner: str = ""
    began: float = 0.0
    ended: float = float("inf")

    def landed(self, outcome: str) -> None:
        self.outcome = outcome


@dataclass
class Look:
    """What a reader of the timeline saw at once."""

    completed: tuple[str, ...]
    state: State


MAY_HAVE_LANDED = ("committed", "unknown", "cut off")


def judge(entries: list[LogEntry], attempts: list[Attempt], looks: list[Look], final: State, base: State) -> None:
    """Raises `Anomaly`. ``base`` is what the first commits of the log, which are nobody's attempt, left behind."""
    known = {a.instant: a for a in attempts if a.instant}
    commits = [e for e in entries if isinstance(e, Commit)]
    before = [c for c in commits if c.instant not in known]
    if before != commits[: len(before)] or len(before) > 2:
        raise Anomaly(f"{[c.instant for c in before]} have landed and nobody made them")
    begun = {e.instant: e.slot for e in entries if isinstance(e, Begin)}
    mine = commits[len(before) :]
    _outcomes(entries, mine, known)
    states = _replay(mine, begun, known, base)
    if final != states[-1]:
        raise Anomaly(f"the table holds {final}, the log says {states[-1]}")
    order = [c.instant for c in mine]
    for look in looks:
        seen = [t for t in look.completed if t in known]
        if seen != order[: len(seen)]:
            raise Anomaly(f"the timeline showed {seen}, which is no beginning of the log's order {order}")
        if look.state != states[len(seen)]:
            raise Anomaly(f"with {seen} completed a reader saw {look.state}, not {states[len(seen)]}")


def _outcomes(entries: list[LogEntry], commits: list[Commit], known: dict[str, Attempt]) -> None:
    landed = {c.instant for c in commits}
    ended = {e.instant for e in entries if isinstance(e, End)}
    for attempt in known.values():
        if attempt.instant in landed and attempt.outcome not in MAY_HAVE_LANDED:
            raise Anomaly(f"{attempt.name} was told {attempt.outcome!r}, but {attempt.instant} has landed")
        if attempt.outcome == "committed" and attempt.instant not in landed:
            raise Anomaly(f"{attempt.name} was told that {attempt.instant} has landed, but it has not")
        if attempt.outcome == "rolled back" and attempt.instant not in ended:
            raise Anomaly(f"{attempt.name} was told that {attempt.instant} was ended by another, but nobody has")


def _replay(commits: list[Commit], begun: dict[str, int], known: dict[str, Attempt], base: State) -> list[State]:
    """The states after 0, 1, ... commits in the order of the log."""
    states = [base]
    total = sum(value.balance for value in base.values())
    for number, commit in enumerate(commits):
        state, attempt = dict(states[-1]), known[commit.instant]
        snapshot = states[sum(c.slot < begun[commit.instant] for c in commits[:number])]
        for group, seen in attempt.reads.items() - attempt.merged.items():
            if snapshot.get(group) != seen:
                raise Anomaly(f"{attempt.name} read {seen} in {group}; its snapshot held {snapshot.get(group)}")
        for partition in attempt.scanned | attempt.region:
            if {g for g in snapshot if g.partition == partition} - attempt.reads.keys():
                raise Anomaly(f"{attempt.name} has not seen all of its snapshot in {partition}")
        for group in attempt.writes.keys() & attempt.reads.keys() | attempt.drops:
            made_from = attempt.merged.get(group) or snapshot.get(group)
            if state.get(group) != made_from:
                raise Anomaly(
                    f"lost update: {attempt.name} changed {group} as of {made_from}, when it was {state.get(group)}"
                )
        for group in state:
            if group.partition in attempt.region and group not in attempt.drops:
                raise Anomaly(f"phantom: {attempt.name} overwrote {group.partition} and {group} survived it")
        for group in attempt.drops:
            del state[group]
        state.update(attempt.writes)
        total -= attempt.removed
        if (there := sum(value.balance for value in state.values())) != total:
            raise Anomaly(f"after {attempt.name} the balances come to {there}, not {total}")
        if wrong := [g for g, value in state.items() if value.count != len(value.names)]:
            raise Anomaly(f"after {attempt.name} the counters of {wrong} are off")
        states.append(state)
    return states


def judge_tokens(entries: list[LogEntry], attempts: list[Attempt], granted: dict[str, set[int]]) -> None:
    """Each commit was made under a lease on the lock in force at its slot, and later ones under later leases."""
    known = {a.instant for a in attempts}
    lock, generation, last = "", -1, 0
    for entry in entries:
        if isinstance(entry, Open | Setting):
            if entry.settings.generation != generation:
                last = 0
            lock, generation = entry.settings.lock, entry.settings.generation
        elif isinstance(entry, Commit) and lock in granted and entry.instant in known:
            if entry.token not in granted[lock]:
                raise Anomaly(f"commit {entry.instant} has token {entry.token}, which {lock} has never given")
            if entry.token <= last:
                raise Anomaly(f"commit {entry.instant} has token {entry.token}, the one before had {last}")
            last = entry.token


def judge_losses(store: Store, entries: list[LogEntry], attempts: list[Attempt], roots: Roots) -> None:
    """Nobody was told that it lost without a true conflict: the winner has landed since the loser began, and they meet."""
    begun = {e.instant: e.slot for e in entries if isinstance(e, Begin)}
    commits = {e.instant: e for e in entries if isinstance(e, Commit)}
    for attempt in attempts:
        if not attempt.winner:
            continue
        winner = commits.get(attempt.winner)
        if winner is None or winner.slot < begun[attempt.instant]:
            raise Anomaly(f"{attempt.name} lost against {attempt.winner}, which has not landed since it began")
        if attempt.level == "snapshot":
            theirs = write_set_of(store, winner, plain_metadata_of(store, winner))
            groups = frozenset(map(roots, theirs.groups))
            if not _meet(attempt, replace(theirs, groups=groups)):
                raise Anomaly(f"{attempt.name} lost against {attempt.winner}, and they have nothing in common")


def _meet(attempt: Attempt, theirs: WriteSet) -> bool:
    groups = attempt.writes.keys() | attempt.drops
    return (
        bool(groups & theirs.groups)
        or any(theirs.region.covers(p) for p in {g.partition for g in groups} | attempt.region)
        or any(g.partition in attempt.region for g in theirs.groups)
    )
