"""The report as one self-contained page: text, tables, charts; for light and dark, for a screen and a phone."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from pathlib import Path

from ..results import Cell, Results
from .advice import Advice, advise
from .charts import Chart, charts
from .lanes import LANES_MAX, lanes
from .markdown import ROLE_NAMES, conditions, figures, lateness, roles

BYTES_MAX = 1_000_000
_TIMELINES = 3  # per scenario: ours, and the best of the others
_LANE_KEYS = (
    ("landed", "landed"),
    ("lost", "lost; the arrow leads to the winner"),
    ("waits", "waits for the lock"),
    ("held", "holds the lock"),
)


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
