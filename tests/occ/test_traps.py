"""Interleavings that break weaker commit protocols, each as a schedule of the real code.

A, B, W and X are writers. Where it is easy, a second test takes the rule out and shows that the schedule then does the
harm, so that the first test is known to guard something.

The table in tests/model/tables.md names the tests of every trap, those in other files included. 3 (a stranger
reads no log) comes with JVM writers beside us, and is in the model; 4 (late publisher) is in test_archive.py.
"""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import StorageError
from lakelatch.hudi.timeline.commit_metadata import WriteStat
from lakelatch.hudi.timeline.instant import file_name
from lakelatch.occ.landing import landing as landing_module
from lakelatch.occ.landing.landing import Landing
from lakelatch.occ.liveness.heartbeat import HeartbeatObserver, HeartbeatSender, heartbeat_path
from lakelatch.occ.liveness.markers import delete_announced, list_markers
from lakelatch.occ.liveness.rollback import FailedWriteCleaner
from lakelatch.occ.log.commit_log import CommitLog
from lakelatch.occ.log.epochs import LOG, epochs, slot_path
from lakelatch.occ.session import session as session_module
from lakelatch.occ.staging import data_file as basefile
from lakelatch.occ.staging.base_file import BaseFileWriter
from lakelatch.occ.staging.staged import Staged
from lakelatch.occ.transaction import transaction
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.occ.workspace.attempt import Attempt
from lakelatch.occ.workspace.workspace import Workspace
from lakelatch.storage import Outcome
from lakelatch.testing.faults import Call, Late, LoseReply, On, Pause, Refuse

from ..mutants import answering
from .world import (
    BEGUN,
    SCHEMA,
    World,
    Writer,
    add,
    check_sound,
    commits,
    content,
    independent_content,
    insert,
    overwrite,
    rows,
    writes,
)

ENTRY = On("put_if_absent", "/log/")


def delete_epochs_before_the_newest(world: World) -> None:
    """As a later version will, or an operator with a broom."""
    for epoch in sorted((world.folder / LOG).iterdir())[:-1]:
        shutil.rmtree(epoch)


# --- 1 --------------------------------------------------------------------------------------------------------


def place_t_late(world: World) -> tuple[str, str]:
    """A stalls between its choice of T and its begin entry; B begins and commits meanwhile. Returns both T."""
    a, b = world.writer("A"), world.writer("B")

    def meanwhile() -> None:
        b.env.advance(1.0)
        b.add("a", 10)

    a.store.add(Pause(ENTRY, call=meanwhile))
    result = a.add("a")
    return result.instant, writes(a.table)[1].instant


def test_trap_1_t_is_picked_anew_at_every_slot(world):
    """Guards: T is greater than every T and C before its begin entry."""
    of_a, of_b = place_t_late(world)
    assert of_a > of_b
    assert world.content() == BEGUN | {"a0": 11, "a1": 11}
    with world.fresh() as table:
        check_sound(table)


def test_trap_1_does_harm_when_t_is_kept(world, breaks):
    real, chosen = session_module.next_label, []

    def next_label(now: float, top: str, **options: bool) -> str:
        chosen.append(real(now, top, **options))
        # A's T, then B's T and C, then A again, who keeps its first choice.
        return chosen[0 if len(chosen) == 4 else -1]

    for module in (session_module, landing_module):
        breaks(module, "next_label", next_label)
    of_a, of_b = place_t_late(world)
    assert of_a < of_b
    assert world.content() == BEGUN | {"a0": 10, "a1": 10}, "A's acknowledged rows are invisible"


# --- 2 --------------------------------------------------------------------------------------------------------


def test_trap_2_every_attempt_has_a_t_of_its_own(world):
    """Guards: a retry takes a new T, so that its files are newer than what it read."""
    w, x = world.writer("W"), world.writer("X")
    tried: list[str] = []

    def work(txn: Transaction) -> None:
        add(txn, "a")
        tried.append(txn.instant)
        if len(tried) == 1:
            x.add("a", 10)

    done = w.table.run(work)
    assert len(set(tried)) == 2
    assert tried[1] > commits(w.table)[-2].completion
    (group,) = w.table.snapshot().file_slices("part=a")
    assert group.instant == done.commit.instant == tried[1]
    times = w.table.read_slice(group, meta=True)["_hoodie_commit_time"].to_pylist()
    assert times == [tried[1]] * 2, "incremental readers skip rows with an old time"
    assert world.content() == BEGUN | {"a0": 11, "a1": 11}


# --- 5, 7 -----------------------------------------------------------------------------------------------------


