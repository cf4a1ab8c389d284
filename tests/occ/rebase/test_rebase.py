"""Row-level concurrency: what lost only on file groups is merged again, and lands. No server, a fake clock."""

from __future__ import annotations

import pickle
import random
from dataclasses import replace

import pyarrow as pa
import pytest

from lakelatch.conflict import ISOLATION_LEVELS
from lakelatch.errors import ConflictError, InputError, StorageError
from lakelatch.occ.check.check import check
from lakelatch.occ.staging import read_slice
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.testing.faults import On, Refuse

from ...thorough import THOROUGH
from ..world import BEGUN, check_sound, content, independent_content, overwrite, rows, writes


def begin(writer, part: str = "a", *, operation: str = "upsert", isolation: str | None = None, **values: int):
    """A transaction that has staged an upsert of these rows."""
    txn = writer.table.transaction(operation, isolation=isolation)
    txn.upsert(rows(part, values))
    return txn


def group_ids(table, part: str = "a") -> list[str]:
    return [each.file_id for each in table.snapshot().file_slices(f"part={part}")]


def end_sound(world, expected: dict[str, int]) -> None:
    with world.fresh() as table:
        check_sound(table)
        assert content(table) == expected
        assert not check(table.store, deep=True).findings
        assert independent_content(world.folder) == expected


@pytest.mark.parametrize("winner_began", ["before", "after"])
def test_different_rows_of_one_file_group_both_land(world, winner_began):
    """Whatever T the winner has: the rows move to a new file group under ours."""
    a, b = world.writer("a"), world.writer("b")
    first, second = (begin(b, a1=7), begin(a, a0=5)) if winner_began == "before" else (None, begin(a, a0=5))
    first = first or begin(b, a1=7)
    before = group_ids(a.table)
    first.commit()
    result = second.commit()
    assert result is not None
    with world.fresh() as table:
        (last,) = [c for c in writes(table) if c.instant == second.instant]
        assert (last.action, last.operation) == ("replacecommit", "UPSERT")
        assert not set(group_ids(table)) & set(before)
        names = {entry.name for entry in table.store.list(table.config.timeline_folder)}
        kinds = {name.partition(".")[2] for name in names if name.startswith(second.instant)}
        # A JVM writer would take an inflight commit beside the replacecommit for a failed one and roll its files back.
        assert kinds == {"replacecommit", "replacecommit.requested", "replacecommit.inflight"}
    end_sound(world, BEGUN | {"a0": 5, "a1": 7})


@pytest.mark.parametrize("winner_began", ["before", "after"])
@pytest.mark.parametrize("ours", ["upsert", "delete"])
@pytest.mark.parametrize("theirs", ["upsert", "delete"])
def test_the_same_row_is_a_conflict(world, ours, theirs, winner_began):
    """Nothing is ordered here, so the first to land wins; two who delete the same row agree."""
    a, b = world.writer("a"), world.writer("b")

    def staged(writer, what: str) -> Transaction:
        txn = writer.table.transaction(what)
        if what == "upsert":
            txn.upsert(rows("a", {"a0": 3}))
        else:
            txn.delete(pa.table({"id": ["a0"]}))
        return txn

    if winner_began == "before":
        winner, loser = staged(b, theirs), staged(a, ours)
    else:
        loser, winner = staged(a, ours), staged(b, theirs)
    winner.commit()
    if ours == theirs == "delete":
        assert loser.commit() is None
        left = {k: v for k, v in BEGUN.items() if k != "a0"}
    else:
        with pytest.raises(ConflictError, match="same row") as lost:
            loser.commit()
        assert (lost.value.winner, lost.value.overlap) == (winner.instant, ("a0",))
        left = BEGUN | {"a0": 3} if theirs == "upsert" else {k: v for k, v in BEGUN.items() if k != "a0"}
    end_sound(world, left)


def _by_upsert(txn: Transaction) -> None:
    txn.upsert(rows("a", {"a0": 5}))


def _by_file(txn: Transaction) -> None:
    (group,) = txn.snapshot.file_slices("part=a")
    old = txn.read_slice(group, meta=True)
    kept = old.filter(pa.compute.not_equal(old["id"], "a0"))
    txn.rewrite(group).write(pa.concat_tables([kept, rows("a", {"a0": 5})], promote_options="default"))
    txn.merge_on_conflict()


