"""Lock libraries without tables, for the scenarios of bare locks: each on the first ``--lock`` server that it can use."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from ...errors import ConfigError
from .. import rows
from ..works import Note
from .interface import Configuration

if TYPE_CHECKING:
    import pyarrow as pa

_LEASE_S = 30  # as ours


@dataclass(frozen=True, slots=True)
class _Client:
    """One process's lock, with ``acquire`` and ``release``, and the end of its connection."""

    lock: Any
    close: Callable[[], object]


class _BareLock(ABC):
    """A system that only holds locks; a subclass makes its client."""

    works: ClassVar[frozenset[str]] = frozenset({"hold"})
    schemes: ClassVar[tuple[str, ...]] = ()
    modules: ClassVar[tuple[str, ...]] = ()

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings
        self._urls: Sequence[str] = settings.get("locks", ())

    @property
    def url(self) -> str:
        """The server. Raises `ConfigError` if no suitable one was given."""
        for url in self._urls:
            if urlsplit(url).scheme in self.schemes:
                return url
        raise ConfigError(f"{type(self).__name__} needs a server: say --lock {self.schemes[0]}://...")

    def create(self, place: str, first: pa.Table) -> None:  # noqa: ARG002 - there is no table
        client = self.client(place)
        client.lock.acquire()
        client.lock.release()
        client.close()

    def open(self, place: str, writer: str, priority: int) -> _Session:  # noqa: ARG002 - all are the same
        return _Session(self.client(place))

    def rows(self, place: str) -> pa.Table:  # noqa: ARG002 - there is no table
        return rows.SCHEMA.empty_table()

    @abstractmethod
    def client(self, place: str) -> _Client: ...


class _Session:
    def __init__(self, client: _Client) -> None:
        self._lock, self.close = client.lock, client.close

    def hold(self, note: Note) -> None:
        note.attempt()
        self._lock.acquire()
        try:
            note.think()
        finally:
            self._lock.release()
        note.landed("", [])


def _name(place: str) -> str:
    """Return a name shared by all processes of a run, and by no other run."""
    return f"lakelatch-bench-{hashlib.sha256(place.encode()).hexdigest()[:16]}"


class RedisPy(_BareLock):
    """`redis.lock.Lock`."""

    package: ClassVar[str] = "redis"
    schemes = ("redis",)
    modules = ("redis",)
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration("best", "looks every 5 ms, lease 30 s", {"sleep": 0.005}),
        Configuration("default", "looks every 100 ms, lease 30 s", {"sleep": 0.1}),
    )

    def client(self, place: str) -> _Client:
        import redis

        connection = redis.Redis.from_url(self.url.partition("?")[0])
        lock = connection.lock(_name(place), timeout=_LEASE_S, sleep=self.settings.get("sleep", 0.1))
        return _Client(lock, connection.close)


class PythonRedisLock(_BareLock):
    """`redis_lock.Lock`, without its renewal, which is a thread for every turn."""

    package: ClassVar[str] = "python-redis-lock"
    schemes = ("redis",)
    modules = ("redis", "redis_lock")
    configurations: ClassVar[tuple[Configuration, ...]] = (Configuration("best", "lease 30 s, without renewal"),)

    def client(self, place: str) -> _Client:
        import redis
        import redis_lock

        connection = redis.StrictRedis.from_url(self.url.partition("?")[0])
        return _Client(redis_lock.Lock(connection, _name(place), expire=_LEASE_S), connection.close)


class Kazoo(_BareLock):
    """`kazoo.recipe.lock.Lock`."""

    package: ClassVar[str] = "kazoo"
    schemes = ("zk",)
    modules = ("kazoo",)
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration("best", "the recipe as it comes, session 30 s"),
    )

    def client(self, place: str) -> _Client:
        from kazoo.client import KazooClient
        from kazoo.exceptions import NoNodeError, NotEmptyError

        parts = urlsplit(self.url)
        client = KazooClient(hosts=parts.netloc, timeout=_LEASE_S)
        client.start(timeout=60)
        path = f"{parts.path.rstrip('/')}/{_name(place)}"

        def close() -> None:
            with suppress(NoNodeError, NotEmptyError):  # the last client removes the node
                client.delete(path)
            client.stop()
            client.close()

        return _Client(client.Lock(path), close)


class PythonDynamodbLock(_BareLock):
    """`DynamoDBLockClient`. Its table is named after ours and stays, empty: DynamoDB takes long to drop one."""

    package: ClassVar[str] = "python-dynamodb-lock"
    schemes = ("dynamodb",)
    modules = ("boto3", "python_dynamodb_lock")
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration("best", "looks every 5 ms, lease 30 s, waits for up to an hour", {"sleep": 0.005, "wait": 3600}),
        Configuration("default", "looks as often as it sends heartbeats (5 s), lease 30 s, gives up after 35 s"),
    )

    def client(self, place: str) -> _Client:
        lock = _DynamoDb(self.url, _name(place), self.settings)
        return _Client(lock, lock.close)


class _DynamoDb:
    def __init__(self, url: str, name: str, settings: Mapping[str, Any]) -> None:
        import boto3
        from python_dynamodb_lock.python_dynamodb_lock import DynamoDBLockClient

        parts = urlsplit(url)
        endpoint = parse_qs(parts.query).get("endpoint", [None])[0]
        resource = boto3.resource("dynamodb", region_name=parts.netloc, endpoint_url=endpoint)
        table = f"{parts.path.strip('/')}-python-dynamodb-lock"
        _make(resource.meta.client, table)
        self._client, self._name = resource.meta.client, name
        self._waits = {
            option: timedelta(seconds=settings[given])
            for option, given in (("retry_period", "sleep"), ("retry_timeout", "wait"))
            if given in settings
        }
        self._locks = DynamoDBLockClient(resource, table_name=table)
        self._lock: Any = None

    def acquire(self) -> None:
        self._lock = self._locks.acquire_lock(self._name, **self._waits)

    def release(self) -> None:
        self._lock.release(best_effort=False)

    def close(self) -> None:
        self._locks.close()
        self._client.close()


def _make(client: Any, table: str) -> None:
    """Make the table with the keys that the library wants, unless another process has."""
    names = {"lock_key": "HASH", "sort_key": "RANGE"}
    with suppress(client.exceptions.ResourceInUseException):
        client.create_table(
            TableName=table,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in names.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
            BillingMode="PAY_PER_REQUEST",
        )
    client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1})


class FileLocks(_BareLock):
    """`filelock.FileLock`, in the folder of the run."""

    package: ClassVar[str] = "filelock"
    modules = ("filelock",)
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration("best", "looks every 5 ms", {"poll_interval": 0.005}),
        Configuration("default", "looks every 50 ms", {"poll_interval": 0.05}),
    )

    def client(self, place: str) -> _Client:
        from filelock import FileLock

        if "://" in place and not place.startswith("file://"):
            raise ConfigError(f"filelock is measured in a local folder only, not at {place.partition('://')[0]}://")
        folder = Path(place.removeprefix("file://"))
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / "lock", poll_interval=self.settings.get("poll_interval", 0.05))
        return _Client(lock, lambda: None)