def test_trap_5_a_forgotten_outcome_is_no_rollback(world):
    """Guards: files go only when the log says that T did not land, never because it says nothing."""
    w, x = world.writer("W"), world.writer("X", host="host-b")
    w.store.add(Refuse(On("delete"), forever=True))  # killed before it deletes its markers
    w.add("a")
    w.die()
    assert x.store.folders(".hoodie/.temp")
    x.add("b")
    x.table.session.log.close_epoch()
    x.add("b")
    delete_epochs_before_the_newest(world)
    for cleaner in (x, world.writer("fresh", host="host-c")):
        cleaner.table.rollback_failed_writes(wait=True)
        assert content(cleaner.table) == {"a0": 1, "a1": 1, "b0": 2, "b1": 2}


def test_trap_5_an_archived_commit_is_no_rollback(world):
    """Guards: of a T older than the active timeline, absence says nothing; only an entry of its end does."""
    w, x = world.writer("W"), world.writer("X", host="host-b")
    w.store.add(Refuse(On("delete"), forever=True))  # killed before it deletes its markers
    old = w.add("a").instant
    w.die()
    x.table.session.log.catch_up()
    x.table.session.log.close_epoch()
    x.add("b")
    for instant in list((world.folder / ".hoodie/timeline").glob("2*")):  # as another engine's archival does
        if instant.name[:17] <= old:
            instant.unlink()
    for cleaner in (x, world.writer("fresh", host="host-c")):
        cleaner.table.rollback_failed_writes(wait=True)
        assert content(cleaner.table) == dict.fromkeys(BEGUN, 1)
    assert independent_content(world.folder) == dict.fromkeys(BEGUN, 1)


def test_trap_5_a_begin_alone_is_no_rollback_of_one_older_than_the_timeline(world):
    """Guards: the commit entry is lost and its instant archived, so the begin that is left says nothing of the end."""
    w, x = world.writer("W"), world.writer("X", host="host-b")
    w.store.add(Refuse(On("delete"), forever=True))  # killed before it deletes its markers
    old = w.add("a")
    w.die()
    x.table.session.log.catch_up()
    x.table.session.log.close_epoch()
    x.add("b")
    assert x.store.inner.delete(slot_path(epochs(x.store)[0], old.slot)) is Outcome.DONE
    for instant in list((world.folder / ".hoodie/timeline").glob("2*")):
        if instant.name[:17] <= old.instant:
            instant.unlink()
    later = world.writer("later", host="host-c")
    assert later.table.session.log.outcome(old.instant) == "rollback"
    later.table.rollback_failed_writes(wait=True)
    later.table.clean(retain_commits=100)
    assert content(later.table) == independent_content(world.folder) == dict.fromkeys(BEGUN, 1)


def test_trap_7_a_rollback_outlives_the_epoch_that_holds_it(world):
    """Guards: what is not among the open transactions that an epoch carries on is over."""
    w, x = world.writer("W"), world.writer("X", host="host-b")
    txn = w.begin_add("a")
    assert x.table.rollback_failed_writes(wait=True) == [txn.instant]
    x.table.session.log.close_epoch()
    x.add("b")
    delete_epochs_before_the_newest(world)
    with pytest.raises(lakelatch.RolledBackError):
        txn.commit()
    assert world.content() == BEGUN | {"b0": 1, "b1": 1}


# --- 6 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [False, True])
def test_trap_6_a_cleaner_decides_on_the_log_that_its_entry_ends(world, after):
    """Guards: T is looked up in the state at the slot that the rollback entry takes, not in one read before."""
    w, r = world.writer("W"), world.writer("R", host="host-b")
    txn = w.begin_add("a")

    def commits_after_all() -> None:
        txn.commit()
        r.table.session.log.close_epoch()

    r.table.rollback_failed_writes()  # the first look starts the stop-watch
    r.env.suspend(r.table.settings.heartbeat_timeout_s + 1)
    r.store.add(Pause(On("get", heartbeat_path(txn.instant)), call=commits_after_all, after=after))
    assert r.table.rollback_failed_writes() == []
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 1, "a1": 1}
        check_sound(table)


@pytest.mark.parametrize("after", [False, True])
def test_trap_6_a_snapshot_ends_at_the_begin_slot_whenever_the_timeline_is_listed(world, after):
    """Guards: what the listing shows and the begin slot does not know is left out."""
    a, b = world.writer("A"), world.writer("B")
    txn = a.table.transaction()
    a.store.add(Pause(On("list", "/timeline"), call=lambda: b.add("a", 10), after=after))
    add(txn, "a")
    assert all(group.instant < txn.instant for group in txn.snapshot.file_slices())
    with pytest.raises(lakelatch.ConflictError):
        txn.commit()
    assert world.content() == BEGUN | {"a0": 10, "a1": 10}


# --- 8 --------------------------------------------------------------------------------------------------------


def test_trap_8_a_time_is_never_used_again(world):
    """Guards: T of a withdrawn transaction stays taken, for a slow clock and across epochs as well."""
    a = world.writer("A")
    first = a.table.transaction()
    first.abort()
    a.env.set_wall(a.env.now() - 3600)
    a.table.session.log.close_epoch()
    second = a.begin_add("a")
    assert second.instant > first.instant
    # A paused cleaner of the first one does its work now, and again.
    world.writer("paused", host="host-b").table.session.cleaner.sweep(first.instant)
    first.abort()
    second.commit()
    assert world.content() == BEGUN | {"a0": 1, "a1": 1}


