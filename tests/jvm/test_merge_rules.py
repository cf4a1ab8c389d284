"""Tables that merge columns: the JVM reads what is there, and its writers stop, which would not merge them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch

from .cases import WRITE_OPTIONS
from .readers import ask_jvm, by_hudi_rs

pytestmark = pytest.mark.jvm

TABLES = {
    "copy-8": {"type": "copy_on_write", "table_version": 8},
    "copy-8-ordered": {"type": "copy_on_write", "table_version": 8, "ordering_field": "ts"},
    "copy-9": {"type": "copy_on_write", "table_version": 9},
    "read-9": {"type": "merge_on_read", "table_version": 9},
    "read-9-ordered": {"type": "merge_on_read", "table_version": 9, "ordering_field": "ts"},
}


def test_jvm_readers_see_merged_rows_and_jvm_writers_are_refused(tmp_path: Path) -> None:
    asked = []
    for name, how in TABLES.items():
        url = str(tmp_path / name)
        with lakelatch.create(url, record_key="id", merge={"n": "sum"}, **how) as t:
            for ts, n in ((2, 1), (1, 10), (3, 100)):
                t.upsert(pa.table({"id": ["a"], "ts": [ts], "n": [n]}))
        assert [row["n"] for row in by_hudi_rs(tmp_path / name)] == [111]
        options = {key: value for key, value in WRITE_OPTIONS.items() if "partition" not in key}
        options |= {
            "hoodie.write.table.version": str(how["table_version"]),
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        }
        if "ordering_field" in how:
            options["hoodie.datasource.write.precombine.field"] = "ts"
        asked.append({"path": url, "kind": "snapshot"})
        asked.append({"path": url, "kind": "upsert", "rows": [{"id": "a", "ts": 9, "n": 7}], "options": options})
        asked.append({"path": url, "kind": "snapshot"})
    answers = ask_jvm(asked, tmp_path)
    for name, (before, written, after) in zip(
        TABLES, zip(answers[0::3], answers[1::3], answers[2::3], strict=True), strict=True
    ):
        assert "error" in written, name
        assert [row["n"] for row in before["rows"]] == [row["n"] for row in after["rows"]] == [111], name
        with lakelatch.open(str(tmp_path / name)) as t:
            assert t.read(columns=["n"]).to_pylist() == [{"n": 111}]
