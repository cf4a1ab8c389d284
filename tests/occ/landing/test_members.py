"""Members of one entry: whom a coordinator takes, how each is judged, and what everybody reads of several commits in a slot."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

import lakelatch
from lakelatch import sql
from lakelatch.hudi.timeline import TIMELINE
from lakelatch.occ.check.check import check
from lakelatch.occ.coordination import Question
from lakelatch.occ.entries import entries as words
from lakelatch.occ.entries.entries import Commit
from lakelatch.occ.entries.requests import REQUEST_BYTES, Request
from lakelatch.occ.history.events import follow
from lakelatch.occ.landing.yielding import merge_again
from lakelatch.occ.liveness.heartbeat import HEARTBEATS
from lakelatch.occ.log.commit_log import _RECENT, _RECENT_FILES, Follower, Recent, RecentFiles
from lakelatch.occ.log.epochs import LOG
from lakelatch.occ.log.publisher import Publisher
from lakelatch.occ.rebase import MergeAgain
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.testing.faults import LoseReply, On, Refuse

from ..coordinated import Direct, begun, question, together_in
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
def asked(world: World) -> Direct:
    return Direct(world.writer("leader"))


def three(world: World, asked: Direct) -> tuple[Writer, list[Transaction]]:
    """A, B and C have landed by one entry, and do not know it yet."""
    writers = [world.writer(name) for name in "ABC"]
    parts = [("a", "new a"), ("b", "new b"), ("a", "new c")]
    txns = [begun(writer, part, key) for writer, (part, key) in zip(writers, parts, strict=True)]
    asked.commit(*map(question, txns))
    assert together_in(world) == [tuple(txn.instant for txn in txns)]
    return writers[2], txns


NEW = {"new a": 1, "new b": 1, "new c": 1}


def unpublished(world: World, asked: Direct, first: int = 0) -> list[Transaction]:
    """The same, and the coordinator dies before it has published one of them."""
    txns = [begun(world.writer(name), "a", f"new {name.lower()}") for name in "ABC"]
    asked.leader.store.add(Refuse(On("put_if_absent", f"timeline/{txns[first].instant}_"), forever=True))
    answers = asked.commit(*map(question, txns))
    assert [each is not None and each.published for each in answers] == [n < first for n in range(3)]
    return txns


def shown(world: World, txns: list[Transaction]) -> list[bool]:
    names = {each.name.partition("_")[0] for each in (world.folder / TIMELINE).glob("*_*")}
    return [txn.instant in names for txn in txns]


# --- what everybody reads ------------------------------------------------------------------------------------------------


def test_a_member_hears_of_it_from_the_log(world, asked):
    _, txns = three(world, asked)
    results = [txn.commit() for txn in txns]
    found = {each.instant: each for each in commits(asked.leader.table)}
    for place, (txn, result) in enumerate(zip(txns, results, strict=True)):
        landed = found[txn.instant]
        assert result is not None
        assert (result.completion, result.slot, landed.place) == (landed.completion, landed.slot, place)
        assert result.published
    assert independent_content(world.folder) == world.content() == BEGUN | NEW
    with world.fresh() as table:
        check_sound(table)


def test_everybody_who_reads_the_log_knows_each_member(world, asked):
    txns = unpublished(world, asked)
    with world.fresh() as table:
        assert content(table) == BEGUN | NEW, "also those that are not on the timeline"
        landed = [event for event in follow(table.session, after=txns[0].instant, ends=True) if event.event == "commit"]
        assert [event.instant for event in landed] == [txn.instant for txn in txns]
        assert [event.completion for event in landed] == sorted({event.completion for event in landed})
        for txn in txns:
            assert table.why(txn.instant).outcome == "landed"
            assert table.session.log.outcome(txn.instant) == "commit"
        states = [table.read(as_of_completion=event.completion).to_arrow().num_rows for event in landed]
        assert states == [5, 6, 7], "each is a state of its own"
        found = check(table.store)
    assert {each.kind for each in found.findings} <= {"commit-to-publish", "heartbeat-of-ended", "markers-of-ended"}


def test_a_thread_that_reads_beside_sees_all_commits_of_an_entry_or_none(world, asked):
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
    three(world, asked)
    assert reader.table.read().to_arrow().num_rows == 7
    assert told == [3]


@pytest.mark.parametrize("first", [0, 1])
def test_members_are_published_in_their_order_by_whoever_comes_next(world, asked, first, breaks):
    txns = unpublished(world, asked, first)
    assert shown(world, txns) == [n < first for n in range(3)], "none behind one that is missing"
    put: list[str] = []
    real = Publisher._put
    breaks(
        Publisher,
        "_put",
        lambda self, commit, name, **more: put.append(commit.instant) or real(self, commit, name, **more),
    )
    world.writer("D").add("a")
    assert [t for t in put if t in {txn.instant for txn in txns}] == [txn.instant for txn in txns[first:]]
    for txn in txns:
        assert txn.commit() is not None
    with world.fresh() as table:
        check_sound(table)


def test_a_member_publishes_those_before_it_and_none_behind(world, asked):
    """The coordinator died before it could: a writer that publishes its own alone would show a later commit first."""
    txns = unpublished(world, asked)
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


def test_the_files_of_commits_without_any_are_forgotten_too():
    recent = RecentFiles()
    for number in range(_RECENT_FILES + 10):
        recent.add(replace(landed_at(number), metadata={}))
    assert recent.of("T0-0", "C0-0") is None
    assert recent.of(f"T{number}-0", f"C{number}-0") is not None
    assert len(recent._kept) == _RECENT_FILES


def test_a_dead_members_commit_lands_whole(world, asked):
    a, b = world.writer("A"), world.writer("B")
    dead = begun(a, "a", "of the dead")
    wanted = question(dead)
    a.die()
    asked.commit(wanted)
    b.table.rollback_failed_writes()
    assert world.content() == BEGUN | {"of the dead": 1}
    assert fate(b.table, dead.instant) == ["begin", "commit"]
    with world.fresh() as table:
        check_sound(table)


def test_one_that_was_rolled_back_is_not_taken(world, asked):
    a, b = world.writer("A"), world.writer("B")
    dead = begun(a, "a", "of the dead")
    wanted = question(dead)
    a.die()
    b.table.rollback_failed_writes()
    asked.commit(wanted, question(begun(b, "b", "of the living")))  # it was only slow
    assert world.content() == BEGUN | {"of the living": 1}
    with pytest.raises(lakelatch.RolledBackError):
        dead.commit()


# --- who is left out ---------------------------------------------------------------------------------------------------


def test_one_that_must_merge_again_is_left_to_its_writer(world, asked):
    a, b = world.writer("A"), world.writer("B")
    ours, other = a.table.transaction("upsert"), b.table.transaction("upsert")
    ours.upsert(rows("a", {"a0": 7}))
    other.upsert(rows("a", {"a1": 1000}))
    asked.commit(*map(question, (other, ours)))
    assert fate(a.table, ours.instant) == ["begin"]
    assert ours.commit() is not None
    assert other.commit() is not None
    assert world.content()["a0"] == 7
    assert world.content()["a1"] == 1000
    with world.fresh() as table:
        check_sound(table)


def test_one_that_overlaps_with_a_member_before_it_is_left_out(world, asked):
    a, b = world.writer("A"), world.writer("B")
    first, second = a.begin_add("a", 10), b.begin_add("a", 100)
    asked.commit(*map(question, (first, second)))
    assert first.commit() is not None
    with pytest.raises(lakelatch.ConflictError) as told:
        second.commit()
    assert told.value.winner == first.instant
    assert world.content() == BEGUN | {"a0": 10, "a1": 10}


@pytest.mark.parametrize("value", [6, 7])
def test_values_of_a_round_are_compared_with_those_of_the_other_members(make_world, value):
    """What a rebase has computed is in the request, and the other member's values are behind the state of the round."""
    world = make_world(empty=True, unique_constraints=["v"])
    asked = Direct(world.writer("leader"))
    a, b, c = (world.writer(name) for name in "ABC")
    a.table.insert(rows("a", {"a0": 1, "a1": 2}))
    ours, theirs = a.table.transaction("upsert"), c.table.transaction("insert")
    ours.merge(rows("a", {"a0": 0})).when_matched(update={"v": sql("t.v + 2")}).run()
    b.table.upsert(rows("a", {"a0": 4}))
    with pytest.raises(MergeAgain) as lost:
        ours._landing._land()
    merge_again(ours._attempt, ours.workspace, lost.value)
    insert(theirs, "b", "b0", v=value)
    asked.commit(*map(question, (theirs, ours)))
    if value == 6:
        assert together_in(world) == []
        with pytest.raises(lakelatch.ConflictError, match=r"what is unique \(v\)"):
            ours.commit()
    else:
        assert together_in(world) == [(theirs.instant, ours.instant)]
        assert ours.commit() is not None
    assert theirs.commit() is not None
    assert world.content() == {"a0": 4 if value == 6 else 6, "a1": 2, "b0": value}


