"""Merge-on-read tables that have been compacted here, or by the JVM on our plan, and what is asked of them."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lakelatch

from ..occ.mor import Mor, at, data_block, delete_block, rows
from .services import OPTIONS

ROWS = {"a0": 5, "a2": 3, "b0": 5}
LATE = at(2 * 10**13)
BY_JVM = [{"id": "a2", "part": "a", "v": 70}, {"id": "b7", "part": "b", "v": 71}]
# A delete that takes all has the number 0: on a null after another change of the row the JVM fails (1.2.0).
CHANGES: list[Any] = [1, 5, 10, ("IntWrapper", 0), ("LongWrapper", 3), ("LongWrapper", 5)]


@dataclass
class Compacted:
    """A table, what is asked of it beside its rows now, and its rows before."""

    path: Path
    before: dict[str, int]
    planned: str = ""


def _some(folder: Path, version: int) -> Mor:
    mor = Mor(folder, version=version)
    mor.base(at(1), at(2), "a", rows("a", {"a0": 1, "a1": 1}))
    mor.update(at(10), at(11), "a", {"a0": 5, "a2": 3}, [("a1", ("IntWrapper", 0))])
    mor.update(at(12), at(13), "b", {"b0": 5})
    mor.update(at(14), at(15), "c", {"c0": 5})
    mor.update(at(16), at(17), "c", {}, [("c0", ("IntWrapper", 0))])
    return mor


def _every_sequence(folder: Path, version: int) -> Mor:
    mor = Mor(folder, version=version)
    tried = (c for n in (1, 2, 3) for c in itertools.product(CHANGES, repeat=n))
    story = {f"k{number}-{base}": (base, *case) for number, case in enumerate(tried) for base in (None, 5)}
    mor.base(at(1), at(2), "a", rows("a", {k: case[0] for k, case in story.items() if case[0]}))
    for number in (1, 2, 3):
        now = {k: case[number] for k, case in story.items() if len(case) > number}
        body = data_block(at(10 * number), rows("a", {k: v for k, v in now.items() if isinstance(v, int)}))
        for wrapper in ("LongWrapper", "IntWrapper"):  # one reader refuses blocks that mix two
            keys = [(k, v) for k, v in now.items() if isinstance(v, tuple) and v[0] == wrapper]
            body += delete_block(at(10 * number), keys)
        mor.log(at(10 * number), at(10 * number + 5), "a", body)
    return mor


def build(folder: Path) -> dict[str, Compacted]:
    """All of them below that folder."""
    made = {}
    for version in (8, 9):
        for kind in ("before", "planned", "executed", "late", "run-by-jvm", "written", "every", "every-compacted"):
            name = f"{kind}-v{version}"
            mor = (_every_sequence if kind.startswith("every") else _some)(folder / name, version)
            with lakelatch.adopt(str(mor.folder)) as table:
                told = made[name] = Compacted(mor.folder, _rows(table))
                if kind in ("planned", "run-by-jvm"):
                    told.planned = table.plan_compaction() or ""
                elif kind not in ("before", "every"):
                    assert table.compact()
            if kind == "late":  # it had begun before the compaction
                mor.log(at(9), LATE, "a", data_block(at(9), rows("a", {"a0": 9})), file_id="a" * 8 + _REST)
    return made


_REST = "-0000-4000-8000-000000000000-0"


def _rows(table: lakelatch.Table) -> dict[str, int]:
    read = table.read().to_arrow().to_pydict()
    return dict(zip(read["id"], read["v"], strict=True))


def rows_of(path: Path) -> dict[str, int]:
    with lakelatch.open(str(path)) as table:
        return _rows(table)


def questions(made: dict[str, Compacted]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """For the JVM session."""
    asked: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, told in made.items():
        path = {"path": str(told.path)}
        if name.startswith("run-by-jvm"):
            asked[name, "compact"] = path | {"kind": "compact", "instant": told.planned}
        elif name.startswith("written"):
            with lakelatch.open(str(told.path)) as table:
                own = {
                    "hoodie.table.name": table.config.name,
                    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
                    "hoodie.datasource.write.precombine.field": "v",
                    "hoodie.write.table.version": str(table.config.version),
                }
            asked[name, "upsert"] = path | {"kind": "upsert", "rows": BY_JVM, "options": OPTIONS | own}
        else:
            asked[name, "snapshot"] = path | {"kind": "snapshot"}
        if name.startswith("executed"):
            asked[name, "incremental", at(11), None] = path | {"kind": "incremental", "begin": at(11), "end": None}
    return asked