@pytest.mark.parametrize("stage", [_by_upsert, _by_file])
def test_a_row_that_moved_to_another_file_group_is_not_written_where_it_was(make_world, stage):
    """The round would insert it again, since the ordering field settles that; and somebody has inserted it elsewhere."""
    world = make_world(ordering_field="v")
    ours, b = world.writer("a").table.transaction("upsert"), world.writer("b").table
    stage(ours)
    b.delete([{"id": "a0", "part": "a"}])
    b.insert(rows("a", {"a0": 3}))
    with pytest.raises(ConflictError):
        ours.commit()
    end_sound(world, BEGUN | {"a0": 3})


def test_a_key_to_delete_that_others_insert_meanwhile_is_deleted_beside_an_upsert(make_world):
    """The upsert has to come after the winner, whose row the delete would then have found."""
    world = make_world(ordering_field="v", isolation="write-serializable")
    a, b = world.writer("a").table, world.writer("b").table
    ours, theirs = a.transaction("upsert"), b.transaction("upsert")
    ours.upsert(rows("a", {"a0": 5}))
    ours.delete([{"id": "new", "part": "b"}])
    theirs.insert(rows("b", {"new": 1}))
    theirs.delete([{"id": "a0", "part": "a"}])
    theirs.commit()
    with pytest.raises(ConflictError, match="ours had read"):
        ours.commit()
    end_sound(world, {key: v for key, v in BEGUN.items() if key != "a0"} | {"new": 1})


def test_rows_that_a_function_changes_again_are_no_new_keys(world):
    """Also those that a winner has inserted into the file group meanwhile."""
    a, b = world.writer("a"), world.writer("b")
    ours = a.begin_add("a", 10)

    def again(lost):
        for unit in lost.units:
            for each in unit.current:
                found = read_slice(lost.spec, each).to_pylist()
                lost.rewrite(each).write(rows("a", {row["id"]: row["v"] + 10 for row in found}))

    ours.merge_on_conflict(again)
    with b.table.transaction() as theirs:
        (group,) = theirs.snapshot.file_slices("part=a")
        theirs.rewrite(group).write(rows("a", {"a0": 1, "a1": 1, "new": 1}))
    ours.commit()
    end_sound(world, BEGUN | {"a0": 11, "a1": 11, "new": 11})


@pytest.mark.parametrize(("mine", "other", "stands"), [(5, 9, 9), (9, 5, 9), (5, 5, 5)])
def test_the_ordering_field_settles_the_same_row(make_world, mine, other, stands):
    world = make_world(ordering_field="v")
    a, b = world.writer("a"), world.writer("b")
    loser, winner = begin(a, a0=mine), begin(b, a0=other)
    winner.commit()
    loser.commit()
    end_sound(world, BEGUN | {"a0": stands})


def test_rows_that_a_code_computed_are_safe_too(world):
    """`merge_on_conflict()` on files that the writer filled itself: a row that both computed is a conflict, others land."""
    a, b = world.writer("a"), world.writer("b")

    def set_row(writer, **values: int) -> Transaction:
        txn = writer.table.transaction()
        (group,) = txn.snapshot.file_slices("part=a")
        old = txn.read_slice(group, meta=True)
        keep = [i not in values for i in old["id"].to_pylist()]
        with txn.rewrite(group) as file:
            file.write(pa.concat_tables([old.filter(pa.array(keep)), rows("a", values)], promote_options="default"))
        txn.merge_on_conflict()
        return txn

    for values, lands in (({"a1": 2}, True), ({"a0": 2}, False)):
        loser, winner = set_row(a, **values), set_row(b, a0=1)
        winner.commit()
        if lands:
            loser.commit()
        else:
            with pytest.raises(ConflictError):
                loser.commit()
    end_sound(world, BEGUN | {"a0": 1, "a1": 2})


def test_a_function_of_ones_own_computes_again(world):
    """On the slices as they are now: two who add to the same rows both count."""
    a, b = world.writer("a"), world.writer("b")
    told = []

    def again(lost):
        told.append(pickle.loads(pickle.dumps(lost)))
        for unit in lost.units:
            for current in unit.current:
                old = a.table.read_slice(current)
                new = pa.array([v + 1 for v in old["v"].to_pylist()])
                lost.rewrite(current).write(old.set_column(2, "v", new))

    ours = a.begin_add("a")
    ours.merge_on_conflict(again)
    b.add("a", 10)
    ours.commit()
    (lost,) = told
    assert (lost.round, lost.spec.instant, list(lost.winners.values())[-1]) == (1, ours.instant, "UPSERT")
    end_sound(world, BEGUN | {"a0": 11, "a1": 11})


