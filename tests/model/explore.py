"""Visits every state that a model can reach, nearest first, and shows the shortest way to a fault.

A model has a start, steps, and a judge. A judge's answer of None stands for a mirror image of another state, which is
not looked at again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Protocol, TypeVar

S = TypeVar("S", bound=Hashable)

STATES_MAX = 5_000_000


class Model(Protocol[S]):
    """What can be searched."""

    def start(self) -> S:
        """The first state."""

    def steps(self, state: S) -> Iterator[tuple[str, S]]:
        """Every next state, with who did what."""

    def judge(self, state: S) -> str | None:
        """The first invariant that does not hold, or an empty text; None for the mirror image of another state."""


@dataclass(frozen=True)
class Result:
    """What a search found: nothing, or a fault with the shortest way to it."""

    states: int
    fault: str = ""
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{n:3}. {line}" for n, line in enumerate(self.trace, 1)]
        return "\n".join([f"{self.fault or 'no fault'} ({self.states:,} states)", *lines])


def explore(
    model: Model[S],
    *,
    states_max: int = STATES_MAX,
    goals: dict[str, Callable[[S, S], bool]] | None = None,
) -> Result:
    """Visit every state until one is at fault.

    Args:
        goals: what must stay possible: in every state that is reached it is so (asked with that state twice), or some
            way leads to a step of which it is. So nobody waits in a circle, whoever else may go on.
    """
    start = model.start()
    parents: dict[S, S | None] = {start: None}
    before: dict[S, list[S]] = {start: []}
    reaching: dict[str, set[S]] = {name: set() for name in goals or {}}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for name, goal in (goals or {}).items():
            if goal(state, state):
                reaching[name].add(state)
        for _, after in model.steps(state):
            known = after in parents
            if not known:
                fault = model.judge(after)
                if fault is None:
                    continue
                parents[after] = state
                if fault:
                    return Result(len(parents), fault, _trace(model, parents, after))
                queue.append(after)
            if goals:
                before.setdefault(after, []).append(state)
                for name, goal in goals.items():
                    if goal(state, after):
                        reaching[name].add(state)
        if len(parents) > states_max:
            raise RuntimeError(f"more than {states_max:,} states: the bounds are too wide")
    for name, found in reaching.items():
        _close(found, before)
        for state in parents:
            if state not in found:
                return Result(len(parents), f"from here on never again: {name}", _trace(model, parents, state))
    return Result(len(parents))


def explore_wide(model: Model[S]) -> Result:
    """The same in a tenth of the memory: states are known by a 64-bit hash, and a fault comes without its trace."""
    start = model.start()
    seen, queue = {hash(start)}, deque([start])
    while queue:
        for _, after in model.steps(queue.popleft()):
            known = hash(after)
            if known in seen:
                continue
            fault = model.judge(after)
            if fault is None:
                continue
            seen.add(known)
            if fault:
                return Result(len(seen), fault)
            queue.append(after)
    return Result(len(seen))


def _close(found: set[S], before: dict[S, list[S]]) -> None:
    """Add every state from which one of ``found`` can be reached."""
    queue = deque(found)
    while queue:
        for earlier in before.get(queue.popleft(), ()):
            if earlier not in found:
                found.add(earlier)
                queue.append(earlier)


def _trace(model: Model[S], parents: dict[S, S | None], last: S) -> tuple[str, ...]:
    lines: list[str] = []
    after, before = last, parents[last]
    while before is not None:
        lines.append(next(what for what, s in model.steps(before) if s == after))
        after, before = before, parents[before]
    return tuple(reversed(lines))
