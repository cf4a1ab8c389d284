"""Table services: plans, their executions, and what becomes of them when somebody dies."""

from __future__ import annotations

import errno
import sys
from contextlib import suppress

import pyarrow.parquet as pq
import pytest

import lakelatch
from lakelatch.hudi.timeline.instant import next_label
from lakelatch.occ.entries.entries import Begin
from lakelatch.occ.entries.service_content import hold
from lakelatch.occ.services import clustering
from lakelatch.occ.services.clustering import Sizes
from lakelatch.occ.services.scheduling import schedule
from lakelatch.testing.faults import PUTS, At, From, Late, LoseReply, On, Pause, Refuse

from ...mutants import answering
from ...thorough import some
from ..aged import AGED, BACK, SMALL, aged, data_files, strike_all
from ..world import (
    BEGUN,
    World,
    Writer,
    add,
    at_work,
    check_sound,
    content,
    fate,
    independent_content,
    insert,
    overwrite,
)


def clean(writer: Writer) -> object:
    return writer.table.clean(retain_commits=1)


def cluster(writer: Writer) -> object:
    return writer.table.cluster(**SMALL)


def save(writer: Writer) -> object:
    return writer.table.savepoint()


def go_back(writer: Writer) -> object:
    return writer.table.restore(writer.table.timeline().commits[-3].requested)


def save_and_forget(writer: Writer) -> None:
    writer.table.delete_savepoint(writer.table.savepoint().instant)


ACTS = [(clean, AGED), (cluster, AGED), (save, AGED), (save_and_forget, AGED), (go_back, BACK)]


def calls_of(act, folder):
    world = aged(folder)
    writer = world.writer("A")
    act(writer)
    calls = writer.store.calls
    world.close()
    return calls


@pytest.mark.parametrize(("act", "after"), ACTS)
def test_a_service_that_dies_at_any_call_is_finished_by_others(folder, act, after):
    """From one call on nothing reaches the store any more, as after ``kill -9``; a real one is in tests/process."""
    calls = calls_of(act, folder / "dry")
    assert len(calls) > 10
    strike_all(folder, [Refuse(From(call.number), errno=errno.EIO, forever=True) for call in calls], act, after)


@pytest.mark.parametrize(("act", "after"), ACTS)
def test_a_call_of_a_service_that_is_refused_once(folder, act, after):
    strike_all(folder, [Refuse(At(call.number)) for call in calls_of(act, folder / "dry")], act, after)


@pytest.mark.parametrize(("act", "after"), ACTS)
def test_an_answer_to_a_service_that_is_lost(folder, act, after):
    calls = [call for call in calls_of(act, folder / "dry") if call.writes]
    strike_all(folder, [LoseReply(At(call.number)) for call in calls], act, after)


@pytest.mark.parametrize(("act", "after"), ACTS)
def test_a_put_of_a_service_that_lands_late(folder, act, after):
    calls = [call for call in calls_of(act, folder / "dry") if call.op in PUTS]
    strike_all(folder, [Late(At(call.number)) for call in calls], act, after)


# --- plans -------------------------------------------------------------------------------------------------------


