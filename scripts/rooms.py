"""The rooms of the library and who imports whom, read from the imports themselves.

    python scripts/rooms.py                          each room, what it is for, and the rooms that it imports
    python scripts/rooms.py --draw docs/rooms.svg    the picture of docs/architecture.md

`ORDER` is the architecture: a room imports only from rooms that stand before it. Imports for types and imports inside
functions count as well. tests/test_rooms.py holds the code to it, and the picture to the code.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src/lakelatch"
# Folders beside src/ that are linked into the package, by their name in it.
TOP = {
    **{part: ROOT / part for part in ("storage", "locks", "conflict", "occ", "spark")},
    "bench": ROOT / "benchmarks/lab",
    "demo": ROOT / "benchmarks/demo",
}

# From the ground up. Where a room has sub-rooms, its own modules may stand below them (an interface) or above (a registry).
ORDER = (
    "plain_text", "notebook", "errors", "arguments", "progress", "environment", "ahead", "tracing", "conditions",
    "storage.interface", "storage.location", "storage.local", "storage.cloud", "storage", "storage.probe",
    "mergers",
    "hudi.table", "hudi.files", "hudi.timeline", "hudi.merge",
    "streams",
    "conflict",
    "locks.lock_url", "locks.interface", "locks.core", "locks.memory",
    "locks.file", "locks.redis", "locks.zookeeper", "locks.dynamodb", "locks.objects",
    "locks.registry", "locks", "locks.hudi", "locks.checkup",
    "occ.entries", "occ.log", "occ.liveness", "occ.coordination", "occ.check", "occ.incoming", "occ.staging", "occ.session",
    "occ.scan", "occ.rebase", "occ.turns", "occ.workspace", "occ.writing", "occ.landing", "occ.transaction", "occ.services",
    "occ.history", "occ.doctor", "occ.table",
    "lakelatch",
    "glue",
    "testing",
    "spark.versions", "spark.shipping", "spark.tasks", "spark.reading", "spark.writing", "spark",
    "server", "demo", "bench", "cli",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name: ``source`` and ``target`` are modules, dotted below ``lakelatch``."""

    source: str
    line: int
    target: str
    name: str


def modules() -> dict[str, Path]:
    """Every module of the package by its dotted name; a package's own ``__init__`` has the package's."""
    found = {}
    folders = [(PACKAGE, ())] + [(folder, (part,)) for part, folder in TOP.items()]
    for folder, prefix in folders:
        for path in sorted(folder.rglob("*.py")):
            parts = (*prefix, *path.relative_to(folder).with_suffix("").parts)
            if not prefix and (parts[0] in TOP or "__pycache__" in parts):
                continue
            name = ".".join(parts).removesuffix("__init__").removesuffix(".") or "lakelatch"
            if name not in ("hudi", "occ"):  # only hold rooms
                found[name] = path
    return found


