"""A lock in a folder that shares Hudi's `.hoodie/lock`, with a JVM played by hand; tests/jvm has a real one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from lakelatch.environment import SYSTEM, Process
from lakelatch.errors import ConfigError, LockLostError, LockTimeoutError
from lakelatch.locks import LockProvider, open_provider
from lakelatch.locks.file import generations
from lakelatch.locks.file import hudi_lock_file as hudi_file
from lakelatch.testing import FakeEnvironment, LockProviderContract

from .weather import holding

KEY = "table"
OTHER = Process("host-b", "boot-b", 100, "1")


class TestSharedWithHudi(LockProviderContract):
    one_lock = True
    across_processes = True

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"file://{tmp_path}/.hoodie?jvm=lock&jvm_pause=0s"  # without a pause, which is tested below

    def test_keys_do_not_disturb_each_other(self, provider: LockProvider, rival: LockProvider, key: str) -> None:
        with provider.acquire(key, wait_s=0):
            assert rival.try_acquire(key + "/b") is None  # Hudi has one lock for the table: all keys are one

    # These take several keys at once, and all are one here.
    test_long_and_non_ascii_keys = None
    test_many_leases_need_no_more_threads = None
    test_child_of_fork_holds_nothing = None


@pytest.fixture
def env() -> FakeEnvironment:
    return FakeEnvironment(wall=SYSTEM.now())  # files have real times


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """Hudi's file."""
    (tmp_path / ".hoodie").mkdir()
    return tmp_path / ".hoodie" / "lock"


