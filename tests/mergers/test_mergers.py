"""Every merger against a model in plain Python, on random rows of every type that it takes."""

from __future__ import annotations

import datetime as dt
import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakelatch.errors import ConfigError, InputError
from lakelatch.mergers import BUILT_IN, Groups, Laws, combine, find, join, top_n_per_key

from .model import MODEL, bits, place

NAN = math.nan
VALUES: dict[pa.DataType, list[Any]] = {
    pa.int32(): [None, 0, 1, -1, 3, 2**31 - 1, -(2**31)],
    pa.int64(): [None, 0, 3, -7, 2**62, -(2**62)],
    pa.float32(): [None, 0.0, -0.0, 1.5, -2.5, NAN, math.inf],
    pa.float64(): [None, 0.0, -0.0, 3.0, -2.5, NAN, math.inf, -math.inf],
    pa.bool_(): [None, True, False],
    pa.string(): [None, "", "a", "B", "{%s}", "😀", "\ud7ff", "é"],
    pa.binary(): [None, b"", b"\x00", b"\xff"],
    pa.date32(): [None, dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    pa.timestamp("us", "UTC"): [None, dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
    pa.decimal128(20, 2): [None, Decimal("0.00"), Decimal("-1.05"), Decimal("123456789012.99")],
}
STRUCT = pa.struct([("name", pa.string()), ("ts", pa.int64())])
STRUCTS = [None, *({"name": n, "ts": t} for n in (None, "a", "b") for t in (None, 1, 2))]


def columns_of(spec: str) -> list[tuple[pa.DataType, list[Any]]]:
    """The types that a merger takes, each with values to draw from."""
    found = [*VALUES.items(), (STRUCT, STRUCTS)]
    if spec.startswith(("collect", "top_n")):
        found = [(pa.list_(kind), [None, [], *([v] for v in some), some[1:3]]) for kind, some in found]
    if spec.startswith("nested_update"):
        rows = [
            {"name": name, "x": x, "ts": ts}
            for name in (None, "a", "é")
            for x in (None, 0.0, -0.0, NAN, 2.5)
            for ts in (None, 1, 2)
        ]
        kind = pa.struct([("name", pa.string()), ("x", pa.float64()), ("ts", pa.int64())])
        found = [
            (pa.list_(kind), [None, [], *([row] for row in rows), rows[3:6], rows[7:9], [rows[20], None, rows[21]]])
        ]
    if spec.startswith("merge_map"):
        found = [
            (
                pa.map_(pa.string(), kind),
                [None, [], *([("a", v)] for v in some), [("é", some[1]), ("", some[2]), ("a", some[1])]],
            )
            for kind, some in found
        ]
    possible = []
    for kind, some in found:
        try:
            find(spec).laws(kind)
        except InputError:
            continue
        possible.append((kind, some))
    return possible


def test_the_model_knows_every_merger() -> None:
    assert {spec.partition("(")[0] for spec in MODEL} == set(BUILT_IN) - {"theta"}  # test_sketches.py


@pytest.mark.parametrize("spec", MODEL)
def test_a_merger_gives_what_the_model_gives_for_each_key(spec: str) -> None:
    chance, tried = random.Random(spec), 0
    for kind, some in columns_of(spec):
        for _ in range(40):
            count = chance.randint(0, 30)
            drawn = [
                (chance.choice("abc😀"), chance.choice([None, 1, 2, 3]), chance.choice(some)) for _ in range(count)
            ]
            if spec == "count":
                drawn = [(key, ts, value and 1) for key, ts, value in drawn]
            rows = pa.table(
                {
                    "k": pa.array([k for k, _, _ in drawn], pa.string()),
                    "ts": pa.array([t for _, t, _ in drawn], pa.int64()),
                    "x": pa.array([v for _, _, v in drawn], kind),
                }
            )
            lifted = find(spec).lift(rows["x"].combine_chunks(), kind) if spec == "count" else rows["x"]
            rows = rows.set_column(2, "x", lifted)
            ordering = chance.choice([(), ("ts",)])
            wanted: dict[str, list[Any]] = {}
            order = sorted(range(count), key=lambda n: (place(drawn[n][1]) if ordering else (), n))
            for key in dict.fromkeys(k for k, _, _ in drawn):
                wanted[key] = [
                    rows["x"][n].as_py() if spec != "count" else drawn[n][2] for n in order if drawn[n][0] == key
                ]
            expected = {key: MODEL[spec](values) for key, values in wanted.items()}
            # A slice, whose buffers begin before it.
            padded = pa.concat_tables([rows, rows]).combine_chunks().slice(count)
            if spec == "sum" and not all(in_range(value, kind) for value in expected.values()):
                with pytest.raises(InputError, match=r"column 'x': .* does not fit"):
                    combine(padded, key="k", mergers={"x": find(spec)}, ordering=ordering)
                continue
            found = combine(padded, key="k", mergers={"x": find(spec)}, ordering=ordering)
            found.validate(full=True)
            assert found.schema == rows.schema
            assert found["k"].to_pylist() == list(wanted)
            told = dict(zip(found["k"].to_pylist(), found["x"].to_pylist(), strict=True))
            for key, value in expected.items():
                assert bits(told[key]) == bits(value), (kind, wanted[key])
                tried += 1
    assert tried > 50


def in_range(value: Any, kind: pa.DataType) -> bool:
    if pa.types.is_floating(kind):
        return True
    try:
        pa.scalar(value, kind)
    except (pa.ArrowInvalid, OverflowError):
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "most"),
    [
        (pa.int8(), 127), (pa.int64(), 2**63 - 1), (pa.uint64(), 2**64 - 1), (pa.decimal128(38, 0), 10**38 - 1),
        (pa.decimal128(5, 2), Decimal("999.99")),
    ],
)  # fmt: skip
def test_a_sum_is_exact_up_to_the_last_number_of_the_type_and_refused_beyond(kind: pa.DataType, most: Any) -> None:
    one = Decimal("0.01") if kind == pa.decimal128(5, 2) else 1
    for values in ([most, -one, one], [most - one, one]):
        if kind == pa.uint64() and -1 in values:
            continue
        rows = pa.table({"k": ["a"] * len(values), "x": pa.array(values, kind)})
        assert combine(rows, key="k", mergers={"x": find("sum")})["x"].to_pylist() == [most]
    for over in ([most, one], [most] * 5):
        rows = pa.table({"k": ["a"] * len(over), "x": pa.array(over, kind)})
        with pytest.raises(InputError, match=r"column 'x': a sum .*; give the column"):
            combine(rows, key="k", mergers={"x": find("sum")})


