"""Joins and the first N rows of each key, of DataFrames as `lakelatch.mergers` has them of Arrow tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ..arguments import brief
from ..errors import InputError
from ..mergers import filled, refuse_count
from .reading.columns import is_plain

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def join(rows: DataFrame, how: Literal["left", "right", "inner", "outer"], *, left: str, right: str) -> DataFrame:
    """Return the rows that a join of two sources would have; ``rows`` hold by key what both know of it.

    Arguments and errors are those of `lakelatch.mergers.join`. Nothing is shuffled.
    """
    for name in filled(how, left, right):
        rows = rows.where(_column(rows, name).isNotNull())
    return rows


def top_n_per_key(rows: DataFrame, count: int, *, key: Sequence[str], by: str) -> DataFrame:
    """Return for each key the ``count`` rows with the greatest ``by``; of equal ones any. Null is least, NaN the greatest.

    Arguments and errors are those of `lakelatch.mergers.top_n_per_key`. Spark shuffles the rows by key.
    """
    from pyspark.sql import Window
    from pyspark.sql.functions import col, row_number

    refuse_count(count)
    window = Window.partitionBy(*(_column(rows, name) for name in key)).orderBy(_column(rows, by).desc_nulls_last())
    taken = {name.casefold() for name in rows.columns}
    place = next(name for n in range(len(taken) + 1) if (name := f"place_{n}") not in taken)
    return rows.withColumn(place, row_number().over(window)).where(col(place) <= count).drop(place)


def _column(rows: DataFrame, name: str) -> Column:
    from pyspark.sql.functions import col

    if is_plain(rows):
        raise InputError(
            f"rows={brief(rows)} is no DataFrame; lakelatch.mergers has the same function for an Arrow table"
        )
    if name not in rows.columns:
        raise InputError(f"the rows have no column {name!r}; they have {', '.join(rows.columns)}", column=name)
    return col("`" + name.replace("`", "``") + "`")
