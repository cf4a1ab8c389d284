"""Savepoints keep a state; a restore goes back to one, and what it takes back never returns."""

from __future__ import annotations

import pytest

import lakelatch
from lakelatch.occ.check.check import check
from lakelatch.occ.session.snapshot_cache import ViewCache
from lakelatch.testing.faults import At, Late, On, Pause, Refuse

from ...thorough import STEP
from ..aged import AGED, BACK, aged, data_files
from ..world import BEGUN, World, check_sound, content, fate, independent_content, insert, overwrite


def commits_of(world: World) -> list[str]:
    with world.fresh() as table:
        return [each.requested for each in table.timeline().commits]


def incremental(folder, begin: str) -> set[str]:
    """Keys that another reader finds changed after that completion time."""
    import pyarrow as pa
    from hudi import HudiQueryType, HudiReadOptions, HudiTableBuilder

    options = HudiReadOptions().with_query_type(HudiQueryType.Incremental).with_start_timestamp(begin)
    batches = HudiTableBuilder.from_base_uri(str(folder)).build().read(options)
    return set(pa.Table.from_batches(batches)["id"].to_pylist()) if batches else set()


# --- savepoints --------------------------------------------------------------------------------------------------


def test_a_savepoint_keeps_its_state_until_it_is_deleted(old):
    a = old.writer("A")
    saved = a.table.savepoint(comment="before the migration")
    assert (saved.by, saved.comment) == ("A", "before the migration")
    for _ in range(4):
        a.add("a")
        a.table.clean(retain_commits=1)
    with old.fresh() as table:
        (found,) = table.savepoints()
        assert found == saved
        assert table.read(as_of_completion=saved.completion).count() == len(AGED)
        with table.pinned(as_of_completion=saved.completion) as view:
            assert dict(zip(*view.read(columns=["id", "v"]).to_arrow().to_pydict().values(), strict=True)) == AGED
        assert {f.kind for f in check(table.store).findings} <= {"old-file-missing"}
        table.delete_savepoint(saved.instant)
        assert table.savepoints() == []
        table.clean(retain_commits=1)
        with (
            pytest.raises(lakelatch.InputError, match="has been cleaned"),
            table.pinned(as_of_completion=saved.completion),
        ):
            pass
        check_sound(table)
        assert {f.kind for f in check(table.store).findings} <= {"old-file-missing"}


def test_what_is_no_commit_or_has_a_savepoint_is_refused(old):
    with old.fresh() as table:
        with pytest.raises(lakelatch.InputError, match="no commit on the timeline"):
            table.savepoint("20200101000000000")
        saved = table.savepoint()
        with pytest.raises(lakelatch.InputError, match="has a savepoint already"):
            table.savepoint(saved.instant)
        with pytest.raises(lakelatch.InputError, match="has no savepoint"):
            table.delete_savepoint("20200101000000000")
        table.delete_savepoint(saved.instant)
        assert table.savepoint(saved.instant).instant == saved.instant, "once more, after it was deleted"
        check_sound(table)


def test_a_state_that_was_cleaned_cannot_be_saved(old):
    times = commits_of(old)
    with old.fresh() as table:
        table.clean(retain_commits=1)
        with pytest.raises(lakelatch.InputError, match="has been cleaned"):
            table.savepoint(times[1])


def test_a_pending_clean_is_executed_before_a_savepoint_of_what_it_takes(old):
    a, b = old.writer("A"), old.writer("B")
    planned = a.table.plan_clean(retain_commits=1)
    with pytest.raises(lakelatch.InputError, match="has been cleaned"):
        b.table.savepoint(commits_of(old)[1])
    assert fate(b.table, planned) == ["begin", "commit"]


def test_a_clean_that_is_decided_while_a_savepoint_is_made_wins(old):
    """Anyone who comes second in the log finds the other: never a savepoint of files that are gone."""
    target = commits_of(old)[1]
    for number in range(1, 60, STEP):
        folder = old.folder.parent / f"world-{number}"
        world = aged(folder)
        a, b = world.writer("A"), world.writer("B", host="host-b")
        done = []
        a.store.add(Pause(At(number), call=lambda b=b, done=done: done.append(b.table.clean(retain_commits=1))))
        try:
            saved = a.table.savepoint(target)
        except lakelatch.InputError:
            assert done[0]
        else:
            with world.fresh() as table:
                assert {n for names in saved.files.values() for n in names} <= data_files(folder), number
                assert table.read(as_of_completion=saved.completion).count() == 4
        with world.fresh() as table:
            check_sound(table)
        world.close()
        if not done:
            break
    assert number > 30


# --- restore -----------------------------------------------------------------------------------------------------


