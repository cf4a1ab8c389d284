"""The Avro container inside an instant: exactly one record.

Readers take an empty or torn instant for a broken table or, worse, for an empty commit. So anything but exactly one whole
record of bounded size raises `CorruptTableError`.

Source: the Avro 1.11 specification, "Object Container Files".
"""

from __future__ import annotations

import functools
import hashlib
import io
import zlib
from collections.abc import Collection, Mapping
from typing import Any

from ...errors import CorruptTableError
from ..table import decoder_of, refuse_other
from .avro_schemas import known_shape

_UNPACKED_BYTES_MAX = 1 << 27


def encode_container(schema: Any, record: Mapping[str, Any]) -> bytes:
    """Return an uncompressed Avro container of one record. The sync marker is derived from the content."""
    import fastavro

    content = io.BytesIO()
    fastavro.schemaless_writer(content, schema, record)
    return contained(header_of(schema), content)


def header_of(schema: Any) -> bytes:
    """Return the header of a container with this schema, up to its sync marker."""
    import fastavro

    out = io.BytesIO()
    fastavro.writer(out, schema, [], codec="null", sync_marker=bytes(16))
    return out.getvalue()[:-16]


def contained(header: bytes, content: io.BytesIO) -> bytes:
    """Return the container with this header (`header_of`) around an encoded record."""
    import fastavro

    # A random marker, as encoders choose it, would make two encodings of one record differ.
    marker = hashlib.sha256(content.getbuffer()).hexdigest()[:16].encode()
    out = io.BytesIO()
    out.write(header + marker)
    fastavro.schemaless_writer(out, "long", 1)  # one block of one record
    fastavro.schemaless_writer(out, "bytes", content.getvalue())
    out.write(marker)
    return out.getvalue()


def decode_container(body: bytes, *records: str, name: str, table: str = "") -> dict[str, Any]:
    """Return the one record of an Avro container; ``records`` names Hudi's records that it may be, by default any.

    Raises:
        CorruptTableError: it is not exactly one, whole, or its schema is not that of such a record.
    """
    try:
        return _only_record(io.BytesIO(body), records)
    except Exception as error:  # on torn bytes fastavro's decoder may raise anything
        raise damaged(
            name, f"is torn or not an Avro file of its kind ({type(error).__name__}: {error})", table
        ) from error


def _only_record(file: io.BytesIO, records: Collection[str]) -> dict[str, Any]:
    import fastavro

    header: Any = fastavro.schemaless_reader(file, _container_header(), None)
    schema = _understood(header["meta"]["avro.schema"], tuple(records))
    codec = header["meta"].get("avro.codec", b"null")
    found: list[Any] = []
    while file.tell() < len(file.getbuffer()):
        count: Any = fastavro.schemaless_reader(file, "long", None)
        content: Any = fastavro.schemaless_reader(file, "bytes", None)
        if file.read(16) != header["sync"]:
            raise ValueError("a block does not end where it should")
        if count not in (0, 1) or (found and count):
            raise ValueError(f"it holds {max(count, 2)} records instead of one")
        if count:
            # Anything after the record means that the bytes are not what the schema says.
            inside = io.BytesIO(_unpacked(content, codec))
            found.append(fastavro.schemaless_reader(inside, schema, None))
            if inside.read(1):
                raise ValueError("more follows the record")
    if not found:
        raise ValueError("it holds 0 records instead of one")
    record: dict[str, Any] = found[0]
    return record


@functools.cache
def _container_header() -> Any:
    import fastavro

    meta = {"type": "map", "values": "bytes"}
    sizes = {"magic": 4, "sync": 16}
    magic, sync = ({"name": n, "type": {"type": "fixed", "name": f"{n}_", "size": sizes[n]}} for n in sizes)
    return fastavro.parse_schema(
        {"type": "record", "name": "Header", "fields": [magic, {"name": "meta", "type": meta}, sync]}
    )


@functools.lru_cache(maxsize=64)
def _understood(text: bytes, records: tuple[str, ...]) -> Any:
    """Return the schema of a container as fastavro takes it. Raises ValueError if it is another record's."""
    schema, shape = decoder_of(text, logical=False)
    if shape.kind != "record" or (records and shape.name not in records):
        raise ValueError(f"a {shape.name or shape.kind} instead of {' or '.join(records) or 'a record'}")
    if (known := known_shape(shape.name)) is not None:
        refuse_other(shape, known)
    return schema


def _unpacked(content: bytes, codec: bytes) -> bytes:
    """Return the content uncompressed. Hudi compresses no instant; other writers of Avro use deflate by default."""
    if codec == b"null":
        return content
    if codec != b"deflate":
        raise ValueError(f"compressed with {codec.decode(errors='replace')[:20]}")
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    unpacked = inflate.decompress(content, _UNPACKED_BYTES_MAX)
    if not inflate.eof:
        raise ValueError(f"it is torn, or has more than {_UNPACKED_BYTES_MAX} bytes when unpacked")
    return unpacked


def damaged(name: str, what: str, table: str) -> CorruptTableError:
    """Return the error for an instant with a wrong body."""
    return CorruptTableError(
        f"Instant {name} {what}. No reader can trust the table until it is restored from a copy "
        "or its commit is rolled back; `lakelatch check` tells more",
        instant=name,
        table=table,
    )
