"""Tables that are made with their streams, by one call."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch

SCHEMA = pa.schema([("k", "string"), ("a", "int64"), ("a_at", "int64"), ("b", "string"), ("b_at", "int64")])
STREAMS = {
    "left": {"columns": ["a"], "ordering": "a_at", "on_delete": "row", "default": {"a": 7}},
    "right": {"columns": "b", "ordering": "b_at"},
}


def create(folder: Path, **more: Any) -> lakelatch.Table:
    return lakelatch.create(str(folder / "t"), **({"record_key": "k", "schema": SCHEMA, "streams": STREAMS} | more))


def test_one_call_makes_what_streams_need(tmp_path: Path) -> None:
    with create(tmp_path) as table:
        assert [each.name for each in table.streams] == ["left", "right"]
        assert table.config.merge_on_read
        assert (table.config.version, table.settings.bucket_count) == (9, 8)
        table.stream("right").upsert([{"k": "x", "b": "first", "b_at": 1}])
        table.stream("left").upsert([{"k": "x", "a": 1, "a_at": 5}, {"k": "y", "a": 2, "a_at": 5}])
        found = table.read(columns=["k", "a", "b"]).to_pylist()
        assert sorted(found, key=str) == [{"k": "x", "a": 1, "b": "first"}, {"k": "y", "a": 2, "b": None}]


def test_what_is_said_is_kept(tmp_path: Path) -> None:
    with create(tmp_path, bucket_count=2) as table:
        assert table.settings.bucket_count == 2


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"streams": {"s": {"columns": ["nope"], "ordering": "a_at"}}}, "no column nope"),
        ({"streams": {"s": {"columns": ["k"], "ordering": "a_at"}}}, "k"),
        ({"streams": STREAMS | {"third": {"columns": ["a"], "ordering": "a_at"}}}, "a column belongs to one stream"),
        (
            {"streams": {"left": STREAMS["left"], "b": {"columns": "b", "ordering": "b_at", "on_delete": "row"}}},
            "only one can",
        ),
        ({"streams": {"s": {"columns": ["a"]}}}, "ordering"),
        ({"streams": {"s": {"ordering": "a_at"}}}, "columns"),
        ({"streams": {"s": {"columns": ["a"], "ordering": "a_at", "odering": "b"}}}, "odering"),
        ({"streams": {"s": {"columns": ["a"], "ordering": "a_at", "merge": {"a": "sum"}}}}, "foreign_readers"),
        ({"streams": ["left"]}, "told by name"),
        ({"streams": {"s": ["a"]}}, "told by name"),
        ({"schema": None}, "a schema too"),
        ({"type": "copy_on_write"}, "merge-on-read"),
        ({"table_version": 8}, "version 9"),
        ({"bucket_count": None}, "bucket"),
        ({"ordering_field": "a_at"}, "no ordering_field"),
        ({"unique_constraints": [["b"]]}, "unique constraints"),
        ({"schema": SCHEMA.set(1, pa.field("a", "int64", nullable=False))}, "not null"),
    ],
)
def test_what_does_not_go_is_refused_before_anything_is_written(
    tmp_path: Path, more: dict[str, Any], told: str
) -> None:
    with pytest.raises(lakelatch.LakeLatchError, match=told) as error:
        create(tmp_path, **more)
    assert isinstance(error.value, lakelatch.InputError | lakelatch.ConfigError)
    assert list(tmp_path.rglob("*")) in ([], [tmp_path / "t"])


def test_a_creator_that_died_between_table_and_streams_is_finished(tmp_path: Path) -> None:
    with create(tmp_path, streams=None, type="merge_on_read", table_version=9, bucket_count=8):
        pass
    for _ in range(2):
        with create(tmp_path, exist_ok=True) as table:
            assert [each.name for each in table.streams] == ["left", "right"]


def test_an_existing_table_must_agree_with_the_streams(tmp_path: Path) -> None:
    create(tmp_path).close()
    with pytest.raises(lakelatch.InputError, match="'left'"):
        create(tmp_path, exist_ok=True, streams=STREAMS | {"left": {"columns": ["a"], "ordering": "a_at"}})
    with create(tmp_path, exist_ok=True, streams={"right": STREAMS["right"]}) as table:
        assert len(table.streams) == 2, "others may have been declared since"


def test_columns_are_declared_as_text(tmp_path: Path) -> None:
    text = "k string NOT NULL, a: bigint, `a_at` timestamp, b decimal(12,2), c array<struct<x: int, y: date>>"
    with create(tmp_path, schema=text, streams={"s": {"columns": ["a", "b"], "ordering": "a_at"}}) as table:
        assert table.schema() == pa.schema([
            pa.field("k", "string", nullable=False), ("a", "int64"), ("a_at", pa.timestamp("us", "UTC")),
            ("b", pa.decimal128(12, 2)),
            ("c", pa.list_(pa.field("element", pa.struct([("x", "int32"), ("y", pa.date32())])))),
        ])  # fmt: skip


@pytest.mark.parametrize("text", ["", "k", "k strin", "k string a bigint", "k string,", "k string not", ", k string"])
def test_a_text_that_declares_no_columns_is_refused_before_anything_is_written(tmp_path: Path, text: str) -> None:
    with pytest.raises(lakelatch.InputError, match="declares no columns; write each as a name and a type"):
        create(tmp_path, schema=text, streams=None)
    assert list(tmp_path.iterdir()) == []
