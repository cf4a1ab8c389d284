"""Statistics of a data file's columns: smallest and largest value, number of nulls.

They come from the footer, which the writer has in memory when it closes the file, and go into the commit's entry. For
slices already in the table the footer is read when a condition asks.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
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


# Key ranges: the smallest and largest record key of each file of a partition, in one small object beside the log.
#
# A process new to a partition then opens only the files that may hold its keys. The object is a cache: it may be lost,
# torn, late or stale. A file counts only under its own name with its own size, which no other file of the table ever has,
# and a file without a range is opened. Only a file with a range may be skipped. A process that had to open many files
# writes the whole object, with the files that its transaction sees; so removed files leave it by themselves, and of two
# writers the later one wins. Hudi knows nothing of it. `check` compares it with the files.

RANGES = ".hoodie/.lakelatch/keys"
RANGES_BYTES = 16 << 20  # of one object at most
_KEY_BYTES = 512  # the longest key; a file with a longer one is opened
_NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

KeyRange = tuple[int, bytes, bytes]  # the file's size, its smallest and its largest key


def ranges_path(partition: str) -> str:
    """The path of a partition's key ranges."""
    return f"{RANGES}/{hashlib.sha256(partition.encode(errors='surrogatepass')).hexdigest()[:32]}"


def encode_ranges(partition: str, ranges: Mapping[str, KeyRange]) -> bytes:
    """The ranges by file name: a checksum, and plain values as JSON. Ranges that are too large are left out."""
    files, room = [], RANGES_BYTES - 1024 - len(json.dumps(partition))
    for name, (size, low, high) in ranges.items():
        if max(len(low), len(high)) > _KEY_BYTES:
            continue
        try:
            file = [name, size, low.decode(), high.decode()]
        except UnicodeDecodeError:
            continue  # a file that is left out is opened: slower, never wrong
        room -= len(json.dumps(file)) + 2
        if room < 0:
            break
        files.append(file)
    text = json.dumps({"v": 1, "partition": partition, "files": files}).encode()
    return hashlib.sha256(text).hexdigest().encode() + b"\n" + text


def decode_ranges(partition: str | None, body: bytes) -> dict[str, KeyRange] | None:
    """Decode ranges; None if they are torn, invalid, of another version or of another partition (None: of any)."""
    digest, _, text = body.partition(b"\n")
    if len(body) > RANGES_BYTES or hashlib.sha256(text).hexdigest().encode() != digest:
        return None
    try:
        raw = json.loads(text)
        if raw["v"] != 1 or (partition is not None and raw["partition"] != partition):
            return None
        return dict(_range(each) for each in raw["files"])
    except _NOT_UNDERSTOOD:
        return None


def _range(raw: Any) -> tuple[str, KeyRange]:
    name, size, low, high = raw
    if type(name) is not str or type(size) is not int or size <= 0 or type(low) is not str or type(high) is not str:
        raise ValueError("no range of a file")
    # A range must be one in at least one of the two key orders; otherwise every key would be outside it.
    if low > high and low.encode("utf-16-be") > high.encode("utf-16-be"):
        raise ValueError("no range of keys")
    return name, (size, low.encode(), high.encode())
