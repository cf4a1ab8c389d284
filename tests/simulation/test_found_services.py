"""What the simulator has found in savepoints, restore and readers' leases, each told again as one schedule by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

import lakelatch
from lakelatch.hudi.timeline.instant import Instant, file_name
from lakelatch.hudi.timeline.timeline import read_timeline
from lakelatch.occ.check.check import check
from lakelatch.occ.services.scheduling import Executed
from lakelatch.storage import Outcome
from lakelatch.testing.faults import Call, On, Pause, Refuse

from ..occ.world import BEGUN, World, Writer, add, check_sound, overwrite

NOW = BEGUN | {"a0": 1, "a1": 1}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """One commit on top of the first one: a is added to."""
    world = World(tmp_path / "table", lock="none://")
    world.writer("founder").add("a")
    yield world
    world.close()


@pytest.fixture
def pruned(tmp_path: Path) -> Iterator[World]:
    """All epochs but the newest may go."""
    world = World(tmp_path / "table", lock="none://", log_epochs=1)
    yield world
    world.close()


def first_of(writer: Writer) -> str:
    """T of the commit that made the rows, which a restore goes back to here."""
    return writer.table.timeline().commits[1].requested


def files_of(writer: Writer, instant: str) -> list[Path]:
    return sorted(Path(writer.table.url.removeprefix("file://")).rglob(f"*_{instant}.parquet"))


def of_completed(call: Call) -> bool:
    return call.op == "delete" and "/timeline/" in call.path and "_" in call.path


def of_restore(call: Call) -> bool:
    return call.op == "put_if_absent" and "_" in call.path and call.path.endswith(".restore")


def test_a_lease_is_that_of_the_view_and_not_of_the_log_before_it(world: World):
    """A reader reads the log, and then lists the timeline, where a commit has appeared meanwhile. Its lease has to name
    that one: a clean keeps what leases name, and the checkpoint of an incremental reader is the same time. Seed 621.
    """
    a, b = world.writer("A"), world.writer("B")
    b.store.add(Pause(On("list", ".hoodie/timeline"), call=lambda: a.add("a")))
    with b.table.pinned() as view:
        assert view.completion == a.table.timeline().commits[-1].completed
        for _ in range(3):
            a.add("a")
        assert a.table.clean(retain_commits=1) is not None
        assert view.read().count() == len(BEGUN)


def test_the_newest_by_completion_leaves_the_timeline_first(world: World):
    """T of the commit that landed last is the smaller one. Taken back by T, the timeline shows it without the one before
    it, which never was so. Seed 1388.
    """
    a, b = world.writer("A"), world.writer("B")
    early = a.begin_add("a")
    b.add("b")
    early.commit()
    names = [file_name(each) for each in a.table.timeline().commits[2:]]
    assert names != sorted(names)
    a.store.reset()
    a.table.restore(first_of(a))
    assert [call.path.rpartition("/")[2] for call in a.store.calls if of_completed(call)][:3] == names[::-1]


def test_an_undone_instant_is_gone_before_the_restore_shows(world: World, monkeypatch: pytest.MonkeyPatch):
    """No answer to its deletion, which is not carried out: the restore must not appear beside it. Seed 5857."""
    a, asked, beside = world.writer("A"), [], []
    undone, really = a.table.timeline().commits[-1], a.store.delete

    def delete(path: str) -> Outcome:
        asked.append(path)
        return Outcome.UNKNOWN if path == a.table.timeline().path(undone) and asked.count(path) == 1 else really(path)

    monkeypatch.setattr(a.store, "delete", delete)
    a.store.add(Pause(of_restore, call=lambda: beside.append(a.store.inner.head(a.table.timeline().path(undone)))))
    a.table.restore(first_of(a))
    assert beside == [None]
    with world.fresh() as table:
        check_sound(table)


def test_what_arrives_late_of_a_commit_that_was_undone_is_swept(world: World):
    """Its pending instant, its heartbeat and a marker are put after the restore. Seeds 6073, 6129, 6632."""
    a = world.writer("A", epoch_slots=12)
    undone = a.table.timeline().commits[-1].requested
    a.table.restore(first_of(a))
    for number in range(2):
        a.store.put_if_absent(f".hoodie/timeline/{undone}.inflight", b"")
        a.store.put_if_absent(f".hoodie/.heartbeat/{undone}", b"")
        a.store.put_if_absent(f".hoodie/.temp/{undone}/part=a/x_0-0-0_{undone}.parquet.marker.MERGE", b"")
        with world.fresh() as table:
            check_sound(table)
        for _ in range(8 * (1 - number)):
            a.add("b")  # into the next epoch, whose first entry does not tell what was undone


def test_a_late_publication_of_what_an_earlier_epoch_has_undone_is_taken_back(world: World):
    """Its files are gone, and file groups that it replaced would stay hidden. Seed 1399."""
    a = world.writer("A", epoch_slots=12)
    undone = a.table.timeline().commits[-1]
    body = a.store.get(a.table.timeline().path(undone)).body
    a.table.restore(first_of(a))
    for _ in range(8):
        a.add("b")
    a.store.put_if_absent(a.table.timeline().path(undone), body)
    with world.fresh() as table:
        check_sound(table)
    assert a.store.head(a.table.timeline().path(undone)) is None


def test_what_was_taken_back_and_published_late_is_in_no_view(world: World):
    """Its files still stand, because a reader has a lease. A writer who saw them brought back what a restore had undone:
    the instant was put by a publisher who slept during all of it. Seed 31036.
    """
    a, b = world.writer("A"), world.writer("B", host="host-b")
    undone = a.table.timeline().commits[-1]
    path, body = a.table.timeline().path(undone), a.store.get(a.table.timeline().path(undone)).body
    with b.table.pinned() as view:
        a.table.restore(first_of(a))
        a.add("b", 0)
        a.store.put_if_absent(path, body)
        assert world.content() == BEGUN
        world.writer("C").add("a")
        assert world.content() == NOW
        assert view.read().count() == len(BEGUN)


def test_a_cleaning_in_a_later_epoch_spares_what_a_reader_reads(world: World):
    """Who has not read the restore itself took the undone commit for rolled back, and deleted its files at once."""
    a, b = world.writer("A", epoch_slots=12), world.writer("B", host="host-b")
    undone = a.table.timeline().commits[-1].requested
    with b.table.pinned() as view:
        a.table.restore(first_of(a))
        for _ in range(8):
            a.add("b")
        with world.fresh() as table:
            table.rollback_failed_writes()
        assert files_of(a, undone)
        assert view.read().count() == len(BEGUN)
    with world.fresh() as table:
        check_sound(table)
    assert not files_of(a, undone)


def test_a_snapshot_that_a_restore_takes_apart_is_a_conflict(world: World):
    """An instant goes between its listing and its reading. That is no damage, and to run again helps. Seed 162."""
    a, b = world.writer("A"), world.writer("B")
    with b.table.transaction("insert_overwrite") as txn:  # what was replaced is read
        overwrite(txn, "b", "b9")
    txn = a.table.transaction()
    a.store.add(Pause(On("get", "_"), call=lambda: b.table.restore(first_of(b))))
    with pytest.raises(lakelatch.ConflictError) as lost:
        add(txn, "a")
    assert lost.value.winner_op == "RESTORE"
    txn.abort()
    assert a.add("a") is not None
    assert world.content() == NOW


def test_a_plan_that_a_restore_takes_apart_is_made_again(world: World):
    """The same below somebody who plans a service. Seed 130083110."""
    a, b = world.writer("A"), world.writer("B")
    with a.table.transaction("insert_overwrite") as txn:  # anyone who plans reads what was replaced
        overwrite(txn, "b", "b9")
    path = a.table.timeline().path(a.table.timeline().commits[-1])
    a.store.add(Pause(On("get", path), call=lambda: b.table.restore(first_of(b))))
    assert a.table.plan_clean(retain_commits=1) is None
    assert not a.store.armed


def test_a_plan_whose_files_a_restore_took_away_ends(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its first execution is told who won, and it is in nobody's way afterwards. Seed 130083144."""
    a, b = world.writer("A"), world.writer("B")
    for name in "xy":
        a.insert("c", name)
    planned = a.table.plan_clustering()
    assert planned is not None
    monkeypatch.setattr(
        sys.modules["lakelatch.occ.services.restore"], "end_plan", lambda *_: None
    )  # the restorer died before it came to that
    b.table.restore(first_of(b))
    with pytest.raises(lakelatch.ConflictError) as told:
        a.table.execute(planned)
    assert told.value.winner_op == "RESTORE"
    assert not a.table.plans()
    check_sound(a.table)


