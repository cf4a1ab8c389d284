"""Comparison of two folders of results, cell by cell."""

from __future__ import annotations

from dataclasses import dataclass

from ..results import Cell, Results, Spread


@dataclass(frozen=True, slots=True)
class Difference:
    """One cell in both: ``ratio`` is the second's goodput to the first's; ``certain`` if their rounds do not overlap."""

    scenario: str
    writers: int
    system: str
    first: Spread
    second: Spread
    ratio: float
    certain: bool
    note: str = ""


def compare(first: Results, second: Results) -> tuple[list[Difference], list[str]]:
    """Return the common cells, and reasons to doubt the comparison."""
    theirs = {_key(cell): cell for cell in second.cells()}
    found = [_difference(cell, theirs[_key(cell)]) for cell in first.cells() if _key(cell) in theirs]
    doubts = [
        f"{name} is {first.machine.get(name)} in the first and {second.machine.get(name)} in the second"
        for name in ("cores", "memory_mib", "system", "python", "versions")
        if first.machine.get(name) != second.machine.get(name)
    ]
    for name in ("seconds", "operations", "place"):
        a, b = first.machine["plan"].get(name), second.machine["plan"].get(name)
        if a != b:
            doubts.append(f"{name} is {a} in the first and {b} in the second")
    return found, doubts


def _key(cell: Cell) -> tuple[str, int, str]:
    return cell.scenario, cell.writers, cell.system


def _difference(a: Cell, b: Cell) -> Difference:
    x, y = a.goodput, b.goodput
    ratio = y.median / x.median if x.median else 0.0
    apart = y.least > x.most or y.most < x.least
    note = "; ".join(f"{which}: {cell.wrong}" for which, cell in (("first", a), ("second", b)) if cell.wrong)
    return Difference(a.scenario, a.writers, a.system, x, y, ratio, apart and not note, note)
