"""Two coordinators of one table, which are killed, and stopped, in turn under real writers."""

from __future__ import annotations

import signal
import socket
import time
from bisect import bisect_right
from collections import Counter
from itertools import pairwise

import pytest

import lakelatch

from ..occ.world import BEGUN, check_sound, content, entries, independent_content, make, writes
from ..servers import free_port
from ..thorough import THOROUGH
from .forge import Child, Forge, until

pytestmark = pytest.mark.process

TOKEN = "a-token-for-this-test"
WRITERS, ROUNDS = 16, 100 if THOROUGH else 4


def listens(port: int) -> bool:
    with socket.socket() as tries:
        return tries.connect_ex(("127.0.0.1", port)) == 0


def started(forge: Forge, folder: object, port: int) -> Child:
    child = forge.start("coordinate", folder=folder, port=port, token=TOKEN)
    until(lambda: listens(port), what="the coordinator listens")
    return child


def figures(moments: list[list[float]], signals: list[float]) -> str:
    """What the writers saw of the coordinator's deaths, in seconds. ``moments``: when each writer's commits were told.

    A rate is back when as many commits as in a median second have come within one second.
    """
    landed = sorted(moment for each in moments for moment in each)
    usual = sorted(after - before for each in moments for before, after in pairwise(each))
    over = [
        max((later - before for before, later in pairwise(each) if before <= at < later), default=0.0)
        for each in moments
        for at in signals
    ]
    seconds = [bisect_right(landed, at + 1.0) - bisect_right(landed, at) for at in landed]
    rate = sorted(seconds)[len(seconds) // 2]
    back = []
    for at in signals:
        first = bisect_right(landed, at)
        back.append(next((x - at for n, x in enumerate(landed[first:], first) if seconds[n] >= rate), float("inf")))
    told = {
        "signals": len(signals),
        "commits in a median second": rate,
        "a commit, median": usual[len(usual) // 2],
        "99 in 100": usual[len(usual) * 99 // 100],
        "longest pause of a writer over a signal": max(over),
        "median": sorted(over)[len(over) // 2],
        "rate back after, at most": max(back),
        "half of them": sorted(back)[len(back) // 2],
    }
    return "; ".join(f"{name} {value:.2f}" for name, value in told.items())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_no_acknowledged_row_is_lost_or_doubled(forge, folder, number):
    table_folder, go, stop = folder / "table", folder / "go", folder / "stop"
    make(table_folder, coordinator_patience_s=0.3, log_epochs=1000)  # the whole log is looked at
    ports = [free_port(), free_port()]
    coordinators = [started(forge, table_folder, port) for port in ports]
    given = {"folder": table_folder, "go": go, "stop": stop, "token": TOKEN}
    # Some ask nobody.
    urls = ["", "", *(f"http://127.0.0.1:{ports[i % 2]}" for i in range(WRITERS - 2))]
    children = [forge.start("insert_asking", name=f"w{i}", coordinator=url, **given) for i, url in enumerate(urls)]
    go.touch()
    signals: list[float] = []
    with lakelatch.open(str(table_folder)) as table:

        def goes_on() -> None:
            # Counted by their times: an archival takes old ones off the timeline.
            before = max(each.completed for each in table.timeline().commits)
            until(lambda: sum(each.completed > before for each in table.timeline().commits) > WRITERS, what="many land")

        for each in range(ROUNDS):
            goes_on()
            signals.append(time.monotonic())
            coordinators[each % 2].signal(number)
            if number == signal.SIGSTOP:
                goes_on()
                coordinators[each % 2].signal(signal.SIGCONT)
            else:
                coordinators[each % 2].wait()
                coordinators[each % 2] = started(forge, table_folder, ports[each % 2])
        goes_on()
        stop.touch()
        told_when = [child.result() for child in children]
        told = [key for each in told_when for key, _ in each]
        for coordinator in coordinators:
            coordinator.signal(signal.SIGKILL)
            coordinator.wait()
        check_sound(table)
        assert content(table) == BEGUN | dict.fromkeys(told, 1), "acknowledged and landed are not the same"
        slots = Counter(each.slot for each in entries(table))
        together = [slot for slot, members in slots.items() if members > 1]
        assert together, "no entry has begins or commits of several"
        landed = {each.slot for each in writes(table) if each.place}
        print(f"{len(told)} commits, {len(together)} entries of several, {len(landed)} of commits")
        print(figures([[moment for _, moment in each] for each in told_when], signals))
    assert independent_content(table_folder) == BEGUN | dict.fromkeys(told, 1)