def test_a_function_of_ones_own_that_writes_elsewhere_is_refused(world):
    a, b = world.writer("a"), world.writer("b")
    ours = a.begin_add("a")

    def again(_):
        (other,) = ours.snapshot.file_slices("part=b")
        return [replace(ours.files[0], partition="part=b", file_id=other.file_id)]

    ours.merge_on_conflict(again)
    b.add("a", 10)
    with pytest.raises(InputError, match="did not lose"):
        ours.commit()
    end_sound(world, BEGUN | {"a0": 10, "a1": 10})


def test_rounds_shrink(world):
    """The second one is about what has landed since the first, under the lock, so that there is no third."""
    a, b = world.writer("a"), world.writer("b")
    late = begin(b, a1=1)
    ours = begin(a, a0=5)
    ours.upsert(rows("b", {"b0": 6}))
    merge, rounds = ours.workspace.rebase._again, []

    def again(lost):
        rounds.append([(unit.partition, len(unit.ours), len(unit.current)) for unit in lost.units])
        assert (a.table.lock.provider()[0].inspect("table") is not None) is (lost.round == 2)
        if lost.round == 1:
            late.commit()
        return merge(lost)

    ours.merge_on_conflict(again, looks_again=True)
    begin(b, a2=4).commit()
    begin(b, "b", b1=3).commit()
    ours.commit()
    assert rounds == [[("part=a", 1, 1), ("part=b", 1, 1)], [("part=a", 1, 1)]]
    end_sound(world, BEGUN | {"a0": 5, "a1": 1, "a2": 4, "b0": 6, "b1": 3})


@pytest.mark.parametrize(("took_s", "shrinks"), [(6.0, False), (6.0, True), (4.0, False)])
def test_who_merges_for_long_and_is_not_getting_nearer_reserves_and_runs_again(world, took_s: float, shrinks: bool):
    """Others keep changing what was merged: the third round and all after it would be as long as the second."""
    a, b = world.writer("a"), world.writer("b")
    rounds, attempts = [], []
    begin(b, "c", c0=0, c1=0).commit()

    def work(txn):
        attempts.append(txn)
        for part in "abc":
            txn.upsert(rows(part, {f"{part}0": 5}))
        merge = txn.workspace.rebase._again

        def again(lost):
            rounds.append(lost.round)
            a.env.advance(took_s)
            if len(rounds) == 1:
                for part in "a" if shrinks else "abc":
                    begin(b, part, **{f"{part}1": 7}).commit()
            return merge(lost)

        txn.merge_on_conflict(again, looks_again=True)
        if len(attempts) == 1:
            for part in "abc":
                begin(b, part, **{f"{part}2": 9}).commit()

    a.table.run(work)
    stalled = took_s > 5 and not shrinks
    assert (len(attempts), rounds) == ((2, [1]) if stalled else (1, [1, 2]))
    assert bool(attempts[-1].claim.reserved) is stalled
    changed = {f"{part}{n}": v for part in "abc" for n, v in ((0, 5), (2, 9))}
    end_sound(world, BEGUN | {"c1": 0} | changed | {f"{part}1": 7 for part in ("a" if shrinks else "abc")})


def test_a_round_whose_slices_are_cleaned_below_it_is_made_again(world):
    """A clean keeps the state that ours began with, not that of a round: whatever it takes is superseded, and ours would have to
    merge again in any case. Without others' commits since, what is missing is missing (found among keepers only, 300025397).
    """
    a, b = world.writer("a"), world.writer("b")
    ours = begin(a, a0=5)
    merge, rounds = ours.workspace.rebase._again, []

    def again(lost):
        rounds.append(lost.round)
        if lost.round == 1:
            begin(b, a1=2).commit()
            begin(b, a1=3).commit()
            assert b.table.clean(retain_commits=1).files == 1
        return merge(lost)

    ours.merge_on_conflict(again, looks_again=True)
    begin(b, a1=1).commit()
    ours.commit()
    assert rounds == [1, 2]
    end_sound(world, BEGUN | {"a0": 5, "a1": 3})


