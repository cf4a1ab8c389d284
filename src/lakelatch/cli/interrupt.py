"""Make Ctrl-C at the command line arrive, wherever the program is.

Python raises `KeyboardInterrupt` at the main thread's current instruction. In a destructor or the callback of a weak
reference it is printed and dropped; in an import, code that tries the import may take it for a missing module. There it
waits.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

_LONGEST_S = 1.0
_PAUSE_S = 0.02


def arrives() -> None:
    """Let Ctrl-C end this process's command; called once, in the main thread.

    A handler that is already set stays, and so does SIGINT ignored by a parent.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        interrupt = _Interrupt()
        signal.signal(signal.SIGINT, interrupt.asked)
        sys.unraisablehook = interrupt.thrown_away


class _Interrupt:
    """One request to stop. It waits for a better moment, a second at most; a second request does not wait."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._is_ours = False

    def asked(self, number: int, frame: FrameType | None) -> None:
        """Handle SIGINT."""
        # A signal from `_again` is the old request; only a second Ctrl-C of the user must not wait.
        first, self._is_ours = self._is_ours or self._since is None, False
        if self._since is None:
            self._since = time.monotonic()
        if first and _is_lost_in(frame) and time.monotonic() - self._since < _LONGEST_S:
            self._later()
        else:
            self._since = None
            signal.default_int_handler(number, frame)

    def thrown_away(self, told: Any) -> None:
        """Handle an error that no code can catch; called as Python's hook."""
        if issubclass(told.exc_type, KeyboardInterrupt):
            self._later()
        else:
            sys.__unraisablehook__(told)

    def _later(self) -> None:
        # From another thread: the main thread leaves the destructor or import only after this handler has returned.
        again = threading.Timer(_PAUSE_S, self._again)
        again.daemon = True
        again.start()

    def _again(self) -> None:
        self._is_ours = True
        # Wakes it where it waits, too.
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


def _is_lost_in(frame: FrameType | None) -> bool:
    while frame is not None:
        code = frame.f_code
        if code.co_name in ("__del__", "thrown_away") or code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False
