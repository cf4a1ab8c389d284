"""The report as text, with tables that fit into a pull request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ..results import Cell, Results, Spread
from .advice import advise


def markdown(results: Results) -> str:
    """Return the whole report."""
    return "\n".join(_lines(results)) + "\n"


def _lines(results: Results) -> Iterator[str]:
    yield "# Contention"
    yield ""
    if results.partial:
        yield "**Ended before its end: the last run is not counted, and others are missing.**"
        yield ""
    yield conditions(results)
    for scenario, cells in results.scenarios().items():
        yield ""
        yield f"## {scenario}"
        yield ""
        yield f"{_plain(cells[0].about)[:1].upper()}{_plain(cells[0].about)[1:]}."
        yield ""
        yield from table(cells)
        if by_role := roles(cells):
            yield ""
            yield f"| {' | '.join(ROLE_NAMES)} |"
            yield "|---:|---|---|---:|---:|---:|---:|---:|"
            yield from (f"| {' | '.join(map(_plain, row))} |" for row in by_role)
        if advice := advise(cells):
            yield ""
            for each in advice:
                yield f"- {_plain(each.words)}" + (f" *{each.rule}*" if each.rule else "")
        reasons = [line for cell in cells for line in _reasons(cell)]
        if reasons:
            yield ""
            yield "What was lost, aborted or late:"
            yield ""
            yield from reasons
    yield ""
    yield "## Configurations"
    yield ""
    for system, words in {cell.system: cell.configuration for cell in results.cells()}.items():
        yield f"- {_plain(system)}: {_plain(words)}"
    for words in results.skipped:
        yield f"- not measured: {_plain(words)}"


def conditions(results: Results) -> str:
    """Return machine, versions and parameters, in one paragraph."""
    machine, plan = results.machine, results.machine["plan"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    length = f"{plan['operations']} operations by each writer" if plan["operations"] else f"{plan['seconds']:g} s"
    return (
        f"{machine['cores']} cores, {machine['memory_mib']:,} MiB, {machine['system']}, Python {machine['python']}; {versions}; "
        f"load before {machine['load']:g}. {length} in {plan['rounds']} rounds, systems in turns, seed {plan['seed']}, in "
        f"{_plain(str(plan['place']))}. Medians; in brackets the least and the greatest of the rounds. Figures belong "
        "to this machine; compare ratios within one run."
    )


def figures(cells: list[Cell]) -> tuple[tuple[str, ...], list[tuple[str, ...] | None]]:
    """Return the names of the columns after writers and system, and the figures of each cell; None for a cell without a rate.

    Runs of fixed work open with the seconds until every writer had done its work: that is the figure to compare.
    """
    fixed = any(cell.fixed for cell in cells)
    names = (
        *(("s until all are done",) if fixed else ()), "a second", "aborted", "attempts a commit", "p50 ms", "p99 ms",
        "lock held", "slowest to fastest", "longest silence s",
    )  # fmt: skip
    return names, [_figures(cell, fixed=fixed) if cell.good and not cell.wrong else None for cell in cells]


def _figures(cell: Cell, *, fixed: bool) -> tuple[str, ...]:
    held = cell.spread(lambda run: run["lock_held_share"]).median
    return (
        *((cell.until_all.text(2),) if fixed else ()),
        cell.goodput.text(),
        aborted(cell),
        cell.spread(lambda run: run["attempts_per_commit"]).text(2),
        cell.spread(lambda run: run["latency_ms"]["p50"]).text(),
        cell.spread(lambda run: run["latency_ms"]["p99"]).text(),
        f"{held:.0%}" if held else "",
        cell.spread(lambda run: run["fairness"]["ratio"]).text(2),
        cell.spread(lambda run: run["longest_silence_s"]).text(2),
    )


def table(cells: list[Cell]) -> Iterator[str]:
    """Yield one row for each system and number of writers."""
    names, found = figures(cells)
    yield f"| writers | system | {' | '.join(names)} |"
    yield f"|---:|---|{'---:|' * len(names)}"
    for cell, values in zip(cells, found, strict=True):
        if values is None:
            values = (f"**{_plain(cell.wrong or 'ended before its end')}**", *[""] * (len(names) - 1))
        yield f"| {cell.writers} | {_plain(cell.system)} | {' | '.join(values)} |"


ROLE_NAMES = ("writers", "system", "role", "a second", "aborted", "attempts a commit", "p50 ms", "p99 ms")


def roles(cells: list[Cell]) -> list[tuple[str, ...]]:
    """Return the figures of each role of a scenario, in the columns of `ROLE_NAMES`; [] if there is one role only."""
    found: list[tuple[str, ...]] = []
    for cell in cells:
        names = [] if cell.wrong else sorted({name for run in cell.good for name in run["roles"]})
        for name in names if len(names) > 1 else ():
            of_role = [run["roles"][name] for run in cell.good if name in run["roles"]]

            def spread(figure: Callable[[dict[str, Any]], float], of_role: list[dict[str, Any]] = of_role) -> Spread:
                return Spread.of(figure(each) for each in of_role)

            found.append(
                (
                    str(cell.writers),
                    cell.system,
                    name,
                    spread(lambda each: each["per_s"]).text(2),
                    str(sum(each["aborted"] for each in of_role)),
                    spread(lambda each: each["attempts_per_commit"]).text(2),
                    spread(lambda each: each["latency_ms"]["p50"]).text(),
                    spread(lambda each: each["latency_ms"]["p99"]).text(),
                )
            )
    return found


def aborted(cell: Cell) -> str:
    """Return how many operations aborted, and how many failed for another reason than a conflict."""
    failed = cell.count("failed_operations")
    return f"{cell.count('aborted')}" + (f", {failed} failed" if failed else "")


def lateness(cell: Cell) -> str:
    """Return a sentence about operations that did not begin when they were due; "" if all did."""
    late, never = cell.count("late_starts"), cell.count("never_begun")
    if not late and not never:
        return ""
    return f"{cell.writers} x {cell.system}: {late} operations began late, and {never} that were due never began"


def _reasons(cell: Cell) -> Iterator[str]:
    for what, name in (("lost", "lost_tries"), ("aborted", "aborts"), ("failed", "errors")):
        for reason, count in cell.reasons(name).most_common(5):
            words = reason or "its writer was killed"
            yield f"- {cell.writers} x {_plain(cell.system)}: {count} {what}: {_plain(words)}"
    if late := lateness(cell):
        yield f"- {_plain(late)}"


def _plain(text: str) -> str:
    """Return text from outside, escaped so that it does not end a cell of a table."""
    return " ".join(text.replace("|", "\\|").replace("<", "&lt;").split())
