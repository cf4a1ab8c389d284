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
    table_folder, go, inside = folder / "table", folder / "go", folder / "inside"
    make(table_folder)
    # Without a lock writers are not kept apart, so there is nothing to watch then.
    job, watched = ("count", {}) if third == "none" else ("count_watched", {"inside": inside})
    children = [forge.start(job, folder=table_folder, go=go, times=TIMES, **watched) for _ in range(WRITERS)]
    locks = ["table", f"file://{folder}/x", "none://" if third == "none" else f"file://{folder}/y?lease=5s"]
    changes = 0
    with lakelatch.open(str(table_folder), writer="changer") as table:
        go.touch()
        while len(writes(table)) < WRITERS * TIMES:  # until shortly before they have all done their work
            changes += 1
            table.set_lock(locks[changes % len(locks)])
        for child in children:
            child.result()
        assert content(table) == BEGUN | {"a0": WRITERS * TIMES, "a1": WRITERS * TIMES}
        assert len(writes(table)) == WRITERS * TIMES + 1
        assert len({generation for generation, _ in check_tokens(table)}) > 3
        check_sound(table)
    print(f"{changes} changes of the lock during {WRITERS * TIMES} commits")


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
