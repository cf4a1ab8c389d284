"""A writer that was rolled back hears that, whatever it was at: what it reads is gone, and its own files are.

While it is suspended before one call of the store, others end its transaction, change and compact what it reads, and clean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lakelatch
from lakelatch import sql
from lakelatch.errors import RolledBackError
from lakelatch.occ.entries.entries import Begin
from lakelatch.testing.faults import At, Call, Pause

from ...thorough import some
from ..world import World, Writer, check_clean, check_history, content, fate, rows

TYPES = ("copy_on_write", "merge_on_read")
A = {"id": "a0", "part": "a"}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Tables to begin with, by type: two partitions, of which each has a slice with an older one below."""
    made = {}
    for kind in TYPES:
        folder = tmp_path_factory.mktemp("model") / "table"
        world = World(folder, empty=True, type=kind, lock="none://", bucket_count=1)
        with world.fresh() as table:
            for v in (0, 1):
                table.upsert(rows("a", {"a0": v, "a1": v}), missing="null")
                table.upsert(rows("b", {"b0": v, "b1": v}), missing="null")
        made[kind] = folder
    return made


def world_of(models, kind: str, folder) -> World:
    return World(folder, model=models[kind])


def others(world: World, kind: str) -> None:
    """What others do meanwhile. They know that the writer is dead."""
    with world.fresh() as table:
        for begin in list(table.session.log.catch_up().open.values()):
            table.session.cleaner.roll_back(begin, reason="its heartbeat stopped")
        table.upsert(rows("a", {"a0": 5, "a1": 5}), missing="null")
        table.upsert(rows("b", {"b0": 5, "b1": 5}), missing="null")
        if kind == "merge_on_read":
            table.compact()
        table.clean(retain_commits=0)
        table.rollback_failed_writes()


VERBS: dict[str, Callable[[Any], object]] = {
    "upsert": lambda t: t.upsert([A | {"v": 9}]),
    "insert": lambda t: t.insert([{"id": "a7", "part": "a", "v": 9}]),
    "update_where": lambda t: t.update_where("id = 'a0'", {"v": sql("v * 0 + 9")}),
    "delete": lambda t: t.delete([A]),
    "delete_where": lambda t: t.delete_where("id = 'a0'"),
    "delete_all": lambda t: t.delete_all(partition="part=a"),
    "merge": lambda t: t.merge([A | {"v": 9}]).when_matched(update="all").run(),
    "overwrite": lambda t: t.overwrite([A | {"v": 9}]),
    "overwrite_table": lambda t: t.overwrite_table([A | {"v": 9}]),
    "add_column": lambda t: t.add_column("w", "int64"),
}


def calls_of(models, kind: str, folder, act: Callable[[Writer], object]) -> list[Call]:
    """The calls of the store that it makes where nothing interferes."""
    world = world_of(models, kind, folder)
    writer = world.writer("W")
    act(writer)
    world.close()
    return list(writer.store.calls)


def suspended(world: World, kind: str, number: int) -> Writer:
    """A writer that others take for dead while it is suspended before that call."""
    writer = world.writer("W")
    writer.store.add(Pause(At(number), call=lambda: others(world, kind)))
    return writer


def sound(world: World) -> dict[str, int]:
    """Nothing is left of the writer, and what the table holds."""
    with world.fresh() as table:
        table.rollback_failed_writes()
        check_history(table)
        check_clean(table)
        return content(table)


def in_turn(models, folder, kind: str, *acts: Callable[[World], object]) -> dict[str, int]:
    """The table after these, one after the other."""
    world = world_of(models, kind, folder)
    for act in acts:
        act(world)
    return world.content()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_runs_again_wherever_it_was_suspended(models, tmp_path, verb, kind):
    """It lands before the others or after them, and anyone who is told of the end of a delete finds no such row."""
    calls = calls_of(models, kind, tmp_path / "calls", lambda writer: VERBS[verb](writer.table))
    first = in_turn(models, tmp_path / "first", kind, ours(verb), lambda world: others(world, kind))
    last = in_turn(models, tmp_path / "last", kind, lambda world: others(world, kind), ours(verb))
    for number in some(range(1, len(calls) + 1), 5):
        world = world_of(models, kind, tmp_path / f"at {number}")
        result = VERBS[verb](suspended(world, kind, number).table)
        found, call = sound(world), calls[number - 1]
        (mine,) = [each for each in results(world, "W") if each[1] == "commit"]
        assert found in (first, last), call
        assert result.attempts == (2 if len(results(world, "W")) > 1 else 1), (call, mine)
        world.close()


