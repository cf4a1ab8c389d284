"""What every lock provider shares: from a backend's few primitives to leases, queues, renewal, messages and metrics."""

from .backend import Contender, LockRequest
from .capacity import Capacity
from .grant import EXPIRED, STOLEN, Grant
from .provider import LeasedLocks
from .record_text import break_of, fields_of

__all__ = ["EXPIRED", "STOLEN", "Capacity", "Contender", "Grant", "LeasedLocks", "LockRequest", "break_of", "fields_of"]
