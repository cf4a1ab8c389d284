"""A condition that belongs to a table: what callers work with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .binding import bind
from .evaluate import mask_of
from .given import of_arrow, of_terms
from .implied import about, columns_of, paths_of, terms_of
from .refusal import refused
from .sql import parse
from .tree import Node, text

Given = Any  # what `condition_on` takes; pyarrow has no types, so nobody could check a union


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows of one schema; true, false or null for each. Made by `condition_on`; pickles.

    Attributes:
        bound: its tree, with every cast that Spark would add written down.
    """

    bound: Node

    def mask(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """Marks the rows for which it is true; without nulls. A column that the rows lack is null in all of them.

        Raises:
            InputError: a value has no result, as a division by zero.
        """
        return mask_of(self.bound, rows)

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads; of a nested one the outermost."""
        return frozenset(columns_of(self.bound))

    @property
    def paths(self) -> frozenset[tuple[str, ...]]:
        """The columns that it reads, with the fields inside of nested ones."""
        return frozenset(paths_of(self.bound))

    @property
    def terms(self) -> tuple[tuple[Any, ...], ...]:
        """Simple comparisons that every row meets for which it is true, as ``("amount", "<", 10)``; perhaps none."""
        return terms_of(self.bound)

    @property
    def sql(self) -> str:
        """SQL that says the same in Spark, whatever its time zone; `condition_on` reads it too."""
        return text(self.bound)

    def about(self, names: Sequence[str]) -> Condition | None:
        """What it says of these columns alone: true for every row for which the whole is; None when it says nothing."""
        found = about(self.bound, names)
        return None if found is None else Condition(found)

    def __str__(self) -> str:
        return self.sql


def condition_on(schema: pa.Schema, given: Any) -> Condition:
    """The condition that a caller gives, on rows of this schema.

    Args:
        schema: of the rows; names are exact.
        given: SQL text; terms, all of which hold, as ``[("amount", "<", 10), ("city", "is not null")]``; an expression
            of pyarrow; or a `Condition`, which is bound anew.

    Raises:
        InputError: it says nothing, names no column of the schema, or compares what cannot be compared.
    """
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
