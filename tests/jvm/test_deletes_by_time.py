"""Deletes that are ordered by a date or a time: numbers, which all readers compare with the rows."""

from __future__ import annotations

import datetime as dt
import io
import struct
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

import lakelatch
from lakelatch.hudi.files import DELETE, Block, read_blocks
from lakelatch.hudi.files.log_blocks import _delete_schema

from ..occ.mor import Mor, at, data_block, delete_block
from ..thorough import crossed
from .readers import ask_jvm, by_hudi_rs, by_us, in_order

pytestmark = pytest.mark.jvm

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def day(number: int) -> dt.date:
    return dt.date(2026, 1, number)


def time(number: int) -> dt.datetime:
    return dt.datetime(2026, 1, number, 1, 2, 3, 456, dt.UTC)


# The type of the column, its values, and how a delete names one.
KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {
    "date": (pa.date32(), day, lambda number: ("IntWrapper", (day(number) - EPOCH.date()).days)),
    "time": (
        pa.timestamp("us", "UTC"),
        time,
        lambda number: ("LongWrapper", (time(number) - EPOCH) // dt.timedelta(microseconds=1)),
    ),
}


def test_deletes_that_the_jvm_orders_by_a_time(tmp_path: Path) -> None:
    path = tmp_path / "t"

    def rows(number: int, *, gone: bool, keys: str) -> str:
        return ", ".join(f"('{key}', timestamp'{time(number):%Y-%m-%d %H:%M:%S.%f}', {gone})" for key in keys)

    properties = "type = 'mor', primaryKey = 'id', orderingFields = 'v'"
    columns = "id string, v timestamp, _hoodie_is_deleted boolean"
    deletes = ", ".join([rows(6, gone=True, keys="a"), rows(4, gone=True, keys="b"), rows(5, gone=True, keys="c")])
    statements = [
        f"create table by_time ({columns}) using hudi tblproperties ({properties}) location '{path}'",
        f"insert into by_time values {rows(5, gone=False, keys='abc')}",
        f"insert into by_time values {deletes}",
    ]
    (answer,) = ask_jvm([{"path": str(path), "kind": "sql", "statements": statements}], tmp_path)
    assert [row["id"] for row in answer["rows"]] == ["b"]
    assert branches(path) == {"LongWrapper"}
    assert in_order(answer["rows"]) == in_order(by_us(path)) == in_order(by_hudi_rs(path))


@pytest.mark.thorough
@pytest.mark.parametrize(("kind", "version"), crossed(KINDS, [8, 9]))
def test_deletes_by_time_are_the_same_for_all_readers_whoever_has_merged_them(
    tmp_path: Path, kind: str, version: int
) -> None:
    """JVM Hudi 1.2.0 fails to write one that is ordered by a date, and reads these."""
    column, value, named = KINDS[kind]
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", column)])
    mor = Mor(tmp_path / "t", version=version, columns=schema)

    def rows(number: int, *keys: str) -> list[dict[str, Any]]:
        return [{"id": key, "part": "a", "v": value(number)} for key in keys]

    mor.base(at(1), at(2), "a", rows(5, "a", "b", "c"))
    mor.log(at(3), at(4), "a", data_block(at(3), rows(5, "d", "e", "f"), schema=schema))
    deletes = [(key, named(number)) for key, number in zip("abcdef", (6, 4, 5, 6, 4, 5), strict=True)]
    mor.log(at(5), at(6), "a", delete_block(at(5), deletes))

    def agreed() -> list[str]:
        (answer,) = ask_jvm([{"path": str(mor.folder), "kind": "snapshot"}], tmp_path)
        assert in_order(answer["rows"]) == in_order(by_us(mor.folder)) == in_order(by_hudi_rs(mor.folder))
        return sorted(row["id"] for row in answer["rows"])

    assert agreed() == ["b", "e"]
    with lakelatch.adopt(str(mor.folder)) as table:
        assert table.compact_logs(min_logs=2)
        assert agreed() == ["b", "e"]
        assert branches(mor.folder / "part=a") == {named(1)[0]}
        table.upsert([row for number, key in ((5, "a"), (7, "d")) for row in rows(number, key)])
        assert agreed() == ["b", "d", "e"]
        assert table.compact()
    assert agreed() == ["b", "d", "e"]


def branches(folder: Path) -> set[str]:
    """Of what kinds the ordering values of all deletes are."""
    found = set()
    for log in folder.glob(".*.log.*"):
        for block in read_blocks(log.read_bytes(), log.name) if log.suffix != ".crc" else ():
            if isinstance(block, Block) and block.kind == DELETE:
                size = struct.unpack_from(">i", block.content, 4)[0]
                body: Any = io.BytesIO(block.content[8 : 8 + size])
                listed: Any = fastavro.schemaless_reader(body, _delete_schema(), None, return_record_name=True)
                found |= {each["orderingVal"][0].rpartition(".")[2] for each in listed["deleteRecordList"]}
    return found
