"""Lock providers: leases on keys, without any knowledge of tables."""

if __name__ != "lakelatch.locks":
    raise ImportError(
        "import lakelatch.locks, not the folder: a second copy of every class would not be equal to the first"
    )

from .core import metrics
from .interface import BreakRecord, Holder, Lease, LockProvider, Release
from .lock_url import shown
from .registry import check_url, known_schemes, open_provider

__all__ = [
    "BreakRecord",
    "Holder",
    "Lease",
    "LockProvider",
    "Release",
    "check_url",
    "known_schemes",
    "metrics",
    "open_provider",
    "shown",
]
