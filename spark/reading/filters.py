"""Conditions in Spark's form, and the simple comparisons in one, for pruning by file statistics."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ...arguments import brief
from ...conditions import Given, Sql, condition_on, value_on
from ...errors import InputError
from ..versions import spark_schema
from .columns import spelled
from .partition_pruning import analysed, conjuncts, refusing

_OPERATORS = {"EqualTo": "=", "LessThan": "<", "LessThanOrEqual": "<=", "GreaterThan": ">", "GreaterThanOrEqual": ">="}
_TURNED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_NULLS = {"IsNull": "is null", "IsNotNull": "is not null"}


def in_spark(schema: pa.Schema, given: Given) -> Any:
    """Return the condition as SQL text or a Column.

    Both go to Spark unchanged: it understands all that `conditions` does, and more. Terms and expressions of pyarrow
    become SQL.
    """
    from pyspark.sql import Column

    return given if isinstance(given, str | Column) else condition_on(schema, given).sql


def one_of(filter: Any | None, where: Any | None) -> Any | None:  # noqa: A002 - the word Spark's users look for
    """Return the condition, under whichever of its two names it was given."""
    if filter is not None and where is not None:
        raise InputError(f"filter={brief(filter)} and where={brief(where)} are two names of one condition; give one")
    return filter if where is None else where


def value_in_spark(schema: pa.Schema, given: Any) -> Any:
    """Return a value of `update_where` as a Column: SQL text and columns go to Spark unchanged."""
    from pyspark.sql import Column
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    if isinstance(given, Column):
        return given
    return F.expr(given.text if isinstance(given, Sql) else value_on(schema, given).sql)


def comparisons(spark: Any, schema: pa.Schema, condition: Any) -> list[tuple[Any, ...]]:
    """Return comparisons that the condition implies. Parts without a simple form are left out."""
    empty = spark.createDataFrame([], spark_schema(schema))
    with refusing("the condition", condition):
        found = [_comparison(each) for each in conjuncts(analysed(empty, condition))]
    return [(spelled(each[0], schema.names), *each[1:]) for each in found if each is not None]


def _comparison(expression: Any) -> tuple[Any, ...] | None:
    kind = expression.nodeName()
    children = expression.children()
    parts = [children.apply(n) for n in range(children.size())]
    if kind in _NULLS and _is_column(parts[0]):
        return parts[0].name(), _NULLS[kind]
    if kind == "In" and _is_column(parts[0]):
        values = [_value(each) for each in parts[1:]]
        return None if None in values else (parts[0].name(), "in", tuple(values))
    if kind not in _OPERATORS:
        return None
    op = _OPERATORS[kind]
    if _is_column(parts[1]):
        parts, op = parts[::-1], _TURNED[op]
    if not _is_column(parts[0]):
        return None
    value = _value(parts[1])
    return None if value is None else (parts[0].name(), op, value)


def _is_column(expression: Any) -> bool:
    # Anything around it, a cast above all, may compare differently from the statistics.
    return bool(expression.nodeName() == "AttributeReference")


def _value(expression: Any) -> Any:
    """Return a literal, possibly inside a cast, as statistics hold it, or None."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    inner = expression
    while inner.nodeName() == "Cast":
        inner = inner.child()
    if inner.nodeName() != "Literal":
        return None  # the current date, for example, may have changed when the query runs
    try:
        value = expression.eval(None)
    except Py4JError:  # a cast that fails when the query runs
        return None
    if value is None:
        return None
    try:
        return _in_python(value, expression.dataType().typeName())
    except OverflowError:
        # Spark's years have more than four digits, and some come before the first.
        return None


def _in_python(value: Any, kind: str) -> Any:
    match kind:
        case "boolean" | "byte" | "short" | "integer" | "long" | "double":
            return value
        case "string":
            return str(value.toString())
        case "date":
            return date(1970, 1, 1) + timedelta(days=value)
        case "timestamp":
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
        case "timestamp_ntz":
            return datetime(1970, 1, 1) + timedelta(microseconds=value)
        case _ if kind.startswith("decimal"):
            return Decimal(str(value.toString()))
        case _:
            return None
