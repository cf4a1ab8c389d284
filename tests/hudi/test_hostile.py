"""Bytes that no honest writer makes are told as damage, soon and in little memory; they never end the process."""

from __future__ import annotations

import io
import itertools
import json
import struct
import zlib

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakelatch.errors import CorruptTableError
from lakelatch.hudi.files.log_blocks import AVRO, DELETE, Block, Torn, read_blocks
from lakelatch.hudi.table.avro_schema import from_avro
from lakelatch.hudi.table.java_properties import parse
from lakelatch.hudi.timeline.avro_schemas import schema_of
from lakelatch.hudi.timeline.commit_metadata import (
    CommitMetadata,
    decode_commit,
    decode_container,
    encode_commit,
    encode_container,
)

from ..occ.mor import block, data_block, rows

NAME = "20240101000000000_20240101000001000.commit"
COMMIT = "HoodieCommitMetadata"


def container(
    schema: object, content: bytes, *, count: int = 1, codec: bytes = b"null", sync: bytes = bytes(16)
) -> bytes:
    """An Avro container of one block, written by hand: no writer would write these."""
    out = io.BytesIO(b"Obj\x01")
    out.seek(4)
    meta = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec}
    fastavro.schemaless_writer(out, {"type": "map", "values": "bytes"}, meta)
    out.write(sync)
    fastavro.schemaless_writer(out, "long", count)
    fastavro.schemaless_writer(out, "bytes", content)
    out.write(sync)
    return out.getvalue()


def record(*fields: object, name: str = COMMIT) -> dict[str, object]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": f"f{n}", "type": each} for n, each in enumerate(fields)],
    }


def number(value: int) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, "long", value)
    return out.getvalue()


def refused(body: bytes, why: str) -> None:
    for decode in (decode_container, lambda body, name: decode_commit(body, name=name, layout=2)):
        with pytest.raises(CorruptTableError, match=why):
            decode(body, name=NAME)


def test_a_schema_that_holds_itself_does_not_end_the_process():
    itself = record(["null", COMMIT])
    refused(container(itself, b"\x02" * 20_000), "holds itself")
    with pytest.raises(CorruptTableError, match="holds itself"):
        block_of(itself, b"\x02" * 20_000).rows()


def test_types_that_are_nested_by_their_names_are_counted_too():
    chain = [record("int", name="r0"), *(record(f"r{n}", name=f"r{n + 1}") for n in range(5000))]
    refused(container(record(chain), b"\x00" * 9), "nested")


def test_a_schema_cannot_grow_beyond_bounds():
    doubled = [record("int", "int", name="r0"), *(record(f"r{n}", f"r{n}", name=f"r{n + 1}") for n in range(25))]
    refused(container(record(doubled), b"\x00" * 9), "types, nested")
    wide = {"type": "record", "name": "t", "fields": [{"name": "a", "type": doubled}, {"name": "b", "type": "r25"}]}
    with pytest.raises(CorruptTableError):
        from_avro(json.dumps(wide))
    with pytest.raises(CorruptTableError):
        from_avro('{"type":"record","name":"t","fields":[{"name":"a","type":' + "[" * 100_000 + "]" * 100_000 + "}]}")
    with pytest.raises(CorruptTableError):
        from_avro(json.dumps(record({"type": "fixed", "name": "x", "size": 1 << 40})))


@pytest.mark.parametrize(
    "item", ["null", record(name="empty"), {"type": "fixed", "name": "x", "size": 0}], ids=["null", "record", "fixed"]
)
def test_millions_of_values_cannot_come_of_a_few_bytes(item):
    body = container(record({"type": "array", "items": item}), number(3_000_000) + b"\x00")
    assert len(body) < 400
    refused(body, "no byte|fixed type x of 0 bytes")


def test_a_container_is_not_unpacked_without_bound():
    bomb = zlib.compressobj(9, wbits=-15)
    packed = bomb.compress(bytes(1 << 28)) + bomb.flush()
    refused(container(record("bytes"), packed, codec=b"deflate"), "bytes when unpacked")
    refused(container(record("bytes"), b"", codec=b"snappy"), "compressed with snappy")


def test_a_deflated_instant_is_read():
    content = io.BytesIO()
    fastavro.schemaless_writer(content, schema_of(COMMIT), {"operationType": "UPSERT"})
    packed = zlib.compress(content.getvalue(), wbits=-15)
    plain = fastavro.reader(io.BytesIO(encode_commit(CommitMetadata(), replace=False))).writer_schema
    assert decode_commit(container(plain, packed, codec=b"deflate"), name=NAME, layout=2).operation == "UPSERT"


def test_an_instant_of_another_kind_is_no_commit():
    """It has none of a commit's fields, and would pass for an empty one."""
    content = {"operations": [], "extraMetadata": {}, "version": 2, "strategy": None, "missingSchedulePartitions": []}
    body = encode_container(schema_of("HoodieCompactionPlan"), content | {"preserveHoodieMetadata": True})
    assert decode_container(body, "HoodieCompactionPlan", name=NAME)["operations"] == []
    with pytest.raises(CorruptTableError, match="HoodieCompactionPlan instead of HoodieCommitMetadata"):
        decode_commit(body, name=NAME, layout=2)


@pytest.mark.parametrize("kind", ["string", {"type": "map", "values": "long"}, ["null", "long"]])
def test_a_field_of_another_type_is_refused(kind):
    schema = {"type": "record", "name": COMMIT, "fields": [{"name": "partitionToWriteStats", "type": kind}]}
    refused(container(schema, b"\x00" * 3), "partitionToWriteStats")


