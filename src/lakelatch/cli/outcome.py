"""The end of a command: errors as sentences, exit codes, logging.

With ``--json`` an error is one line of JSON on stdout besides the sentence on stderr: ``error`` with ``type`` (of
`lakelatch.errors`, or ``Usage``, ``Aborted``, ``Interrupted``, ``Fault``), ``message``, ``landed`` (true, false, or null
when unknown), ``retryable``, ``exit_code``, ``docs`` (the page about its class, null where there is none) and ``facts``:
the facts in the message, by name.
"""

from __future__ import annotations

import ast
import functools
import json
import logging
import os
import re
import shlex
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar, get_type_hints

import typer
from typer.core import TyperGroup

from ..errors import (
    ConfigError,
    InputError,
    LakeLatchError,
    LockLostError,
    LockTimeoutError,
    LockUnavailableError,
    StorageError,
)
from ..plain_text import visible, visible_json
from .standard_streams import NOBODY_READS, OutputLostError

P = ParamSpec("P")
R = TypeVar("R")
COULD_NOT, OUR_FAULT, INTERRUPTED = 2, 3, 130
# Those of sysexits.h, which cron jobs and mailers know: EX_USAGE, EX_UNAVAILABLE, EX_SOFTWARE, EX_TEMPFAIL.
USAGE, UNREACHABLE, LOST, BUSY = 64, 69, 70, 75
_CAUSES: tuple[tuple[type[LakeLatchError], int], ...] = (
    (LockTimeoutError, BUSY),
    (LockLostError, LOST),
    (LockUnavailableError, UNREACHABLE),
    (StorageError, UNREACHABLE),
    (ConfigError, USAGE),
    (InputError, USAGE),
)
_state = {"debug": False}


def set_up(*, debug: bool, verbose: bool) -> None:
    """Set how much is logged to stderr."""
    _state["debug"] = debug
    level = logging.DEBUG if debug else logging.INFO if verbose else logging.WARNING
    logger = logging.getLogger("lakelatch")
    logger.setLevel(level)
    # Once per process: tests run many commands in one, and a second handler would print every record twice.
    if not logger.handlers:
        logger.addHandler(_Stderr())


class _Stderr(logging.Handler):
    """A handler that logs to the current `sys.stderr`, which tests replace. Faults and ``--debug`` include the traceback."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        typer.echo(visible(prefix + record.getMessage()), err=True)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and (record.levelno >= logging.ERROR or _state["debug"]):
            _print_traceback(error)


def by_cause(command: Callable[P, R]) -> Callable[P, R]:
    """Let a command on a lock, named by its ``key``, end with the code of sysexits.h that tells the cause of an error."""
    command.by_cause = True  # type: ignore[attr-defined]
    return command


def exit_code(error: LakeLatchError) -> int:
    """Return the code of sysexits.h for an error."""
    return next((code for kind, code in _CAUSES if isinstance(error, kind)), COULD_NOT)


def plainly(command: Callable[P, R]) -> Callable[P, R]:
    """Wrap a command: errors become short messages on stderr, with an exit code for their cause."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        def ends(kind: str, message: str, code: int, error: LakeLatchError | None = None) -> typer.Exit:
            if kwargs.get("json"):
                print_error(kind, message, code, error)
            return typer.Exit(code)

        try:
            return command(*args, **kwargs)
        # Handled further out: the first two by typer, the third by `main`.
        except (typer.Exit, typer.BadParameter, OutputLostError):
            raise
        except typer.Abort:
            typer.echo("nothing was done", err=True)
            raise ends("Aborted", "nothing was done", COULD_NOT) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise ends("Interrupted", "interrupted", INTERRUPTED) from None
        except BrokenPipeError:
            # The reader has gone (`| head`). Nothing may be written at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(NOBODY_READS) from None
        except LakeLatchError as e:
            words = in_options(str(e), command)
            _tell(e, words)
            told = getattr(command, "by_cause", False) and kwargs.get("key") is not None
            raise ends(type(e).__name__, words, exit_code(e) if told else COULD_NOT, e) from None
        except Exception as e:  # noqa: BLE001 - the outermost place; --debug shows all of it
            if words := _from_outside(e):
                _tell(e, words)
                raise ends("StorageError" if isinstance(e, OSError) else "InputError", words, COULD_NOT) from None
            words = f"Something is wrong in lakelatch itself: {type(e).__name__}: {e}"
            _tell(e, words, "Run again with --debug and report what it prints")
            raise ends("Fault", words, OUR_FAULT) from None

    return run


_SAID = re.compile(
    r"""(?<![\w./'"-])(?P<name>[a-z]+(?:_[a-z]+)*)(?P<equals>=(?P<value>"[^"]*"|'[^']*'|\[[^\]]*\]|\([^)]*\)|[^\s`,;.()]+(?:\.\w+)*)?)?(?!\w)"""
)


