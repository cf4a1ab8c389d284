"""Conditions bound to a table's schema: the form that callers work with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ..arguments import instance
from .binding import bind, bind_value
from .evaluate import mask_of, values_of
from .given import of_arrow, of_terms
from .implied import about, columns_of, paths_of, terms_of
from .sql import parse
from .tree import Node, Not, refused, text

Given = Any  # the argument of `condition_on`; pyarrow has no type hints, so a union could not be checked


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows of one schema; true, false or null for each. Made by `condition_on`; pickles.

    Attributes:
        bound: its tree, with every cast that Spark would add.
    """

    bound: Node

    def mask(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Return a mask of the rows for which it is true; without nulls. A column that the rows lack is null in all of them.

        Raises:
            InputError: a value has no result, for example a division by zero.
        """
        return mask_of(self.bound, rows)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads; of a nested one the outermost."""
        return frozenset(columns_of(self.bound))

    @property
    def paths(self) -> frozenset[tuple[str, ...]]:
        """The columns that it reads, with the fields inside nested ones."""
        return frozenset(paths_of(self.bound))

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        """Simple comparisons that hold for every row that meets the condition, as ``("amount", "<", 10)``; perhaps none."""
        return terms_of(self.bound)

    @property
    def sql(self) -> str:
        """SQL with the same meaning in Spark, whatever its time zone; `condition_on` reads it too."""
        return text(self.bound)

    @property
    def negated(self) -> Condition:
        """The condition that is true where this one is false; where one is null, so is the other."""
        return Condition(Not(self.bound))

    def about(self, names: Sequence[str]) -> Condition | None:
        """Return the part about these columns alone, true for every row that meets the whole; None if there is none."""
        found = about(self.bound, names)
        return None if found is None else Condition(found)

    def __str__(self) -> str:
        return self.sql


def condition_on(schema: pa.Schema, given: Any) -> Condition:
    """Bind the condition that a caller gives to this schema.

    Args:
        schema: the schema of the rows; names are exact.
        given: SQL text; terms, all of which hold, as ``[("amount", "<", 10), ("city", "is not null")]``; an expression
            of pyarrow; or a `Condition`, which is bound again.

    Raises:
        InputError: it is empty, names an unknown column, or compares types that cannot be compared.
    """
    instance(schema, pa.Schema, "schema", "the columns as a pyarrow.Schema, such as `table.schema()`")
    if isinstance(given, str):
        return Condition(bind(parse(given), schema, given))
    if isinstance(given, Condition):
        return Condition(bind(given.bound, schema))
    if isinstance(given, pc.Expression):
        return Condition(bind(of_arrow(given), schema))
    if type(given).__module__.startswith("pyspark."):
        raise refused(
            f"{given} is a column of Spark, which only Spark can evaluate; give SQL text, or use lakelatch.spark"
        )
    return Condition(bind(of_terms(given), schema))


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
