"""Old epochs of the log go, nothing that counts goes with them, and nothing that comes late counts."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest

import lakelatch
from lakelatch.cli.history.timeline import timeline as show_timeline
from lakelatch.errors import CorruptTableError, StorageError
from lakelatch.hudi.timeline.instant_time import next_label
from lakelatch.hudi.timeline.timeline import TIMELINE
from lakelatch.occ.check.check import check
from lakelatch.occ.entries.entries import Begin, encode
from lakelatch.occ.entries.side_objects import SIDES
from lakelatch.occ.log.commit_log import CommitLog
from lakelatch.occ.log.epochs import LOG, epochs, first_slot, read_epoch, slot_path
from lakelatch.occ.log.publisher import Publisher
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.testing.faults import From, LoseReply, On, Pause, Refuse

from ..world import BEGUN, World, Writer, add, check_history, commits, content, independent_content

ENTRY = On("put_if_absent", "/log/")


@pytest.fixture
def world(make_world) -> World:
    return make_world(lock="none://", log_epochs=1)


def next_epoch(writer: Writer, times: int = 1) -> None:
    for _ in range(times):
        writer.table.session.log.catch_up()
        writer.table.session.log.close_epoch()
        writer.add("b")


def kept(world: World) -> list[int]:
    with world.fresh() as table:
        return epochs(table.store)


@pytest.mark.parametrize("whole", [True, False])
def test_the_epoch_that_a_new_handle_has_just_found_is_removed_below_it(world, whole):
    """It was the newest when the folders were listed; the table is sound all the while (simulated seed 120046928)."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    (first,) = [e.path for e in b.table.store.list(LOG, recursive=True)][:1]

    def meanwhile() -> None:
        next_epoch(a, 3)
        a.table.rollback_failed_writes() if whole else a.table.store.delete(first)

    b.store.add(Pause(On("folders", LOG), meanwhile, after=True))
    log = CommitLog(b.store, b.env, Publisher(b.store, b.env, TIMELINE))
    assert log.catch_up().top == a.table.session.log.catch_up().top


def test_old_epochs_go_and_the_table_stays(world):
    a = world.writer("A")
    next_epoch(a, 3)
    last = kept(world)[-1]
    a.table.rollback_failed_writes()
    assert kept(world) == [last]
    for writer in (a, world.writer("fresh", host="host-c")):
        writer.add("a")
    with world.fresh() as table:
        assert content(table) == {"a0": 2, "a1": 2, "b0": 3, "b1": 3}
        check_history(table)
        told = [c.instant for c in commits(table)]
        assert told == [i.requested for i in table.timeline().commits][-len(told) :]
        report = check(table.store)
    assert report.findings == ()
    assert any("removed" in each for each in report.unchecked), "and says of what it cannot tell"
    assert independent_content(world.folder) == {"a0": 2, "a1": 2, "b0": 3, "b1": 3}


def test_as_many_stay_as_the_setting_says(make_world):
    world = make_world(log_epochs=3)
    a = world.writer("A")
    next_epoch(a, 4)
    newest = kept(world)[-3:]
    a.table.rollback_failed_writes()
    assert kept(world) == newest
    with pytest.raises(lakelatch.ConfigError, match="log_epochs is 0"):
        a.table.change_settings(log_epochs=0)


def test_a_handle_that_lives_long_prunes_beside_its_beats(world):
    a = world.writer("A")
    next_epoch(a, 2)
    a.table.session.heart.beat()
    assert len(kept(world)) == 1
    a.store.calls.clear()
    a.table.session.heart.beat()
    assert not [c for c in a.store.calls if c.op in ("folders", "list") and LOG in c.path], "once for each epoch"


def test_an_epoch_stays_while_something_is_open_that_began_in_it_or_before(world):
    a, w = world.writer("A"), world.writer("W", host="host-b")
    next_epoch(a)
    txn = w.begin_add("a")
    next_epoch(a, 3)
    a.table.rollback_failed_writes()
    first, *rest = kept(world)
    assert len(rest) == 3, "only what was before its begin is gone"
    assert any(isinstance(e, Begin) and e.instant == txn.instant for e in a.table.session.log.entries())
    txn.commit()
    a.table.rollback_failed_writes()
    assert first not in kept(world)
    assert len(kept(world)) == 1
    assert world.content() == {"a0": 1, "a1": 1, "b0": 4, "b1": 4}


