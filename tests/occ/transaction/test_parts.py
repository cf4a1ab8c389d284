"""The parts of a transaction: an attempt is replaced and never begun twice, and leaves nothing when it cannot begin."""

from __future__ import annotations

import pytest

import lakelatch
from lakelatch.errors import CommitError, StorageError
from lakelatch.occ.services.execution import Execution, Service
from lakelatch.occ.services.planned_service import service_operation
from lakelatch.occ.services.registry import SERVICES
from lakelatch.testing.faults import On, Refuse

from ..aged import SMALL
from ..world import BEGUN, add, check_sound, content, fate, rows


def is_idle(table: lakelatch.Table) -> bool:
    """Whether nothing is open, no heartbeat goes on, no instant is pending, and the lock is free."""
    session = table.session
    with session.lease("to see whether it is free", max_hold_s=1.0):
        return not session.log.catch_up().open and not session.heart.instants and not table.timeline().pending


def test_to_begin_anew_is_another_attempt_and_another_workspace(world):
    a, b = world.writer("A"), world.writer("B")
    txn = a.table.transaction(reserve=["part=a"])
    before, workspace = txn.instant, txn.workspace
    txn.abort("it waits")
    b.add("a", 3)
    txn.begin_anew(None)
    assert txn.instant > before
    assert txn.claim.reserved is None
    assert txn.workspace is not workspace
    with pytest.raises(CommitError, match=before):
        workspace.new_file("part=a")
    add(txn, "a")
    assert txn.commit().instant == txn.instant
    assert world.content() == BEGUN | {"a0": 4, "a1": 4}
    assert fate(a.table, before) == ["begin", "abort"]


def test_one_that_cannot_begin_anew_stays_over(world):
    a = world.writer("A")
    txn = a.table.transaction()
    before = txn.instant
    txn.abort("it waits")
    a.store.add(Refuse(On("put_if_absent", "/log/")))
    with pytest.raises(StorageError):
        txn.begin_anew(None)
    with pytest.raises(CommitError, match=f"{before} is over .aborted."):
        txn.upsert(rows("a", {"a0": 1}))
    assert is_idle(a.table)


@pytest.mark.parametrize("place", ["/log/", "heartbeat", ".inflight"])
@pytest.mark.parametrize("lock_first", [False, True], ids=["", "lock first"])
def test_an_attempt_that_cannot_begin_leaves_nothing(world, place, lock_first):
    a = world.writer("A")
    a.store.add(Refuse(On("", place)))
    with pytest.raises(StorageError):
        a.table.transaction(lock_first=lock_first)
    assert is_idle(a.table)
    a.add("a")
    assert world.content() == BEGUN | {"a0": 1, "a1": 1}


def test_a_service_whose_block_fails_has_not_landed(old):
    writer = old.writer("A")
    before = content(writer.table)
    service = Service(writer.table.session, "savepoint", service_operation("savepoint", "SAVEPOINT"))
    with pytest.raises(ZeroDivisionError), service:
        settle_and_fail(service, writer.table.timeline().commits[-1].requested)
    assert service.result is None
    assert fate(writer.table, service.attempt.instant) == ["begin", "abort"]
    assert not writer.table.savepoints()
    assert content(writer.table) == before


def test_an_execution_whose_block_fails_leaves_the_plan_to_others(old):
    old.writer("first").table.close()  # it would draw the file ids of anyone who aged the table once more
    a, b = old.writer("A"), old.writer("B", host="host-b")
    before, planned = content(a.table), a.table.plan_clustering(**SMALL)
    begin = a.table.session.log.catch_up().open[planned]
    execution = Execution(a.table.session, begin, SERVICES[begin.operation])
    with pytest.raises(ZeroDivisionError), execution:
        write_and_fail(execution)
    assert not execution.mine
    assert fate(a.table, planned) == ["begin"]
    assert b.table.execute(planned).mine
    with pytest.raises(lakelatch.RolledBackError, match="executed or cancelled"):
        Execution(a.table.session, begin, SERVICES[begin.operation])
    assert content(a.table) == before
    check_sound(a.table)


def settle_and_fail(service: Service, instant: str) -> None:
    service.settle({"slices": {}}, named=instant)
    raise ZeroDivisionError


def write_and_fail(execution: Execution) -> None:
    execution.workspace.new_file("part=a").write(rows("a", {"new": 1}))
    raise ZeroDivisionError
