"""Rows in whatever form their user has them, as an Arrow table of the table's columns and types.

    an Arrow table, record batch or reader, or several batches in a list
    a pandas frame       NaN, NaT and NA are null; an index with a name is a column, one without is left out
    a polars frame       a lazy one is collected
    a list of dicts      what a row lacks is null
    anything else that has `__arrow_c_stream__` or `__arrow_c_array__`, such as a DuckDB relation

The order of columns is of no account. Hudi's own columns are left out: every commit writes them anew.
"""

from __future__ import annotations

import sys
import weakref
import zoneinfo
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from ...errors import InputError
from ...hudi.table import META_COLUMNS, TableConfig
from .lossless import fitted, stored_type
from .ordering_values import refuse_unordered
from .python_values import array_of, table_of

REFUSE, NULL = "refuse", "null"  # what is done about columns that the rows lack
_ACCEPTED = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a DuckDB relation, a list of dicts or "
    "of record batches, or an object with `__arrow_c_stream__` or `__arrow_c_array__`"
)
_Reader = Callable[[Mapping[str, pa.DataType]], pa.Table]
_READ: weakref.WeakSet[pa.RecordBatchReader] = weakref.WeakSet()  # they give nothing a second time


class Incoming:
    """Rows, or keys of rows, that were handed in: read once, and fitted to the schema that a transaction turns out to have.

    Args:
        rows: in any of the forms above.
        url: of the table, for messages.
        missing: ``"refuse"``, or ``"null"``: columns that the rows lack are null.
        zone: of times that say none, such as ``"UTC"`` or ``"Europe/Rome"``; ``None`` refuses them, because one of Hudi's
            readers fails on them.

    Raises:
        InputError: the rows have another form, or ``missing`` or ``zone`` another value.
    """

    def __init__(
        self, rows: Any, url: str, config: TableConfig, *, missing: str = REFUSE, zone: str | None = None
    ) -> None:
        if missing not in (REFUSE, NULL):
            raise InputError(f'missing={missing!r} is neither "refuse" nor "null"; nothing was written')
        self._url, self._config = url, config
        self._fill, self._zone = missing == NULL, _known_zone(zone)
        self._given = _readable(rows)
        self._last: tuple[pa.Schema | None, pa.Table] | None = None

    def rows(self, schema: pa.Schema | None) -> pa.Table:
        """All rows with the columns of the schema (``None``: the table has none yet), and then those that it lacks.

        Raises:
            InputError: a column is missing, or its values would change in the type that the table has for it; a new one
                has a name or type that no table holds.
        """
        if self._last is None or self._last[0] != schema:
            self._last = schema, self._in_shape(schema)
        return self._last[1]

    def keys(self, schema: pa.Schema) -> pa.Table:
        """The record keys, with the partition and ordering columns as far as they are there; others are not looked at.

        Raises:
            InputError: a column of the record key is missing, the ordering column holds NaN, or values as of `rows`.
        """
        given = self._arrow(schema)
        wanted = self._config.record_key_fields
        if missing := [name for name in wanted if name not in given.column_names]:
            raise InputError(
                f"the keys lack {', '.join(missing)}, the record key of {self._url}; nothing was deleted",
                columns=missing,
            )
        places = [each for each in self._config.partition_fields if each in given.column_names and each not in wanted]
        order = self._config.newer_by
        more = [order] if order in given.column_names and order in schema.names else []
        fields = [schema.field(name) for name in (*wanted, *places, *more)]
        return pa.Table.from_arrays([self._fit(given, each) for each in fields], schema=pa.schema(fields))

    def source(self, schema: pa.Schema | None) -> pa.Table:
        """The columns that were handed in and no others: those that the table has in its types.

        Raises:
            InputError: a column of record key or partition is missing, or values as of `rows`.
        """
        given, known = self._arrow(schema), {each.name: each for each in schema or ()}
        config = self._config
        if given.num_rows or given.num_columns:
            needed = dict.fromkeys([*config.record_key_fields, *config.partition_fields])
            if missing := [name for name in needed if name not in given.column_names]:
                raise InputError(
                    f"the rows lack {', '.join(missing)}, by which rows of {self._url} are found; nothing was written",
                    columns=missing,
                )
        fields = [
            known.get(each.name) or pa.field(each.name, stored_type(each.type, each.name, zone=self._zone))
            for each in given.schema
        ]
        return pa.Table.from_arrays([self._fit(given, each) for each in fields], schema=pa.schema(fields))

    def _in_shape(self, schema: pa.Schema | None) -> pa.Table:
        given = self._arrow(schema)
        if not (given.num_rows or given.num_columns):  # such as an empty list
            return (schema or pa.schema([])).empty_table()
        names = given.column_names
        self._refuse_missing(names, schema)
        old = list(schema or ())
        known = {each.name for each in old}
        new = [
            pa.field(each.name, stored_type(each.type, each.name, zone=self._zone))
            for each in given.schema
            if each.name not in known
        ]
        fields = [*old, *new]
        columns = [
            self._fit(given, each) if each.name in names else pa.nulls(given.num_rows, each.type) for each in fields
        ]
        rows = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        refuse_unordered(rows, self._config)
        return rows

    def _fit(self, given: pa.Table, field: pa.Field) -> pa.ChunkedArray:
        return fitted(given.column(field.name), field.type, field.name, zone=self._zone, fill=self._fill)

    def _refuse_missing(self, names: list[str], schema: pa.Schema | None) -> None:
        known = schema.names if schema is not None else []
        by_case = {each.lower(): each for each in known}
        for name in names:
            if by_case.get(name.lower(), name) not in (name, *names):
                raise InputError(
                    f"the rows have a column {name!r} and {self._url} has {by_case[name.lower()]!r}, which differs in case only; "
                    "rename it; nothing was written",
                    column=name,
                )
        config = self._config
        needed = [*config.record_key_fields, *config.partition_fields, config.ordering_field]
        if missing := [name for name in dict.fromkeys(needed) if name and name not in names]:
            raise InputError(
                f"the rows lack {', '.join(missing)}, which {self._url} needs as record key, partition or ordering field; "
                "nothing was written",
                columns=missing,
            )
        if not self._fill and (missing := [name for name in known if name not in names]):
            raise InputError(
                f'the rows lack {", ".join(missing)} of {self._url}; give these columns, or say `missing="null"`, and they are '
                "null in these rows; nothing was written",
                columns=missing,
            )

    def _arrow(self, schema: pa.Schema | None) -> pa.Table:
        known = {each.name: each.type for each in schema or ()}
        given = self._given if isinstance(self._given, pa.Table) else self._given(known)
        names = given.column_names
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise InputError(f"the rows have more than one column {twice[0]!r}; nothing was written", columns=twice)
        return given.drop_columns([name for name in META_COLUMNS if name in names])


