"""The base file of a slice that gets a successor: decoded row group by row group, or copied as bytes.

Memory: one row group, and its bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...hudi.files import Chunk, RawFooter, StoredParquet, note_of, torn_is_told
from ...hudi.merge import holds, stored_texts
from ...hudi.table import META_COLUMNS, RECORD_KEY, SoughtKeys, array_of_column
from ...hudi.timeline import FileSlice
from ...streams import slice_rows
from .file_spec import FileSpec
from .key_spans import span_of
from .meta_columns import FILE_NAME, PARTITION_PATH

_LOOKED_UP_ROWS = 1 << 20  # rows per lookup, at most; each lookup builds a hash table of the sought keys
_DECODED_BYTES = 1 << 20  # bytes of columns decoded at a time
_VALUE_BYTES = 16  # assumed at least for each value: encoded it may take nothing
_ROWS_PER_KEY = 16  # rows per sought key in a lookup; building the hash table then costs little beside reading them


class OldFile:
    """One base file, in the types that the table has now; a context manager."""

    def __init__(self, spec: FileSpec, path: str) -> None:
        self._spec, self._path, self._stack = spec, path, ExitStack()

    def __enter__(self) -> Self:
        self.stream = self._stack.enter_context(self._spec.store.open(self._path))
        try:
            with torn_is_told(self._spec.store, self._path):
                self.metadata = pq.read_metadata(self.stream)
        except BaseException:
            # `__exit__` does not run if `__enter__` raises.
            self._stack.close()
            raise
        texts = stored_texts(self.metadata, but=(RECORD_KEY, *self._spec.config.record_key_fields))
        self._file = StoredParquet(
            self._spec.store, self._path, self.stream, metadata=self.metadata, read_dictionary=texts
        )
        self._note = note_of(self.metadata)
        if self._spec.spans is not None:
            self._spec.spans.learn(self._path, self.metadata)
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def key_column(self) -> str | None:
        """The column that holds the record key's text in every row, if the file says so."""
        key = self._note.get("key")
        return key if key in self._spec.config.record_key_fields else None

    @property
    def span(self) -> tuple[bytes, bytes] | None:
        """The file's `span_of`."""
        return span_of(self.metadata)

    @cached_property
    def row_groups(self) -> list[tuple[int, int]]:
        """The first row number of each row group, and the one after its last."""
        counts = [self.metadata.row_group(n).num_rows for n in range(self.metadata.num_row_groups)]
        return list(pairwise(np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).tolist()))

    # Rows --------------------------------------------------------------------------------------------------------

    def rows(
        self,
        row_group: int | None = None,
        *,
        columns: Collection[str] | None = None,
        change: Callable[[pa.Table], pa.Table] | None = None,
    ) -> pa.Table:
        """Return a row group (None: all) with the meta columns that stay with a row. Dictionary-encoded texts stay so.

        Args:
            columns: read only these data columns.
            change: transforms the rows; called with a few columns at a time, so that never all of them are in memory twice.
        """
        # Partition path and file name are the longest texts, and never needed: the successor writes its own.
        same = self.key_column
        unread = (PARTITION_PATH, FILE_NAME, same)
        wanted = None if columns is None else {*META_COLUMNS, *columns}
        there = [n for n in self.names if n not in unread and (wanted is None or n in wanted)]
        rows = self._read(there, row_group, change)
        if same and (wanted is None or same in wanted):
            rows = rows.append_column(same, rows.column(RECORD_KEY))
        return rows

    @cached_property
    def names(self) -> list[str]:
        """The file's columns, without those that were dropped from the table since."""
        known = {*META_COLUMNS, *self._spec.schema.names}
        return [name for name in self._file.schema_arrow.names if name in known]

    def keys(self, row_group: int | None = None) -> pa.Array:
        """Return the record keys of a row group (None: of all)."""
        return array_of_column(self._read([RECORD_KEY], row_group), RECORD_KEY)

    def column(self, name: str, row_group: int) -> pa.Array | None:
        """Return one column of a row group in the table's type; None if the file lacks it."""
        return array_of_column(self._read([name], row_group), name) if name in self.names else None

    def _read(
        self, names: list[str], row_group: int | None, change: Callable[[pa.Table], pa.Table] | None = None
    ) -> pa.Table:
        if row_group is None:
            rows = in_types(self._file.read(names, use_threads=False), self._spec)
            return rows if change is None else change(rows)
        parts = []
        for some in self._shares(names, row_group):
            part = in_types(self._file.read_row_group(row_group, some, use_threads=False), self._spec)
            parts.append(part if change is None else change(part))
            del part
        fields, columns = [f for part in parts for f in part.schema], [c for part in parts for c in part.columns]
        return pa.Table.from_arrays(columns, schema=pa.schema(fields, parts[0].schema.metadata))

    def _shares(self, names: list[str], row_group: int) -> Iterator[list[str]]:
        """Yield the columns in groups of about a megabyte; one is changed and freed before the next is decoded."""
        group, sizes = self.metadata.row_group(row_group), dict[str, int]()
        for number in range(group.num_columns):
            column = group.column(number)
            root = column.path_in_schema.partition(".")[0]
            sizes[root] = sizes.get(root, 0) + column.total_uncompressed_size
        some, size = list[str](), 0
        for name in names:
            some.append(name)
            size += max(sizes[name], _VALUE_BYTES * group.num_rows)
            if size >= _DECODED_BYTES:
                yield some
                some, size = [], 0
        if some or not names:
            yield some

    # Index -------------------------------------------------------------------------------------------------------

    def lacks_all(self, keys: SoughtKeys) -> bool:
        """Return whether the footer's key range excludes all of the keys."""
        span = self.span
        return span is not None and keys.outside(*span)

    def partners(self, keys: pa.Array) -> npt.NDArray[np.signedinteger[Any]]:
        """Return for each row the position of its key among these, or -1, in the smallest integer type that fits."""
        found = np.full(self.metadata.num_rows, -1, np.min_scalar_type(-len(keys) or -1))
        for numbers in self._blocks(min(_LOOKED_UP_ROWS, _ROWS_PER_KEY * len(keys))):
            held = pa.concat_arrays([self.keys(number) for number in numbers])
            first, end = self.row_groups[numbers[0]][0], self.row_groups[numbers[-1]][1]
            found[first:end] = pc.index_in(held, value_set=keys).fill_null(-1)
        return found

    def _blocks(self, most: int) -> Iterator[list[int]]:
        """Yield row groups to look up together: at most so many rows, or one group."""
        block: list[int] = []
        count = 0
        for number, (start, end) in enumerate(self.row_groups):
            if block and count + end - start > most:
                yield block
                block, count = [], 0
            block.append(number)
            count += end - start
        if block:
            yield block

    # Bytes -------------------------------------------------------------------------------------------------------

    @cached_property
    def raw(self) -> RawFooter | None:
        """The stored footer of a file whose row groups can be copied as bytes; None for files of other writers.

        Those may have pages without checksums, other Parquet types, or another calendar.
        """
        return RawFooter.of(self.stream) if self._note.get("checksums") else None

    def chunks(self, row_group: int) -> list[Chunk]:
        """Return the byte ranges of a row group's columns."""
        assert self.raw is not None
        return self.raw.chunks(row_group)


