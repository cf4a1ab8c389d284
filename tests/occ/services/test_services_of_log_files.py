"""Savepoints, restore, clustering and archival of merge-on-read tables: log files go with the state that they belong to."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.hudi.files import list_data_files
from lakelatch.occ.check.check import check
from lakelatch.testing.faults import PUTS, At, Fault, From, Late, LoseReply, Refuse

from ...thorough import some
from ..world import World, Writer, check_sound, content, fate, independent_content, rows, struck

BEGUN = {"a0": 0, "a1": 0, "b0": 0, "b1": 0}
ROWS = BEGUN | {"a0": 2, "b0": 3}
del ROWS["a1"]
SMALL = {"small_bytes": 1 << 20, "target_bytes": 2 << 20}


def mor(folder: Path, **settings) -> World:
    """Base files of a and b, then log files: a0 is 1 and then 2, a1 is deleted, b0 is 3."""
    given = {"type": "merge_on_read"} | settings
    model = folder.parent / f"mor {settings}"
    if not model.exists():
        world = World(model, empty=True, **given)
        with world.fresh() as table:
            table.upsert(pa.concat_tables([rows(part, {f"{part}0": 0, f"{part}1": 0}) for part in "ab"]))
            table.upsert(rows("a", {"a0": 1}))
            table.delete([{"id": "a1", "part": "a"}])
            table.upsert(pa.concat_tables([rows("a", {"a0": 2}), rows("b", {"b0": 3})]))
        world.close()
    return World(folder, model=model)


@pytest.fixture(params=[None, "v"], ids=["by commits", "by events"])
def world(tmp_path, request):
    made = mor(tmp_path / "table", ordering_field=request.param)
    yield made
    made.close()


def commits_of(table: lakelatch.Table) -> list[str]:
    return [each.requested for each in table.timeline().commits]


def logs(table: lakelatch.Table) -> int:
    return sum(len(each.logs) for each in table.snapshot().file_slices())


def agree(world: World, table: lakelatch.Table, wanted: dict[str, int]) -> None:
    """Both readers see these rows, and a check finds nothing."""
    assert content(table) == wanted == independent_content(world.folder)
    assert not [each for each in check(table.store).findings if each.severity != "note"]


# --- savepoints --------------------------------------------------------------------------------------------------


def test_a_savepoint_keeps_base_files_and_log_files_of_its_state(world):
    with world.fresh() as table:
        saved = table.savepoint()
        assert sum(".log." in name for names in saved.files.values() for name in names) == 4
        assert table.compact()
        table.upsert(rows("a", {"a0": 9}))
        assert table.clean(retain_commits=1) is None, "all that is superseded belongs to the savepoint"
        assert table.compact()
        table.upsert(rows("b", {"b0": 9}))
        table.clean(retain_commits=1)
        with table.pinned(as_of_completion=saved.completion) as view:
            assert dict(zip(*view.read(columns=["id", "v"]).to_arrow().to_pydict().values(), strict=True)) == ROWS
        agree(world, table, ROWS | {"a0": 9, "b0": 9})
        table.delete_savepoint(saved.instant)
        assert table.clean(retain_commits=1).files >= 6
        agree(world, table, ROWS | {"a0": 9, "b0": 9})
        check_sound(table)


def test_a_restore_to_a_savepoint_of_long_ago_brings_back_the_log_files(world):
    with world.fresh() as table:
        saved = table.savepoint()
        assert table.compact()
        for value in (7, 8):
            table.upsert(rows("a", {"a0": value}))
        assert table.compact()
        table.upsert(rows("a", {"a0": 9}))
        table.clean(retain_commits=1)
        done = table.restore(saved.instant)
        assert len(done.undone) == 5
        agree(world, table, ROWS)
        assert logs(table) == 4
        table.upsert(rows("a", {"a0": 5}))
        agree(world, table, ROWS | {"a0": 5})
        check_sound(table)


# --- restore -----------------------------------------------------------------------------------------------------


def states(world: World) -> list[tuple[str, dict[str, int]]]:
    """Log files, a compaction, more of them, rows that come back, a base file, an overwrite: T and rows after each."""
    found = []
    with world.fresh() as table:

        def note() -> None:
            found.append((commits_of(table)[-1], content(table)))

        note()
        for act in (
            lambda: table.upsert(rows("a", {"a0": 4})),
            table.compact,
            lambda: table.upsert(rows("a", {"a0": 5, "a2": 5})),
            lambda: table.delete([{"id": "b0", "part": "b"}]),
            lambda: table.upsert(rows("b", {"b0": 1})),
            table.compact,
            lambda: table.overwrite(rows("b", {"b7": 7})),
            lambda: table.upsert(rows("b", {"b7": 8})),
        ):
            assert act()
            note()
    return found


def test_a_restore_goes_back_to_every_state_for_every_reader(tmp_path, world):
    story = states(world)
    for number, (instant, wanted) in some(enumerate(story), 5):
        back = World(tmp_path / str(number), model=world.folder)
        with back.fresh() as table:
            table.restore(instant)
            agree(back, table, wanted)
            for earlier, then in story[: number + 1]:
                read = table.read(as_of=earlier).to_arrow()
                assert dict(zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True)) == then, (instant, earlier)
            table.upsert(rows("a", {"a0": 9}))
            agree(back, table, wanted | {"a0": 9})
            table.compact()
            agree(back, table, wanted | {"a0": 9})
            table.clean(retain_commits=1)
            agree(back, table, wanted | {"a0": 9})
            check_sound(table)
        back.close()


def test_log_files_that_were_requested_before_an_undone_compaction_go_by_when_they_landed(world):
    """Begun before the target, landed before and after it: on the base file of the compaction, and again on the old one."""
    a, b = world.writer("A"), world.writer("B")
    early, late = (each.table.transaction() for each in (a, b))
    early.upsert(rows("a", {"a0": 6}))
    late.upsert(rows("b", {"b1": 6}))
    planned = a.table.plan_compaction()
    target = early.commit()
    a.table.execute(planned)
    late.commit()
    with world.fresh() as table:
        agree(world, table, ROWS | {"a0": 6, "b1": 6})
        assert table.restore(target.instant).undone == (late.instant, planned)
        agree(world, table, ROWS | {"a0": 6})
        assert logs(table) == 5
        assert table.compact()
        agree(world, table, ROWS | {"a0": 6})
        check_sound(table)


def test_a_restore_ends_pending_compactions(world):
    a, b = world.writer("A"), world.writer("B")
    target = commits_of(a.table)[-1]
    a.table.upsert(rows("a", {"a0": 5}))
    planned = a.table.plan_compaction()
    b.table.restore(target)
    assert fate(b.table, planned) == ["begin", "abort"]
    with world.fresh() as table:
        assert not table.timeline().pending
        assert table.compact()
        agree(world, table, ROWS)
        check_sound(table)


def test_an_append_that_is_open_during_a_restore_loses_and_leaves_nothing(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    target = commits_of(a.table)[-2]
    txn = a.table.transaction()
    txn.upsert(rows("a", {"a0": 9}))
    b.table.restore(target)
    with pytest.raises(lakelatch.ConflictError, match="a restore stands alone"):
        txn.commit()
    with world.fresh() as table:
        agree(world, table, {"a0": 1, "b0": 0, "b1": 0})
        check_sound(table)


def test_a_state_that_lacks_log_files_is_not_restored(world):
    with world.fresh() as table:
        target = commits_of(table)[-1]
        (gone,) = {log.path for each in table.snapshot().file_slices("part=b") for log in each.logs}
        assert table.compact()
        (world.folder / gone).unlink()  # another engine has cleaned
        with pytest.raises(lakelatch.CorruptTableError, match=f"lacks 1 of its files .*{gone}"):
            table.restore(target)
        assert content(table) == ROWS == independent_content(world.folder)


def test_log_files_of_undone_commits_stay_while_an_older_reader_needs_them(world):
    with world.fresh() as table, world.fresh() as other:
        target = commits_of(table)[1]
        with other.pinned() as view:
            assert table.restore(target).files == 0
            assert independent_content(world.folder) == BEGUN
            table.clean(retain_commits=1)
            assert dict(zip(*view.read(columns=["id", "v"]).to_arrow().to_pydict().values(), strict=True)) == ROWS
        table.clean(retain_commits=1)
        assert not list_data_files(table.store).logs
        agree(world, table, BEGUN)
        check_sound(table)


EACH = [
    (lambda c: Refuse(From(c.number), errno=errno.EIO, forever=True), lambda _: True),
    (lambda c: Refuse(At(c.number)), lambda _: True),
    (lambda c: LoseReply(At(c.number)), lambda c: c.writes),
    (lambda c: Late(At(c.number)), lambda c: c.op in PUTS),
]
NAMES = ["dies", "refused", "reply lost", "late"]


def strike_all(
    folder: Path, fault: Callable, chosen: Callable, act: Callable[[Writer], object], made: Callable, after: dict
) -> None:
    """A fault at every call of a service: the state is that before or after it, as its caller was told; others finish it."""
    dry = made(folder / "dry")
    writer = dry.writer("A", host="host-b")
    before = content(writer.table)
    writer.store.reset()
    act(writer)
    calls = [call for call in writer.store.calls if chosen(call)]
    dry.close()
    assert len(calls) > 3
    failures = []
    for call in some(calls, 4):
        try:
            _strike(made(folder / str(call.number)), fault(call), act, before, after)
        except (AssertionError, lakelatch.LakeLatchError) as e:
            failures.append(f"{call}\n    {type(e).__name__} {str(e).partition(chr(10))[0]}")
    assert not failures, f"{len(failures)} of {len(calls)} faults do harm:\n" + "\n".join(failures)


def _strike(world: World, fault: Fault, act: Callable[[Writer], object], before: dict, after: dict) -> None:
    writer = world.writer("A", host="host-b")
    told = struck(writer, fault, act)
    landed = told.landed if isinstance(told, lakelatch.LakeLatchError) else True
    with world.fresh() as table:
        found = content(table)
        assert found in ([after] if landed else [before] if landed is False else [before, after]), f"told {told!r}"
        table.rollback_failed_writes(wait=True)
        for begin in table.plans():
            table.execute(begin.instant)
        writer.store.land()  # at the latest now, when everybody has given up and cleaned
        table.rollback_failed_writes(wait=True)
        found = content(table)
        assert found in (before, after), found
        table.upsert(rows("b", {"b1": 8}))
        table.compact()
        table.clean(retain_commits=1)
        check_sound(table)
        wanted = found | {"b1": 8}
        agree(world, table, wanted)
    world.close()


def _compacted(folder: Path) -> World:
    """A base file and a log file of commits after the state that will be restored."""
    model = folder.parent / "compacted"
    if not model.exists():
        world = mor(model)
        with world.fresh() as table:
            table.compact()
            table.upsert(rows("a", {"a0": 7, "a3": 7}))
        world.close()
    return World(folder, model=model)


@pytest.mark.parametrize(("fault", "chosen"), EACH, ids=NAMES)
def test_a_fault_at_every_call_of_a_restore(tmp_path, fault, chosen):
    def act(writer: Writer) -> object:
        return writer.table.restore(commits_of(writer.table)[4])

    strike_all(tmp_path, fault, chosen, act, _compacted, ROWS)


@pytest.mark.parametrize(("fault", "chosen"), EACH, ids=NAMES)
def test_a_fault_at_every_call_of_a_savepoint(tmp_path, fault, chosen):
    now = ROWS | {"a0": 7, "a3": 7}
    strike_all(tmp_path, fault, chosen, lambda writer: writer.table.savepoint(), _compacted, now)


# --- clustering --------------------------------------------------------------------------------------------------


def spread(folder: Path, **settings) -> World:
    """Two file groups in each partition, all but one of them with log files; c0 is deleted, and was all of its own."""
    model = folder.parent / f"spread {settings}"
    if not model.exists():
        world = mor(model, **settings)
        with world.fresh() as table:
            table.insert(pa.concat_tables([rows("a", {"a5": 5, "a6": 5}), rows("b", {"b5": 5})]))
            table.upsert(rows("a", {"a5": 6}))
            table.insert(rows("a", {"a9": 1}))
            table.delete([{"id": "a9", "part": "a"}])
        world.close()
    return World(folder, model=model)


SPREAD = ROWS | {"a5": 6, "a6": 5, "b5": 5}


@pytest.fixture(params=[None, "v"], ids=["by commits", "by events"])
def wide(tmp_path, request):
    made = spread(tmp_path / "wide", ordering_field=request.param)
    yield made
    made.close()


def times(table: lakelatch.Table) -> dict[str, str]:
    found = [row for s in table.snapshot().file_slices() for row in table.read_slice(s, meta=True).to_pylist()]
    return {row["id"]: row["_hoodie_commit_time"] for row in found}


def test_clustering_joins_file_slices_with_their_log_files(wide):
    with wide.fresh() as table:
        agree(wide, table, SPREAD)
        before, groups = times(table), len(table.snapshot().file_slices())
        done = table.cluster(**SMALL)
        assert (groups, len(table.snapshot().file_slices()), logs(table)) == (5, 2, 0)
        assert done.files == 11
        assert times(table) == before, "an incremental reader would see these rows again"
        agree(wide, table, SPREAD)
        (instant,) = (each for each in table.timeline().commits if each.requested == done.instant)
        assert instant.action == "replacecommit"
        assert table.cluster(**SMALL) is None
        table.upsert(rows("a", {"a0": 7, "a9": 2}))
        table.delete([{"id": "a5", "part": "a"}])
        now = {key: value for key, value in SPREAD.items() if key != "a5"} | {"a0": 7, "a9": 2}
        agree(wide, table, now)
        table.clean(retain_commits=1)
        table.compact()
        table.cluster(**SMALL)
        agree(wide, table, now)
        check_sound(table)


def test_the_plan_names_log_files_as_hudi_does(wide):
    from lakelatch.hudi.timeline.commit_metadata import decode_container

    with wide.fresh() as table:
        planned = table.plan_clustering(**SMALL)
        path = f".hoodie/timeline/{planned}.clustering.requested"
        groups = decode_container((wide.folder / path).read_bytes(), name=path)["clusteringPlan"]["inputGroups"]
        named = {
            (s["partitionPath"], s["fileId"]): {s["dataFilePath"], *s["deltaFilePaths"]}
            for group in groups
            for s in group["slices"]
        }
        there = {each.group: set(map(table.store.uri, each.paths)) for each in table.snapshot().file_slices()}
        assert named == there
        agree(wide, table, SPREAD)
        assert table.execute(planned).mine
        agree(wide, table, SPREAD)


def test_an_append_to_a_group_that_is_being_clustered_is_never_lost(wide):
    """It loses when the clustering has landed first; with prefer-writer it goes before a plan, which ends."""
    a, b = wide.writer("A"), wide.writer("B", host="host-b")
    # Begun before, landing after.
    txn = a.table.transaction()
    txn.upsert(rows("a", {"a0": 8}))
    done = b.table.cluster(**SMALL)
    with pytest.raises(lakelatch.ConflictError, match="both changed the same file group") as told:
        txn.commit()
    assert (told.value.winner, told.value.retryable) == (done.instant, True)
    # Between the plan and its execution.
    b.table.restore(commits_of(b.table)[-2])
    planned = b.table.plan_clustering(**SMALL)
    b.table.change_settings(strategy="prefer-writer")
    a.table.upsert(rows("a", {"a0": 8}))
    with pytest.raises(lakelatch.ConflictError, match="both changed the same file group"):
        b.table.execute(planned)
    assert fate(b.table, planned) == ["begin", "abort"]
    with wide.fresh() as table:
        agree(wide, table, SPREAD | {"a0": 8})
        assert table.cluster(**SMALL)
        agree(wide, table, SPREAD | {"a0": 8})
        check_sound(table)


def test_an_append_that_runs_again_lands_on_what_was_clustered(wide):
    a, b = wide.writer("A"), wide.writer("B", host="host-b")
    clustered = []

    def work(txn: lakelatch.Transaction) -> None:
        txn.upsert(rows("a", {"a0": 8, "a6": 9}))
        txn.delete([{"id": "b0", "part": "b"}])
        if not clustered:
            clustered.append(b.table.cluster(**SMALL))

    a.table.run(work)
    now = {key: value for key, value in SPREAD.items() if key != "b0"} | {"a0": 8, "a6": 9}
    with wide.fresh() as table:
        agree(wide, table, now)
        table.compact()
        agree(wide, table, now)
        check_sound(table)


def test_a_compaction_and_a_clustering_of_one_group_exclude_each_other(wide):
    with wide.fresh() as table:
        planned = table.plan_compaction(partitions=["part=a"])
        assert table.cluster(**SMALL).files == 3, "those of b, which the compaction has left"
        table.execute(planned)
        assert table.cluster(**SMALL).files == 3
        agree(wide, table, SPREAD)
        check_sound(table)


def test_a_torn_log_file_is_clustered_by_nobody(wide):
    with wide.fresh() as table:
        log = next(log.path for each in table.snapshot().file_slices("part=b") for log in each.logs)
        (wide.folder / log).write_bytes((wide.folder / log).read_bytes()[:-3])
        with pytest.raises(lakelatch.CorruptTableError, match=r"is torn .* would make that final"):
            table.cluster(**SMALL)
        left = [each.partition for each in table.snapshot().file_slices()]
        assert left == ["part=a", "part=b", "part=b"], "a is clustered all the same"
        assert not table.plans()


@pytest.mark.parametrize(("fault", "chosen"), EACH, ids=NAMES)
def test_a_fault_at_every_call_of_a_clustering(tmp_path, fault, chosen):
    strike_all(tmp_path, fault, chosen, lambda writer: writer.table.cluster(**SMALL), spread, SPREAD)


# --- archival ----------------------------------------------------------------------------------------------------


def test_an_archival_goes_no_further_than_log_files_that_are_not_compacted_and_cleaned_away(wide):
    with wide.fresh() as table:
        done = table.archive(keep_min=1, keep_max=1)
        assert (done.instants, "is not compacted and cleaned away yet" in done.kept_by) == (2, True)
        agree(wide, table, SPREAD)
        table.compact()
        table.upsert(rows("a", {"a6": 7}))
        table.cluster(**SMALL)
        table.upsert(rows("b", {"b5": 7}))
        table.compact()
        table.upsert(rows("a", {"a6": 8}))
        table.clean(retain_commits=1)
        assert table.archive(keep_min=1, keep_max=1).instants > 8
        now = SPREAD | {"a6": 8, "b5": 7}
        agree(wide, table, now)
        times = commits_of(table)
        table.upsert(rows("a", {"a6": 9}))
        table.restore(times[-1])
        agree(wide, table, now)
        check_sound(table)
