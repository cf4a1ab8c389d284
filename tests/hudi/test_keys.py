"""Record keys and buckets: the same as Hudi's, row by row."""

import datetime
import decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakelatch.errors import InputError
from lakelatch.hudi.table.record_keys import bucket_ids, key_parts, record_keys, wide_hashes

# Any character but lone surrogates, which are no text; those beyond 16 bits are two units for Java.
TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def _java_string_hash(text: str) -> int:
    value = 0
    for high, low in zip(*[iter(text.encode("utf-16-be"))] * 2, strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def _bucket(values: tuple[str, ...], bucket_count: int) -> int:
    total = 1
    for value in values:
        total = (31 * total + _java_string_hash(value)) & 0xFFFFFFFF
    return (total & 0x7FFFFFFF) % bucket_count


@given(st.lists(TEXT, max_size=30), st.integers(1, 300), st.integers(0, 5), st.integers(0, 5))
@example(["a", "ä", "😀", "a😀b", "\x00", "zz"], 7, 0, 0)
def test_buckets_are_those_of_javas_list_hash(keys: list[str], bucket_count: int, before: int, after: int) -> None:
    padded = pa.array(["skip"] * before + keys + ["äöü"] * after, pa.string())
    found = bucket_ids([padded.slice(before, len(keys))], bucket_count)
    assert found.tolist() == [_bucket((k,), bucket_count) for k in keys]


@given(st.lists(st.tuples(TEXT, TEXT), max_size=20), st.integers(1, 64))
def test_buckets_of_two_fields(keys: list[tuple[str, str]], bucket_count: int) -> None:
    parts = [pa.array([k[i] for k in keys], pa.string()) for i in (0, 1)]
    assert bucket_ids(parts, bucket_count).tolist() == [_bucket(k, bucket_count) for k in keys]


def test_known_java_values() -> None:
    # Objects.hash("id1") and List.of("a", "b").hashCode() of a JDK 17.
    assert bucket_ids([pa.array(["id1"])], 2**31 - 1).tolist() == [104054 + 31]
    assert bucket_ids([pa.array(["a"]), pa.array(["b"])], 2**31 - 1).tolist() == [31 * (31 + 97) + 98]


# Answers of `BucketIdentifier.getBucketId(key, fields, 97)` of JVM Hudi 1.2.0.
OF_HUDI = {
    ("a",): 31,
    ("id1",): 4,
    ("ä",): 65,
    ("😀x",): 14,
    ("x" * 100,): 96,
    ("1:2",): 80,
    ("a,b:c",): 22,
    ("urn:x:y",): 41,
    (" ",): 63,
    ("x", "1"): 74,
    ("x:y", "1"): 53,
    ("p,q", "2"): 30,
}


@pytest.mark.parametrize("values", OF_HUDI)
def test_buckets_of_hudi_itself(values: tuple[str, ...]) -> None:
    assert bucket_ids([pa.array([v]) for v in values], 97).tolist() == [OF_HUDI[values]]


@given(st.lists(TEXT, min_size=1, max_size=40))
def test_equal_keys_have_equal_wide_hashes_and_others_do_not(keys: list[str]) -> None:
    array = pa.array(keys)
    assert len(set(wide_hashes(array).tolist())) == len(set(keys))


def test_wide_hashes_spread_over_all_bits() -> None:
    hashes = wide_hashes(pa.array([f"k{i}" for i in range(200_000)]))
    assert len(set(hashes.tolist())) == 200_000
    for shift in (0, 20, 40, 60):
        ones = ((hashes >> shift) & 1).sum()
        assert 0.45 < ones / 200_000 < 0.55


@pytest.mark.parametrize(
    ("column", "text"),
    [
        (pa.array(["x"]), "x"),
        (pa.array(["x"], pa.large_string()), "x"),
        (pa.array([-5], pa.int32()), "-5"),
        (pa.array([2**62]), str(2**62)),
        (pa.array([datetime.date(2024, 1, 9)]), "2024-01-09"),
        (pa.array([True]), "true"),
        (pa.array([decimal.Decimal("1.50")]), "1.50"),
    ],
)
def test_text_of_keys_by_type(column: pa.Array, text: str) -> None:
    assert record_keys(pa.table({"k": column}), ["k"]).to_pylist() == [text]


def test_several_fields_are_named_in_the_key() -> None:
    rows = pa.table({"a": ["x", "y"], "b": [1, 2]})
    assert record_keys(rows, ["a", "b"]).to_pylist() == ["a:x,b:1", "a:y,b:2"]
    assert [p.to_pylist() for p in key_parts(rows, ["a", "b"])] == [["x", "y"], ["1", "2"]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"x": ["1"]}, "no column 'k'"),
        ({"k": [1.5]}, "type double cannot be a record key"),
        ({"k": [datetime.datetime(2024, 1, 1)]}, "cannot be a record key"),
        ({"k": ["a", None, ""], "n": [1, 2, 3]}, r"2 of 3 rows have no record key: column 'k'.*'n': 2"),
    ],
)
def test_missing_keys_are_refused(rows: dict[str, list[object]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        record_keys(pa.table(rows), ["k"])
