"""The values that an ordering field may have: those that all readers put in the same order.

NaN is neither older nor newer than any value. Null is older than all values in a base file; but when merging log files Hudi
1.2.0 puts a number 0 in its place, and its JVM readers fail on the two types (`ClassCastException`). So merge-on-read tables
hold none (tests/jvm/test_null_ordering.py). With several ordering fields Hudi's JVM cannot compare nulls, even when it
writes (tests/jvm/test_several_ordering_fields.py), so neither type of table holds one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...hudi.merge import plain
from ...hudi.table import TableConfig, record_keys, shown


def null_free(config: TableConfig) -> tuple[str, ...]:
    """Return the ordering columns in which nulls are refused."""
    return config.newer_by if config.merge_on_read or len(config.newer_by) > 1 else ()


def refuse_unordered(rows: pa.Table, config: TableConfig, columns: Collection[str] | None = None) -> None:
    """Raise `InputError` if rows to be written have ordering values that readers do not order alike.

    A missing column counts as null. ``columns``: check only these.
    """
    if not (ordering := config.newer_by):
        return
    never_null = null_free(config)
    for name in ordering:
        if columns is not None and name not in columns:
            continue
        column = plain(rows.column(name)) if name in rows.column_names else pa.nulls(rows.num_rows)
        floating = pa.types.is_floating(column.type)
        if name in never_null and column.null_count:
            where = (
                "is merge-on-read, where Hudi's JVM readers fail on it"
                if config.merge_on_read
                else "has several ordering fields, where Hudi's JVM writers fail on it"
            )
            some = shown_keys(rows, pc.is_null(column), config)
            raise InputError(
                f"the ordering column {name!r} is null in {column.null_count} rows{some}, and {config.name} {where}; nothing was "
                "written. Fill it with the oldest value that may be",
                column=name,
            )
        if floating and pc.any(nan := pc.fill_null(pc.is_nan(column), fill_value=False), min_count=0).as_py():
            raise InputError(
                f"the ordering column {name!r} holds NaN{shown_keys(rows, nan, config)}, which is neither older nor newer than "
                "any value; nothing was written. Fill these rows with a number",
                column=name,
            )


def refuse_some_of_the_order(given: Collection[str], config: TableConfig) -> None:
    """Raise `InputError` if keys to delete have only some of the ordering columns, which cannot be compared with a row's."""
    if given and (missing := [name for name in config.newer_by if name not in given]):
        raise InputError(
            f"the keys have {', '.join(given)} and lack {', '.join(missing)}: {config.name} is ordered by "
            f"{', '.join(config.newer_by)}, and a delete spares newer rows by all of them, or by none; nothing was deleted",
            columns=missing,
        )


def shown_keys(rows: pa.Table, mask: Any, config: TableConfig) -> str:
    """Return the keys of some marked rows, for messages."""
    if any(name not in rows.column_names for name in config.record_key_fields):
        return ""
    found = rows.select(list(dict.fromkeys(config.record_key_fields))).filter(mask).slice(0, 3)
    try:
        return f" ({shown(record_keys(found, config.record_key_fields))})"
    except InputError:  # the keys are bad too, which their own check reports
        return ""