def test_an_epoch_stays_while_the_timeline_lacks_a_commit_of_it(world, caplog):
    a = world.writer("A")
    lost = a.add("a")
    next_epoch(a, 2)
    (instant,) = (world.folder / ".hoodie/timeline").glob(f"{lost.instant}_*")
    body = instant.read_bytes()
    instant.unlink()
    with caplog.at_level(logging.WARNING, "lakelatch.prune"):
        a.table.rollback_failed_writes()
    assert lost.instant in caplog.text
    assert len(kept(world)) == 3
    with world.fresh() as table:
        assert "commit-unpublished" in {each.kind for each in check(table.store).findings}
    instant.write_bytes(body)
    a.table.rollback_failed_writes()
    assert len(kept(world)) == 1


# --- interrupted, at once, late ------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 4])
def test_one_that_is_left_half_is_no_damage_and_goes_the_next_time(world, after):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    next_epoch(a, 2)
    before = kept(world)
    deletions = iter(range(100))
    a.store.add(Refuse(lambda call: On("delete", "/log/")(call) and next(deletions) == after))
    with pytest.raises(StorageError):
        a.table.rollback_failed_writes()
    assert kept(world) == before
    with world.fresh() as table:
        report = check(table.store)
        assert report.findings == ()
        assert next(table.session.log.entries()).slot == first_slot(table.store, before[1]), "half of a story is none"
    b.table.rollback_failed_writes()
    assert len(kept(world)) == 1
    b.add("a")
    assert world.content() == {"a0": 1, "a1": 1, "b0": 2, "b1": 2}


def test_side_objects_and_leftovers_go_with_the_epoch_that_tells_of_them(world):
    a, w = world.writer("A"), world.writer("W", host="host-b")
    a.table.session.inline_bytes = w.table.session.inline_bytes = 0
    w.store.add(Refuse(On("delete"), forever=True))  # lands, and dies before it removes its markers
    landed = w.add("a")
    w.die()
    next_epoch(a, 2)
    assert [e for e in a.table.store.list(SIDES) if e.name.startswith(landed.instant)]
    a.table.session.pruner.prune()
    with world.fresh() as table:
        left = {e.name.partition("-")[0] for e in table.store.list(SIDES)}
        assert left <= {c.instant for c in commits(table)}
        assert landed.instant not in table.store.folders(".hoodie/.temp")
        assert content(table) == {"a0": 1, "a1": 1, "b0": 2, "b1": 2}
        assert check(table.store).findings == ()


def rolled_back_while_paused(world: World) -> None:
    """W is paused before its commit entry; it is rolled back, its epoch goes; then its put succeeds."""
    w, x = world.writer("W"), world.writer("X", host="host-b")
    txn = w.begin_add("a")

    def meanwhile() -> None:
        assert x.table.rollback_failed_writes(wait=True) == [txn.instant]
        next_epoch(x, 2)
        x.table.rollback_failed_writes()
        assert len(kept(world)) == 1

    w.store.add(Pause(ENTRY, call=meanwhile))
    txn.commit()


def test_a_commit_that_is_put_into_a_pruned_epoch_does_not_count(world):
    with pytest.raises(lakelatch.RolledBackError):
        rolled_back_while_paused(world)
    assert len(kept(world)) == 2, "its put has landed"
    with world.fresh() as table:
        assert content(table) == BEGUN | {"b0": 2, "b1": 2}
        assert len(commits(table)) == 1, "and tells nobody that it has"
        assert check(table.store).findings == ()
        table.rollback_failed_writes()
        assert len(epochs(table.store)) == 1
        assert content(table) == BEGUN | {"b0": 2, "b1": 2}


def test_a_commit_put_into_a_pruned_epoch_does_harm_when_nobody_looks(world, breaks):
    breaks(CommitLog, "_newest_epoch_is_not", lambda self, epoch: False)
    rolled_back_while_paused(world)  # acknowledged, and lost
    with pytest.raises(CorruptTableError, match="another program has deleted it"):
        world.content()


def test_what_a_commit_put_into_a_pruned_epoch_does_not_name_stays(world):
    """W's entry of an earlier round stands where its T did not land by it, and the put of the open entry has come back."""
    w = world.writer("W")
    begun = next(w.table.session.log.entries())
    w.add("a")
    (landed,) = [e for e in commits(w.table) if e.instant == w.table.timeline().commits[-1].requested]
    epoch = w.table.session.log.epoch
    next_epoch(w, 2)
    w.table.rollback_failed_writes()
    assert epoch not in kept(world)
    earlier = replace(landed, completion=next_label(0.0, landed.completion), metadata={**landed.metadata, "stats": []})
    for entry in (begun, earlier):
        w.table.store.put(slot_path(epoch, entry.slot), encode(entry, epoch, entry.slot, "z"))
    assert earlier in w.table.session.log.entries()
    w.table.session.cleaner.sweep_strays(w.table.timeline(), ())
    assert world.content() == {"a0": 1, "a1": 1, "b0": 2, "b1": 2}


