"""Rows in any supported form, as an Arrow table of the table's columns and types.

    an Arrow table, record batch or reader, or several batches in a list
    a pandas frame       NaN, NaT and NA are null; a named index is a column, an unnamed one is left out
    a polars frame       a lazy one is collected
    a list of dicts      missing keys are null
    anything else that has `__arrow_c_stream__` or `__arrow_c_array__`, such as a DuckDB relation

Readers and streams are read once, batch by batch, and each batch is fitted on arrival; with more than `spool.MEMORY_BYTES`
the rows wait in a temporary file. Rows already in memory are not copied.

The order of columns does not matter. Hudi's own columns are dropped: each commit writes its own.
"""

from __future__ import annotations

import sys
import weakref
import zoneinfo
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from ...arguments import brief, meant, one_of
from ...errors import InputError
from ...hudi.table import META_COLUMNS, ROW_ID, TableConfig, fields_inside, with_new_fields, with_time_column
from .lossless import fitted, stored_type
from .ordering_values import refuse_some_of_the_order, refuse_unordered
from .python_values import array_of, counted_table, table_of
from .spool import Spool

# Policies for columns that the rows lack, and for columns that the table lacks.
REFUSE, NULL, ADD = "refuse", "null", "add"
_ACCEPTED = (
    "a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a DuckDB relation, a list of dicts or "
    "of record batches, or an object with `__arrow_c_stream__` or `__arrow_c_array__`"
)
# Marks a type unknown to this process, which appears as its storage type.
_EXTENSION = b"ARROW:extension:name"
_T = TypeVar("_T")
_Maker = Callable[[Mapping[str, pa.DataType]], pa.Table]
_READ: weakref.WeakSet[pa.RecordBatchReader] = weakref.WeakSet()  # a second read would silently yield no rows


class _Columns(Protocol):
    """A method that chooses the columns that rows are fitted to."""

    def __call__(self, given: pa.Schema, schema: pa.Schema | None, *, nothing: bool) -> list[pa.Field]: ...