def test_a_reader_beside_a_restore_that_is_being_published(world: World):
    """The log says that it has landed, and what it takes back goes while the reader looks. Seeds 2305 and 6868."""
    a, b = world.writer("A"), world.writer("B")
    old, undone = a.table.timeline().commits[-2:]
    views: list[object] = []
    b.store.add(Pause(of_completed, call=lambda: views.extend(look_twice(a, b, undone))))
    b.table.restore(old.requested)
    assert views == 2 * [a.table.snapshot()]


@pytest.mark.parametrize("service", ["restore", "savepoint"])
def test_a_service_on_a_commit_that_a_restore_takes_back_meanwhile(world: World, service: str):
    """It goes between the listing and the reading, which is no damage. Seed 190201387, of two restores."""
    a, b = world.writer("A"), world.writer("B")
    with b.table.transaction("insert_overwrite") as txn:  # what it replaced is read with the timeline
        overwrite(txn, "b", "b7")
    old, gone = a.table.timeline().commits[-2:]
    b.add("a")
    does = a.table.restore if service == "restore" else a.table.savepoint
    a.store.add(Pause(On("get", a.table.timeline().path(gone)), call=lambda: b.table.restore(old.requested)))
    with pytest.raises(lakelatch.InputError, match=f"{gone.requested} is no commit on the timeline"):
        does(gone.requested)
    check_sound(a.table)


