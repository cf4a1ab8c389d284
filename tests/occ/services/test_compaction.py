"""Compaction of merge-on-read tables: no row is lost, no matter who dies, executes beside us, or writes log files meanwhile."""

from __future__ import annotations

import errno
import itertools
import pickle

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.hudi.timeline.commit_metadata import decode_container
from lakelatch.hudi.timeline.service_metadata import encode_clustering_plan, encode_compaction_plan
from lakelatch.occ.check.check import check
from lakelatch.occ.services import compaction
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.testing.faults import PUTS, At, From, Late, LoseReply, On, Pause, Refuse

from ...thorough import some
from ..aged import finish
from ..mor import ROWS, Mor, at, data_block, merge_on_read, rows
from ..world import World, Writer, add, at_work, check_history, content, fate, independent_content, struck


@pytest.fixture
def world(tmp_path):
    made = merge_on_read(tmp_path / "table")
    yield made
    made.close()


@pytest.fixture
def mor(world):
    return Mor.at(world.folder)


def compact(writer: Writer) -> object:
    return writer.table.compact()


def agree(world: World, wanted: dict[str, int] = ROWS) -> None:
    """Both readers see these rows, and a check finds nothing."""
    with world.fresh() as table:
        assert content(table) == wanted == independent_content(world.folder)
        check_history(table)
        # The other engine's clock is ahead of this test's.
        assert [each for each in check(table.store).findings if each.kind != "instant-ahead"] == []


def log_files(world: World) -> int:
    with world.fresh() as table:
        return sum(len(each.logs) for each in table.snapshot().file_slices())


def test_log_files_become_base_files_and_rows_keep_their_commit_times(world):
    a = world.writer("A")
    before = times(world)
    done = a.table.compact()
    assert (done.files, done.mine) == (5, True)
    assert log_files(world) == 0
    assert times(world) == before, "an incremental reader would see these rows again"
    agree(world)
    assert a.table.compact() is None
    (instant,) = (each for each in a.table.timeline().commits if each.requested == done.instant)
    told = a.table.timeline().metadata(instant)
    assert (instant.action, told.operation, told.compacted, len(told.stats)) == ("commit", "COMPACT", True, 3)


def times(world: World) -> dict[str, str]:
    with world.fresh() as table:
        found = [table.read_slice(each, meta=True).to_pylist() for each in table.snapshot().file_slices()]
    return {row["id"]: row["_hoodie_commit_time"] for row in itertools.chain(*found)}


def test_the_plan_stands_whole_on_the_timeline_as_hudi_writes_it(world):
    a = world.writer("A")
    planned = a.table.plan_compaction(partitions=["part=a"])
    puts = [c for c in a.store.calls if c.writes and planned in c.path and "/timeline/" in c.path]
    assert [c.op for c in puts] == ["put_if_absent"]
    path = f".hoodie/timeline/{planned}.compaction.requested"
    (operation,) = decode_container((world.folder / path).read_bytes(), name=path)["operations"]
    (log,) = (world.folder / "part=a").glob(".*.log.*")
    assert operation["deltaFilePaths"] == [log.name]
    assert operation["metrics"]["TOTAL_LOG_FILES_SIZE"] == log.stat().st_size
    assert (operation["partitionPath"], operation["baseInstantTime"]) == ("part=a", at(1))
    assert operation["dataFilePath"].startswith(operation["fileId"])
    agree(world)
    assert a.table.execute(planned).files == 2
    assert log_files(world) == 3


@pytest.mark.parametrize(
    ("fault", "chosen"),
    [
        (lambda c: Refuse(From(c.number), errno=errno.EIO, forever=True), lambda _: True),
        (lambda c: Refuse(At(c.number)), lambda _: True),
        (lambda c: LoseReply(At(c.number)), lambda c: c.writes),
        (lambda c: Late(At(c.number)), lambda c: c.op in PUTS),
    ],
    ids=["dies", "refused", "reply lost", "late"],
)
def test_a_fault_at_every_call(tmp_path, fault, chosen):
    dry = merge_on_read(tmp_path / "dry", small=True)
    writer = dry.writer("A", host="host-b")
    compact(writer)
    calls = [call for call in writer.store.calls if chosen(call)]
    dry.close()
    assert len(calls) > 8
    for call in some(calls, 4):
        world = merge_on_read(tmp_path / str(call.number), small=True)
        writer = world.writer("A", host="host-b")
        told = struck(writer, fault(call), compact)
        with world.fresh() as table:
            assert content(table) == ROWS, (call, told)
            table.rollback_failed_writes(wait=True)
            finish(table)
            writer.store.land()  # at the latest now, when everybody has given up and cleaned
            table.rollback_failed_writes(wait=True)
            table.compact()
        assert log_files(world) == 0, (call, told)
        agree(world)
        world.close()


