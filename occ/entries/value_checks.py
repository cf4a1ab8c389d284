"""Checks of values (the setting ``check``): conditions that no row of the table may break. Pure.

As in SQL a row breaks one for which it is false; null passes. Every file of new rows is looked at as it is written, in
Spark's workers too, so what a merge or a rebase has computed is as well.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from ...errors import ConstraintError, InputError
from ...hudi.merge import plain
from ...hudi.table import RECORD_KEY, python_rows

if TYPE_CHECKING:
    from ...conditions import Condition

_SHOWN, _LISTED = 3, 100


@dataclass(frozen=True, slots=True)
class ValueCheck:
    """One check on the columns of one schema; pickles.

    Attributes:
        sql: as the table's setting has it.
        broken: true for the rows that break it.
        columns: those that it reads.
    """

    sql: str
    broken: Condition
    columns: tuple[str, ...]

    def those(self, rows: pa.Table) -> pa.Table:
        """Return the rows that break it. A column that the rows lack is null in all of them.

        Raises:
            InputError: it has no result for a row.
        """
        there = [name for name in self.columns if name in rows.column_names]
        # Conditions know no dictionaries, in which texts come that repeat.
        values = pa.Table.from_arrays([plain(rows.column(name)) for name in there], names=there) if there else None
        try:
            return rows.filter(self.broken.mask(rows if values is None else values))
        except InputError as e:  # it has no result, as of a division by zero
            raise InputError(f"check={self.sql!r}: {e}", check=self.sql) from e

    def shown(self, rows: pa.Table) -> str:
        """Return some of the rows with their record keys, for a message."""
        return "; ".join(
            f"{', '.join(f'{name}={row.get(name)!r:.80}' for name in self.columns)} in row {row[RECORD_KEY]!r:.80}"
            for row in python_rows(self._told(rows.slice(0, _SHOWN)))
        )

    def error(self, table: str, rows: pa.Table, next_: str) -> ConstraintError:
        """Build the error for rows that break it."""
        few = python_rows(self._told(rows.slice(0, _LISTED)))
        rows_text = "1 row breaks" if rows.num_rows == 1 else f"{rows.num_rows:,} rows break"
        return ConstraintError(
            f"{table}: {rows_text} the check {self.sql!r}: {self.shown(rows)}. {next_}",
            table=table,
            constraint=self.sql,
            values=[tuple(row.get(name) for name in self.columns) for row in few],
            keys=[row[RECORD_KEY] for row in few],
        )

    def _told(self, rows: pa.Table) -> pa.Table:
        return rows.select([RECORD_KEY, *(name for name in self.columns if name in rows.column_names)])


@functools.lru_cache(maxsize=64)
def value_checks(checks: Sequence[str], schema: pa.Schema) -> tuple[ValueCheck, ...]:
    """Bind a table's checks to its columns. Raises `InputError` that names the check whose columns or types do not fit."""
    if not checks:  # a table without any does not import what reads conditions
        return ()
    from ...conditions import condition_on

    made = []
    for sql in checks:
        try:
            condition = condition_on(schema, sql)
        except InputError as e:
            raise InputError(f"check={sql!r}: {e}", check=sql) from e
        made.append(ValueCheck(sql, condition.negated, tuple(sorted(condition.columns))))
    return tuple(made)
