"""What a writer knows of itself on a far store, so that it need not ask: that it lives, and which files it has announced."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import pytest

import lakelatch
from lakelatch.errors import StorageError
from lakelatch.occ.check.check import check
from lakelatch.occ.liveness.heartbeat import HeartbeatSender
from lakelatch.occ.liveness.own_record import OwnRecord
from lakelatch.testing.faults import On, Refuse

from ..world import BEGUN, Writer, insert

FAR = ("log.commit_log", "log.read_ahead", "log.publisher", "session.session", "liveness.rollback")


@pytest.fixture
def world(make_world, monkeypatch: pytest.MonkeyPatch):
    """Its store says that every request takes long. B is on another host."""
    for each in FAR:
        monkeypatch.setattr(import_module(f"lakelatch.occ.{each}"), "is_far", lambda _: True)
    return make_world(lock="none://")


def data_files(writer: Writer) -> set[str]:
    return {path for path in writer.store.inner.names("", recursive=True) if path.endswith(".parquet")}


def asleep(a: Writer) -> None:
    a.env.suspend(1000)


def machine_asleep(a: Writer) -> None:
    """The clock that never goes back stands still meanwhile, and the wall clock does not."""
    a.env.set_wall(a.env.now() + 1000)


def ended_by_another(world, sleep: Callable[[Writer], None]) -> tuple[Writer, lakelatch.Transaction]:
    a, b = world.writer("A"), world.writer("B", host="host-b")
    txn = a.table.transaction("insert")
    insert(txn, "a", "early")
    txn._attempt.arrived()
    begun = b.table.session.log.catch_up().open[txn.instant]
    sleep(a)
    assert b.table.session.cleaner.roll_back(begun, reason="a test")
    return a, txn


def looks(a: Writer) -> int:
    return sum(call.op == "head" and (".heartbeat" in call.path or ".marker" in call.path) for call in a.store.calls)


@pytest.mark.parametrize("sleep", [asleep, machine_asleep])
def test_a_writer_that_may_have_been_found_silent_asks_and_withholds_its_file(world, sleep):
    a, txn = ended_by_another(world, sleep)
    there = data_files(a)
    with pytest.raises(lakelatch.RolledBackError):
        insert(txn, "a", "late")
    assert looks(a)
    assert data_files(a) == there
    with pytest.raises(lakelatch.CommitError):
        txn.commit()
    assert world.content() == BEGUN


def test_a_first_heartbeat_that_comes_behind_the_sweep_brings_nobody_back(world):
    """It was on its way while its writer slept, and stands there again, as if nothing had happened."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    txn = a.table.transaction("insert")
    begun = b.table.session.log.catch_up().open[txn.instant]
    asleep(a)
    assert b.table.session.cleaner.roll_back(begun, reason="a test")
    there = data_files(a)
    with pytest.raises(lakelatch.RolledBackError):
        insert(txn, "a", "late")
    assert data_files(a) == there
    assert world.content() == BEGUN


def test_what_a_living_writer_puts_after_it_was_ended_by_force_goes_with_its_abort(world):
    """It beats in time, so it does not look; `lakelatch rollback --force` asks for no silence."""
    a, txn = ended_by_another(world, lambda _: None)
    there = data_files(a)
    insert(txn, "a", "late")
    with pytest.raises(lakelatch.RolledBackError):
        txn.commit()
    assert data_files(a) == there
    assert world.content() == BEGUN


def test_a_writer_that_always_believes_in_itself_leaves_a_file_that_is_no_commits(world, breaks):
    """What the look spares others: nothing but a deletion."""
    breaks(HeartbeatSender, "longest_silence_s", lambda *_: 0.0)
    a, txn = ended_by_another(world, asleep)
    there = data_files(a)
    insert(txn, "a", "late")
    with pytest.raises(lakelatch.RolledBackError):
        txn.commit()
    assert world.content() == BEGUN
    assert not looks(a)
    assert data_files(a) >= there


def test_beats_that_are_answered_in_time_are_enough_for_hours(world):
    a = world.writer("A")
    txn = a.table.transaction("insert")
    a.env.advance(10_000)
    insert(txn, "a", "x")
    assert not looks(a)
    # One beat that came too late, and it asks for the rest of its life.
    a.env.suspend(a.table.settings.heartbeat_timeout_s)
    a.env.advance(1000)
    insert(txn, "a", "y")
    assert looks(a)
    assert txn.commit()
    assert world.content() == BEGUN | {"x": 1, "y": 1}


def test_the_pending_instant_stands_before_the_first_data_file(world, breaks):
    def order(writer: Writer) -> list[str]:
        writer.insert("a", writer.name)
        names = ("commit.requested", ".inflight", ".parquet")
        return [
            name
            for call in writer.store.calls
            for name in names
            if call.op in ("put_if_absent", "publish") and call.path.endswith(name)
        ]

    assert sorted(order(world.writer("A"))[:2]) == [".inflight", "commit.requested"]
    breaks(OwnRecord, "arrived", lambda _: None)
    assert order(world.writer("B"))[0] == ".parquet"


def test_a_pending_instant_that_cannot_be_put_ends_the_transaction(world):
    a = world.writer("A")
    there = data_files(a)
    a.store.add(Refuse(On("put_if_absent", "commit.requested")))
    with pytest.raises(StorageError):
        a.insert("a", "x")
    assert data_files(a) == there
    a.insert("a", "y")
    a.table.close()
    assert world.content() == BEGUN | {"y": 1}
    assert not check(a.store.inner, deep=True).findings


def test_files_of_a_failed_write_and_all_markers_are_gone_when_the_handle_is_closed(world):
    a = world.writer("A")
    with a.table.transaction("insert") as txn:
        insert(txn, "a", "x")
        with pytest.raises(ZeroDivisionError), txn.new_file("part=b"):
            1 / 0  # noqa: B018 - announced, and never written
    a.table.close()
    assert not a.store.inner.names(".hoodie/.temp", recursive=True)
    assert not a.store.inner.names(".hoodie/.heartbeat", recursive=True)
    assert not [call for call in a.store.calls if call.op == "names" and ".temp/" in call.path]
    assert world.content() == BEGUN | {"x": 1}
