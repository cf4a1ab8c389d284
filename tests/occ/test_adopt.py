"""Taking over a table that has no commit log, or none that is sound: what was there before must not come back."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakelatch
from lakelatch.cli.timeline import newest
from lakelatch.occ.check import check
from lakelatch.occ.clock import next_label
from lakelatch.occ.heartbeat import HEARTBEATS, heartbeat_path
from lakelatch.occ.log_files import LOG
from lakelatch.occ.markers import MARKERS
from lakelatch.occ.timeline import TIMELINE

from .world import BEGUN, World, check_sound, commits, content, independent_content, insert


def take_history(world: World) -> None:
    """What another engine leaves that has made a table and committed nothing."""
    shutil.rmtree(world.folder / ".hoodie/.lakelatch")
    for instant in (world.folder / TIMELINE).glob("[0-9]*"):
        instant.unlink()


def adopt(world: World) -> lakelatch.Table:
    return world.writer_of(lakelatch.adopt(str(world.folder), env=world.env.peer(), writer="adopter")).table


def test_an_empty_table_gets_a_floor(make_world):
    world = make_world(empty=True)
    take_history(world)
    table = adopt(world)
    (floor,) = commits(table)
    assert floor.empty
    assert [each.requested for each in table.timeline().commits] == [floor.instant]
    assert content(table) == {}
    with table.transaction("insert") as txn:
        insert(txn, "a", "a0")
    assert content(table) == independent_content(world.folder) == {"a0": 1}
    check_sound(table)


def test_a_table_with_commits_needs_none(world):
    shutil.rmtree(world.folder / ".hoodie/.lakelatch")
    table = adopt(world)
    assert commits(table) == []
    with table.transaction("insert") as txn:
        insert(txn, "c", "c0")
    assert [each.empty for each in commits(table)] == [False]
    assert content(table) == BEGUN | {"c0": 1}


def test_files_that_the_first_commit_would_make_visible_are_refused(world):
    take_history(world)
    with pytest.raises(lakelatch.DamagedTableError, match=r"2 data files .* adopt the table"):
        adopt(world)
    assert not (world.folder / LOG).exists()


@pytest.mark.parametrize("place", [HEARTBEATS, MARKERS])
def test_a_time_that_an_older_log_gave_away_is_not_given_again(world, place):
    """Its host's clock was ahead, its log is gone, and its writer may still be alive: trap 8."""
    ahead = next_label(world.env.now() + 86_400, "")
    left = world.folder / place / ahead
    if place == HEARTBEATS:
        left.parent.mkdir(exist_ok=True)
        left.touch()
    else:
        left.mkdir(parents=True)
        (left / "a.parquet.marker.CREATE").touch()
    (world.folder / HEARTBEATS / "README").touch()  # no time
    shutil.rmtree(world.folder / LOG)
    table = adopt(world)
    with table.transaction("insert") as txn:
        insert(txn, "c", "c0")
    assert txn.instant > ahead
    assert content(table) == BEGUN | {"c0": 1}


def test_what_an_older_log_left_is_named_by_check_and_left_by_clean(world):
    """Nobody knows its outcome any more, so nobody deletes it; and it can do no harm."""
    w = world.writer("W")
    txn = w.begin_add("a")
    for file in txn._open_files:
        file.close()
    w.die()
    shutil.rmtree(world.folder / LOG)
    world.env.advance(10.0)
    table = adopt(world)
    assert table.clean(wait=True) == []
    (pending,) = check(table.store).findings
    assert pending.kind == "pending-unknown"
    assert f"{MARKERS}/{txn.instant}" in pending.next_step
    for name in (world.folder / TIMELINE).glob(f"{txn.instant}.*"):  # and when that is gone, but not the rest
        name.unlink()
    report = check(table.store)
    assert {each.kind for each in report.findings} == {"orphan-file", "markers-of-ended", "heartbeat-of-ended"}
    assert all(txn.instant in each.message and "rollback" not in each.next_step for each in report.findings)
    table.clean(wait=True)
    assert check(table.store) == report
    assert content(table) == independent_content(world.folder) == BEGUN
    # As the operations page says.
    for each in report.findings:
        path = Path(world.folder, each.path)
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert not (world.folder / heartbeat_path(txn.instant)).exists()
    assert check(table.store).findings == ()


@pytest.mark.parametrize("torn", ["the begin", "an entry after it"])
def test_what_a_torn_log_left_is_no_obstacle(world, torn):
    """With the folder of the old log there, its begin entry tells that the transaction was ours, if it can be read."""
    w = world.writer("W")
    txn = w.begin_add("a")
    for file in txn._open_files:
        file.close()
    if torn == "an entry after it":
        w.insert("b", "b5")
    w.die()
    (epoch,) = (world.folder / LOG).iterdir()
    max(epoch.iterdir()).write_bytes(b'{"v":1,"kind')
    world.env.advance(10.0)
    table = adopt(world)
    table.clean(wait=True)
    assert newest(table, 1)[0].requested >= txn.instant, "the timeline can be told"
    kinds = {each.kind for each in check(table.store).findings}
    assert kinds == ({"pending-unknown"} if torn == "the begin" else set())
    assert {k: v for k, v in content(table).items() if k != "b5"} == BEGUN
    with table.transaction("insert") as more:
        insert(more, "c", "c0")
    assert content(table)["c0"] == 1
