"""One transaction, and a store that fails at each of its calls in turn: lost answers, late puts, refusals."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.table.table import Table
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.faults import PUTS, WRITES, At, Call, Fault, From, Late, LoseReply, On, Pause, Refuse

from ..thorough import some
from .world import (
    BEGUN,
    World,
    Writer,
    add,
    check_sound,
    content,
    fate,
    independent_content,
    insert,
    make,
    overwrite,
    rows,
    struck,
)

DONE = {"a0": 1, "a1": 1, "b0": 0, "b1": 0, "c0": 1}
OVERWRITTEN = {"a9": 1, "b0": 0, "b1": 0}


def work(writer: Writer) -> lakelatch.CommitResult | None:
    """One file group replaced and one created."""
    with writer.table.transaction() as txn:
        add(txn, "a")
        insert(txn, "c", "c0")
    return txn.result


def overwriting_work(writer: Writer) -> lakelatch.CommitResult | None:
    with writer.table.transaction("insert_overwrite") as txn:
        overwrite(txn, "a", "a9")
    return txn.result


def appending_work(writer: Writer) -> lakelatch.CommitResult | None:
    """Log files onto file groups of a merge-on-read table, of which one takes two, because of its size; and a new base file."""
    with writer.table.transaction() as txn:
        txn.upsert(pa.concat_tables([rows("a", {"a0": 7, **dict.fromkeys(LONG, 7)}), rows("c", {"c0": 1})]))
        txn.delete(rows("b", {"b1": 0}).drop_columns(["v"]))
    return txn.result


LONG = tuple(
    "a" + "x" * 1500 + str(number) for number in range(2)
)  # two such keys make a log file of more than a kilobyte
APPENDED = {"a0": 7, "a1": 0, "b0": 0, "c0": 1, **dict.fromkeys(LONG, 7)}
BEFORE = {appending_work: BEGUN | dict.fromkeys(LONG, 0)}


def world_of(act: Callable[[Writer], object], folder: Path) -> World:
    """The table that the work is for."""
    if act is not appending_work:
        return World(folder)
    model, env = folder.parent / "model of appends", FakeEnvironment(seed=1)
    if not model.exists():
        make(model, env, type="merge_on_read")
        with Table(LocalStore(model), env=env, writer="founder") as table:
            table.upsert(rows("a", dict.fromkeys(LONG, 0)))
            table.change_settings(target_file_bytes=1024)
    return World(folder, model=model)


def test_an_append_that_is_struck_here_rolls(folder):
    puts = {call.path for call in calls_of(appending_work, folder / "dry") if call.op in PUTS and ".log." in call.path}
    assert sorted(each.partition(".log.")[2][:1] for each in puts if each.startswith("part=a")) == ["1", "1", "2"]


def failing_work(writer: Writer) -> None:
    """A transaction that is given up by its own writer."""
    txn = writer.table.transaction()
    add(txn, "a")
    insert(txn, "c", "c0")
    txn.workspace.close_files()
    txn.abort()


def calls_of(act: Callable[[Writer], object], folder: Path) -> list[Call]:
    """The storage calls of an undisturbed run."""
    world = world_of(act, folder)
    writer = world.writer("A")
    act(writer)
    calls = writer.store.calls
    world.close()
    return calls


def strike(folder: Path, fault: Fault, act: Callable[[Writer], object], after: dict[str, int]) -> None:
    """Run ``act`` with a fault, then look whether its writer was told what others find, before and after cleaning."""
    world = world_of(act, folder)
    writer = world.writer("A", host="host-b")
    told = struck(writer, fault, act)
    landed = told.landed if isinstance(told, lakelatch.LakeLatchError) else told is not None
    before = BEFORE.get(act, BEGUN)
    expected = [before] if landed is False else [after] if landed else [before, after]
    try:
        with world.fresh() as table:
            found = content(table)
            assert found in expected, f"told {told!r}"
            table.rollback_failed_writes(wait=True)
            assert content(table) == found or landed is None, f"told {told!r}"
            writer.store.land()  # at the latest now, when everybody has given up and cleaned
            found = content(table)
            assert found in expected, f"told {told!r}"
            with table.transaction() as txn:  # writable
                add(txn, "b", 5)
            check_sound(table)
            assert content(table) == found | {key: 5 for key in found if key[0] == "b"}
    finally:
        world.close()


def strike_all(folder: Path, faults: Iterable[Fault], act: Callable[[Writer], object], after: dict[str, int]) -> None:
    """Every fault in a world of its own; tells all failures, not only the first."""
    failures = []
    for number, fault in enumerate(some(faults, 6)):
        try:
            strike(folder / str(number), fault, act, after)
        except AssertionError as e:
            failures.append(f"{fault}\n    {str(e).splitlines()[0]}")
    assert not failures, f"{len(failures)} faults do harm:\n" + "\n".join(failures)


def large_work(writer: Writer) -> lakelatch.CommitResult | None:
    """One whose metadata does not fit into its log entry."""
    writer.table.session.inline_bytes = 0
    return work(writer)


ACTS = [(work, DONE), (overwriting_work, OVERWRITTEN), (appending_work, APPENDED), (failing_work, BEGUN)]
PUTTING = [*ACTS, (large_work, DONE)]


@pytest.mark.parametrize(("act", "after"), PUTTING)
def test_an_answer_lost_after_the_write(folder, act, after):
    calls = calls_of(act, folder / "dry")
    strike_all(folder, [LoseReply(At(call.number)) for call in calls if call.writes], act, after)


@pytest.mark.parametrize(("act", "after"), PUTTING)
def test_a_put_that_lands_when_everybody_has_given_up(folder, act, after):
    calls = calls_of(act, folder / "dry")
    strike_all(folder, [Late(At(call.number)) for call in calls if call.op in PUTS], act, after)


@pytest.mark.parametrize(("act", "after"), PUTTING)
def test_a_put_that_lands_some_calls_later(folder, act, after):
    puts = [call.number for call in calls_of(act, folder / "dry") if call.op in PUTS]
    strike_all(folder, [Late(At(n), land_at=n + later) for n in puts for later in (1, 3, 9)], act, after)


@pytest.mark.parametrize(("act", "after"), ACTS)
def test_a_call_that_is_refused_once(folder, act, after):
    calls = calls_of(act, folder / "dry")
    strike_all(folder, [Refuse(At(call.number)) for call in calls], act, after)


@pytest.mark.parametrize(("act", "after"), ACTS)
@pytest.mark.parametrize(("error", "ops"), [(errno.ENOSPC, PUTS), (errno.EACCES, WRITES), (errno.EIO, frozenset())])
def test_a_store_that_refuses_from_one_call_on(folder, act, after, error, ops):
    calls = [call for call in calls_of(act, folder / "dry") if not ops or call.op in ops]
    strike_all(folder, [Refuse(From(c.number, ops), errno=error, forever=True) for c in calls], act, after)


def _interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("act", "after"), ACTS[:3])
@pytest.mark.parametrize("late", [False, True])
def test_an_interrupt_at_any_call_leaves_nothing_or_tells_that_it_has_landed(folder, act, after, late):
    """As by Ctrl-C, which raises wherever the main thread is: before a call takes effect, or right after."""
    failures = []
    for call in some(calls_of(act, folder / "dry"), 6):
        world = world_of(act, folder / str(call.number))
        writer = world.writer("A", host="host-b")
        writer.store.add(Pause(At(call.number), _interrupt, after=late))
        with pytest.raises(KeyboardInterrupt) as told:
            act(writer)
        writer.store.reset()
        notes = " ".join(getattr(told.value, "__notes__", ()))
        before = BEFORE.get(act, BEGUN)
        landed = "has landed all the same" in notes
        with world.fresh() as table:
            found = content(table)
            if found != (after if landed else before) or (landed and "nothing landed" in notes):
                failures.append(f"{call} {notes or 'no note'!r}: {found}")
            with table.transaction() as txn:  # writable
                add(txn, "b", 5)
            table.rollback_failed_writes(wait=True)
            check_sound(table)
        world.close()
    assert not failures, "\n".join(failures)


def _no_memory() -> None:
    raise MemoryError


@pytest.mark.parametrize(("act", "after"), ACTS[:3])
@pytest.mark.parametrize("late", [False, True])
def test_a_process_without_memory_at_any_call_lands_or_says_that_nothing_did(folder, act, after, late):
    calls = calls_of(act, folder / "dry")
    strike_all(folder, [Pause(At(call.number), _no_memory, after=late) for call in calls], act, after)


def _no_thread() -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("what", [_no_memory, _no_thread])
def test_memory_or_threads_that_run_out_behind_the_commit_entry_fail_nothing(world, what):
    a = world.writer("A")
    txn = a.begin_add("a")
    a.store.add(Pause(commit_entry(txn), what, after=True))
    result = txn.commit()
    assert a.table.session.landed(txn.instant) == result.completion


def test_a_process_whose_memory_stays_away_says_that_the_outcome_is_open(world):
    a = world.writer("A")
    txn = a.begin_add("a")
    a.store.add(Pause(On("put_if_absent", "/log/"), _no_memory, forever=True))
    with pytest.raises(lakelatch.CommitStateUnknownError):
        txn.commit()


@pytest.mark.parametrize("late", [False, True])
def test_an_interrupted_clustering_is_cancelled_or_tells_that_it_has_landed(folder, late):
    def ready(place: Path) -> tuple[World, Writer]:
        world = World(place)
        writer = world.writer("A")
        with writer.table.transaction("insert") as txn:
            insert(txn, "a", "a2")
        writer.store.reset()
        writer.store.calls.clear()
        return world, writer

    failures = []
    world, dry = ready(folder / "dry")
    assert dry.table.cluster()
    calls = list(dry.store.calls)
    world.close()
    for call in some(calls, 6):
        world, writer = ready(folder / str(call.number))
        writer.store.add(Pause(At(call.number), _interrupt, after=late))
        with pytest.raises(KeyboardInterrupt) as told:
            writer.table.cluster()
        writer.store.reset()
        notes = " ".join(getattr(told.value, "__notes__", ()))
        with world.fresh() as table:
            table.rollback_failed_writes(
                wait=True
            )  # of the moment when the plan stands, and its maker does not know it
            done = any(each.action == "replacecommit" for each in table.timeline().completed)
            if done != ("has landed all the same" in notes) or table.plans():
                failures.append(f"{call} {notes or 'no note'!r}: {done}, {table.plans()}")
            assert content(table) == BEGUN | {"a2": 1}
            check_sound(table)
        world.close()
    assert not failures, "\n".join(failures)


def test_an_interrupt_whose_end_cannot_be_written_says_that_it_may_have_landed(world):
    a = world.writer("A")
    txn = a.begin_add("a")

    def interrupt() -> None:
        a.store.add(Refuse(On("folders"), errno=errno.EIO, forever=True))
        raise KeyboardInterrupt

    a.store.add(Pause(commit_entry(txn), interrupt, after=True))
    with pytest.raises(KeyboardInterrupt) as told:
        txn.commit()
    assert f"{txn.instant} may have landed" in told.value.__notes__[0]
    a.store.reset()
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 1, "a1": 1}
        check_sound(table)


def test_a_full_disk_leaves_the_old_data_readable_and_says_what_to_do(world):
    a = world.writer("A")
    a.store.add(Refuse(On("publish"), errno=errno.ENOSPC, forever=True))
    with pytest.raises(lakelatch.StorageError, match="No space left") as told:
        work(a)
    assert told.value.landed is False
    assert content(a.table) == BEGUN
    assert independent_content(world.folder) == BEGUN
    with world.fresh() as table:
        check_sound(table)


# --- the decisive write -----------------------------------------------------------------------------------------


def commit_entry(txn: lakelatch.Transaction) -> On:
    """Its put, when nobody else appends meanwhile."""
    return On("put_if_absent", f"/{txn.begin_slot + 1:020}")


def test_a_store_that_never_answers_leaves_the_outcome_open_and_deletes_nothing(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    txn = a.begin_add("a")
    a.store.add(Late(commit_entry(txn), forever=True))
    with pytest.raises(lakelatch.CommitStateUnknownError) as told:
        txn.commit()
    assert told.value.instant == txn.instant
    assert told.value.landed is None
    a.store.land()
    b.add("b")  # anyone who comes next publishes it
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 1, "a1": 1, "b0": 1, "b1": 1}
        assert fate(table, txn.instant) == ["begin", "commit"]
        check_sound(table)


def test_a_reader_needs_no_answer_to_the_opening_of_an_epoch(world):
    """Anyone who reads to a close puts the opening after it, which everybody would put alike."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    a.add("a")
    b.store.add(Late(On("put_if_absent", "/log/"), forever=True))
    a.table.session.log.close_epoch()
    assert b.table.session.log.catch_up().closed
    assert content(b.table) == BEGUN | {"a0": 1, "a1": 1}
    with pytest.raises(lakelatch.StorageError, match="could not be opened; nothing landed"):
        b.add("b")
    b.store.land()
    b.store.reset()
    b.add("b")


