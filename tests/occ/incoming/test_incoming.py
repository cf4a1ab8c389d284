"""Rows of every kind of library into a real table, and what is refused before anything is written."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakelatch
from lakelatch.errors import InputError
from lakelatch.occ.incoming.python_values import array_of

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("place", pa.string()),
        ("seen", pa.timestamp("us", "UTC")),
        ("amount", pa.float64()),
        ("price", pa.decimal128(12, 2)),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("parts", pa.list_(pa.field("element", pa.int64()))),
    ]
)
MOMENT = dt.datetime(2020, 1, 2, 3, 4, 5, 678901, tzinfo=dt.UTC)
ROWS = [
    {
        "id": 1,
        "place": "Zürich 🏔",
        "seen": MOMENT,
        "amount": 0.5,
        "price": Decimal("1.50"),
        "tags": {"a": 1, "b": None},
        "parts": [1, None],
    },
    {"id": 2, "place": None, "seen": None, "amount": None, "price": None, "tags": None, "parts": None},
    {"id": 3, "place": "", "seen": MOMENT, "amount": -0.0, "price": Decimal("0.00"), "tags": {}, "parts": []},
]
STORED = [row | {"tags": None if row["tags"] is None else list(row["tags"].items())} for row in ROWS]
NO_MAPS = [name for name in SCHEMA.names if name != "tags"]


@pytest.fixture
def table(folder):
    with lakelatch.create(str(folder / "t"), record_key="id", schema=SCHEMA) as table:
        yield table


def arrow() -> pa.Table:
    return pa.Table.from_pylist(STORED, schema=SCHEMA)


def pandas_frame() -> pd.DataFrame:
    frame = pd.DataFrame({name: [row[name] for row in ROWS] for name in SCHEMA.names})
    return frame.astype({"place": "category"})


def polars_frame() -> pl.DataFrame:
    pairs = [None if row["tags"] is None else [{"key": k, "value": v} for k, v in row["tags"].items()] for row in ROWS]
    frame = pl.DataFrame({name: [row[name] for row in ROWS] for name in NO_MAPS}, strict=False)
    return frame.with_columns(pl.Series("tags", pairs), pl.col("place").cast(pl.Categorical))


class Stream:
    """Somebody's own class."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __arrow_c_stream__(self, requested_schema=None):
        return self._rows.__arrow_c_stream__(requested_schema)


class Batch:
    def __init__(self, rows: pa.Table) -> None:
        (self._rows,) = rows.combine_chunks().to_batches()

    def __arrow_c_array__(self, requested_schema=None):
        return self._rows.__arrow_c_array__(requested_schema)


FORMS = {
    "Table": arrow,
    "RecordBatch": lambda: arrow().to_batches()[0],
    "record batches": lambda: arrow().to_batches(max_chunksize=2),
    "RecordBatchReader": lambda: arrow().to_reader(max_chunksize=1),
    "dicts": lambda: ROWS,
    "tuple of dicts": lambda: tuple(ROWS),
    "pandas": pandas_frame,
    "pandas with Arrow inside": lambda: pd.DataFrame(
        {f.name: pd.Series(arrow().column(f.name), dtype=pd.ArrowDtype(f.type)) for f in SCHEMA}
    ),
    "polars": polars_frame,
    "polars, lazy": lambda: polars_frame().lazy().filter(pl.col("id") > 0),
    "DuckDB": lambda: duckdb.connect().from_arrow(arrow()).select("*").set_alias("rows"),
    "stream": lambda: Stream(arrow()),
    "array": lambda: Batch(arrow()),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_every_form_are_the_same_rows_in_the_table(table, form):
    with table.transaction() as txn:
        txn.upsert(FORMS[form]())
    assert table.read().to_arrow().sort_by("id").to_pylist() == STORED
    assert table.schema() == SCHEMA


@pytest.mark.parametrize("form", FORMS)
def test_keys_of_every_form_delete_their_rows(table, form):
    with table.transaction() as txn:
        txn.upsert([*ROWS, ROWS[0] | {"id": 4}])
    with table.transaction() as txn:
        txn.delete(FORMS[form]())
    assert table.read().to_arrow().column("id").to_pylist() == [4]


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (None, "NoneType"),
        (7, "int"),
        ("id=1", "str"),
        ({"id": [1]}, "dict"),
        ([1, 2], "a list that holds int"),
        ([{"id": 1}, None], "a list that holds NoneType"),
        (({"id": n} for n in range(3)), "generator"),
        (pd.Series([1, 2], name="id"), r"pandas\..*Series"),
        (pl.Series("id", [1, 2]), r"polars\..*Series gave no rows"),
        (pa.array([1, 2]), r"pyarrow\.lib\.Int64Array gave no rows"),
        (pa.schema([("id", pa.int64())]), r"pyarrow\.lib\.Schema"),
        (object(), "object"),
    ],
    ids=lambda each: str(type(each)),
)
def test_other_things_are_refused_by_the_name_of_their_class(table, rows, named):
    keys = isinstance(rows, pd.Series | pl.Series | pa.Array) or rows == [1, 2]  # of one column, which `delete` takes
    for write in (lambda txn: txn.upsert(rows), *(() if keys else (lambda txn: txn.delete(rows),))):
        with table.transaction() as txn, pytest.raises(InputError, match=named) as refused:
            write(txn)
        assert re.search("nothing was written. Give .*a pyarrow Table", str(refused.value))
    assert table.read().count() == 0


