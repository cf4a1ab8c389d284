"""Instant times as labels: picked greater than every time before them, close to the clock otherwise.

Order is slot order in the log, never a comparison of times. A clock that goes backwards, or another host's that is
hours ahead, makes labels run on by one millisecond each; it cannot make them repeat or shrink.

Format: ``yyyyMMddHHmmssSSS`` in UTC (Apache Hudi, `HoodieInstantTimeGenerator`).
"""

from __future__ import annotations

from .instant import from_epoch_ms, to_epoch_ms

EARLIEST = "00010101000000000"


def next_label(now_s: float, top: str) -> str:
    """A label greater than ``top``, and the clock's own when that is greater already."""
    now = from_epoch_ms(int(now_s * 1000))
    return now if now > top else from_epoch_ms(to_epoch_ms(top) + 1)
