"""The threads that a provider starts and leaves behind, counted in a process where nothing else starts any.

The test process cannot count them: servers, relays and providers of other tests start threads at any time. The child reads
the pickled arguments of `threads_of` from its standard input and prints a `Threads` as JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import asdict, dataclass

from ..errors import LakeLatchError
from ..locks import LockProvider, Release
from .contention import PATIENCE_S, until

_PROGRAM = "from lakelatch.testing.thread_count import _count; _count()"


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
