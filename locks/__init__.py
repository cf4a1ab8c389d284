"""Lock providers: leases on keys, without any knowledge of tables."""

if __name__ != "lakelatch.locks":
    raise ImportError(
        "import lakelatch.locks, not the folder: a second copy of every class would not be equal to the first"
    )

from .core import metrics
from .front_door import Lock, lock
from .interface import BreakRecord, Holder, Lease, LockProvider, Release
from .lock_url import shown
from .registry import check_url, known_schemes, open_provider
from .revocation import ask_revoke

__all__ = [
    "BreakRecord",
    "Holder",
    "Lease",
    "Lock",
    "LockProvider",
    "Release",
    "ask_revoke",
    "check_url",
    "known_schemes",
    "lock",
    "metrics",
    "open_provider",
    "shown",
]
