"""A base file some of whose row groups were taken over as bytes is read by the JVM, and its keys are found there."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.occ.staging import TaskFiles, WritePlan, apply

from .cases import PLAIN, WRITE_OPTIONS, rows
from .readers import Row, ask_jvm, by_hudi_rs, by_us, in_order

pytestmark = pytest.mark.jvm

COUNT, SIZE = 400, 50  # rows of the table, and of a row group
INDEXES = ("SIMPLE", "GLOBAL_SIMPLE")


def upsert_by_row_groups(table: lakelatch.Table, changed: list[Row], *, delete: bool = False) -> None:
    """As `Table.upsert` does it with a file of more rows than fit into one row group."""
    with table.transaction() as txn:
        spec = replace(txn.file_spec(PLAIN), row_group_rows=SIZE)
        slices = {group.partition: (group,) for group in txn.snapshot.file_slices()}
        given = pa.Table.from_pylist(changed, PLAIN)
        with TaskFiles(spec, 0) as files:
            apply(WritePlan(spec, slices, delete=delete), given.select(["id", "place"]) if delete else given, files)
            txn.add(files.stats())


def made(folder: Path) -> dict[str, Row]:
    """A table whose file of JFK has row groups of three commits, and the rows that it holds."""
    first, second = rows("JFK", range(COUNT)), rows("JFK", range(60, 63), seen=2) + rows("JFK", range(900, 903))
    with lakelatch.create(str(folder), record_key="id", partition_by="place", schema=PLAIN, table_version=8) as table:
        upsert_by_row_groups(table, first)
        begun = sequence_numbers(table)
        upsert_by_row_groups(table, second)
        upsert_by_row_groups(table, rows("JFK", range(120, 122)), delete=True)
        assert len(begun & sequence_numbers(table)) > 3, "row groups were taken over"
    held = {row["id"]: row for row in first + second}
    return {key: row for key, row in held.items() if key not in ("JFK-120", "JFK-121")}


def sequence_numbers(table: lakelatch.Table) -> set[bytes]:
    """The bytes of a column that each row group has for itself."""
    (group,) = table.snapshot().file_slices()
    path = Path(table.url.removeprefix("file://")) / group.path
    body, meta = path.read_bytes(), pq.read_metadata(path)
    chunks = [meta.row_group(number).column(1) for number in range(meta.num_row_groups)]
    return {body[each.data_page_offset :][: each.total_compressed_size] for each in chunks}


def asked(folder: Path, kind: str, **more: Any) -> dict[str, Any]:
    return {"path": str(folder), "kind": kind, **more}


@pytest.mark.thorough
def test_the_jvm_reads_row_groups_that_were_taken_over_and_upserts_onto_them(tmp_path: Path) -> None:
    held = made(tmp_path / INDEXES[0])
    shutil.copytree(tmp_path / INDEXES[0], tmp_path / INDEXES[1])
    changed = rows("JFK", range(58, 64), seen=9) + rows("JFK", range(398, 402), seen=9) + rows("JFK", range(120, 121))
    questions = [asked(tmp_path / INDEXES[0], "snapshot")]
    for index in INDEXES:
        options = WRITE_OPTIONS | {"hoodie.index.type": index, "hoodie.table.name": INDEXES[0]}
        questions.append(asked(tmp_path / index, "upsert", rows=changed, options=options))
    first, *upserted = ask_jvm(questions, tmp_path)
    assert in_order(first["rows"]) == in_order(held.values())
    after = held | {row["id"]: row for row in changed}
    more, last = rows("JFK", range(5), seen=11), rows("JFK", range(390, 391), seen=12)
    for index, answer in zip(INDEXES, upserted, strict=True):
        assert "rows" in answer, (index, answer["error"])
        assert in_order(answer["rows"]) == in_order(after.values())
        assert in_order(by_hudi_rs(tmp_path / index)) == in_order(by_us(tmp_path / index)) == in_order(after.values())
        with lakelatch.adopt(str(tmp_path / index)) as table:
            upsert_by_row_groups(table, more)  # onto the file that the JVM wrote
            upsert_by_row_groups(table, last)
    after |= {row["id"]: row for row in more + last}
    answers = ask_jvm([asked(tmp_path / index, "snapshot") for index in INDEXES], tmp_path)
    for index, answer in zip(INDEXES, answers, strict=True):
        assert in_order(answer["rows"]) == in_order(by_us(tmp_path / index)) == in_order(after.values())
