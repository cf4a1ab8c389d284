"""Merge-on-read tables that table services have been at, or the JVM on our plan, and what is asked of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lakelatch

from ..occ.mor import Mor, at, data_block, delete_block, rows
from ..thorough import THOROUGH, crossed, some
from .services import CLUSTER, OPTIONS

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
    saved: dict[str, list[str]] = field(default_factory=dict)


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


def _restored(table: lakelatch.Table, told: Compacted) -> None:
    """Undone are a compaction and two log files on it."""
    assert table.compact()  # the JVM's simple index does not find a2 in a log file
    table.upsert([{"id": "a0", "part": "a", "v": 6}])
    target = table.timeline().commits[-1].requested
    assert table.compact()
    table.upsert([{"id": "a0", "part": "a", "v": 8}, {"id": "b0", "part": "b", "v": 8}])
    assert len(table.restore(target).undone) == 2
    told.before = _rows(table)


def _more_groups(table: lakelatch.Table, told: Compacted) -> None:
    table.insert(
        [{"id": "a7", "part": "a", "v": 7}, {"id": "a8", "part": "a", "v": 7}, {"id": "b7", "part": "b", "v": 7}]
    )
    table.upsert([{"id": "a7", "part": "a", "v": 8}])
    table.delete([{"id": "a8", "part": "a"}])
    told.before = _rows(table)


def _clustered(table: lakelatch.Table, told: Compacted) -> None:
    _more_groups(table, told)
    assert table.cluster(**CLUSTER)


def _clustered_and_appended(table: lakelatch.Table, told: Compacted) -> None:
    _clustered(table, told)
    table.upsert([{"id": "a7", "part": "a", "v": 9}])
    told.before = _rows(table)


def _clustering_planned(table: lakelatch.Table, told: Compacted) -> None:
    _more_groups(table, told)
    told.planned = table.plan_clustering(**CLUSTER) or ""


def _saved(table: lakelatch.Table, told: Compacted) -> None:
    told.saved = table.savepoint().files
    assert table.compact()


def _logs_compacted(table: lakelatch.Table, told: Compacted) -> None:
    """An append that was open lands below a log file that landed meanwhile, and above those that were merged."""
    assert table.compact()  # as above
    for key in ("a0", "a2"):
        table.upsert([{"id": key, "part": "a", "v": 6}])
    open_one = table.transaction()
    open_one.upsert([{"id": "a0", "part": "a", "v": 7}])
    with lakelatch.open(table.url) as other:
        other.upsert([{"id": "a2", "part": "a", "v": 8}])
        assert other.compact_logs(min_logs=2)
    open_one.commit()
    told.before = _rows(table)


def _logs_planned(table: lakelatch.Table, told: Compacted) -> None:
    told.planned = table.plan_log_compaction(min_logs=2) or ""
    assert told.planned


def _logs_for_jvm(table: lakelatch.Table, told: Compacted) -> None:
    """A row that is changed twice, and one that is deleted."""
    assert table.compact()
    table.upsert([{"id": "a0", "part": "a", "v": 6}, {"id": "a2", "part": "a", "v": 6}])
    table.upsert([{"id": "a0", "part": "a", "v": 7}])
    table.delete([{"id": "a2", "part": "a"}])
    told.before = _rows(table)
    told.planned = table.plan_log_compaction(min_logs=3) or ""


SERVED: dict[str, Callable[[lakelatch.Table, Compacted], None]] = {
    "restored": _restored,
    "clustered": _clustered,
    "clustered-and-appended": _clustered_and_appended,
    "clustering-planned": _clustering_planned,
    "clustered-by-jvm": _clustering_planned,
    "saved": _saved,
    "written-restored": _restored,
    "written-clustered": _clustered,
    "written-saved": _saved,
    "logs-compacted": _logs_compacted,
    "logs-planned": _logs_planned,
    "logs-compacted-by-jvm": _logs_for_jvm,
    "written-logs-compacted": _logs_compacted,
}


READ = (
    *("before", "planned", "late", "restored", "clustered", "clustered-and-appended", "clustering-planned"),
    *("saved", "logs-compacted", "logs-planned"),
)
WRITTEN = some(("written", "written-restored", "written-clustered", "written-saved", "written-logs-compacted"), 2)
EXECUTED = ("executed", "run-by-jvm", "clustered-by-jvm", "logs-compacted-by-jvm")
EVERY = ("every", "every-compacted", "every-logs-compacted")
# What the JVM reads or writes after a service of ours, and every sequence of changes: of version 8 and 9 in turn. What it
# executes, and what it has to leave out of an incremental read: of these.
VERSIONS = (8, 9) if THOROUGH else (8,)
TABLES = [*(each for kinds in (READ, WRITTEN, EVERY) for each in crossed(kinds, (8, 9)))]
TABLES += itertools.product(EXECUTED, VERSIONS)


def build(folder: Path) -> dict[str, Compacted]:
    """All of them below that folder."""
    made = {}
    for kind, version in TABLES:
        name = f"{kind}-v{version}"
        mor = (_every_sequence if kind in EVERY else _some)(folder / name, version)
        with lakelatch.adopt(str(mor.folder)) as table:
            told = made[name] = Compacted(mor.folder, _rows(table))
            if kind in SERVED:
                SERVED[kind](table, told)
            elif kind in ("planned", "run-by-jvm"):
                told.planned = table.plan_compaction() or ""
            elif kind == "every-logs-compacted":
                assert table.compact_logs(min_logs=3)
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
        elif name.startswith("clustered-by-jvm"):
            asked[name, "cluster"] = path | {"kind": "cluster", "instant": told.planned}
        elif name.startswith(("written", "logs-compacted-by-jvm")):
            with lakelatch.open(str(told.path)) as table:
                schema = table.view().schema
                own = {
                    "hoodie.table.name": table.config.name,
                    "hoodie.datasource.write.table.type": "MERGE_ON_READ",
                    "hoodie.datasource.write.precombine.field": "v",
                    "hoodie.write.table.version": str(table.config.version),
                }
            if told.planned:
                run = {
                    "kind": "compact_logs",
                    "instant": told.planned,
                    "name": own["hoodie.table.name"],
                    "schema": schema,
                }
                asked[name, "compact_logs"] = path | run | {"options": OPTIONS | own}
            else:
                asked[name, "upsert"] = path | {"kind": "upsert", "rows": BY_JVM, "options": OPTIONS | own}
        else:
            asked[name, "snapshot"] = path | {"kind": "snapshot"}
        if name.startswith("executed"):
            asked[name, "incremental", at(11), None] = path | {"kind": "incremental", "begin": at(11), "end": None}
    return asked
