"""Which partitions can a condition match? Asked of Spark itself, on the partitions' values instead of their rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from ..occ.partition_path import parse_partition_path, partition_path
from ..occ.properties import TableConfig
from .columns import spark_schema

_PATH = "_lakelatch_path"


def matching_partitions(
    spark: Any, config: TableConfig, schema: pa.Schema, partitions: Sequence[str], condition: Any
) -> set[str]:
    """The partitions that may hold rows for which the condition is true; all where it does not say."""
    if not config.partition_fields or not partitions:
        return set(partitions)
    empty = spark.createDataFrame([], spark_schema(schema))
    named = [c for c in conjuncts(analysed(empty, condition)) if _only(c, config.partition_fields)]
    if not named:
        return set(partitions)
    known = _partition_rows(spark, config, schema, partitions)
    for conjunct in named:
        known = known.where(conjunct.sql())
    return {row[0] for row in known.select(_PATH).collect()}


def pinned_partitions(spark: Any, config: TableConfig, schema: pa.Schema, condition: Any) -> set[str] | None:
    """All partitions, existing or not, that can ever hold a row for which the condition is true; None when unbounded.

    Bounded means that the condition names the values (``=`` or ``in``) of every partition column.
    """
    if not config.partition_fields:
        return {""}
    empty = spark.createDataFrame([], spark_schema(schema))
    values: dict[str, list[Any]] = {}
    for conjunct in conjuncts(analysed(empty, condition)):
        named = _named_values(conjunct)
        if named is not None and named[0] in config.partition_fields:
            values.setdefault(*named)
    if set(values) != set(config.partition_fields):
        return None
    choices: list[list[Any]] = [[]]
    for field in config.partition_fields:
        choices = [[*chosen, value] for chosen in choices for value in values[field]]
    return {partition_path(chosen, config) for chosen in choices}


def analysed(empty: Any, condition: Any) -> Any:
    """The condition as Spark's analyser understands it over the columns of ``empty``."""
    plan = empty.where(condition)._jdf.queryExecution().analyzed()
    while plan.nodeName() != "Filter":
        plan = plan.children().apply(0)
    return plan.condition()


def conjuncts(expression: Any) -> Iterator[Any]:
    """The parts that all have to be true."""
    if expression.nodeName() == "And":
        yield from conjuncts(expression.left())
        yield from conjuncts(expression.right())
    else:
        yield expression


def _only(expression: Any, names: Sequence[str]) -> bool:
    """True when the expression needs nothing but these columns, and gives the same answer every time."""
    found = expression.references().toSeq()
    used = [found.apply(i).name() for i in range(found.size())]
    return bool(used) and all(n in names for n in used) and bool(expression.deterministic())


def _named_values(expression: Any) -> tuple[str, list[Any]] | None:
    """Column and texts of ``column = 'x'`` and ``column in ('x', 'y')``; None for anything else."""
    kind = expression.nodeName()
    children = expression.children()
    parts = [children.apply(i) for i in range(children.size())]
    if kind == "EqualTo" and parts[1].nodeName() == "AttributeReference":
        parts = parts[::-1]
    if kind not in ("EqualTo", "In") or parts[0].nodeName() != "AttributeReference":
        return None
    # Only text is taken: other types may reach here with a cast, and their spelling in a path is not ours to guess.
    if any(p.nodeName() != "Literal" or p.dataType().typeName() != "string" or p.value() is None for p in parts[1:]):
        return None
    if parts[0].dataType().typeName() != "string":
        return None
    return parts[0].name(), [p.value().toString() for p in parts[1:]]


def _partition_rows(spark: Any, config: TableConfig, schema: pa.Schema, partitions: Sequence[str]) -> Any:
    """One row for each partition: its values in the columns' types, and its path. A local relation: no job."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    fields = config.partition_fields
    parsed = [parse_partition_path(p, config) for p in partitions]
    columns = {name: pa.array([row[name] for row in parsed], pa.string()) for name in fields}
    texts = spark.createDataFrame(pa.table({**columns, _PATH: pa.array(list(partitions), pa.string())}))
    types = spark_schema(pa.schema([schema.field(n) for n in fields]))
    return texts.select(*(F.col(f"`{f.name}`").cast(f.dataType).alias(f.name) for f in types.fields), _PATH)
