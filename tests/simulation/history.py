"""What the transactions of a schedule saw and did, and whether that is allowed.

Every file group holds a list, and a transaction appends its own name to the lists of the groups that it changes. So
each state of a group tells its whole history, and a lost, doubled or reordered write shows (the list-append workload of
Elle; Kingsbury and Alvaro, VLDB 2020).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lakelatch.conflict import FileGroupId
from lakelatch.occ.log_state import Begin, Commit, LogEntry

State = dict[FileGroupId, tuple[str, ...]]


class Anomaly(AssertionError):
    """The history is not one that the isolation level allows."""


@dataclass
class Attempt:
    """One transaction as its writer knows it; ``outcome`` stays "cut off" when the writer died."""

    name: str
    instant: str = ""
    operation: str = "upsert"
    reads: State = field(default_factory=dict)
    writes: dict[FileGroupId, str] = field(default_factory=dict)  # and the file that holds the new list
    drops: set[FileGroupId] = field(default_factory=set)
    saw: frozenset[FileGroupId] = frozenset()  # all groups of the partitions that an overwrite replaces
    region: frozenset[str] = frozenset()
    outcome: str = "cut off"


@dataclass
class Look:
    """What a reader of the timeline saw at once."""

    completed: tuple[str, ...]
    state: State


def judge(entries: list[LogEntry], attempts: list[Attempt], looks: list[Look], final: State, base: set[str]) -> None:
    """Raises `Anomaly`. ``base`` are instants that were there before."""
    known = {a.instant: a for a in attempts if a.instant}
    begun = {e.instant: e.slot for e in entries if isinstance(e, Begin)}
    commits = [e for e in entries if isinstance(e, Commit)]
    _outcomes(commits, known, base)
    states = _replay(commits, begun, known, base)
    if final != states[-1]:
        raise Anomaly(f"the table holds {final}, the log says {states[-1]}")
    order = [c.instant for c in commits]
    for look in looks:
        seen = [t for t in look.completed if t in order]
        if seen != [t for t in order if t in seen] or seen != order[: len(seen)]:
            raise Anomaly(f"the timeline showed {seen}, which is no beginning of the log's order {order}")
        if look.state != states[len(seen)]:
            raise Anomaly(f"with {seen} completed a reader saw {look.state}, not {states[len(seen)]}")


def _outcomes(commits: list[Commit], known: dict[str, Attempt], base: set[str]) -> None:
    landed = {c.instant for c in commits}
    for instant in landed - base:
        attempt = known.get(instant)
        if attempt is None:
            raise Anomaly(f"{instant} has landed and nobody made it")
        if attempt.outcome not in ("committed", "unknown", "cut off"):
            raise Anomaly(f"{attempt.name} was told {attempt.outcome!r}, but {instant} has landed")
    for attempt in known.values():
        if attempt.outcome == "committed" and attempt.instant not in landed:
            raise Anomaly(f"{attempt.name} was told that {attempt.instant} has landed, but it has not")


def _replay(commits: list[Commit], begun: dict[str, int], known: dict[str, Attempt], base: set[str]) -> list[State]:
    """The states after 0, 1, ... commits in the order of the log."""
    states: list[State] = [{}]
    for number, commit in enumerate(commits):
        state = dict(states[-1])
        attempt = known.get(commit.instant)
        if attempt is None:
            assert commit.instant in base
            state.update({g: () for g in _groups_of(commit)})
            states.append(state)
            continue
        before = sum(c.slot < begun[commit.instant] for c in commits[:number])
        snapshot = states[before]
        for group, seen in attempt.reads.items():
            if snapshot.get(group) != seen:
                raise Anomaly(f"{attempt.name} read {seen} in {group}; its snapshot held {snapshot.get(group)}")
        for group in attempt.writes.keys() & attempt.reads.keys() | attempt.drops:
            if state.get(group) != snapshot.get(group):
                raise Anomaly(
                    f"lost update: {attempt.name} changed {group} as of {snapshot.get(group)}, when it was {state.get(group)}"
                )
        for group in state:
            if group.partition in attempt.region and group not in attempt.drops:
                raise Anomaly(f"phantom: {attempt.name} overwrote {group.partition} and {group} survived it")
        for group in attempt.drops:
            del state[group]
        for group in attempt.writes:
            state[group] = (*attempt.reads.get(group, ()), attempt.name)
        states.append(state)
    return states


def _groups_of(commit: Commit) -> list[FileGroupId]:
    return [FileGroupId(s["partition"], s["file_id"]) for s in (commit.metadata or {}).get("stats", ())]
