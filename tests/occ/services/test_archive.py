"""Archival: what goes, what stays, who may die meanwhile, and what readers see."""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

import lakelatch
from lakelatch.hudi.timeline.instant import next_label
from lakelatch.occ.check.check import check
from lakelatch.occ.log.publisher import Publisher
from lakelatch.occ.services.archive import Keep
from lakelatch.occ.services.execution import Service
from lakelatch.occ.services.restore import RESTORE
from lakelatch.testing.faults import PUTS, At, From, Late, LoseReply, On, Pause, Refuse

from ...mutants import answering
from ...thorough import some
from ..aged import AGED, BACK, SMALL, aged, finish, strike_all
from ..world import BEGUN, World, Writer, add, check_sound, content, fate, independent_content, insert, overwrite

TIMELINE = ".hoodie/timeline"
ALL = {"keep_min": 2, "keep_max": 2}


def archive(writer: Writer) -> object:
    return writer.table.archive(**ALL)


def commits_on_timeline(world: World) -> list[str]:
    return sorted(path.name for path in (world.folder / TIMELINE).glob("2*_*.commit"))


def archived(world: World) -> list[str]:
    with world.fresh() as table:
        return sorted(table.session.history.instants())


def test_the_history_is_looked_up_as_often_for_many_instants_as_for_few(make_world):
    def requests(commits: int) -> int:
        world = make_world()
        writer = world.writer("A")
        for number in range(commits):
            writer.insert("a", f"x{number}")
        writer.store.reset()
        writer.store.add(LoseReply(On("put_if_absent", "/history/_version_")))
        assert writer.table.archive(**ALL).instants == commits
        return sum("/history/" in call.path for call in writer.store.calls)

    assert requests(3) == requests(12)


@pytest.mark.parametrize("neighbours", ["none", "hudi"])
def test_no_listing_takes_an_archived_commit_for_a_pending_one(tmp_path, neighbours):
    """One that is not atomic may come to the inflight instant before it is deleted, and to the completed one afterwards."""
    world = World(tmp_path / "table", lock=f"file://{tmp_path}/lock?jvm=lock", neighbours=neighbours)
    writer = world.writer("A")
    for number in range(6):
        writer.env.advance(1.0)
        writer.insert("a", f"x{number}")
    deleted: list[tuple[bool, float]] = []

    def note(call) -> bool:
        if call.op == "delete" and call.path.startswith(TIMELINE):
            deleted.append((call.path.endswith((".requested", ".inflight")), writer.env.monotonic()))
        return False

    writer.store.add(Pause(note, call=lambda: None, forever=True))
    assert writer.table.archive(**ALL).instants
    pending, completed = ([at for is_pending, at in deleted if is_pending == wanted] for wanted in (True, False))
    assert [is_pending for is_pending, _ in deleted] == sorted((each for each, _ in deleted), reverse=True)
    assert completed[0] - pending[-1] >= (1.0 if neighbours == "hudi" else 0.0)
    world.close()


# --- what happens --------------------------------------------------------------------------------------------------


def test_old_commits_leave_the_timeline_and_every_reader_goes_on(old):
    before = commits_on_timeline(old)
    a = old.writer("A")
    done = a.table.archive(**ALL)
    assert (done.instants, done.kept_by) == (len(before) - 2, "the newest 2 commits stay")
    assert commits_on_timeline(old) == before[-2:]
    assert done.first_active == before[-2].partition("_")[0]
    assert archived(old) == before[:-2]
    assert not [p for p in (old.folder / TIMELINE).iterdir() if p.name[:17] < done.first_active and p.name[0] == "2"]
    assert old.content() == independent_content(old.folder) == AGED
    with old.fresh() as table:
        check_sound(table)
        assert check(table.store).findings == ()
    a.add("a")
    assert a.table.archive(**ALL).instants == 1
    assert old.content() == independent_content(old.folder) == AGED | {"a0": 5, "a1": 5}
    with old.fresh() as table:
        check_sound(table)