def test_of_rows_with_equal_ordering_values_the_last_to_arrive_counts_or_the_first() -> None:
    rows = pa.table({"k": ["a", "a", "a"], "ts": [5, 5, 1], "x": ["one", "two", "late"]})
    assert combine(rows, key="k", mergers={}, ordering=["ts"])["x"].to_pylist() == ["two"]
    assert combine(rows, key="k", mergers={}, ordering=["ts"], ties="first")["x"].to_pylist() == ["one"]


def test_several_ordering_columns_count_one_after_the_other() -> None:
    rows = pa.table({"k": ["a"] * 3, "day": [1, 2, 2], "n": [9, None, 3], "x": [1, 2, 3]})
    assert combine(rows, key="k", mergers={}, ordering=["day", "n"])["x"].to_pylist() == [3]


def test_a_value_that_is_no_list_becomes_a_list_of_itself() -> None:
    kind = pa.list_(pa.string())
    lifted = find("collect_list(9)").lift(pa.array(["a", None, "b"]), kind)
    assert lifted.type == kind
    assert lifted.to_pylist() == [["a"], [], ["b"]]


def test_a_sum_of_negative_zeros_is_one_and_a_null_changes_nothing() -> None:
    rows = pa.table({"k": ["a", "a"], "x": [-0.0, None]})
    assert bits(combine(rows, key="k", mergers={"x": find("sum")})["x"][0].as_py()) == bits(-0.0)


@pytest.mark.parametrize(
    ("spec", "kind", "why"),
    [
        ("sum", pa.string(), "sum adds numbers"), ("count", pa.string(), "count keeps an integer"),
        ("bool_or", pa.int8(), "merges booleans"), ("max", pa.list_(pa.int8()), "can be compared"),
        ("collect_list", pa.int8(), "make it list<int8>"), ("listagg", pa.int8(), "make it string"),
        ("top_n(2, by='x')", pa.list_(pa.int8()), "structs with that field"),
        ("top_n(2, by='zz')", pa.list_(STRUCT), "'zz'"), ("last_unless('x')", pa.int8(), "can't hold this marker"),
        ("last_unless(1.5)", pa.int8(), "last_unless"),
    ],
)  # fmt: skip
def test_a_column_that_a_merger_can_not_merge_is_refused(spec: str, kind: pa.DataType, why: str) -> None:
    with pytest.raises(InputError, match=why):
        find(spec).laws(kind)


