"""The rule by which the rows of one key become one row: a merger for each column, and the order of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import pyarrow as pa

from ..errors import ConfigError, InputError
from .choice import Last, LastNonNull, LastUnless
from .interface import Merger
from .named import find
from .rows import Ties, combine

EVERY = "*"  # the merger of all columns that name none


@dataclass(frozen=True)
class Rule:
    """The merge settings of a table. Pickles.

    Attributes:
        columns: column -> name of its merger (`find`); `EVERY` stands for all columns not named.
        ordering: columns by which one row is newer than another; () makes the later one newer.
        ties: which of two rows with equal ordering values is newer.
        fixed: columns without a merger, because all rows of a key share their value or they order rows.
        newest: other columns without a merger.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    ordering: tuple[str, ...] = ()
    ties: Ties = "last"
    fixed: tuple[str, ...] = ()
    newest: tuple[str, ...] = ()

    @property
    def as_hudi(self) -> bool:
        """True if every reader of a log file follows this rule."""
        return self.plain and (self.ties == "last" or not self.ordering)

    @property
    def plain(self) -> bool:
        """True if the newest row wins as a whole."""
        return not self.columns

    @cached_property
    def _found(self) -> dict[str, Merger]:
        return {name: find(spec) for name, spec in self.columns.items()}

    def merger(self, column: str) -> Merger | None:
        """Return the merger of a column; None: it takes the newest row's value."""
        if column in (*self.fixed, *self.newest, *self.ordering):
            return None
        return self._found.get(column, self._found.get(EVERY))

    def refuse(self, schema: pa.Schema | None) -> None:
        """Raise `ConfigError` if a table with these columns can't merge by this rule; ``schema`` None: columns not known yet.

        A merger that can't be imported here, because its package is not installed, is one reason.
        """
        for name, spec in self.columns.items():
            try:
                find(spec)
            except ConfigError as e:
                raise ConfigError(f"column {name!r}: {e}", column=name, merger=spec) from e
            if name in (*self.fixed, *self.newest, *self.ordering):
                raise ConfigError(f"merge names {name!r}, which is a key, partition or ordering column; leave it out")
            if schema is not None and name not in (EVERY, *schema.names):
                raise ConfigError(
                    f"merge names the column {name!r}, which the table lacks; it has {', '.join(schema.names)}"
                )
        if self.ties == "first" and not self.ordering:
            raise ConfigError(
                "ties='first' is about rows with equal ordering values, and the table has no ordering field; leave it out"
            )
        for column in schema or ():
            self._refuse_column(column)

    def _refuse_column(self, column: pa.Field) -> None:
        if (merger := self.merger(column.name)) is None:
            return
        spec = self.columns.get(column.name, self.columns.get(EVERY))
        try:
            laws = merger.laws(column.type)
        except InputError as e:
            raise ConfigError(f"column {column.name!r} can't have the merger {spec}: {e}", column=column.name) from e
        # These three can place a late row by its ordering value (`one_by_one`); no other ordered merger can.
        if self.ordering and not laws.commutative and not isinstance(merger, Last | LastNonNull | LastUnless):
            raise ConfigError(
                f"column {column.name!r} can't have the merger {spec}: it takes rows in order, and a row that comes late would "
                f"need the ordering value of each that was merged before, which nobody keeps. Leave out the ordering field "
                f"({', '.join(self.ordering)}), or use a merger whose result does not depend on the order",
                column=column.name,
            )

    def merges_ahead(self, schema: pa.Schema) -> bool:
        """Return whether rows may be merged with each other before they meet the stored one.

        A merger that needs rows in order must not, where an ordering field gives the order: of (2, null) and (1, "late") it
        makes (2, "late"), which must not overwrite a stored row of time 2.
        """
        return not self.ordering or all(
            merger is None or isinstance(merger, Last) or merger.laws(each.type).commutative
            for each in schema
            for merger in [self.merger(each.name)]
        )

    def commutes(self, schema: pa.Schema) -> bool:
        """Return whether the order in which rows arrive makes no difference."""
        rest = [each for each in schema if each.name not in self.fixed]
        mergers = [(self.merger(each.name), each.type) for each in rest]
        return all(merger is not None and merger.laws(kind).commutative for merger, kind in mergers)

    def lifted(self, rows: pa.Table) -> pa.Table:
        """Return the rows with each value replaced by its contribution (`Merger.lift`)."""
        for place, column in enumerate(rows.schema):
            if (merger := self.merger(column.name)) is not None:
                rows = rows.set_column(place, column, contributions(merger, column, rows.column(place)))
        return rows

    def one_of_each(self, rows: pa.Table, key: str) -> pa.Table:
        """Return one row per key, as if rows were merged one by one.

        ``rows`` are in order of arrival and hold contributions; the first one of a key may be a merged row.
        """
        mergers = {name: merger for name in rows.column_names if (merger := self.merger(name)) is not None}
        return combine(rows, key=key, mergers=mergers, ordering=self.ordering, ties=self.ties, one_by_one=True)


def contributions(merger: Merger, column: pa.Field, values: pa.ChunkedArray) -> pa.Array:
    """Return the contribution of each value. Raises `InputError`, which names the column, if one cannot contribute."""
    try:
        return merger.lift(values.combine_chunks(), column.type)
    except InputError as e:
        raise InputError(f"column {column.name!r}: {e}; nothing was written", column=column.name) from e
