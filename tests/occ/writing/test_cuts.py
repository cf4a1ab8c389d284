"""The same rows cut into writes in every way: a row of the table is what they make of it one after the other.

Every key has a story of its own, and all stories of that length are there, so that a row is late, null or one of several
equal ones at every place.
"""

from __future__ import annotations

from functools import reduce
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.testing import FakeEnvironment
from tests.mergers.model import MODEL, place

from .test_merge_rules import Row

LENGTH = 3
CUTS = [[n for n in range(1, LENGTH) if cuts & 1 << n - 1] for cuts in range(2 ** (LENGTH - 1))]
LISTS = ("collect_list(3)", "collect_set(3)", "top_n(2)")
IN_ORDER = (
    "first",
    "first_non_null",
    "collect_list(3)",
    "merge_map",
    "listagg(', ')",
    "nested_update('name')",
)  # refused where rows may come late
TIMES = [1, 2, 3]


def columns_of(ordering: bool) -> dict[str, str]:
    specs = [spec for spec in MODEL if "by=" not in spec and not (ordering and spec in IN_ORDER)]
    return {f"c{number}": spec for number, spec in enumerate(specs)}


def kind_of(spec: str) -> pa.DataType:
    if spec == "merge_map":
        return pa.map_(pa.string(), pa.int64())
    if spec.startswith("nested_update"):
        return pa.list_(pa.struct([("name", pa.string()), ("step", pa.int64())]))
    if spec == "product":
        return pa.float64()
    if spec.startswith("listagg"):
        return pa.string()
    return pa.bool_() if spec.startswith("bool") else pa.list_(pa.int64()) if spec in LISTS else pa.int64()


def stories(columns: dict[str, str], times: list[float]) -> list[list[Row]]:
    found = []
    for number, told in enumerate(product(product(times, (False, True)), repeat=LENGTH)):
        rows = []
        for step, (at, null) in enumerate(told, 2):
            row: Row = {"id": f"k{number}", "at": at, "plain": step}
            for name, spec in columns.items():
                value: Any = step > 2 if spec.startswith("bool") else [step] if spec in LISTS else step
                if spec == "merge_map":
                    value = [(str(step % 2), step)]  # the third replaces the first
                if spec.startswith("nested_update"):
                    value = [{"name": str(step % 2), "step": step}]
                if spec.startswith("listagg"):
                    value = str(step)
                row[name] = None if null else value
            rows.append(row)
        found.append(rows)
    return found


def one_more(columns: dict[str, str], ordering: bool, ties: str, old: Row, new: Row) -> Row:
    late = ordering and (place(new["at"]) < place(old["at"]) or (ties == "first" and new["at"] == old["at"]))
    rows = [new, old] if late else [old, new]
    merged = {name: sum(row[name] for row in rows) if spec == "count" else MODEL[spec]([row[name] for row in rows])
              for name, spec in columns.items()}  # fmt: skip
    return rows[-1] | merged


def lifted(columns: dict[str, str], row: Row) -> Row:
    return row | {name: int(row[name] is not None) for name, spec in columns.items() if spec == "count"}


@pytest.mark.parametrize(("ordering", "ties"), [(False, "last"), (True, "last"), (True, "first")])
@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_a_row_is_what_was_written_one_after_the_other_wherever_it_is_cut(
    tmp_path: Any, kind: str, ordering: bool, ties: str
) -> None:
    columns = columns_of(ordering)
    told = stories(columns, TIMES)
    expected = {
        rows[0]["id"]: reduce(
            lambda old, new: one_more(columns, ordering, ties, old, new), [lifted(columns, each) for each in rows]
        )
        for rows in told
    }
    schema = pa.schema([("id", pa.string()), ("at", pa.int64()), ("plain", pa.int64())])
    for name, spec in columns.items():
        schema = schema.append(pa.field(name, kind_of(spec)))
    given: dict[str, Any] = {"type": kind, "table_version": 9, "merge": columns, "schema": schema, "bucket_count": 1}
    given |= {"ordering_field": "at", "ties": ties} if ordering else {}
    for number, cuts in enumerate(CUTS):
        url = str(tmp_path / f"{number}")
        with lakelatch.create(url, record_key="id", env=FakeEnvironment(seed=1), **given) as table:
            for part, (start, end) in enumerate(zip([0, *cuts], [*cuts, LENGTH], strict=True)):
                table.upsert(pa.Table.from_pylist([row for each in told for row in each[start:end]], schema))
                if part == number % 2 and kind == "merge_on_read":
                    table.compact()
            found = {row["id"]: row for row in table.read().to_pylist()}
        wrong = [key for key in expected if found[key] != expected[key]]
        assert not wrong, (cuts, told[int(wrong[0][1:])], found[wrong[0]], expected[wrong[0]])