class Incoming:
    """The rows or keys that a caller passed in: read once, and fitted to the schema of each attempt.

    Args:
        rows: rows in any of the forms above.
        url: the table's URL, for messages.
        missing: ``"refuse"``, or ``"null"``: columns that the rows lack are null.
        new_columns: ``"refuse"``, or ``"add"``: columns that the table lacks are added to it. The first rows of a table without
            columns define them.
        zone: the time zone of times without one, such as ``"UTC"`` or ``"Europe/Rome"``; ``None`` refuses such times, because
            one of Hudi's readers fails on them.
        id_of: begins the ids of rows that have none, in a table without a key. A row keeps its id in all attempts.

    Attributes:
        adds: True if columns that the table lacks are added to it.
        on_disk: True if the last requested rows are in a mapped file, so that memory per row matters.

    Raises:
        InputError: the rows have another form, or ``missing``, ``new_columns`` or ``zone`` another value.
    """

    def __init__(
        self,
        rows: Any,
        url: str,
        config: TableConfig,
        *,
        missing: str = REFUSE,
        new_columns: str = REFUSE,
        zone: str | None = None,
        id_of: str = "",
    ) -> None:
        one_of(missing, "missing", (REFUSE, NULL), then="; nothing was written")
        one_of(new_columns, "new_columns", (REFUSE, ADD), then="; nothing was written")
        self.adds = new_columns == ADD
        self._url, self._config = url, config
        self._id_of = id_of if config.row_ids else ""
        self._fill, self._zone = missing == NULL, _known_zone(zone)
        self._given = _readable(rows)
        self._once = isinstance(self._given, _Stream)
        self._last: tuple[pa.Schema | None, pa.Table] | None = None
        self.on_disk = False
        self._kept_by: list[Callable[[], None]] = []

    def kept_by(self, forget: Callable[[], None]) -> None:
        """Register a holder of rows beyond the write, such as a rebase; `release` calls ``forget`` to end that."""
        self._kept_by.append(forget)

    def release(self) -> None:
        """Free the rows and their file now, since reference cycles keep a finished transaction alive. Idempotent.

        A reader's rows are refused afterwards; tables in the caller's memory are not touched.
        """
        if self._once:
            self._given = _refuse_again
        self._last, forget, self._kept_by = None, self._kept_by, []
        for each in forget:
            each()

    @property
    def unread(self) -> bool:
        """True while the rows are still in a reader; the first call that needs them reads it."""
        return isinstance(self._given, _Stream)

    def rows(self, schema: pa.Schema | None) -> pa.Table:
        """Return all rows with the columns of the schema (``None``: the table has none yet), then those that it lacks.

        Raises:
            InputError: a column is missing, or its values would change in the table's type; the table lacks one and may not
                get it, or no table can hold its name or type.
            StorageError: the temporary folder has no room for the rows of a reader.
        """
        if self._last is None or self._last[0] != schema:
            rows = self._fitted(self._all_columns, schema)
            if rows.num_columns:
                refuse_unordered(rows, self._config)
            self._last = schema, rows if rows.num_columns else (schema or pa.schema([])).empty_table()
        return self._last[1]

    def keys(self, schema: pa.Schema) -> pa.Table:
        """Return the record keys, with partition and ordering columns if present; other columns are ignored.

        Raises:
            InputError: a column of the record key is missing, only some of the ordering columns are there, or values do not fit
                as for `rows`.
            StorageError: as for `rows`.
        """
        return self._fitted(self._key_columns, schema)

    def source(self, schema: pa.Schema | None) -> pa.Table:
        """Return the rows with the columns passed in and no others; those that the table has in its types.

        Raises:
            InputError: a column of record key or partition is missing, or values do not fit as for `rows`.
            StorageError: as for `rows`.
        """
        return self._fitted(self._given_columns, schema)

    # `_Columns`, one per kind of request. ``nothing``: neither rows nor columns were passed in, as by an empty list.

    def _all_columns(self, given: pa.Schema, schema: pa.Schema | None, *, nothing: bool) -> list[pa.Field]:
        if nothing:
            return []
        given = self._placed(given)
        self._refuse_by_case(given.names, schema)
        self._refuse_unplaced(given.names)
        if not self.adds:
            refuse_new_columns(given.names, schema, self._url)
        if not self._fill:
            self._refuse_missing(given.names, schema)
        old = list(schema or ())
        if self.adds:
            old = [*with_new_fields(pa.schema(old), given, partial(stored_type, zone=self._zone))]
        known = {each.name for each in old}
        return [*old, *(self._stored(each) for each in given if each.name not in known)]

    def _key_columns(self, given: pa.Schema, schema: pa.Schema | None, *, nothing: bool) -> list[pa.Field]:  # noqa: ARG002 - as the others
        assert schema is not None, "keys are of a table that has rows"
        computed = self._config.time_column not in given.names
        given = self._placed(given)
        wanted = self._config.record_key_fields
        if missing := [name for name in wanted if name not in given.names]:
            raise InputError(
                f"the keys lack {', '.join(missing)}, the record key of {self._url}; nothing was deleted{self._of_ids()}",
                columns=missing,
            )
        places = [each for each in self._config.partition_fields if each in given.names and each not in wanted]
        if computed and self._config.time_column in places and self._config.time_source not in wanted:
            places.append(self._config.time_source)
        more = [each for each in self._config.newer_by if each in given.names and each in schema.names]
        refuse_some_of_the_order(more, self._config)
        return [schema.field(name) for name in (*wanted, *places, *more)]

    def _given_columns(self, given: pa.Schema, schema: pa.Schema | None, *, nothing: bool) -> list[pa.Field]:
        given, known, config = self._placed(given), {each.name: each for each in schema or ()}, self._config
        needed = dict.fromkeys([*config.record_key_fields, *config.placed_by])
        if not nothing and (missing := [name for name in needed if name not in given.names]):
            raise InputError(
                f"the rows lack {', '.join(missing)}, by which rows of {self._url} are found; nothing was written"
                f"{self._of_ids()}",
                columns=missing,
            )
        return [known.get(each.name) or self._stored(each) for each in given]

    def _placed(self, given: pa.Schema) -> pa.Schema:
        """Return the columns with those that are made: an id, and what is computed from a time (`time_partitions`)."""
        if self._id_of and ROW_ID not in given.names:
            given = given.append(pa.field(ROW_ID, pa.string()))
        made = self._config.time_column
        if made in given.names or self._config.time_source not in given.names:
            return given
        return given.append(pa.field(made, pa.string()))

    def _of_ids(self) -> str:
        if not self._config.row_ids:
            return ""
        return (
            f". The table was made without a key, and gave each row an id in {ROW_ID}, which a read shows: write with it, or by "
            "a condition (update_where, delete_where), or insert the rows as new ones"
        )

    def _stored(self, given: pa.Field) -> pa.Field:
        return pa.field(given.name, stored_type(given.type, given.name, zone=self._zone))

    def _fitted(self, columns: _Columns, schema: pa.Schema | None) -> pa.Table:
        """Return the rows with these columns."""
        given = self._given
        if isinstance(given, _Stream):
            fields = columns(_data_columns(given.schema), schema, nothing=False)
            # The reader is consumed now; later attempts fit the spooled rows.
            # A stream can be read once, and a lost attempt needs the rows again.
            self._given = rows = self._spooled(given.tables(), fields)
            return rows
        if not isinstance(given, pa.Table):
            given = given({each.name: each.type for each in schema or ()})
        there = _data_columns(given.schema)
        fields = columns(there, schema, nothing=not (given.num_rows or there.names))
        # Converted in memory at once, rows that did not fit before would not fit now.
        if self.on_disk and given.schema.types != [each.type for each in fields]:
            return self._spooled((pa.table(each) for each in given.to_batches()), fields)
        return self._fit(given, fields)

    def _spooled(self, tables: Iterable[pa.Table], fields: list[pa.Field]) -> pa.Table:
        spool = Spool(pa.schema(fields))
        try:
            for each in tables:
                spool.add(self._fit(each, fields, first=spool.rows))
            rows, self.on_disk = spool.table()
        except BaseException:
            spool.close()
            raise
        return rows

    def _fit(self, given: pa.Table, fields: list[pa.Field], *, first: int = 0) -> pa.Table:
        names = given.column_names
        for each in fields:
            if each.name in names:
                _refuse_no_values(given.schema.field(each.name), given.column(each.name))
        made, wanted = self._config.time_column, [each.name for each in fields]
        ids = bool(self._id_of) and ROW_ID not in names
        kept = [each for each in fields if (each.name != made or made in names) and not (ids and each.name == ROW_ID)]
        columns = [
            fitted(given.column(each.name), each.type, each.name, zone=self._zone, fill=self._fill, first=first)
            if each.name in names
            else pa.nulls(given.num_rows, each.type)
            for each in kept
        ]
        rows = pa.Table.from_arrays(columns, schema=pa.schema(kept))
        if ids:
            numbers = pa.array(range(first, first + given.num_rows), pa.int64()).cast(pa.string())
            rows = rows.append_column(ROW_ID, pc.binary_join_element_wise(self._id_of, numbers, "-"))
        return (with_time_column(rows, self._config) if made in wanted else rows).select(wanted)

    def _refuse_by_case(self, names: list[str], schema: pa.Schema | None) -> None:
        by_case = {each.lower(): each for each in (schema.names if schema is not None else ())}
        for name in names:
            if by_case.get(name.lower(), name) not in (name, *names):
                raise InputError(
                    f"the rows have a column {name!r} and {self._url} has {by_case[name.lower()]!r}, which differs in case only; "
                    "rename it; nothing was written",
                    column=name,
                )

    def _refuse_unplaced(self, names: list[str]) -> None:
        config = self._config
        needed = [*config.record_key_fields, *config.placed_by, *config.ordered_by]
        if missing := [name for name in dict.fromkeys(needed) if name not in names]:
            raise InputError(
                f"the rows lack {', '.join(missing)}, which {self._url} needs as record key, partition or ordering field; "
                f"nothing was written{self._of_ids()}",
                columns=missing,
            )

    def _refuse_missing(self, names: list[str], schema: pa.Schema | None) -> None:
        known = schema.names if schema is not None else []
        if missing := [name for name in known if name not in names]:
            new = [name for name in names if name not in known]
            hints = "".join(f" ({name!r}: {hint})" for name in new if (hint := meant(name, missing)))
            raise InputError(
                f"the rows lack {', '.join(missing)} of {self._url}{hints}; give these columns, or say "
                '`missing="null"`, and they are null in these rows; nothing was written',
                columns=missing,
            )


