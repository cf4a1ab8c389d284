"""Static SVG pictures: elements, scales and axes. Colours are classes, which the page sets for light and dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape

WIDE, HIGH = 380, 250
LEFT, RIGHT, TOP, BOTTOM = 46, 22, 12, 34
COLOURS = 8

Scale = Callable[[float], float]


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
