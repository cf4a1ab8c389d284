"""Commit metadata: the content of a completed commit, to the body of an instant and back.

Layout 2 stores it as an Avro container of one record, layout 1 as JSON with the same names. Readers match fields by name.

Source: schemas inside instants that Hudi 1.0 to 1.2 wrote; a test compares them field by field.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from ...errors import CorruptTableError
from ..files import join
from ..table import decoder_of, refuse_other
from .avro_schemas import known_shape, schema_of, write_stats

# The Avro container inside an instant: exactly one record.
#
# Readers take an empty or torn instant for a broken table or, worse, for an empty commit. So anything but exactly one whole
# record of bounded size raises `CorruptTableError`.
#
# Source: the Avro 1.11 specification, "Object Container Files".

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


NO_PREVIOUS_COMMIT = "null"  # the JVM writes the word


@dataclass(frozen=True, slots=True)
class WriteStat:
    """The changes of a commit to one file. ``path`` is relative to the table, sizes are bytes.

    ``facts`` (`occ.log.FileFacts`) is kept in our commit log only, not on the timeline. ``whole`` counts inserts, updates and
    deletes since the transaction began, if it wrote these rows before; the ``num_*`` fields then count the last write only,
    until the file is staged.
    """

    file_id: str
    path: str
    partition: str
    prev_commit: str = NO_PREVIOUS_COMMIT
    num_writes: int = 0
    num_inserts: int = 0
    num_updates: int = 0
    num_deletes: int = 0
    total_write_bytes: int = 0
    file_size: int = 0
    errors: int = 0
    prev_base_file: str | None = None
    base_file: str | None = None
    log_files: tuple[str, ...] | None = None
    log_version: int | None = None
    log_offset: int | None = None
    min_event_time: int | None = None
    max_event_time: int | None = None
    facts: Any = field(default=None, compare=False, repr=False)
    whole: tuple[int, int, int] | None = field(default=None, compare=False, repr=False)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of its file and all its log files."""
        logs = (
            join(self.partition, name.rpartition("/")[2]) for name in self.log_files or ()
        )  # the JVM writes some of them as whole paths
        return tuple(dict.fromkeys((self.path, *logs)))


