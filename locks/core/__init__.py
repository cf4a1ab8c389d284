"""The part that all lock providers share on top of a backend: leases, renewal, queues, messages, metrics."""

from .backend import EXPIRED, STOLEN, Backend, Capacity, Contender, Grant, LockRequest, break_of, facts_in, fields_of
from .events import Observer, observe
from .provider import LeasedLocks, time_text
