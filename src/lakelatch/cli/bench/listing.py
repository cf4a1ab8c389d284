"""``lakelatch bench list``, ``compare``, ``report`` and ``export``.

JSON of ``list``: ``scenarios`` (``name``, ``about``, ``writers``), ``peers`` (``name``, ``configurations``, ``missing``). Of
``compare``: ``differences`` (``scenario``, ``writers``, ``system``, ``first``, ``second``, ``ratio``, ``certain``, ``note``) and
``doubts``. Of ``report`` and ``export``: ``written`` (paths), and of ``export`` ``left_out`` (why).
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...bench import compare as compared
from ...bench import load, names, read
from ...bench.export import export as exported
from ...bench.report import write
from ...bench.systems import known
from ...bench.systems import load as adapter
from ...errors import ConfigError
from ..output import print_json, print_table, say


def list_(*, json: bool) -> None:
    """Print the scenarios and peers."""
    scenarios = [load(name) for name in names()]
    peers = [_peer(name) for name in known()]
    if json:
        facts = [{"name": each.name, "about": each.about, "writers": each.writers} for each in scenarios]
        print_json({"scenarios": facts, "peers": peers})
        return
    print_table(("scenario", "writers", "what"), [(s.name, str(s.writers), s.about) for s in scenarios], fold=("what",))
    say()
    shown = [(p["name"], c["name"], c["words"]) for p in peers for c in p["configurations"]]
    shown += [(p["name"], "", f"not here: {p['missing']}") for p in peers if p["missing"]]
    print_table(("peer", "configuration", "what"), shown, fold=("what",))


def _peer(name: str) -> dict[str, Any]:
    try:
        found = adapter(name).configurations
    except ConfigError as e:
        return {"name": name, "configurations": [], "missing": str(e)}
    return {"name": name, "configurations": [{"name": c.name, "words": c.words} for c in found], "missing": ""}


def compare(first: Path, second: Path, *, json: bool) -> None:
    """Print how the second differs from the first."""
    differences, doubts = compared(read(first), read(second))
    if json:
        print_json({"differences": [asdict(each) for each in differences], "doubts": doubts})
        return
    rows = [
        (
            each.scenario, str(each.writers), each.system, each.first.text(), each.second.text(),
            f"{each.ratio:.2f}" if each.ratio else "", each.note or ("" if each.certain else "rounds overlap"),
        )
        for each in differences
    ]  # fmt: skip
    headers = ("scenario", "writers", "system", "first /s", "second /s", "ratio", "")
    print_table(headers, rows, right=headers[3:6], fold=("",))
    if not differences:
        say("they have nothing in common")
    for doubt in doubts:
        say(f"mind that {doubt}")


def report(folder: Path, *, json: bool) -> None:
    """Write the report again."""
    made = list(map(str, write(read(folder))))
    if json:
        print_json({"written": made})
    else:
        say(f"report: {', '.join(made)}")


def export(folder: Path, formats: list[str], *, json: bool) -> None:
    """Write the histories for other tools."""
    made, left_out = exported(read(folder), formats)
    if json:
        print_json({"written": list(map(str, made)), "left_out": list(left_out)})
        return
    for words in left_out:
        say(f"left out: {words}")
    say(f"{len(made)} files in {folder / 'exports'}" if made else "nothing was written")