def test_a_new_handle_takes_back_what_a_restore_has_undone_that_it_reads_while_it_verifies(world: World):
    """The restorer could not take the instant away. B, which has found it on the timeline, reads on and publishes the restore:
    not beside what it has undone. Seed 200132849.
    """
    a, b = world.writer("A"), world.writer("B")

    def meanwhile() -> None:
        a.add("a")
        a.store.add(Refuse(On("delete", ".hoodie/timeline"), forever=True))
        a.table.restore(a.table.timeline().commits[-2].requested)

    of_timeline, looks = On("list", ".hoodie/timeline"), count()  # the first look is for strangers, the second verifies
    b.store.add(Pause(lambda call: of_timeline(call) and next(looks) == 1, call=meanwhile))
    b.add("b")
    undone = b.table.session.log.state.undone
    assert len(undone) == 1
    assert not undone & {entry.name for entry in b.store.list(".hoodie/timeline")}
    a.store.reset()
    b.table.rollback_failed_writes()
    check_sound(b.table)


@pytest.mark.parametrize("knows", [True, False])
def test_a_sweep_leaves_to_a_restore_what_it_is_just_taking_back(world: World, knows: bool):
    """It would go oldest first, and readers would see what never was (found among keepers only, 300042281). Also one who
    reads of the restore only where he looks for deleted savepoints (850000689).
    """
    a, b = world.writer("A"), world.writer("B")
    b.table.savepoint(first_of(b))
    b.add("a")
    b.add("a")
    b.store.add(Refuse(On("delete", ".hoodie/timeline"), forever=True))
    b.table.restore(first_of(b))
    if knows:
        a.table.session.log.catch_up()
    shown = read_timeline(a.store, a.table.config)
    names = [file_name(each) for each in shown.commits if file_name(each) in b.table.session.log.state.undone]
    assert len(names) >= 2
    a.table.session.cleaner.sweep_strays(shown, ())
    a.table.rollback_failed_writes()
    assert [call.path.rpartition("/")[2] for call in a.store.calls if of_completed(call)][: len(names)] == names[::-1]
    b.store.reset()
    check_sound(a.table)


def look_twice(a: Writer, b: Writer, undone: Instant) -> Iterator[object]:
    path = a.table.timeline().path(undone)
    for words in ({}, {"as_of_completion": "99991231235959999"}):
        a.store.reset()
        a.store.add(Pause(On("get", path), call=lambda: b.store.inner.delete(path)))
        yield a.table.snapshot(**words)


def test_an_own_commit_that_was_undone_or_stands_under_another_name_is_recognised(world: World):
    """A transaction that has landed is told so also when no instant bears its T any more, or ever did."""
    a = world.writer("A", epoch_slots=12)
    undone = a.add("b")
    saved = a.table.savepoint(first_of(a))
    (kept,) = (
        e.instant
        for e in a.table.session.log.entries()
        if getattr(e, "operation", "") == "SAVEPOINT" and e.kind == "commit"
    )
    a.table.restore(saved.instant)
    for _ in range(8):
        a.add("b")
    log = world.writer("B").table.session.log
    assert (log.landed(undone.instant), log.outcome(undone.instant)) == (undone.completion, "undone")
    assert (log.landed(kept), log.outcome(kept)) == (saved.shown.completed, "commit")


