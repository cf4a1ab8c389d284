"""The report: tables, as text that fits into a pull request, and as one self-contained page for a screen and a phone."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from ..results import Cell, Results, Spread
from .advice import Advice, advise
from .pictures import LANES_MAX, Chart, charts, lanes

BYTES_MAX = 1_000_000
ROLE_NAMES = ("writers", "system", "role", "a second", "aborted", "attempts a commit", "p50 ms", "p99 ms")
_TIMELINES = 3  # per scenario: ours, and the best of the others
_LANE_KEYS = (
    ("landed", "landed"),
    ("lost", "lost; the arrow leads to the winner"),
    ("waits", "waits for the lock"),
    ("held", "holds the lock"),
)


# --- figures, for both ----------------------------------------------------------------------------------------------


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
    held = cell.spread("lock_held_share").median
    return (
        *((cell.until_all.text(2),) if fixed else ()),
        cell.goodput.text(),
        aborted(cell),
        cell.spread("attempts_per_commit").text(2),
        cell.spread("latency_ms", "p50").text(),
        cell.spread("latency_ms", "p99").text(),
        f"{held:.0%}" if held else "",
        cell.spread("fairness", "ratio").text(2),
        cell.spread("longest_silence_s").text(2),
    )


def roles(cells: list[Cell]) -> list[tuple[str, ...]]:
    """Return the figures of each role of a scenario, in the columns of `ROLE_NAMES`; [] if there is one role only."""
    found: list[tuple[str, ...]] = []
    for cell in cells:
        names = [] if cell.wrong else sorted({name for run in cell.good for name in run["roles"]})
        for name in names if len(names) > 1 else ():
            runs = [run["roles"][name] for run in cell.good if name in run["roles"]]
            found.append((
                str(cell.writers), cell.system, name, Spread.of(run["per_s"] for run in runs).text(2),
                str(sum(run["aborted"] for run in runs)), Spread.of(run["attempts_per_commit"] for run in runs).text(2),
                *(Spread.of(run["latency_ms"][share] for run in runs).text() for share in ("p50", "p99")),
            ))  # fmt: skip
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


# --- text -----------------------------------------------------------------------------------------------------------


def markdown(results: Results) -> str:
    """Return the whole report as text."""
    return "\n\n".join(_blocks(results)) + "\n"


def _blocks(results: Results) -> Iterator[str]:
    yield "# Contention"
    if results.partial:
        yield "**Ended before its end: the last run is not counted, and others are missing.**"
    yield conditions(results)
    for scenario, cells in results.scenarios().items():
        yield f"## {scenario}"
        yield f"{_plain(cells[0].about)[:1].upper()}{_plain(cells[0].about)[1:]}."
        yield "\n".join(table(cells))
        if by_role := roles(cells):
            head = [f"| {' | '.join(ROLE_NAMES)} |", "|---:|---|---|---:|---:|---:|---:|---:|"]
            yield "\n".join(head + [f"| {' | '.join(map(_plain, row))} |" for row in by_role])
        if advice := advise(cells):
            yield "\n".join(f"- {_plain(each.words)}" + (f" *{each.rule}*" if each.rule else "") for each in advice)
        if reasons := [line for cell in cells for line in _reasons(cell)]:
            yield "What was lost, aborted or late:"
            yield "\n".join(reasons)
    yield "## Configurations"
    words = {cell.system: cell.configuration for cell in results.cells()}
    lines = [f"- {_plain(system)}: {_plain(configuration)}" for system, configuration in words.items()]
    yield "\n".join(lines + [f"- not measured: {_plain(each)}" for each in results.skipped])


def table(cells: list[Cell]) -> Iterator[str]:
    """Yield one row for each system and number of writers."""
    names, found = figures(cells)
    yield f"| writers | system | {' | '.join(names)} |"
    yield f"|---:|---|{'---:|' * len(names)}"
    for cell, values in zip(cells, found, strict=True):
        if values is None:
            values = (f"**{_plain(cell.wrong or 'ended before its end')}**", *[""] * (len(names) - 1))
        yield f"| {cell.writers} | {_plain(cell.system)} | {' | '.join(values)} |"


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


# --- page -----------------------------------------------------------------------------------------------------------


def page(results: Results) -> str:
    """Return the whole page, of at most `BYTES_MAX`; timelines are left out if it would be larger."""
    # Timelines are the largest part, and the report is complete without them.
    for timelines in (_TIMELINES, 1, 0):
        found = "".join(_parts(results, timelines))
        if len(found.encode()) <= BYTES_MAX:
            return found
    return found


def _parts(results: Results, timelines: int) -> Iterator[str]:
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    yield (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, '
        f'initial-scale=1"><title>Contention</title><style>{css}</style></head><body><h1>Contention</h1>'
    )
    if results.partial:
        yield '<p class="bad">Ended before its end: the last run is not counted, and others are missing.</p>'
    yield f'<p class="soft">{escape(conditions(results))}</p>'
    systems = list(dict.fromkeys(cell.system for cell in results.cells()))
    colours = {system: number for number, system in enumerate(systems)}
    for scenario, cells in results.scenarios().items():
        yield f"<h2>{escape(scenario)}</h2><p>{escape(cells[0].about[:1].upper() + cells[0].about[1:])}.</p>"
        if advice := advise(cells):
            yield f'<div class="advice">{"".join(map(_advice, advice))}</div>'
        yield f'<div class="charts">{"".join(map(_figure, charts(cells, colours)))}</div>'
        yield from _timelines(results, cells, timelines)
        yield _table(cells)
        yield from (f'<p class="soft">{escape(late)}.</p>' for cell in cells if (late := lateness(cell)))
        if by_role := roles(cells):
            yield _grid(ROLE_NAMES, "".join(f"<tr>{_cells(row)}</tr>" for row in by_role))
    yield "<h2>Configurations</h2>"
    for system, words in {cell.system: cell.configuration for cell in results.cells()}.items():
        yield f"<p><strong>{escape(system)}</strong>: {escape(words)}</p>"
    for words in results.skipped:
        yield f"<p>not measured: {escape(words)}</p>"
    yield "</body></html>\n"


def _advice(each: Advice) -> str:
    rule = f'<p class="soft">{escape(each.rule)}</p>' if each.rule else ""
    return f"<p>{escape(each.words)}</p>{rule}"


def _figure(chart: Chart) -> str:
    return f"<figure><h3>{escape(chart.title)}</h3>{chart.picture}{_legend(chart.legend)}</figure>"


def _legend(keys: tuple[tuple[str, str], ...]) -> str:
    inside = "".join(f'<span><i class="key {colour}"></i>{escape(words)}</span>' for colour, words in keys)
    return f'<div class="legend">{inside}</div>' if keys else ""


def _timelines(results: Results, cells: list[Cell], count: int) -> Iterator[str]:
    """Yield timelines for the largest number of writers that still fits: ours first, then others by their rate."""
    good = [cell for cell in cells if cell.good]
    fitting = [cell.writers for cell in good if cell.writers <= LANES_MAX] or [cell.writers for cell in good]
    there = [cell for cell in good if cell.writers == max(fitting, default=0)]
    there.sort(key=lambda cell: (not cell.ours, -cell.goodput.median))
    for cell in there[:count]:
        run = max(cell.good, key=lambda each: sum(each["lost_tries"].values()))
        operations, facts = results.history(run)
        if drawn := lanes(operations, facts.get("strikes", ())):
            title = f"{cell.system}, {cell.writers} writers: where most attempts lost"
            yield f'<figure class="wide"><h3>{escape(title)}</h3>{drawn}{_legend(_LANE_KEYS)}</figure>'


def _table(cells: list[Cell]) -> str:
    names, found = figures(cells)
    lines = []
    for cell, values in zip(cells, found, strict=True):
        words = escape(cell.wrong or "ended before its end")
        inside = f'<td class="bad" colspan="{len(names)}">{words}</td>' if values is None else _cells(values)
        lines.append(f"<tr><td>{cell.writers}</td><td>{escape(cell.system)}</td>{inside}</tr>")
    return _grid(("writers", "system", *names), "".join(lines))


def _grid(names: tuple[str, ...], lines: str) -> str:
    head = "".join(f"<th>{name}</th>" for name in names)
    return f'<div class="table"><table><tr>{head}</tr>{lines}</table></div>'


def _cells(values: tuple[str, ...]) -> str:
    return "".join(f"<td>{escape(value)}</td>" for value in values)
