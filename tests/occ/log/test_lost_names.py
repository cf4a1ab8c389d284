"""A power cut takes names from the timeline that nobody had flushed yet; the log has all that landed (trap 24)."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lakelatch.errors import StorageError
from lakelatch.hudi.timeline.instant import file_name
from lakelatch.occ.check.check import check
from lakelatch.occ.table.table import Table
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing.faults import WRITES, FaultStore, From, On, Pause, Refuse

from ...thorough import some
from ..aged import SMALL
from ..world import World, add, check_sound, commits, content, independent_content, insert, overwrite, rollback_of

TIMELINE = ".hoodie/timeline"


def changed(world: World) -> dict[str, int]:
    """Five commits: an insert, an upsert, an overwrite, a clustering, another upsert."""
    a = world.writer("A")
    a.insert("a", "a7", "a8")
    a.add("a")
    with a.table.transaction("insert_overwrite") as txn:
        overwrite(txn, "b", "b5", "b6")
    assert a.table.cluster(**SMALL)
    a.add("a", 10)
    return content(a.table)


def restored(world: World) -> dict[str, int]:
    """Five commits that stay, one that a restore takes back, and the restore."""
    expected = changed(world)
    a = world.writers[-1]
    last = a.table.timeline().commits[-1].requested
    a.add("b")
    a.table.restore(last)
    assert content(a.table) == expected
    return expected


def archived(world: World) -> dict[str, int]:
    """Five commits that stay, and older ones that have been archived in the same epoch."""
    a = world.writer("A")
    for _ in range(3):
        a.add("b")
    expected = changed(world)
    a.table.clean(retain_commits=1)
    assert a.table.archive(keep_min=5, keep_max=5)
    return expected


def closed(world: World) -> dict[str, int]:
    """Five commits since the log went on to another epoch."""
    a = world.writer("A")
    a.add("b")
    a.table.session.log.close_epoch()
    a.table.session.log.catch_up()
    return changed(world)


STORIES = [changed, restored, archived, closed]


@pytest.fixture
def lose(world, folder) -> Iterator[Callable[[tuple[Path, ...]], Path]]:
    """A copy of the table without these files of it."""
    number = itertools.count()

    def lost(names: tuple[Path, ...]) -> Path:
        to = folder / f"lost {next(number)}"
        shutil.copytree(world.folder, to)
        for name in names:
            (to / name.relative_to(world.folder)).unlink()
        return to

    return lost


def newest(world: World) -> list[Path]:
    shown = [file_name(each) for each in world.writers[-1].table.timeline().commits[-5:]]
    return [world.folder / TIMELINE / name for name in shown]


def subsets(names: list[Path]) -> list[tuple[Path, ...]]:
    return some((each for size in range(len(names) + 1) for each in itertools.combinations(names, size)), 8)


@pytest.mark.parametrize("story", STORIES)
def test_who_may_only_read_sees_all_that_landed_whatever_names_are_lost(world, lose, story):
    expected, env = story(world), world.env.peer()
    told = [each for each, _ in world.writers[-1].table.commits()]
    past = told[-2].completed
    then = content_at(world.writers[-1].table, past)
    for names in subsets(newest(world)):
        store = FaultStore(LocalStore(lose(names)), Refuse(From(1, WRITES), forever=True))
        with Table(store, env=env) as table:
            assert content(table) == expected, names
            assert [each for each, _ in table.commits()] == told, names
            assert content_at(table, past) == then, names


def content_at(table: Table, completed: str) -> dict[str, int]:
    read = table.read(as_of_completion=completed).to_arrow().to_pydict()
    return dict(zip(read["id"], read["v"], strict=True))


def test_what_lands_while_a_handle_verifies_the_timeline_is_verified_too(world):
    """B has read the log and lists the timeline; meanwhile a commit and the restore of it land, whose writer dies."""
    a = world.writer("A")
    keep = a.add("a")
    b, undone = world.writer("B", host="host-b"), []

    def meanwhile() -> None:
        undone.append(a.add("b").instant)
        a.store.add(Refuse(On("delete", TIMELINE), forever=True))
        with suppress(StorageError):
            a.table.restore(keep.instant)
        a.die()

    b.table.session.log.catch_up()
    b.store.add(Pause(On("list", TIMELINE), call=meanwhile))
    b.table.session.log.publish_last()
    shown = [each.name for each in b.store.inner.list(TIMELINE)]
    assert undone
    assert commits(b.table)[-1].restores
    assert any(name.startswith(commits(b.table)[-1].instant) for name in shown)
    assert not [name for name in shown if name.startswith(f"{undone[0]}_")], "it was taken back, and is not shown"
    assert content(b.table) == independent_content(world.folder) == {"a0": 1, "a1": 1, "b0": 0, "b1": 0}


@pytest.mark.parametrize("story", STORIES)
def test_a_writer_puts_back_what_was_lost_and_then_everybody_sees_it(world, lose, story):
    expected, env = story(world), world.env.peer()
    expected |= {"c0": 1}
    for names in subsets(newest(world)):
        folder = lose(names)
        with Table(LocalStore(folder), env=env) as table:
            with table.transaction("insert") as txn:
                insert(txn, "c", "c0")
            assert content(table) == expected, names
            assert independent_content(folder) == expected, names
            assert check(table.store).sound(), names
            check_sound(table)


def test_a_transaction_begins_with_what_was_lost(world, lose):
    expected, env = changed(world), world.env.peer()
    for names in subsets(newest(world)):
        with Table(LocalStore(lose(names)), env=env) as table:
            with table.transaction() as txn:
                add(txn, "a", 100)
            assert content(table) == {k: v + 100 * k.startswith("a") for k, v in expected.items()}, names


def test_a_restore_whose_own_name_is_lost_has_taken_back_all_the_same(world, lose):
    expected = restored(world)
    (name,) = (world.folder / TIMELINE).glob("*.restore")
    undone = commits(world.writers[-1].table)[-2]
    folder = lose((name,))
    with Table(LocalStore(folder), env=world.env.peer()) as table:
        assert content(table) == expected
        assert undone.instant not in {each.requested for each, _ in table.commits()}


def test_what_another_engine_has_rolled_back_does_not_come_back(world, lose):
    expected = world.content()
    a = world.writer("A")
    gone, kept = a.add("a"), a.add("b")
    folder = lose(tuple((world.folder / TIMELINE).glob(f"{gone.instant}_*")))
    for path in folder.rglob(f"*_{gone.instant}.parquet"):
        path.unlink()
    body = rollback_of(gone.instant)
    (folder / TIMELINE / f"{kept.completion}_{kept.completion}.rollback").write_bytes(body)
    with Table(LocalStore(folder), env=world.env.peer()) as table:
        assert content(table) == expected | {"b0": 1, "b1": 1}


def test_a_look_at_the_table_costs_the_same_however_long_the_epoch_is(world):
    a, costs = world.writer("A"), []
    for more in (2, 40):
        for _ in range(more):
            a.add("a")
        a.table.clean(retain_commits=1)
        store = FaultStore(LocalStore(world.folder))
        with Table(store, env=world.env.peer()) as table:
            content(table)
            store.reset()
            content(table)
            costs.append(len(store.calls))
    assert costs[0] == costs[1]