def test_rows_of_spark_are_sent_to_its_own_door(table):
    from pyspark.sql.classic.dataframe import DataFrame

    with table.transaction() as txn, pytest.raises(InputError, match=r"pyspark.*DataFrame.*lakelatch\.spark\.open"):
        txn.upsert(object.__new__(DataFrame))


def test_a_reader_that_was_read_is_refused_rather_than_taken_for_no_rows(table):
    reader = arrow().to_reader()
    with table.transaction() as txn:
        txn.upsert(reader)
    with table.transaction() as txn, pytest.raises(InputError, match="was read before"):
        txn.upsert(reader)


@pytest.mark.parametrize("rows", [[], (), SCHEMA.empty_table(), pd.DataFrame({"id": []}), pl.DataFrame()])
def test_no_rows_change_nothing(table, rows):
    with table.transaction() as txn:
        txn.upsert(rows, missing="null")
    assert txn.result is None


# --- columns -----------------------------------------------------------------------------------------------------


@pytest.fixture
def small(folder):
    schema = pa.schema(
        [("id", pa.string()), ("part", pa.string()), ("seen", pa.int64()), ("v", pa.int64()), ("w", pa.string())]
    )
    with lakelatch.create(
        str(folder / "t"), record_key="id", partition_by="part", ordering_field="seen", schema=schema
    ) as table:
        yield table


FULL = {"id": "a", "part": "p", "seen": 1, "v": 1, "w": "x"}


def without(*names: str) -> list[dict]:
    return [{name: value for name, value in FULL.items() if name not in names}]


def upsert(table, rows, **more) -> list[dict]:
    with table.transaction() as txn:
        txn.upsert(rows, **more)
    return table.read().to_pylist()


def refused(table, rows, match: str, **more) -> InputError:
    before = table.read().to_arrow()
    with table.transaction() as txn, pytest.raises(InputError, match=match) as found:
        txn.upsert(rows, **more)
    assert txn.result is None
    assert table.read().to_arrow().equals(before)
    return found.value


@pytest.mark.parametrize("rows", [[{}, {}], pd.DataFrame(index=range(2)), pa.table({"id": [1]}).select([])])
def test_rows_without_columns_are_not_taken_for_no_rows(small, rows):
    """An overwrite by none would empty the table."""
    before = small.read().to_pylist()
    for write in (small.upsert, small.insert, small.overwrite_table):
        with pytest.raises(InputError, match="rows lack id"):
            write(rows, missing="null")
    with pytest.raises(InputError, match="keys lack id"):
        small.delete(rows)
    assert small.read().to_pylist() == before


def test_missing_columns_are_refused_and_named_with_the_way_out(small):
    error = refused(small, without("v", "w"), r'lack v, w .*missing="null"')
    assert error.columns == ["v", "w"]


def test_missing_columns_are_null_where_that_is_said(small):
    assert upsert(small, [FULL]) == [FULL]
    later = {"id": "a", "part": "p", "seen": 2, "w": "y"}
    assert upsert(small, [later], missing="null") == [later | {"v": None}]


@pytest.mark.parametrize("name", ["id", "part", "seen"])
def test_columns_that_place_a_row_are_never_filled(small, name):
    refused(small, without(name), f"lack {name}.*needs as record key, partition or ordering field", missing="null")


