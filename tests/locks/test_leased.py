"""What a provider does above any backend: time limits, tokens, limits, errors, closing, queue, logs."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from lakelatch.environment import SYSTEM
from lakelatch.errors import (
    InputError,
    LockError,
    LockTimeoutError,
    LockUnavailableError,
    StorageError,
    TokenRegressedError,
)
from lakelatch.locks import Holder, LockProvider, Release, open_provider
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.contention import PATIENCE_S, until

from .scripted import ScriptedBackend, ScriptedGrant, provider


@pytest.fixture
def env() -> FakeEnvironment:
    return FakeEnvironment()


def test_a_token_that_is_not_above_is_given_back_and_told(env: FakeEnvironment) -> None:
    grant, next_one = ScriptedGrant(7), ScriptedGrant(8)
    backend = ScriptedBackend(grant, next_one)
    locks = provider(backend, env)
    with pytest.raises(TokenRegressedError, match="Nothing is held") as caught:
        locks.acquire("k", wait_s=0, token_above=7)
    assert (caught.value.key, caught.value.token, caught.value.token_above) == ("k", 7, 7)
    assert (grant.releases, backend.left) == (1, 0)  # the grant had the place
    assert locks.acquire("k", wait_s=0, token_above=7).token == 8  # and the front is free


def test_an_answer_that_comes_after_the_lease_is_given_back(env: FakeEnvironment) -> None:
    late, in_time = ScriptedGrant(1, given_back=StorageError("no answer")), ScriptedGrant(2)
    backend = ScriptedBackend(late, in_time)
    slow = iter([30.0, 29.0])
    backend.on_grant = lambda: env.suspend(next(slow))
    locks = provider(backend, env)
    assert locks.acquire("k", wait_s=100).token == 2
    assert late.releases == 1


def test_the_deadline_counts_from_before_the_request(env: FakeEnvironment) -> None:
    backend = ScriptedBackend(ScriptedGrant(1))
    backend.on_grant = lambda: env.suspend(3)
    start = env.monotonic()
    assert provider(backend, env).acquire("k", wait_s=0, lease_s=12).deadline == start + 12


def test_a_grant_that_came_while_waiting_counts_from_then(env: FakeEnvironment) -> None:
    grant = ScriptedGrant(1)
    backend = ScriptedBackend()
    handed_over_at = env.monotonic()
    grant.asked_at = handed_over_at  # type: ignore[attr-defined]

    def hand_over(_: float) -> None:
        env.suspend(4)
        backend.grants.append(grant)

    backend.on_wait = hand_over
    assert provider(backend, env).acquire("k", wait_s=100, lease_s=12).deadline == handed_over_at + 12


def test_a_grant_whose_news_cannot_be_heard_is_given_back(
    env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    grant = ScriptedGrant(1)
    locks = provider(ScriptedBackend(grant, ScriptedGrant(2)), env)

    def deaf(*_: object) -> None:
        raise LockUnavailableError("no answer", key="k")

    with monkeypatch.context() as patch:
        patch.setattr(ScriptedGrant, "listen", deaf)
        with pytest.raises(LockUnavailableError):
            locks.acquire("k", wait_s=0)
    assert grant.releases == 1
    assert locks.acquire("k", wait_s=0).token == 2


def test_more_leases_than_can_be_kept_alive_are_refused(env: FakeEnvironment) -> None:
    backend = ScriptedBackend(*(ScriptedGrant(token) for token in range(1, 9)))
    backend.max_leases = 3
    locks, elsewhere = provider(backend, env), provider(ScriptedBackend(ScriptedGrant(1)), env, place="elsewhere")
    held = [locks.acquire(f"k{i}", wait_s=0) for i in range(3)]
    with pytest.raises(LockError, match="holds 3 leases at scripted://place") as caught:
        locks.try_acquire("k4")
    assert caught.value.max_leases == 3
    elsewhere.acquire("k4", wait_s=0)
    held.pop().release()
    locks.acquire("k4", wait_s=0)


def test_a_time_out_names_the_place_in_line(env: FakeEnvironment) -> None:
    backend = ScriptedBackend()
    locks = provider(backend, env)
    queue = ["host:1:first", "host:2:second"]
    backend.on_grant = lambda: setattr(
        backend, "holder", Holder("k", "o", 9, 0.0, None, host="host", queue=(*queue, backend.asked.owner))
    )
    backend.on_wait = env.advance
    with pytest.raises(LockTimeoutError, match=r"number 3 in line.*token 9") as caught:
        locks.acquire("k", wait_s=5)
    assert (caught.value.position, caught.value.wait_s, backend.left) == (3, 5, 1)
    backend.holder, backend.on_grant, backend.inspect_error = None, lambda: None, StorageError("no answer")
    with pytest.raises(LockTimeoutError, match="not known"):
        locks.acquire("k", wait_s=5)


def test_a_thread_that_waits_behind_others_of_its_process_is_told_how_many() -> None:
    with open_provider("memory://position") as locks, locks.acquire("k", wait_s=1):
        one = threading.Thread(target=lambda: locks.acquire("k", wait_s=PATIENCE_S).release())
        one.start()
        until(lambda: locks.inspect("k").queue != (), "a waiting thread is not in the queue")  # type: ignore[union-attr]

        def two() -> None:
            with pytest.raises(LockTimeoutError, match="number 2 in line") as caught:
                locks.acquire("k", wait_s=0.05)
            positions.append(caught.value.position)

        positions: list[int] = []
        second = threading.Thread(target=two)
        second.start()
        second.join(PATIENCE_S)
    one.join(PATIENCE_S)
    assert positions == [2]


def test_an_error_while_waiting_leaves_place_and_front(env: FakeEnvironment) -> None:
    backend = ScriptedBackend()
    locks = provider(backend, env)

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    backend.on_wait = interrupt
    with pytest.raises(KeyboardInterrupt):
        locks.acquire("k", wait_s=5)
    assert backend.left == 1
    backend.grants.append(ScriptedGrant(1))
    assert locks.try_acquire("k") is not None


def test_a_place_that_cannot_be_left_hides_no_answer(env: FakeEnvironment, caplog: pytest.LogCaptureFixture) -> None:
    backend = ScriptedBackend()
    backend.leave_error = LockUnavailableError("the server is gone", key="k")
    locks = provider(backend, env)
    with pytest.raises(LockTimeoutError):
        locks.acquire("k", wait_s=0)
    assert "may have left a trace: the server is gone" in caplog.text
    backend.grants.append(ScriptedGrant(1))
    assert locks.try_acquire("k") is not None  # the front was left


def test_an_outage_that_is_raised_is_not_logged_too(env: FakeEnvironment, caplog: pytest.LogCaptureFixture) -> None:
    backend = ScriptedBackend()
    backend.leave_error = LockUnavailableError("the server is gone", key="k")

    def fails() -> None:
        raise LockUnavailableError("the server is gone", key="k")

    backend.on_grant = fails
    with pytest.raises(LockUnavailableError, match="the server is gone"):
        provider(backend, env).acquire("k", wait_s=0)
    assert "the server is gone" not in caplog.text


def test_the_backend_is_closed_after_the_last_lease(env: FakeEnvironment) -> None:
    backend = ScriptedBackend(ScriptedGrant(1), ScriptedGrant(2))
    locks = provider(backend, env)
    one, two = locks.acquire("a", wait_s=0), locks.acquire("b", wait_s=0, lease_s=10, max_hold_s=20)
    locks.close()
    assert backend.closed == 0
    one.release()
    env.advance(15)
    assert (backend.closed, two.lost) == (0, None)
    env.advance(10)
    assert (backend.closed > 0, two.lost) == (True, "max_hold")
    for use in (locks.try_acquire, locks.inspect, locks.breaks, partial(locks.acquire, wait_s=1)):
        with pytest.raises(LockError, match="is closed"):
            use("a")
    with pytest.raises(LockError, match="is closed"):
        locks.break_lease("a", token=1, reason="late", who="me")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_fork_closes_what_is_its_own(env: FakeEnvironment) -> None:
    backend = ScriptedBackend(ScriptedGrant(1))
    locks = provider(backend, env)
    locks.acquire("a", wait_s=0)
    child = os.fork()
    if child == 0:
        locks.close()
        os._exit(0 if backend.closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert backend.closed == 0


def test_a_broken_lease_of_another_place_or_key_is_spared(env: FakeEnvironment) -> None:
    here, there = (
        provider(ScriptedBackend(ScriptedGrant(1), ScriptedGrant(1)), env, place=name) for name in ("here", "there")
    )
    leases = [here.acquire("k", wait_s=0), here.acquire("other", wait_s=0), there.acquire("k", wait_s=0)]
    assert here.break_lease("k", token=1, reason="stuck", who="me")
    assert [lease.lost for lease in leases] == ["stolen", None, None]


def test_a_key_in_the_url_is_the_one_lock() -> None:
    with open_provider("memory://fixed?key=flights") as locks, locks.acquire("s3://b/t", wait_s=0) as lease:
        assert lease.key == "flights"
        assert locks.try_acquire("anything else") is None
        with open_provider("memory://fixed") as plain:
            assert plain.try_acquire("flights") is None


def test_a_thread_may_wait_for_what_it_held_and_lost(env: FakeEnvironment) -> None:
    backend = ScriptedBackend(ScriptedGrant(1), ScriptedGrant(2))
    locks = provider(backend, env)
    first = locks.acquire("k", wait_s=0)
    env.suspend(1000)
    assert locks.acquire("k", wait_s=100).token == 2
    assert first.lost == "expired"


def test_a_lease_that_another_thread_took_is_waited_for() -> None:
    with open_provider("memory://handed-over") as locks:
        taken = []
        taker = threading.Thread(target=lambda: taken.append(locks.acquire("k", wait_s=1)))
        taker.start()
        taker.join(PATIENCE_S)
        timer = threading.Timer(0.05, taken[0].release)
        timer.start()
        locks.acquire("k", wait_s=PATIENCE_S).release()
        timer.join()


def outage(backend: ScriptedBackend, *answers: Exception | None) -> None:
    """The tries after this end so, one after another."""
    left = list(answers)

    def try_grant() -> None:
        if left and (error := left.pop(0)) is not None:
            raise error

    backend.on_grant = try_grant


def test_a_waiter_sits_out_an_outage_as_long_as_it_waits(env: FakeEnvironment) -> None:
    backend, gone = ScriptedBackend(), LockUnavailableError("no answer", key="k")
    locks = provider(backend, env)
    outage(backend, None, *[gone] * 30)
    backend.on_wait = lambda _: backend.grants.append(ScriptedGrant(7))  # it would be granted at the next answer
    start = env.monotonic()
    assert locks.acquire("k", wait_s=60).token == 7
    assert 7 < env.monotonic() - start < 30


def test_a_waiter_that_the_outage_outlasts_is_told_of_it_when_its_time_is_over(env: FakeEnvironment) -> None:
    backend = ScriptedBackend()
    outage(backend, None, *[LockUnavailableError(f"no answer {n}", key="k") for n in range(1000)])
    start = env.monotonic()
    with pytest.raises(LockUnavailableError, match="no answer"):
        provider(backend, env).acquire("k", wait_s=60)
    assert env.monotonic() - start == pytest.approx(60, abs=1)
    assert backend.left == 1


def test_a_wait_that_fails_is_no_end_of_the_wait(env: FakeEnvironment) -> None:
    backend = ScriptedBackend()

    def fail(_: float) -> None:
        env.advance(5)
        backend.grants.append(ScriptedGrant(7))
        raise LockUnavailableError("no answer", key="k")

    backend.on_wait = fail
    assert provider(backend, env).acquire("k", wait_s=60).token == 7


def test_a_service_that_has_never_answered_is_told_at_once(env: FakeEnvironment) -> None:
    backend = ScriptedBackend()
    outage(backend, LockUnavailableError("no answer", key="k"))
    start = env.monotonic()
    with pytest.raises(LockUnavailableError):
        provider(backend, env).acquire("k", wait_s=60)
    assert env.monotonic() == start


@pytest.mark.parametrize("token_above", [2**62 + 1, 2**63 - 2, 2**63, 10**40, -1, 1.5])
def test_a_token_without_room_to_count_on_is_refused_before_anything_is_asked(
    env: FakeEnvironment, token_above: int
) -> None:
    backend = ScriptedBackend(ScriptedGrant(1))
    with pytest.raises(InputError, match="begin a new generation"):
        provider(backend, env).acquire("k", wait_s=0, token_above=token_above)
    assert backend.grants


def test_who_waits_does_not_care_which_thread_has_taken_the_lease() -> None:
    """Threads of a pool are used again: the one that waits may be the one that once took what another task holds."""
    with open_provider("memory://pool") as locks, ThreadPoolExecutor(1) as pool:
        lease = pool.submit(locks.acquire, "k", wait_s=0).result()
        waiting = pool.submit(locks.acquire, "k", wait_s=PATIENCE_S)
        until(lambda: len(locks.inspect("k").queue) == 1, "nobody waits")
        lease.release()
        assert waiting.result(PATIENCE_S).release() is Release.RELEASED


def test_tasks_of_asyncio_wait_in_any_thread() -> None:
    async def work(locks: LockProvider, done: list[int]) -> None:
        lease = await asyncio.to_thread(locks.acquire, "k", wait_s=PATIENCE_S)
        await asyncio.sleep(0)
        done.append(lease.token)
        await asyncio.to_thread(lease.release)

    async def all_of(locks: LockProvider) -> list[int]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(11))
        done: list[int] = []
        await asyncio.gather(*(work(locks, done) for _ in range(10)))
        return done

    with open_provider("memory://tasks") as locks:
        done = asyncio.run(all_of(locks))
    assert done == sorted(set(done))
    assert len(done) == 10


def test_a_time_out_says_when_the_caller_may_have_waited_for_itself(env: FakeEnvironment) -> None:
    with open_provider("memory://itself", env=env) as locks, open_provider("memory://itself", env=env) as others:
        with locks.acquire("k", wait_s=0), pytest.raises(LockTimeoutError, match="it has waited for itself"):
            others.acquire("k", wait_s=1)
        with open_provider("memory://itself", env=env.peer()) as theirs, theirs.acquire("k", wait_s=0):
            with pytest.raises(LockTimeoutError) as caught:
                locks.acquire("k", wait_s=1)
            assert "itself" not in str(caught.value).replace("memory://itself", "")


def test_a_provider_with_leases_pickles_as_an_address(env: FakeEnvironment) -> None:
    with open_provider("memory://pickled", env=SYSTEM) as locks, locks.acquire("k", wait_s=0):
        copy = pickle.loads(pickle.dumps(locks))
        copy.close()
        assert locks.inspect("k") is not None


def test_every_record_of_the_log_carries_key_owner_and_token(
    env: FakeEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="lakelatch.locks")
    failing = ScriptedGrant(1, answer=StorageError("no answer"), given_back=StorageError("no answer either"))
    backend = ScriptedBackend(failing, ScriptedGrant(2))
    locks = provider(backend, env)
    lease = locks.acquire("k", wait_s=0)
    lease.on_lost(lambda _: 1 / 0)  # type: ignore[arg-type,return-value]
    env.advance(60)
    locks.acquire("k", wait_s=0).release()
    locks.break_lease("k", token=3, reason="stuck", who="me")
    texts = [record.getMessage() for record in caplog.records]
    for said in ("granted", "renewal failed: no answer", "lost, ", "callback", "no answer to the release", "released"):
        assert any(said in text for text in texts), said
    assert all(record.key == "k" and record.owner and record.token for record in caplog.records)  # type: ignore[attr-defined]
    levels = {record.levelno for record in caplog.records if "granted" in record.getMessage()}
    assert levels == {logging.DEBUG}


def test_a_mistake_of_the_backend_is_no_answer(env: FakeEnvironment) -> None:
    grant = ScriptedGrant(1, answer=ZeroDivisionError("a mistake"), given_back=Release.RELEASED)
    grant.given_back = KeyError("another")
    lease = provider(ScriptedBackend(grant), env).acquire("k", wait_s=0, lease_s=12)
    env.advance(6)
    assert lease.lost is None
    grant.answer = True
    env.advance(20)
    assert lease.lost is None
    assert lease.release() is Release.UNKNOWN
