"""Partition paths: the values of the partition columns as a folder below the table, as Hudi spells it.

    hive style       origin=JFK/month=1        (`hoodie.datasource.write.hive_style_partitioning`)
    otherwise        JFK/1
    null or empty    __HIVE_DEFAULT_PARTITION__
    URL encoding     a%2Fb                     (`hoodie.datasource.write.partitionpath.urlencode`)

A value is refused if its folder would leave the table, be hidden from a reader or read back as another value: no reader
reports this, and rows in such a folder are silently missing.

Source: Apache Hudi `PartitionPathEncodeUtils` and `KeyGenUtils` (the rules), both readers (what they find again).
"""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from .config import TableConfig
from .time_partitions import with_time_column

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa


NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
SPARKS_OWN = "_spark_metadata"  # a folder that Spark's scans ignore
ELEMENT_BYTES_MAX = 255  # the longest file name of every common file system
_SOME_ROWS = 1 << 20
_FEW_ROWS = 64  # up to here a loop is quicker than an Arrow kernel

_TO_ESCAPE = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
_ESCAPED = re.compile(r"%([0-9a-fA-F]{2})")
# Without encoding these either separate folders or are no part of a name that every store and reader keeps.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f/\\]")


def escape(value: str) -> str:
    """Replace Hudi's set of characters by ``%XX``; others, non-ASCII included, stay."""
    return _TO_ESCAPE.sub(lambda found: f"%{ord(found[0]):02X}", value)


def unescape(element: str) -> str:
    """Reverse `escape`; a ``%`` that starts no code stays."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), element)


def partition_path(values: Sequence[Any], config: TableConfig) -> str:
    """Return the partition's path relative to the table, "" for an unpartitioned table.

    Args:
        values: one value for each of ``config.partition_fields``, in their order.
        config: says which fields, and how they are spelled.

    Raises:
        InputError: a value cannot be a folder name. Nothing was written.
    """
    assert len(values) == len(config.partition_fields), (values, config.partition_fields)
    return "/".join(
        _element(field, value, config) for field, value in zip(config.partition_fields, values, strict=True)
    )


def parse_partition_path(path: str, config: TableConfig) -> dict[str, str | None]:
    """Return the values in a partition's path by field, as text; None for a null or empty value.

    A path of another depth than the fields comes from a key generator that formats values (a date as ``2024/01/17``): a
    single field then has the whole path, several fields are an `InputError`.
    """
    fields = config.partition_fields
    elements = path.split("/") if path else []
    if len(fields) == 1 and len(elements) > 1:
        elements = [path]
    if len(fields) != len(elements):
        raise InputError(
            f"Partition path {path!r} has {len(elements)} levels, but table {config.name} is partitioned by "
            f"{', '.join(fields) or 'nothing'}. Pass a path as `lakelatch files` prints it",
            path=path,
        )
    return {field: _value(field, element, config) for field, element in zip(fields, elements, strict=True)}


def partition_paths(table: pa.Table, config: TableConfig) -> pa.Array:
    """Return the partition path of every row, as a string array. The work is per distinct value, not per row.

    Raises:
        InputError: a column is missing or of a type that is no folder name, or a value is refused.
    """
    import pyarrow as pa

    codes, paths = partition_codes(table, config)
    return pa.array(paths, pa.string()).take(pa.array(codes))


def partition_codes(table: pa.Table, config: TableConfig) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return for every row the index of its path in a list of distinct paths, and that list; errors as in `partition_paths`."""
    import numpy as np
    import pyarrow as pa

    codes: Any = pa.array(np.zeros(table.num_rows, np.int32))
    paths = [""] if table.num_rows else []
    # Column by column, so that the work is per distinct prefix: each step combines the codes so far with those of one more
    # column and numbers the pairs that occur.
    for number, field in enumerate(config.partition_fields):
        column = _column(table, field, config).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        given = pa.types.is_dictionary(column.type)
        encoded = column if given else column.dictionary_encode()
        values = [*encoded.dictionary.to_pylist(), None]
        elements = [_element(field, value, config) for value in values]
        here = encoded.indices.fill_null(len(values) - 1)
        # What is used of the values, and of the pairs of path and value.
        if number or given or encoded.null_count:
            mixed = np.asarray(codes).astype(np.int64) * len(values) + np.asarray(here)
            pairs = pa.array(mixed).dictionary_encode()
            found, here = (divmod(each, len(values)) for each in pairs.dictionary.to_pylist()), pairs.indices
            paths = [f"{paths[before]}/{elements[last]}" if number else elements[last] for before, last in found]
        else:
            paths = elements[:-1]
        codes = here
    places = {path: place for place, path in enumerate(dict.fromkeys(paths))}
    found_codes = np.asarray(codes).astype(np.int32, copy=False)
    if len(places) < len(paths):  # null and "" are spelled alike
        found_codes = np.array([places[path] for path in paths], np.int32)[found_codes]
    return found_codes, list(places)


