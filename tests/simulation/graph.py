"""Judges a history by what transactions read, and by nothing else: dependencies, and cycles among them.

Anyone who reads a list that ends with T2's name after T1's knows that T1 wrote before T2. So

    ww  T1 -> T2   T2 appended right after T1
    wr  T1 -> T2   T2 read a list that ends with T1
    rw  T1 -> T2   T1 read a list to which T2 appended next, or did not see a group that T2 made
    rt  T1 -> T2   T1 was told that it had landed before T2 began

Under `serializable` no cycle may be. Under `snapshot` a cycle needs two rw next to each other, which is write skew;
any other means that somebody read half a transaction, a stale state, or lost an update (Adya, "Weak Consistency", 1999;
Kingsbury and Alvaro, "Elle", VLDB 2020; Cerone and Gotsman, "Analysing Snapshot Isolation", 2016).
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import Any

from .history import FOUNDER, MAY_HAVE_LANDED, Anomaly, Attempt, State

Edges = dict[str, dict[str, str]]  # from, to, why


def check(attempts: Iterable[Attempt], looks: Iterable[State]) -> None:
    """Raises `Anomaly` for what the levels of the transactions do not allow. ``looks``: states that readers saw."""
    known = {a.name: a for a in attempts}
    lists = _versions(known, [*(a.reads for a in known.values()), *looks])
    told = {name for names in lists.values() for name in names if not name.startswith(FOUNDER)}
    for name in told - known.keys():
        raise Anomaly(f"somebody read {name}, which nobody wrote")
    for name in told:
        if known[name].outcome not in MAY_HAVE_LANDED:
            raise Anomaly(f"aborted read: {name} was told {known[name].outcome!r} and was read all the same")
    landed = {n: a for n, a in known.items() if a.outcome == "committed" or n in told}
    firm, anti = _dependencies(landed, known, lists)
    levels = {a.level for a in landed.values()}
    if levels == {"serializable"}:
        _refuse_cycle({n: firm.get(n, {}) | anti.get(n, {}) for n in landed}, "no serial order gives it")
    # A step is a firm dependency, with at most one anti-dependency before it.
    steps: Edges = {n: dict(firm.get(n, {})) for n in landed}
    for one, twos in anti.items():
        for two, why in twos.items():
            for three, then in firm.get(two, {}).items():
                steps[one].setdefault(three, f"{why} {two}, {then}")
    _refuse_cycle(steps, "not even snapshot isolation allows it")


def without(undone: Set[str], attempts: Iterable[Attempt], looks: Iterable[State]) -> tuple[list[Attempt], list[State]]:
    """The history that restores have left: without what they took back, and who saw any of it."""
    gone = {a.name for a in attempts if a.instant in undone}

    def saw(state: State) -> bool:
        return bool(gone) and any(not gone.isdisjoint(value.names) for value in state.values())

    left = [a for a in attempts if a.name not in gone and not saw(a.reads)]
    return left, [look for look in looks if not saw(look)]


def write_skews(attempts: Iterable[Attempt], looks: Iterable[State]) -> list[str]:
    """Pairs that each read what the other one wrote: what `snapshot` allows and `serializable` does not."""
    known = {a.name: a for a in attempts}
    lists = _versions(known, [*(a.reads for a in known.values()), *looks])
    landed = {n: a for n, a in known.items() if a.outcome == "committed"}
    _, anti = _dependencies(landed, known, lists)
    return [f"{one} and {two}" for one in anti for two in anti[one] if one < two and one in anti.get(two, {})]


def _versions(known: Mapping[str, Attempt], seen: Iterable[State]) -> dict[Any, tuple[str, ...]]:
    """The longest list of each group; all others that were read must be its beginnings."""
    lists: dict[Any, tuple[str, ...]] = {}
    wrote = (a.writes for a in known.values() if a.outcome == "committed")
    for state in (*seen, *wrote):
        for group, value in state.items():
            longest, names = lists.get(group, ()), value.names
            if len(names) > len(longest):
                longest, names = names, longest
            if longest[: len(names)] != names:
                raise Anomaly(f"lost update: {group} was {names} for one and {longest} for another")
            if len(set(longest)) < len(longest):
                raise Anomaly(f"{group} holds a write twice: {longest}")
            lists[group] = longest
    return lists


def _dependencies(
    landed: Mapping[str, Attempt], known: Mapping[str, Attempt], lists: Mapping[Any, tuple[str, ...]]
) -> tuple[Edges, Edges]:
    firm: Edges = defaultdict(dict)
    anti: Edges = defaultdict(dict)

    def edge(edges: Edges, one: str, two: str, why: str) -> None:
        if one != two and one in landed and two in landed:
            edges[one].setdefault(two, why)

    makers = {group: names[0] for group, names in lists.items()}
    droppers = {group: a.name for a in landed.values() for group in a.drops}
    gone = {group for a in known.values() for group in a.drops}  # perhaps: who does not see it proves nothing
    for names in lists.values():
        for one, two in itertools.pairwise(names):
            edge(firm, one, two, "ww")
    for reader in landed.values():
        for group, value in reader.reads.items():
            names = lists[group]
            edge(firm, value.names[-1], reader.name, "wr")
            if len(value.names) < len(names):
                edge(anti, reader.name, names[len(value.names)], "rw")
            if group in droppers:
                edge(anti, reader.name, droppers[group], "rw")
        for group, maker in makers.items():
            if (
                group.partition in reader.mark_scanned | reader.region
                and group not in reader.reads
                and group not in gone
            ):
                edge(anti, reader.name, maker, "rw")
    order = sorted(landed.values(), key=lambda a: a.began)
    for one in landed.values():
        if one.outcome == "committed":
            for two in order:
                if two.began > one.ended:
                    edge(firm, one.name, two.name, "rt")
    return firm, anti


def _refuse_cycle(edges: Edges, why: str) -> None:
    done: set[str] = set()
    for start in sorted(edges):
        path: list[str] = []
        on_path: set[str] = set()
        stack: list[tuple[str, list[str]]] = [(start, sorted(edges[start]))] if start not in done else []
        while stack:
            node, rest = stack[-1]
            if node not in on_path:
                path.append(node)
                on_path.add(node)
            if not rest:
                stack.pop()
                path.pop()
                on_path.discard(node)
                done.add(node)
                continue
            after = rest.pop(0)
            if after in on_path:
                cycle = [*path[path.index(after) :], after]
                told = " ".join(f"{one} -{edges[one][two]}->" for one, two in itertools.pairwise(cycle))
                raise Anomaly(f"a cycle, {why}: {told} {after}")
            if after not in done:
                stack.append((after, sorted(edges.get(after, {}))))
