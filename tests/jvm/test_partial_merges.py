"""Partial updates as the JVM writes them: what `MERGE INTO` makes of rows reads here as it does there, at every step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import lakelatch
from lakelatch.errors import UnsupportedTableError
from lakelatch.hudi.files import DELETE, Block, read_blocks

from ..thorough import some
from .readers import ask_jvm, by_hudi_rs, by_us, in_order

pytestmark = pytest.mark.jvm

# Of tables that are ordered by `seen` a merge has to set it, and one that is older changes nothing.
MERGES = {
    "seen": [
        ("select 'a' id, 6L seen, 'one' x", "x = s.x, seen = s.seen"),
        ("select 'a' id, 7L seen, 70L y union all select 'c' id, 4L seen, 40L y", "y = s.y, seen = s.seen"),
        ("select 'a' id, 7L seen, null x union all select 'b' id, 9L seen, 'two' x", "x = s.x, seen = s.seen"),
        ("select 'a' id, 8L seen, 'three' x union all select 'b' id, 8L seen, 'old' x", "x = s.x, seen = s.seen"),
    ],
    "": [
        ("select 'a' id, 'one' x", "x = s.x"),
        ("select 'a' id, 70L y union all select 'b' id, 40L y", "y = s.y"),
        ("select 'b' id, 'two' x union all select 'c' id, null x", "x = s.x"),
        ("select 'a' id, 3L seen, 'three' x", "x = s.x, seen = s.seen"),
    ],
}


class Merged:
    """A table that the JVM writes with SQL."""

    def __init__(self, folder: Path, name: str, ordering: str) -> None:
        self.path, self._folder, self._name = folder / name, folder, name
        properties = {"type": "mor", "primaryKey": "id"} | ({"orderingFields": ordering} if ordering else {})
        told = ", ".join(f"{key} = '{value}'" for key, value in properties.items())
        self.run(
            f"create table {name} (id string, seen bigint, x string, y bigint) using hudi tblproperties ({told}) "
            f"location '{self.path}'",
            f"insert into {name} values ('a', 5, 'base', 1), ('b', 5, 'base', 2), ('c', 5, 'base', 3)",
        )

    def run(self, *statements: str) -> list[str]:
        """The rows then, as the JVM reads them."""
        request = {"path": str(self.path), "kind": "sql", "statements": statements}
        (answer,) = ask_jvm([request], self._folder)
        assert "rows" in answer, answer["error"]
        return in_order(answer["rows"])

    def merge(self, source: str, columns: str) -> list[str]:
        """`run` of an update of these columns."""
        on = f"merge into {self._name} t using ({source}) s on t.id = s.id"
        return self.run(f"{on} when matched then update set {columns}")


@pytest.mark.parametrize("ordering", some(MERGES, 1))
def test_partial_updates_of_the_jvm_read_here_as_there(tmp_path: Path, ordering: str) -> None:
    merged = Merged(tmp_path, f"merged_by_{ordering or 'commits'}", ordering)
    path = merged.path
    before = in_order(by_us(path))
    for number, (source, columns) in enumerate(MERGES[ordering], 1):
        rows = merged.merge(source, columns)
        assert rows != before
        assert partial_blocks(path) == number
        assert rows == in_order(by_us(path)) == in_order(by_hudi_rs(path))
        before = rows
    with lakelatch.adopt(str(path)) as table:
        assert table.compact()
    assert before == in_order(by_us(path)) == in_order(by_hudi_rs(path)) == merged.run()


@pytest.mark.thorough
def test_an_update_that_lost_comes_back_in_the_jvm_with_a_newer_one(tmp_path: Path) -> None:
    """Which is why such a row is refused here: what it is depends on whether somebody has compacted between the two."""
    merged = Merged(tmp_path, "came_back", "seen")
    first = merged.merge("select 'b' id, 4L seen, 40L y", "y = s.y, seen = s.seen")
    assert first == in_order(by_us(merged.path))
    second = merged.merge("select 'b' id, 9L seen, 'two' x", "x = s.x, seen = s.seen")
    assert [[json.loads(row)["y"] for row in rows] for rows in (first, second)] == [[1, 2, 3], [1, 40, 3]]
    with pytest.raises(UnsupportedTableError, match="are older and newer than one row"):
        by_us(merged.path)


def partial_blocks(path: Path) -> int:
    logs = [each for each in path.glob(".*.log.*") if each.suffix != ".crc"]
    blocks = [block for log in logs for block in read_blocks(log.read_bytes(), log.name)]
    return sum(isinstance(block, Block) and block.kind != DELETE and block.partial for block in blocks)
