"""``python -m tests.unheard FD PROGRAM ARGUMENT...``: run a module or a file whose main thread is not woken by SIGTERM.

At each byte from ``FD`` another thread sends the signal to itself. Nothing interrupts the main thread then, as when a
signal comes in the moment before a wait.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from lakelatch.testing.contention import PATIENCE_S


@contextmanager
def unheard(
    program: str, *arguments: str, **given: Any
) -> Iterator[tuple[subprocess.Popen[str], Callable[[], object]]]:
    """Yield such a process and what sends it the signal. A test that fails leaves none behind."""
    ours, theirs = os.pipe()
    words = [sys.executable, "-m", "tests.unheard", str(ours), program, *arguments]
    with subprocess.Popen(
        words, pass_fds=[ours], stdout=subprocess.PIPE, text=True, start_new_session=True, **given
    ) as process:
        os.close(ours)
        try:
            yield process, lambda: os.write(theirs, b"!")
        finally:
            os.close(theirs)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # and what it has started, which may hold its output open
            process.wait(PATIENCE_S)


def _take(channel: int) -> None:
    while os.read(channel, 1):
        before, now = None, _place()
        while before != now:  # until it waits
            time.sleep(0.05)
            before, now = now, _place()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)


def _place() -> tuple[int, int]:
    """Return the frame and the instruction of the main thread."""
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    return id(frame), frame.f_lasti


if __name__ == "__main__":
    _, number, name, *_ = sys.argv
    sys.argv = sys.argv[2:]
    threading.Thread(target=_take, args=(int(number),), daemon=True).start()
    if name.endswith(".py"):
        runpy.run_path(name, run_name="__main__")
    else:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