def ours(verb: str) -> Callable[[World], object]:
    return lambda world: VERBS[verb](world.writer("ours").table)


def results(world: World, writer: str) -> list[list[str]]:
    """What the log says of the transactions of a writer."""
    with world.fresh() as table:
        begun = [each for each in table.session.log.entries() if isinstance(each, Begin) and each.writer == writer]
        return [fate(table, each.instant) for each in begun]


STATEMENTS = {name: act for name, act in VERBS.items() if not name.startswith("overwrite")} | {
    "read": lambda t: t.read().to_arrow(),
    "a slice": lambda t: t.read_slice(t.snapshot.file_slices("part=a")[0]),
    "a file": lambda t: t.rewrite(t.snapshot.file_slices("part=a")[0]).write(rows("a", {"a0": 9, "a1": 9})),
}


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("first", ["upsert", "insert", "nothing"])
@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_of_a_transaction_that_was_ended_says_so(models, tmp_path, statement, first, kind):
    """At the statement itself, or at the commit, where it reads nothing that is gone."""
    world = world_of(models, kind, tmp_path / "table")
    writer = world.writer("W")
    with pytest.raises(RolledBackError), writer.table.transaction("upsert") as txn:  # noqa: PT012 - it need not fail in the block
        if first != "nothing":
            VERBS[first](txn)
        others(world, kind)
        try:
            STATEMENTS[statement](txn)
        except lakelatch.LakeLatchError as e:
            assert type(e) is RolledBackError  # noqa: PT017 - it need not fail here
            raise
    assert sound(world) == dict.fromkeys(("a0", "a1", "b0", "b1"), 5)
    world.close()


@pytest.mark.parametrize("kind", TYPES)
def test_a_commit_that_merges_again_says_so(models, tmp_path, kind):
    """It lost on file groups, reads the new slices, and these are cleaned because others have ended it."""
    calls = calls_of(models, kind, tmp_path / "calls", rebased)
    for number in some(range(1, len(calls) + 1), 8):
        world = world_of(models, kind, tmp_path / f"at {number}")
        writer = suspended(world, kind, number)
        try:
            rebased(writer)
        except lakelatch.LakeLatchError as e:
            assert type(e) is RolledBackError, calls[number - 1]  # noqa: PT017
        found = sound(world)
        assert (found["a0"], found["b0"]) in ((5, 5), (9, 5), (6, 5)), calls[number - 1]
        world.close()


def rebased(writer: Writer) -> None:
    with writer.table.transaction("upsert") as txn:
        txn.upsert([A | {"v": 9}])
        with lakelatch.open(str(writer.store.inner.url), env=writer.env.peer(), writer="X") as other:
            other.upsert([{"id": "a1", "part": "a", "v": 6}])


def test_what_the_caller_raises_is_raised(models, tmp_path):
    """Also a mistake in the call comes to light, in the attempt that is run again."""
    world = world_of(models, "copy_on_write", tmp_path / "table")
    table = world.writer("W").table
    with pytest.raises(KeyError), table.transaction():  # noqa: PT012 - two steps
        others(world, "copy_on_write")
        raise KeyError("mine")
    attempts = []

    def work(txn: Any) -> None:
        attempts.append(txn.instant)
        if len(attempts) == 1:
            others(world, "copy_on_write")
        txn.update_where("no_such_column = 1", {"v": 1})

    with pytest.raises(lakelatch.InputError, match="no_such_column"):
        table.run(work)
    assert len(attempts) == 2
    world.close()


def test_a_savepoint_is_made_again(models, tmp_path):
    calls = calls_of(models, "copy_on_write", tmp_path / "calls", lambda writer: writer.table.savepoint())
    for number in some(range(1, len(calls) + 1), 8):
        world = world_of(models, "copy_on_write", tmp_path / f"at {number}")
        made = suspended(world, "copy_on_write", number).table.savepoint()
        with world.fresh() as table:
            assert [each.instant for each in table.savepoints()] == [made.instant], calls[number - 1]
        world.close()
