"""Partitions by value: the path of given values, and the values that rows under a path can have."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from .config import TableConfig
from .partition_path import parse_partition_path, partition_path

if TYPE_CHECKING:
    import pyarrow as pa

# Their paths hold the values themselves; other key generators format them.
_PLAIN_KEYGENS = ("SIMPLE", "COMPLEX")


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
    if config.keygen not in _PLAIN_KEYGENS:
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

    if config.partition_fields and config.keygen not in _PLAIN_KEYGENS:
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
