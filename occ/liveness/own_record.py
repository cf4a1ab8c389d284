"""What the process that began a transaction knows of it, so that it need not ask a store with long ways.

It has put the markers, so it need not list them. And it beats:

    t=0   beat 7 is sent at 100 s of the own clock, and is answered
    t=1   whoever judges sees it first at 100 s or later, and takes it for silence 60 s after that (the time-out)
    t=2   at 120 s nobody can have found the transaction silent, so nobody has ended it and its markers stand

That only spares deletions. Who wakes up late finds the end of its transaction in the log, whatever it knew, and a file that
appears after that is one of those that readers do not count (trap 11). The wall clock is asked too, because the other one stands
still while a machine sleeps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...ahead import Task
from .markers import Marker


class OwnRecord:
    """Of one open transaction, in its own process; safe to share between threads.

    Args:
        lives: whether it is certain that nobody has found it silent.
        partitions: those that have their metadata file, as far as the handle knows; is added to.

    Attributes:
        complete: no other process has announced files of this transaction.
        markers: of all files that this one has announced, or tried to.
    """

    def __init__(self, lives: Callable[[], bool], partitions: set[str]) -> None:
        self.lives, self.partitions = lives, partitions
        self.complete = True
        self.markers: list[Marker] = []
        self._coming: list[Task[None]] = []

    def sends(self, tasks: Iterable[Task[None]]) -> None:
        """These put the pending instant, which has to stand before the first data file does."""
        self._coming.extend(tasks)

    def arrived(self) -> None:
        """The pending instant stands when this returns. Raises `StorageError` when it could not be put, each time."""
        for task in self._coming:
            task.take()

    def settle(self) -> None:
        """Nothing of it is on its way when this returns, whatever became of it."""
        for task in self._coming:
            task.wait()

    def travels(self) -> None:
        """Other processes are about to write files of this transaction."""
        self.complete = False
        self.arrived()