def read_slice(spec: FileSpec, old: FileSlice | str, *, columns: Collection[str] | None = None) -> pa.Table:
    """Return all rows of a slice (or base file) with the meta columns that stay with a row, in the table's types.

    Dictionary-encoded texts stay so. ``columns``: read only these data columns.
    """
    if isinstance(old, FileSlice) and old.logs:
        rows = slice_rows(spec.store, spec.config, spec.streams, old, columns=columns, strict=True)
        kept = {*META_COLUMNS, *spec.schema.names} - {PARTITION_PATH, FILE_NAME}
        return in_types(rows.select([name for name in rows.column_names if name in kept]), spec)
    with OldFile(spec, old if isinstance(old, str) else old.path) as file:
        return file.rows(columns=columns)


def held_keys(spec: FileSpec, old: FileSlice | str) -> pa.Array:
    """Return the record keys of a slice (or base file), without those that its log files deleted."""
    if isinstance(old, FileSlice) and old.logs:
        return array_of_column(read_slice(spec, old, columns=()), RECORD_KEY)
    with OldFile(spec, old if isinstance(old, str) else old.path) as file:
        return file.keys()


def in_types(rows: pa.Table, spec: FileSpec) -> pa.Table:
    """Cast the rows to the table's types; texts may stay dictionary-encoded."""
    wanted = {f.name: f.type for f in spec.schema} | dict.fromkeys(META_COLUMNS, pa.string())
    for place, column in enumerate(rows.schema):
        kind = wanted.get(column.name, column.type)
        if column.type != kind and not holds(column.type, kind):
            rows = rows.set_column(place, pa.field(column.name, kind), rows.column(place).cast(kind))
    return rows
