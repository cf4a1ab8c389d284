"""Writers of one table that meet: who lands, who is told what."""

from __future__ import annotations

import os

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.hudi.timeline.snapshot import Snapshot
from lakelatch.occ.entries.entries import Setting
from lakelatch.occ.landing import validator as judge
from lakelatch.occ.log import publisher as publish
from lakelatch.occ.session.snapshot_cache import _COMMITS_KEPT
from lakelatch.occ.session.table_lock import TableLease, TableLock
from lakelatch.testing.faults import On, Pause, Refuse

from ..world import BEGUN, add, check_sound, commits, content, fate, insert, overwrite, rows

HOUR = 3600.0


def test_of_two_that_overlap_one_lands_and_the_other_is_told_who_won(world):
    a, b = world.writer("A"), world.writer("B")
    first, second = a.begin_add("a"), b.begin_add("a", 10)
    landed = second.commit()
    with pytest.raises(lakelatch.ConflictError) as told:
        first.commit()
    assert told.value.winner == landed.instant
    assert told.value.winner_writer == "B"
    assert told.value.instant == first.instant
    assert told.value.overlap[0].startswith("part=a/")
    assert "run the write again" in str(told.value)
    assert told.value.landed is False
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 10, "a1": 10}
        check_sound(table)


def test_disjoint_writers_both_land(world):
    a, b = world.writer("A"), world.writer("B")
    first, second = a.begin_add("a"), b.begin_add("b")
    assert second.commit().slot < first.commit().slot
    with world.fresh() as table:
        assert content(table) == dict.fromkeys(BEGUN, 1)
        check_sound(table)


def test_a_handle_that_only_adds_keeps_no_file_slices_and_sees_all_once_it_asks(world, monkeypatch):
    a, b = world.writer("A"), world.writer("B")
    advanced = []
    real = Snapshot.after_all
    monkeypatch.setattr(Snapshot, "after_all", lambda self, commits: advanced.append(1) or real(self, commits))
    for i in range(_COMMITS_KEPT + 2):
        a.insert("a", f"x{i}")
        b.insert("b", f"y{i}", f"z{i}")
    assert not advanced
    for handle in (a, b):
        for _ in range(2):  # the second time from what the first has kept
            with handle.table.transaction("upsert") as txn, world.fresh() as table:
                assert txn.snapshot == table.snapshot()
                assert txn.schema == handle.table.schema()
            handle.add("a")


def test_a_commit_that_could_not_be_read_is_in_the_next_snapshot(world):
    """Else the handle would work on without it, and as older than its next begin nothing would be held against it."""
    a, b = world.writer("A"), world.writer("B")
    a.table.session.inline_bytes = b.table.session.inline_bytes = 0
    a.add("a")
    b.add("a", 10)
    a.store.add(Refuse(On("get", "/sides/")))
    with pytest.raises(lakelatch.StorageError):
        a.add("a")
    a.add("a", 100)
    assert world.content() == BEGUN | {"a0": 111, "a1": 111}


def test_nobody_waits_for_the_lock_while_an_instant_is_encoded_or_flushed(world, monkeypatch):
    told = []
    a = world.writer("A", flush=lambda fd: told.append("flushed") or os.fsync(fd))
    a.add("a")

    def tell(place, name: str, what: str) -> None:
        real = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *given, **named: told.append(what) or real(*given, **named))

    tell(publish, "encode_commit", "encoded")
    tell(TableLock, "lease", "locked")
    tell(TableLease, "release", "released")
    told.clear()
    a.add("a")
    locked, released = told.index("locked"), told.index("released")
    assert told[locked + 1 : released] == ["flushed", "flushed"]  # the log entry and its name
    assert told[:locked].count("encoded") == 1


def test_an_instant_made_before_the_lock_is_made_anew_when_the_schema_has_grown(world):
    a, b = world.writer("A"), world.writer("B")
    txn = a.begin_add("a")
    with b.table.transaction("insert") as wider:
        wider.new_file("part=b").write(rows("b", {"b9": 9}).append_column("more", pa.array([1])))
    assert txn.commit().published
    with world.fresh() as table:
        timeline = table.timeline()
        told = [timeline.metadata(each).schema for each in timeline.commits[-2:]]
        assert told[0] == told[1]
        assert "more" in told[0]
        check_sound(table)


