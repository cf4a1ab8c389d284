"""Commit metadata: the records inside instants, to bytes and back.

Layout 2 holds each as an Avro container of exactly one record, layout 1 as JSON with the same names. Readers match
fields by name; both of them take a zero-byte or torn file for a broken table or, worse, for an empty commit, so
everything that is not exactly one whole record is a `DamagedTableError` here.

Source: schemas inside instants that Hudi 1.0 to 1.2 wrote; a test compares them field by field.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import DamagedTableError
from .avro_schemas import schema_of

NO_PREVIOUS_COMMIT = "null"  # the JVM writes the word


@dataclass(frozen=True, slots=True)
class WriteStat:
    """What a commit did to one file. ``path`` is relative to the table, sizes are bytes."""

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


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """What one completed commit says of itself.

    Attributes:
        operation: Hudi's name of the operation (UPSERT, INSERT_OVERWRITE, CLUSTER ...), None when unknown.
        schema: Avro JSON of the data columns.
        extra: further entries of extraMetadata, the schema left out.
        stats: one entry for each file written.
        replaced: partition -> file ids that readers drop from now on; only a replacecommit has them.
    """

    operation: str | None = None
    schema: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    stats: tuple[WriteStat, ...] = ()
    replaced: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    compacted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Plain values for a log entry; fields at their default are left out."""
        value: dict[str, Any] = {"operation": self.operation, "schema": self.schema}
        if self.extra:
            value["extra"] = dict(self.extra)
        if self.stats:
            value["stats"] = [
                {
                    name: getattr(stat, name)
                    for name, default in _STAT_FIELDS_AND_DEFAULTS
                    if getattr(stat, name) != default
                }
                for stat in self.stats
            ]
        if self.replaced:
            value["replaced"] = {partition: list(ids) for partition, ids in self.replaced.items()}
        if self.compacted:
            value["compacted"] = True
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CommitMetadata:
        """The reverse of `to_json`. Fields that a later version added are ignored."""
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
_STAT_FIELDS_AND_DEFAULTS = tuple((name, spec.default) for name, spec in WriteStat.__dataclass_fields__.items())

# --- to and from Hudi's names ------------------------------------------------------------------------------------

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


def _to_record(metadata: CommitMetadata, *, replace: bool) -> dict[str, Any]:
    stats: dict[str, list[dict[str, Any]]] = {}
    for stat in sorted(metadata.stats, key=lambda each: (each.partition, each.path)):
        stored = {theirs: getattr(stat, ours) for ours, theirs in _STAT_FIELDS.items()}
        if stat.log_files is not None:
            stored["logFiles"] = list(stat.log_files)
        stats.setdefault(stat.partition, []).append(stored)
    extra = dict(sorted(metadata.extra.items()))
    if metadata.schema is not None:
        extra["schema"] = metadata.schema
    record: dict[str, Any] = {
        "partitionToWriteStats": stats,
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
                values["log_files"] = tuple(values["log_files"])
            stats.append(WriteStat(**values))
    extra = dict(record.get("extraMetadata") or {})
    schema = extra.pop("schema", None) or None
    return CommitMetadata(
        operation=record.get("operationType"),
        schema=schema,
        extra=extra,
        stats=tuple(stats),
        replaced={key: tuple(ids) for key, ids in (record.get("partitionToReplaceFileIds") or {}).items()},
        compacted=bool(record.get("compacted")),
    )


# --- containers --------------------------------------------------------------------------------------------------


def encode_commit(metadata: CommitMetadata, *, replace: bool) -> bytes:
    """The body of a completed commit, or with ``replace`` of a replacecommit. Equal input gives equal bytes."""
    name = "HoodieReplaceCommitMetadata" if replace else "HoodieCommitMetadata"
    return encode_container(schema_of(name), _to_record(metadata, replace=replace))


def encode_requested_replace(operation: str | None = None) -> bytes:
    """The body of `T.replacecommit.requested` for a replacement without a plan, such as an overwrite."""
    return encode_container(schema_of("HoodieRequestedReplaceMetadata"), {"operationType": operation, "version": 1})


def decode_commit(body: bytes, *, name: str, layout: int, table: str = "") -> CommitMetadata:
    """Read a completed commit, deltacommit or replacecommit; ``name`` is the instant's file, for messages.

    Raises:
        DamagedTableError: the file is empty, torn or holds something else.
    """
    if not body:
        raise _damaged(name, "is empty", table)
    record = _json_record(body, name, table) if layout == 1 else decode_container(body, name=name, table=table)
    try:
        return _from_record(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(name, f"is not commit metadata ({error!r})", table) from error


def encode_container(schema: Any, record: Mapping[str, Any]) -> bytes:
    """An Avro container of this one record, not compressed. The sync marker is derived from the content."""
    import fastavro

    content = io.BytesIO()
    fastavro.schemaless_writer(content, schema, record)
    out = io.BytesIO()
    marker = hashlib.sha256(content.getbuffer()).hexdigest()[:16]
    fastavro.writer(out, schema, [record], codec="null", sync_marker=marker.encode())
    return out.getvalue()


def decode_container(body: bytes, *, name: str, table: str = "") -> dict[str, Any]:
    """The one record of an Avro container. Raises `DamagedTableError` unless it is exactly one, whole."""
    import fastavro

    try:
        records = list(fastavro.reader(io.BytesIO(body)))
    except Exception as error:  # on torn bytes fastavro raises whatever its decoder stumbles on
        raise _damaged(name, f"is torn or not an Avro file ({type(error).__name__}: {error})", table) from error
    if len(records) != 1 or not isinstance(records[0], dict):
        raise _damaged(name, f"holds {len(records)} records instead of one", table)
    return records[0]


def _json_record(body: bytes, name: str, table: str) -> Mapping[str, Any]:
    try:
        record = json.loads(body)
    except ValueError as error:
        raise _damaged(name, f"is torn or not JSON ({error})", table) from error
    if not isinstance(record, dict):
        raise _damaged(name, "holds no JSON object", table)
    return record


def _damaged(name: str, what: str, table: str) -> DamagedTableError:
    return DamagedTableError(
        f"Instant {name} {what}. No reader can trust the table until it is restored from a copy "
        "or its commit is rolled back; `lakelatch check` tells more.",
        instant=name,
        table=table,
    )
