"""Blocks that are written: read again here, equal to those that the JVM wrote, and refused where no reader could."""

from __future__ import annotations

import io
import json
import re
import struct
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelatch.errors import InputError
from lakelatch.hudi.files import (
    DELETE,
    NATURAL,
    Block,
    avro_block,
    delete_block,
    list_data_files,
    parquet_block,
    read_blocks,
)
from lakelatch.hudi.files.log_blocks import AVRO, PARQUET, _delete_schema
from lakelatch.hudi.files.log_encoding import _block
from lakelatch.hudi.table import META_COLUMNS, with_meta_columns

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
        block = only(delete_block("7", "{}", keys, [arrow]))
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
    assert delete_block("1", "{}", [(k, "", v[1]) for k, v in ordered], [pa.int64()]) == mor.delete_block("1", ordered)
    natural = [(key, ("IntWrapper", 0)) for key in keys]
    assert delete_block("1", "{}", [(key, "", None) for key in keys]) == mor.delete_block("1", natural)
    assert list(only(delete_block("1", "{}", [])).deletes()) == []


@given(st.data())
def test_deletes_that_are_ordered_by_several_columns_are_the_bytes_of_another_encoder(data):
    """In an array the number 0 of 32 bits is a value as any other."""
    wrappers = {"int32": "Int", "date": "Int", "int64": "Long", "double": "Double", "text": "String", "time": "Long"}
    kinds = data.draw(st.lists(st.sampled_from(sorted(wrappers)), min_size=2, max_size=3))
    values = [st.just(0) | TYPES[kind][1] if wrappers[kind] in ("Int", "Long") else TYPES[kind][1] for kind in kinds]
    keys = data.draw(st.lists(st.tuples(st.text(), st.tuples(*values))))
    block = delete_block("1", "{}", [(key, "", value) for key, value in keys], [TYPES[kind][0] for kind in kinds])
    named = [
        (key, ("ArrayWrapper", [(f"{wrappers[kind]}Wrapper", each) for kind, each in zip(kinds, value, strict=True)]))
        for key, value in keys
    ]
    assert block == mor.delete_block("1", named)
    assert list(only(block).deletes()) == keys


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
        delete_block("1", "{}", [("a", "", value)], [] if arrow is None else [arrow])


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


def test_rows_in_avro_are_what_they_were():
    """Also values that Python's own types cannot hold."""
    inner = pa.struct([("day", pa.date32()), ("at", pa.timestamp("us", "UTC"))])
    schema = pa.schema(
        [
            ("flag", pa.bool_()), ("small", pa.int32()), ("large", pa.int64()), ("half", pa.float32()), ("whole", pa.float64()),
            ("text", pa.string()), ("bytes", pa.binary()), ("day", pa.date32()), ("at", pa.timestamp("us", "UTC")),
            ("money", pa.decimal128(30, 4)), ("list", pa.list_(inner)), ("map", pa.map_(pa.string(), inner)), ("inner", inner),
        ]
    )  # fmt: skip
    moment = {"day": date(1582, 1, 1), "at": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)}
    first = [
        True, -(2**31), 2**63 - 1, 0.5, float("-inf"), "{%s} \U0001f600", b"\x00\xff", date(1, 1, 1),
        datetime(1, 1, 1, tzinfo=UTC), Decimal("-12345678901234567890.1234"), [moment, None], [("ü", moment), ("", None)], moment,
    ]  # fmt: skip
    rows = [dict(zip(schema.names, each, strict=True)) for each in (first, [None] * len(schema))]
    table = pa.Table.from_pylist(rows, schema)
    far = pa.array([2**62, -(2**62)]).cast(pa.timestamp("us", "UTC"))
    outside = table.set_column(schema.get_field_index("at"), schema.field("at"), far)
    text = with_meta_columns(schema, "t")
    keys = {name: pa.array(["k", "l"]).dictionary_encode() for name in META_COLUMNS}
    for data in (table, outside):
        wide = pa.table(keys | {name: data.column(name) for name in schema.names})
        block = only(avro_block("3", text, wide, merged=["1", "2"]))
        assert (block.kind, block.instant, block.merged) == (AVRO, "3", ("1", "2"))
        if data is table:
            assert block.rows().select(schema.names).cast(schema) == table
    assert block.rows().column("at").cast(pa.int64()).to_pylist() == far.cast(pa.int64()).to_pylist()
    assert _numbers_of(block, "at") == far.cast(pa.int64()).to_pylist()


def _numbers_of(block: Block, column: str) -> list[int]:
    """Of the rows in Avro, without the calendar of Python's own types."""
    schema = fastavro.parse_schema(
        json.loads(re.sub(r', *"logicalType": *"(timestamp-micros|date)"', "", block.header[2]))
    )
    (count,), at, found = struct.unpack_from(">i", block.content, 4), 8, []
    for _ in range(count):
        (size,) = struct.unpack_from(">i", block.content, at)
        found.append(
            fastavro.schemaless_reader(io.BytesIO(block.content[at + 4 : at + 4 + size]), schema, None)[column]
        )
        at += 4 + size
    return found


TWICE = pa.MapArray.from_arrays([0, 2], pa.array(["k", "k"]), pa.array([1, 2]))
NO_TEXT = pa.Array.from_buffers(
    pa.string(), 1, [None, pa.py_buffer(struct.pack("<ii", 0, 2)), pa.py_buffer(b"\xff\xfe")]
)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (TWICE, "a map that has a key twice"),
        (pa.ListArray.from_arrays([0, 1], TWICE), "a map that has a key twice"),
        (pa.StructArray.from_arrays([TWICE], ["in"]), "a map that has a key twice"),
        (NO_TEXT, "a text that is no UTF-8"),
    ],
)
def test_what_avro_does_not_hold_is_refused(column, said):
    schema = pa.schema([("v", column.type)])
    rows = pa.table({name: ["x"] for name in META_COLUMNS} | {"v": column})
    with pytest.raises(InputError, match=said) as error:
        avro_block("3", with_meta_columns(schema, "t"), rows)
    assert error.value.details["column"] == "v"
