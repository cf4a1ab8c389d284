"""What the simulator has found, each told again as one schedule by hand."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakelatch
from lakelatch.errors import CorruptTableError
from lakelatch.hudi.timeline.instant import next_label
from lakelatch.occ.entries.entries import Commit
from lakelatch.occ.log.epochs import LOG
from lakelatch.testing.faults import Call, On, Pause, Refuse

from ..occ.log.test_strangers import Engine
from ..occ.world import BEGUN, World, Writer, check_sound


def _completed_instant(call: Call) -> bool:
    return call.op == "put_if_absent" and "/timeline/" in call.path and "_" in call.path


def lands_two_and_publishes_one(a: Writer) -> None:
    assert a.add("a").published
    a.store.add(Refuse(_completed_instant, forever=True))
    assert not a.add("a").published


def test_a_new_handle_publishes_what_it_reads_while_it_verifies_its_epoch(tmp_path: Path):
    """B, a new handle, looks up whether its epoch's commits are on the timeline. Meanwhile A lands two; the second could
    not be published. B sees the first one, reads on in the log, finds both, and must not begin behind the second
    while no timeline shows it: its snapshot would lack A's rows, and B would overwrite them.
    """
    world = World(tmp_path / "table", lock="none://")
    a, b = world.writer("A"), world.writer("B")
    b.store.add(Pause(On("list", ".hoodie/timeline"), call=lambda: lands_two_and_publishes_one(a)))
    b.add("a")
    a.store.reset()
    assert world.content() == BEGUN | {"a0": 3, "a1": 3}
    with world.fresh() as table:
        check_sound(table)
    world.close()


def test_a_handle_publishes_what_it_reads_while_it_looks_for_strangers(tmp_path: Path):
    """The same of a handle that is open for long, and looks for commits of other engines now and then. Soak, seed 40057201."""
    world = World(tmp_path / "table", lock="none://")
    a, b = world.writer("A"), world.writer("B")
    b.add("b")
    world.env.advance(2.0)
    b.store.add(Pause(On("list", ".hoodie/timeline"), call=lambda: lands_two_and_publishes_one(a)))
    b.add("b")
    a.store.reset()
    order = [entry.instant for entry in b.table.session.log.entries() if isinstance(entry, Commit)]
    made = [call.path for call in b.store.calls if _completed_instant(call)]
    assert [path.rpartition("/")[2][:17] for path in made] == [order[-4], *order[-2:]]
    with world.fresh() as table:
        check_sound(table)
    world.close()


def test_a_view_that_could_not_be_read_anew_is_not_taken_for_the_newest(tmp_path: Path):
    """A's handle has a view, and the log was made again below it, so that it has to list the data files again. The store
    does not answer that. When A tries again, its view of long ago must not count as followed: B has written since, and A
    would overwrite that. Soak, seed 30250528, once in 250,000 schedules.
    """
    world = World(tmp_path / "table", lock="none://")
    a, b = world.writer("A"), world.writer("B")
    a.add("b")
    b.add("b")
    world.env.advance(1.0)
    shutil.rmtree(world.folder / LOG)
    world.writer_of(lakelatch.adopt(str(world.folder), env=world.env.peer(), writer="adopter")).add("a")
    a.store.add(Refuse(lambda call: (call.op, call.path) == ("list", ""), forever=True))
    with pytest.raises(lakelatch.errors.StorageError):
        a.add("a")
    a.store.reset()
    a.add("a")
    assert world.content() == BEGUN | {"a0": 2, "a1": 2, "b0": 2, "b1": 2}
    world.close()


def test_a_handle_that_goes_over_to_a_new_epoch_forgets_no_setting_meanwhile(tmp_path: Path):
    """Threads that share a handle look at its settings while one of them reads the newest epoch from its beginning. They
    must not see those of a table that nobody has set: another lock, another level. Simulator, seed 865, log_epochs=1.
    """
    world = World(tmp_path / "table", lock="none://", isolation="serializable")
    a, seen = world.writer("A"), set()
    a.add("a")
    world.env.advance(1.0)
    shutil.rmtree(world.folder / LOG)
    world.writer_of(lakelatch.adopt(str(world.folder), env=world.env.peer(), writer="adopter", lock="none://"))
    (epoch,) = (world.folder / LOG).iterdir()
    a.store.add(
        Pause(On("get", epoch.name), call=lambda: seen.add((a.table.settings.lock, a.table.settings.isolation)))
    )
    a.table.session.log.catch_up()
    assert seen == {("none://", "serializable")}
    world.close()


def test_one_that_was_paused_past_its_lease_leaves_its_entry_to_an_import(tmp_path: Path):
    """A holds the lock beside another engine, and is paused before its instant; somebody takes its lock. The other engine
    commits to the same file group, and B imports that. When A's instant is there, one hides the other: had A appended its
    entry itself, no import would ever have compared the two. Simulator, seed 28 beside strangers, slow at put completed.
    """
    world = World(tmp_path / "table", lock=f"file://{tmp_path}/lock?jvm=lock", lock_wait_s=30.0, neighbours="hudi")
    a, b, c = world.writer("A"), world.writer("B"), world.writer("C")
    b.env.advance(1.0)
    theirs = Engine(world, next_label(b.env.now(), b.table.session.log.newest_shown))
    (theirs.timeline / f"{theirs.requested}.inflight").touch()
    a.env.advance(1.0)
    txn = a.begin_add("a")

    def others() -> None:
        found = b.table.session.lock.provider()
        assert found is not None
        locks, key = found
        locks.break_lease(key, token=locks.inspect(key).token, reason="its holder is paused", who="B")
        theirs.complete()
        b.env.advance(1.0)
        b.add("b")

    a.store.add(Pause(_completed_instant, call=others))
    assert txn.commit() is not None
    c.env.advance(1.0)
    with pytest.raises(CorruptTableError, match="are lost") as told:
        c.add("a")
    assert {told.value.lost, told.value.kept} == {theirs.requested, txn.instant}
    world.close()
