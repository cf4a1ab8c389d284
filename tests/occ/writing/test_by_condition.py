"""Deletions and reads by a condition, in every form that one can be given in; on partitions by their values."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lakelatch
from lakelatch.conditions import condition_on
from lakelatch.errors import ConflictError, InputError
from lakelatch.hudi.table import partition_path

SCHEMA = pa.schema([("id", pa.string()), ("city", pa.string()), ("n", pa.int32()), ("x", pa.float64())])
ODD = "50% {off} ü \U0001f600"
ROWS = [
    {"id": "a", "city": "Oslo", "n": 1, "x": 1.0},
    {"id": "b", "city": "Oslo", "n": 2, "x": float("nan")},
    {"id": "c", "city": "Rome", "n": 0, "x": None},
    {"id": "d", "city": None, "n": None, "x": -0.0},
    {"id": "e", "city": ODD, "n": 5, "x": 5.0},
]


@pytest.fixture
def table(tmp_path: Any) -> Any:
    with lakelatch.create(str(tmp_path / "t"), record_key="id", partition_by="city", schema=SCHEMA) as made:
        with made.transaction() as txn:
            txn.upsert(pa.Table.from_pylist(ROWS, SCHEMA))
        yield made


def ids(table: Any) -> str:
    slices = table.snapshot().file_slices()
    return "".join(sorted(id_ for each in slices for id_ in table.session.read_slice(each)["id"].to_pylist()))


@pytest.mark.parametrize(
    ("where", "left"),
    [
        ("n < 2", "bde"),
        ([("n", "<", 2)], "bde"),
        (pc.field("n") < 2, "bde"),
        (condition_on(SCHEMA, "n < 2"), "bde"),
        ("x > 1 or city = 'Rome'", "ad"),
        ("city is null", "abce"),
        ("city in ('Oslo', 'Nowhere') and n > 1", "acde"),
        (f"city = '{ODD}'", "abcd"),
        ("not (city = 'Oslo' or n = 5)", "abde"),
        ("n <> 0 and 10 / n > 4", "cde"),
        ("false", "abcde"),
        ("x = 0", "abce"),
        (pc.field("city") == "Oslo", "cde"),
        ("length(city) = 4 and city like '%o'", "cde"),
    ],
)
def test_a_condition_deletes_the_rows_that_it_says(table: Any, where: Any, left: str) -> None:
    with table.transaction() as txn:
        txn.delete_where(where)
    assert ids(table) == left


@pytest.mark.parametrize(
    ("partition", "left"),
    [
        ("city=Oslo", "cde"),
        ({"city": "Oslo"}, "cde"),
        ({"city": ODD}, "abcd"),
        ({"city": None}, "abce"),
    ],
)
def test_a_deletion_in_one_partition_leaves_the_others_alone(table: Any, partition: Any, left: str) -> None:
    with table.transaction() as txn:
        txn.delete_where("coalesce(n, 1) >= 0", partition=partition)
    assert ids(table) == left
    with table.transaction() as txn:
        txn.delete_all(partition=partition)
    assert ids(table) == left


@pytest.mark.parametrize("partition", [{}, {"n": 1}, {"city": 5}, {"city": "Nowhere"}, "Oslo"])
def test_a_deletion_in_no_partition_is_refused(table: Any, partition: Any) -> None:
    with pytest.raises(InputError), table.transaction() as txn:
        txn.delete_where("n >= 0", partition=partition)
    assert ids(table) == "abcde"


@pytest.mark.parametrize("where", ["n / 0 > 1", "10 / n > 1", "nam = 'x'", "n = 'x'", "n <", "n + 2147483647 > 0"])
def test_a_condition_without_a_meaning_deletes_nothing(table: Any, where: str) -> None:
    with pytest.raises(InputError), table.transaction() as txn:
        txn.delete_where(where)
    assert ids(table) == "abcde"


def test_a_partition_by_value_needs_a_table_with_columns(tmp_path: Any) -> None:
    with lakelatch.create(str(tmp_path / "new"), record_key="id", partition_by="city") as new:
        with pytest.raises(InputError, match="no columns yet"), new.transaction() as txn:
            txn.delete_all(partition={"city": "Oslo"})
        with pytest.raises(InputError, match="no column 'n'"), new.transaction() as txn:
            txn.delete_where("n = 1")


@pytest.mark.parametrize(
    ("where", "cities"),
    [
        ("city = 'Oslo' and n > 0", ["Oslo"]),
        ("city like 'R%' or city is null", ["Rome", None]),
        ("upper(city) = 'ROME'", ["Rome"]),
        ("city <> 'Oslo' and n * 1 = n", ["Rome", ODD]),
        ("city = 'Oslo' or n = 5", ["Oslo", "Rome", None, ODD]),
        ("city = 'Nowhere'", []),
        ("city in ('Oslo', null) and x = x", ["Oslo"]),
    ],
)
def test_a_condition_reads_no_partition_that_its_values_exclude(
    table: Any, where: str, cities: list[str | None]
) -> None:
    expected = {partition_path([each], table.config) for each in cities}
    with table.transaction() as txn:
        assert {each.partition for each in txn.depends_on(None, where=where)} == expected
        assert {each.partition for each in txn.mark_scanned(None, where=where)} == expected


@pytest.mark.parametrize(("city", "lands"), [("Rome", True), ("Oslo", False)])
def test_who_deletes_in_some_partitions_does_not_mind_what_appears_in_others(
    table: Any, city: str, lands: bool
) -> None:
    row = {"id": "new", "city": city, "n": 9, "x": 1.0}
    txn = table.transaction("delete", isolation="serializable")
    txn.delete_where("city = 'Oslo' and n * 2 > 2")
    with lakelatch.open(table.url) as other, other.transaction("insert") as between:
        between.upsert(pa.Table.from_pylist([row], SCHEMA))
    if lands:
        txn.commit()
        assert sorted(ids(table)) == sorted("acde" + "new")
    else:
        with pytest.raises(ConflictError):
            txn.commit()


def test_a_row_that_comes_meanwhile_is_deleted_by_the_same_condition(table: Any) -> None:
    txn = table.transaction("delete")
    txn.delete_where("n % 2 = 1 and city like 'Osl_'")
    rows = [{"id": id_, "city": "Oslo", "n": n, "x": None} for id_, n in (("f", 7), ("g", 8))]
    with lakelatch.open(table.url) as other, other.transaction() as between:
        between.upsert(pa.Table.from_pylist(rows, SCHEMA))
    txn.commit()
    assert ids(table) == "bcdeg"
