"""What Hudi's readers see of a table with streams: what docs/streams.md promises of them, and one thing that it does not."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelatch

from .readers import ask_jvm, by_hudi_rs, by_us, in_order

pytestmark = pytest.mark.jvm

SCHEMA = pa.schema(
    [
        *[("id", pa.string()), ("place", pa.string())],
        *[("amount", pa.int64()), ("state", pa.string()), ("order_at", pa.timestamp("us", "UTC"))],
        *[("clicks", pa.int32()), ("last", pa.string()), ("click_at", pa.int64())],
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
