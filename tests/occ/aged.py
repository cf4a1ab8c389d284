"""A table with a history, for services that work on it, and a store that fails at each call of such a service."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import lakelatch
from lakelatch.occ.table.table import Table
from lakelatch.testing.faults import Fault

from ..thorough import some
from .world import BEGUN, MODELS, World, Writer, add, check_sound, content, independent_content, struck

AGED = BEGUN | {"a0": 4, "a1": 4, "b9": 1}
SMALL = {"small_bytes": 1 << 20, "target_bytes": 2 << 20}  # sizes by which clustering takes every file of a test
BACK = BEGUN | {"a0": 2, "a1": 2, "b9": 1}


def age(world: World) -> list[str]:
    """Five commits on top of the first one: b9 is inserted, then a is added to four times. Returns their T."""
    with world.fresh() as table:
        writer = Writer("age", table.env, None, table)  # type: ignore[arg-type]
        done = [writer.insert("b", "b9"), *(writer.add("a") for _ in range(4))]
        return [result.instant for result in done if result]


def aged(folder: Path, **settings) -> World:
    model = MODELS.get(f"aged {settings}") or folder.parent / f"aged {settings}"
    if not model.exists():
        world = World(model, **settings)
        age(world)
        world.close()
    return World(folder, model=model)


def data_files(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*.parquet")}


def finish(table: Table) -> None:
    """Anyone who comes next executes what is planned."""
    for begin in table.plans():
        table.execute(begin.instant)


def strike(folder: Path, fault: Fault, act: Callable[[Writer], object], after: dict[str, int]) -> None:
    """Run a service with a fault; what its caller was told must be what others find, and all must be finished by them."""
    world = aged(folder)
    writer = world.writer("A", host="host-b")
    told = struck(writer, fault, act)
    landed = told.landed if isinstance(told, lakelatch.LakeLatchError) else True
    try:
        with world.fresh() as table:
            found = content(table)
            assert found in ([after] if landed else [AGED] if landed is False else [AGED, after]), f"told {told!r}"
            table.rollback_failed_writes(wait=True)
            finish(table)
            assert content(table) == found or landed is None, f"told {told!r}"
            writer.store.land()  # at the latest now, when everybody has given up and cleaned
            found = content(table)
            assert found in (AGED, after), found
            with table.transaction() as txn:  # writable
                add(txn, "b", 5)
            table.clean(retain_commits=1)
            check_sound(table)
            wanted = found | {"b0": found["b0"] + 5, "b1": found["b1"] + 5, "b9": 6}
            assert (now := content(table)) == wanted, f"{now}, not {wanted}"
            assert (other := independent_content(folder)) == wanted, f"hudi-rs: {other}, not {wanted}"
    finally:
        world.close()


def strike_all(
    folder: Path, faults: Iterable[Fault], act: Callable[[Writer], object], after: dict[str, int] = AGED
) -> None:
    """Every fault in a world of its own; tells all failures, not only the first."""
    failures = []
    for number, fault in enumerate(some(faults, 4)):
        try:
            strike(folder / str(number), fault, act, after)
        except (AssertionError, lakelatch.LakeLatchError) as e:
            failures.append(f"{fault}\n    {type(e).__name__} {str(e).partition(chr(10))[0]}")
    assert not failures, f"{len(failures)} faults do harm:\n" + "\n".join(failures)
