"""A fresh interpreter at the other end of a line.

Not `multiprocessing`: its spawn runs the caller's own script again, which a library must not do, and its fork copies
threads that do not survive it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, Self

__all__ = ["Helper", "line_of"]


class Helper:
    """A process that runs ``function`` (of a module, taking a descriptor) and ends when the line is closed."""

    def __init__(self, function: Callable[[int], None]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"from {function.__module__} import {function.__name__} as f; f({theirs.fileno()})",
                ],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us; the helper ends when we do
            )
        self._line = Connection(ours.detach())

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, value: Any) -> None:
        """Send any value that pickles. Raises OSError when the helper has ended."""
        self._line.send(value)

    def receive(self, timeout_s: float | None = None) -> Any:
        """Wait for the next value; an exception is raised.

        Raises EOFError when the helper has ended or is silent.
        """
        if not self._line.poll(timeout_s):
            raise EOFError(f"no answer within {timeout_s} s")
        value = self._line.recv()
        if isinstance(value, Exception):
            raise value
        return value

    def close(self) -> None:
        """End the helper. Idempotent."""
        self._line.close()
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()


def line_of(fd: int) -> Connection:
    """Open the helper's own end."""
    return Connection(fd)