def test_a_member_is_judged_by_its_own_isolation_level_and_from_its_own_slot(world, asked):
    """The member before it began later and asks for less."""
    a, b, c = (world.writer(name) for name in "ABC")
    reader = a.table.transaction("insert", isolation="serializable")
    reader.mark_scanned("part=b")
    insert(reader, "a", "a says what was in b")
    b.insert("b", "b9")
    asked.commit(*map(question, (begun(c, "b", "c"), reader)))
    assert together_in(world) == []
    with pytest.raises(lakelatch.ConflictError, match="isolation serializable"):
        reader.commit()


def test_two_that_overwrite_one_empty_partition_do_not_land_together(world, asked):
    txns = [world.writer(name).table.transaction("insert_overwrite") for name in "AB"]
    for number, txn in enumerate(txns):
        overwrite(txn, "c", f"c{number}")
    asked.commit(*map(question, txns))
    assert [fate(asked.leader.table, txn.instant)[1:] for txn in txns] == [["commit"], []]
    with pytest.raises(lakelatch.ConflictError, match="overwrites"):
        txns[1].commit()


def test_a_batch_lands_once_in_an_entry(world, asked):
    txns = [begun(world.writer(name), "a", name, batch=("load", 7)) for name in "xy"]
    asked.commit(*map(question, txns))
    assert [fate(asked.leader.table, txn.instant)[1:] for txn in txns] == [["commit"], []]
    with pytest.raises(lakelatch.BatchLandedError):
        txns[1].commit()


