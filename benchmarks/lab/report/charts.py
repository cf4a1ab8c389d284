"""The charts of one scenario; each answers one question."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from ..measures import CURVE
from ..results import Cell
from .svg import (
    BOTTOM,
    COLOURS,
    HIGH,
    LEFT,
    RIGHT,
    TOP,
    WIDE,
    axes,
    decades,
    element,
    linear,
    logarithmic,
    path,
    picture,
    short,
    text,
    ticks,
    titled,
)

_REASONS, _LEGEND = 5, 16
_X0, _X1, _Y0, _Y1 = float(LEFT), float(WIDE - RIGHT), float(HIGH - BOTTOM), float(TOP + 6)


@dataclass(frozen=True, slots=True)
class Chart:
    """A picture with its title, and the meaning of its colours: class and words."""

    title: str
    picture: str
    legend: tuple[tuple[str, str], ...] = ()


def charts(cells: list[Cell], colours: dict[str, int]) -> list[Chart]:
    """Return all charts of a scenario. ``colours`` numbers its systems, the same in all scenarios."""
    good = [cell for cell in cells if cell.good and not cell.wrong]
    if not good:
        return []
    most = max(cell.writers for cell in good)
    there = [cell for cell in good if cell.writers == most]
    found = [_goodput(good, colours)]
    found += _curves(
        there, colours, "latency_curve_ms", f"Latency at {most} writers: share of operations that were as quick"
    )
    found += _curves(there, colours, "lock_wait_curve_ms", f"Wait for the lock at {most} writers")
    found += _lost(there, most)
    found += _fairness(there, colours, most)
    return found


def standalone(chart: Chart) -> str:
    """Return the picture as a file of its own: with its colours, for light and dark, and a legend below."""
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    high = HIGH + 6 + _LEGEND * len(chart.legend)
    inside = [element("style", css), element("rect", width=WIDE, height=high, style="fill:var(--back)"), chart.picture]
    for number, (colour, words) in enumerate(chart.legend):
        y = HIGH + 6.0 + _LEGEND * number
        inside.append(element("rect", x=float(LEFT), y=y, width=10, height=10, class_=f"fill {colour}"))
        inside.append(text(words, LEFT + 16, y + 9))
    return picture(inside, chart.title, high=high) + "\n"


def _colour(cell: Cell, colours: dict[str, int]) -> str:
    return f"s{colours[cell.system] % COLOURS}"


def _legend(cells: list[Cell], colours: dict[str, int]) -> tuple[tuple[str, str], ...]:
    return tuple(dict.fromkeys((_colour(cell, colours), cell.system) for cell in cells))


def _goodput(cells: list[Cell], colours: dict[str, int]) -> Chart:
    writers = sorted({cell.writers for cell in cells})
    marks = ticks(max(cell.goodput.most for cell in cells))
    y = linear(0, marks[-1], _Y0, _Y1)
    x = linear(0, max(len(writers) - 1, 1), _X0 + 24, _X1 - 14)
    at = {count: x(n) if len(writers) > 1 else (_X0 + _X1) / 2 for n, count in enumerate(writers)}
    inside = axes(
        [(at[w], str(w)) for w in writers], [(y(m), short(m)) for m in marks], "writers", "operations a second"
    )
    systems = list(dict.fromkeys(cell.system for cell in cells))
    for number, system in enumerate(systems):
        mine = [cell for cell in cells if cell.system == system]
        # Side by side, so that no spread hides another.
        shift = (number - (len(systems) - 1) / 2) * (3 if len(writers) > 1 else 24)
        colour = _colour(mine[0], colours)
        points = [(at[cell.writers] + shift, y(cell.goodput.median)) for cell in mine]
        inside.append(path(points, class_=f"line {colour}"))
        for cell, (px, py) in zip(mine, points, strict=True):
            whisker = element(
                "line", x1=px, x2=px, y1=y(cell.goodput.least), y2=y(cell.goodput.most), class_=f"line {colour}"
            )
            dot = element("circle", cx=px, cy=py, r=3.5, class_=f"fill {colour}")
            inside.append(titled(whisker + dot, f"{system}, {cell.writers} writers: {cell.goodput.text()} a second"))
    return Chart("Goodput", picture(inside, "operations a second by number of writers"), _legend(cells, colours))


def _curves(cells: list[Cell], colours: dict[str, int], figure: str, title: str) -> list[Chart]:
    lines = {}
    for cell in cells:
        each = [run[figure] for run in cell.good if run[figure]]
        if each:
            lines[cell.system] = (cell, [median(values) for values in zip(*each, strict=True)])
    top = max((values[-1] for _, values in lines.values()), default=0.0)
    if top <= 0:
        return []
    low = max(min(max(values[0], 0.01) for _, values in lines.values()), top / 1e5)
    marks = decades(low, top)
    y = logarithmic(marks[0], marks[-1], _Y0, _Y1)
    # The x axis is by "nines": the share of slower operations on a logarithmic scale.
    place = logarithmic(0.001, 1.0, _X1, _X0)
    shown = [0.0, 0.5, 0.9, 0.99, 0.999]
    inside = axes(
        [(place(1 - share), f"{share:.1%}".replace(".0%", "%")) for share in shown],
        [(y(mark), short(mark)) for mark in marks],
        "share of operations", "milliseconds",
    )  # fmt: skip
    for system, (cell, values) in lines.items():
        points = [(place(1 - share), y(value)) for share, value in zip(CURVE, values, strict=True) if share < 1]
        line = path([*points, (_X1, y(values[-1]))], class_=f"line {_colour(cell, colours)}")
        inside.append(titled(line, f"{system}: slowest {values[-1]:.1f} ms"))
    return [Chart(title, picture(inside, title), _legend([cell for cell, _ in lines.values()], colours))]


def _lost(cells: list[Cell], writers: int) -> list[Chart]:
    """Return bars of attempts that lost and operations that aborted, by reason, for each system."""
    found: dict[str, Counter[str]] = {}
    for cell in cells:
        lost = cell.reasons("lost_tries") + Counter({f"aborted: {r}": n for r, n in cell.reasons("aborts").items()})
        if lost:
            found[cell.system] = lost
    if not found:
        return []
    most = Counter({reason: n for lost in found.values() for reason, n in lost.items()}).most_common(_REASONS)
    reasons = [reason for reason, _ in most]
    marks = ticks(max(sum(lost.values()) for lost in found.values()))
    x = linear(0, marks[-1], _X0, _X1)
    inside = [
        *(element("line", x1=x(m), x2=x(m), y1=float(TOP), y2=_Y0, class_="grid") for m in marks),
        *(text(short(m), x(m), HIGH - BOTTOM + 15, text_anchor="middle") for m in marks),
        text("attempts, all rounds", (LEFT + WIDE - RIGHT) / 2, HIGH - 4, text_anchor="middle", class_="words"),
    ]
    step = min((_Y0 - TOP) / len(found), 60.0)
    for row, (system, lost) in enumerate(found.items()):
        top, at = TOP + row * step, 0
        inside.append(text(system[:60], LEFT, top + 11))
        others = sum(n for reason, n in lost.items() if reason not in reasons)
        for number, (reason, count) in enumerate([*((r, lost[r]) for r in reasons), ("other reasons", others)]):
            if count:
                bar = element(
                    "rect", x=x(at), y=top + 15, width=max(x(at + count) - x(at), 0.5), height=max(step - 20, 4.0),
                    class_=f"fill s{number % COLOURS}",
                )  # fmt: skip
                inside.append(titled(bar, f"{system}: {count} x {reason}"))
            at += count
    legend = tuple((f"s{number % COLOURS}", reason) for number, reason in enumerate(reasons))
    return [Chart(f"What was lost at {writers} writers, by reason", picture(inside, "lost attempts by reason"), legend)]


def _fairness(cells: list[Cell], colours: dict[str, int], writers: int) -> list[Chart]:
    """Return each writer's operations as a share of the fastest one's, sorted."""
    lines = {}
    for cell in cells:
        run = max(cell.good, key=lambda each: each["round"])
        each, fastest = run["fairness"]["each"], run["fairness"]["fastest"]
        if len(each) > 1 and fastest:
            lines[cell.system] = (cell, [value / fastest for value in each], run["fairness"])
    if not lines:
        return []
    y = linear(0, 1, _Y0, _Y1)
    count = max(len(values) for _, values, _ in lines.values())
    x = linear(0, count - 1, _X0 + 14, _X1 - 14)
    inside = axes(
        [(x(0), "slowest"), (x(count - 1), "fastest")],
        [(y(m / 4), f"{m / 4:.0%}") for m in range(5)],
        "writers",
        "of the fastest",
    )
    for system, (cell, values, facts) in lines.items():
        places = linear(0, len(values) - 1, x(0), x(count - 1))
        points = [(places(n), y(value)) for n, value in enumerate(values)]
        colour = _colour(cell, colours)
        dots = "".join(element("circle", cx=px, cy=py, r=2.5, class_=f"fill {colour}") for px, py in points)
        words = f"{system}: {facts['slowest']} to {facts['fastest']} operations"
        inside.append(titled(path(points, class_=f"line {colour}") + dots, words))
    title = f"What each of {writers} writers got, beside the fastest"
    return [Chart(title, picture(inside, title), _legend([cell for cell, _, _ in lines.values()], colours))]