def refuse_new_columns(names: Iterable[str], schema: pa.Schema | None, url: str) -> None:
    """Raise `InputError` if the table has columns but lacks one of these."""
    if schema is None or not (new := [name for name in names if name not in schema.names]):
        return
    hints = [f"{name!r}: {hint}" for name in new if (hint := meant(name, schema.names))]
    hint = "; ".join(hints) or f"it has {', '.join(schema.names[:20])}"
    raise InputError(
        f"{url} has no column {', '.join(map(repr, new))} ({hint}). Rename "
        'or drop it, or say `new_columns="add"`, and the table gets it, for good; nothing was written',
        columns=new,
    )


def _data_columns(given: pa.Schema) -> pa.Schema:
    """Return the columns without Hudi's own. Raises `InputError` if two have one name."""
    names = given.names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"the rows have more than one column {twice[0]!r}; nothing was written", columns=twice)
    return pa.schema([each for each in given if each.name not in META_COLUMNS])


def _refuse_no_values(field: pa.Field, column: pa.ChunkedArray) -> None:
    """Raise `InputError` if a column's storage is not its values: an unknown extension type, or invalid bytes."""
    for path, each in ((field.name, field), *fields_inside(field.type, field.name)):
        if other := (each.metadata or {}).get(_EXTENSION):
            raise InputError(
                f"column {path!r} is of type {other.decode(errors='replace')}, and Arrow shows other values for it, of type "
                f"{each.type}; convert it, for example to text; nothing was written",
                column=path,
            )
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as e:
        raise InputError(
            f"column {field.name!r} holds what no {field.type} is: {e}; nothing was written", column=field.name
        ) from e


