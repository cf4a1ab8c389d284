"""The order of conflicting writers: reservations, waiting for others, and conflicts found before the work is done."""

from .early_conflicts import ConflictWatcher, TurnTaker, take_turn, targets
from .reservations import Asked, reservation_of, touched
from .waiting import BoundedWait, InTheWay, queue
