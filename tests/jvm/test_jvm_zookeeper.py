"""Hudi's own ZooKeeper lock providers, from its bundle in a JVM, and zk:// exclude each other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelatch.locks import open_provider
from lakelatch.locks.hudi import implicit_key
from lakelatch.testing.contention import PATIENCE_S

from ..servers.jvm_peer import jvm_peer
from ..servers.zookeeper_server import Node, zookeeper
from .readers import BUNDLE, HOME, require_jvm

pytestmark = [pytest.mark.jvm, pytest.mark.server]
TABLE = "s3a://my-bucket/my_lake/my_table"
PACKAGE = "org.apache.hudi.client.transaction.lock."


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    require_jvm()
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as node:
        yield node


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("classes")


@pytest.mark.parametrize(
    ("provider", "options", "place"),
    [
        (
            "ZookeeperBasedLockProvider",
            {"hoodie.write.lock.zookeeper.base_path": "/hudi", "hoodie.write.lock.zookeeper.lock_key": "flights"},
            "/hudi?key=flights",
        ),
        (
            "ZookeeperBasedImplicitBasePathLockProvider",
            {"hoodie.base.path": TABLE},
            f"/tmp/{implicit_key(TABLE)}?key=lock_key",
        ),
    ],
)
def test_hudi_and_we_exclude_each_other(
    node: Node, classes: Path, provider: str, options: dict[str, str], place: str
) -> None:
    (jars,) = HOME.glob("venv/lib/python*/site-packages/pyspark/jars")
    class_path = os.pathsep.join([str(BUNDLE), f"{jars}/*"])
    settings = options | {"hoodie.write.lock.zookeeper.url": f"127.0.0.1:{node.port}"}
    arguments = [PACKAGE + provider, *(f"{name}={value}" for name, value in settings.items())]
    with (
        jvm_peer("HudiPeer", class_path, classes, *arguments) as hudi,
        open_provider(f"zk://127.0.0.1:{node.port}{place}&session=10s") as locks,
    ):
        with locks.acquire(TABLE, wait_s=PATIENCE_S) as ours:
            assert not hudi.acquire(0.5)
        assert hudi.acquire(PATIENCE_S)
        assert locks.try_acquire(TABLE) is None
        hudi.release()
        with locks.acquire(TABLE, wait_s=PATIENCE_S) as again:
            assert again.token > ours.token