def _known_zone(zone: str | None) -> str | None:
    if zone is not None:
        try:
            zoneinfo.ZoneInfo(zone)
        except (OSError, TypeError, ValueError, zoneinfo.ZoneInfoNotFoundError):
            raise InputError(
                f'zone={brief(zone)} is no time zone; say "UTC", or a place such as "Europe/Rome"; nothing was written'
            ) from None
    return zone


# --- forms -------------------------------------------------------------------------------------------------------


class _Stream:
    """Rows of an unread reader, which can be read once; ``name`` describes it in messages."""

    def __init__(self, reader: pa.RecordBatchReader, name: str) -> None:
        self._reader, self._name, self.schema = reader, name, reader.schema

    def tables(self) -> Iterator[pa.Table]:
        """Yield each batch as a table. Arrow's errors become `InputError`; other errors of the reader pass through."""
        rows = 0
        try:
            for batch in self._reader:
                # Arrow does not compare them, and a missing column would be taken for nulls.
                if batch.schema.names != self.schema.names:
                    raise InputError(
                        f"after {rows} rows {self._name} gave a batch with the columns {', '.join(batch.schema.names)}, and its "
                        f"schema has {', '.join(self.schema.names)}; nothing was written",
                        rows=rows,
                    )
                yield pa.Table.from_batches([batch])
                rows += batch.num_rows
        except pa.ArrowException as e:
            raise InputError(f"{self._name} failed after {rows} rows: {e}; nothing was written", rows=rows) from e
        except InputError:
            raise
        except Exception as e:
            e.add_note(f"{self._name} failed after {rows} rows; nothing was written")
            raise


def _readable(rows: Any) -> pa.Table | _Maker | _Stream:
    """Return the rows as a table or stream, or, if the conversion needs the table's types, as a function of them."""
    kind = type(rows)
    if any(each.__module__.startswith("pyspark.") for each in kind.__mro__):
        raise InputError(
            f"rows of Spark ({_name(kind)}) are written by Spark: open the table with `lakelatch.spark.open`; nothing was written"
        )
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, list | tuple) and all(isinstance(each, pa.RecordBatch) for each in rows) and rows:
        return _understood(kind, lambda: pa.Table.from_batches(rows))
    if isinstance(rows, list | tuple) and all(isinstance(each, Mapping) for each in rows):
        return lambda known: table_of(rows, known)
    if isinstance(rows, pa.RecordBatchReader):
        return _read_once(rows, "the reader")
    if _is_a(rows, "pandas", "DataFrame"):
        return lambda known: _of_pandas(rows, known)
    if _is_a(rows, "polars", "DataFrame") or _is_a(rows, "polars", "LazyFrame"):
        try:
            return _of_polars(rows.lazy().collect(), sys.modules["polars"])
        except sys.modules["polars"].exceptions.PolarsError as e:
            e.add_note("the lazy frame could not be collected; nothing was written")
            raise
    if _is_a(rows, "duckdb", "DuckDBPyRelation"):
        _refuse_odd_types(rows)
    if hasattr(rows, "__arrow_c_stream__") and not _in_memory(rows):
        return _understood(kind, lambda: _read_once(pa.RecordBatchReader.from_stream(rows), _name(kind)))
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        return _understood(kind, lambda: pa.table(rows))
    hint = (
        "[row] for one row, or "
        if isinstance(rows, Mapping)
        else "list(rows), or "
        if isinstance(rows, Iterator)
        else ""
    )
    raise InputError(f"rows can't be {_what(rows)}; nothing was written. Give {hint}{_ACCEPTED}")