def test_a_plan_is_of_the_epoch_that_it_begins_in(pruned: World):
    """Nothing keeps an epoch in which a plan is only being computed. Once it was pruned, the plan could be executed by
    nobody, and ingestion waited for it. Found by a mutant, seed 123.
    """
    a, b = pruned.writer("A", epoch_slots=8), pruned.writer("B", epoch_slots=8)
    a.insert("a", "a2")

    def goes_on() -> None:
        for _ in range(6):
            b.add("b")
        a.store.add(Pause(On("put_if_absent", "/log/"), call=b.table.rollback_failed_writes))

    a.store.reset()
    a.store.add(Pause(lambda call: (call.op, call.path) == ("list", ""), call=goes_on))
    planned = a.table.plan_clustering()
    assert planned is not None
    assert not a.store.armed
    assert a.table.execute(planned).mine


def landed_two_epochs_ago(world: World) -> tuple[Writer, str, list[Executed]]:
    """A writer, a plan, and what another one is told who executes it, all of it before the writer's next put into the log.

    Then the epoch goes, and that put succeeds where it was.
    """
    a = world.writer("A")
    b = world.writer("B", host="host-b", wall=a.env.now() + 1, epoch_slots=4)
    for name in "xy":
        a.insert("a", name)
    planned = a.table.plan_clustering()
    assert planned is not None
    told: list[Executed] = []

    def meanwhile() -> None:
        told.append(b.table.execute(planned))
        epoch = b.table.session.log.epoch
        while b.table.session.log.epoch == epoch:
            b.add("b")
        assert epoch in b.table.session.pruner.prune()

    a.store.add(Pause(On("put_if_absent", "/log/"), call=meanwhile))
    return a, planned, told


def test_an_execution_whose_plan_another_one_has_landed_two_epochs_ago_is_told_so(pruned: World):
    """The T has landed, by the entry of the other execution, with another C: who takes that for its own publishes the same
    T a second time. Seed 850001095.
    """
    a, planned, told = landed_two_epochs_ago(pruned)
    mine = a.table.execute(planned)
    assert (mine.mine, mine.completion) == (False, told[0].completion)
    assert [i.completed for i in a.table.timeline().commits if i.requested == planned] == [mine.completion]
    assert check(a.table.store).findings == ()


def test_a_plan_that_has_landed_two_epochs_ago_is_not_cancelled(pruned: World):
    """Nothing was harmed, but anyone who wanted to cancel it was told that it is."""
    a, planned, told = landed_two_epochs_ago(pruned)
    assert not a.table.cancel_plan(planned)
    assert told[0].mine
    assert check(a.table.store).findings == ()


def bring_back(writer: Writer) -> Path:
    """A savepoint is made and deleted, and the put of its instant arrives once more."""
    kept = writer.table.savepoint()
    path = Path(writer.table.url.removeprefix("file://"), ".hoodie/timeline", file_name(kept.shown))
    body = path.read_bytes()
    writer.table.delete_savepoint(kept.instant)
    assert not path.exists()
    path.write_bytes(body)
    return path


def test_a_deleted_savepoint_that_comes_back_is_taken_away_by_whoever_cleans_in_a_later_epoch(world: World):
    """Its instant is put late. The newest epoch does not tell that it was deleted. Seed 231067925."""
    a = world.writer("A", epoch_slots=12)
    kept = a.table.savepoint(first_of(a))
    path = bring_back(a)
    epoch = a.table.session.log.epoch
    while a.table.session.log.epoch == epoch:
        a.add("b")
    with world.fresh() as table:
        table.rollback_failed_writes()
        assert not path.exists()
        assert [each.instant for each in table.savepoints()] == [kept.instant], "another one stays"


def test_a_deleted_savepoint_that_comes_back_goes_with_the_epoch_that_tells_of_it(world: World):
    """Later nobody would know. Seed 231067925."""
    a = world.writer("A", epoch_slots=12)
    a.table.change_settings(log_epochs=1)
    epoch = a.table.session.log.epoch
    path = bring_back(a)
    while a.table.session.log.epoch == epoch:
        a.add("b")
    assert epoch in a.table.session.pruner.prune()
    assert not path.exists()