def begin_where_another_began(world: World) -> tuple[str, str]:
    """W and V pick the same T for the same slot; V's entry stands, V commits in a later epoch, the first one goes.

    Then W's put succeeds in the emptied slot. Returns the T of V and of W.
    """
    w, v = world.writer("W"), world.writer("V", host="host-b")
    other = ""

    def meanwhile() -> None:
        nonlocal other
        with v.table.transaction("upsert") as txn:
            add(txn, "a")
            v.table.session.log.close_epoch()
        other = txn.instant
        v.table.rollback_failed_writes()
        assert len(kept(world)) == 1

    w.store.add(Pause(ENTRY, call=meanwhile))
    with w.table.transaction("upsert") as txn:
        assert other, "W began after V"
        add(txn, "a")
    return other, txn.instant


def test_a_begin_that_is_put_into_a_pruned_epoch_takes_nobodys_t(world):
    """Guards: a T that has ended is not given again, though the entry that gave it is gone."""
    theirs, ours = begin_where_another_began(world)
    assert theirs < ours
    assert world.content() == BEGUN | {"a0": 2, "a1": 2}


def test_a_reader_who_slept_in_a_pruned_epoch_goes_on_in_the_newest(world):
    a, r = world.writer("A"), world.writer("R", host="host-b")
    r.add("a")
    next_epoch(a, 2)
    a.table.rollback_failed_writes()
    r.add("a")
    assert world.content() == {"a0": 2, "a1": 2, "b0": 2, "b1": 2}


def test_one_who_opens_the_next_epoch_late_brings_no_old_one_back(world):
    """Its open entry is put into the folder that has gone meanwhile."""
    a, z = world.writer("A"), world.writer("Z", host="host-b")

    def meanwhile() -> None:
        next_epoch(a, 2)
        a.table.rollback_failed_writes()
        assert len(kept(world)) == 1

    a.add("b")
    a.table.session.log.close_epoch()
    z.store.add(Pause(ENTRY, call=meanwhile))
    z.add("a")
    assert len(kept(world)) == 2, "its put has landed"
    with world.fresh() as table:
        assert content(table) == {"a0": 1, "a1": 1, "b0": 3, "b1": 3}
        assert check(table.store).findings == ()
        table.rollback_failed_writes()
        assert len(epochs(table.store)) == 1


@pytest.mark.parametrize("opening_comes_back", [False, True])
@pytest.mark.parametrize("how", ["closes", "takes over"])
def test_one_who_closes_an_epoch_that_is_gone_misses_nothing(world, how, opening_comes_back):
    """Z's close is put into an emptied slot, one before the true one; what Z has not read of the epoch is gone.

    The simulator found it: Z read its own close, opened the next epoch a second time, and wrote on what it knew.
    """
    a, z = world.writer("A"), world.writer("Z", host="host-b")
    z.add("a")
    opening = z.table.store.list(LOG, recursive=True)[0].path
    sent_long_ago = z.table.store.get(opening).body

    def meanwhile() -> None:
        a.add("a")
        next_epoch(a)
        a.table.rollback_failed_writes()
        assert len(kept(world)) == 1
        if opening_comes_back:
            a.table.store.put_if_absent(opening, sent_long_ago)

    z.store.add(Pause(ENTRY, call=meanwhile))
    if how == "closes":
        z.table.session.log.close_epoch()
    else:
        z.table.session.log.take_over(z.table.settings, lambda: "", tuple)
    z.add("a")
    assert world.content() == independent_content(world.folder) == {"a0": 3, "a1": 3, "b0": 1, "b1": 1}
    with world.fresh() as table:
        table.rollback_failed_writes()
        check_history(table)
        assert check(table.store).findings == ()