# --- 9 --------------------------------------------------------------------------------------------------------


def test_trap_9_c_is_picked_anew_at_every_slot(make_world):
    """Guards: completion times grow with the slots, so a reader who checkpoints on C skips nobody."""
    world = make_world(lock="none://")
    a, b = world.writer("A"), world.writer("B")

    def meanwhile() -> None:
        b.env.advance(1.0)
        b.add("b")

    txn = a.begin_add("a")
    a.store.add(Pause(ENTRY, call=meanwhile))
    result = txn.commit()
    of_b = commits(a.table)[-2]
    assert of_b.writer == "B"
    assert result.completion > of_b.completion
    with world.fresh() as table:
        check_sound(table)


def test_trap_9_nobody_lands_before_the_commit_ahead_is_published(world):
    """Guards: an appender publishes the newest commit before its own entry, so instants appear in the order of C."""
    a, b = world.writer("A"), world.writer("B")
    txn = b.begin_add("b")
    with a.table.transaction() as stalled:
        add(stalled, "a")
        a.store.add(Refuse(On("put_if_absent", "/timeline/"), forever=True))  # it lands and cannot publish
    assert stalled.result.published is False
    seen: list[list[str]] = []
    before = [i.requested for i in b.table.timeline().commits]
    b.store.add(Pause(ENTRY, call=lambda: seen.append([i.requested for i in b.table.timeline().commits])))
    txn.commit()
    assert seen == [[*before, stalled.instant]]
    with world.fresh() as table:
        check_sound(table)


def test_trap_9_commits_that_a_power_cut_took_off_the_timeline_come_back_in_their_order(world):
    """Guards: at every moment the timeline is that of an earlier moment, also while it is repaired."""
    a = world.writer("A")
    for part in ("a", "b", "a"):
        a.add(part)
    told = [each.shown for each in commits(a.table)]
    for name in told[-3:]:
        (world.folder / ".hoodie/timeline" / name).unlink()
    seen: list[list[str]] = []

    def look(call: Call) -> bool:
        if call.op == "put_if_absent" and call.path.endswith(".commit"):
            seen.append([file_name(each) for each in world.fresh().timeline().completed])
        return False

    b = world.writer("B")
    b.store.add(Pause(look, call=lambda: None))
    b.table.session.log.append(lambda _: None)
    assert seen == [told[:-3], told[:-2], told[:-1]]
    assert [file_name(each) for each in b.table.timeline().completed] == told


# --- 10 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deleted", "torn"])
def test_trap_10_what_was_open_in_a_log_that_was_rebuilt_cannot_land(world, how):
    """Guards: a rebuilt log is a new epoch in which no old transaction is open."""
    w = world.writer("W")
    txn = w.begin_add("a")
    (epoch,) = (world.folder / LOG).iterdir()
    if how == "deleted":
        shutil.rmtree(epoch)
    else:
        max(epoch.iterdir()).write_bytes(b'{"v":1,"kind')
    world.env.advance(10.0)
    x = world.writer_of(lakelatch.adopt(str(world.folder), env=world.env.peer()))
    x.add("a", 10)
    with pytest.raises(lakelatch.RolledBackError):
        txn.commit()
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 10, "a1": 10}


# --- 11 (part) ------------------------------------------------------------------------------------------------


def land_after_the_sweep(world: World) -> None:
    """A's put of a data file is on its way for so long that A is rolled back, swept, and others have committed."""
    a, b = world.writer("A", host="host-b"), world.writer("B")
    a.store.add(Late(On("publish")))
    with pytest.raises(StorageError):
        a.insert("a", "zombie")
    b.table.rollback_failed_writes(wait=True)
    b.insert("a", "good")
    assert [put.done for put in a.store.land()] == [True]


def test_trap_11_a_zombie_file_is_not_read_and_goes_with_the_next_cleaning(world):
    """Guards: files of a T that did not land are invisible, and found without their markers."""
    land_after_the_sweep(world)
    assert world.content() == BEGUN | {"good": 1}
    assert independent_content(world.folder) == BEGUN | {"good": 1}
    with world.fresh() as table:
        check_sound(table)


def test_trap_11_on_a_young_table_a_zombie_file_is_not_read(make_world):
    """Guards: an empty commit, made with the table, is older than every transaction that can leave a file."""
    world = make_world(empty=True)
    land_after_the_sweep(world)
    assert world.content() == independent_content(world.folder) == {"good": 1}
    with world.fresh() as table:
        check_sound(table)
    assert world.content() == independent_content(world.folder) == {"good": 1}