@dataclass(frozen=True, slots=True, weakref_slot=True)
class CommitMetadata:
    """The content of one completed commit.

    Attributes:
        operation: Hudi's name of the operation (UPSERT, INSERT_OVERWRITE, CLUSTER ...), None when unknown.
        schema: Avro JSON of the data columns.
        extra: further entries of extraMetadata, the schema left out.
        stats: one entry for each file written.
        replaced: partition -> file ids that readers drop from then on; only a replacecommit has them.
    """

    operation: str | None = None
    schema: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    stats: tuple[WriteStat, ...] = ()
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    compacted: bool = False

    def places(self) -> Iterator[str]:
        """Yield the paths of its files, and one path in each partition with replaced file groups."""
        yield from (stat.path for stat in self.stats if stat.path)
        yield from (join(partition, "any") for partition in self.replaced)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a log entry; fields at their default are left out."""
        value: dict[str, Any] = {"operation": self.operation, "schema": self.schema}
        if self.extra:
            value["extra"] = dict(self.extra)
        if self.stats:
            value["stats"] = [
                _stat_plain(stat) | ({"columns": json.loads(known)} if (known := _known(stat)) else {})
                for stat in self.stats
            ]
        if self.replaced:
            value["replaced"] = {partition: list(ids) for partition, ids in self.replaced.items()}
        if self.compacted:
            value["compacted"] = True
        return value

    def json_pieces(self, more: dict[str, Any]) -> Iterator[str]:
        """Yield `to_json` and ``more`` as JSON text, file by file, so that a commit of very many files needs little memory."""
        head = json.dumps(replace(self, stats=()).to_json() | more, separators=(",", ":"))
        yield head[:-1] + ',"stats":['
        for number, stat in enumerate(self.stats):
            yield ("," if number else "") + _stat_text(stat)
        yield "]}"

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CommitMetadata:
        """Reverse `to_json`. Fields that a later version added are ignored."""
        stats = []
        for stored in value.get("stats", ()):
            known = {key: item for key, item in stored.items() if key in WriteStat.__dataclass_fields__}
            if known.get("log_files") is not None:
                known["log_files"] = tuple(known["log_files"])
            stats.append(WriteStat(**known))
        return cls(
            operation=value.get("operation"),
            schema=value.get("schema"),
            extra=dict(value.get("extra", {})),
            stats=tuple(stats),
            replaced={partition: tuple(ids) for partition, ids in value.get("replaced", {}).items()},
            compacted=bool(value.get("compacted", False)),
        )


# A field without a default equals no value, so it is always written.
_STAT_FIELDS_AND_DEFAULTS = tuple(
    (name, spec.default) for name, spec in WriteStat.__dataclass_fields__.items() if name not in ("facts", "whole")
)


def _stat_plain(stat: WriteStat) -> dict[str, Any]:
    values = ((name, getattr(stat, name), default) for name, default in _STAT_FIELDS_AND_DEFAULTS)
    return {name: value for name, value, default in values if value != default}


def _stat_text(stat: WriteStat) -> str:
    text, known = json.dumps(_stat_plain(stat), separators=(",", ":")), _known(stat)
    return f'{text[:-1]},"columns":{known}}}' if known else text


def _known(stat: WriteStat) -> str:
    """Return the statistics of its columns as JSON text; "" if there are none."""
    return zlib.decompress(stat.facts.statistics).decode() if stat.facts and stat.facts.statistics else ""


# --- to and from Hudi's names ------------------------------------------------------------------------------------

_BATCH = 1000  # files that are encoded together
_COMMITS = ("HoodieCommitMetadata", "HoodieReplaceCommitMetadata")

# Field of WriteStat -> Hudi's field.
_STAT_FIELDS = {
    "file_id": "fileId",
    "path": "path",
    "partition": "partitionPath",
    "prev_commit": "prevCommit",
    "num_writes": "numWrites",
    "num_inserts": "numInserts",
    "num_updates": "numUpdateWrites",
    "num_deletes": "numDeletes",
    "total_write_bytes": "totalWriteBytes",
    "file_size": "fileSizeInBytes",
    "errors": "totalWriteErrors",
    "prev_base_file": "prevBaseFile",
    "base_file": "baseFile",
    "log_files": "logFiles",
    "log_version": "logVersion",
    "log_offset": "logOffset",
    "min_event_time": "minEventTime",
    "max_event_time": "maxEventTime",
}


_TEXT_FIELDS = ("file_id", "path", "partition", "prev_commit", "prev_base_file", "base_file")
_STAT_TYPES: dict[str, type] = {
    each: tuple if each == "log_files" else str if each in _TEXT_FIELDS else int for each in _STAT_FIELDS
}


def _by_partition(stats: Sequence[WriteStat]) -> list[tuple[str, list[WriteStat]]]:
    ordered = sorted(stats, key=lambda each: (each.partition, each.path))
    return [(partition, list(found)) for partition, found in groupby(ordered, key=lambda each: each.partition)]


def _stat_record(stat: WriteStat) -> dict[str, Any]:
    stored = {theirs: getattr(stat, ours) for ours, theirs in _STAT_FIELDS.items()}
    if stat.log_files is not None:
        stored["logFiles"] = list(stat.log_files)
    return stored


def _rest_of_record(metadata: CommitMetadata, *, replace: bool) -> dict[str, Any]:
    extra = dict(sorted(metadata.extra.items()))
    if metadata.schema is not None:
        extra["schema"] = metadata.schema
    record: dict[str, Any] = {
        "compacted": metadata.compacted,
        "extraMetadata": extra,
        "version": 1,
        "operationType": metadata.operation,
    }
    if replace:
        record["partitionToReplaceFileIds"] = {key: sorted(ids) for key, ids in sorted(metadata.replaced.items())}
    return record


def _from_record(record: Mapping[str, Any]) -> CommitMetadata:
    stats = []
    for partition, stored_stats in (record.get("partitionToWriteStats") or {}).items():
        for stored in stored_stats:
            values = {ours: stored[theirs] for ours, theirs in _STAT_FIELDS.items() if stored.get(theirs) is not None}
            values.setdefault("file_id", "")
            values.setdefault("path", "")
            # The key of the map is what readers go by; some writers leave the field empty.
            values["partition"] = partition
            if "log_files" in values:
                values["log_files"] = _listed(values["log_files"])
            stats.append(WriteStat(**values))
    extra = dict(record.get("extraMetadata") or {})
    schema = extra.pop("schema", None) or None
    return CommitMetadata(
        operation=record.get("operationType"),
        schema=schema,
        extra=extra,
        stats=tuple(stats),
        replaced={key: _listed(ids) for key, ids in (record.get("partitionToReplaceFileIds") or {}).items()},
        compacted=bool(record.get("compacted")),
    )


def _listed(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):  # a text would come apart into letters
        raise TypeError(f"{values!r:.40} is no list")
    return tuple(values)


# --- bodies of instants --------------------------------------------------------------------------------------------------


def encode_commit(metadata: CommitMetadata, *, replace: bool) -> bytes:
    """Return the body of a completed commit; ``replace``: of a replacecommit. Equal input gives equal bytes."""
    import fastavro

    name = "HoodieReplaceCommitMetadata" if replace else "HoodieCommitMetadata"
    # Written part by part, the files in batches: as one record those of a large commit would fill the memory.
    content = io.BytesIO()
    partitions = _by_partition(metadata.stats)
    fastavro.schemaless_writer(content, "long", 1)  # of the union with null: the map
    if partitions:
        fastavro.schemaless_writer(content, "long", len(partitions))
    for partition, stats in partitions:
        fastavro.schemaless_writer(content, "string", partition)
        for start in range(0, len(stats), _BATCH):
            content.seek(0 if not start else -1, io.SEEK_END)  # over the end of the list so far
            batch = [_stat_record(stat) for stat in stats[start : start + _BATCH]]
            fastavro.schemaless_writer(content, write_stats(), batch)
    content.write(b"\0")  # the end of the map
    fastavro.schemaless_writer(content, schema_of(name, without_stats=True), _rest_of_record(metadata, replace=replace))
    return contained(_commit_header(name), content)


def decode_commit(body: bytes, *, name: str, layout: int, table: str = "") -> CommitMetadata:
    """Read a completed commit, deltacommit or replacecommit; ``name`` is the instant's file, for messages.

    Raises:
        CorruptTableError: the file is empty, torn or holds something else.
    """
    if not body:
        raise damaged(name, "is empty", table)
    json_record = layout == 1
    record = (
        _json_record(body, name, table) if json_record else decode_container(body, *_COMMITS, name=name, table=table)
    )
    try:
        metadata = _from_record(record)
        if json_record:
            _refuse_types(metadata)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(name, f"is not commit metadata ({error!r})", table) from error
    return metadata


def _refuse_types(metadata: CommitMetadata) -> None:
    """Raise TypeError for a JSON value that Avro would not allow: it would fail far from here, where it is used."""
    texts: list[Any] = [metadata.operation or "", metadata.schema or "", *metadata.extra, *metadata.extra.values()]
    texts += [each for key, ids in metadata.replaced.items() for each in (key, *ids)]
    for stat in metadata.stats:
        for each, kind in _STAT_TYPES.items():
            value = getattr(stat, each)
            if value is not None and type(value) is not kind:
                raise TypeError(f"{each} is {value!r:.40}")
        texts += stat.log_files or ()
    if any(type(each) is not str for each in texts):
        raise TypeError("a number in place of a text")


@functools.cache  # to write the schema takes as long as all the rest
def _commit_header(name: str) -> bytes:
    return header_of(schema_of(name))


def _json_record(body: bytes, name: str, table: str) -> Mapping[str, Any]:
    try:
        record = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise damaged(name, f"is torn or not JSON ({error})", table) from error
    if not isinstance(record, dict):
        raise damaged(name, "holds no JSON object", table)
    return record
