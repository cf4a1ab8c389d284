"""Draw how two writers meet in the commit log, for README and tutorial: `python scripts/two_writers.py FILE.svg`."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

# Time goes from left to right. Top and height of each row.
FIRST, LOG, SECOND = (16, 104), (168, 38), (254, 80)
WIDTH, HEIGHT, LEFT = 1040, 350, 122
LANES = {FIRST: "Writer A", LOG: "Commit log", SECOND: "Writer B"}
INK, PALE, LINE = "#1f2937", "#ffffff", "#64748b"
BLUE, AMBER, GREEN, RED, GREY = "#dbeafe", "#fef3c7", "#dcfce7", "#fee2e2", "#f1f5f9"


def text(x: float, y: float, words: str, *, bold: bool = False, middle: bool = True) -> str:
    weight = ' font-weight="bold"' if bold else ""
    anchor = ' text-anchor="middle"' if middle else ""
    return f'<text x="{x:g}" y="{y:g}"{weight}{anchor}>{escape(words)}</text>'


def box(row: tuple[int, int], x: float, width: float, colour: str, *lines: str) -> str:
    """A box with its lines of text, the first one bold."""
    y, height = row
    shape = f'<rect x="{x:g}" y="{y}" width="{width:g}" height="{height}" rx="7" fill="{colour}"/>'
    top = y + height / 2 - 10 * (len(lines) - 1) + 5
    return shape + "".join(text(x + width / 2, top + 20 * n, line, bold=not n) for n, line in enumerate(lines))


def arrow(x: float, y: float, to_y: float) -> str:
    return f'<path d="M{x:g} {y:g} V{to_y:g}" marker-end="url(#tip)"/>'


def picture() -> str:
    down, up = (sum(FIRST), LOG[0] - 3), (SECOND[0], sum(LOG) + 3)
    merged, again = (FIRST[0], 48), (FIRST[0] + 56, 48)
    middle = FIRST[0] + FIRST[1] / 2
    parts = [
        *(text(14, y + high / 2 + 5, name, bold=True, middle=False) for (y, high), name in LANES.items()),
        box(FIRST, LEFT, 76, BLUE, "begin"),
        arrow(LEFT + 38, *down),
        box(LOG, LEFT, 76, GREY, "begin A"),
        box(SECOND, LEFT + 86, 76, AMBER, "begin"),
        arrow(LEFT + 124, *up),
        box(LOG, LEFT + 86, 76, GREY, "begin B"),
        box(FIRST, LEFT + 86, 188, BLUE, "upsert", "reads file F, writes F′"),
        box(SECOND, LEFT + 172, 188, AMBER, "upsert", "reads file F, writes F″"),
        box(SECOND, LEFT + 370, 188, AMBER, "commit", "nobody came before"),
        arrow(LEFT + 430, *up),
        box(LOG, LEFT + 376, 108, GREEN, "commit B"),
        box(FIRST, LEFT + 448, 170, BLUE, "commit", "takes the lock, sees", "that B replaced F"),
        f'<path d="M{LEFT + 484} {LOG[0] + LOG[1] / 2:g} H{LEFT + 533} V{sum(FIRST) + 3}" marker-end="url(#tip)"/>',
        *(
            f'<path d="M{LEFT + 618} {middle:g} H{LEFT + 634} V{y + 24} H{LEFT + 649}" marker-end="url(#tip)"/>'
            for y, _ in (merged, again)
        ),
        box(merged, LEFT + 652, 250, GREEN, "other rows of F", "are merged onto F″"),
        box(again, LEFT + 652, 250, RED, "the same row", "ConflictError, nothing was seen"),
        f'<path d="M{LEFT + 902} {merged[0] + 24} H{LEFT + 910} V{LOG[0] + LOG[1] / 2:g} H{LEFT + 869}" marker-end="url(#tip)"/>',
        box(LOG, LEFT + 758, 108, GREEN, "commit A"),
        text(LEFT + 777, SECOND[0] + 36, "Readers see B’s commit first,"),
        text(LEFT + 777, SECOND[0] + 56, "then both, never a part of one"),
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
            f'<g font-family="system-ui, Helvetica, Arial, sans-serif" font-size="15" fill="{INK}">',
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
