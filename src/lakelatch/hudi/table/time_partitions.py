"""Partitions by a unit of time: ``days(at)`` adds a text column ``at_day``, whose values name the folders.

    hours(at)    at_hour     2024-01-17-09
    days(at)     at_day      2024-01-17
    months(at)   at_month    2024-01
    years(at)    at_year     2024

All in UTC; null where the time is. The column is stored as any other, so that every reader shows it and prunes by it. Writers
compute it from the time, and readers of this library prune by conditions on the time too.

Hudi's timestamp key generator has the same folders without a column, and Hudi 1.2.0 then shows the time as text, and fails on
conditions on it.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from .column_types import python_value
from .config import TableConfig

if TYPE_CHECKING:
    import pyarrow as pa

# Characters of a time in ISO form.
_SPELLED = {"hours": 13, "days": 10, "months": 7, "years": 4}


def refuse_no_time(field: str, kind: pa.DataType, unit: str) -> None:
    """Raise `InputError` unless a column of this type has such units of time."""
    import pyarrow.types as types

    date = types.is_date(kind) and unit != "hours"
    if not (date or (types.is_timestamp(kind) and kind.tz is not None)):
        also = "" if unit == "hours" else " or a date"
        raise InputError(
            f"Column {field!r} of type {kind} has no {unit}: partition by {unit} of a timestamp{also}", column=field
        )


def time_texts(rows: pa.Table, config: TableConfig) -> pa.ChunkedArray:
    """Return the values of the table's time column for these rows, which have the time.

    Raises:
        InputError: it is no time, or outside of the years 1 to 9999.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    field, unit = config.time_source, config.time_unit
    times = rows.column(field)
    if pa.types.is_null(times.type):
        return pa.chunked_array([pa.nulls(len(times), pa.string())])
    refuse_no_time(field, times.type, unit)
    if pa.types.is_timestamp(times.type):  # Spark's have the zone of its session, of which Arrow would take the days
        times = times.cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
    for end in pc.min_max(times).values():
        try:
            end.as_py()
        except (ValueError, OverflowError):
            raise InputError(
                f"Column {field!r} holds a time outside of the years 1 to 9999 ({python_value(end)}), of which partitions by "
                f"{unit} have no name. Nothing was written",
                column=field,
            ) from None
    # One text for each unit, not for each row.
    coded = pc.floor_temporal(times, unit=unit.removesuffix("s")).combine_chunks().dictionary_encode()
    coded = coded if isinstance(coded, pa.Array) else pa.concat_arrays(coded.unify_dictionaries().chunks)
    texts = [_spelled(each, unit) for each in coded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string()).take(coded.indices)])


def with_time_column(rows: pa.Table, config: TableConfig) -> pa.Table:
    """Return rows with the table's time column where they have the time, else as they are.

    Raises:
        InputError: as `time_texts`; or they have the column, and another value in it.
    """
    import pyarrow.compute as pc

    name = config.time_column
    if not name or config.time_source not in rows.column_names:
        return rows
    made = time_texts(rows, config)
    if name not in rows.column_names:
        return rows.append_column(name, made)
    given = rows.column(name)
    same = pc.or_(pc.equal(given, made).fill_null(False), pc.and_(given.is_null(), made.is_null()))
    if (wrong := pc.index(same, False).as_py()) >= 0:
        raise InputError(
            f"Column {name!r} is {given[wrong].as_py()!r} in a row whose {config.time_source} is of {made[wrong].as_py()!r}: it "
            f"is computed ({config.time_unit} of {config.time_source}), so leave it out. Nothing was written",
            column=name,
        )
    return rows


def time_span(text: str | None, unit: str, kind: pa.DataType) -> tuple[Any, Any] | None:
    """Return the first and last time of a unit, (None, None) for null, and None for a text that names none."""
    import pyarrow as pa

    if text is None:
        return None, None
    if not re.fullmatch("[0-9]{4}(-[0-9]{2}){0,3}", text) or len(text) != _SPELLED[unit]:
        return None
    year, month, day, hour = [*map(int, text.split("-")), *(1, 1, 0)[len(text.split("-")) - 1 :]]
    try:
        first = dt.datetime(year, month, day, hour, tzinfo=dt.UTC)
    except ValueError:
        return None
    try:
        if unit in ("hours", "days"):
            after = first + dt.timedelta(**{unit: 1})
        else:
            months = year * 12 + month - 1 + (1 if unit == "months" else 12)
            after = first.replace(year=months // 12, month=months % 12 + 1)
        last = after - dt.timedelta(microseconds=1)
    except (ValueError, OverflowError):  # the last one of year 9999
        last = dt.datetime.max.replace(tzinfo=dt.UTC)
    return (first.date(), last.date()) if pa.types.is_date(kind) else (first, last)


def _spelled(value: dt.date | None, unit: str) -> str | None:
    return None if value is None else value.isoformat()[: _SPELLED[unit]].replace("T", "-")
