"""Random reads of random tables against lists in memory: columns, conditions, partitions, moments, odd values."""

from __future__ import annotations

import math
import random
from datetime import date

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakelatch

from ...thorough import THOROUGH, some

SCHEMA = pa.schema(
    [
        ("id", pa.string()),
        ("part", pa.string()),
        ("num", pa.int32()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
    ]
)
PARTS = ["{a}", "100%", "%41", "A", "", None, "é𝒳", "[x]*", "a b", "__HIVE", "="]
NUMS = [0, -7, None]
TEXTS = ["", "{}", "%s", "𝒳é", "null", None, "a"]
DAYS = [date(1, 1, 1), date(1582, 10, 4), date(1969, 12, 31), date(9999, 12, 31), None]
FLOATS = [math.nan, 0.0, -0.0, 1.5, -math.inf, math.inf, None]


def row(draw: random.Random, key: str, place: tuple[str | None, int | None]) -> dict[str, object]:
    return {
        "id": key,
        "part": place[0],
        "num": place[1],
        "n": draw.choice([None, 0, 1, 2, -(2**63), 2**63 - 1]),
        "x": draw.choice(FLOATS),
        "s": draw.choice(TEXTS),
        "d": draw.choice(DAYS),
    }


def above(x: float | None, limit: float) -> bool:
    return x is not None and (math.isnan(x) or x > limit)


CONDITIONS = {
    "n > 0": lambda r: r["n"] is not None and r["n"] > 0,
    "not (n > 0)": lambda r: r["n"] is not None and r["n"] <= 0,
    "n is null or n = 1": lambda r: r["n"] in (None, 1),
    "x > 1.0": lambda r: above(r["x"], 1.0),
    "x = 0.0": lambda r: r["x"] == 0.0,
    "s = '' or s = '{}'": lambda r: r["s"] in ("", "{}"),
    "s like '%é'": lambda r: r["s"] is not None and r["s"].endswith("é"),
    "part = '{a}'": lambda r: r["part"] == "{a}",
    "part = ''": lambda r: r["part"] == "",
    "part is null": lambda r: r["part"] is None,
    "part is not null and part <> '100%'": lambda r: r["part"] not in (None, "100%"),
    "part in ('é𝒳', '%41', 'none') and n is not null": lambda r: r["part"] in ("é𝒳", "%41") and r["n"] is not None,
    "num = -7": lambda r: r["num"] == -7,
    "num is null and part < 'a'": lambda r: r["num"] is None and r["part"] is not None and r["part"] < "a",
    "num + 1 > 0 or s = 'a'": lambda r: (r["num"] is not None and r["num"] >= 0) or r["s"] == "a",
    "d < date '1700-01-01'": lambda r: r["d"] is not None and r["d"] < date(1700, 1, 1),
    "1 = 1": lambda _r: True,
    "1 = 2": lambda _r: False,
}
TERMS = {
    (("n", "in", (1, 2)), ("part", "is not null")): lambda r: r["n"] in (1, 2) and r["part"] is not None,
    (("part", "=", "[x]*"),): lambda r: r["part"] == "[x]*",
    (): lambda _r: True,
}
EXPRESSIONS = [
    (pc.field("part") == "=", lambda r: r["part"] == "="),
    ((pc.field("n") >= 1) & pc.field("s").is_null(), lambda r: r["n"] is not None and r["n"] >= 1 and r["s"] is None),
]


def comparable(rows):
    """Rows as values that compare, NaN included."""
    return sorted(repr([(name, repr(value)) for name, value in each.items()]) for each in rows)


def condition(draw: random.Random):
    kind = draw.randrange(4)
    if kind == 0:
        return None, lambda _r: True
    if kind == 1:
        terms, met = draw.choice(list(TERMS.items()))
        return list(terms), met
    return draw.choice([*CONDITIONS.items(), *EXPRESSIONS])


def place_of(value):
    return value or None


def partitions(draw: random.Random, table, state):
    """What `read` is given, and which rows lie there."""
    kind = draw.randrange(4)
    if kind == 0:
        return None, lambda _r: True
    if kind == 1:
        chosen = [{"part": draw.choice(PARTS)} for _ in range(draw.randrange(3))]
        return chosen, lambda r: any(place_of(r["part"]) == place_of(each["part"]) for each in chosen)
    if kind == 2:
        chosen = [{"num": draw.choice(NUMS), "part": draw.choice(PARTS)}, {"num": 0}]
        return (
            chosen,
            lambda r: (
                r["num"] == 0 or (r["num"] == chosen[0]["num"] and place_of(r["part"]) == place_of(chosen[0]["part"]))
            ),
        )
    if not state:
        return None, lambda _r: True
    one = draw.choice(list(state.values()))
    path = next(
        each["_hoodie_partition_path"]
        for each in table.read(columns=["id", "_hoodie_partition_path"]).to_pylist()
        if each["id"] == one["id"]
    )
    return [path], lambda r: (place_of(r["part"]), r["num"]) == (place_of(one["part"]), one["num"])


@pytest.mark.parametrize("seed", some(range(4), 2))
@pytest.mark.parametrize("urlencode", [False, True])
def test_random_reads_agree_with_lists(folder, seed, urlencode):
    draw = random.Random(f"{seed}{urlencode}")
    options = {"statistics": "all"} if seed % 2 else {}
    with make(str(folder / "t"), urlencode=urlencode, **options) as table:
        state: dict[str, dict[str, object]] = {}
        moments = []
        for commit in range(6):
            keys = [f"k{draw.randrange(60)}" for _ in range(25)]
            new = {
                key: row(
                    draw,
                    key,
                    (state[key]["part"], state[key]["num"])
                    if key in state
                    else (draw.choice(PARTS), draw.choice(NUMS)),
                )
                for key in keys
            }
            with table.transaction() as txn:
                txn.upsert(pa.Table.from_pylist(list(new.values()), schema=SCHEMA))
                state = state | new
                if commit % 3 == 2:
                    txn.delete_where([("n", "=", 0)])
                    state = {key: each for key, each in state.items() if each["n"] != 0}
                check(draw, txn, state)
            moments.append((txn.result, state))
        for _ in range(40 if THOROUGH else 24):
            check(draw, table, state)
        for _ in range(15 if THOROUGH else 8):
            result, then = draw.choice(moments)
            bound = draw.choice([{"as_of": result.instant}, {"as_of_completion": result.completion}])
            check(draw, table, then, **bound)


def make(url: str, *, urlencode: bool, **options):
    given = {"record_key": "id", "partition_by": ["part", "num"], "schema": SCHEMA, **options}
    if not urlencode:
        return lakelatch.create(url, **given)
    lakelatch.create(url, **given).close()
    path = f"{url}/.hoodie/hoodie.properties"
    with open(path, "r+") as file:
        text = file.read()
        name = "hoodie.datasource.write.partitionpath.urlencode"
        lines = [line for line in text.splitlines() if not line.startswith((name, "hoodie.table.checksum"))]
        file.seek(0)
        file.truncate()
        file.write("\n".join([*lines, f"{name}=true"]) + "\n")
    return lakelatch.open(url)


def check(draw: random.Random, table, state, **bound) -> None:
    names = draw.sample(SCHEMA.names, draw.randrange(1, len(SCHEMA) + 1)) if draw.random() < 0.7 else None
    where, met = condition(draw)
    chosen, lies = partitions(draw, table, {} if bound else state)
    wanted = [
        {name: each[name] for name in names or SCHEMA.names} for each in state.values() if met(each) and lies(each)
    ]
    scan = table.read(columns=names, where=where, partitions=chosen, **bound)
    about = f"columns={names} where={where} partitions={chosen} {bound}\n{scan.explain()}"
    assert comparable(scan.to_pylist()) == comparable(wanted), about
    assert scan.count() == len(wanted), about
    assert scan.to_batches().read_all() == scan.to_arrow() or any(each.get("x") for each in wanted), about
    assert scan.schema.names == (names or SCHEMA.names)
