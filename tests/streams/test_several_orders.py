"""Streams ordered by several columns, of which few values make many ties, against the model: batches folded in memory, and
tables with compactions between any two commits."""

from __future__ import annotations

import random
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.streams import CLEARED, DELETED, UPSERT, Stream, folded
from lakelatch.testing import FakeEnvironment

from ..thorough import THOROUGH
from .model import Model, Row

KEY = "_hoodie_record_key"
NUMBERS = [("part", pa.decimal128(4, 1)), ("at", pa.float64()), ("a", pa.int64()), ("n", pa.int64())]
SCHEMA = pa.schema([(KEY, pa.string()), ("day", pa.string()), *NUMBERS])
ORDER = ("day", "part", "at")


def event(dice: random.Random) -> Row:
    values: dict[str, list[Any]] = {
        KEY: ["x", "y"],
        "day": ["", "ü"],
        "part": [Decimal("-0.5"), Decimal(2)],
        "at": [-1.0, 0.5],
        "a": [None, 1, 2, 3],
        "n": [None, 1, 10],
    }
    return {name: dice.choice(each) for name, each in values.items()}


@pytest.mark.parametrize("null", ["keep", "write"])
@pytest.mark.parametrize("merge", [(), (("n", "sum"),)])
def test_a_folded_batch_has_the_effect_of_its_events_in_turn(null: str, merge: tuple[tuple[str, str], ...]) -> None:
    dice = random.Random(f"{null} {merge}")
    stream = Stream("s", ("a", "n"), ORDER[0], null=null, merge=merge, then_by=ORDER[1:])
    for _ in range(2000 if THOROUGH else 300):
        before = Model((KEY,), [stream])
        for _ in range(dice.randint(0, 3)):
            before.apply("s", dice.choice([UPSERT, UPSERT, CLEARED, DELETED]), [event(dice)])
        batch = [event(dice) for _ in range(dice.randint(1, 5))]
        in_turn, at_once = deepcopy(before), deepcopy(before)
        in_turn.apply("s", UPSERT, batch)
        at_once.apply("s", UPSERT, folded(pa.Table.from_pylist(batch, schema=SCHEMA), stream).to_pylist())
        assert at_once.rows() == in_turn.rows(), batch


@pytest.mark.parametrize("on_delete", ["row", "clear"])
def test_rows_are_the_serial_merge_of_all_events_whenever_they_are_compacted(tmp_path: Path, on_delete: str) -> None:
    dice, schema = random.Random(on_delete), pa.schema([("id", pa.string()), *list(SCHEMA)[1:]])
    given: dict[str, Any] = {"columns": ["a", "n"], "ordering": list(ORDER), "on_delete": on_delete}
    given |= {"merge": {"n": "sum"}, "foreign_readers": False}
    made: dict[str, Any] = {"record_key": "id", "schema": schema, "bucket_count": 1, "streams": {"s": given}}
    with lakelatch.create(str(tmp_path / "t"), env=FakeEnvironment(seed=1), **made) as table:
        stream, model = table.stream("s"), Model(("id",), list(table.streams))
        for number in range(150 if THOROUGH else 60):
            delete = dice.random() < 0.25
            batch = [event(dice) for _ in range(dice.randint(1, 2))]
            batch = [{("id" if name == KEY else name): value for name, value in each.items()} for each in batch]
            if delete:
                batch = [{name: each[name] for name in ("id", *ORDER)} for each in batch]
            (stream.delete if delete else stream.upsert)(batch, batch=("test", number))
            model.apply("s", (DELETED if on_delete == "row" else CLEARED) if delete else UPSERT, batch)
            read = {(row.pop("id"),): row for row in table.read().to_pylist()}
            assert read == model.rows(), number
            for key in "xy":
                for told in table.explain_row(key):
                    cells = {each.column: each.value for each in told.cells if each.column != "id"}
                    assert cells == (read[(key,)] if told.there else {})
            if dice.random() < 0.3:
                table.compact()
