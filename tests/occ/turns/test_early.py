"""Early conflict detection: who finds others at work on the same file groups waits for its turn, or fails before the work.

A fake clock passes while somebody waits, and what happens meanwhile is a timer of the test; two real threads at the end.
"""

from __future__ import annotations

import os
import threading

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import CommitError, ConfigError, ConflictError, InputError, StorageError
from lakelatch.occ.entries import Settings
from lakelatch.occ.liveness.heartbeat import HEARTBEATS
from lakelatch.occ.liveness.markers import MARKERS
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.occ.writing import row_writes
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.contention import PATIENCE_S
from lakelatch.testing.faults import On, Refuse

from ..services.test_services import SMALL
from ..world import BEGUN, SCHEMA, Writer, add, after, check_sound, content, fate, insert, rows


def begin(writer: Writer, part: str = "a", **values: int):
    """A transaction at work: its markers stand."""
    txn = writer.table.transaction()
    txn.upsert(rows(part, values))
    return txn


def passed(writer: Writer) -> float:
    """Seconds since the test began; nothing but waiting takes any."""
    return writer.env.monotonic() - FakeEnvironment().monotonic()


def merges(txn) -> int:
    return txn.workspace.rebase.round if txn.workspace.rebase else 0


def slow(world, name: str, **more) -> Writer:
    """A writer for whom merging again takes longer than waiting for anybody."""
    writer = world.writer(name, **more)
    writer.table.session.merged_bytes_s = 1
    return writer


@pytest.fixture
def waits(make_world):
    world = make_world(early_conflict_detection="direct")
    return world, slow(world, "owner"), slow(world, "other")


@pytest.fixture
def fails(make_world):
    """What both change cannot be merged again."""
    world = make_world(early_conflict_detection="direct", rebase=False)
    return world, world.writer("owner"), world.writer("other")


WRITES = {
    "upsert": (lambda txn: txn.upsert(rows("a", {"a1": 7})), {"a0": 5, "a1": 7}),
    "delete": (lambda txn: txn.delete(pa.table({"id": ["a1"], "part": ["a"]})), {"a0": 5}),
    "delete everywhere": (lambda txn: txn.delete(pa.table({"id": ["a1"]})), {"a0": 5}),
    "condition": (lambda txn: txn.delete_where([("v", "=", 0)], partition="part=a"), {"a0": 5}),
}


@pytest.mark.parametrize("what", WRITES)
def test_who_waits_for_its_turn_merges_once(waits, what):
    """Its snapshot is of after the wait, and nobody's code has run twice."""
    world, owner, other = waits
    write, left = WRITES[what]
    first, calls = begin(owner, a0=5), []
    after(other, 20, first.commit)
    done = other.table.run(lambda txn: (calls.append(txn), write(txn)))
    assert (done.attempts, len(calls), merges(calls[0])) == (1, 1, 0)
    assert calls[0].begin_slot > first.result.slot
    assert 20 <= passed(other) < 30
    assert world.content() == {k: v for k, v in BEGUN.items() if k[0] == "b"} | left
    with world.fresh() as table:
        check_sound(table)


def test_without_it_both_merge(make_world):
    world = make_world()
    owner, other = world.writer("owner"), world.writer("other")
    first = begin(owner, a0=5)
    second = begin(other, a1=7)
    first.commit()
    second.commit()
    assert merges(second) == 1


def test_who_waits_is_in_nobodys_way(waits):
    """No begin, no marker, no heartbeat, no pending instant: a circle of waiting transactions cannot be."""
    _world, owner, other = waits
    first, seen = begin(owner, a0=5), []
    store = owner.table.store

    def look() -> None:
        seen.append(set(owner.table.session.log.catch_up().open))
        seen.append(set(store.folders(MARKERS)) | {each.name for each in store.list(HEARTBEATS)})
        seen.append({each.requested for each in owner.table.timeline().pending})
        first.commit()

    after(other, 5, look)
    begin(other, a1=7).commit()
    assert seen == [{first.instant}] * 3


def test_two_that_are_at_work_already_wait_for_neither(waits):
    """Each wants what the other one writes: there the commits decide."""
    world, one, two = waits
    first, second = begin(one, "a", a0=1), begin(two, "b", b0=1)
    first.upsert(rows("b", {"b1": 2}))
    second.upsert(rows("a", {"a1": 2}))
    first.commit()
    second.commit()
    assert passed(one) < 1
    assert world.content() == {"a0": 1, "a1": 2, "b0": 1, "b1": 2}


