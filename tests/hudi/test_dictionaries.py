"""Texts as codes: the same values as plain, nothing of a deleted row left, the key column read once only if it is the key."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakelatch
from lakelatch.hudi.files.footers import note_of
from lakelatch.hudi.merge.rows import cast, filled, holds, joined, plain, stored_texts, without_unused
from lakelatch.hudi.table.column_types import META_COLUMNS
from lakelatch.hudi.table.config import TableConfig
from lakelatch.hudi.table.record_keys import RECORD_KEY
from lakelatch.occ.liveness.heartbeat import heartbeat_path
from lakelatch.occ.staging.apply_rows import read_slice
from lakelatch.occ.staging.base_file import BaseFileWriter
from lakelatch.occ.staging.file_spec import FileSpec, group_id
from lakelatch.storage.local.store import LocalStore

T1 = "20260101000000001"
SCHEMA = pa.schema([("id", pa.string()), ("name", pa.string()), ("v", pa.int64())])
TEXTS = st.lists(st.lists(st.none() | st.sampled_from(["", "a", "b", "ü", "long " * 9]), max_size=8), max_size=4)


def _chunked(pieces: list[list[str | None]]) -> pa.ChunkedArray:
    return pa.chunked_array(
        [pa.array(p, pa.string()).dictionary_encode() for p in pieces], pa.dictionary(pa.int32(), pa.string())
    )


@settings(deadline=None)
@given(TEXTS)
def test_values_stay_what_they_are(pieces: list[list[str | None]]) -> None:
    column, values = _chunked(pieces), [value for piece in pieces for value in piece]
    assert plain(column).to_pylist() == joined(column).to_pylist() == without_unused(column).to_pylist() == values
    assert filled(column, "a").to_pylist() == ["a" if value is None else value for value in values]
    assert cast(plain(column), column.type).type == column.type
    assert holds(column.type, pa.string())
    assert not holds(column.type, pa.int64())


@settings(deadline=None)
@given(TEXTS, st.data())
def test_only_values_that_some_row_has_stay_in_the_dictionary(pieces: list[list[str | None]], data: Any) -> None:
    column = _chunked(pieces)
    kept = column.filter(pa.array([data.draw(st.booleans()) for _ in range(len(column))], pa.bool_()))
    found = without_unused(kept)
    assert sorted(found.dictionary.to_pylist()) == sorted({v for v in kept.to_pylist() if v is not None})
    assert len(set(filled(kept, "a").dictionary.to_pylist())) == len(filled(kept, "a").dictionary)


def _values_stored(table: lakelatch.Table) -> set[str]:
    """All values in the dictionary pages of the column ``name``, whether a row has them or not."""
    (group,) = table.snapshot().file_slices()
    with table.store.open(group.path) as stream:
        rows = pq.ParquetFile(stream, read_dictionary=["name"]).read(["name"])
    return {value for chunk in rows.column(0).chunks for value in chunk.dictionary.to_pylist()}


@pytest.mark.parametrize("how", ["delete", "overwrite", "condition"])
def test_nothing_of_a_row_that_is_gone_stays_in_the_new_file(tmp_path: Path, how: str) -> None:
    names = ["ann", "bob", "secret", "cy"] * 50
    names[2::4] = ["secret", *["ann"] * 49]
    rows = pa.table({"id": [f"k{i}" for i in range(200)], "name": names, "v": range(200)}, schema=SCHEMA)
    with lakelatch.create(str(tmp_path / "t"), record_key="id", schema=SCHEMA) as table:
        with table.transaction("upsert") as txn:
            txn.upsert(rows)
        assert _values_stored(table) == {"ann", "bob", "secret", "cy"}
        with table.transaction("delete" if how != "overwrite" else "upsert") as txn:
            if how == "delete":
                txn.delete(pa.table({"id": ["k2"]}))
            elif how == "condition":
                txn.delete_where([("name", "=", "secret")])
            else:
                txn.upsert(pa.table({"id": ["k2"], "name": ["new"], "v": [2]}, schema=SCHEMA))
        expected = {"k2": "new"} if how == "overwrite" else {}
        expected |= {f"k{i}": name for i, name in enumerate(names) if i != 2}
        found = table.read().to_arrow().to_pydict()
        assert dict(zip(found["id"], found["name"], strict=True)) == expected
        assert _values_stored(table) == set(expected.values())


def test_other_columns_than_text_in_dictionaries_are_left_as_they_are(tmp_path: Path) -> None:
    rows = pa.table(
        {"few": ["a", "b"] * 9, "each": [f"x{n}" for n in range(18)], "n": [1, 2] * 9, "raw": [b"1", b"2"] * 9}
    )
    nested = rows.append_column("deep", pa.array([{"few": "a"}] * 18))
    pq.write_table(nested, tmp_path / "f.parquet", use_dictionary=["few", "n", "raw", "deep.few"])
    metadata = pq.read_metadata(tmp_path / "f.parquet")
    assert stored_texts(metadata) == ["few"]
    assert stored_texts(metadata, but=["few"]) == []


def test_unique_text_that_came_in_a_dictionary_is_stored_by_its_differences(tmp_path: Path) -> None:
    names = [f"name {n:07}" for n in range(3000)]
    rows = pa.table({"id": [f"k{n}" for n in range(3000)], "name": names, "v": range(3000)}, schema=SCHEMA)
    coded = rows.set_column(1, "name", rows["name"].dictionary_encode())
    with BaseFileWriter(_spec(tmp_path), partition="", file_id=group_id(T1, "", 0)) as writer:
        writer.write(coded)
    assert writer.stat is not None
    group = pq.read_metadata(tmp_path / writer.stat.path).row_group(0)
    (name,) = (c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == "name")
    assert set(name.encodings) == {"DELTA_BYTE_ARRAY", "RLE"}
    assert pq.ParquetFile(tmp_path / writer.stat.path).read(["name"])["name"].to_pylist() == names


def test_a_writer_may_hand_in_text_in_a_dictionary_in_one_call_and_plain_in_another(tmp_path: Path) -> None:
    rows = pa.table({"id": list("abcdef"), "name": list("xyxyzz"), "v": range(6)}, schema=SCHEMA)
    small = rows["name"].cast(pa.dictionary(pa.int8(), pa.string()))
    coded = rows.set_column(1, "name", small)
    numbers = rows.set_column(2, "v", rows["v"].dictionary_encode())
    spec = replace(_spec(tmp_path), row_group_rows=2)
    with BaseFileWriter(spec, partition="", file_id=group_id(T1, "", 0)) as writer:
        for call in (coded.slice(0, 2), rows.slice(2, 2), numbers.slice(4, 2)):
            writer.write(call)
    assert writer.stat is not None
    assert pq.ParquetFile(tmp_path / writer.stat.path).read(SCHEMA.names).to_pydict() == rows.to_pydict()


def _spec(root: Path, fields: tuple[str, ...] = ("id",)) -> FileSpec:
    (root / ".hoodie").mkdir(exist_ok=True)
    store = LocalStore(root)
    store.put(heartbeat_path(T1), b"alive")
    config = TableConfig("t", "COPY_ON_WRITE", 8, 2, record_key_fields=fields, partition_fields=(), keygen="SIMPLE")
    return FileSpec(store=store, instant=T1, schema=SCHEMA, config=config)


@pytest.mark.parametrize(
    ("keys", "fields", "told"),
    [
        (["a", "b"], ("id",), "id"),
        (["a", "id:b"], ("id",), None),  # as other engines have spelled keys of one field
        (["id:a,name:x", "id:b,name:y"], ("id", "name"), None),
    ],
)
def test_the_key_column_is_read_once_only_where_all_keys_are_its_values(
    tmp_path: Path, keys: list[str], fields: tuple[str, ...], told: str | None
) -> None:
    rows = pa.table({"id": ["a", "b"], "name": ["x", "y"], "v": [1, 2]}, schema=SCHEMA)
    spec = _spec(tmp_path, fields)
    times = pa.array([T1, T1]) if told is None else pa.nulls(2, pa.string())
    copied = rows.append_column(META_COLUMNS[0], times).append_column(META_COLUMNS[1], pa.array(["1", "2"]))
    with BaseFileWriter(spec, partition="", file_id=group_id(T1, "", 0), io="MERGE") as writer:
        writer.write(copied.append_column(RECORD_KEY, pa.array(keys)))
    assert writer.stat is not None
    assert note_of(pq.read_metadata(tmp_path / writer.stat.path)).get("key") == told
    found = read_slice(spec, writer.stat.path)
    assert found.select([RECORD_KEY, *SCHEMA.names]).to_pydict() == {RECORD_KEY: keys, **rows.to_pydict()}