def test_nothing_is_done_before_there_are_many(old):
    a = old.writer("A")
    done = a.table.archive()
    assert (done.instants, done.kept_by) == (0, "there are no more than 30 commits")
    assert a.table.archive(keep_min=3, keep_max=7).instants == 0
    assert a.table.archive(keep_min=3, keep_max=6).instants == 4
    assert not a.table.plans()


def test_a_commit_that_stays_names_no_file_of_a_group_that_an_archived_one_has_replaced(make_world):
    """T=5 merges again behind T=6, and replaces its file group; archivals go by T, so for a while T=6 alone is left."""
    world = make_world()
    a, b = world.writer("A"), world.writer("B")
    early, late = a.table.transaction("upsert"), b.table.transaction("upsert")
    late.upsert([{"id": "a0", "part": "a", "v": 6}])
    late.commit()
    early.upsert([{"id": "a1", "part": "a", "v": 5}])
    early.commit()
    assert early.instant < late.instant
    a.add("b")
    a.add("b")
    wanted = BEGUN | {"a0": 6, "a1": 5, "b0": 2, "b1": 2}
    assert world.content() == wanted
    a.table.clean(retain_commits=1)
    left = a.table.timeline().commits
    (at,) = (n for n, each in enumerate(sorted(each.requested for each in left)) if each == late.instant)
    assert a.table.archive(keep_min=len(left) - at, keep_max=len(left) - at).instants
    assert a.table.timeline().commits[0].requested == late.instant
    assert world.content() == independent_content(world.folder) == wanted
    a.add("a")
    with world.fresh() as table:
        assert content(table) == {key: v + (key[0] == "a") for key, v in wanted.items()}
        check_sound(table)


def test_an_archival_beside_a_restore_that_leaves_fewer_commits_than_it_keeps(old, monkeypatch):
    """It has found that there are more than it keeps; then the other takes all but three of them back."""
    a, b = old.writer("A"), old.writer("B")
    kept = a.table.timeline().commits[2].requested
    has_old = type(a.table)._has_old

    def then_restored(table: Any, keep: Any) -> bool:
        found = has_old(table, keep)
        b.table.restore(kept)
        return found

    monkeypatch.setattr(type(a.table), "_has_old", then_restored)
    assert a.table.archive(keep_min=5, keep_max=5).instants == 0
    assert len(a.table.timeline().commits) == 3


@pytest.mark.parametrize("wrong", [(0, None), (-1, 5), (3, 2), (True, 3)])
def test_keeping_nothing_is_refused(old, wrong):
    with old.fresh() as table, pytest.raises(lakelatch.ConfigError, match=r"at least 1|keep_min=3 exceeds keep_max=2"):
        table.archive(keep_min=wrong[0], keep_max=wrong[1])
    assert (Keep.asked(None, None), Keep.asked(5, None), Keep.asked(None, 15)) == (
        Keep(20, 30),
        Keep(5, 15),
        Keep(5, 15),
    )


def test_an_archival_ends_beside_a_writer_that_is_as_fast(old):
    a, b, before, calls = old.writer("A"), old.writer("B"), commits_on_timeline(old), []

    def told(_progress: object) -> None:
        calls.append(b.add("a"))
        assert len(calls) < 9, "it goes on as long as somebody writes"

    assert a.table.archive(**ALL, progress=told).instants == len(before) - 2
    assert commits_on_timeline(old)[:2] == before[-2:]
    assert a.table.archive(**ALL).instants == len(calls) > 0


def test_several_plans_take_what_one_may_not(old, monkeypatch):
    monkeypatch.setattr("lakelatch.occ.services.archive._INSTANTS_MAX", 2)
    with old.fresh() as table:
        assert table.archive(**ALL).instants == 5
        assert [n.count("_") for n, _ in table.session.history.manifest().files] == [2, 2, 2]
        check_sound(table)


