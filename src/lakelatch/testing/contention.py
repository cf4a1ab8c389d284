"""Threads and processes that contend for real, for the lock contract."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass

from ..environment import SystemEnvironment
from ..errors import LakeLatchError
from ..locks import LockProvider, Release

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


# The threads that a provider starts and leaves behind, counted in a process where nothing else starts any.
#
# The test process cannot count them: servers, relays and providers of other tests start threads at any time. The child reads
# the pickled arguments of `threads_of` from its standard input and prints a `Threads` as JSON.

_PROGRAM = "from lakelatch.testing.contention import _count; _count()"


@dataclass(frozen=True, slots=True)
class Threads:
    """The threads of a provider.

    ``started`` while it held its leases, ``left`` some time after it was closed: each by name, target and stack. ``error`` is
    the text of the error if it could not take a lease.
    """

    started: list[str]
    left: list[str]
    error: str


def threads_of(locks: LockProvider, key: str, *, leases: int = 1, patience_s: float = PATIENCE_S) -> Threads:
    """Send ``locks`` to a process of its own, which takes that many leases, releases them and closes it.

    ``patience_s`` is how long the threads may take to end.
    """
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], input=pickle.dumps([locks, key, leases, patience_s]), capture_output=True, check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}, timeout=4 * PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    return Threads(**json.loads(done.stdout))


def _count() -> None:
    task = sys.stdin.buffer.read()
    before = set(threading.enumerate())
    locks, key, leases, patience_s = pickle.loads(task)
    error, started = "", []
    with locks:
        try:
            held = [locks.acquire(f"{key}/{i}", wait_s=PATIENCE_S) for i in range(leases)]
            started = _told(before)
            for lease in held:
                lease.ensure_held()
                assert lease.release() is Release.RELEASED
        except LakeLatchError as e:
            error = str(e)
    # The parent judges: what is left after this time is in the report.
    with suppress(AssertionError):
        until(lambda: not _since(before), "threads are left", patience_s=patience_s)
    print(json.dumps(asdict(Threads(started, _told(before), error))))  # noqa: T201 (what the parent reads)


def _since(before: set[threading.Thread]) -> list[threading.Thread]:
    # A dummy stands for a thread that Python did not start, and stays listed after that thread has ended.
    dummy = threading._DummyThread
    return [thread for thread in threading.enumerate() if thread not in before and not isinstance(thread, dummy)]


def _told(before: set[threading.Thread]) -> list[str]:
    frames = sys._current_frames()
    told = []
    for thread in _since(before):
        frame = frames.get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame else "  it has ended meanwhile\n"
        target = getattr(thread, "_target", None)
        told.append(f"{thread.name} ({getattr(target, '__qualname__', type(thread).__qualname__)}):\n{stack}")
    return told
