"""Every ordered pair of operations: two writers at once, judged row by row against both serial orders.

The second one's handle is stale: opened, and its transaction begun, before the first one commits. It does its work
before that, or after it on its old snapshot. Then

- the table holds what one of the two orders gives (no anomaly), and a reader saw what that order shows;
- a loser has left nothing, and run again it gives what the order "first, second" gives;
- two that have no file group, no claimed partition and no change of the schema in common both land (no false abort).
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.conflict import Decision
from lakelatch.conflict.write_set import EVERYWHERE
from lakelatch.occ.landing import landing, validator
from lakelatch.occ.liveness.rollback import FailedWriteCleaner
from lakelatch.occ.staging.staged import Staged
from lakelatch.occ.workspace.workspace import Workspace

from ...mutants import Variant, answering, instead
from ...thorough import is_taken
from ..pairs import OPERATIONS, Operation, PairWorld, Rows, Running, rows_of, verbs
from ..world import check_clean, check_history, check_published

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
    """The same as it is on the table, which is sound; the handle of the last one shows what a new handle does."""
    with world.fresh() as table:
        check_clean(table)  # before anybody cleans
        table.rollback_failed_writes()
        check_history(table)
        check_published(table)
        read = table.read().to_arrow()
    rows = rows_of(read)
    hudi = HudiTableBuilder.from_base_uri(str(world.folder)).build()
    assert hudi.get_schema().names == read.column_names, "Hudi's reader shows other columns"
    if table.config.merge_on_read and (batches := hudi.read()):
        assert rows_of(pa.Table.from_batches(batches).select(read.column_names)) == rows, (
            "Hudi's reader shows other rows"
        )
    assert rows_of(runs[-1].table.read().to_arrow()) == rows, "an old handle shows other rows"
    return rows, {run.side: run.seen for run in runs if run.seen is not None}


def try_to(operation: Operation, run: Running) -> lakelatch.ConflictError | None:
    """Finish it; the conflict that it lost."""
    try:
        operation.finish(run)
    except lakelatch.ConflictError as e:
        return e
    return None


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
    lost = try_to(second, two)
    if lost:
        assert not first.disjoint(second), f"a false abort: {lost}"
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


def run_row(
    folder: Path, base: tuple[Path, Rows], first: Operation, seconds: list[Operation] = OPERATIONS, *, at: int = 0
) -> None:
    """The pairs that begin with ``first``. Raises all that was wrong, with the outcomes of the other pairs."""
    path, start = base
    outcomes, faults = [], []
    for number, second in enumerate(seconds, start=at):
        if not is_taken(0, number, 6):
            continue
        # Both moments where they can meet; where they cannot, one is enough.
        for late in (number % 2 > 0,) if first.disjoint(second) else (False, True):
            world = PairWorld(folder / "table", path)
            when = "after" if late else "before"
            try:
                outcomes.append(
                    f"{second.name}, its work done {when}: {run_pair(world, start, first, second, late=late)}"
                )
            except (AssertionError, lakelatch.LakeLatchError) as e:
                e.add_note(f"first: {first.name}; second: {second.name}, its work done {when} the first one landed")
                faults.append(e)
            finally:
                world.close()
                shutil.rmtree(world.folder)
    if faults:
        raise ExceptionGroup("\n".join(["the pairs that went as they should:", *outcomes]), faults)


@pytest.mark.parametrize("first", OPERATIONS, ids=lambda operation: operation.name)
def test_every_pair_gives_what_a_serial_order_gives(folder, base, first):
    run_row(folder, base, first, at=OPERATIONS.index(first))


TABLES = {
    "copy-on-write": {},
    "copy-on-write, ordered": {"ordering_field": "v"},
    "merge-on-read": {"type": "merge_on_read"},
    "merge-on-read, ordered": {"type": "merge_on_read", "ordering_field": "v"},
    "merge-on-read, buckets": {"type": "merge_on_read", "bucket_count": 2},
}
VERBS = {
    name: verbs(ordered="ordering_field" in settings, merge_on_read="type" in settings)
    for name, settings in TABLES.items()
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Rows]]:
    folder = tmp_path_factory.mktemp("tables")
    return {name: (folder / name, PairWorld.make_base(folder / name, **each)) for name, each in TABLES.items()}


@pytest.mark.whole
@pytest.mark.parametrize(
    ("kind", "first"),
    [pytest.param(kind, first, id=f"{kind}, {first.name}") for kind, all_of in VERBS.items() for first in all_of],
)
def test_every_pair_of_verbs_gives_what_a_serial_order_gives(folder, bases, kind, first):
    run_row(folder, bases[kind], first, VERBS[kind], at=VERBS[kind].index(first))


def no_schema_is_said_again() -> Variant:
    return [instead(landing, "echo_of", lambda *given: ("", given[-1]))]


def everything_lands() -> Variant:
    return [answering(validator, "resolve", Decision())]


def only_file_groups_count() -> Variant:
    claims = [answering(Staged, "overwrites"), answering(Staged, "depends_on")]
    return [*claims, answering(Workspace, "refuse_unclaimed")]


def the_whole_table_is_one_place() -> Variant:
    real = Staged.write_set
    return [instead(Staged, "write_set", lambda self: replace(real(self), region=EVERYWHERE))]


def a_loser_keeps_its_files() -> Variant:
    return [answering(FailedWriteCleaner, "sweep", 0)]


@pytest.mark.parametrize(
    ("broken", "first", "second", "said"),
    [
        (everything_lands, "upsert a0", "upsert a1", "an anomaly"),
        (only_file_groups_count, "insert_overwrite c", "insert_overwrite c", "an anomaly"),
        (the_whole_table_is_one_place, "upsert a0", "upsert b0", "a false abort"),
        (a_loser_keeps_its_files, "upsert a0", "delete a0", "orphan files"),
        (no_schema_is_said_again, "upsert a0", "upsert b0 with column x", "other columns"),
    ],
)
def test_the_judge_sees_what_is_broken(folder, base, broken, first, second, said):
    named = {operation.name: operation for operation in OPERATIONS}
    with ExitStack() as stack:
        for each in broken():
            stack.enter_context(each)
        with pytest.raises(ExceptionGroup) as told:
            run_row(folder, base, named[first], [named[second]])
    assert any(said in str(e) for e in told.value.exceptions), told.value.exceptions
