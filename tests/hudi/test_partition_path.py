"""Partition values become folders that every reader finds again, or are refused."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import InputError
from lakelatch.hudi.table.config import TableConfig
from lakelatch.hudi.table.partition_path import (
    ELEMENT_BYTES_MAX,
    NULL_PARTITION,
    escape,
    parse_partition_path,
    partition_path,
    partition_paths,
    unescape,
)


def config(*fields: str, hive: bool = False, encode: bool = False) -> TableConfig:
    return TableConfig(
        "t", "COPY_ON_WRITE", 8, 2, partition_fields=fields, keygen="COMPLEX", hive_style=hive, url_encode=encode
    )


@given(st.text())
def test_escaping_loses_nothing(text):
    assert unescape(escape(text)) == text
    assert "/" not in escape(text)


@given(st.lists(st.none() | st.text(), min_size=2, max_size=2), st.booleans(), st.booleans())
def test_a_value_reads_back_or_is_refused(values, hive, encode):
    table = config("a", "b", hive=hive, encode=encode)
    try:
        path = partition_path(values, table)
    except InputError:
        return
    assert not any(part.startswith(".") for part in path.split("/"))
    assert path.count("/") == 1
    assert parse_partition_path(path, table) == {"a": values[0] or None, "b": values[1] or None}


@given(st.lists(st.tuples(st.none() | st.sampled_from(["JFK", "é", ""]), st.none() | st.integers(1, 3)), max_size=20))
def test_a_column_of_values_gives_the_paths_of_its_rows(rows):
    table = config("a", "b", hive=True)
    columns = {
        "a": pa.array([row[0] for row in rows], pa.string()),
        "b": pa.array([row[1] for row in rows], pa.int64()),
    }
    paths = partition_paths(pa.table(columns), table)
    assert paths.to_pylist() == [partition_path(row, table) for row in rows]


@pytest.mark.parametrize(
    ("value", "hive", "encode", "path"),
    [
        ("JFK", False, False, "JFK"),
        ("JFK", True, False, "p=JFK"),
        (None, False, False, NULL_PARTITION),
        ("", True, True, f"p={NULL_PARTITION}"),
        ("a/b", True, True, "p=a%2Fb"),
        ("a=b:c%", False, True, "a%3Db%3Ac%25"),
        ("São Paulo", True, True, "p=São Paulo"),
        ("a=b", True, False, "p=a=b"),
        ("x\ny", False, True, "x%0Ay"),
        (".x", True, False, "p=.x"),
        (7, True, False, "p=7"),
        (True, True, False, "p=true"),
        (dt.date(2024, 1, 17), False, False, "2024-01-17"),
        (decimal.Decimal("1.50"), False, False, "1.50"),
    ],
)
def test_values_are_spelled_as_hudi_spells_them(value, hive, encode, path):
    assert partition_path([value], config("p", hive=hive, encode=encode)) == path


@pytest.mark.parametrize("hive", [False, True])
@pytest.mark.parametrize(
    "value",
    [
        "a/b",
        "..",
        "../up",
        "a/../b",
        "..\\up",
        "a\\b",
        "nul\0",
        "tab\t",
        "x" * 300,
        "é" * 128,
        "\ud800",
        NULL_PARTITION,
    ],
)
def test_values_that_are_no_folder_are_refused(value, hive):
    with pytest.raises(InputError, match="column 'p'"):
        partition_path([value], config("p", hive=hive))


@pytest.mark.parametrize("value", ["..", "../up", ".x", "x" * 300, "/" * 100])
def test_encoding_does_not_make_every_value_fit(value):
    with pytest.raises(InputError):
        partition_path([value], config("p", encode=True))


def test_the_longest_folder_name():
    assert len(partition_path(["x" * ELEMENT_BYTES_MAX], config("p"))) == ELEMENT_BYTES_MAX


def test_an_unpartitioned_table_has_one_path():
    assert partition_path([], config()) == ""
    assert parse_partition_path("", config()) == {}
    assert partition_paths(pa.table({"x": [1, 2]}), config()).to_pylist() == ["", ""]


def test_dictionary_and_chunked_columns():
    chunked = pa.chunked_array([pa.array(["a", None]).dictionary_encode(), pa.array(["b"]).dictionary_encode()])
    assert partition_paths(pa.table({"p": chunked}), config("p")).to_pylist() == ["a", NULL_PARTITION, "b"]


@pytest.mark.parametrize("kind", [pa.float64(), pa.timestamp("us", "UTC"), pa.binary(), pa.list_(pa.string())])
def test_types_that_readers_spell_differently_are_refused(kind):
    with pytest.raises(InputError, match="cannot be a partition column"):
        partition_paths(pa.table({"p": pa.array([None], kind)}), config("p"))


def test_a_missing_column_is_named():
    with pytest.raises(InputError, match="no column 'p'"):
        partition_paths(pa.table({"x": [1]}), config("p"))


def test_paths_of_another_depth():
    assert parse_partition_path("2024/01/17", config("day")) == {"day": "2024/01/17"}
    with pytest.raises(InputError, match="3 levels"):
        parse_partition_path("a/b/c", config("a", "b"))


def test_the_columns_of_a_config_are_what_counts():
    assert partition_path(["x", 1], dataclasses.replace(config("a", "b"), hive_style=True)) == "a=x/b=1"
