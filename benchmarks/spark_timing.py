"""Wall and CPU time of a whole process tree: the driver, its JVM and its workers. Standard library only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def cpu_s() -> float:
    """User and system seconds of this process tree; children count while they live (read from /proc)."""
    ticks = os.sysconf("SC_CLK_TCK")
    total = 0.0
    for pid in _tree(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / ticks
    return total


def _tree(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall seconds, CPU seconds of the process tree, and what the call returned."""
    wall, cpu = time.perf_counter(), cpu_s()
    value = call()
    return time.perf_counter() - wall, cpu_s() - cpu, value
