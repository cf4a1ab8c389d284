"""The check of columns that were declared not null when the table was created."""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...hudi.merge import plain
from ...hudi.table import TableConfig
from .ordering_values import shown_keys


def refuse_nulls(rows: pa.Table, required: Collection[str], config: TableConfig) -> None:
    """Raise `InputError` if rows to be written are null in such a column; a missing column counts as null."""
    for name in required:
        column = plain(rows.column(name)) if name in rows.column_names else pa.nulls(rows.num_rows)
        if column.null_count:
            raise InputError(
                f"column {name!r} of {config.name} is declared not null, and {column.null_count} rows have no value for "
                f"it{shown_keys(rows, pc.is_null(column), config)}; nothing was written. Give them one",
                column=name,
            )
