"""A table without a record key: each inserted row gets an id, once, and rows are changed by condition or by that id."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.occ.writing import replacing

SCHEMA = "event string, n bigint, day string"
ROWS = [{"event": "click", "n": n, "day": "mon" if n % 2 else "tue"} for n in range(6)]


@pytest.fixture
def table(tmp_path: Path) -> Iterator[lakelatch.Table]:
    with lakelatch.create(tmp_path / "t", record_key=None, partition_by="day", schema=SCHEMA) as table:
        yield table


def ids(table: lakelatch.Table) -> list[str]:
    found = table.read().to_arrow().column("row_id").to_pylist()
    assert None not in found
    assert len(set(found)) == len(found)
    return found


def numbers(table: lakelatch.Table) -> list[int]:
    return sorted(table.read().to_arrow().column("n").to_pylist())


def test_equal_rows_of_every_form_are_rows_of_their_own(table: lakelatch.Table):
    arrow = pa.Table.from_pylist(ROWS)
    for given in (ROWS, ROWS, arrow, pandas.DataFrame(ROWS), arrow.to_reader(max_chunksize=2), iter_of(arrow)):
        table.insert(given)
    with table.transaction("insert") as txn:
        txn.insert(ROWS)
        txn.insert(ROWS)
    assert len(ids(table)) == 48
    assert numbers(table) == sorted([*range(6)] * 8)
    assert not table.read(where="row_id is null").count()


def iter_of(arrow: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(arrow.schema, iter(arrow.to_batches(max_chunksize=1)))


def test_rows_are_changed_by_condition_and_keep_their_ids(table: lakelatch.Table):
    table.insert(ROWS)
    before = {row["n"]: row["row_id"] for row in table.read().to_pylist()}
    table.update_where("n = 3", {"event": "view"})
    table.delete_where("n > 3")
    after = {row["n"]: (row["row_id"], row["event"]) for row in table.read().to_pylist()}
    assert after == {n: (before[n], "view" if n == 3 else "click") for n in range(4)}


def test_a_write_by_key_is_refused_by_name_and_a_row_that_was_read_may_be_written_back(table: lakelatch.Table):
    table.insert(ROWS)
    for call in (
        lambda: table.upsert(ROWS),
        lambda: table.delete([{"n": 1}]),
        lambda: table.merge(ROWS).when_not_matched(insert="all").run(),
    ):
        with pytest.raises(lakelatch.InputError, match="made without a key"):
            call()
    (row,) = table.read(where="n = 2").to_pylist()
    assert table.upsert([row | {"n": 20}]).updated == 1
    table.delete([{"row_id": row["row_id"], "day": row["day"]}])
    assert numbers(table) == [0, 1, 3, 4, 5]


def test_an_overwrite_gives_new_ids(table: lakelatch.Table):
    table.insert(ROWS)
    before = ids(table)
    table.overwrite(ROWS[:1])
    assert numbers(table) == [0, 1, 3, 5]
    table.overwrite_table(ROWS)
    assert numbers(table) == [*range(6)]
    assert not set(before) & set(ids(table))


def test_a_row_keeps_its_id_in_all_attempts(table: lakelatch.Table):
    write = replacing.insert(table.session, pa.Table.from_pylist(ROWS), "refuse", "refuse", None)
    tried: list[list[str]] = []
    for _ in range(2):
        txn = table.transaction("insert")
        write.stage(txn)
        tried.append(sorted(txn.read().to_arrow().column("row_id").to_pylist()))
        txn.abort()
    assert len(tried[0]) == 6
    assert tried[0] == tried[1]


def test_writers_at_once_lose_no_row(table: lakelatch.Table):
    def write() -> None:
        with lakelatch.open(table.url) as other:
            for _ in range(3):
                other.insert(ROWS)

    threads = [threading.Thread(target=write) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(ids(table)) == 54


def test_another_reader_sees_them_and_the_table_is_sound(table: lakelatch.Table):
    table.insert(ROWS)
    table.update_where("n = 3", {"event": "view"})
    found = pa.Table.from_batches(HudiTableBuilder.from_base_uri(table.url).build().read())
    assert sorted(found.column("row_id").to_pylist()) == sorted(ids(table))
    assert found.column("row_id").to_pylist() == found.column("_hoodie_record_key").to_pylist()
    assert lakelatch.occ.check.check(table.store).sound


@pytest.mark.parametrize(
    "more", [{"bucket_count": 2}, {"type": "merge_on_read"}, {"table_version": 9}, {"schema": None}], ids=str
)
def test_every_kind_of_table_may_have_no_key(tmp_path: Path, more: dict[str, Any]):
    given: dict[str, Any] = {"record_key": None, "partition_by": "day", "schema": SCHEMA, **more}
    with lakelatch.create(tmp_path / "t", **given) as table:
        table.insert(ROWS)
        table.insert(ROWS)
    with lakelatch.create(tmp_path / "t", exist_ok=True, **given) as again:
        again.insert(ROWS)
        assert len(ids(again)) == 18
        again.delete_where("n = 1")
        assert numbers(again).count(1) == 0
    with pytest.raises(lakelatch.ConfigError, match="record_key"):
        lakelatch.create(tmp_path / "t", **given | {"record_key": "row_id", "exist_ok": True, "schema": None})


def test_a_column_of_that_name_is_refused_and_so_are_streams(tmp_path: Path):
    with pytest.raises(lakelatch.InputError, match="row_id"):
        lakelatch.create(tmp_path / "t", record_key=None, schema="row_id string, n bigint")
    with pytest.raises(lakelatch.InputError, match="name a record_key"):
        lakelatch.create(
            tmp_path / "t", record_key=None, schema=SCHEMA, streams={"s": {"columns": ["n"], "ordering": "event"}}
        )
    assert not (tmp_path / "t").exists()
