"""examples/lead_services.py: real processes that elect a leader for a table's services."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.locks import LockProvider, open_provider
from lakelatch.testing.contention import PATIENCE_S, until

pytestmark = pytest.mark.process

PROGRAM = Path(__file__).parents[2] / "examples" / "lead_services.py"


class Candidate:
    """A process of the program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def next(self, *wanted: str) -> str:
        """The next line that begins with one of these words."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(wanted):
                return line.strip()
        raise AssertionError(f"it ended with {self.process.wait()} and never said {wanted}")


@pytest.fixture
def orders(tmp_path: Path) -> str:
    url = str(tmp_path / "orders")
    lakelatch.create(url, record_key="id", schema=pa.schema([("id", pa.string()), ("v", pa.int64())])).close()
    return url


def write_small_files(orders: str, *names: str) -> None:
    with lakelatch.open(orders) as table:
        for name in names:
            with table.transaction("insert") as txn:
                txn.new_file().write(pa.table({"id": [name], "v": [1]}))


@pytest.fixture
def candidates(orders: str, tmp_path: Path) -> Iterator[tuple[Candidate, Candidate]]:
    command = [sys.executable, str(PROGRAM), orders, f"file://{tmp_path}/locks?lease=2s", "0.05"]
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            stack.callback(process.kill)
            found.append(Candidate(process))
        yield found[0], found[1]


@pytest.fixture
def locks(tmp_path: Path) -> Iterator[LockProvider]:
    with open_provider(f"file://{tmp_path}/locks?lease=2s") as locks:
        yield locks


def in_roles(candidates: tuple[Candidate, Candidate], locks: LockProvider, orders: str) -> tuple[Candidate, Candidate]:
    """The leader and the one in line."""
    key = f"services of {orders}"
    until(lambda: bool((holder := locks.inspect(key)) and holder.queue), "nobody leads with another in line")
    holder = locks.inspect(key)
    assert holder is not None
    one, other = candidates
    return (one, other) if holder.pid == one.process.pid else (other, one)


def test_a_leader_that_is_killed_is_followed_and_the_services_go_on(
    candidates: tuple[Candidate, Candidate], locks: LockProvider, orders: str
) -> None:
    leader, follower = in_roles(candidates, locks, orders)
    write_small_files(orders, "a", "b", "c")
    first = leader.next("leads with")
    assert leader.next("clustered")
    leader.process.kill()
    assert int(follower.next("leads with").split()[-1]) > int(first.split()[-1])
    write_small_files(orders, "d", "e", "f")
    assert follower.next("clustered")
    with lakelatch.open(orders) as table:
        assert sorted(table.read().to_arrow().column("id").to_pylist()) == list("abcdef")
    follower.process.send_signal(signal.SIGTERM)
    assert follower.process.wait(PATIENCE_S) == 0
    assert locks.inspect(f"services of {orders}") is None


def test_a_leader_that_slept_past_its_lease_learns_it_and_stands_in_line_again(
    candidates: tuple[Candidate, Candidate], locks: LockProvider, orders: str
) -> None:
    leader, follower = in_roles(candidates, locks, orders)
    leader.process.send_signal(signal.SIGSTOP)
    follower.next("leads with")
    leader.process.send_signal(signal.SIGCONT)
    assert leader.next("leads no longer") == "leads no longer: expired"
    in_roles(candidates, locks, orders)  # it stands in line
    follower.process.send_signal(signal.SIGTERM)
    assert follower.process.wait(PATIENCE_S) == 0
    assert leader.next("leads with")


def test_a_leader_that_is_asked_steps_down_for_the_next(
    candidates: tuple[Candidate, Candidate], locks: LockProvider, orders: str
) -> None:
    _, follower = in_roles(candidates, locks, orders)
    assert lakelatch.lock(locks, f"services of {orders}").ask_revoke(wait_s=PATIENCE_S, reason="upgrade")
    follower.next("leads with")


def test_a_candidate_in_line_ends_at_once_when_it_is_told_to(
    candidates: tuple[Candidate, Candidate], locks: LockProvider, orders: str
) -> None:
    _, follower = in_roles(candidates, locks, orders)
    follower.process.send_signal(signal.SIGTERM)
    assert follower.process.wait(PATIENCE_S) == 0
    until(
        lambda: (holder := locks.inspect(f"services of {orders}")) is not None and holder.queue == (), "still in line"
    )