def partition_list(table: pa.Table, config: TableConfig) -> list[str]:
    """Return the distinct partition paths; errors as in `partition_paths`. Memory: the codes of a slice of rows at a time."""
    found: dict[str, None] = {}
    for start in range(0, table.num_rows, _SOME_ROWS):
        found |= dict.fromkeys(partition_codes(table.slice(start, _SOME_ROWS), config)[1])
    return list(found)


def distinct_paths(table: pa.Table, config: TableConfig) -> list[str]:
    """Return the paths that `partition_paths` would give, each once or twice; quicker where there is only one."""
    fields = config.partition_fields
    spelled = [[_element(f, v, config) for v in _distinct(_column(table, f, config))] for f in fields]
    # With one value in all columns but one, every combination occurs; otherwise some pairs may not.
    if sum(len(elements) > 1 for elements in spelled) > 1:
        return partition_codes(table, config)[1]
    return ["/".join(path) for path in itertools.product(*spelled)]


def _distinct(column: pa.ChunkedArray) -> list[Any]:
    if len(column) < _FEW_ROWS:
        return list(dict.fromkeys(column.to_pylist()))
    found: list[Any] = column.unique().to_pylist()
    return found


def _column(table: pa.Table, field: str, config: TableConfig) -> pa.ChunkedArray:
    if field == config.time_column:
        table = with_time_column(table, config)
    if field not in table.column_names:
        raise InputError(
            f"The rows have no column {field!r}, which table {config.name} is partitioned by. Add it", column=field
        )
    column = table.column(field)
    _check_type(field, column.type)
    return column


def _element(field: str, value: Any, config: TableConfig) -> str:
    text = _spell(field, value)
    if not text:
        element = NULL_PARTITION
    else:
        if text == NULL_PARTITION:
            raise _refused(field, text, "stands for null; it would read back as no value")
        element = escape(text) if config.url_encode else text
    if config.hive_style:
        element = f"{field}={element}"
    _check_element(field, text, element)
    return element


def _check_element(field: str, text: str, element: str) -> None:
    try:
        length = len(element.encode())
    except UnicodeEncodeError:
        raise _refused(field, text, "is not valid Unicode") from None
    if length > ELEMENT_BYTES_MAX:
        raise _refused(field, text, f"makes a folder name of {length} bytes; at most {ELEMENT_BYTES_MAX} are possible")
    # Hudi checks the value too, before the column name is put in front.
    if ".." in text and ".." in re.split(r"[/\\]", text):
        raise _refused(field, text, "holds '..', which would lead out of the table")
    if element.startswith("."):
        raise _refused(field, text, "starts with a dot, and readers skip hidden folders")
    if element == SPARKS_OWN:
        raise _refused(field, text, "is the name of a folder that Spark keeps for itself and never reads")
    if found := _UNSAFE.search(element):
        raise _refused(
            field,
            text,
            f"holds {found[0]!r}, which cannot be part of a folder name; create the table with URL-encoded partitions "
            "(hoodie.datasource.write.partitionpath.urlencode=true) or replace the character",
        )


def _value(field: str, element: str, config: TableConfig) -> str | None:
    prefix = f"{field}="
    if config.hive_style and element.startswith(prefix):
        element = element[len(prefix) :]
    if element == NULL_PARTITION:
        return None
    return unescape(element) if config.url_encode else element


