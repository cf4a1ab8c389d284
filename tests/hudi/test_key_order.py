"""Files whose keys are in Java's order and files whose keys are in the order of their bytes: none hides a row."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakelatch
from lakelatch.hudi.table.record_keys import SoughtKeys, java_order, java_span, may_be_span
from lakelatch.occ.check.check import check

# A ligature above the surrogates and two faces beyond the BMP, which Java takes for smaller.
LIGATURE, FACE, LATER_FACE = "\ufb01", "\U0001f600", "\U0001f680"
AWKWARD = st.text(
    st.sampled_from(["a", "z", "\ue000", LIGATURE, "\uffff", "\U00010000", FACE, "\U0010ffff"]), max_size=3
)


def as_java(text: str) -> bytes:
    return text.encode("utf-16-be")


def table_of(folder: Path, *keys: str) -> lakelatch.Table:
    table = lakelatch.create(str(folder), record_key="id", writer="test")
    with table.transaction("insert") as txn:
        txn.new_file("").write(pa.table({"id": list(keys), "v": [0] * len(keys)}))
    return table


def rewrite_span(folder: Path, low: str, high: str) -> None:
    """The file as another writer would have written it."""
    (path,) = folder.glob("*.parquet")
    rows, notes = pq.read_table(path), dict(pq.read_metadata(path).metadata)
    notes |= {b"hoodie_min_record_key": low.encode(), b"hoodie_max_record_key": high.encode()}
    pq.write_table(rows.replace_schema_metadata(notes), path)


def content(table: lakelatch.Table) -> dict[str, int]:
    read = table.read().to_arrow().to_pydict()
    assert len(read["id"]) == len(set(read["id"])), read
    return dict(zip(read["id"], read["v"], strict=True))


@pytest.mark.parametrize(("low", "high"), [(FACE, LIGATURE), (LIGATURE, FACE)], ids=["java", "bytes"])
def test_a_key_is_found_in_whichever_order_its_file_gives_the_span(tmp_path, low, high):
    many = {f"\ufb02{n}": 0 for n in range(500)}  # so that new keys go into the smaller file
    with table_of(tmp_path, LIGATURE, FACE, *many) as table:
        rewrite_span(tmp_path, low, max(many) if low == FACE else high)
        with table.transaction("insert") as txn:
            txn.new_file("").write(pa.table({"id": ["b"], "v": [0]}))
        with table.transaction("upsert") as txn:
            txn.upsert(pa.table({"id": [FACE], "v": [1]}))
        assert content(table) == many | {LIGATURE: 0, FACE: 1, "b": 0}


@pytest.mark.parametrize(("low", "high"), [(FACE, LIGATURE), (LIGATURE, FACE)], ids=["java", "bytes"])
def test_a_key_is_deleted_in_whichever_order_its_file_gives_the_span(tmp_path, low, high):
    with table_of(tmp_path, LIGATURE, FACE) as table:
        rewrite_span(tmp_path, low, high)
        with table.transaction("delete") as txn:
            txn.delete(pa.table({"id": [FACE]}))
        assert content(table) == {LIGATURE: 0}


def test_check_calls_a_file_sound_whose_span_is_in_javas_order(tmp_path):
    with table_of(tmp_path, "a", LIGATURE, FACE, LATER_FACE) as table:
        (path,) = tmp_path.glob("*.parquet")
        notes = pq.read_metadata(path).metadata
        assert notes[b"hoodie_max_record_key"].decode() == LIGATURE, "the JVM compares as Java does"
        assert check(table.store, deep=True).sound()
        rewrite_span(tmp_path, "a", LATER_FACE)
        assert not {"key-range"} & {each.kind for each in check(table.store, deep=True).findings}


@given(st.lists(AWKWARD, min_size=1), st.lists(AWKWARD, min_size=1), st.integers(0, 2))
def test_no_key_of_a_file_counts_as_outside_of_it_in_either_order(held, asked, skipped):
    keys = pa.array([*["x"] * skipped, *asked]).slice(skipped)
    for order in (str, as_java):
        low, high = min(held, key=order), max(held, key=order)
        outside = SoughtKeys(keys).outside(low.encode(), high.encode())
        assert not (outside and set(held) & set(asked))
        assert may_be_span((low, high), (min(held), max(held)))


@given(st.lists(AWKWARD, min_size=1), st.lists(AWKWARD, min_size=1))
def test_spans_in_javas_order_are_what_java_makes_of_them(first, second):
    before = java_span(pa.chunked_array([first]), (min(first), max(first)))
    both = java_span(pa.array(second), (min(second), max(second)), before)
    assert both == (min(first + second, key=as_java), max(first + second, key=as_java))
    assert sorted(first, key=java_order) == sorted(first, key=as_java)


@given(st.lists(st.text("ab", min_size=1), min_size=1), st.text("abc", min_size=1), st.text("abc", min_size=1))
def test_ordinary_keys_are_still_left_out_by_the_span(asked, one, other):
    low, high = sorted((one, other))
    expected = not any(low <= each <= high for each in asked)
    assert SoughtKeys(pa.array(asked)).outside(low.encode(), high.encode()) == expected


def test_of_very_many_keys_the_ends_are_looked_at():
    sought = SoughtKeys(pa.array([f"k{number:06}" for number in range(0, 100_000, 2)]))
    assert sought.outside(b"a", b"j")
    assert sought.outside(b"l", b"z")
    assert not sought.outside(b"k000000", b"k000000")
    assert not sought.outside(b"k000001", b"k000001")
