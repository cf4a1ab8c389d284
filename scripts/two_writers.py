"""Draw how two writers meet in the commit log, for README and tutorial: `python scripts/two_writers.py FILE.svg`.

Narrow enough to be read on a telephone, and dark where its reader's screen is.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

# Time goes from top to bottom. Left edge and width of each column.
FIRST, LOG, SECOND = (8, 152), (182, 96), (300, 152)
WIDTH, HEIGHT, FONT = 460, 530, 15
LANES = {FIRST: "Writer A", LOG: "Commit log", SECOND: "Writer B"}
LIGHT = {
    "page": "#ffffff", "ink": "#1f2937", "line": "#64748b",
    "a": "#dbeafe", "b": "#fef3c7", "good": "#dcfce7", "bad": "#fee2e2", "log": "#f1f5f9",
}  # fmt: skip
DARK = {
    "page": "#161b22", "ink": "#e6edf3", "line": "#94a3b8",
    "a": "#1e3a5f", "b": "#57430f", "good": "#14532d", "bad": "#6b2020", "log": "#30363d",
}  # fmt: skip


def colours(named: dict[str, str]) -> str:
    filled = "".join(f".{name}{{fill:{colour}}}" for name, colour in named.items() if name not in ("ink", "line"))
    return f"text{{fill:{named['ink']}}}.arrow{{stroke:{named['line']}}}.tip{{fill:{named['line']}}}{filled}"


def text(x: float, y: float, words: str, *, bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:g}" y="{y:g}"{weight} text-anchor="middle">{escape(words)}</text>'


def box(column: tuple[int, int], y: float, height: float, kind: str, *lines: str) -> str:
    """Return a box with its lines of text, the first one bold."""
    x, width = column
    shape = f'<rect class="{kind}" x="{x}" y="{y:g}" width="{width}" height="{height:g}" rx="7"/>'
    top = y + height / 2 - 10 * (len(lines) - 1) + 5
    return shape + "".join(text(x + width / 2, top + 20 * n, line, bold=not n) for n, line in enumerate(lines))


def arrow(path: str) -> str:
    return f'<path class="arrow" d="{path}" marker-end="url(#tip)"/>'


def picture() -> str:
    # The edges between which arrows go, and the middle of A.
    a, log, to_log, b, middle = sum(FIRST), LOG[0] - 3, sum(LOG) + 3, SECOND[0], FIRST[0] + FIRST[1] / 2
    parts = [
        *(text(x + width / 2, 26, name, bold=True) for (x, width), name in LANES.items()),
        box(FIRST, 40, 32, "a", "begin"),
        arrow(f"M{a} 56 H{log}"),
        box(LOG, 40, 32, "log", "begin A"),
        box(SECOND, 80, 32, "b", "begin"),
        arrow(f"M{b} 96 H{to_log}"),
        box(LOG, 80, 32, "log", "begin B"),
        box(FIRST, 122, 74, "a", "upsert", "reads file F,", "writes F′"),
        box(SECOND, 122, 74, "b", "upsert", "reads file F,", "writes F″"),
        box(SECOND, 206, 54, "b", "commit", "nobody was first"),
        arrow(f"M{b} 233 H{to_log}"),
        box(LOG, 217, 32, "good", "commit B"),
        arrow(f"M{LOG[0] + LOG[1] / 2:g} 249 V300 H{a + 3}"),
        box(FIRST, 263, 74, "a", "commit", "takes the lock, and", "B has replaced F"),
        arrow(f"M{middle:g} 337 V357"),
        box(FIRST, 360, 54, "good", "other rows of F", "merged onto F″"),
        arrow(f"M{a} 387 H{log}"),
        box(LOG, 371, 32, "good", "commit A"),
        text(middle, 434, "or"),
        box(FIRST, 444, 74, "bad", "the same row", "ConflictError,", "nothing was seen"),
        *(
            text(SECOND[0] + SECOND[1] / 2, 372 + 20 * n, line)
            for n, line in enumerate(("Readers see", "B’s commit first,", "then both, never", "a part of one"))
        ),
    ]
    tip = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path class="tip" d="M0 0 L8 4 L0 8 z"/></marker>'
    )
    style = f"{colours(LIGHT)}@media (prefers-color-scheme:dark){{{colours(DARK)}}}"
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            "<title>Two writers change one file: the second to commit merges its rows onto the first, or runs again</title>",
            f"<style>{style}</style>",
            f"<defs>{tip}</defs>",
            f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="10"/>',
            f'<g font-family="system-ui, Helvetica, Arial, sans-serif" font-size="{FONT}" fill="none" stroke-width="1.6">',
            *parts,
            "</g></svg>",
            "",
        ]
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture())