def test_a_restore_goes_back_for_every_reader(old):
    times = commits_of(old)
    with old.fresh() as table:
        done = table.restore(times[-3])
        assert done.undone == (times[-1], times[-2])
        assert content(table) == BACK == independent_content(old.folder)
        assert commits_of(old) == times[:-2]
        assert [i.action for i in table.timeline().completed][-1] == "restore"
        assert done.files == 2
        check_sound(table)
        assert not check(table.store).findings
        again = table.restore(times[-3])
        assert (again.completion, again.undone) == (None, ()), "there is nothing more to take back"
    b = old.writer("B")
    checkpoint = done.completion
    b.add("b", 7)
    assert old.content() == independent_content(old.folder) == BACK | {"b0": 7, "b1": 7, "b9": 8}
    assert incremental(old.folder, checkpoint) == {"b0", "b1", "b9"}


def test_a_restore_goes_back_over_overwrites_and_clusterings(old):
    times = commits_of(old)
    with old.fresh() as table:
        with table.transaction("insert_overwrite") as txn:
            overwrite(txn, "a", "a9")
        assert table.cluster(small_bytes=1 << 20, target_bytes=2 << 20)
        assert content(table) == {"a9": 1, "b0": 0, "b1": 0, "b9": 1}
        table.restore(times[-1])
        assert content(table) == AGED == independent_content(old.folder)
        check_sound(table)


def test_order_is_that_of_completion_not_of_request(old):
    """A commit that was requested before the target and landed after it is taken back too."""
    a, b = old.writer("A"), old.writer("B")
    late = a.begin_add("b", 9)
    target = b.add("a")
    late.commit()
    assert late.instant < target.instant
    with old.fresh() as table:
        assert table.restore(target.instant).undone == (late.instant,)
        assert content(table) == AGED | {"a0": 5, "a1": 5} == independent_content(old.folder)
        check_sound(table)


def test_writers_that_are_open_during_a_restore_lose(old):
    a, b = old.writer("A"), old.writer("B", host="host-b")
    before = a.begin_add("b", 9)
    times = commits_of(old)
    inside = []
    b.store.add(
        Pause(On("put_if_absent", "restore.inflight"), call=lambda: inside.append(a.table.transaction("insert")))
    )
    b.table.restore(times[-3])
    insert(inside[0], "c", "c0")
    for txn in (before, inside[0]):
        with pytest.raises(lakelatch.ConflictError, match="a restore stands alone"):
            txn.commit()
    assert old.content() == BACK
    a.table.run(lambda txn: insert(txn, "c", "c0"), operation="insert")
    with old.fresh() as table:
        assert content(table) == BACK | {"c0": 1} == independent_content(old.folder)
        check_sound(table)


def test_nobody_lands_while_a_restore_is_pending(old):
    """A writer waits; when the restorer dies, it is rolled back, and the writer lands."""
    a, b = old.writer("A"), old.writer("B", host="host-b")
    a.store.add(Refuse(On("", "/timeline/"), forever=True))  # cannot even abort: it hangs until it is found dead
    a.store.add(Refuse(On("put_if_absent", "/log/0"), forever=True))
    txn = b.begin_add("b", 2)
    stop = a.table.session.log.next_slot
    with pytest.raises(lakelatch.LakeLatchError):
        a.table.restore(commits_of(old)[-3])
    a.store.reset()
    a.die()
    txn.commit()
    with old.fresh() as table:
        assert content(table) == AGED | {"b0": 2, "b1": 2, "b9": 3}
        check_sound(table)
        assert table.session.log.next_slot > stop


def test_a_handle_that_knew_the_table_before_sees_it_restored(old):
    """Views that a warm handle derives from commits must not lead over a restore."""
    a, b = old.writer("A"), old.writer("B")
    a.add("a")
    times = commits_of(old)
    b.table.restore(times[-4])
    a.add("a", 10)
    assert a.table.transaction("insert").schema is not None
    assert old.content() == BACK | {"a0": 12, "a1": 12}
    b.add("a", 100)
    assert old.content() == BACK | {"a0": 112, "a1": 112} == independent_content(old.folder)
    with old.fresh() as table:
        check_sound(table)


def test_the_schema_goes_back_too(old):
    import pyarrow as pa

    a, b = old.writer("A"), old.writer("B")
    target = a.add("a")
    with a.table.transaction("insert") as txn:
        txn.new_file("part=c").write(pa.table({"id": ["c0"], "part": ["c"], "v": [1], "new": ["x"]}))
    assert "new" in b.table.transaction("insert").schema.names
    b.table.restore(target.instant)
    for writer in (a, b):
        txn = writer.table.transaction("insert")
        assert txn.schema.names == ["id", "part", "v"]
        txn.abort()
    with old.fresh() as table:
        assert table.schema().names == ["id", "part", "v"]


def test_what_a_restore_took_back_is_not_published_again(old):
    a, b = old.writer("A"), old.writer("B")
    times = commits_of(old)
    b.table.restore(times[-3])
    a.add("b")  # a handle that had read those commits, and that has not looked yet whether one is missing
    assert not {times[-1], times[-2]} & set(commits_of(old))
    with old.fresh() as table:  # a new one, which looks whether something is missing
        table.session.log.publish_last()
        assert not {times[-1], times[-2]} & set(commits_of(old))
        check_sound(table)


