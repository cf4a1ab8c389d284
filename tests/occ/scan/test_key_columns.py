"""Slices with log files, read by the field of the record key instead of the record key: as with both, whatever is in them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.hudi.merge import merged_rows
from lakelatch.hudi.table import RECORD_KEY
from lakelatch.streams import slice_rows

KEYS = {
    "bigint": range(-3, 60),
    "int": range(-3, 60),
    "string": [f"k\U0001f600{n}" for n in range(60)],
    "date": range(60),
}


def seen(rows: pa.Table, names: list[str]) -> list[dict[str, Any]]:
    return sorted(rows.select(names).to_pylist(), key=str)


def check(table: lakelatch.Table) -> None:
    names = ["id", "n", "at"]
    slices = [each for each in table.snapshot().file_slices() if each.logs]
    for each in slices:
        with_keys = merged_rows(table.store, table.config, each, columns=[RECORD_KEY, *names], meta=False)
        assert seen(merged_rows(table.store, table.config, each, columns=names, meta=False), names) == seen(
            with_keys, names
        )
    assert slices


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("ordering", [None, "at"])
def test_rows_are_those_that_the_record_key_gives(folder: Path, kind: str, ordering: str | None) -> None:
    pick = random.Random(f"{kind} {ordering}")
    given = {"type": "merge_on_read", "bucket_count": 2, "ordering_field": ordering}
    schema = f"id {kind}, n string, at bigint"
    with lakelatch.create(str(folder / "t"), record_key="id", schema=schema, **given) as table:
        kinds = table.schema()
        assert kinds is not None

        def rows() -> pa.Table:
            some = pick.sample(list(KEYS[kind]), 20)
            columns = {
                "id": some,
                "n": [pick.choice([None, "", "x"]) for _ in some],
                "at": [pick.randrange(4) for _ in some],
            }
            return pa.table({name: pa.array(each, kinds.field(name).type) for name, each in columns.items()})

        table.upsert(rows())
        for _ in range(3):
            table.upsert(rows())
        check(table)
        table.delete(rows().select(["id", "at"] if ordering else ["id"]).slice(0, 5))
        check(table)
        if kind == "int":  # the base files hold the narrow type
            table.compact()
            table.widen_column("id", "bigint")
            table.upsert([{"id": 2**40, "n": "far", "at": 9}, {"id": 5, "n": "near", "at": 9}])
            check(table)


@pytest.mark.parametrize("given", [{"type": "merge_on_read"}, {"streams": {"s": {"columns": "n", "ordering": "at"}}}])
def test_the_record_key_is_not_read_where_its_field_tells_rows_apart(folder: Path, given: dict[str, Any]) -> None:
    schema = "id string, n string, at bigint"
    with lakelatch.create(str(folder / "t"), record_key="id", schema=schema, bucket_count=1, **given) as table:
        write = table.stream("s").upsert if table.streams else table.upsert
        write([{"id": "a", "n": "x", "at": 1}])
        table.compact()
        write([{"id": "a", "n": "y", "at": 2}, {"id": "b", "n": "z", "at": 1}])
        (each,) = table.snapshot().file_slices()
        for columns, needs in ((["id", "n"], False), (["n"], True)):
            rows = slice_rows(table.store, table.config, table.streams, each, columns=columns, meta=False)
            assert sorted(rows["n"].to_pylist()) == ["y", "z"]
            assert (RECORD_KEY in rows.column_names) == needs