def test_trap_11_does_harm_on_a_young_table_without_a_floor(make_world, breaks):
    """Readers take files older than the first instant for archived commits' files; the next cleaning removes this one."""
    breaks(sys.modules["lakelatch.occ.table.create"], "lay_floor", lambda table: None)
    breaks(transaction, "lay_floor", lambda table: None)
    world = make_world(empty=True)
    land_after_the_sweep(world)
    assert world.content() == independent_content(world.folder) == {"good": 1, "zombie": 1}
    with world.fresh() as table:
        check_sound(table)
    assert world.content() == independent_content(world.folder) == {"good": 1}


def test_trap_11_a_founder_who_died_before_the_floor_is_made_up_for(make_world):
    """Guards: no transaction begins on a table without a floor, no matter who was to lay it."""
    with answering(sys.modules["lakelatch.occ.table.create"], "lay_floor"):
        world = make_world(empty=True)
    with world.fresh() as table:
        assert commits(table) == []
    land_after_the_sweep(world)
    assert world.content() == independent_content(world.folder) == {"good": 1}


def rebase_beside_a_late_attempt(world: World, winner: Transaction, ours: Transaction, first: pa.Table) -> None:
    """A second attempt of the task that wrote ours' first file of partition a, with the same rows, is suspended before
    its file appears, until ours has merged again and landed; then it dies before it looks at its marker."""
    store = ours.session.store
    (stat,) = (each for each in ours.files if each.partition == "part=a")
    winner.commit()

    def meanwhile() -> None:
        assert ours.commit() is not None
        store.add(Refuse(On("head", ".marker."), forever=True))

    store.add(Pause(On("publish", stat.path), call=meanwhile))
    spec = ours.file_spec(SCHEMA)
    with (
        pytest.raises(StorageError),
        BaseFileWriter(spec, partition="part=a", file_id=stat.file_id, io="MERGE") as late,
    ):
        late.write(first)
    assert (world.folder / stat.path).exists()


def test_trap_11_a_late_file_of_an_earlier_round_is_in_a_group_that_is_replaced(world):
    """Guards: what is merged again goes to a new file group. Found by the model: in place, readers would meet two files."""
    w, x = world.writer("W"), world.writer("X")
    winner = x.table.transaction("upsert")
    winner.upsert(rows("a", {"a1": 7}))
    ours = w.table.transaction("upsert")
    ours.upsert(rows("a", {"a0": 5}))
    rebase_beside_a_late_attempt(world, winner, ours, rows("a", {"a0": 5, "a1": 0}))
    assert world.content() == independent_content(world.folder) == BEGUN | {"a0": 5, "a1": 7}


@pytest.mark.parametrize("elsewhere", ["kept as it was", "merged again"])
def test_trap_11_a_group_in_which_nothing_is_left_to_change_is_replaced_too(world, elsewhere):
    """Guards: else a late file of the first round would be the newest of its group, and hide what the winner did."""
    w, x = world.writer("W"), world.writer("X")
    with x.table.transaction("upsert") as more:
        more.upsert(rows("a", {"a3": 1}))
        more.upsert(rows("b", {"b3": 1}))
    winner = x.table.transaction("delete")
    winner.delete(pa.table({"id": ["a0", "a1"] + (["b3"] if elsewhere == "merged again" else [])}))
    ours = w.table.transaction("delete")
    ours.delete(pa.table({"id": ["a0", "b0"]}))
    rebase_beside_a_late_attempt(world, winner, ours, rows("a", {"a1": 0, "a3": 1}))
    left = {"a3": 1, "b1": 0} | ({"b3": 1} if elsewhere == "kept as it was" else {})
    assert world.content() == independent_content(world.folder) == left


# --- 12 (part) ------------------------------------------------------------------------------------------------


def test_trap_12_a_lock_that_was_rebuilt_blocks_nobody(world):
    """Guards: a backend whose counter is behind is lifted above the last commit's token."""
    a = world.writer("A")
    for _ in range(3):
        a.add("a")
    last = commits(a.table)[-1].token
    shutil.rmtree(world.folder / ".hoodie/.lakelatch/locks")
    b = world.writer("B")
    b.add("a")
    a.add("a")
    assert [c.token for c in commits(a.table)][-2:] == [last + 1, last + 2]


def test_trap_12_a_side_object_stands_before_the_entry_that_names_it(world):
    """Guards: an entry never names an object that might not be there; a put that comes late lands nothing."""
    a, b = world.writer("A"), world.writer("B")
    a.table.session.inline_bytes = b.table.session.inline_bytes = 0
    a.store.add(Late(On("publish", "/sides/")))
    with pytest.raises(lakelatch.StorageError, match="nothing landed"):
        a.add("a")
    a.store.land()
    b.add("a")
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 1, "a1": 1}
        check_sound(table)


