"""Sums that come near the limits of their columns: refused by key before they could not be read, and nothing is lost."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import InputError
from lakelatch.testing import FakeEnvironment

from ..thorough import THOROUGH

RANGE = 2**63
SHARE = RANGE // 1000
KINDS = {"int64": pa.int64(), "uint64": pa.uint64(), "decimal": pa.decimal128(20, 2)}


class Adding:
    """A table with one sum; `total` is the exact sum of what was taken, by key."""

    def __init__(
        self, folder: Path, kind: pa.DataType = KINDS["int64"], *, start: dict[str, Any] | None = None
    ) -> None:
        schema = pa.schema([("id", pa.string()), ("n", kind), ("at", pa.int64())])
        made: dict[str, Any] = {"type": "merge_on_read", "table_version": 9, "bucket_count": 1}
        self.table = lakelatch.create(str(folder), record_key="id", schema=schema, env=FakeEnvironment(seed=1), **made)
        if start:
            self.table.upsert(pa.table([[*start], [*start.values()], [0] * len(start)], schema=schema))
        self.table.stream("s", columns=["n"], ordering="at", merge={"n": "sum"}, foreign_readers=False)
        self.total, self._number = dict(start or {}), 0

    def add(self, *events: tuple[str, Any], at: int = 1) -> None:
        self._number += 1
        rows = [{"id": key, "n": n, "at": at} for key, n in events]
        self.table.stream("s").upsert(rows, batch=("test", self._number))
        for key, n in events:
            self.total[key] = self.total.get(key, 0) + n

    def clear(self, key: str, at: int) -> None:
        self._number += 1
        self.table.stream("s").delete([{"id": key, "at": at}], batch=("test", self._number))
        self.total[key] = 0

    def read(self) -> dict[str, Any]:
        return {row["id"]: row["n"] for row in self.table.read().to_pylist()}


def test_a_total_that_would_pass_half_of_the_range_is_refused_by_key_and_the_others_go_on(tmp_path: Path) -> None:
    adding = Adding(tmp_path / "t", start={"hot": RANGE // 2 - 2 * SHARE, "cold": 1})
    for _ in range(2):
        adding.add(("hot", SHARE - 1), ("cold", 5))
    for _ in range(2):
        with pytest.raises(
            InputError, match=rf"total of key 'hot' from {adding.total['hot']} to .*nothing was written"
        ) as e:
            adding.add(("cold", 7), ("hot", SHARE - 1))
        assert (e.value.column, e.value.key) == ("n", "hot")
        with pytest.raises(InputError, match="total of key 'hot'"):
            adding.add(("hot", 3))
        assert adding.read() == adding.total
        adding.table.compact()
    adding.add(("cold", 7), ("hot", -SHARE + 1))
    adding.clear("hot", 5)
    adding.add(("hot", 3), at=5)
    assert adding.read() == adding.total
    assert adding.total["hot"] == 3


def test_a_thousand_events_of_one_write_are_refused_by_key(tmp_path: Path) -> None:
    adding = Adding(tmp_path / "t")
    some = [{"id": "b", "n": SHARE, "at": at} for at in range(1000)]
    for events in (some, some[:2]):
        with pytest.raises(
            InputError, match=r"column 'n': the events of key 'b' (add more than a thousandth|do not add up)"
        ):
            adding.table.stream("s").upsert([{"id": "a", "n": 1, "at": 1}, *events], batch=("test", 1))
    with pytest.raises(InputError, match=f"{SHARE + 1} is more than a thousandth"):
        adding.add(("a", SHARE + 1))
    assert adding.read() == {}


def test_small_events_on_small_totals_read_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adding = Adding(tmp_path / "t", start={"a": RANGE // 4})
    read = []
    whole = lakelatch.occ.staging.stream_files.stitched
    monkeypatch.setattr("lakelatch.occ.staging.stream_files.stitched", lambda *a, **k: read.append(1) or whole(*a, **k))
    adding.add(("a", RANGE // 2**31), ("b", 5))
    assert not read
    adding.add(("a", RANGE // 2**31 + 1))
    assert read == [1]
    adding.table.compact()
    adding.add(("b", 1))
    assert read == [1, 1], "the base file has a total beyond a quarter now"
    assert adding.read() == adding.total


def test_writes_of_one_transaction_see_each_other(tmp_path: Path) -> None:
    adding = Adding(tmp_path / "t", start={"hot": RANGE // 2 - 2 * SHARE})
    txn, events = adding.table.transaction("upsert", batch=("x", 1)), [{"id": "hot", "n": SHARE - 1, "at": 1}]
    for _ in range(2):
        txn.stream("s").upsert(events)
    with pytest.raises(InputError, match="total of key 'hot'"):
        txn.stream("s").upsert(events)
    txn.abort()
    assert adding.read() == adding.total


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_is_taken_can_be_read_and_compacted(tmp_path: Path, kind: str) -> None:
    """Random writers near the limits, of which many do not see each other, against exact sums."""
    dice = random.Random(7)
    limit = {"int64": 2**63, "uint64": 2**64, "decimal": Decimal(10) ** 18}[kind]

    def some() -> Any:
        size = dice.choice([1, limit // 2**31, limit // 10_000, limit // 1001, limit // 1001])
        return -size if kind != "uint64" and dice.random() < 0.2 else size

    start = {"a": limit // 2 - limit // 500, "b": limit // 4, "c": limit // limit}
    adding, refused, taken = Adding(tmp_path / "t", KINDS[kind], start=start), [], 0
    for _ in range(60 if THOROUGH else 25):
        opened = []
        for _ in range(dice.randint(1, 4)):
            adding._number += 1
            txn = adding.table.transaction("upsert", batch=(f"w{adding._number}", 1))
            events = [(dice.choice("abc"), some()) for _ in range(dice.randint(1, 2))]
            try:
                txn.stream("s").upsert([{"id": key, "n": n, "at": 1} for key, n in events])
            except InputError as e:
                refused.append(str(e))
                txn.abort()
            else:
                opened.append((txn, events))
        dice.shuffle(opened)
        for txn, events in opened:
            txn.commit()
            taken += 1
            for key, n in events:
                adding.total[key] += n
        if dice.random() < 0.2:
            adding.table.compact()
        assert adding.read() == adding.total
    assert taken
    assert refused
    assert any("these events would bring the total of key" in each for each in refused)
