"""Tables that several fields order: the JVM and we write one table in turn, and both read the same after every commit."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch

from ..occ.mor import Mor, at, data_block, delete_block
from ..thorough import crossed, some
from .cases import WRITE_OPTIONS
from .readers import ask_jvm, by_us, in_order

pytestmark = pytest.mark.jvm

Row = dict[str, Any]


def time(number: int) -> dt.datetime:
    return dt.datetime(2026, 1, 1 + number, 1, 2, 3, 456, dt.UTC)


# The two fields in Spark's words and in Arrow's, and a value of each.
KINDS: dict[str, tuple[str, list[pa.DataType], Any, Any]] = {
    "a number and a text": ("a bigint, b string", [pa.int64(), pa.string()], int, "n{}".format),
    "a time and a number": ("a timestamp, b double", [pa.timestamp("us", "UTC"), pa.float64()], time, float),
}
# By both fields: newer by the second one, older by it, newer by the first one alone, the same, older by the first one alone.
STEPS = {"k0": (5, 6), "k1": (5, 4), "k2": (6, 1), "k3": (5, 5), "k4": (4, 9)}
NEWER = {"k0", "k2", "k3"}


class Shared:
    """A table that the JVM has made, and what it should hold."""

    def __init__(self, folder: Path, kind: str, type_: str) -> None:
        columns, self._types, self._a, self._b = KINDS[kind]
        self.path, self._folder, self._columns = folder / "t", folder, columns
        self.options = {key: value for key, value in WRITE_OPTIONS.items() if "partition" not in key} | {
            "hoodie.table.name": "t",
            "hoodie.write.table.version": "9",
            "hoodie.datasource.write.table.type": type_,
            "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
            "hoodie.datasource.write.precombine.field": "a,b",
            "hoodie.index.type": "SIMPLE",
            "hoodie.compact.inline": "false",
        }
        self.now: dict[str, str] = {}

    def row(self, key: str, a: int, b: int, v: str) -> Row:
        return {"id": key, "a": self._a(a), "b": self._b(b), "v": v}

    def ask(self, request: Row) -> None:
        """Both read what should be there, after the JVM has done this."""
        (answer,) = ask_jvm([{"path": str(self.path)} | request], self._folder)
        assert "rows" in answer, answer["error"]
        assert in_order(answer["rows"]) == in_order(by_us(self.path))
        assert {row["id"]: row["v"] for row in answer["rows"]} == self.now

    def agree(self) -> None:
        self.ask({"kind": "snapshot"})

    def put_by_jvm(self, rows: list[Row], *, operation: str = "upsert", marked: bool | None = None) -> None:
        """With ``marked`` the rows say so: True deletes what is not newer."""
        schema = f"id string, {self._columns}, v string"
        told = [
            {key: value if isinstance(value, int | float) else str(value) for key, value in row.items()} for row in rows
        ]
        if marked is not None:
            schema += ", _hoodie_is_deleted boolean"
            told = [row | {"_hoodie_is_deleted": marked} for row in told]
        options = self.options | {"hoodie.datasource.write.operation": operation}
        self.ask({"kind": "upsert", "rows": told, "schema": schema, "options": options})

    def arrow(self, rows: list[Row]) -> pa.Table:
        fields = zip(("id", "a", "b", "v"), (pa.string(), *self._types, pa.string()), strict=True)
        return pa.Table.from_pylist(rows, pa.schema(list(fields)))

    def steps(self, v: str, prefix: str = "") -> list[Row]:
        """Rows for the keys with this prefix, and what becomes of the table by them."""
        self.now |= {prefix + key: v for key in NEWER}
        return [self.row(prefix + key, a, b, v) for key, (a, b) in STEPS.items()]

    def first(self, *prefixes: str) -> list[Row]:
        keys = [prefix + key for prefix in prefixes for key in STEPS]
        self.now = dict.fromkeys(keys, "first")
        return [self.row(key, 5, 5, "first") for key in keys]

    def deletes(self, prefix: str) -> list[Row]:
        """Rows that delete by the same steps."""
        for key in NEWER:
            del self.now[prefix + key]
        return [self.row(prefix + key, a, b, "") for key, (a, b) in STEPS.items()]


TYPES = ["COPY_ON_WRITE", "MERGE_ON_READ"]


@pytest.mark.parametrize(("kind", "type_"), some(crossed(KINDS, TYPES), 1))
def test_the_jvm_and_we_write_one_table_in_turn(tmp_path: Path, kind: str, type_: str) -> None:
    shared, merge_on_read = Shared(tmp_path, kind, type_), type_ == "MERGE_ON_READ"
    shared.put_by_jvm(shared.first("jvm ", "us ", "gone "))
    shared.put_by_jvm(shared.steps("by the jvm", "jvm "))
    with lakelatch.adopt(str(shared.path)) as table:
        shared.agree()
        table.upsert(shared.arrow(shared.steps("by us", "us ")))
        shared.agree()
        table.delete(shared.arrow(shared.deletes("gone ")).drop_columns(["v"]))
        shared.agree()
        if merge_on_read:
            assert table.compact_logs(min_logs=2)
            shared.agree()
            planned = table.plan_compaction()
            assert planned
            shared.ask({"kind": "compact", "instant": planned})
    del shared.now["gone k1"]
    shared.put_by_jvm([shared.row("gone k1", 0, 0, "")], operation="delete")  # of whatever there is
    again = [key for key in shared.now if key.startswith("jvm ")]
    shared.now |= dict.fromkeys([*again, "us k2"], "again")
    shared.put_by_jvm([shared.row(key, 7, 0, "again") for key in [*again, "us k2"]])
    with lakelatch.adopt(str(shared.path)) as table:
        table.upsert(shared.arrow([shared.row("us k2", 6, 9, "late"), shared.row("us k0", 7, 1, "by us again")]))
        shared.now |= {"us k0": "by us again"}
        shared.agree()
        assert bool(table.compact()) == merge_on_read
        shared.agree()


@pytest.mark.thorough
@pytest.mark.parametrize("type_", some(TYPES, 1))
def test_deletes_that_the_jvm_orders_by_several_fields(tmp_path: Path, type_: str) -> None:
    shared = Shared(tmp_path, "a number and a text", type_)
    shared.put_by_jvm(shared.first("kept ", "gone "), marked=False)
    shared.put_by_jvm(shared.deletes("gone "), marked=True)
    shared.put_by_jvm(shared.steps("again", "gone "), marked=False)


@pytest.mark.thorough
def test_log_compactions_of_such_deletes_are_read_by_the_jvm(tmp_path: Path) -> None:
    """And of those that are ordered by a date among several fields, which the JVM writes and fails to read itself."""
    types = [pa.date32(), pa.int32(), pa.timestamp("us", "UTC"), pa.string()]
    named = ["IntWrapper", "IntWrapper", "LongWrapper", "StringWrapper"]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), *zip("abcd", types, strict=True)])
    mor = Mor(tmp_path / "t", version=9, ordering=list("abcd"), columns=schema)

    def values(*numbers: int) -> list[Any]:
        return [
            dt.date(1970, 1, 1) + dt.timedelta(numbers[0]),
            numbers[1],
            epoch + dt.timedelta(0, 0, numbers[2]),
            f"n{numbers[3]}",
        ]

    def rows(place: str) -> list[Row]:
        keys = [f"{place}{number}" for number in range(len(cases))]
        return [{"id": key, "part": "a"} | dict(zip("abcd", values(0, 0, 0, 5), strict=True)) for key in keys]

    cases = [
        (0, 0, 0, 5),
        (0, 0, 0, 4),
        (0, 0, 0, 6),
        (0, 0, -1, 9),
        (0, -1, 9, 9),
        (-1, 9, 9, 9),
        (0, 1, 0, 0),
        (1, 0, 0, 0),
    ]
    wanted = sorted(f"{place}{number}" for place in "bl" for number, case in enumerate(cases) if case < cases[0])
    mor.base(at(1), at(2), "a", rows("b"))
    mor.log(at(3), at(4), "a", data_block(at(3), rows("l"), schema=schema))
    for number, place in enumerate("bl"):
        deletes = [
            (f"{place}{n}", ("ArrayWrapper", list(zip(named, [*case[:3], f"n{case[3]}"], strict=True))))
            for n, case in enumerate(cases)
        ]
        mor.log(at(5 + 2 * number), at(6 + 2 * number), "a", delete_block(at(5 + 2 * number), deletes))

    def agree() -> None:
        (answer,) = ask_jvm([{"path": str(mor.folder), "kind": "snapshot"}], tmp_path)
        assert in_order(answer["rows"]) == in_order(by_us(mor.folder))
        assert sorted(row["id"] for row in answer["rows"]) == wanted

    agree()
    with lakelatch.adopt(str(mor.folder)) as table:
        assert table.compact_logs(min_logs=3)
        agree()
        assert table.compact()
    agree()


@pytest.mark.thorough
def test_the_jvm_fails_on_a_null_among_several_ordering_fields(tmp_path: Path) -> None:
    """When it writes the row again, which is why neither type of table holds one."""
    answers = []
    for name, change in (("null", {"b": None}), ("filled", {})):
        path = tmp_path / name
        shared = Shared(path, "a number and a text", "COPY_ON_WRITE")
        path.mkdir()
        schema = "id string, a bigint, b string, v string"
        options = shared.options
        rows = [shared.row("x", 5, 5, "first") | change, shared.row("x", 5, 6, "second")]
        asked = [
            {"path": str(shared.path), "kind": "upsert", "rows": [row], "schema": schema, "options": options}
            for row in rows
        ]
        answers += ask_jvm(asked, path)
    assert ["rows" in answer for answer in answers] == [True, False, True, True]
    assert "ClassCastException" in answers[1]["error"] or "NullPointerException" in answers[1]["error"]
