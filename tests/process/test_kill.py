"""kill -9 at every storage call: whatever a process was doing, the next one finds a table that is sound."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

import lakelatch

from ..occ.world import BEGUN, add, check_no_strays, check_sound, content, fate, independent_content, insert, make
from ..thorough import STEP
from .forge import Forge

pytestmark = pytest.mark.process

LANDED = BEGUN | {"a0": 1, "a1": 1, "c0": 1}
OVERWRITTEN = {"a9": 1, "b0": 0, "b1": 0}
LONG = {"lease_s": 3600.0, "heartbeat_timeout_s": 3600.0}  # who waited for the end of one of them would not land
SAMPLE = 8  # every eighth table is read by another implementation as well


def moments(
    forge: Forge, job: str, folder: Path, *, of: str | None = None, **arguments: str
) -> Iterator[tuple[int, bool]]:
    """Before every call, and after every write: nothing else can make a difference. ``of``: calls to that table of several.

    Who stands still for a second looks at the timeline once more, and one that is to be killed there may not: the shorter
    of two runs counts.
    """
    again = folder.with_name(f"{folder.name} again")
    if folder.exists():
        shutil.copytree(folder, again)
    runs = [forge.start(job, folder=each, **arguments).result() for each in (folder, again)]
    for number, _op, _path, writes in min([each[of] if of else each for each in runs], key=len):
        yield number, False
        if writes:
            yield number, True


def struck(forge: Forge, job: str, folder: Path, **arguments: str) -> Iterator[tuple[int, bool]]:
    """Those of them at which a run kills: in `make test` one in so many."""
    return islice(moments(forge, job, folder, **arguments), 0, None, STEP)


def use(folder: Path, *expected: dict[str, int], independent: bool = False) -> None:
    """Open, read, write, clean."""
    with lakelatch.open(str(folder), writer="next") as table:
        found = content(table)
        assert found in expected
        with table.transaction() as txn:
            add(txn, "b", 5)
        check_no_strays(table)  # the next writer has cleaned up, not only who asks for a cleaning
        check_sound(table)
        assert content(table) == found | {"b0": 5, "b1": 5}
    if independent:
        assert independent_content(folder) == found | {"b0": 5, "b1": 5}


@pytest.mark.parametrize(("operation", "after"), [("upsert", LANDED), ("insert_overwrite", OVERWRITTEN)])
def test_a_writer_killed_at_every_call(forge, folder, operation, after):
    make(folder / "model", **LONG)
    shutil.copytree(folder / "model", folder / "dry")
    for turn, moment in enumerate(struck(forge, "change", folder / "dry", operation=operation)):
        table, told = folder / f"table {turn}", folder / f"told {turn}"
        shutil.copytree(folder / "model", table)
        status = forge.run(
            "change", folder=table, acknowledged=told, number=moment[0], after=moment[1], operation=operation
        )
        assert status == -9, moment
        try:
            use(table, *([after] if told.exists() else [BEGUN, after]), independent=turn % SAMPLE == 0)
        except AssertionError as e:
            e.add_note(f"killed {'after' if moment[1] else 'before'} call {moment[0]}")
            raise
        shutil.rmtree(table)
    assert turn > 50 / STEP


def test_an_aborting_writer_killed_at_every_call(forge, folder):
    make(folder / "model")
    shutil.copytree(folder / "model", folder / "dry")
    for turn, (number, after) in enumerate(struck(forge, "give_up", folder / "dry")):
        table = folder / f"table {turn}"
        shutil.copytree(folder / "model", table)
        assert forge.run("give_up", folder=table, number=number, after=after) == -9
        use(table, BEGUN)
        shutil.rmtree(table)
    assert turn > 50 / STEP


def test_a_cleaner_killed_at_every_call(forge, folder):
    make(folder / "model")
    assert forge.run("begin_and_die", folder=folder / "model") == -9
    shutil.copytree(folder / "model", folder / "dry")
    for turn, (number, after) in enumerate(struck(forge, "clean", folder / "dry")):
        table = folder / f"table {turn}"
        shutil.copytree(folder / "model", table)
        assert forge.run("clean", folder=table, number=number, after=after) == -9
        use(table, BEGUN)
        with lakelatch.open(str(table)) as again:
            (dead,) = [e.instant for e in again.session.log.entries() if getattr(e, "writer", "") == "dead"]
            assert fate(again, dead) == ["begin", "rollback"]
        shutil.rmtree(table)
    assert turn > 20 / STEP


def test_a_founder_killed_at_every_call(forge, folder):
    """A table is there or it is not, and anyone who comes next finishes it."""
    there, absent = 0, 0
    for turn, (number, after) in enumerate(struck(forge, "create", folder / "dry")):
        table = folder / f"table {turn}"
        assert forge.run("create", folder=table, number=number, after=after) == -9
        try:
            opened = lakelatch.open(str(table))
            there += 1
        except lakelatch.TableNotFoundError:
            absent += 1
            opened = lakelatch.create(str(table), record_key="id", partition_by="part", exist_ok=True)
        with opened:
            assert opened.writable
        with lakelatch.open(str(table)) as table_now:
            with table_now.transaction("insert") as txn:
                insert(txn, "a", "a0")
            assert content(table_now) == {"a0": 1}
            check_sound(table_now)
    assert min(there, absent) > 0


def test_many_cleaners_at_once_end_a_dead_writer_once(forge, folder):
    make(folder / "table")
    assert forge.run("begin_and_die", folder=folder / "table") == -9
    go = folder / "go"
    cleaners = [forge.start("clean", folder=folder / "table", go=go) for _ in range(6)]
    go.touch()
    ended = [instant for cleaner in cleaners for instant in cleaner.result()]
    assert len(ended) == 1
    with lakelatch.open(str(folder / "table")) as table:
        assert fate(table, ended[0]) == ["begin", "rollback"]
        assert content(table) == BEGUN
        check_sound(table)
