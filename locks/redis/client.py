"""Requests to Redis: one server, a master that Sentinel names, or the cluster node of a key. The only user of redis-py.

Every request is bounded in time. It is sent a second time, on a new connection, when a connection that had worked
fails: every request here may be repeated (scripts.py). Connections are kept in our own stack, not in redis-py's pool,
which checks each one for readability before every command; a broken one shows at its use.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    AuthenticationError,
    NoPermissionError,
    NoScriptError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.retry import Retry
from redis.sentinel import Sentinel

from ...environment import Environment, Process
from ...errors import ConfigError, LakeLatchError, LockUnavailableError
from ..lock_url import check_readable
from .address import Address
from .scripts import Script

PASSWORD = "LAKELATCH_REDIS_PASSWORD"  # noqa: S105 (the name of a variable)
SENTINEL_PASSWORD = "LAKELATCH_REDIS_SENTINEL_PASSWORD"  # noqa: S105

_TIMES = 2  # how often a cluster's slots are read again and a request is sent again
_FORBIDDEN = ("no permissions", "can't run this command", "can't access at least one")  # in a script: 7.2, 7.0, 6
# TLS errors: the server's certificate, or ours.
_UNTRUSTED = ("CERTIFICATE_", "ALERT_UNKNOWN_CA", "HANDSHAKE_FAILURE", "KEY_VALUES_MISMATCH", "PEM lib")
_WRONG = "invalid username-password pair"
_NAMED = re.compile(r"Error -?[0-9]+ connecting to \S+\. | : <redis\..*>(?= - )")
_Command = tuple[Any, ...]
_FAILURES = (RedisError, RedisClusterException, OSError)


class _Lines:
    """Open connections to one server, the last used first."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._idle: list[Any] = []

    def exchange(self, commands: Sequence[_Command]) -> list[Any]:
        """Return the replies, among them errors of single commands. Raises when the connection fails twice."""
        try:
            line = self._idle.pop()
        except IndexError:
            return self._on_a_new_line(commands)
        try:
            return self._send(line, commands)
        except (redis.ConnectionError, redis.TimeoutError, OSError):
            self.close()  # its neighbours are likely to be as old
            return self._on_a_new_line(commands)

    def _on_a_new_line(self, commands: Sequence[_Command]) -> list[Any]:
        try:
            line = self._pool.connection_class(**self._pool.connection_kwargs)
            _ = line.send_packed_command, line.read_response
        except (AttributeError, TypeError) as e:
            raise ConfigError(
                f"The connections of redis-py {redis.__version__} are built otherwise ({e}); nothing was locked. "
                "Install 'redis>=5,<9'"
            ) from e
        line.connect()
        return self._send(line, commands)

    def _send(self, line: Any, commands: Sequence[_Command]) -> list[Any]:
        replies: list[Any] = []
        try:
            line.send_packed_command([b"".join(map(_packed, commands))])
            for _ in commands:
                try:
                    replies.append(line.read_response())
                except ResponseError as e:
                    replies.append(e)
        except BaseException:  # an unread reply would answer the next question
            line.disconnect()
            raise
        self._idle.append(line)
        return replies

    def close(self) -> None:
        while self._idle:
            self._idle.pop().disconnect()


class _Recipe:
    """The way a user's pool makes connections, with our time limits and the plain protocol."""

    def __init__(self, pool: Any, timeout_s: float) -> None:
        self.connection_class = pool.connection_class
        ours = {"socket_timeout": timeout_s, "retry": Retry(NoBackoff(), 0), "protocol": 2, "decode_responses": False}
        if "socket_connect_timeout" in pool.connection_kwargs:
            ours["socket_connect_timeout"] = timeout_s
        # redis-py's pool changes time-outs and addresses of its own connections by these.
        theirs = {k: v for k, v in pool.connection_kwargs.items() if not k.startswith(("maint_", "orig_"))}
        self.connection_kwargs = theirs | ours


