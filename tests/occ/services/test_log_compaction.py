"""Log compaction: many log files become one, the rows stay what they are for every reader, and no append is lost beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.hudi.files import read_blocks
from lakelatch.occ.services import log_compaction
from lakelatch.testing.faults import On, Pause

from ..mor import Mor, at, data_block, delete_block
from ..mor import rows as made
from ..world import World, check_sound, content, entries, fate, independent_content, rows
from .test_services_of_log_files import EACH, NAMES, agree, commits_of, logs, strike_all, times

ROWS = {"a0": 2, "a1": 1, "a2": 0, "b0": 3, "b1": 0}


def logged(folder: Path, ordering_field: str | None = None) -> World:
    """Four log files on the base file of part=a, one on that of part=b."""
    model = folder.parent / f"logged {ordering_field}"
    if not model.exists():
        world = World(model, empty=True, type="merge_on_read", ordering_field=ordering_field)
        with world.fresh() as table:
            begun = rows("a", {f"a{n}": 0 for n in range(4)}), rows("b", {"b0": 0, "b1": 0})
            table.upsert(pa.concat_tables(begun))
            table.upsert(rows("a", {"a0": 1}))
            table.upsert(rows("a", {"a1": 1}))
            table.delete([{"id": "a3", "part": "a"}])
            table.upsert(pa.concat_tables([rows("a", {"a0": 2}), rows("b", {"b0": 3})]))
        world.close()
    return World(folder, model=model)


@pytest.fixture(params=[None, "v"], ids=["by commits", "by events"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = logged(tmp_path / "table", request.param)
    yield made
    made.close()


def compact_logs(table: lakelatch.Table) -> lakelatch.services.Executed | None:
    return table.compact_logs(min_logs=2)


def merged_by(world: World, instant: str) -> dict[str, list[str]]:
    """Which commits the log files of this T stand for, by partition."""
    found = {}
    for path in world.folder.rglob(f".*_{instant}.log.*"):
        named = [block.merged for block in read_blocks(path.read_bytes(), path.name)]
        assert len(set(named)) == 1, "the first block speaks for all of them, so all say the same"
        found[path.parent.name] = list(named[0])
    return found


# --- what becomes of the rows ------------------------------------------------------------------------------------


def test_rows_stay_what_they_are_and_readers_open_one_log_file_instead_of_many(world):
    with world.fresh() as table:
        bases = {each.base for each in table.snapshot().file_slices()}
        before, last = times(table), commits_of(table)[-1]
        assert table.compact_logs() is None, "there are not five anywhere"
        done = compact_logs(table)
        assert merged_by(world, done.instant) == {"part=a": commits_of(table)[-5:-1]}, "one log file is not merged"
        assert {each.base for each in table.snapshot().file_slices()} == bases
        assert times(table) == before, "an incremental reader would see these rows again"
        agree(world, table, ROWS)
        assert compact_logs(table) is None, "what was merged counts as one"
        (instant,) = (each for each in table.timeline().commits if each.requested == done.instant)
        assert instant.action == "deltacommit"
        read = table.read(as_of=last).to_arrow()
        assert dict(zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True)) == ROWS
    reader = world.writer("reader")
    assert content(reader.table) == ROWS
    opened = [call.path for call in reader.store.calls if ".log." in call.path]
    assert len(opened) == 2, "that of the log compaction, and that of part=b"
    check_sound(reader.table)


def test_a_log_compaction_is_merged_again_compacted_and_cleaned(world):
    with world.fresh() as table:
        compact_logs(table)
        table.upsert(rows("a", {"a0": 3, "a1": 3}))
        table.delete([{"id": "a0", "part": "a"}])
        now = {key: value for key, value in ROWS.items() if key != "a0"} | {"a1": 3}
        agree(world, table, now)
        again = compact_logs(table)
        assert len(merged_by(world, again.instant)["part=a"]) == 7, "those that the first one stood for, too"
        agree(world, table, now)
        table.update_where("id = 'a1'", {"v": 9})
        table.upsert(rows("a", {"a2": 4}))
        now |= {"a1": 9, "a2": 4}
        agree(world, table, now)
        assert table.compact()
        assert logs(table) == 0
        agree(world, table, now)
        table.upsert(rows("a", {"a1": 10}))
        assert table.clean(retain_commits=1).files > 6
        agree(world, table, now | {"a1": 10})
        check_sound(table)


def test_what_other_engines_left_is_merged_with_the_ordering_of_its_deletes(tmp_path):
    table_of = Mor(tmp_path / "t")
    table_of.base(at(1), at(2), "a", made("a", {"a0": 1, "a1": 5, "a2": 5, "a3": 5}))
    table_of.update(
        at(4), at(5), "a", {"a0": 4, "a4": 4}, [("a1", ("LongWrapper", 5)), ("a2", ("LongWrapper", 4)), "a3"]
    )
    merged = data_block(at(6), made("a", {"a0": 4, "a4": 4}), merged=[at(4)])
    deletes = delete_block(at(6), [("a1", ("LongWrapper", 5)), ("a2", ("LongWrapper", 4)), "a3"], merged=[at(4)])
    table_of.log(at(6), at(7), "a", merged + deletes)
    table_of.update(at(8), at(9), "a", {"a0": 8}, [("a4", ("LongWrapper", 3))])
    table_of.update(at(10), at(11), "a", {"a5": 1})
    wanted = {"a0": 8, "a2": 5, "a4": 4, "a5": 1}
    assert independent_content(table_of.folder) == wanted
    with lakelatch.adopt(str(table_of.folder)) as table:
        done = table.compact_logs(min_logs=3)
        assert done.files == 5
        assert content(table) == wanted == independent_content(table_of.folder)
        assert table.compact()
        assert content(table) == wanted == independent_content(table_of.folder)


def test_the_change_feed_tells_nothing_of_it(world):
    with world.fresh() as table:
        since = table.timeline().commits[-1].completed
        compact_logs(table)
        table.upsert(rows("a", {"a0": 7}))
        told = table.change_feed(after=since).to_pylist()
        assert [(row["id"], row["v"]) for row in told] == [("a0", 2), ("a0", 7)]


# --- beside writers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lands", ["before it is planned", "while it is planned", "before it is executed", "after it"])
def test_an_append_that_was_open_is_neither_lost_nor_in_its_way(world, lands):
    """Its T is smaller than those of log files that have landed meanwhile, which is where readers would look for it."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    txn = a.table.transaction()
    txn.upsert(rows("a", {"a0": 5}))
    for value in (3, 4):
        b.table.upsert(rows("a", {"a2": value}))
    assert logs(b.table) == 7, "onto the same file group"
    now = ROWS | {"a0": 5, "a2": 4}
    if lands == "before it is planned":
        txn.commit()
    if lands == "while it is planned":
        b.store.add(Pause(On("list", "timeline"), call=txn.commit))
    planned = b.table.plan_log_compaction(min_logs=2)
    if lands == "before it is executed":
        txn.commit()
    assert b.table.execute(planned).mine
    if lands == "after it":
        agree(world, b.table, now | {"a0": 2})
        txn.commit()
    named = len(merged_by(world, planned)["part=a"])
    assert named == (7 if lands == "before it is planned" else 4), "all, or those that are older than that append"
    with world.fresh() as table:
        agree(world, table, now)
        table.compact_logs(min_logs=2)
        agree(world, table, now)
        table.compact()
        agree(world, table, now)
        check_sound(table)


