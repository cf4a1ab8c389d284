"""The history of a table from its log: the outcome of a transaction and its cause, and events as they happen."""

from .events import Event, follow
from .lost_rows import LostRows, lost_rows
from .why import Account, Overlap, why