def test_of_two_batches_that_follow_the_same_one_a_coordinator_takes_one(world, asked):
    begun(world.writer("w"), "a", "w", batch=("load", 7)).commit()
    txns = [begun(world.writer(name), "a", name, batch=("load", n, 7)) for name, n in (("x", 9), ("y", 12), ("z", 8))]
    asked.commit(*map(question, txns))
    assert [fate(asked.leader.table, txn.instant)[1:] for txn in txns] == [["commit"], [], []]
    with pytest.raises(lakelatch.BatchConflictError, match="follows 7, and the newest is 9"):
        txns[1].commit()
    with pytest.raises(lakelatch.BatchLandedError):
        txns[2].commit()


def test_two_that_add_a_column_each_do_not_land_together(world, asked):
    txns = []
    for writer, name in (("A", "width"), ("B", "height")):
        txn = world.writer(writer).table.transaction("insert")
        txn.new_file("part=a").write(rows("a", {name: 1}).append_column(name, pa.array([1])))
        txns.append(txn)
    asked.commit(*map(question, txns))
    assert txns[0].commit() is not None
    with pytest.raises(lakelatch.ConflictError, match="schema"):
        txns[1].commit()
    with world.fresh() as table:
        assert table.schema().names[-1] == "width"
        check_sound(table)


@pytest.mark.parametrize("when", ["before it asks", "after it has asked"])
def test_nobody_commits_for_one_since_whose_begin_the_settings_have_changed(world, asked, when):
    a, b = world.writer("A"), world.writer("B")
    txn = begun(a, "a", "new")
    wanted = question(txn)
    b.table.change_settings(isolation="serializable")
    b.table.change_settings(isolation="snapshot")
    asked.commit(wanted if when == "after it has asked" else question(txn))
    assert fate(b.table, txn.instant) == ["begin"]
    assert txn.commit() is not None


def test_nobody_commits_for_one_that_began_before_what_is_remembered(world, asked):
    txn = begun(world.writer("A"), "a", "new")
    log = asked.leader.table.session.log
    log.catch_up()
    log.recent.begin_at(txn.begin_slot + 1)
    asked.commit(question(txn))
    assert fate(asked.leader.table, txn.instant) == ["begin"]
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
        lambda body: forged(body, v=99),
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
def test_a_request_that_cannot_be_changes_nothing(world, asked, harm):
    a, b = world.writer("A"), world.writer("B")
    txn = begun(a, "a", "new")
    wanted = question(txn)
    told = wanted.to_bytes()
    head, request = told.split(b"\n", 1)
    spoilt = Question.from_bytes(head + b"\n" + harm(request))
    if spoilt is not None:
        asked.commit(spoilt, question(begun(b, "b", "other")))
        assert fate(b.table, txn.instant) == ["begin"]
    assert txn.commit() is not None
    assert world.content() == BEGUN | {"new": 1} | ({"other": 1} if spoilt is not None else {})