def test_an_unknown_column_is_refused_with_the_name_that_comes_closest(small):
    upsert(small, [FULL])
    wrong = {name: value for name, value in FULL.items() if name != "v"} | {"vv": 2, "more": 1}
    for more in ({}, {"missing": "null"}):
        error = refused(
            small, [wrong], r"no column 'vv', 'more' \('vv': did you mean 'v'\?\).*new_columns=\"add\"", **more
        )
        assert error.columns == ["vv", "more"]
    refused(small, [FULL | {"zz": 1}], r"no column 'zz' .it has id, part, seen, v, w.")
    lacks = {name: value for name, value in FULL.items() if name != "w"} | {"ww": "x"}
    refused(small, [lacks], r"lack w of .* \('ww': did you mean 'w'\?\); give", new_columns="add")


def test_the_first_rows_define_the_columns_of_a_table_without(tmp_path):
    with lakelatch.create(str(tmp_path / "t"), record_key="id") as table:
        assert upsert(table, [{"id": "a", "v": 1}]) == [{"id": "a", "v": 1}]
        table.delete_all()
        refused(table, [{"id": "a", "v": 1, "w": 1}], "no column 'w'")
    with lakelatch.create(str(tmp_path / "d"), record_key="id", schema=pa.schema([("id", pa.string())])) as table:
        refused(table, [{"id": "a", "v": 1}], "no column 'v'")


VERBS = {
    "upsert": ("upsert", lambda to, rows, **more: to.upsert(rows, **more)),
    "insert": ("insert", lambda to, rows, **more: to.insert(rows, **more)),
    "overwrite": ("insert_overwrite", lambda to, rows, **more: to.overwrite(rows, **more)),
    "overwrite_table": ("insert_overwrite_table", lambda to, rows, **more: to.overwrite_table(rows, **more)),
    "merge": ("upsert", lambda to, rows, **more: to.merge(rows, **more).when_not_matched(insert="all").run()),
}


@pytest.mark.parametrize("in_transaction", [False, True])
@pytest.mark.parametrize(("operation", "verb"), VERBS.values(), ids=VERBS)
def test_no_verb_adds_a_column_unless_it_is_told_to(small, operation, verb, in_transaction):
    upsert(small, [FULL])

    def write(*given, **more):
        if not in_transaction:
            return verb(small, *given, **more)
        with small.transaction(operation) as txn:
            return verb(txn, *given, **more)

    rows = [FULL | {"id": "b", "more": 1}]
    before = small.timeline().commits
    for each in (rows, pa.Table.from_pylist(rows).to_reader()):
        with pytest.raises(InputError, match=r"no column 'more'.*nothing was written"):
            write(each)
    with pytest.raises(InputError, match="new_columns='yes' is neither"):
        write(rows, new_columns="yes")
    assert small.timeline().commits == before
    write(rows, new_columns="add")
    assert small.schema().names == [*FULL, "more"]
    assert rows[0] in small.read().to_pylist()
    with pytest.raises(InputError, match="no column 'delete'"):
        write([*rows, FULL | {"more": 1, "delete": True}])


def test_columns_that_clauses_of_a_merge_name_are_no_new_ones(small):
    upsert(small, [FULL])
    given = [FULL | {"op": "D"}, FULL | {"id": "b", "op": "U", "more": 1}]

    def merge(**more):
        clauses = small.merge(given, **more).when_matched("s.op = 'D'", delete=True).when_matched(update="all")
        return clauses.when_not_matched("s.op = 'U'", insert="all")

    with pytest.raises(InputError, match="no column 'more'"):
        merge().run()
    merge(new_columns="add").run()
    assert small.read().to_pylist() == [FULL | {"id": "b", "more": 1}]
    small.merge([FULL | {"id": "b", "helps": 3}]).when_matched(update={"v": lakelatch.sql("s.helps")}).run()
    assert small.read().to_pylist() == [FULL | {"id": "b", "more": 1, "v": 3}]


def test_an_unknown_column_widens_the_table(small):
    upsert(small, [FULL])
    assert upsert(small, [FULL | {"id": "b", "more": 1.5, "first": 2**40}], new_columns="add") == [
        FULL | {"more": None, "first": None},
        FULL | {"id": "b", "more": 1.5, "first": 2**40},
    ]
    assert small.schema().names == [*FULL, "more", "first"]


