"""Wall and CPU time of a whole process tree: the driver, its JVM and its workers. Standard library only.

PySpark's daemon ignores SIGCHLD, so the kernel adds the time of a worker that ends to nobody's children. Anyone who sums up
what lives sees the total fall. Here every process is looked at while it lives, and what it had used then stays counted.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_LOOK_EVERY_S = 0.05  # a process that ends between two looks loses at most so much
_TICKS = os.sysconf("SC_CLK_TCK")


class TreeClock:
    """CPU seconds of this process and of all below it, those that have ended too; a thread looks while the block lasts."""

    def __enter__(self) -> TreeClock:
        self._used: dict[tuple[int, str], float] = {}  # by pid and start time, since pids are used again
        self._own = 0.0
        self._look()
        self._before = sum(self._used.values())
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="tree-clock", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._look()
        self.cpu_s = sum(self._used.values()) - self._before - self._own

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_EVERY_S):
            self._look()
        self._own = time.thread_time()

    def _look(self) -> None:
        found: dict[int, tuple[int, str, float]] = {}
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = int(fields[1]), fields[19], (int(fields[11]) + int(fields[12])) / _TICKS
        mine = {os.getpid()} | {pid for pid, (_, start, _) in found.items() if (pid, start) in self._used}
        while more := {pid for pid, (parent, _, _) in found.items() if parent in mine and pid not in mine}:
            mine |= more
        for pid in mine & found.keys():
            _, start, used = found[pid]
            self._used[pid, start] = used


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall seconds, CPU seconds of the process tree, and what the call returned."""
    with TreeClock() as clock:
        wall = time.perf_counter()
        value = call()
        wall = time.perf_counter() - wall
    return wall, clock.cpu_s, value
