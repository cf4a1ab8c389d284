"""What Hudi's readers see of a table with streams: what docs/streams.md promises of them, and one thing that it does not."""

from __future__ import annotations

import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.occ.check.check import check

from .cases import WRITE_OPTIONS
from .readers import ask_jvm, by_hudi_rs, by_us, in_order

pytestmark = pytest.mark.jvm

SCHEMA = pa.schema(
    [
        *[("id", pa.string()), ("place", pa.string())],
        *[("amount", pa.int64()), ("state", pa.string()), ("order_at", pa.timestamp("us", "UTC"))],
        *[("clicks", pa.int32()), ("last", pa.string()), ("click_at", pa.int64())],
        *(_KEPT := [("paid", pa.decimal128(20, 2)), ("bill", pa.string()), ("paid_at", pa.int64())]),
        ("bills", pa.list_(pa.struct(_KEPT))),
    ]
)


def order(key: int, at: int, amount: int | None, state: str | None = "naïve 🙂") -> dict[str, Any]:
    when = pa.scalar(at * 10**6, pa.timestamp("us", "UTC")).as_py()
    return {"id": f"k{key}", "place": f"p{key % 2}", "order_at": when, "amount": amount, "state": state}


def click(key: int, at: int, clicks: int | None) -> dict[str, Any]:
    return {"id": f"k{key}", "place": f"p{key % 2}", "click_at": at, "clicks": clicks, "last": ""}


def made(folder: Path) -> lakelatch.Table:
    options: dict[str, Any] = {"type": "merge_on_read", "table_version": 9, "bucket_count": 2}
    table = lakelatch.create(str(folder), record_key="id", partition_by="place", schema=SCHEMA, **options)
    table.stream("orders", columns=["amount", "state"], ordering="order_at", on_delete="row")
    table.stream("clicks", columns=["clicks", "last"], ordering="click_at")
    return table


def test_hudi_readers_are_right_at_every_commit_without_late_events_and_after_every_compaction(tmp_path: Path) -> None:
    states: list[Path] = []

    def keep(name: str) -> None:
        states.append(tmp_path / f"{len(states)} {name}")
        shutil.copytree(tmp_path / "table", states[-1])

    with made(tmp_path / "table") as table:
        orders, clicks = table.stream("orders"), table.stream("clicks")
        orders.upsert([order(n, 1, n) for n in range(8)])
        keep("log files alone")
        clicks.upsert([click(n, 1, n) for n in range(4, 12)])
        keep("two streams")
        table.compact()
        keep("compacted")
        filled = [order(n, 2, n, "filled") for n in range(10, 14)]  # one file has both events of these
        orders.upsert([*filled, *(order(n, 3, None, None) for n in range(10, 14)), order(10, 2, 666)])
        keep("events of one batch that fill the nulls of others")
        orders.upsert([order(n, 4, None if n % 2 else -n) for n in range(6, 14)])
        with table.transaction() as txn:
            txn.stream("clicks").upsert([click(n, 2, None) for n in range(3)])
            txn.stream("orders").delete([order(n, 5, None) for n in (7, 20)])
        keep("nulls that keep, and deletes")
        table.compact()
        orders.upsert([order(n, 0, 666) for n in range(14)])  # late, all but one
        clicks.delete([click(4, 9, None)])
        orders.upsert([order(7, 9, 7)])  # comes back
        before = in_order(by_us(tmp_path / "table"))
        table.compact()
        assert in_order(by_us(tmp_path / "table")) == before
        keep("compacted after late events, a clear and a row that came back")
        given: dict[str, Any] = {"event_id": "bill", "events": "bills", "foreign_readers": False}
        bills = table.stream("bills", columns=["paid"], ordering="paid_at", merge={"paid": "sum"}, **given)
        bills.retract([{"id": "k3", "place": "p1", "bill": "late"}, {"id": "nobody", "place": "p1", "bill": "🙂"}])
        paid = [{"paid": Decimal(n), "bill": f"{n}🙂", "paid_at": n} for n in range(3)]
        bills.upsert([{"id": f"k{n}", "place": f"p{n % 2}"} | each for n in range(6) for each in paid])
        bills.retract([{"id": f"k{n}", "place": f"p{n % 2}", "bill": f"{n}🙂"} for n in range(3)])
        table.compact()
        keep("compacted after events that were taken back")
        orders.upsert([order(n, 1, 666) for n in range(10)])  # late
        orders.overwrite([order(n, 0, n, "again") for n in range(3, 20)])
        keep("overwritten after late events")
        bills.overwrite([{"id": "k1", "place": "p1"} | paid[1]])
        table.delete_all(partition={"place": "p0"})
        keep("overwritten again, and a partition dropped")
    given = {"partition_by": "place", "schema": SCHEMA, "ordering_field": "click_at"}
    with lakelatch.create(str(tmp_path / "table of before"), record_key="id", **given) as table:
        for at in (1, 2):
            rows = [order(n, at, n) | click(n, at, n) for n in range(8)]
            table.upsert([dict.fromkeys(SCHEMA.names) | each for each in rows])
        streams = {"orders": {"columns": ["amount", "state"], "ordering": "order_at", "on_delete": "row"}}
        table.adopt_streams(streams | {"clicks": {"columns": ["clicks", "last"], "ordering": "click_at"}})
        states.append(tmp_path / "adopted")
        shutil.copytree(tmp_path / "table of before", states[-1])
        table.stream("orders").upsert([order(n, 3, -n) for n in range(4, 10)])
        table.stream("clicks").delete([click(1, 2, None)])
        table.compact()
        states.append(tmp_path / "table of before")
    answers = ask_jvm([{"path": str(each), "kind": "snapshot"} for each in states], tmp_path)
    for folder, answer in zip(states, answers, strict=True):
        expected = in_order(by_us(folder))
        assert expected, folder.name
        assert in_order(by_hudi_rs(folder)) == expected, folder.name
        assert "error" not in answer, (folder.name, answer)
        assert in_order(answer["rows"]) == expected, folder.name


