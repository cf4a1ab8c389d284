"""``lakelatch locks hold`` and ``lakelatch locks revoke``: a lock around a command, and asking for a lock back.

JSON of ``locks revoke``: ``lock`` (URL), ``key``, ``given_back`` (whether the lease that was asked for has ended).
"""

from __future__ import annotations

import getpass
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Annotated

import typer

from ...errors import InputError, LockLostError, LockTimeoutError
from ..options import Json, LockKey, LockUrl
from ..outcome import BUSY, by_cause, exit_code
from ..output import print_json, say

_NOT_FOUND, _NOT_EXECUTABLE, _BY_SIGNAL = 127, 126, 128  # the exit codes of shells
_HEARS_AFTER_S = 0.5
_FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@by_cause
def hold(
    lock: LockUrl,
    key: LockKey,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run, behind two dashes.")],
    *,
    wait_s: Annotated[float, typer.Option(min=0, help="How long to wait for the lock.")] = 0.0,
    lease_s: Annotated[float | None, typer.Option(help="The lease's seconds, instead of the URL's.")] = None,
    reason: Annotated[str, typer.Option(help="Shown to others; the command otherwise.")] = "",
    give_way: Annotated[
        bool, typer.Option("--give-way", help="Also end the command when `locks revoke` asks for the lock.")
    ] = False,
) -> None:
    """Run a command while a lock is held, such as a cron job that must not run twice.

    Exits as the command does; with 75 if the lock was busy, 70 if it was lost, 69 if its service did not
    answer, 64 if there is no such lock. When the lock is lost the command gets SIGTERM. It finds the token
    in LAKELATCH_LOCK_TOKEN.
    """
    import lakelatch

    job = _Job(command)
    held = lakelatch.lock(
        lock,
        key,
        wait_s=wait_s,
        lease_s=lease_s,
        reason=reason or " ".join(command)[:80],
        on_lost=lambda _: job.send(signal.SIGTERM),
        on_revoke=(lambda _: job.send(signal.SIGTERM)) if give_way else None,
    )
    try:
        # The handlers are set once the lock is held: until then a signal has to end this process.
        with held as lease, _forwarding(job):
            code = job.run({"LAKELATCH_LOCK_KEY": lease.key, "LAKELATCH_LOCK_TOKEN": str(lease.token)})
    except (LockTimeoutError, LockLostError) as e:
        say(f"lakelatch: {e}", err=True)
        raise typer.Exit(exit_code(e)) from None
    raise typer.Exit(code)


class _Job:
    """A command that may be sent signals at any time, also before it has begun."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._pending: list[int] = []

    def send(self, number: int) -> None:
        # Queued first: the lease may be lost, or a signal come, before `run` has started the command; `run` delivers
        # it then.
        self._pending.append(number)
        self._deliver()

    def _deliver(self) -> None:
        while self._process is not None and self._pending:
            self._process.send_signal(self._pending.pop())

    def run(self, variables: dict[str, str]) -> int:
        """Run the command. Return its exit code as a shell gives it."""
        try:
            self._process = subprocess.Popen(self._command, env=os.environ | variables)
        except OSError as e:
            say(f"lakelatch: {self._command[0]} cannot be run: {e.strerror}", err=True)
            return _NOT_FOUND if isinstance(e, FileNotFoundError) else _NOT_EXECUTABLE
        self._deliver()
        code = None
        # A signal that comes in the moment before a wait is heard only after it, so no wait is without end.
        while code is None:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(_HEARS_AFTER_S)
        return code if code >= 0 else _BY_SIGNAL - code


@contextmanager
def _forwarding(job: _Job) -> Iterator[None]:
    """Pass signals on to the job instead of dying of them: the lock is held until the job has ended."""

    def forward(number: int, _frame: FrameType | None) -> None:
        if number != signal.SIGINT or not _from_terminal():
            job.send(number)

    before = {
        number: signal.signal(number, forward)
        for number in _FORWARDED
        # An ignored signal stays ignored, as under nohup.
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _from_terminal() -> bool:
    """Return whether the terminal has sent SIGINT (Ctrl-C) to the job as well: a second one might end its tidying up."""
    try:
        with open("/dev/tty", "rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


@by_cause
def revoke(
    lock: LockUrl,
    key: LockKey,
    *,
    wait_s: Annotated[float, typer.Option(min=0, help="How long to ask and wait.")] = 60.0,
    reason: Annotated[str, typer.Option(help="Why; the holder sees it.")] = "",
    json: Json = False,
) -> None:
    """Ask the holder of a lock to give it back. Nothing is taken away. Exit code 75: it is still held.

    Only holders that listen (`on_revoke`, `locks hold --give-way`) hear of it, within a third of
    their lease.
    """
    import lakelatch

    if not key.strip():
        raise InputError("name the key of the lock")
    held = lakelatch.lock(lock, key)
    given_back = held.ask_revoke(
        wait_s=wait_s, reason=f"{reason} ({getpass.getuser()}@{socket.gethostname()})".strip()
    )  # fmt: skip
    held.close()
    if json:
        print_json({"lock": lock, "key": key, "given_back": given_back})
    else:
        say(f"{key} was given back" if given_back else f"{key} is still held; its holder was asked")
    if not given_back:
        raise typer.Exit(BUSY)
