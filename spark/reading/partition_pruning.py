"""Find the partitions that a condition can match, by evaluating it on the partitions' values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from ...arguments import brief
from ...errors import InputError
from ...hudi.table import META_COLUMNS, TableConfig, possible_values
from ..versions import column_of, frame_of
from .columns import spelled

_PATH = META_COLUMNS[3]
# Expressions whose result depends on the value alone: not on time and place, nor on the user's code, other
# tables, the day or the session.
_TIMELESS = frozenset(
    re.findall(
        r"\w+",
        """
        Abs Add And ArrayExists AttributeReference Between CaseWhen Cast Coalesce CommonExpressionDef
        CommonExpressionRef Concat Contains CreateArray DateAdd DateSub DayOfMonth EndsWith EqualNullSafe
        EqualTo GreaterThan GreaterThanOrEqual ILike If In InSet IsNotNull IsNull LambdaFunction Left Length
        LessThan LessThanOrEqual Like LikeAll LikeAny Literal Lower Month Multiply NamedLambdaVariable Not
        NotLikeAll NotLikeAny NullIf NullIfResult Or ParseToDate Quarter RLike Remainder Right StartsWith
        StringTrim Substring Subtract TruncDate UnaryMinus Upper With Year
        """,
    )
)
_TODAY = ("epoch", "now", "today", "tomorrow", "yesterday")  # texts that are times, to Spark


def matching_partitions(
    spark: Any, config: TableConfig, schema: pa.Schema, partitions: Sequence[str], condition: Any
) -> set[str]:
    """Return the partitions that may hold matching rows; all of them in doubt."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    if not partitions:
        return set()
    values, unknown = _values(config, schema, partitions)
    if not values.num_rows:
        return unknown
    known = frame_of(spark, values)
    try:
        telling = [c for c in conjuncts(analysed(known, condition)) if _tells(c, config.partition_fields, schema.names)]
        if not telling:
            return set(partitions)
        for conjunct in telling:
            known = known.where(column_of(conjunct))
        return unknown | {row[0] for row in known.select(_PATH).collect()}
    except (PySparkException, Py4JError):
        # A cast that fails for a value, which no row of the query may have.
        return set(partitions)


@contextmanager
def refusing(what: str, given: Any) -> Iterator[None]:
    """Raise `InputError` where Spark refuses what a caller gave: its own error shows a plan, and no table."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as e:
        said = str(e).strip().partition("\n")[0].partition(" SQLSTATE")[0].rstrip(". ")
        raise InputError(f"Spark refuses {what} {brief(given)}: {said}; nothing was written") from e


def analysed(empty: Any, condition: Any) -> Any:
    """Return the condition as Spark's analyser understands it over the columns of ``empty``."""
    with refusing("the condition", condition):
        plan = empty.where(condition)._jdf.queryExecution().analyzed()
    while plan.nodeName() != "Filter":
        plan = plan.children().apply(0)
    return plan.condition()


def conjuncts(expression: Any) -> Iterator[Any]:
    """Yield the parts that all have to be true."""
    if expression.nodeName() == "And":
        yield from conjuncts(expression.left())
        yield from conjuncts(expression.right())
    else:
        yield expression


def _tells(expression: Any, names: Sequence[str], known: Sequence[str]) -> bool:
    """Return True when it needs only these of the columns, and has the same result at each time and place."""
    from py4j.protocol import Py4JError

    found = expression.references().toSeq()
    used = [spelled(found.apply(i).name(), known) for i in range(found.size())]
    if not used or not all(n in names for n in used) or not expression.deterministic():
        return False
    try:
        nodes = json.loads(expression.toJSON())  # all of them in one call
    except Py4JError:  # some of the user's functions have no such form
        return False
    return all(
        node["class"].rpartition(".")[2] in _TIMELESS
        and not str(node.get("value", "")).strip().lower().startswith(_TODAY)
        for node in nodes
    )


def _values(config: TableConfig, schema: pa.Schema, partitions: Sequence[str]) -> tuple[pa.Table, set[str]]:
    """Return a row for each partition, with its values of the partition columns; and the partitions whose path lacks them.

    Null and an empty text have one folder, which gets a row for each. The other columns are there, and null.
    """
    fields = [schema.field(name) for name in config.partition_fields]
    found: list[tuple[Any, ...]] = []
    unknown: set[str] = set()
    for path in partitions:
        rows = possible_values(path, config, schema)
        if rows is None:
            unknown.add(path)
        else:
            found += [(*row, path) for row in rows]
    columns = list(zip(*found, strict=True)) or [()] * (len(fields) + 1)
    of_field = {field.name: pa.array(values, field.type) for field, values in zip(fields, columns, strict=False)}
    arrays = [of_field.get(field.name, pa.nulls(len(found), field.type)) for field in schema]
    return pa.table([*arrays, pa.array(columns[-1], pa.string())], names=[*schema.names, _PATH]), unknown
