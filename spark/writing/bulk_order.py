"""Order the rows of a bulk insert: which files they come to, and their order there.

The names are those of Apache Hudi's ``hoodie.bulkinsert.sort.mode`` in lower case: NONE, PARTITION_SORT, GLOBAL_SORT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from ...arguments import many, text
from ...errors import InputError
from ...hudi.table import TableConfig
from ..reading import columns

NONE: Final = "none"
PARTITION: Final = "partition"
GLOBAL: Final = "global"


def ordered(
    rows: Any, schema: pa.Schema, config: TableConfig, sort: str, sort_by: Sequence[str] | str | None, tasks: int
) -> Any:
    """Return the rows in the order of writing; a task writes the rows that it has, in their order.

    Args:
        sort: ``none`` leaves them where they are. ``partition`` sorts each task's rows by partition and columns, without a
            shuffle. ``global`` sorts all of them so, by a shuffle into as many ranges as tasks.
        sort_by: these columns, and the record key after them, which gives a repeated task the same order even if it
            receives its rows in another one.

    Raises:
        InputError: another ``sort``, a column that is not there or has no order.
    """
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    if sort not in (NONE, PARTITION, GLOBAL):
        raise InputError(f"sort={sort!r} is none of {NONE}, {PARTITION} and {GLOBAL}; nothing was written")
    given = [] if sort_by is None else [sort_by] if isinstance(sort_by, str) else list(many(sort_by, "sort_by"))
    if given and sort == NONE:
        raise InputError(f"sort_by={given!r} sorts nothing with sort={NONE!r}; say sort={PARTITION!r} or {GLOBAL!r}")
    for name in given:
        if text(name, "sort_by") not in schema.names or pa.types.is_nested(schema.field(name).type):
            raise InputError(
                f"sort_by names {name!r}, and the rows have no such column of a type with an order; nothing was written. "
                f"They have {', '.join(schema.names)}",
                column=name,
            )
    if sort == NONE:
        return rows
    names = dict.fromkeys([*given, *config.record_key_fields])
    by = [*columns.partition_columns(schema, config.partition_fields), *(F.col(columns.quoted(name)) for name in names)]
    if sort == GLOBAL:
        rows = rows.repartitionByRange(tasks, *by)
    return rows.sortWithinPartitions(*by)
