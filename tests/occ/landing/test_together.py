"""Commits that wait land together: who holds the lock commits for those who wait for it, in one entry of the log."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable, Iterable
from importlib import import_module

import pyarrow as pa
import pytest

import lakelatch
from lakelatch import sql
from lakelatch.hudi.timeline import TIMELINE
from lakelatch.occ.check.check import check
from lakelatch.occ.entries import entries as words
from lakelatch.occ.entries.entries import Commit, GroupCommit, decode
from lakelatch.occ.entries.requests import REQUEST_BYTES, REQUESTS, Request
from lakelatch.occ.history.events import follow
from lakelatch.occ.landing import together
from lakelatch.occ.landing.yielding import merge_again
from lakelatch.occ.liveness.heartbeat import HEARTBEATS
from lakelatch.occ.log.commit_log import _RECENT, Follower, Recent
from lakelatch.occ.log.epochs import LOG
from lakelatch.occ.log.publisher import Publisher
from lakelatch.occ.rebase import MergeAgain
from lakelatch.occ.session.table_lock import TableLease
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.testing.faults import LoseReply, On, Pause, Refuse

from ..world import (
    BEGUN,
    World,
    Writer,
    after,
    check_sound,
    commits,
    content,
    fate,
    independent_content,
    insert,
    overwrite,
    rows,
)


@pytest.fixture
def world(make_world) -> World:
    return make_world(group_commit=True)


def begun(writer: Writer, part: str, *ids: str, **words: object) -> Transaction:
    """A transaction that has written a file of new rows."""
    txn = writer.table.transaction("insert", **words)
    insert(txn, part, *ids)
    return txn


def at_once(calls: Iterable[Callable[[], object]], waiting: threading.Semaphore, lease: TableLease) -> None:
    """Each on a thread of its own, until all have told that they wait; then the lock is given back, and all end."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for _ in threads:
        assert waiting.acquire(timeout=60)
    lease.release()
    for thread in threads:
        thread.join(60)


def asks(txn: Transaction) -> str:
    """Its writer finds the lock busy, puts its request and is seen no more for now; returns where that lies."""
    txn.workspace.close_files()
    waiter = txn._landing._waiter
    assert waiter is not None
    waiter.begin(txn._landing.entry())
    assert waiter() is False
    return waiter._paths[-1]


def leads(
    writer: Writer, txn: Transaction, *, meanwhile: Callable[[], object] = lambda: None
) -> lakelatch.CommitResult:
    """Its writer waits for the lock, gets it, and commits."""
    lease = writer.table.session.lock.provider()
    assert lease is not None
    held = lease[0].acquire(lease[1], wait_s=1.0)
    after(writer, 0.1, lambda: (meanwhile(), held.release()))
    result = txn.commit()
    assert result is not None
    return result


def together_in(world: World) -> list[tuple[str, ...]]:
    """T of the members of each entry that holds several."""
    bodies = [p.read_bytes() for p in sorted((world.folder / LOG).rglob("*")) if p.is_file()]
    groups = (decode(body, "slot") for body in bodies)
    return [tuple(each.instant for each in group.members) for group in groups if isinstance(group, GroupCommit)]


def requests(world: World) -> list[str]:
    folder = world.folder / REQUESTS
    names = sorted(each.name for each in folder.iterdir()) if folder.exists() else []
    return [name for name in names if not name.endswith(".flushed")]


def three(world: World) -> tuple[Writer, list[Transaction]]:
    """C holds the lock and has landed with A and B, who do not know it yet."""
    a, b, c = (world.writer(name) for name in "ABC")
    txns = [begun(a, "a", "new a"), begun(b, "b", "new b"), begun(c, "a", "new c")]
    asks(txns[0])
    asks(txns[1])
    leads(c, txns[2])
    return c, txns


NEW = {"new a": 1, "new b": 1, "new c": 1}

# --- what lands --------------------------------------------------------------------------------------------------------


