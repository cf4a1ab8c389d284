"""What every lock provider promises, as tests.

Subclass, say where, and pytest does the rest:

    class TestMyLocks(LockProviderContract):
        across_processes = True

        @pytest.fixture
        def url(self) -> str:
            return "mylocks://localhost/tests"

Time: tests that need a lease to end run on a `FakeEnvironment` and never sleep. A backend whose server judges by its
own clock overrides `let_pass` (and sets `lease_s` to something that it can wait for).
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from ..environment import SYSTEM, Environment
from ..errors import ConfigError, LatchError, LockLostError, LockTimeoutError
from ..locks import LockProvider, Release, open_provider
from .contention import COUNT_UNDER_LOCK, PATIENCE_S, WatchedEnvironment, run_threads
from .fake_environment import FakeEnvironment


class LockProviderContract:
    """Inherit, override the fixture ``url``, and set to False what your backend cannot do, with a reason beside it."""

    across_processes: ClassVar[bool] = False
    """True when other processes that open the same URL contend for the same keys."""
    breakable: ClassVar[bool] = True
    """False when the backend has no way to end somebody else's lease."""
    lease_s: ClassVar[float] = 10.0

    @pytest.fixture
    def url(self) -> str:
        """Override: where the locks are; fresh or shared between tests, each test uses keys of its own."""
        raise NotImplementedError("a test class of LockProviderContract must override the fixture `url`")

    @pytest.fixture
    def env(self) -> FakeEnvironment:
        """The environment of `provider`."""
        return FakeEnvironment()

    @pytest.fixture
    def rival_env(self, env: FakeEnvironment) -> FakeEnvironment:
        """Another process's environment, on the same clock; while it is advanced, `env` stands still."""
        return env.peer()

    @pytest.fixture
    def provider(self, url: str, env: FakeEnvironment) -> Iterator[LockProvider]:
        with self.open(url, env) as provider:
            yield provider

    @pytest.fixture
    def rival(self, url: str, rival_env: FakeEnvironment) -> Iterator[LockProvider]:
        """A second client that shares nothing with `provider` but the backend."""
        with self.open(url, rival_env) as provider:
            yield provider

    @pytest.fixture
    def key(self, request: pytest.FixtureRequest) -> str:
        return f"contract/{request.node.name}"

    def open(self, url: str, env: Environment) -> LockProvider:
        """How a provider is made; override when it is not registered under its scheme."""
        return open_provider(url, env=env)

    def let_pass(self, env: FakeEnvironment, seconds: float) -> None:
        """Let time pass for everybody; only ``env`` does anything meanwhile."""
        env.advance(seconds)

    def outlast(self, locks: LockProvider, key: str, env: FakeEnvironment) -> None:
        """Make a silent holder's lease end, as ``locks`` sees it: a first look, then more than the lease."""
        assert locks.try_acquire(key) is None
        self.let_pass(env, self.lease_s * 1.5)

    # One holder.

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

    # Tokens.

    def test_tokens_only_grow(self, url: str, rival: LockProvider, key: str, env: FakeEnvironment) -> None:
        tokens = []
        for _ in range(3):
            with self.open(url, env) as fresh:  # opened anew: the counter is not in the provider object
                for locks in (fresh, rival):
                    with locks.acquire(key, wait_s=1) as lease:
                        tokens.append(lease.token)
        assert tokens == sorted(set(tokens))

    def test_token_above(self, provider: LockProvider, rival: LockProvider, key: str) -> None:
        with provider.acquire(key, wait_s=0, above=1000) as first:
            assert first.token > 1000
            assert rival.try_acquire(key) is None
        with rival.acquire(key, wait_s=0, above=5) as second:
            assert second.token > first.token

    # Loss.

    def test_renewal_keeps_the_lease(
        self, provider: LockProvider, rival: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        with provider.acquire(key, wait_s=0, lease_s=self.lease_s) as lease:
            for _ in range(30):
                self.let_pass(env, self.lease_s / 5)
                assert rival.try_acquire(key) is None
                lease.ensure_held(fresh=True)

    def test_lost_is_noticed_locally_at_the_deadline(
        self, provider: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        before = env.monotonic()
        lease = provider.acquire(key, wait_s=0, lease_s=self.lease_s)
        assert lease.deadline <= before + self.lease_s
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
        self.let_pass(env, self.lease_s * 3)  # the renewer is back
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
        lease = provider.acquire(key, wait_s=0, lease_s=self.lease_s, max_hold_s=self.lease_s * 2)
        self.let_pass(env, self.lease_s * 1.9)
        lease.ensure_held()
        self.let_pass(env, self.lease_s * 0.3)
        assert lease.lost == "max_hold"
        rival.acquire(key, wait_s=0).release()

    def test_a_forgotten_lease_ends_by_itself(
        self, provider: LockProvider, rival: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        provider.acquire(key, wait_s=0, lease_s=self.lease_s)
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
        assert "was lost meanwhile" in caught.value.__notes__[0]

    def test_a_loss_that_the_body_did_not_notice_is_raised(
        self, provider: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        with pytest.raises(LockLostError), provider.acquire(key, wait_s=0):
            env.suspend(1e6)

    def test_release_answers_the_same_twice(self, provider: LockProvider, key: str) -> None:
        lease = provider.acquire(key, wait_s=0)
        assert [lease.release(), lease.release()] == [Release.RELEASED] * 2
        with pytest.raises(LockLostError, match="it was released"):
            lease.ensure_held()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_child_of_fork_holds_nothing(self, provider: LockProvider, rival: LockProvider, key: str) -> None:
        lease = provider.acquire(key, wait_s=0)
        child = os.fork()
        if child == 0:  # no assert here: an error would run the rest of pytest a second time
            code = 1
            try:
                if lease.lost == "forked" and lease.release() is Release.WAS_LOST:
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lease.ensure_held(fresh=True)
        assert rival.try_acquire(key) is None
        assert lease.release() is Release.RELEASED

    # Waiting.

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

    def test_break_ends_the_lease_and_leaves_a_record(
        self, provider: LockProvider, rival: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        if not self.breakable:
            pytest.skip("this backend declares that it cannot break a lease")
        first = provider.acquire(key, wait_s=0, lease_s=self.lease_s)
        told: list[str] = []
        first.on_lost(told.append)
        assert not rival.break_(key, token=first.token + 1, reason="wrong one", who="test")
        assert rival.break_(key, token=first.token, reason="stuck since noon", who="alice")
        assert not rival.break_(key, token=first.token, reason="once is enough", who="bob")
        with rival.acquire(key, wait_s=0) as second:
            assert second.token > first.token
            with pytest.raises(LockLostError, match="somebody else"):
                first.ensure_held(fresh=True)
            self.let_pass(env, self.lease_s)
            assert told == ["stolen"]
            assert first.release() is Release.WAS_LOST
            assert provider.try_acquire(key) is None
        self.check_break_record(rival, key, who="alice", reason="stuck since noon")

    def check_break_record(self, provider: LockProvider, key: str, *, who: str, reason: str) -> None:
        """Override to look where your backend keeps the records of `break_`."""

    def test_break_by_the_same_provider_is_noticed_at_once(self, provider: LockProvider, key: str) -> None:
        if not self.breakable:
            pytest.skip("this backend declares that it cannot break a lease")
        first = provider.acquire(key, wait_s=0)
        assert provider.break_(key, token=first.token, reason="stuck", who="me")
        assert first.lost == "stolen"
        provider.acquire(key, wait_s=0).release()

    # Odds and ends.

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
        with pytest.raises(LatchError, match="closed"):
            locks.acquire(key, wait_s=0)

    def test_senseless_requests_are_refused(self, provider: LockProvider) -> None:
        with pytest.raises(ConfigError):
            provider.try_acquire("")
        with pytest.raises(ConfigError):
            provider.try_acquire("x", lease_s=0)
        with pytest.raises(ConfigError):
            provider.try_acquire("x", max_hold_s=-1.0)
        provider.acquire("x", wait_s=0).release()