def begins(writer) -> None:
    writer.table.transaction("upsert")


def lands(writer) -> None:
    writer.add("b")


def changes_a_setting(writer) -> None:
    settings = writer.table.settings.changed(lock_wait_s=61.0)
    writer.table.session.log.append(lambda _: Setting(settings, writer.name))


@pytest.mark.parametrize(("takes_the_slot", "compared_anew"), [(begins, 0), (lands, 1), (changes_a_setting, 2)])
def test_after_a_lost_slot_only_what_is_new_is_compared(make_world, monkeypatch, takes_the_slot, compared_anew):
    world = make_world(lock="none://")
    a, b = world.writer("A"), world.writer("B")
    compared = []
    real = judge.resolve

    def resolve(ours, reads, those, **more):
        compared.append((ours.writer, len(those)))
        return real(ours, reads, those, **more)

    monkeypatch.setattr(judge, "resolve", resolve)
    txn = a.begin_add("a")
    for _ in range(2):
        b.add("b")
    a.store.add(Pause(On("put_if_absent", "/log/"), call=lambda: takes_the_slot(b)))
    assert txn.commit()
    assert [count for writer, count in compared if writer == "A"] == [2, compared_anew]


def test_what_was_no_obstacle_is_judged_again_under_settings_that_took_the_slot(make_world):
    """B's commit is none under snapshot, and is cleared; C raises the level in the slot that A wants."""
    world = make_world(lock="none://")
    a, b, c = (world.writer(name) for name in "ABC")
    txn = a.begin_add("a")
    txn.mark_scanned("part=b")
    b.add("b")
    a.store.add(Pause(On("put_if_absent", "/log/"), call=lambda: c.table.change_settings(isolation="serializable")))
    with pytest.raises(lakelatch.ConflictError, match="isolation serializable"):
        txn.commit()
    assert world.content() == BEGUN | {"b0": 1, "b1": 1}


def test_what_was_no_obstacle_to_landing_may_be_one_to_merging_again(make_world):
    """B's blind insert is none: A has a place before it. C takes the slot, and to merge with C is to come after B."""
    world = make_world(lock="none://", isolation="write-serializable")
    a, b, c = (world.writer(name) for name in "ABC")
    txn = a.table.transaction("upsert")
    txn.upsert(rows("a", {"a0": 5}))
    txn.mark_scanned("part=b")
    b.insert("b", "b9")

    def takes_the_slot() -> None:
        with c.table.transaction("upsert") as other:
            other.upsert(rows("a", {"a1": 7}))

    a.store.add(Pause(On("put_if_absent", "/log/"), call=takes_the_slot))
    with pytest.raises(lakelatch.ConflictError, match="to be merged again ours would have to come after it"):
        txn.commit()
    assert world.content() == BEGUN | {"b9": 1, "a1": 7}


@pytest.mark.parametrize("lock", ["table", "none://"])
def test_the_log_decides_also_without_a_lock(make_world, lock):
    world = make_world(lock=lock)
    a, b = world.writer("A"), world.writer("B")
    first = a.begin_add("a")
    # B lands between A's validation and A's entry: the worst moment.
    a.store.add(Pause(On("put_if_absent", "/log/"), call=lambda: b.add("a", 10)))
    with pytest.raises(lakelatch.ConflictError):
        first.commit()
    assert world.content() == BEGUN | {"a0": 10, "a1": 10}
    with world.fresh() as table:
        check_sound(table)


@pytest.mark.parametrize("lock", ["table", "none://"])
def test_a_disjoint_commit_in_the_worst_moment_costs_only_another_slot(make_world, lock):
    world = make_world(lock=lock)
    a, b = world.writer("A"), world.writer("B")
    first = a.begin_add("a")
    a.store.add(Pause(On("put_if_absent", "/log/"), call=lambda: b.add("b", 10)))
    first.commit()
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 1, "a1": 1, "b0": 10, "b1": 10}
        check_sound(table)


