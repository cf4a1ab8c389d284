"""The order of conflicting writers: reservations, waiting for others, and conflicts found before the work is done."""

from .conflict_watcher import ConflictWatcher, Watchful
from .early_conflicts import take_turn, targets
from .reservations import Asked, reservation_of, touched
from .waiting import BoundedWait, InTheWay, queue

__all__ = [
    "Asked",
    "BoundedWait",
    "ConflictWatcher",
    "InTheWay",
    "Watchful",
    "queue",
    "reservation_of",
    "take_turn",
    "targets",
    "touched",
]
