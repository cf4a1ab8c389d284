"""Encodes the rows of one base file as Parquet: row groups, encodings of columns, statistics, checksums, the footer.

Memory: at most one row group of rows per open file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...hudi.files import NOTE
from ...hudi.merge import widened
from ...hudi.table import RECORD_KEY
from .meta_columns import SEQNO, FileRows

_MIN_KEY, _MAX_KEY = "hoodie_min_record_key", "hoodie_max_record_key"
# Days and times are in the calendar that Parquet's specification names. Spark 3 believes that only of a file that says it is
# of Spark 3 or later, and refuses those before October 1582 in any other (Apache Spark, `DataSourceUtils`).
_CALENDAR = {"org.apache.spark.version": "4.0.0"}
_LEVEL = {"zstd": 3}  # Spark's own; Arrow's default is 1
_SAMPLED_ROWS = 4096
_UNIQUE = 0.9  # of the rows have a value that no other one has
_SMALL_BYTES = 4096


class ParquetFile:
    """Writes rows to a stream; the footer says what ``shape``, which completes them, has seen."""

    def __init__(self, stream: IO[bytes], shape: FileRows, *, codec: str, row_group_rows: int) -> None:
        self._stream, self._shape, self._codec, self._row_group_rows = stream, shape, codec, row_group_rows
        self.rows = 0
        self._footer: list[pq.FileMetaData] = []
        self._buffer: list[pa.Table] = []
        self._buffered = 0
        self._ending = False
        self._writer: pq.ParquetWriter | None = None

    @property
    def bytes_written(self) -> int:
        """Bytes that have left memory so far."""
        return self._stream.tell() if self._writer is not None else 0

    @property
    def waiting_rows(self) -> int:
        """Rows in memory that no row group holds yet."""
        return self._buffered

    @property
    def footer(self) -> pq.FileMetaData:
        """What a reader finds at the end of the file. Only after `close`."""
        return self._footer[0]

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

    def end_rows(self) -> None:
        """Encode what is left; no rows follow."""
        self._ending = True
        self.flush()

    def close(self, *, inserts: int, updates: int, deletes: int, more: Mapping[str, str] | None = None) -> None:
        """Write the footer with these counts and ``more`` key-value metadata, after `end_rows`. Twice is fine."""
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
            writer.close()

    def _flush(self, *, keep_rest: bool) -> None:
        size = self._row_group_rows
        pending = pa.concat_tables(self._buffer, promote_options="default").combine_chunks()
        whole = pending.num_rows // size * size if keep_rest else pending.num_rows
        for start in range(0, whole, size):
            group = self._shape.completed(pending.slice(start, min(size, whole - start)))
            writer = self._opened(group)
            if group.schema != writer.schema:  # texts came in a dictionary in one call and plain in another
                group = widened(group, writer.schema)
            writer.write_table(group, row_group_size=size)
        rest = pending.slice(whole)
        self._buffer, self._buffered = ([rest] if rest.num_rows else []), rest.num_rows

    def _opened(self, first: pa.Table) -> pq.ParquetWriter:
        if self._writer is None:
            # In a file of a few rows a codec saves nothing, and its contexts cost more than all the rest of the writing.
            small = self._ending and first.nbytes < _SMALL_BYTES
            codec = "none" if small else self._codec
            unique = {} if small else _encodings_of_unique(first)
            leaves = _leaves(first.schema)
            # Parquet's statistics leave NaN out, and a dictionary has one zero where Spark looks for both: a filter that
            # is pushed down to floats would miss rows that it is true for. Spark's own files have none of NaN.
            floats = {leaf for leaf, kind in leaves.items() if pa.types.is_floating(kind)}
            exact = [leaf for leaf in leaves if leaf not in floats]
            self._writer = pq.ParquetWriter(
                self._stream,
                first.schema,
                compression=codec,
                compression_level=_LEVEL.get(codec),
                store_schema=False,  # else dictionary types of the meta columns return to pyarrow's readers
                use_dictionary=[leaf for leaf in exact if leaf not in unique] if floats or unique else True,
                write_statistics=exact if floats else True,
                column_encoding=unique or None,
                coerce_timestamps="us",
                write_page_checksum=True,
                metadata_collector=self._footer,
            )
        return self._writer


def _encodings_of_unique(first: pa.Table) -> dict[str, str]:
    """Encodings of the columns whose values are nearly all different: a dictionary would be larger than they are."""
    sample = first.slice(0, _SAMPLED_ROWS)
    found = dict.fromkeys((SEQNO, RECORD_KEY), "DELTA_BYTE_ARRAY")
    for field in sample.schema:
        if field.name in found or not sample.num_rows:
            continue
        if pa.types.is_dictionary(field.type):  # of the file before; large where its writer gave it up on the way
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
    """Parquet columns by path, which is how encodings are chosen per column."""

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
