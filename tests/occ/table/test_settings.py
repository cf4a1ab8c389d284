"""Settings of a table that has rows: what would double, hide or misread them is refused, and nothing is written."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.check.check import check
from lakelatch.occ.entries.entries import Setting
from lakelatch.testing.faults import On, Pause

from ..world import rows

KEYS = [f"k{n}" for n in range(40)]


def keyed(value: int, keys=KEYS) -> pa.Table:
    return pa.table({"id": keys, "v": [value] * len(keys)}, schema=pa.schema([("id", pa.string()), ("v", pa.int64())]))


@pytest.fixture
def make(folder):
    made = []

    def make(*, content: pa.Table | None = None, **settings) -> lakelatch.Table:
        made.append(
            lakelatch.create(str(folder / f"t{len(made)}"), record_key="id", schema=keyed(0).schema, **settings)
        )
        if content is not None:
            upsert(made[-1], content)
        return made[-1]

    yield make
    for table in made:
        table.close()


def upsert(table: lakelatch.Table, content: pa.Table) -> None:
    with table.transaction("upsert") as txn:
        txn.upsert(content)


def slots(table: lakelatch.Table) -> int:
    table.session.log.catch_up()
    return table.session.log.next_slot


@pytest.mark.parametrize(("before", "after"), [(4, 8), (None, 4), (8, 4), (4, 3)])
def test_a_number_of_buckets_that_the_rows_do_not_lie_in_is_refused_with_the_way_out(make, before, after):
    table = make(content=keyed(1), bucket_count=before)
    slot = slots(table)
    with pytest.raises(lakelatch.ConfigError, match=r"second time.*services buckets.*bucket_count=None"):
        table.change_settings(bucket_count=after)
    assert (table.settings.bucket_count, slots(table)) == (before, slot)
    upsert(table, keyed(2))
    assert table.read().to_arrow()["v"].to_pylist() == [2] * len(KEYS)


def test_the_simple_index_finds_rows_that_lie_in_buckets_and_goes_back_while_they_still_do(make):
    table = make(content=keyed(1), bucket_count=4)
    table.change_settings(bucket_count=None)
    upsert(table, keyed(2))
    assert sorted(table.read().to_arrow()["id"].to_pylist()) == sorted(KEYS)
    table.change_settings(bucket_count=4)
    upsert(table, keyed(3))
    assert table.read().to_arrow()["v"].to_pylist() == [3] * len(KEYS)
    assert check(table.store, deep=True).findings == ()


def test_a_table_without_rows_takes_any_number_of_buckets(make):
    table = make(bucket_count=4)
    table.change_settings(bucket_count=8)
    upsert(table, keyed(1))
    upsert(table, keyed(2))
    assert table.read().count() == len(KEYS)


def test_a_transaction_that_began_under_other_buckets_does_not_land(make):
    table = make(bucket_count=4)
    txn = table.transaction("upsert")
    txn.upsert(keyed(1))
    table.change_settings(bucket_count=8)
    with pytest.raises(lakelatch.ConflictError, match="another number of buckets"):
        txn.commit()
    assert table.read().count() == 0


def test_rows_that_land_while_the_buckets_are_compared_are_compared_too(make_world):
    world = make_world(empty=True, bucket_count=4, lock="none://")  # so that nothing keeps the other one from landing
    a, b = world.writer("A"), world.writer("B")

    def meanwhile():
        with b.table.transaction("upsert") as txn:
            txn.upsert(rows("a", dict.fromkeys(KEYS, 1)))

    a.store.add(Pause(On("put_if_absent", "/log/"), call=meanwhile))
    with pytest.raises(lakelatch.ConfigError, match="bucket_count=8"):
        a.table.change_settings(bucket_count=8)
    assert b.table.settings.bucket_count == 4


def test_the_lock_is_not_a_way_around_what_is_compared_with_the_rows(make, folder):
    table = make(content=keyed(1), bucket_count=4)
    with pytest.raises(lakelatch.ConfigError, match="change the lock by itself"):
        table.change_settings(lock=f"file://{folder}/locks", bucket_count=8)
    assert table.settings.bucket_count == 4


def test_a_restore_to_rows_of_another_number_of_buckets_is_refused(make):
    table = make(content=keyed(1), bucket_count=4)
    before = table.timeline().commits[-1].requested
    with table.transaction("insert_overwrite_table") as txn:
        txn.overwrites(None)
        txn.drop_file_groups(txn.snapshot.file_slices())
    table.change_settings(bucket_count=8)
    with pytest.raises(lakelatch.ConfigError, match="bucket_count=8"):
        table.restore(before)
    table.change_settings(bucket_count=None)
    table.restore(before)
    table.change_settings(bucket_count=4)
    upsert(table, keyed(2))
    assert table.read().count() == len(KEYS)


def test_a_restore_to_rows_that_break_a_constraint_is_refused(make):
    table = make(content=keyed(1))  # all of one value
    before = table.timeline().commits[-1].requested
    table.upsert(pa.table({"id": KEYS, "v": list(range(len(KEYS)))}, schema=keyed(1).schema))
    table.change_settings(unique_constraints=["v"])
    files = table.snapshot().file_slices()
    with pytest.raises(lakelatch.ConstraintError, match=r"Nothing was changed.*drop the constraint first") as told:
        table.restore(before)
    assert (told.value.constraint, told.value.values) == (("v",), [(1,)])
    assert table.snapshot().file_slices() == files
    assert check(table.store, deep=True).sound()
    table.change_settings(unique_constraints=[])
    table.restore(before)
    assert set(table.read().to_arrow()["v"].to_pylist()) == {1}


@pytest.mark.parametrize(
    ("setting", "nothing"),
    [({"unique_constraints": ["x"]}, {"unique_constraints": []}), ({"merge": {"x": "sum"}}, {"merge": {}})],
)
def test_a_restore_to_a_table_without_a_column_that_a_setting_names_is_refused(make, setting, nothing):
    table = make(content=keyed(1, KEYS[:1]))
    before = table.timeline().commits[-1].requested
    table.upsert([{"id": KEYS[0], "v": 1, "x": 5}], new_columns="add")
    table.change_settings(**setting)
    (name,) = setting
    with pytest.raises(
        lakelatch.ConfigError, match=f"no column 'x' then, which is named by {name}.*Change that setting first"
    ):
        table.restore(before)
    table.change_settings(**nothing)
    table.restore(before)
    table.upsert(keyed(2, KEYS[:1]))
    assert table.read().to_pylist() == [{"id": KEYS[0], "v": 2}]


def test_a_rule_for_all_columns_hinders_no_restore(make):
    """It names no column that the table could lack."""
    table = make(content=keyed(1, KEYS[:1]))
    before = table.timeline().commits[-1].requested
    table.upsert([{"id": KEYS[0], "v": 2, "x": 5}], new_columns="add")
    table.change_settings(merge="partial_update")
    table.restore(before)
    table.upsert([{"id": KEYS[0], "v": None}])
    assert table.read().to_pylist() == [{"id": KEYS[0], "v": 1}]


def test_a_restore_to_a_table_without_the_columns_of_a_stream_is_refused(folder):
    how = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1}
    schema = pa.schema([("id", pa.string()), ("a", pa.int64()), ("at", pa.int64())])
    with lakelatch.create(str(folder / "streams"), record_key="id", schema=schema, **how) as table:
        table.stream("s", columns=["a"], ordering="at").upsert([{"id": "k", "a": 1, "at": 1}])
        before = table.timeline().commits[-1].requested
        table.run(lambda txn: [txn.add_column(name, "int64") for name in ("b", "bt")])
        table.stream("r", columns=["b"], ordering="bt").upsert([{"id": "k", "b": 1, "bt": 1}])
        with pytest.raises(lakelatch.ConfigError, match="named by stream 'r'"):
            table.restore(before)
        table.restore(table.timeline().commits[-2].requested)
        assert table.read().to_pylist() == [{"id": "k", "a": 1, "at": 1, "b": None, "bt": None}]


def test_a_constraint_that_comes_while_a_restore_is_decided_holds(make_world):
    world = make_world(lock="none://")  # so that nothing keeps the other one from changing it
    a, b = world.writer("A"), world.writer("B")
    before = a.table.timeline().commits[-1].requested
    a.table.upsert(rows("a", {"a0": 1, "a1": 2}))
    a.table.upsert(rows("b", {"b0": 3, "b1": 4}))
    put = On("put_if_absent", "/log/")

    def before_its_commit():
        a.store.add(Pause(put, call=lambda: b.table.change_settings(unique_constraints=["v"])))

    a.store.add(Pause(put, call=before_its_commit))  # at its begin, where it has not looked yet
    with pytest.raises(lakelatch.ConstraintError, match="v=0"):
        a.table.restore(before)
    assert b.table.settings.unique_constraints == (("v",),)


def test_a_table_is_not_adopted_with_buckets_that_its_rows_do_not_lie_in(make):
    table = make(content=keyed(1), bucket_count=4)
    table.close()
    shutil.rmtree(Path(table.url.removeprefix("file://")) / ".hoodie/.lakelatch")
    for bucket_count in (8, 3):
        with pytest.raises(lakelatch.ConfigError, match=f"bucket_count={bucket_count}"):
            lakelatch.adopt(table.url, bucket_count=bucket_count)
    with lakelatch.adopt(table.url, bucket_count=4) as adopted:
        upsert(adopted, keyed(2))
        assert adopted.read().count() == len(KEYS)


@pytest.mark.parametrize("deep", [False, True])
def test_check_names_a_table_whose_buckets_are_not_those_of_its_rows(make, deep):
    table = make(content=keyed(1), bucket_count=4)
    assert check(table.store, deep=deep).sound()
    # No handle does that any more; a writer of before could.
    table.session.log.append(lambda state: Setting(state.settings.changed(bucket_count=8), "test"))
    report = check(table.store, deep=deep)
    assert {each.kind for each in report.findings} == {"bucket-wrong"}
    assert not report.sound()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (name, value)
        for name in ("bucket_count", "log_epochs", "min_version")
        for value in (2.5, 4.0, True, "4", -1, 0, [4])
    ]
    + [
        (n, value)
        for n in ("lease_s", "heartbeat_timeout_s")
        for value in (True, "60", -1, 0, math.nan, math.inf, None)
    ]
    + [("lease_s", value) for value in (0.01, 86400.1, 2 * 86400.0, 364 * 86400)]
    + [(name, value) for name in ("unique_keys", "rebase") for value in (0, 1, "no", None, 2.5)]
    + [(n, v) for n in ("lock", "strategy", "isolation", "early_conflict_detection") for v in (1, None, True, b"off")]
    + [
        (name, value)
        for name in ("unique_constraints", "statistics")
        for value in (1, True, [1], [["a", 2]], b"id", [""])
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_refused_and_nothing_is_written(make, name, value):
    table = make()
    slot, before = slots(table), table.settings
    with pytest.raises(lakelatch.ConfigError, match=name):
        table.change_settings(**{name: value})
    assert (slots(table), table.settings) == (slot, before)
    with pytest.raises(lakelatch.ConfigError):
        make(**{name: value})


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"record_key": "v"}, "record_key"),
        ({"partition_by": "v"}, "partition_by"),
        ({"ordering_field": "v"}, "ordering_field"),
        ({"bucket_count": 8}, "bucket_count"),
        ({"isolation": "serializable"}, "isolation"),
    ],
)
def test_a_table_that_is_there_is_not_taken_for_another_one(make, asked, named):
    table = make(bucket_count=4)
    with pytest.raises(lakelatch.ConfigError, match=named):
        lakelatch.create(table.url, **{"record_key": "id", "exist_ok": True} | asked)
    with lakelatch.create(table.url, record_key="id", exist_ok=True, bucket_count=4) as same:
        assert same.settings == table.settings


# --- a handle that was opened before they were changed ----------------------------------------------------------------


CHANGED = {
    "bucket_count": ({}, {"bucket_count": 4}),
    "unique_keys": ({"unique_keys": False}, {"unique_keys": True}),
    "unique_constraints": ({}, {"unique_constraints": ["v"]}),
    "merge": ({"ordering_field": "v"}, {"ties": "first"}),
    "isolation": ({}, {"isolation": "serializable"}),
    "strategy": ({"bucket_count": 4}, {"strategy": "bucket"}),
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_handle_that_was_opened_before_a_setting_was_changed_writes_under_it(make, name):
    """It knows of it as soon as it begins, so nothing is in its way."""
    given, changes = CHANGED[name]
    table = make(**given)
    with lakelatch.open(table.url) as other:
        table.change_settings(**changes)
        with other.transaction("upsert") as txn:
            txn.upsert(keyed(1, ["a"]))
        assert txn.result
        assert other.read().count() == 1


def test_what_goes_only_with_the_settings_of_now_may_be_asked_for(make):
    table = make(isolation="serializable")
    with lakelatch.open(table.url) as other, lakelatch.open(table.url) as high:
        table.change_settings(isolation="snapshot", strategy="priority")
        high.session.priority = 3
        other.transaction("upsert", isolation="write-serializable").abort()
        high.transaction("upsert").abort()


def test_what_does_not_go_with_them_is_refused_before_anything_is_written(make):
    table = make()
    with lakelatch.open(table.url) as other:
        table.change_settings(isolation="serializable")
        slot = slots(table)
        with pytest.raises(lakelatch.ConfigError, match="weaker than the table's 'serializable'"):
            other.transaction("upsert", isolation="write-serializable")
        assert slots(table) == slot


def test_a_writer_beats_as_often_as_the_table_says_by_now(make_world):
    """Others judge it by the time-out of now."""
    world = make_world(heartbeat_interval_s=10.0, heartbeat_timeout_s=60.0)
    a, b = world.writer("A", host="host-a"), world.writer("B", host="host-b")
    for began_before in (True, False):
        if began_before:
            txn = a.begin_add("a")
            b.table.change_settings(heartbeat_interval_s=2.0, heartbeat_timeout_s=5.0)
            a.env.advance(10.0)  # the beat at which it notices
        else:
            txn = a.begin_add("a")
        for _ in range(8):
            a.env.advance(2.0)
            b.table.rollback_failed_writes()
        txn.commit()