def how_it_connects(client: object) -> tuple[Mapping[str, Any], str]:
    """Return the arguments of a user's client for its connections, and the service if Sentinel names the server."""
    if not isinstance(client, redis.Redis):
        raise ConfigError(
            f"Locks need a redis.Redis, not {type(client).__module__}.{type(client).__qualname__}. For a cluster write "
            "redis+cluster://host; `async with` takes a redis.Redis too"
        )
    pool = client.connection_pool
    return pool.connection_kwargs, str(getattr(pool, "service_name", ""))


def _packed(command: _Command) -> bytes:
    """Return one command encoded for the protocol. redis-py's encoder takes as long as the rest of a request together."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in command]
    return b"*%d\r\n" % len(words) + b"".join([b"$%d\r\n%b\r\n" % (len(word), word) for word in words])


class Server:
    """The way to the server that answers for a key."""

    def __init__(self, address: Address, env: Environment, like: Any = None) -> None:
        self.address = address
        self._like = like  # a user's client, whose connections ours are made like
        self._env = env
        self._process: Process | None = None
        self._cluster: Any = None  # a RedisCluster, most of which has no types
        self._lines: dict[str, _Lines] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle no sockets."""
        if self._like is not None:
            raise ConfigError("Locks on a redis-py client cannot be sent to another process; open them by URL there")
        return {**self.__dict__, "_process": None, "_cluster": None, "_lines": {}}

    def run(self, script: Script, key: str, *args: Any) -> Any:
        """Return the script's answer. A server that does not know the script learns it."""
        try:
            return self.call(key, "EVALSHA", script.sha, 1, key, *args)
        except NoScriptError:  # new, restarted or flushed
            return self.call(key, "EVAL", script.text, 1, key, *args)

    def run_many(self, script: Script, each: Sequence[tuple[str, _Command]]) -> list[Any]:
        """Return one answer or error for each key and its arguments, in one round trip for each server."""
        replies: list[Any] = [None] * len(each)
        groups: dict[str, list[int]] = {}
        for number, (key, _) in enumerate(each):
            groups.setdefault(self.node(key), []).append(number)
        for numbers in groups.values():
            commands = [("EVALSHA", script.sha, 1, each[n][0], *each[n][1]) for n in numbers]
            try:
                found = self.pipeline(each[numbers[0]][0], *commands)
            except LakeLatchError as e:
                found = [e] * len(numbers)
            for n, reply in zip(numbers, found, strict=True):
                replies[n] = self._alone(script, *each[n]) if isinstance(reply, ResponseError) else reply
        return replies

    def _alone(self, script: Script, key: str, args: _Command) -> Any:
        try:
            return self.run(script, key, *args)
        except LakeLatchError as e:
            return e

    def call(self, key: str, *command: Any) -> Any:
        """Return the reply of the server that has ``key``. Raises `LakeLatchError`, or `NoScriptError`."""
        try:
            if self.address.mode == "cluster":
                return self._clustered().execute_command(*command)
            (reply,) = self._line(key).exchange((command,))
            if isinstance(reply, ResponseError):
                raise reply
            return reply
        except NoScriptError:
            raise
        except _FAILURES as e:
            raise self._told(e) from e

    def pipeline(self, key: str, *commands: _Command) -> list[Any]:
        """Return the replies to several commands on one connection; an error of one is its reply."""
        try:
            return self._line(key).exchange(commands)
        except _FAILURES as e:
            raise self._told(e) from e

    def close(self) -> None:
        """Close idle connections; a later request opens one again."""
        for lines in self._lines.values():
            lines.close()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def _here(self) -> None:
        # New, unpickled, or a child of fork: its parent's sockets stay alone.
        if self._env.process() != self._process:
            self._process, self._cluster, self._lines = self._env.process(), None, {}

    def node(self, key: str) -> str:
        """Return the name of the server that has ``key``."""
        if self.address.mode != "cluster":
            return ""
        try:
            return str(self._clustered().get_node_from_key(key).name)
        except _FAILURES as e:
            raise self._told(e) from e

    def _clustered(self) -> Any:
        self._here()
        if self._cluster is None:
            nodes = [ClusterNode(host, port) for host, port in self.address.hosts]  # type: ignore[no-untyped-call]
            options = _options(self.address) | {"retry": Retry(NoBackoff(), _TIMES)}
            self._cluster = RedisCluster(startup_nodes=nodes, **options)
        return self._cluster

    def _line(self, key: str) -> _Lines:
        self._here()
        name = self.node(key)
        lines = self._lines.get(name)
        if lines is None:
            lines = self._lines.setdefault(name, _Lines(self._pool(key)))
        return lines

    def _pool(self, key: str) -> Any:
        """Return redis-py's pool, used only as a recipe for connections."""
        if self._like is not None:
            return _Recipe(self._like.connection_pool, self.address.timeout_s)
        address, options = self.address, _options(self.address)
        if address.mode == "cluster":
            cluster = self._clustered()
            return cluster.get_redis_connection(cluster.get_node_from_key(key)).connection_pool
        if address.mode == "sentinel":
            theirs = options | {"password": os.environ.get(SENTINEL_PASSWORD), "username": None}
            sentinel: Any = Sentinel(address.hosts, sentinel_kwargs=theirs, **options)  # type: ignore[no-untyped-call]
            return sentinel.master_for(address.service, db=address.db).connection_pool
        ((host, port),) = address.hosts
        return redis.Redis(host=host, port=port, db=address.db, **options).connection_pool

    def _told(self, error: Exception) -> LakeLatchError:
        """Return our error for one of redis-py's, with the server and the next step."""
        # redis-py names the address again, or shows a whole client.
        text = _NAMED.sub("", str(error)).rstrip(". ") or type(error).__name__
        where = f"Redis at {self.address}"
        if isinstance(error, NoPermissionError) or any(words in text for words in _FORBIDDEN):
            return ConfigError(
                f"{where} forbids a command: {text}. Give the user what docs/locks/redis.md lists",
                host=str(self.address),
            )
        if _WRONG in text or text == "Authentication required":
            what, with_ = ("wrong", "that") if _WRONG in text else ("no", "none")
            user = f"user {self.address.user!r}" if self.address.user else "the default user"
            return ConfigError(
                f"{what} password: {where} does not let {user} in with {with_} of {PASSWORD} ({text})",
                host=str(self.address),
            )
        if isinstance(error, AuthenticationError) or any(words in text for words in _UNTRUSTED):
            return ConfigError(
                f"{where} and this client do not trust each other: {text}. The user stands in the URL, the password in "
                f"{PASSWORD}; ca=PATH names the certificate that signs the server's, cert=PATH and cert_key=PATH our own",
                host=str(self.address),
            )
        if "EOF occurred in violation of protocol" in text:
            text += " (as by a server that wants a certificate of its clients: cert=PATH and cert_key=PATH)"
        return LockUnavailableError(
            f"{where} did not do what was asked, within {self.address.timeout_s:g} s and again on a new connection "
            f"where one had worked: {text}. No lock is taken by this; trying again is safe",
            host=str(self.address), cause=text,
        )  # fmt: skip


def _options(address: Address) -> dict[str, Any]:
    """Return keyword arguments that every client of redis-py takes."""
    found: dict[str, Any] = {
        "socket_timeout": address.timeout_s,
        "socket_connect_timeout": address.timeout_s,
        "socket_keepalive": True,
        "retry": Retry(NoBackoff(), 0),
        "protocol": 2,
        "username": address.user,
        "password": os.environ.get(PASSWORD),
    }
    if address.tls:
        check_readable(path for _, path in address.files)
        found |= {"ssl": True, "ssl_cert_reqs": "required", "ssl_check_hostname": True, **dict(address.files)}
    return found
