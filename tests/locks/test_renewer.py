"""Renewal and loss with real threads that hang, many leases, and the end of a process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from lakelatch.environment import SYSTEM, SystemEnvironment
from lakelatch.errors import StorageError
from lakelatch.locks import open_provider
from lakelatch.locks.core.backend import Grant
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.contention import PATIENCE_S, until

from .scripted import ScriptedBackend, ScriptedGrant, provider


@pytest.fixture
def env() -> FakeEnvironment:
    return FakeEnvironment()


def timers(env: FakeEnvironment) -> list[float]:
    return [timer.period_s for timer in env._timers if not timer.cancelled]


def test_a_backend_that_hangs_delays_neither_others_nor_the_news_of_the_loss() -> None:
    env = SystemEnvironment()
    hanging, well = ScriptedGrant(1), ScriptedGrant(1)
    hanging.hangs.clear()
    leases = [
        provider(ScriptedBackend(hanging), env, place="hanging").acquire("k", wait_s=1, lease_s=9.0),
        provider(ScriptedBackend(well), env, place="well").acquire("k", wait_s=1, lease_s=9.0),
    ]
    told: list[tuple[str, float]] = []
    leases[0].on_lost(lambda reason: told.append((reason, time.monotonic())))
    deadline = leases[0].deadline
    try:
        until(lambda: bool(told), "the loss is never told while the backend hangs")
        reason, at = told[0]
        assert reason == "unreachable"
        assert at - deadline < 30  # `until` would wait longer
        assert hanging.renewals == 1
        until(lambda: well.renewals > 2, "another place's lease is not renewed")
        assert leases[1].lost is None
    finally:
        hanging.hangs.set()
    until(lambda: hanging.releases == 1, "the lost lease is never given back")
    leases[1].release()
    assert hanging.renewals == 1


def test_a_callback_that_hangs_delays_no_renewal() -> None:
    env = SystemEnvironment()
    lost, well = ScriptedGrant(1), ScriptedGrant(2)
    locks = provider(ScriptedBackend(lost, well), env)
    first, second = (locks.acquire(key, wait_s=1, lease_s=9.0) for key in "ab")
    go_on, called = threading.Event(), threading.Event()

    def slow(_: str) -> None:
        called.set()
        go_on.wait(PATIENCE_S)

    first.on_lost(slow)
    lost.answer = False
    assert called.wait(PATIENCE_S)
    seen = well.renewals
    until(lambda: well.renewals > seen + 1, "a slow callback stops the renewals")
    go_on.set()
    second.release()


@pytest.mark.parametrize("lease_s", [0.1, 1.0, 30.0, 600.0, 86400.0])
def test_a_loss_is_told_within_a_second_of_the_deadline(env: FakeEnvironment, lease_s: float) -> None:
    lease = provider(ScriptedBackend(ScriptedGrant(1, answer=StorageError("no"))), env).acquire(
        "k", wait_s=0, lease_s=lease_s
    )
    told: list[float] = []
    lease.on_lost(lambda _: told.append(env.monotonic()))
    deadline = lease.deadline
    env.advance(lease_s + 1)
    assert len(told) == 1
    assert deadline <= told[0] <= deadline + 1


def test_a_short_lease_makes_the_timer_fast_only_while_it_is_held(env: FakeEnvironment) -> None:
    locks = provider(ScriptedBackend(*(ScriptedGrant(i) for i in range(1, 4))), env)
    long = locks.acquire("long", wait_s=0, lease_s=600)
    assert timers(env) == [0.5]
    short = locks.acquire("short", wait_s=0, lease_s=0.12)
    assert timers(env) == [pytest.approx(0.01)]
    short.release()
    env.advance(2)
    assert timers(env) == [0.5]
    long.release()
    env.advance(5)
    assert timers(env) == []


def test_a_held_lease_costs_one_request_per_third_of_it(env: FakeEnvironment) -> None:
    grant = ScriptedGrant(1)
    lease = provider(ScriptedBackend(grant), env).acquire("k", wait_s=0, lease_s=30)
    env.advance(3000)
    assert lease.lost is None
    assert 280 <= grant.renewals <= 300


class Batching(ScriptedBackend):
    """Renews many in one request."""

    batch_max = 256

    def __init__(self, *grants: ScriptedGrant) -> None:
        super().__init__(*grants)
        self.batches: list[int] = []
        self.fails = False

    def renew_many(self, grants: list[Grant]) -> list[bool | Exception]:
        self.batches.append(len(grants))
        if self.fails:
            raise StorageError("the pipe is broken")
        answers: list[bool | Exception] = []
        for grant in grants:
            try:
                answers.append(grant.renew())
            except StorageError as e:
                answers.append(e)
        return answers


def test_many_renewals_go_in_one_request_and_each_has_its_answer(env: FakeEnvironment) -> None:
    grants = [ScriptedGrant(token) for token in range(1, 301)]
    backend = Batching(*grants)
    locks = provider(backend, env)
    leases = [locks.acquire(f"k{i}", wait_s=0, lease_s=12) for i in range(300)]
    grants[1].answer = False
    grants[2].answer = StorageError("only this one")
    env.advance(4)
    assert sorted(backend.batches) == [300 - Batching.batch_max, Batching.batch_max]
    assert [lease.lost for lease in leases[:4]] == [None, "stolen", None, None]
    grants[2].answer = True
    backend.fails = True
    env.advance(4)
    backend.fails = False
    env.advance(4)
    assert {lease.lost for lease in leases[2:]} == {None}


def test_news_from_the_backend_is_told_without_a_renewal(env: FakeEnvironment) -> None:
    grant = ScriptedGrant(1)
    lease = provider(ScriptedBackend(grant), env).acquire("k", wait_s=0)
    told: list[str] = []
    lease.on_lost(told.append)
    assert grant.news is not None
    grant.news("stolen")
    grant.news("expired")
    assert lease.lost == "stolen"
    env.run_threads()
    assert (told, grant.releases, grant.renewals) == (["stolen"], 1, 0)


def test_news_of_the_own_release_is_no_loss(env: FakeEnvironment) -> None:
    grant = ScriptedGrant(1)
    lease = provider(ScriptedBackend(grant), env).acquire("k", wait_s=0)
    told: list[str] = []
    lease.on_lost(told.append)
    lease.release()
    assert grant.news is not None
    grant.news("stolen")
    env.advance(60)
    assert (lease.lost, told, grant.releases) == ("released", [], 1)


def test_renewals_wait_for_a_thread_that_cannot_be_started_yet(
    env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = ScriptedGrant(1)
    lease = provider(ScriptedBackend(grant), env).acquire("k", wait_s=0, lease_s=12)

    def no_thread(*_: object, **__: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(FakeEnvironment, "thread", no_thread)
        env.advance(10)
        assert grant.renewals == 0
    env.advance(1)
    assert (grant.renewals, lease.lost) == (1, None)


def test_thousands_of_leases_stay_alive_with_two_threads() -> None:
    before = threading.active_count()
    with open_provider("memory://thousands?lease=12s", env=SystemEnvironment()) as locks:
        leases = [locks.acquire(f"k{i}", wait_s=0) for i in range(2000)]
        first_deadlines = [lease.deadline for lease in leases]
        most = 0

        def all_renewed() -> bool:
            nonlocal most
            most = max(most, threading.active_count() - before)
            return all(lease.deadline > first for lease, first in zip(leases, first_deadlines, strict=True))

        until(all_renewed, "some leases are not renewed")
        assert most <= 3  # the timer, the worker of the place, and one that may just be ending
        for lease in leases:
            lease.ensure_held()
            lease.release()


@pytest.mark.process
@pytest.mark.parametrize("hanging", [False, True])
def test_a_program_may_end_while_it_holds(hanging: bool) -> None:
    code = f"""
import threading, time
from lakelatch.locks import open_provider, memory
locks = open_provider("memory://x?lease=6s")
leases = [locks.acquire(f"k{{i}}", wait_s=1) for i in range(50)]
leases[0].on_lost(lambda reason: time.sleep(60))
if {hanging}:
    memory._MemoryGrant.renew = lambda self: time.sleep(60)
deadline = leases[0].deadline
while (leases[0].deadline == deadline and not {hanging}) or ({hanging} and leases[0].lost is None):
    time.sleep(0.01)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=240, check=False)
    assert (done.returncode, done.stdout, done.stderr if not hanging else b"") == (0, b"", b"")
    assert b"Traceback" not in done.stderr


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_fork_renews_its_own_leases() -> None:
    import os

    locks = open_provider("memory://forked-renewals?lease=9s", env=SYSTEM)
    lease = locks.acquire("k", wait_s=0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            own = locks.acquire("k", wait_s=0)
            first = own.deadline
            end = time.monotonic() + 120
            while own.deadline < first + 1 and own.lost is None and time.monotonic() < end:
                time.sleep(0.02)
            code = 0 if own.lost is None and own.deadline >= first + 1 and lease.lost == "forked" else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    lease.ensure_held(fresh=True)
    lease.release()
