"""`lakelatch.lock`: blocks, decorators, tasks, several keys."""

from __future__ import annotations

import asyncio
import gc
import itertools
import pickle
import random
import subprocess
import sys
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import lakelatch
from lakelatch.environment import SystemEnvironment
from lakelatch.errors import ConfigError, InputError, LockError, LockLostError, LockTimeoutError, TokenRegressedError
from lakelatch.locks import Lease, LockProvider, open_provider
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.contention import PATIENCE_S, WatchedEnvironment, run_threads, until


@pytest.fixture(params=["memory", "file"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{uuid.uuid4()}" if request.param == "memory" else f"file://{tmp_path}/locks"


@pytest.fixture
def other(url: str) -> Iterator[LockProvider]:
    with open_provider(url) as locks:
        yield locks


def test_the_package_has_it_and_the_module_without_another_import() -> None:
    program = "import lakelatch; lakelatch.locks.open_provider; lakelatch.lock; print(*sorted(dir(lakelatch)))"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert {"lock", "locks"} <= set(told)


# A block.


def test_a_block_holds_the_key_and_gives_it_back(url: str, other: LockProvider) -> None:
    with lakelatch.lock(url, "k", reason="nightly") as lease:
        holder = other.inspect("k")
        assert holder is not None
        assert (holder.token, holder.reason) == (lease.token, "nightly")
    assert other.inspect("k") is None


def test_a_busy_key_raises_after_the_wait_and_names_the_holder(url: str, other: LockProvider) -> None:
    with (
        other.acquire("k", wait_s=0, reason="somebody"),
        pytest.raises(LockTimeoutError, match="somebody"),
        lakelatch.lock(url, "k", wait_s=0.1),
    ):
        raise AssertionError("entered")


def test_the_token_is_above_what_is_asked(url: str) -> None:
    with lakelatch.lock(url, "k", token_above=41) as lease:
        assert lease.token == 42


def test_one_lock_is_used_again_by_many_threads_which_exclude_each_other(url: str, tmp_path: Path) -> None:
    counter, lock = tmp_path / "counter", lakelatch.lock(url, "k")
    counter.write_text("0")

    def count() -> None:
        for _ in range(20):
            with lock:
                counter.write_text(str(int(counter.read_text()) + 1))

    run_threads([threading.Thread(target=count) for _ in range(5)])
    assert counter.read_text() == "100"


def test_a_thread_that_holds_the_key_is_refused_at_once(url: str) -> None:
    env = FakeEnvironment()  # whose clock would show a wait
    before = env.monotonic()
    with lakelatch.lock(url, " caf\u00e9", env=env) as lease:
        for again in (lakelatch.lock(url, "cafe\u0301", env=env), lakelatch.lock(url, ["a", "caf\u00e9"], env=env)):
            with pytest.raises(LockError, match="held by this thread or task already") as caught, again:
                raise AssertionError("entered")
            assert caught.value.token == lease.token
        assert env.monotonic() == before
        lease.release()
        with lakelatch.lock(url, "caf\u00e9", env=env) as second:
            assert second.token > lease.token


def test_another_thread_waits_instead(url: str) -> None:
    env = WatchedEnvironment()
    lock = lakelatch.lock(url, "k", env=env)
    taken: list[int] = []

    def take() -> None:
        with lock as lease:
            taken.append(lease.token)

    thread = threading.Thread(target=take)
    with lock as lease:
        thread.start()
        assert env.waits.acquire(timeout=PATIENCE_S)
        assert not taken
    run_threads([thread], start=False)
    assert taken[0] > lease.token


def test_a_block_may_be_left_by_another_thread_than_entered_it(url: str, other: LockProvider) -> None:
    lock = lakelatch.lock(url, "k")
    lock.__enter__()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lock.__exit__, None, None, None).result()
    assert other.inspect("k") is None
    with pytest.raises(LockError, match="has not entered"):
        lock.__exit__(None, None, None)


def test_a_loss_is_told_and_raised_at_the_end(url: str) -> None:
    env = FakeEnvironment()
    told: list[str] = []

    def lose() -> None:
        with lakelatch.lock(url, "k", lease_s=10, on_lost=told.append, env=env):
            env.suspend(11)
            env.advance(1)

    with pytest.raises(LockLostError, match="deadline passed"):
        lose()
    assert told == ["expired"]


def test_what_was_handed_in_is_not_closed_and_what_was_opened_here_is(url: str, tmp_path: Path) -> None:
    with open_provider(url) as locks:
        with lakelatch.lock(locks, "k"):
            pass
        locks.acquire("k", wait_s=0).release()
    lock = lakelatch.lock(url, "k")
    with lock:
        opened = lock._open()
    lock.close()
    lock.close()
    with pytest.raises(LockError, match="closed"):
        opened.inspect("k")
    with lock:  # opens again
        opened = lock._open()
    del lock
    gc.collect()
    with pytest.raises(LockError, match="closed"):
        opened.inspect("k")


def test_it_pickles(url: str) -> None:
    lock = lakelatch.lock(url, "k", token_above=6)
    with lock as lease, pytest.raises(LockError, match="already"), pickle.loads(pickle.dumps(lock)):
        raise AssertionError("entered")
    with pickle.loads(pickle.dumps(lock)) as second:
        assert second.token == lease.token + 1 == 8


@pytest.mark.parametrize("wait_s", [-1, float("nan"), "5", None])
def test_a_senseless_wait_is_refused(url: str, wait_s: Any) -> None:
    with pytest.raises(InputError, match="wait_s"):
        lakelatch.lock(url, "k", wait_s=wait_s)


@pytest.mark.parametrize("keys", [[], [1], ["a", None], [["a"]], [b"a"], b"a", None, 7, {}])
def test_senseless_keys_are_refused(url: str, keys: Any) -> None:
    with pytest.raises(InputError, match="keys of a lock"):
        lakelatch.lock(url, keys)


@pytest.mark.parametrize("where", [None, 7, object(), {}])
def test_a_senseless_place_is_refused(where: Any) -> None:
    with pytest.raises(ConfigError, match="not at"), lakelatch.lock(where, "k"):
        raise AssertionError("entered")


def test_an_endless_wait_is_possible(url: str, other: LockProvider) -> None:
    env = WatchedEnvironment()
    held = other.acquire("k", wait_s=0)
    with ThreadPoolExecutor(1) as pool:

        def take() -> int:
            with lakelatch.lock(url, "k", wait_s=float("inf"), env=env) as lease:
                return lease.token

        waiting = pool.submit(take)
        assert env.waits.acquire(timeout=PATIENCE_S)
        held.release()
        assert waiting.result(PATIENCE_S) > held.token


# A decorator.


def test_a_function_is_run_under_the_lock(url: str, other: LockProvider) -> None:
    @lakelatch.lock(url, "k")
    def work(a: int, *, b: int = 2, lease: Lease | None = None) -> tuple[int, int, int]:
        """Does it."""
        holder = other.inspect("k")
        assert holder is not None
        assert lease is not None
        assert holder.token == lease.token
        return a, b, lease.token

    assert work.__doc__ == "Does it."
    (first, second) = (work(1, b=3)[2], work(1)[2])
    assert second > first
    assert other.inspect("k") is None


def test_a_function_that_calls_itself_is_refused(url: str) -> None:
    @lakelatch.lock(url, "k")
    def work(times: int) -> None:
        if times:
            work(times - 1)

    work(0)
    with pytest.raises(LockError, match="not re-entrant"):
        work(1)


def test_a_generator_is_refused_because_it_works_later(url: str) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def more() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, more):
        with pytest.raises(InputError, match="generator"):
            lakelatch.lock(url, "k")(function)


