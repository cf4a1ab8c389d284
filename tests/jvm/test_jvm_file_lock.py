"""Our lock and the one of Hudi's own class, in a JVM, on one `.hoodie/lock`: no Spark, only the lock."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from lakelatch.environment import SYSTEM, Process
from lakelatch.errors import LockLostError, LockTimeoutError
from lakelatch.locks import open_provider
from lakelatch.testing import FakeEnvironment

from .readers import BUNDLE, HOME, require_jvm

pytestmark = pytest.mark.jvm

KEY = "table"
OTHER_HOST = Process("host-b", "boot-b", 100, "1")
Provider = Callable[..., Any]


@pytest.fixture(scope="module")
def jvm() -> Iterator[Any]:
    require_jvm()
    spark = next((HOME / "venv").glob("lib/python*/site-packages/pyspark"))
    (bridge,) = (HOME / "venv").glob("share/py4j/py4j*.jar")
    port = launch_gateway(jarpath=str(bridge), classpath=f"{BUNDLE}:{spark}/jars/*", die_on_exit=True)
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    yield gateway.jvm
    gateway.shutdown()


@pytest.fixture
def hudi(tmp_path: Path) -> Path:
    """Hudi's folder of a table."""
    folder = tmp_path / ".hoodie"
    folder.mkdir()
    return folder


@pytest.fixture
def provider(jvm: Any, hudi: Path) -> Provider:
    """Makes Hudi's lock provider for the table, as a JVM writer has it."""

    def make(*, expire_min: int = 0) -> Any:
        properties = jvm.org.apache.hudi.common.config.TypedProperties()
        properties.setProperty("hoodie.base.path", str(hudi.parent))
        properties.setProperty("hoodie.write.lock.filesystem.expire", str(expire_min))
        return jvm.org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider(
            jvm.org.apache.hudi.common.config.LockConfiguration(properties),
            jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(),
        )

    return make


@pytest.fixture
def now(jvm: Any) -> Callable[[Any], bool]:
    return lambda provider: bool(provider.tryLock(0, jvm.java.util.concurrent.TimeUnit.SECONDS))


def age(file: Path, seconds: float) -> None:
    """Let the file look as if it was modified so long ago."""
    os.utime(file, (SYSTEM.now() - seconds,) * 2)


def test_our_hold_keeps_the_jvm_out(hudi: Path, provider: Provider, now: Callable[[Any], bool]) -> None:
    theirs = provider()
    with open_provider(f"file://{hudi}?jvm=lock") as ours:
        with ours.acquire(KEY, wait_s=5, reason="nightly delete") as lease:
            assert not now(theirs)
            assert "lakelatch" in theirs.getCurrentOwnerLockInfo()  # the JVM can log who has it
            lease.ensure_held(fresh=True)
        assert now(theirs)
        theirs.unlock()
        theirs.close()
    assert [file.name for file in hudi.iterdir()] == [".lakelatch"]


def test_the_jvms_hold_keeps_us_out_and_a_waiter_follows(
    hudi: Path, provider: Provider, now: Callable[[Any], bool]
) -> None:
    theirs = provider()
    assert now(theirs)
    with open_provider(f"file://{hudi}?jvm=lock") as ours:
        assert ours.try_acquire(KEY) is None
        with pytest.raises(LockTimeoutError):
            ours.acquire(KEY, wait_s=0.3)
        holder = ours.inspect(KEY)
        assert holder is not None
        assert (holder.owner, holder.details["file"]) == ("a JVM writer of Hudi", str(hudi / "lock"))
        assert (hudi / "lock").exists()
        leave = threading.Timer(0.2, lambda: (theirs.unlock(), theirs.close()))
        leave.start()
        with ours.acquire(KEY, wait_s=30) as lease:
            leave.join()
            assert not now(provider())
            lease.ensure_held(fresh=True)


