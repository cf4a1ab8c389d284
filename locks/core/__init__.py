"""What every lock provider shares: from a backend's few primitives to leases, queues, renewal, messages and metrics."""

from .backend import Ask, Place
from .capacity import Capacity
from .grant import EXPIRED, STOLEN, Grant
from .provider import LeasedLocks
from .record_text import break_of, fields_of

__all__ = ["EXPIRED", "STOLEN", "Ask", "Capacity", "Grant", "LeasedLocks", "Place", "break_of", "fields_of"]
