"""What the transactions of a schedule saw and did, and whether the log, the timeline and the table agree with it.

Every file group holds a list, and a transaction appends its own name to the lists of the groups that it changes. So
each state of a group tells its whole history, and a lost, doubled or reordered write shows (the list-append workload of
Elle; Kingsbury and Alvaro, VLDB 2020). Beside the list stand a counter, which must be its length, and a balance, whose
sum over the table only changes when a transaction says so. `graph` judges the same history without looking at the log.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lakelatch.conflict.write_set import WriteSet
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.files.file_names import bucket_of
from lakelatch.hudi.timeline.instant import COMMIT_ACTIONS
from lakelatch.occ.entries.entries import Begin, Commit, End, LogEntry, Open, Setting
from lakelatch.occ.entries.write_sets import write_set_of
from lakelatch.occ.log.publisher import plain_metadata_of
from lakelatch.storage import Store


class Value(NamedTuple):
    """One list; ``rows`` are record keys with the value that they have in the column ``email``."""

    names: tuple[str, ...]
    count: int
    balance: int
    rows: tuple[tuple[str, str], ...] = ()


FOUNDER = "founder"  # wrote first to each group that was there from the beginning
State = dict[FileGroupId, Value]
Follow = Callable[["Attempt", State, State], State]


class Roots:
    """A list keeps the name of its first file group, its root; a rebase moves it to another, a clustering joins some."""

    def __init__(self) -> None:
        self._roots: dict[FileGroupId, frozenset[FileGroupId]] = {}

    def __call__(self, group: FileGroupId) -> frozenset[FileGroupId]:
        return self._roots.get(group) or frozenset({group})

    def hold(self, group: FileGroupId, roots: Iterable[FileGroupId]) -> None:
        """The lists that stand in a file of this group."""
        self._roots[group] = frozenset(roots)


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
        changes: what it adds to the balance of rows (partition and key) by condition, as they are by then.
        events: what it writes to streams (`stream_tables`).
        spare: its rows have the column that may be dropped (`row_tables`); None: it drops that.
        inserted: partition and key of the rows that it told to be new; ``emails`` all that it wrote.
        duplicate: it was told that somebody has inserted one of its keys.
        winner: who it was told to have lost against.
        batch: the source and number that it was sent as.
        after: the number of the batch that it follows, -1 for none; None if that does not matter.
        began, ended: by the scheduler's clock.
    """

    name: str
    instant: str = ""
    level: str = "snapshot"
    reads: State = field(default_factory=dict)
    mark_scanned: frozenset[str] = frozenset()
    writes: State = field(default_factory=dict)
    drops: set[FileGroupId] = field(default_factory=set)
    removed: int = 0
    region: frozenset[str] = frozenset()
    merged: State = field(default_factory=dict)
    changes: dict[tuple[str, str], int] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)
    spare: bool | None = False
    inserted: set[tuple[str, str]] = field(default_factory=set)
    emails: set[str] = field(default_factory=set)
    duplicate: bool = False
    outcome: str = "cut off"
    winner: str = ""
    batch: tuple[str, int] = ("", 0)
    after: int | None = None
    began: float = 0.0
    ended: float = float("inf")

    def sends(self, batch: tuple[Any, ...] | None) -> None:
        """Note its batch: source, number, and the number before if that counts."""
        if batch:
            self.batch, follows = batch[:2], batch[2:]
            self.after = None if not follows else -1 if follows[0] is None else follows[0]

    def landed(self, outcome: str) -> None:
        self.outcome = outcome


@dataclass
class Look:
    """What a reader of the timeline saw at once."""

    completed: tuple[str, ...]
    state: State


MAY_HAVE_LANDED = ("committed", "unknown", "cut off")


SERVICES = (
    "CLEAN",
    "CLUSTER",
    "SAVEPOINT",
    "SAVEPOINT_DELETE",
    "RESTORE",
    "ARCHIVE",
    "COMPACT",
    "LOG_COMPACT",
)  # nobody's attempt; fmt: skip