def test_services_are_archived_with_their_plans_and_the_furthest_clean_stays(old):
    with old.fresh() as table:
        first = table.clean(retain_commits=1)
        table.cluster(small_bytes=1 << 20, target_bytes=2 << 20)
        with table.transaction() as txn:
            add(txn, "b")
        second = table.clean(retain_commits=2)
        for _ in range(3):
            with table.transaction() as txn:
                add(txn, "b")
        third = table.clean(retain_commits=4)
        for _ in range(2):
            with table.transaction() as txn:
                add(txn, "b")
        kept = table.clean(retain_commits=3)
        before = content(table)
        table.archive(**ALL)
        there = {i.requested for i in table.timeline().completed if i.action == "clean"}
        assert kept.instant in there
        assert first.instant not in there
        assert not {s.instant for s in (first, second, third) if s} & there
        rows = {
            r["instantTime"]: r
            for n, _ in table.session.history.manifest().files
            for r in table.session.history._rows(n, None)
        }
        assert rows[first.instant]["action"] == "clean"
        assert rows[first.instant]["plan"].startswith(b"Obj")
        assert {r["action"]: bool(r["plan"]) for r in rows.values()} == {
            "clean": True, "commit": False, "replacecommit": True,
        }  # fmt: skip
        assert content(table) == before == independent_content(old.folder)
        check_sound(table)


def test_what_has_been_cleaned_is_known_afterwards(old):
    with old.fresh() as table:
        moment = table.timeline().commits[1].completed
        done = table.clean(retain_commits=1)
        for _ in range(3):
            with table.transaction() as txn:
                add(txn, "b")
        assert table.archive(**ALL).first_active > done.instant
        assert done.instant in {i.requested for i in table.timeline().completed}
        with pytest.raises(lakelatch.InputError, match="has been cleaned"), table.pinned(as_of_completion=moment):
            pass
        check_sound(table)


# --- what stays ----------------------------------------------------------------------------------------------------


def kept_by(world: World) -> str:
    return world.writer("archiver", host="host-d").table.archive(keep_min=1, keep_max=1).kept_by


