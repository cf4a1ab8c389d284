"""Who goes first: reservations, waiting for others, and conflicts found before the work is done."""

from .early_conflicts import TurnTaker, take_turn, targets
from .reservations import Asked, reservation_of, touched
from .waiting import BoundedWait, InTheWay, queue

__all__ = [
    "Asked",
    "BoundedWait",
    "InTheWay",
    "TurnTaker",
    "queue",
    "reservation_of",
    "take_turn",
    "targets",
    "touched",
]