def in_options(words: str, command: Callable[..., Any]) -> str:
    """Return an error's text with arguments of Python, as ``exist_ok=True``, spelled as options of a command: ``--exist-ok``.

    A name without a value counts as an argument only if it is not an English word: if it has an underscore.
    """
    known = _options(command)

    def said(found: re.Match[str]) -> str:
        name = found["name"]
        option = known.get(name) or known.get(name.removesuffix("s"))
        if option is None or not (found["equals"] or "_" in name):
            return found[0]
        if found["value"] is None:
            return option
        try:
            value = ast.literal_eval(found["value"])
        except (SyntaxError, ValueError):
            value = found["value"]
        if isinstance(value, bool):
            return option if value else option.replace("--", "--no-", 1)
        text = str(value)
        if isinstance(value, list | tuple):
            text = (":" if isinstance(value, tuple) else ",").join(map(str, value))
        return f"{option} {shlex.quote(text)}"

    first, *rest = words.split("\nsee ")  # the link stays as it is
    return "\nsee ".join([_SAID.sub(said, first), *rest])


def _options(command: Callable[..., Any]) -> dict[str, str]:
    """Return the options of a command, by the name of its argument."""
    found = {}
    for name, hint in get_type_hints(command, include_extras=True).items():
        for each in getattr(hint, "__metadata__", ()):
            if isinstance(each, typer.models.OptionInfo):
                flags = [flag for flag in each.param_decls or () if flag.startswith("--")]
                found[name] = flags[0].partition("/")[0] if flags else f"--{name.replace('_', '-')}"
    return found


def _from_outside(error: Exception) -> str:
    """Return the cause outside this program and its remedy; "" where there is none."""
    # Of bytes in an argument, which came as far as where only UTF-8 goes.
    if isinstance(error, UnicodeEncodeError):
        part = error.object[error.start : error.end]
        return f"{part!r} in an argument is no UTF-8 text; write it in UTF-8, or name a file without it"
    if not isinstance(error, OSError):
        return ""
    from ..storage.local import next_step

    step = next_step(error, str(error.filename or "/"))
    return f"the system refuses: {error}. {step}" if step else ""


def print_error(kind: str, message: str, code: int, error: LakeLatchError | None = None) -> None:
    """Print the error as one line of JSON, so that it can follow other lines of output."""
    # A bug may strike after the commit, so the outcome of a fault is unknown.
    landed, retryable = (error.landed, error.retryable) if error else (None if kind == "Fault" else False, False)
    told = {
        "type": kind,
        "message": message,
        "landed": landed,
        "retryable": retryable,
        "exit_code": code,
        "docs": error.docs if error else None,
        "facts": error.details if error else {},
    }
    typer.echo(visible_json(json.dumps({"error": told}, ensure_ascii=False, default=str)))


class Commands(TyperGroup):
    """The command group. With ``--json`` it also prints usage errors as JSON."""

    def main(self, args: Any = None, prog_name: str | None = None, **more: Any) -> Any:  # type: ignore[override]
        """Run a command. `TyperGroup.main` alone would print errors as text only."""
        given = list(sys.argv[1:] if args is None else args)
        if "--json" not in given or not more.get("standalone_mode", True):
            return super().main(given, prog_name, **more)
        try:
            # In standalone mode click prints usage errors itself and exits; without it they are raised here.
            code = super().main(given, prog_name, **more | {"standalone_mode": False})
        except Exception as e:
            if not hasattr(e, "format_message"):  # of click, or of typer's copy of it
                raise
            e.show()  # type: ignore[attr-defined]
            code = e.exit_code  # type: ignore[attr-defined]
            print_error("Usage", e.format_message(), code)
        sys.exit(code if isinstance(code, int) else 0)


def _print_traceback(error: BaseException) -> None:
    for line in "".join(traceback.format_exception(error)).splitlines():
        # Indented: no line of the error's text passes for a message of ours.
        typer.echo(visible(f"  {line}"), err=True)


def _tell(error: BaseException, words: str, *more: str) -> None:
    if _state["debug"]:
        _print_traceback(error)
    else:
        notes = list(getattr(error, "__notes__", ()))
        # The first note is the link, set when the error was made. Later notes come before it: the link ends the output.
        for line in (f"lakelatch: {words}", *more, *notes[1:], *notes[:1]):
            # Further lines, such as a condition with its place marked, are indented: none passes for a message of ours.
            typer.echo(visible(line, lines=True).replace("\n", "\n  "), err=True)


# Make Ctrl-C at the command line arrive, wherever the program is.
#
# Python raises `KeyboardInterrupt` at the main thread's current instruction. In a destructor or the callback of a weak
# reference it is printed and dropped; in an import, code that tries the import may take it for a missing module. There it
# waits.

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
