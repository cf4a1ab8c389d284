"""State of a transaction kept by the process that began it, to save requests to a far store.

It has put the markers, so it need not list them. And it beats:

    t=0   beat 7 is sent at 100 s of the own clock, and is answered
    t=1   any observer sees it first at 100 s or later, and takes it for silence 60 s after that (the time-out)
    t=2   at 120 s nobody can have found the transaction silent, so nobody has ended it and its markers exist

This only saves deletions. A writer that wakes up late finds the end of its transaction in the log, whatever it
recorded, and a file that appears after that is not counted by readers (trap 11). The wall clock is checked too, because
the monotonic clock stops while a machine sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...ahead import Task
from .markers import Marker


class OwnRecord:
    """The record of one open transaction, in its own process; safe to share between threads.

    Args:
        lives: returns whether certainly nobody has found it silent.
        partitions: those known to have their metadata file; is added to.

    Attributes:
        complete: no other process has announced files of this transaction.
        markers: of all files that this process has announced, or tried to.
    """

    def __init__(self, lives: Callable[[], bool], partitions: set[str]) -> None:
        self.lives, self.partitions = lives, partitions
        self.complete = True
        self.markers: list[Marker] = []
        self._coming: list[Task[None]] = []

    def sends(self, tasks: Iterable[Task[None]]) -> None:
        """Register the tasks that put heartbeat and pending instant; both must exist before the first data file."""
        self._coming.extend(tasks)

    def arrived(self) -> None:
        """Wait until they exist. Raises `StorageError` if one could not be put, at each call."""
        for task in self._coming:
            task.take()

    def settle(self) -> None:
        """Wait until no put of it is under way, whatever the outcome."""
        for task in self._coming:
            task.wait()

    def travels(self) -> None:
        """Note that other processes are about to write files of this transaction."""
        self.complete = False
        self.arrived()