def test_the_order_of_columns_is_of_no_account(small):
    assert upsert(small, pa.Table.from_pylist([FULL]).select(["w", "v", "seen", "id", "part"])) == [FULL]
    assert small.schema().names == list(FULL)


@pytest.mark.parametrize("names", [{"v": "V"}, {"id": "ID"}])
def test_a_column_that_differs_in_case_only_is_refused_with_the_right_name(small, names):
    (old, new) = next(iter(names.items()))
    refused(small, pd.DataFrame([FULL]).rename(columns=names), f"{new!r} and .* has {old!r}", missing="null")


def test_a_new_column_beside_the_one_that_differs_in_case_is_refused(small):
    refused(small, [FULL | {"V": 1}], "ignores case", new_columns="add")


@pytest.mark.parametrize("name", ["with space", "1st", "_hoodie_mine", "_lakelatch_partition", "_metadata", "é"])
def test_a_new_column_with_a_name_that_no_reader_holds_is_refused(small, name):
    refused(small, [FULL | {name: 1}], "Rename it", new_columns="add")


TWICE = pa.StructArray.from_arrays([pa.array(["l"]), pa.array(["r"])], names=["name", "name"])


@pytest.mark.parametrize("value", [TWICE, pa.array([[{"A": 1, "a": 2}]]), pa.array([{"b c": 1}]), pa.array([{"": 1}])])
@pytest.mark.parametrize("verb", ["upsert", "insert", "overwrite", "overwrite_table"])
def test_a_new_column_with_names_inside_that_no_reader_holds_is_refused(small, value, verb):
    upsert(small, [FULL])
    with pytest.raises(InputError, match=r"'more\..*Rename"):
        getattr(small, verb)(pa.Table.from_pylist([FULL]).append_column("more", value), new_columns="add")
    given = pa.Table.from_pylist([FULL | {"id": "b"}]).append_column("more", value)
    with pytest.raises(InputError, match=r"'more\..*Rename"):
        small.merge(given, new_columns="add").when_not_matched(insert="all").run()
    with pytest.raises(InputError, match=r"'more\..*Rename"):
        small.add_column("more", value.type)
    with pytest.raises(InputError, match=r"'more\..*Rename"):
        lakelatch.create(
            f"{small.url}-2", record_key="id", schema=pa.schema([("id", pa.string()), ("more", value.type)])
        )
    assert small.read().to_pylist() == [FULL]


# --- columns whose bytes are not their values --------------------------------------------------------------------


class Unknown(pa.ExtensionType):
    """A type that pyarrow is told of for a moment."""

    def __init__(self) -> None:
        super().__init__(pa.binary(), "acme.pickle")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _serialized: bytes) -> Unknown:
        return cls()


EXTENSION = pa.field("w", pa.binary(), metadata={"ARROW:extension:name": "acme.pickle"})
WHOLE = pa.table([["a"], ["p"], [1], [1]], names=["id", "part", "seen", "v"])


def bad_text() -> pa.Array:
    return pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"\xff\xfe")]
    )


def bad_decimal() -> pa.Array:
    return pa.Array.from_buffers(pa.decimal128(3, 1), 1, [None, pa.py_buffer((10**9).to_bytes(16, "little"))])


def with_w(column: pa.Array | pa.Field) -> pa.Table:
    if isinstance(column, pa.Field):
        return WHOLE.append_column(
            column, pa.array([{"x": b"1"}] if pa.types.is_struct(column.type) else [b"1"], column.type)
        )
    return WHOLE.append_column("w", column)


