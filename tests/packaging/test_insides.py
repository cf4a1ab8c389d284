"""What is used of other libraries' insides: all of it is listed here, is there, and is told when it is not."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakelatch.environment import SYSTEM
from lakelatch.errors import ConfigError
from lakelatch.locks.redis import client as redis_client
from lakelatch.locks.zookeeper import session as zookeeper_session
from lakelatch.locks.zookeeper.backend import open_zookeeper_locks
from lakelatch.server.serve import BoundedHttp

ROOT = Path(__file__).parents[2]
# By the module that uses them; each has an upper bound in pyproject.toml.
INSIDES = {
    "locks/dynamodb/table.py": {"_credentials", "_request_signer"},  # and _endpoint, a name that is ours, too
    "locks/zookeeper/session.py": {"_connection"},  # and its _connect, a name that is ours, too
    "spark/versions.py": {
        "_active_spark_context",
        "_jvm",
        "_jc",
        "_collect_as_arrow",
        "_jsparkSession",
        "_serialize_to_jvm",
    },
    "spark/writing/clauses.py": {"_jdf"},
    "spark/reading/partition_pruning.py": {"_jdf"},
    "spark/reading/slice_rows.py": {"_jdf", "_jsparkSession", "_jvm"},
    "spark/writing/incoming.py": {"_jdf"},
    "spark/writing/job_progress.py": {"_jsc"},  # and _accumulatorRegistry, which it imports
}
LIBRARIES = ("kazoo", "redis", "boto3", "botocore", "obstore", "pyspark", "prometheus_client", "fastavro", "pyarrow")


def private_names(path: Path) -> set[str]:
    """Private attributes of what is not the module's own, where it imports one of the libraries."""
    tree = ast.parse(path.read_text())
    imported = {
        (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and not getattr(node, "level", 0)
    }
    if not any(name.split(".")[0] in LIBRARIES for name in imported):
        return set()
    names = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
    }
    names |= {
        str(node.args[1].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "getattr"
        and isinstance(node.args[1], ast.Constant)
        if str(node.args[1].value).startswith("_")
    }
    return names - ours()


@functools.cache
def ours() -> set[str]:
    """Private names that this project gives itself."""
    found = set()
    for path in (p for part in ("locks", "storage", "occ", "spark", "conflict") for p in (ROOT / part).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                found.add(node.name)
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and getattr(node.value, "id", "") == "self"
            ):
                found.add(node.attr)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    return found


def test_every_inside_that_is_used_is_listed() -> None:
    paths = [p for part in ("locks", "storage", "occ", "spark") for p in (ROOT / part).rglob("*.py")]
    found = {p.relative_to(ROOT).as_posix(): private_names(p) for p in paths}
    assert {name: names for name, names in found.items() if names} == INSIDES


def test_kazoo_has_what_is_used_of_it() -> None:
    from kazoo.client import KazooClient
    from kazoo.handlers.threading import SequentialThreadingHandler

    assert callable(KazooClient()._connection._connect)
    assert {"create_connection", "select", "spawn", "sleep_func"} <= set(dir(SequentialThreadingHandler))


def test_botocore_has_what_is_used_of_it() -> None:
    import boto3

    client = boto3.client("dynamodb", "eu-west-1", aws_access_key_id="a", aws_secret_access_key="b", verify=False)
    assert client._request_signer._credentials.access_key == "a"
    assert client._endpoint.http_session._verify is False
    assert hasattr(boto3.Session()._session, "_credentials")


def test_redis_py_has_what_is_used_of_it() -> None:
    import redis
    from redis.cluster import RedisCluster
    from redis.sentinel import Sentinel

    pool = redis.Redis().connection_pool
    line = pool.connection_class(**pool.connection_kwargs)
    assert all(
        callable(getattr(line, name)) for name in ("connect", "send_packed_command", "read_response", "disconnect")
    )
    assert {"get_redis_connection", "get_node_from_key"} <= set(dir(RedisCluster))
    assert hasattr(Sentinel, "master_for")


def test_uvicorn_has_what_is_used_of_it() -> None:
    """Which is that of the versions that `[server]` allows."""
    from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

    overridden = {name for name, each in vars(BoundedHttp).items() if callable(each)} & set(dir(H11Protocol))
    assert {
        "connection_made",
        "connection_lost",
        "data_received",
        "on_response_complete",
        "send_400_response",
    } <= overridden
    used = {"app", "connections", "tasks", "cycle", "conn", "transport", "loop"}
    assert used <= {*H11Protocol.__init__.__code__.co_names, *H11Protocol.connection_made.__code__.co_names}
    assert {"disconnected", "message_event", "response_complete"} <= set(
        RequestResponseCycle.__init__.__code__.co_names
    )
    bounds = {each.partition(">=")[0]: each for each in extras()["server"]}
    assert re.search(r",<[0-9.]+$", bounds["uvicorn"])
    assert bounds["h11"].startswith("h11>=0.16,<")


def extras() -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_a_kazoo_of_another_build_is_refused_in_a_sentence() -> None:
    with open_zookeeper_locks("zk://127.0.0.1:1/x", env=SYSTEM) as locks:
        session = locks._backend._session()
        for client in (SimpleNamespace(), SimpleNamespace(_connection=SimpleNamespace())):
            with pytest.raises(ConfigError, match=r"kazoo \d.*Install 'kazoo>=2\.11,<3'"):
                session._note_timeout(client)
    assert zookeeper_session.Session is type(session)


@pytest.mark.parametrize(
    "pool",
    [
        SimpleNamespace(),
        SimpleNamespace(connection_class=dict, connection_kwargs={}),
        SimpleNamespace(connection_class=lambda: None, connection_kwargs={"host": "x"}),
    ],
)
def test_a_redis_py_of_another_build_is_refused_in_a_sentence(pool: SimpleNamespace) -> None:
    with pytest.raises(ConfigError, match=r"redis-py \d.*Install 'redis>=5,<9'"):
        redis_client._Lines(pool).exchange([("PING",)])