def test_a_doubled_request_lands_once(world, asked):
    txn = begun(world.writer("A"), "a", "new")
    wanted = question(txn)
    asked.commit(wanted, wanted)
    asked.commit(wanted)
    assert fate(asked.leader.table, txn.instant) == ["begin", "commit"]
    assert txn.commit() is not None


def test_a_request_has_no_limit_but_its_size(world):
    txn = world.writer("A").table.transaction("insert")
    for number in range(3):
        insert(txn, "a", f"n{number}")
    txn.depends_on("part=a")
    body = question(txn).wanted.to_bytes()
    read = Request.from_bytes(body)
    assert read is not None
    assert read.to_bytes() == body
    assert Request.from_bytes(body + b" " * REQUEST_BYTES) is None


# --- a member that hears nothing ---------------------------------------------------------------------------------------


@pytest.fixture
def impatient(make_world) -> World:
    """Who waits has given up before the holder's lease ends."""
    return make_world(lock_wait_s=5.0)


@pytest.fixture
def deaf(impatient: World) -> Direct:
    return Direct(impatient.writer("leader"))


def waits_and(world: World, a: Writer, txn: Transaction, call: Callable[[], object]):
    """A has asked and heard nothing, and waits for a lock that somebody holds for ever; meanwhile something happens."""
    holder = world.writer("holder", host="host-h")
    lease = holder.table.session.lease("busy")
    after(a, 1.0, call)
    try:
        return txn.commit()
    finally:
        lease.release()


def landed_by(asked: Direct, *wanted: Question) -> Callable[[], object]:
    """The coordinator lands it, whose lease nobody respects."""

    def land() -> None:
        lock = asked.leader.table.session._lock
        lock.lease = lambda *_, **__: lock.free()  # type: ignore[method-assign]
        asked.commit(*wanted)

    return land


def test_who_waits_for_a_lock_that_never_comes_has_landed_by_its_coordinator(impatient, deaf):
    a = impatient.writer("A")
    txn = begun(a, "a", "new")
    result = waits_and(impatient, a, txn, landed_by(deaf, question(txn)))
    assert result is not None
    assert result.published
    assert impatient.content() == BEGUN | {"new": 1}
    with impatient.fresh() as table:
        check_sound(table)


def test_who_is_rolled_back_while_it_waits_hears_that_and_not_that_the_lock_was_busy(impatient):
    a, b = impatient.writer("A"), impatient.writer("B")
    txn = begun(a, "a", "new")
    question(txn)

    def rolled_back() -> None:
        begin = b.table.session.log.catch_up().open[txn.instant]
        assert b.table.session.cleaner.roll_back(begin, reason="it was silent")

    with pytest.raises(lakelatch.RolledBackError, match="Nothing of it landed"):
        waits_and(impatient, a, txn, rolled_back)
    assert impatient.content() == BEGUN


def test_who_gives_up_waiting_ends_by_its_own_abort_entry_and_nobody_takes_it_any_more(impatient, deaf):
    a = impatient.writer("A")
    txn = begun(a, "a", "new")
    wanted = question(txn)
    with pytest.raises(lakelatch.LockTimeoutError):
        waits_and(impatient, a, txn, lambda: None)
    deaf.commit(wanted)
    assert fate(deaf.leader.table, txn.instant) == ["begin", "abort"]
    assert impatient.content() == BEGUN


def test_who_is_interrupted_hears_that_it_has_landed_all_the_same(impatient, deaf):
    a = impatient.writer("A")
    txn = begun(a, "a", "new")
    land = landed_by(deaf, question(txn))

    def interrupted() -> None:
        land()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as told:
        waits_and(impatient, a, txn, interrupted)
    assert "has landed all the same" in told.value.__notes__[0]
    assert impatient.content() == BEGUN | {"new": 1}