NO_VALUES = {
    "polars object": lambda: pl.from_arrow(WHOLE).with_columns(pl.Series("w", [object()], dtype=pl.Object)),
    "polars object, lazy": lambda: pl.from_arrow(WHOLE).with_columns(pl.Series("w", [{1}], dtype=pl.Object)).lazy(),
    "polars int128": lambda: pl.from_arrow(WHOLE).with_columns(pl.Series("w", [1], dtype=pl.Int128)),
    "extension": lambda: with_w(pa.ExtensionArray.from_storage(Unknown(), pa.array([b"1"]))),
    "extension that is not known": lambda: with_w(EXTENSION),
    "extension inside": lambda: with_w(pa.field("w", pa.struct([EXTENSION.with_name("x")]))),
    "uuid": lambda: with_w(pa.array([b"x" * 16], pa.uuid())),
    "union": lambda: with_w(pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([b"x"])])),
    "interval": lambda: with_w(pa.array([(1, 2, 3)], pa.month_day_nano_interval())),
    "text that is none": lambda: with_w(bad_text()),
    "decimal with more digits": lambda: with_w(bad_decimal()),
    "pandas period": lambda: WHOLE.to_pandas().assign(w=pd.array(["2020-01"], dtype="period[M]")),
    "pandas interval": lambda: WHOLE.to_pandas().assign(w=[pd.Interval(0, 1)]),
    "pandas objects": lambda: WHOLE.to_pandas().assign(w=[object()]),
    "pandas sparse": lambda: WHOLE.to_pandas().assign(w=pd.arrays.SparseArray([1])),
    "set of objects": lambda: [WHOLE.to_pylist()[0] | {"w": {object()}}],
    "duckdb bit": lambda: duckdb.sql("select 'a' id, 'p' part, 1 seen, 1 v, '101'::bit w"),
    "duckdb bits": lambda: duckdb.sql("select 'a' id, 'p' part, 1 seen, 1 v, {'x': ['101'::bit]} w"),
    "duckdb uhugeint": lambda: duckdb.sql("select 'a' id, 'p' part, 1 seen, 1 v, (2::uhugeint << 126) w"),
    "duckdb hugeint": lambda: duckdb.sql(
        "select 'a' id, 'p' part, 1 seen, 1 v, 170141183460469231731687303715884105727::hugeint w"
    ),
    "duckdb bignum": lambda: duckdb.sql("select 'a' id, 'p' part, 1 seen, 1 v, 1::bignum w"),
    "duckdb interval": lambda: duckdb.sql("select 'a' id, 'p' part, 1 seen, 1 v, interval 1 day w"),
}


@pytest.mark.parametrize("rows", NO_VALUES.values(), ids=NO_VALUES.keys())
@pytest.mark.parametrize("kind", [None, pa.binary(), pa.string(), pa.decimal128(38, 0)], ids=str)
def test_what_arrow_shows_as_something_else_is_refused_by_its_column(folder, rows, kind):
    schema = None if kind is None else pa.schema([*WHOLE.schema, ("w", kind)])
    with lakelatch.create(str(folder / "t"), record_key="id", schema=schema) as table:
        with pytest.raises(InputError, match=r"'w[.']"):
            table.upsert(rows())
        assert table.read().count() == 0


def test_a_column_that_is_not_looked_at_may_hold_objects(small):
    upsert(small, [FULL])
    small.delete(pl.DataFrame({"id": ["a"], "part": ["p"], "more": pl.Series([object()], dtype=pl.Object)}))
    assert small.read().count() == 0


@pytest.mark.parametrize(
    "rows",
    [
        lambda values: pd.DataFrame({"id": ["a", "b"], "w": pd.Categorical(values)}),
        lambda values: [{"id": "a", "w": np.array(values, dtype=object)}],
        lambda values: pd.DataFrame({"id": ["a"], "w": [np.array(values, dtype=object)]}),
        lambda values: [{"id": "a", "w": set(values)}],
    ],
    ids=["categories", "array in a row", "array in a frame", "set"],
)
@pytest.mark.parametrize(
    "values", [[dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 3, tzinfo=dt.UTC)], ["x", b"y"], [True, 1.5]]
)
def test_values_of_several_kinds_inside_others_are_refused_too(folder, rows, values):
    with lakelatch.create(str(folder / "t"), record_key="id") as table:
        with pytest.raises(InputError, match=r"column 'w(\.element)?'"):
            table.upsert(rows(values))
        assert table.schema() is None


def test_categories_of_pandas_are_stored_as_what_they_are(folder):
    days = [dt.date(2020, 1, 1), None, dt.date(2020, 1, 2)]
    with lakelatch.create(str(folder / "t"), record_key="id") as table:
        table.upsert(pd.DataFrame({"id": [1, 2, 3], "w": pd.Categorical(days)}))
        assert [row["w"] for row in table.read().to_pylist()] == days


def test_a_new_column_of_nulls_is_refused_because_it_has_no_type(small):
    refused(small, [FULL | {"more": None}], "nulls only", new_columns="add")
    assert upsert(small, [FULL | {"w": None}]) == [FULL | {"w": None}]


