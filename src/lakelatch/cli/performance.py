"""Run the demonstrations from the command line: their options, folder and exit codes."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from ..errors import LakeLatchError


def add_keep(parser: argparse.ArgumentParser) -> None:
    """Add the option that names a folder."""
    parser.add_argument("--keep", metavar="FOLDER", type=Path, help="keep the table and the writers' logs there")


def perform(parser: argparse.ArgumentParser, options: argparse.Namespace, play: Callable[[Console, Path], int]) -> int:
    """Run ``play`` in a folder. Return its exit code, 2 when it cannot run here, 130 when it is interrupted."""
    if options.rows and options.rows < 1000:
        parser.error("--rows must be at least 1000, so that everybody finds rows")
    if options.keep and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"--keep {options.keep} is not empty; name a new folder")
    # On a pipe rich takes 80 columns; the final table needs more, and nothing wraps there anyway.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    try:
        with ExitStack() as stack:
            folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="lakelatch-demo-")))
            return play(console, folder)
    except LakeLatchError as e:
        console.print(f"{parser.prog}: {e}", style="red", soft_wrap=True, markup=False)
        return 2
    except KeyboardInterrupt:
        console.print("stopped")
        return 130