def test_a_stale_handle_sees_what_landed_since_and_loses_nothing(world):
    stale, other = world.writer("stale"), world.writer("other")
    for _ in range(30):
        other.add("a")
    stale.add("a")
    assert world.content() == BEGUN | {"a0": 31, "a1": 31}


def test_a_stale_transaction_does_not_rebase(world):
    stale, other = world.writer("stale"), world.writer("other")
    old = stale.begin_add("a")
    for _ in range(5):
        other.add("b")
    other.add("a", 100)
    with pytest.raises(lakelatch.ConflictError) as told:
        old.commit()
    assert told.value.winner_writer == "other"
    assert world.content() == BEGUN | {"a0": 100, "a1": 100, "b0": 5, "b1": 5}


@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_a_handle_and_its_transaction_survive_a_change_of_epoch(world, epochs):
    stale, idle, other = world.writer("stale"), world.writer("idle"), world.writer("other")
    kept, lost = stale.begin_add("b"), stale.begin_add("a")
    for _ in range(epochs):
        other.add("a")
        other.table.session.log.close_epoch()
        other.add("a")
    kept.commit()
    with pytest.raises(lakelatch.ConflictError):
        lost.commit()
    idle.add("a")
    with world.fresh() as table:
        assert content(table) == {"a0": 2 * epochs + 1, "a1": 2 * epochs + 1, "b0": 1, "b1": 1}
        check_sound(table)
        assert len(table.store.folders(".hoodie/.lakelatch/log")) == epochs + 1


def test_a_full_epoch_is_closed_by_itself(world):
    a, b = world.writer("A", epoch_slots=6), world.writer("B", epoch_slots=6)
    for _ in range(6):
        a.add("a")
        b.add("b")
    with world.fresh() as table:
        assert content(table) == dict.fromkeys(BEGUN, 6)
        check_sound(table)
        assert len(table.store.folders(".hoodie/.lakelatch/log")) > 3


def test_a_holder_who_slept_past_its_lease_validates_again_under_a_new_lock(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    first = a.begin_add("a")

    def meanwhile() -> None:
        b.add("b", 10)  # waits for A's lease to end, on its own clock

    a.store.add(Pause(On("put_if_absent", "/log/"), call=meanwhile))
    first.commit()
    tokens = [c.token for c in commits(a.table)]
    assert tokens == sorted(set(tokens)), "A landed with the token of the lease that it had lost"
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 1, "a1": 1, "b0": 10, "b1": 10}
        check_sound(table)