def test_one_who_ends_a_transaction_in_an_epoch_that_is_gone_misses_nothing(world):
    """Z's abort is put where A's commit had been, and Z's close where the true one had been; and the epoch's opening stands
    again, because a put of it that was sent long ago has arrived. So Z reads on without A's commit. But the next epoch was
    not opened with what Z has read (simulated seed 170079039: it wrote over A's rows).
    """
    a, z = world.writer("A"), world.writer("Z", host="host-b", epoch_slots=10)
    z.add("a")
    opening = z.table.store.list(LOG, recursive=True)[0].path
    sent_long_ago = z.table.store.get(opening).body
    ends = z.begin_add("b")
    lands = a.begin_add("a")

    def meanwhile() -> None:
        lands.commit()
        a.table.session.log.close_epoch()
        world.env.advance(100.0)
        assert a.table.rollback_failed_writes(wait=True) == [ends.instant]
        assert len(kept(world)) == 1
        a.table.store.put_if_absent(opening, sent_long_ago)

    z.store.add(Pause(ENTRY, call=meanwhile))
    ends.abort()
    assert len(z.table.store.list(opening.rpartition("/")[0])) == 3, "all that Z looks at stands"
    z.add("a")
    assert world.content() == independent_content(world.folder) == BEGUN | {"a0": 3, "a1": 3}
    with world.fresh() as table:
        table.rollback_failed_writes()
        assert len(epochs(table.store)) == 1
        assert check(table.store).findings == ()


def test_one_whose_entry_stands_where_a_close_had_been_is_told_of_no_damage(world):
    """Z's abort is put where the close of a pruned epoch had been, and Z's close behind it. So Z looks for the beginning of
    the next epoch one slot too far, where another entry stands (simulated seed 400010935).
    """
    a, z = world.writer("A"), world.writer("Z", host="host-b", epoch_slots=9)
    z.add("a")
    ends = z.begin_add("b")

    def meanwhile() -> None:
        a.table.session.log.catch_up()
        a.table.session.log.close_epoch()
        world.env.advance(100.0)
        assert a.table.rollback_failed_writes(wait=True) == [ends.instant]
        assert len(kept(world)) == 1

    z.store.add(Pause(ENTRY, call=meanwhile))
    ends.abort()
    assert [[each.slot for each in read_epoch(z.table.store, n)] for n in kept(world)] == [[9, 10], [10, 11]]
    z.add("a")
    assert world.content() == independent_content(world.folder) == BEGUN | {"a0": 2, "a1": 2}


def test_the_log_of_before_a_rebuild_goes_too(world):
    """Also if a zombie has put a commit there, which is on no timeline and never will be."""
    a = world.writer("A")
    (landed,) = [c for c in commits(a.table) if not c.empty]
    txn = a.begin_add("a")
    a.die()
    (epoch,) = (world.folder / LOG).iterdir()
    slot = a.table.session.log.next_slot
    torn = Path(epoch, f"{slot:020d}")
    torn.write_bytes(b'{"v":1,"kind')
    world.env.advance(10.0)
    table = world.writer_of(lakelatch.adopt(str(world.folder), env=world.env.peer())).table
    zombie = replace(landed, instant=txn.instant, completion=next_label(0.0, txn.instant))
    torn.write_bytes(encode(zombie, int(epoch.name), slot, "z"))
    assert len(kept(world)) == 2
    table.rollback_failed_writes(wait=True)
    assert len(kept(world)) == 1
    assert content(table) == BEGUN


def test_the_timeline_says_how_far_back_the_log_tells(world, capsys):
    a = world.writer("A")
    next_epoch(a, 2)
    show_timeline(str(world.folder), limit=20, json=False)
    assert "has been removed" not in capsys.readouterr().out
    a.table.rollback_failed_writes()
    last = a.table.session.log.state.last
    show_timeline(str(world.folder), limit=20, json=False)
    assert "has been removed" in capsys.readouterr().out
    show_timeline(str(world.folder), limit=20, json=True)
    told = json.loads(capsys.readouterr().out)
    assert told["pruned_to"] < last.instant
    assert {each["outcome"] for each in told["instants"]} == {"committed"}
    show_timeline(str(world.folder), limit=1, json=False)
    assert "has been removed" not in capsys.readouterr().out, "nothing that is shown is concerned"


def test_a_pending_instant_that_came_late_goes_with_the_begin_that_explains_it(world):
    a, w = world.writer("A"), world.writer("W", host="host-b")
    dead = w.begin_add("a").instant
    a.table.rollback_failed_writes(wait=True)
    (world.folder / f".hoodie/timeline/{dead}.inflight").touch()
    next_epoch(a, 2)
    a.table.session.heart.beat()
    assert len(kept(world)) == 1
    with world.fresh() as table:
        assert check(table.store).findings == ()


def test_what_has_landed_since_a_slot_is_known_as_far_as_the_log_reaches_back(world):
    a = world.writer("A")
    next_epoch(a, 2)
    begun = a.table.session.log.next_slot
    next_epoch(a)
    (late,) = a.table.session.log.follow_since(begun).commits
    assert late == commits(a.table)[-1]
    middle = first_slot(a.table.store, kept(world)[2])
    assert len(a.table.session.log.follow_since(middle).commits) == 2
    a.table.rollback_failed_writes()
    assert not a.table.session.log.follow_since(middle).complete, "a plan of then is not to be validated any more"
    newest = a.table.session.log.follow_since(first_slot(a.table.store, kept(world)[0]))
    assert newest.complete
    assert newest.commits == [late]