def test_without_the_rule_that_append_would_be_lost(world, monkeypatch):
    """Also where rows are ordered by events, because deletes are not."""
    monkeypatch.setattr(log_compaction, "_bound", lambda _session, state: f"{state.top}~")
    a, b = world.writer("A"), world.writer("B", host="host-b")
    txn = a.table.transaction()
    txn.delete([{"id": "a0", "part": "a"}])
    b.table.upsert(rows("a", {"a2": 3}))
    planned = b.table.plan_log_compaction(min_logs=2)
    txn.commit()
    assert "a0" not in content(b.table)
    b.table.execute(planned)
    assert content(b.table)["a0"] == 2 == independent_content(world.folder)["a0"]


def test_writers_that_begin_one_after_another_keep_no_log_compaction_from_landing(world):
    """Each begins before the one before it has landed, so there is always one. What is older than the oldest is merged."""
    a, b = world.writer("A"), world.writer("B", host="host-b")
    txn, done = a.table.transaction(), []
    now = dict(ROWS)
    for value in range(10, 16):
        following = a.table.transaction()
        txn.upsert(rows("a", {f"a{value % 3}": value}))
        if executed := compact_logs(b.table):
            done.append(executed)
        txn.commit()
        now[f"a{value % 3}"] = value
        txn = following
    txn.abort()
    assert len(done) > 3
    with world.fresh() as table:
        agree(world, table, now)
        check_sound(table)


