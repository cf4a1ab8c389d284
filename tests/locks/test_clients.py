"""Locks on a client that was handed in, on real servers: it says how to connect, and is neither used nor closed."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
import redis
import redis.asyncio
from kazoo.client import KazooClient
from kazoo.security import make_digest_acl

import lakelatch
from lakelatch.environment import SystemEnvironment
from lakelatch.errors import ConfigError, LockUnavailableError
from lakelatch.locks import LockProvider, open_provider
from lakelatch.testing.contention import PATIENCE_S

from ..servers import free_port
from ..servers.dynamodb_server import CREDENTIALS, Dynamo, dynamodb_local
from ..servers.redis_server import RedisServer, redis_server
from ..servers.zookeeper_server import Node, zookeeper

pytestmark = [pytest.mark.server, pytest.mark.process]


@pytest.fixture
def key() -> str:
    return f"flights-{uuid4()}"


def assert_one_lock(one: object, other: object, key: str) -> None:
    """Who has ``one`` and who has ``other`` exclude each other, and tokens grow from one to the other."""
    for first, second in ((one, other), (other, one)):
        with open_provider(second, env=SystemEnvironment()) as locks:  # as another process has it
            with lakelatch.lock(first, key) as lease:
                assert locks.try_acquire(key) is None
                holder = locks.inspect(key)
                assert holder is not None
                assert holder.token == lease.token
            with locks.acquire(key, wait_s=PATIENCE_S) as after:
                assert after.token > lease.token


# Redis.


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    folder = tmp_path_factory.mktemp("redis")
    with redis_server(
        folder, "--requirepass", "secret", "--unixsocket", str(folder / "s"), password="secret"
    ) as server:
        yield server


class Token(redis.CredentialProvider):
    """As of IAM: asked for each new connection."""

    def __init__(self) -> None:
        self.asked = 0

    def get_credentials(self) -> tuple[str]:
        self.asked += 1
        return ("secret",)


def test_a_redis_client_is_the_same_lock_as_its_url(
    server: RedisServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKELATCH_REDIS_PASSWORD", "secret")
    with redis.Redis(port=server.port, password="secret", decode_responses=True) as client:
        assert_one_lock(client, server.url, key)
        assert not client.connection_pool._available_connections, "the client's own connections were used"
        assert client.ping()


def test_a_redis_client_brings_its_tokens_and_its_socket(server: RedisServer, key: str) -> None:
    token = Token()
    by_token = redis.Redis(port=server.port, credential_provider=token)
    by_socket = redis.Redis(unix_socket_path=str(server.folder / "s"), password="secret")
    assert_one_lock(by_token, by_socket, key)
    assert token.asked
    by_token.close()  # before its locks
    with lakelatch.lock(by_token, key) as lease:
        lease.ensure_held(fresh=True)


def test_a_redis_client_of_another_database_is_another_lock(server: RedisServer, key: str) -> None:
    one, other = (redis.Redis(port=server.port, password="secret", db=db) for db in (0, 1))
    with lakelatch.lock(one, key, wait_s=0), lakelatch.lock(other, key, wait_s=0):
        pass


def test_a_redis_client_without_a_server_is_named_without_its_password() -> None:
    client = redis.Redis(port=free_port(), password="secret")
    with pytest.raises(LockUnavailableError) as caught, lakelatch.lock(client, "k"):
        raise AssertionError("entered")
    assert "secret" not in str(caught.value)
    assert "localhost" in str(caught.value)


# ZooKeeper.


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with zookeeper(tmp_path_factory.mktemp("zookeeper")) as node:
        yield node


def test_a_kazoo_client_brings_its_user_and_its_chroot(node: Node, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    user = ("digest", "alice:secret")
    root = KazooClient(f"127.0.0.1:{node.port}")
    root.start()
    root.ensure_path("/app")
    client = KazooClient(
        f"127.0.0.1:{node.port}/app", auth_data=[user], default_acl=[make_digest_acl("alice", "secret", all=True)]
    )
    client.start()
    try:
        monkeypatch.setenv("LAKELATCH_ZK_AUTH", "digest:alice:secret")
        assert_one_lock(client, f"zk://127.0.0.1:{node.port}/app/lakelatch", key)
        assert client.connected
        assert client.exists("/lakelatch") is not None
        acl = client.get_acls(f"/lakelatch/{key}")[0][0]
        assert acl.id.scheme == "digest"
    finally:
        for each in (client, root):
            each.stop()
            each.close()


def test_a_kazoo_client_that_was_never_started_will_do(node: Node, key: str) -> None:
    client = KazooClient(f"127.0.0.1:{node.port}")
    with lakelatch.lock(client, key) as lease:
        lease.ensure_held(fresh=True)
    assert not client.connected


# DynamoDB.


@pytest.fixture(scope="module")
def dynamo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dynamo]:
    with dynamodb_local(tmp_path_factory.mktemp("dynamodb")) as server:
        yield server


def test_a_client_a_resource_and_a_table_of_boto3_are_the_same_lock_as_the_url(
    dynamo: Dynamo, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {
        "region_name": "us-east-1",
        "endpoint_url": f"http://127.0.0.1:{dynamo.port}",
        "aws_access_key_id": "mine",
        "aws_secret_access_key": "mine",
    }
    client, resource = boto3.client("dynamodb", **options), boto3.resource("dynamodb", **options)
    for name in CREDENTIALS:
        monkeypatch.delenv(name, raising=False)
    assert_one_lock(client, resource, key)
    assert_one_lock(client, resource.Table("lakelatch_locks"), key)
    with lakelatch.lock(client, key, wait_s=0), lakelatch.lock(resource.Table("others"), key, wait_s=0):
        pass
    assert set(client.list_tables()["TableNames"]) >= {"lakelatch_locks", "others"}
    for name, value in {"AWS_ACCESS_KEY_ID": "mine", "AWS_SECRET_ACCESS_KEY": "mine"}.items():
        monkeypatch.setenv(name, value)
    url = f"dynamodb://us-east-1/lakelatch_locks?endpoint=http://127.0.0.1:{dynamo.port}"
    assert_one_lock(client, url, key)


def test_accounts_with_one_region_and_table_name_are_two_locks_in_one_process(dynamo: Dynamo, key: str) -> None:
    options: dict[str, Any] = {"region_name": "us-east-1", "endpoint_url": f"http://127.0.0.1:{dynamo.port}"}
    one, other = (
        boto3.client("dynamodb", aws_access_key_id=name, aws_secret_access_key=name, **options)
        for name in ("one", "other")
    )
    with lakelatch.lock(one, key, wait_s=0):  # the server keeps a database for each account
        with lakelatch.lock(other, key, wait_s=0):
            pass
        assert_one_lock(
            one, boto3.resource("dynamodb", aws_access_key_id="one", aws_secret_access_key="one", **options), key + "2"
        )


# What is refused.


@pytest.mark.parametrize(
    ("client", "words"),
    [
        (lambda: redis.asyncio.Redis(), "need a redis.Redis, not redis.asyncio"),
        (lambda: redis.Redis().pipeline(), None),
        (lambda: boto3.client("s3", region_name="us-east-1"), "for dynamodb, not for s3"),
        (lambda: KazooClient().handler, "need a kazoo.client.KazooClient, not kazoo"),
        (lambda: Path("/locks"), "not at PosixPath"),
        (lambda: b"memory://x", "not at bytes"),
    ],
)
def test_what_is_no_client_for_locks_is_refused(client: Any, words: str | None) -> None:
    if words is None:
        open_provider(client()).close()  # a pipeline is a Redis, and connects alike
        return
    with pytest.raises(ConfigError, match=words):
        open_provider(client())


@pytest.mark.parametrize(
    "client",
    [
        lambda: redis.Redis(),
        lambda: KazooClient(),
        lambda: boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="y"),
    ],
    ids=["redis", "kazoo", "boto3"],
)
def test_a_provider_on_a_client_stays_in_its_process(client: Any) -> None:
    with open_provider(client()) as locks, pytest.raises(ConfigError, match="open them by URL there"):
        pickle.dumps(locks)


def test_cancelled_tasks_leave_the_line_in_the_server(server: RedisServer, key: str) -> None:
    client = redis.Redis(port=server.port, password="secret")

    def in_line(locks: LockProvider) -> int:
        holder = locks.inspect(key)
        assert holder is not None
        return len(holder.queue)

    async def main(locks: LockProvider) -> None:
        lock = lakelatch.lock(client, key, lease_s=6, wait_s=10 * PATIENCE_S)
        tasks = [asyncio.create_task(lock.__aenter__()) for _ in range(3)]
        while await asyncio.to_thread(in_line, locks) == 0:  # one stands in the server's line, for the others behind it
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, asyncio.CancelledError)
        while await asyncio.to_thread(in_line, locks):
            await asyncio.sleep(0)

    with open_provider(client, env=SystemEnvironment()) as locks:
        with locks.acquire(key, wait_s=0):
            asyncio.run(asyncio.wait_for(main(locks), PATIENCE_S))
        assert locks.inspect(key) is None