def test_a_round_that_fails_for_another_reason_fails(world):
    a, b = world.writer("a"), world.writer("b")
    ours = begin(a, a0=5)

    def again(_):
        begin(b, a1=2).commit()
        raise ValueError("a fault of the function")

    ours.merge_on_conflict(again, looks_again=True)
    begin(b, a1=1).commit()
    with pytest.raises(ValueError, match="a fault of the function"):
        ours.commit()
    end_sound(world, BEGUN | {"a1": 2})


@pytest.mark.parametrize("there", [True, False], ids=["bucket-has-a-file", "first-file-of-a-bucket"])
def test_rounds_in_one_bucket(make_world, there):
    """All that ours has left there is the same place as what others make; without a lock to come between."""
    world = make_world(bucket_count=1, empty=True, lock="none://")
    a, b = world.writer("a"), world.writer("b")
    if there:
        begin(a, x=0).commit()
    late = [begin(b, k1=1)]
    ours = begin(a, k9=9)
    merge = ours.workspace.rebase._again

    def again(lost):
        if lost.round < 4:
            late.pop().commit()
            late.append(begin(b, **{f"k{lost.round + 2}": 1}))
        return merge(lost)

    ours.merge_on_conflict(again, looks_again=True)
    begin(b, k2=1).commit()
    late = [begin(b, k1=1)]
    ours.commit()
    late.pop().abort()
    assert ours.workspace.rebase.round == 4
    end_sound(world, dict.fromkeys(["k1", "k2", "k3", "k4"], 1) | {"k9": 9} | ({"x": 0} if there else {}))


def test_a_group_that_moved_and_moved_again(world):
    """Two who began before the winner: each finds its rows in the file group that the last one made."""
    a, b, c = (world.writer(name) for name in "abc")
    one, two = begin(a, a0=1), begin(b, a1=2)
    begin(c, a5=5).commit()
    two.commit()
    one.commit()
    assert [w.action for w in writes(a.table)][-2:] == ["replacecommit", "replacecommit"]
    end_sound(world, BEGUN | {"a0": 1, "a1": 2, "a5": 5})


def test_keys_and_conditions_in_one_transaction_are_run_again(world):
    """One hook could not do both."""
    a, b = world.writer("a"), world.writer("b")
    txn = a.table.transaction()
    txn.delete_where([("v", "=", 0)], partition="part=b")
    txn.upsert(rows("a", {"a0": 1}))
    begin(b, a1=2).commit()
    with pytest.raises(ConflictError):
        txn.commit()


def test_several_calls_in_one_transaction(world):
    a, b = world.writer("a"), world.writer("b")
    txn = a.table.transaction()
    txn.delete(pa.table({"id": ["b0"], "part": ["b"]}))
    txn.upsert(rows("a", {"a0": 1}))
    begin(b, a1=2).commit()
    begin(b, "b", b1=3).commit()
    txn.commit()
    end_sound(world, {"a0": 1, "a1": 2, "b1": 3})


def test_deletes_by_condition_look_again(world):
    """Also at rows that landed in file groups of their own, or that meet the condition only now."""
    a, b = world.writer("a"), world.writer("b")
    txn = a.table.transaction("delete")
    txn.delete_where([("v", "=", 0)], partition="part=a")
    with b.table.transaction("upsert") as other:
        other.upsert(rows("a", {"a0": 8, "a7": 0}))
    b.insert("a", "a8", "a9", v=0)
    txn.commit()
    end_sound(world, {"a0": 8, "b0": 0, "b1": 0})


@pytest.mark.parametrize("isolation", ISOLATION_LEVELS)
def test_isolation_says_whether_a_rebase_is_enough(make_world, isolation):
    """``serializable`` aborts where the read set changed; the others repeat what the merge itself read."""
    world = make_world(isolation=isolation)
    a, b = world.writer("a"), world.writer("b")
    ours = begin(a, a0=5)
    begin(b, a1=7).commit()
    if isolation == "serializable":
        with pytest.raises(ConflictError, match="isolation serializable"):
            ours.commit()
    else:
        ours.commit()
    what_it_read = begin(a, a0=6)
    what_it_read.mark_scanned("part=a")
    begin(b, a1=8).commit()
    if isolation == "snapshot":
        what_it_read.commit()
    else:
        with pytest.raises(ConflictError):
            what_it_read.commit()
    with world.fresh() as table:
        check_sound(table)


