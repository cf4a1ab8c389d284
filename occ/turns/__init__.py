"""The order of conflicting writers: reservations, waiting for others, and conflicts found before the work is done."""

from .early_conflicts import take_turn, targets
from .lookout import Lookout, Watchful
from .reservations import Asked, reservation_of, touched
from .waiting import BoundedWait, InTheWay, queue

__all__ = [
    "Asked",
    "BoundedWait",
    "InTheWay",
    "Lookout",
    "Watchful",
    "queue",
    "reservation_of",
    "take_turn",
    "targets",
    "touched",
]