def test_processes_that_wait_for_the_lock_land_by_one_entry(world, monkeypatch):
    """Real threads, each with a handle of its own, behind a lock that somebody holds."""
    waiting, real = threading.Semaphore(0), together.put_request

    def put(*given):
        answer = real(*given)
        waiting.release()
        return answer

    monkeypatch.setattr(together, "put_request", put)
    names = [f"n{i}" for i in range(5)]
    tables = [lakelatch.open(str(world.folder), writer=name) for name in names]
    txns = [table.transaction("insert") for table in tables]
    for name, txn in zip(names, txns, strict=True):
        insert(txn, "a", name)
    holder = lakelatch.open(str(world.folder))
    lease, results = holder.session.lease("busy"), {}
    at_once([lambda t=txn: results.update({t.instant: t.commit()}) for txn in txns], waiting, lease)
    (members,) = together_in(world)
    assert sorted(members) == sorted(txn.instant for txn in txns)
    landed = {each.instant: each for each in commits(holder)}
    assert {t: r.completion for t, r in results.items()} == {t: landed[t].completion for t in members}
    assert requests(world) == []
    for table in (*tables, holder):
        table.close()
    with world.fresh() as table:
        assert content(table) == BEGUN | dict.fromkeys(names, 1)
        check_sound(table)


def test_threads_of_one_handle_ask_one_another_in_memory(world, monkeypatch):
    asked, sent, real = threading.Semaphore(0), [], together.put_request
    monkeypatch.setattr(together, "put_request", lambda store, path, body: (sent.append(path), real(store, path, body)))
    names = [f"n{i}" for i in range(4)]
    with lakelatch.open(str(world.folder), writer="many") as table, world.fresh() as holder:
        line = table.session.in_line
        monkeypatch.setattr(line, "ask", lambda request, ask=line.ask: (ask(request), asked.release()))
        txns = [table.transaction("insert") for _ in names]
        for name, txn in zip(names, txns, strict=True):
            insert(txn, "a", name)
        lease = holder.session.lease("busy")
        at_once([txn.commit for txn in txns], asked, lease)
        (members,) = together_in(world)
        assert sorted(members) == sorted(txn.instant for txn in txns)
        assert len(sent) == 1, "for other processes, by the one that comes to the lock first"
        assert (requests(world), line.asked(members), line.is_first("another")) == ([], [], True)
    with world.fresh() as table:
        assert content(table) == BEGUN | dict.fromkeys(names, 1)
        check_sound(table)


def test_who_comes_to_the_lock_next_asks_other_processes_too(world):
    a, c = world.writer("A"), world.writer("C")
    first, second, led = begun(a, "a", "new a"), begun(a, "b", "new b"), begun(c, "a", "new c")
    asks(first)
    assert requests(world) == [f"{first.instant}-0"]
    waiter = second._landing._waiter
    waiter.begin(second._landing.entry())
    assert waiter() is False
    assert requests(world) == [f"{first.instant}-0"], "it stands behind a thread of its own handle"
    first._landing._waiter.ends()
    assert waiter() is False
    leads(c, led)
    assert together_in(world) == [(led.instant, first.instant, second.instant)]
    for txn in (first, second):
        assert txn.commit().published


def test_a_member_hears_of_it_from_the_log(world):
    leader, txns = three(world)
    assert together_in(world) == [(txns[2].instant, txns[0].instant, txns[1].instant)]
    appended = leader.table.session.log.next_slot
    results = [txn.commit() for txn in txns[:2]]
    assert leader.table.session.log.catch_up() is not None
    assert leader.table.session.log.next_slot == appended, "they appended nothing"
    found = {each.instant: each for each in commits(leader.table)}
    for txn, result in zip(txns, [*results, txns[2].result], strict=False):
        assert result is not None
        assert (result.completion, result.slot) == (found[txn.instant].completion, appended - 1)
        assert result.published
    assert requests(world) == []
    assert independent_content(world.folder) == world.content() == BEGUN | NEW
    with world.fresh() as table:
        check_sound(table)


def test_everybody_who_reads_the_log_knows_each_member(world):
    leader, txns = three(world)
    with world.fresh() as table:
        assert content(table) == BEGUN | NEW, "also those whose writers have not published them"
        landed = [event for event in follow(table.session, after=txns[0].instant, ends=True) if event.event == "commit"]
        assert [event.instant for event in landed] == [txns[2].instant, txns[0].instant, txns[1].instant]
        assert [event.completion for event in landed] == sorted({event.completion for event in landed})
        for txn in txns:
            assert table.why(txn.instant).outcome == "landed"
            assert table.session.log.outcome(txn.instant) == "commit"
        states = [table.read(as_of_completion=event.completion).to_arrow().num_rows for event in landed]
        assert states == [5, 6, 7], "each is a state of its own"
    assert leader.table.read().to_arrow().num_rows == 7
    found = check(leader.table.store)
    assert {each.kind for each in found.findings} <= {"commit-to-publish", "heartbeat-of-ended", "markers-of-ended"}


