"""Encode the rows of one base file as Parquet: row groups, column encodings, statistics, checksums, the footer.

Memory: at most one row group of rows per open file, or a piece of one that is copied.
"""

from __future__ import annotations

import functools
import io
import json
from collections.abc import Mapping, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...hudi.files import MAGIC, NOTE, Chunk, RawFooter, ending
from ...hudi.merge import widened
from ...hudi.table import RECORD_KEY
from .meta_columns import FILE_NAME, SEQNO, FileRows

_MIN_KEY, _MAX_KEY = "hoodie_min_record_key", "hoodie_max_record_key"
# Days and times are in the calendar that Parquet's specification names. Spark 3 trusts this only in files that claim to be
# of Spark 3 or later; in others it refuses days before October 1582 (Apache Spark, `DataSourceUtils`).
_CALENDAR = {"org.apache.spark.version": "4.0.0"}
_LEVEL = {"zstd": 3}  # Spark's own; Arrow's default is 1
_SAMPLED_ROWS = 4096
_UNIQUE = 0.9  # distinct values per row from which a column counts as unique
_SMALL_BYTES = 4096
_PIECE_BYTES, _BUFFER_BYTES = 1 << 20, 1 << 16


class ParquetFile:
    """Writes rows to a stream. ``shape`` completes them, and its counts go to the footer."""

    def __init__(self, stream: IO[bytes], shape: FileRows, *, codec: str, row_group_rows: int) -> None:
        self._stream, self._shape, self._codec, self._row_group_rows = stream, shape, codec, row_group_rows
        self.rows = 0
        self.footer: pq.FileMetaData | None = None  # what a reader finds at the end of the file, after `close`
        self._names: dict[int, tuple[IO[bytes], list[Chunk]]] = {}
        self._told: list[pq.FileMetaData] = []
        self._sink = _Sink(stream)
        # Arrow writes a small row group in dozens of pieces; each would be a call into Python.
        self._out = pa.BufferedOutputStream(pa.PythonFile(self._sink, mode="w"), _BUFFER_BYTES)
        self._row_groups: list[int | tuple[int, list[Any]]] = []  # where they lie, as `RawFooter.joined` wants it
        self._buffer: list[pa.Table] = []
        self._buffered = 0
        self._ending = False
        self._writer: pq.ParquetWriter | None = None

    @property
    def bytes_written(self) -> int:
        """Bytes that have left memory so far."""
        return self._stream.tell()

    @property
    def waiting_rows(self) -> int:
        """Rows in memory that no row group holds yet."""
        return self._buffered

    def write(self, rows: pa.Table) -> None:
        """Add rows, all with the same columns. They are encoded when a row group is full."""
        if not rows.num_rows:
            return
        self.rows += rows.num_rows
        self._buffer.append(rows)
        self._buffered += rows.num_rows
        if self._buffered >= self._row_group_rows:
            self._flush(keep_rest=True)

    def flush(self) -> None:
        """Encode the waiting rows as a row group now, though it is not full."""
        if self._buffer:
            self._flush(keep_rest=False)

    def takes(self, columns: Sequence[Any]) -> bool:
        """Return whether row groups of a file with these columns (`RawFooter.columns`) can be copied as bytes."""
        return _columns_of(self._shape.schema) == columns

    def copy(self, stream: IO[bytes], chunks: Sequence[Chunk], rows: int) -> None:
        """Copy a row group of another file, if `takes` allows it; its rows get the name of this file.

        Args:
            stream: the other file.
        """
        self.flush()
        # The waiting rows went first, so that the row groups follow each other in the order of the calls.
        self._sink.begin()
        columns = []
        for chunk in chunks:
            # Only the file's name differs from the old file; its column depends on the number of rows alone, so it is kept.
            if chunk.path == (FILE_NAME,):
                if rows not in self._names:
                    self._names[rows] = self._names_of(rows)
                source, (chunk,) = self._names[rows]
            else:
                source = stream
            columns.append(chunk.at(self._stream.tell()))
            source.seek(chunk.start)
            _transfer(source, self._stream, chunk.size)
        self._row_groups.append((rows, columns))
        self.rows += rows

    def _names_of(self, rows: int) -> tuple[IO[bytes], list[Chunk]]:
        """Encode the column of file names alone, as a file."""
        body = io.BytesIO()
        names = pa.table(
            {FILE_NAME: self._shape.file_names(rows)}, schema=pa.schema([self._shape.schema.field(FILE_NAME)])
        )
        pq.write_table(names, body, row_group_size=rows, **self._encoding(self._codec))
        return body, RawFooter.of(body).chunks(0)

    def end_rows(self) -> None:
        """Encode the waiting rows; no more may follow."""
        self._ending = True
        self.flush()

    def close(self, *, inserts: int, updates: int, deletes: int, more: Mapping[str, str] | None = None) -> None:
        """Write the footer with these counts and ``more`` key-value metadata, after `end_rows`. Idempotent."""
        writer = self._writer or self._opened(self._shape.schema.empty_table())
        if writer.is_open:
            note: dict[str, Any] = {
                "digest": self._shape.digest,
                "inserts": inserts,
                "updates": updates,
                "deletes": deletes,
                "checksums": True,
            }
            if self._shape.key_column:
                note["key"] = self._shape.key_column
            footer = {NOTE: json.dumps(note)} | _CALENDAR | dict(more or {})
            if self._shape.java_span is not None:
                footer |= dict(zip((_MIN_KEY, _MAX_KEY), self._shape.java_span, strict=True))
            writer.add_key_value_metadata(footer)
            # Without copied row groups the writer's own footer is complete; otherwise it is joined with theirs.
            if all(type(each) is int for each in self._row_groups):
                writer.close()
                self._out.flush()
                self.footer = self._told[0]
                return
            self._sink.withhold()
            writer.close()
            self._out.flush()
            body = ending(RawFooter.of(self._sink.withheld).joined(self._row_groups))
            self._stream.write(body)
            self.footer = pq.read_metadata(pa.BufferReader(body))

    def _flush(self, *, keep_rest: bool) -> None:
        size = self._row_group_rows
        pending = pa.concat_tables(self._buffer, promote_options="default").combine_chunks()
        whole = pending.num_rows // size * size if keep_rest else pending.num_rows
        for start in range(0, whole, size):
            group = self._shape.completed(pending.slice(start, min(size, whole - start)))
            writer = self._opened(group)
            # Texts came in a dictionary in one call and plain in another.
            if group.schema != writer.schema:
                group = widened(group, writer.schema)
            self._row_groups.append(self._sink.ahead)
            writer.write_table(group, row_group_size=size)
            self._out.flush()
        rest = pending.slice(whole)
        self._buffer, self._buffered = ([rest] if rest.num_rows else []), rest.num_rows

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            # In a file of a few rows a codec saves nothing, and setting it up costs more than the rest of the write. In a small
            # column it saves less than reading it costs more.
            small = self._ending and first.nbytes < _SMALL_BYTES
            unique = {} if small else _encodings_of_unique(first)
            leaves = _leaves(first.schema)
            codec: str | dict[str, str] = "none" if small else self._codec
            if self._ending and not small:
                large = [field for field in first.schema if first.column(field.name).nbytes >= _SMALL_BYTES]
                codec = dict.fromkeys(_leaves(pa.schema(large)), self._codec) or "none"
            # Parquet's statistics omit NaN, and a dictionary holds one zero where Spark looks for both signs: a filter
            # pushed down to a float column would miss matching rows. So floats get neither.
            floats = {leaf for leaf, kind in leaves.items() if pa.types.is_floating(kind)}
            exact = [leaf for leaf in leaves if leaf not in floats]
            self._writer = pq.ParquetWriter(
                self._out,
                first.schema,
                use_dictionary=[leaf for leaf in exact if leaf not in unique] if floats or unique else True,
                write_statistics=exact if floats else True,
                column_encoding=unique or None,
                metadata_collector=self._told,
                **self._encoding(codec),
            )
            self._out.flush()  # the magic bytes: `_Sink.begin` may have written them
        return self._writer

    def _encoding(self, codec: str | dict[str, str]) -> dict[str, Any]:
        level: Any = _LEVEL.get(self._codec) if codec != "none" else None
        if isinstance(codec, dict):
            level = level and dict.fromkeys(codec, level)
        return {
            "compression": codec,
            "compression_level": level,
            "store_schema": False,  # else dictionary types of the meta columns return to pyarrow's readers
            "coerce_timestamps": "us",
            "write_page_checksum": True,
        }


