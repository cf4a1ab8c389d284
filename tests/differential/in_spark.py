"""The same stories, some of whose writes and all of whose final reads go through Spark."""

from __future__ import annotations

import datetime as dt
import functools
import random
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch.spark
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.spark import JobSizes, SparkTransaction

from ..jvm.readers import in_order, plain_rows
from ..spark.session import session
from .story import Model, Row, Story, met


class SparkStory(Story):
    """Half of the upserts, deletions and new files of a transaction are Spark's, between the others.

    Args:
        tasks: have Spark's tasks write, however few the rows are; otherwise the driver writes them.
    """

    def __init__(self, folder: Path, seed: int, *, tasks: bool) -> None:
        super().__init__(folder, seed)
        self._spark, self._route = session(), random.Random(seed)
        self._sizes = JobSizes(small_rows=0, tasks_per_core=1) if tasks else JobSizes()

    def _in_spark(self, txn: Transaction) -> SparkTransaction | None:
        return SparkTransaction(self._spark, self.table, txn, self._sizes) if self._route.random() < 0.5 else None

    def _frame(self, rows: pa.Table) -> Any:
        return self._spark.createDataFrame(rows)

    def _merge(self, txn: Transaction, rows: pa.Table) -> None:
        if (spark := self._in_spark(txn)) is None:
            super()._merge(txn, rows)
        else:
            self.told[-1] += " in Spark"
            spark.upsert(self._frame(rows))

    def _remove(self, txn: Transaction, keys: pa.Table) -> None:
        if (spark := self._in_spark(txn)) is None:
            super()._remove(txn, keys)
        else:
            self.told[-1] += " in Spark"
            spark.delete(self._frame(keys))

    def _remove_where(self, txn: Transaction, terms: list[tuple[Any, ...]]) -> Any:
        if (spark := self._in_spark(txn)) is None:
            return super()._remove_where(txn, terms)
        self.told[-1] += " in Spark"
        spark.delete_where(functools.reduce(lambda one, other: one & other, map(_column, terms)))
        return lambda row: all(met(row[name], op, *value) for name, op, *value in terms)

    def _add(self, txn: Transaction, path: str, rows: pa.Table) -> None:
        if (spark := self._in_spark(txn)) is None:
            super()._add(txn, path, rows)
        else:
            self.told[-1] += " in Spark"
            spark.insert(self._frame(rows))

    def _end(self) -> None:
        super()._end()
        read = lakelatch.spark.open(self._spark, self.table).read
        assert in_order(plain_rows(read().toArrow())) == self.expected, "Spark"
        term = self._term()
        found = in_order(plain_rows(read(filter=_column(term)).toArrow()))
        name, op, *value = term
        kept: Model = {place: row for place, row in self.model.items() if met(row[name], op, *value)}
        assert found == in_order(self._told_rows(kept)), f"Spark, where {term}"

    @staticmethod
    def _told_rows(model: Model) -> list[Row]:
        from ..jvm.readers import plain

        return [plain(row) for row in model.values()]


def _column(term: tuple[Any, ...]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    name, op, *value = term
    column = F.col(name)
    match op:
        case "is null":
            return column.isNull()
        case "is not null":
            return column.isNotNull()
        case "in":
            return column.isin([_literal(each) for each in value[0]])
        case "=":
            return column == _literal(value[0])
        case "!=":
            return column != _literal(value[0])
        case "<":
            return column < _literal(value[0])
        case "<=":
            return column <= _literal(value[0])
        case ">":
            return column > _literal(value[0])
        case _:
            return column >= _literal(value[0])


def _literal(value: Any) -> Any:
    from pyspark.sql import functions as F  # noqa: N812

    # Python's dates travel to the JVM by way of an old calendar; their texts do not.
    if isinstance(value, dt.datetime):
        return F.expr(f"TIMESTAMP'{value.isoformat(sep=' ')}'")
    return F.expr(f"DATE'{value.isoformat()}'") if isinstance(value, dt.date) else F.lit(value)
