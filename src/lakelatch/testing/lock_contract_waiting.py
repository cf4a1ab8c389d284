"""The promises about waiting, inspecting holders, breaking leases, and life in a process."""

from __future__ import annotations

import pickle
import threading
import time
import unicodedata
from functools import partial

import pytest

from ..environment import SYSTEM, SystemEnvironment
from ..errors import ConfigError, LakeLatchError, LockLostError, LockTimeoutError
from ..locks import Holder, Lease, LockProvider, Release, ask_revoke, lock
from .contention import PATIENCE_S, CountingEnvironment, WatchedEnvironment, run_threads, until
from .fake_environment import FakeEnvironment
from .lock_contract_base import LockContractBase
from .thread_count import threads_of


class WaitingContract(LockContractBase):
    """Waiters are served, in order if the backend is fair, and anyone can see the holder."""

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
        lease = provider.acquire(key, wait_s=0, lease_s=self.lease_s)
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
            self.let_pass(env, self.lease_s)
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
        tick_s = min(0.5, self.lease_s / 12)
        # Answers are as slow as the machine.
        slack_s = self.lease_s / 4 if self.server_clock else 0.0
        self.let_pass(env, self.lease_s / 3 + 2 * tick_s + slack_s)
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
        lease = provider.acquire(key, wait_s=0, lease_s=self.lease_s)
        told: list[str] = []
        lease.on_lost(lambda reason: told.append(f"one {reason}"))
        lease.on_lost(lambda reason: told.append(f"two {reason}"))
        rival.break_lease(key, token=lease.token, reason="stuck", who="alice")
        self.let_pass(env, self.lease_s * 1.2)  # its deadline passes as well
        lease.release()
        assert told == ["one stolen", "two stolen"]

    def test_a_holder_that_listens_gives_the_lock_back_when_it_is_asked(
        self, provider: LockProvider, rival: LockProvider, key: str, env: FakeEnvironment
    ) -> None:
        asked: list[str] = []

        def give_back(asker: Holder) -> None:
            asked.append(asker.reason)
            block.__exit__(None, None, None)

        block = lock(provider, key, lease_s=self.lease_s, on_revoke=give_back, env=env)
        if self.one_lock:
            with pytest.raises(ConfigError, match="are one lock"):
                block.__enter__()
            assert rival.inspect(key) is None
            return
        block.__enter__()
        assert ask_revoke(rival, key, wait_s=self.lease_s * 2, reason="deploy {now} 100%", env=env)
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


def _waits(locks: LockProvider, key: str, count: int) -> bool:
    holder = locks.inspect(key)
    return holder is not None and len(holder.queue) == count
