"""Draw how two writers meet in the commit log, for README and tutorial: `python scripts/two_writers.py FILE.svg`."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

# Left edge and width of each lane.
FIRST, LOG, SECOND = (30, 248), (312, 120), (466, 204)
WIDTH, HEIGHT = 680, 544
INK, PALE, LINE = "#1f2937", "#ffffff", "#64748b"
BLUE, AMBER, GREEN, RED, GREY = "#dbeafe", "#fef3c7", "#dcfce7", "#fee2e2", "#f1f5f9"


def text(x: float, y: float, words: str, *, bold: bool = False, middle: bool = True) -> str:
    weight = ' font-weight="bold"' if bold else ""
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x:g}" y="{y:g}"{weight}{anchor}>{escape(words)}</text>'


def box(lane: tuple[int, int], y: float, colour: str, *lines: str) -> str:
    """A box with its lines of text, the first one bold; 22 units a line."""
    x, width = lane
    shape = f'<rect x="{x}" y="{y:g}" width="{width}" height="{22 * len(lines) + 14}" rx="7" fill="{colour}"/>'
    return shape + "".join(text(x + width / 2, y + 23 + 22 * n, line, bold=not n) for n, line in enumerate(lines))


def arrow(x: float, y: float, to_x: float) -> str:
    return f'<path d="M{x:g} {y:g} H{to_x:g}" marker-end="url(#tip)"/>'


def picture() -> str:
    a, b, log = sum(FIRST), SECOND[0], (LOG[0], sum(LOG))
    again = f'<path d="M{FIRST[0]} 432 H12 V82 H{FIRST[0] - 2}" marker-end="url(#tip)" stroke-dasharray="5 4"/>'
    parts = [
        text(FIRST[0] + FIRST[1] / 2, 38, "Writer A", bold=True),
        text(LOG[0] + LOG[1] / 2, 38, "Commit log", bold=True),
        text(SECOND[0] + SECOND[1] / 2, 38, "Writer B", bold=True),
        box(FIRST, 64, BLUE, "begin"),
        arrow(a, 82, log[0] - 3),
        box(LOG, 64, GREY, "begin A"),
        box(SECOND, 110, AMBER, "begin"),
        arrow(b, 128, log[1] + 3),
        box(LOG, 110, GREY, "begin B"),
        box(FIRST, 126, BLUE, "upsert", "reads file F, writes F′"),
        box(SECOND, 172, AMBER, "upsert", "reads file F, writes F″"),
        box(SECOND, 246, AMBER, "commit", "nobody came before it"),
        arrow(b, 275, log[1] + 3),
        box(LOG, 257, GREEN, "commit B"),
        box(FIRST, 288, BLUE, "commit", "takes the lock, reads the log:", "B has replaced F"),
        f'<path d="M{LOG[0] + LOG[1] / 2:g} 293 V327 H{a + 3}" marker-end="url(#tip)"/>',
        box(FIRST, 392, RED, "same row: ConflictError", "its files go, nothing was seen;", "Table.run begins again"),
        again,
        box(FIRST, 488, GREEN, "other rows: merged again"),
        arrow(a, 506, log[0] - 3),
        box(LOG, 488, GREEN, "commit A"),
        text(SECOND[0] + SECOND[1] / 2, 502, "Readers see B’s commit,"),
        text(SECOND[0] + SECOND[1] / 2, 524, "then both"),
    ]
    tip = (
        '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{LINE}" stroke="none"/></marker>'
    )
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            "<title>Two writers change one file: the second to commit merges its rows onto the first, or runs again</title>",
            f"<defs>{tip}</defs>",
            f'<rect width="{WIDTH}" height="{HEIGHT}" rx="10" fill="{PALE}"/>',
            f'<g font-family="system-ui, Helvetica, Arial, sans-serif" font-size="16" fill="{INK}">',
            f'<g fill="none" stroke="{LINE}" stroke-width="1.6">',
            *(p for p in parts if p.startswith("<path")),
            "</g>",
            *(p for p in parts if not p.startswith("<path")),
            "</g></svg>",
            "",
        ]
    )


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture())