def test_a_late_event_is_what_hudi_readers_see_until_a_compaction(tmp_path: Path) -> None:
    with made(tmp_path / "table") as table:
        table.stream("orders").upsert([order(1, 5, 5)])
        table.stream("orders").upsert([order(1, 4, 4)])
        assert [row["amount"] for row in by_us(tmp_path / "table")] == [5]
        assert [row["amount"] for row in by_hudi_rs(tmp_path / "table")] == [4]
        table.compact()
        assert [row["amount"] for row in by_hudi_rs(tmp_path / "table")] == [5]


EACH_COMMIT = "options => 'hoodie.compact.inline.max.delta.commits=1"
SUMS = pa.schema([("id", pa.string()), ("n", pa.int64()), ("at", pa.int64())])


def summed(folder: Path) -> list[dict[str, Any]]:
    """A table whose events add up to 103; a JVM that compacts it keeps the last one."""
    streams = {"s": {"columns": ["n"], "ordering": "at", "merge": {"n": "sum"}, "foreign_readers": False}}
    with lakelatch.create(str(folder), record_key="id", schema=SUMS, bucket_count=1, streams=streams) as table:
        for number, n in enumerate((100, 1, 2)):
            table.stream("s").upsert([{"id": "a", "n": n, "at": number}], batch=("web", number))
        return table.read().to_pylist()


def timeline(folder: Path) -> set[str]:
    return {each.name for each in (folder / ".hoodie/timeline").iterdir() if not each.name.endswith(".crc")}


