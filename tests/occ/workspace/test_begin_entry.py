"""A begin entry, alone or with those who asked a coordinator: who begins, who is taken, and who gives up."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

import lakelatch
from lakelatch.conflict import EVERYWHERE, Claim, ReadSet, Reservation, WriteSet
from lakelatch.environment import Process
from lakelatch.occ.check.check import check
from lakelatch.occ.coordination import Question
from lakelatch.occ.entries import BeginRequest
from lakelatch.occ.entries import entries as words
from lakelatch.occ.entries.entries import Begin, End, GroupBegin, Open, Setting, at_slot, decode, encode, singly
from lakelatch.occ.entries.losses import Loss
from lakelatch.occ.entries.settings import Settings
from lakelatch.occ.history.events import follow
from lakelatch.occ.history.why import tell
from lakelatch.occ.landing import coordinator as leading
from lakelatch.occ.log.state import LogState
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.occ.workspace.begin_entry import takes
from lakelatch.server.ledger import Ledger
from lakelatch.testing.faults import Late, On, Pause, Refuse

from ..coordinated import Direct, asking, log_of
from ..world import BEGUN, World, Writer, check_sound, fate, insert

ASKED = "0123456789abcdef" * 2
BEGIN = Begin("", "commit", "INSERT", "w", Process("h", "b", 1, "2"), priority=3, first=5, asked=ASKED)
REQUEST = BeginRequest(7, 4, replace(BEGIN, instant="00010101000000000"))


@pytest.fixture
def asked(world: World) -> Direct:
    return Direct(world.writer("leader"))


def begun_together(
    world: World, asked: Direct, *, meanwhile: Callable[[Writer], object] = lambda _: None, **words: object
) -> tuple[Writer, Transaction, Writer, Transaction]:
    """B and C have begun by one entry; they hear nothing, and find themselves in the log. Returns both with their transactions.

    ``meanwhile`` is called with B when C knows that it has begun, and B does not.
    """
    b, c = (asking(world, asked, name) for name in "BC")
    held: list[Question] = []
    found: list[Transaction] = []

    def hears(question: Question) -> Question | None:
        held.append(question)
        if len(held) == 2:
            asked.coordinator._begin([leading._Waiting(each, lambda _: None) for each in reversed(held)])
        return None

    def begin_c() -> None:
        found.append(c.table.transaction("insert"))
        meanwhile(b)

    asked.hears = hears
    b.store.add(Pause(On("", "/log/"), begin_c))
    txn = b.table.transaction("insert", **words)
    asked.hears = lambda question: question
    return b, txn, c, found[0]


def end_epoch(writer: Writer) -> None:
    log = writer.table.session.log
    log.catch_up()
    epoch = log.epoch
    log.close_epoch()
    log.catch_up()
    assert log.epoch == epoch + 1


def groups(world: World) -> list[GroupBegin]:
    return [each for each in log_of(world) if isinstance(each, GroupBegin)]


# --- what begins -----------------------------------------------------------------------------------------------------


def test_who_hears_nothing_finds_in_the_log_that_it_has_begun(world, asked):
    b, mine, _, other = begun_together(world, asked)
    (group,) = groups(world)
    assert [each.instant for each in group.members] == [other.instant, mine.instant]
    assert [each.writer for each in group.members] == ["C", "B"]
    assert group.members[1].process == b.env.process()
    assert mine._attempt.begin_slot == other._attempt.begin_slot == group.slot
    insert(mine, "a", "of b")
    insert(other, "b", "of c")
    assert mine.commit()
    assert other.commit()
    assert world.content() == BEGUN | {"of b": 1, "of c": 1}


def test_what_lands_behind_the_entry_that_begins_it_is_compared_with_it(world, asked):
    """B learns of its begin after another has changed what it wants to change."""

    def changes(_: Writer) -> None:
        world.writer("E").add("a")

    _, mine, _, _ = begun_together(world, asked, meanwhile=changes)
    (old,) = mine.snapshot.file_slices("part=a")
    assert mine.read_slice(old)["v"].to_pylist() == [0, 0], "its snapshot is that of the entry"
    mine.rewrite(old).write(mine.read_slice(old))
    with pytest.raises(lakelatch.ConflictError):
        mine.commit()


def test_what_has_landed_and_is_not_on_the_timeline_yet_is_in_the_snapshot_of_who_asked(world, asked):
    """Who has asked publishes nothing for others as it begins; it does before it lists the timeline."""
    e = world.writer("E")
    with e.table.transaction("insert") as txn:
        insert(txn, "a", "of e")
        e.store.add(Refuse(On("put_if_absent", "/timeline/"), forever=True))
    assert txn.result is not None
    assert not txn.result.published
    _, mine, _, _ = begun_together(world, asked)
    assert len(mine.snapshot.file_slices("part=a")) == 2


def test_who_was_ended_before_it_knew_that_it_had_begun_begins_again(world, asked):
    ended: list[str] = []

    def rolled_back(_: Writer) -> None:
        other = world.writer("E", host="host-e")
        begin = next(each for each in other.table.session.log.catch_up().open.values() if each.writer == "B")
        assert other.table.session.cleaner.roll_back(begin, reason="a test")
        ended.append(begin.instant)

    _, mine, _, _ = begun_together(world, asked, meanwhile=rolled_back)
    assert mine.instant > ended[0]
    insert(mine, "a", "of b")
    assert mine.commit()
    assert world.content() == BEGUN | {"of b": 1}


def test_whose_epoch_ends_meanwhile_finds_itself_in_the_next_one(world, asked):
    _, mine, _, _ = begun_together(world, asked, meanwhile=lambda _: end_epoch(world.writer("E")))
    (group,) = groups(world)
    assert mine.instant == group.members[1].instant
    insert(mine, "a", "of b")
    assert mine.commit()
    assert world.content() == BEGUN | {"of b": 1}


def test_an_own_entry_of_who_has_asked_names_its_request_so_nobody_begins_it_once_more(world, asked):
    """B hears nothing and begins by its own entry, and its question arrives late."""
    asked.hears = lambda _: None
    asking(world, asked, "B").table.transaction("insert")
    asked.coordinator.ask(asked.asked[-1], lambda _: None)
    assert [[each.writer for each in group.members] for group in groups(world)] == [["B"]]


def test_a_question_of_an_epoch_that_is_over_begins_nobody(world, asked):
    asked.hears = lambda _: None
    b = asking(world, asked, "B")
    b.table.transaction("insert").abort()
    end_epoch(world.writer("D"))
    asked.coordinator.ask(asked.asked[-1], lambda _: None)
    assert [[each.writer for each in group.members] for group in groups(world)] == [["B"]]


# --- who gives up ----------------------------------------------------------------------------------------------------


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_who_is_stopped_after_a_coordinator_has_begun_it_ends_itself(world, asked):
    with pytest.raises(KeyboardInterrupt):
        begun_together(world, asked, meanwhile=lambda _: _interrupt())
    (group,) = groups(world)
    with world.fresh() as table:
        assert fate(table, group.members[1].instant) == ["begin", "abort"]


def test_who_is_stopped_before_anybody_has_begun_it_cannot_begin_any_more(world, asked):
    """It begins, and ends: then nobody takes the question that may arrive late."""
    b = asking(world, asked, "B")
    asked.hears = lambda _: None
    b.store.add(Pause(On("", "/log/"), _interrupt))
    with pytest.raises(KeyboardInterrupt):
        b.table.transaction("insert")
    asked.coordinator.ask(asked.asked[-1], lambda _: None)
    (group,) = groups(world)
    (begin,) = group.members
    with world.fresh() as table:
        assert fate(table, begin.instant) == ["begin", "abort"]


def test_whose_batch_has_landed_before_it_has_begun_is_told_so_and_ends(world, asked):
    b = asking(world, asked, "B")
    with world.writer("E").table.transaction("insert", batch=("source", 1)) as txn:
        insert(txn, "a", "of e")
    with pytest.raises(lakelatch.BatchLandedError):
        b.table.transaction("insert", batch=("source", 1))
    (group,) = groups(world)
    with world.fresh() as table:
        assert fate(table, group.members[0].instant) == ["begin", "abort"]
        assert world.content() == BEGUN | {"of e": 1}


def test_a_dead_one_that_a_coordinator_has_begun_is_rolled_back(world, asked):
    def dies(b: Writer) -> None:
        b.store.add(Refuse(On("", ""), forever=True))
        b.die()
        _interrupt()

    with pytest.raises(BaseException):  # noqa: B017 - whatever a process that is dead meets
        begun_together(world, asked, meanwhile=dies)
    (group,) = groups(world)
    assert [each.writer for each in group.members] == ["C", "B"]
    world.writer("E").table.rollback_failed_writes()
    with world.fresh() as table:
        assert fate(table, group.members[1].instant) == ["begin", "rollback"]


def test_a_put_without_an_answer_is_repeated_and_nobody_begins_twice(world, asked):
    asked.leader.store.add(Late(On("put_if_absent", "/log/")))
    txn = asking(world, asked, "B").table.transaction("insert")
    (group,) = groups(world)
    assert group.instant == txn.instant
    insert(txn, "a", "of b")
    assert txn.commit()
    assert world.content() == BEGUN | {"of b": 1}


# --- whom a coordinator takes ------------------------------------------------------------------------------------------


def read(*entries: Begin | Setting) -> LogState:
    state = LogState(settled=4)
    for entry in entries:
        state.apply(entry)
    return state


def test_it_takes_who_has_asked_in_this_epoch_under_these_settings_and_has_not_begun():
    assert takes(read(), 7, REQUEST)
    assert not takes(read(), 8, REQUEST)
    assert not takes(read(), 6, REQUEST)
    assert not takes(read(Setting(Settings(), "w", 9)), 7, REQUEST)
    assert not takes(read(replace(BEGIN, instant="20260101000000001", slot=5)), 7, REQUEST)


def test_it_takes_nobody_while_anything_is_reserved():
    keeps = Begin("20260101000000001", "commit", "UPSERT", "w", None, 5, reserved=Reservation(EVERYWHERE))
    assert not takes(read(keeps), 7, REQUEST)


def test_who_reserves_asks_nobody(world, asked):
    asking(world, asked, "B").table.transaction("insert", reserve="table")
    assert groups(world) == []
    assert asked.asked == []


# --- the words ---------------------------------------------------------------------------------------------------------


def test_a_request_says_all_of_the_begin():
    assert BeginRequest.from_bytes(REQUEST.to_bytes()) == REQUEST


def said(asked: object = ASKED, epoch: object = 7, **changed: object) -> bytes:
    raw = {"action": "commit", "op": "INSERT", "writer": "w", "process": None} | changed
    return json.dumps({"epoch": epoch, "settled": 4, "asked": asked, "begin": raw}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"x",
        b"[]",
        b"{}",
        said()[:-3],
        said(asked=ASKED[:-1]),
        said(asked=ASKED.upper()),
        said(asked=None),
        said(epoch="7"),
        said(epoch=True),
        said(action="clean"),
        said(op="CLEAN"),
        said(op=7),
        said(writer=None),
        said(writer="\ud800"),
        said(priority="high"),
        said(first=[]),
        said(plan={"content": {}}),
        said(reserved=None),
        said(executes=True),
        said(T="20260101000000001"),
        b"[" * 100_000,
    ],
)
def test_a_request_for_what_nobody_else_may_begin_is_none(body):
    assert BeginRequest.from_bytes(said()) is not None
    assert BeginRequest.from_bytes(body) is None


def test_those_that_have_begun_at_one_slot_are_ranked_by_their_t():
    kept = Reservation(EVERYWHERE)
    one, two = Claim("20260101000000001", 7, reserved=kept), Claim("20260101000000002", 7, reserved=kept)
    unborn = Claim("", 7, reserved=kept)
    for first, second in ((one, two), (one, unborn), (two, unborn)):
        assert first.outranks(second, by_priority=False)
        assert not second.outranks(first, by_priority=False)
    assert not unborn.outranks(Claim("", 7, reserved=kept), by_priority=False)


# --- who reads the log -------------------------------------------------------------------------------------------------


def test_every_reader_of_the_log_knows_the_entry(world, asked):
    b, mine, _, other = begun_together(world, asked)
    insert(mine, "a", "of b")
    assert mine.commit()
    other.abort()
    with world.fresh() as table:
        told = [(each.event, each.instant) for each in follow(table.session, after="0", ends=True)]
        assert [each for each in told if each[1] in (mine.instant, other.instant)] == [
            ("begin", other.instant),
            ("begin", mine.instant),
            ("commit", mine.instant),
            ("abort", other.instant),
        ]
        assert table.session.log.outcome(other.instant) == "abort"
        assert table.session.landed(mine.instant) is not None
    e = world.writer("E")
    e.table.rollback_failed_writes()
    end_epoch(e)
    e.add("a")
    with world.fresh() as table:
        assert table.session.landed(mine.instant) is not None
        assert table.session.log.outcome(other.instant) == "abort"
    b.table.close()


def test_who_has_begun_at_the_same_slot_is_no_earlier_attempt_of_a_work():
    times = [f"2026010100000000{n}" for n in range(5)]
    first, other = (Begin(times[n], "commit", "UPSERT", "BC"[n], None, 7) for n in range(2))
    lost = Loss("20250101000000000", "UPSERT", "w", "both", ("p=a/f",), WriteSet(), ReadSet())
    again = Begin(times[2], "commit", "UPSERT", "B", None, 10, first=7)
    ends = [
        End("abort", begin.instant, "w", "lost", slot, lost) for slot, begin in ((8, first), (9, other), (11, again))
    ]
    log = [Open("20250101000000000", 0, Settings(), slot=1), first, other, *ends[:2], again, ends[2]]
    story = tell(log, again.instant)
    assert story is not None
    assert [begin for begin, _ in story.attempts] == [first]
    ledger = Ledger()
    for entry in log:
        ledger.apply(entry)
    assert ledger.spans[again.instant].attempt == 2
    ledger = Ledger()
    for entry in (log[0], first, other, ends[1], again):  # of this work nothing has ended yet
        ledger.apply(entry)
    assert ledger.spans[again.instant].attempt == 1


def test_a_table_with_such_entries_is_sound(world, asked):
    _, mine, _, other = begun_together(world, asked)
    insert(mine, "a", "of b")
    insert(other, "a", "of c")
    assert mine.commit()
    assert other.commit()
    for writer in world.writers:
        writer.table.close()
    for writer in world.writers:
        writer.die()
    with world.fresh() as table:
        table.rollback_failed_writes()
    with world.fresh() as table:
        check_sound(table)
        assert not check(table.store).findings


def test_an_earlier_version_stops_at_such_an_entry(world, asked, monkeypatch):
    begun_together(world, asked)
    monkeypatch.delitem(words._DECODERS, "begins")
    with pytest.raises(lakelatch.UnsupportedTableError, match="newer version"):
        world.fresh()


def test_the_entry_survives_its_bytes_and_its_members_stand_in_its_slot():
    members = tuple(replace(BEGIN, instant=f"2026010100000000{n}", asked=f"{n:032x}") for n in range(3))
    entry = at_slot(GroupBegin(members), 9)
    assert decode(encode(entry, 1, 9, "n"), "x") == entry
    assert [each.slot for each in singly(entry)] == [9, 9, 9]
    assert set(read(*singly(entry)).open) == {each.instant for each in members}
