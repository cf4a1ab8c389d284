"""Deletes in log files that are ordered by a date or a time, which are numbers there, or by several fields."""

from __future__ import annotations

import datetime as dt
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hudi import HudiTableBuilder

import lakelatch
from lakelatch.errors import CorruptTableError, UnsupportedTableError

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


# --- several ordering fields -------------------------------------------------------------------------------------

# A row, a delete up to it, or a delete of whatever is there. Numbers of 32 bits, where 0 alone would order no delete.
CHANGES: list[tuple[str, int, int]] = [
    *(("row", a, b) for a in (0, 1) for b in (0, 1)),
    *(("until", a, b) for a in (0, 1) for b in (0, 1)),
    ("gone", 0, 0),
]


def test_log_files_that_several_fields_order_are_read_as_those_of_one_field(tmp_path: Path) -> None:
    """Every sequence of three changes, onto a row and onto nothing; also when log files were merged, and then all."""
    kinds = [("a", pa.int32()), ("b", pa.int32()), ("one", pa.int64())]
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), *kinds, ("v", pa.int64())])
    stories = {
        f"k{number}-{base}": (base, *each)
        for number, each in enumerate(product(CHANGES, repeat=3))
        for base in (None, 1)
    }

    def row(key: str, a: int, b: int, v: int) -> dict[str, Any]:
        return {"id": key, "part": "a", "a": a, "b": b, "one": 10 * a + b, "v": v}

    def made(name: str, ordering: str | list[str]) -> Mor:
        mor = Mor(tmp_path / name, version=9, ordering=ordering, columns=schema)
        mor.base(at(1), at(2), "a", [row(key, 0, 1, 0) for key, each in stories.items() if each[0]])
        for step in (1, 2, 3):
            now = [(key, *each[step]) for key, each in stories.items()]
            body = data_block(
                at(10 * step), [row(key, a, b, step) for key, kind, a, b in now if kind == "row"], schema=schema
            )
            until = [
                (
                    key,
                    ("ArrayWrapper", [("IntWrapper", a), ("IntWrapper", b)])
                    if name == "two"
                    else ("LongWrapper", 10 * a + b),
                )
                for key, kind, a, b in now
                if kind == "until"
            ]
            gone = [key for key, kind, _, _ in now if kind == "gone"]
            body += delete_block(at(10 * step), until) + delete_block(at(10 * step), gone)
            mor.log(at(10 * step), at(10 * step + 5), "a", body)
        return mor

    def content(rows: pa.Table) -> dict[str, int]:
        return dict(zip(rows.column("id").to_pylist(), rows.column("v").to_pylist(), strict=True))

    def of(table: lakelatch.Table) -> dict[str, int]:
        return content(table.read().to_arrow())

    two, one = made("two", ["a", "b"]), made("one", "one")
    wanted = content(pa.Table.from_batches(HudiTableBuilder.from_base_uri(str(one.folder)).build().read()))
    assert 0 < len(wanted) < len(stories)
    with lakelatch.adopt(str(two.folder)) as several, lakelatch.adopt(str(one.folder)) as alone:
        for table in (several, alone):
            assert of(table) == wanted
            assert table.compact_logs(min_logs=3)
            assert of(table) == wanted
            assert table.compact()
            assert of(table) == wanted


@pytest.mark.parametrize("wrong", [("LongWrapper", 5), ("ArrayWrapper", [("LongWrapper", 5)])])
def test_a_delete_of_other_ordering_fields_than_the_table_has_is_refused(tmp_path: Path, wrong: Any) -> None:
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("a", pa.int64()), ("b", pa.int64())])
    mor = Mor(tmp_path / "t", version=9, ordering=["a", "b"], columns=schema)
    mor.base(at(1), at(2), "a", [{"id": "x", "part": "a", "a": 5, "b": 5}])
    mor.log(at(3), at(4), "a", delete_block(at(3), [("x", wrong)]))
    with (
        lakelatch.open(str(mor.folder)) as table,
        pytest.raises(CorruptTableError, match="not of the same ordering fields"),
    ):
        table.read().to_arrow()


def test_a_log_compaction_leaves_deletes_that_lack_one_of_several_values(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("a", pa.int64()), ("b", pa.int64())])
    mor = Mor(tmp_path / "t", version=9, ordering=["a", "b"], columns=schema)
    mor.base(at(1), at(2), "a", [{"id": key, "part": "a", "a": 5, "b": 5} for key in "xy"])
    mor.log(at(3), at(4), "a", delete_block(at(3), [("x", ("ArrayWrapper", [("LongWrapper", 6), None]))]))
    mor.log(at(5), at(6), "a", delete_block(at(5), [("y", ("ArrayWrapper", [("LongWrapper", 5), None]))]))
    with lakelatch.adopt(str(mor.folder)) as table:
        with pytest.raises(UnsupportedTableError, match="a deleted row has no ordering value"):
            table.compact_logs(min_logs=2)
        assert table.read(columns=["id"]).to_pylist() == [{"id": "y"}]
        assert table.compact()
        assert table.read(columns=["id"]).to_pylist() == [{"id": "y"}]
