"""Standard output and standard error of this process, also where they are closed or full.

Python has None for a closed one, and gives its number to the next file that is opened: to a data file, into which a
child process would then print. A failed write to stdout ends the command, since missing output would go unnoticed;
stderr is for people, and a failed write there changes nothing.
"""

from __future__ import annotations

import errno
import io
import os
import sys

OUTPUT_LOST, NOBODY_READS = 74, 141  # as in sysexits.h; 128 + SIGPIPE


class OutputLostError(Exception):
    """Stdout took no more output. Not an `OSError`, which other code might take for an error of its own files."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.nobody_reads = error.errno == errno.EPIPE


class _Stdout(io.FileIO):
    def write(self, body: object, /) -> int:
        try:
            return super().write(body)  # type: ignore[arg-type]
        except OSError as error:
            raise OutputLostError(error) from error


class _Stderr(io.FileIO):
    def write(self, body: object, /) -> int:
        try:
            return super().write(body)  # type: ignore[arg-type]
        except OSError:
            # Reported as written, or the buffer would keep the text and fail again at every later write.
            return memoryview(body).nbytes  # type: ignore[arg-type]


def secure() -> None:
    """Replace Python's streams by safe ones; called once, before anything is opened."""
    # So that using it is an error.
    for fd, instead in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_RDONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, instead)  # the lowest number that is free: this one
    for name, fd, kind in (("stdout", 1, _Stdout), ("stderr", 2, _Stderr)):
        before = getattr(sys, name)
        raw = kind(fd, "wb", closefd=False)
        stream = io.TextIOWrapper(
            io.BufferedWriter(raw),
            encoding=getattr(before, "encoding", "utf-8"),
            errors=getattr(before, "errors", "backslashreplace"),
            line_buffering=name == "stderr" or raw.isatty(),
        )
        setattr(sys, name, stream)


def flush() -> None:
    """Write buffered output to stdout."""
    sys.stdout.flush()


def give_up(error: OutputLostError) -> int:
    """Drop the output that stdout has not taken and report it. Return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing may fail at exit either
    if error.nobody_reads:  # as with `| head`
        return NOBODY_READS
    sys.stderr.write(
        f"lakelatch: the output could not be written: {error}. This says nothing of what the command does, which may be done; "
        "`lakelatch timeline` shows what has landed\n"
    )
    return OUTPUT_LOST
