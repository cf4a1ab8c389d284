"""A write that lost some file groups to others does again what it did there, and nothing else.

What it did is in its own files (`occ.row_merge`), so no incoming row is needed: Spark does not compute the user's plan
again, and nothing is kept for the case that it would be. A condition is evaluated on what has landed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ..occ.avro import WriteStat
from ..occ.merge import Effects
from ..occ.rebase import Again, Lost
from ..occ.rewrite import Plan, slices_by_partition
from ..occ.row_merge import merge_rows
from ..occ.snapshot import FileSlice
from .worker import Answer, RebaseTask, RemoveTask

HERE_BYTES_MAX = 32 << 20  # of base files that the driver merges by itself; more are merged by Spark's tasks
Collect = Callable[[Any, Any], list[Answer]]


def rows_again(spark: Any, collect: Collect, tasks: int, kept: dict[str, Effects]) -> Again:
    """The hook of upserts and of deletes by key.

    Args:
        spark: the session.
        collect: runs a task over rows.
        tasks: how many of them at most.
        kept: what the driver did by itself; empty when tasks did it.
    """

    def again(lost: Lost) -> list[WriteStat]:
        if sum(each.size for unit in lost.units for each in unit.current) <= HERE_BYTES_MAX:
            return merge_rows(lost, kept)
        count = len(lost.units)
        return stats_of(collect(spark.range(0, count, 1, min(count, tasks)), RebaseTask(lost)))

    return again


def condition_again(named: Callable[[list[FileSlice]], Any], collect: Collect) -> Again:
    """The hook of deletes by condition: rows that are new, or that others have set meanwhile, are looked at too.

    Args:
        named: the rows of some slices for which the condition is true, by file and position.
        collect: runs a task over rows.
    """

    def again(lost: Lost) -> list[WriteStat]:
        now = {each.path: each for unit in lost.units for each in unit.current}
        now |= {each.path: each for each in lost.appeared}
        slices = list(now.values())
        task = RemoveTask(Plan(lost.spec, slices_by_partition(slices), delete=True), lost)
        return stats_of(collect(named(slices), task)) if slices else []

    return again


def stats_of(answers: Iterable[Answer]) -> list[WriteStat]:
    """The files of all tasks."""
    return [stat for answer in answers for stat in answer.stats]