def test_a_holder_who_slept_past_its_lease_and_overlaps_does_not_land(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    first = a.begin_add("a")
    a.store.add(Pause(On("put_if_absent", "/log/"), call=lambda: b.add("a", 10)))
    with pytest.raises(lakelatch.ConflictError):
        first.commit()
    assert world.content() == BEGUN | {"a0": 10, "a1": 10}


def test_a_holder_who_slept_past_its_lease_alone_takes_the_lock_again(world):
    a = world.writer("A")
    first = a.begin_add("a")
    # Suspended after it took the lock and before its last look at the lease.
    a.store.add(Pause(On("get", "/log/"), call=lambda: a.env.suspend(100.0)))
    first.commit()
    assert world.content() == BEGUN | {"a0": 1, "a1": 1}
    assert commits(a.table)[-1].token > commits(a.table)[-2].token + 1


def test_a_zombie_finds_itself_rolled_back(world):
    zombie, other = world.writer("zombie"), world.writer("other", host="host-b")
    txn = zombie.begin_add("a")
    assert other.table.rollback_failed_writes(wait=True) == [txn.instant]
    for look in (txn.check, txn.commit):
        with pytest.raises(lakelatch.RolledBackError, match="ended by"):
            look()
    with world.fresh() as table:
        assert content(table) == BEGUN
        check_sound(table)


def test_a_zombie_that_goes_on_writing_is_stopped_and_leaves_nothing(world):
    zombie, other = world.writer("zombie"), world.writer("other", host="host-b")
    txn = zombie.begin_add("a")
    other.table.rollback_failed_writes(wait=True)
    with pytest.raises(lakelatch.RolledBackError):
        txn.new_file("part=b").write(rows("b", {"b9": 1}))
    with pytest.raises(lakelatch.RolledBackError):
        txn.commit()
    with world.fresh() as table:
        check_sound(table)


# --- signs of life --------------------------------------------------------------------------------------------


def test_a_dead_process_of_the_same_host_is_rolled_back_at_once(world):
    a, b = world.writer("A"), world.writer("B")
    txn = a.begin_add("a")
    a.die()
    before = b.env.monotonic()
    assert b.table.rollback_failed_writes() == [txn.instant]
    assert b.env.monotonic() - before < 1.0


def test_a_dead_process_is_found_by_the_next_begin(world):
    a, b = world.writer("A"), world.writer("B")
    txn = a.begin_add("a")
    a.die()
    b.add("a")
    assert fate(b.table, txn.instant) == ["begin", "rollback"]


def test_a_silent_process_of_another_host_is_rolled_back_after_its_time_out(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    txn = a.begin_add("a")
    a.die()  # B cannot see that
    before = b.env.monotonic()
    assert b.table.rollback_failed_writes() == []
    assert b.table.rollback_failed_writes(wait=True) == [txn.instant]
    timeout = b.table.settings.heartbeat_timeout_s
    assert timeout <= b.env.monotonic() - before <= timeout + b.table.settings.heartbeat_interval_s


def test_a_slow_living_writer_is_left_alone(world):
    slow, other = world.writer("slow"), world.writer("other", host="host-b")
    txn = slow.begin_add("a")
    for _ in range(60):  # ten minutes, an order of magnitude more than the time-out
        slow.env.advance(slow.table.settings.heartbeat_interval_s)
        assert other.table.rollback_failed_writes() == []
    txn.commit()
    assert world.content() == BEGUN | {"a0": 1, "a1": 1}


def test_of_many_cleaners_one_ends_the_dead_writer(world):
    dead = world.writer("dead")
    txn = dead.begin_add("a")
    dead.die()
    cleaners = [world.writer(f"cleaner {i}") for i in range(5)]
    ended: list[list[str]] = []

    # Each finds the writer dead and is overtaken by the next right before its own entry.
    def step(i: int) -> None:
        if i == len(cleaners):
            return
        cleaners[i].store.add(Pause(On("put_if_absent", "/log/"), call=lambda: step(i + 1)))
        ended.append(cleaners[i].table.rollback_failed_writes())

    step(0)
    assert sorted(ended) == [[]] * 4 + [[txn.instant]]
    with world.fresh() as table:
        assert fate(table, txn.instant) == ["begin", "rollback"]
        check_sound(table)


@pytest.mark.parametrize("skew", [-5 * HOUR, 5 * HOUR])
def test_clocks_that_are_hours_apart_harm_nobody(world, skew):
    a = world.writer("A", host="host-b", wall=world.env.now() + skew)
    b = world.writer("B")
    txn = a.begin_add("a")
    for _ in range(3):
        b.add("b")
        assert b.table.rollback_failed_writes() == []
    txn.commit()
    b.add("a", 10)
    a.add("b", 10)
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 11, "a1": 11, "b0": 13, "b1": 13}
        check_sound(table)


def test_a_clock_that_goes_backwards_repeats_no_time(world):
    a = world.writer("A")
    seen: list[str] = []
    for _ in range(5):
        result = a.add("a")
        seen += [result.instant, result.completion]
        a.env.set_wall(a.env.now() - HOUR)
    assert seen == sorted(set(seen))
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 5, "a1": 5}
        check_sound(table)


# --- running again --------------------------------------------------------------------------------------------


