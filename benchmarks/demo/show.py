"""The screen: one line for each event, a live table of the writers on a terminal, the final table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table as Grid
from rich.text import Text

from .verdict import Finding

_COLOURS = ("cyan", "magenta", "yellow", "green", "red", "blue", "bright_cyan", "bright_magenta")


@dataclass
class Row:
    """One transaction, as the final table tells it."""

    instant: str
    writer: str
    operation: str
    ended: str = ""
    outcome: str = ""
    retries: int = 0
    cleaned: str = ""


@dataclass
class Screen:
    """Lines as things happen. Where output is no terminal there are only lines."""

    console: Console
    writers: dict[str, str] = field(default_factory=dict)  # name -> title
    _state: dict[str, str] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _live: Live | None = None

    def say(self, text: str, *, writer: str = "") -> None:
        """Print a line, with the seconds since the start."""
        line = Text(f"{time.monotonic() - self._began:6.1f} s  ")
        if writer:
            line.append(f"{writer:<12}", style=self._colour(writer))
        line.append(text)
        self.console.print(line, soft_wrap=True)

    def state(self, writer: str, text: str) -> None:
        """Show what a writer does now, in the live table and as a line."""
        self._state[writer] = text
        self.say(text, writer=writer)
        if self._live is not None:
            self._live.update(self._grid())

    def _colour(self, writer: str) -> str:
        return _COLOURS[list(self.writers).index(writer) % len(_COLOURS)] if writer in self.writers else ""

    def _grid(self) -> Grid:
        grid = Grid(box=None, padding=(0, 2), show_header=False)
        for name, title in self.writers.items():
            grid.add_row(Text(name, style=self._colour(name)), title, Text(self._state.get(name, ""), style="bold"))
        return grid

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._live = Live(self._grid(), console=self.console, refresh_per_second=8, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    def transactions(self, rows: Sequence[Row]) -> None:
        """Print the table that a run ends with."""
        grid = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        for name in ("began", "ended", "writer", "operation", "outcome", "retries", "cleaned"):
            grid.add_column(name, justify="right" if name == "retries" else "left", overflow="fold")
        for row in rows:
            style = {"landed": "green", "lost": "yellow", "rolled": "red"}.get(row.outcome.split(" ")[0], "")
            grid.add_row(
                clock(row.instant),
                clock(row.ended),
                Text(row.writer, style=self._colour(row.writer)),
                row.operation,
                Text(row.outcome, style=style),
                str(row.retries),
                row.cleaned,
            )
        self.console.print()
        self.console.print(grid)
        self.console.print()

    def finding(self, finding: Finding) -> None:
        """Print one check, right or wrong."""
        mark = Text("ok     ", style="green") if finding.right else Text("WRONG  ", style="bold red")
        self.console.print(mark + Text(f"{finding.what}: {finding.seen}"), soft_wrap=True)


def clock(instant: str) -> str:
    """Return minutes to tenths of a second of an instant's time: what fits on a terminal of 80 columns."""
    return f"{instant[10:12]}:{instant[12:14]}.{instant[14:15]}" if instant else ""
