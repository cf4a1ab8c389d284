"""What commits tell of their columns, and conditions that therefore do not meet them."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import subprocess
import sys
import zlib
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lakelatch
from lakelatch.conditions import condition_on
from lakelatch.conflict.predicate import ColumnStatistics, FileStatistics, may_match, where_of
from lakelatch.occ.entries.column_statistics import columns_of, encoded, of_footer
from lakelatch.occ.log.publisher import plain_metadata_of

from ...thorough import THOROUGH
from ..world import add, insert, overwrite, rows

COLUMNS = {
    "i": (pa.int64(), st.integers(-3, 3)),
    "f": (pa.float64(), st.sampled_from([-1.5, -0.0, 0.0, 1.0, math.nan, math.inf, -math.inf])),
    "b": (pa.bool_(), st.booleans()),
    "s": (pa.string(), st.sampled_from(["", "a", "b", "ä", "\U0001f600", "a" * 5000])),
    "d": (pa.date32(), st.dates(dt.date(2024, 1, 1), dt.date(2024, 1, 4))),
    "t": (pa.timestamp("us", "UTC"), st.datetimes(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2))),
    "n": (pa.timestamp("us"), st.datetimes(dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2))),
    "c": (pa.decimal128(6, 2), st.decimals(-1, 1, places=2)),
    "g": (pa.float32(), st.sampled_from([0.1, 0.5])),
}
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)


def native(name: str, value):
    return value.replace(tzinfo=dt.UTC) if name == "t" and value is not None else value


@st.composite
def tables(draw) -> pa.Table:
    count = draw(st.integers(1, 12))
    columns = {}
    for name, (kind, values) in COLUMNS.items():
        held = draw(st.lists(st.none() | values, min_size=count, max_size=count))
        columns[name] = pa.array([native(name, v) for v in held], kind)
    return pa.table(columns)


@st.composite
def terms(draw) -> tuple:
    name = draw(st.sampled_from(sorted(COLUMNS)))
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null"]))
    values = COLUMNS[name][1].map(lambda v: native(name, v))
    if op.startswith("is"):
        return (name, op)
    return (name, op, tuple(draw(st.lists(values, max_size=3)))) if op == "in" else (name, op, draw(values))


def holds(value, op: str, wanted=None) -> bool:
    """As Spark compares: no comparison is true for null, and NaN is equal to itself and larger than every number."""
    if op.startswith("is"):
        return (value is None) == (op == "is null")
    if value is None:
        return False
    if op == "in":
        return any(holds(value, "=", each) for each in wanted)
    nan, other = (isinstance(each, float) and math.isnan(each) for each in (value, wanted))
    low, high = ((nan, 0), (other, 0)) if nan or other else (value, wanted)
    return {"=": low == high, "!=": low != high, "<": low < high, "<=": low <= high, ">": low > high}.get(
        op, low >= high
    )


@settings(max_examples=300 if THOROUGH else 60)
@given(tables(), st.lists(terms(), min_size=1, max_size=3), st.integers(1, 12))
def test_a_row_that_meets_the_conditions_is_never_excluded(table, conditions, group):
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=group)
    told = FileStatistics.from_json(json.loads(zlib.decompress(encoded(of_footer(pq.read_metadata(sink), COLUMNS)))))
    met = any(all(holds(row[c[0]], *c[1:]) for c in conditions) for row in table.to_pylist())
    assert may_match(where_of(conditions), told) or not met


@settings(max_examples=300 if THOROUGH else 60)
@given(tables(), st.lists(terms(), min_size=1, max_size=3))
def test_exactly_the_rows_that_meet_the_conditions_are_marked(table, conditions):
    met = [all(holds(row[c[0]], *c[1:]) for c in conditions) for row in table.to_pylist()]
    assert condition_on(table.schema, conditions).mask(table).to_pylist() == met


@pytest.mark.parametrize(
    ("name", "inside", "outside"),
    [
        ("i", 2, 5),
        ("b", True, False),
        ("s", "b", "x"),
        ("d", dt.date(2024, 1, 2), dt.date(2025, 1, 1)),
        ("t", dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC), dt.datetime(2025, 1, 1, tzinfo=dt.UTC)),
        ("n", dt.datetime(2024, 1, 1, 12), dt.datetime(2025, 1, 1)),
        ("c", Decimal("0.50"), Decimal("9.00")),
    ],
)
def test_every_type_excludes_what_is_outside(name, inside, outside):
    table = pa.table({name: pa.array([inside, None], COLUMNS[name][0])})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    told = FileStatistics.from_json(json.loads(zlib.decompress(encoded(of_footer(pq.read_metadata(sink), [name])))))
    assert may_match(where_of([(name, "=", inside)]), told)
    assert not may_match(where_of([(name, "=", outside)]), told)
    assert told.columns[name].nulls == 1


def test_timestamps_with_and_without_a_zone_do_not_compare():
    aware, naive = (FileStatistics(1, {"t": ColumnStatistics(at, at, 0)}) for at in (NOON, NOON.replace(tzinfo=None)))
    later = NOON + dt.timedelta(days=1)
    for op in ("=", ">", ">="):
        assert not may_match(where_of([("t", op, later)]), aware)
        assert may_match(where_of([("t", op, later)]), naive)
        assert may_match(where_of([("t", op, later.replace(tzinfo=None))]), aware)


def test_which_columns_a_commit_tells():
    schema = pa.schema([(n, kind) for n, (kind, _) in COLUMNS.items()] + [("l", pa.list_(pa.int64()))])
    able = tuple(n for n in COLUMNS if n not in ("f", "g"))
    assert columns_of(schema, None, isolation="snapshot") == ()
    assert columns_of(schema, None, isolation="serializable") == able
    assert columns_of(schema, "all", isolation="snapshot") == able
    assert columns_of(schema, ("g", "i", "l"), isolation="snapshot") == ("i",)
    wide = pa.schema([(f"c{n}", pa.int64()) for n in range(50)])
    assert len(columns_of(wide, None, isolation="serializable")) == 32
    assert len(columns_of(wide, "all", isolation="serializable")) == 50


# --- on a table ---------------------------------------------------------------------------------------------------


def test_statistics_are_told_where_somebody_asks(make_world):
    for given_, told in (({}, False), ({"isolation": "serializable"}, True), ({"statistics": ["v"]}, True)):
        world = make_world(**given_)
        table = world.writer("one").table
        with table.transaction("upsert") as txn:
            insert(txn, "a", "x", v=4)
        (stat,) = plain_metadata_of(table.store, table.session.log.state.last)["stats"]
        assert ("columns" in stat) is told
        if told:
            assert stat["columns"]["rows"] == 1
            assert stat["columns"]["columns"]["v"] == [4, 4, 0]


@pytest.fixture
def two(make_world):
    """Two writers of a table where reads count, with a file of large v in partition a."""
    world = make_world(isolation="serializable")
    one, other = world.writer("one").table, world.writer("two").table
    with one.transaction("insert") as txn:
        insert(txn, "a", "large", v=100)
    one.session.log.catch_up()
    return world, one, other


def job(table, where, *, partition="part=a") -> lakelatch.Transaction:
    """Adds up what meets the condition, and writes the total elsewhere."""
    txn = table.transaction("upsert")
    total = sum(
        v for each in txn.mark_scanned(partition, where=where) for v in txn.session.read_slice(each)["v"].to_pylist()
    )
    insert(txn, "b", f"total {txn.instant}", v=total)
    return txn


@pytest.mark.parametrize(("value", "lands"), [(10, True), (3, False)])
def test_a_new_file_that_the_condition_excludes_is_no_phantom(two, value, lands):
    _, one, other = two
    txn = job(other, [("v", "<", 5)])
    with one.transaction("insert") as between:
        insert(between, "a", "new", v=value)
    if lands:
        txn.commit()
        return
    with pytest.raises(lakelatch.ConflictError, match="counts under isolation serializable"):
        txn.commit()


def test_without_a_condition_every_new_file_is_one(two):
    _, one, other = two
    txn = job(other, ())
    with one.transaction("insert") as between:
        insert(between, "a", "new", v=10)
    with pytest.raises(lakelatch.ConflictError):
        txn.commit()


def test_only_slices_that_may_match_were_read(two):
    _, one, other = two
    txn = job(other, [("v", "<", 5)])
    (group,) = [
        each.group
        for each in txn.snapshot.file_slices("part=a")
        if each not in txn.mark_scanned("part=a", where=[("v", "<", 5)])
    ]
    with one.transaction("upsert") as between:
        between.rewrite(between.snapshot.get(group)).write(rows("a", {"large": 200}))
    txn.commit()
    txn = job(other, [("v", "<", 5)])
    with one.transaction("upsert") as between:
        between.rewrite(between.snapshot.get(group)).write(rows("a", {"large": 2}))  # it may match from now on
    with pytest.raises(lakelatch.ConflictError):
        txn.commit()


def test_a_row_that_met_the_condition_and_is_gone_counts(two):
    _, one, other = two
    txn = job(other, [("v", "<", 5)])
    with one.transaction("upsert") as between:
        for group in between.snapshot.file_slices("part=a"):
            if "a0" in between.read_slice(group)["id"].to_pylist():
                between.rewrite(group).write(rows("a", {"a0": 50, "a1": 50}))  # what is there now meets it no more
    with pytest.raises(lakelatch.ConflictError):
        txn.commit()


def test_write_skew_on_rows_of_a_condition_aborts(two):
    _, one, other = two
    first, second = job(one, [("v", "<", 5)], partition=None), job(other, [("v", "<", 5)], partition=None)
    for txn in (first, second):
        add(txn, "a" if txn is first else "b")
    first.commit()
    with pytest.raises(lakelatch.ConflictError):
        second.commit()


def test_the_own_condition_of_a_write_counts_at_every_level(make_world):
    world = make_world(statistics=["v"])
    one, other = world.writer("one").table, world.writer("two").table
    for value, lands in ((10, True), (3, False)):
        txn = other.transaction("delete")
        assert len(txn.depends_on("part=a", where=[("v", "<", 5), ("v", ">=", 1)])) == 0
        add(txn, "b")
        with one.transaction("insert") as between:
            insert(between, "a", f"new {value}", v=value)
        if lands:
            txn.commit()
            continue
        with pytest.raises(lakelatch.ConflictError, match="our condition"):
            txn.commit()


def test_an_insert_that_read_by_a_condition_is_not_blind(make_world):
    world = make_world(statistics=["v"])
    one, other = world.writer("one").table, world.writer("two").table
    txn = other.transaction("insert")
    txn.mark_scanned("part=a", where=[("v", "=", 0)])
    insert(txn, "a", "copy")
    with one.transaction("insert_overwrite") as between:
        overwrite(between, "a", "only")
    with pytest.raises(lakelatch.ConflictError):
        txn.commit()


def test_a_condition_on_no_column_is_refused(two):
    with pytest.raises(lakelatch.InputError, match="no column 'w'"):
        job(two[1], [("w", "<", 5)])
    with pytest.raises(lakelatch.InputError, match="no operator"):
        job(two[1], [("v", "~", 5)])


def test_a_commit_of_very_many_file_groups_takes_little_memory(folder):
    """Stats that are made here, 2 KiB for each file at most; the path from staging to the published instant is the real one."""
    groups = 100_000 if THOROUGH else 12_000
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.commits.many_groups", "--folder", str(folder), "--groups", f"{groups}"],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(run.stdout.splitlines()[-1].partition(": ")[2])
    assert told["grown_mib"] <= groups / 512
    assert told["stats_on_timeline"] == groups
    assert told["reads_of_side_objects"] <= 1


@pytest.mark.parametrize("isolation", ["snapshot", "write-serializable"])
def test_of_times_that_python_has_none_for_no_bound_is_known(tmp_path, isolation):
    """So a condition reads the file, and a commit says of the column how many nulls it has."""
    moment = pa.timestamp("us", "UTC")
    schema = pa.schema([("id", pa.string()), ("day", pa.date32()), ("at", moment)])
    for name, far in (("after", 2**60), ("before", -(2**60))):
        at = pa.array([far, 0, None], moment)
        day = pa.array([far >> 30, 0, None], pa.int32()).cast(pa.date32())
        with lakelatch.create(str(tmp_path / name), record_key="id", schema=schema, isolation=isolation) as table:
            table.upsert(pa.table({"id": ["a", "b", "c"], "day": day, "at": at}, schema=schema))
            for column, value in (("at", "timestamp '1970-01-01 00:00:00Z'"), ("day", "date '1970-01-01'")):
                read = {
                    op: table.read(columns=["id"], where=f"{column} {op} {value}").to_pylist() for op in ("=", "!=")
                }
                assert read == {"=": [{"id": "b"}], "!=": [{"id": "a"}]}, (name, column)
            table.update_where("at is null", set={"day": dt.date(2026, 1, 1)})
            assert table.read(where="day = date '2026-01-01'").count() == 1
