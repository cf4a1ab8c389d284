"""Read the wanted rows and columns of file slices.

a base file          row group by row group, skipping those whose statistics exclude the condition
with log files       the whole slice at once: any of its rows may have been changed or deleted
a condition          read its columns first, the others only where a row matches
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from ...ahead import Ready, in_order
from ...conflict import may_match, where_of
from ...errors import CorruptTableError
from ...hudi.timeline import FileSlice
from ...streams import slice_rows
from ..entries import of_footer

if TYPE_CHECKING:
    from ...conditions import Condition
    from ...environment import Environment
    from ...hudi.files import Footers
    from ...hudi.table import TableConfig
    from ...storage import Store
    from ...streams import Stream


@dataclass(frozen=True, slots=True)
class Wanted:
    """The columns and rows to read of each slice.

    Attributes:
        table: the table's columns, Hudi's meta columns in front.
        columns: the columns of the result, in its order.
        condition: filters the rows; None: all rows.
    """

    table: pa.Schema
    columns: tuple[str, ...]
    condition: Condition | None = None

    @property
    def schema(self) -> pa.Schema:
        """The schema of the result."""
        return pa.schema([self.table.field(name) for name in self.columns])

    @property
    def asked(self) -> list[str]:
        """The columns read for the condition; at least one, to get the number of rows."""
        if self.condition is None:
            return []
        return sorted(self.condition.columns) or list(self.columns[:1])

    @property
    def needed(self) -> list[str]:
        """All columns to read."""
        return list(dict.fromkeys((*self.asked, *self.columns)))


class Source(Protocol):
    """The source of rows: an open table, or the facts about it that another process got."""

    @property
    def url(self) -> str: ...
    @property
    def env(self) -> Environment: ...
    @property
    def store(self) -> Store: ...
    @property
    def config(self) -> TableConfig: ...
    @property
    def streams(self) -> tuple[Stream, ...]: ...
    @property
    def footers(self) -> Footers: ...


_PORTION_BYTES = 64 * 1024  # files as small as this are read by one thread, one after another


class RowReader:
    """Reads one scan's rows; several threads may call it."""

    def __init__(self, source: Source, wanted: Wanted) -> None:
        self._session, self._wanted = source, wanted
        self._terms = where_of(wanted.condition.terms) if wanted.condition else ()

    def tables(self, slices: Sequence[FileSlice], at_once: int) -> Iterator[pa.Table]:
        """Yield the wanted rows in the order of the slices, a row group at a time.

        At most ``at_once`` row groups are read at the same time, and about twice as many are in memory.
        """
        env = self._session.env

        def rest() -> Iterator[Callable[[], pa.Table] | Ready[pa.Table]]:
            for begun in in_order(env, (partial(self._begin_all, each) for each in _portions(slices)), at_once):
                for first, others in begun:
                    yield Ready(first)
                    yield from others

        return (rows for rows in in_order(env, rest(), at_once) if rows.num_rows)

    def row_groups(self, slice_: FileSlice) -> tuple[list[int], pq.FileMetaData]:
        """Return the row groups of a base file that may hold wanted rows, and its footer."""
        footer = self._session.footers.of(slice_.path, slice_.size)
        return self._that_may_match(footer), footer

    def count(self, slice_: FileSlice) -> int:
        """Return the number of rows of a slice, ignoring the condition."""
        if not slice_.logs:
            return int(self._session.footers.of(slice_.path, slice_.size).num_rows)
        return int(self._merged(slice_, ()).num_rows)

    def _begin_all(self, slices: Sequence[FileSlice]) -> list[tuple[pa.Table, list[Callable[[], pa.Table]]]]:
        return [self._begin(each) for each in slices]

    def _begin(self, slice_: FileSlice) -> tuple[pa.Table, list[Callable[[], pa.Table]]]:
        """Read the first row group; return its rows, and calls that read the others."""
        if slice_.logs:
            rows = self._merged(slice_, self._wanted.needed)
            return self._chosen(lambda names: rows.select([n for n in names if n in rows.column_names])), []
        # A cached footer may exclude the file before it is opened.
        known = self._session.footers.get(slice_.path)
        if known is not None and not self._that_may_match(known):
            return self._wanted.schema.empty_table(), []
        with self._session.footers.open(slice_.path, slice_.size) as file:
            numbers = self._that_may_match(file.metadata)
            if not numbers:
                return self._wanted.schema.empty_table(), []
            return self._read(file, numbers[0]), [partial(self._row_group, slice_, n) for n in numbers[1:]]

    def _merged(self, slice_: FileSlice, columns: Sequence[str]) -> pa.Table:
        source = self._session
        return slice_rows(
            source.store, source.config, source.streams, slice_, columns=columns, meta=False, in_place=False
        )

    def _row_group(self, slice_: FileSlice, number: int) -> pa.Table:
        with self._session.footers.open(slice_.path, slice_.size) as file:
            return self._read(file, number)

    def _read(self, file: pq.ParquetFile, number: int) -> pa.Table:
        there = file.schema_arrow.names
        # Other threads read other row groups at the same time, so Arrow needs no more threads here.
        return self._chosen(
            lambda names: file.read_row_group(number, columns=[n for n in names if n in there], use_threads=False),
            file.metadata.row_group(number).num_rows,
        )

    def _chosen(self, read: Callable[[list[str]], pa.Table], count: int | None = None) -> pa.Table:
        """Return the wanted rows and columns; ``read`` returns columns by name, of ``count`` rows."""
        wanted = self._wanted
        if wanted.condition is None:
            return self._shaped(read(list(wanted.columns)), wanted.columns, count)
        asked = self._shaped(read(wanted.asked), wanted.asked, count)
        mask = wanted.condition.mask(asked)
        if not mask.true_count:
            return wanted.schema.empty_table()
        others = [name for name in wanted.columns if name not in wanted.asked]
        rest = self._shaped(read(others), others, asked.num_rows) if others else None
        columns = [
            asked.column(name) if rest is None or name in wanted.asked else rest.column(name) for name in wanted.columns
        ]
        rows = pa.Table.from_arrays(columns, schema=wanted.schema)
        return rows if mask.true_count == len(mask) else rows.filter(mask)

    def _shaped(self, rows: pa.Table, names: Sequence[str], count: int | None) -> pa.Table:
        """Return these columns in the table's types; null if the file lacks one."""
        count = rows.num_rows if count is None else count
        if rows.num_columns and rows.num_rows != count:
            raise CorruptTableError(
                f"a row group of {self._session.url} has {rows.num_rows} rows where its footer says {count}"
            )
        fields, columns = [self._wanted.table.field(name) for name in names], []
        schema = pa.schema(fields)
        if rows.num_columns and rows.schema.equals(schema):
            return pa.Table.from_arrays(rows.columns, schema=schema)
        for field in fields:
            if field.name not in rows.column_names:
                columns.append(pa.nulls(count, field.type))
            else:
                column = rows.column(field.name)
                columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.Table.from_arrays(columns, schema=schema)

    def _that_may_match(self, footer: pq.FileMetaData) -> list[int]:
        numbers = range(footer.num_row_groups)
        if not self._terms:
            return list(numbers)
        columns = sorted({each.column for each in self._terms})
        return [n for n in numbers if may_match(self._terms, of_footer(footer, columns, row_groups=[n]))]


def _portions(slices: Sequence[FileSlice]) -> Iterator[list[FileSlice]]:
    """Yield neighbouring small slices together: a thread for each would cost as much as reading it."""
    portion, size = list[FileSlice](), 0
    for each in slices:
        if portion and size + each.total_size > _PORTION_BYTES:
            yield portion
            portion, size = [], 0
        portion.append(each)
        size += each.total_size
    if portion:
        yield portion