def test_trap_12_a_side_object_lost_after_publication_blocks_nobody(world):
    """Guards: what a published commit did is on the timeline as well."""
    a, b = world.writer("A"), world.writer("B")
    a.table.session.inline_bytes = b.table.session.inline_bytes = 0
    disjoint, loser = b.begin_add("b"), b.begin_add("a")
    a.add("a")
    shutil.rmtree(world.folder / ".hoodie/.lakelatch/sides")
    disjoint.commit()
    with pytest.raises(lakelatch.ConflictError):
        loser.commit()
    a.add("a")
    world.writer("C").add("b")
    assert world.content() == {"a0": 2, "a1": 2, "b0": 2, "b1": 2}


# --- 13 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hours", [-30, 30])
def test_trap_13_a_heartbeat_is_never_judged_by_anybodys_wall_clock(world, hours):
    """Guards: silence is measured from the observer's own first look."""
    w = world.writer("W", host="host-b", wall=world.env.now() + hours * 3600)
    r = world.writer("R", wall=world.env.now() - hours * 3600)
    txn = w.begin_add("a")
    beat = world.folder / heartbeat_path(txn.instant)
    os.utime(beat, (0, 0))
    assert r.table.rollback_failed_writes() == []
    r.env.suspend(r.table.settings.heartbeat_timeout_s - 1)
    os.utime(beat, (2**33, 2**33))
    assert r.table.rollback_failed_writes() == []
    txn.commit()
    assert world.content() == BEGUN | {"a0": 1, "a1": 1}


def test_trap_13_a_slow_look_makes_nobody_silent(world):
    """Guards: silence is counted from the end of the look that saw the last beat to the beginning of the present one."""
    w, r = world.writer("W", host="host-b"), world.writer("R")
    txn = w.begin_add("a")
    timeout_s = r.table.settings.heartbeat_timeout_s
    watch = HeartbeatObserver(r.store, r.env)

    def look(before_s: float, after_s: float) -> float:
        for seconds, after in ((before_s, False), (after_s, True)):
            r.store.add(
                Pause(On("get", heartbeat_path(txn.instant)), call=lambda s=seconds: r.env.suspend(s), after=after)
            )
        return watch.silent_for(txn.instant)

    assert look(timeout_s, timeout_s) == 0
    assert look(timeout_s, timeout_s) == 0, "the looks themselves took that long"
    r.env.suspend(5.0)
    assert look(0, 0) == 2 * timeout_s + 5.0


def test_trap_13_a_beat_is_as_old_as_its_sending(world):
    """Guards: others may have seen the beat before from its sending to the moment at which the next one is answered."""
    w = world.writer("W")
    sender = HeartbeatSender(w.store, w.env, interval_s=lambda: 1e9)
    slow = On("put_if_absent", heartbeat_path("T")), On("replace_if_match", heartbeat_path("T"))
    for each in slow:
        w.store.add(Pause(each, call=lambda: w.env.suspend(30.0)))
    sender.start("T")
    assert sender.longest_silence_s("T") == 30.0
    w.env.suspend(10.0)
    sender.beat()
    assert sender.longest_silence_s("T") == 70.0
    w.env.suspend(45.0)
    assert sender.longest_silence_s("T") == 75.0, "30 of them before the answer"
    sender.close()


# --- 14 -------------------------------------------------------------------------------------------------------


def two_that_have_lost(world: World) -> tuple[Writer, int, Writer, int]:
    """A began before B, and both have lost against X: the writers, and the slots of their first attempts."""
    a, b, x = world.writer("A"), world.writer("B"), world.writer("X")
    first, second = a.begin_add("a"), b.begin_add("a")
    x.add("a", 10)
    for txn in (first, second):
        with pytest.raises(lakelatch.ConflictError):
            txn.commit()
    return a, first.begin_slot, b, second.begin_slot


def test_trap_14_the_one_that_lost_first_waits_for_nobody(world):
    """Guards: a retry keeps the age of its first attempt, so that B, whose retry has begun before, waits for A's."""
    a, first, b, second = two_that_have_lost(world)
    of_b = b.table.transaction(reserve=["part=a"], first=second)
    add(of_b, "a", 100)
    began = a.env.monotonic()
    of_a = a.table.transaction(reserve=["part=a"], first=first)
    assert a.env.monotonic() == began, "A waits for B, who has lost after A"
    add(of_a, "a")
    timer = b.env.every(5, lambda: (timer.cancel(), of_a.commit()), name="A lands")
    with pytest.raises(lakelatch.ConflictError, match="landed first"):
        of_b.commit()
    assert world.content() == BEGUN | {"a0": 11, "a1": 11}


def test_trap_14_does_harm_when_every_attempt_is_the_youngest(world):
    a, _, b, _ = two_that_have_lost(world)
    of_b = b.table.transaction(reserve=["part=a"])
    add(of_b, "a", 100)
    timer = a.env.every(5, lambda: (timer.cancel(), of_b.commit()), name="B lands")
    of_a = a.table.transaction(reserve=["part=a"])
    assert of_b.result is not None
    assert of_a.begin_slot > of_b.result.slot, "anyone who comes back first overtakes the one that has lost first"


# --- 15 -------------------------------------------------------------------------------------------------------