def _spell(field: str, value: Any) -> str:
    """Return the text of a value as Hudi's key generators spell it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | decimal.Decimal):
        return str(value)
    if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value.isoformat()
    raise _wrong_type(field, type(value).__name__)


def _check_type(field: str, kind: Any) -> None:
    import pyarrow.types as types

    if types.is_dictionary(kind):
        kind = kind.value_type
    # String views have no predicate in the oldest supported pyarrow.
    fine = (types.is_string, types.is_large_string, types.is_integer, types.is_boolean, types.is_date, types.is_decimal)
    if not (any(test(kind) for test in fine) or str(kind) == "string_view" or types.is_null(kind)):
        raise _wrong_type(field, str(kind))


def _wrong_type(field: str, kind: str) -> InputError:
    return InputError(
        f"Column {field!r} of type {kind} cannot be a partition column: readers spell such values differently. "
        "Partition by a string, integer, boolean, decimal or date, for example one derived from it",
        column=field,
    )


def _refused(field: str, text: str, why: str) -> InputError:
    shown = text if len(text) <= 60 else f"{text[:57]}..."
    return InputError(
        f"Value {shown!r} of partition column {field!r} {why}. Nothing was written", column=field, value=text
    )


def named_values(named: Mapping[str, Any], config: TableConfig, schema: pa.Schema) -> dict[str, Any]:
    """Return a mapping's values in the types of the partition columns: ``{"origin": "JFK"}``; it need not name all columns.

    Raises:
        InputError: a name is no partition column, a value has another type, or the key generator formats values.
    """
    fields = config.partition_fields
    if not named or any(name not in fields for name in named):
        raise InputError(
            f"{dict(named)!r} names no partition of table {config.name}, which is "
            + (f"partitioned by {', '.join(fields)}: give {{{fields[0]!r}: VALUE}}" if fields else "not partitioned"),
            partition=dict(named),
        )
    if not config.plain_partitions:
        raise InputError(
            f"table {config.name} spells its partitions by a key generator of type {config.keygen}, so they have no plain "
            "values; name them by path, as `lakelatch files` prints it",
            partition=dict(named),
        )
    return {name: _stored(name, value, schema.field(name).type) for name, value in named.items()}


def possible_values(path: str, config: TableConfig, schema: pa.Schema) -> list[tuple[Any, ...]] | None:
    """Return the values that rows of a partition can have in the partition columns; None if the path does not determine them.

    There is more than one tuple where null and an empty text share a folder.
    """
    import pyarrow as pa

    if config.partition_fields and not config.plain_partitions:
        return None
    try:
        texts = parse_partition_path(path, config)
        rows = list(itertools.product(*(_read(texts[f], schema.field(f).type) for f in config.partition_fields)))
        # A path written by another engine may spell a value differently, so only a path that these values lead back to is
        # trusted.
        told = all(partition_path(row, config) == path for row in rows)
    except (InputError, pa.ArrowException, KeyError, ValueError, OverflowError):
        return None
    return rows if told else None


def _read(text: str | None, kind: pa.DataType) -> list[Any]:
    """Return the values that a text in a path can stand for."""
    import pyarrow as pa

    if pa.types.is_string(kind):
        return [text] if text is not None else [None, ""]
    return [pa.scalar(text, pa.string()).cast(kind).as_py()]


def _stored(field: str, value: Any, kind: pa.DataType) -> Any:
    import pyarrow as pa

    # Arrow converts generously (1.5 to 1). Only a value that the conversion leaves equal and of its type names a
    # partition.
    plain = value.as_py() if isinstance(value, pa.Scalar) else value.item() if hasattr(value, "item") else value
    if plain is None:
        return None
    try:
        stored = pa.scalar(plain, kind).as_py()
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        stored = None
    widened = isinstance(stored, decimal.Decimal) and type(plain) is int
    if stored is None or stored != plain or not (widened or isinstance(plain, type(stored))) or _is_moment(plain):
        raise InputError(
            f"{value!r} is no value of partition column {field!r}, which is of type {kind}", column=field, value=value
        )
    return stored


def _is_moment(value: Any) -> bool:
    return isinstance(value, dt.datetime)  # a date to Python, and more than one to us
