"""Processes that are stopped, slow or silent: what happens to their lock, to their transaction, and to the others."""

from __future__ import annotations

import signal

import pytest

import lakelatch

from ..occ.world import BEGUN, add, check_sound, content, fate, make, writes
from .forge import until

pytestmark = pytest.mark.process

SHORT = {"lease_s": 1.0, "heartbeat_interval_s": 0.3, "heartbeat_timeout_s": 2.0}
PATIENT = {"lease_s": 1.0}  # nobody is taken for dead in a minute


def stop_and_go_on(forge, folder, part: str) -> dict[str, object]:
    """A process is stopped under the lock for longer than its lease; another one commits in ``part`` meanwhile."""
    stopped = forge.start("stop_before_entry", folder=folder)
    stopped.stop_here()
    with lakelatch.open(str(folder), writer="other") as table, table.transaction() as txn:
        add(txn, part, 10)
    stopped.signal(signal.SIGCONT)
    return stopped.result()


def test_a_holder_stopped_past_its_lease_lands_under_a_new_lock_and_a_new_validation(forge, folder):
    make(folder / "table", **PATIENT)
    told = stop_and_go_on(forge, folder / "table", "b")
    assert told["error"] is None
    with lakelatch.open(str(folder / "table")) as table:
        assert content(table) == {"a0": 1, "a1": 1, "b0": 10, "b1": 10}
        founder, other, late = writes(table)
        assert (other.writer, late.writer) == ("other", "stopped")
        # Its first lease had the token before the other's; it landed with one after it.
        assert founder.token < other.token - 1
        assert late.token > other.token
        check_sound(table)


def test_a_holder_stopped_past_its_lease_does_not_land_when_it_overlaps(forge, folder):
    make(folder / "table", **PATIENT)
    told = stop_and_go_on(forge, folder / "table", "a")
    assert told["error"] == "ConflictError"
    assert told["landed"] is False
    with lakelatch.open(str(folder / "table")) as table:
        assert content(table) == BEGUN | {"a0": 10, "a1": 10}
        check_sound(table)


def test_a_stopped_writer_that_was_rolled_back_does_not_land(forge, folder):
    make(folder / "table", **SHORT)
    stopped = forge.start("stop_before_entry", folder=folder / "table")
    stopped.stop_here()
    with lakelatch.open(str(folder / "table")) as table:
        assert len(table.rollback_failed_writes()) == 0, "it may still be alive"
        (ended,) = table.rollback_failed_writes(wait=True)
    stopped.signal(signal.SIGCONT)
    told = stopped.result()
    assert told == {"error": "RolledBackError", "landed": False, "instant": ended}
    with lakelatch.open(str(folder / "table")) as table:
        assert content(table) == BEGUN
        assert fate(table, ended) == ["begin", "rollback"]
        check_sound(table)


def test_a_slow_living_writer_outlives_many_time_outs(forge, folder):
    make(folder / "table", lease_s=1.0, heartbeat_interval_s=0.2, heartbeat_timeout_s=8.0)
    ready, go = folder / "ready", folder / "go"
    slow = forge.start("begin_and_wait", folder=folder / "table", ready=ready, go=go)
    until(ready.exists, what="the slow writer begins")
    with lakelatch.open(str(folder / "table")) as table:
        end = table.env.monotonic() + 20.0
        until(lambda: table.rollback_failed_writes() or table.env.monotonic() > end, what="twenty seconds of cleaning")
        go.touch()
        instant = slow.result()
        assert fate(table, instant) == ["begin", "commit"]
        assert content(table) == BEGUN | {"a0": 1, "a1": 1}
        check_sound(table)


def test_a_killed_writer_is_found_at_once_and_its_lock_is_free(forge, folder):
    make(folder / "table", lease_s=300.0, heartbeat_timeout_s=300.0)
    stopped = forge.start("stop_before_entry", folder=folder / "table")
    stopped.stop_here()
    stopped.signal(signal.SIGKILL)
    assert stopped.wait() == -9
    with lakelatch.open(str(folder / "table")) as table:
        began = table.env.monotonic()
        with table.transaction() as txn:
            add(txn, "a", 10)
        assert table.env.monotonic() - began < 100.0
        assert content(table) == BEGUN | {"a0": 10, "a1": 10}
        check_sound(table)