def overwrite_against_insert(world: World) -> None:
    w, x = world.writer("W"), world.writer("X")
    txn = w.table.transaction("insert_overwrite")
    overwrite(txn, "a", "a9")
    x.insert("a", "a5")
    txn.commit()


def delete_by_condition_against_insert(world: World) -> None:
    w, x = world.writer("W"), world.writer("X")
    txn = w.table.transaction("delete")
    txn.depends_on("part=a")
    add(txn, "a", -1)
    x.insert("a", "a5")
    txn.commit()


def two_overwrites_of_an_empty_partition(world: World) -> None:
    w, x = world.writer("W"), world.writer("X")
    first, second = w.table.transaction("insert_overwrite"), x.table.transaction("insert_overwrite")
    overwrite(first, "e", "e1")
    overwrite(second, "e", "e2")
    second.commit()
    first.commit()


def insert_against_overwrite_that_it_had_read(world: World) -> None:
    w, x = world.writer("W"), world.writer("X")
    txn = w.table.transaction("upsert")  # it looked for a5 and did not find it
    insert(txn, "a", "a5")
    with x.table.transaction("insert_overwrite") as over:
        overwrite(over, "a", "a5", v=7)
    txn.commit()


PHANTOMS = [
    (overwrite_against_insert, BEGUN | {"a5": 1}),
    (delete_by_condition_against_insert, BEGUN | {"a5": 1}),
    (two_overwrites_of_an_empty_partition, BEGUN | {"e2": 1}),
    (insert_against_overwrite_that_it_had_read, {"a5": 7, "b0": 0, "b1": 0}),
]


@pytest.mark.parametrize(("schedule", "after"), PHANTOMS)
def test_trap_15_what_appears_where_we_overwrite_or_evaluate_is_a_conflict(world, schedule, after):
    """Guards: write sets and read sets include the absent."""
    with pytest.raises(lakelatch.ConflictError):
        schedule(world)
    with world.fresh() as table:
        assert content(table) == after
        check_sound(table)


@pytest.mark.parametrize(("schedule", "_after"), PHANTOMS)
def test_trap_15_does_harm_when_only_file_groups_count(world, breaks, schedule, _after):
    breaks(Staged, "overwrites", lambda *_: None)
    breaks(Staged, "depends_on", lambda *_: None)
    breaks(Workspace, "refuse_unclaimed", lambda _: None)
    breaks(Staged, "values", lambda _: {})  # what may stand once only is a rule of its own
    schedule(world)  # both land


def test_trap_15_an_insert_of_new_rows_and_an_overwrite_before_it_have_a_serial_order(world):
    """The other side of it: no false conflict. First the overwrite, then the blind insert."""
    w, x = world.writer("W"), world.writer("X")
    txn = w.table.transaction("insert")
    insert(txn, "a", "a5")
    with x.table.transaction("insert_overwrite") as over:
        overwrite(over, "a", "a9")
    txn.commit()
    assert world.content() == {"a5": 1, "a9": 1, "b0": 0, "b1": 0}


# --- 17 -------------------------------------------------------------------------------------------------------


def give_up_at_once(breaks) -> None:
    """A writer that reads its slot after a put without answer, finds it free, and takes that for an answer."""
    real = CommitLog._insist

    def insist(self: CommitLog, path: str, body: bytes, entry: object = None) -> bool:
        put = self._store.put_if_absent(path, body)
        if put.outcome is Outcome.UNKNOWN and self._store.get(path) is None:
            raise StorageError(f"{path} is absent")
        return put.done or real(self, path, body, entry)  # type: ignore[arg-type]

    breaks(CommitLog, "_insist", insist)


def late_commit(world: World) -> Writer:
    a = world.writer("A")
    txn = a.begin_add("a")
    a.store.add(Late(ENTRY))
    txn.commit()
    return a


def test_trap_17_a_writer_in_doubt_repeats_the_same_entry(world):
    """Guards: absence is no answer. The late put and the repetition are the same entry at the same slot."""
    a = late_commit(world)
    assert [put.outcome for put in a.store.land()] == [Outcome.LOST]
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 1, "a1": 1}
        check_sound(table)


def test_trap_17_a_writer_who_gives_up_fills_the_slot_first(world, breaks):
    """Guards: before it deletes anything it takes the slot that its late put wants."""
    give_up_at_once(breaks)
    with pytest.raises(StorageError, match="absent"):
        late_commit(world)
    assert not any(put.done for put in world.writers[0].store.land())
    with world.fresh() as table:
        assert content(table) == BEGUN
        check_sound(table)


def test_trap_17_does_harm_when_files_are_deleted_on_absence(world, breaks):
    give_up_at_once(breaks)

    def abort(self: Attempt, reason: str, **_: object) -> None:
        self.over("aborted")
        self.session.cleaner._sweep_dead(self.instant, "commit")

    breaks(Attempt, "abort", abort)
    with pytest.raises(StorageError, match="absent"):
        late_commit(world)
    assert [put.done for put in world.writers[0].store.land()] == [True]
    with world.fresh() as table, pytest.raises(AssertionError, match="committed files are gone"):
        check_sound(table)


