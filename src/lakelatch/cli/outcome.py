"""How a command ends: errors as sentences, exit codes, logging."""

from __future__ import annotations

import functools
import logging
import os
import sys
import traceback
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer

from ..errors import LatchError

P = ParamSpec("P")
R = TypeVar("R")
COULD_NOT, OUR_FAULT, INTERRUPTED, NOBODY_READS = 2, 3, 130, 141
_state = {"debug": False}


def set_up(*, debug: bool, verbose: bool) -> None:
    """Choose how much is told on stderr."""
    _state["debug"] = debug
    level = logging.DEBUG if debug else logging.INFO if verbose else logging.WARNING
    logger = logging.getLogger("lakelatch")
    logger.setLevel(level)
    if not logger.handlers:
        logger.addHandler(_Stderr())


class _Stderr(logging.Handler):
    """Writes to whatever stderr is now; tests exchange it."""

    def emit(self, record: logging.LogRecord) -> None:
        prefix = "" if record.levelno < logging.WARNING else "warning: "
        typer.echo(prefix + record.getMessage(), err=True)


def plainly(command: Callable[P, R]) -> Callable[P, R]:
    """The command with errors as one to three sentences on stderr, and an exit code that says whose fault it is."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except (typer.Exit, typer.BadParameter):
            raise
        except typer.Abort:
            typer.echo("nothing was done", err=True)
            raise typer.Exit(COULD_NOT) from None
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:
            # Whoever reads has gone (`| head`). Nothing may be written at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(NOBODY_READS) from None
        except LatchError as e:
            _tell(e, _sentence(str(e)))
            raise typer.Exit(COULD_NOT) from None
        except Exception as e:  # noqa: BLE001 - the outermost place; --debug shows all of it
            _tell(
                e,
                f"Something is wrong in lakelatch itself: {type(e).__name__}: {e}\n"
                "Run again with --debug and report what it prints.",
            )
            raise typer.Exit(OUR_FAULT) from None

    return run


def _tell(error: BaseException, words: str) -> None:
    if _state["debug"]:
        typer.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    else:
        for note in getattr(error, "__notes__", ()):
            words += f"\n{note}"
        typer.echo(f"lakelatch: {words}", err=True)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
