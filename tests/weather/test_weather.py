"""Half a minute of weather, and what the judge says of made-up histories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..servers import missing, require
from ..servers.dynamodb_server import LOOPBACK
from ..servers.zookeeper_server import require_zookeeper
from ..thorough import some
from .hosts import unavailable
from .judge import Fault, Recovery, broken, growth, quantiles, recovery
from .night import added
from .promises import MEASURED, MENDED, table, written
from .run import BUNDLE, LOCKS, PLACES, Weather
from .writer import first_rows

REQUIRED: dict[str, Callable[[], object]] = {
    "zookeeper": require_zookeeper,
    "redis": lambda: require("redis-server"),
    "sentinel": lambda: require("redis-server"),
    "cluster": lambda: require("redis-cli"),
    "dynamodb": lambda: (
        LOOPBACK.exists() or missing("LoopbackDynamo is not there; scripts/ensure_tools.sh all makes it")
    ),
    "object": lambda: require("versitygw"),
    "default": lambda: None,
    "coordinator": lambda: require("redis-server"),
    "neighbours": lambda: (
        BUNDLE.exists() or missing("the job of JVM Hudi is not there; scripts/ensure_jvm.sh installs it"),
        require_zookeeper(),
    ),
}


@pytest.mark.server
@pytest.mark.parametrize(("lock", "store"), some(PLACES, 1))
def test_what_was_acknowledged_in_weather_is_there(tmp_path: Path, lock: str, store: str) -> None:
    if reason := unavailable():
        missing(reason)
    REQUIRED[lock]()
    if store == "s3":
        require("versitygw")
    weather = Weather(tmp_path, lock=lock, store=store, writers=3, seed=7, calm_s=10.0)
    try:
        weather.begin()
        report = weather.blow(25.0)
    finally:
        weather.close()
    assert report.findings == []
    assert report.faults
    assert report.figures["commits"] > 5  # on a busy machine, too


def test_every_lock_of_weather_has_its_servers_required() -> None:
    assert set(REQUIRED) == set(LOCKS)


def said(op: str, number: int, told: str, at: float, **more: Any) -> list[dict[str, Any]]:
    planned = {key: value for key, value in more.items() if key == "batch"}
    begins = {"writer": "w", "op": op, "n": number, "told": "begins", "at": at - 1.0} | planned
    return [begins] if told == "begins" else [begins, begins | {"told": told, "at": at, "took": 1.0} | more]


HELD = [
    *said("append", 1, "landed", 1.0),
    *said("append", 2, "begins", 2.0),
    *said("append", 3, "failed", 3.0, error="ConflictError: no"),
    *said("count", 4, "landed", 4.0),
    *said("look", 5, "landed", 6.0, sum=800, counter=1, newest={"w": 1}),
    *said("claim", 6, "landed", 6.1),
    *said("claim", 7, "landed", 6.2, taken=True),
    *said("claim", 8, "begins", 6.3),
    *said("event", 9, "unknown", 6.4, batch=9, error="CommitStateUnknownError: no answer"),
    *said("event", 10, "landed", 6.5, batch=9),
    *said("event", 11, "begins", 6.6, batch=11),
    *said("append", 12, "landed", 6.7),
    *said("purge", 13, "landed", 6.8, purged=["w-12"]),
]
ROWS = [
    *({**row, "v": 1} if row["id"] == "counter" else row for row in first_rows()),
    {"id": "w-1", "part": "x", "v": 1},
    {"id": "w-2", "part": "y", "v": 2},
]
TABLES = {
    "": ROWS,
    "-two": first_rows(),
    "-claims": [{"id": "w-6", "value": 3}],
    "-sums": [{"id": "s4", "at": 9, "n": 9}],
}


def test_the_judge_finds_nothing_where_all_held() -> None:
    assert broken(HELD, TABLES) == []
    assert broken(HELD, TABLES | {"-sums": [{"id": "s4", "at": 9, "n": 9}, {"id": "s1", "at": 11, "n": 11}]}) == []


def changed(key: str, value: int) -> list[dict[str, Any]]:
    return [row | {"v": value} if row["id"] == key else row for row in ROWS]


LOOK = {"sum": 800, "counter": 1, "newest": {"w": 12}}


@pytest.mark.parametrize(
    ("events", "tables", "found"),
    [
        (HELD, {"": [row for row in ROWS if row["id"] != "w-1"]}, "append 1 of w was acknowledged and is lost"),
        (HELD, {"": [*ROWS, ROWS[-1]]}, "w-2 stands 2 times"),
        (
            HELD,
            {"": [*ROWS, {"id": "w-3", "part": "x", "v": 3}]},
            "its writer was told that nothing landed: ConflictError: no",
        ),
        (HELD, {"": [*ROWS, {"id": "w-99", "part": "x", "v": 9}]}, "w-99 was written by nobody"),
        (HELD, {"": [*ROWS, {"id": "w-12", "part": "x", "v": 12}]}, "w-12 was deleted, and stands"),
        (HELD, {"": changed("counter", 2)}, "the counter is 2, after 1 increments and 0 of unknown outcome"),
        (HELD, {"": changed("a0", 99)}, "the accounts hold 799, and held 800"),
        (HELD, {"-claims": []}, "claim w-6 was told landed, and does not stand"),
        (
            HELD,
            {"-claims": [{"id": "w-6", "value": 3}, {"id": "w-8", "value": 3}]},
            "the unique value 3 stands 2 times",
        ),
        (
            HELD,
            {"-claims": [{"id": "w-6", "value": 3}, {"id": "w-7", "value": 4}]},
            "claim w-7 was told landed, and stands",
        ),
        (HELD, {"-sums": [{"id": "s4", "at": 9, "n": 18}]}, "the events sum up to 18; 9 were acknowledged"),
        (HELD, {"-sums": []}, "the events sum up to 0; 9 were acknowledged"),
        ([*HELD, *said("look", 14, "landed", 9.0, **LOOK | {"sum": 790})], {}, "half of a transfer"),
        ([*HELD, *said("look", 14, "landed", 9.0, **LOOK | {"counter": 0})], {}, "after 1 increments"),
        ([*HELD, *said("look", 14, "landed", 7.7, **LOOK | {"newest": {}})], {}, "did not see append 1 of w"),
        ([*HELD, *said("append", 14, "raw", 9.0, error="KeyError: 1")], {}, "w append 14 met KeyError: 1"),
    ],
)
def test_the_judge_names_what_is_broken(events: list[dict[str, Any]], tables: dict[str, Any], found: str) -> None:
    (only,) = broken(events, TABLES | tables)
    assert found in only


def test_the_time_to_the_next_commit_counts_from_the_end_of_the_last_fault() -> None:
    faults = [Fault("server killed", "s", 10.0, 16.0), Fault("clock step", "w", 12.0, 14.0)]
    events = [e for at in (1.0, 9.0, 11.0, 20.0, 20.5) for e in said("append", int(at * 10), "landed", at)]
    reads = said("look", 1, "landed", 17.0)
    assert recovery([*events, *reads], faults, 99.0) == Recovery(("server killed", "clock step"), 4.0, 9.0)
    assert recovery(events[:6], faults, 40.0) == Recovery(("server killed", "clock step"), None, 29.0)


def test_of_two_nights_the_worse_figure_stands_and_counts_are_added() -> None:
    first = {"hours": 0.9, "findings": [], "lease_s": 5.0, "locks": {"redis": {"n": 3, "p50": 0.2, "max": 2.0}}}
    other = {
        "hours": 0.4,
        "findings": ["x"],
        "lease_s": 5.0,
        "locks": {"redis": {"n": 4, "p50": 0.3, "max": 1.0}, "jvm": {"n": 1}},
    }
    assert added(first, other) == {
        "hours": 1.3, "findings": ["x"], "lease_s": 5.0,
        "locks": {"redis": {"n": 7, "p50": 0.3, "max": 2.0}, "jvm": {"n": 1}},
    }  # fmt: skip
    assert added({}, first) == first


def test_the_tables_of_the_guarantees_are_what_was_measured() -> None:
    """After a new fault or measurement: python -m tests.weather.promises."""
    measured = json.loads(MEASURED.read_text())
    assert written() == table(measured)
    tests = "".join(path.read_text() for path in Path(__file__).parents[1].rglob("test_*.py"))
    for finding in measured["findings"]:
        assert [test for words, test in MENDED.items() if words in finding and f"def {test}(" in tests], finding


def test_what_grows_is_told_by_the_last_third() -> None:
    assert growth([1.0] * 8) is None
    assert growth([5.0, 9.0, 1.0, *[100.0] * 3, *[110.0] * 3]) == pytest.approx(0.1)
    assert quantiles([]) == {"n": 0}
    assert quantiles([float(n) for n in range(100)]) == {"n": 100, "p50": 50.0, "p99": 99.0, "max": 99.0}