@pytest.mark.parametrize(
    "done",
    [
        lambda txn: txn.snapshot,
        lambda txn: txn.schema,
        lambda txn: txn.depends_on("part=b", met=()),
        lambda txn: insert(txn, "b", "new"),
    ],
    ids=["snapshot", "schema", "reads", "insert"],
)
def test_who_has_done_something_goes_on(waits, done):
    """What was computed from its snapshot would have to be computed again, which a merge spares."""
    _world, owner, other = waits
    first = begin(owner, a0=5)
    second = other.table.transaction()
    done(second)
    second.upsert(rows("a", {"a1": 7}))
    first.commit()
    second.commit()
    assert merges(second) == 1
    assert passed(other) < 1


@pytest.mark.parametrize("end", ["abort", "death", "death elsewhere"])
def test_it_waits_no_longer_than_the_other_one_lives(make_world, end):
    world = make_world(early_conflict_detection="direct")
    owner, other = slow(world, "owner"), slow(world, "other", host="host-b" if "elsewhere" in end else "host-a")
    first = begin(owner, a0=5)
    after(other, 5, first.abort if end == "abort" else owner.die)
    second = begin(other, a1=7)
    assert second.commit()
    assert merges(second) == 0
    assert passed(other) < (90 if "elsewhere" in end else 10)
    assert fate(other.table, first.instant) == ["begin", "abort" if end == "abort" else "rollback"]
    assert world.content() == BEGUN | {"a1": 7}


def test_waiting_has_a_bound_and_then_it_goes_on(make_world):
    world = make_world(early_conflict_detection="direct", yield_wait_s=10)
    owner, other = slow(world, "owner"), slow(world, "other")
    first = begin(owner, a0=5)
    second = begin(other, a1=7)
    assert 10 <= passed(other) < 15
    second.commit()
    first.commit()
    assert (merges(second), merges(first)) == (0, 1)
    assert world.content() == BEGUN | {"a0": 5, "a1": 7}


def test_it_reserves_what_it_waited_for(waits):
    """So it cannot be overtaken, and those that come meanwhile wait before their work, not after it."""
    _world, owner, other = waits
    first = begin(owner, a0=5)
    after(other, 5, first.commit)
    second = begin(other, a1=7)
    (reserved,) = [each.reserved for each in owner.table.session.log.catch_up().open.values()]
    assert {group.partition for group in reserved.groups} == {"part=a"}
    third = owner.table.transaction()
    after(owner, 5, second.commit)
    third.upsert(rows("a", {"a0": 6}))
    assert third.begin_slot > second.result.slot
    third.commit()
    assert merges(third) == 0


def test_a_reservation_is_waited_for_before_there_is_a_marker(waits):
    _world, owner, other = waits
    keeps = owner.table.transaction(reserve=["part=a"])

    def land() -> None:
        keeps.upsert(rows("a", {"a0": 5}))
        keeps.commit()

    after(other, 5, land)
    second = begin(other, a1=7)
    assert second.begin_slot > keeps.result.slot
    second.commit()
    assert merges(second) == 0


def test_a_place_that_stays_reserved_is_not_waited_for_without_end(make_world):
    world = make_world(early_conflict_detection="direct", yield_wait_s=10)
    owner, other = slow(world, "owner"), slow(world, "other")
    first = begin(owner, a0=5)
    after(other, 5, lambda: (first.commit(), owner.table.transaction(reserve=["part=a"])))
    second = begin(other, a1=7)
    assert 15 <= passed(other) < 25
    assert second.claim.reserved is None


@pytest.mark.parametrize("first_by", ["reservation", "lock"])
def test_who_goes_first_waits_for_nobody(waits, first_by):
    """The other one waits for it, at its commit: two who wait for each other would do so until the bound."""
    _world, owner, other = waits
    begin(owner, a0=5)
    how = {"reserve": ["part=a"]} if first_by == "reservation" else {"lock_first": True}
    second = other.table.transaction(**how)
    second.upsert(rows("a", {"a1": 7}))
    second.commit()
    assert passed(other) < 1


def test_a_transaction_that_is_kept_is_known_although_it_has_begun_anew(waits, monkeypatch):
    _world, owner, other = waits
    first, kept = begin(owner, a0=5), []
    after(other, 5, first.commit)

    def work(txn) -> None:
        kept.append(txn)
        kept[0].upsert(rows("a", {"a1": 7}))
        monkeypatch.setattr(owner.table.session.reservations, "counts", lambda _: False)
        owner.add("a")

    with pytest.raises(InputError, match="of an earlier attempt"):
        other.table.run(work)


def test_what_was_asked_of_the_transaction_stays(waits):
    _world, owner, other = waits
    first = begin(owner, a0=5)
    after(other, 5, first.commit)
    second = other.table.transaction(isolation="serializable")
    second.upsert(rows("a", {"a1": 7}))
    assert (second.isolation, second.begin_slot > first.result.slot) == ("serializable", True)