@pytest.mark.parametrize("body", [b'{"schema": ' + b"[" * 100_000, b"[" * 100_000])
def test_json_nested_too_deep_is_damage(body):
    with pytest.raises(CorruptTableError, match="torn or not JSON"):
        decode_commit(body, name="1.commit", layout=1)


@pytest.mark.parametrize(
    "content",
    [
        {"operationType": 7},
        {"extraMetadata": {"schema": [1]}},
        {"extraMetadata": {"k": 1}},
        {"partitionToReplaceFileIds": {"p": [1]}},
        {"partitionToWriteStats": {"p": [{"fileId": 1}]}},
        {"partitionToWriteStats": {"p": [{"numWrites": "many"}]}},
        {"partitionToWriteStats": {"p": [{"logFiles": "a"}]}},
        {"partitionToWriteStats": {"p": [{"logFiles": [1]}]}},
    ],
)
def test_json_of_other_types_is_no_commit(content):
    with pytest.raises(CorruptTableError, match="is not commit metadata"):
        decode_commit(json.dumps(content).encode(), name="1.commit", layout=1)


# --- log files ---------------------------------------------------------------------------------------------------


def block_of(schema: object, content: bytes, *, count: int = 1) -> Block:
    """A data block with one record of these bytes."""
    body = struct.pack(">iii", 3, count, len(content)) + content
    (found,) = read_blocks(block(AVRO, {0: "1", 2: json.dumps(schema)}, body), "log")
    assert isinstance(found, Block)
    return found


def test_a_header_of_two_thousand_million_entries_of_no_length_is_damage():
    entry = struct.pack(">ii", 0, -8)  # the next one begins where this one does
    inner = struct.pack(">iii", 1, AVRO, 2**31 - 1) + entry + struct.pack(">qi", 0, 0)
    body = b"#HUDI#" + struct.pack(">q", len(inner) + 8) + inner + struct.pack(">q", len(inner) + 14)
    assert len(body) < 60
    with pytest.raises(CorruptTableError, match="header that cannot be read"):
        read_blocks(body, "log")


@pytest.mark.parametrize("length", [-4, -1, 2**31 - 1])
def test_rows_of_impossible_length_are_damage(length):
    schema = json.dumps(record("int"))
    body = struct.pack(">iii", 3, 2**31 - 1, length) + b"\x00" * 8
    (found,) = read_blocks(block(AVRO, {0: "1", 2: schema}, body), "log")
    assert isinstance(found, Block)
    with pytest.raises(CorruptTableError, match="cannot be decoded"):
        found.rows()


@pytest.mark.parametrize("content", [b"", b"\x00", struct.pack(">ii", 3, -1), struct.pack(">ii", 3, 9) + b"\x02\xff"])
def test_deletes_that_are_cut_are_damage(content):
    (found,) = read_blocks(block(DELETE, {0: "1"}, content), "log")
    assert isinstance(found, Block)
    with pytest.raises(CorruptTableError, match="cannot be decoded"):
        list(found.deletes())


def test_many_torn_pieces_are_one():
    """Each magic could be the beginning of a block."""
    whole = data_block("1", rows("a", {"k": 1}))
    found = read_blocks(b"#HUDI#" * 50_000 + whole, "log")
    assert found[0] == Torn("log", 0, 300_000)
    assert [type(each) for each in found] == [Torn, Block]


def test_rows_beyond_what_a_type_holds_are_damage():
    huge = {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 0}
    with pytest.raises(CorruptTableError, match="cannot be decoded"):
        block_of(record(huge), number(1000) + b"\x7f" * 1000).rows()
    with pytest.raises(CorruptTableError, match="cannot be decoded"):
        block_of(record({"type": "int", "logicalType": "date"}), number(2**40)).rows()


def test_times_that_python_has_none_for_are_read():
    """Of the years before 1 and after 9999, at all depths and of every unit."""
    units = {"timestamp-micros": "us", "timestamp-millis": "ms", "local-timestamp-micros": "us"}
    for number_of, (name, unit) in itertools.product((2**60, -(2**60)), units.items()):
        zone = None if name.startswith("local") else "UTC"
        kind = {"type": "long", "logicalType": name}
        (found,) = block_of(record(kind), number(number_of)).rows().columns
        assert found.type == pa.timestamp(unit, zone)
        assert found.cast(pa.int64()).to_pylist() == [number_of]
        inner = {"type": "array", "items": kind}
        (found,) = block_of(record(inner), number(1) + number(number_of) + number(0)).rows().columns
        assert pc.list_flatten(found).cast(pa.int64()).to_pylist() == [number_of]
    (found,) = block_of(record({"type": "int", "logicalType": "date"}), number(2**31 - 1)).rows().columns
    assert found.cast(pa.int32()).to_pylist() == [2**31 - 1]


def test_every_type_that_log_files_hold_is_still_read():
    schema = pa.schema(
        [("id", pa.string()), ("part", pa.string()), ("d", pa.decimal128(20, 2)), ("t", pa.timestamp("us", "UTC"))]
    )
    (found,) = read_blocks(data_block("1", [{"id": "a", "part": "p", "d": None, "t": None}], schema=schema), "log")
    assert isinstance(found, Block)
    assert found.rows().select(schema.names).schema.types == schema.types


# --- properties --------------------------------------------------------------------------------------------------


def test_a_line_that_goes_on_and_on_is_read_in_one_pass():
    """Each line joined to all before it would be a hundred thousand million bytes to copy."""
    body = b"a=" + b"x\\\n" * 500_000 + b"end\nb=1\n"
    assert parse(body) == {"a": "x" * 500_000 + "end", "b": "1"}