def test_a_key_that_somebody_else_has_inserted_meanwhile(make_world):
    """Elsewhere in the partition: the row must not stand twice where the isolation level promises it."""
    world = make_world(isolation="write-serializable", empty=True)
    a, b = world.writer("a"), world.writer("b")
    ours = begin(a, k=1)
    other = b.table.transaction("upsert")
    other.upsert(rows("a", {"k": 2}))
    other.commit()
    with pytest.raises(ConflictError):
        ours.commit()
    end_sound(world, {"k": 2})


@pytest.mark.parametrize("winner", ["overwrite", "schema"])
def test_what_is_no_matter_of_rows_is_a_loss_as_before(world, winner):
    a, b = world.writer("a"), world.writer("b")
    ours = begin(a, a0=5)
    if winner == "overwrite":
        with b.table.transaction("insert_overwrite") as txn:
            overwrite(txn, "a", "a0", v=9)
    else:
        with b.table.transaction() as txn:
            txn.upsert(rows("a", {"a1": 7}).append_column("more", pa.array([1])), new_columns="add")
    with pytest.raises(ConflictError):
        ours.commit()
    with world.fresh() as table:
        check_sound(table)


@pytest.mark.parametrize("winner_began", ["before", "after"])
@pytest.mark.parametrize("there", [True, False], ids=["bucket-has-a-file", "first-file-of-a-bucket"])
def test_buckets(make_world, winner_began, there):
    """One bucket, one file group: also when both made its first file."""
    world = make_world(bucket_count=1, empty=True)
    a, b = world.writer("a"), world.writer("b")
    if there:
        begin(a, x=0).commit()
    if winner_began == "before":
        winner, loser = begin(b, k2=2), begin(a, k1=1)
    else:
        loser, winner = begin(a, k1=1), begin(b, k2=2)
    winner.commit()
    loser.commit()
    (only,) = group_ids(a.table)
    assert only.startswith("00000000-")
    begin(b, k3=3).commit()
    end_sound(world, {"k1": 1, "k2": 2, "k3": 3} | ({"x": 0} if there else {}))


def test_upserts_of_different_buckets_do_not_meet_under_any_isolation(make_world):
    """What an upsert looks into is the buckets of its keys, and not the partition."""
    world = make_world(bucket_count=64, isolation="serializable", empty=True)
    a, b = world.writer("a"), world.writer("b")
    begin(a, a0=0, a1=0).commit()
    first, second = begin(a, a0=5), begin(b, a1=7)
    first.commit()
    second.commit()
    end_sound(world, {"a0": 5, "a1": 7})


