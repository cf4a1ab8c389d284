"""The promises of every lock provider, as tests.

Subclass it, give the URL, and pytest does the rest:

    class TestMyLocks(LockProviderContract):
        across_processes = True

        @pytest.fixture
        def url(self) -> str:
            return "mylocks://localhost/tests"

Declare missing abilities by the attributes of the class and of the provider (``fair``,
``durable_tokens``, ``lifts_tokens``). Override `cut_off` and `restart` to test the provider under failures.

Tests that need a lease to end run on a `FakeEnvironment`, whose time passes on request, so they never wait. For a
server that judges leases by its own clock set ``server_clock = True`` and a small ``lease_s``.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
import unicodedata
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import ClassVar
from uuid import uuid4

import pytest

from ..environment import SYSTEM, Environment, SystemEnvironment
from ..errors import (
    ConfigError,
    InputError,
    LakeLatchError,
    LockLostError,
    LockTimeoutError,
    LockUnavailableError,
    StorageError,
    TokenRegressedError,
)
from ..locks import Holder, Lease, LockProvider, Release, ask_revoke, lock, open_provider
from .contention import (
    COUNT_UNDER_LOCK,
    PATIENCE_S,
    CountingEnvironment,
    WatchedEnvironment,
    run_threads,
    threads_of,
    until,
)
from .fake_environment import FakeEnvironment


def _waits(locks: LockProvider, key: str, count: int) -> bool:
    holder = locks.inspect(key)
    return holder is not None and len(holder.queue) == count


class LockProviderContract:
    """All promises. Override the fixture ``url``, and set to False what your backend cannot do, with a reason beside it."""

    across_processes: ClassVar[bool] = False
    """True when other processes that open the same URL contend for the same keys."""
    breakable: ClassVar[bool] = True
    """False when the backend cannot end another owner's lease."""
    one_lock: ClassVar[bool] = False
    """True when all keys of the URL are one lock: then nobody can ask its holder for it."""
    server_clock: ClassVar[bool] = False
    """True when the server itself ends leases, by a clock that no test can move: then tests wait, a few `lease_s`."""
    lease_s: ClassVar[float] = 10.0
    """The lease where it has to end; with `server_clock` as short as a slow machine can keep it alive, say 3 s."""
    many: ClassVar[int] = 100
    """How many keys one process holds at once."""
    threads_max: ClassVar[int] = 6
    """How many threads one provider may start, however many leases it keeps alive."""

    readings_max: ClassVar[int] = 300
    """How often who waits for a second may read a clock: at most so often it does something."""

    @pytest.fixture
    def url(self) -> str:
        """Return the URL of the locks; override it. It may be shared between tests, each of which uses its own keys."""
        raise NotImplementedError("a test class of LockProviderContract must override the fixture `url`")

    @pytest.fixture
    def env(self) -> FakeEnvironment:
        """Return the environment of `provider`."""
        return FakeEnvironment(real_time=self.server_clock)

    @pytest.fixture
    def rival_env(self, env: FakeEnvironment) -> FakeEnvironment:
        """Return another process's environment, on the same clock; while it is advanced, `env` stands still."""
        return env.peer()

    @pytest.fixture
    def provider(self, url: str, env: FakeEnvironment) -> Iterator[LockProvider]:
        with self.open(url, env) as provider:
            yield provider

    @pytest.fixture
    def rival(self, url: str, rival_env: FakeEnvironment) -> Iterator[LockProvider]:
        """Yield a second client that shares nothing with `provider` but the backend."""
        with self.open(url, rival_env) as provider:
            yield provider

    @pytest.fixture
    def stopped_env(self, env: FakeEnvironment) -> FakeEnvironment:
        """Return the environment of `stopped`."""
        return env.stopped()

    @pytest.fixture
    def stopped(self, url: str, stopped_env: FakeEnvironment) -> Iterator[LockProvider]:
        """Yield a client whose own clocks stand still until they are advanced."""
        with self.open(url, stopped_env) as provider:
            yield provider

    @pytest.fixture
    def key(self, request: pytest.FixtureRequest) -> str:
        return f"contract/{request.node.name}/{uuid4().hex[:8]}"

    @property
    def kept_s(self) -> float:
        """The lease where it has to be kept: for seconds a busy machine may let a process stand still."""
        return 2 * self.lease_s if self.server_clock else self.lease_s

    def open(self, url: str, env: Environment) -> LockProvider:
        """Open a provider; override it if it is not registered under its scheme."""
        return open_provider(url, env=env)

    def let_pass(self, env: FakeEnvironment, seconds: float) -> None:
        """Let time pass everywhere; only ``env`` acts meanwhile."""
        env.advance(seconds)

    def outlast(self, locks: LockProvider, key: str, env: FakeEnvironment) -> None:
        """Let a silent holder's lease end, as ``locks`` sees it: one observation, then more than the lease."""
        assert locks.try_acquire(key) is None
        self.let_pass(env, self.lease_s * 1.5)

    def cut_off(self) -> AbstractContextManager[None]:
        """Override: the backend answers no request in this block.

        Requests may be lost or arrive late.
        """
        pytest.skip("cut_off() is not overridden: nobody told how to keep this backend from answering")

    def restart(self) -> None:
        """Override: stop the backend as a crash would, and start it again with the same data."""
        pytest.skip("restart() is not overridden: nobody told how to restart this backend")

    # --- one holder at a time, which notices by itself when it has lost the lock

    def test_a_free_key_is_granted_and_a_busy_one_is_not(
        self, provider: LockProvider, rival: LockProvider, key: str
    ) -> None:
        lease = provider.try_acquire(key)
        assert lease is not None
        assert (lease.key, lease.lost) == (key, None)
        assert rival.try_acquire(key) is None
        assert provider.try_acquire(key) is None
        assert lease.release() is Release.RELEASED
        again = rival.try_acquire(key)
        assert again is not None
        again.release()

    def test_keys_do_not_disturb_each_other(self, provider: LockProvider, rival: LockProvider, key: str) -> None:
        with provider.acquire(key + "/a", wait_s=0), rival.acquire(key + "/b", wait_s=0):
            assert rival.try_acquire(key + "/a") is None

    def test_two_holders_never_overlap(self, url: str, key: str, tmp_path: Path) -> None:
        counter = tmp_path / "counter"
        counter.write_text("0")
        if self.across_processes:
            # Read, add one and write back: without mutual exclusion some increments are lost.
            command = [sys.executable, "-c", COUNT_UNDER_LOCK, url, key, str(counter), "50"]
            children = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
            errors = [child.communicate(timeout=PATIENCE_S)[1] for child in children]
            assert errors == [b""] * 4
        else:

            def count() -> None:
                with self.open(url, SYSTEM) as locks:
                    for _ in range(50):
                        with locks.acquire(key, wait_s=PATIENCE_S):
                            counter.write_text(str(int(counter.read_text()) + 1))

            run_threads([threading.Thread(target=count) for _ in range(4)])
        assert counter.read_text() == "200"

    def test_locks_are_not_reentrant(self, provider: LockProvider, key: str) -> None:
        with provider.acquire(key, wait_s=0) as lease:
            assert provider.try_acquire(key) is None
            with pytest.raises(LockTimeoutError, match="it has waited for itself"):
                provider.acquire(key, wait_s=0.2)
            lease.ensure_held(fresh=True)
        provider.acquire(key, wait_s=PATIENCE_S).release()

    # Tokens.

    def test_tokens_only_grow(self, url: str, rival: LockProvider, key: str, env: FakeEnvironment) -> None:
        tokens = []
        for _ in range(3):
            # A new provider object, because the counter must not be kept in it.
            with self.open(url, env) as fresh:
                for locks in (fresh, rival):
                    with locks.acquire(key, wait_s=1) as lease:
                        tokens.append(lease.token)
        assert tokens == sorted(set(tokens))

    def test_a_token_that_is_too_large_is_refused_and_harms_nobody(self, provider: LockProvider, key: str) -> None:
        for token_above in (2**63 - 2, 2**63 - 1, 2**64, 10**40):
            with pytest.raises((InputError, TokenRegressedError)):
                provider.try_acquire(key, token_above=token_above)
        with provider.acquire(key, wait_s=1) as lease:
            assert lease.token < 2**62

    def test_token_above(self, provider: LockProvider, rival: LockProvider, key: str) -> None:
        with provider.acquire(key, wait_s=0) as lease:
            token_above = lease.token + 1_000_000
        if not provider.lifts_tokens:
            with pytest.raises(TokenRegressedError) as caught:
                provider.acquire(key, wait_s=0, token_above=token_above)
            assert caught.value.token <= caught.value.token_above == token_above
            rival.acquire(key, wait_s=0).release()  # nothing was held
            return
        with provider.acquire(key, wait_s=0, token_above=token_above) as first:
            assert first.token > token_above
            assert rival.try_acquire(key) is None
        with rival.acquire(key, wait_s=0, token_above=5) as second:
            assert second.token > first.token

    def test_tokens_survive_a_restart(self, url: str, env: FakeEnvironment, key: str) -> None:
        if not self.open(url, env).durable_tokens:
            pytest.skip("this backend declares that its tokens do not survive")
        with self.open(url, env) as locks, locks.acquire(key, wait_s=0) as lease:
            before = lease.token
        self.restart()
        with self.open(url, env) as locks, locks.acquire(key, wait_s=PATIENCE_S) as lease:
            assert lease.token > before

    # Loss.

    def test_renewal_keeps_the_lease(
        self, provider: LockProvider, rival: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        with provider.acquire(key, wait_s=0, lease_s=self.kept_s) as lease:
            for _ in range(6 if self.server_clock else 12):
                self.let_pass(env, self.kept_s / 5)
                assert rival.try_acquire(key) is None
                lease.ensure_held(fresh=True)

    def test_lost_is_noticed_locally_at_the_deadline(
        self, provider: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        before = env.monotonic()
        lease = provider.acquire(key, wait_s=0, lease_s=self.lease_s)
        assert lease.deadline <= (env.monotonic() if self.server_clock else before) + self.lease_s
        env.suspend(self.lease_s)
        assert lease.lost == "expired"
        with pytest.raises(LockLostError, match="deadline passed") as caught:
            lease.ensure_held()
        assert (caught.value.key, caught.value.token, caught.value.reason) == (key, lease.token, "expired")
        lease.release()

    def test_never_revived(self, provider: LockProvider, key: str, env: FakeEnvironment) -> None:
        lease = provider.acquire(key, wait_s=0, lease_s=self.lease_s)
        told: list[str] = []
        lease.on_lost(told.append)
        env.suspend(self.lease_s)
        self.let_pass(env, self.lease_s * 1.5)  # the renewer is back
        assert lease.lost == "expired"
        assert told == ["expired"]
        lease.on_lost(told.append)
        assert told == ["expired", "expired"]
        assert lease.release() is Release.WAS_LOST

    def test_a_silent_holder_is_followed_and_notices_by_itself(
        self, provider: LockProvider, rival: LockProvider, key: str, rival_env: FakeEnvironment
    ) -> None:
        first = provider.acquire(key, wait_s=0, lease_s=self.lease_s)
        self.outlast(rival, key, rival_env)
        with rival.acquire(key, wait_s=0) as second:
            assert second.token > first.token
            assert first.lost == "expired"

    def test_a_renewal_is_refused_when_another_holds_the_key(
        self, stopped: LockProvider, rival: LockProvider, key: str, stopped_env: FakeEnvironment,
        rival_env: FakeEnvironment,
    ) -> None:  # fmt: skip
        first = stopped.acquire(key, wait_s=0, lease_s=self.lease_s)
        self.outlast(rival, key, rival_env)
        with rival.acquire(key, wait_s=0) as second:
            stopped_env.advance(self.lease_s / 2)  # by its clock it holds, and it is time to renew
            assert first.lost in ("stolen", "expired")
            assert first.release() is Release.WAS_LOST
            second.ensure_held(fresh=True)

    def test_release_after_expiry_spares_next_holder(
        self, provider: LockProvider, rival: LockProvider, key: str, rival_env: FakeEnvironment
    ) -> None:
        first = provider.acquire(key, wait_s=0, lease_s=self.lease_s)
        self.outlast(rival, key, rival_env)
        second = rival.acquire(key, wait_s=0)
        assert first.release() is Release.WAS_LOST
        assert provider.try_acquire(key) is None
        second.ensure_held(fresh=True)
        assert second.release() is Release.RELEASED

    def test_max_hold(self, provider: LockProvider, rival: LockProvider, key: str, env: FakeEnvironment) -> None:
        lease = provider.acquire(key, wait_s=0, lease_s=self.kept_s, max_hold_s=self.kept_s * 2)
        self.let_pass(env, self.kept_s * 1.5)
        lease.ensure_held()
        self.let_pass(env, self.kept_s * 0.7)
        assert lease.lost == "max_hold"
        rival.acquire(key, wait_s=0).release()

    def test_a_forgotten_lease_ends_by_itself(
        self, provider: LockProvider, rival: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        # Collecting all earlier objects could take a busy machine longer than the lease lasts.
        gc.freeze()
        try:
            provider.acquire(key, wait_s=0, lease_s=self.lease_s)
            # A client's own error may hold the frames of the call, and with them the handle.
            gc.collect()
        finally:
            gc.unfreeze()
        assert rival.try_acquire(key) is None
        self.let_pass(env, self.lease_s * 1.2)
        rival.acquire(key, wait_s=0).release()

    def test_body_exception_is_not_masked(self, provider: LockProvider, key: str, env: FakeEnvironment) -> None:
        def fail() -> None:
            with provider.acquire(key, wait_s=0):
                env.suspend(1e6)
                raise KeyError("the body's own")

        with pytest.raises(KeyError, match="the body's own") as caught:
            fail()
        assert "was lost meanwhile" in caught.value.__notes__[-1]

    def test_a_loss_that_the_body_did_not_notice_is_raised(
        self, provider: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        with pytest.raises(LockLostError), provider.acquire(key, wait_s=0):
            env.suspend(1e6)

    # Release, and no answer.

    def test_release_answers_the_same_twice(self, provider: LockProvider, key: str) -> None:
        lease = provider.acquire(key, wait_s=0)
        assert [lease.release(), lease.release()] == [Release.RELEASED] * 2
        with pytest.raises(LockLostError, match="it was released"):
            lease.ensure_held()

    def test_a_release_without_answer_is_unknown(self, provider: LockProvider, key: str) -> None:
        lease = provider.acquire(key, wait_s=0)
        with self.cut_off():
            assert lease.release() is Release.UNKNOWN
        assert lease.lost == "released"

    def test_a_backend_that_does_not_answer_grants_nothing_and_says_so(
        self, url: str, rival: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        with self.cut_off(), self.open(url, env) as locks:
            with pytest.raises((LockUnavailableError, StorageError)) as caught:
                locks.try_acquire(key)
            assert caught.value.retryable
        rival.acquire(key, wait_s=PATIENCE_S).release()

    def test_a_holder_without_answers_loses_at_its_deadline(
        self, provider: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        lease = provider.acquire(key, wait_s=0, lease_s=self.lease_s)
        told: list[str] = []
        lease.on_lost(told.append)
        with self.cut_off():
            self.let_pass(env, self.lease_s * 1.2)
            assert lease.lost == "unreachable"
            assert told == ["unreachable"]
            assert lease.release() is Release.WAS_LOST

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_child_of_fork_holds_nothing(self, provider: LockProvider, rival: LockProvider, key: str) -> None:
        lease = provider.acquire(key, wait_s=0)
        child = os.fork()
        if child == 0:  # no assert here: an error would run the rest of pytest a second time
            # A handler in Python would not run in a child that hangs.
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(int(PATIENCE_S))
            faulthandler.dump_traceback_later(PATIENCE_S - 1)  # so that a child that hangs says where
            code = 1
            try:
                own = provider.acquire(key + "/child", wait_s=PATIENCE_S)
                if lease.lost != "forked":
                    code = 2
                elif lease.release() is not Release.WAS_LOST:
                    code = 3
                else:
                    code = 0 if own.release() is Release.RELEASED else 4
            except BaseException:  # noqa: BLE001 - it goes nowhere else
                traceback.print_exc()
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lease.ensure_held(fresh=True)
        assert rival.try_acquire(key) is None
        assert lease.release() is Release.RELEASED

    # --- waiters are served, in order if the backend is fair, and anyone can see the holder

    def test_threads_are_served_in_order(self, url: str, key: str) -> None:
        env = WatchedEnvironment()
        order: list[int] = []
        with self.open(url, env) as locks:

            def take(i: int) -> None:
                with locks.acquire(key, wait_s=PATIENCE_S):
                    order.append(i)

            threads = [threading.Thread(target=take, args=(i,)) for i in range(6)]
            with locks.acquire(key, wait_s=PATIENCE_S):
                for thread in threads:
                    thread.start()
                    assert env.waits.acquire(timeout=PATIENCE_S), "a waiting thread never waited on env.event()"
            run_threads(threads, start=False)
        assert order == list(range(6))

    def test_clients_are_served_in_order(self, url: str, key: str) -> None:
        holder = self.open(url, SYSTEM)
        if not holder.fair:
            pytest.skip("this backend declares that waiters are not served in order")
        order: list[int] = []

        def take(i: int) -> None:
            with self.open(url, SystemEnvironment()) as locks, locks.acquire(key, wait_s=PATIENCE_S):
                order.append(i)

        threads = [threading.Thread(target=take, args=(i,)) for i in range(4)]
        with holder, holder.acquire(key, wait_s=PATIENCE_S):
            for i, thread in enumerate(threads):
                thread.start()
                until(partial(_waits, holder, key, i + 1), "a fair backend shows its queue to `inspect`")
        run_threads(threads, start=False)
        assert order == list(range(4))

    def test_waiting_is_not_looping(self, url: str, key: str) -> None:
        env = CountingEnvironment()
        with self.open(url, SYSTEM) as locks, self.open(url, env) as other, locks.acquire(key, wait_s=PATIENCE_S):
            # So that the first connection to the backend is not measured as waiting.
            other.inspect(key)
            before, readings = time.process_time(), env.readings
            with pytest.raises(LockTimeoutError):
                other.acquire(key, wait_s=1.0)
            assert time.process_time() - before < 0.6, "a second of waiting costs most of a second of CPU"
            # On a busy machine, or with a slow server, a busy loop burns little CPU, so clock readings are counted too.
            assert env.readings - readings <= self.readings_max, "a second of waiting is full of looks at the clock"

    def test_timeout_names_the_holder(self, provider: LockProvider, rival: LockProvider, key: str) -> None:
        with provider.acquire(key, wait_s=0, reason="commit 42") as lease:
            with pytest.raises(LockTimeoutError, match="'commit 42'") as caught:
                rival.acquire(key, wait_s=0.5)
            assert caught.value.holder.token == lease.token
            assert caught.value.retryable

    def test_timed_out_waiter_leaves_no_trace(
        self, provider: LockProvider, rival: LockProvider, key: str, url: str, rival_env: FakeEnvironment
    ) -> None:
        with provider.acquire(key, wait_s=0):
            for _ in range(3):
                with pytest.raises(LockTimeoutError):
                    rival.acquire(key, wait_s=0.2)
            holder = provider.inspect(key)
            assert holder is not None
            assert holder.queue == (), "who has given up still stands in line"
        with self.open(url, rival_env.peer()) as third, third.acquire(key, wait_s=0):
            pass
        assert rival.inspect(key) is None

    def test_a_waiter_gets_it_when_the_holder_goes_silent(
        self, provider: LockProvider, rival: LockProvider, key: str
    ) -> None:
        first = provider.acquire(key, wait_s=0, lease_s=self.lease_s)
        with rival.acquire(key, wait_s=self.lease_s * 3) as second:
            assert second.token > first.token
            assert first.lost == "expired"

    # Seeing and breaking.

    def test_inspect_names_the_holder(self, provider: LockProvider, rival: LockProvider, key: str) -> None:
        assert rival.inspect(key) is None
        with provider.acquire(key, wait_s=0, reason="nightly delete") as lease:
            holder = rival.inspect(key)
            assert holder is not None
            assert (holder.key, holder.owner, holder.token, holder.reason) == (
                key, lease.owner, lease.token, "nightly delete",
            )  # fmt: skip
            assert holder.host
            assert holder.pid
            assert holder.until is None or holder.until > holder.since
        assert rival.inspect(key) is None

    def _to_be_broken(self, provider: LockProvider, key: str) -> tuple[Lease, list[str]]:
        """Return a lease, and the list to which its holder's loss reasons are appended."""
        if not self.breakable:
            pytest.skip("this backend declares that it cannot break a lease")
        lease = provider.acquire(key, wait_s=0, lease_s=self.kept_s)
        told: list[str] = []
        lease.on_lost(told.append)
        return lease, told

    def test_break_ends_the_lease_and_leaves_a_record(
        self, provider: LockProvider, rival: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        first, told = self._to_be_broken(provider, key)
        assert not rival.break_lease(key, token=first.token + 1, reason="wrong one", who="test")
        assert rival.break_lease(key, token=first.token, reason="stuck since noon", who="alice")
        assert not rival.break_lease(key, token=first.token, reason="once is enough", who="bob")
        with rival.acquire(key, wait_s=0) as second:
            assert second.token > first.token
            with pytest.raises(LockLostError, match="somebody else"):
                first.ensure_held(fresh=True)
            self.let_pass(env, self.kept_s)
            assert told == ["stolen"]
            assert first.release() is Release.WAS_LOST
            assert provider.try_acquire(key) is None
        (record,) = rival.breaks(key)
        assert (record.key, record.token, record.who, record.reason) == (key, first.token, "alice", "stuck since noon")

    def test_a_break_by_another_process_is_told_at_the_next_renewal(
        self, provider: LockProvider, rival: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        lease, told = self._to_be_broken(provider, key)
        assert rival.break_lease(key, token=lease.token, reason="stuck", who="alice")
        # How often clocks are read: one reading to renew, the next one to report.
        tick_s = min(0.5, self.kept_s / 12)
        # Answers are as slow as the machine.
        slack_s = self.kept_s / 4 if self.server_clock else 0.0
        self.let_pass(env, self.kept_s / 3 + 2 * tick_s + slack_s)
        assert told == ["stolen"]

    def test_break_by_the_same_provider_is_noticed_at_once(self, provider: LockProvider, key: str) -> None:
        if not self.breakable:
            pytest.skip("this backend declares that it cannot break a lease")
        first = provider.acquire(key, wait_s=0)
        assert provider.break_lease(key, token=first.token, reason="stuck", who="me")
        assert first.lost == "stolen"
        provider.acquire(key, wait_s=0).release()

    def test_a_loss_is_told_once(
        self, provider: LockProvider, rival: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        if not self.breakable:
            pytest.skip("this backend declares that it cannot break a lease")
        lease = provider.acquire(key, wait_s=0, lease_s=self.kept_s)
        told: list[str] = []
        lease.on_lost(lambda reason: told.append(f"one {reason}"))
        lease.on_lost(lambda reason: told.append(f"two {reason}"))
        rival.break_lease(key, token=lease.token, reason="stuck", who="alice")
        self.let_pass(env, self.kept_s * 1.2)  # its deadline passes as well
        lease.release()
        assert told == ["one stolen", "two stolen"]

    def test_a_holder_that_listens_gives_the_lock_back_when_it_is_asked(
        self, provider: LockProvider, rival: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        asked: list[str] = []

        def give_back(asker: Holder) -> None:
            asked.append(asker.reason)
            block.__exit__(None, None, None)

        block = lock(provider, key, lease_s=self.kept_s, on_revoke=give_back, env=env)
        if self.one_lock:
            with pytest.raises(ConfigError, match="are one lock"):
                block.__enter__()
            assert rival.inspect(key) is None
            return
        block.__enter__()
        wait_s = PATIENCE_S if self.server_clock else self.lease_s * 2
        assert ask_revoke(rival, key, wait_s=wait_s, reason="deploy {now} 100%", env=env)
        assert asked == ["deploy {now} 100%"]
        rival.acquire(key, wait_s=0).release()

    # Keys.

    @pytest.mark.parametrize(
        "odd", ["a" * 2000, "s3://bücket/表/.hoodie", "../../etc/x", "with space\nand\0nul", "😀", "A", "a"]
    )
    def test_long_and_non_ascii_keys(self, provider: LockProvider, rival: LockProvider, odd: str, key: str) -> None:
        with provider.acquire(key + odd, wait_s=0):
            assert rival.try_acquire(key + odd) is None
            rival.acquire(key + odd + "2", wait_s=0).release()
            holder = rival.inspect(key + odd)
            assert holder is not None
            assert holder.key == key + odd

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("s3://bucket/{}/t", "s3a://bucket//{}/x/../t/"),
            ("file:///tables/{}/t", "/tables/{}/./t/"),
            ("abfss://box@Account.dfs.core.windows.net/{}", "abfs://box@account.dfs.core.windows.net/{}/"),
            ("caf\u00e9 {}", " cafe\u0301 {}\n"),
        ],
    )
    def test_a_table_has_one_key(
        self, provider: LockProvider, rival: LockProvider, key: str, one: str, other: str
    ) -> None:
        short = key.rpartition("/")[2]
        with provider.acquire(one.format(short), wait_s=0) as lease:
            assert rival.try_acquire(other.format(short)) is None
            holder = rival.inspect(other.format(short))
            assert holder is not None
            assert (holder.key, holder.token) == (lease.key, lease.token)
            assert unicodedata.is_normalized("NFC", lease.key)

    def test_many_leases_need_no_more_threads(self, url: str, key: str) -> None:
        threads = threads_of(self.open(url, SystemEnvironment()), key, leases=self.many)
        assert threads.error == ""
        assert len(threads.started) <= self.threads_max, "\n".join(threads.started)

    # Odds and ends.

    def test_provider_pickles(self, url: str, key: str) -> None:
        with self.open(url, SYSTEM) as locks:
            locks.acquire(key, wait_s=PATIENCE_S).release()
            copy = pickle.loads(pickle.dumps(locks))
            assert copy.url == locks.url
            with copy, locks.acquire(key, wait_s=PATIENCE_S):
                assert copy.try_acquire(key) is None

    def test_the_url_opens_the_same_locks(self, provider: LockProvider, rival_env: FakeEnvironment, key: str) -> None:
        with self.open(provider.url, rival_env) as other, provider.acquire(key, wait_s=0):
            assert other.url == provider.url
            assert other.try_acquire(key) is None

    def test_close_twice_and_no_more_grants(self, url: str, env: FakeEnvironment, key: str) -> None:
        locks = self.open(url, env)
        lease = locks.acquire(key, wait_s=0)
        locks.close()
        locks.close()
        lease.ensure_held(fresh=True)
        assert lease.release() is Release.RELEASED
        with pytest.raises(LakeLatchError, match="closed"):
            locks.acquire(key, wait_s=0)
        with pytest.raises(LakeLatchError, match="closed"):
            locks.inspect(key)

    def test_close_leaves_no_thread_behind(self, url: str, key: str) -> None:
        threads = threads_of(self.open(url, SystemEnvironment()), key)
        assert threads.error == ""
        assert not threads.left, "\n".join(["threads of the closed provider still run", *threads.left])

    def test_senseless_requests_are_refused(self, provider: LockProvider) -> None:
        with pytest.raises(ConfigError):
            provider.try_acquire("")
        with pytest.raises(ConfigError):
            provider.try_acquire("x", lease_s=0)
        with pytest.raises(ConfigError):
            provider.try_acquire("x", max_hold_s=-1.0)
        provider.acquire("x", wait_s=0).release()
