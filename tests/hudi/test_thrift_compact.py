"""Parquet footers are read and written again to the byte, no matter who wrote them."""

import io
import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelatch.hudi.files.row_group_bytes import RawFooter, ending
from lakelatch.hudi.files.thrift_compact import BINARY, I16, I32, I64, LIST, STRUCT, Elements, Field, decode, encode

from ..thorough import THOROUGH

TRUE, FALSE, DOUBLE = 1, 2, 7


def plain(kind: int) -> st.SearchStrategy[Any]:
    sizes = {I16: 15, I32: 31, I64: 63}
    if kind in sizes:
        return st.integers(-(2 ** sizes[kind]), 2 ** sizes[kind] - 1)
    if kind == BINARY:
        return st.binary(max_size=300)
    return st.floats(allow_nan=False) if kind == DOUBLE else st.none()


def fields(below: st.SearchStrategy[Field]) -> st.SearchStrategy[dict[int, Field]]:
    return st.dictionaries(st.integers(-100, 40_000).filter(bool), below, max_size=20)


def lists(kind: int, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Field]:
    return st.lists(values, max_size=20).map(lambda found: Field(LIST, Elements(kind, found)))


SIMPLE = st.sampled_from([TRUE, FALSE, I16, I32, I64, DOUBLE, BINARY]).flatmap(
    lambda kind: plain(kind).map(lambda value: Field(kind, value))
)
STRUCTS = fields(
    st.recursive(
        SIMPLE,
        lambda below: (
            fields(below).map(lambda value: Field(STRUCT, value))
            | lists(STRUCT, fields(below))
            | lists(I64, plain(I64))
            | lists(TRUE, st.sampled_from([1, 2]))
        ),
        max_leaves=20,
    )
)


@given(STRUCTS)
def test_a_struct_reads_back(value: dict[int, Field]) -> None:
    assert decode(encode(value)) == value


@settings(max_examples=300 if THOROUGH else 30)
@given(STRUCTS, st.data())
def test_what_is_torn_or_no_struct_is_a_value_error_or_another_struct(value: dict[int, Field], data: Any) -> None:
    body = bytearray(encode(value))
    place = data.draw(st.integers(0, len(body) - 1))
    body[place] = data.draw(st.integers(0, 255))
    with suppress(ValueError):
        assert isinstance(decode(bytes(body[: data.draw(st.integers(0, len(body)))])), dict)


def test_a_footer_of_hostile_depth_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="no struct"):
        decode(b"\x1c" * 100_000)


def parquet(rows: int = 100, **more: Any) -> bytes:
    at = pa.array(range(rows))
    nested = pa.array(
        [{"a": [n], "b": None} for n in range(rows)], pa.struct({"a": pa.list_(pa.int64()), "b": pa.string()})
    )
    table = pa.table({"at": at, "name": at.cast(pa.string()), "half": at.cast(pa.float64()), "nested": nested})
    body = io.BytesIO()
    pq.write_table(table, body, row_group_size=30, **more)
    return body.getvalue()


@pytest.mark.parametrize(
    "more",
    [{}, {"compression": "zstd", "write_page_checksum": True}, {"write_page_index": True}, {"use_dictionary": False}],
)
def test_the_footer_of_a_parquet_file_is_the_same_after_it_was_read(more: dict[str, Any]) -> None:
    body = parquet(**more)
    size = struct.unpack("<I", body[-8:-4])[0]
    footer = body[-8 - size : -8]
    assert encode(decode(footer)) == footer
    assert RawFooter(footer).joined([0] * 4) == footer
    assert RawFooter.of(io.BytesIO(body)).columns == RawFooter(footer).columns
    assert body.endswith(ending(footer))


@pytest.mark.parametrize("body", [b"", b"PAR1", b"PAR1" * 2, parquet()[:-1], b"\xff\xff\xff\x7fPAR1", b"x" * 100])
def test_what_is_no_parquet_file_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match="the f"):
        RawFooter.of(io.BytesIO(body))