class _Sink:
    """The stream of the Parquet writer, into which copied row groups go behind the writer's back."""

    closed = False

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = self._target = stream
        self._begun = False
        self._written = 0
        self.withheld = io.BytesIO()

    @property
    def ahead(self) -> int:
        """Bytes in the stream that the writer does not know of: it counts only its own."""
        return self._stream.tell() - self._written

    def begin(self) -> None:
        """Write the magic bytes of a Parquet file, if the writer has not yet."""
        if not self._stream.tell():
            self._stream.write(MAGIC)
            self._begun = True

    def write(self, body: bytes) -> int:
        if self._target.closed:  # an abandoned file, whose buffer ends with it
            return len(body)
        self._written += len(body)
        if self._begun:  # the writer's own magic bytes: `begin` wrote them
            assert body == MAGIC, body
            self._begun = False
            return len(body)
        return self._target.write(body)

    def flush(self) -> None:
        """Do nothing: publishing the file flushes the stream, and closes it."""

    close = flush

    def withhold(self) -> None:
        """Divert the writer's footer, which lacks the copied row groups, from the stream to memory."""
        self._target = self.withheld


def _transfer(source: IO[bytes], target: IO[bytes], size: int) -> None:
    while size:
        piece = source.read(min(size, _PIECE_BYTES))
        if not piece:
            raise EOFError(f"a file ends {size} bytes before the end of a column that its footer names")
        target.write(piece)
        size -= len(piece)


