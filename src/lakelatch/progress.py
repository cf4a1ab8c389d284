"""Progress of a long call, reported to a callback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from .errors import InputError


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


class Reporter:
    """Counts finished units, from any thread, and calls the callback one call at a time."""

    def __init__(
        self, told: ProgressCallback | None = None, what: str = "", unit: str = "rows", total: int | None = None
    ) -> None:
        if told is not None and not callable(told):
            raise InputError(
                f"progress={told!r} cannot be called; give a function that takes a `lakelatch.Progress`; nothing was written"
            )
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
