"""Values computed from a row, in the same language as conditions."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from .binding import bind_value
from .evaluate import values_of
from .given import of_arrow
from .implied import paths_of
from .sql import parse
from .tree import Node, text


@dataclass(frozen=True, slots=True)
class Sql:
    """SQL text that stands for a value, as ``delay + 1``; a plain text stands for itself."""

    text: str


@dataclass(frozen=True, slots=True)
class Value:
    """A value for each row of one schema. Made by `value_on`; pickles.

    Attributes:
        bound: its tree, with every cast that Spark would add.
        kind: its type.
    """

    bound: Node
    kind: pa.DataType

    def of(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the value in each row. Raises `InputError` if one has none, for example a division by zero."""
        return values_of(self.bound, rows)

    @property
    def sql(self) -> str:
        """The same value in Spark's SQL."""
        return text(self.bound)

    @property
    def paths(self) -> frozenset[tuple[str, ...]]:
        """The columns that it reads, with the fields inside nested ones."""
        return frozenset(paths_of(self.bound))


def value_on(schema: pa.Schema, given: Sql | pc.Expression) -> Value:
    """Bind the value that a caller gives to this schema.

    Raises:
        InputError: it cannot be parsed, names an unknown column, or calculates with types that do not match.
    """
    if isinstance(given, Sql):
        return Value(*bind_value(parse(given.text), schema, given.text))
    return Value(*bind_value(of_arrow(given), schema))
