"""Columns in the types of a table: against a model in plain Python, which says for each value whether the type holds it."""

from __future__ import annotations

import datetime as dt
import re
import struct
from decimal import Decimal
from fractions import Fraction
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from lakelatch.errors import InputError
from lakelatch.occ.incoming.lossless import fitted, stored_type

INT8 = st.integers(-(2**7), 2**7 - 1)
LONGS = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    INT8,
    st.sampled_from([2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**24, 2**24 + 1, 2**53, 2**53 + 1, -(2**53) - 1]),
)
FLOATS = st.one_of(st.floats(), st.floats(width=32), st.integers(-5, 5).map(float), st.just(float(2**62)))
DAYS = st.dates(dt.date(1500, 1, 1))
MOMENTS = st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1))
MIDNIGHTS = st.dates(dt.date(1700, 1, 1), dt.date(2200, 1, 1)).map(lambda d: dt.datetime(d.year, d.month, d.day))
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


def single(value: float) -> bool:
    """Whether four bytes hold it."""
    try:
        return value != value or struct.unpack("f", struct.pack("f", value))[0] == value
    except OverflowError:
        return False


def whole(low: int, high: int):
    return lambda v: v == v and abs(v) != float("inf") and v == int(v) and low <= v <= high


def digits(precision: int, scale: int):
    return lambda v: (Fraction(v) * 10**scale).denominator == 1 and abs(v) < 10 ** (precision - scale)


def decimals(precision: int, scale: int):
    return st.decimals(allow_nan=False, allow_infinity=False, places=scale).filter(digits(precision, scale))


# (type of the rows, values, type of the table, which values that holds)
NUMBERS = [
    (pa.int8(), INT8),
    (pa.uint8(), st.integers(0, 255)),
    (pa.uint32(), st.integers(0, 2**32 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1) | st.integers(0, 9)),
    (pa.int64(), LONGS),
    (pa.float32(), st.floats(width=32) | st.integers(-5, 5).map(float)),
    (pa.float64(), FLOATS),
    (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1).map(Decimal) | INT8.map(Decimal)),
    (pa.decimal128(9, 3), decimals(9, 3) | INT8.map(Decimal)),
]
HOLDS = [
    (pa.int32(), whole(-(2**31), 2**31 - 1), ("int", "float", "decimal")),
    (pa.int64(), whole(-(2**63), 2**63 - 1), ("int", "float", "decimal")),
    (pa.float32(), lambda v: (abs(v) <= 2**24) if isinstance(v, int) else single(v), ("int", "float")),
    (pa.float64(), lambda v: not isinstance(v, int) or abs(v) <= 2**53, ("int", "float")),
    (pa.decimal128(5, 2), digits(5, 2), ("int", "decimal")),
    (pa.decimal128(38, 10), digits(38, 10), ("int", "decimal")),
]


def class_of(kind: pa.DataType) -> str:
    return "int" if pa.types.is_integer(kind) else "float" if pa.types.is_floating(kind) else "decimal"


def same(one, other) -> bool:
    return one == other or (one != one and other != other)


def judge(values: list, kind: pa.DataType, wanted: pa.DataType, held) -> None:
    column = pa.chunked_array([pa.array(values[:2], kind), pa.array(values[2:], kind)])
    bad = next((n for n, v in enumerate(values) if v is not None and not held(v)), None)
    if bad is None:
        found = fitted(column, wanted, "v")
        assert found.type == wanted
        assert all(map(same, found.to_pylist(), values)), (found.to_pylist(), values)
    else:
        with pytest.raises(InputError, match="'v'") as refused:
            fitted(column, wanted, "v")
        assert refused.value.row == bad
        assert "nothing was written" in str(refused.value)


@given(st.data())
def test_numbers_are_stored_as_they_are_or_the_first_that_does_not_fit_is_named(data):
    kind, made = data.draw(st.sampled_from(NUMBERS))
    wanted, held, classes = data.draw(st.sampled_from(HOLDS))
    assume(class_of(kind) in classes and kind != wanted)
    values = pa.array(data.draw(st.lists(st.none() | made, max_size=6)), kind).to_pylist()
    judge(values, kind, wanted, held)


@given(st.lists(st.none() | FLOATS, max_size=6), st.sampled_from([pa.int32(), pa.int64()]))
@example([0.5, None], pa.int64())
@example([float(2**63)], pa.int64())
@example([float(2**31)], pa.int32())
@example([float("nan")], pa.int64())
def test_a_float_that_is_a_whole_number_is_one(values, wanted):
    bits = 31 if wanted == pa.int32() else 63
    judge(values, pa.float64(), wanted, whole(-(2**bits), 2**bits - 1))


