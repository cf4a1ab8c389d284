"""Curator's InterProcessMutex, from its own jar in a real JVM, and zk:// stand in one line."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lakelatch.environment import SystemEnvironment
from lakelatch.locks import LockProvider, open_provider
from lakelatch.testing.contention import PATIENCE_S, until

from ..servers.jvm_peer import JvmPeer, jvm_peer
from ..servers.zookeeper_server import Node, java_class_path, zookeeper

pytestmark = [pytest.mark.server, pytest.mark.process]
KEY = "flights"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as node:
        yield node


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("classes")


@pytest.fixture
def curator(node: Node, classes: Path) -> Iterator[JvmPeer]:
    with jvm_peer("CuratorPeer", java_class_path(), classes, f"127.0.0.1:{node.port}", f"/hudi/{KEY}") as peer:
        yield peer


@pytest.fixture
def locks(node: Node) -> Iterator[LockProvider]:
    with open_provider(f"zk://127.0.0.1:{node.port}/hudi?session=10s", env=SystemEnvironment()) as locks:
        yield locks


def test_we_exclude_curator_and_it_excludes_us(locks: LockProvider, curator: JvmPeer) -> None:
    with locks.acquire(KEY, wait_s=PATIENCE_S):
        assert not curator.acquire(0.5)
    assert curator.acquire(PATIENCE_S)
    assert locks.try_acquire(KEY) is None
    holder = locks.inspect(KEY)
    assert holder is not None
    assert holder.owner == holder.host != ""  # Curator writes its address and nothing else
    curator.release()
    locks.acquire(KEY, wait_s=PATIENCE_S).release()


def test_one_line_for_all(node: Node, locks: LockProvider, curator: JvmPeer) -> None:
    with (
        open_provider(locks.url, env=SystemEnvironment()) as third,
        ThreadPoolExecutor(1) as pool,
    ):
        with locks.acquire(KEY, wait_s=PATIENCE_S) as first:
            curator.tell(f"acquire {int(PATIENCE_S * 1000)}")
            until(lambda: waiting(locks) == 1, "Curator does not line up")
            last = pool.submit(third.acquire, KEY, wait_s=PATIENCE_S)
            until(lambda: waiting(locks) == 2, "the third does not line up")
        assert curator.answer() == "true"
        assert waiting(locks) == 1
        assert not last.done()
        curator.release()
        with last.result() as lease:
            assert lease.token > first.token


def test_a_break_ends_curators_hold(locks: LockProvider, curator: JvmPeer) -> None:
    assert curator.acquire(PATIENCE_S)
    holder = locks.inspect(KEY)
    assert holder is not None
    assert locks.break_lease(KEY, token=holder.token, reason="stuck", who="alice")
    locks.acquire(KEY, wait_s=0).release()


def test_a_killed_jvm_is_followed(locks: LockProvider, curator: JvmPeer) -> None:
    assert curator.acquire(PATIENCE_S)
    curator.kill()
    locks.acquire(KEY, wait_s=PATIENCE_S).release()


def waiting(locks: LockProvider) -> int:
    holder = locks.inspect(KEY)
    return 0 if holder is None else len(holder.queue)
