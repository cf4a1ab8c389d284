"""Times as users write them, converted to the timeline's form: one parser for every interface. Pure.

    20261124093000123, 20261124093000       an instant; without milliseconds the start of its second
    2026-11-24                              the start of that day
    2026-11-24 09:30, 2026-11-24T09:30:00.5 the start of what is left out
    ...Z, ...+02:00                         of that zone; without one the timeline's, which is UTC in tables made here
    datetime, date                          the same: a naive datetime is UTC, not the time zone of the machine

A date is its start, as for Delta's and Hudi's readers: ``as_of="2026-11-24"`` is the state before anything of that day.
Anything else is refused: times are compared as text, where "yesterday" is later than every commit.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta

from ...arguments import brief
from ...errors import InputError
from .instant import from_epoch_ms, to_epoch_ms

Time = str | datetime | date

_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?: ?(?:Z|[+-]\d\d:?\d\d))?)?", re.ASCII)
_EPOCH, _MILLISECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(milliseconds=1)
FORMS = (
    "an instant (20261124093000123, or 14 digits), a date (2026-11-24, its start), a time (2026-11-24T09:30:00, "
    "2026-11-24T09:30:00.123+02:00; UTC where no zone is given), or a datetime"
)


def time_of(value: Time, what: str, *, utc: bool = True) -> str:
    """Return the time as 17 digits.

    Args:
        what: names the argument in messages.
        utc: True if the timeline's times are UTC. Where they are local times of its writers (Hudi's default), nobody can
            tell which of them is 09:30 of another zone: only instants and times without a zone can be compared with them.

    Raises:
        InputError: it is no time, or its zone cannot be compared.
    """
    try:
        if isinstance(value, str) and value.isascii() and value.isdigit():
            return from_epoch_ms(to_epoch_ms(value))
        moment = _moment(value)
        if moment.tzinfo is not None and not utc:
            raise InputError(
                f"{what} is {brief(value)}, with a time zone, and the timeline of this table has local times of its writers "
                "(hoodie.table.timeline.timezone). Give an instant, or the local time without a zone",
                argument=what,
            )
        # Integer arithmetic: the timestamp of a datetime is a float, and would round milliseconds.
        return from_epoch_ms((moment.replace(tzinfo=moment.tzinfo or UTC) - _EPOCH) // _MILLISECOND)
    except (ValueError, OverflowError, TypeError):
        raise InputError(f"{what} is {brief(value)}, which is no time; give {FORMS}", argument=what) from None


def same_time(instant: str, given: str) -> bool:
    """Return whether an instant of the timeline, which may have 14 digits, is the time that `time_of` returned."""
    return instant.ljust(17, "0") == given


def _moment(value: Time) -> datetime:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    if not isinstance(value, str) or not _ISO.fullmatch(value):
        raise ValueError(value)
    return datetime.fromisoformat(value)