@given(st.lists(st.none() | TEXTS, max_size=6))
@pytest.mark.parametrize(
    "kind",
    [
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.uint32(), pa.large_string()),
        pa.dictionary(pa.int32(), pa.string_view()),
    ],
    ids=str,
)
def test_texts_come_in_every_form(kind, values):
    if pa.types.is_dictionary(kind):
        known = list(dict.fromkeys(v for v in values if v is not None))
        codes = pa.array([None if v is None else known.index(v) for v in values], kind.index_type)
        column = pa.chunked_array([pa.DictionaryArray.from_arrays(codes, pa.array(known, kind.value_type))])
    else:
        column = pa.chunked_array([pa.array(values, kind)])
    assert fitted(column, pa.string(), "v").to_pylist() == values
    inside = pa.chunked_array([pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), column.chunk(0))])
    assert fitted(inside, pa.list_(pa.field("element", pa.string())), "v").to_pylist() == [values]


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.binary_view(), pa.binary(2)], ids=str)
def test_bytes_come_in_every_form(kind):
    column = pa.chunked_array([pa.array([b"\xff\x00", None, b"ab"], kind)])
    assert fitted(column, pa.binary(), "v").to_pylist() == [b"\xff\x00", None, b"ab"]


def test_a_category_that_no_row_has_may_be_anything():
    column = pa.chunked_array([pa.DictionaryArray.from_arrays(pa.array([0, None]), pa.array([1, 2**40]))])
    assert fitted(column, pa.int32(), "v").to_pylist() == [1, None]


def test_values_that_stand_in_runs_are_read():
    column = pa.chunked_array([pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None]))])
    assert fitted(column, pa.string(), "v").to_pylist() == ["a", "a", None]