def test_a_rollback_fills_the_slot_that_a_late_put_wanted(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    txn = a.begin_add("a")
    a.store.add(Late(commit_entry(txn), forever=True))
    with pytest.raises(lakelatch.CommitStateUnknownError):
        txn.commit()
    assert b.table.rollback_failed_writes(wait=True) == [txn.instant]
    assert not any(put.done for put in a.store.land())
    with world.fresh() as table:
        assert content(table) == BEGUN
        assert fate(table, txn.instant) == ["begin", "rollback"]
        check_sound(table)


def test_a_commit_that_cannot_be_published_is_a_success_and_others_publish_it(world):
    a, b = world.writer("A"), world.writer("B")
    txn = a.begin_add("a")
    a.store.add(Refuse(On("put_if_absent", "/timeline/"), forever=True))
    result = txn.commit()
    assert result.published is False
    assert content(b.table) == BEGUN | {"a0": 1, "a1": 1}
    a.store.reset()
    b.add("a")
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 2, "a1": 2}
        check_sound(table)


def test_others_trouble_is_not_ours(world):
    """A dead writer that cannot be rolled back now does not hinder those who have their own work."""
    dead, a = world.writer("dead"), world.writer("A")
    dead.begin_add("b")
    dead.die()
    a.store.add(Refuse(On("delete", ".hoodie/.temp/"), forever=True))
    a.add("a")
    a.store.reset()
    with world.fresh() as table:
        assert content(table) == BEGUN | {"a0": 1, "a1": 1}
        check_sound(table)


