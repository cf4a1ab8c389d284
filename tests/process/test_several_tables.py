"""Transfers between two tables by processes that are killed: each lands in both tables or in none, and nothing stays."""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path

import pytest

import lakelatch

from ..occ.world import add, check_no_strays, check_sound, content, make
from ..thorough import STEP, THOROUGH
from .forge import Child, Forge, until
from .test_kill import struck

pytestmark = pytest.mark.process

WRITERS, KILLS = (16, 150) if THOROUGH else (4, 12)


def make_two(folder: Path, **settings: float) -> None:
    for name in ("left", "right"):
        make(folder / name, **settings)


def use(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The next writer of both: reads a cut of them, transfers, and finds them sound."""
    with lakelatch.open(str(folder / "left")) as left, lakelatch.open(str(folder / "right")) as right:
        cut = lakelatch.read_together(left, right)
        assert sum(row["v"] for table in (left, right) for row in cut.read(table).to_pylist()) == 0
        found = content(left), content(right)

        def work(txn: lakelatch.SeveralTransaction) -> None:
            add(txn[left], "b", -1)
            add(txn[right], "b", 1)

        lakelatch.run(work, left, right)
        for table in (left, right):
            table.rollback_failed_writes(wait=True)
            assert not table.session.log.catch_up().prepared
            check_no_strays(table)
            check_sound(table)
        assert content(left)["b0"] == -content(right)["b0"] == found[0]["b0"] - 1
    return found


@pytest.mark.parametrize("killed", ["left", "right"])
def test_a_transfer_killed_at_every_call(forge: Forge, folder: Path, killed: str) -> None:
    make_two(folder / "model")
    shutil.copytree(folder / "model", folder / "dry")
    landed = []
    for turn, (number, after) in enumerate(struck(forge, "pay", folder / "dry", of=killed)):
        here, told = folder / f"tables {turn}", folder / f"told {turn}"
        shutil.copytree(folder / "model", here)
        where = {"folder": here, "acknowledged": told, "killed": killed, "number": number, "after": after}
        assert forge.run("pay", **where) == -9, (number, after)
        left, right = use(here)
        assert (left["a0"], right["a0"]) in ([(-5, 5)] if told.exists() else [(-5, 5), (0, 0)]), (number, after)
        landed.append(left["a0"] != 0)
        shutil.rmtree(here)
    assert len(landed) > 40 / STEP
    assert {True, False} == set(landed)


def test_transfers_between_killed_processes_keep_the_sum(forge: Forge, folder: Path) -> None:
    make_two(folder, heartbeat_interval_s=0.2, heartbeat_timeout_s=1.0)
    luck, running = random.Random(1), list[Child]()
    with lakelatch.open(str(folder / "left")) as left, lakelatch.open(str(folder / "right")) as right:

        def landed() -> int:
            last = right.session.log.catch_up().last
            return last.slot if last else 0

        for turn in range(KILLS):
            while len(running) < WRITERS:
                running.append(forge.start("transfer_until_killed", folder=folder, seed=luck.random()))
            before = landed()
            until(lambda before=before: landed() > before, what="another transfer")
            cut = lakelatch.read_together(left, right)
            assert sum(row["v"] for table in (left, right) for row in cut.read(table).to_pylist()) == 0, turn
            gone = running.pop(luck.randrange(len(running)))
            gone.signal(signal.SIGKILL)
            assert gone.wait() == -9
    for each in running:
        each.signal(signal.SIGKILL)
        each.wait()
    use(folder)
