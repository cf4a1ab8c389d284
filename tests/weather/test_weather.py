"""Half a minute of weather, and what the judge says of made-up histories."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..servers import missing, require
from ..servers.zookeeper_server import require_zookeeper
from ..thorough import some
from .hosts import unavailable
from .judge import broken
from .run import Weather
from .writer import first_rows

REQUIRED = {"redis": lambda: require("redis-server"), "zookeeper": require_zookeeper, "default": lambda: None}


@pytest.mark.server
@pytest.mark.parametrize(
    ("lock", "store"),
    some([("zookeeper", "s3"), ("zookeeper", "disk"), ("redis", "s3"), ("default", "s3"), ("redis", "disk")], 1),
)
def test_what_was_acknowledged_in_weather_is_there(tmp_path: Path, lock: str, store: str) -> None:
    if reason := unavailable():
        missing(reason)
    REQUIRED[lock]()
    if store == "s3":
        require("versitygw")
    weather = Weather(tmp_path, lock=lock, store=store, writers=3, seed=7, calm_s=20.0)
    try:
        weather.begin()
        report = weather.blow(25.0)
    finally:
        weather.close()
    assert report.findings == []
    assert report.faults
    assert sum(each["told"] == "landed" for each in report.events) > 20


def said(op: str, number: int, told: str, at: float, **more: Any) -> list[dict[str, Any]]:
    begins = {"writer": "w", "op": op, "n": number, "told": "begins", "at": at - 1.0}
    return [begins] if told == "begins" else [begins, begins | {"told": told, "at": at, "took": 1.0} | more]


HELD = [
    *said("append", 1, "landed", 1.0),
    *said("append", 2, "begins", 2.0),
    *said("append", 3, "failed", 3.0, error="ConflictError: no"),
    *said("count", 4, "landed", 4.0),
    *said("look", 5, "landed", 6.0, sum=800, counter=1, newest={"w": 1}),
]
ROWS = [
    *({**row, "v": 1} if row["id"] == "counter" else row for row in first_rows()),
    {"id": "w-1", "part": "x", "v": 1},
    {"id": "w-2", "part": "y", "v": 2},
]


def test_the_judge_finds_nothing_where_all_held() -> None:
    assert broken(HELD, ROWS, first_rows()) == []


def changed(key: str, value: int) -> list[dict[str, Any]]:
    return [row | {"v": value} if row["id"] == key else row for row in ROWS]


@pytest.mark.parametrize(
    ("events", "rows", "found"),
    [
        (HELD, [row for row in ROWS if row["id"] != "w-1"], "append 1 of w was acknowledged and is lost"),
        (HELD, [*ROWS, ROWS[-1]], "w-2 stands 2 times"),
        (
            HELD,
            [*ROWS, {"id": "w-3", "part": "x", "v": 3}],
            "its writer was told that nothing landed: ConflictError: no",
        ),
        (HELD, [*ROWS, {"id": "w-9", "part": "x", "v": 9}], "w-9 was written by nobody"),
        (HELD, changed("counter", 2), "the counter is 2, after 1 increments and 0 of unknown outcome"),
        (HELD, changed("a0", 99), "the accounts hold 799, and held 800"),
        ([*HELD, *said("look", 6, "landed", 9.0, sum=790, counter=1, newest={"w": 1})], ROWS, "half of a transfer"),
        ([*HELD, *said("look", 6, "landed", 9.0, sum=800, counter=0, newest={"w": 1})], ROWS, "after 1 increments"),
        ([*HELD, *said("look", 6, "landed", 9.0, sum=800, counter=1, newest={})], ROWS, "did not see append 1 of w"),
        ([*HELD, *said("append", 6, "raw", 9.0, error="KeyError: 1")], ROWS, "w append 6 met KeyError: 1"),
    ],
)
def test_the_judge_names_what_is_broken(events: list[dict[str, Any]], rows: list[dict[str, Any]], found: str) -> None:
    (only,) = broken(events, rows, first_rows())
    assert found in only
