"""New keys and unique constraints: of two rows that may not both stand, one lands, no matter who writes them and when."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakelatch
from lakelatch import sql
from lakelatch.occ.entries.side_objects import SIDES
from lakelatch.occ.entries.value_hashes import pack, unpack
from lakelatch.occ.table.table import Table
from lakelatch.occ.workspace import unique_constraints as constraints

from ..world import check_sound, content, insert, overwrite, rows

PEOPLE = pa.schema([("id", pa.string()), ("email", pa.string()), ("land", pa.string()), ("number", pa.int64())])


def people(*given: tuple) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(PEOPLE.names, row, strict=True)) for row in given], schema=PEOPLE)


@pytest.fixture
def make_people(folder):
    tables = []

    def make(*first: tuple, unique_constraints=("email",), **settings) -> Table:
        url = str(folder / f"people-{len(tables)}")
        table = lakelatch.create(url, record_key="id", schema=PEOPLE, unique_constraints=unique_constraints, **settings)
        tables.append(table)
        if first:
            table.insert(people(*first))
        return table

    yield make
    for table in tables:
        table.close()


def begin(table: Table, *given: tuple, operation: str = "upsert") -> lakelatch.Transaction:
    txn = table.transaction(operation)
    txn.new_file().write(people(*given))
    return txn


# --- keys, simple index -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["upsert", "insert_overwrite"])
def test_two_writers_that_insert_one_new_key_conflict(world, operation):
    first, second = (world.writer(name).table for name in ("one", "two"))
    one, two = first.transaction("upsert"), second.transaction(operation)
    insert(one, "a", "new", "x")
    insert(two, "a", "new", "y")
    if operation == "insert_overwrite":
        two.overwrites("part=c")
    one.commit()
    with pytest.raises(lakelatch.ConflictError, match="both inserted the same new key") as told:
        two.commit()
    assert told.value.winner == one.instant
    assert told.value.retryable
    assert set(world.content()) == {"a0", "a1", "b0", "b1", "new", "x"}
    check_sound(world.fresh())


def test_a_blind_insert_is_not_run_again_because_its_rows_would_stand_twice(world):
    first, second = (world.writer(name).table for name in ("one", "two"))
    runs = []

    def work(txn):
        runs.append(txn.instant)
        insert(txn, "a", "new", "y")
        if len(runs) == 1:
            with first.transaction("insert") as other:
                insert(other, "a", "new")

    with pytest.raises(lakelatch.DuplicateKeyError, match="upsert them"):
        second.run(work, operation="insert")
    assert len(runs) == 1
    assert set(world.content()) == {"a0", "a1", "b0", "b1", "new"}


def test_an_upsert_that_lost_finds_the_key_when_it_runs_again(world):
    first, second = (world.writer(name).table for name in ("one", "two"))
    runs = []

    def work(txn):
        runs.append(txn.instant)
        held = {
            key: group
            for group in txn.snapshot.file_slices("part=a")
            for key in txn.read_slice(group)["id"].to_pylist()
        }
        if "new" in held:
            old = txn.read_slice(held["new"], meta=True)
            keep = old.filter(pa.compute.not_equal(old["id"], "new"))
            txn.rewrite(held["new"]).write(pa.concat_tables([keep, rows("a", {"new": 7})], promote_options="default"))
            return
        insert(txn, "a", "new", v=7)
        with first.transaction("upsert") as other:
            insert(other, "a", "new", v=1)

    assert second.run(work).attempts == 2
    assert world.content()["new"] == 7


def test_the_same_key_in_two_partitions_is_two_keys(world):
    first, second = (world.writer(name).table for name in ("one", "two"))
    one, two = first.transaction("upsert"), second.transaction("upsert")
    for txn, in_a, in_b in ((one, "x", "y"), (two, "y", "x")):
        insert(txn, "a", in_a, "m" + txn.instant)
        insert(txn, "b", in_b, "n" + txn.instant)
    insert(one, "a", "a", "z")  # the spans meet
    one.commit()
    two.commit()
    assert world.fresh().read().count() == 14


@pytest.mark.parametrize("settings", [{"unique_keys": False}, {}])
def test_no_promise_no_conflict(make_world, settings):
    world = make_world(**settings)
    operation = "upsert" if settings else "bulk_insert"
    first, second = (world.writer(name).table for name in ("one", "two"))
    one, two = first.transaction(operation), second.transaction(operation)
    insert(one, "a", "new")
    insert(two, "a", "new")
    one.commit()
    two.commit()
    assert "unique" not in two.session.log.state.last.metadata
    assert world.fresh().read().to_arrow()["id"].to_pylist().count("new") == 2


def test_rows_that_are_changed_in_place_are_no_new_keys(world):
    table = world.writer("one").table
    with table.transaction("upsert") as txn:
        (group,) = txn.snapshot.file_slices("part=a")
        txn.rewrite(group).write(rows("a", {"a0": 1, "a1": 2, "new": 3}))
    ((_, values),) = txn.workspace.changes.values().items()
    assert len(values.hashes()) == 1
    with table.transaction("upsert") as txn:
        (group,) = txn.snapshot.file_slices("part=a")
        txn.rewrite(group).write(rows("a", {"a0": 5, "a1": 5, "new": 5}))
    assert not txn.workspace.changes.values()


def test_a_key_that_is_new_in_a_rewritten_file_and_in_a_new_one_is_found(world):
    first, second = (world.writer(name).table for name in ("one", "two"))
    for a, b in ((first, second), (second, first)):
        one, two = a.transaction("upsert"), b.transaction("upsert")
        key = f"new of {a.writer}"
        (group,) = one.snapshot.file_slices("part=b")
        one.rewrite(group).write(rows("b", {"b0": 1, "b1": 1, key: 1}))
        insert(two, "b", key)
        ours, theirs = (one, two) if a is first else (two, one)
        ours.commit()
        with pytest.raises(lakelatch.ConflictError, match="same new key"):
            theirs.commit()
    assert len(content(world.fresh())) == 6


def test_an_overwrite_and_a_blind_insert_of_one_key_do_not_both_stand(world):
    first, second = (world.writer(name).table for name in ("one", "two"))
    one, two = first.transaction("insert_overwrite"), second.transaction("insert")
    overwrite(one, "a", "new")
    insert(two, "a", "new")
    one.commit()
    with pytest.raises(lakelatch.DuplicateKeyError):
        two.commit()


def test_large_sets_lie_beside_the_log_and_are_read_only_when_spans_meet(world):
    first, second = (world.writer(name) for name in ("one", "two"))
    many = [f"k{n:06}" for n in range(3000)]
    near, far, elsewhere = (second.table.transaction("upsert") for _ in range(3))
    insert(near, "a", "k001500")
    insert(far, "a", "z")
    insert(elsewhere, "b", "k001500")
    with first.table.transaction("upsert") as txn:
        insert(txn, "a", *many)
    plain = first.table.session.log.state.last.metadata["unique"][""]
    assert plain["spans"] == {"part=a": ["k000000", "k002999"]}
    path = plain["side"]["path"]
    assert path.startswith(f"{SIDES}/{txn.instant}-")
    for free in (far, elsewhere):
        second.store.calls.clear()
        free.commit()
        assert not [call for call in second.store.calls if path in str(call)]
    with pytest.raises(lakelatch.ConflictError, match="same new key"):
        near.commit()


def test_a_set_that_is_gone_may_hold_anything(world):
    first, second = (world.writer(name) for name in ("one", "two"))
    two = second.table.transaction("upsert")
    insert(two, "a", "k000700x")
    with first.table.transaction("upsert") as txn:
        insert(txn, "a", *(f"k{n:06}" for n in range(3000)))
    first.table.store.delete(first.table.session.log.state.last.metadata["unique"][""]["side"]["path"])
    with pytest.raises(lakelatch.ConflictError, match="same new key"):
        two.commit()


def test_two_large_sets_without_a_common_key_never_conflict(world):
    first, second = (world.writer(name).table for name in ("one", "two"))
    one, two = first.transaction("upsert"), second.transaction("upsert")
    insert(one, "a", *(f"k{n:06}" for n in range(0, 40_000, 2)))
    insert(two, "a", *(f"k{n:06}" for n in range(1, 40_000, 2)))
    one.commit()
    two.commit()


@given(st.sets(st.integers(0, 2**64 - 1)))
def test_packed_hashes_come_back(values):
    hashes = np.array(sorted(values), np.uint64)
    assert unpack(pack(hashes)).tolist() == hashes.tolist()


# --- constraints --------------------------------------------------------------------------------------------------


def test_two_writers_of_one_value_conflict_and_the_loser_is_told_the_rows(make_people):
    table = make_people(("1", "a@x", "de", 1))
    runs = []

    def work(txn):
        runs.append(txn.instant)
        txn.new_file().write(people(("2", "new@x", "de", 2)))
        if len(runs) == 1:
            with table.transaction("upsert") as other:
                other.new_file().write(people(("3", "new@x", "de", 3)))

    with pytest.raises(lakelatch.ConstraintError) as told:
        table.run(work)
    assert len(runs) == 2
    assert told.value.constraint == ("email",)
    assert told.value.values == [("new@x",)]
    assert told.value.keys == ["2"]
    assert "'3'" in str(told.value)
    assert sorted(table.read().to_arrow()["id"].to_pylist()) == ["1", "3"]


def test_a_conflict_over_a_value_names_the_constraint(make_people):
    table = make_people()
    one, two = begin(table, ("1", "a@x", "de", 1)), begin(table, ("2", "a@x", "de", 2), operation="insert")
    one.commit()
    with pytest.raises(lakelatch.ConflictError, match=r"what is unique \(email\)") as told:
        two.commit()
    assert told.value.retryable  # the next attempt finds the row and names it


def test_values_of_other_rows_of_the_snapshot_are_refused(make_people):
    table = make_people(("1", "a@x", "de", 1), ("2", "b@x", "de", 2))
    with pytest.raises(lakelatch.ConstraintError, match=r"email='b@x' in rows '3' and '2'"):
        begin(table, ("3", "b@x", "fr", 3)).commit()
    assert table.read().count() == 2
    begin(table, ("3", "c@x", "fr", 3)).commit()


def test_a_row_may_keep_its_value_and_rows_may_swap_theirs(make_people):
    table = make_people(("1", "a@x", "de", 1), ("2", "b@x", "de", 2), ("3", "c@x", "de", 3))
    with table.transaction("upsert") as txn:
        (group,) = txn.snapshot.file_slices()
        old = txn.read_slice(group, meta=True)
        kept = old.filter(pa.compute.equal(old["id"], "3"))
        changed = people(("1", "b@x", "de", 1), ("2", "a@x", "de", 2))
        txn.rewrite(group).write(pa.concat_tables([kept, changed], promote_options="default"))
    assert dict(zip(*(table.read().to_arrow()[c].to_pylist() for c in ("id", "email")), strict=True))["1"] == "b@x"


def test_a_row_that_was_copied_into_the_new_file_is_another_row(make_people):
    table = make_people(("1", "a@x", "de", 1), ("2", "b@x", "de", 2))
    txn = table.transaction("upsert")
    (group,) = txn.snapshot.file_slices()
    old = txn.read_slice(group, meta=True)
    kept = old.filter(pa.compute.equal(old["id"], "2"))
    txn.rewrite(group).write(pa.concat_tables([kept, people(("1", "b@x", "de", 1))], promote_options="default"))
    with pytest.raises(lakelatch.ConstraintError, match="email='b@x'"):
        txn.commit()


def test_twice_in_one_batch_is_refused(make_people):
    table = make_people()
    with pytest.raises(lakelatch.ConstraintError, match=r"email='a@x' in rows '1' and '2'"):
        begin(table, ("1", "a@x", "de", 1), ("2", "a@x", "de", 2)).commit()
    with pytest.raises(lakelatch.ConstraintError) as told:
        begin(
            table, *((str(n), None, "de", 1) for n in range(3)), ("a", "z@x", "de", 1), ("b", "z@x", "de", 2)
        ).commit()
    assert told.value.values == [("z@x",)]
    assert table.read().count() == 0


def test_nulls_are_never_equal(make_people):
    table = make_people(("1", None, "de", 1), ("2", None, "de", 2))
    one, two = begin(table, ("3", None, "de", 1)), begin(table, ("4", None, "de", 2))
    one.commit()
    two.commit()
    assert table.read().count() == 4


def test_of_several_columns_all_have_to_be_equal(make_people):
    table = make_people(("1", "a", "de", 1), unique_constraints=[("land", "number")])
    given_ = (("2", "a", "de", 2), ("3", "a", "fr", 1), ("4", "b", "de", 2), ("6", "b", "de", 3), ("7", "b", "it", 2))
    one, two, three, *others = (begin(table, row) for row in given_)
    one.commit()
    two.commit()
    for other in others:
        other.commit()
    with pytest.raises(lakelatch.ConflictError, match=r"unique \(land, number\)"):
        three.commit()
    with pytest.raises(lakelatch.ConstraintError, match="land='fr', number=1"):
        begin(table, ("5", "c", "fr", 1)).commit()


def test_what_an_overwrite_replaces_does_not_count(make_people):
    table = make_people(("1", "a@x", "de", 1))
    with table.transaction("insert_overwrite_table") as txn:
        txn.overwrites(None)
        txn.drop_file_groups(txn.snapshot.file_slices())
        txn.new_file().write(people(("2", "a@x", "de", 1)))
    assert table.read().to_arrow()["id"].to_pylist() == ["2"]


def test_only_files_that_may_hold_the_values_are_read(make_people, monkeypatch):
    table = make_people(unique_constraints=[("number",)])
    for n in range(4):
        begin(table, *((f"{n}-{m}", None, "de", 100 * n + m) for m in range(20))).commit()
    read, same = [], constraints._same
    monkeypatch.setattr(constraints, "_same", lambda rows, *others: read.append(rows.num_rows) or same(rows, *others))
    begin(table, ("x", None, "de", 250)).commit()
    assert read == []
    with pytest.raises(lakelatch.ConstraintError):
        begin(table, ("y", None, "de", 219)).commit()
    assert read == [20]


# --- constraints, and what a rebase computes once more --------------------------------------------------------------

AT_BEGIN = (("1", "a@x", "new@x", 1), ("2", "b@x", "c@x", 2), ("3", "c@x", "de", 7))
# What ours does, and what another writer lands meanwhile, so that the rebase makes a value stand twice.
MADE_ANEW = {
    "one value for two rows": (
        lambda t: t.update_where("number = 1", {"email": "same"}),
        lambda t: t.upsert(people(("2", "b@x", "c@x", 1))),
    ),
    "one value for a row that was inserted": (
        lambda t: t.update_where("number = 1", {"email": "same"}),
        lambda t: t.insert(people(("9", "z@x", "de", 1))),
    ),
    "the value of a row that nobody changed": (
        lambda t: t.update_where("number < 2", {"email": sql("land")}),
        lambda t: t.upsert(people(("2", "b@x", "c@x", 1))),
    ),
    "the value of a row that was inserted meanwhile": (
        lambda t: t.update_where("number < 2", {"email": sql("land")}),
        lambda t: t.upsert(people(("2", "b@x", "z@x", 1), ("9", "z@x", "de", 8))),
    ),
    "a clause over a row that was changed": (
        lambda t: (
            t.merge(people(("1", "q@x", "de", 1), ("2", "q@x", "de", 1)))
            .when_matched("t.number = 5", update={"email": "c@x"})
            .when_matched("s.id = '1'", update={"land": "fr"})
            .run()
        ),
        lambda t: t.upsert(people(("2", "b@x", "de", 5))),
    ),
    "the second of two writes": (
        lambda t: (t.update_where("number = 1", {"land": "fr"}), t.update_where("land = 'fr'", {"email": "same"})),
        lambda t: t.upsert(people(("2", "b@x", "fr", 2))),
    ),
}


@pytest.mark.parametrize("bucket_count", [None, 1], ids=["simple", "bucket"])
@pytest.mark.parametrize(("ours", "theirs"), MADE_ANEW.values(), ids=MADE_ANEW)
def test_values_that_a_rebase_makes_are_compared_with_all_rows(make_people, ours, theirs, bucket_count):
    table = make_people(*AT_BEGIN, bucket_count=bucket_count)
    txn = table.transaction("upsert")
    ours(txn)
    theirs(table)
    left = table.read().to_arrow().sort_by("id").to_pylist()
    with pytest.raises(lakelatch.ConstraintError, match="Nothing landed") as told:
        txn.commit()
    assert told.value.constraint == ("email",)
    assert table.read().to_arrow().sort_by("id").to_pylist() == left
    with pytest.raises(lakelatch.ConstraintError):  # and run again it says the same
        table.run(ours)  # type: ignore[arg-type]


@pytest.mark.parametrize("bucket_count", [None, 1], ids=["simple", "bucket"])
def test_values_that_an_added_up_column_gets_in_a_rebase_are_compared(folder, bucket_count):
    how = {"unique_constraints": ["n"], "merge": {"n": "sum"}, "bucket_count": bucket_count}
    with lakelatch.create(str(folder / "counts"), record_key="id", **how) as table:
        table.insert([{"id": "1", "n": 1}, {"id": "2", "n": 6}])
        txn = table.transaction("upsert")
        txn.upsert([{"id": "1", "n": 3}])
        table.upsert([{"id": "1", "n": 2}])
        with pytest.raises(lakelatch.ConstraintError, match="n=6 in rows '1' and '2'"):
            txn.commit()


def test_what_a_later_round_computes_is_compared_with_what_the_round_found(make_people):
    """The winner of the first round makes room for a value, that of the second one takes it."""
    table = make_people(*AT_BEGIN)
    txn = table.transaction("upsert")
    txn.update_where("number = 1", {"email": "same"})
    table.upsert(people(("2", "b@x", "fr", 2)))
    rounds, real = [], txn.workspace.rebase.run

    def run(task):
        rounds.append(task.lost.round)
        real(task)
        if len(rounds) == 1:
            table.upsert(people(("3", "c@x", "de", 1)))

    txn.workspace.rebase.run = run
    with pytest.raises(lakelatch.ConstraintError, match="email='same' in rows '1' and '3'"):
        txn.commit()
    assert rounds == [1, 2]


def test_a_round_is_made_again_when_what_it_was_compared_with_is_cleaned_below_it(make_people):
    """Also a slice that ours does not change: its successor has landed since, so the round is not the last one."""
    table = make_people(*AT_BEGIN)
    table.insert(people(("5", "e@x", "de", 5), ("6", "f@x", "de", 6)))
    txn = table.transaction("upsert")
    txn.update_where("number = 1", {"email": "same"})
    table.upsert(people(("3", "d@x", "de", 7)))
    rounds, real = [], txn.workspace.rebase.run
    table.upsert(people(("5", "g@x", "de", 5)))

    def run(task):
        rounds.append(task.lost.round)
        real(task)
        if len(rounds) == 1:
            table.upsert(people(("5", "h@x", "de", 5)))
            assert table.clean(retain_commits=0).files == 1

    txn.workspace.rebase.run = run
    assert txn.commit() is not None
    assert rounds == [1, 2]
    found = table.read().to_arrow().sort_by("id")
    assert found["email"].to_pylist() == ["same", "b@x", "d@x", "h@x", "f@x"]


def test_a_rebase_that_breaks_nothing_lands(make_people):
    """A winner's row keeps its value in ours, takes that of a row which is gone, or swaps."""
    table = make_people(*AT_BEGIN)
    txn = table.transaction("upsert")
    txn.update_where("number = 1", {"email": sql("land")})
    table.upsert(people(("2", "b@x", "c@x", 1), ("3", "d@x", "de", 7)))
    txn.commit()
    assert table.read().to_arrow().sort_by("id")["email"].to_pylist() == ["new@x", "c@x", "d@x"]


