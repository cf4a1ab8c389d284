"""Many processes at once: the result is that of some serial order, and the order is that of the log."""

from __future__ import annotations

import pytest

import lakelatch

from ..occ.world import BEGUN, check_sound, content, independent_content, make, writes

pytestmark = pytest.mark.process


def replay(steps: list[list[object]]) -> dict[str, int]:
    """The table that the same steps give one after the other."""
    table = dict(BEGUN)
    for kind, part, key, value in steps:
        if kind == "add":
            table = {k: v + value if k.startswith(part) else v for k, v in table.items()}
        elif kind == "overwrite":
            table = {k: v for k, v in table.items() if not k.startswith(part)} | {key: value}
        else:
            table[key] = value
    return table


@pytest.mark.parametrize("lock", ["table", "none://"])
def test_random_work_of_six_processes_equals_its_serial_replay(forge, folder, lock):
    table_folder, go = folder / "table", folder / "go"
    make(table_folder, lock=lock)
    children = [forge.start("random_work", folder=table_folder, go=go, seed=seed, times=20) for seed in range(6)]
    go.touch()
    steps: dict[str, list[object]] = {}
    for child in children:
        steps |= child.result()
    with lakelatch.open(str(table_folder)) as table:
        check_sound(table)
        landed = [c.instant for c in writes(table)][1:]
        assert sorted(landed) == sorted(steps), "acknowledged and landed are not the same"
        expected = replay([steps[instant] for instant in landed])
        assert content(table) == expected
    assert independent_content(table_folder) == expected


def test_a_counter_of_eight_processes_loses_nothing(forge, folder):
    table_folder, go = folder / "table", folder / "go"
    make(table_folder)
    children = [forge.start("count", folder=table_folder, go=go, times=10) for _ in range(8)]
    go.touch()
    attempts = sum(child.result()[1] for child in children)
    print(f"{attempts} attempts for 80 increments")
    with lakelatch.open(str(table_folder)) as table:
        assert content(table) == BEGUN | {"a0": 80, "a1": 80}
        assert len(writes(table)) == 81
        check_sound(table)
