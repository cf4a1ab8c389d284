"""What became of a transaction and why, rebuilt from the log; and what happens, as it happens."""

from .events import Event, follow
from .why import Account, Overlap, why

__all__ = ["Account", "Event", "Overlap", "follow", "why"]
