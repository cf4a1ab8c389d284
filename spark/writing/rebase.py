"""Repeat a write in the file groups that it lost to other writers, and only there.

The write's own files hold its changes (`occ.rebase.replay_rows`), so no incoming rows are needed:
Spark does not compute the user's plan again, and nothing is cached for that case. A condition is
evaluated only on rows that were committed since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from operator import or_
from typing import Any, ClassVar

from ...hudi.timeline import FileSlice, WriteStat
from ...occ.rebase import Lost, merge_rows, refuse_same_rows
from ...occ.staging import Kept, WritePlan, slices_by_partition
from ...occ.writing import NewValues
from ..tasks import Answer, ChosenTask, RebaseTask

Collect = Callable[[Any, Any], list[Answer]]
Named = Callable[[Any, list[FileSlice]], Any]


class RowsAgain:
    """The changes of a transaction's upserts and deletes by key, for its rebase.

    Args:
        spark: the session.
        collect: runs a task over rows.
        tasks: the largest number of them.
        driver_bytes: the most base file bytes that the driver merges by itself; tasks merge more.

    Attributes:
        kept: the driver's changes; those of tasks are in their files.
        idle: True if some row changed nothing, because the existing row is newer.
        kinds: of the writes, "delete" and others.
    """

    by_condition: ClassVar = False

    def __init__(self, spark: Any, collect: Collect, tasks: int, driver_bytes: int) -> None:
        self._spark, self._collect, self._tasks, self._driver_bytes = spark, collect, tasks, driver_bytes
        self.kept: Kept = {}
        self.idle = False
        self.kinds: set[str] = set()

    def __call__(self, lost: Lost) -> list[WriteStat]:
        if sum(each.total_size for unit in lost.units for each in unit.current) <= self._driver_bytes:
            return merge_rows(lost, self.kept)
        for mine in lost.appended:
            refuse_same_rows(lost, mine)
        count = len(lost.units)
        rows = self._spark.range(0, count, 1, min(count, self._tasks))
        return stats_of(self._collect(rows, RebaseTask(lost)))


class ConditionAgain:
    """The changes of a transaction by conditions, evaluated again on rows that others have changed since.

    Args:
        collect: runs a task over rows.
    """

    by_condition: ClassVar = True

    def __init__(self, collect: Collect) -> None:
        self._collect = collect
        self._conditions: list[Any] = []
        self._named: Named | None = None
        self._values: NewValues | None = None

    def add(self, condition: Any, named: Named, values: NewValues | None = None) -> bool:
        """Add a condition. Return False when all of them cannot be evaluated at once, because new values are among them.

        Args:
            condition: of the rows that are deleted, or have new values.
            named: the rows of some slices for which one is true, by file and position.
            values: the new values.
        """
        self._conditions.append(condition)
        self._named, self._values = named, values or self._values
        return self._values is None or len(self._conditions) == 1

    def __call__(self, lost: Lost) -> list[WriteStat]:
        assert self._named is not None
        for mine in lost.appended:
            refuse_same_rows(lost, mine, read=True)
        now = {each.group: each for unit in lost.units for each in unit.current}
        now |= {each.group: each for each in (*(mine.current for mine in lost.appended), *lost.appeared)}
        slices = list(now.values())
        task = ChosenTask(WritePlan(lost.spec, slices_by_partition(slices)), self._values, lost)
        return stats_of(self._collect(self._named(self._any(), slices), task)) if slices else []

    def _any(self) -> Any:
        from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

        return reduce(or_, [F.expr(each) if isinstance(each, str) else each for each in self._conditions])


def stats_of(answers: Iterable[Answer]) -> list[WriteStat]:
    """Return the files of all tasks."""
    return [stat for answer in answers for stat in answer.stats]