def test_constraints_that_cannot_work_are_refused(make_people, folder):
    for unique_constraints in ([[]], [("email", "email")], ["email", "email"]):
        with pytest.raises(lakelatch.ConfigError, match="unique_constraints is"):
            make_people(unique_constraints=unique_constraints)
    with pytest.raises(lakelatch.InputError, match="no such column"):
        make_people(unique_constraints=["phone"])
    schema = pa.schema([("id", pa.string()), ("f", pa.float64())])
    with pytest.raises(lakelatch.InputError, match="cannot be under a unique constraint"):
        lakelatch.create(str(folder / "floats"), record_key="id", schema=schema, unique_constraints="f")
    assert not (folder / "floats").exists() or not any((folder / "floats").iterdir())


def test_a_transaction_that_began_before_a_constraint_does_not_land(make_people):
    table = make_people(unique_constraints=())
    txn = begin(table, ("1", "a@x", "de", 1))
    table.change_settings(unique_constraints=["email"])
    with pytest.raises(lakelatch.ConflictError, match="more is unique"):
        txn.commit()
    begin(table, ("1", "a@x", "de", 1)).commit()


def test_a_constraint_that_rows_break_already_is_refused(make_people):
    table = make_people(("1", "a@x", "de", 1), ("2", "a@x", "de", 2), unique_constraints=())
    with pytest.raises(lakelatch.ConstraintError, match="email='a@x'"):
        table.change_settings(unique_constraints=["email"])
    assert table.settings.unique_constraints == ()
    table.change_settings(unique_constraints=["number"])


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.date32()], ids=str)
@pytest.mark.parametrize("count", [1, constraints._LISTED + 1])
def test_values_that_python_has_no_time_for_are_unique_too(folder, kind, count):
    number, size = (10**17 * 3, pa.int64()) if pa.types.is_timestamp(kind) else (5 * 10**6, pa.int32())

    def some(first: int, names: str) -> pa.Table:
        ids = [f"{names}{n}" for n in range(count)]
        return pa.table({"id": ids, "at": pa.array(range(first, first + count), size).cast(kind)})

    with lakelatch.create(str(folder / "far"), record_key="id", unique_constraints=("at",)) as table:
        table.insert(some(number, "a"))
        table.upsert(some(number + count, "b"))
        with pytest.raises(lakelatch.ConstraintError, match=f"at={number + count}") as told:
            table.insert(some(number + count, "c"))
        assert (number + count,) in told.value.values
        assert table.read().count() == 2 * count


def test_files_that_tell_nothing_are_refused_where_values_are_unique(make_people):
    table = make_people(("1", "a@x", "de", 1))
    txn = table.transaction("upsert")
    with txn.new_file() as file:
        file.write(people(("2", "a@x", "de", 1)))
    (stat,) = txn.workspace.changes.files.values()
    txn.workspace.changes._stats.clear()
    txn.add([replace(stat, facts=None)])
    with pytest.raises(lakelatch.InputError, match="do not say which values"):
        txn.commit()


def test_many_writers_leave_every_value_once(make_people):
    table, dice = make_people(), random.Random(5)
    open_ = []
    for n in range(60):
        open_.append(begin(table, (str(n), f"{dice.randrange(25)}@x", "de", n)))
        if len(open_) == 4:
            for txn in dice.sample(open_, 4):
                with suppress(lakelatch.ConflictError, lakelatch.ConstraintError):
                    txn.commit()
            open_ = []
    emails = table.read().to_arrow()["email"].to_pylist()
    assert len(emails) == len(set(emails)) > 15