# --- 18 -------------------------------------------------------------------------------------------------------


def put_into_an_emptied_slot(world: World) -> None:
    """W is paused before its commit entry; it is rolled back, its epoch ends and goes; then its put succeeds."""
    w, x = world.writer("W"), world.writer("X", host="host-b")
    txn = w.begin_add("a")

    def meanwhile() -> None:
        assert x.table.rollback_failed_writes(wait=True) == [txn.instant]
        x.add("b")
        x.table.session.log.close_epoch()
        x.add("b")
        delete_epochs_before_the_newest(world)

    w.store.add(Pause(ENTRY, call=meanwhile))
    txn.commit()


def test_trap_18_an_entry_in_an_emptied_slot_counts_for_nothing(make_world):
    """Guards: after every put the newest epoch is looked up; if it has moved on, the outcome of T there decides."""
    world = make_world(lock="none://")
    with pytest.raises(lakelatch.RolledBackError):
        put_into_an_emptied_slot(world)
    with world.fresh() as table:
        assert content(table) == BEGUN | {"b0": 2, "b1": 2}
        table.rollback_failed_writes()
        assert not any("part=a" in p for p in _strays(table))


def test_trap_18_does_harm_when_nobody_looks(make_world, breaks):
    world = make_world(lock="none://")
    breaks(CommitLog, "_newest_epoch_is_not", lambda self, epoch: False)
    put_into_an_emptied_slot(world)  # acknowledged
    with pytest.raises(lakelatch.CorruptTableError, match="is not there"):
        world.content()


def test_trap_18_who_has_not_read_what_landed_meanwhile_does_not_land(make_world):
    """Guards: W is still open in the newest epoch, but the commits of those that are gone are candidates, too."""
    world = make_world(lock="none://")
    w, x = world.writer("W"), world.writer("X", host="host-b")
    txn = w.begin_add("a")
    x.add("a", 10)
    x.table.session.log.close_epoch()
    x.add("b")
    delete_epochs_before_the_newest(world)
    with pytest.raises(lakelatch.RolledBackError, match="the commit log was made again while"):
        txn.commit()
    assert world.content() == {"a0": 10, "a1": 10, "b0": 1, "b1": 1}, "W has written over what it never saw"


def _strays(table) -> list[str]:
    known = {f.path for f in table.snapshot().file_slices()}
    return [e.path for e in table.store.list("part=a") if e.path.endswith(".parquet") and e.path not in known]


# --- 19 -------------------------------------------------------------------------------------------------------


def clean_a_slow_writer(world: World) -> None:
    """W is silent for too long, but lives: it commits right before the cleaner's rollback entry."""
    w, r = world.writer("W"), world.writer("R", host="host-b")
    txn = w.begin_add("a")
    txn.workspace.close_files()
    r.store.add(Pause(ENTRY, call=txn.commit))
    r.table.rollback_failed_writes(wait=True)
    assert txn.result is not None


def test_trap_19_nothing_is_deleted_before_the_rollback_entry(world):
    """Guards: commit and rollback exclude each other, and deletion comes after."""
    clean_a_slow_writer(world)
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 1, "a1": 1}
        check_sound(table)


def test_trap_19_does_harm_when_files_go_first(world, breaks):
    real = FailedWriteCleaner.roll_back

    def roll_back(self: FailedWriteCleaner, begin, *, reason: str, **more) -> bool:
        for marker in self._store.list(f".hoodie/.temp/{begin.instant}", recursive=True):
            path = marker.path.removeprefix(f".hoodie/.temp/{begin.instant}/").rpartition(".marker.")[0]
            self._store.delete(path)
        return real(self, begin, reason=reason, **more)

    breaks(FailedWriteCleaner, "roll_back", roll_back)
    clean_a_slow_writer(world)
    with world.fresh() as table, pytest.raises(AssertionError, match="committed files are gone"):
        check_sound(table)


def test_trap_19_who_was_ended_while_it_held_the_lock_is_told_so(world):
    """Guards: whether it is still open is decided at the very slot, before anything that is known of open ones only."""
    w, r = world.writer("W"), world.writer("R", host="host-b")
    txn = w.begin_add("a")
    w.store.add(Pause(ENTRY, call=lambda: r.table.rollback_failed_writes(wait=True)))
    with pytest.raises(lakelatch.RolledBackError, match=f"{txn.instant} was ended by another writer"):
        txn.commit()
    with world.fresh() as table:
        assert content(table) == BEGUN
        check_sound(table)