def test_it_is_over_when_it_cannot_begin_anew(waits):
    _world, owner, other = waits
    first = begin(owner, a0=5)
    second = other.table.transaction()

    def land() -> None:
        first.commit()
        other.store.add(Refuse(On("put_if_absent")))

    after(other, 5, land)
    with pytest.raises(StorageError):
        second.upsert(rows("a", {"a1": 7}))
    with pytest.raises(CommitError, match="is over"):
        second.commit()


def test_a_plan_that_nobody_may_execute_is_not_waited_for(waits):
    """Nor any other service: the commit says what becomes of both."""
    _world, owner, other = waits
    owner.insert("a", "a2")
    assert owner.table.plan_clustering(**SMALL)
    begin(other, a1=7)
    assert passed(other) < 1


def test_other_places_are_not_waited_for(waits):
    _world, owner, other = waits
    begin(owner, a0=5)
    other.insert("a", "new")
    with other.table.transaction() as apart:
        insert(apart, "b", "beside")
    begin(other, "b", b0=1).commit()
    other.table.run(lambda txn: txn.delete_where([("v", ">", 100)]))
    assert passed(other) < 1


@pytest.mark.parametrize("same", [True, False])
def test_with_a_bucket_index_it_is_the_bucket(make_world, same):
    world = make_world(empty=True, bucket_count=8, early_conflict_detection="direct")
    owner, other = slow(world, "owner"), slow(world, "other")
    begin(owner, a0=1, a1=1).commit()
    first = begin(owner, a0=5)
    after(other, 5, first.commit)
    begin(other, **({"a0": 6} if same else {"a1": 6})).commit()
    assert (passed(other) >= 5) is same


def test_keys_are_not_looked_up_where_nobody_else_is_at_work(make_world, monkeypatch):
    """The log says who is open; markers are listed once for each of those, however many file groups there are."""
    world = make_world(early_conflict_detection="direct")
    owner, other = world.writer("owner"), world.writer("other")

    def calls() -> tuple[int, int]:
        other.store.calls.clear()
        begin(other, "b", b0=1).abort()
        made = [each for each in other.store.calls if each.path.startswith(MARKERS) or each.op == "open"]
        return sum(each.op == "list" for each in made), sum(each.op == "open" for each in made)

    listed, read = calls()
    idle = owner.table.transaction()
    with monkeypatch.context() as patch:
        patch.setattr(row_writes, "targets", None)  # keys are not looked up for one that has no markers
        assert calls() == (listed + 1, read)
    idle.upsert(rows("a", {"a0": 5}))
    assert calls() == (listed + 1, read)


def test_what_cannot_be_read_is_not_waited_for(waits):
    _world, owner, other = waits
    first = begin(owner, a0=5)
    second = other.table.transaction()
    other.store.add(Refuse(On("list", MARKERS)))
    second.upsert(rows("a", {"a1": 7}))
    other.store.reset()
    first.commit()
    second.commit()
    assert merges(second) == 1


# --- fail --------------------------------------------------------------------------------------------------------


def test_the_younger_one_fails_before_its_work_and_is_told_by_whom(fails):
    _world, owner, other = fails
    first = begin(owner, a0=5)
    second = other.table.transaction()
    with pytest.raises(ConflictError, match="at work on the same file groups") as lost:
        second.upsert(rows("a", {"a1": 7}))
    assert (lost.value.winner, lost.value.winner_writer) == (first.instant, "owner")
    assert lost.value.overlap[0].startswith("part=a/")
    assert not [each for each in other.table.store.names("part=a") if second.instant in each]
    assert (lost.value.saved_bytes > 0, lost.value.saved_s > 0, lost.value.early) == (True, True, True)
    second.abort()
    assert not other.table.store.list(f"{MARKERS}/{second.instant}", recursive=True)
    first.commit()


@pytest.mark.parametrize("rebase", [True, False])
@pytest.mark.parametrize("beat_age_s", [10, 3600])
def test_markers_of_a_writer_that_died_long_ago_count_for_nobody(make_world, rebase, beat_age_s):
    """A handle that has just been opened has not watched it long enough to end it (apache/hudi 12522)."""
    world = make_world(early_conflict_detection="direct", rebase=rebase)
    owner, other = slow(world, "owner"), slow(world, "other", host="host-b")
    first = begin(owner, a0=5)
    owner.die()
    second = other.table.transaction()
    now = (world.folder / HEARTBEATS / second.instant).stat().st_mtime
    os.utime(world.folder / HEARTBEATS / first.instant, (now - beat_age_s,) * 2)
    if beat_age_s < second.session.settings.heartbeat_timeout_s and not rebase:
        with pytest.raises(ConflictError, match="at work on the same file groups"):
            second.upsert(rows("a", {"a1": 7}))
        return
    second.upsert(rows("a", {"a1": 7}))
    assert (passed(other) < 1) is (beat_age_s == 3600)
    second.commit()
    assert world.content() == BEGUN | {"a1": 7}


