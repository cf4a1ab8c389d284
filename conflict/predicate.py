"""Conditions on columns as data, and the check whether a file's statistics exclude them. Pure.

Only certainty excludes a file: a value of another type, a missing bound or a column without statistics means "may match".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from ..errors import InputError

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in", "is null", "is not null")
_JSON_TYPES = (bool, int, float, str)


@dataclass(frozen=True, slots=True)
class Term:
    """One comparison of a column with a value; ``in`` takes a tuple, ``is null`` and ``is not null`` take none.

    Raises:
        InputError: the operator is unknown, or cannot take the value.
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

    def to_json(self) -> list[Any] | None:
        """Return plain values for a log entry; None if the value has no plain form."""
        values = [_plain(each) for each in self.value] if self.op == "in" else _plain(self.value)
        unknown = None in values if isinstance(values, list) else values is None and self.value is not None
        return None if unknown else [self.column, self.op, values]

    @classmethod
    def from_json(cls, value: Any) -> Term:
        """Reverse `to_json`; raise `ValueError` for anything else."""
        try:
            column, op, plain = value
            if type(column) is not str or type(op) is not str:
                raise TypeError(value)
            return cls(column, op, tuple(map(_bound, plain)) if op == "in" else _bound(plain))
        except (InputError, TypeError, ArithmeticError) as e:
            raise ValueError(f"{value!r:.80} is no condition") from e


Where = tuple[Term, ...]  # a conjunction; () matches every row


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Bounds of a column's values, not necessarily attained, and the number of nulls. None is unknown."""

    low: Any = None
    high: Any = None
    nulls: int | None = None


_UNKNOWN = ColumnStatistics()


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """The number of rows in a file, and the statistics of its columns."""

    rows: int | None = None
    columns: Mapping[str, ColumnStatistics] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a log entry.

        Dates, timestamps and decimals are tagged; other bounds become unknown.
        """
        columns = {
            name: [_plain(each.low), _plain(each.high), each.nulls] for name, each in sorted(self.columns.items())
        }
        return {"rows": self.rows, "columns": columns}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> FileStatistics:
        """Reverse `to_json`."""
        columns = {
            name: ColumnStatistics(_bound(low), _bound(high), nulls)
            for name, (low, high, nulls) in value["columns"].items()
        }
        return cls(value["rows"], columns)


def may_match(where: Where, statistics: FileStatistics | None) -> bool:
    """Return whether a file may hold a row that meets all conditions; False only if its statistics exclude it."""
    if statistics is None:
        return True
    if statistics.rows == 0:
        return False
    for each in where:  # noqa: SIM110 - this is asked once for each file of each candidate
        if not _may_meet(each, statistics.columns.get(each.column, _UNKNOWN), statistics.rows):
            return False
    return True


def _may_meet(condition: Term, known: ColumnStatistics, rows: int | None) -> bool:
    op, value = condition.op, condition.value
    if op == "is null":
        return known.nulls != 0
    if known.nulls is not None and known.nulls == rows:
        return False  # nothing but nulls, and no comparison is true for null
    if op == "in":
        return any(_may_hold("=", each, known.low, known.high) for each in value)
    return op == "is not null" or _may_hold(op, value, known.low, known.high)


def _may_hold(op: str, value: Any, low: Any, high: Any) -> bool:
    # Bounds ignore NaN, which Spark orders above every number. (A value NaN compares with no bound.)
    if type(value) is float and op in (">", ">=", "!="):
        return True
    # A bound that is missing, NaN or of another type proves nothing: an engine rounds when it compares a long with a
    # double.
    low_proves = _comparable(low, value)
    high_proves = _comparable(high, value)
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


def _comparable(bound: Any, value: Any) -> bool:
    if type(bound) is not type(value) or bound != bound:
        return False
    # A timestamp of a time zone and one without cannot be compared.
    return type(bound) is not datetime or (bound.tzinfo is None) == (value.tzinfo is None)


_TAGS: dict[type, tuple[str, Any, Any]] = {
    date: ("date", date.isoformat, date.fromisoformat),
    datetime: ("time", datetime.isoformat, datetime.fromisoformat),
    Decimal: ("decimal", str, Decimal),
}
_DECODERS = {tag: decode for tag, _, decode in _TAGS.values()}


def _plain(bound: Any) -> Any:
    if type(bound) in _TAGS:
        tag, encode, _ = _TAGS[type(bound)]
        return {tag: encode(bound)}
    infinite = isinstance(bound, float) and not isfinite(bound)
    return bound if isinstance(bound, _JSON_TYPES) and not infinite else None


def _bound(plain: Any) -> Any:
    if isinstance(plain, dict):
        ((tag, text),) = plain.items()
        return _DECODERS[tag](text) if tag in _DECODERS else None  # a later version's: unknown here
    return plain


def where_of(terms: Sequence[tuple[Any, ...]]) -> Where:
    """Return conditions from plain tuples: ``("month", "=", 3)``, ``("gate", "is null")``. Raise `InputError` for anything
    else.
    """
    try:
        if any(isinstance(term, str) for term in (terms, *terms)):
            raise TypeError("a text would be taken letter by letter")
        return tuple(Term(*term) for term in terms)
    except TypeError as e:
        raise InputError(f"{terms!r} are no conditions; give a list as [('month', '=', 3), ('gate', 'is null')]") from e
