"""Two transactions of one to three calls each, at the same time, against a dict that does the same one after the other.

A table with a history (changes, deletions, services) is changed by A and by B, which both began before either lands. Then
the rows are those of one serial order in which nobody inserts a key that is there, no key stands twice, and a value under a
unique constraint stands once. Who lost has left nothing, and run again comes last.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import cycle, product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch import sql
from lakelatch.occ.check.check import check

from ...thorough import THOROUGH

SCHEMA = pa.schema(
    [("id", pa.string()), ("part", pa.string()), ("v", pa.int64()), ("ts", pa.int64()), ("u", pa.string())]
)
PARTITIONS, KEYS = ("a", "b"), tuple("klm")
CALLS = ("insert", "insert", "upsert", "upsert", "upsert", "delete", "delete_where", "update_where", "merge")
HOT = PARTITIONS[0], KEYS[0]  # most calls concern this one
EVERY = list(product(PARTITIONS, KEYS))
# What an update sets, and what it makes of a row.
CHANGES: list[tuple[dict[str, Any], Callable[[dict[str, Any]], dict[str, Any]]]] = [
    ({"v": sql("v + 1")}, lambda row: {"v": row["v"] + 1}),
    ({"u": "u0"}, lambda _: {"u": "u0"}),
    ({"u": sql("coalesce(u, id)"), "v": 3}, lambda row: {"u": row["u"] or row["id"], "v": 3}),
]
Key = tuple[str, str]
Rows = dict[Key, dict[str, Any]]


class NoOrder(Exception):
    """In this order the calls would not do what they did: a key that is inserted is there, or a value stands twice."""


@dataclass(frozen=True)
class Kind:
    """What kind of table it is."""

    mor: bool
    ordered: bool
    buckets: int | None
    unique: bool
    serial: bool = False

    @property
    def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = {"isolation": "write-serializable" if self.serial else "snapshot"}
        if self.mor:
            found["type"] = "merge_on_read"
        if self.ordered:
            found["ordering_field"] = "ts"
        if self.unique:
            found["unique_constraints"] = ["u"]
        return found | ({"bucket_count": self.buckets} if self.buckets else {})


KINDS = [
    Kind(*each) for each in product((False, True), (False, True), (None, 2), (False, True)) if not (each[0] and each[3])
]


@dataclass(frozen=True)
class Call:
    """What is called on the transaction, and what it does to the rows."""

    told: str
    stage: Callable[[Any], object]
    model: Callable[[Rows], None]


class Dice:
    """The calls of one seed."""

    def __init__(self, seed: str, kind: Kind) -> None:
        self.luck, self.kind = random.Random(seed), kind
        self._ts = 10

    def row(self, key: Key) -> dict[str, Any]:
        self._ts += self.luck.choice((-2, 0, 1, 1, 2))
        u = self.luck.choice((None, None, *(f"u{n}" for n in range(8))))
        return {"id": key[1], "part": key[0], "v": self.luck.randrange(6), "ts": self._ts, "u": u}

    def keys(self, of: Any) -> list[Key]:
        found = sorted(of)
        chosen = self.luck.sample(found, min(len(found), self.luck.choice((1, 1, 2, 3))))
        return chosen if HOT not in found or HOT in chosen or self.luck.random() < 0.4 else [HOT, *chosen[1:]]

    def call(self, state: Rows) -> Call:
        """One that suits a table with these rows."""
        name = self.luck.choice(CALLS)
        if name == "insert" and self.kind.buckets is not None:  # the same there
            name = "upsert"
        made: Call = getattr(self, f"_{name}")(state)
        return made

    def _insert(self, state: Rows) -> Call:
        rows = [self.row(key) for key in self.keys(set(EVERY) - state.keys())]

        def model(to: Rows) -> None:
            if any(key_of(row) in to for row in rows):
                raise NoOrder
            self.put(to, rows)

        return Call(f"insert {rows}", lambda txn: txn.insert(table_of(rows)), model)

    def _upsert(self, _: Rows) -> Call:
        rows = [self.row(key) for key in self.keys(EVERY)]
        return Call(f"upsert {rows}", lambda txn: txn.upsert(table_of(rows)), lambda to: self.put(to, rows))

    def put(self, to: Rows, rows: list[dict[str, Any]]) -> None:
        for row in rows:
            old = to.get(key_of(row))
            if not (self.kind.ordered and old is not None and old["ts"] > row["ts"]):
                to[key_of(row)] = dict(row)

    def _delete(self, _: Rows) -> Call:
        keys = self.keys(EVERY)

        def model(to: Rows) -> None:
            for key in keys:
                to.pop(key, None)

        given = [{"part": part, "id": key} for part, key in keys]
        return Call(f"delete {keys}", lambda txn: txn.delete(given), model)

    def _delete_where(self, _: Rows) -> Call:
        bound = self.luck.randrange(6)

        def model(to: Rows) -> None:
            for key in [key for key, row in to.items() if row["v"] == bound]:
                del to[key]

        return Call(f"delete v={bound}", lambda txn: txn.delete_where(f"v = {bound}"), model)

    def _update_where(self, _: Rows) -> Call:
        bound = self.luck.randrange(6)
        values, changed = self.luck.choice(CHANGES)

        def model(to: Rows) -> None:
            for row in to.values():
                if row["v"] < bound:
                    row.update(changed(row))

        return Call(f"update v<{bound} {values}", lambda txn: txn.update_where(f"v < {bound}", values), model)

    def _merge(self, _: Rows) -> Call:
        rows, bound = [self.row(key) for key in self.keys(EVERY)], self.luck.randrange(6)

        def stage(txn: Any) -> None:
            merge = txn.merge(table_of(rows)).when_matched(f"s.v = {bound}", delete=True)
            merge = merge.when_matched("s.v < t.v", update={"v": sql("s.v + t.v"), "u": sql("s.u")})
            merge.when_not_matched(insert="all").run()

        def model(to: Rows) -> None:
            for row in rows:
                old = to.get(key_of(row))
                if old is None:
                    to[key_of(row)] = dict(row)
                elif row["v"] == bound:
                    del to[key_of(row)]
                elif row["v"] < old["v"]:
                    old.update(v=row["v"] + old["v"], u=row["u"])

        return Call(f"merge {rows} delete v={bound}", stage, model)

    def calls(self, state: Rows, most: int) -> tuple[list[Call], Rows]:
        """Some of one transaction, and what they leave."""
        found, state = [], deepcopy(state)
        for _ in range(self.luck.randint(1, most)):
            call = self.call(state)
            found.append(call)
            call.model(state)
        return found, state

    def after(self, state: Rows, *calls: Call) -> Rows | None:
        """What calls leave, one after the other; None when that is no order."""
        state = deepcopy(state)
        try:
            for call in calls:
                call.model(state)
        except NoOrder:
            return None
        return state

    def breaks(self, state: Rows) -> bool:
        used = Counter(row["u"] for row in state.values() if row["u"] is not None)
        return self.kind.unique and max(used.values(), default=1) > 1


def key_of(row: dict[str, Any]) -> Key:
    return row["part"], row["id"]


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def held(table: Any) -> Rows:
    read = table.read().to_pylist()
    rows = {key_of(row): row for row in read}
    assert len(rows) == len(read), f"a key stands twice: {sorted((*key_of(row), row['v']) for row in read)}"
    return rows


def staged(table: Any, calls: list[Call]) -> Any:
    """The open transaction; None when it was refused before anything landed."""
    txn = table.transaction("upsert")
    try:
        for call in calls:
            call.stage(txn)
    except lakelatch.InputError as error:
        if "in one transaction" not in str(error):  # of merge-on-read tables with an order
            raise
        txn.abort("refused")
        return None
    return txn


def lands(txn: Any) -> bool | lakelatch.LakeLatchError:
    if txn is None:
        return False
    try:
        txn.commit()
    except (lakelatch.ConflictError, lakelatch.ConstraintError) as error:
        return error
    return True


def history(tables: Iterator[Any], dice: Dice) -> Rows:
    """Rows come and go; half of the tables end with the hot key deleted, where it is deleted by a log file."""
    state: Rows = {}
    for number in range(dice.luck.randint(1, 4)):
        table = next(tables)
        calls, after = dice.calls(state, 2)
        if number == 0 and HOT not in after:
            row = dice.row(HOT)
            calls.append(Call("", lambda txn: txn.upsert(table_of([row])), lambda _: None))  # noqa: B023 - used at once
            after[HOT] = row
        if not dice.breaks(after) and lands(staged(table, calls)) is True:
            state = after
        if dice.luck.random() < 0.3:
            serve(table, dice)
    if HOT in state and dice.luck.random() < 0.5:
        next(tables).delete([{"part": HOT[0], "id": HOT[1]}])
        del state[HOT]
    return state


def serve(table: Any, dice: Dice) -> None:
    service = dice.luck.choice(("compact", "compact_logs", "cluster") if dice.kind.mor else ("cluster",))
    if service == "cluster" and dice.kind.buckets:
        return
    if service == "compact_logs":
        table.compact_logs(min_logs=2)
    else:
        getattr(table, service)()


def play(folder: Path, kind: Kind, seed: int) -> None:
    dice = Dice(f"{kind}{seed}", kind)
    lakelatch.create(
        str(folder),
        record_key="id",
        partition_by="part",
        schema=SCHEMA,
        lock="none://",
        yield_wait_s=0.1,
        **kind.settings,
    ).close()
    with lakelatch.open(str(folder), writer="A") as a, lakelatch.open(str(folder), writer="B") as b:
        state = history(cycle([a, b]), dice)
        assert held(a) == state
        (ours, _), (theirs, _) = dice.calls(state, 3), dice.calls(state, 3)
        note = (
            f"{kind}, seed {seed}: {sorted(state.items())}; A: {[c.told for c in ours]}; B: {[c.told for c in theirs]}"
        )
        try:
            judge(a, b, dice, state, ours, theirs)
        except BaseException as error:
            error.add_note(note)
            raise


def is_one_of(found: Rows, orders: list[Rows], *, whole: bool) -> bool:
    """Whether the rows are those of one order; without ``whole`` each by itself: a key that was not there is no write."""
    if whole or not orders:
        return found in orders
    keys = found.keys() | orders[0].keys() | orders[-1].keys()
    return all(found.get(key) in [order.get(key) for order in orders] for key in keys)


def judge(a: Any, b: Any, dice: Dice, state: Rows, ours: list[Call], theirs: list[Call]) -> None:
    one, two = staged(a, ours), staged(b, theirs)
    first = lands(one)
    if dice.luck.random() < 0.2:
        serve(a, dice)
    second = lands(two)
    if first is True and second is True:
        orders = [dice.after(state, *ours, *theirs), dice.after(state, *theirs, *ours)]
    else:
        orders = [dice.after(state, *(ours if first is True else theirs if second is True else ()))]
    found = held(a)
    assert is_one_of(found, [each for each in orders if each is not None], whole=dice.kind.serial), (
        f"{first}, {second}: {found}, not {orders}"
    )
    assert not dice.breaks(found)
    assert held(b) == found
    assert not check(a.store, deep=True).findings
    for error, calls in ((first, ours), (second, theirs)):
        if not isinstance(error, lakelatch.ConflictError):
            continue
        expected = dice.after(found, *calls)
        if expected is None:
            continue
        again = lands(staged(b, calls))
        found = held(a)
        if isinstance(again, lakelatch.ConstraintError):
            assert dice.breaks(expected)
        else:
            assert again is False or found == expected, f"run again: {again}, {found}, not {expected}"


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("seed", range(60) if THOROUGH else (0, 4, 7))
def test_two_transactions_of_several_calls_are_serial(folder: Path, kind: Kind, seed: int) -> None:
    play(folder / "table", replace(kind, serial=seed % 2 == 1), seed)
