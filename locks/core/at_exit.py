"""Release the leases of a process when it exits.

This happens at every clean exit (`atexit`), and at SIGTERM unless the user has a handler for it.
The process still dies of that signal, a moment later. A user's handler is never replaced; a handler that
ends with `sys.exit` is a clean exit. Only the main thread may set a handler, so its first lease
does. A process that is killed otherwise, or whose main thread never returns to Python, releases
nothing; its leases run out.
"""

from __future__ import annotations

import _thread
import atexit
import os
import signal
import threading
from collections import defaultdict
from contextlib import suppress
from types import FrameType

from ...environment import Environment, SystemEnvironment
from .lease import LeaseState, all_renewers

_EXIT_S, _TERM_S = 5.0, 2.0  # how long a server that does not answer may hold up the end
_watched: set[str] = set()  # what has been set up in this process; children of fork inherit both


def watch(env: Environment) -> None:
    """Arrange that this process releases its leases when it exits. Idempotent."""
    if not isinstance(env, SystemEnvironment):
        return
    if "exit" not in _watched:
        _watched.add("exit")
        atexit.register(give_back, _EXIT_S)
    if "term" not in _watched and threading.current_thread() is threading.main_thread():
        _watched.add("term")
        if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            with suppress(ValueError):  # in another interpreter of this process
                signal.signal(signal.SIGTERM, _terminated)


def _terminated(number: int, _frame: FrameType | None) -> None:
    give_back(_TERM_S)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def give_back(within_s: float) -> None:
    """Release every lease of this process, within ``within_s``.

    Releases run on other threads: a server may hang, and a signal can interrupt anything, such as
    a release or the start of a thread. So this thread takes no shared lock and creates no
    `threading.Thread`.
    """
    done = threading.Event()

    def work() -> None:
        try:
            _give_back()
        finally:
            done.set()

    with suppress(RuntimeError):  # too late to start a thread
        _thread.start_new_thread(work, ())
        done.wait(within_s)


def _give_back() -> None:
    places: dict[str, list[LeaseState]] = defaultdict(list)
    for renewer in all_renewers():
        for lease in renewer.leases():
            places[lease.place].append(lease)
    threads = [threading.Thread(target=_release, args=(holds,), daemon=True) for holds in places.values()]
    for thread in threads:  # one for each service, so that a hanging one does not delay the others
        thread.start()
    for thread in threads:
        thread.join()


def _release(leases: list[LeaseState]) -> None:
    for lease in leases:
        lease.release()
