"""Output for people: aligned text without frames, as wide as the terminal; in a pipe uncut."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import typer

from ..plain_text import visible, visible_json

_PIPE_WIDTH = 1000
_WIDTH_MIN = 40


def width() -> int:
    """Return the columns to use: the terminal's; in a pipe nothing is cut or wrapped, since programs read it."""
    if sys.stdout.isatty():
        return max(shutil.get_terminal_size().columns, _WIDTH_MIN)
    return _PIPE_WIDTH


def say(text: str = "", *, err: bool = False) -> None:
    """Print one line, with control characters escaped."""
    typer.echo(visible(text), err=err)


def print_json(value: Any, *, indent: int | None = 2) -> None:
    """Print one JSON document."""
    typer.echo(visible_json(json.dumps(value, indent=indent, ensure_ascii=False)))


def print_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[str] = (), fold: Sequence[str] = ()
) -> None:
    """Print rows under headers.

    Args:
        headers: one for each column.
        rows: their cells as text.
        right: headers of columns of numbers.
        fold: headers of columns that may be wrapped where the terminal is narrow; others keep their width.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=width(), highlight=False, legacy_windows=False, force_terminal=sys.stdout.isatty())
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for header in headers:
        table.add_column(
            header, justify="right" if header in right else "left", no_wrap=header not in fold, overflow="fold"
        )
    for row in rows:
        # As `Text`: brackets in a plain str would be read as rich's markup.
        table.add_row(*(Text(visible(cell)) for cell in row))
    with console.capture() as capture:
        console.print(table)
    for line in capture.get().splitlines():
        # rich pads each line with blanks to the width of the table.
        typer.echo(line.rstrip())


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Print names and values, with wrapped values aligned."""
    import textwrap

    indent = max((len(name) for name, _ in pairs), default=0) + 2
    for name, value in pairs:
        lines = [part for line in value.split("\n") for part in textwrap.wrap(
            visible(line), max(width() - indent, 20), break_on_hyphens=False, break_long_words=False
        ) or [""]]  # fmt: skip
        typer.echo(f"{name:<{indent}}{lines[0]}".rstrip())
        for line in lines[1:]:
            typer.echo(" " * indent + line)


def wrapped(text: str, *, indent: int = 0) -> str:
    """Return the text wrapped to the width of the terminal."""
    import textwrap

    pad = " " * indent
    return textwrap.fill(
        visible(text),
        width(),
        initial_indent=pad,
        subsequent_indent=pad,
        # A path, URL or option that is broken in two cannot be copied.
        break_on_hyphens=False,
        break_long_words=False,
    )


def note_text(note: Mapping[str, str]) -> str:
    """Return the note of a commit as ``job=nightly, run=7``."""
    return ", ".join(f"{key}={value}" for key, value in note.items())


def bytes_text(size: int) -> str:
    """Return a size as 9.6 kB or 1.2 GB."""
    value = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    raise AssertionError


def duration_text(seconds: float) -> str:
    """Return a duration as 35 ms, 4.2 s, 3 min, 2.5 h or 4 days."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f} ms"
    if seconds < 90:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.0f} days"


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun: 1 file, 3 files, 2 data files."""
    return f"{number:,} {noun}" if number == 1 or noun.endswith("s") else f"{number:,} {noun}s"


class Waiting:
    """One line on stderr that is replaced while a call runs; nothing where stderr is no terminal."""

    def __init__(self, first: str) -> None:
        from rich.console import Console
        from rich.text import Text

        console = Console(stderr=True)
        self._status = console.status(Text(visible(first))) if console.is_terminal else None

    def __enter__(self) -> Callable[[str], None]:
        context: AbstractContextManager[Any] = self._status or nullcontext()
        context.__enter__()
        return self._update

    def __exit__(self, *_: object) -> None:
        if self._status is not None:
            self._status.stop()

    def _update(self, text: str) -> None:
        if self._status is not None:
            from rich.text import Text

            self._status.update(Text(visible(text)))
