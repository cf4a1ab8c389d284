"""Table services by Spark's tasks, which finish plans of plain executors, and plain ones theirs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
import lakelatch.spark
from lakelatch.occ.check.check import check
from lakelatch.occ.table import Table
from lakelatch.spark import JobSizes

from .driver import meanwhile, swept

BY_TASKS = JobSizes(driver_bytes=0)
LAYOUT = {"sort_by": ["n", "name"], "layout": "z-order", "small_bytes": 4 << 10, "target_bytes": 8 << 10}


def filled(table: Table, *, files: int = 6, cities: Sequence[str] = ("a", "b ä%{}")) -> list[dict[str, Any]]:
    for number in range(files):
        keys = [(city, n) for city in cities for n in range(400)]
        table.insert(
            pa.table(
                {
                    "id": [f"{number}-{city}-{n}" for city, n in keys],
                    "city": [city for city, _ in keys],
                    "n": [hash_of(number, n) % 1000 for _, n in keys],
                    "name": [f"{hash_of(n, number) % 997}" for _, n in keys],
                }
            )
        )
    return rows_of(table)


def hash_of(first: int, second: int) -> int:
    return (first * 7919 + second * 104_729) % 65_537


def rows_of(table: Table) -> list[dict[str, Any]]:
    return sorted(table.read().to_pylist(), key=lambda row: row["id"])


def jobs_of(spark: Any, text: str) -> list[str]:
    """The descriptions of jobs, as Spark's UI shows them."""
    spark._jsc.sc().listenerBus().waitUntilEmpty(600_000)
    found = spark._jsc.sc().statusStore().jobsList(None)
    told = [found.apply(n).description() for n in range(found.size())]
    return [each.get() for each in told if each.isDefined() and text in each.get()]


def test_a_clustering_by_tasks_is_what_plain_python_makes_of_it(spark: Any, make: Callable[..., Any]) -> None:
    """Plain Python has written some of its files and died; tasks meet these under the same names, with the same rows."""
    table = make(sizes=BY_TASKS)
    before = filled(table.table)
    planned = table.table.plan_clustering(**LAYOUT)

    def dying(progress: lakelatch.Progress) -> None:
        if progress.done == 3:
            raise KeyboardInterrupt

    with lakelatch.open(table.table.url) as plain, pytest.raises(KeyboardInterrupt):
        plain.execute(planned, progress=dying)
    there = files_of(table, planned)
    assert len(there) == 3
    context = spark.sparkContext
    context.setJobDescription("the user's own")
    try:
        done = table.execute(planned)
        assert context.getLocalProperty("spark.job.description") == "the user's own"
    finally:
        context.setJobDescription(None)
    assert done.mine
    now = files_of(table, planned)
    assert len(now) == 6
    assert now.items() > there.items(), "the files that stood have been left alone"
    assert jobs_of(spark, planned) == [f"cluster {table.table.url}: {len(now)} file groups ({planned})"]
    assert rows_of(table.table) == before
    assert check(table.table.store, deep=True).findings == ()
    assert table.cluster(**LAYOUT) is None


def test_plain_python_finishes_what_tasks_have_begun(spark: Any, make: Callable[..., Any]) -> None:
    """And a merge-on-read table is compacted by both; before, tasks have made its log files fewer."""
    table = make(sizes=BY_TASKS, type="merge_on_read", bucket_count=3)
    cities = [f"c{n}" for n in range(8)]
    filled(table.table, files=1, cities=cities)
    for name in ("new", "newer"):
        table.table.upsert(
            pa.table(
                {
                    "id": [f"0-{c}-{n}" for c in cities for n in range(99)],
                    "city": [c for c in cities for _ in range(99)],
                }
                | {"n": [7] * 792, "name": [name] * 792}
            )
        )
    before = rows_of(table.table)
    assert table.compact_logs(min_logs=2).mine
    assert len(jobs_of(spark, f"compact_logs {table.table.url}")) == 1
    assert rows_of(table.table) == before
    planned = table.table.plan_compaction()

    def dying(progress: lakelatch.Progress) -> None:
        if progress.done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        table.execute(planned, progress=dying)
    there = files_of(table, planned)
    assert there, "some tasks had ended"
    with lakelatch.open(table.table.url) as plain:
        assert plain.execute(planned).mine
    assert files_of(table, planned).items() >= there.items()
    assert rows_of(table.table) == before
    assert not any(each.logs for each in table.table.snapshot().file_slices())
    done = table.clean(retain_commits=0)
    assert done.files > 24
    swept(table.table)
    assert rows_of(table.table) == before


def files_of(table: Any, instant: str) -> dict[str, bytes]:
    """Files of that T, and what is in them."""
    folder = Path(table.table.url.removeprefix("file://"))
    return {str(path): path.read_bytes() for path in folder.rglob(f"*_{instant}.parquet")}


def test_small_plans_are_executed_by_the_driver(spark: Any, make: Callable[..., Any]) -> None:
    table, told = make(), []
    before = filled(table.table)
    assert table.cluster(progress=told.append, **LAYOUT)
    assert jobs_of(spark, table.table.url) == []
    assert {each.unit for each in told} == {"file groups"}
    assert rows_of(table.table) == before
    told.clear()
    done = table.run_services(retain_commits=0, progress=told.append).done
    assert set(done) == {"clean"}
    assert {(each.what, each.unit) for each in told} == {("clean", "files")}


def test_each_service_of_a_round_tells_of_its_tasks(spark: Any, make: Callable[..., Any]) -> None:
    table, told = make(sizes=BY_TASKS), list[lakelatch.Progress]()
    before = filled(table.table)
    asked = {"cluster": True, "retain_commits": 0, "keep_min": 2, "keep_max": 3}
    assert list(table.run_services(progress=told.append, **asked).done) == ["cluster", "clean", "archive"]
    ends = {(each.what, each.unit): (each.done, each.total) for each in told}
    assert list(ends) == [("cluster", "tasks"), ("clean", "tasks"), ("archive", "instants")]
    assert all(total in (None, reached) for reached, total in ends.values())  # of an archival nobody knows it before
    for name in ("cluster", "clean"):
        assert len(jobs_of(spark, f"{name} {table.table.url}: ")) == 1
    assert rows_of(table.table) == before


@pytest.mark.parametrize("way", ["the plan is cancelled", "its progress raises"])
def test_a_service_is_cancelled_from_another_thread(make: Callable[..., Any], way: str) -> None:
    table = make(sizes=BY_TASKS)
    before = filled(table.table)

    def told(_progress: lakelatch.Progress) -> None:
        if way == "its progress raises":
            raise KeyboardInterrupt
        for plan in table.table.plans():  # none any more, when it is told once more
            other = threading.Thread(target=table.table.cancel_plan, args=[plan.instant])
            other.start()
            other.join()

    with pytest.raises(lakelatch.RolledBackError if way == "the plan is cancelled" else KeyboardInterrupt):
        table.cluster(progress=told, **LAYOUT)
    assert table.table.plans() == []
    table.table.rollback_failed_writes()
    assert rows_of(table.table) == before
    swept(table.table)


def test_an_executor_that_another_one_has_overtaken_is_told(make: Callable[..., Any]) -> None:
    table = make(sizes=BY_TASKS)
    before = filled(table.table)
    planned = table.table.plan_clustering(**LAYOUT)

    def other() -> None:
        with lakelatch.open(table.table.url, writer="plain") as plain:
            assert plain.execute(planned).mine

    meanwhile(table, other)
    done = table.execute(planned)
    assert (done.mine, done.by) == (False, "plain")
    assert rows_of(table.table) == before