def test_a_coroutine_function_is_run_under_the_lock(url: str, other: LockProvider) -> None:
    @lakelatch.lock(url, "k")
    async def work(lease: Lease | None = None) -> int:
        await asyncio.sleep(0)
        holder = other.inspect("k")
        assert holder is not None
        assert lease is not None
        assert holder.token == lease.token
        return lease.token

    async def main() -> list[int]:
        return await asyncio.gather(*(work() for _ in range(20)))

    tokens = asyncio.run(main())
    assert sorted(tokens) == list(range(1, 21))


# Tasks.


def test_the_loop_runs_while_a_task_waits(url: str, other: LockProvider) -> None:
    env = WatchedEnvironment()
    held = other.acquire("k", wait_s=0)

    async def main() -> int:
        async def take() -> int:
            async with lakelatch.lock(url, "k", env=env) as lease:
                return lease.token

        task = asyncio.create_task(take())
        turns = 0
        while not env.waits.acquire(blocking=False):  # this loop is what runs meanwhile
            turns += 1
            await asyncio.sleep(0.001)
        assert not task.done()
        held.release()
        return await task

    assert asyncio.run(main()) > held.token


def test_many_waiting_tasks_do_not_fill_the_executor(url: str) -> None:
    async def main() -> int:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        lock = lakelatch.lock(url, "k")

        async def take() -> int:
            async with lock:
                return await asyncio.to_thread(lambda: 1)

        return sum(await asyncio.gather(*(take() for _ in range(50))))

    assert asyncio.run(asyncio.wait_for(main(), PATIENCE_S)) == 50


