"""Instants: the meaning of a file name on the timeline, in both directions.

    layout 2 (table versions 8 and 9)          layout 1 (version 6)
    T.commit.requested                         the same
    T.inflight                                 the same        (a commit's only: it has no action word)
    T_C.commit                                 T.commit
    T.deltacommit.inflight                     the same
    T.compaction.requested  ->  T_C.commit     ->  T.commit
    T.clustering.requested  ->  T_C.replacecommit

T is the requested time and C the completion time, ``yyyyMMddHHmmssSSS`` in UTC (14 digits, without milliseconds, are read as
well). Times are compared as text, as Hudi's readers do.

Source: names on the timelines of tables that Hudi 0.14 to 1.2 wrote.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from ...errors import ConfigError, UnsupportedTableError

State = Literal["requested", "inflight", "completed"]

ACTIONS = frozenset(
    {
        "clean",
        "clustering",
        "commit",
        "compaction",
        "deltacommit",
        "indexing",
        "logcompaction",
        "replacecommit",
        "restore",
        "rollback",
        "savepoint",
        "schemacommit",
    }
)
# The actions whose completed instants change what a reader sees.
COMMIT_ACTIONS = frozenset({"commit", "deltacommit", "replacecommit"})
# A plan of a table service completes under the name of the commit that it makes.
COMPLETED_AS = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}

_TIME = r"(?:[0-9]{14}|[0-9]{17})"
_PENDING = re.compile(rf"({_TIME})\.(?:([a-z]+)\.)?(requested|inflight)")
_COMPLETED = {1: re.compile(rf"({_TIME})()\.([a-z]+)"), 2: re.compile(rf"({_TIME})_({_TIME})\.([a-z]+)")}
_ZEROS = f"{'0' * 17}_{'0' * 17}"
_TIME_ONLY = re.compile(_TIME)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Instant:
    """One action at one moment of the timeline; ``completed`` is C, None while pending and always on layout 1."""

    requested: str
    action: str
    state: State
    completed: str | None = None

    @property
    def order(self) -> tuple[str, str]:
        """The sort key: completion time if there is one, then requested time."""
        return (self.completed or self.requested, self.requested)


def parse(name: str, *, layout: int) -> Instant | None:
    """Return the instant that a file name stands for, or None for any other file.

    On layout 2 a completed name without C is None: one of the two readers takes it for an older table's instant, the other
    ignores it.
    """
    # A timeline has tens of thousands of names but only a dozen endings, so each ending is parsed once.
    ends = 35 if name[17:18] == "_" else 17
    if (
        name.isascii()
        and name[ends : ends + 1] == "."
        and name[:17].isdigit()
        and (ends == 17 or name[18:35].isdigit())
    ):
        like = _read(_ZEROS[:ends] + name[ends:], layout)
        return like and Instant(name[:17], like.action, like.state, name[18:ends] or None)
    return _read.__wrapped__(name, layout)


@functools.lru_cache(maxsize=256)
def _read(name: str, layout: int) -> Instant | None:
    if found := _PENDING.fullmatch(name):
        time, action, state = found.groups()
        if action is None:
            # `T.requested` has never been a name; `T.inflight` is a commit's.
            return Instant(time, "commit", "inflight") if state == "inflight" else None
        # `T.commit.inflight` is not what Hudi writes, and reading it as well would give one instant two names.
        if action not in ACTIONS or (action, state) == ("commit", "inflight"):
            return None
        return Instant(time, action, "requested" if state == "requested" else "inflight")
    if found := _COMPLETED[layout].fullmatch(name):
        time, completed, action = found.groups()
        if action in ACTIONS and action not in COMPLETED_AS:
            return Instant(time, action, "completed", completed or None)
    return None


def file_name(instant: Instant, *, layout: int = 2) -> str:
    """Return the instant's file name on the timeline."""
    assert instant.action in ACTIONS, instant
    action = instant.action
    if layout == 1 and action == "clustering":
        action = "replacecommit"  # version 6 has no pending action of its own for clustering
    if instant.state == "completed":
        action = COMPLETED_AS.get(action, action)
        if layout == 1:
            return f"{instant.requested}.{action}"
        assert instant.completed, f"a completed instant of layout 2 needs its completion time: {instant}"
        return f"{instant.requested}_{instant.completed}.{action}"
    if (action, instant.state) == ("commit", "inflight"):
        return f"{instant.requested}.inflight"
    return f"{instant.requested}.{action}.{instant.state}"


def parse_unknown(name: str) -> Instant | None:
    """Return a completed instant of layout 2 with an action not in `ACTIONS`: a later Hudi's, or damage. None for other
    names.
    """
    match = _COMPLETED[2].fullmatch(name)
    return Instant(match[1], match[3], "completed", match[2]) if match and match[3] not in ACTIONS else None


def is_time(text: str) -> bool:
    """Return True if the text can stand as T or C."""
    if not _TIME_ONLY.fullmatch(text):
        return False
    try:
        to_epoch_ms(text)
    except ValueError:
        return False
    return True


def from_epoch_ms(epoch_ms: int) -> str:
    """Return milliseconds since the epoch as 17 digits in UTC."""
    moment = _EPOCH + timedelta(milliseconds=epoch_ms)
    # Not by strftime, which is ten times as slow, and does not pad years below 1000 on every platform.
    return (
        f"{moment.year:04}{moment.month:02}{moment.day:02}{moment.hour:02}{moment.minute:02}{moment.second:02}"
        f"{moment.microsecond // 1000:03}"
    )


def to_epoch_ms(time: str) -> int:
    """Reverse `from_epoch_ms`; 14 digits are the start of their second. Raises ValueError for anything else."""
    if not _TIME_ONLY.fullmatch(time):
        raise ValueError(f"{time!r} is not an instant time: 17 digits yyyyMMddHHmmssSSS are expected")
    moment = datetime(
        int(time[:4]), int(time[4:6]), int(time[6:8]), int(time[8:10]), int(time[10:12]), int(time[12:14]), tzinfo=UTC
    )
    return (moment - _EPOCH) // timedelta(milliseconds=1) + int(time[14:] or 0)


# Instant times as labels: each greater than every earlier one, and close to the clock otherwise.
#
# Order is slot order in the log, never a comparison of times. If a clock goes backwards, or another host's is hours ahead,
# labels advance by one millisecond each; they never repeat or shrink.
#
#     the clock is years ahead of the table    it may not begin: its labels would be everybody's from then on
#     it jumps so far ahead later              its commit runs on from the table's newest time
#     the table is ahead of the clock          an engine with such a clock has committed. Labels run on from there, since
#                                              readers take the larger T of two files; `check` names it
#
# Format: ``yyyyMMddHHmmssSSS`` in UTC (Apache Hudi, `HoodieInstantTimeGenerator`).

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