def url(lock: Path, options: str = "") -> str:
    return f"file://{lock.parent}?jvm=lock{options}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("jvm=yes", "write jvm=lock"),
        ("jvm_expire=5m", "write jvm=lock"),
        ("jvm=lock&jvm_expire=90s", "whole minutes"),
        ("jvm=lock&jvm_expire=30s", "whole minutes"),
        ("jvm=lock&jvm_pause=6", "not a duration"),
        ("jvm=lock&lease=31s", "at most 30 s"),
        ("jvm=lock&jvm_expire=2m&lease=61s", "at most 60 s"),
    ],
)
def test_options_that_cannot_work_are_refused(tmp_path: Path, options: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_provider(f"file://{tmp_path}?{options}")


def test_a_lease_beyond_the_expiry_is_refused_before_anything_is_written(lock: Path) -> None:
    with open_provider(url(lock)) as locks, pytest.raises(ConfigError, match="at most 30 s"):
        locks.try_acquire(KEY, lease_s=40)
    assert not lock.exists()


def test_options_have_one_spelling(lock: Path) -> None:
    assert open_provider(url(lock, "&jvm_expire=120s&jvm_pause=6000ms")).url == url(lock, "&jvm_expire=2m&jvm_pause=6s")


def test_a_jvm_that_opens_our_file_in_the_same_moment_has_it(
    lock: Path, env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle = env.sleep

    def truncate(seconds: float) -> None:  # its look was before our link, its open is after it
        lock.write_bytes(b"")
        settle(seconds)

    with open_provider(url(lock, "&jvm_pause=0s"), env=env) as locks:
        with monkeypatch.context() as patch:
            patch.setattr(env, "sleep", truncate)
            assert locks.try_acquire(KEY) is None
        assert lock.read_bytes() == b""
        assert locks.try_acquire(KEY) is None
        lock.unlink()
        with locks.acquire(KEY, wait_s=0) as lease:
            lock.write_bytes(b"")  # even later: a JVM that was paused between look and open
            with pytest.raises(LockLostError):
                lease.ensure_held(fresh=True)
            lease.release()
        assert lock.exists()


def test_an_interrupted_acquire_leaves_nothing_held(
    lock: Path, env: FakeEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        assert lock.exists()
        raise KeyboardInterrupt

    with open_provider(url(lock, "&jvm_pause=0s"), env=env) as locks:
        with monkeypatch.context() as patch:
            patch.setattr(env, "sleep", interrupt)
            with pytest.raises(KeyboardInterrupt):
                locks.try_acquire(KEY)
        assert not lock.exists()
        locks.acquire(KEY, wait_s=0).release()


def test_what_a_dead_holder_of_ours_left_is_replaced_at_once(lock: Path, env: FakeEnvironment) -> None:
    dead = Process("host-a", "boot-a", 7, "1")
    with open_provider(url(lock), env=env.peer(process=dead)) as theirs, open_provider(url(lock), env=env) as ours:
        theirs.acquire(KEY, wait_s=0)
        left = lock.read_bytes()
        assert ours.try_acquire(KEY) is None
        env.kill(dead)
        assert ours.inspect(KEY) is None
        with ours.acquire(KEY, wait_s=0):
            assert lock.read_bytes() != left
    assert not lock.exists()


def test_a_record_that_the_disk_does_not_take_is_no_lock(tmp_path: Path) -> None:
    def fails(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output"):
        generations.put_if_absent(str(tmp_path / "lock"), str(tmp_path / "aside"), {"token": 1}, flush=fails)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("options", "pause_s"), [("", 2.0), ("&jvm_pause=6s", 6.0)])
def test_after_a_hold_all_of_ours_leave_room(lock: Path, env: FakeEnvironment, options: str, pause_s: float) -> None:
    other = env.peer(process=OTHER)
    with open_provider(url(lock, options), env=env) as first, open_provider(url(lock, options), env=other) as second:
        lease = first.acquire(KEY, wait_s=0)
        env.advance(2.0)
        lease.release()
        assert not lock.exists()
        env.advance(pause_s - 0.1)
        for locks in (first, second):
            assert locks.try_acquire(KEY) is None
            assert locks.inspect(KEY) is None
        before = env.monotonic()
        with second.acquire(KEY, wait_s=10):
            assert env.monotonic() - before < 1


def test_a_long_hold_asks_for_no_longer_pause_than_a_jvms_poll(lock: Path, env: FakeEnvironment) -> None:
    with open_provider(url(lock), env=env) as locks:
        lease = locks.acquire(KEY, wait_s=0)
        env.advance(3600)
        lease.release()
        env.advance(6.1)
        locks.acquire(KEY, wait_s=0).release()


def test_a_wall_clock_that_was_set_back_ends_the_pause(lock: Path, env: FakeEnvironment) -> None:
    with open_provider(url(lock, "&jvm_pause=6s"), env=env) as locks:
        locks.acquire(KEY, wait_s=0).release()
        env.set_wall(env.now() - 3600)
        locks.acquire(KEY, wait_s=0).release()


def test_a_strangers_file_that_comes_before_the_deletion_is_put_back(lock: Path, env: FakeEnvironment) -> None:
    file = hudi_file.HudiLockFile(str(lock), env, expire_s=60.0, pause_s=None)
    lock.write_bytes(b"old")
    seen = file._look(str(lock))
    assert seen is not None
    lock.unlink()
    lock.write_bytes(b"new")
    assert not file.remove(seen, str(lock) + ".aside")
    assert lock.read_bytes() == b"new"
    assert [each.name for each in lock.parent.iterdir()] == ["lock"]


def test_a_file_that_nobody_owns_any_more_waits_for_people(lock: Path, env: FakeEnvironment) -> None:
    lock.write_bytes(b"")  # a JVM that died long ago
    os.utime(lock, (0, 0))
    with open_provider(url(lock), env=env) as locks:
        with pytest.raises(LockTimeoutError, match=r"held by 'a JVM writer of Hudi' .* break_") as caught:
            locks.acquire(KEY, wait_s=1)
        holder = caught.value.holder
        assert (holder.owner, holder.since, holder.until) == ("a JVM writer of Hudi", 0.0, None)


@pytest.mark.process
def test_a_killed_holder_is_followed_at_once(lock: Path) -> None:
    with holding(url(lock), KEY) as holder, open_provider(url(lock)) as locks:
        assert lock.exists()
        holder.kill()
        with locks.acquire(KEY, wait_s=20) as lease:
            assert lease.token == holder.token + 1
            lease.ensure_held(fresh=True)