def test_an_open_transaction_keeps_what_landed_since_it_began(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    txn = a.table.transaction()
    b.add("a")
    b.add("b")
    assert f"{txn.instant} of A is open" in kept_by(old)
    assert len(commits_on_timeline(old)) == 3
    assert len(txn.snapshot.file_slices()) == 3
    add(txn, "b")
    with pytest.raises(lakelatch.ConflictError):
        txn.commit()
    assert old.content() == independent_content(old.folder)


def test_a_long_transaction_that_landed_late_keeps_nothing_and_hides_nothing(old):
    """Its T is older than those of commits that landed before it: order of T is what readers go by."""
    a, b = old.writer("A"), old.writer("B", host="host-b")
    long = a.table.transaction("insert")
    moment = b.add("a").completion
    insert(long, "c", "c8")
    long.commit()
    b.add("a")
    b.add("a")
    with old.fresh() as table:
        then = content_at(table, moment)
        assert "c8" not in then
        before = content(table)
    old.writer("archiver", host="host-d").table.archive(**ALL)
    with old.fresh() as table:
        assert content_at(table, moment) == then
        assert content(table) == independent_content(old.folder) == before
        assert next(i.requested for i, _ in table.commits(after=moment)) == long.instant
        with pytest.raises(lakelatch.InputError, match="is no commit"):
            table.restore(long.instant)


def content_at(table, moment):
    read = table.read(as_of_completion=moment).to_arrow().to_pydict()
    return dict(zip(read["id"], read["v"], strict=True))


def test_a_restore_takes_nothing_back_that_was_archived(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    long = a.table.transaction("insert")
    target = b.add("a")
    insert(long, "c", "c8")
    long.commit()
    b.add("b")
    with old.fresh() as table:
        table.archive(**ALL)
        assert table.timeline().commits[0].requested == target.instant
        with pytest.raises(lakelatch.InputError, match="have been archived"):
            table.restore(target.instant)


def test_a_readers_lease_keeps_what_came_after_its_state(old):
    with old.fresh() as table, table.pinned() as view:
        old.writer("B").add("a")
        old.writer("C").add("a")
        assert "fresh reads the state of" in kept_by(old)
        assert view.completion in {i.completed for i in table.timeline().commits} | {archived(old)[-1][18:35]}
        assert content_of(view) == AGED


def content_of(view):
    read = view.read().to_arrow().to_pydict()
    return dict(zip(read["id"], read["v"], strict=True))


def test_a_savepoint_keeps_its_commit(old):
    with old.fresh() as table:
        saved = table.savepoint(table.timeline().commits[2].requested)
        assert f"{saved.instant} has a savepoint" in kept_by(old)
        assert table.timeline().commits[0].requested == saved.instant
        table.delete_savepoint(saved.instant)
        assert "the newest 1 commits stay" in kept_by(old)
        check_sound(table)


def test_replaced_file_groups_are_cleaned_first(old):
    with old.fresh() as table:
        with table.transaction("insert_overwrite") as txn:
            overwrite(txn, "a", "a9")
        for _ in range(3):
            with table.transaction() as txn:
                add(txn, "b")
        assert "replaced are not cleaned away yet" in kept_by(old)
        assert "replaced are not cleaned away yet" in kept_by(old), "also when nothing at all may go"
        before = content(table)
        assert independent_content(old.folder) == before
        table.clean(retain_commits=1)
        assert "the newest 1 commits stay" in kept_by(old)
        assert content(table) == independent_content(old.folder) == before


def test_a_pending_instant_of_another_engine_keeps_what_is_younger(old):
    with old.fresh() as table:
        middle = table.timeline().commits[2]
        theirs = next_label(0.0, middle.requested)
        (old.folder / TIMELINE / f"{theirs}.commit.requested").touch()
        assert f"commit {theirs} is pending" in kept_by(old)
        assert table.timeline().commits[0] == middle


def test_a_file_that_nobody_committed_stops_it(old):
    """Readers would count it: the file is older than the first active commit then (trap 11)."""
    with old.fresh() as table:
        middle = table.timeline().commits[2]
        slice_ = table.snapshot().file_slices()[0]
        stray = next_label(0.0, middle.requested)
        name = slice_.path.replace(slice_.instant, stray).replace(slice_.file_id, "f" * 36 + "-0")
        (old.folder / name).write_bytes((old.folder / slice_.path).read_bytes())
        assert f"{name} belongs to no commit" in kept_by(old)
        assert content(table) == independent_content(old.folder) == AGED


def test_what_dead_writers_left_is_swept_before(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    txn = a.begin_add("a")
    a.die()
    b.add("b")
    b.table.rollback_failed_writes(wait=True)
    b.add("b")
    assert fate(b.table, txn.instant) == ["begin", "rollback"]
    assert "the newest 1 commits stay" in kept_by(old)
    wanted = AGED | {"b0": 2, "b1": 2, "b9": 3}
    assert old.content() == wanted
    assert independent_content(old.folder) == wanted


# --- traps ---------------------------------------------------------------------------------------------------------


def late_publisher(world: World) -> tuple[Writer, str]:
    """A has landed and is suspended before its instant appears; others publish it, and archive it."""
    a, b = world.writer("A"), world.writer("B", host="host-b")

    def meanwhile() -> None:
        b.add("b")
        b.insert("c", "c1")
        b.insert("c", "c2")
        assert b.table.archive(**ALL).instants
        b.insert("d", "d1")
        b.table.session.log.close_epoch()  # the next one does not tell what was archived, the history does
        b.table.session.log.catch_up()

    txn = a.begin_add("a")
    a.store.add(Pause(On("put_if_absent", f"{txn.instant}_"), call=meanwhile))
    txn.commit()
    return b, txn.instant


def test_trap_4_a_late_publisher_takes_back_what_was_archived_meanwhile(old):
    """Guards: who has put an instant looks whether it was archived before."""
    _, late = late_publisher(old)
    assert not [name for name in commits_on_timeline(old) if name.startswith(late)]
    wanted = AGED | {"a0": 5, "a1": 5, "b0": 1, "b1": 1, "b9": 2, "c1": 1, "c2": 1, "d1": 1}
    assert old.content() == independent_content(old.folder) == wanted
    with old.fresh() as table:
        check_sound(table)
        assert check(table.store).findings == ()


def test_trap_4_does_harm_where_nobody_looks(old):
    with answering(Publisher, "_is_archived", False):
        b, late = late_publisher(old)
    assert [name for name in commits_on_timeline(old) if name.startswith(late)]
    wanted = AGED | {"a0": 5, "a1": 5, "b0": 1, "b1": 1, "b9": 2, "c1": 1, "c2": 1, "d1": 1}
    found = independent_content(old.folder)
    assert found != wanted, "hudi-rs misses what lies between it and the next one"
    assert old.content() == wanted, "our own readers know the history"
    (finding,) = (f for f in check(b.table.store).findings if f.kind.startswith("archived"))
    assert finding.kind == "archived-late"
    with old.fresh() as table:  # anyone who comes next
        with table.transaction() as txn:
            add(txn, "a")
        assert independent_content(old.folder) == content(table) == wanted | {"a0": 6, "a1": 6}
        check_sound(table)


def test_trap_5_the_outcome_of_an_archived_commit_is_known(old):
    a = old.writer("A")
    landed = a.add("a")
    a.add("b")
    a.add("b")
    archive(a)
    a.table.session.log.close_epoch()
    a.add("b")
    with old.fresh() as table:
        assert landed.instant not in {i.requested for i in table.timeline().commits}
        assert table.session.log.outcome(landed.instant) == "commit"
        assert table.session.log.landed(landed.instant) == landed.completion


# --- faults --------------------------------------------------------------------------------------------------------


def calls_of_execution(folder):
    """Those from the plan on; what comes before is a cleaning, which has its own tests."""
    world = aged(folder)
    writer = world.writer("A")
    archive(writer)
    calls = writer.store.calls
    world.close()
    first = next(call.number for call in calls if call.op == "put_if_absent" and "/log/" in call.path)
    # Of what leaves the timeline the last file of each instant: nobody misses the others.
    return [c for c in calls if c.number >= first - 3 and (c.op != "delete" or "_" in c.path.rpartition("/")[2])]


def test_an_archival_that_dies_at_any_call_is_finished_by_others(folder):
    calls = [call for call in calls_of_execution(folder / "dry") if call.writes]
    assert len(calls) > 8
    # Between two writes nothing changes that others see.
    strike_all(folder, [Refuse(From(call.number), errno=errno.EIO, forever=True) for call in calls], archive)


def test_a_call_of_an_archival_that_is_refused_once(folder):
    calls = [c for c in calls_of_execution(folder / "dry") if c.op != "delete" and ("timeline" in c.path or c.writes)]
    strike_all(folder, [Refuse(At(call.number)) for call in calls], archive)


def test_an_answer_to_an_archival_that_is_lost(folder):
    calls = [call for call in calls_of_execution(folder / "dry") if call.writes]
    strike_all(folder, [LoseReply(At(call.number)) for call in calls], archive)


def test_a_put_of_an_archival_that_lands_late(folder):
    calls = [call for call in calls_of_execution(folder / "dry") if call.op in PUTS]
    strike_all(folder, [Late(At(call.number)) for call in calls], archive)


# --- beside others -------------------------------------------------------------------------------------------------


def at_every_call(folder, meanwhile, calls=lambda all_: all_):
    """Archive a table, and call ``meanwhile`` at one call after the other; yields each world afterwards."""
    for call in some(calls(calls_of_execution(folder / "dry")), 7):
        world = aged(folder / str(call.number))
        a, b = world.writer("A"), world.writer("B", host="host-b")
        a.store.add(Pause(At(call.number), call=lambda b=b, world=world: meanwhile(world, b)))
        with suppress(lakelatch.ConflictError, lakelatch.LockLostError):  # it was suspended with the lock in hand
            archive(a)
        yield world
        world.close()


def test_no_reader_misses_a_row_at_any_moment(folder):
    def read(world, b):
        assert content(b.table) == AGED
        assert independent_content(world.folder) == AGED
        assert len(b.table.commits()) == 7

    def after_writes(calls):
        return [call for before, call in pairwise(calls) if before.writes]

    assert sum(1 for _ in at_every_call(folder, read, after_writes)) > 5


def test_of_two_archivers_one_takes_each_instant(folder):
    for world in at_every_call(folder, lambda world, b: b.table.archive(**ALL)):
        with world.fresh() as table:
            finish(table)
            assert len(table.timeline().commits) == 2
            assert content(table) == AGED
            check_sound(table)


def test_a_restore_or_a_savepoint_beside_an_archival(folder):
    """Each finds a whole history: what the archival has decided is done first, or it is not decided beside them."""

    def save_and_restore(world, b):
        with suppress(lakelatch.InputError):  # the commit has been archived
            b.table.savepoint(b.table.timeline().commits[0].requested)
        with suppress(lakelatch.InputError):
            b.table.restore(b.table.timeline().commits[-3:][0].requested)

    for world in at_every_call(folder, save_and_restore):
        with world.fresh() as table:
            finish(table)
            assert content(table) == independent_content(world.folder)
            assert content(table) in (AGED, BACK, BACK | {"a0": 3, "a1": 3}), "of one of two commits before"
            for saved in table.savepoints():
                assert saved.instant in {i.requested for i in table.timeline().commits}
            check_sound(table)


@pytest.mark.parametrize("entry", [1, 2])
def test_a_savepoint_is_not_decided_beside_an_archival(old, entry):
    """Guards: one that begins when an archival is planned stands back; no archival is planned while one is open."""
    a, b = old.writer("A"), old.writer("B", host="host-b")
    first = b.table.timeline().commits[1].requested
    puts = []

    def plan() -> None:
        puts.append(entry)
        if len(puts) < entry:  # not before its begin entry, but before its commit entry
            b.store.add(Pause(On("put_if_absent", "/log/"), call=plan))
            return
        with suppress(lakelatch.ConflictError):
            a.table.plan_archive(**ALL)

    b.store.add(Pause(On("put_if_absent", "/log/"), call=plan))
    with suppress(lakelatch.InputError):
        b.table.savepoint(first)
    assert len(puts) == entry
    with old.fresh() as table:
        finish(table)
        saved = {each.instant for each in table.savepoints()}
        assert saved == ({first} if entry == 2 else set())
        assert saved <= {i.requested for i in table.timeline().commits}
        check_sound(table)


def test_a_writer_beside_an_archival(folder):
    for world in at_every_call(folder, lambda world, b: b.add("a"), lambda calls: calls[::2]):
        with world.fresh() as table:
            assert content(table) == independent_content(world.folder) == AGED | {"a0": 5, "a1": 5}
            check_sound(table)


# --- the history as it may be found --------------------------------------------------------------------------------


def test_a_version_that_is_gone_is_that_of_the_largest_manifest(old):
    """The JVM deletes it before it writes the next one, and may die in between."""
    a = old.writer("A")
    archive(a)
    before = archived(old)
    (old.folder / TIMELINE / "history/_version_").unlink()
    assert archived(old) == before
    a.add("a")
    archive(a)
    assert len(archived(old)) == len(before) + 1
    assert (old.folder / TIMELINE / "history/_version_").read_text() == "2"


def test_a_manifest_of_somebody_who_died_is_passed_over(old):
    a = old.writer("A")
    archive(a)
    (old.folder / TIMELINE / "history/manifest_2").write_text('{"files":[]}')
    a.add("a")
    archive(a)
    assert len(archived(old)) == 6
    assert (old.folder / TIMELINE / "history/_version_").read_text() == "3"


def test_a_first_version_that_arrives_late_takes_back_nothing_that_came_after_it(old):
    """Nobody had put one meanwhile, since the largest manifest is in force without it (simulator, seed 900007336)."""
    before, a = commits_on_timeline(old), old.writer("A")
    for keep in (4, 2):
        a.store.add(Late(On("put_if_absent", "_version_")))
        assert a.table.archive(keep_min=keep, keep_max=keep).instants
    a.store.reset()
    a.store.land()
    assert archived(old) == before[:-2]
    with old.fresh() as table:
        assert check(table.store).findings == ()


@pytest.mark.parametrize("state", ["inflight", "commit.requested"])
def test_a_pending_instant_that_arrives_again_hides_no_archived_commit(old, state):
    """A request that is carried out twice, the second time when its commit is archived (simulator, seed 910004700)."""
    a = old.writer("A")
    inserted = next(name for name in commits_on_timeline(old)[1:])
    archive(a)
    late = old.folder / TIMELINE / f"{inserted.partition('_')[0]}.{state}"
    late.touch()
    with old.fresh() as table:
        assert content(table) == AGED
        assert table.timeline().first_active == a.table.timeline().first_active > inserted
        table.rollback_failed_writes()
        assert not late.exists()
        check_sound(table)
    assert independent_content(old.folder) == AGED


@pytest.mark.parametrize("state", ["replacecommit.inflight", "clustering.requested"])
def test_a_pending_instant_that_the_log_has_forgotten_hides_no_archived_commit(world, state):
    """It arrives when its transaction has ended long since, and what landed after it is archived (simulator, seed 7288)."""
    a, b = world.writer("A", epoch_slots=3), world.writer("B", epoch_slots=3)
    ended = a.table.transaction("insert_overwrite")
    b.insert("a", "x")
    ended.abort()
    for number in range(8):
        b.insert("b", f"y{number}")
    archive(b)
    for number in range(4):
        b.insert("b", f"z{number}")
    b.table.session.pruner.prune()
    before, c = world.content(), world.writer("C")
    assert c.table.session.log.outcome(ended.instant) is None
    late = world.folder / TIMELINE / f"{ended.instant}.{state}"
    late.touch()
    running = a.table.transaction("insert")
    c.table.rollback_failed_writes()
    assert not late.exists()
    assert world.content() == independent_content(world.folder) == before
    insert(running, "a", "w")
    assert running.commit().published
    assert world.content() == before | {"w": 1}


@pytest.mark.parametrize("name", ["manifest_1", "_version_", "parquet"])
@pytest.mark.parametrize("how", ["gone", "torn"])
def test_damage_to_the_history_is_found_and_stops_no_writer(old, name, how):
    a = old.writer("A")
    archive(a)
    (path,) = (p for p in (old.folder / TIMELINE / "history").iterdir() if p.name.endswith(name))
    path.unlink() if how == "gone" else path.write_bytes(b"torn")
    if (name, how) == ("_version_", "gone"):
        return
    with old.fresh() as table:
        assert {f.kind for f in check(table.store).findings} >= {"history-torn"}
        assert content(table) == AGED
        with table.transaction() as txn:
            add(txn, "a")
        with pytest.raises(lakelatch.CorruptTableError, match="archived timeline"):
            table.commits()


def test_a_commit_that_is_in_neither_is_found(old):
    a = old.writer("A")
    archive(a)
    history = old.folder / TIMELINE / "history"
    a.add("b")
    archive(a)
    second = history / "manifest_2"
    told = json.loads(second.read_text())
    assert check(a.table.store).findings == ()
    told["files"][0]["fileLen"] += 1
    second.write_text(json.dumps(told))
    assert [f.kind for f in check(a.table.store).findings] == ["history-torn"]
    second.write_text(json.dumps({"files": told["files"][1:]}))
    assert "history-lacks" in {f.kind for f in check(a.table.store).findings}


def test_a_late_file_of_no_commit_below_the_boundary_is_found(old):
    a = old.writer("A")
    archive(a)
    with old.fresh() as table:
        slice_ = table.snapshot().file_slices()[0]
    stray = next_label(0.0, sorted(archived(old))[0][:17])
    name = slice_.path.replace(slice_.instant, stray).replace(slice_.file_id, "f" * 36 + "-0")
    (old.folder / name).write_bytes((old.folder / slice_.path).read_bytes())
    found = [f for f in check(a.table.store).findings if f.kind == "file-never-committed"]
    assert [f.path for f in found] == [name]


def test_who_cannot_plan_or_stands_back_is_told_all_that_a_conflict_tells(old):
    a, b = old.writer("A", epoch_slots=50), old.writer("B", host="host-b", epoch_slots=50)
    planned = a.table.plan_archive(**ALL)
    txn = Service(b.table.session, "restore", RESTORE)
    with pytest.raises(lakelatch.ConflictError) as told:
        txn.refuse_beside_archival()
    txn.abort("told")
    assert (told.value.winner, told.value.winner_op, told.value.winner_writer) == (planned, "ARCHIVE", "A")
    # Somebody else takes every slot that the plan wants.
    b.store.add(Pause(On("put_if_absent", "/log/"), call=lambda: a.insert("a", f"x{len(b.store.calls)}"), forever=True))
    with pytest.raises(lakelatch.ConflictError) as told:
        b.table.plan_clustering(**SMALL)
    assert (told.value.winner, told.value.overlap) == ("", ())


# --- by itself -----------------------------------------------------------------------------------------------------


def test_old_commits_leave_the_timeline_without_being_asked(make_world):
    """What a commit and an open ask of the store does not grow with the table's age; only who closes an epoch archives."""
    world = make_world(archive_above=8)
    writer = world.writer("A", epoch_slots=20)
    asked, shown, opened = [], [], []
    for number in range(60):
        writer.store.reset()
        writer.insert("a", f"x{number}")
        asked.append(len(writer.store.calls))
        writer.env.run_threads()
        shown.append(len(commits_on_timeline(world)))
        if number in (29, 59):
            reader = world.writer("R")
            reader.store.reset()
            reader.table.snapshot()
            opened.append(len(reader.store.calls))
    assert max(shown) <= 8 + 10  # an epoch holds ten commits
    assert min(shown[20:]) == 4
    assert opened[0] == opened[1]
    before, closing = sorted(asked[10:])[len(asked[10:]) // 2], max(asked[10:])
    assert closing <= before + 12, "who closes an epoch asks for nothing of the archival in its own commit"
    assert content(world.fresh()) == independent_content(world.folder) == BEGUN | {f"x{n}": 1 for n in range(60)}
    check_sound(world.fresh())


@pytest.mark.parametrize("settings", [{"archive_above": None}, {"archive_above": 4, "lock": "JVM"}])
def test_nothing_leaves_the_timeline_by_itself_where_it_should_not(make_world, tmp_path, settings):
    if "lock" in settings:  # its other writers archive by settings of their own
        settings |= {"lock": f"file://{tmp_path}/locks?jvm=lock"}
    world = make_world(**settings)
    writer = world.writer("A", epoch_slots=8)
    for number in range(12):
        writer.insert("a", f"x{number}")
        writer.env.run_threads()
    assert writer.table.session.log.closed > 0
    assert len(commits_on_timeline(world)) == 2 + 12


def test_a_handle_is_closed_after_what_it_archives_by_itself(make_world):
    world = make_world(archive_above=4)
    writer = world.writer("A", epoch_slots=20)
    while writer.table.session.log.closed < 0:
        writer.insert("a", f"x{len(commits_on_timeline(world))}")
    assert len(commits_on_timeline(world)) > 4
    writer.table.close()
    assert len(commits_on_timeline(world)) <= 4


def test_an_archival_that_fails_by_itself_fails_no_commit_and_the_next_one_goes_on(make_world, caplog):
    world = make_world(archive_above=4)
    writer = world.writer("A", epoch_slots=10)
    writer.store.add(Refuse(On("put_if_absent", "/history/"), errno=errno.ENOSPC, forever=True))
    for number in range(6):
        writer.insert("a", f"x{number}")
        writer.env.run_threads()
    assert len(commits_on_timeline(world)) == 2 + 6
    assert "were not archived" in caplog.text
    writer.store.reset()
    for number in range(6, 12):
        writer.insert("a", f"x{number}")
        writer.env.run_threads()
    assert len(commits_on_timeline(world)) <= 8
    assert content(world.fresh()) == BEGUN | {f"x{n}": 1 for n in range(12)}