def test_a_column_that_is_there_twice_is_refused(small):
    twice = pa.Table.from_arrays([pa.array(["a"])] * 2, names=["id", "id"])
    refused(small, twice, "more than one column 'id'")
    frame = pd.concat([pd.DataFrame([FULL]), pd.DataFrame([{"v": 1}])], axis=1)
    refused(small, frame, "more than one column 'v'")


def test_columns_of_hudi_are_left_out(small):
    upsert(small, [FULL])
    with small.transaction() as txn:
        (group,) = txn.snapshot.file_slices()
        whole = txn.read_slice(group, meta=True)
        assert "_hoodie_commit_time" in whole.column_names
        txn.upsert(whole)
    with small.transaction() as again:
        (group,) = again.snapshot.file_slices()
        assert again.read_slice(group, meta=True).column("_hoodie_commit_time").to_pylist() == [txn.instant]


@pytest.mark.parametrize(
    "more",
    [{"missing": "ignore"}, {"missing": None}, {"zone": "Nowhere/Land"}, {"zone": ""}, {"zone": 1}, {"zone": "../etc"}],
)
def test_a_word_that_nobody_knows_is_refused(small, more):
    refused(small, [FULL], f"{next(iter(more))}=.*nothing was written", **more)


def test_a_value_that_does_not_fit_is_named_and_nothing_is_written(small):
    error = refused(small, [FULL, FULL | {"id": "b", "v": 0.5}], r"'v' is double .* int64 .*: 0\.5 in row 1")
    assert (error.column, error.row) == ("v", 1)


def test_values_that_fit_are_stored_in_the_type_of_the_table(small):
    rows = pd.DataFrame({"id": ["a", "b"], "part": "p", "seen": [1.0, 2.0], "v": [1, None], "w": ["x", None]})
    assert rows.v.dtype == "float64", "as pandas holds whole numbers beside none"
    assert upsert(small, rows) == [
        {"id": "a", "part": "p", "seen": 1, "v": 1, "w": "x"},
        {"id": "b", "part": "p", "seen": 2, "v": None, "w": None},
    ]


# --- pandas ------------------------------------------------------------------------------------------------------


def test_an_index_of_pandas_with_a_name_is_a_column_and_one_without_is_none(small):
    frame = pd.DataFrame([FULL, FULL | {"id": "b"}])
    assert [row["id"] for row in upsert(small, frame.set_index("id"))] == ["a", "b"]
    frame.index = pd.Index([7, 8])
    assert upsert(small, frame) == [FULL, FULL | {"id": "b"}]
    deeper = frame.set_index([pd.Index([1, 2]), "part", "id"])
    assert upsert(small, deeper) == [FULL, FULL | {"id": "b"}]
    frame.index.name = "v"
    refused(small, frame, "'v' is a column of the frame and its index too")


def test_a_frame_with_names_that_are_no_text_is_refused(small):
    refused(small, pd.DataFrame([["a"]]), "column 0, whose name is no text")
    refused(small, [{1: "a"}], "1 as the name of a column")


def test_a_frame_with_values_that_arrow_has_no_type_for_is_refused_by_its_column(small):
    refused(small, pd.DataFrame([FULL]).assign(v=[object()]), "column 'v'")
    refused(small, pd.DataFrame([FULL]).assign(v=pd.Series([pd.Period("2020-01")])), "column 'v'|Column 'v'")
    refused(small, pd.DataFrame([FULL]).assign(v=[1 + 2j]), "column 'v'")


def test_times_of_pandas_are_stored_when_their_zone_is_said(folder):
    with lakelatch.create(str(folder / "t"), record_key="id") as table:
        frame = pd.DataFrame({"id": ["a", "b"], "at": pd.to_datetime(["2020-01-02 03:04:05.678901", None])})
        refused(table, frame, r"'at'.*zone=\"UTC\"")
        assert upsert(table, frame, zone="UTC") == [{"id": "a", "at": MOMENT}, {"id": "b", "at": None}]
        refused(table, frame, r"'at' is timestamp.*zone=\"UTC\".*2020.*in row 0")
        assert upsert(table, frame, zone="Europe/Rome")[0]["at"] == MOMENT - dt.timedelta(hours=1)
        fine = frame.assign(at=pd.to_datetime(["2020-01-01 00:00:00.000000001", None]))
        refused(table, fine, "whole microseconds.* in row 0", zone="UTC")
        aware = frame.assign(at=frame["at"].dt.tz_localize("Asia/Tokyo"))
        assert upsert(table, aware)[0]["at"] == MOMENT - dt.timedelta(hours=9)