@pytest.mark.parametrize("when", ["before the sweep deletes", "between its deletes", "when its marker is gone"])
def test_trap_19_a_file_that_appears_during_the_sweep_goes_with_it(world, when):
    """Guards: a worker looks at its marker after it has published, and the sweep deletes once more after the marker."""
    w = world.writer("W", host="host-b")
    txn = w.table.transaction("insert")
    file = txn.new_file("part=a")
    file.write(rows("a", {"late": 1}))
    moment = {
        "before the sweep deletes": (On("delete", ".parquet"), False),
        "between its deletes": (On("delete", ".marker."), False),
        "when its marker is gone": (On("delete", ".marker."), True),
    }[when]
    withheld: list[bool] = []

    def publish() -> None:
        try:
            file.close()
            withheld.append(False)
        except lakelatch.RolledBackError:
            withheld.append(True)

    r = world.writer("R")
    markers = list_markers(r.store, txn.instant)
    r.store.add(Pause(moment[0], call=publish, after=moment[1]))
    delete_announced(r.store, markers)
    assert withheld == [moment[1]], "not the moment that this test is about"
    assert list(world.folder.glob(f"**/*{txn.instant}.parquet")) == []
    txn.abort()


def two_attempts_at_one_file(world: World) -> None:
    """Spark runs a task twice. The first attempt's file appears; before it looks at its marker again the second one
    reports that very file, and the transaction lands and removes its markers."""
    w = world.writer("W")
    txn = w.table.transaction("upsert")
    (group,) = txn.snapshot.file_slices("part=a")
    old = txn.read_slice(group)
    new = old.set_column(2, "v", pa.array([v + 1 for v in old["v"].to_pylist()]))
    spec = txn.file_spec(new.schema)

    def attempt() -> WriteStat | None:
        with BaseFileWriter(
            spec, partition="part=a", file_id=group.file_id, io="MERGE", prev_commit=group.instant, before=group
        ) as file:
            file.write(new)
        return file.stat

    def meanwhile() -> None:
        stat = attempt()
        assert stat is not None
        txn.add([stat])
        txn.commit()

    w.store.add(Pause(On("publish", ".parquet"), call=meanwhile, after=True))
    with suppress(lakelatch.RolledBackError):
        attempt()
    assert txn.result is not None


def test_trap_19_a_late_attempt_does_not_delete_what_was_committed(world):
    """Guards: a worker whose marker is gone asks for the outcome before it deletes its file. Found by the model."""
    two_attempts_at_one_file(world)
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 1, "a1": 1}
        check_sound(table)


def test_trap_19_does_harm_when_a_late_attempt_trusts_its_marker(world, breaks):
    breaks(basefile, "is_no_part", lambda *_: True)
    two_attempts_at_one_file(world)
    with pytest.raises(lakelatch.CorruptTableError, match="is not there"):
        world.content()


# --- 20 -------------------------------------------------------------------------------------------------------


def fill_the_slot_of_a_commit(world: World) -> None:
    """W's entry lands, its answer is lost; its epoch ends and goes; a zombie's late put fills the slot."""
    w, x, z = world.writer("W"), world.writer("X", host="host-b"), world.writer("Z", host="host-c")
    txn = w.begin_add("a")
    entry = Path()

    def note(call: Call) -> bool:
        nonlocal entry
        if not ENTRY(call):
            return False
        entry = world.folder / call.path
        return True

    def meanwhile() -> None:
        # W's put has landed. Everybody else goes on, and the epoch is dropped.
        x.add("b")
        x.table.session.log.close_epoch()
        x.add("b")
        stranger = sorted(entry.parent.iterdir())[entry_number(entry) + 1].read_bytes()  # X's begin
        delete_epochs_before_the_newest(world)
        z.store.inner.put_if_absent(str(entry.relative_to(world.folder)), stranger)

    w.store.add(LoseReply(note), Pause(ENTRY, call=meanwhile, after=True))
    txn.commit()


def entry_number(entry: Path) -> int:
    return sorted(entry.parent.iterdir()).index(entry)


def test_trap_20_a_stranger_in_our_slot_does_not_mean_that_we_lost(make_world):
    """Guards: only the outcome of T counts. Nothing is deleted, and nobody is told to run the work again."""
    world = make_world(lock="none://")
    fill_the_slot_of_a_commit(world)  # and its writer is told that it has landed
    assert world.content() == {"a0": 1, "a1": 1, "b0": 2, "b1": 2}
    with world.fresh() as table:
        table.rollback_failed_writes()
        assert content(table) == {"a0": 1, "a1": 1, "b0": 2, "b1": 2}


def test_trap_20_does_harm_when_a_beaten_writer_deletes_its_files(make_world, breaks):
    world = make_world(lock="none://")

    def abort(self: Landing, reason: str, **_: object) -> None:
        self._attempt.over("aborted")
        for path in self._workspace.changes.paths():
            self._attempt.session.store.delete(path)

    breaks(Landing, "abort", abort)
    breaks(CommitLog, "landed", lambda self, instant: None)
    with pytest.raises(lakelatch.RolledBackError):
        fill_the_slot_of_a_commit(world)
    with pytest.raises(lakelatch.CorruptTableError, match="is not there"):
        world.content()
