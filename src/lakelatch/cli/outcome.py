"""How a command ends: errors as sentences, exit codes, logging.

With ``--json`` an error is one line of JSON on stdout besides the sentence on stderr: ``error`` with ``type`` (of
`lakelatch.errors`, or ``Usage``, ``Aborted``, ``Interrupted``, ``Fault``), ``message``, ``landed`` (true, false, or null
when unknown), ``retryable``, ``exit_code``, ``docs`` (the page about its class, null where there is none) and ``facts``:
what the message names, by name.
"""

from __future__ import annotations

import functools
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import typer
from typer.core import TyperGroup

from ..errors import LakeLatchError
from ..plain_text import visible, visible_json
from .standard_streams import NOBODY_READS, OutputLostError

P = ParamSpec("P")
R = TypeVar("R")
COULD_NOT, OUR_FAULT, INTERRUPTED = 2, 3, 130
_state = {"debug": False}


def set_up(*, debug: bool, verbose: bool) -> None:
    """Set how much is logged to stderr."""
    _state["debug"] = debug
    level = logging.DEBUG if debug else logging.INFO if verbose else logging.WARNING
    logger = logging.getLogger("lakelatch")
    logger.setLevel(level)
    if not logger.handlers:
        logger.addHandler(_Stderr())


class _Stderr(logging.Handler):
    """Logs to the current `sys.stderr`, which tests replace."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "" if record.levelno < logging.WARNING else "warning: "
        typer.echo(visible(prefix + record.getMessage()), err=True)


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
            _tell(e, str(e))
            raise ends(type(e).__name__, str(e), COULD_NOT, e) from None
        except Exception as e:  # noqa: BLE001 - the outermost place; --debug shows all of it
            if words := _from_outside(e):
                _tell(e, words)
                raise ends("StorageError" if isinstance(e, OSError) else "InputError", words, COULD_NOT) from None
            words = f"Something is wrong in lakelatch itself: {type(e).__name__}: {e}"
            _tell(e, words, "Run again with --debug and report what it prints")
            raise ends("Fault", words, OUR_FAULT) from None

    return run


def _from_outside(error: Exception) -> str:
    """What is to blame outside of this program, and what helps; "" where nothing is."""
    if isinstance(error, UnicodeEncodeError):  # of bytes in an argument, which came as far as where only UTF-8 goes
        part = error.object[error.start : error.end]
        return f"{part!r} in an argument is no UTF-8 text; write it in UTF-8, or name a file without it"
    if not isinstance(error, OSError):
        return ""
    from ..storage.local import next_step

    step = next_step(error, str(error.filename or "/"))
    return f"the system refuses: {error}. {step}" if step else ""


def print_error(kind: str, message: str, code: int, error: LakeLatchError | None = None) -> None:
    """Print the error as one line of JSON, so that it can follow other lines of output."""
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
    """The commands, with an argument that cannot be understood as JSON too where JSON was asked for."""

    def main(self, args: Any = None, prog_name: str | None = None, **more: Any) -> Any:  # type: ignore[override]
        """Run a command. `TyperGroup.main` alone would print errors as text only."""
        given = list(sys.argv[1:] if args is None else args)
        if "--json" not in given or not more.get("standalone_mode", True):
            return super().main(given, prog_name, **more)
        try:
            code = super().main(given, prog_name, **more | {"standalone_mode": False})
        except Exception as e:
            if not hasattr(e, "format_message"):  # of click, or of typer's copy of it
                raise
            e.show()  # type: ignore[attr-defined]
            code = e.exit_code  # type: ignore[attr-defined]
            print_error("Usage", e.format_message(), code)
        sys.exit(code if isinstance(code, int) else 0)


def _tell(error: BaseException, words: str, *more: str) -> None:
    if _state["debug"]:
        for line in "".join(traceback.format_exception(error)).splitlines():
            typer.echo(visible(line), err=True)
    else:
        notes = list(getattr(error, "__notes__", ()))
        # An error has its link from the first, and learns the rest on its way here.
        for line in (f"lakelatch: {words}", *more, *notes[1:], *notes[:1]):
            # Further lines, such as a condition with its place marked, are indented: none passes for a message of ours.
            typer.echo(visible(line, lines=True).replace("\n", "\n  "), err=True)
