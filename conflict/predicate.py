"""Conditions on columns as data, and whether a file's statistics prove that no row of it meets them. Pure.

Only what is certain counts: another type, a bound that is missing or a column without statistics means "may match".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null")
_JSON_TYPES = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison of a column with a value; ``in`` takes a tuple, the two about null take none.

    Raises:
        InputError: no such operator, or a value that it cannot take.
    """

    column: str
    op: str
    value: Any = None

    def __post_init__(self) -> None:
        if self.op not in OPERATORS:
            raise InputError(
                f"no operator {self.op!r} in a condition on {self.column!r}; known: {', '.join(OPERATORS)}"
            )
        if self.op in ("is null", "is not null"):
            if self.value is not None:
                raise InputError(f"{self.op!r} takes no value, but {self.column!r} was given {self.value!r}")
        elif self.value is None or (self.op == "in") != isinstance(self.value, tuple):
            raise InputError(
                f"{self.op!r} cannot compare {self.column!r} with {self.value!r}: give one value, for 'in' a tuple of "
                "values, and ask for nulls with 'is null'"
            )


Where = tuple[Condition, ...]  # all of them hold; empty: every row


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Bounds of a column's values, not necessarily reached; None is unknown. ``nulls`` counts them."""

    low: Any = None
    high: Any = None
    nulls: int | None = None


_UNKNOWN = ColumnStatistics()


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """Rows of a file, and what is known of its columns."""

    rows: int | None = None
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Plain values for a log entry. Bounds that JSON cannot hold as they are become unknown."""
        columns = {
            name: [_plain(each.low), _plain(each.high), each.nulls] for name, each in sorted(self.columns.items())
        }
        return {"rows": self.rows, "columns": columns}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FileStatistics:
        """The reverse of `to_json`."""
        return cls(value["rows"], {name: ColumnStatistics(*each) for name, each in value["columns"].items()})


def may_match(where: Where, statistics: FileStatistics | None) -> bool:
    """Whether a file may hold a row that meets all conditions; False only when its statistics exclude it."""
    if statistics is None:
        return True
    if statistics.rows == 0:
        return False
    for each in where:  # noqa: SIM110 - this is asked once for each file of each candidate
        if not _may_meet(each, statistics.columns.get(each.column, _UNKNOWN), statistics.rows):
            return False
    return True


def _may_meet(condition: Condition, known: ColumnStatistics, rows: int | None) -> bool:
    op, value = condition.op, condition.value
    if op == "is null":
        return known.nulls != 0
    if known.nulls is not None and known.nulls == rows:
        return False  # nothing but nulls, and no comparison is true for null
    if op == "in":
        return any(_may_hold("=", each, known.low, known.high) for each in value)
    return op == "is not null" or _may_hold(op, value, known.low, known.high)


def _may_hold(op: str, value: Any, low: Any, high: Any) -> bool:
    # Bounds say nothing of NaN, which Spark takes for larger than every number. (A value NaN compares with no bound.)
    if type(value) is float and op in (">", ">=", "!="):
        return True
    # A bound that is missing, NaN or of another type proves nothing: an engine rounds when it compares a long with a
    # double.
    low_proves = type(low) is type(value) and low == low
    high_proves = type(high) is type(value) and high == high
    match op:
        case "=":
            return not ((low_proves and value < low) or (high_proves and high < value))
        case "<":
            return not (low_proves and value <= low)
        case "<=":
            return not (low_proves and value < low)
        case ">":
            return not (high_proves and high <= value)
        case ">=":
            return not (high_proves and high < value)
        case _:  # "!=": excluded only when all values are this one
            return not (low_proves and high_proves and low == value == high)


def _plain(bound: Any) -> Any:
    return (
        bound
        if isinstance(bound, _JSON_TYPES) and bound not in (float("inf"), float("-inf")) and bound == bound
        else None
    )


def where_of(terms: Sequence[tuple[Any, ...]]) -> Where:
    """Conditions from plain tuples: ``("month", "=", 3)``, ``("gate", "is null")``."""
    return tuple(Condition(*term) for term in terms)