def test_a_task_that_is_cancelled_while_it_waits_leaves_nothing_locked(url: str, other: LockProvider) -> None:
    env = WatchedEnvironment()
    held = other.acquire("k", wait_s=0)

    async def main() -> None:
        lock = lakelatch.lock(url, "k", wait_s=PATIENCE_S * 10, lease_s=10, env=env)
        tasks = [asyncio.create_task(lock.__aenter__()) for _ in range(3)]
        for _ in tasks:
            while not env.waits.acquire(blocking=False):
                await asyncio.sleep(0.001)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, PATIENCE_S)

    asyncio.run(main())
    # Nobody has given the key back, and still they have left the line.
    until(lambda: (holder := other.inspect("k")) is not None and holder.queue == (), "cancelled waiters stay in line")
    held.release()
    other.acquire("k", wait_s=PATIENCE_S).release()
    assert other.inspect("k") is None


def test_a_grant_that_meets_a_cancelled_task_is_given_back(url: str, other: LockProvider) -> None:
    """The task is cancelled at every moment around the grant."""

    async def main(turns: int) -> bool:
        lock = lakelatch.lock(url, "k", lease_s=3600)  # one that is forgotten would outlast the test

        async def take() -> None:
            async with lock:
                await asyncio.sleep(0)

        task = asyncio.create_task(take())
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return True
        return False

    outcomes = [asyncio.run(main(turns)) for turns in itertools.chain(range(12), range(20, 400, 20))]
    assert any(outcomes)
    until(lambda: other.inspect("k") is None, "a cancelled task's grant is still held")


def test_an_exception_in_the_body_comes_out_and_the_lock_goes_back(url: str, other: LockProvider) -> None:
    async def main() -> None:
        with pytest.raises(KeyError, match="the body's own"):
            async with lakelatch.lock(url, "k"):
                raise KeyError("the body's own")

    asyncio.run(main())
    assert other.inspect("k") is None


def test_a_task_that_holds_the_key_is_refused_and_its_child_waits(url: str) -> None:
    async def main() -> None:
        lock = lakelatch.lock(url, "k")

        async def child() -> int:
            async with lock as lease:
                return lease.token

        async with lock as mine:
            with pytest.raises(LockError, match="already"):
                async with lakelatch.lock(url, "k"):
                    raise AssertionError("entered")
            task = asyncio.create_task(child())
            await asyncio.sleep(0)
            assert not task.done()
        assert await task > mine.token

    asyncio.run(main())