def test_what_an_epoch_published_is_on_disk_for_good_before_it_is_closed(world):
    """A new handle puts back what a power cut took away, but of the newest epoch only."""
    flushed = []

    def in_log() -> int:
        return len(list((world.folder / LOG).rglob("*")))

    def flush(fd: int) -> None:
        if (folder := Path(os.readlink(f"/proc/self/fd/{fd}"))).is_dir():
            flushed.append((str(folder.relative_to(world.folder)), in_log()))
        os.fsync(fd)

    a = world.writer("A", flush=flush)
    a.add("a")
    flushed.clear()
    entries = in_log()
    a.table.session.log.close_epoch()
    assert flushed[0] == (".hoodie/timeline", entries), "after the bytes, the name of what it published last"
    assert in_log() == entries + 1


@pytest.mark.parametrize("action", ["rollback", "restore"])
def test_a_commit_that_another_engine_took_back_keeps_no_epoch(world, action):
    a = world.writer("A")
    undone = a.add("a")
    next_epoch(a, 2)
    timeline = world.folder / ".hoodie/timeline"
    next(timeline.glob(f"{undone.instant}_*")).unlink()
    later = next_label(0.0, a.table.session.log.state.top)
    (timeline / f"{later}_{next_label(0.0, later)}.{action}").write_bytes(b"")
    a.table.session.pruner.prune()
    assert len(kept(world)) == 1


@pytest.mark.parametrize("epochs_between", [0, 1, 3])
def test_a_savepoint_that_was_deleted_keeps_no_epoch(world, epochs_between):
    a = world.writer("A")
    saved = a.table.savepoint()
    next_epoch(a, epochs_between)
    a.table.delete_savepoint(saved.instant)
    next_epoch(a, 2)
    with world.fresh() as table:  # whose state begins with the newest epoch
        table.session.pruner.prune()
    assert len(kept(world)) == 1


def test_a_savepoint_that_the_timeline_has_lost_keeps_its_epoch(world):
    a = world.writer("A")
    a.table.savepoint()
    next_epoch(a, 2)
    next((world.folder / TIMELINE).glob("*.savepoint")).unlink()
    before = kept(world)
    a.table.session.pruner.prune()
    assert kept(world) == before


def taken_back_in_doubt(world: World, *, epochs_since: int = 0, answers: int | None = None) -> Transaction:
    """W's commit entry will land and get no answer; a restore takes the commit back, and the entry's epoch goes.

    Args:
        epochs_since: more than one, and the restore's own goes too.
        answers: to how many calls W's store answers after that.
    """
    w, x = world.writer("W"), world.writer("X", host="host-b")
    next_epoch(x)
    before = commits(x.table)[-1].instant
    txn = w.begin_add("a")

    def meanwhile() -> None:
        x.add("b")
        next_epoch(x)
        assert txn.instant in x.table.restore(before).undone
        next_epoch(x, epochs_since)
        x.table.rollback_failed_writes()
        if answers is not None:
            w.store.add(Refuse(From(len(w.store.calls) + answers + 1), forever=True))

    w.store.add(Pause(ENTRY, call=meanwhile, after=True))
    w.store.add(LoseReply(ENTRY))
    return txn


@pytest.mark.parametrize("epochs_since", [0, 2])
def test_who_landed_and_was_taken_back_while_in_doubt_is_not_told_that_nothing_landed(world, epochs_since):
    """Seed 210633976."""
    txn = taken_back_in_doubt(world, epochs_since=epochs_since)
    if epochs_since:
        with pytest.raises(lakelatch.CommitStateUnknownError, match=r"when restore \d+ took it back"):
            txn.commit()
    else:
        assert txn.commit().completion
    with world.fresh() as table:
        assert txn.instant not in {i.requested for i in table.timeline().commits}
        assert content(table)["a0"] == BEGUN["a0"]
        table.rollback_failed_writes()
        assert check(table.store).findings == ()


def test_nor_when_the_store_is_out_of_reach_afterwards(make_world):
    """After each of the calls that follow (seed 861133337)."""
    told = []
    while "landed" not in told:
        txn = taken_back_in_doubt(make_world(lock="none://", log_epochs=1), answers=len(told))
        try:
            txn.commit()
        except lakelatch.CommitStateUnknownError:
            told.append("unknown")
        else:
            told.append("landed")
    assert len(told) > 15