def test_a_thread_that_reads_beside_sees_all_commits_of_an_entry_or_none(world):
    """It goes on from the slot behind what it has seen."""

    class ProgressCallback(list):
        def append(self, each):
            raise AssertionError("one by one")

        def extend(self, several):
            told.append(len(several))
            super().extend(several)

    told: list[int] = []
    reader = world.writer("reader")
    follower = reader.table.session.log.follow(Follower())
    follower.commits = ProgressCallback()
    three(world)
    assert reader.table.read().to_arrow().num_rows == 7
    assert told == [3]


def test_members_are_published_in_their_order_by_whoever_comes_next(world):
    leader, txns = three(world)
    there = {each.requested for each in leader.table.timeline().commits}
    assert [txn.instant in there for txn in txns] == [False, False, True], "each publishes its own"
    put: list[str] = []
    d = world.writer("D")
    real = Publisher._put
    try:
        Publisher._put = lambda self, commit, name, **more: (
            put.append(commit.instant) or real(self, commit, name, **more)
        )  # type: ignore[method-assign]
        d.add("a")
    finally:
        Publisher._put = real  # type: ignore[method-assign]
    assert [t for t in put if t in {txn.instant for txn in txns}][:2] == [txns[0].instant, txns[1].instant]
    for txn in txns[:2]:
        assert txn.commit() is not None
    with world.fresh() as table:
        check_sound(table)


@pytest.fixture
def far_world(make_world, monkeypatch) -> World:
    """Its store says that every request takes long."""
    for each in ("log.commit_log", "log.publisher", "session.session", "landing.requests"):
        monkeypatch.setattr(import_module(f"lakelatch.occ.{each}"), "is_far", lambda _: True)
    return make_world(group_commit=True)


def led_by(leader: Writer, world: World) -> list[Transaction]:
    """Of A and B, who are seen no more, and of the leader: these land in one entry, the leader's first."""
    a, b = world.writer("A"), world.writer("B")
    txns = [begun(leader, "a", "new c"), begun(a, "a", "new a"), begun(b, "b", "new b")]
    asks(txns[1])
    asks(txns[2])
    return txns


def shown(world: World, txns: list[Transaction]) -> list[bool]:
    names = {each.name.partition("_")[0] for each in (world.folder / TIMELINE).glob("*_*")}
    return [txn.instant in names for txn in txns]


def test_on_a_far_store_the_leader_publishes_its_members_while_the_next_one_has_the_lock(far_world):
    leader, d, on = far_world.writer("C"), far_world.writer("D"), threading.Event()
    txns = led_by(leader, far_world)
    leader.store.add(Pause(On("put_if_absent", f"timeline/{txns[1].instant}_"), lambda: on.wait(60)))
    assert leads(leader, txns[0]).published
    assert shown(far_world, txns) == [True, False, False]
    d.table.session.lease("the next one").release()
    on.set()
    leader.table.close()
    assert shown(far_world, txns) == [True, True, True]
    with far_world.fresh() as table:
        check_sound(table)


def test_no_member_is_published_before_its_leader(far_world):
    leader = far_world.writer("C")
    txns = led_by(leader, far_world)
    leader.store.add(Refuse(On("put_if_absent", f"timeline/{txns[0].instant}_"), forever=True))
    assert not leads(leader, txns[0]).published
    leader.table.close()
    assert shown(far_world, txns) == [False, False, False]
    far_world.writer("D").add("b")
    assert shown(far_world, txns) == [True, True, True]
    with far_world.fresh() as table:
        check_sound(table)


def test_a_member_publishes_those_before_it_and_none_behind(world):
    """The leader died before it could: who publishes its own alone would show a later commit first."""
    leader = world.writer("C")
    txns = led_by(leader, world)
    leader.store.add(Refuse(On("put_if_absent", f"timeline/{txns[0].instant}_"), forever=True))
    assert not leads(leader, txns[0]).published
    assert shown(world, txns) == [False, False, False]
    assert txns[1].commit().published
    assert shown(world, txns) == [True, True, False]
    assert txns[2].commit().published
    assert shown(world, txns) == [True, True, True]


# --- what a handle remembers ---------------------------------------------------------------------------------------------


