"""Column types: what a table can hold, how a commit names it, and what may change."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import CorruptTableError, InputError
from lakelatch.hudi.table.avro_schema import decimal_bytes, dropped_columns, from_avro, to_avro
from lakelatch.hudi.table.column_types import META_COLUMNS, storable, widen, with_column
from lakelatch.hudi.table.type_names import type_of

PLAIN = [
    pa.bool_(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
]
DECIMALS = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


def structs(inner):
    return st.lists(st.tuples(NAMES, inner), min_size=1, max_size=3, unique_by=lambda each: each[0]).map(pa.struct)


TYPES = st.recursive(
    st.sampled_from(PLAIN) | DECIMALS,
    lambda inner: (
        inner.map(lambda kind: pa.list_(pa.field("element", kind)))
        | inner.map(lambda kind: pa.map_(pa.string(), kind))
        | structs(inner)
    ),
    max_leaves=6,
)
SCHEMAS = st.lists(st.tuples(NAMES, TYPES), min_size=1, max_size=5, unique_by=lambda each: each[0]).map(pa.schema)


@given(SCHEMAS)
def test_schemas_survive_the_way_through_avro(schema):
    assert storable(schema) == schema
    assert from_avro(to_avro(schema, "t")) == schema


@given(SCHEMAS)
def test_avro_is_accepted_by_an_avro_library(schema):
    import fastavro

    fastavro.parse_schema(json.loads(to_avro(schema, "my-table")))


@pytest.mark.parametrize(
    ("given_type", "stored"),
    [
        (pa.int8(), pa.int32()),
        (pa.int16(), pa.int32()),
        (pa.large_string(), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.timestamp("ns", "Europe/Rome"), pa.timestamp("us", "UTC")),
        (pa.date64(), pa.date32()),
        (pa.large_list(pa.int16()), pa.list_(pa.field("element", pa.int32()))),
        (pa.uint8(), pa.int32()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.uint64(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.binary(4), pa.binary()),
        (pa.list_view(pa.float16()), pa.list_(pa.field("element", pa.float32()))),
        (pa.list_(pa.int64(), 3), pa.list_(pa.field("element", pa.int64()))),
    ],
)
def test_forms_that_differ_only_in_memory_become_one(given_type, stored):
    assert storable(pa.schema([("x", given_type)])).field("x").type == stored


@pytest.mark.parametrize(
    ("kind", "way_out"),
    [
        (pa.timestamp("us"), "say which zone"),
        (pa.time64("us"), "int64"),
        (pa.duration("us"), "int64"),
        (pa.null(), "nulls only"),
        (pa.map_(pa.int32(), pa.string()), "text keys"),
        (pa.decimal256(50, 2), "convert it"),
        (pa.struct([("deep", pa.list_(pa.null()))]), "x.deep.element"),
    ],
)
def test_types_that_readers_cannot_hold_are_refused_with_the_way_out(kind, way_out):
    with pytest.raises(InputError, match=way_out) as refused:
        storable(pa.schema([("x", kind)]))
    assert "'x" in str(refused.value)


@pytest.mark.parametrize("name", ["with space", "1st", "é", "a.b", "", "_hoodie_mine", "_Hoodie_mine"])
def test_names_that_readers_cannot_hold_are_refused(name):
    with pytest.raises(InputError, match="Rename"):
        storable(pa.schema([(name, pa.int64())]))


def test_names_that_differ_only_in_case_are_refused():
    with pytest.raises(InputError, match="ignores case"):
        storable(pa.schema([("Id", pa.int64()), ("id", pa.int64())]))


def two(first: str, second: str) -> pa.DataType:
    return pa.struct([pa.field(first, pa.int64()), pa.field(second, pa.int64())])


INSIDE = {
    "struct": lambda kind: kind,
    "struct in struct": lambda kind: pa.struct([("deep", kind)]),
    "list": pa.list_,
    "large list": pa.large_list,
    "list of a fixed size": lambda kind: pa.list_(kind, 2),
    "map": lambda kind: pa.map_(pa.string(), kind),
    "list in map": lambda kind: pa.map_(pa.string(), pa.list_(kind)),
    "dictionary": lambda kind: pa.dictionary(pa.int32(), kind),
}


@pytest.mark.parametrize("inside", INSIDE.values(), ids=INSIDE.keys())
@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("name", "name", "have the same name. Rename one"),
        ("A", "a", "for Spark, which ignores case"),
        ("a", "", "Avro cannot hold"),
        ("a", "b c", "Avro cannot hold"),
        ("a", "b.c", "Avro cannot hold"),
        ("a", "1st", "Avro cannot hold"),
        ("a", "_hoodie_file_name", "Hudi keeps"),
        ("a", "_metadata", "Spark keeps"),
        ("a", "_lakelatch_x", "this library keeps"),
    ],
)
def test_the_rules_of_names_hold_inside_columns(inside, first, second, why):
    with pytest.raises(InputError, match=why) as refused:
        storable(pa.schema([("x", inside(two(first, second)))]))
    assert "'x." in str(refused.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("boolean", pa.bool_()),
        ("tinyint", pa.int32()),
        ("smallint", pa.int32()),
        ("INT", pa.int32()),
        ("bigint", pa.int64()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("decimal(12,2)", pa.decimal128(12, 2)),
        ("Decimal( 12 , 2 )", pa.decimal128(12, 2)),
        ("decimal(5)", pa.decimal128(5, 0)),
        ("decimal", pa.decimal128(10, 0)),
        ("string", pa.string()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("array<string>", pa.list_(pa.field("element", pa.string()))),
        ("map<string,array<decimal(3,1)>>", pa.map_(pa.string(), pa.list_(pa.field("element", pa.decimal128(3, 1))))),
        ("struct<a: int, B bigint, `c`: date>", pa.struct([("a", pa.int32()), ("B", pa.int64()), ("c", pa.date32())])),
        ("int8", pa.int32()),
        ("large_string", pa.string()),
        ("timestamp[ns, tz=Europe/Rome]", pa.timestamp("us", "UTC")),
        ("list<item: int64>", pa.list_(pa.field("element", pa.int64()))),
    ],
)
def test_a_column_is_added_by_the_name_of_its_type(text, kind):
    assert with_column(pa.schema([("id", pa.int64())]), "x", text).field("x").type == kind


@given(TYPES)
def test_what_arrow_calls_a_type_is_that_type(kind):
    assert type_of(str(kind)) == kind


NO_TYPES = [
    "",
    "nope",
    "array",
    "array<>",
    "array<int",
    "array<int>>",
    "struct<>",
    "struct<a>",
    "map<string>",
    "<int>",
    "int;",
]


@pytest.mark.parametrize(
    "text", [*NO_TYPES, "varchar(9)", "decimal(x)", "int int", "array<" * 500 + "int" + ">" * 500, "\ud800"]
)
def test_a_name_that_no_type_has_is_refused_with_those_that_are_known(text):
    with pytest.raises(InputError, match=r"known: boolean, int, bigint.*array<"):
        with_column(pa.schema([("id", pa.int64())]), "x", text)


@pytest.mark.parametrize("text", ["decimal(39,2)", "decimal(3,4)", "decimal(0)", "decimal(5,-1)"])
def test_decimals_that_no_table_holds_are_refused(text):
    with pytest.raises(InputError, match="1 to 38 digits"):
        with_column(pa.schema([("id", pa.int64())]), "x", text)


@pytest.mark.parametrize(
    "kind", ["bigint not null", "struct<a: int NOT NULL>", pa.struct([pa.field("a", pa.int64(), nullable=False)])]
)
def test_a_column_that_is_added_later_is_not_declared_not_null(kind):
    with pytest.raises(InputError, match="declared not null"):
        with_column(pa.schema([("id", pa.int64())]), "x", kind)


def test_one_name_in_two_columns_or_structs_is_fine():
    kind = pa.struct([("x", pa.struct([("x", pa.int64())])), ("y", pa.struct([("X", pa.int64())]))])
    schema = pa.schema([("x", kind), ("y", kind)])
    assert from_avro(to_avro(schema, "t")) == storable(schema)


def test_a_column_that_is_there_keeps_the_names_of_its_fields():
    """A table of an older version, which plain readers read, can still be written, and its new columns are checked."""
    old = pa.schema([("id", pa.int64()), ("x", two("A", "a"))])
    assert widen(old, old) == old == from_avro(to_avro(old, "t"))
    with pytest.raises(InputError, match=r"'y.A' and 'y.a'"):
        widen(old, pa.schema([*old, ("y", two("A", "a"))]))
    with pytest.raises(InputError, match=r"'y.A' and 'y.a'"):
        with_column(old, "y", two("A", "a"))


@pytest.mark.parametrize("levels", [17, 33, 400])
def test_what_is_nested_deeper_than_readers_follow_is_refused(levels):
    kind = pa.int64()
    for _ in range(levels):
        kind = pa.struct([("a", kind)])
    with pytest.raises(InputError, match=r"Column 'x' is .*Store it flat"):
        to_avro(storable(pa.schema([("id", pa.int64()), ("x", kind)])), "t")


def test_more_columns_than_readers_follow_are_refused():
    with pytest.raises(InputError, match="Have fewer"):
        to_avro(pa.schema([(f"c{at}", pa.int64()) for at in range(17_000)]), "t")


def test_meta_columns_are_no_data_columns():
    schema = pa.schema([*((name, pa.string()) for name in META_COLUMNS), ("id", pa.int64())])
    assert storable(schema).names == ["id"]
    assert [field["name"] for field in json.loads(to_avro(schema, "t"))["fields"]] == ["id"]


def test_added_columns_come_last():
    old = pa.schema([("id", pa.int64()), ("name", pa.string())])
    new = pa.schema([("extra", pa.float64()), ("name", pa.large_string()), ("id", pa.int64())])
    assert widen(old, new) == pa.schema([("id", pa.int64()), ("name", pa.string()), ("extra", pa.float64())])


def test_dropped_and_retyped_columns_are_all_named():
    old = pa.schema([("a", pa.int64()), ("b", pa.string()), ("c", pa.int64()), ("d", pa.date32())])
    new = pa.schema([("b", pa.int64()), ("c", pa.float64()), ("e", pa.int64())])
    with pytest.raises(InputError, match=r"lack a, d .*b from string to int64, c from int64 to double") as refused:
        widen(old, new)
    assert refused.value.dropped == ["a", "d"]


def test_rows_of_a_type_that_the_column_holds_leave_it_as_it_is():
    old = pa.schema([("id", pa.int64())])
    assert widen(old, pa.schema([("id", pa.int8())])) == old


def test_an_added_column_may_not_differ_from_an_old_one_by_case_only():
    with pytest.raises(InputError, match="ignores case"):
        widen(pa.schema([("id", pa.int64())]), pa.schema([("id", pa.int64()), ("ID", pa.int64())]))


@pytest.mark.parametrize(("precision", "size"), [(1, 1), (2, 1), (3, 2), (9, 4), (10, 5), (15, 7), (18, 8), (38, 16)])
def test_decimals_have_the_size_that_spark_gives_them(precision, size):
    assert decimal_bytes(precision) == size


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"type":"record","fields":[{"name":"x","type":"strange"}]}'])
def test_a_schema_that_is_none_is_damage(text):
    with pytest.raises(CorruptTableError):
        from_avro(text)


@pytest.mark.parametrize(
    ("text", "dropped"),
    [
        (to_avro(pa.schema([("id", pa.int64())]), "t", ["x", "s.y"]), ("s.y", "x")),
        ('{"type":"record","name":"t","fields":[],"lakelatch.dropped":["x",5,null]}', ("x",)),
        ('{"type":"record","name":"t","fields":[],"lakelatch.dropped":{"x":1}}', ()),
        ('"string"', ()),
        ("", ()),
    ],
)
def test_a_schema_tells_what_was_dropped(text, dropped):
    assert dropped_columns(text) == dropped