def test_of_two_executions_one_lands_and_the_other_is_told(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    planned = a.table.plan_compaction()
    told = []
    a.store.add(Pause(On("put_if_absent", "/log/"), call=lambda: told.append(b.table.execute(planned))))
    mine = a.table.execute(planned)
    assert (mine.mine, mine.by) == (False, "B")
    assert (told[0].mine, told[0].completion) == (True, mine.completion)
    assert log_files(world) == 0
    agree(world)


@pytest.mark.parametrize("op", ["get", "open"])
def test_whose_files_were_cleaned_since_another_executed_the_plan_is_told_who(world, op):
    """Simulator, of streams: it was told that the table is damaged."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    planned = a.table.plan_compaction()

    def beside() -> None:
        b.table.execute(planned)
        for each in world.folder.rglob("part=*/.*.log.*"):
            each.unlink()  # as a later cleaning does

    a.store.add(Pause(On(op, "part="), call=beside))
    mine = a.table.execute(planned)
    assert (mine.mine, mine.by) == (False, "B")
    with world.fresh() as table:
        assert content(table) == ROWS == independent_content(world.folder)


def test_a_plan_outlives_its_scheduler_and_a_cancelled_one_leaves_nothing(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    planned = a.table.plan_compaction()
    a.store.add(Refuse(On("publish"), errno=errno.ENOSPC, forever=True))
    with pytest.raises(lakelatch.StorageError, match="No space"):
        a.table.execute(planned)
    a.die()
    b.table.rollback_failed_writes(wait=True)
    assert fate(b.table, planned) == ["begin"]
    assert b.table.plan_compaction() is None, "all file groups are taken"
    assert b.table.cancel_plan(planned)
    assert not list(world.folder.rglob(f"*{planned}*"))
    agree(world)
    assert b.table.compact()
    agree(world)


def test_a_cleaning_takes_the_old_slice_with_its_log_files(world, mor):
    a = world.writer("A")
    assert a.table.compact()
    mor.update(at(2 * 10**11), at(2 * 10**11 + 1), "a", {"a0": 6})  # the state before a kept one stays too
    with adopt(world) as table:
        assert table.clean(retain_commits=1).files == 5
    assert len(list(world.folder.rglob("part=*/.*.log.*"))) == 1
    agree(world, ROWS | {"a0": 6})


# --- beside others -----------------------------------------------------------------------------------------------


def adopt(world: World) -> lakelatch.Table:
    return world.writer_of(lakelatch.adopt(str(world.folder), env=world.env.peer(), writer="adopter")).table


def test_a_log_file_that_was_begun_before_and_completes_after_lies_on_the_new_base_file(world, mor):
    a = world.writer("A")
    path = mor.log(at(9), "", "a", data_block(at(9), rows("a", {"a0": 9})))
    done = a.table.compact()
    assert done.instant > at(9)
    assert world.content() == ROWS == independent_content(world.folder)
    mor.log(at(9), at(2 * 10**11), "a", path.read_bytes())
    assert world.content() == ROWS | {"a0": 9} == independent_content(world.folder)
    with adopt(world) as table:
        assert table.compact().files == 2
    assert log_files(world) == 0
    agree(world, ROWS | {"a0": 9})


@pytest.mark.parametrize("when", ["planned", "executed"])
def test_another_engines_commit_ends_the_compaction_that_does_not_know_it(world, mor, monkeypatch, when):
    """Its log file, completed before the compaction's T, would be in no slice that readers see: its clock is behind."""
    a = world.writer("A")
    a.table.change_settings(isolation="serializable")  # it has just looked for commits past the log
    find = compaction.find

    def found(*given):
        try:
            return find(*given)
        finally:
            if when == "planned":
                mor.update(at(30), at(31), "a", {"a0": 9})

    monkeypatch.setattr("lakelatch.occ.services.compaction.find", found)
    with world.fresh() as table:
        top = table.session.log.state.top
    assert at(31) > top, "else it was known when the log was made"
    if when == "executed":
        a.store.add(Pause(On("publish", "part=a"), call=lambda: mor.update(at(30), at(31), "a", {"a0": 9})))
    with pytest.raises(lakelatch.UnsupportedTableError, match="another engine has committed"):
        a.table.compact()
    with world.fresh() as table:
        assert content(table) == ROWS | {"a0": 9} == independent_content(world.folder)
        assert len(table.plans()) == (when == "executed"), "the JVM would execute a plan that does not know it"
    monkeypatch.undo()
    with adopt(world) as table:
        assert table.compact()
        assert content(table) == ROWS | {"a0": 9} == independent_content(world.folder)
        table.rollback_failed_writes()  # what the plan that ended with the old log left on the timeline
        assert table.timeline().pending == ()


@pytest.mark.parametrize("action", ["compaction", "clustering"])
def test_what_another_engine_has_planned_is_left_to_it(world, action):
    a, instant = world.writer("A"), at(18)
    (group,) = world.fresh().snapshot().file_slices("part=b")
    names = [log.path.rpartition("/")[2] for log in group.logs]
    plan = {"partition": "part=b", "file_id": group.file_id, "instant": group.instant, "base": "", "logs": names}
    if action == "compaction":
        body = encode_compaction_plan({"groups": [plan | {"log_bytes": 1}]})
    else:
        files = [f"{group.file_id}_0-0-0_{at(12)}.parquet"]
        body = encode_clustering_plan({"groups": [plan | {"files": files}]}, uri=str)
    (world.folder / f".hoodie/timeline/{instant}.{action}.requested").write_bytes(body)
    assert a.table.compact().files == 4
    assert log_files(world) == 1
    assert world.content() == ROWS == independent_content(world.folder)


def test_a_base_file_that_others_have_rewritten_ends_the_plan(world):
    """By a writer of this library that may: merge-on-read tables have none yet."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    planned = a.table.plan_compaction()
    txn = Transaction(b.table.session, "upsert")
    add(txn, "a", 1)
    with at_work(a, planned, seen_by=b), pytest.raises(lakelatch.ConflictError, match="yields to compaction") as told:
        txn.commit()
    assert told.value.winner == planned
    a.table.change_settings(strategy="prefer-writer")
    with Transaction(b.table.session, "upsert") as txn:
        add(txn, "a", 1)
    with pytest.raises(lakelatch.ConflictError, match="both changed the same file group"):
        a.table.execute(planned)
    agree(world, ROWS | {"a0": 6, "a2": 4})
    assert fate(a.table, planned) == ["begin", "abort"]
    assert a.table.compact().files == 3


# --- what is refused ---------------------------------------------------------------------------------------------


def test_a_torn_log_file_is_left_to_its_owner_and_keeps_nothing_else_waiting(world):
    a = world.writer("A")
    (log,) = (world.folder / "part=a").glob(".*.log.*")
    whole = log.read_bytes()
    log.write_bytes(whole[:-3])
    with pytest.raises(
        lakelatch.CorruptTableError, match=r"is torn .* would make that final.* compact \d+ has landed"
    ) as e:
        a.table.compact()
    assert pickle.loads(pickle.dumps(e.value)).path == e.value.path == f"part=a/{log.name}"
    assert log_files(world) == 1, "the other file groups are compacted"
    assert a.table.plans() == [], "no plan is left that nobody can execute"
    assert a.table.clean(retain_commits=0)
    before = a.env.monotonic()
    with pytest.raises(lakelatch.CorruptTableError, match=r"is torn .* drops it\n"):
        a.table.compact()
    assert a.env.monotonic() - before < 1, "it has waited for no time-out"
    log.write_bytes(whole)
    assert a.table.compact().files == 2
    agree(world)


def test_what_cannot_be_merged_or_written_is_refused_before_it_is_planned(world, monkeypatch):
    a = world.writer("A")
    properties = world.folder / ".hoodie/hoodie.properties"
    whole = properties.read_bytes()
    more = b"hoodie.record.merge.property.hoodie.payload.delete.field=v\n"
    for properties_now, said in (
        (whole.replace(b"EVENT_TIME_ORDERING", b"CUSTOM"), "merge mode"),
        (whole + more, "marks"),
    ):
        properties.write_bytes(properties_now)
        with pytest.raises(lakelatch.UnsupportedTableError, match=said):
            a.table.compact()
    properties.write_bytes(whole)
    monkeypatch.setattr(
        "lakelatch.occ.session.snapshot_cache.View.arrow_schema",
        lambda _: pa.schema([("at", pa.timestamp("ms", "UTC"))]),
    )
    with pytest.raises(lakelatch.UnsupportedTableError, match=r"types of columns at .* Nothing was planned"):
        a.table.compact()
    assert a.table.plans() == []


def test_a_copy_on_write_table_has_nothing_to_compact(tmp_path):
    world = World(tmp_path / "cow")
    assert world.writer("A").table.compact() is None
    world.close()
