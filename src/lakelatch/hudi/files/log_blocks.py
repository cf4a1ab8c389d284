"""Log files of merge-on-read tables: their blocks, and the rows and deletes in each.

    magic "#HUDI#", size, format version 1, kind, header, content, footer, and the length of all that once more

All numbers are big endian. A block without a whole frame is torn: like other readers, `read_blocks` goes on at the next
magic, but reports the gap. Anything ambiguous is refused, because a block left out is rows lost.

Source: log files that Hudi 0.14 to 1.2 wrote.
"""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import CorruptTableError, LakeLatchError, UnsupportedTableError
from ..table import as_numbers, decoder_of, from_avro, optional

MAGIC = b"#HUDI#"
INSTANT, _TARGET, SCHEMA, _COMMAND, COMPACTED, _PARTIAL = 0, 1, 2, 3, 4, 7  # keys of the header
COMMAND, DELETE, _CORRUPT, AVRO, _HFILE, PARQUET, _CDC = range(7)
_KINDS = {_HFILE: "HFile data", _CDC: "change data"}
_ROLLBACK = "0"
NATURAL = object()  # orders a delete that takes whatever came before it


@dataclass(frozen=True, slots=True)
class Block:
    """One whole block; ``path`` is its file's, ``header`` is keyed by Hudi's numbers."""

    path: str
    kind: int
    header: dict[int, str]
    content: bytes = field(repr=False)

    @property
    def instant(self) -> str:
        """T of the commit that wrote it."""
        return self.header.get(INSTANT, "")

    @property
    def rolls_back(self) -> str:
        """T of the commit whose blocks before this one are void; "" for a block of another kind."""
        if self.kind != COMMAND:
            return ""
        if self.header.get(_COMMAND) != _ROLLBACK:
            raise _unsupported(self.path, f"a command block of type {self.header.get(_COMMAND)}")
        return self.header.get(_TARGET, "")

    @property
    def merged(self) -> tuple[str, ...] | None:
        """T of the commits whose blocks a log compaction merged into this one; None for an ordinary commit's block."""
        named = self.header.get(COMPACTED)
        return None if named is None else tuple(named.split(","))

    @property
    def partial(self) -> bool:
        """True if its rows set some columns only and keep the others."""
        return self.header.get(_PARTIAL, "").lower() == "true"

    def rows(self, wanted: Callable[[list[str]], list[str]] | None = None) -> pa.Table:
        """Return the rows of a data block, with meta columns; ``wanted`` picks from the columns it has (None: all)."""
        try:
            return self._parquet(wanted) if self.kind == PARQUET else self._avro(wanted)
        except LakeLatchError:
            raise
        except Exception as e:  # decoders raise whatever they stumble on
            raise self._damaged(e) from e

    def _parquet(self, wanted: Callable[[list[str]], list[str]] | None) -> pa.Table:
        file = pq.ParquetFile(pa.BufferReader(self.content), pre_buffer=False)
        return file.read(None if wanted is None else wanted(file.schema_arrow.names), use_threads=False)

    def _avro(self, wanted: Callable[[list[str]], list[str]] | None) -> pa.Table:
        import fastavro

        text = self.header[SCHEMA]
        schema, found = _parsed(text), []
        _version_3(self)
        # After the version: the number of rows, then each row behind its length.
        (count,) = struct.unpack_from(">i", self.content, 4)
        at = 8
        for _ in range(count):
            record, at = _piece(self.content, at)
            found.append(fastavro.schemaless_reader(io.BytesIO(record), schema, None))
        stored = optional(from_avro(text))
        numbers = pa.schema([each.with_type(as_numbers(each.type)) for each in stored])
        rows = pa.Table.from_pylist(found, schema=numbers).cast(stored)
        return rows if wanted is None else rows.select(wanted(rows.column_names))

    def deletes(self) -> Iterator[tuple[str, Any]]:
        """Yield the keys of a delete block, each with its ordering value or `NATURAL`.

        A date is days since 1970, a time microseconds, as Hudi 1.2.0 writes and compares them. The value of several ordering
        fields it is a tuple.
        """
        import fastavro

        try:
            _version_3(self)
            body, _ = _piece(self.content, 4)
            listed: Any = fastavro.schemaless_reader(io.BytesIO(body), _delete_schema(), None, return_record_name=True)
        except LakeLatchError:
            raise
        except Exception as e:
            raise self._damaged(e) from e
        for each in listed["deleteRecordList"]:
            branch, value = each["orderingVal"] or ("", {"value": None})
            if branch.endswith("ArrayWrapper"):
                several = tuple(None if one is None else one[1]["value"] for one in value["wrappedValues"] or ())
                yield each["recordKey"], several or NATURAL
                continue
            plain = value["value"]
            # Hudi writes the number 0 where it has no ordering value.
            natural = plain is None or (branch.endswith("IntWrapper") and plain == 0)
            yield each["recordKey"], NATURAL if natural else plain

    def _damaged(self, cause: Exception) -> CorruptTableError:
        return CorruptTableError(
            f"A block of commit {self.instant} in log file {self.path} cannot be decoded ({type(cause).__name__}: {cause}). "
            "Restore the file from a copy, or roll the commit back with Hudi",
            path=self.path,
            instant=self.instant,
        )


