"""Estimate the server's clock from the times that it writes on our own objects.

A write of ours happened between ``sent`` and ``after`` of our monotonic clock; the server says that it was in the
second that began at ``mtime``. So server minus monotonic is between ``mtime - after`` and ``mtime + 1 - sent``;
each further write narrows that. Within these bounds the wall clock is believed, as it was at the last measurement: a
difference below a second is not visible to one measurement.

    t=0   measured: the wall clock is right
    t=5   the wall clock is set forward by a minute. `now` does not read it, so no lease ends a minute early
    t=6   `moved`: wall and monotonic clock have come apart. Perhaps the machine slept, which stops the monotonic clock,
          and the bounds mean nothing any more: measure again
"""

from __future__ import annotations

from dataclasses import dataclass

from ...environment import Environment
from ...errors import LockError

_AGAIN_S = 600.0
_MOVED_S = 0.1  # both run at one rate, but for steps and sleep


@dataclass(frozen=True, slots=True)
class Stamp:
    """A moment of the monotonic clock, and the bounds of wall minus monotonic then."""

    at: float
    low: float
    high: float

    def apart(self, other: Stamp) -> bool:
        """Return whether one of the clocks was set, or stood still, between the two."""
        return other.low > self.high + _MOVED_S or other.high < self.low - _MOVED_S


@dataclass(frozen=True, slots=True)
class _Known:
    """The bounds, replaced as a whole because other threads read them meanwhile."""

    stamp: Stamp
    low: float  # bounds of server minus monotonic
    high: float

    @property
    def offset(self) -> float:
        return min(max(self.stamp.low, self.low), self.high)


class ServerClock:
    """The server's time, carried on by the monotonic clock; refuses a wall clock that is wrong by more than ``bound_s``."""

    def __init__(self, env: Environment, bound_s: float, place: str) -> None:
        self._env = env
        self._bound_s = bound_s
        self._place = place
        self._known: _Known | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle no measurements: another process, perhaps on another machine, measures for itself."""
        return ServerClock, (self._env, self._bound_s, self._place)

    @property
    def due(self) -> bool:
        """True when nothing was measured for a while."""
        known = self._known
        return known is None or self.moved or self._env.monotonic() - known.stamp.at > _AGAIN_S

    @property
    def moved(self) -> bool:
        """True when wall and monotonic clock have come apart since something was measured."""
        known = self._known
        return known is not None and known.stamp.apart(self.stamp())

    def stamp(self) -> Stamp:
        """Return a stamp of now."""
        before = self._env.monotonic()
        wall = self._env.now()
        return Stamp(before, wall - self._env.monotonic(), wall - before)

    def now(self) -> float:
        """Return seconds since the epoch. Rely on it while `moved` is false."""
        known = self._known
        return self._env.now() if known is None else self._env.monotonic() + known.offset

    @property
    def difference_s(self) -> float:
        """Return server minus wall clock, as far as it is proven."""
        return 0.0 if self._known is None else self._known.offset - self._known.stamp.low

    def saw(self, mtime: float | None, sent: Stamp, after: float) -> None:
        """Learn from one write: the server's time on it, and our monotonic time before it was sent and after the answer."""
        known = self._known
        if known is not None and known.stamp.at > sent.at:
            return  # of before the last measurement
        low, high = float("-inf"), float("inf")
        if mtime is not None:  # else a store without a clock of its own
            low, high = mtime - after, mtime + 1.0 - sent.at
        if known is not None and not known.stamp.apart(sent):
            narrow = max(low, known.low), min(high, known.high)
            if narrow[0] <= narrow[1]:  # else the server's clock was set meanwhile
                low, high = narrow
        self._known = _Known(sent, low, high)

    def check(self) -> None:
        """Raise `LockError` when this machine's clock is too wrong to share a lock by wall clock."""
        if abs(self.difference_s) > self._bound_s:
            way = "behind" if self.difference_s > 0 else "ahead of"
            raise LockError(
                f"The clock of this machine is at least {abs(self.difference_s):.1f} s {way} that of the server at "
                f"{self._place}; a lock there ends by wall clock, and max_skew allows {self._bound_s:g} s. Nothing is held. "
                "Set the clock (NTP)",
                difference_s=self.difference_s,
                max_skew_s=self._bound_s,
            )
