"""Merge-on-read tables by hand: base files and log files as JVM Hudi leaves them, at times that a test chooses."""

from __future__ import annotations

import io
import json
import shutil
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

import lakelatch
from lakelatch.hudi.files.file_names import LogName, join, log_file_name
from lakelatch.hudi.files.log_blocks import AVRO, COMMAND, DELETE, _delete_schema
from lakelatch.hudi.table.avro_schema import to_avro
from lakelatch.hudi.table.column_types import META_COLUMNS
from lakelatch.hudi.table.config import PROPERTIES_PATH, TableConfig
from lakelatch.hudi.timeline.commit_metadata import CommitMetadata, WriteStat, encode_commit
from lakelatch.testing import FakeEnvironment

from .world import SCHEMA, World

Row = dict[str, Any]


# --- blocks ------------------------------------------------------------------------------------------------------


def block(kind: int, header: dict[int, str], content: bytes) -> bytes:
    """The bytes of one block."""
    packed = struct.pack(">i", len(header))
    for key, text in header.items():
        packed += struct.pack(">ii", key, len(text.encode())) + text.encode()
    inner = struct.pack(">ii", 1, kind) + packed + struct.pack(">q", len(content)) + content + struct.pack(">i", 0)
    return b"#HUDI#" + struct.pack(">q", len(inner) + 8) + inner + struct.pack(">q", len(inner) + 14)


def data_block(
    instant: str,
    rows: Sequence[Row],
    *,
    schema: pa.Schema = SCHEMA,
    more: Sequence[Row] = (),
    file_id: str = "f",
    merged: Sequence[str] = (),
    partial: bool = False,
) -> bytes:
    """Rows as the JVM puts them into a log file; the partition is that of column ``part``.

    Args:
        merged: of a log compaction.
        partial: they set the columns of ``schema`` only.
    """
    record = {
        "type": "record",
        "name": "r",
        "fields": [{"name": name, "type": ["null", "string"], "default": None} for name in META_COLUMNS],
    }
    record["fields"] += [*json.loads(to_avro(schema, "t"))["fields"], *more]
    parsed, body = fastavro.parse_schema(json.loads(json.dumps(record))), struct.pack(">ii", 3, len(rows))
    for number, row in enumerate(rows):
        meta = (instant, f"{instant}_0_{number}", row["id"], f"part={row['part']}", file_id)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row | dict(zip(META_COLUMNS, meta, strict=True)))
        body += struct.pack(">i", len(out.getvalue())) + out.getvalue()
    header = {0: instant, 2: json.dumps(record)} | _merged(merged) | ({7: "true"} if partial else {})
    return block(AVRO, header, body)


def _merged(instants: Sequence[str]) -> dict[int, str]:
    return {4: ",".join(instants)} if instants else {}


def delete_block(
    instant: str, keys: Iterable[str | tuple[str, tuple[str, Any] | None]], *, merged: Sequence[str] = ()
) -> bytes:
    """Keys to delete: bare, or with the wrapper and value that order the delete, as ``("LongWrapper", 4)``; the value of an
    ``ArrayWrapper`` is a list of such pairs.
    """
    listed = []
    for each in keys:
        key, order = (each, None) if isinstance(each, str) else each
        value = None if order is None else _wrapped(*order)
        listed.append({"recordKey": key, "partitionPath": "", "orderingVal": value})
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _delete_schema(), {"deleteRecordList": listed})
    header = {0: instant, 2: "{}"} | _merged(merged)
    return block(DELETE, header, struct.pack(">ii", 3, len(out.getvalue())) + out.getvalue())


def _wrapped(wrapper: str, value: Any) -> tuple[str, dict[str, Any]]:
    if wrapper == "ArrayWrapper":
        return wrapper, {"wrappedValues": [each if each is None else _wrapped(*each) for each in value]}
    return wrapper, {"value": value}


def rollback_block(instant: str, undone: str) -> bytes:
    return block(COMMAND, {0: instant, 1: undone, 3: "0"}, b"")


# --- tables ------------------------------------------------------------------------------------------------------