# --- values of Python --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([dt.date(2020, 1, 1), dt.datetime(2020, 1, 1, 5)], ("a date", "a time without zone")),
        ([dt.datetime(2020, 1, 1, 5), dt.date(2020, 1, 1)], ("a date", "a time without zone")),
        ([MOMENT, MOMENT.replace(tzinfo=None)], ("a time with a zone", "a time without zone")),
        (["a", b"a"], ("text", "bytes")),
        ([{"a": 1}, [("a", 1)]], ("a mapping", "a list")),
        ([[1], 1], ("a list", "an int")),
        ([["a"], [b"b"]], ("text", "bytes")),
        ([{"x": "a"}, {"x": b"b"}], ("text", "bytes")),
    ],
)
def test_a_column_of_two_kinds_of_values_is_refused_rather_than_cut_to_one(values, words):
    with pytest.raises(InputError, match="values of one type") as found:
        array_of(values, None, "v")
    assert all(word in str(found.value) for word in words)


@pytest.mark.parametrize(
    ("values", "row", "words"),
    [
        ([1, 2**70], 1, "64 bits"),
        ([Decimal("NaN")], 0, "finite number of at most 38 digits"),
        ([Decimal("1"), Decimal("Infinity")], 1, "finite"),
        (["a", "\ud800"], 1, "surrogate"),
        ([None, 1j], 1, "no column holds a complex"),
        ([object()], 0, "no column holds an object"),
        ([1, lakelatch.sql("v + 1")], 1, "update_where"),
        ([np.longdouble(1)], 0, "no column holds a longdouble"),
        ([pl.Series([1])], 0, "lists of Python"),
        ([2**63 - 1, 2**63], 1, "64 bits"),
        ([1, Decimal("1.5"), 0.5, True], None, "values of one type"),
    ],
)
def test_a_value_without_a_type_is_told_by_row_and_in_our_words(values, row, words):
    with pytest.raises(InputError, match="column 'v' holds") as found:
        array_of(values, None, "v")
    said = str(found.value)
    assert words in said
    assert said.endswith("nothing was written")
    assert row is None or (f"in row {row}," in said and found.value.row == row)
    assert not re.search(r"C long|Arrow|numpy type|codec|str' object|int\(\)|Decimal precision", said)


def test_missing_values_and_times_of_other_libraries_in_dicts_are_those_of_python(table):
    moment = np.datetime64("2020-01-02T03:04:05.678901")
    given = [
        {"id": np.int64(1), "seen": moment, "amount": pd.NA, "parts": [1, pd.NA]},
        {"id": 2, "seen": np.datetime64("2020-01-02T03"), "amount": np.float32(0.5), "parts": np.array([7])},
        {"id": 3, "seen": np.datetime64("NaT"), "amount": None, "parts": pd.NaT},
        {"id": 4, "seen": np.datetime64("2020-01-02T03:04:05.678901000"), "amount": 1, "parts": None},
    ]
    table.upsert(given, zone="UTC", missing="null")
    read = {row["id"]: row for row in table.read(columns=["id", "seen", "amount", "parts"]).to_pylist()}
    assert read[1] == {"id": 1, "seen": MOMENT, "amount": None, "parts": [1, None]}
    assert read[2] == {"id": 2, "seen": dt.datetime(2020, 1, 2, 3, tzinfo=dt.UTC), "amount": 0.5, "parts": [7]}
    assert read[3] == {"id": 3, "seen": None, "amount": None, "parts": None}
    assert read[4]["seen"] == MOMENT
    assert array_of([np.datetime64("1969-12"), np.datetime64("2020-01-02")], None, "v").to_pylist() == [
        dt.date(1969, 12, 1),
        dt.date(2020, 1, 2),
    ]
    with pytest.raises(InputError, match="parts of a microsecond"):
        array_of([np.datetime64("2020-01-01T00:00:00.000000001")], None, "v")
    with pytest.raises(InputError, match="years 1 to 9999"):
        array_of([np.datetime64("30000-01-01")], None, "v")