@functools.lru_cache(maxsize=16)
def _columns_of(schema: pa.Schema) -> list[Any]:
    """The footer's description of these columns."""
    empty = io.BytesIO()
    pq.write_table(schema.empty_table(), empty, store_schema=False, coerce_timestamps="us")
    return RawFooter.of(empty).columns


def _encodings_of_unique(first: pa.Table) -> dict[str, str]:
    """Return encodings for columns with nearly unique values, where a dictionary would be larger than the values."""
    sample = first.slice(0, _SAMPLED_ROWS)
    found = dict.fromkeys((SEQNO, RECORD_KEY), "DELTA_BYTE_ARRAY")
    for field in sample.schema:
        if field.name in found or not sample.num_rows:
            continue
        # The dictionary is that of the file before: large if its writer fell back to plain values midway.
        if pa.types.is_dictionary(field.type):
            if sum(len(chunk.dictionary) for chunk in first.column(field.name).chunks) > _UNIQUE * first.num_rows:
                found[field.name] = "DELTA_BYTE_ARRAY"
            continue
        whole_number = pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)
        if not (whole_number or pa.types.is_string(field.type)):
            continue
        if pc.count_distinct(sample.column(field.name)).as_py() > _UNIQUE * sample.num_rows:
            found[field.name] = "DELTA_BINARY_PACKED" if whole_number else "DELTA_BYTE_ARRAY"
    return found


def _leaves(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return the Parquet columns by path: per-column encodings are keyed so."""

    def below(path: str, kind: pa.DataType) -> dict[str, pa.DataType]:
        if pa.types.is_struct(kind):
            parts = {f"{path}.{f.name}": f.type for f in kind}
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            parts = {f"{path}.list.element": kind.value_type}
        elif pa.types.is_map(kind):
            parts = {f"{path}.key_value.key": kind.key_type, f"{path}.key_value.value": kind.item_type}
        else:
            return {path: kind}
        return {leaf: found for each, inner in parts.items() for leaf, found in below(each, inner).items()}

    return {leaf: kind for f in schema for leaf, kind in below(f.name, f.type).items()}


ALMOST = 7 / 8  # of the target size is enough for a file: filling it up would add a row group or block of a few rows


class RowBytes:
    """Bytes per row: the size in memory until some rows are encoded, then as measured."""

    def __init__(self) -> None:
        self._rows, self._measured = 0, 0.0

    def learn(self, rows: int, size: int) -> None:
        """Record a measurement. One of fewer rows than before is ignored: each block's fixed bytes would distort it."""
        if size and rows >= max(self._rows, 1):
            self._rows, self._measured = rows, size / rows

    def of(self, rows: pa.Table) -> float:
        """Return the bytes for one of these rows, of which there must be some; at least 1."""
        return max(self._measured or rows.nbytes / rows.num_rows, 1.0)

    def fit(self, rows: pa.Table, size: float) -> int:
        """Return how many such rows fit into so many bytes; at least 1."""
        return max(1, int(size / self.of(rows)))
