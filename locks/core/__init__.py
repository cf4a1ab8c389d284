"""The part that all lock providers share on top of a backend: leases, renewal, queues, messages, metrics."""

from .backend import Backend, Contender, LockRequest
from .capacity import Capacity
from .events import Observer, observe
from .grant import EXPIRED, STOLEN, Grant
from .messages import time_text
from .provider import LeasedLocks
from .record_text import break_of, fields_of

__all__ = [
    "EXPIRED",
    "STOLEN",
    "Backend",
    "Capacity",
    "Contender",
    "Grant",
    "LeasedLocks",
    "LockRequest",
    "Observer",
    "break_of",
    "fields_of",
    "observe",
    "time_text",
]
