"""Measure how many leases one process can keep alive when each renewal is a separate request."""

from __future__ import annotations

from collections import deque

MOST = 1000  # measured on the local servers (docs/locks.md); more has not been tried
_SHARE = 0.5  # of a third of the lease: the rest is for slow answers and for trying again
_REMEMBERED = 31
_WRITE_S_MIN = 0.0005


class Capacity:
    """The capacity, estimated from the time of a write.

    One thread renews all leases, one after another, within a third of a lease.
    """

    def __init__(self, lease_s: float, guess_s: float) -> None:
        self._lease_s = lease_s
        self._writes_s = deque([guess_s], maxlen=_REMEMBERED)

    def took(self, seconds: float) -> None:
        """Record the duration of a write."""
        self._writes_s.append(seconds)

    @property
    def leases(self) -> int:
        """Estimate from the median of the last writes, so that a single slow one does not count."""
        write_s = sorted(self._writes_s)[len(self._writes_s) // 2]
        return max(1, min(MOST, int(_SHARE * self._lease_s / 3 / max(write_s, _WRITE_S_MIN) + 1e-9)))