def test_both_take_turns_and_never_hold_at_once(hudi: Path, provider: Provider, now: Callable[[Any], bool]) -> None:
    inside: list[str] = []
    clashes: list[list[str]] = []
    turns = {"ours": 0, "theirs": 0}
    done = threading.Event()

    def hold(who: str) -> None:
        inside.append(who)
        SYSTEM.sleep(0.005)  # the work under the lock
        if len(inside) > 1:
            clashes.append(list(inside))
        inside.remove(who)
        turns[who] += 1

    def jvm_writer() -> None:
        while not done.is_set():
            theirs = provider()
            if now(theirs):
                hold("theirs")
                theirs.unlock()
                # It looks whether the file is there, then deletes it, even if another holder has taken it since: where
                # that holder was faster to delete it, the JVM's call fails.
                try:
                    theirs.close()
                except Py4JJavaError as e:
                    assert "Failed to delete" in str(e)  # noqa: PT017 - nearly every call returns

    thread = threading.Thread(target=jvm_writer)
    thread.start()
    try:
        with open_provider(f"file://{hudi}?jvm=lock&jvm_pause=20ms") as ours:
            while min(turns.values()) < 8 or turns["ours"] < 15:
                assert thread.is_alive()
                lease = ours.acquire(KEY, wait_s=60)
                try:
                    lease.ensure_held(fresh=True)  # what a writer does before it publishes
                except LockLostError:
                    continue
                hold("ours")
                lease.release()
    finally:
        done.set()
        thread.join()
    assert clashes == []


def test_a_renewed_hold_outlives_the_jvms_expiry_and_a_silent_one_does_not(
    hudi: Path, provider: Provider, now: Callable[[Any], bool]
) -> None:
    theirs = provider(expire_min=1)
    env = FakeEnvironment(wall=SYSTEM.now())
    with open_provider(f"file://{hudi}?jvm=lock&jvm_expire=1m", env=env) as ours:
        lease = ours.acquire(KEY, wait_s=0)
        age(hudi / "lock", 120)
        env.advance(11)  # the renewer comes by
        assert not now(theirs)
        lease.ensure_held(fresh=True)
        age(hudi / "lock", 120)
        assert now(theirs)
        with pytest.raises(LockLostError, match="somebody else"):
            lease.ensure_held(fresh=True)
        lease.release()
        assert (hudi / "lock").exists()  # the JVM's is not touched
        theirs.unlock()


def test_the_close_of_a_jvm_that_holds_nothing_is_noticed(hudi: Path, provider: Provider) -> None:
    with open_provider(f"file://{hudi}?jvm=lock") as ours:
        lease = ours.acquire(KEY, wait_s=5)
        provider().close()  # deletes the file, no matter who owns it
        with pytest.raises(LockLostError, match="somebody else"):
            lease.ensure_held(fresh=True)


def test_a_dead_jvms_file_is_taken_over_only_where_that_was_asked_for(
    hudi: Path, provider: Provider, now: Callable[[Any], bool]
) -> None:
    assert now(provider())  # and never heard of again
    age(hudi / "lock", 3600)
    with open_provider(f"file://{hudi}?jvm=lock") as patient:
        assert patient.try_acquire(KEY) is None
    with open_provider(f"file://{hudi}?jvm=lock&jvm_expire=2h") as too_early:
        assert too_early.try_acquire(KEY) is None
    with open_provider(f"file://{hudi}?jvm=lock&jvm_expire=5m") as ours, ours.acquire(KEY, wait_s=0):
        assert not now(provider())
    assert not (hudi / ".lock.crc").exists()


def test_a_jvms_hold_can_be_broken_by_name(hudi: Path, provider: Provider, now: Callable[[Any], bool]) -> None:
    theirs = provider()
    assert now(theirs)
    with open_provider(f"file://{hudi}?jvm=lock") as ours:
        seen = ours.inspect(KEY)
        assert seen is not None
        theirs.unlock()
        assert now(theirs)  # another hold: the name of the first does not fit it
        assert not ours.break_lease(KEY, token=seen.token, reason="stuck", who="alice")
        again = ours.inspect(KEY)
        assert again is not None
        assert ours.break_lease(KEY, token=again.token, reason="its host burned down", who="alice")
        assert [(record.token, record.who) for record in ours.breaks(KEY)] == [(again.token, "alice")]
        ours.acquire(KEY, wait_s=0).release()