def test_run_works_again_on_a_fresh_snapshot(world):
    a, b = world.writer("A"), world.writer("B")
    b_turns = iter([1, 2])

    def work(txn) -> str:
        add(txn, "a")
        if next(b_turns, None):
            b.add("a", 10)
        return txn.instant

    # The third attempt begins under the lock, so B must not want it any more.
    done = a.table.run(work)
    assert done.attempts == 2 or done.attempts == 3
    assert done.commit.instant == done.value
    assert len(done.losses) == done.attempts - 1
    with world.fresh() as table:
        assert content(table)["a0"] == 1 + 10 * len(done.losses)
        check_sound(table)


@pytest.mark.parametrize(("took_s", "under_the_lock"), [(1.0, True), (60.0, False)])
def test_after_a_loss_short_work_takes_the_lock_first_and_long_work_does_not(world, took_s, under_the_lock):
    a, b = world.writer("A"), world.writer("B")
    held: list[bool] = []

    def work(txn) -> None:
        held.append(txn.has_lock)
        add(txn, "a")
        world.env.advance(took_s)
        if len(held) == 1:
            b.add("a", 10)

    a.table.run(work)
    assert held == [False, under_the_lock]


def test_a_lock_held_from_the_beginning_is_given_up_before_others_stop_waiting(world):
    a, b = world.writer("A"), world.writer("B")
    txn = a.table.transaction("upsert", lock_first=True)
    add(txn, "a")
    world.env.advance(a.table.settings.lock_wait_s / 2 + 1)
    b.add("b", 10)
    txn.commit()  # under a new lease, validated again
    assert world.content() == BEGUN | {"a0": 1, "a1": 1, "b0": 10, "b1": 10}


def test_a_transaction_that_was_begun_under_the_lock_cannot_lose(world):
    a, b = world.writer("A"), world.writer("B")
    world.env.peer()
    txn = a.table.transaction("upsert", lock_first=True)
    add(txn, "a")
    late = b.begin_add("a", 10)
    txn.commit()
    with pytest.raises(lakelatch.ConflictError):
        late.commit()
    assert world.content() == BEGUN | {"a0": 1, "a1": 1}


def test_bounds_of_run_are_told(world):
    a, b = world.writer("A"), world.writer("B")

    def work(txn) -> None:
        add(txn, "a")
        with b.table.transaction() as other:
            add(other, "a", 10)

    with pytest.raises(lakelatch.ConflictError) as told:
        a.table.run(work, attempts=1)
    assert "gave up after 1 attempts" in told.value.__notes__[-1]


# --- odd ends -------------------------------------------------------------------------------------------------


def test_a_transaction_without_changes_leaves_no_instant(world):
    a = world.writer("A")
    before = commits(a.table)
    with a.table.transaction() as txn:
        pass
    assert txn.result is None
    with world.fresh() as table:
        assert commits(table) == before
        check_sound(table)


def test_an_exception_in_the_block_leaves_nothing(world):
    a = world.writer("A")

    def fail() -> None:
        with a.table.transaction() as txn:
            add(txn, "a")
            insert(txn, "c", "c0")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with world.fresh() as table:
        assert content(table) == BEGUN
        check_sound(table)


def test_a_transaction_that_is_over_says_so(world):
    a = world.writer("A")
    txn = a.begin_add("a")
    txn.commit()
    for again in (txn.commit, txn.check, lambda: txn.new_file("part=a")):
        with pytest.raises(lakelatch.CommitError, match="is over"):
            again()
    txn.abort()  # says nothing, changes nothing
    assert world.content() == BEGUN | {"a0": 1, "a1": 1}


def test_settings_change_for_all_writers(world):
    a, b = world.writer("A"), world.writer("B")
    a.table.change_settings(lease_s=7.0)
    b.add("a")
    assert b.table.settings.lease_s == 7.0
    with world.fresh() as table:
        assert table.settings.lease_s == 7.0


def test_overwrite_replaces_and_is_published_as_replacecommit(world):
    a = world.writer("A")
    with a.table.transaction("insert_overwrite") as txn:
        overwrite(txn, "a", "a9")
    with world.fresh() as table:
        assert content(table) == {"a9": 1, "b0": 0, "b1": 0}
        check_sound(table)
