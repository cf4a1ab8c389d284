"""The promises about holding a lock: exclusion, tokens, deadline, loss, release."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ..environment import SYSTEM
from ..errors import (
    InputError,
    LockLostError,
    LockTimeoutError,
    LockUnavailableError,
    StorageError,
    TokenRegressedError,
)
from ..locks import LockProvider, Release
from .contention import COUNT_UNDER_LOCK, PATIENCE_S, run_threads
from .fake_environment import FakeEnvironment
from .lock_contract_base import LockContractBase


class HoldingContract(LockContractBase):
    """One holder at a time, which notices by itself when it has lost the lock."""

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
        with provider.acquire(key, wait_s=0, lease_s=self.lease_s) as lease:
            for _ in range(12):
                self.let_pass(env, self.lease_s / 5)
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
        lease = provider.acquire(key, wait_s=0, lease_s=self.lease_s, max_hold_s=self.lease_s * 2)
        self.let_pass(env, self.lease_s * 1.9)
        lease.ensure_held()
        self.let_pass(env, self.lease_s * 0.3)
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
            code = 1
            try:
                own = provider.acquire(key + "/child", wait_s=PATIENCE_S)
                if lease.lost == "forked" and lease.release() is Release.WAS_LOST and own.release() is Release.RELEASED:
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        lease.ensure_held(fresh=True)
        assert rival.try_acquire(key) is None
        assert lease.release() is Release.RELEASED