def test_a_sparse_column_of_pandas_is_stored(table):
    frame = pd.DataFrame({"id": [1, 2], "amount": pd.arrays.SparseArray([0.0, 2.5])})
    table.upsert(frame, missing="null")
    assert table.read(columns=["amount"]).to_arrow()["amount"].to_pylist() == [0.0, 2.5]


@pytest.mark.parametrize("names", [["id"], ["id", "place", "more"], ["place", "id"]])
def test_a_batch_with_other_columns_than_its_reader_is_refused(table, names):
    """Arrow does not look, and the missing column became null in rows that were never asked about."""
    schema = pa.schema([("id", pa.int64()), ("place", pa.string())])
    good = pa.record_batch({"id": [1], "place": ["a"]})
    bad = pa.record_batch({name: [2] if name == "id" else ["b"] for name in names})
    reader = pa.RecordBatchReader.from_batches(schema, iter([good, bad]))
    with pytest.raises(
        InputError, match=r"after 1 rows the reader gave a batch with the columns .*its schema has id, place"
    ):
        table.upsert(reader, missing="null")
    assert table.read().count() == 0


def test_the_error_of_a_source_stays_what_it_is_and_says_that_nothing_was_written(table):
    def batches():
        yield pa.record_batch({"id": [1]})
        raise RuntimeError("the source broke")

    reader = pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())
    with pytest.raises(RuntimeError, match="the source broke") as found:
        table.upsert(reader, missing="null")
    assert "the reader failed after 1 rows; nothing was written" in found.value.__notes__
    with pytest.raises(pl.exceptions.ColumnNotFoundError) as lazy:
        table.upsert(pl.LazyFrame({"id": [1]}).select("nope"), missing="null")
    assert any("nothing was written" in note for note in lazy.value.__notes__)
    assert table.read().count() == 0


@pytest.mark.parametrize("values", [[1, "x"], [True, 1], [1, True], [2**64], ["\ud800"], [object()], [2**63 - 1, 0.5]])
def test_values_that_arrow_has_no_type_for_are_refused(values):
    with pytest.raises(InputError, match="column 'v'"):
        array_of(values, None, "v")


@pytest.mark.parametrize("deeper", [lambda value: {"a": value}, lambda value: [value]])
def test_values_that_are_nested_deeper_than_any_column_are_refused(deeper):
    value = 1
    for _ in range(5000):
        value = deeper(value)
    with pytest.raises(InputError, match="'v' is nested too deep"):
        array_of([value], None, "v")


def test_moments_of_pandas_are_not_cut_to_microseconds():
    moment = pd.Timestamp("2020-01-01 00:00:00.000001")
    assert array_of([moment, pd.NaT, None], None, "v").to_pylist() == [moment, None, None]
    with pytest.raises(InputError, match=r"parts of a microsecond.*000000001"):
        array_of([None, pd.Timestamp("2020-01-01 00:00:00.000000001")], None, "v")


LEAVES = st.sampled_from(
    [
        st.integers(-(2**63), 2**63 - 1),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
        st.binary(max_size=4),
        st.booleans(),
        st.dates(),
        st.datetimes(timezones=st.just(dt.UTC)),
        st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**9), max_value=10**9),
        st.floats(allow_nan=False),
    ]
)
COLUMNS = st.recursive(
    LEAVES,
    lambda inner: (
        inner.map(lambda values: st.lists(st.none() | values, max_size=3))
        | inner.map(lambda values: st.fixed_dictionaries({"x": st.none() | values, "y": st.none() | st.booleans()}))
    ),
    max_leaves=3,
)


@settings(max_examples=150)
@given(COLUMNS.flatmap(lambda values: st.lists(st.none() | values, max_size=5)))
def test_values_of_python_come_back_as_they_were(values):
    found = array_of(values, None, "v")
    found.validate(full=True)
    assert found.to_pylist() == values


@given(
    st.lists(
        st.none()
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=3), st.none() | st.lists(st.integers(0, 9))
        )
    )
)
def test_mappings_are_maps_where_the_table_has_one(values):
    kind = pa.map_(pa.string(), pa.list_(pa.int64()))
    found = array_of(values, kind, "v")
    assert found.to_pylist() == [None if value is None else list(value.items()) for value in values]