def room_of(module: str) -> str:
    """The most exact entry of `ORDER` that the module belongs to."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (name := ".".join(parts[:length])) in ORDER:
            return name
    raise LookupError(f"{module} stands in no room of scripts/rooms.py: say in ORDER where it belongs")


def imports(known: dict[str, Path]) -> Iterator[Import]:
    """Every import of one module of the package by another."""
    for source, path in known.items():
        package = source.split(".") if path.name == "__init__.py" else source.split(".")[:-1]
        package = [] if package == ["lakelatch"] else package
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.level:
                continue
            base = package[: len(package) - node.level + 1]
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for each in node.names:
                inner = f"{origin}.{each.name}".removeprefix(".")
                target, name = (inner, "") if inner in known else (origin or "lakelatch", each.name)
                yield Import(source, node.lineno, target, name)


def arrows(known: dict[str, Path]) -> dict[str, set[str]]:
    """Room -> the other rooms that it imports."""
    found: dict[str, set[str]] = defaultdict(set)
    for each in imports(known):
        a, b = room_of(each.source), room_of(each.target)
        if a != b and not (known[each.source].name == "__init__.py" and b.startswith(f"{a}.")):
            found[a].add(b)
    return found


def purpose(known: dict[str, Path], room: str) -> str:
    """The first sentence of what the room says of itself."""
    path = known.get(room)
    words = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split()) if path else ""
    return words.partition(". ")[0].removesuffix(".")


# --- the picture ------------------------------------------------------------------------------------------------------

# What a reader has to see: small rooms that only lead to their neighbours are drawn as one.
DRAWN = {
    **dict.fromkeys(("plain_text", "notebook", "errors", "arguments", "environment"), "errors, environment"),
    **{room: "storage" for room in ORDER if room.startswith("storage.")},
    **{room: "locks.<service>" for room in ORDER if room.startswith("locks.")},
    **dict.fromkeys(
        ("locks.registry", "locks.lock_url", "locks.interface", "locks.hudi", "locks.checkup"),
        "locks",
    ),
    "locks.core": "locks.core",
    **dict.fromkeys(("lakelatch", "testing", "demo", "bench"), ""),
}
COLOURS = {
    "storage": "#4e79a7",
    "hudi": "#59a14f",
    "conflict": "#b6992d",
    "locks": "#9c6ade",
    "occ": "#e15759",
    "spark": "#f28e2b",
}
WIDE, HIGH, GAP_X, GAP_Y, EDGE = 172, 40, 26, 44, 20


def drawing(known: dict[str, Path]) -> str:
    """The rooms in rows, each above all that it imports; arrows that others imply are left out."""
    below: dict[str, set[str]] = defaultdict(set)
    for a, targets in arrows(known).items():
        for b in targets:
            x, y = DRAWN.get(a, a), DRAWN.get(b, b)
            if x and y and x != y:
                below[x].add(y)
    names = list(dict.fromkeys(name for room in ORDER if (name := DRAWN.get(room, room))))
    # Rooms that are drawn as one may import each other through it; the order decides which arrow is drawn.
    below = {a: {b for b in below.get(a, ()) if names.index(b) < names.index(a)} for a in names}
    level: dict[str, int] = {}
    for name in names:
        level[name] = 1 + max((level[b] for b in below[name]), default=-1)
    direct = {a: {b for b in below[a] if not any(b in _reach(below, c) for c in below[a] - {b})} for a in names}
    rows: dict[int, list[str]] = defaultdict(list)
    for name in names:
        rows[level[name]].append(name)
    width = max(len(row) for row in rows.values()) * (WIDE + GAP_X) - GAP_X + 2 * EDGE
    height = (max(rows) + 1) * (HIGH + GAP_Y) - GAP_Y + 2 * EDGE
    place = {}
    for number, row in rows.items():
        left = (width - len(row) * (WIDE + GAP_X) + GAP_X) / 2
        for index, name in enumerate(row):
            place[name] = left + index * (WIDE + GAP_X), height - EDGE - HIGH - number * (HIGH + GAP_Y)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" font-family="sans-serif" font-size="13">',
        "<title>The rooms of LakeLatch: each imports only what stands below it</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">',
        '<path d="M0,0 L8,4 L0,8 z" fill="#888"/></marker></defs>',
        f'<rect width="{width:g}" height="{height:g}" fill="white"/>',
    ]
    for a in names:
        for b in sorted(direct[a]):
            (x1, y1), (x2, y2) = place[a], place[b]
            lines.append(
                f'<line x1="{x1 + WIDE / 2:g}" y1="{y1 + HIGH:g}" x2="{x2 + WIDE / 2:g}" y2="{y2:g}" stroke="#888" '
                'stroke-width="1.2" marker-end="url(#tip)"/>'
            )
    for name in names:
        x, y = place[name]
        colour = COLOURS.get(name.partition(".")[0], "#666666")
        lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{WIDE}" height="{HIGH}" rx="6" fill="white" stroke="{colour}" stroke-width="2"/>'
            f'<text x="{x + WIDE / 2:g}" y="{y + HIGH / 2 + 5:g}" text-anchor="middle" fill="#222">{escape(name)}</text>'
        )
    return "\n".join([*lines, "</svg>"]) + "\n"


def _reach(below: dict[str, set[str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for each in below[waiting.pop()] - found:
            found.add(each)
            waiting.append(each)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draw", type=Path, metavar="FILE", help="write the picture there")
    given, known = parser.parse_args(), modules()
    if given.draw:
        given.draw.write_text(drawing(known))
        return
    found = arrows(known)
    for room in ORDER:
        print(f"{room}: {purpose(known, room)}\n    {', '.join(sorted(found.get(room, ()))) or '-'}")


if __name__ == "__main__":
    main()
