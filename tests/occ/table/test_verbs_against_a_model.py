"""All verbs at random, alone, two in one transaction and two at the same time, against a dict that does the same."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import ConflictError

from ...thorough import is_taken, some

SCHEMA = pa.schema(
    [("id", pa.string()), ("city", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("t", pa.int64())]
)
CITIES = ("Oslo", "50% {off} ü \U0001f600", None)
IDS = ("a", "b", "c", "d", "\U0001f600", "{x}%s")
NAN = float("nan")
Key = tuple[str | None, str]
State = dict[Key, dict[str, Any]]


@dataclass(frozen=True)
class Verb:
    """What one does to a transaction, and to the model."""

    name: str
    stage: Callable[[Any], None]
    model: Callable[[State], None]
    operation: str = "upsert"


def key(row: dict[str, Any]) -> Key:
    return row["city"], row["id"]


def verbs(rnd: random.Random, *, ordered: bool) -> Iterator[Verb]:
    """One verb of each kind, with rows and bounds of its own."""

    def batch(least: int = 0) -> list[dict[str, Any]]:
        keys = rnd.sample(list(product(CITIES, IDS)), rnd.randrange(least, 6))
        return [
            {"id": i, "city": c}
            | {"n": rnd.choice([None, *range(6)]), "x": rnd.choice([None, NAN, 0.5]), "t": rnd.choice([None, 1, 2, 3])}
            for c, i in keys
        ]

    def put(state: State, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            old = state.get(key(row))
            newer = old is None or not ordered or old["t"] is None or (row["t"] is not None and row["t"] >= old["t"])
            if newer:
                state[key(row)] = dict(row)

    def gone(state: State, true: Callable[[dict[str, Any]], Any]) -> None:
        for each in [k for k, row in state.items() if true(row)]:
            del state[each]

    rows = batch()
    yield Verb("upsert", lambda txn, rows=rows: txn.upsert(table_of(rows)), lambda s, rows=rows: put(s, rows))

    keys = batch()
    named = pa.Table.from_pylist([{"id": r["id"], "city": r["city"]} for r in keys], pa.schema(list(SCHEMA)[:2]))
    yield Verb("delete", lambda txn: txn.delete(named), lambda s: gone(s, lambda r: key(r) in {key(k) for k in keys}))

    bound = rnd.randrange(6)
    yield Verb(
        "delete_where",
        lambda txn: txn.delete_where(f"n < {bound}"),
        lambda s: gone(s, lambda r: r["n"] is not None and r["n"] < bound),
    )

    city = rnd.choice(CITIES)
    yield Verb(
        "update_where",
        lambda txn: txn.update_where(
            [("n", ">=", bound)], set={"n": lakelatch.sql(f"n * 3 + {bound}"), "x": lakelatch.sql("cast(n as double)")}
        ),
        lambda s: [
            r.update(n=r["n"] * 3 + bound, x=float(r["n"]))
            for r in s.values()
            if r["n"] is not None and r["n"] >= bound
        ],
    )
    yield Verb(
        "update of a city",
        lambda txn: txn.update_where("x is null or isnan(x)", set={"x": bound + 0.25}, partition={"city": city}),
        lambda s: [
            r.update(x=bound + 0.25) for r in s.values() if r["city"] == city and (r["x"] is None or r["x"] != r["x"])
        ],
    )

    here = [row | {"city": city} for row in batch()]
    here = list({key(row): row for row in here}.values())

    def replaced(state: State) -> None:
        gone(state, lambda r: r["city"] == city)
        state.update({key(r): dict(r) for r in here})

    yield Verb(
        "overwrite",
        lambda txn: txn.overwrite(table_of(here), partitions=[{"city": city}]),
        replaced,
        "insert_overwrite",
    )

    all_ = batch()

    def emptied(state: State) -> None:
        state.clear()
        state.update({key(r): dict(r) for r in all_})

    yield Verb("overwrite_table", lambda txn: txn.overwrite_table(table_of(all_)), emptied, "insert_overwrite_table")

    source = batch(1)

    def merged(state: State) -> None:
        for s in source:
            t = state.get(key(s))
            if t is None:
                if s["n"] is not None:
                    state[key(s)] = dict(s)
            elif s["n"] is not None and s["n"] == bound:
                del state[key(s)]
            elif t["n"] is not None and s["n"] is not None and s["n"] > t["n"]:
                state[key(s)] = dict(s)
            elif s["n"] is not None:
                t.update(n=None if t["n"] is None else t["n"] + s["n"], x=7.5)

    def merge(txn: Any) -> None:
        (
            txn.merge(table_of(source))
            .when_matched(f"s.n = {bound}", delete=True)
            .when_matched("s.n > t.n", update="all")
            .when_matched("s.n is not null", update={"n": lakelatch.sql("t.n + s.n"), "x": 7.5})
            .when_not_matched("s.n is not null", insert="all")
            .run()
        )

    yield Verb("merge", merge, merged)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def read(table: Any) -> State:
    listed = table.read().to_pylist()
    found = {key(row): row for row in listed}
    assert len(found) == len(listed), "a key occurs twice"
    return found


def same(a: State, b: State) -> bool:
    return shown(a) == shown(b)


def shown(state: State) -> str:
    return repr(sorted((repr(k), repr(sorted(v.items()))) for k, v in state.items()))


def first_rows(rnd: random.Random) -> list[dict[str, Any]]:
    keys = [(city, id_) for city in CITIES for id_ in rnd.sample(IDS, 3)]  # each partition is there
    rnd.shuffle(keys)
    return [{"id": i, "city": c, "n": rnd.randrange(6), "x": None, "t": 2} for c, i in keys]


def made(folder: Path, rnd: random.Random, *, ordered: bool, buckets: int | None, **more: Any) -> State:
    rows = first_rows(rnd)
    settings = more if buckets is None else more | {"bucket_count": buckets}
    with lakelatch.create(
        str(folder),
        record_key="id",
        partition_by="city",
        ordering_field="t" if ordered else None,
        schema=SCHEMA,
        **settings,
    ) as table:
        table.upsert(table_of(rows[:5]))
        with table.transaction("insert") as txn:  # several file groups of one partition
            txn.insert(table_of(rows[5:]))
    return {key(row): dict(row) for row in rows}


WAYS = [(False, None), (True, None), (False, 2), (True, 2)]


@pytest.mark.parametrize(("ordered", "buckets"), WAYS)
@pytest.mark.parametrize("seed", some(range(3), 2))
def test_verbs_in_a_row_and_two_in_one_transaction_do_what_the_model_does(
    tmp_path: Path, ordered: bool, buckets: int | None, seed: int
) -> None:
    rnd = random.Random(seed)
    state = made(tmp_path / "t", rnd, ordered=ordered, buckets=buckets)
    with lakelatch.open(str(tmp_path / "t")) as table:
        for _ in range(12):
            one = rnd.choice(list(verbs(rnd, ordered=ordered)))
            others = [each for each in verbs(rnd, ordered=ordered) if each.operation == one.operation]
            chosen = [one, rnd.choice(others)] if others and rnd.random() < 0.5 else [one]
            with table.transaction(one.operation) as txn:
                for each in chosen:
                    each.stage(txn)
                    each.model(state)
            assert same(read(table), state), [each.name for each in chosen]


NAMES = [each.name for each in verbs(random.Random(0), ordered=False)]


@pytest.mark.parametrize(
    ("ordered", "buckets", "isolation"),
    [
        (False, None, "snapshot"),
        (True, None, "write-serializable"),
        (False, 2, "write-serializable"),
        (True, 2, "snapshot"),
    ],
)
@pytest.mark.parametrize("first", NAMES)
def test_two_verbs_at_the_same_time_do_what_one_after_the_other_does(
    tmp_path: Path, first: str, ordered: bool, buckets: int | None, isolation: str
) -> None:
    rnd = random.Random(f"{first}{ordered}{buckets}{isolation}")
    start = made(tmp_path / "base", rnd, ordered=ordered, buckets=buckets, isolation=isolation)
    wrong = []
    for number, second in enumerate(NAMES):
        if not is_taken(NAMES.index(first), number, 4):
            continue
        one = next(each for each in verbs(rnd, ordered=ordered) if each.name == first)
        two = next(each for each in verbs(rnd, ordered=ordered) if each.name == second)
        folder = tmp_path / f"t{number}"
        shutil.copytree(tmp_path / "base", folder)
        with lakelatch.open(str(folder)) as a, lakelatch.open(str(folder)) as b:
            left, right = a.transaction(one.operation), b.transaction(two.operation)
            one.stage(left)
            two.stage(right)
            left.commit()
            try:
                right.commit()
            except ConflictError:
                with b.transaction(two.operation) as again:
                    two.stage(again)
            found = read(a)
        orders = []
        for order in ((one, two), (two, one)):
            state = deepcopy(start)
            for each in order:
                each.model(state)
            orders.append(shown(state))
        if shown(found) not in orders:
            wrong.append((second, shown(found), *orders))
    assert not wrong, "\n".join("\n  ".join(each) for each in wrong)
