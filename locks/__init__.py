"""Locks: leases on keys, without any knowledge of tables.

`lock` fits most uses; `open_provider` is the layer below. A provider of your own implements `Backend`, `Contender` and
`Grant`, reads `LockRequest`, and is wrapped in `LeasedLocks` (docs/writing-a-lock.md).
"""

if __name__ != "lakelatch.locks":
    raise ImportError(
        "import lakelatch.locks, not the folder: a second copy of every class would not be equal to the first"
    )

from .core import EXPIRED, STOLEN, Backend, Contender, Grant, LeasedLocks, LockRequest, Observer, metrics, observe
from .front_door import Lock, lock
from .interface import BREAKS_KEPT, BreakRecord, Capabilities, Holder, Lease, LockProvider, Release
from .lock_url import LockUrl, parse_lock_url, shown
from .registry import check_url, known_schemes, open_provider
from .revocation import ask_revoke

__all__ = [
    "BREAKS_KEPT",
    "EXPIRED",
    "STOLEN",
    "Backend",
    "BreakRecord",
    "Capabilities",
    "Contender",
    "Grant",
    "Holder",
    "Lease",
    "LeasedLocks",
    "Lock",
    "LockProvider",
    "LockRequest",
    "LockUrl",
    "Observer",
    "Release",
    "ask_revoke",
    "check_url",
    "known_schemes",
    "lock",
    "metrics",
    "observe",
    "open_provider",
    "parse_lock_url",
    "shown",
]
