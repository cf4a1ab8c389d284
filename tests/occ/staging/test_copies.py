"""A key that inserts made stand twice: every write by key changes all of its copies, as Hudi does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakelatch

KINDS: list[dict[str, Any]] = [{}, {"ordering_field": "v"}, {"type": "merge_on_read"}]


def make(folder: Path, **options: Any) -> lakelatch.Table:
    """Keys a and b each in two file groups, c and d in one."""
    table = lakelatch.create(str(folder), record_key="id", **options)
    table.insert([{"id": key, "v": 1} for key in "abc"])
    table.insert([{"id": key, "v": 2} for key in "abd"])
    return table


def content(table: lakelatch.Table) -> list[tuple[str, int]]:
    return sorted((row["id"], row["v"]) for row in table.read().to_pylist())


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_a_write_by_key_changes_every_copy(tmp_path: Path, options: dict[str, Any]) -> None:
    with make(tmp_path / "t", **options) as table:
        assert table.upsert([{"id": "a", "v": 7}, {"id": "c", "v": 7}, {"id": "new", "v": 7}]).updated == 3
        assert content(table) == [("a", 7), ("a", 7), ("b", 1), ("b", 2), ("c", 7), ("d", 2), ("new", 7)]
        merge = table.merge([{"id": "b", "v": 10}])
        merge.when_matched(update={"v": lakelatch.sql("t.v + s.v")}).when_not_matched(insert="all").run()
        assert [row for row in content(table) if row[0] == "b"] == [("b", 11), ("b", 12)]
        assert table.delete([{"id": "a"}]).deleted == 2
        assert content(table) == [("b", 11), ("b", 12), ("c", 7), ("d", 2), ("new", 7)]


@pytest.mark.parametrize("options", KINDS, ids=str)
def test_merged_again_onto_another_writers_commit_it_changes_every_copy_once(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with make(tmp_path / "t", **options) as table, lakelatch.open(str(tmp_path / "t")) as other:
        txn = table.transaction()
        txn.upsert([{"id": "a", "v": 8}])
        other.upsert([{"id": "c", "v": 9}, {"id": "d", "v": 9}])
        txn.commit()
        assert content(table) == [("a", 8), ("a", 8), ("b", 1), ("b", 2), ("c", 9), ("d", 9)]
