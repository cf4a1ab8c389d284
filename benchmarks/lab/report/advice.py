"""Recommendations from the figures of a scenario, each with the rule that led to it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from ..results import Cell

_SAME = 0.1  # rates that differ by less count as equal
_BUSY = 0.7  # share of time; beyond it waits grow faster than the load
_FAIR = 0.6
_STARVED = 0.2
_KEPT = 0.8


@dataclass(frozen=True, slots=True)
class Advice:
    """A sentence, and the rule behind it; "" if another sentence has stated the rule."""

    words: str
    rule: str


def advise(cells: list[Cell]) -> list[Advice]:
    """Return the advice for one scenario; [] if no system has a figure. Each rule is stated once."""
    good = [cell for cell in cells if cell.good and not cell.wrong and cell.goodput.median > 0]
    found: list[Advice] = []
    for cell in cells:
        if cell.wrong:
            words = f"{cell.system} with {cell.writers} writers has no rate: {cell.wrong}"
            found.append(Advice(words, "A run that is wrong has no rate."))
    if not good:
        return _rules_once(found)
    most = max(cell.writers for cell in good)
    there = [cell for cell in good if cell.writers == most]
    found += _best(there, most)
    for cell in there:
        if cell.ours:
            found += _of_lock(cell)
        found += _of_fairness(cell)
    return _rules_once(found + _of_growth(good))


def _best(there: list[Cell], writers: int) -> list[Advice]:
    if len(there) < 2:
        return []
    # A system that lets writers starve can have the best rate, and is not recommended for it.
    even = [cell for cell in there if _evenness(cell) >= _STARVED] or there
    ranked = sorted(even, key=lambda cell: -cell.goodput.median)
    best = ranked[0]
    close = [
        c
        for c in ranked
        if c.goodput.most >= best.goodput.least or c.goodput.median >= (1 - _SAME) * best.goodput.median
    ]
    rule = (
        f"The greatest median of acknowledged operations a second at {writers} writers, of those systems whose slowest writer "
        f"makes {_STARVED:.0%} of the fastest at least (or of all, if none does). Systems are the same if they differ by less "
        f"than {_SAME:.0%}, or if their rounds overlap. Among these the steadiest is named: the least p99."
    )
    if len(close) > 1:
        calm = min(close, key=lambda c: c.spread("latency_ms", "p99").median)
        names = ", ".join(c.system for c in close)
        words = f"With {writers} writers take {calm.system}: {names} are equally fast, and it has the least p99."
    else:
        words = f"With {writers} writers take {best.system}: {best.goodput.median:.1f} operations a second"
        words += (
            f", {best.goodput.median / ranked[1].goodput.median:.1f} times {ranked[1].system}." if ranked[1:] else "."
        )
    starving = [c for c in there if c not in even and c.goodput.median > best.goodput.median]
    for cell in starving:
        words += f" {cell.system} makes {cell.goodput.median:.1f}, and lets writers starve."
    return [Advice(words, rule)]


def _evenness(cell: Cell) -> float:
    return cell.spread("fairness", "ratio").median


def _of_lock(cell: Cell) -> list[Advice]:
    held = cell.spread("lock_held_share").median
    if held <= 0:
        return []
    limit = cell.goodput.median / held
    rule = (
        "The lock is held by one writer at a time, so it carries the rate divided by the share of time that it is held; waits "
        f"grow quickly beyond {_BUSY:.0%} of that."
    )
    if held < _BUSY:
        words = (
            f"{cell.system}: the lock is held {held:.0%} of the time at {cell.goodput.median:.1f} operations a second; expect "
            f"trouble beyond {_BUSY * limit:.0f}."
        )
    else:
        words = (
            f"{cell.system}: the lock is held {held:.0%} of the time: it is the bottleneck, and more writers will only wait. "
            "Make what they change smaller, or split the table."
        )
    return [Advice(words, rule)]


def _of_fairness(cell: Cell) -> list[Advice]:
    ratio = _evenness(cell)
    if ratio >= _FAIR or cell.spread("fairness", "fastest").median < 10:
        return []
    words = f"{cell.system}: the slowest writer makes {ratio:.0%} of what the fastest makes."
    words += " A fair lock (Redis, ZooKeeper) serves in order." if cell.ours else ""
    return [Advice(words, f"Slowest to fastest writer of one role below {_FAIR:.0%}.")]


def _of_growth(good: list[Cell]) -> list[Advice]:
    by_system: dict[str, list[Cell]] = defaultdict(list)
    for cell in good:
        by_system[cell.system].append(cell)
    slower = []
    for system, cells in by_system.items():
        best = max(cells, key=lambda cell: cell.goodput.median)
        last = max(cells, key=lambda cell: cell.writers)
        share = last.goodput.median / best.goodput.median
        if share < _KEPT:
            slower.append(f"{system} with {best.writers} ({last.writers} make {share:.0%} of that)")
    if not slower:
        return []
    return [
        Advice(
            f"Fastest with fewer writers: {', '.join(slower)}.",
            f"Goodput at the most writers below {_KEPT:.0%} of its best.",
        )
    ]


def _rules_once(advice: list[Advice]) -> list[Advice]:
    """Return the same advice, with each rule only where it comes first."""
    told: set[str] = set()
    found = []
    for each in advice:
        found.append(Advice(each.words, "" if each.rule in told else each.rule))
        told.add(each.rule)
    return found
