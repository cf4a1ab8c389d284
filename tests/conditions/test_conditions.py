"""What a condition may be given as, what it means, and how it is refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections import deque
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakelatch.conditions import computes, condition_on
from lakelatch.errors import InputError

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("n", pa.int32()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("p", pa.decimal128(10, 2)),
        ("ok", pa.bool_()),
        ("raw", pa.binary()),
        ("in", pa.struct([("side", pa.int32())])),
        ("many", pa.list_(pa.int32())),
    ]
)
field = pc.field


def marked(given: Any, **columns: list[Any]) -> list[bool]:
    rows = pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()})
    return condition_on(SCHEMA, given).mask(rows).to_pylist()


@pytest.mark.parametrize(
    "given",
    ["n < 10 and s = 'x'", [("n", "<", 10), ("s", "=", "x")], [["n", "<", 10], ["s", "=", "x"]],
     (field("n") < 10) & (field("s") == "x")],
)  # fmt: skip
def test_the_same_condition_can_be_given_in_every_form(given: Any) -> None:
    assert marked(given, n=[1, 10, None, 2], s=["x", "x", "x", None]) == [True, False, False, False]
    assert set(condition_on(SCHEMA, given).terms) == {("n", "<", 10), ("s", "=", "x")}


@pytest.mark.parametrize(
    ("expression", "sql"),
    [
        (field("n").isin([1, 2, None]), "(cast(`n` as bigint) in (1L, 2L)) or (`n` is null)"),
        (~field("n").isin([1]), "not ((cast(`n` as bigint) in (1L)) and (`n` is not null))"),
        (field("x").is_null(nan_is_null=True), "(`x` is null) or (`x` = cast('NaN' as double))"),
        (field("in", "side") == 3, "cast(`in`.`side` as bigint) = 3L"),
        (pc.starts_with(field("s"), "50%_\\"), "`s` like '50\\\\%\\\\_\\\\\\\\%'"),
        (field("n").cast(pa.int64()) + 1 > 2, "(cast(`n` as bigint) + 1L) > 2L"),
        (field("t") >= datetime(2020, 1, 1, tzinfo=UTC), "`t` >= timestamp '2020-01-01 00:00:00.000000Z'"),
        (pc.is_nan(field("x")), "`x` = cast('NaN' as double)"),
    ],
)
def test_an_expression_of_pyarrow_becomes_sql(expression: Any, sql: str) -> None:
    assert condition_on(SCHEMA, expression).sql == sql


def test_odd_names_and_values_in_an_expression_of_pyarrow_arrive_as_they_are() -> None:
    odd = 'a`b "c"\n{%s}: \U0001f600'
    schema = pa.schema([(odd, pa.string())])
    condition = condition_on(schema, field(odd) == odd)
    assert condition.mask(pa.table({odd: [odd, "x"]})).to_pylist() == [True, False]
    assert condition_on(schema, condition.sql) == condition


@pytest.mark.parametrize(
    ("given", "terms"),
    [
        ("n = 1 or n in (2, 3)", [("n", "in", (1, 2, 3))]),
        ("not (n < 1 or s is null)", [("n", ">=", 1), ("s", "is not null")]),
        ("10 > n", [("n", "<", 10)]),
        ("n between 1 and 2", [("n", ">=", 1), ("n", "<=", 2)]),
        ("d >= '2020-01-01'", [("d", ">=", date(2020, 1, 1))]),
        ("t < date '2020-01-01'", [("t", "<", datetime(2020, 1, 1, tzinfo=UTC))]),
        ("p = 1.5", [("p", "=", Decimal("1.5"))]),
        ("n < 10000000000", [("n", "<", 10000000000)]),
        ("ok and not ok", [("ok", "=", True), ("ok", "=", False)]),
        ("n = 1 or s = 'x'", []),
        ("n + 1 = 2", []),
        ("lower(s) = 'x'", []),
        ("n <=> null", [("n", "is null")]),
        ("n = null", []),
        ("n in (1, null)", [("n", "in", (1,))]),
        ("in.side = 1", []),
    ],
)
def test_simple_comparisons_are_known_as_such(given: str, terms: list[Any]) -> None:
    given = given.replace("in.", "`in`.")
    assert list(condition_on(SCHEMA, given).terms) == terms


def test_nothing_is_compared_by_place_or_by_null() -> None:
    assert marked("n <> 1", n=[1, 2, None]) == [False, True, False]
    assert marked("not n = 1", n=[1, 2, None]) == [False, True, False]
    assert marked("n not in (1, null)", n=[1, 2, None]) == [False, False, False]
    assert marked("x > 1e300", x=[float("inf"), float("nan"), 0.0]) == [True, True, False]
    assert marked("x = 0", x=[-0.0, 0.0, float("nan")]) == [True, True, False]
    assert marked("s > 'ÿ'", s=["\uffff", "\U0001f600", "z"]) == [True, True, False]


def test_the_right_side_is_not_asked_where_the_left_one_has_decided() -> None:
    assert marked("n <> 0 and 10 / n > 2", n=[0, 1, 10, None]) == [False, True, False, False]
    assert marked("n = 0 or 10 % n = 1", n=[0, 3, 5, None]) == [True, True, False, False]
    with pytest.raises(InputError, match="division by zero"):
        marked("10 / n > 2 and n <> 0", n=[0, 1])


@pytest.mark.parametrize(
    "given", ["null", "not null", "null = 1", "null and n = 1", "n in (null)", "s < null", "false"]
)
def test_what_is_never_true_marks_no_row(given: str) -> None:
    assert marked(given, n=[1, None], s=["a", None]) == [False, False]
    assert marked(given, n=[]) == []


def test_a_column_that_a_file_does_not_have_is_null() -> None:
    assert marked("s is null and n = 1", n=[1, 2]) == [True, False]
    assert marked("s = 'x'", n=[1, 2]) == [False, False]
    old = pa.table({"in": pa.array([{"other": 1}], pa.struct([("other", pa.int32())]))})
    assert condition_on(SCHEMA, "`in`.side is null").mask(old).to_pylist() == [True]


def test_rows_may_be_in_other_forms_in_memory() -> None:
    rows = pa.table(
        {"s": pa.chunked_array([["a"], ["b", None]]).dictionary_encode(), "n": pa.array([1, 2, 3], pa.int64())}
    )
    assert condition_on(SCHEMA, "s >= 'a' and n < 3").mask(rows).to_pylist() == [True, True, False]
    assert condition_on(SCHEMA, "s in ('b')").mask(rows.slice(0, 0)).to_pylist() == []
    assert condition_on(SCHEMA, "true").mask(rows.to_batches()[0]).to_pylist() == [True]


def test_a_decimal_that_is_rounded_up_may_need_another_digit() -> None:
    schema = pa.schema([("w", pa.decimal128(20, 6)), ("v", pa.decimal128(38, 2))])
    rows = pa.table({"w": [Decimal("99999999999999.999999")], "v": [Decimal("9" * 36 + ".99")]}, schema=schema)
    assert condition_on(schema, "cast(w as decimal(38,3)) = 100000000000000").mask(rows).to_pylist() == [True]
    with pytest.raises(InputError, match="no result"):
        condition_on(schema, "cast(v as decimal(36,0)) = 1").mask(rows)


def test_a_condition_travels() -> None:
    condition = condition_on(SCHEMA, "n < 10 and s like '%\U0001f600%' or d = '2020-01-01'")
    assert pickle.loads(pickle.dumps(condition)) == condition


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("n <", "something is missing here, at line 1, column 3"),
        ("n < 10\n  and nam = 'x'", "no column 'nam' .*line 2, column 7"),
        ("N < 10", "did you mean 'n'\\? Names are exact here"),
        ("`in`.sid = 1", "column 'in' has no field 'sid' .*did you mean 'side'"),
        ("n.x = 1", "column 'n' has no field 'x'"),
        ("n < 10; ok", "more than one statement"),
        ("n < 10; drop table t", "line 1, column 9"),
        ("rand() < 0.5", "rand.*has no form"),
        ("foo(n) = 1", "the function 'foo' has no form"),
        ("n in (select 1)", "in wants values"),
        ("n in ()", "in wants values"),
        ("case when ok then true end", "case has no form"),
        ("many[0] = 1", "an element of a list or map has no form"),
        ("n = :p", "a placeholder has no form"),
        ("d = current_date", "has no form"),
        ("n = 'x'", "cannot compare int with string"),
        ("s = 1", "cannot compare string with int"),
        ("many = 1", "cannot compare"),
        ("`in` = `in`", "only null can be asked for"),
        ("ok = 1", "cannot compare boolean with int"),
        ("n", "is a int, and no condition"),
        ("n and ok", "want what is true or false"),
        ("s + 1 = 2", r"\+ wants numbers"),
        ("d = '2020-13-01'", "has no value"),
        ("d = 'yesterday'", "is no date"),
        ("t = '2020-01-01 25:00'", "has no value"),
        ("s like 'a\\\\b'", "stands before 'b'"),
        ("n in (1, id)", "in wants plain values.*column 10"),
        ("x = 1e999", "no value"),
        ("x = 1e39F", "no value"),
        ("n = 300Y", "no value"),
        ("ok = n > 1", "comparisons side by side want parentheses"),
        ("n < 2 = true", "comparisons side by side want parentheses"),
        ("ok = not n > 1", "not wants parentheses here"),
        ("s like n", "pattern as text"),
        ("s like 'a' escape 'xy'", "one character"),
        ("cast(s as timestamp) = t", "casts nothing to timestamp"),
        ("try_cast(n as bigint) = 1", "try_cast"),
        ("p / 3 > 1", "no exact form"),
        ("n = 1000000000000000000000000000000000000000", "no value"),
        ("'it''s' = s", "texts side by side"),
        ("(" * 5000 + "ok" + ")" * 5000, "nested too deeply"),
        ("select 1", "."),
        ("*", "has no form"),
        (None, "is no condition"),
        (5, "is no condition"),
        (b"n < 10", "is no condition"),
        ([5], "is no condition"),
        (["n < 10"], "is no condition"),
        ([("n",)], "is no condition"),
        ([("n", "~", 1)], "no operator '~'"),
        ([("n", "=", None)], "ask for nulls with 'is null'"),
        ([("n", "in", 5)], "for 'in' a tuple"),
        ([("n", "=", (1, 2))], "cannot compare"),
        ([("n", "is null", 1)], "takes no value"),
        ([("n", "=", object())], "plain value of Python"),
        ([("s", "=", "\ud800")], "plain value of Python"),
        ([("q", "=", 1)], "no column 'q'"),
        ([("n", "=", "x")], "cannot compare int with string"),
        (pc.year(field("d")) == 3, "its function year"),
        (field(0) == 3, "no form as a condition"),
        (field("t") > pa.scalar(2**60, pa.timestamp("us", "UTC")), "no form as a condition"),
        (field("t") > pa.scalar(1, pa.timestamp("ns", "UTC")), "no form as a condition"),
        (field("q") == 3, "no column 'q'"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_is_refused_where_it_stands(given: Any, told: str) -> None:
    with pytest.raises(InputError, match=f"(?s){told}") as refused:
        condition_on(SCHEMA, given)
    assert pickle.loads(pickle.dumps(refused.value)).args == refused.value.args


def test_very_many_alternatives_are_no_deep_tree() -> None:
    said = " or ".join(f"n = {each}" for each in range(5000))
    condition = condition_on(SCHEMA, said)
    assert condition.terms == (("n", "in", tuple(range(5000))),)
    assert condition.mask(pa.table({"n": pa.array([4999, 5000], pa.int32())})).to_pylist() == [True, False]


def test_sqlglot_is_imported_with_the_first_text() -> None:
    code = (
        "import sys, pyarrow as pa, lakelatch.conditions as c\n"
        "c.condition_on(pa.schema([('n', pa.int32())]), [('n', '=', 1)]); assert 'sqlglot' not in sys.modules\n"
        "c.condition_on(pa.schema([('n', pa.int32())]), 'n = 1'); assert 'sqlglot' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("said", "of_a_merge", "of_an_update"),
    [
        ("s.name", True, False),
        ("`s`.`name`", True, False),
        ("s.nmae", True, False),
        ("t.n + s.n", True, False),
        ("case when s.n > 1 then 'a' else 'b' end", True, False),
        ("cast(s.n as string)", True, False),
        ("concat('a', 'b')", True, True),
        ("upper(name)", False, True),
        ("my_own(name)", False, True),
        ("t.co/abc", False, False),
        ("s. Name", False, False),
        ("Smith(2019)", False, False),
        ("day(s)", False, False),
        ("see s.name for details", False, False),
        ("https://s.name/x", False, False),
        ("name", False, False),
        ("(" * 5000 + "s.name", False, False),
        ("", False, False),
    ],
)
def test_which_texts_read_as_expressions(said: str, of_a_merge: bool, of_an_update: bool) -> None:
    sides = [("s", "name"), ("s", "n"), ("t", "name"), ("t", "n")]
    assert computes(said, sides) == of_a_merge
    assert computes(said, [("name",), ("n",)]) == of_an_update


ONE_AND_TWO = {
    "list": [1, 2],
    "tuple": (1, 2),
    "set": {1, 2},
    "frozenset": frozenset({1, 2}),
    "range": range(1, 3),
    "deque": deque([1, 2]),
    "keys": {1: 0, 2: 0}.keys(),
    "values": {"a": 1, "b": 2}.values(),
    "numpy": np.array([1, 2]),
    "numpy of few bits": np.array([1, 2], np.uint8),
    "numpy of objects": np.array([1, 2], object),
    "pandas": pd.Series([1, 2]),
    "pandas that lacks one": pd.Series([1, 2, None]),
    "pandas category": pd.Series([1, 2], dtype="category"),
    "pandas index": pd.Index([1, 2]),
    "pandas array": pd.array([1, 2]),
    "polars": pl.Series([1, 2]),
    "pyarrow": pa.array([1, 2]),
    "pyarrow chunked": pa.chunked_array([[1], [2]]),
    "pyarrow dictionary": pa.array([1, 2]).dictionary_encode(),
}


@pytest.mark.parametrize("values", ONE_AND_TWO.values(), ids=ONE_AND_TWO)
def test_in_takes_what_people_have_values_in(values: Any) -> None:
    assert marked([("id", "in", values)], id=[1, 2, 3, None]) == [True, True, False, False]
    if None not in list(values) and not (hasattr(values, "isna") and values.isna().any()):
        assert marked([("id", "not in", values)], id=[1, 2, 3, None]) == [False, False, True, False]


def test_in_takes_arrays_of_texts_and_days() -> None:
    day = date(2026, 1, 2)
    for values in (np.array(["x"]), pd.Series(["x", None]), pl.Series(["x"]), pa.array(["x"], pa.large_string())):
        assert marked([("s", "in", values)], s=["x", "y", None]) == [True, False, False]
    for values in (
        np.array([day], "datetime64[D]"),
        pd.to_datetime(pd.Series([day])),
        pl.Series([day]),
        pa.array([day]),
    ):
        assert marked([("d", "in", values)], d=[day, None]) == [True, False]
    assert marked([("id", "in", np.array([]))], id=[1]) == [False]
    assert marked([("id", "not in", range(0))], id=[1, None]) == [True, True]


MANY = 100_000
NO_VALUES = [
    (each for each in (1, 2)),
    iter([1]),
    {1: 2},
    "12",
    b"12",
    5,
    np.array(1),
    np.array([[1, 2]]),
    pd.DataFrame({"a": [1]}),
    pl.DataFrame({"a": [1]}),
    pa.table({"a": [1]}),
    [np.arange(MANY)],
    pa.array([[1], [2]]),
]


@pytest.mark.parametrize("values", NO_VALUES, ids=lambda each: type(each).__name__)
def test_what_holds_no_values_for_in_is_refused_in_a_sentence(values: Any) -> None:
    for op in ("in", "not in"):
        with pytest.raises(InputError, match="compare") as found:
            condition_on(SCHEMA, [("id", op, values)])
        assert len(str(found.value)) < 500


def test_a_null_among_the_values_of_not_in_is_refused() -> None:
    with pytest.raises(InputError, match="true for no 'id'; leave it out"):
        condition_on(SCHEMA, [("id", "not in", [1, None])])


@pytest.mark.parametrize(
    "values", [range(MANY), list(range(MANY)), np.arange(MANY), pd.Series(range(MANY)), pl.Series(range(MANY)),
               pa.array(range(MANY)), {n: n for n in range(MANY)}],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_no_message_prints_a_whole_array(values: Any) -> None:
    for given in ([("id", "=", values)], [("id", "is null", values)], values, [values], [("id", values)]):
        with pytest.raises(InputError) as found:
            condition_on(SCHEMA, given)
        assert len(str(found.value)) < 1000
        assert "\n" not in str(found.value).partition("\nsee ")[0]


def test_a_decimal_of_many_zeros_is_compared_or_refused():
    rows = pa.table({"n": pa.array([Decimal("1E+30"), Decimal(1)], pa.decimal128(38, 0))})
    assert condition_on(rows.schema, [("n", "=", Decimal("1E+30"))]).mask(rows).to_pylist() == [True, False]
    with pytest.raises(InputError, match="cannot be compared"):
        condition_on(rows.schema, [("n", "=", Decimal("1E+50"))])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("city is None", "behind is stands null, true or false"),
        ("city rlike 'R.*'", "regexp_like has no form"),
        ("day < current_date()", "current_date has no form"),
        ("city = 'Rome", "a text, a name or a comment in it does not end"),
    ],
)
def test_what_has_no_form_is_told_in_the_words_of_sql(text, said):
    rows = pa.table({"city": ["Rome"], "day": [date(2026, 1, 1)]})
    with pytest.raises(InputError, match=said):
        condition_on(rows.schema, text)