@dataclass
class Story:
    """What the log says has happened.

    Attributes:
        shown: the states that a timeline may show, by the commits on it.
        states: the state at each completion time.
        undone: requested times of what restores have taken back.
        seen: the states that readers saw, but for those that a clean had taken from and a restore passed through.
    """

    shown: dict[tuple[str, ...], State] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)
    seen: list[State] = field(default_factory=list)


def judge(
    entries: list[LogEntry],
    attempts: list[Attempt],
    looks: list[Look],
    final: State,
    base: State,
    *,
    unique: bool,
    bucketed: bool,
    kept_from: str,
    ground: Sequence[tuple[str, str, State]] = (),
    follow: Follow | None = None,
) -> Story:
    """Raises `Anomaly`.

    Args:
        base: what the first commits of the log, which are nobody's attempt, left behind.
        kept_from: completion time from which on no clean has taken from a state.
        ground: T and C of the commits before the log, and the states that they left.
        follow: the state after an attempt, of its snapshot and the state before; by default that of lists.
    """
    known = {a.instant: a for a in attempts if a.instant}
    commits = [e for e in entries if isinstance(e, Commit)]
    before = [c for c in commits if c.instant not in known and c.operation not in SERVICES]
    if before != commits[: len(before)] or len(before) > 2:
        raise Anomaly(f"{[c.instant for c in before]} have landed and nobody made them")
    _outcomes(entries, commits, known)
    story = _replay(
        commits, {e.instant: e.slot for e in entries if isinstance(e, Begin)}, known, base, ground, follow or _next
    )
    last = next(reversed(story.states.values()))
    if final != last:
        raise Anomaly(f"the table holds {final}, the log says {last}")
    for state in story.shown.values():
        _refuse_twice(state, unique=unique)
        if bucketed:
            _refuse_two_groups(state)
    completion = {c.instant: c.completion for c in commits} | {t: c for t, c, _ in ground}
    archived = _archived(entries, commits)
    # A schema that is repeated under a T of its own, which a reader may see before the log tells what it is.
    echoes = {commit.echo.partition("_")[0] for commit in commits if commit.echo}
    looks = [replace(each, completed=tuple(t for t in each.completed if t not in echoes)) for each in looks]
    for number, look in enumerate(looks):
        possible = _possible(story, look.completed, archived)
        if not possible:
            raise Anomaly(f"the timeline showed {look.completed}, which it never is by the log: {[*story.shown]}")
        if look.state in possible:
            story.seen.append(look.state)
        elif not (completion[look.completed[-1]] < kept_from and _goes_back(looks[:number], look)):
            raise Anomaly(f"with {look.completed} completed a reader saw {look.state}, not {possible}")
    return story


def _archived(entries: list[LogEntry], commits: list[Commit]) -> set[str]:
    """T of the commits that an archival has taken off the timeline, or may be just taking."""
    plans = (e.plan["content"].get("archived", ()) for e in entries if isinstance(e, Begin) and e.plan)
    names = [name for c in commits if c.operation == "ARCHIVE" for name in c.undone]
    return {name.partition("_")[0] for name in itertools.chain(names, *plans)}


def _possible(story: Story, shown: tuple[str, ...], archived: set[str]) -> list[State]:
    """The states that a timeline with these commits may show: none but archived ones are missing from it."""
    if not archived:
        return [story.shown[shown]] if shown in story.shown else []
    there = set(shown)
    return [
        state
        for rows, state in story.shown.items()
        if tuple(t for t in rows if t in there or t not in archived) == shown
    ]


def _goes_back(before: list[Look], look: Look) -> bool:
    """Whether a restore takes the timeline there, and not the commits one after another."""
    there = len(look.completed)
    return any(len(each.completed) > there and each.completed[:there] == look.completed for each in before)