def _in_memory(rows: Any) -> bool:
    """Return whether an object with a stream has all of its rows in memory."""
    return isinstance(rows, pa.ChunkedArray) or _is_a(rows, "polars", "DataFrame") or _is_a(rows, "polars", "Series")


def _is_a(rows: Any, module: str, kind: str) -> bool:
    """Return whether rows are of a class of an imported module; a half-imported module may lack the class yet."""
    found = getattr(sys.modules.get(module), kind, None)
    return found is not None and isinstance(rows, found)


def _understood(kind: type, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except pa.ArrowException as e:
        raise InputError(f"{_name(kind)} gave no rows: {e}; nothing was written. Give {_ACCEPTED}") from e


def _read_once(reader: pa.RecordBatchReader, name: str) -> pa.Table | _Stream:
    if reader in _READ:
        _refuse_again()
    _READ.add(reader)
    # Rows without data columns are refused with their number, which takes reading them all.
    return _Stream(reader, name) if set(reader.schema.names) - set(META_COLUMNS) else reader.read_all()


def _refuse_again(_known: object = None) -> NoReturn:
    raise InputError(
        "the reader was read before, by an earlier write or attempt, and has no more rows; nothing was written. Make a new "
        "one in the function that is run again, or hand in a table"
    )


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
        column = column.sparse.to_dense() if hasattr(column, "sparse") else column
        if column.dtype == object:
            values = [None if null else value for value, null in zip(column, column.isna(), strict=True)]
            arrays.append(array_of(values, known.get(name), name))
            continue
        try:
            if hasattr(column, "cat") and column.cat.categories.dtype == object:
                codes, categories = column.cat.codes, array_of(list(column.cat.categories), known.get(name), name)
                indices = pa.array(codes, mask=codes.to_numpy() < 0)
                arrays.append(pa.DictionaryArray.from_arrays(indices, categories))
                continue
            arrays.append(pa.array(column, from_pandas=True))
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as e:
            raise InputError(
                f"column {name!r} is of pandas' type {column.dtype}, which Arrow does not take: {e}; convert it; nothing was "
                "written",
                column=name,
            ) from e
    return counted_table(arrays, names, len(frame))


def _of_polars(frame: Any, polars: Any) -> pa.Table:
    try:
        table = pa.table(frame)
        # Arrow gets the memory addresses of such objects as values.
        objects = [kind == polars.Object for kind in frame.schema.values()]
        told = [
            each.with_metadata({_EXTENSION: "polars.Object"}) if odd else each
            for each, odd in zip(table.schema, objects, strict=True)
        ]
        return pa.Table.from_arrays(table.columns, schema=pa.schema(told))
    except pa.ArrowException as e:
        for name, kind in frame.schema.items():
            try:
                pa.table(frame.select(name))
            except pa.ArrowException as one:
                raise InputError(
                    f"column {name!r} is of polars' type {kind}, which Arrow does not take: {one}; cast it; nothing was written",
                    column=name,
                ) from e
        raise


def _refuse_odd_types(relation: Any) -> None:
    """Raise `InputError` for DuckDB types that arrive in Arrow as other values."""
    for name, kind in zip(relation.columns, relation.types, strict=True):
        if found := _odd_types(kind):
            raise InputError(
                f"column {name!r} is of DuckDB's type {kind}, and Arrow shows other values for {found}; cast it, for example "
                "to VARCHAR; nothing was written",
                column=name,
            )


def _odd_types(kind: Any) -> str | None:
    if kind.id in ("bit", "uhugeint"):
        return str(kind)
    if kind.id not in ("list", "array", "struct", "map", "union"):
        return None
    # An array's size is listed as a child.
    parts = (part for _, part in kind.children if not isinstance(part, int))
    return next((found for part in parts if (found := _odd_types(part))), None)


def _what(rows: Any) -> str:
    if isinstance(rows, list | tuple):
        strange = next(each for each in rows if not isinstance(each, Mapping))
        return f"a {type(rows).__name__} that holds {_name(type(strange))}"
    return _name(type(rows))


def _name(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
