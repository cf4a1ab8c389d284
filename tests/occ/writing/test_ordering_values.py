"""Ordering values that readers do not agree on are written by no door; docs/merge-on-read.md says which and why."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import InputError, UnsupportedTableError
from lakelatch.hudi.files import Block, list_data_files, read_blocks
from lakelatch.hudi.files.log_blocks import AVRO, PARQUET

from ..world import independent_content

SCHEMA = pa.schema([("id", pa.string()), ("seen", pa.float64()), ("v", pa.int64())])
NAN = float("nan")


def table(folder: Path, kind: str = "merge_on_read", **options: Any) -> lakelatch.Table:
    return lakelatch.create(
        str(folder), record_key="id", schema=SCHEMA, type=kind, **({"ordering_field": "seen"} | options)
    )


def rows(*values: tuple[str, float | None, int]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, each, strict=True)) for each in values], schema=SCHEMA)


def by_engine(txn: lakelatch.Transaction, batch: pa.Table) -> None:
    with txn.new_file() as file:
        file.write(batch)


DOORS: dict[str, tuple[str, Callable[[lakelatch.Transaction, pa.Table], object]]] = {
    "insert": ("insert", lambda txn, batch: txn.insert(batch)),
    "upsert": ("upsert", lambda txn, batch: txn.upsert(batch)),
    "overwrite": ("insert_overwrite", lambda txn, batch: txn.overwrite(batch)),
    "overwrite_table": ("insert_overwrite_table", lambda txn, batch: txn.overwrite_table(batch)),
    "update_where": ("upsert", lambda txn, batch: txn.update_where("id = 'a'", {"seen": batch["seen"][1].as_py()})),
    "update_where by an expression": (
        "upsert",
        lambda txn, batch: txn.update_where(
            "id = 'a'", {"seen": lakelatch.sql("null" if batch["seen"][1].as_py() is None else "cast('NaN' as double)")}
        ),
    ),
    "merge": ("upsert", lambda txn, batch: txn.merge(batch).when_matched(update="all").when_not_matched(insert="all").run()),
    "new_file": ("insert", by_engine),
}  # fmt: skip


@pytest.mark.parametrize("bad", [None, NAN], ids=["null", "NaN"])
@pytest.mark.parametrize("door", DOORS)
def test_a_merge_on_read_table_takes_no_ordering_value_that_orders_nothing(
    tmp_path: Path, door: str, bad: float | None
) -> None:
    operation, write = DOORS[door]
    with table(tmp_path / "t") as t:
        t.insert(rows(("a", 5.0, 0), ("b", 5.0, 0)))
        before = list_data_files(t.store)
        said = r"'seen' (is null in 1 rows|holds NaN).*(nothing was written|fill these rows)"
        with pytest.raises(InputError, match=said), t.transaction(operation) as txn:
            write(txn, rows(("a", 6.0, 1), ("b", bad, 1)))
        assert list_data_files(t.store) == before
        assert t.read().count() == 2


def test_the_message_names_the_row(tmp_path: Path) -> None:
    said = r"null in 2 rows \(.b., .\{%s\}.\), and t is merge-on-read"
    with table(tmp_path / "t") as t, pytest.raises(InputError, match=said):
        t.upsert(rows(("a", 1.0, 0), ("b", None, 0), ("{%s}", None, 0)))


def test_tables_ordered_by_commits_take_them(tmp_path: Path) -> None:
    with table(tmp_path / "t", ordering_field=None) as t:
        t.upsert(rows(("a", None, 0), ("b", NAN, 0)))
        t.upsert(rows(("a", NAN, 1)))
        assert t.read().count() == 2


@pytest.mark.parametrize("rebased", [False, True])
def test_on_a_copy_on_write_table_null_is_older_than_every_value(tmp_path: Path, rebased: bool) -> None:
    """When it is written, and when it is merged again onto what another writer has landed meanwhile."""
    with table(tmp_path / "t", "copy_on_write") as t:
        t.insert(rows(("value", 5.0, 0), ("null", None, 0), ("both", None, 0), ("other", 5.0, 0)))
        txn = t.transaction()
        txn.upsert(rows(("value", None, 1), ("null", -1e9, 1), ("both", None, 1)))
        if rebased:
            t.upsert(rows(("other", 6.0, 2)))
        txn.commit()
        wanted = {"value": 0, "null": 1, "both": 1, "other": 2 if rebased else 0}
        assert independent_content(tmp_path / "t") == wanted
        with pytest.raises(InputError, match="holds NaN"), t.transaction("insert") as txn:
            by_engine(txn, rows(("n", NAN, 0)))


@pytest.mark.parametrize("logged", [False, True])
def test_a_table_that_has_null_ordering_values_is_not_adopted(tmp_path: Path, logged: bool) -> None:
    def write(folder: Path, value: float | None) -> None:
        with table(folder, ordering_field=None, table_version=9) as t:
            t.insert(rows(("a", 5.0 if logged else value, 0), ("b", 5.0, 0)))
            if logged:
                t.upsert(rows(("a", value, 1)))
        properties = folder / ".hoodie/hoodie.properties"
        text = properties.read_text().replace("COMMIT_TIME_ORDERING", "EVENT_TIME_ORDERING")
        properties.write_text(f"hoodie.table.ordering.fields=seen\n{text}")
        shutil.rmtree(folder / ".hoodie/.lakelatch")

    write(tmp_path / "null", None)
    with pytest.raises(UnsupportedTableError, match="ordered by 'seen', which is null in rows of file group"):
        lakelatch.adopt(str(tmp_path / "null"))
    assert not (tmp_path / "null/.hoodie/.lakelatch").exists()
    write(tmp_path / "filled", 6.0)
    with lakelatch.adopt(str(tmp_path / "filled")) as t:
        assert t.read().count() == 2


@pytest.mark.parametrize(
    ("ordering", "kind"), [("seen", PARQUET), ("id", AVRO), (["seen", "id"], AVRO), (None, PARQUET)], ids=str
)
def test_log_files_hold_avro_where_a_text_orders_rows(tmp_path: Path, ordering: Any, kind: int) -> None:
    """Which the JVM compares wrongly in Parquet (tests/jvm/test_text_ordering.py); also those of a log compaction."""
    with table(tmp_path / "t", ordering_field=ordering, table_version=9) as t:
        t.insert(rows(("a", 1.0, 0), ("b", 1.0, 0)))
        t.upsert(rows(("a", 2.0, 1)))
        t.upsert(rows(("b", 2.0, 1)))
        assert t.compact_logs(min_logs=2)
        logs = list_data_files(t.store).logs
        blocks = [block for log in logs for block in read_blocks(t.store.body(log.path) or b"", log.path)]
        assert len(logs) == 3
        assert {block.kind for block in blocks if isinstance(block, Block)} == {kind}
        assert dict(zip(*t.read(columns=["id", "v"]).to_arrow().to_pydict().values(), strict=True)) == {"a": 1, "b": 1}


@pytest.mark.parametrize("ties", ["last", "first"])
@pytest.mark.parametrize("width", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize("merge", [{}, {"n": "sum"}, {"n": "last_non_null"}], ids=["plain", "sum", "last_non_null"])
@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_zero_is_one_ordering_value_whatever_its_sign(
    tmp_path: Path, kind: str, merge: Any, width: pa.DataType, ties: str
) -> None:
    """Zeros of both signs: in one batch and in two, as log files and compacted, and in a pair of columns."""
    schema = pa.schema([("id", pa.string()), ("o", width), ("then", width), ("v", pa.string()), ("n", pa.int64())])

    def some(*told: tuple[str, float, str]) -> pa.Table:
        return pa.Table.from_pylist(
            [{"id": key, "o": at, "then": -at, "v": v, "n": 1} for key, at, v in told], schema=schema
        )

    given: dict[str, Any] = {"type": kind, "table_version": 9, "schema": schema, "merge": merge, "ties": ties}
    for ordering in ("o", ["o", "then"]):
        with lakelatch.create(
            str(tmp_path / str(len(ordering))), record_key="id", ordering_field=ordering, **given
        ) as t:
            t.upsert(
                some(
                    ("a", 0.0, "1"),
                    ("a", -0.0, "2"),
                    ("b", -0.0, "1"),
                    ("b", 0.0, "2"),
                    ("c", 0.0, "1"),
                    ("d", -0.0, "1"),
                )
            )
            t.upsert(some(("c", -0.0, "2"), ("d", 0.0, "2")))
            t.upsert(some(("c", 0.0, "3"), ("d", -0.0, "3"), ("c", -1.0, "late"), ("d", -1.0, "late")))
            stand = {"a": "2", "b": "2", "c": "3", "d": "3"} if ties == "last" else dict.fromkeys("abcd", "1")
            for _ in range(2):
                assert {row["id"]: row["v"] for row in t.read().to_pylist()} == stand
                assert {t.read(where=where).count() for where in ("o = 0", "o >= 0.0D", "o in (-0.0D)")} == {4}
                if kind == "merge_on_read":
                    t.compact()
            t.delete(
                pa.table({"id": ["a", "b"], "o": pa.array([-0.0, 0.0], width), "then": pa.array([0.0, 0.0], width)})
            )
            assert t.read(columns=["id"]).count() == (2 if ties == "last" else 4)


def test_zero_is_one_ordering_value_of_a_stream_too(tmp_path: Path) -> None:
    given: dict[str, Any] = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1}
    with lakelatch.create(str(tmp_path / "t"), record_key="id", schema=SCHEMA, **given) as t:
        stream = t.stream("s", columns=["v"], ordering="seen", on_delete="clear")
        stream.upsert(rows(("a", 0.0, 1), ("a", -0.0, 2), ("b", -0.0, 1), ("b", 0.0, 2), ("c", 0.0, 1), ("d", -0.0, 1)))
        stream.upsert(rows(("c", -0.0, 2), ("d", 0.0, 2)))
        t.compact()
        stream.upsert(rows(("c", 0.0, 3), ("d", -0.0, 3)))
        assert {row["id"]: row["v"] for row in t.read().to_pylist()} == {"a": 2, "b": 2, "c": 3, "d": 3}
        stream.delete(rows(("a", 0.0, 0), ("b", -0.0, 0)).select(["id", "seen"]))
        assert {row["id"]: row["v"] for row in t.read().to_pylist()} == {"a": None, "b": None, "c": 3, "d": 3}
