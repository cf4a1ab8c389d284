"""Every ordered pair of operations: two writers at once, judged row by row against both serial orders.

The second one's handle is stale: opened, and its transaction begun, before the first one commits. It does its work
before that, or after it on its old snapshot. Then

- the table holds what one of the two orders gives (no anomaly), and a reader saw what that order shows;
- a loser has left nothing, and run again it gives what the order "first, second" gives;
- two that have no file group, no claimed partition and no change of the schema in common both land (no false abort).
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakelatch

from .pairs import OPERATIONS, Operation, PairWorld, Rows, Running, rows_of
from .world import check_sound

BOTH, FIRST = "both land", "first wins"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rows]:
    folder = tmp_path_factory.mktemp("pairs") / "base"
    return folder, PairWorld.make_base(folder)


def play(rows: Rows, *order: tuple[Operation, int]) -> tuple[Rows, dict[int, Rows]]:
    """The rows after these operations with their sides, one after the other, and what those that read saw."""
    seen = {}
    for operation, side in order:
        if operation.reads:
            seen[side] = rows
        rows = operation.model(rows, side)
    return rows, seen


def look(world: PairWorld, *runs: Running) -> tuple[Rows, dict[int, Rows]]:
    """The same as it is on the table, once that is found to be sound and its old handles to show what a new one does."""
    with world.fresh() as table:
        check_sound(table)
        rows = rows_of(table.read())
    for run in runs:
        assert rows_of(run.table.read()) == rows, f"the handle of {run.writer.name} shows other rows"
    return rows, {run.side: run.seen for run in runs if run.seen is not None}


def run_pair(world: PairWorld, start: Rows, first: Operation, second: Operation, *, late: bool) -> str:
    """Who landed. Raises `AssertionError` for what must not be."""
    one, two = (Running(world, world.writer(name), side) for side, name in ((1, "first"), (2, "second")))
    second.begin(two)
    first.begin(one)
    if not late:
        second.stage(two)
    first.stage(one)
    first.finish(one)
    if late:
        second.stage(two)
    orders = [play(start, (first, 1), (second, 2))]
    try:
        second.finish(two)
    except lakelatch.ConflictError as lost:
        assert not first.disjoint(second), f"false abort: {lost}"
        assert look(world, one) == play(start, (first, 1)), "the loser has left something"
        second.begin(two)
        second.stage(two)
        second.finish(two)
        assert look(world, one, two) in orders, "run again it gives something else"
        return FIRST
    if not second.instant:
        orders.append(play(start, (second, 2), (first, 1)))
    assert look(world, one, two) in orders, "an anomaly: no serial order gives this"
    return BOTH


@pytest.mark.parametrize("first", OPERATIONS, ids=lambda operation: operation.name)
def test_every_pair_gives_what_a_serial_order_gives(folder, base, first):
    path, start = base
    outcomes, faults = [], []
    for number, second in enumerate(OPERATIONS):
        # Both where they can meet; where they cannot, one is enough.
        for late in (number % 2 > 0,) if first.disjoint(second) else (False, True):
            world = PairWorld(folder / "table", path)
            when = "after" if late else "before"
            try:
                outcomes.append(f"{second.name}, its work done {when}: {run_pair(world, start, first, second, late=late)}")
            except Exception as e:
                e.add_note(f"first: {first.name}; second: {second.name}, its work done {when} the first one landed")
                faults.append(e)
            finally:
                world.close()
                shutil.rmtree(world.folder)
    if faults:
        raise ExceptionGroup("\n".join(["The pairs that went as they should:", *outcomes]), faults)
