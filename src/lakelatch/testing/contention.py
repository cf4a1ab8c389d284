"""Threads and processes that contend for real, for the lock contract."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ..environment import SystemEnvironment

PATIENCE_S = 120.0  # how long a broken provider may hang a test; a working one never takes that long

# A program: argv is URL, key, file and number of rounds.
COUNT_UNDER_LOCK = """
import sys
from pathlib import Path
from lakelatch.locks import open_provider
url, key, file, times = sys.argv[1:]
with open_provider(url) as locks:
    for _ in range(int(times)):
        with locks.acquire(key, wait_s=60):
            Path(file).write_text(str(int(Path(file).read_text()) + 1))
"""


class WatchedEnvironment(SystemEnvironment):
    """An environment in which the first wait on each event releases ``waits`` once, so a test can count waiting threads."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = threading.Semaphore(0)

    def event(self) -> threading.Event:
        return _WatchedEvent(self.waits)


class _WatchedEvent(threading.Event):
    def __init__(self, waits: threading.Semaphore) -> None:
        super().__init__()
        self._waits = waits
        self._first = True

    def wait(self, timeout: float | None = None) -> bool:
        # A waiter may wait on one event many times, and counts once.
        if self._first:
            self._first = False
            self._waits.release()
        return super().wait(timeout)


class CountingEnvironment(SystemEnvironment):
    """An environment that counts clock readings: a waiter reads a clock before and after each poll."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = 0

    def now(self) -> float:
        self.readings += 1
        return super().now()

    def monotonic(self) -> float:
        self.readings += 1
        return super().monotonic()


def run_threads(threads: list[threading.Thread], *, start: bool = True) -> None:
    """Start the threads, unless they run already, and wait for all of them to end."""
    for thread in threads:
        if start:
            thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "a thread still waits for the lock"


def until(true: Callable[[], bool], what: str, *, patience_s: float = PATIENCE_S) -> None:
    """Poll the real state until it is as expected; ``what`` is the error if it never is."""
    give_up = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < give_up, what
        time.sleep(0.01)  # another process's state, which sends no notification
