"""Which values the ordering field of a table may have: those that every reader puts in the same order.

NaN is neither older nor newer than any value. Null is older than every value in a base file; onto a log file Hudi 1.2.0
merges a number 0 in its place, and its JVM readers fail on the two types (`ClassCastException`). So merge-on-read tables hold
none (tests/jvm/test_null_ordering.py).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...hudi.merge import plain
from ...hudi.table import COMMIT_TIME_ORDERING, TableConfig, record_keys, shown


def ordering_columns(config: TableConfig) -> tuple[str, ...]:
    """The columns that order the versions of a row; none where commits do."""
    return () if config.merge_mode == COMMIT_TIME_ORDERING else config.ordering_fields or config.precombine_fields


def refuse_unordered(rows: pa.Table, config: TableConfig, columns: Collection[str] | None = None) -> None:
    """Raise `InputError` when rows that are to be written have ordering values that readers do not agree on.

    A column that the rows lack is null. ``columns``: look at these alone.
    """
    for name in ordering_columns(config):
        if columns is not None and name not in columns:
            continue
        column = plain(rows.column(name)) if name in rows.column_names else pa.nulls(rows.num_rows)
        floating = pa.types.is_floating(column.type)
        if config.merge_on_read and column.null_count:
            raise InputError(
                f"the ordering column {name!r} is null in {column.null_count} rows{_keys(rows, pc.is_null(column), config)}, and "
                f"{config.name} is merge-on-read, where Hudi's JVM readers fail on it; nothing was written. Fill it with the "
                "oldest value that may be",
                column=name,
            )
        if floating and pc.any(nan := pc.fill_null(pc.is_nan(column), fill_value=False), min_count=0).as_py():
            raise InputError(
                f"the ordering column {name!r} holds NaN{_keys(rows, nan, config)}, which is neither older nor newer than any "
                "value; nothing was written. Fill these rows with a number",
                column=name,
            )


def _keys(rows: pa.Table, mask: Any, config: TableConfig) -> str:
    if any(name not in rows.column_names for name in config.record_key_fields):
        return ""
    found = rows.select(list(dict.fromkeys(config.record_key_fields))).filter(mask).slice(0, 3)
    try:
        return f" ({shown(record_keys(found, config.record_key_fields))})"
    except InputError:  # the keys are no better; their own check tells it
        return ""
