"""Deletes that are ordered by a date or a time, which log files name as numbers and rows as what they are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakelatch

from ..occ.mor import Mor, at, data_block, delete_block

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def time(year: int) -> dt.datetime:
    return dt.datetime(year, 1, 1, 1, 2, 3, 456, dt.UTC)


def day(year: int) -> dt.date:
    return dt.date(year, 1, 1)


def _days(year: int) -> int:
    return (day(year) - EPOCH.date()).days


def _micros(year: int) -> int:
    return (time(year) - EPOCH) // dt.timedelta(microseconds=1)


# The type of the column, its values, and how a delete names one: as the JVM does, and as Hudi's specification does.
KINDS: dict[str, tuple[pa.DataType, Any, str, Any]] = {
    "date": (pa.date32(), day, "IntWrapper", _days),
    "date, by its name": (pa.date32(), day, "DateWrapper", _days),
    "time": (pa.timestamp("us", "UTC"), time, "LongWrapper", _micros),
    "time, by its name": (pa.timestamp("us", "UTC"), time, "TimestampMicrosWrapper", _micros),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_deletes_by_time_take_what_is_not_newer(tmp_path: Path, kind: str) -> None:
    """Rows of base file and log file, of before and after 1970; also when log files were merged, and then all."""
    column, value, wrapper, number = KINDS[kind]
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", column)])
    mor = Mor(tmp_path / "t", version=9, columns=schema)
    rows = [(f"{place}{old}{new}", old, new) for place in "bl" for old in (1, 1960, 2026) for new in (1, 1960, 2026)]

    def of(place: str) -> list[dict[str, Any]]:
        return [{"id": key, "part": "a", "v": value(old)} for key, old, _ in rows if key.startswith(place)]

    mor.base(at(1), at(2), "a", of("b"))
    mor.log(at(3), at(4), "a", data_block(at(3), of("l"), schema=schema))
    mor.log(at(5), at(6), "a", delete_block(at(5), [(key, (wrapper, number(new))) for key, _, new in rows]))
    wanted = sorted(key for key, old, new in rows if old > new)

    def check(table: lakelatch.Table) -> None:
        independent = pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(mor.folder)).build().read())
        for each in (table.read().to_arrow(), independent):
            assert sorted(each.column("id").to_pylist()) == wanted

    with lakelatch.adopt(str(mor.folder)) as table:
        check(table)
        assert table.compact_logs(min_logs=2)
        check(table)
        assert table.compact()
        check(table)


def test_columns_of_milliseconds_are_compared_with_microseconds(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.timestamp("ms", "UTC"))])
    mor = Mor(tmp_path / "t", version=9, columns=schema)
    moment = EPOCH + dt.timedelta(days=20000)
    micros = (moment - EPOCH) // dt.timedelta(microseconds=1)
    mor.base(at(1), at(2), "a", [{"id": key, "part": "a", "v": moment} for key in "xyz"])
    deletes = [("x", ("LongWrapper", micros - 1)), ("y", ("LongWrapper", micros)), ("z", ("LongWrapper", micros + 1))]
    mor.log(at(3), at(4), "a", delete_block(at(3), deletes))
    with lakelatch.open(str(mor.folder)) as table:
        assert table.read(columns=["id"]).to_pylist() == [{"id": "x"}]