def test_the_jvm_neither_compacts_nor_clusters_nor_writes_a_table_with_streams(tmp_path: Path) -> None:
    """It fails before anything is on the timeline, also at the plan of a compaction that is ours; its readers go on."""

    def call(procedure: str) -> dict[str, Any]:
        return {"kind": "sql", "statements": [f"call {procedure}"]}

    options = {key: value for key, value in WRITE_OPTIONS.items() if "partition" not in key} | {
        "hoodie.write.table.version": "9",
        "hoodie.table.name": "upserted",
        "hoodie.datasource.write.table.type": "MERGE_ON_READ",
        "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
        "hoodie.compact.inline": "true",
        "hoodie.compact.inline.max.delta.commits": "1",
    }
    jobs: dict[str, dict[str, Any]] = {
        "planned": call(f"run_compaction(op => 'schedule', path => '%s', {EACH_COMMIT}')"),
        "compacted": call(f"run_compaction(op => 'scheduleAndExecute', path => '%s', {EACH_COMMIT}')"),
        "clustered": call("run_clustering(op => 'scheduleAndExecute', path => '%s')"),
        "executed": {"kind": "compact"},
        "upserted": {"kind": "upsert", "rows": [{"id": "a", "n": 5, "at": 9}], "options": options},
    }
    asked = []
    for name, job in jobs.items():
        path = str(tmp_path / name)
        summed(tmp_path / name)
        if name == "executed":
            with lakelatch.open(path) as table:
                job["instant"] = table.plan_compaction()
        if "statements" in job:
            job["statements"] = [each % path for each in job["statements"]]
        asked += [{"path": path} | job, {"path": path, "kind": "snapshot"}]
    before = {name: timeline(tmp_path / name) for name in jobs}
    answers = ask_jvm(asked, tmp_path)
    for name, job, read in zip(jobs, answers[::2], answers[1::2], strict=True):
        assert "LAKELATCH" in job["error"] or "lakelatch" in job["error"], (name, job)
        assert [row["id"] for row in read["rows"]] == ["a"], name
        assert timeline(tmp_path / name) == before[name]
        assert [row["n"] for row in by_us(tmp_path / name)] == [103], name


def test_a_compaction_that_a_jvm_insists_on_is_noticed_and_can_be_taken_back(tmp_path: Path) -> None:
    """A job that names its own type of markers does not look at that of the table."""
    folder = tmp_path / "table"
    rows = summed(folder)
    insists = f"{EACH_COMMIT},hoodie.write.markers.type=DIRECT'"
    run = f"call run_compaction(op => 'scheduleAndExecute', path => '{folder}', {insists})"
    (answer,) = ask_jvm([{"path": str(folder), "kind": "sql", "statements": [run]}], tmp_path)
    assert [row["n"] for row in answer["rows"]] == [2]
    with lakelatch.open(str(folder)) as table:
        (finding,) = [each for each in check(table.store).findings if each.severity == "damage"]
        assert finding.kind == "stranger-in-streams"
        with pytest.raises(lakelatch.UnsupportedTableError, match="another engine has committed"):
            table.stream("s").upsert([{"id": "a", "n": 5, "at": 9}], batch=("web", 9))
    for lost in (False, True):
        copy = tmp_path / f"copy {lost}"
        shutil.copytree(folder, copy)
        if lost:
            shutil.rmtree(copy / ".hoodie/.lakelatch")
        with pytest.raises(lakelatch.UnsupportedTableError, match="has merged events of streams") as refused:
            lakelatch.adopt(str(copy))
    instant = refused.value.instant
    assert instant in finding.message
    back = f"call rollback_to_instant(table => 'insisted', instant_time => '{instant}')"
    named = f"create table insisted using hudi location '{folder}'"
    statements = ["set hoodie.write.markers.type=DIRECT", named, back, "reset hoodie.write.markers.type"]
    (answer,) = ask_jvm([{"path": str(folder), "kind": "sql", "statements": statements}], tmp_path)
    assert "rows" in answer, answer["error"]
    with lakelatch.open(str(folder)) as table:
        assert table.read().to_pylist() == rows
        table.stream("s").upsert([{"id": "a", "n": 1000, "at": 7}], batch=("web", 4))
        for _ in range(2):
            assert [row["n"] for row in table.read().to_pylist()] == [1103]
            table.compact()
        assert [each for each in check(table.store).findings if each.severity == "damage"] == []