def landed_at(slot: int, place: int = 0) -> Commit:
    return Commit(f"T{slot}-{place}", f"C{slot}-{place}", "commit", "INSERT", "W", 0, slot=slot, place=place)


@pytest.mark.parametrize("several", [1, 2])
def test_what_is_forgotten_is_not_told_of_as_if_nothing_had_landed(several: int):
    """One commit too many has come, and the oldest goes; if its entry has another one, that slot is not known whole."""
    landed = [landed_at(number // several, number % several) for number in range(_RECENT + 1)]
    recent = Recent()
    recent.begin_at(0)
    for each in landed[:-1]:
        recent.add(each)
    assert recent.since(0) == landed[:-1]
    recent.add(landed[-1])
    assert recent.since(0) is None
    assert recent.since(1) == landed[several:]


def test_a_dead_members_commit_lands_whole(world):
    a, b = world.writer("A"), world.writer("B")
    dead, living = begun(a, "a", "of the dead"), begun(b, "b", "of the living")
    asks(dead)
    a.die()
    leads(b, living)
    b.table.rollback_failed_writes()
    assert world.content() == BEGUN | {"of the dead": 1, "of the living": 1}
    assert fate(b.table, dead.instant) == ["begin", "commit"]
    with world.fresh() as table:
        check_sound(table)
    assert requests(world) == []


def test_one_that_was_rolled_back_is_not_taken(world):
    a, b = world.writer("A"), world.writer("B")
    dead = begun(a, "a", "of the dead")
    asks(dead)
    path = world.folder / REQUESTS
    stale = {each.name: each.read_bytes() for each in path.iterdir()}
    a.die()
    b.table.rollback_failed_writes()
    assert requests(world) == []
    path.mkdir()
    for name, body in stale.items():  # it was only slow
        (path / name).write_bytes(body)
    leads(b, begun(b, "b", "of the living"))
    assert together_in(world) == []
    assert world.content() == BEGUN | {"of the living": 1}
    with pytest.raises(lakelatch.RolledBackError):
        dead.commit()


def test_a_cleaning_removes_requests_where_commits_do_not_land_together_any_more(world):
    a, b = world.writer("A"), world.writer("B")
    asks(begun(a, "a", "of the dead"))
    open_still = begun(b, "b", "of the living")
    asks(open_still)
    b.table.change_settings(group_commit=False)
    a.die()
    b.table.rollback_failed_writes()
    assert requests(world) == [f"{open_still.instant}-0"]


# --- who is left out ---------------------------------------------------------------------------------------------------


def test_one_that_overlaps_with_the_leader_is_left_out_and_merges_again(world):
    a, b = world.writer("A"), world.writer("B")
    txn = a.begin_add("a", 10)
    asks(txn)
    leads(b, b.begin_add("a", 100))
    assert together_in(world) == []
    with pytest.raises(lakelatch.ConflictError, match="both changed the same file group"):
        txn.commit()
    c = world.writer("C")
    merges = c.table.transaction("upsert")
    merges.upsert(rows("a", {"a0": 7}))
    asks(merges)
    other = b.table.transaction("upsert")
    other.upsert(rows("a", {"a1": 1000}))
    leads(b, other)
    assert together_in(world) == [], "anyone who has to merge again sees to it"
    assert merges.commit() is not None
    assert world.content()["a0"] == 7
    assert world.content()["a1"] == 1000
    with world.fresh() as table:
        check_sound(table)


def test_one_that_overlaps_with_a_member_before_it_is_left_out(world):
    a, b, c = (world.writer(name) for name in "ABC")
    first, second = a.begin_add("a", 10), b.begin_add("a", 100)
    asks(first)
    asks(second)
    leads(c, begun(c, "b", "c"))
    ((_, member),) = together_in(world)
    assert member == first.instant
    assert first.commit() is not None
    with pytest.raises(lakelatch.ConflictError) as told:
        second.commit()
    assert told.value.winner == first.instant
    assert world.content() == BEGUN | {"c": 1, "a0": 10, "a1": 10}


@pytest.mark.parametrize("value", [6, 7])
def test_values_of_a_round_are_compared_with_those_of_the_other_members(make_world, value):
    """What a rebase has computed is in the request, and the leader's own values are behind the state of the round."""
    world = make_world(empty=True, group_commit=True, unique_constraints=["v"])
    a, b, c = (world.writer(name) for name in "ABC")
    a.table.insert(rows("a", {"a0": 1, "a1": 2}))
    ours, theirs = a.table.transaction("upsert"), c.table.transaction("insert")
    ours.merge(rows("a", {"a0": 0})).when_matched(update={"v": sql("t.v + 2")}).run()
    b.table.upsert(rows("a", {"a0": 4}))
    with pytest.raises(MergeAgain) as lost:
        ours._landing._land()
    merge_again(ours._attempt, ours.workspace, lost.value)
    asks(ours)
    insert(theirs, "b", "b0", v=value)
    leads(c, theirs)
    if value == 6:
        assert together_in(world) == []
        with pytest.raises(lakelatch.ConflictError, match=r"what is unique \(v\)"):
            ours.commit()
    else:
        assert together_in(world) == [(theirs.instant, ours.instant)]
        assert ours.commit() is not None
    assert world.content() == {"a0": 4 if value == 6 else 6, "a1": 2, "b0": value}


def test_a_member_is_judged_by_its_own_isolation_level_and_from_its_own_slot(world):
    """The leader began later and asks for less."""
    a, b, c = (world.writer(name) for name in "ABC")
    reader = a.table.transaction("insert", isolation="serializable")
    reader.mark_scanned("part=b")
    insert(reader, "a", "a says what was in b")
    b.insert("b", "b9")
    asks(reader)
    leads(c, begun(c, "b", "c"))
    assert together_in(world) == []
    with pytest.raises(lakelatch.ConflictError, match="isolation serializable"):
        reader.commit()


def test_two_that_overwrite_one_empty_partition_do_not_land_together(world):
    a, b, c = (world.writer(name) for name in "ABC")
    txns = [writer.table.transaction("insert_overwrite") for writer in (a, b)]
    for number, txn in enumerate(txns):
        overwrite(txn, "c", f"c{number}")
        asks(txn)
    leads(c, begun(c, "b", "c"))
    ((_, member),) = together_in(world)
    assert member == txns[0].instant
    with pytest.raises(lakelatch.ConflictError, match="overwrites"):
        txns[1].commit()


def test_a_batch_lands_once_in_an_entry(world):
    a, b, c = (world.writer(name) for name in "ABC")
    txns = [begun(writer, "a", name, batch=("load", 7)) for writer, name in ((a, "x"), (b, "y"))]
    for txn in txns:
        asks(txn)
    leads(c, begun(c, "b", "c"))
    ((_, member),) = together_in(world)
    assert member == txns[0].instant
    with pytest.raises(lakelatch.BatchLandedError):
        txns[1].commit()


def test_two_that_add_a_column_each_do_not_land_together(world):
    a, b, c = (world.writer(name) for name in "ABC")
    txns = []
    for writer, name in ((a, "width"), (b, "height")):
        txn = writer.table.transaction("insert")
        txn.new_file("part=a").write(rows("a", {name: 1}).append_column(name, pa.array([1])))
        asks(txn)
        txns.append(txn)
    leads(c, begun(c, "b", "c"))
    ((_, member),) = together_in(world)
    assert member == txns[0].instant
    assert txns[0].commit() is not None
    with pytest.raises(lakelatch.ConflictError, match="schema"):
        txns[1].commit()
    with world.fresh() as table:
        assert table.schema().names[-1] == "width"
        check_sound(table)


@pytest.mark.parametrize("when", ["before it asks", "after it has asked"])
def test_nobody_commits_for_one_since_whose_begin_the_settings_have_changed(world, when):
    a, b = world.writer("A"), world.writer("B")
    txn = begun(a, "a", "new")
    if when == "after it has asked":
        asks(txn)
    b.table.change_settings(isolation="serializable")
    b.table.change_settings(isolation="snapshot")
    if when == "before it asks":
        asks(txn)
    leads(b, begun(b, "b", "other"))
    assert together_in(world) == []
    assert txn.commit() is not None


def test_nobody_commits_for_one_that_began_before_what_is_remembered(world):
    a = world.writer("A")
    txn = begun(a, "a", "new")
    late = world.writer("late")  # which reads the log from its beginning, and this epoch is whole
    asks(txn)
    late.table.session.log.recent.begin_at(txn.begin_slot + 1)
    leads(late, begun(late, "b", "other"))
    assert together_in(world) == []
    assert txn.commit() is not None


# --- requests are hints ------------------------------------------------------------------------------------------------


def forged(body: bytes, **changed: object) -> bytes:
    raw = json.loads(body.partition(b"\n")[2]) | changed
    text = json.dumps(raw).encode()
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def _commit(body: bytes, **changed: object) -> bytes:
    raw = json.loads(body.partition(b"\n")[2])
    return forged(body, commit=raw["commit"] | changed)


@pytest.mark.parametrize(
    "harm",
    [
        lambda body: b"",
        lambda body: body[:-1],
        lambda body: body[:30] + b"x" + body[31:],
        lambda body: b"x" * (REQUEST_BYTES + 1),
        lambda body: forged(body, v=2),
        lambda body: forged(body, T="20200101000000000"),
        lambda body: forged(body, base=0),
        lambda body: forged(body, base=True),
        lambda body: forged(body, reads=None),
        lambda body: forged(body, isolation="none"),
        lambda body: forged(body, began=7),
        lambda body: forged(body, commit=[]),
        lambda body: _commit(body, action="restore"),
        lambda body: _commit(body, op="DELETE"),
        lambda body: _commit(body, op="COMPACT"),
        lambda body: _commit(body, writer="somebody else"),
        lambda body: _commit(body, undone=["20200101000000000_20200101000000001.commit"]),
        lambda body: _commit(body, metadata={"stats": [{"path": "../../etc/passwd", "partition": "", "file_id": "x"}]}),
        lambda body: _commit(body, region={"partitions": ["\ud800"], "whole_table": False}),
        lambda body: forged(body, began="\ud800"),
        lambda body: _commit(body, metadata=None, side={"path": ".hoodie/.lakelatch/sides/none", "sha256": "0"}),
        lambda body: _commit(body, batch=["x", -1]),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_changes_nothing(world, harm):
    a, b = world.writer("A"), world.writer("B")
    txn = begun(a, "a", "new")
    path = world.folder / asks(txn)
    path.write_bytes(harm(path.read_bytes()))
    (path.parent / "README").write_bytes(b"not ours")
    (path.parent / f"{txn.instant}-x").write_bytes(b"not ours")
    leads(b, begun(b, "b", "other"))
    assert together_in(world) == []
    assert txn.commit() is not None
    assert world.content() == BEGUN | {"new": 1, "other": 1}


def test_a_doubled_request_lands_once(world):
    a, b = world.writer("A"), world.writer("B")
    txn = begun(a, "a", "new")
    asks(txn)
    asks(txn)
    assert len(requests(world)) == 2
    leads(b, begun(b, "b", "other"))
    ((_, member),) = together_in(world)
    assert member == txn.instant
    assert txn.commit() is not None
    assert requests(world) == []


def test_a_leader_commits_alone_when_requests_cannot_be_read(world):
    a, b = world.writer("A"), world.writer("B")
    txn = begun(a, "a", "new")
    asks(txn)
    b.store.add(Refuse(On("list", "requests")))
    leads(b, begun(b, "b", "other"))
    b.store.reset()
    assert together_in(world) == []
    assert txn.commit() is not None


def test_a_request_has_no_limit_but_its_size(world):
    a, b = world.writer("A"), world.writer("B")
    txn = a.table.transaction("insert")
    for number in range(3):
        insert(txn, "a", f"n{number}")
    txn.depends_on("part=a")
    asks(txn)
    (name,) = requests(world)
    body = (world.folder / REQUESTS / name).read_bytes()
    read = Request.from_bytes(body)
    assert read is not None
    assert read.to_bytes() == body
    leads(b, begun(b, "b", "other"))
    assert len(together_in(world)) == 1


# --- a member that gives up --------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(make_world) -> World:
    """Who waits has given up before the holder's lease ends."""
    return make_world(group_commit=True, lock_wait_s=5.0)


def waits_and(world: World, a: Writer, txn: Transaction, at: float, call: Callable[[], object]):
    """A waits for a lock that somebody holds for ever, and meanwhile something happens."""
    holder = world.writer("holder", host="host-h")
    lease = holder.table.session.lease("busy")
    after(a, at, call)
    try:
        return txn.commit()
    finally:
        lease.release()


def landed_by(other: Writer, txn: Transaction) -> Callable[[], object]:
    """Another writer lands it whose lease nobody respects."""

    def land() -> None:
        own = begun(other, "b", "of the leader")
        other.table.session._lock.lease = lambda *_, **__: _free(other)  # type: ignore[method-assign]
        own._landing._waiter.begin = lambda _: setattr(own._landing._waiter, "waited", True)  # type: ignore[union-attr,method-assign]
        assert own.commit() is not None
        assert (own.instant, txn.instant) in together_in_of(other)

    return land


def _free(writer: Writer):
    lease = writer.table.session._lock.free()
    assert lease is not None
    return lease


def together_in_of(writer: Writer) -> list[tuple[str, ...]]:
    found: dict[int, list[str]] = {}
    for each in commits(writer.table):
        found.setdefault(each.slot, []).append(each.instant)
    return [tuple(each) for each in found.values() if len(each) > 1]


@pytest.mark.parametrize("patience", ["it looks", "its time is over"])
def test_who_waits_for_a_lock_that_never_comes_lands_by_others(impatient, patience, monkeypatch):
    a, b = impatient.writer("A"), impatient.writer("B")
    txn = begun(a, "a", "new")
    if patience == "its time is over":
        monkeypatch.setattr(together.GroupCommitFollower, "__call__", _never_looks)
    result = waits_and(impatient, a, txn, 1.0, landed_by(b, txn))
    assert result is not None
    assert result.published
    assert impatient.content() == BEGUN | {"new": 1, "of the leader": 1}
    with impatient.fresh() as table:
        check_sound(table)


def _never_looks(self: together.GroupCommitFollower) -> bool:
    if not self.waited:
        self.waited = True
        self._ask()
    return False


def test_who_is_rolled_back_while_it_waits_hears_that_and_not_that_the_lock_was_busy(impatient):
    a, b = impatient.writer("A"), impatient.writer("B")
    txn = begun(a, "a", "new")

    def rolled_back() -> None:
        begin = b.table.session.log.catch_up().open[txn.instant]
        assert b.table.session.cleaner.roll_back(begin, reason="it was silent")

    began = a.env.monotonic()
    with pytest.raises(lakelatch.RolledBackError, match="Nothing of it landed"):
        waits_and(impatient, a, txn, 1.0, rolled_back)
    assert a.env.monotonic() < began + 4.0, "it waits no longer"
    assert impatient.content() == BEGUN


def test_who_gives_up_waiting_ends_by_its_own_abort_entry_and_nobody_takes_it_any_more(impatient):
    a, b = impatient.writer("A"), impatient.writer("B")
    txn = begun(a, "a", "new")
    with pytest.raises(lakelatch.LockTimeoutError):
        waits_and(impatient, a, txn, 1.0, lambda: None)
    assert fate(b.table, txn.instant) == ["begin", "abort"]
    assert requests(impatient) == []
    leads(b, begun(b, "b", "other"))
    assert impatient.content() == BEGUN | {"other": 1}


def test_who_is_interrupted_hears_that_it_has_landed_all_the_same(impatient, monkeypatch):
    a, b = impatient.writer("A"), impatient.writer("B")
    txn = begun(a, "a", "new")
    monkeypatch.setattr(together.GroupCommitFollower, "__call__", _never_looks)

    def interrupted() -> None:
        landed_by(b, txn)()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as told:
        waits_and(impatient, a, txn, 1.0, interrupted)
    assert "has landed all the same" in told.value.__notes__[0]
    assert impatient.content() == BEGUN | {"new": 1, "of the leader": 1}


def test_who_cannot_write_its_abort_entry_says_that_it_may_still_land(impatient):
    """Else its writer would run it again, and its rows would stand twice."""
    a, b = impatient.writer("A"), impatient.writer("B")
    txn = begun(a, "a", "new")
    with pytest.raises(lakelatch.CommitStateUnknownError, match="may still land"):
        waits_and(impatient, a, txn, 1.0, lambda: a.store.add(Refuse(On("put_if_absent", "/log/"), forever=True)))
    a.store.reset()
    assert impatient.content() == BEGUN
    leads(b, begun(b, "b", "other"))
    assert impatient.content() == BEGUN | {"new": 1, "other": 1}
    with impatient.fresh() as table:
        check_sound(table)


@pytest.mark.parametrize("noted", [True, False])
def test_a_member_is_told_when_the_entry_is_on_disk(make_world, noted):
    """Its leader may still be flushing it when it can be seen, or the flush may have failed."""
    world = make_world(group_commit=True)
    a, b = world.writer("A"), world.writer("B")
    txn = begun(a, "a", "new")
    asks(txn)
    leads(b, begun(b, "b", "other"))
    if not noted:  # the leader has died before it could say so
        (note,) = (world.folder / REQUESTS).glob("*.flushed")
        note.unlink()
    a.store.calls.clear()
    assert txn.commit() is not None
    assert [call.path.rpartition("/")[2] for call in a.store.calls if call.op == "secure"] == (
        [] if noted else [f"{b.table.session.log.next_slot - 1:020d}"]
    )


# --- doubt, epochs, versions -------------------------------------------------------------------------------------------


def test_a_leader_in_doubt_repeats_the_same_entry(world):
    a, b = world.writer("A"), world.writer("B")
    txn = begun(a, "a", "new")
    asks(txn)
    own = begun(b, "b", "other")
    leads(b, own, meanwhile=lambda: b.store.add(LoseReply(On("put_if_absent", "/log/"))))
    b.store.reset()
    assert together_in(world) == [(own.instant, txn.instant)]
    assert txn.commit() is not None
    with world.fresh() as table:
        check_sound(table)


def test_an_epoch_that_ends_with_several_commits_is_carried_on(make_world):
    world = make_world(group_commit=True)
    leader, txns = three(world)
    leader.table.session.log.close_epoch()
    for txn in txns[:2]:
        assert txn.commit() is not None, "its epoch is over"
    d = world.writer("D")
    d.add("a")
    d.table.session.log.close_epoch()
    d.add("b")
    assert world.content() == {each: value + 1 for each, value in (BEGUN | NEW).items()}
    with world.fresh() as table:
        check_sound(table)
        for txn in txns:
            assert table.session.log.outcome(txn.instant) == "commit"


def test_a_log_is_rebuilt_behind_several_commits(world):
    _, txns = three(world)
    newest = max((world.folder / LOG).rglob("0000*0*[0-9]"))
    (newest.parent / f"{int(newest.name) + 1:020d}").write_bytes(b"torn")
    for beat in (world.folder / HEARTBEATS).iterdir():
        beat.unlink()
    lakelatch.adopt(str(world.folder), env=world.env.peer()).close()
    assert world.content() == BEGUN | NEW
    assert independent_content(world.folder) == BEGUN | NEW
    assert len({txn.instant for txn in txns}) == 3


def test_several_commits_of_one_entry_are_taken_back_one_by_one(world):
    leader, txns = three(world)
    for txn in txns[:2]:
        txn.commit()
    saved = commits(leader.table)[-3]
    leader.table.savepoint(saved.instant)
    leader.table.restore(saved.instant)
    assert world.content() == BEGUN | {"new c": 1}
    assert [leader.table.session.log.outcome(txn.instant) for txn in txns] == ["undone", "undone", "commit"]
    with world.fresh() as table:
        check_sound(table)


def test_several_commits_of_one_entry_are_archived(world):
    leader, txns = three(world)
    for txn in txns[:2]:
        txn.commit()
    for _ in range(4):
        leader.add("a")
    leader.table.archive(keep_min=2, keep_max=3)
    leader.table.session.log.close_epoch()
    with world.fresh() as table:
        assert content(table) == BEGUN | {"new b": 1, "new a": 5, "new c": 5, "a0": 4, "a1": 4}
        for txn in txns:
            assert table.session.landed(txn.instant) is not None
        check_sound(table)


def test_an_earlier_version_stops_at_such_an_entry(world, monkeypatch):
    three(world)
    monkeypatch.delitem(words._DECODERS, "commits")
    with pytest.raises(lakelatch.UnsupportedTableError, match="newer version"):
        world.fresh()


# --- what it costs who is alone ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("on", [False, True])
def test_who_is_alone_asks_nobody_and_looks_for_nobody(make_world, on):
    calls = []
    for setting in (False, on):
        world = make_world(group_commit=setting)
        a = world.writer("A")
        a.add("a")
        a.store.calls.clear()
        a.add("a")
        calls.append([(call.op, len(call.path)) for call in a.store.calls])
    assert calls[0] == calls[1]


def test_where_it_is_off_or_jvm_writers_share_the_lock_nobody_asks(make_world, tmp_path):
    for settings in ({"group_commit": False}, {"group_commit": True, "lock": f"file://{tmp_path}/locks?jvm=lock"}):
        try:
            world = make_world(**settings)
        except lakelatch.ConfigError as e:
            pytest.fail(str(e))
        a = world.writer("A")
        txn = begun(a, "a", "new")
        leads(a, txn)
        assert requests(world) == []
