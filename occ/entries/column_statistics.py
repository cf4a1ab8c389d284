"""Statistics of a data file's columns: smallest and largest value, number of nulls.

They come from the footer, which the writer has in memory when it closes the file, and go into the commit's entry. For
slices already in the table the footer is read when a condition asks.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...conflict import ColumnStatistics, FileStatistics, Where, may_match
from ...hudi.files import torn_is_told
from ...hudi.table import META_COLUMNS
from ...hudi.timeline import FileSlice
from ...storage import Store

COLUMNS_MAX = 32  # if no columns are named, as in Delta Lake


def columns_of(schema: pa.Schema, wanted: Sequence[str] | str | None, *, isolation: str) -> tuple[str, ...]:
    """The columns whose statistics a commit carries.

    Args:
        wanted: names, ``all``, or None for: the first 32 if the isolation level uses them, else none.
    """
    if wanted is None and isolation == "snapshot":
        return ()
    able = [field.name for field in schema if _comparable(field.type)]
    if wanted is None:
        return tuple(able[:COLUMNS_MAX])
    return tuple(able if wanted == "all" else [name for name in able if name in wanted])


def _comparable(kind: pa.DataType) -> bool:
    # No floats: Parquet's bounds leave NaN out, and engines differ in whether they widen a column of 32 bits or narrow
    # the value that it is compared with.
    tests = (
        pa.types.is_integer,
        pa.types.is_boolean,
        pa.types.is_string,
        pa.types.is_date32,
        pa.types.is_timestamp,
        pa.types.is_decimal,
    )
    return any(test(kind) for test in tests)


def of_footer(
    footer: pq.FileMetaData, columns: Iterable[str], *, row_groups: Sequence[int] | None = None
) -> FileStatistics:
    """The bounds over all row groups, or some; unknown if one of them has none."""
    numbers = range(footer.num_row_groups) if row_groups is None else row_groups
    places = {footer.schema.column(n).path: n for n in range(footer.num_columns)}
    kinds = footer.schema.to_arrow_schema()
    found = {}
    for name in columns:
        # A missing column holds nulls, but a reader may know better, so give no bounds for it.
        if name in places and name not in META_COLUMNS and _comparable(kinds.field(name).type):
            found[name] = _over_all([footer.row_group(n).column(places[name]).statistics for n in numbers])
    rows = footer.num_rows if row_groups is None else sum(footer.row_group(n).num_rows for n in row_groups)
    return FileStatistics(rows, found)


def _over_all(chunks: Sequence[Any]) -> ColumnStatistics:
    if any(each is None for each in chunks):
        return ColumnStatistics()
    nulls = sum(each.null_count for each in chunks) if all(each.has_null_count for each in chunks) else None
    # Without nulls; a chunk of nulls only has no bounds.
    bounded = [each for each in chunks if each.num_values]
    if not bounded or not all(each.has_min_max for each in bounded):
        return ColumnStatistics(nulls=nulls)
    try:
        low, high = [each.min for each in bounded], [each.max for each in bounded]
    except (ValueError, OverflowError):  # a date or time outside Python's range
        return ColumnStatistics(nulls=nulls)
    return ColumnStatistics(min(low), max(high), nulls)


def encoded(statistics: FileStatistics) -> bytes:
    """The statistics as compressed JSON: a commit of very many files holds all of them in memory."""
    return zlib.compress(json.dumps(statistics.to_json(), separators=(",", ":")).encode(), 1)


def slices_that_may_match(store: Store, slices: Sequence[FileSlice], where: Where) -> list[FileSlice]:
    """The slices whose footers do not exclude the condition. A slice with log files may hold anything."""
    columns = sorted({each.column for each in where})

    def may(slice_: FileSlice) -> bool:
        if slice_.base is None or slice_.logs:
            return True
        return may_match(where, of_file(store, slice_.path, columns))

    return [each for each in slices if may(each)]


def of_file(store: Store, path: str, columns: Iterable[str]) -> FileStatistics:
    """The statistics in the footer of a file in the table."""
    with store.open(path) as stream, torn_is_told(store, path):
        return of_footer(pq.read_metadata(stream), columns)
