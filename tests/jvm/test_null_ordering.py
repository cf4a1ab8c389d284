"""Why merge-on-read tables hold no null in their ordering field: Hudi's JVM reader fails, where ours and hudi-rs agree."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakelatch

from .cases import PLAIN, rows
from .readers import ask_jvm, by_hudi_rs, by_us, in_order

pytestmark = pytest.mark.jvm


@pytest.mark.thorough
def test_the_jvm_fails_on_null_ordering_values_that_a_log_file_meets(tmp_path: Path) -> None:
    """Written as a table that is ordered by commits, and then declared as one that is ordered by a column."""

    def made(name: str, before: int, after: int | None) -> Path:
        folder = tmp_path / name
        options = {"record_key": "id", "schema": PLAIN, "type": "merge_on_read", "table_version": 9}
        with lakelatch.create(str(folder), **options) as table:
            table.insert(rows("JFK", range(2), seen=before))
            table.upsert([row | {"seen": after} for row in rows("JFK", range(1), seen=9)])
        properties = folder / ".hoodie/hoodie.properties"
        text = properties.read_text().replace("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING")
        properties.write_text(f"hoodie.table.ordering.fields=seen\n{text}")
        return folder

    folders = [made("null onto a value", 5, None), made("a value onto a value", 5, 6)]
    answers = ask_jvm([{"path": str(each), "kind": "snapshot"} for each in folders], tmp_path)
    for folder in folders:
        assert in_order(by_us(folder)) == in_order(by_hudi_rs(folder))
    assert "ClassCastException" in answers[0]["error"]
    assert in_order(answers[1]["rows"]) == in_order(by_us(folders[1]))