def _refuse_twice(state: State, *, unique: bool) -> None:
    rows = [(group.partition, *row) for group, value in state.items() for row in value.rows]
    if len({row[:2] for row in rows}) < len(rows):
        raise Anomaly(f"a record key stands twice: {sorted(rows)}")
    if unique and len({email for _, _, email in rows}) < len(rows):
        raise Anomaly(f"a value that is unique stands twice: {sorted(rows)}")


def _refuse_two_groups(state: State) -> None:
    places = [(group.partition, bucket_of(group.file_id)) for group in state]
    if len(set(places)) < len(places):
        raise Anomaly(f"a bucket has two file groups: {sorted(state)}")


def _outcomes(entries: list[LogEntry], commits: list[Commit], known: dict[str, Attempt]) -> None:
    landed = {c.instant for c in commits}
    undone = {name.partition("_")[0] for c in commits if c.restores for name in c.undone}
    ended = {e.instant for e in entries if isinstance(e, End)} | undone
    for attempt in known.values():
        told = attempt.outcome
        # Whose commit was taken back before its reply came may be told that nothing of it landed.
        taken_back = told == "rolled back" and attempt.instant in undone
        if attempt.instant in landed and told not in MAY_HAVE_LANDED and not taken_back:
            raise Anomaly(f"{attempt.name} was told {told!r}, but {attempt.instant} has landed")
        if told == "committed" and attempt.instant not in landed:
            raise Anomaly(f"{attempt.name} was told that {attempt.instant} has landed, but it has not")
        if told == "rolled back" and attempt.instant not in ended:
            raise Anomaly(f"{attempt.name} was told that {attempt.instant} was ended by another, but nobody has")


def _replay(
    commits: list[Commit],
    begun: dict[str, int],
    known: dict[str, Attempt],
    base: State,
    ground: Sequence[tuple[str, str, State]],
    follow: Follow,
) -> Story:
    """The states after each commit, in the order of the log."""
    story, rows, state, restored = Story({(): {}}), (), State(), -1
    for instant, completion, state in ground:
        rows = (*rows, instant)
        story.shown[rows] = story.states[completion] = state
    after: list[tuple[int, State]] = []  # slots of commits, and the states that they left
    for commit in commits:
        began = begun.get(commit.instant, commit.slot)  # another engine has no begin entry
        if commit.operation != "CLEAN" and began < restored:
            raise Anomaly(f"{commit.operation} {commit.instant} began before a restore and landed after it")
        if commit.restores:
            undone = {name.partition("_")[0] for name in commit.undone}
            kept = tuple(t for t in rows if t not in undone)
            if rows[: len(kept)] != kept or not undone <= {*rows}:
                raise Anomaly(f"restore {commit.instant} takes {undone} back, of {rows}")
            rows, state, restored = kept, story.shown[kept], commit.slot
            story.undone |= undone
        elif commit.action in COMMIT_ACTIONS:
            if (attempt := known.get(commit.instant)) is not None:
                snapshot = next((s for slot, s in reversed(after) if slot < began), {})
                state = follow(attempt, snapshot, state)
            elif commit.operation not in SERVICES:
                state = {} if commit.empty else base
            rows = (*rows, commit.instant)
        after.append((commit.slot, state))
        story.shown[rows] = story.states[commit.completion] = state
    return story


def _next(attempt: Attempt, snapshot: State, before: State) -> State:
    """The state after this one has landed."""
    state = dict(before)
    for group, seen in attempt.reads.items() - attempt.merged.items():
        if snapshot.get(group) != seen:
            raise Anomaly(f"{attempt.name} read {seen} in {group}; its snapshot held {snapshot.get(group)}")
    for partition in attempt.mark_scanned | attempt.region:
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
    total = sum(value.balance for value in before.values()) - attempt.removed
    if (there := sum(value.balance for value in state.values())) != total:
        raise Anomaly(f"after {attempt.name} the balances come to {there}, not {total}")
    if wrong := [g for g, value in state.items() if value.count != len(value.names)]:
        raise Anomaly(f"after {attempt.name} the counters of {wrong} are off")
    return state