class Mor:
    """A table of version 8 or 9 that another engine has made: ordered by ``v``, or by commits only."""

    def __init__(
        self,
        folder: Path,
        *,
        version: int = 8,
        ordering: str | None = "v",
        env: Any = None,
        columns: pa.Schema = SCHEMA,
        **settings: Any,
    ) -> None:
        self.folder, self.columns = folder, columns
        given = settings | ({"env": env} if env else {})
        made = lakelatch.create(
            str(folder),
            record_key="id",
            partition_by="part",
            ordering_field=ordering,
            schema=columns,
            table_version=version,
            **given,
        )
        made.close()
        shutil.rmtree(folder / ".hoodie/.lakelatch")
        for each in (folder / ".hoodie/timeline").glob("[0-9]*"):
            each.unlink()
        path = folder / PROPERTIES_PATH
        path.write_bytes(path.read_bytes().replace(b"COPY_ON_WRITE", b"MERGE_ON_READ"))
        self._read()

    @classmethod
    def at(cls, folder: Path) -> Mor:
        """One that is there."""
        mor = cls.__new__(cls)
        mor.folder, mor.columns = folder, SCHEMA
        mor._read()
        return mor

    def _read(self) -> None:
        self.config = TableConfig.from_bytes((self.folder / PROPERTIES_PATH).read_bytes())
        self.groups: dict[str, str] = {}
        self.schema = to_avro(self.columns, self.config.name)  # of the commits that follow

    def base(self, requested: str, completed: str, part: str, rows: Sequence[Row], file_id: str = "") -> str:
        """A base file; returns its file id."""
        file_id = file_id or f"{part * 8}-0000-4000-8000-000000000000-0"
        partition, name = f"part={part}", f"{file_id}_0-0-0_{requested}.parquet"
        self._mark(partition, requested)
        meta: dict[str, Any] = {
            "_hoodie_commit_time": [requested] * len(rows),
            "_hoodie_commit_seqno": [f"{requested}_0_{n}" for n in range(len(rows))],
            "_hoodie_record_key": [row["id"] for row in rows],
            "_hoodie_partition_path": [partition] * len(rows),
            "_hoodie_file_name": [name] * len(rows),
        }
        wide = pa.schema([*(pa.field(n, pa.string()) for n in META_COLUMNS), *self.columns])
        columns = meta | {n: [row[n] for row in rows] for n in self.columns.names}
        pq.write_table(pa.table(columns, schema=wide), self.folder / partition / name, store_schema=False)
        self._commit(requested, completed, file_id, partition, name, len(rows))
        self.groups[part] = file_id
        return file_id

    def log(self, requested: str, completed: str, part: str, body: bytes, *, file_id: str = "") -> Path:
        """A log file of those bytes on the group of that partition."""
        file_id = file_id or self.groups.setdefault(part, f"{part * 8}-0000-4000-8000-000000000000-0")
        partition, name = f"part={part}", log_file_name(LogName(file_id, requested, 1, "0-0-0"))
        self._mark(partition, requested)
        path = self.folder / partition / name
        path.write_bytes(body)
        if completed:
            self._commit(requested, completed, file_id, partition, name)
        return path

    def update(self, requested: str, completed: str, part: str, values: dict[str, Any], deleted: Sequence[Any] = ()):
        """A commit of new versions of rows, and of deletes after them."""
        rows = [{"id": key, "part": part, "v": value} for key, value in values.items()]
        body = data_block(requested, rows) if rows else b""
        return self.log(requested, completed, part, body + (delete_block(requested, deleted) if deleted else b""))

    def _mark(self, partition: str, requested: str) -> None:
        marker = self.folder / partition / ".hoodie_partition_metadata"
        marker.parent.mkdir(exist_ok=True)
        if not marker.exists():
            marker.write_text(f"commitTime={requested}\npartitionDepth=1\n")

    def _commit(self, requested: str, completed: str, file_id: str, partition: str, name: str, writes: int = 1) -> None:
        size = (self.folder / partition / name).stat().st_size
        base = name.endswith(".parquet")
        stat = WriteStat(
            file_id,
            join(partition, name),
            partition,
            num_writes=writes,
            file_size=size,
            total_write_bytes=size,
            base_file=None if base else "",
            log_files=None if base else (name,),
            log_version=None if base else 1,
            log_offset=None if base else 0,
        )
        metadata = CommitMetadata("UPSERT", self.schema, stats=(stat,))
        timeline = self.folder / ".hoodie/timeline"
        (timeline / f"{requested}.deltacommit.requested").touch()
        (timeline / f"{requested}.deltacommit.inflight").touch()
        (timeline / f"{requested}_{completed}.deltacommit").write_bytes(encode_commit(metadata, replace=False))


def rows(part: str, values: dict[str, Any]) -> list[Row]:
    return [{"id": key, "part": part, "v": value} for key, value in values.items()]


def at(number: int) -> str:
    """A time that is long past: T and C of what a test writes."""
    return f"{20260101000000000 + number}"


ROWS = {"a0": 5, "a2": 3, "b0": 5}


def merge_on_read(folder: Path, *, small: bool = False) -> World:
    """Adopted, with rows `ROWS`: a has a base file and a log file, b and c log files only, and nothing is left in c."""
    model = folder.parent / f"model {small}"
    if not model.exists():
        env = FakeEnvironment(seed=1)
        mor = Mor(model, env=env)
        mor.base(at(1), at(2), "a", rows("a", {"a0": 1, "a1": 1}))
        mor.update(at(10), at(11), "a", {"a0": 5, "a2": 3}, ["a1"])
        mor.update(at(12), at(13), "b", {"b0": 5})
        if not small:
            mor.update(at(14), at(15), "c", {"c0": 5})
            mor.update(at(16), at(17), "c", {}, ["c0"])
        lakelatch.adopt(str(model), env=env, writer="founder").close()
    return World(folder, model=model)