def test_the_lease_is_renewed_while_the_loop_is_busy(url: str) -> None:
    async def main() -> None:
        async with lakelatch.lock(url, "k", lease_s=6.0, env=SystemEnvironment()) as lease:
            first = lease.deadline
            until(lambda: lease.deadline > first, "it is not renewed")  # the loop does not come to a turn
            lease.ensure_held(fresh=True)

    asyncio.run(main())


def test_callbacks_of_a_task_run_in_its_loop(url: str, other: LockProvider) -> None:
    async def main() -> None:
        told, here = asyncio.Event(), threading.get_ident()
        seen: list[object] = []

        async def lost(reason: str) -> None:
            seen.extend([reason, threading.get_ident()])
            told.set()

        async def lose() -> None:
            async with lakelatch.lock(url, "k", on_lost=lost) as lease:
                await asyncio.to_thread(other.break_lease, "k", token=lease.token, reason="stuck", who="alice")
                await asyncio.wait_for(told.wait(), PATIENCE_S)

        with pytest.raises(LockLostError):
            await lose()
        assert seen == ["stolen", here]

    asyncio.run(main())


# Several keys.


def test_all_keys_are_held_and_the_leases_come_in_the_order_asked(url: str, other: LockProvider) -> None:
    with lakelatch.lock(url, ["b", "a", "\U0001f600"]) as leases:
        assert [lease.key for lease in leases] == ["b", "a", "\U0001f600"]
        assert all(other.try_acquire(key) is None for key in "ab")
    assert all(other.inspect(key) is None for key in ("a", "b", "\U0001f600"))


def test_one_key_in_a_list_gives_a_tuple(url: str) -> None:
    with lakelatch.lock(url, ["a"]) as leases:
        assert [lease.key for lease in leases] == ["a"]


@pytest.mark.parametrize("busy", ["a", "b", "c"])
def test_if_one_is_not_to_be_had_all_are_given_back(url: str, other: LockProvider, busy: str) -> None:
    with (
        other.acquire(busy, wait_s=0),
        pytest.raises(LockTimeoutError) as caught,
        lakelatch.lock(url, ["c", "a", "b"], wait_s=0.1),
    ):
        raise AssertionError("entered")
    assert caught.value.key == busy
    assert all(other.inspect(key) is None for key in "abc")


def test_the_wait_is_for_all_keys_together(url: str) -> None:
    env = FakeEnvironment()
    rival = open_provider(url, env=env)
    held = rival.acquire("b", wait_s=0, lease_s=1000)
    first = rival.acquire("a", wait_s=0, lease_s=4)
    env.every(4, first.release, name="gives a back")
    before = env.monotonic()
    with pytest.raises(LockTimeoutError), lakelatch.lock(url, ["a", "b"], wait_s=10, env=env):
        raise AssertionError("entered")
    assert env.monotonic() - before == pytest.approx(10)
    held.release()


@pytest.mark.parametrize("keys", [["a", "a"], ["a", " a"], ["s3://b/t", "s3a://b//t/"], ["caf\u00e9", "cafe\u0301"]])
def test_one_lock_by_two_names_is_refused(url: str, keys: list[str]) -> None:
    with pytest.raises(InputError, match="same lock twice"), lakelatch.lock(url, keys):
        raise AssertionError("entered")


def test_keys_of_a_url_with_one_key_are_the_same(url: str) -> None:
    with pytest.raises(InputError, match="same lock twice"), lakelatch.lock(f"{url}?key=x", ["a", "b"]):
        raise AssertionError("entered")


