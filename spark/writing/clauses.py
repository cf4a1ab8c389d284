"""Merges by clauses in Spark: conditions and values in the language of `lakelatch.conditions`, evaluated where the rows are.

Columns of PySpark become SQL text: Spark's analyser says what they mean over ``s`` and ``t``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pyarrow as pa

from ...conditions import Sql
from ...errors import InputError
from ...hudi.timeline import WriteStat
from ...occ.incoming import Incoming
from ...occ.rebase import Lost
from ...occ.staging import GROUP_COLUMN, TaskFiles, refuse_if_over
from ...occ.turns import targets
from ...occ.writing import Asked, Clause, Clauses, sql
from ..reading import analysed
from ..tasks import Answer, MergeTask, TargetsTask, applied, table_of
from ..versions import spark_schema


def in_sql(spark: Any, asked: Asked, columns: pa.Schema) -> Asked:
    """Return the clauses with SQL text in place of columns of PySpark; ``columns`` are the structs ``s`` and ``t``.

    Raises:
        InputError: Spark cannot resolve a column.
    """
    from pyspark.sql import Column

    empty: Any = None

    def text(given: Any, *, value: bool) -> Any:
        nonlocal empty
        if not isinstance(given, Column):
            return given
        empty = spark.createDataFrame([], spark_schema(columns)) if empty is None else empty
        try:
            found = _value(empty, given) if value else analysed(empty, given)
        except Exception as error:  # of Spark's analyser, of many classes
            first = str(error).partition("\n")[0]
            raise InputError(
                f"{given} says nothing of {', '.join(columns.names)}: {first}; nothing was written"
            ) from error
        told = str(found.sql())
        return sql(told) if value else told

    def values(given: Any) -> Any:
        return {k: text(v, value=True) for k, v in given.items()} if isinstance(given, Mapping) else given

    return tuple(Clause(text(each.where, value=False), values(each.values)) for each in asked)


def _value(empty: Any, given: Any) -> Any:
    plan = empty.select(given.alias("value"))._jdf.queryExecution().analyzed()
    return plan.projectList().apply(0).child()


def is_expression(value: Any) -> bool:
    """Return whether a value to set is computed from the row: SQL text, a column of PySpark or an expression of pyarrow."""
    import pyarrow.compute as pc
    from pyspark.sql import Column

    return isinstance(value, Sql | Column | pc.Expression)


@dataclass
class ClausesTask(MergeTask):
    """Merge rows of the source by clauses into the file groups that hold their keys; those of a unit meet in one task."""

    url: str = ""

    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:
        """Merge. Memory is the task's rows and one base file."""
        refuse_if_over(self.plan.spec.store, self.plan.spec.instant)
        assert isinstance(self.plan.combine, Clauses)
        with TaskFiles(self.plan.spec, task) as files:
            answer = applied(self.plan, _shaped(self.plan.spec, batches, self.url), files)
        return replace(answer, idle=answer.idle or self.plan.combine.idle)


@dataclass
class ClausesTargetsTask(TargetsTask):
    """Find the file groups that the same rows would be merged into; nothing is written."""

    url: str = ""

    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:  # noqa: ARG002 - as all tasks
        """Find them. Memory is the task's rows and the keys of one base file."""
        return Answer(looked=targets(self.plan, _shaped(self.plan.spec, batches, self.url)))


def _shaped(spec: Any, batches: Iterable[pa.RecordBatch], url: str) -> pa.Table:
    """Return the rows with the table's columns in its types, and their file group where a join has found it."""
    rows = table_of(list(batches))
    if not rows.num_rows:
        return rows
    given = rows.drop_columns([GROUP_COLUMN]) if GROUP_COLUMN in rows.column_names else rows
    shaped = Incoming(given, url, spec.config).source(spec.schema)
    return shaped if given is rows else shaped.append_column(GROUP_COLUMN, rows.column(GROUP_COLUMN))


class NotAgain:
    """A stand-in for merges whose source is in Spark: it is not kept for a rebase, so a merge that lost is retried."""

    by_condition: ClassVar = False

    def __call__(self, lost: Lost) -> list[WriteStat]:
        raise AssertionError(f"{lost.spec.instant} has no rebase")
