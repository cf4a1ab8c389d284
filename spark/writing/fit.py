"""Bring rows of Spark to the types of the table's columns, by the rule of plain Python (`occ.incoming.lossless`).

This comes before all else: a key is routed by its text, and 1.0 is another text than 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...errors import InputError
from ...hudi.table import is_held
from ...occ.incoming import fitted, stored_type
from ..reading import arrow_schema
from ..shipping import refused_rows, shipped
from ..versions import spark_schema


def fit(rows: Any, schema: pa.Schema | None, *, fill: bool = False) -> Any:
    """Return the frame with the table's columns in its types; the same frame where they fit already.

    A value that its column cannot hold fails the job that reads it, with `InputError` (`shipping.workers_refusals`).

    Args:
        fill: fields that structs lack are null; otherwise they are refused.
    """
    given = arrow_schema(rows.schema)
    known = {each.name: each for each in schema or ()}
    wanted = [known[each.name] if _differs(each, known.get(each.name)) else None for each in given]
    if not any(wanted):
        return rows
    from pyspark.sql.types import StructField, StructType

    fields = [
        StructField(there.name, there.dataType if field is None else spark_schema(pa.schema([field]))[0].dataType)
        for there, field in zip(rows.schema.fields, wanted, strict=True)
    ]
    return rows.mapInArrow(shipped(_Fit([each and each.type for each in wanted], fill)), StructType(fields))


def _differs(given: pa.Field, wanted: pa.Field | None) -> bool:
    """Return whether the column's values must be checked, because it is not written into the other unchanged."""
    if wanted is None:
        return False
    try:
        return not is_held(stored_type(given.type, given.name), wanted.type)
    except InputError:  # no table holds its type, and yet its values may fit, as nulls do
        return True


@dataclass
class _Fit:
    """A function that fits batches; None is a column that stays unchanged."""

    types: list[pa.DataType | None]
    fill: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            with refused_rows():
                fitting = [
                    column if kind is None else fitted(column, kind, name, fill=self.fill, first=None)
                    for column, kind, name in zip(rows.columns, self.types, rows.column_names, strict=True)
                ]
            yield from pa.Table.from_arrays(fitting, names=rows.column_names).combine_chunks().to_batches()
