"""The note in a block of a stream's log file, and the floors in a base file, which no row of it holds.

Both are in the key-value metadata of a Parquet footer, which Hudi's readers ignore.

    lakelatch.stream   of a block: the stream, the effect of its rows, and the columns that they carry
    lakelatch.floors   of a base file: keys without a row, each with the newest ordering value of every stream, so that
                       an event older than a delete stays without effect after the compaction; and keys with a row that a
                       stream with mergers emptied, each with the ordering value at which it did
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ..errors import CorruptTableError
from ..hudi.files import STREAM_NOTE

FLOORS = "lakelatch.floors"
UPSERT, CLEARED, DELETED = KINDS = ("upsert", "clear", "delete")


@dataclass(frozen=True, slots=True)
class BlockNote:
    """The note of a block. ``kind``: its rows set values, clear the stream's columns, or delete rows. ``columns`` have
    values.
    """

    stream: str
    kind: str
    columns: tuple[str, ...]

    def to_footer(self) -> dict[str, str]:
        """Return it as key-value metadata."""
        content = {"stream": self.stream, "kind": self.kind, "columns": list(self.columns)}
        return {STREAM_NOTE: json.dumps(content, ensure_ascii=False)}

    @classmethod
    def of(cls, metadata: Mapping[bytes, bytes] | None, path: str) -> BlockNote | None:
        """Return the note of a block; None if no stream wrote it.

        Raises:
            CorruptTableError: the note is invalid.
        """
        stored = (metadata or {}).get(STREAM_NOTE.encode())
        if stored is None:
            return None
        try:
            raw = json.loads(stored)
            note = cls(raw["stream"], raw["kind"], tuple(raw["columns"]))
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise _damaged(path, "a note of its stream that cannot be read") from e
        if note.kind not in KINDS or not all(isinstance(each, str) for each in (note.stream, *note.columns)):
            raise _damaged(path, f"a note of its stream that is none: {stored!r:.80}")
        return note


def floors_to_footer(floors: pa.Table) -> dict[str, str]:
    """Return the floors as key-value metadata; {} if there are none."""
    if not floors.num_rows:
        return {}
    # A footer holds text only, so the table is an Arrow stream in base64.
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, floors.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(floors.combine_chunks())
    return {FLOORS: base64.b64encode(sink.getvalue()).decode()}


def floors_of(metadata: Mapping[bytes, bytes] | None, path: str) -> pa.Table | None:
    """Return the floors of a base file, None if it has none. Raises `CorruptTableError` if they cannot be read."""
    stored = (metadata or {}).get(FLOORS.encode())
    if stored is None:
        return None
    try:
        return pa.ipc.open_stream(base64.b64decode(stored, validate=True)).read_all()
    except (ValueError, OSError, pa.ArrowException) as e:  # of Arrow's own, some are an OSError
        raise _damaged(path, "floors of rows that cannot be read") from e


def _damaged(path: str, what: str) -> CorruptTableError:
    details: dict[str, Any] = {"path": path}
    return CorruptTableError(f"{path} has {what}. Restore the file from a copy", **details)