def test_a_plan_outlives_its_scheduler_and_is_executed_by_another(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    planned = a.table.plan_clean(retain_commits=1)
    a.die()
    old.writer("C").table.rollback_failed_writes(wait=True)  # on the same host, where A has certainly ended
    b.table.rollback_failed_writes(wait=True)
    assert fate(b.table, planned) == ["begin"], "it has no heartbeat, and nobody may take it for dead"
    done = b.table.execute(planned)
    assert (done.mine, done.by, done.files) == (True, "B", 3)
    assert len(data_files(old.folder)) == 4  # a as of now and of the commit before, b, and b9
    with old.fresh() as table:
        check_sound(table)
        assert content(table) == AGED


def test_a_plan_is_put_whole_and_never_changes(old):
    a = old.writer("A")
    planned = a.table.plan_clean(retain_commits=1)
    puts = [c for c in a.store.calls if c.writes and planned in c.path and "/timeline/" in c.path]
    assert [c.op for c in puts] == ["put_if_absent"]
    (request,) = old.folder.glob(f".hoodie/timeline/{planned}.clean.requested")
    before = request.read_bytes()
    assert before.startswith(b"Obj")
    request.unlink()  # a scheduler that died in between
    old.writer("B").table.execute(planned)
    assert request.read_bytes() == before


@pytest.mark.parametrize("service", ["clean", "clustering"])
def test_of_two_executions_one_lands_and_the_other_is_told(old, service):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    planned = a.table.plan_clean(retain_commits=1) if service == "clean" else a.table.plan_clustering(**SMALL)
    told = []
    # B executes all of it while A is stopped right before its decisive entry.
    a.store.add(Pause(On("put_if_absent", "/log/"), call=lambda: told.append(b.table.execute(planned))))
    mine = a.table.execute(planned)
    assert (mine.mine, mine.by) == (False, "B")
    assert (told[0].mine, told[0].completion) == (True, mine.completion)
    with old.fresh() as table:
        assert fate(table, planned) == ["begin", "commit"]
        assert content(table) == AGED == independent_content(old.folder)
        check_sound(table)


@pytest.mark.parametrize("meanwhile", ["execute", "cancel_plan"])
def test_two_executions_of_a_clustering_side_by_side(folder, meanwhile):
    """Somebody else executes the whole plan, or cancels it, between two calls of one execution."""
    done = [beside(folder / str(number), number, meanwhile) for number in some(range(1, 70), 14)]
    assert 2 * done.count(True) > len(done), "it was over before"


def beside(folder, number, meanwhile):
    world = aged(folder)
    a, b = world.writer("A"), world.writer("B", host="host-b")
    planned = a.table.plan_clustering(**SMALL)
    a.store.reset()
    met = []

    def act():
        with suppress(lakelatch.InputError):  # it is over already
            met.append(getattr(b.table, meanwhile)(planned))

    a.store.add(Pause(At(number), call=act))
    try:
        done = a.table.execute(planned)
    except lakelatch.InputError:
        assert met, "it was over before this one began"
    except lakelatch.RolledBackError:
        assert meanwhile == "cancel_plan"
    else:
        assert done.by == ("A" if done.mine else "B")
    with world.fresh() as table:
        assert fate(table, planned) in (
            ["begin", "commit"],
            ["begin", "abort"][: 2 if meanwhile == "cancel_plan" else 0],
        )
        assert content(table) == AGED == independent_content(world.folder), number
        check_sound(table)
    world.close()
    return bool(met and met[0])


def test_an_execution_that_fails_leaves_the_plan_to_others(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    planned = a.table.plan_clustering(**SMALL)
    a.store.add(Refuse(On("publish"), errno=errno.ENOSPC, forever=True))
    with pytest.raises(lakelatch.StorageError, match="No space"):
        a.table.execute(planned)
    a.die()
    b.table.rollback_failed_writes(wait=True)
    assert fate(b.table, planned) == ["begin"]
    assert b.table.execute(planned).mine
    with old.fresh() as table:
        check_sound(table)
        assert content(table) == AGED


def test_a_cancelled_plan_is_over_for_everybody(old):
    a, b = old.writer("A"), old.writer("B")
    planned = a.table.plan_clustering(**SMALL)
    a.store.add(Pause(On("publish"), call=lambda: b.table.cancel_plan(planned)))
    with pytest.raises(lakelatch.RolledBackError):
        a.table.execute(planned)
    with pytest.raises(lakelatch.InputError, match="it was cancelled"):
        b.table.execute(planned)
    with old.fresh() as table:
        assert fate(table, planned) == ["begin", "abort"]
        check_sound(table)
        assert content(table) == AGED


def test_a_plan_that_does_not_exist_is_refused(old):
    a = old.writer("A")
    for instant, said in (("20200101000000000", "none of a table service"), (a.insert("b", "b8").instant, "has been")):
        with pytest.raises(lakelatch.InputError, match=said):
            a.table.execute(instant)
    with pytest.raises(lakelatch.ConfigError, match="no operation 'clean'"):
        a.table.transaction("clean")


# --- clustering and writers --------------------------------------------------------------------------------------


def test_clustering_joins_small_files_and_keeps_commit_times(old):
    a = old.writer("A")
    before = {r["id"]: r["t"] for r in times(old)}
    done = a.table.cluster(**SMALL)
    assert done.files == 2  # of partition b; a has one
    assert len(a.table.snapshot().file_slices("part=b")) == 1
    assert {r["id"]: r["t"] for r in times(old)} == before, "an incremental reader would see these rows again"
    assert content(a.table) == AGED == independent_content(old.folder)
    assert a.table.cluster(**SMALL) is None
    a.add("b", 5)
    with old.fresh() as table:
        check_sound(table)


def times(world: World) -> list[dict[str, str]]:
    with world.fresh() as table:
        return [
            {"id": row["id"], "t": row["_hoodie_commit_time"]}
            for each in table.snapshot().file_slices()
            for row in pq.read_table(world.folder / each.path, partitioning=None).to_pylist()
        ]


def test_ingestion_into_a_planned_file_group_waits_for_the_clustering(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    planned = a.table.plan_clustering(**SMALL)
    txn = b.begin_add("b")
    with at_work(a, planned, seen_by=b), pytest.raises(lakelatch.ConflictError) as told:
        txn.commit()
    assert told.value.winner == planned
    b.add("a")  # another file group
    a.table.execute(planned)
    b.add("b", 5)
    with old.fresh() as table:
        check_sound(table)
        assert content(table) == AGED | {"a0": 5, "a1": 5, "b0": 5, "b1": 5, "b9": 6}


def test_under_prefer_writer_ingestion_lands_and_the_plan_ends(folder):
    world = aged(folder / "table", strategy="prefer-writer")
    a, b = world.writer("A"), world.writer("B", host="host-b")
    planned = a.table.plan_clustering(**SMALL)
    b.add("b", 5)
    with pytest.raises(lakelatch.ConflictError, match="schedule a new one"):
        a.table.execute(planned)
    with world.fresh() as table:
        assert fate(table, planned) == ["begin", "abort"]
        assert content(table) == AGED | {"b0": 5, "b1": 5, "b9": 6}
        assert table.cluster(**SMALL).files == 2
        check_sound(table)
    world.close()


def test_a_plan_is_validated_from_the_slot_that_it_was_computed_at(folder):
    """Trap 16: a commit that lands between the look at the table and the plan's entry must not be lost."""
    world = aged(folder / "table", strategy="prefer-writer")
    a, b = world.writer("A"), world.writer("B", host="host-b")
    table = a.table

    def stall(state):
        found = clustering.find(table.session, state, Sizes(1 << 20, 2 << 20), None)
        if not b_added:
            b_added.append(b.add("b", 5))
        return found

    b_added: list[object] = []
    begin = schedule(table.session, clustering.SERVICE, stall)
    assert begin
    assert begin.planned_at > b_added[0].slot, "planned again on what had landed"
    table.execute(begin.instant)
    with world.fresh() as after:
        assert content(after) == AGED | {"b0": 5, "b1": 5, "b9": 6}
        check_sound(after)
    world.close()


def test_what_landed_between_the_look_at_the_table_and_the_plans_entry_is_a_candidate(folder):
    """Were the look below the lock to miss it, the execution still finds it."""
    world = aged(folder / "table", strategy="prefer-writer")
    a, b = world.writer("A"), world.writer("B", host="host-b")
    log = a.table.session.log
    found, slot = clustering.find(a.table.session, log.catch_up(), Sizes(1 << 20, 2 << 20), None), log.next_slot
    b.add("b", 5)

    def build(state):
        instant = next_label(a.env.now(), state.top)
        kept = hold(a.store, instant, found)
        return Begin(instant, "clustering", "CLUSTER", "A", None, plan=kept, planned_at=slot)

    begin = log.append(build)
    with pytest.raises(lakelatch.ConflictError, match="both changed the same file group"):
        a.table.execute(begin.instant)
    with world.fresh() as table:
        assert content(table) == AGED | {"b0": 5, "b1": 5, "b9": 6}
        check_sound(table)
    world.close()


def test_an_overwrite_since_the_plan_ends_it(folder):
    world = aged(folder / "table", strategy="prefer-writer")
    a, b = world.writer("A"), world.writer("B")
    planned = a.table.plan_clustering(**SMALL)
    with b.table.transaction("insert_overwrite") as txn:
        overwrite(txn, "b", "b7")
    with pytest.raises(lakelatch.ConflictError):
        a.table.execute(planned)
    with world.fresh() as table:
        assert content(table) == {"a0": 4, "a1": 4, "b7": 1}
        check_sound(table)
    world.close()


def test_a_clean_is_decided_when_it_is_planned(old):
    """It can be neither cancelled nor lost: half of its files may be gone, and who saves an old state must know."""
    a, b = old.writer("A"), old.writer("B")
    times = [each.requested for each in a.table.timeline().commits]
    planned = a.table.plan_clean(retain_commits=2)
    with pytest.raises(lakelatch.InputError, match="cannot be cancelled"):
        b.table.cancel_plan(planned)
    a.store.reset()
    # A has deleted its files when a restore to a state that is kept comes in between.
    a.store.add(Pause(On("put_if_absent", "/log/"), call=lambda: go_back_one(b)))
    assert a.table.execute(planned).files == 2
    assert fate(b.table, planned) == ["begin", "commit"]
    with old.fresh() as table:
        with pytest.raises(lakelatch.InputError, match="has been cleaned"):
            table.savepoint(times[1])
        check_sound(table)
        assert content(table) == AGED | {"a0": 3, "a1": 3} == independent_content(old.folder)


def go_back_one(writer: Writer) -> None:
    with answering(
        sys.modules["lakelatch.occ.services.restore"], "finish_decided", []
    ):  # planned right after that look
        writer.table.restore(writer.table.timeline().commits[-2].requested)


def test_two_plans_do_not_name_the_same_file_group(old):
    a = old.writer("A")
    assert a.table.plan_clustering(**SMALL)
    assert a.table.plan_clustering(**SMALL) is None


def test_a_schema_that_was_widened_since_the_plan_stays(old):
    import pyarrow as pa

    a, b = old.writer("A"), old.writer("B")
    planned = a.table.plan_clustering(**SMALL)
    with b.table.transaction("insert") as txn:
        txn.new_file("part=c").write(pa.table({"id": ["c0"], "part": ["c"], "v": [1], "new": ["x"]}))
    a.table.execute(planned)
    with old.fresh() as table:
        assert table.schema().names == ["id", "part", "v", "new"]
        assert content(table) == AGED | {"c0": 1}
        check_sound(table)


def test_a_bucketed_table_refuses_clustering(folder):
    world = World(folder / "table", empty=True, bucket_count=2)
    with world.fresh() as table, pytest.raises(lakelatch.UnsupportedTableError, match="bucket index"):
        table.cluster()
    world.close()


def test_a_large_plan_lies_beside_the_log_and_goes_when_it_is_cancelled(old):
    a, b = old.writer("A"), old.writer("B")
    a.table.session.inline_bytes = 0
    planned = a.table.plan_clustering(**SMALL)
    (side,) = old.folder.glob(f".hoodie/.lakelatch/sides/{planned}-*")
    b.table.rollback_failed_writes()
    assert side.exists()
    b.table.cancel_plan(planned)
    assert not side.exists()
    again = a.table.plan_clean(retain_commits=1)
    assert b.table.execute(again).mine
    with old.fresh() as table:
        check_sound(table)
        assert content(table) == AGED


def test_plans_are_carried_over_epochs(folder):
    world = aged(folder / "table")
    a = world.writer("A", epoch_slots=4)
    planned = a.table.plan_clustering(**SMALL)
    for _ in range(6):
        a.add("a")
    b = world.writer("B")
    assert [begin.instant for begin in b.table.plans()] == [planned]
    assert b.table.execute(planned).mine
    with world.fresh() as table:
        check_sound(table)
        assert content(table) == AGED | {"a0": 10, "a1": 10}
    world.close()


def test_a_new_table_has_nothing_to_serve(folder):
    world = World(folder / "table", empty=True)
    with world.fresh() as table:
        assert table.clean() is None
        assert table.cluster() is None
        assert table.plans() == []
        assert content(table) == {} != BEGUN
        with table.transaction() as txn:
            insert(txn, "a", "a0")
            add(txn, "a")
    world.close()