@given(st.lists(st.none() | MOMENTS | MIDNIGHTS, max_size=6), st.sampled_from(["s", "ms", "us", "ns"]))
def test_only_midnights_are_dates(values, unit):
    kind = pa.timestamp(unit)
    cut = {"s": 1_000_000, "ms": 1000}.get(unit, 1)
    values = [v and v.replace(microsecond=v.microsecond // cut * cut) for v in values]
    column = pa.chunked_array([pa.array(values, kind)])
    if all(v is None or v.time() == dt.time() for v in values):
        assert fitted(column, pa.date32(), "v").to_pylist() == [v and v.date() for v in values]
    else:
        with pytest.raises(InputError, match="no times of a day"):
            fitted(column, pa.date32(), "v")


@given(st.lists(st.none() | DAYS, max_size=6))
def test_dates_of_milliseconds_are_dates(values):
    column = pa.chunked_array([pa.array(values, pa.date64())])
    assert fitted(column, pa.date32(), "v").to_pylist() == values


UTC = pa.timestamp("us", "UTC")


@given(
    st.lists(st.none() | MOMENTS, max_size=6),
    st.sampled_from(["ms", "us", "ns"]),
    st.sampled_from(["+05:30", "Asia/Tokyo"]),
)
def test_times_of_another_zone_and_unit_are_the_same_moments(values, unit, zone):
    values = [v and v.replace(microsecond=v.microsecond // 1000 * 1000, tzinfo=dt.UTC) for v in values]
    column = pa.chunked_array([pa.array(values, pa.timestamp(unit, zone))])
    assert fitted(column, UTC, "v").to_pylist() == values


def test_a_part_of_a_microsecond_is_refused_with_the_row():
    column = pa.chunked_array([pa.array([1000, None, 2001], pa.timestamp("ns", "UTC"))])
    with pytest.raises(InputError, match=r"whole microseconds: .*000000002001.* in row 2|whole microseconds.*in row 2"):
        fitted(column, UTC, "v")


def test_a_moment_that_no_microseconds_hold_is_refused():
    column = pa.chunked_array([pa.array([2**62], pa.timestamp("s", "UTC"))])
    with pytest.raises(InputError, match="in row 0"):
        fitted(column, UTC, "v")


@given(
    st.lists(MOMENTS, min_size=1, max_size=4),
    st.sampled_from(["UTC", "Europe/Rome", "America/New_York", "Asia/Kolkata"]),
)
def test_times_without_zone_are_of_the_zone_that_is_said(values, name):
    zone = ZoneInfo(name)
    aware = [v.replace(tzinfo=zone) for v in values]
    # In the hour of a change of clocks there is none such time, or there are two.
    assume(
        all(v.astimezone(dt.UTC).astimezone(zone).replace(tzinfo=None) == w for v, w in zip(aware, values, strict=True))
    )
    assume(all(v.utcoffset() == v.replace(fold=1).utcoffset() for v in aware))
    assume(name == "UTC" or all(v.year < 2037 for v in values))
    column = pa.chunked_array([pa.array(values, pa.timestamp("us"))])
    assert fitted(column, UTC, "v", zone=name).to_pylist() == aware
    with pytest.raises(InputError, match='zone="UTC"'):
        fitted(column, UTC, "v")


@pytest.mark.parametrize("moment", [dt.datetime(2020, 10, 25, 2, 30), dt.datetime(2020, 3, 29, 2, 30)])
def test_a_time_that_a_zone_has_twice_or_never_is_refused(moment):
    column = pa.chunked_array([pa.array([None, moment], pa.timestamp("us"))])
    with pytest.raises(InputError, match=r"times that Europe/Rome has once.*in row 1"):
        fitted(column, UTC, "v", zone="Europe/Rome")


@pytest.mark.parametrize(
    "wanted", [pa.int32(), pa.string(), pa.struct([("a", pa.int64())]), pa.map_(pa.string(), UTC), UTC]
)
@pytest.mark.parametrize("kind", [pa.null(), pa.float64(), pa.time64("us"), pa.string(), pa.list_(pa.int8())])
def test_nulls_of_any_type_are_nulls_of_any_other(kind, wanted):
    assert fitted(pa.chunked_array([pa.nulls(3, kind)]), wanted, "v").equals(pa.chunked_array([pa.nulls(3, wanted)]))


@pytest.mark.parametrize(
    ("kind", "value", "wanted"),
    [
        (pa.string(), "12", pa.int64()),
        (pa.string(), "1.5", pa.float64()),
        (pa.string(), "x", pa.binary()),
        (pa.binary(), b"x", pa.string()),
        (pa.int64(), 1, pa.string()),
        (pa.int64(), 1, pa.bool_()),
        (pa.bool_(), True, pa.int32()),
        (pa.float64(), 0.5, pa.decimal128(5, 2)),
        (pa.decimal128(5, 2), Decimal("0.5"), pa.float64()),
        (pa.date32(), dt.date(2020, 1, 1), UTC),
        (UTC, dt.datetime(2020, 1, 1, tzinfo=dt.UTC), pa.date32()),
        (pa.int64(), 1, UTC),
        (UTC, dt.datetime(2020, 1, 1, tzinfo=dt.UTC), pa.int64()),
        (pa.time64("us"), dt.time(1), pa.int64()),
        (pa.duration("us"), dt.timedelta(1), pa.int64()),
        (pa.month_day_nano_interval(), pa.MonthDayNano([1, 2, 3]), pa.string()),
        (pa.list_(pa.int32()), [1], pa.int32()),
        (pa.struct([("a", pa.int32())]), {"a": 1}, pa.map_(pa.string(), pa.int32())),
    ],
    ids=str,
)
def test_what_would_become_something_else_is_refused_with_its_value(kind, value, wanted):
    with pytest.raises(InputError, match=r"'v' is .* in row 1") as refused:
        fitted(pa.chunked_array([pa.array([None, value], kind)]), wanted, "v")
    assert refused.value.column == "v"


DEEP = pa.struct(
    [
        ("n", pa.int64()),
        ("l", pa.list_(pa.field("element", pa.struct([("s", pa.string())])))),
        ("m", pa.map_(pa.string(), pa.float64())),
    ]
)
DEEP_VALUES = st.none() | st.fixed_dictionaries(
    {
        "n": st.none() | INT8,
        "l": st.none() | st.lists(st.none() | st.fixed_dictionaries({"s": st.none() | TEXTS}), max_size=3),
        "m": st.none()
        | st.dictionaries(TEXTS, st.none() | st.floats(allow_nan=False, width=32), max_size=3).map(
            lambda d: list(d.items())
        ),
    }
)


@given(st.lists(DEEP_VALUES, max_size=5), st.integers(0, 2))
def test_the_rules_hold_inside_of_structs_lists_and_maps(values, begin):
    narrow = pa.struct(
        [
            ("m", pa.map_(pa.large_string(), pa.float32())),
            ("l", pa.large_list(pa.struct([("s", pa.string_view())]))),
            ("n", pa.int8()),
        ]
    )
    column = pa.chunked_array([pa.array(values, narrow).slice(begin)])  # of a piece that begins in the middle
    found = fitted(column, DEEP, "v")
    assert found.type == DEEP
    assert found.to_pylist() == values[begin:]
    found.validate(full=True)


@given(st.lists(st.none() | st.lists(st.none() | INT8, min_size=2, max_size=2), max_size=5), st.integers(0, 2))
def test_lists_come_in_every_form(values, begin):
    wanted = pa.list_(pa.field("element", pa.int64()))
    for kind in (
        pa.list_(pa.int8()),
        pa.large_list(pa.int8()),
        pa.list_(pa.int8(), 2),
        pa.list_view(pa.int8()),
        pa.large_list_view(pa.int8()),
    ):
        found = fitted(pa.chunked_array([pa.array(values, kind).slice(begin)]), wanted, "v")
        assert found.to_pylist() == values[begin:], kind
        found.validate(full=True)


def test_a_list_of_pairs_is_a_map_to_who_has_none():
    column = pa.chunked_array(
        [
            pa.array(
                [[{"key": "a", "value": 1}], None, []],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.int8())])),
            )
        ]
    )
    assert fitted(column, pa.map_(pa.string(), pa.int64()), "v").to_pylist() == [[("a", 1)], None, []]


