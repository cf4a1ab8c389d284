"""Merging rows, against a dictionary that does the same one row at a time."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import InputError
from lakelatch.hudi.merge import alike, stacked
from lakelatch.hudi.merge.rows import deduplicate, merge, remove, without
from lakelatch.hudi.table.record_keys import RECORD_KEY

KEYS = st.sampled_from("abcdef")
ORDER = st.one_of(st.none(), st.integers(0, 3))
VALUE = st.integers(-9, 9)
UNIQUE = st.dictionaries(KEYS, st.tuples(ORDER, VALUE), max_size=6)
BATCH = st.lists(st.tuples(KEYS, ORDER, VALUE), max_size=12)
SCHEMA = pa.schema([(RECORD_KEY, pa.string()), ("ts", pa.int64()), ("v", pa.int64())])


def _table(rows: list[tuple[Any, ...]]) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in rows], schema=SCHEMA)


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return [tuple(r[n] for n in SCHEMA.names) for r in table.to_pylist()]


def _age(ts: int | None) -> int:
    return -1 if ts is None else ts


@given(UNIQUE, UNIQUE)
def test_merge_with_ordering_is_one_row_at_a_time(old: dict[str, Any], new: dict[str, Any]) -> None:
    merged = merge(
        _table([(k, *v) for k, v in old.items()]), _table([(k, *v) for k, v in new.items()]), ordering=["ts"]
    )
    expected = dict(old)
    updates = 0
    for key, row in new.items():
        if key in old and _age(row[0]) >= _age(old[key][0]):
            expected[key] = row
            updates += 1
        elif key not in old:
            expected[key] = row
    assert _rows(merged.rows) == [(k, *v) for k, v in expected.items()]  # also the order of the rows
    assert (merged.inserts, merged.updates) == (len(set(new) - set(old)), updates)


@given(UNIQUE, UNIQUE, st.sampled_from([(), ("ts",)]))
def test_rows_that_need_no_place_are_the_same_rows(old: dict[str, Any], new: dict[str, Any], ordering: Any) -> None:
    before, after = (_table([(k, *v) for k, v in each.items()]) for each in (old, new))
    here, there = (merge(before, after, ordering=ordering, in_place=each) for each in (True, False))
    assert sorted(_rows(there.rows), key=str) == sorted(_rows(here.rows), key=str)
    assert (there.inserts, there.updates) == (here.inserts, here.updates)
    assert there.inserted_keys == here.inserted_keys


@given(
    st.lists(st.tuples(st.booleans(), st.one_of(st.none(), st.text(max_size=2)), st.integers(0, 9))), st.integers(0, 9)
)
def test_rows_are_left_out_of_chunks_that_begin_anywhere(rows: list[tuple[bool, str | None, int]], cut: int) -> None:
    texts, numbers = pa.array([r[1] for r in rows], pa.string()), pa.array([r[2] for r in rows], pa.int64())
    table = pa.table({"t": pa.chunked_array([texts[:cut], texts[cut:]]), "n": numbers})
    left = without(table, pa.array([r[0] for r in rows], pa.bool_()))
    assert left.schema == table.schema
    assert left.to_pylist() == [{"t": r[1], "n": r[2]} for r in rows if not r[0]]


TIMES = [pa.timestamp("us"), pa.timestamp("us", "UTC")]  # which have no common type


@given(
    st.lists(
        st.dictionaries(st.sampled_from("ab"), st.sampled_from([pa.int32(), pa.int64(), pa.float64(), *TIMES])),
        min_size=1,
    )
)
def test_tables_are_stacked_in_the_types_that_make_them_alike(columns: list[dict[str, pa.DataType]]) -> None:
    tables = [
        pa.table(
            {
                "k": [number],
                **{
                    n: pa.array([7], pa.int64()).cast(kind) if "time" not in str(kind) else pa.array([7], kind)
                    for n, kind in each.items()
                },
            }
        )
        for number, each in enumerate(columns)
    ]
    try:
        expected = pa.concat_tables(alike(tables))
    except pa.ArrowException as e:
        with pytest.raises(type(e)):
            stacked(tables)
    else:
        assert stacked(tables).equals(expected)


@given(UNIQUE, UNIQUE)
def test_merge_without_ordering_takes_the_incoming_row(old: dict[str, Any], new: dict[str, Any]) -> None:
    merged = merge(_table([(k, *v) for k, v in old.items()]), _table([(k, *v) for k, v in new.items()]))
    assert _rows(merged.rows) == [(k, *v) for k, v in (old | new).items()]


@given(BATCH)
def test_deduplicate_keeps_the_newest_and_the_last_of_equals(batch: list[tuple[str, int | None, int]]) -> None:
    newest: dict[str, tuple[str, int | None, int]] = {}
    for row in batch:
        if row[0] not in newest or _age(row[1]) >= _age(newest[row[0]][1]):
            newest[row[0]] = row
    kept = _rows(deduplicate(_table(batch), ordering=["ts"]))
    assert sorted(kept, key=str) == sorted(newest.values(), key=str)


@given(BATCH, UNIQUE)
def test_a_repeated_batch_changes_no_value(batch: list[tuple[str, int | None, int]], old: dict[str, Any]) -> None:
    base = _table([(k, *v) for k, v in old.items()])
    once = merge(base, deduplicate(_table(batch), ordering=["ts"]), ordering=["ts"])
    twice = merge(once.rows, deduplicate(_table(batch), ordering=["ts"]), ordering=["ts"])
    assert _rows(twice.rows) == _rows(once.rows)


@given(UNIQUE, st.lists(KEYS))
def test_remove(old: dict[str, Any], keys: list[str]) -> None:
    left = remove(_table([(k, *v) for k, v in old.items()]), pa.array(keys, pa.string()))
    assert _rows(left.rows) == [(k, *v) for k, v in old.items() if k not in keys]
    assert left.deletes == len(set(old) & set(keys))
    assert left.changed == bool(left.deletes)


def test_an_added_column_is_null_in_old_rows_and_meta_columns_in_new_ones() -> None:
    base = pa.table({"_hoodie_commit_time": ["1"], RECORD_KEY: ["a"], "v": [1]})
    incoming = pa.table({RECORD_KEY: ["b"], "v": [2], "w": [3.5]})
    assert merge(base, incoming).rows.to_pylist() == [
        {"_hoodie_commit_time": "1", RECORD_KEY: "a", "v": 1, "w": None},
        {"_hoodie_commit_time": None, RECORD_KEY: "b", "v": 2, "w": 3.5},
    ]


def test_nothing_has_changed_when_every_incoming_row_is_older() -> None:
    merged = merge(_table([("a", 5, 1)]), _table([("a", 4, 2)]), ordering=["ts"])
    assert not merged.changed


def test_repeated_keys_without_ordering_are_named() -> None:
    with pytest.raises(InputError, match="2 record keys occur more than once in the rows: 'a', 'b'"):
        deduplicate(_table([("a", 1, 1), ("b", 1, 1), ("a", 2, 1), ("b", 1, 1), ("c", 1, 1)]))


def test_nan_orders_nothing() -> None:
    rows = pa.table({RECORD_KEY: ["a"], "ts": [float("nan")]})
    with pytest.raises(InputError, match="NaN"):
        deduplicate(rows, ordering=["ts"])
