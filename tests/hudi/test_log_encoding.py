"""Blocks that are written: read again here, equal to those that the JVM wrote, and refused where no reader could."""

from __future__ import annotations

import io
import struct
from decimal import Decimal

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import InputError
from lakelatch.hudi.files import DELETE, NATURAL, Block, delete_block, list_data_files, parquet_block, read_blocks
from lakelatch.hudi.files.log_blocks import PARQUET, _delete_schema
from lakelatch.hudi.files.log_encoding import _block

from ..occ import mor

TYPES = {
    "bool": (pa.bool_(), st.booleans()),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1).filter(bool)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "bytes": (pa.binary(), st.binary()),
    "text": (pa.string(), st.text()),
    "date": (pa.date32(), st.integers(-(2**31), 2**31 - 1).filter(bool)),
    "decimal": (pa.decimal128(30, 15), st.decimals(-(10**14), 10**14, places=15)),
    "time": (pa.timestamp("us", "UTC"), st.integers(-(2**63), 2**63 - 1)),
}


def only(body: bytes) -> Block:
    (found,) = read_blocks(body, "log")
    assert isinstance(found, Block)
    return found


@pytest.mark.parametrize("kind", TYPES)
def test_ordered_deletes_are_read_as_they_were_written(kind):
    """By our reader and by a decoder of Avro that knows nothing of this one; with deletes of every version between them."""
    arrow, values = TYPES[kind]

    @given(st.lists(st.tuples(st.text(), st.text(), st.none() | values)))
    def check(keys):
        block = only(delete_block("7", "{}", keys, arrow))
        assert (block.kind, block.instant) == (DELETE, "7")
        natural = [(key, NATURAL if value is None else value) for key, _, value in keys]
        assert list(block.deletes()) == natural
        length = struct.unpack_from(">i", block.content, 4)[0]
        listed = fastavro.schemaless_reader(io.BytesIO(block.content[8 : 8 + length]), _delete_schema(), None)
        assert [(r["recordKey"], r["partitionPath"]) for r in listed["deleteRecordList"]] == [
            (k, p) for k, p, _ in keys
        ]

    check()


def test_deletes_are_the_bytes_of_another_encoder():
    keys = ["a", "", "\U0001f512", "%{}"]
    ordered = [(key, ("LongWrapper", value)) for key, value in zip(keys, (0, -1, 2**62, 5), strict=True)]
    assert delete_block("1", "{}", [(k, "", v[1]) for k, v in ordered], pa.int64()) == mor.delete_block("1", ordered)
    natural = [(key, ("IntWrapper", 0)) for key in keys]
    assert delete_block("1", "{}", [(key, "", None) for key in keys]) == mor.delete_block("1", natural)
    assert list(only(delete_block("1", "{}", [])).deletes()) == []


@pytest.mark.parametrize(
    ("arrow", "value", "said"),
    [
        (pa.int32(), 0, "takes|take that number"),
        (pa.date32(), 0, "first day of 1970"),
        (pa.decimal128(38, 18), Decimal("0.000000000000000001"), "15 behind it"),
        (pa.decimal128(38, 0), Decimal(10**15), "15 digits before"),
        (pa.list_(pa.int64()), [1], "ordering column is of type list"),
        (None, 1, "of type None"),
    ],
)
def test_what_orders_no_delete_is_refused(arrow, value, said):
    with pytest.raises(InputError, match=said):
        delete_block("1", "{}", [("a", "", value)], arrow)


def test_rows_in_parquet():
    rows, body = pa.table({"id": ["a", None], "v": [float("nan"), 1.0]}), io.BytesIO()
    pq.write_table(rows, body)
    block = only(parquet_block("3", '{"type": "record"}', body.getvalue()))
    assert (block.kind, block.instant, block.header[2]) == (PARQUET, "3", '{"type": "record"}')
    assert block.content == body.getvalue()
    assert block.rows().column("id").to_pylist() == ["a", None]


def test_blocks_that_the_jvm_wrote_are_the_same_bytes_again(table):
    """Whatever they hold, so the frame is the JVM's."""
    for log in list_data_files(table.store).logs:
        body = table.store.get(log.path).body
        blocks = read_blocks(body, log.path)
        assert blocks
        assert b"".join(_block(each.kind, each.header, each.content) for each in blocks) == body, log.path
