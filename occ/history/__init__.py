"""The history of a table from its log: the outcome of a transaction and its cause, and events as they happen."""

from .events import Event, follow
from .why import Account, Overlap, why

__all__ = ["Account", "Event", "Overlap", "follow", "why"]
