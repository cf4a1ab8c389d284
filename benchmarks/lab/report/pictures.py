"""The pictures of one scenario, as static SVG: charts, each of which answers one question, and the timeline of a run.

Colours are classes, which the page sets for light and dark.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from ..operations import DONE, Operation
from ..results import CURVE, Cell

WIDE, HIGH = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 22, 12, 34
COLOURS = 8
_REASONS, _LEGEND = 5, 16
_X0, _X1, _Y0, _Y1 = float(LEFT), float(WIDE - RIGHT), float(HIGH - BOTTOM), float(TOP + 6)
LANES_MAX = 16
_BARS_MAX = 160  # in the window; more cannot be distinguished
_LANES_WIDE, _LANES_LEFT, _LANE, _LANES_TOP = 900.0, 92.0, 24.0, 8.0

Scale = Callable[[float], float]


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


# --- the timeline of a run -------------------------------------------------------------------------------------------


def lanes(operations: list[Operation], strikes: Iterable[dict[str, Any]] = ()) -> str:
    """Return the picture of the part of a run in which most attempts were lost; "" if nothing was done.

    Lost attempts are red, successful ones grey, the lock's holder green with the wait for it thin before. An arrow leads from
    a lost attempt to the commit that it lost against, if the system reports it.
    """
    counted = [each for each in operations if not each.warm and each.tries and each.ended]
    writers = sorted({each.writer for each in counted})[:LANES_MAX]
    counted = [each for each in counted if each.writer in set(writers)]
    if not counted:
        return ""
    begin, end = window(counted)
    x = linear(begin, end, _LANES_LEFT, _LANES_WIDE - 8)
    row = {writer: _LANES_TOP + n * _LANE for n, writer in enumerate(writers)}
    high = _LANES_TOP + len(writers) * _LANE + 26
    roles = {each.writer: each.role for each in counted}
    inside = [
        element(
            "defs",
            element(
                "marker", element("path", d="M0 0L6 3L0 6z", class_="arrowhead"),
                id="to", markerWidth=6, markerHeight=6, refX=5, refY=3, orient="auto",
            ),
        )
    ]  # fmt: skip
    inside += list(_frame(begin, end, high, [(f"{w} {roles[w]}"[:15], row[w]) for w in writers]))
    seen = [each for each in counted if each.ended >= begin and each.began <= end]
    for each in seen:
        inside += list(_operation(each, row[each.writer], begin, end))
    inside += list(_arrows(seen, {each.commit: each for each in counted if each.commit}, row, begin, end))
    for strike in strikes:
        whom = strike["writer"]
        struck = writers if whom is None else [whom] if whom in row else []  # None: what befalls all of them
        for writer in struck if begin <= strike["at"] <= end else []:
            at = text("✕", x(strike["at"]), row[writer] + 16, text_anchor="middle", class_="strike")
            inside.append(titled(at, f"{'' if whom is None else f'writer {whom}: '}{strike['kind']}"))
    return picture(inside, "who did what when, a lane for each writer", wide=_LANES_WIDE, high=high)


def window(operations: list[Operation]) -> tuple[float, float]:
    """Return the time window with most lost attempts that holds as many operations as can be distinguished."""
    ordered = sorted(operations, key=lambda each: each.began)
    size = min(_BARS_MAX, len(ordered))
    lost = [len(each.tries) - 1 + (each.outcome != DONE) for each in ordered]
    score = best = sum(lost[:size])
    first = 0
    for at in range(size, len(ordered)):
        score += lost[at] - lost[at - size]
        if score > best:
            best, first = score, at - size + 1
    shown = ordered[first : first + size]
    return shown[0].began, max(each.ended if size == len(ordered) else each.began for each in shown)


def _frame(begin: float, end: float, high: float, names: list[tuple[str, float]]) -> Iterator[str]:
    x = linear(begin, end, _LANES_LEFT, _LANES_WIDE - 8)
    for mark in ticks(end - begin, 8):
        if begin + mark <= end:
            at = x(begin + mark)
            yield element("line", x1=at, x2=at, y1=_LANES_TOP, y2=high - 22, class_="grid")
            yield text(f"{(begin + mark):.2f} s", at, high - 8, text_anchor="middle")
    for name, y in names:
        yield text(name, 4, y + 15)


def _operation(each: Operation, y: float, begin: float, end: float) -> Iterator[str]:
    place = linear(begin, end, _LANES_LEFT, _LANES_WIDE - 8)

    def bar(start: float, stop: float, top: float, high: float, kind: str) -> str:
        left, right = place(max(start, begin)), place(min(stop, end))
        return element("rect", x=left, y=y + top, width=max(right - left, 0.8), height=high, class_=kind)

    for number, each_try in enumerate(each.tries, 1):
        if each_try.ended < begin or each_try.began > end:
            continue
        last = number == len(each.tries)
        landed = last and each.outcome == DONE and not each_try.reason
        words = f"{each.name} {each.work}, attempt {number}: {(each_try.ended - each_try.began) * 1000:.1f} ms"
        words += "" if landed else f", lost: {each_try.reason or each.reason or 'nobody knows'}"
        yield titled(bar(each_try.began, each_try.ended, 5.0, 14.0, "landed" if landed else "lost"), words)
    for hold in each.holds:
        released = hold.released if hold.released is not None else each.ended
        if released < begin or hold.asked > end:
            continue
        if hold.granted > begin:
            yield bar(hold.asked, hold.granted, 11.0, 2.0, "waits")
        words = f"{each.name} holds the lock for {(released - hold.granted) * 1000:.1f} ms"
        yield titled(bar(hold.granted, released, 8.0, 8.0, "held"), words)


def _arrows(
    seen: list[Operation], commits: dict[str, Operation], row: dict[int, float], begin: float, end: float
) -> Iterator[str]:
    x = linear(begin, end, _LANES_LEFT, _LANES_WIDE - 8)
    for each in seen:
        for lost in each.tries:
            winner = commits.get(lost.winner) if lost.winner else None
            if winner is not None and winner.writer in row and winner is not each and begin <= lost.ended <= end:
                to = min(max(winner.ended, begin), end)
                yield element(
                    "path", class_="arrow", marker_end="url(#to)",
                    d=f"M{x(lost.ended):.1f} {row[each.writer] + 12:.1f}L{x(to):.1f} {row[winner.writer] + 12:.1f}",
                )  # fmt: skip


# --- elements, scales and axes ---------------------------------------------------------------------------------------


def element(name: str, inside: str = "", **attributes: object) -> str:
    """Return one element; ``class_`` is class, and ``_`` stands for ``-``. Numbers get one digit."""
    parts = [
        f'{key.rstrip("_").replace("_", "-")}="{_number(value) if isinstance(value, float) else escape(str(value))}"'
        for key, value in attributes.items()
    ]
    opening = " ".join([name, *parts])
    return f"<{opening}>{inside}</{name}>" if inside else f"<{opening}/>"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def text(words: str, x: float, y: float, **attributes: object) -> str:
    """Return words at a position."""
    return element("text", escape(words), x=float(x), y=float(y), **attributes)


def titled(shape: str, words: str) -> str:
    """Return a shape that shows its words when pointed at."""
    return f"<g>{shape}<title>{escape(words)}</title></g>"


def picture(inside: Sequence[str], words: str, *, wide: float = WIDE, high: float = HIGH) -> str:
    """Return the whole picture; ``words`` describe it for screen readers."""
    return element(
        "svg",
        f"<title>{escape(words)}</title>{''.join(inside)}",
        viewBox=f"0 0 {wide:g} {high:g}", role="img", xmlns="http://www.w3.org/2000/svg",
    )  # fmt: skip


def linear(low: float, high: float, start: float, end: float) -> Scale:
    """Return a scale from values to positions."""
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    """Return a scale like `linear`, by the logarithm; values below ``low`` are drawn at ``low``."""
    inner = linear(math.log10(low), math.log10(high), start, end)
    return lambda value: inner(math.log10(max(value, low)))


def ticks(high: float, count: int = 4) -> list[float]:
    """Return round numbers from 0 to ``high`` or a little more."""
    if high <= 0:
        return [0.0, 1.0]
    step = 10 ** math.floor(math.log10(high / count))
    step *= next(factor for factor in (1, 2, 2.5, 5, 10, 20) if high / (step * factor) <= count)
    return [step * n for n in range(math.ceil(high / step - 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Return powers of ten around a span."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    return [10.0**n for n in range(first, max(last, first + 1) + 1)]


def short(value: float) -> str:
    """Return a number as it is written on an axis."""
    return f"{value / 1000:g}k" if value >= 10_000 else f"{value:g}"


def axes(
    x_ticks: Sequence[tuple[float, str]], y_ticks: Sequence[tuple[float, str]], x_words: str, y_words: str
) -> list[str]:
    """Return lines, numbers and words around a picture; ticks are positions and labels."""
    found = []
    for y, words in y_ticks:
        found.append(element("line", x1=float(LEFT), x2=float(WIDE - RIGHT), y1=float(y), y2=float(y), class_="grid"))
        found.append(text(words, LEFT - 5, y + 3.5, text_anchor="end"))
    for x, words in x_ticks:
        found.append(text(words, x, HIGH - BOTTOM + 15, text_anchor="middle"))
    base = float(HIGH - BOTTOM)
    found.append(element("line", x1=float(LEFT), x2=float(WIDE - RIGHT), y1=base, y2=base, class_="axis"))
    found.append(text(x_words, (LEFT + WIDE - RIGHT) / 2, HIGH - 4, text_anchor="middle", class_="words"))
    found.append(text(y_words, 2, TOP - 2, class_="words"))
    return found


def path(points: Sequence[tuple[float, float]], *, class_: str) -> str:
    """Return a line through positions."""
    steps = " ".join(f"{'L' if n else 'M'}{x:.1f} {y:.1f}" for n, (x, y) in enumerate(points))
    return element("path", d=steps, class_=class_)
