"""The search of all models: visits every state that one can reach, nearest first, and shows the shortest way to a fault.

A model has a start, steps, and a judge. A judge's answer of None stands for a mirror image of another state, which is
not looked at again. `Bounded` is what models have in common.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeVar

S = TypeVar("S", bound=Hashable)
Goals = dict[str, Callable[[S, S], bool]]

STATES_MAX = 5_000_000


class Model(Protocol[S]):
    """What can be searched."""

    def start(self) -> S:
        """The first state."""

    def steps(self, state: S) -> Iterator[tuple[str, S]]:
        """Every next state, with who did what."""

    def judge(self, state: S) -> str | None:
        """The first invariant that does not hold, or an empty text; None for the mirror image of another state."""


class Bounded:
    """All behaviours of one set of rules within one set of bounds, of processes that move one at a time.

    A class that inherits names the field of its states that holds its processes.
    """

    processes: ClassVar[str] = "writers"

    def __init__(self, rules: Any, bounds: Any) -> None:
        self.rules, self.bounds = rules, bounds

    def goals(self) -> Goals[Any]:
        """What must stay possible: everybody comes to an end."""
        return {"everybody ends": lambda _s, t: all(p.at == "end" for p in getattr(t, self.processes))}

    def each_moves(self, s: Any, moves: Callable[[Any, int, Any], Iterable[tuple[str, S]]]) -> Iterator[tuple[str, S]]:
        """The next states in which one of the processes has moved."""
        one = self.processes.removesuffix("s")
        for i, p in enumerate(getattr(s, self.processes)):
            for what, after in moves(s, i, p):
                yield f"{one} {i} {what}", after

    def moved(self, s: Any, i: int, p: Any, **changed: object) -> Any:
        """The state after that process has become ``p``."""
        there = getattr(s, self.processes)
        return s._replace(**{self.processes: (*there[:i], p, *there[i + 1 :]), **changed})

    def late_puts(self, s: Any, told: Callable[[Any], str]) -> Iterator[tuple[str, Any]]:
        """A put without an answer (``flying``: slot and entry) arrives, and counts if its slot is the next one."""
        for put in s.flying:
            slot, entry = put
            left = tuple(each for each in s.flying if each != put)
            after = s._replace(flying=left, log=(*s.log, entry) if slot == len(s.log) else s.log)
            yield f"a late put of {told(entry)} meets slot {slot}", after


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
    model: Model[S], *, states_max: float = STATES_MAX, goals: Goals[S] | None = None, wide: bool = False
) -> Result:
    """Visit every state until one is at fault.

    Args:
        goals: what must stay possible: in every state that is reached it is so (asked with that state twice), or some
            way leads to a step of which it is. So nobody waits in a circle, no matter who else may go on.
        wide: in a tenth of the memory: states are known by a 64-bit hash, and a fault comes without its trace.
    """
    assert not (wide and goals), "which need the states themselves"
    start = model.start()
    parents: dict[S | int, S | None] = {hash(start) if wide else start: None}
    before: dict[S, list[S]] = {start: []}
    reaching: dict[str, set[S]] = {name: set() for name in goals or {}}
    queue = deque([start])
    while queue:
        state = queue.popleft()
        for name, goal in (goals or {}).items():
            if goal(state, state):
                reaching[name].add(state)
        for _, after in model.steps(state):
            known = hash(after) if wide else after
            if known not in parents:
                fault = model.judge(after)
                if fault is None:
                    continue
                parents[known] = None if wide else state
                if fault:
                    return Result(len(parents), fault, () if wide else _trace(model, parents, after))
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
        for state in before:
            if state not in found:
                return Result(len(parents), f"from here on never again: {name}", _trace(model, parents, state))
    return Result(len(parents))


def _close(found: set[S], before: dict[S, list[S]]) -> None:
    """Add every state from which one of ``found`` can be reached."""
    queue = deque(found)
    while queue:
        for earlier in before.get(queue.popleft(), ()):
            if earlier not in found:
                found.add(earlier)
                queue.append(earlier)


def _trace(model: Model[S], parents: dict[S | int, S | None], last: S) -> tuple[str, ...]:
    lines: list[str] = []
    after, before = last, parents[last]
    while before is not None:
        lines.append(next(what for what, s in model.steps(before) if s == after))
        after, before = before, parents[before]
    return tuple(reversed(lines))
