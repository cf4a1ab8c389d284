"""`lakelatch services run --loop`: real processes that elect a leader for a table's services, real signals, real deaths."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.locks import LockProvider, open_provider
from lakelatch.testing.contention import PATIENCE_S, until

from ..unheard import unheard

pytestmark = pytest.mark.process


class Candidate:
    """A process of the command."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def next_round(self) -> dict[str, Any]:
        """The next round in which a service was done."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if (told := json.loads(line))["done"]:
                return told
        raise AssertionError(f"it ended with {self.process.wait()}")

    def ended(self) -> int:
        return self.process.wait(PATIENCE_S)


@dataclass
class Scene:
    """A table, the lock of its services, and two candidates."""

    table: lakelatch.Table
    locks: LockProvider
    both: tuple[Candidate, Candidate]

    @property
    def key(self) -> str:
        return f"services of {self.table.url}"

    def roles(self) -> tuple[Candidate, Candidate]:
        """The leader and the one in line."""
        until(lambda: bool((holder := self.locks.inspect(self.key)) and holder.queue), "nobody leads with one in line")
        holder = self.locks.inspect(self.key)
        assert holder is not None
        return self.both if holder.pid == self.both[0].process.pid else self.both[::-1]

    def give_work(self) -> None:
        """A clean is due."""
        for n in range(2):
            self.table.upsert([{"id": "a", "v": n}])


def command(folder: Path) -> list[str]:
    words = [
        sys.executable,
        "-m",
        "lakelatch.cli",
        "services",
        "run",
        f"{folder}/orders",
        "--loop",
        "--every-s",
        "0.05",
    ]
    return [*words, "--json", "--lock", f"file://{folder}/locks?lease=6s", "--retain-commits", "1"]


def started(stack: ExitStack, folder: Path) -> Candidate:
    process = stack.enter_context(
        subprocess.Popen(command(folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    )
    stack.callback(process.kill)
    return Candidate(process)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def table(tmp_path: Path) -> Iterator[lakelatch.Table]:
    with lakelatch.create(f"{tmp_path}/orders", record_key="id") as table:
        table.upsert([{"id": "a", "v": 0}])
        yield table


@pytest.fixture
def scene(table: lakelatch.Table, tmp_path: Path, stack: ExitStack) -> Scene:
    locks = stack.enter_context(open_provider(f"file://{tmp_path}/locks?lease=6s"))
    return Scene(table, locks, (started(stack, tmp_path), started(stack, tmp_path)))


def test_at_a_signal_the_leader_ends_with_0_and_the_next_leads_as_after_its_death(scene: Scene) -> None:
    leader, follower = scene.roles()
    scene.give_work()
    assert list(leader.next_round()["done"]) == ["clean"]
    leader.process.send_signal(signal.SIGTERM)
    assert leader.ended() == 0
    scene.give_work()
    assert list(follower.next_round()["done"]) == ["clean"]
    follower.process.send_signal(signal.SIGINT)
    assert follower.ended() == 0
    assert scene.locks.inspect(scene.key) is None


def test_a_signal_in_the_moment_before_the_pause_does_not_wait_for_the_next_round(
    table: lakelatch.Table, tmp_path: Path
) -> None:
    for n in range(2):
        table.upsert([{"id": "a", "v": n}])
    words = [*command(tmp_path)[2:], "--every-s", "86400"]
    with unheard(*words) as (process, terminate):
        assert list(Candidate(process).next_round()["done"]) == ["clean"]
        terminate()
        assert process.wait(PATIENCE_S) == 0


def test_a_leader_that_is_killed_is_followed(scene: Scene) -> None:
    leader, follower = scene.roles()
    first = scene.locks.inspect(scene.key)
    leader.process.kill()
    scene.give_work()
    assert list(follower.next_round()["done"]) == ["clean"]
    second = scene.locks.inspect(scene.key)
    assert first is not None
    assert second is not None
    assert second.token > first.token


def test_a_service_at_work_is_finished_when_the_signal_comes_and_the_next_ones_are_not_begun(
    table: lakelatch.Table, tmp_path: Path, stack: ExitStack
) -> None:
    for n in range(2):
        table.upsert([{"id": "a", "v": n}])
    provider, key = table.lock.provider() or (None, "")
    assert provider is not None
    with provider.acquire(key, wait_s=PATIENCE_S, reason="the service waits here"):
        alone = started(stack, tmp_path)
        until(lambda: bool((holder := provider.inspect(key)) and holder.queue), "no service waits for the table")
        alone.process.send_signal(signal.SIGTERM)
    told = alone.next_round()
    assert (list(told["done"]), told["not_begun"]) == (["clean"], ["archive"])
    assert alone.ended() == 0


def test_a_leader_that_slept_past_its_lease_learns_it_and_stands_in_line_again(scene: Scene) -> None:
    leader, follower = scene.roles()
    leader.process.send_signal(signal.SIGSTOP)
    scene.give_work()
    assert follower.next_round()
    leader.process.send_signal(signal.SIGCONT)
    assert leader.process.stderr is not None
    assert "this process was paused" in leader.process.stderr.readline()
    assert scene.roles() == (follower, leader)


def test_a_leader_that_is_asked_steps_down_for_the_next(scene: Scene) -> None:
    _, follower = scene.roles()
    assert lakelatch.lock(scene.locks, scene.key).ask_revoke(wait_s=PATIENCE_S, reason="upgrade")
    scene.give_work()
    assert follower.next_round()


def test_one_in_line_ends_with_0_at_once(scene: Scene) -> None:
    _, waiting = scene.roles()
    waiting.process.send_signal(signal.SIGTERM)
    assert waiting.ended() == 0
    assert waiting.process.stdout is not None
    assert waiting.process.stdout.read() == ""
    until(lambda: (holder := scene.locks.inspect(scene.key)) is not None and holder.queue == (), "it is still in line")
