"""Instant times as labels: each greater than every earlier one, and close to the clock otherwise.

Order is slot order in the log, never a comparison of times. If a clock goes backwards, or another host's is hours ahead,
labels advance by one millisecond each; they never repeat or shrink.

    the clock is years ahead of the table    it may not begin: its labels would be everybody's from then on
    it jumps so far ahead later              its commit runs on from the table's newest time
    the table is ahead of the clock          an engine with such a clock has committed. Labels run on from there, since
                                             readers take the larger T of two files; `check` names it

Format: ``yyyyMMddHHmmssSSS`` in UTC (Apache Hudi, `HoodieInstantTimeGenerator`).
"""

from __future__ import annotations

from ...errors import ConfigError, UnsupportedTableError
from .instant import from_epoch_ms, to_epoch_ms

EARLIEST = "00010101000000000"
LATEST = "99991231235959999"
AHEAD_MAX_S = 2 * 366 * 86400.0  # seconds that the clock may be ahead of the table's newest time
_LAST_YEAR = "2060"  # no clock says rightly that it is later, while a release of today is in use


def next_label(now_s: float, top: str, *, trusted: bool = False) -> str:
    """Return a label greater than ``top``: the clock's time, unless it is not greater, or so far ahead that it must be wrong."""
    now = from_epoch_ms(int(now_s * 1000))
    if now > top and (trusted or not _ahead(now_s, top)):
        return now
    try:
        return from_epoch_ms(to_epoch_ms(top) + 1)
    except (OverflowError, ValueError):
        raise UnsupportedTableError(
            f"the newest time of the table is {top}, after which there is none that Hudi could write; write a copy of the table"
        ) from None


def refuse_clock(now_s: float, top: str, table: str, *, trusted: bool) -> None:
    """Raise `ConfigError` if the clock is years ahead of the table: every later commit would have to be later still.

    ``trusted``: the user confirms that nothing was committed for so long.
    """
    now = from_epoch_ms(int(now_s * 1000))
    if now <= top:
        return
    # ``trusted`` does not apply here: such a clock is wrong for certain.
    if now[:4] >= _LAST_YEAR:
        raise ConfigError(
            f"{table}: the clock of this host says {now}, which cannot be; nothing was written. Set the clock",
            table=table,
        )
    if not trusted and _ahead(now_s, top):
        raise ConfigError(
            f"{table}: the clock of this host says {now}, years after the table's newest time {top}; nothing was written, "
            "because times never go back. Set the clock; if it is right and nothing was written for so long, open the table "
            "with lakelatch.open(url, clock_is_right=True) for one commit",
            table=table,
            newest=top,
        )


def _ahead(now_s: float, top: str) -> bool:
    return top > EARLIEST and now_s - to_epoch_ms(top) / 1000 > AHEAD_MAX_S
