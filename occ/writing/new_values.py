"""The values that a change sets: per column a constant or an expression over the row, in the column's type."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...arguments import brief, meant
from ...errors import InputError
from ..incoming import array_of, fitted, refuse_nulls, refuse_unordered
from ..staging import COMMIT_TIME, SEQNO

if TYPE_CHECKING:
    from ...conditions import Sql, Value
    from ...hudi.table import TableConfig


def sql(text: str) -> Sql:
    """Mark SQL text as an expression, in the language of conditions: ``set={"delay": lakelatch.sql("delay + 1")}``.

    A plain text is a value: ``set={"note": "delay + 1"}`` stores these nine characters. A plain text that calls a function, or in
    a merge names ``s.delay``, is refused; ``pyarrow.compute.scalar(text)`` stores it.
    """
    from ...conditions import Sql

    if not isinstance(text, str):
        raise InputError(f"sql({text!r}) is no SQL text; give the value itself, without `sql`")
    return Sql(text)


@dataclass(frozen=True)
class Computed:
    """Values that an engine has computed, in a column beside the rows."""

    column: str

    @property
    def paths(self) -> frozenset[tuple[str, ...]]:
        """The columns read here: none, the engine has read them."""
        return frozenset()

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """The column."""
        return rows.column(self.column)


class NewValues:
    """Values for columns of a table, checked against its schema; pickles.

    Args:
        given: by column: a Python value, `sql`, an expression of pyarrow, or `Computed`.
        schema: the table's columns.
        over: the columns that expressions may name.
        required: columns declared not null.
        url: the table's URL, for messages.
        config: the table's properties; record key and partition cannot be set.

    Raises:
        InputError: no such column, a key or partition column, or a value that its column cannot hold.
    """

    def __init__(
        self,
        given: Mapping[str, Any],
        schema: pa.Schema,
        over: pa.Schema,
        url: str,
        config: TableConfig,
        required: Collection[str] = (),
    ) -> None:
        from ...conditions import Sql, computes, value_on

        if not isinstance(given, Mapping) or not given:
            raise InputError(
                f'{brief(given)} does not say what the rows of {url} are to hold; give values by column, as {{"delay": 0}}; '
                "nothing was written"
            )
        self._config, self._required = config, frozenset(required)
        self._values: dict[str, tuple[pa.DataType, pa.Array | Value | Computed]] = {}
        scope: list[tuple[str, ...]] = [(name,) for name in schema.names]
        if over is not schema:  # a merge; its clauses for new rows have no ``t`` to name
            sides = {"s": over.field("s").type, "t": pa.struct(list(schema))}
            scope = [(side, each.name) for side, fields in sides.items() for each in fields]
        fixed = {*config.record_key_fields, *config.partition_fields, *config.placed_by}
        for name, value in given.items():
            if name not in schema.names:
                hint = meant(name, schema.names) or ", ".join(schema.names)
                raise InputError(
                    f"{url} has no column {name!r} to be set ({hint}); nothing was written",
                    column=str(name),
                )
            if name in fixed:
                raise InputError(
                    f"{name} tells where a row of {url} is, so it stays what it is; delete the row and insert another; "
                    "nothing was written",
                    column=name,
                )
            kind = schema.field(name).type
            if isinstance(value, Computed):
                self._values[name] = kind, value
            elif isinstance(value, Sql | pc.Expression):
                self._values[name] = kind, value_on(over, value)
            else:
                value = value.item() if isinstance(value, np.generic) else value
                if isinstance(value, str) and computes(value, scope):
                    raise InputError(
                        f"{value!r} for column {name!r} of {url} reads as an expression, and a plain text is stored as it is. "
                        f"Give lakelatch.sql({value!r}) for what it computes, or pyarrow.compute.scalar({value!r}) for the text; "
                        "nothing was written",
                        column=name,
                    )
                try:
                    made = pa.chunked_array([array_of([value], kind, name)])
                    self._values[name] = kind, fitted(made, kind, name).combine_chunks()
                except InputError as e:
                    if not isinstance(value, str):
                        raise
                    raise InputError(
                        f"column {name!r} of {url} is {kind} and cannot hold the text {value!r}. If it is an expression, give "
                        f"lakelatch.sql({value!r}); nothing was written",
                        column=name,
                    ) from e
            self._refuse(name, self._values[name][1])

    @property
    def paths(self) -> set[tuple[str, ...]]:
        """The columns that the expressions read."""
        return {
            path for _kind, value in self._values.values() if not isinstance(value, pa.Array) for path in value.paths
        }

    @property
    def names(self) -> list[str]:
        """The columns to set."""
        return list(self._values)

    def of(self, rows: pa.Table) -> dict[str, pa.ChunkedArray]:
        """Return the new values for these rows, in the table's types. Raises `InputError` if one does not fit."""
        found, every = {}, pa.array(np.zeros(rows.num_rows, np.int64))
        for name, (kind, value) in self._values.items():
            if isinstance(value, pa.Array):
                found[name] = pa.chunked_array([value.take(every)])
            else:
                found[name] = fitted(value.of(rows), kind, name)
                self._refuse(name, found[name])
        return found

    def _refuse(self, name: str, values: Any) -> None:
        if isinstance(values, pa.Array | pa.ChunkedArray):
            rows = pa.table({name: values})
            refuse_unordered(rows, self._config, (name,))
            refuse_nulls(rows, self._required & {name}, self._config)


def with_values(rows: pa.Table, values: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    """Set these values in all rows, and mark the rows as changed by this transaction."""
    for name, column in values.items():
        place = rows.schema.get_field_index(name)
        rows = rows.append_column(name, column) if place < 0 else rows.set_column(place, name, column)
    return rows.drop_columns([name for name in (COMMIT_TIME, SEQNO) if name in rows.column_names])
