"""Transactions that begin together: who appends a begin entry begins those who have asked for it as well."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module

import pytest

import lakelatch
from lakelatch.conflict import EVERYWHERE, Claim, ReadSet, Reservation, WriteSet
from lakelatch.environment import Process
from lakelatch.occ.check.check import check
from lakelatch.occ.entries import entries as words
from lakelatch.occ.entries.begin_requests import BEGINS, BeginRequest
from lakelatch.occ.entries.entries import Begin, End, GroupBegin, Open, Setting, at_slot, decode, encode, singly
from lakelatch.occ.entries.losses import Loss
from lakelatch.occ.entries.settings import Settings
from lakelatch.occ.history.events import follow
from lakelatch.occ.history.story import tell
from lakelatch.occ.log.epochs import LOG
from lakelatch.occ.log.state import LogState
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.occ.workspace.begin_entry import takes
from lakelatch.server.ledger import Ledger
from lakelatch.testing.faults import Late, On, Pause, Refuse

from ..landing.test_together import three
from ..world import BEGUN, World, Writer, check_sound, fate, insert

FAR = ("log.commit_log", "log.read_ahead", "log.publisher", "session.session", "liveness.rollback", "landing.requests")
ASKED = "0123456789abcdef" * 2
BEGIN = Begin("", "commit", "INSERT", "w", Process("h", "b", 1, "2"), priority=3, first=5, asked=ASKED)
REQUEST = BeginRequest(7, 4, 1_700_000_000_000, replace(BEGIN, instant="00010101000000000"))


@pytest.fixture
def world(make_world, monkeypatch: pytest.MonkeyPatch) -> World:
    """Its store says that every request takes long."""
    for each in FAR:
        monkeypatch.setattr(import_module(f"lakelatch.occ.{each}"), "is_far", lambda _: True)
    return make_world(group_commit=True)


def before_puts(writer: Writer, *calls: Callable[[], object], op: str = "put_if_absent", part: str = "/log/") -> None:
    """The calls are made before its next puts into the log, one before each."""
    if not calls:
        return

    def strike() -> None:
        before_puts(writer, *calls[1:], op=op, part=part)
        calls[0]()

    writer.store.add(Pause(On(op, part), strike))


def begun_by_another(
    world: World,
    *,
    before: tuple[Callable[[], object], ...] = (),
    meanwhile: Callable[[Writer], object] = lambda _: None,
    **words: object,
) -> tuple[Writer, Transaction, Writer, Transaction]:
    """B has lost a slot and asked; C, who has lost one as well, begins B with its own. Returns both with their transactions.

    ``before``: each takes one more slot of C. ``meanwhile`` is called with B when C has begun both and B does not know it.
    """
    a, b, c, d = (world.writer(name) for name in "ABCD")
    found: list[Transaction] = []

    def lead() -> None:
        before_puts(c, lambda: d.table.transaction("insert"), *before)
        found.append(c.table.transaction("insert"))
        meanwhile(b)

    before_puts(b, lambda: a.table.transaction("insert"), lead)
    txn = b.table.transaction("insert", **words)
    return b, txn, c, found[0]


def end_epoch(writer: Writer) -> None:
    log = writer.table.session.log
    log.catch_up()
    epoch = log.epoch
    log.close_epoch()
    log.catch_up()
    assert log.epoch == epoch + 1


def groups(world: World) -> list[GroupBegin]:
    bodies = [p.read_bytes() for p in sorted((world.folder / LOG).rglob("*")) if p.is_file()]
    return [found for body in bodies if isinstance(found := decode(body, "slot"), GroupBegin)]


def requests(world: World) -> list[str]:
    folder = world.folder / BEGINS
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())


# --- what begins -----------------------------------------------------------------------------------------------------


def test_who_has_lost_a_slot_begins_by_the_entry_of_another(world):
    b, mine, c, other = begun_by_another(world)
    (group,) = groups(world)
    assert [each.instant for each in group.members] == [other.instant, mine.instant]
    assert [each.writer for each in group.members] == ["C", "B"]
    assert group.members[1].process == b.env.process()
    assert mine._attempt.begin_slot == other._attempt.begin_slot == group.slot
    insert(mine, "a", "of b")
    insert(other, "b", "of c")
    assert mine.commit()
    assert other.commit()
    for writer in (b, c):
        writer.table.close()
    assert requests(world) == []
    assert world.content() == BEGUN | {"of b": 1, "of c": 1}


def test_what_lands_behind_the_entry_that_begins_it_is_compared_with_it(world):
    """B learns of its begin after another has changed what it wants to change."""

    def changes(_: Writer) -> None:
        world.writer("E").add("a")

    _, mine, _, _ = begun_by_another(world, meanwhile=changes)
    (old,) = mine.snapshot.file_slices("part=a")
    assert mine.read_slice(old)["v"].to_pylist() == [0, 0], "its snapshot is that of the entry"
    mine.rewrite(old).write(mine.read_slice(old))
    with pytest.raises(lakelatch.ConflictError):
        mine.commit()


def test_what_has_landed_and_is_not_on_the_timeline_yet_is_in_the_snapshot_of_who_asked(world):
    """Who has asked publishes nothing for others as it begins; it does before it lists the timeline."""

    def lands_unpublished() -> None:
        e = world.writer("E")
        with e.table.transaction("insert") as txn:
            insert(txn, "a", "of e")
            txn._attempt.arrived()
            e.store.add(Refuse(On("put_if_absent", "/timeline/"), forever=True))
        assert txn.result is not None
        assert not txn.result.published

    _, mine, _, _ = begun_by_another(world, before=(lands_unpublished,))
    (group,) = groups(world)
    assert [each.writer for each in group.members] == ["C", "B"]
    assert len(mine.snapshot.file_slices("part=a")) == 2


def test_who_was_ended_before_it_knew_that_it_had_begun_begins_anew(world):
    ended: list[str] = []

    def rolled_back(b: Writer) -> None:
        other = world.writer("E", host="host-e")
        begin = next(each for each in other.table.session.log.catch_up().open.values() if each.writer == "B")
        assert other.table.session.cleaner.roll_back(begin, reason="a test")
        ended.append(begin.instant)

    _, mine, _, _ = begun_by_another(world, meanwhile=rolled_back)
    assert mine.instant > ended[0]
    insert(mine, "a", "of b")
    assert mine.commit()
    assert world.content() == BEGUN | {"of b": 1}


def test_whose_epoch_ends_meanwhile_finds_itself_in_the_next_one(world):
    def close(_: Writer) -> None:
        end_epoch(world.writer("E"))

    _, mine, _, _ = begun_by_another(world, meanwhile=close)
    (group,) = groups(world)
    assert mine.instant == group.members[1].instant
    insert(mine, "a", "of b")
    assert mine.commit()
    assert world.content() == BEGUN | {"of b": 1}


def test_where_commits_land_together_writers_ask_before_their_first_try(world):
    """And give who has asked before them some looks at the log, though that one may be dead."""
    three(world)
    e, f = world.writer("E"), world.writer("F")
    e.store.add(Refuse(On("put_if_absent", "/log/"), forever=True), Refuse(On("delete", BEGINS), forever=True))
    with pytest.raises(lakelatch.StorageError):
        e.table.transaction("insert")
    f.store.calls.clear()
    txn = f.table.transaction("insert")
    puts = [call.path for call in f.store.calls if call.op == "put_if_absent"]
    assert puts[0].startswith(BEGINS)
    assert puts[1].startswith(LOG)
    (group,) = groups(world)
    assert [each.writer for each in group.members] == ["F", "E"]
    assert group.instant == txn.instant


def test_an_own_entry_of_who_has_asked_names_its_request_so_nobody_begins_it_once_more(world):
    """B begins by its own entry, and its request stays."""
    a, b, c, d = (world.writer(name) for name in "ABCD")
    before_puts(b, lambda: a.table.transaction("insert"))
    b.store.add(Refuse(On("delete", BEGINS), forever=True))
    b.table.transaction("insert")
    assert len(requests(world)) == 1
    before_puts(c, lambda: d.table.transaction("insert"))
    c.table.transaction("insert")
    assert [[each.writer for each in group.members] for group in groups(world)] == [["B"], ["C"]]


def test_a_request_of_an_epoch_that_is_over_begins_nobody_and_goes(world):
    a, b, c, d = (world.writer(name) for name in "ABCD")
    before_puts(b, lambda: a.table.transaction("insert"))
    b.store.add(Refuse(On("delete", BEGINS), forever=True))
    b.table.transaction("insert").abort()
    end_epoch(d)
    before_puts(c, lambda: d.table.transaction("insert"))
    c.table.transaction("insert")
    assert [each.writer for group in groups(world)[1:] for each in group.members] == ["C"]
    c.table.close()
    assert requests(world) == []


def test_a_cleaning_removes_requests_of_epochs_that_are_over(world):
    a, b, c = (world.writer(name) for name in "ABC")
    before_puts(b, lambda: a.table.transaction("insert"))
    b.store.add(Refuse(On("delete", BEGINS), forever=True))
    b.table.transaction("insert").abort()
    c.table.rollback_failed_writes()
    assert len(requests(world)) == 1, "it may be of somebody who waits for its begin"
    end_epoch(c)
    c.table.change_settings(group_commit=False)
    c.table.rollback_failed_writes()
    assert requests(world) == []


# --- who gives up ----------------------------------------------------------------------------------------------------


def stopped(b: Writer) -> None:
    b.store.add(Pause(On("", ""), _interrupt))


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_who_is_stopped_after_another_has_begun_it_ends_itself(world):
    with pytest.raises(KeyboardInterrupt):
        begun_by_another(world, meanwhile=stopped)
    (group,) = groups(world)
    with world.fresh() as table:
        assert fate(table, group.members[1].instant) == ["begin", "abort"]


def test_who_is_stopped_before_anybody_has_begun_it_cannot_begin_any_more(world):
    """It begins, and ends: then nobody takes the request that another has listed already."""
    a, b = world.writer("A"), world.writer("B")
    before_puts(b, lambda: a.table.transaction("insert"), _interrupt)
    with pytest.raises(KeyboardInterrupt):
        b.table.transaction("insert")
    (group,) = groups(world)
    (begin,) = group.members
    with world.fresh() as table:
        assert fate(table, begin.instant) == ["begin", "abort"]
        state = table.session.log.catch_up()
        assert not takes(state, table.session.log.epoch, BeginRequest(table.session.log.epoch, state.settled, 0, begin))


def test_whose_batch_has_landed_before_another_began_it_is_told_so_and_ends(world):
    def lands(_: Writer) -> None:
        with world.writer("E").table.transaction("insert", batch=("source", 1)) as txn:
            insert(txn, "a", "of e")

    a, b, c, d = (world.writer(name) for name in "ABCD")

    def lead() -> None:
        lands(b)
        before_puts(c, lambda: d.table.transaction("insert"))
        c.table.transaction("insert")

    before_puts(b, lambda: a.table.transaction("insert"), lead)
    with pytest.raises(lakelatch.BatchLandedError):
        b.table.transaction("insert", batch=("source", 1))
    (group,) = groups(world)
    assert [each.writer for each in group.members] == ["C", "B"]
    with world.fresh() as table:
        assert fate(table, group.members[1].instant) == ["begin", "abort"]
        assert world.content() == BEGUN | {"of e": 1}


def test_a_dead_one_that_another_has_begun_is_rolled_back(world):
    def dies(b: Writer) -> None:
        b.die()
        _interrupt()

    with pytest.raises(BaseException):  # noqa: B017 - whatever a process that is dead meets
        begun_by_another(world, meanwhile=lambda b: (b.store.add(Refuse(On("", ""), forever=True)), dies(b)))
    (group,) = groups(world)
    assert [each.writer for each in group.members] == ["C", "B"]
    e = world.writer("E")
    e.table.rollback_failed_writes()
    with world.fresh() as table:
        assert fate(table, group.members[1].instant) == ["begin", "rollback"]


def test_a_put_without_an_answer_is_repeated_and_nobody_begins_twice(world):
    a, b = world.writer("A"), world.writer("B")
    before_puts(b, lambda: (a.table.transaction("insert"), b.store.add(Late(On("put_if_absent", "/log/")))))
    txn = b.table.transaction("insert")
    (group,) = groups(world)
    assert group.instant == txn.instant
    insert(txn, "a", "of b")
    assert txn.commit()
    assert world.content() == BEGUN | {"of b": 1}


# --- whom a leader takes -----------------------------------------------------------------------------------------------


def read(*entries: Begin | Setting) -> LogState:
    state = LogState(settled=4)
    for entry in entries:
        state.apply(entry)
    return state


def test_a_leader_takes_who_has_asked_in_this_epoch_under_these_settings_and_has_not_begun():
    assert takes(read(), 7, REQUEST)
    assert not takes(read(), 8, REQUEST)
    assert not takes(read(), 6, REQUEST)
    assert not takes(read(Setting(Settings(), "w", 9)), 7, REQUEST)
    assert not takes(read(replace(BEGIN, instant="20260101000000001", slot=5)), 7, REQUEST)


def test_a_leader_takes_nobody_while_anything_is_reserved():
    keeps = Begin("20260101000000001", "commit", "UPSERT", "w", None, 5, reserved=Reservation(EVERYWHERE))
    assert not takes(read(keeps), 7, REQUEST)


def test_who_reserves_asks_nobody(world):
    a, b = world.writer("A"), world.writer("B")
    before_puts(b, lambda: a.table.transaction("insert"))
    b.table.transaction("insert", reserve="table")
    assert groups(world) == []
    assert requests(world) == []


def test_on_a_local_disk_and_without_the_setting_nobody_asks(make_world, monkeypatch):
    for far, setting in ((False, True), (True, False)):
        for each in FAR:
            monkeypatch.setattr(import_module(f"lakelatch.occ.{each}"), "is_far", lambda _, far=far: far)
        world = make_world(group_commit=setting)
        a, b = world.writer("A"), world.writer("B")
        before_puts(b, lambda a=a: a.table.transaction("insert"))
        b.table.transaction("insert")
        assert groups(world) == []
        assert requests(world) == []


# --- the words ---------------------------------------------------------------------------------------------------------


def test_a_name_says_all_of_the_request():
    assert REQUEST.fits
    assert BeginRequest.of(REQUEST.path.removeprefix(f"{BEGINS}/")) == REQUEST


@pytest.mark.parametrize("host", ["h", "h" * 63])
def test_a_store_that_keeps_objects_as_files_takes_the_name(host):
    process = Process(host, "c2f59d4c-6c32-49ce-bb5e-2a2716edc410pid:[4026531836]", 4194304, "123456789")
    request = replace(REQUEST, begin=replace(REQUEST.begin, writer=f"{host}:4194304", process=process))
    assert request.fits
    assert max(map(len, request.path.split("/"))) < 255
    assert BeginRequest.of(request.path.removeprefix(f"{BEGINS}/")) == request


def named(**changed: object) -> str:
    epoch, at_ms, settled, asked, _ = REQUEST.path.removeprefix(f"{BEGINS}/").replace("/", "").split(".")
    raw = {"action": "commit", "op": "INSERT", "writer": "w", "process": None} | changed
    text = json.dumps(raw, separators=(",", ":"), sort_keys=True)
    name = ".".join((epoch, at_ms, settled, asked, urlsafe_b64encode(text.encode()).decode().rstrip("=")))
    return "/".join(name[start : start + 200] for start in range(0, len(name), 200))


@pytest.mark.parametrize(
    "name",
    [
        "",
        "x",
        "....",
        named()[:-3],
        named().replace(ASKED, ASKED[:-1]),
        named().replace(ASKED, ASKED.upper()),
        named() + "=",
        named(writer="w" * 200).replace("/", ""),
        named().replace(".", "/."),
        named(action="clean"),
        named(op="CLEAN"),
        named(op=7),
        named(writer=None),
        named(writer="\ud800"),
        named(priority="high"),
        named(first=[]),
        named(plan={"content": {}}),
        named(reserved=None),
        named(executes=True),
        named(T="20260101000000001"),
        named(writer="w" * 1000),
    ],
)
def test_a_name_that_asks_for_what_nobody_else_may_begin_is_none(name):
    assert BeginRequest.of(named()) is not None
    assert BeginRequest.of(name) is None


def test_a_request_whose_name_no_store_takes_is_not_put(world):
    a, b = world.writer("A"), world.writer("B" * 900)
    before_puts(b, lambda: a.table.transaction("insert"))
    b.table.transaction("insert")
    assert requests(world) == []


def test_strange_objects_beside_the_requests_stop_nobody(world):
    for name in ("x", named(action="clean"), named(op="NO SUCH")):
        path = world.folder / BEGINS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    _, mine, _, _ = begun_by_another(world)
    insert(mine, "a", "of b")
    assert mine.commit()


def test_those_that_have_begun_at_one_slot_are_ranked_by_their_t():
    kept = Reservation(EVERYWHERE)
    one, two = Claim("20260101000000001", 7, reserved=kept), Claim("20260101000000002", 7, reserved=kept)
    unborn = Claim("", 7, reserved=kept)
    for first, second in ((one, two), (one, unborn), (two, unborn)):
        assert first.outranks(second, by_priority=False)
        assert not second.outranks(first, by_priority=False)
    assert not unborn.outranks(Claim("", 7, reserved=kept), by_priority=False)


# --- who reads the log -------------------------------------------------------------------------------------------------


def test_every_reader_of_the_log_knows_the_entry(world):
    b, mine, _, other = begun_by_another(world)
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


def test_a_table_with_such_entries_is_sound(world):
    _, mine, _, other = begun_by_another(world)
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


def test_an_earlier_version_stops_at_such_an_entry(world, monkeypatch):
    begun_by_another(world)
    monkeypatch.delitem(words._DECODERS, "begins")
    with pytest.raises(lakelatch.UnsupportedTableError, match="newer version"):
        world.fresh()


def test_the_entry_survives_its_bytes_and_its_members_stand_in_its_slot():
    members = tuple(replace(BEGIN, instant=f"2026010100000000{n}", asked=f"{n:032x}") for n in range(3))
    entry = at_slot(GroupBegin(members), 9)
    assert decode(encode(entry, 1, 9, "n"), "x") == entry
    assert [each.slot for each in singly(entry)] == [9, 9, 9]
    assert set(read(*singly(entry)).open) == {each.instant for each in members}
