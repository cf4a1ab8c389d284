"""The table's lock is changed back and forth while processes write, and by a process that is killed at every step."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import lakelatch

from ..occ.session.test_table_lock import check_tokens
from ..occ.world import BEGUN, add, check_sound, content, make, writes
from .test_kill import moments

pytestmark = pytest.mark.process

WRITERS, TIMES = 4, 12


@pytest.mark.parametrize("third", ["file", "none"])
def test_writers_lose_nothing_while_the_lock_changes_back_and_forth(forge, folder: Path, third: str):
    table_folder, go, stop, inside = (folder / name for name in ("table", "go", "stop", "inside"))
    make(table_folder)
    # Without a lock writers are not kept apart, so there is nothing to watch then.
    job, watched = ("count", {}) if third == "none" else ("count_watched", {"inside": inside})
    given = {"folder": table_folder, "go": go, "times": TIMES, "stop": stop, **watched}
    children = [forge.start(job, **given) for _ in range(WRITERS)]
    locks = ["table", f"file://{folder}/x", "none://" if third == "none" else f"file://{folder}/y?lease=5s"]
    changes = 0
    with lakelatch.open(str(table_folder), writer="changer") as table:
        go.touch()
        # However slow this process is beside them, they write under several locks.
        while len(writes(table)) < WRITERS * TIMES or len({each for each, _ in check_tokens(table)}) < 4:
            changes += 1
            table.set_lock(locks[changes % len(locks)])
        stop.touch()
        done = sum(child.result()[0] for child in children)
        assert content(table) == BEGUN | {"a0": done, "a1": done}
        assert len(writes(table)) == done + 1
        check_tokens(table)
        check_sound(table)
    print(f"{changes} changes of the lock during {done} commits")


def test_a_changer_killed_at_every_call_leaves_a_lock_that_works(forge, folder: Path):
    other = f"file://{folder}/other"
    make(folder / "model", lease_s=3600.0)  # who waited for the end of a lease would not land
    shutil.copytree(folder / "model", folder / "dry")
    found = set()
    for turn, moment in enumerate(moments(forge, "change_lock", folder / "dry", url=other)):
        table_folder = folder / f"table {turn}"
        shutil.copytree(folder / "model", table_folder)
        assert forge.run("change_lock", folder=table_folder, url=other, number=moment[0], after=moment[1]) == -9
        with lakelatch.open(str(table_folder), writer="next") as table:
            found.add(table.settings.lock)
            with table.transaction() as txn:
                add(txn, "a")
            assert content(table) == BEGUN | {"a0": 1, "a1": 1}
            assert table.set_lock("none://").lock == "none://"
            check_sound(table)
        shutil.rmtree(table_folder)
    assert found == {"table", other}
    assert turn > 5
