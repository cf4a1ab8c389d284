"""Columns that were declared not null when the table was made: every write keeps them so, and the schema says it."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import InputError
from lakelatch.hudi.table.avro_schema import from_avro
from lakelatch.occ.check.check import check

from ..transaction.test_altered_columns import by_hudi_rs

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("x", pa.int64(), nullable=False),
        pa.field("y", pa.int64()),
    ]
)
ROWS = [{"id": 1, "x": 1, "y": 1}, {"id": 2, "x": 2, "y": None}]


@pytest.fixture(params=["copy_on_write", "merge_on_read"])
def table(folder, request):
    with lakelatch.create(str(folder / "t"), record_key="id", schema=SCHEMA, type=request.param) as table:
        table.upsert(ROWS)
        yield table


def merge(table, x=None):
    return table.merge([{"id": 1, "x": x, "y": 7}])


def new(table):
    return table.merge([{"id": 9, "x": None, "y": 7}])


WRITES = {
    "upsert": lambda t: t.upsert([ROWS[0], {"id": 2, "x": None, "y": 1}]),
    "upsert of a part": lambda t: t.upsert([{"id": 1, "y": 1}], missing="null"),
    "upsert of a frame": lambda t: t.upsert(pa.table({"id": [1], "x": pa.nulls(1), "y": [1]})),
    "insert": lambda t: t.insert([{"id": 3, "x": None, "y": 1}]),
    "insert of a part": lambda t: t.insert([{"id": 3, "y": 1}], missing="null"),
    "overwrite": lambda t: t.overwrite([{"id": 3, "x": None, "y": 1}]),
    "overwrite of a part": lambda t: t.overwrite([{"id": 3, "y": 1}], missing="null"),
    "overwrite_table": lambda t: t.overwrite_table([{"id": 3, "x": None, "y": 1}]),
    "update_where": lambda t: t.update_where("true", set={"x": None}),
    "update_where of no row": lambda t: t.update_where("id = 17", set={"x": None}),
    "update_where, computed": lambda t: t.update_where("true", set={"x": lakelatch.sql("y")}),
    "matched, all": lambda t: merge(t).when_matched(update="all").run(),
    "matched, computed": lambda t: merge(t).when_matched(update={"x": lakelatch.sql("s.x")}).run(),
    "matched, given": lambda t: merge(t).when_matched(update={"x": None}).run(),
    "new, all": lambda t: new(t).when_not_matched(insert="all").run(),
    "new, computed": lambda t: new(t).when_not_matched(insert={"x": lakelatch.sql("s.x")}).run(),
    "new, not named": lambda t: new(t).when_not_matched(insert={"y": 5}).run(),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_no_write_leaves_a_null_in_it(table, write):
    commits = len(table.commits())
    with pytest.raises(InputError, match=r"\bx\b.*declared not null") as refused:
        write(table)
    assert "nothing was written" in str(refused.value)
    assert table.read().to_pylist() == ROWS
    assert len(table.commits()) == commits
    assert check(table.store, deep=True).sound(strict=True)


def test_a_file_of_ones_own_holds_none_either(table):
    rows = pa.Table.from_pylist([{"id": 3, "x": None, "y": 1}], schema=SCHEMA)
    with pytest.raises(InputError, match="declared not null"), table.transaction() as txn, txn.new_file() as file:
        file.write(rows)
    assert table.read().to_pylist() == ROWS


def test_what_has_values_is_written(table):
    table.upsert([{"id": 1, "x": 5, "y": None}])
    table.insert([{"id": 3, "x": 6}], missing="null")
    table.update_where("id = 3", set={"x": lakelatch.sql("x + 1"), "y": None})
    merge(table).when_matched(update={"y": lakelatch.sql("s.y")}).run()
    table.delete([{"id": 2}])
    found = sorted(table.read().to_pylist(), key=lambda row: row["id"])
    assert found == [{"id": 1, "x": 5, "y": 7}, {"id": 3, "x": 7, "y": None}]


def test_the_schema_says_it_to_all_who_read_it_and_goes_on_saying_it(table):
    table.add_column("z", "int32")
    table.widen_column("z", "int64")
    table.upsert([{"id": 1, "x": 5, "y": None, "z": 1, "more": 1.5}], new_columns="add")
    if table.config.merge_on_read:
        table.compact()
    with table.transaction() as txn:
        nullable = {each.name: each.nullable for each in txn.schema}
    assert nullable == {each.name: each.nullable for each in table.schema()}
    assert [name for name, each in nullable.items() if not each] == ["id", "x"]
    _, theirs = by_hudi_rs(table)
    assert theirs == {row["id"]: row for row in table.read().to_pylist()}
    with lakelatch.open(table.url) as again:
        assert again.schema() == table.schema()
        with pytest.raises(InputError, match="declared not null"):
            again.upsert([{"id": 1, "y": 1}], missing="null")


def test_a_table_that_was_never_written_says_it_too(folder):
    with lakelatch.create(str(folder / "t"), record_key="id", schema=SCHEMA) as table:
        assert table.schema() == SCHEMA
        fields = {each["name"]: each for each in json.loads(table.config.create_schema)["fields"]}
        assert fields["x"] == {"name": "x", "type": "long"}  # as the JVM writes it
        assert fields["y"] == {"name": "y", "type": ["null", "long"], "default": None}
        assert from_avro(table.config.create_schema) == SCHEMA
        with pytest.raises(InputError, match="declared not null"):
            table.insert([{"id": 1, "x": None, "y": 1}])


def test_rows_do_not_declare_it(folder):
    """Frames say of most columns that they have no null, which is of these rows alone."""
    with lakelatch.create(str(folder / "t"), record_key="id") as table:
        table.upsert(pa.Table.from_pylist(ROWS, schema=SCHEMA))
        table.upsert([{"id": 1, "x": None, "y": None}])
        assert all(each.nullable for each in table.schema())


@pytest.mark.parametrize("column", ["x", "z"])
def test_a_rebase_that_would_leave_a_null_is_refused(folder, column):
    schema = pa.schema([*SCHEMA, ("z", pa.int64())])
    with lakelatch.create(str(folder / "t"), record_key="id", schema=schema) as table:
        table.insert([row | {"y": 1, "z": None} for row in ROWS])
        txn = table.transaction()
        txn.update_where("true", set={column: lakelatch.sql("y")})
        table.upsert([{"id": 2, "x": 2, "y": None, "z": None}])
        if column == "z":
            txn.commit()
            assert [row["z"] for row in table.read().to_pylist()] == [1, None]
            return
        with pytest.raises(InputError, match="declared not null"):
            txn.commit()
        assert [row["x"] for row in table.read().to_pylist()] == [1, 2]


def test_what_merges_by_column_may_leave_a_value_out_but_no_row_may_lack_it(folder):
    table = lakelatch.create(str(folder / "t"), record_key="id", schema=SCHEMA, table_version=9, merge={"x": "sum"})
    with table:
        table.upsert(ROWS)
        table.upsert([{"id": 1, "x": None, "y": 5}])
        assert {"id": 1, "x": 1, "y": 5} in table.read().to_pylist()
        with pytest.raises(InputError, match="declared not null"):
            table.upsert([{"id": 3, "x": None, "y": 5}])


@pytest.mark.parametrize(
    "inside",
    [
        pa.struct([pa.field("a", pa.int64(), nullable=False)]),
        pa.list_(pa.field("item", pa.int64(), nullable=False)),
        pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False)),
        pa.list_(pa.struct([pa.field("a", pa.int64(), nullable=False)])),
    ],
    ids=str,
)
def test_what_is_not_kept_is_refused_when_the_table_is_made(folder, inside):
    with pytest.raises(InputError, match=r"'s\..* is declared not null, which is kept for whole columns only"):
        lakelatch.create(str(folder / "t"), record_key="id", schema=pa.schema([("id", pa.int64()), ("s", inside)]))
    assert not (folder / "t").exists()


def test_keys_of_maps_declare_nothing(folder):
    schema = pa.schema([("id", pa.int64()), ("m", pa.map_(pa.string(), pa.int64()))])
    with lakelatch.create(str(folder / "t"), record_key="id", schema=schema) as table:
        assert table.schema() == schema


# --- streams -----------------------------------------------------------------------------------------------------


def streams_of(folder, *required: str) -> lakelatch.Table:
    names = ("id", "a", "a_at", "b", "b_at")
    schema = pa.schema([pa.field(name, pa.int64(), nullable=name not in required) for name in names])
    settings = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1}
    return lakelatch.create(str(folder / "t"), record_key="id", schema=schema, **settings)


def test_a_stream_keeps_its_own_columns(folder):
    with streams_of(folder, "id", "a", "a_at") as table:
        stream = table.stream("a", columns="a", ordering="a_at", on_delete="row")
        stream.upsert([{"id": 1, "a": 1, "a_at": 1}])
        with pytest.raises(InputError, match=r"'a' .*declared not null"):
            stream.upsert([{"id": 1, "a": None, "a_at": 2}])
        stream.upsert([{"id": 1, "a": 2, "a_at": 3}])
        stream.upsert([{"id": 2, "a": 2, "a_at": 3}])
        stream.delete([{"id": 2, "a_at": 4}])
        table.compact()
        assert table.read().to_pylist() == [{"id": 1, "a": 2, "a_at": 3, "b": None, "b_at": None}]


@pytest.mark.parametrize(
    ("required", "stream", "words"),
    [
        ("a", {"name": "b", "columns": "b", "ordering": "b_at"}, "it does not write the column"),
        ("b", {"name": "a", "columns": "a", "ordering": "a_at", "on_delete": "row"}, "it does not write the column"),
        ("a", {"name": "a", "columns": "a", "ordering": "a_at", "on_delete": "clear"}, "its deletes empty the column"),
    ],
)
def test_a_stream_that_cannot_keep_a_column_is_refused(folder, required, stream, words):
    with streams_of(folder, required) as table:
        with pytest.raises(InputError, match=f"'{required}' .*declared not null.*{words}"):
            table.stream(**stream)
        assert table.settings.streams == ()


def test_a_second_stream_is_refused_that_begins_rows_without_the_first_ones_column(folder):
    with streams_of(folder, "a") as table:
        table.stream("a", columns="a", ordering="a_at", on_delete="row")
        with pytest.raises(InputError, match=r"'a' .*stream 'b'"):
            table.stream("b", columns="b", ordering="b_at")
        assert [each.name for each in table.settings.streams] == ["a"]