def test_an_append_lands_beside_its_plan_and_a_new_base_file_waits_for_it(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    planned = b.table.plan_log_compaction(min_logs=2)
    a.table.upsert(rows("a", {"a0": 6}))
    agree(world, a.table, ROWS | {"a0": 6})
    assert a.table.plan_compaction(partitions=["part=a"]) is None, "the file group is taken"
    b.table.execute(planned)
    agree(world, a.table, ROWS | {"a0": 6})
    txn = a.table.transaction()
    txn.delete([{"id": "a0", "part": "a"}])
    a.table.upsert(rows("a", {"a2": 1}))
    assert compact_logs(b.table)
    txn.commit()
    del (now := ROWS | {"a2": 1})["a0"]
    agree(world, a.table, now)
    check_sound(b.table)


def test_of_two_executions_one_lands_and_the_other_is_told(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    planned = a.table.plan_log_compaction(min_logs=2)
    told = []
    a.store.add(Pause(On("publish", "part="), call=lambda: told.append(b.table.execute(planned))))
    mine = a.table.execute(planned)
    assert (mine.mine, mine.by, told[0].mine) == (False, "B", True)
    with world.fresh() as table:
        agree(world, table, ROWS)
        check_sound(table)


def test_another_finishes_it_and_a_restore_takes_it_back(world):
    a, b = world.writer("A"), world.writer("B", host="host-b")
    target = commits_of(a.table)[-1]
    planned = a.table.plan_log_compaction(min_logs=2)
    a.die()
    assert [each.action for each in b.table.plans()] == ["logcompaction"]
    assert b.table.execute(planned).mine
    b.table.upsert(rows("a", {"a0": 6}))
    b.table.restore(target)
    with world.fresh() as table:
        agree(world, table, ROWS)
        assert not merged_by(world, planned)
        planned = table.plan_log_compaction(min_logs=2)
        assert table.cancel_plan(planned)
        assert fate(table, planned) == ["begin", "abort"]
        assert not table.timeline().pending
        assert compact_logs(table)
        agree(world, table, ROWS)
        check_sound(table)


@pytest.mark.parametrize(("fault", "chosen"), EACH, ids=NAMES)
def test_a_fault_at_every_call_of_a_log_compaction(tmp_path, fault, chosen):
    strike_all(tmp_path, fault, chosen, lambda writer: compact_logs(writer.table), logged, ROWS)


def test_a_torn_log_file_is_left_and_the_others_are_merged(world):
    with world.fresh() as table:
        table.upsert(rows("b", {"b0": 4}))
        (_, log), *_ = [(len(each.logs), each.logs[-1].path) for each in table.snapshot().file_slices("part=b")]
        (world.folder / log).write_bytes((world.folder / log).read_bytes()[:-3])
        with pytest.raises(lakelatch.CorruptTableError, match=rf"{log} is torn .* compact_logs \d+ has landed"):
            compact_logs(table)
        assert not table.plans()
        assert content(table) == ROWS == independent_content(world.folder)
        with pytest.raises(lakelatch.CorruptTableError, match="is torn"):
            table.plan_log_compaction(min_logs=2)


# --- what is refused ---------------------------------------------------------------------------------------------


def test_streams_and_senseless_numbers_are_refused_before_anything_is_planned(tmp_path, world):
    with world.fresh() as table:
        slots = len(entries(table))
        for wrong in (1, 0, -5, 2.5, True, None, "5"):
            with pytest.raises(lakelatch.ConfigError, match="min_logs="):
                table.compact_logs(min_logs=wrong)
        assert len(entries(table)) == slots
    with lakelatch.create(
        str(tmp_path / "s"), record_key="id", bucket_count=1, type="merge_on_read", table_version=9,
        schema=pa.schema([("id", pa.string()), ("n", pa.int64()), ("at", pa.int64())]),
    ) as table:  # fmt: skip
        table.stream("clicks", columns=["n"], ordering="at")
        with pytest.raises(lakelatch.UnsupportedTableError, match=r"has streams.*Compact the table"):
            table.compact_logs()
    with lakelatch.create(str(tmp_path / "c"), record_key="id") as table:
        table.upsert([{"id": "a"}])
        assert table.compact_logs() is None
