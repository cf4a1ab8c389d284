"""Translate Hudi's lock options (``hoodie.write.lock.*``) into a lock URL.

A table that is shared with JVM writers is already configured for them: the same keys, passed in here, give the lock
that those writers take. Each option is declared once below, with its translation. An unknown option is refused with a
list of the known ones, because an option that is silently left out may mean another lock.

Two of Hudi's providers derive the key from the table's path: the xxHash64 of the base path with a seed of Hudi's own, a
Java int widened to 64 bits, as 16 upper-case hex digits.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from ..arguments import instance
from ..errors import ConfigError
from ..storage import location
from .lock_url import format_duration, parse_duration

PREFIX = "hoodie.write.lock."
_BASE_PATH, _TABLE_NAME = "hoodie.base.path", "hoodie.table.name"
_PROVIDERS = "org.apache.hudi.client.transaction.lock."
_AWS = "org.apache.hudi.aws.transaction.lock."
_SEED = 0xFFFFFFFFDABADABA

# Hudi's class -> the options that belong to it, without the prefix.
PROVIDERS: Mapping[str, tuple[str, ...]] = {
    _PROVIDERS + "ZookeeperBasedLockProvider": (
        "zookeeper.url", "zookeeper.port", "zookeeper.base_path", "zookeeper.lock_key",
        "zookeeper.session_timeout_ms", "zookeeper.connection_timeout_ms",
    ),
    _PROVIDERS + "ZookeeperBasedImplicitBasePathLockProvider": (
        "zookeeper.url", "zookeeper.port", "zookeeper.session_timeout_ms", "zookeeper.connection_timeout_ms",
    ),
    _AWS + "DynamoDBBasedLockProvider": (
        "dynamodb.table", "dynamodb.partition_key", "dynamodb.region", "dynamodb.endpoint_url", "dynamodb.billing_mode",
        "dynamodb.read_capacity", "dynamodb.write_capacity", "dynamodb.table_creation_timeout",
    ),
    _AWS + "DynamoDBBasedImplicitPartitionKeyLockProvider": (
        "dynamodb.table", "dynamodb.region", "dynamodb.endpoint_url", "dynamodb.billing_mode",
        "dynamodb.read_capacity", "dynamodb.write_capacity", "dynamodb.table_creation_timeout",
    ),
    _PROVIDERS + "StorageBasedLockProvider": (
        "storage.validity.timeout.secs", "storage.renew.interval.secs", "storage.heartbeat.poll.secs",
    ),
    _PROVIDERS + "FileSystemBasedLockProvider": ("filesystem.path", "filesystem.expire"),
    _PROVIDERS + "InProcessLockProvider": (),
}  # fmt: skip

# Known to Hudi for every provider. These pace its retries; ours wait once, for the table's lock_wait_s.
_PACING = (
    "num_retries", "wait_time_ms_between_retry", "max_wait_time_ms_between_retry", "heartbeat_interval_ms",
    "client.num_retries", "client.wait_time_ms_between_retry",
)  # fmt: skip
_FOR_ALL = ("provider", "wait_time_ms", "conflict.resolution.strategy", *_PACING)

_STRATEGIES = {
    "SimpleConcurrentFileWritesConflictResolutionStrategy": "simple",
    "BucketIndexConcurrentFileWritesConflictResolutionStrategy": "bucket",
    "PreferWriterConflictResolutionStrategy": "prefer-writer",
    "IngestionPrimaryWriterBasedConflictResolutionStrategy": "prefer-writer",
}


def lock_url(options: Mapping[str, str], *, table_name: str, base_path: str) -> str:
    """Return the lock URL that means what the options mean to a JVM writer of this table."""
    instance(options, Mapping, "options", 'options by name, as {"hoodie.write.lock.provider": ...}')
    return str(table_settings(options, table_name=table_name, base_path=base_path)["lock"])


def table_settings(
    options: Mapping[str, str], *, table_name: str, base_path: str, environ: Mapping[str, str] = os.environ
) -> dict[str, Any]:
    """Return a table's settings from the options: ``lock``, and where given ``lock_wait_s`` and ``strategy``.

    Args:
        options: keys as JVM writers have them, ``hoodie.base.path`` and ``hoodie.table.name`` among them if need be.
        table_name: the table's name in Hudi, from which some keys are derived.
        base_path: the table's place, spelled as JVM writers spell it: two of Hudi's providers hash it.
    """
    given = _Given(options, table_name, base_path, environ)
    name = given.text("provider") or _PROVIDERS + "ZookeeperBasedLockProvider"
    found = [known for known in PROVIDERS if name in (known, known.rpartition(".")[2])]
    if not found:
        hive = " Hive Metastore locks are not supported." if "HiveMetastore" in name else ""
        raise ConfigError(f"There is no lock for {PREFIX}provider={name}.{hive} Known are {', '.join(PROVIDERS)}")
    given.refuse_others(found[0])
    settings: dict[str, Any] = {"lock": _URLS[found[0].rpartition(".")[2]](given)}
    if wait_ms := given.number("wait_time_ms"):
        settings["lock_wait_s"] = wait_ms / 1000
    if strategy := given.text("conflict.resolution.strategy"):
        short = strategy.rpartition(".")[2]
        if short not in _STRATEGIES:
            raise ConfigError(f"There is no conflict strategy for {strategy}; known are {', '.join(_STRATEGIES)}")
        settings["strategy"] = _STRATEGIES[short]
    return settings


class _Given:
    """The options, read by their short names."""

    def __init__(self, options: Mapping[str, str], table_name: str, base_path: str, environ: Mapping[str, str]) -> None:
        self._options, self.environ = options, environ
        self.table_name = options.get(_TABLE_NAME, table_name)
        self.base_path = options.get(_BASE_PATH, base_path)

    def text(self, key: str, default: str = "") -> str:
        return self._options.get(PREFIX + key, default).strip()

    def needed(self, key: str) -> str:
        if not (value := self.text(key)):
            raise ConfigError(f"{PREFIX}{key} is missing; Hudi's provider needs it, and so does ours", key=PREFIX + key)
        return value

    def number(self, key: str) -> int | None:
        text = self.text(key)
        if text and not re.fullmatch("[0-9]{1,18}", text):
            raise ConfigError(f"{PREFIX}{key}={text!r} is not a whole number", key=PREFIX + key)
        return int(text) if text else None

    def refuse_others(self, provider: str) -> None:
        known = {PREFIX + key for key in (*_FOR_ALL, *PROVIDERS[provider])} | {_BASE_PATH, _TABLE_NAME}
        if unknown := sorted(set(self._options) - known):
            raise ConfigError(
                f"Options that {provider.rpartition('.')[2]} does not have: {', '.join(unknown)}. It has "
                f"{', '.join(sorted(known))}",
                unknown=unknown,
            )


def _zookeeper(given: _Given) -> str:
    return _zk(given, "/" + given.needed("zookeeper.base_path").strip("/"), given.text("zookeeper.lock_key"))


def _zookeeper_implicit(given: _Given) -> str:
    return _zk(given, f"/tmp/{implicit_key(given.base_path)}", "lock_key")  # noqa: S108 - a znode, Hudi's own


def _zk(given: _Given, folder: str, key: str) -> str:
    hosts, slash, chroot = given.needed("zookeeper.url").partition("/")
    port = given.number("zookeeper.port")
    if port not in (None, 2181) and any(":" not in host for host in hosts.split(",")):
        # Hudi connects to the URL as it stands, where a host without a port means 2181.
        raise ConfigError(f"Hudi ignores {PREFIX}zookeeper.port={port}; write it into zookeeper.url, as host:{port}")
    session_ms = given.number("zookeeper.session_timeout_ms")
    return _url(
        f"zk://{hosts}{slash}{chroot.rstrip('/')}{folder}",
        key=key or given.table_name,
        session=format_duration(session_ms / 1000) if session_ms else "",
    )


def _dynamodb(given: _Given) -> str:
    return _ddb(given, given.text("dynamodb.partition_key") or given.table_name)


def _dynamodb_implicit(given: _Given) -> str:
    return _ddb(given, implicit_key(given.base_path))


def _ddb(given: _Given, key: str) -> str:
    region = given.text("dynamodb.region") or given.environ.get("AWS_REGION") or "us-east-1"
    mode = given.text("dynamodb.billing_mode", "PAY_PER_REQUEST")
    if mode not in ("PAY_PER_REQUEST", "PROVISIONED"):
        raise ConfigError(f"{PREFIX}dynamodb.billing_mode={mode!r} is neither PAY_PER_REQUEST nor PROVISIONED")
    wait_ms = given.number("wait_time_ms")  # which is also the lease that Hudi's provider takes
    return _url(
        f"dynamodb://{region}/{given.text('dynamodb.table') or 'hudi_locks'}",
        key=key,
        endpoint=given.text("dynamodb.endpoint_url"),
        create="0" if mode == "PROVISIONED" else "",  # we make tables on demand only, so that one has to be there
        lease=format_duration(wait_ms / 1000) if wait_ms else "",
    )


def _storage(given: _Given) -> str:
    place = location.parse(given.base_path)
    if place.kind == "file":
        raise ConfigError(
            f"Hudi's storage-based lock needs a table on an object store, and {given.base_path} is none; use "
            "FileSystemBasedLockProvider, or another lock",
        )
    validity_s = given.number("storage.validity.timeout.secs")
    return _url(
        f"{place.kind}://{place.bucket}/{quote(place.path)}",
        account_name=place.account,
        layout="hudi",
        lease=format_duration(float(validity_s)) if validity_s else "",
    )


def _file(given: _Given) -> str:
    folder = given.text("filesystem.path") or given.base_path.rstrip("/") + "/.hoodie"
    place = location.parse(folder)
    if place.kind != "file":
        raise ConfigError(f"{folder} is no folder of a local file system; Hudi's file lock is supported there only")
    minutes = given.number("filesystem.expire")
    return _url("file://" + quote(place.path), jvm="lock", jvm_expire=f"{minutes}m" if minutes else "")


def _in_process(given: _Given) -> str:  # noqa: ARG001 - like the others
    return "memory://hudi"


_URLS: Mapping[str, Callable[[_Given], str]] = {
    "ZookeeperBasedLockProvider": _zookeeper,
    "ZookeeperBasedImplicitBasePathLockProvider": _zookeeper_implicit,
    "DynamoDBBasedLockProvider": _dynamodb,
    "DynamoDBBasedImplicitPartitionKeyLockProvider": _dynamodb_implicit,
    "StorageBasedLockProvider": _storage,
    "FileSystemBasedLockProvider": _file,
    "InProcessLockProvider": _in_process,
}


def _url(place: str, **query: str) -> str:
    tail = urlencode({name: value for name, value in query.items() if value}, quote_via=quote, safe="/:,")
    return f"{place}?{tail}" if tail else place


def implicit_key(base_path: str) -> str:
    """Return the key for a table at ``base_path``, spelled as JVM writers configure it (a final ``/`` counts)."""
    try:
        import xxhash
    except ModuleNotFoundError as e:
        raise ConfigError(
            "Hudi's implicit lock keys need xxhash; run pip install 'lakelatch[zookeeper]' or 'lakelatch[dynamodb]'",
        ) from e
    path = re.sub("^s3a://", "s3://", base_path, flags=re.IGNORECASE)
    return xxhash.xxh64_hexdigest(path.encode(), seed=_SEED).upper()


def hudi_options(url: str) -> dict[str, str]:
    """Return the options with which a JVM writer takes the lock of this URL: the reverse of `lock_url`.

    Raises:
        ConfigError: no provider of Hudi takes this lock.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    place = unquote(parts.path)
    match parts.scheme:
        case "zk" | "zookeeper" if "key" in query:
            provider, options = "ZookeeperBasedLockProvider", {
                "zookeeper.url": parts.netloc, "zookeeper.base_path": place or "/", "zookeeper.lock_key": query["key"],
                "zookeeper.session_timeout_ms": _ms(query.get("session")),
            }  # fmt: skip
        case "dynamodb" if "key" in query:
            provider, options = "DynamoDBBasedLockProvider", {
                "dynamodb.region": parts.netloc, "dynamodb.table": place.strip("/"), "dynamodb.partition_key": query["key"],
                "dynamodb.endpoint_url": query.get("endpoint", ""),
            }  # fmt: skip
        case "file" if "jvm" in query:
            expire_s = _seconds(query.get("jvm_expire"))
            provider, options = "FileSystemBasedLockProvider", {
                "filesystem.path": place, "filesystem.expire": f"{expire_s / 60:g}" if expire_s else "",
            }  # fmt: skip
        case _ if query.get("layout") == "hudi":
            lease_s = _seconds(query.get("lease"))
            provider = "StorageBasedLockProvider"
            options = {"storage.validity.timeout.secs": f"{lease_s:g}" if lease_s else ""}
        case _:
            raise ConfigError(
                f"No lock provider of Hudi takes {url}; docs/neighbours.md lists the locks that both take"
            )
    owner = _AWS if provider.startswith("Dynamo") else _PROVIDERS
    given = {"provider": owner + provider} | {key: value for key, value in options.items() if value}
    return {PREFIX + key: value for key, value in given.items()}


def _seconds(text: str | None) -> float | None:
    return parse_duration(text, what="a duration in a lock URL") if text else None


def _ms(text: str | None) -> str:
    seconds = _seconds(text)
    return f"{seconds * 1000:.0f}" if seconds else ""
