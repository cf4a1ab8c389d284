"""How far a long call has come, told to whoever wants to know."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from .errors import InputError


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a call has come. An attempt that lost begins again at 0.

    Attributes:
        what: the call, as ``upsert`` or ``compact``.
        done: how many units are done.
        total: how many there are; None where that is not known before they are done. Of tasks those that are planned so far.
        unit: what is counted: ``rows``, ``file groups``, ``files``, ``instants``, or ``tasks`` of Spark.
        files: of tasks: how many files those of this step that have ended have written; None of other units.
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


# What it raises ends the call, which takes back what it has done so far.
Told = Callable[[Progress], object]


class Reporter:
    """Counts what is done, from any thread, and tells it one call after another."""

    def __init__(self, told: Told | None = None, what: str = "", unit: str = "rows", total: int | None = None) -> None:
        if told is not None and not callable(told):
            raise InputError(
                f"progress={told!r} cannot be called; give a function that takes a `lakelatch.Progress`; nothing was written"
            )
        self._told, self._what, self._unit = told, what, unit
        self._total, self._done, self._mutex = total, 0, threading.Lock()

    def of(self, total: int) -> None:
        """So many there are."""
        self._total = total

    def add(self, count: int = 1) -> None:
        """So many more are done."""
        if self._told is None:
            return
        with self._mutex:
            self._done += count
            self._told(Progress(self._what, self._done, self._total, self._unit))
