"""Progress of a long call, reported to a callback, or drawn as a bar."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from .errors import InputError

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a call. A retry starts again at 0.

    Attributes:
        what: the call, as ``upsert`` or ``compact``.
        done: number of units done.
        total: number of units; None if it is not known in advance. For tasks the ones planned so far.
        unit: the unit: ``rows``, ``file groups``, ``files``, ``instants``, or ``tasks`` of Spark.
        files: files written by the finished tasks of this step; None for other units.
        rows: the rows in these files.
        bytes: the bytes of these files.
    """

    what: str
    done: int
    total: int | None
    unit: str
    files: int | None = None
    rows: int | None = None
    bytes: int | None = None


# An error that it raises ends the call, which rolls back its work.
ProgressCallback = Callable[[Progress], object]
ProgressOption = ProgressCallback | bool  # True: a bar on stderr


class Reporter:
    """Counts finished units, from any thread, and calls the callback one call at a time."""

    def __init__(
        self, told: ProgressOption | None = None, what: str = "", unit: str = "rows", total: int | None = None
    ) -> None:
        if not (told is None or isinstance(told, bool) or callable(told)):
            raise InputError(
                f"progress={told!r} cannot be called; give a function that takes a `lakelatch.Progress`, or True for a bar; "
                "nothing was written"
            )
        told = None if isinstance(told, bool) else told  # a bar is drawn by whoever knows when the call ends (`drawn`)
        self._told, self._what, self._unit = told, what, unit
        self._total, self._done, self._mutex = total, 0, threading.Lock()

    def of(self, total: int) -> None:
        """Set the total."""
        self._total = total

    def add(self, count: int = 1) -> None:
        """Count finished units and report."""
        if self._told is None:
            return
        # The callback runs under the mutex, so that it sees calls one at a time and never a smaller count after a larger one.
        with self._mutex:
            self._done += count
            self._told(Progress(self._what, self._done, self._total, self._unit))


@contextmanager
def drawn(progress: ProgressOption | None, *, text: bool = True) -> Iterator[ProgressCallback | None]:
    """Yield the callback for a call in the block; for True it draws a bar on stderr, which goes when the block ends.

    Args:
        progress: as the call was given it.
        text: where stderr is neither a terminal nor a notebook, print one line when the call has ended.
    """
    Reporter(progress)
    if progress is not True:
        yield progress or None
        return
    from rich.console import Console

    console, began, last = Console(stderr=True), time.monotonic(), list[Progress]()
    if console.is_terminal or console.is_jupyter:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        with Bars(*columns, console=console, transient=True) as bars:
            task = bars.add_task("", total=None)
            yield lambda now: bars.update(task, description=_said(now), completed=now.done, total=now.total)
        return
    try:
        yield lambda now: last.__setitem__(slice(None), [now])
    finally:
        if last and text:
            console.print(f"{_said(last[0])} in {time.monotonic() - began:.1f} s", markup=False, highlight=False)


def _said(now: Progress) -> str:
    of = "" if now.total is None else f" of {now.total:,}"
    return f"{now.what}: {now.done:,}{of} {now.unit}"


def draws(method: Callable[P, R]) -> Callable[P, R]:
    """Make a method draw a bar while it runs if its ``progress`` is True."""

    @functools.wraps(method)
    def drawing(*args: P.args, **given: P.kwargs) -> R:
        if given.get("progress") is not True:
            return method(*args, **given)
        with drawn(True) as told:
            given["progress"] = told
            return method(*args, **given)

    return drawing
