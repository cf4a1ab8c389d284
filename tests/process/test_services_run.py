"""`lakelatch services run --loop`: real processes, a real lock, real signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.locks import open_provider
from lakelatch.testing.contention import PATIENCE_S, until

pytestmark = pytest.mark.process


@pytest.fixture
def orders(tmp_path: Path) -> str:
    url = str(tmp_path / "orders")
    with lakelatch.create(url, record_key="id", schema=pa.schema([("id", pa.string()), ("v", pa.int64())])) as table:
        for n in range(3):
            table.upsert([{"id": "a", "v": n}])
    return url


@pytest.fixture
def two(orders: str, tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    command = [
        sys.executable,
        "-m",
        "lakelatch.cli",
        "services",
        "run",
        orders,
        "--loop",
        "--every-s",
        "0.05",
        "--json",
    ]
    command += ["--lock", f"file://{tmp_path}/locks?lease=2s", "--retain-commits", "1"]
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            found.append(stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
            stack.callback(found[-1].kill)
        yield found


def next_round(process: subprocess.Popen[str]) -> dict:
    """The next line in which a service was due."""
    assert process.stdout is not None
    for line in process.stdout:
        if (told := json.loads(line))["done"]:
            return told
    raise AssertionError(f"it ended with {process.wait()}")


def test_one_leads_and_at_a_signal_it_ends_with_0_and_the_next_leads(
    two: list[subprocess.Popen[str]], orders: str, tmp_path: Path
) -> None:
    with lakelatch.open(orders) as table, open_provider(f"file://{tmp_path}/locks?lease=2s") as locks:
        key = f"services of {table.url}"
        until(lambda: bool((holder := locks.inspect(key)) and holder.queue), "nobody leads with another in line")
        holder = locks.inspect(key)
        assert holder is not None
        leader, follower = two if holder.pid == two[0].pid else two[::-1]
        assert list(next_round(leader)["done"]) == ["clean"]
        leader.send_signal(signal.SIGTERM)
        assert leader.wait(PATIENCE_S) == 0
        table.upsert([{"id": "a", "v": 9}])
        assert list(next_round(follower)["done"]) == ["clean"]
        follower.send_signal(signal.SIGINT)
        assert follower.wait(PATIENCE_S) == 0


def test_one_in_line_ends_with_0_at_once(two: list[subprocess.Popen[str]], orders: str, tmp_path: Path) -> None:
    with lakelatch.open(orders) as table, open_provider(f"file://{tmp_path}/locks?lease=2s") as locks:
        key = f"services of {table.url}"
        until(lambda: bool((holder := locks.inspect(key)) and holder.queue), "nobody leads with another in line")
        holder = locks.inspect(key)
        assert holder is not None
        waiting = two[1] if holder.pid == two[0].pid else two[0]
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(PATIENCE_S) == 0
        assert waiting.stdout is not None
        assert waiting.stdout.read() == ""