@dataclass(frozen=True, slots=True)
class Torn:
    """Bytes of a log file that are no whole block; readers skip them."""

    path: str
    start: int
    end: int


def read_blocks(body: bytes, path: str) -> list[Block | Torn]:
    """Return all blocks and torn gaps of a log file, in order.

    Raises:
        UnsupportedTableError: a block is of a kind that this library does not read.
    """
    found: list[Block | Torn] = []
    at = 0
    while at < len(body):
        end = _end_of_block(body, at)
        if end is not None:
            found.append(_block(body[at:end], path))
        else:
            following = body.find(MAGIC, at + 1)
            end = following if following >= 0 else len(body)
            # The magic may occur inside the torn bytes, so neighbouring gaps are reported as one.
            if found and isinstance(before := found[-1], Torn):
                found[-1] = Torn(path, before.start, end)
            else:
                found.append(Torn(path, at, end))
        at = end
    return found


def _end_of_block(body: bytes, at: int) -> int | None:
    """Return the end of the block that begins at ``at``; None if its frame is not whole."""
    if len(body) < at + 38 or not body.startswith(MAGIC, at):
        return None
    # A whole block repeats its length at its end, so a torn one is found without reading its content.
    (size,) = struct.unpack_from(">q", body, at + 6)
    end = int(at + 14 + size)
    if size < 24 or end > len(body) or struct.unpack_from(">q", body, end - 8) != (size + 6,):
        return None
    # Trailing bytes shorter than a magic do not make the block torn; the JVM accepts them too.
    return end if len(body) - end < len(MAGIC) or body.startswith(MAGIC, end) else None


def _block(frame: bytes, path: str) -> Block:
    try:
        version, kind = struct.unpack_from(">ii", frame, 14)
        header, at = _header(frame, 22)
        (length,) = struct.unpack_from(">q", frame, at)
        if not 0 <= length <= len(frame) - at - 8:
            raise ValueError(f"content of {length} bytes")
        block = Block(path, kind, header, frame[at + 8 : at + 8 + length])
    except (struct.error, ValueError) as e:
        raise CorruptTableError(
            f"A block of log file {path} has a header that cannot be read ({e}). Restore the file from a copy",
            path=path,
        ) from e
    if version != 1:
        raise _unsupported(path, f"format version {version}")
    if kind not in (COMMAND, DELETE, AVRO, PARQUET):
        raise _unsupported(path, f"a block of {_KINDS.get(kind, f'kind {kind}')}")
    return block


def _header(frame: bytes, at: int) -> tuple[dict[int, str], int]:
    (count,) = struct.unpack_from(">i", frame, at)
    at, found = at + 4, {}
    for _ in range(count):
        (key,) = struct.unpack_from(">i", frame, at)
        text, at = _piece(frame, at + 4)
        found[key] = text.decode()
    return found, at


def _piece(body: bytes, at: int) -> tuple[bytes, int]:
    """Return the bytes behind their length, and their end. Raises ValueError if they are not all there."""
    (length,) = struct.unpack_from(">i", body, at)
    end = at + 4 + length
    if not 0 <= length <= len(body) - at - 4:
        raise ValueError(f"{length} bytes at {at}")
    return body[at + 4 : end], end


def _version_3(block: Block) -> None:
    (version,) = struct.unpack_from(">i", block.content, 0)
    if version != 3:
        raise _unsupported(block.path, f"a block whose content is of version {version}")


def _unsupported(path: str, what: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"Log file {path} has {what}, which is not read here. Compact the table with Hudi",
        path=path,
        feature="log_block",
    )


@functools.lru_cache(maxsize=64)
def _parsed(text: str) -> Any:
    schema, shape = decoder_of(text, logical=True)
    if shape.kind != "record":
        raise ValueError(f"rows of {shape.kind}")
    return schema


@functools.cache
def _delete_schema() -> Any:
    import fastavro

    def wrapper(name: str, kind: Any, field: str = "value") -> dict[str, Any]:
        return {"type": "record", "name": f"{name}Wrapper", "fields": [{"name": field, "type": kind}]}

    plain = ("Boolean", "Int", "Long", "Float", "Double", "Bytes", "String")
    kinds: list[Any] = [
        "null",
        *(wrapper(name, name.lower()) for name in plain),
        wrapper("Date", "int"),
        wrapper("Decimal", {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 15}),
        wrapper("TimeMicros", "long"),
        wrapper("TimestampMicros", "long"),
    ]
    names = [kind if isinstance(kind, str) else kind["name"] for kind in kinds]
    items: list[Any] = [*names, wrapper("LocalDate", "int")]  # which stands in an array only
    kinds.append(wrapper("Array", ["null", {"type": "array", "items": items}], "wrappedValues"))
    record = {
        "type": "record",
        "name": "HoodieDeleteRecord",
        "fields": [
            {"name": "recordKey", "type": ["null", "string"]},
            {"name": "partitionPath", "type": ["null", "string"]},
            {"name": "orderingVal", "type": kinds},
        ],
    }
    listed = {"type": "array", "items": record}
    return fastavro.parse_schema(
        {"type": "record", "name": "HoodieDeleteRecordList", "fields": [{"name": "deleteRecordList", "type": listed}]}
    )
