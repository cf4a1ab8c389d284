"""What the server's clock says, as far as it can be known from the times that it writes on our own objects.

A write of ours happened between our clock's ``before`` and ``after``; the server says that it was in the second that
began at ``mtime``. So server minus local lies between ``mtime - after`` and ``mtime + 1 - before``; each further write
narrows that. Only what is proven is corrected: a difference below a second is not visible to one measurement.
"""

from __future__ import annotations

from ..environment import Environment
from ..errors import LockError

_AGAIN_S = 600.0


class ServerClock:
    """Wall clock, corrected by the proven difference to the server; refuses one that is larger than ``bound_s``."""

    def __init__(self, env: Environment, bound_s: float, place: str) -> None:
        self._env = env
        self._bound_s = bound_s
        self._place = place
        self._low, self._high = float("-inf"), float("inf")
        self._measured_at = float("-inf")

    @property
    def due(self) -> bool:
        """True when nothing was measured for a while."""
        return self._env.monotonic() - self._measured_at > _AGAIN_S

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._env.now() + self.difference_s

    @property
    def difference_s(self) -> float:
        """Server minus local: the smallest that agrees with what was seen."""
        return min(max(0.0, self._low), self._high)

    def saw(self, mtime: float | None, before: float, after: float) -> None:
        """Learn from one write: the server's time on it, and our time before it was sent and after it was answered."""
        self._measured_at = self._env.monotonic()
        if mtime is None:
            return  # a store without a clock of its own
        low, high = mtime - after, mtime + 1.0 - before
        self._low, self._high = max(low, self._low), min(high, self._high)
        if self._low > self._high:
            self._low, self._high = low, high  # one of the clocks was set meanwhile

    def check(self) -> None:
        """Raise `LockError` when this machine's clock is too wrong to share a lock by wall clock."""
        if abs(self.difference_s) > self._bound_s:
            way = "behind" if self.difference_s > 0 else "ahead of"
            raise LockError(
                f"The clock of this machine is at least {abs(self.difference_s):.1f} s {way} that of the server at "
                f"{self._place}; a lock there ends by wall clock, and max_skew allows {self._bound_s:g} s. Nothing is held. "
                "Set the clock (NTP).",
                difference_s=self.difference_s,
                max_skew_s=self._bound_s,
            )