def test_the_older_one_goes_on(fails):
    """So of two that meet one always does."""
    world, owner, other = fails
    older = owner.table.transaction()
    younger = begin(other, a1=7)
    older.upsert(rows("a", {"a0": 5}))
    older.commit()
    with pytest.raises(ConflictError, match="landed first"):
        younger.commit()
    assert world.content() == BEGUN | {"a0": 5}


def test_run_comes_back_when_the_other_one_has_ended_with_the_place_reserved(fails):
    _world, owner, other = fails
    first, seen = begin(owner, a0=5), []
    after(other, 3, first.commit)

    def work(txn) -> None:
        seen.append((txn.claim.reserved, txn.has_lock))
        txn.upsert(rows("a", {"a1": 7}))

    assert other.table.run(work, isolation="serializable").attempts == 2
    # Not under the lock from the start: that it failed at once does not say that it is short.
    assert [(reserved is not None, lock) for reserved, lock in seen] == [(False, False), (True, False)]
    assert len(seen[1][0].groups) == 1


def test_a_writer_that_fills_files_itself_can_ask(make_world):
    """It has looked at the snapshot, so it is run again, and not waited for in its place."""
    world = make_world(early_conflict_detection="direct")
    owner, other = world.writer("owner"), world.writer("other")
    first, began = begin(owner, a0=5), []
    after(other, 20, first.commit)

    def work(txn) -> None:
        began.append(txn)
        groups = txn.snapshot.file_slices("part=a")
        txn.claim_turn(groups)
        add(txn, "a")

    assert other.table.run(work).attempts == 2
    assert not began[0].staged
    assert world.content() == BEGUN | {"a0": 6, "a1": 1}


@pytest.mark.parametrize("rebase", [True, False])
def test_a_larger_priority_gives_way_to_nobody(make_world, rebase):
    world = make_world(strategy="priority", early_conflict_detection="direct", rebase=rebase)
    low, high = world.writer("low"), world.writer("high")
    high.table.session.priority = 5
    begin(low, a0=5)
    begin(high, a1=7).commit()
    assert passed(high) < 1


def test_a_mode_that_does_not_exist_is_refused(world):
    with pytest.raises(ConfigError, match=r"must be one of off, direct\n"):
        world.writer("a").table.change_settings(early_conflict_detection="soon")


@pytest.mark.parametrize("mode", ["transactional", "async"])
def test_a_mode_that_went_is_refused_and_means_direct_where_it_is_stored(world, mode):
    with pytest.raises(ConfigError, match="which is gone; set 'direct'"):
        world.writer("a").table.change_settings(early_conflict_detection=mode)
    stored = Settings.from_json(Settings().to_json() | {"early_conflict_detection": mode})
    assert stored.to_json()["early_conflict_detection"] == mode
    with world.writer("b").table.transaction() as txn:
        txn.session.log.state.settings = stored
        assert not txn.watcher.idle
        txn.allow_empty()


# --- real threads ------------------------------------------------------------------------------------------------


def test_several_that_wait_for_the_same_go_one_after_another(folder):
    """Each merges once: those that were told at the same moment that it is free are put in order by the log."""
    url = str(folder / "table")
    schema = {"record_key": "id", "partition_by": "part", "schema": SCHEMA}
    with lakelatch.create(url, **schema, early_conflict_detection="direct") as table:
        with table.transaction("insert") as txn:
            insert(txn, "a", *(f"a{n}" for n in range(8)), v=0)
        first = table.transaction()
        first.upsert(rows("a", {"a0": 1}))
        told, done = threading.Semaphore(0), []

        def write(n: int) -> None:
            with lakelatch.open(url) as handle:
                handle.session.merged_bytes_s = 1
                txn, abort = handle.transaction(), Transaction.abort
                txn.abort = lambda reason: (abort(txn, reason), told.release())
                txn.upsert(rows("a", {f"a{n}": 1}))
                txn.commit()
                done.append(merges(txn))

        threads = [threading.Thread(target=write, args=(n,)) for n in range(1, 5)]
        for each in threads:
            each.start()
        for _ in threads:
            assert told.acquire(timeout=PATIENCE_S)
        first.commit()
        for each in threads:
            each.join(timeout=120)
        assert done == [0] * 4
        assert sum(content(table).values()) == 5