def test_who_cannot_write_its_abort_entry_says_that_it_may_still_land(impatient, deaf):
    """Else its writer would run it again, and its rows would stand twice."""
    a = impatient.writer("A")
    txn = begun(a, "a", "new")
    wanted = question(txn)
    with pytest.raises(lakelatch.CommitStateUnknownError, match="may still land"):
        waits_and(impatient, a, txn, lambda: a.store.add(Refuse(On("put_if_absent", "/log/"), forever=True)))
    a.store.reset()
    assert impatient.content() == BEGUN
    deaf.commit(wanted)
    assert impatient.content() == BEGUN | {"new": 1}
    with impatient.fresh() as table:
        check_sound(table)


def test_who_was_not_told_brings_the_entry_to_disk_before_it_says_that_it_has_landed(world, asked):
    """Its coordinator may still be flushing it when it can be seen, or the flush may have failed."""
    a = world.writer("A")
    txn = begun(a, "a", "new")
    asked.commit(question(txn))
    a.store.calls.clear()
    result = txn.commit()
    assert [call.path.rpartition("/")[2] for call in a.store.calls if call.op == "secure"] == [f"{result.slot:020d}"]


# --- doubt, epochs, versions -------------------------------------------------------------------------------------------


def test_a_coordinator_in_doubt_repeats_the_same_entry(world, asked):
    txns = [begun(world.writer(name), "a", f"new {name}") for name in "AB"]
    asked.leader.store.add(LoseReply(On("put_if_absent", "/log/")))
    asked.commit(*map(question, txns))
    assert together_in(world) == [tuple(txn.instant for txn in txns)]
    for txn in txns:
        assert txn.commit() is not None
    with world.fresh() as table:
        check_sound(table)


def test_an_epoch_that_ends_with_several_commits_is_carried_on(world, asked):
    leader, txns = three(world, asked)
    leader.table.session.log.close_epoch()
    for txn in txns:
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


def test_a_log_is_rebuilt_behind_several_commits(world, asked):
    _, txns = three(world, asked)
    newest = max((world.folder / LOG).rglob("0000*0*[0-9]"))
    (newest.parent / f"{int(newest.name) + 1:020d}").write_bytes(b"torn")
    for beat in (world.folder / HEARTBEATS).iterdir():
        beat.unlink()
    lakelatch.adopt(str(world.folder), env=world.env.peer()).close()
    assert world.content() == BEGUN | NEW
    assert independent_content(world.folder) == BEGUN | NEW
    assert len({txn.instant for txn in txns}) == 3


def test_several_commits_of_one_entry_are_taken_back_one_by_one(world, asked):
    leader, txns = three(world, asked)
    for txn in txns:
        txn.commit()
    saved = commits(leader.table)[-3]
    leader.table.savepoint(saved.instant)
    leader.table.restore(saved.instant)
    assert world.content() == BEGUN | {"new a": 1}
    assert [leader.table.session.log.outcome(txn.instant) for txn in txns] == ["commit", "undone", "undone"]
    with world.fresh() as table:
        check_sound(table)


def test_several_commits_of_one_entry_are_archived(world, asked):
    leader, txns = three(world, asked)
    for txn in txns:
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


def test_an_earlier_version_stops_at_such_an_entry(world, asked, monkeypatch):
    three(world, asked)
    monkeypatch.delitem(words._DECODERS, "commits")
    with pytest.raises(lakelatch.UnsupportedTableError, match="newer version"):
        world.fresh()


def test_a_setting_of_earlier_versions_that_means_nothing_any_more_stops_nobody(world):
    """Requests beside the log, which are no more; tables of before have the setting, and perhaps such objects."""
    first = min(path for path in (world.folder / LOG).rglob("*") if path.is_file())
    entry = json.loads(first.read_bytes())
    entry["settings"]["group_commit"] = True
    first.write_bytes(json.dumps(entry, separators=(",", ":")).encode())
    for name in ("requests/20260101000000001-0", "begins/0000000000001.1.0.x.y"):
        path = world.folder / ".hoodie/.lakelatch" / name
        path.parent.mkdir()
        path.write_bytes(b"an object of before")
    writer = world.writer("W")
    writer.insert("a", "new")
    assert writer.table.change_settings(lock_wait_s=7.0).lock_wait_s == 7.0
    newest = max((path for path in (world.folder / LOG).rglob("*") if path.is_file()), key=lambda path: path.name)
    assert b"group_commit" not in newest.read_bytes()
    with pytest.raises(lakelatch.ConfigError, match="no such setting: group_commit"):
        writer.table.change_settings(group_commit=True)
    with world.fresh() as table:
        assert content(table) == BEGUN | {"new": 1}
        check_sound(table)
        assert not check(table.store).findings