@pytest.mark.parametrize("reads_on", [True, False])
def test_a_publisher_that_was_late_is_corrected(old, reads_on):
    a, b = old.writer("A"), old.writer("B")
    target = commits_of(old)[-1]
    # A has landed, and its instant is still on its way when the restore is over.
    txn = a.begin_add("b", 9)
    a.store.add(Late(On("put_if_absent", "/timeline/"), forever=True))
    landed = txn.commit()
    b.table.restore(target)
    a.store.land()
    a.store.reset()
    shown = f"{landed.instant}_{landed.completion}.commit"
    assert (old.folder / ".hoodie/timeline" / shown).exists(), "it stands there again"
    assert landed.instant not in commits_of(old), "and no view of ours shows it"
    assert {"instant-undone", "file-missing"} <= {f.kind for f in check(a.store.inner).findings}
    if reads_on:
        a.add("a")
    else:
        with old.fresh() as table:
            table.rollback_failed_writes()
    assert not (old.folder / ".hoodie/timeline" / shown).exists()
    with old.fresh() as table:
        check_sound(table)
        assert content(table) == independent_content(old.folder) == AGED | ({"a0": 5, "a1": 5} if reads_on else {})


def test_what_is_taken_back_late_may_vanish_below_a_transaction(old):
    """Between its listing of the timeline and its reading of an instant (simulated seed 90017881). A replacecommit is read."""
    with old.fresh() as table:
        table.cluster(small_bytes=1 << 20, target_bytes=2 << 20)
    newest = commits_of(old)[-1]
    (shown,) = (old.folder / ".hoodie/timeline").glob(f"{newest}_*")
    body = shown.read_bytes()
    b = old.writer("B")
    b.store.add(Pause(On("get", shown.name), shown.unlink))
    txn = b.table.transaction("insert")
    assert txn.snapshot.file_slices()
    assert not shown.exists()
    txn.abort()
    shown.write_bytes(body)
    # One that is there and cannot be read is damage, whatever is looked at.
    session = b.table.session
    session.views = ViewCache(session.log, session._cold_view, session.views._newest, session.files_of)
    shown.write_bytes(b"torn")
    txn = b.table.transaction("insert")
    with pytest.raises(lakelatch.CorruptTableError):
        _ = txn.snapshot
    shown.write_bytes(body)


def test_a_savepoint_that_would_be_taken_back_is_in_the_way(old):
    with old.fresh() as table:
        saved = table.savepoint()
        with pytest.raises(lakelatch.InputError, match="it has a savepoint; delete that first"):
            table.restore(commits_of(old)[-3])
        assert content(table) == AGED
        table.delete_savepoint(saved.instant)
        table.restore(commits_of(old)[-3])
        assert content(table) == BACK
        check_sound(table)


def test_a_restore_to_a_savepoint_of_long_ago(old):
    with old.fresh() as table:
        saved = table.savepoint(commits_of(old)[1])
        table.clean(retain_commits=1)
        with pytest.raises(lakelatch.InputError, match="has been cleaned"):
            table.restore(commits_of(old)[2])
        table.restore(saved.instant)
        assert content(table) == BEGUN == independent_content(old.folder)
        check_sound(table)


def test_a_state_that_lacks_files_is_not_restored(old):
    times = commits_of(old)
    with old.fresh() as table:
        (gone,) = {each.path for each in table.snapshot(as_of=times[-3]).file_slices("part=a")}
        (old.folder / gone).unlink()  # another engine has cleaned
        with pytest.raises(lakelatch.CorruptTableError, match="lacks 1 of its files"):
            table.restore(times[-3])
        assert content(table) == AGED == independent_content(old.folder)
        check = fate(table, table.session.log.state.top)
        assert check in ([], ["begin", "abort"])


def test_pending_plans_end_with_a_restore(old):
    a, b = old.writer("A"), old.writer("B")
    planned = a.table.plan_clustering(small_bytes=1 << 20, target_bytes=2 << 20)
    b.table.restore(commits_of(old)[-3])
    assert fate(b.table, planned) == ["begin", "abort"]
    b.add("b")  # would wait for it otherwise
    with old.fresh() as table:
        check_sound(table)


def test_a_restore_is_known_in_later_epochs(folder):
    world = aged(folder / "table")
    a = world.writer("A", epoch_slots=5)
    times = commits_of(world)
    a.table.restore(times[-3])
    for _ in range(8):
        a.add("b")
    assert a.table.session.log.epoch > world.fresh().session.log.epoch - 3
    with world.fresh() as table:
        assert table.session.log.outcome(times[-1]) in ("undone", "rollback")
        check_sound(table)
        assert content(table) == BACK | {"b0": 8, "b1": 8, "b9": 9} == independent_content(world.folder)
    world.close()
