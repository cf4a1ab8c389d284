"""The display while the lab measures: the current run and the finished ones; nothing in a pipe."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ...bench import Progress
from ...plain_text import visible

_EVERY_S = 0.25
_BARS = " ▁▂▃▄▅▆▇█"
_POINTS, _SHOWN = 40, 12


class Display:
    """A display that is called with the progress, as often as there is any; a context manager that ends it."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._last = 0.0
        self._run = 0
        self._rates: deque[float] = deque(maxlen=_POINTS)
        self._before = (0.0, 0)  # seconds and operations at the last redraw

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def __call__(self, progress: Progress) -> None:
        """Show the progress, unless it was shown a moment ago."""
        now = time.monotonic()
        if not self._console.is_terminal or now - self._last < _EVERY_S:
            return
        self._last = now
        # Each run counts its seconds and operations from zero.
        if progress.run != self._run:
            self._run, self._before = progress.run, (0.0, 0)
            self._rates.clear()
        seconds, done = self._before
        if progress.elapsed > seconds:
            self._rates.append((progress.done - done) / (progress.elapsed - seconds))
            self._before = (progress.elapsed, progress.done)
        self._live.update(self.drawn(progress), refresh=True)

    def drawn(self, progress: Progress) -> Group:
        """Return the picture of this moment."""
        of = f" of {progress.seconds:.0f}" if progress.seconds else ""
        head = f"run {progress.run} of {progress.runs}: {progress.scenario}, {progress.writers} writers, {progress.contender}"
        rate = f"{self._rates[-1]:8.1f} a second" if self._rates else "  starting"
        top = max(self._rates, default=0.0) or 1.0
        bars = "".join(_BARS[round(each / top * (len(_BARS) - 1))] for each in self._rates)
        parts = [
            Text(visible(head), style="bold"),
            Text(f"{rate}  {bars}"),
            Text(
                f"{progress.elapsed:6.0f}{of} s, {progress.done} landed, {progress.lost} attempts lost, "
                f"{progress.aborted} aborted"
            ),
        ]
        return Group(*parts, *([_finished(progress)] if progress.finished else []))


def _finished(progress: Progress) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("scenario", "writers", "system", "a second", "aborted", "p99 ms"):
        table.add_column(name, justify="left" if name in ("scenario", "system") else "right", no_wrap=True)
    for run in progress.finished[-_SHOWN:]:
        figures = (
            ("no rate", "", "")
            if "failed" in run
            else (f"{run['goodput']:.1f}", str(run["aborted"]), f"{run['latency_ms']['p99']:.1f}")
        )
        table.add_row(
            *(Text(visible(each)) for each in (run["scenario"], str(run["writers"]), run["system"], *figures))
        )
    return table
