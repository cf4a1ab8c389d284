"""A table in an event loop: its methods on threads of the loop, and what a cancelled task leaves."""

from __future__ import annotations

import asyncio
import threading

import pyarrow as pa
import pytest

import lakelatch


@pytest.fixture
def table(tmp_path):
    url = str(tmp_path / "t")
    with lakelatch.create(url, record_key="id", heartbeat_interval_s=100.0, heartbeat_timeout_s=1000.0) as table:
        yield table


def row(name: str, value: int = 0) -> pa.Table:
    return pa.table({"id": [name], "v": [value]})


def ids(table: lakelatch.Table) -> list[str]:
    return sorted(each["id"] for each in table.read().to_pylist())


def test_many_tasks_write_with_one_table_and_all_land(table):
    async def main() -> list[lakelatch.WriteResult]:
        writes = (asyncio.to_thread(table.upsert, row(f"k{n}")) for n in range(8))
        return list(await asyncio.gather(*writes))

    done = asyncio.run(main())
    assert len({each.instant for each in done}) == 8
    assert ids(table) == [f"k{n}" for n in range(8)]


def test_a_cancelled_task_goes_on_at_once_and_its_write_lands_all_the_same(table):
    began, busy = threading.Event(), threading.Event()

    def write() -> lakelatch.WriteResult:
        began.set()
        return table.upsert(row("late"))

    async def main() -> None:
        task = asyncio.create_task(asyncio.to_thread(write))
        await asyncio.to_thread(began.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        busy.set()  # the task is over, and its write waits for the lock still
        assert ids(table) == []
        lease.release()

    lease = table.lock.lease("a test")
    asyncio.run(main())  # which waits for its threads
    assert busy.is_set()
    assert ids(table) == ["late"]


def test_a_write_that_looks_at_an_event_before_its_commit_is_taken_back_by_a_cancelled_task(table):
    staged, asked, stop = threading.Event(), threading.Event(), threading.Event()

    def write() -> None:
        with table.transaction() as txn:
            txn.upsert(row("never"))
            staged.set()
            asked.wait()
            if stop.is_set():
                txn.abort("the task was cancelled")

    async def main() -> None:
        task = asyncio.create_task(asyncio.to_thread(write))
        await asyncio.to_thread(staged.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stop.set()
        asked.set()

    asyncio.run(main())
    assert ids(table) == []
    assert table.session.log.catch_up().open == {}


def test_a_shielded_write_is_waited_for_by_the_block_of_a_lock(table, tmp_path):
    order: list[str] = []
    began, go = threading.Event(), threading.Event()

    def write() -> None:
        began.set()
        go.wait()
        table.upsert(row("a"))
        order.append("written")

    async def guarded() -> None:
        async with lakelatch.lock(str(tmp_path / "locks"), "nightly"):
            work = asyncio.create_task(asyncio.to_thread(write))
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                await work
                raise
            finally:
                order.append("given back")

    async def main() -> None:
        task = asyncio.create_task(guarded())
        await asyncio.to_thread(began.wait)
        task.cancel()
        asyncio.get_running_loop().call_soon(go.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert order == ["written", "given back"]
    assert ids(table) == ["a"]