def test_a_value_inside_is_named_with_its_path():
    column = pa.chunked_array([pa.array([{"l": [1, 2**40]}])])
    wanted = pa.struct([("l", pa.list_(pa.field("element", pa.int32())))])
    with pytest.raises(InputError, match=r"'v\.l\.element' .*1099511627776"):
        fitted(column, wanted, "v")
    inner = pa.chunked_array([pa.array([{"a": 1}, {"a": 2**40}])])
    with pytest.raises(InputError, match=r"'v\.a' .*1099511627776 in row 1"):
        fitted(inner, pa.struct([("a", pa.int32())]), "v")


def test_a_time_that_python_has_none_for_is_named_wherever_it_stands():
    number = 3 * 10**17
    moment = pa.array([number]).cast(pa.timestamp("us", "UTC"))
    struct = pa.StructArray.from_arrays([moment], ["at"])
    for values, told in (
        (moment, number),
        (struct, {"at": number}),
        (pa.ListArray.from_arrays([0, 1], moment), [number]),
        (pa.LargeListArray.from_arrays([0, 1], struct), [{"at": number}]),
        (pa.ListArray.from_arrays([0, 1], moment.dictionary_encode()), [number]),
        (pa.MapArray.from_arrays([0, 1], pa.array(["k"]), moment), [{"key": "k", "value": number}]),
    ):
        with pytest.raises(InputError, match=re.escape(repr(told))):
            fitted(pa.chunked_array([values]), pa.int32(), "x")


def test_a_struct_with_other_fields_is_refused():
    column = pa.chunked_array([pa.array([None, {"a": 1}])])
    wanted = pa.struct([("a", pa.int64()), ("b", pa.string())])
    with pytest.raises(InputError, match="lack b"):
        fitted(column, wanted, "v")
    assert fitted(column, wanted, "v", fill=True).to_pylist() == [None, {"a": 1, "b": None}]
    with pytest.raises(InputError, match="the fields x and no others"):
        fitted(column, pa.struct([("x", pa.int64())]), "v", fill=True)


def test_large_columns_are_cut_before_they_are_cast():
    text = "x" * 100
    column = pa.chunked_array([pa.array([text] * 50, pa.large_string())])
    found = fitted(column, pa.string(), "v", chunk_bytes_max=1000)
    assert found.num_chunks > 5
    assert found.to_pylist() == [text] * 50


def test_a_zone_whose_clocks_arrow_does_not_know_so_far_ahead_is_refused():
    column = pa.chunked_array([pa.array([dt.datetime(2038, 7, 1)], pa.timestamp("us"))])
    with pytest.raises(InputError, match="up to 2036"):
        fitted(column, UTC, "v", zone="Europe/Rome")
    assert fitted(column, UTC, "v", zone="UTC").to_pylist() == [dt.datetime(2038, 7, 1, tzinfo=dt.UTC)]


def test_a_new_column_has_the_type_that_holds_its_values():
    nested = pa.list_(pa.struct([("t", pa.timestamp("ns")), ("u", pa.uint8())]))
    assert stored_type(nested, "v", zone="UTC") == pa.list_(
        pa.field("element", pa.struct([("t", UTC), ("u", pa.int32())]))
    )
    with pytest.raises(InputError, match=r"'v\.element\.t'.*zone="):
        stored_type(nested, "v")
