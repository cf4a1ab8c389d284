"""Tables that table services have been at, and what every reader must say of them. Questions join those of conftest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lakelatch

from ..occ.world import add, insert, make, overwrite, rows
from ..thorough import some
from .cases import WRITE_OPTIONS

CLUSTER = {"small_bytes": 1 << 20, "target_bytes": 2 << 20}
# A JVM writer that cleans as much as it may.
OPTIONS = WRITE_OPTIONS | {
    "hoodie.index.type": "SIMPLE",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.clean.commits.retained": "1",
    "hoodie.clean.automatic": "true",
}
ARCHIVES = {"hoodie.keep.min.commits": "2", "hoodie.keep.max.commits": "3"}
BY_JVM = [{"id": "a0", "part": "a", "v": 70}, {"id": "a7", "part": "a", "v": 71}]


@dataclass
class Served:
    """A table, and what is asked of it: completion times to read from, requested times to travel to.

    ``old``: completion times of archived commits.
    """

    path: Path
    since: list[str] = field(default_factory=list)
    as_of: list[str] = field(default_factory=list)
    old: list[str] = field(default_factory=list)
    saved: dict[str, list[str]] = field(default_factory=dict)


def _change(table: lakelatch.Table, times: int) -> None:
    for number in range(times):
        with table.transaction() as txn:
            add(txn, "a")
            if number == 1:
                insert(txn, "b", f"b{number + 5}")


def _since(table: lakelatch.Table, last: int) -> list[str]:
    return [instant.completed or "" for instant in table.timeline().commits[-last:]]


def cleaned(table: lakelatch.Table, told: Served) -> None:
    with table.transaction("insert_overwrite") as txn:
        overwrite(txn, "b", "b8", "b9")
    _change(table, 4)
    assert table.clean(retain_commits=2)
    told.since, told.as_of = _since(table, 3), [table.timeline().commits[-2].requested]


def saved(table: lakelatch.Table, told: Served) -> None:
    kept = table.savepoint(comment="kept")
    _change(table, 4)
    assert table.clean(retain_commits=1)
    told.since, told.as_of, told.saved = _since(table, 2), [kept.instant], kept.files


def clustered(table: lakelatch.Table, told: Served) -> None:
    _change(table, 2)
    with table.transaction("insert") as txn:
        txn.new_file("part=a").write(rows("a", {"a8": 8}))
    assert table.cluster(**CLUSTER)
    _change(table, 1)
    told.since = _since(table, 5)
    told.as_of = [each.requested for each in table.timeline().commits[1:]]


def planned(table: lakelatch.Table, told: Served) -> None:
    _change(table, 3)
    assert table.plan_clustering(**CLUSTER)
    assert table.plan_clean(retain_commits=1)
    told.since = _since(table, 2)


def restored(table: lakelatch.Table, told: Served) -> None:
    _change(table, 2)
    target = table.timeline().commits[-1].requested
    with table.transaction("insert_overwrite") as txn:
        overwrite(txn, "b", "b8")
    _change(table, 2)
    assert table.restore(target).files
    _change(table, 1)
    told.since = _since(table, 4)
    told.as_of = [each.requested for each in table.timeline().commits[1:]]


def archived(table: lakelatch.Table, told: Served) -> None:
    with table.transaction("insert_overwrite") as txn:
        overwrite(txn, "b", "b8", "b9")
    with table.transaction("insert") as txn:
        txn.new_file("part=a").write(rows("a", {"a8": 8}))
    assert table.cluster(**CLUSTER)
    _change(table, 3)
    assert table.clean(retain_commits=2)
    _change(table, 1)
    assert table.clean(retain_commits=1)
    told.old = ["000", *_since(table, 5)[:3]]
    assert table.archive(keep_min=2, keep_max=2).instants > 6
    with table.transaction("insert") as txn:
        insert(txn, "b", "b7")
    with table.transaction() as txn:
        add(txn, "a")
    told.since, told.as_of = _since(table, 4), [each.requested for each in table.timeline().commits[1:]]


SERVED: dict[str, Callable[[lakelatch.Table, Served], None]] = {
    each.__name__: each for each in (cleaned, saved, clustered, planned, restored, archived)
}
WRITTEN = some(("cleaned", "saved", "clustered", "restored", "archived"), 2)  # by the JVM afterwards


def serve(folder: Path) -> dict[str, Served]:
    """All of them below that folder; those that the JVM writes to twice."""
    made = {}
    for name, service in SERVED.items():
        for each in (name, f"{name}-written")[: 2 if name in WRITTEN else 1]:
            told = made[each] = Served(folder / each)
            make(told.path)
            with lakelatch.open(str(told.path)) as table:
                service(table, told)
    return made


def questions(made: dict[str, Served]) -> dict[tuple[Any, ...], dict[str, Any]]:
    """For the JVM session."""
    asked: dict[tuple[Any, ...], dict[str, Any]] = {}
    for name, told in made.items():
        path = {"path": str(told.path)}
        if name.endswith("-written"):
            with lakelatch.open(str(told.path)) as table:
                own = {"hoodie.table.name": table.config.name}
            own |= ARCHIVES if name.startswith("archived") else {}
            asked[name, "upsert"] = path | {"kind": "upsert", "rows": BY_JVM, "options": OPTIONS | own}
            continue
        asked[name, "snapshot"] = path | {"kind": "snapshot"}
        for begin in (*told.since, *told.old):
            asked[name, "incremental", begin, None] = path | {"kind": "incremental", "begin": begin, "end": None}
        for instant in told.as_of:
            asked[name, "as_of", instant] = path | {"kind": "as_of", "as_of": instant}
    return asked
