"""A Spark writer that others took for dead hears that, also where Spark's own scan finds no file, and is run again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lakelatch
from lakelatch.spark import JobSizes

from ..thorough import crossed

BY_TASKS = JobSizes(small_rows=0, driver_bytes=0, tasks_per_core=1)
SCHEMA = "id string, city string, v long"
TYPES: dict[str, dict[str, Any]] = {
    "copy_on_write": {},
    "merge_on_read": {"type": "merge_on_read", "bucket_count": 1},
}
STATEMENTS: dict[str, Callable[[Any, Any], object]] = {
    "read": lambda t, _df: t.read().collect(),
    "upsert": lambda t, df: t.upsert(df),
    "delete": lambda t, df: t.delete(df),
    "delete_where": lambda t, _df: t.delete_where("id = 'a'"),
    "update_where": lambda t, _df: t.update_where("id = 'a'", {"v": 9}),
    "merge": lambda t, df: t.merge(df).when_matched(update="all").run(),
}


def rows(v: int) -> list[dict[str, object]]:
    return [{"id": name, "city": "x", "v": v} for name in "abc"]


def others(url: str) -> None:
    """Others end what is open, change what it reads, and clean."""
    with lakelatch.open(url) as table:
        for begin in list(table.session.log.catch_up().open.values()):
            table.session.cleaner.roll_back(begin, reason="its heartbeat stopped")
        table.upsert(rows(5))
        if table.config.merge_on_read:
            table.compact()
        table.clean(retain_commits=0)


def made_by(make: Callable[..., Any], kind: str) -> Any:
    made = make(sizes=BY_TASKS, **TYPES[kind])
    made.table.insert(rows(0))
    made.table.upsert(rows(1))
    return made


@pytest.mark.parametrize(("statement", "kind"), crossed(STATEMENTS, TYPES))
def test_a_job_runs_again(make: Callable[..., Any], spark: Any, statement: str, kind: str) -> None:
    table = made_by(make, kind)
    df, looked = spark.createDataFrame([("a", "x", 9)], SCHEMA), []

    def job(txn: Any) -> None:
        scan = txn.read()  # planned while all is there
        if not looked:
            others(table.table.url)
        looked.append(1)
        if statement == "read":
            scan.collect()
            txn.upsert(df)
        else:
            STATEMENTS[statement](txn, df)

    assert table.run(job).attempts == len(looked) == 2
    found = {row["id"]: row["v"] for row in table.read().collect()}
    gone = statement.startswith("delete")
    assert found == {"b": 5, "c": 5} if gone else found == {"a": 9, "b": 5, "c": 5}


@pytest.mark.thorough
@pytest.mark.parametrize(("verb", "kind"), [each for each in crossed(reversed(STATEMENTS), TYPES) if each[0] != "read"])
def test_a_verb_runs_again(
    make: Callable[..., Any], spark: Any, monkeypatch: pytest.MonkeyPatch, verb: str, kind: str
) -> None:
    table = made_by(make, kind)
    heart, url = table.table.session.heart, table.table.url
    start, begun = heart.start, []

    def started(instant: str, **more: Any) -> None:
        start(instant, **more)
        begun.append(instant)
        if len(begun) == 1:
            others(url)

    monkeypatch.setattr(heart, "start", started)
    result = STATEMENTS[verb](table, spark.createDataFrame([("a", "x", 9)], SCHEMA))
    assert getattr(result, "attempts", None) == len(begun) == 2
    found = {row["id"]: row["v"] for row in table.read().collect()}
    assert found == {"b": 5, "c": 5} if verb.startswith("delete") else found == {"a": 9, "b": 5, "c": 5}