def _known_zone(zone: str | None) -> str | None:
    if zone is not None:
        try:
            zoneinfo.ZoneInfo(zone)
        except (OSError, TypeError, ValueError, zoneinfo.ZoneInfoNotFoundError):
            raise InputError(
                f'zone={zone!r} is no time zone; say "UTC", or a place such as "Europe/Rome"; nothing was written'
            ) from None
    return zone


# --- forms -------------------------------------------------------------------------------------------------------


def _readable(rows: Any) -> pa.Table | _Reader:
    """The rows as a table; where it takes the types of the table to make one, what makes it of them."""
    kind = type(rows)
    if any(each.__module__.startswith("pyspark.") for each in kind.__mro__):
        raise InputError(
            f"rows of Spark ({_name(kind)}) are written by Spark: open the table with `lakelatch.spark.open`; nothing was written"
        )
    pandas, polars = sys.modules.get("pandas"), sys.modules.get("polars")
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatchReader):
        return _read_once(rows)
    if pandas is not None and isinstance(rows, pandas.DataFrame):
        return lambda known: _of_pandas(rows, known)
    if polars is not None and isinstance(rows, polars.LazyFrame):
        return pa.table(rows.collect())
    if isinstance(rows, list | tuple) and all(isinstance(each, pa.RecordBatch) for each in rows) and rows:
        return _understood(kind, lambda: pa.Table.from_batches(rows))
    if isinstance(rows, list | tuple) and all(isinstance(each, Mapping) for each in rows):
        return lambda known: table_of(rows, known)
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        return _understood(kind, lambda: pa.table(rows))
    raise InputError(f"rows can't be {_what(rows)}; nothing was written. Give {_ACCEPTED}")


def _understood(kind: type, read: Callable[[], pa.Table]) -> pa.Table:
    try:
        return read()
    except pa.ArrowException as e:
        raise InputError(f"{_name(kind)} gave no rows: {e}; nothing was written. Give {_ACCEPTED}") from e


def _read_once(reader: pa.RecordBatchReader) -> pa.Table:
    if reader in _READ:
        raise InputError(
            "the reader was read before, by an earlier write or attempt, and has no more rows; nothing was written. Make a new "
            "one in the function that is run again, or hand in a table"
        )
    _READ.add(reader)
    return reader.read_all()


def _of_pandas(frame: Any, known: Mapping[str, pa.DataType]) -> pa.Table:
    named = [name for name in frame.index.names if name is not None]
    if both := [name for name in named if name in frame.columns]:
        raise InputError(f"{both[0]!r} is a column of the frame and its index too; rename one; nothing was written")
    frame = frame.reset_index(level=named) if named else frame
    arrays, names = [], []
    for name, column in frame.items():
        if not isinstance(name, str):
            raise InputError(f"the frame has a column {name!r}, whose name is no text; rename it; nothing was written")
        names.append(name)
        if column.dtype == object:
            values = [None if null else value for value, null in zip(column, column.isna(), strict=True)]
            arrays.append(array_of(values, known.get(name), name))
            continue
        try:
            arrays.append(pa.array(column, from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            raise InputError(f"column {name!r}: {e}; nothing was written", column=name) from e
    return pa.Table.from_arrays(arrays, names=names)


def _what(rows: Any) -> str:
    if isinstance(rows, list | tuple):
        strange = next(each for each in rows if not isinstance(each, Mapping))
        return f"a {type(rows).__name__} that holds {_name(type(strange))}"
    return _name(type(rows))


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