@pytest.mark.parametrize("dies", ["asked", "announced", "merged", "landed"])
def test_a_writer_that_dies_in_a_round_leaves_nothing(world, dies):
    """The pending instant has changed its action by then: anyone who sweeps knows both."""
    a, b = world.writer("a"), world.writer("b")
    ours = begin(a, a0=5)
    begin(b, a1=7).commit()

    class Dies(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        a.die()
        raise Dies

    with pytest.MonkeyPatch.context() as patch:
        for name in ("abort", "over"):
            patch.setattr(ours._attempt, name, lambda *_, **__: None)
        if dies == "asked":
            ours.merge_on_conflict(die)
        elif dies == "announced":
            deleted = a.store.delete
            patch.setattr(a.store, "delete", lambda path: die() if path.endswith("inflight") else deleted(path))
        elif dies == "merged":
            patch.setattr(ours._landing, "drop_unfinished", lambda: die() if ours.workspace.rebase.round else None)
        else:
            patch.setattr(a.table.session.cleaner, "sweep_landed", die)
        with pytest.raises(Dies):
            ours.commit()
    b.env.advance(100)
    b.add("b")
    assert ours.instant not in {instant.requested for instant in b.table.timeline().pending}
    end_sound(world, BEGUN | {"a1": 7, "b0": 1, "b1": 1} | ({"a0": 5} if dies == "landed" else {}))


@pytest.mark.parametrize("refused", ["put_if_absent", "delete"])
def test_a_change_of_the_pending_instant_that_fails_leaves_none(world, refused):
    """The first of the new names stands, or both do, when the store refuses; the abort has to know both actions."""
    a, b = world.writer("a"), world.writer("b")
    ours, winner = begin(a, a0=5), begin(b, a1=7)
    winner.commit()
    a.store.add(Refuse(On(refused, "replacecommit.inflight" if refused == "put_if_absent" else ".inflight")))
    with pytest.raises(StorageError):
        ours.commit()
    assert not a.table.timeline().pending
    end_sound(world, BEGUN | {"a1": 7})


def test_a_late_task_of_an_earlier_round_cannot_bring_its_file_back(world):
    """It announces, writes and publishes when the commit has landed already, or just before: swept all the same."""
    from lakelatch.occ.staging.base_file import BaseFileWriter

    a, b = world.writer("a"), world.writer("b")
    winner, ours = begin(b, a1=7), begin(a, a0=5)
    winner.commit()
    (stat,) = ours.files
    spec = ours.workspace.spec

    def late(*args: object) -> object:
        assert not (world.folder / stat.path).exists(), "superseded files are gone before the commit entry"
        writer = BaseFileWriter(spec, partition=stat.partition, file_id=stat.file_id, token="0-0-0", io="MERGE")
        with writer:
            writer.write(rows("a", {"a0": 5}))
        return publish(*args)

    publish = ours._landing.publish
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ours._landing, "publish", late)
        ours.commit()
    end_sound(world, BEGUN | {"a0": 5, "a1": 7})


@pytest.mark.parametrize("what", ["upsert", "same-delete", "first-of-a-bucket"])
def test_a_file_of_an_earlier_round_that_stands_after_all_is_read_by_nobody(make_world, what):
    """A put that arrives when all is over: the commit has replaced every file group that a round left."""
    world = make_world(bucket_count=1, empty=True) if what == "first-of-a-bucket" else make_world()
    a, b = world.writer("a"), world.writer("b")
    if what == "same-delete":
        winner, ours = b.table.transaction("delete"), a.table.transaction("delete")
        for txn in (winner, ours):
            txn.delete(pa.table({"id": ["a0"], "part": ["a"]}))
        ours.delete(pa.table({"id": ["b0"], "part": ["b"]}))
    else:
        winner, ours = begin(b, a1=7), begin(a, a0=5)
    winner.commit()
    kept = {stat.path: (world.folder / stat.path).read_bytes() for stat in ours.files}
    ours.commit()
    before = world.content()
    for path, body in kept.items():
        if not (world.folder / path).exists():
            (world.folder / path).write_bytes(body)
    assert world.content() == before == independent_content(world.folder)


@pytest.mark.parametrize("seed", range(12 if THOROUGH else 8))
def test_any_interleaving_gives_the_result_of_the_order_of_commits(make_world, seed):
    """Upserts and deletes of random rows by writers that overlap; those that land, one after the other, on a dict."""
    chance = random.Random(seed)
    bucket_count = chance.choice([None, None, 2])
    world = make_world(bucket_count=bucket_count, empty=True)
    writers = [world.writer(name) for name in "abc"]
    keys = [f"k{n}" for n in range(8)]
    begin(writers[0], **dict.fromkeys(keys, 0)).commit()
    expected, open_, lost = dict.fromkeys(keys, 0), [], 0
    for step in range(14):
        if len(open_) < 3 and step < 10:
            chosen = chance.sample(keys, chance.randint(1, 2))
            delete = chance.random() < 0.3
            txn = chance.choice(writers).table.transaction("delete" if delete else "upsert")
            if delete:
                txn.delete(pa.table({"id": chosen, "part": ["a"] * len(chosen)}))
            else:
                txn.upsert(rows("a", dict.fromkeys(chosen, step)))
            open_.append((txn, chosen, None if delete else step))
        else:
            if not open_:
                break
            txn, chosen, value = open_.pop(chance.randrange(len(open_)))
            try:
                txn.commit()
            except ConflictError:
                lost += 1
                continue
            expected = {k: v for k, v in expected.items() if k not in chosen}
            if value is not None:
                expected |= dict.fromkeys(chosen, value)
    for txn, *_ in open_:
        txn.abort()
    end_sound(world, expected)