def test_callers_with_any_keys_in_any_order_never_wait_in_a_circle(url: str) -> None:
    rng = random.Random(7)
    keys = list("abcdef")
    holds = dict.fromkeys(keys, 0)
    wrong: list[str] = []

    def work(seed: int) -> None:
        mine = random.Random(seed)
        for _ in range(40):
            some = mine.sample(keys, mine.randint(1, 4))
            with lakelatch.lock(url, some, wait_s=PATIENCE_S):
                for key in some:
                    holds[key] += 1
                    if holds[key] != 1:
                        wrong.append(key)
                for key in some:
                    holds[key] -= 1

    run_threads([threading.Thread(target=work, args=(rng.random(),)) for _ in range(6)])
    assert not wrong


def test_a_token_that_cannot_be_lifted_gives_back_what_was_taken(tmp_path: Path) -> None:
    with pytest.raises((InputError, TokenRegressedError)), lakelatch.lock(str(tmp_path), "ab", token_above=2**63):
        raise AssertionError("entered")


# Asking for a lock back.


def test_a_holder_hears_of_a_wish_once_and_gives_the_lock_back_when_it_likes(url: str) -> None:
    env = FakeEnvironment()
    asked: list[tuple[float, Any]] = []
    block = lakelatch.lock(url, "k", on_revoke=lambda asker: asked.append((env.monotonic(), asker)), env=env)
    wish, start = lakelatch.lock(url, "k", env=env), env.monotonic()
    lease = block.__enter__()
    assert wish.ask_revoke(wait_s=5, reason="too early") is False
    env.advance(10)
    assert asked == [], "the wish was withdrawn before the holder looked"
    assert wish.ask_revoke(wait_s=40, reason="deploy {now} 100%") is False
    ((at, asker),) = asked
    assert at <= start + 20
    assert (asker.key, asker.reason, asker.pid) == ("k", "deploy {now} 100%", env.process().pid)
    lease.ensure_held(fresh=True)  # nothing was taken away
    env.every(7, lambda: block.__exit__(None, None, None) if lease.lost is None else None, name="is ready")
    assert wish.ask_revoke(wait_s=60)
    assert len(asked) == 1
    with open_provider(url, env=env) as locks:
        assert locks.inspect("k~revoke") is None


def test_a_wish_never_reaches_a_successor(url: str) -> None:
    env = FakeEnvironment()
    asked: list[Any] = []
    with open_provider(url, env=env) as locks:
        with locks.acquire("k~revoke", wait_s=0, lease_s=1000, reason="token 1: the one before"):
            locks.acquire("k", wait_s=0).release()
            with lakelatch.lock(url, "k", on_revoke=asked.append, env=env) as lease:
                assert lease.token == 2
                env.advance(60)
        assert asked == []


def test_a_free_lock_needs_no_wish(url: str) -> None:
    assert lakelatch.lock(url, ["a", "b"]).ask_revoke(wait_s=0)


def test_where_all_keys_are_one_lock_nobody_can_ask_and_both_sides_are_told(url: str) -> None:
    one = f"{url}?key=flights"
    with pytest.raises(ConfigError, match="are one lock"), lakelatch.lock(one, "k", on_revoke=print):
        raise AssertionError("entered")
    with open_provider(one) as locks:
        assert locks.inspect("k") is None, "the refused holder holds on"
        with locks.acquire("k", wait_s=0), pytest.raises(ConfigError, match="break_lease"):
            lakelatch.lock(one, "k").ask_revoke(wait_s=0)


def test_a_task_is_asked_in_its_loop(url: str) -> None:
    async def main() -> bool:
        stop = asyncio.Event()

        async def stopping(asker: object) -> None:
            stop.set()

        async with lakelatch.lock(url, "k", lease_s=6.0, on_revoke=stopping):
            asking = asyncio.create_task(asyncio.to_thread(lakelatch.lock(url, "k").ask_revoke, wait_s=PATIENCE_S))
            await asyncio.wait_for(stop.wait(), PATIENCE_S)
        return await asking

    assert asyncio.run(main())