@pytest.mark.parametrize(
    "spec",
    [
        "", "nope", "sum(1)", "top_n", "top_n(0)", "top_n(True)", "top_n(2, by=3)", "collect_list(-1)", "sum()()", "listagg(5)",
        "sum; import os",
        "top_n(__import__('os'))", "top_n(**{'count': 2})", "math:nope", "nowhere_at_all:Merger", ":Sum", "math:sqrt",
        "a..b:C", "{}%s", "sum\n", "(" * 500,
    ],
)  # fmt: skip
def test_what_names_no_merger_is_refused_and_nothing_is_executed(spec: str) -> None:
    if spec == "sum\n":
        assert find(spec) == find("sum")
        return
    with pytest.raises(ConfigError) as e:
        find(spec)
    assert e.value.merger == spec


def test_empty_rows_stay_empty_and_an_unknown_column_is_named() -> None:
    rows = pa.table({"k": pa.array([], pa.string()), "x": pa.array([], pa.int64())})
    assert combine(rows, key="k", mergers={"x": find("sum")}).num_rows == 0
    for spec in MODEL:
        for kind, _ in columns_of(spec):
            assert len(find(spec).merge(pa.array([], kind), Groups(pa.array([0]).to_numpy()))) == 0
    with pytest.raises(InputError, match="no column 'nope'"):
        combine(rows, key="nope", mergers={})
    with pytest.raises(InputError, match="have no k"):
        combine(pa.table({"k": ["a", None], "x": [1, 2]}), key="k", mergers={})


class Longest:
    """The longest text, of equal ones the later: what a user might write."""

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def laws(self, kind: pa.DataType) -> Laws:
        return Laws(commutative=False, associative=True, idempotent=True)

    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        texts = values.to_pylist()
        parts = [texts[a:b] for a, b in zip(groups.offsets, groups.offsets[1:], strict=False)]
        return pa.array([max(reversed(there), key=lambda t: len(t or "")) for there in parts], values.type)


class TooFew(Longest):
    def merge(self, values: pa.Array, groups: Groups) -> pa.Array:
        return values.slice(0, 1).cast(pa.string())


def test_a_users_class_is_found_by_its_module_and_takes_arguments() -> None:
    spec = f"{__name__}:Longest(least=3)"
    rows = pa.table({"k": ["a", "a", "b"], "x": ["long: {x}", "x", "y"]})
    assert combine(rows, key="k", mergers={"x": find(spec)})["x"].to_pylist() == ["long: {x}", "y"]


def test_a_users_merger_that_gives_too_few_values_is_told_so() -> None:
    rows = pa.table({"k": ["a", "a", "b"], "x": ["1", "2", "3"]})
    with pytest.raises(
        InputError, match=r"column 'x': merger '.*TooFew' gave 1 values of string, and must give 2 of string"
    ):
        combine(rows, key="k", mergers={"x": find(f"{__name__}:TooFew")})


def test_joins_leave_out_what_the_other_side_has_not_sent() -> None:
    rows = pa.table({"k": ["both", "orders", "clicks"], "order_ts": [1, 2, None], "click_ts": [1, None, 3]})
    both = {"left": "order_ts", "right": "click_ts"}
    assert join(rows, "left", **both)["k"].to_pylist() == ["both", "orders"]
    assert join(rows, "right", **both)["k"].to_pylist() == ["both", "clicks"]
    assert join(rows, "inner", **both)["k"].to_pylist() == ["both"]
    assert join(rows, "outer", **both).num_rows == 3
    with pytest.raises(InputError, match="no join 'cross'"):
        join(rows, "cross", **both)  # type: ignore[arg-type]


def test_the_first_n_rows_of_each_key_are_those_of_a_sort() -> None:
    chance = random.Random(7)
    for _ in range(200):
        count = chance.randint(0, 40)
        data = [
            {
                "k": chance.choice([None, "a", "😀"]),
                "l": chance.choice([None, 1, 2]),
                "by": chance.choice([None, 1.0, NAN, -3.0]),
            }
            for _ in range(count)
        ]
        rows = pa.Table.from_pylist(data, pa.schema([("k", pa.string()), ("l", pa.int64()), ("by", pa.float64())]))
        keep = chance.randint(1, 4)
        wanted = []
        for n, row in enumerate(data):
            others = [m for m, other in enumerate(data) if (other["k"], other["l"]) == (row["k"], row["l"])]
            others.sort(key=lambda m: place(data[m]["by"]), reverse=True)  # a stable sort: equal ones keep their order
            if n in others[:keep]:
                wanted.append(n)
        found = top_n_per_key(rows, keep, key=["k", "l"], by="by")
        assert bits(found.to_pylist()) == bits([data[n] for n in wanted])
    for bad in (0, True, 2.5):
        with pytest.raises(InputError, match="top_n_per_key keeps"):
            top_n_per_key(rows, bad, key=["k"], by="by")  # type: ignore[arg-type]
