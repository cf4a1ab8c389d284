"""Tables that several fields order, through Spark: writes, deletes and reads follow the first field that differs."""

from __future__ import annotations

import datetime as dt
from itertools import product
from typing import Any

import pytest

from lakelatch.errors import InputError

from ..thorough import crossed
from .driver import ROUTES

SCHEMA = "id string, city string, day date, number string, v long"
ORDERS = list(product((1, 2), (1, 2)))
PAIRS = {f"{city}{n}": pair for n, pair in enumerate(product(ORDERS, repeat=2)) for city in "xy"}


def frame(spark: Any, orders: dict[str, tuple[int, int]], v: int) -> Any:
    rows = [(key, key[0], dt.date(2026, 1, day), f"n{number}", v) for key, (day, number) in orders.items()]
    return spark.createDataFrame(rows, SCHEMA)


def holds(table: Any, model: dict[str, int]) -> None:
    rows = table.read(columns=["id", "v"]).collect()
    assert len({row.id for row in rows}) == len(rows)
    plain = table.table.read(columns=["id", "v"]).to_pylist()
    assert {row.id: row.v for row in rows} == {row["id"]: row["v"] for row in plain} == model


WAYS = [("driver", None), ("tasks", None), ("tasks", 2)]


@pytest.mark.thorough
@pytest.mark.parametrize(("way", "type_"), crossed(WAYS, ["copy_on_write", "merge_on_read"]))
def test_the_first_field_that_differs_decides(spark, make, way, type_):
    route, bucket_count = way
    settings = {"bucket_count": bucket_count} if bucket_count else {}
    table = make(type=type_, ordering_field=["day", "number"], table_version=9, sizes=ROUTES[route], **settings)
    first = {key: old for key, (old, _) in PAIRS.items()}
    table.insert(frame(spark, first, 0))
    model = dict.fromkeys(PAIRS, 0)
    holds(table, model)
    later = {key: new for key, (_, new) in PAIRS.items()}
    table.upsert(frame(spark, later, 1))
    model |= {key: 1 for key, (old, new) in PAIRS.items() if new >= old}
    holds(table, model)

    twice = frame(spark, dict.fromkeys(["x0"], (2, 1)), 2).union(frame(spark, {"x0": (1, 9)}, 3))
    table.upsert(twice)
    model["x0"] = 2
    holds(table, model)

    with pytest.raises(InputError, match=r"lack number: .*by all of them, or by none; nothing was deleted"):
        table.delete(frame(spark, {"x0": (9, 9)}, 0).select("id", "city", "day"))
    until = dict.fromkeys((key for key in PAIRS if key.startswith("y")), (1, 2))
    table.delete(frame(spark, until, 0).drop("v"))
    now = {key: max(pair) for key, pair in PAIRS.items()}
    model = {key: v for key, v in model.items() if key.startswith("x") or now[key] > (1, 2)}
    holds(table, model)
    table.delete(frame(spark, {"x0": (1, 0)}, 0).select("id", "city"))
    del model["x0"]
    holds(table, model)
    if type_ == "merge_on_read":
        assert table.compact_logs(min_logs=2)
        holds(table, model)
        assert table.compact()
    holds(table, model)
