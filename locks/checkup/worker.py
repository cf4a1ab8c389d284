"""A process of `checkup`: takes locks as a writer does, and reports the result as a line of JSON.

Commands: ``contend URL KEY FOLDER SECONDS`` and ``hold URL KEY LEASE_S``. Each waits for a line on its standard input
before it goes on, so that all begin together and the checker decides when something happens.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from threading import Event

from ..registry import open_provider

PATIENCE_S = 60.0


def contend(url: str, key: str, folder: str, seconds: str) -> None:
    """Take and release as often as possible. A file that only a holder creates shows when two hold at once."""
    inside = Path(folder, "inside")
    grants: list[tuple[float, int]] = []
    waits: list[float] = []
    overlaps = 0
    with open_provider(url) as locks:
        locks.inspect(key)  # connected before the others are kept waiting
        _say("ready")
        sys.stdin.readline()
        until = time.monotonic() + float(seconds)
        while not grants or time.monotonic() < until:  # one at least, however slow the server is
            asked = time.monotonic()
            with locks.acquire(key, wait_s=PATIENCE_S, reason="lakelatch locks check") as lease:
                now = time.monotonic()
                try:
                    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    overlaps += 1
                os.sched_yield()  # on a busy machine others would hardly ever run while we hold it
                grants.append((now, lease.token))
                waits.append(now - asked)
                with contextlib.suppress(FileNotFoundError):
                    inside.unlink()
    _say({"grants": grants, "waits": waits, "overlaps": overlaps})


def hold(url: str, key: str, lease_s: str) -> None:
    """Hold until the lease is lost, and report how and when that was noticed."""
    lost = Event()
    with open_provider(url) as locks:
        lease = locks.acquire(key, wait_s=PATIENCE_S, lease_s=float(lease_s), reason="lakelatch locks check")
        lease.on_lost(lambda _: lost.set())
        _say(lease.token)
        sys.stdin.readline()
        began = time.monotonic()
        told = lost.wait(3 * float(lease_s))
        after_s = time.monotonic() - began
        answer = {"told": told, "after_s": after_s, "lost": lease.lost, "release": lease.release().value}
    _say(answer)


def _say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    (contend if sys.argv[1] == "contend" else hold)(*sys.argv[2:])