def cleaning(folder: Path, fault: Fault | None) -> list[Call]:
    """Whatever one cleaner fails at, the next finishes it. Returns the calls of the first."""
    world = World(folder)
    dead, first = world.writer("dead"), world.writer("first")
    txn = dead.begin_add("a")
    insert(txn, "c", "c0")
    txn.workspace.close_files()
    dead.die()
    if fault:
        first.store.add(fault)
    try:
        first.table.rollback_failed_writes()
    except lakelatch.LakeLatchError:
        assert fault, "nothing was wrong"
    calls = first.store.calls
    first.store.reset()
    world.writer("second").table.rollback_failed_writes()
    first.store.land()
    with world.fresh() as table:
        assert content(table) == BEGUN
        assert fate(table, txn.instant) == ["begin", "rollback"]
        check_sound(table)
    world.close()
    return calls


@pytest.mark.parametrize("kind", [LoseReply, Late, Refuse])
def test_faults_while_a_dead_writer_is_cleaned_up(folder, kind):
    calls = cleaning(folder / "dry", None)
    assert len(calls) > 10
    for call in calls:
        if call.writes or kind is Refuse:
            cleaning(folder / str(call.number), kind(At(call.number)))


def test_a_writer_that_is_stopped_between_two_heartbeats_notices(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    txn = a.begin_add("a")
    # Stopped right before it gives its file the name, when all its checks have passed.
    a.store.add(Pause(On("publish"), call=lambda: b.table.rollback_failed_writes(wait=True)))
    with pytest.raises(lakelatch.RolledBackError):
        txn.commit()
    with world.fresh() as table:
        assert content(table) == BEGUN
        check_sound(table)


def test_a_file_that_appears_after_its_transaction_landed_without_it_is_cleaned_away(world):
    """A failed task's file was deleted before the commit, and a put that was on its way brought it back after it."""
    writer = world.writer("A")
    result = work(writer)
    assert result is not None
    (named,) = (p for p in world.folder.glob(f"*c/*{result.instant}.parquet"))
    late = named.with_name("0" + named.name)
    late.write_bytes(named.read_bytes())
    writer.table.rollback_failed_writes()
    assert named.exists()
    assert not late.exists()
    assert content(writer.table) == independent_content(world.folder) == DONE
    check_sound(writer.table)