def judge_tokens(entries: list[LogEntry], attempts: Sequence[Attempt], granted: dict[str, set[int]]) -> None:
    """Each commit was made under a lease on the lock in force at its slot, and later ones under later leases.

    With neighbours a handle may go on with a lease that it keeps for their clocks.
    """
    known = {a.instant for a in attempts}
    lock, generation, last, by, keeps = "", -1, 0, "", False
    for entry in entries:
        if isinstance(entry, Open | Setting):
            if entry.settings.generation != generation:
                last = 0
            lock, generation = entry.settings.lock, entry.settings.generation
            keeps = entry.settings.timeline_first
        elif (
            isinstance(entry, Commit)
            and not entry.imported
            and lock in granted
            and (entry.instant in known or entry.operation in SERVICES)
        ):
            if entry.token not in granted[lock]:
                raise Anomaly(f"commit {entry.instant} has token {entry.token}, which {lock} has never given")
            # Those of one entry were made under one lease.
            again = entry.token == last and not entry.place and not (keeps and entry.writer == by)
            if entry.token < last or again:
                raise Anomaly(f"commit {entry.instant} has token {entry.token}, the one before had {last}")
            last, by = entry.token, entry.writer


def judge_losses(
    store: Store,
    entries: list[LogEntry],
    attempts: list[Attempt],
    roots: Roots,
    *,
    bucketed: bool,
    foreign: Collection[str] = (),
) -> None:
    """Nobody was told that it lost without a true conflict: the winner has landed since the loser began, and they meet."""
    begun = {e.instant: e.slot for e in entries if isinstance(e, Begin)}
    commits = {e.instant: e for e in entries if isinstance(e, Commit)}
    ends = {e.instant: e.slot for e in entries if isinstance(e, End | Commit)}
    plans = {e.instant for e in entries if isinstance(e, Begin) and e.plan is not None}
    known = {a.instant: a for a in attempts if a.instant}
    for attempt in attempts:
        if not attempt.winner:
            continue
        winner = commits.get(attempt.winner)
        if attempt.winner in plans and ends.get(attempt.winner, math.inf) > ends.get(attempt.instant, math.inf):
            continue  # nobody could end that plan for as long as one waits
        if winner is None and attempt.instant in begun and attempt.winner in foreign:
            continue  # it has waited for that one in vain
        # One that a restore has beaten at its begin does not know its own T.
        if winner is None or winner.slot < begun.get(attempt.instant, 0 if winner.restores else math.inf):
            raise Anomaly(f"{attempt.name} lost against {attempt.winner}, which has not landed since it began")
        other = known.get(attempt.winner, Attempt("a service"))
        if winner.imported and attempt.winner not in foreign and (attempt.inserted or attempt.emails):
            continue  # the import of one of ours does not know what it has inserted, so that may be any key
        if attempt.duplicate and not attempt.inserted & other.inserted:
            raise Anomaly(f"{attempt.name} was told that {attempt.winner} has inserted its keys, and it has not")
        if attempt.level == "snapshot" and not winner.restores:
            theirs = write_set_of(store, winner, plain_metadata_of(store, winner))
            groups = frozenset(root for group in theirs.groups for root in roots(group))
            meets = _meet(attempt, replace(theirs, groups=groups), bucketed=bucketed)
            if winner.action in ("clean", "savepoint") or not (
                meets or attempt.inserted & other.inserted or attempt.emails & other.emails
            ):
                raise Anomaly(f"{attempt.name} lost against {attempt.winner}, and they have nothing in common")


def _meet(attempt: Attempt, theirs: WriteSet, *, bucketed: bool) -> bool:
    groups = attempt.writes.keys() | attempt.drops
    mine, others = ({(g.partition, bucket_of(g.file_id)) for g in some} for some in (groups, theirs.groups))
    return (
        bool(groups & theirs.groups)
        or (bucketed and bool(mine & others))
        or any(theirs.region.covers(p) for p in {g.partition for g in groups} | attempt.region)
        or any(g.partition in attempt.region for g in theirs.groups)
    )
