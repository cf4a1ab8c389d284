"""Locks in Redis: ``redis://host:6379/0``, ``rediss://`` with TLS, ``redis+sentinel://a,b/service``, ``redis+cluster://a,b``.

Waiters stand in a list in the server and are handed the lock in order; no waiter polls (scripts.py). One request
takes a free lock, one releases it.

    t=0     A asks; the script finds no holder and answers token 7; A holds until t=10 by its own clock
    t=3     B asks, is put into the queue, and blocks for two seconds
    t=4     A releases; the same script gives B token 8 with a lease of 10 s, and wakes it. B holds until t=13:
            10 s after it last asked, which is the one moment that it knows to be before the grant
    t=5     B's machine stops; the server ends its lease at t=14, B knows by t=13 if it runs

**A replicated server may forget**: a replica that takes over without the last writes grants the lock again, and
even the same token. The lease gives progress there, not exclusion (docs/locks/redis.md); ``token_above=`` lifts the counter.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from typing import Any, cast
from urllib.parse import quote

from ...environment import Environment
from ...errors import ConfigError, LakeLatchError, LockError, LockUnavailableError
from ..core import Backend, Contender, Grant, LeasedLocks, LockRequest, break_of, fields_of
from ..interface import BREAKS_KEPT, BreakRecord, Holder, Release
from ..lock_url import LEASE_S, LockUrl, parse_lock_url
from .address import OPTIONS, Address
from .client import Server, how_it_connects
from .scripts import ACQUIRE, BREAK, INSPECT, LEAVE, RELEASE, RENEW, Script

_log = logging.getLogger("lakelatch.locks")

_BLOCK_S_MAX = 2.0  # how often a waiter shows that it lives, and checks that the holder does
_TICKET_BLOCKS = 3  # a waiter not seen for this many blocks is passed over
_SPREAD_S = 0.1  # spreads the waiters that a silent holder's end would wake all at once
_NAME_MAX = 400
_OWED_MAX = 100  # with more failures than this the server was not merely stopped


def open_redis_locks(url: str, *, env: Environment, lease_s: float = LEASE_S) -> LeasedLocks:
    """Return the provider for a Redis URL. Connects at first use."""
    settings = parse_lock_url(url, options=(*OPTIONS, "wait_replicas"), lease_s=lease_s)
    replicas = settings.options.get("wait_replicas", "0")
    if not (replicas.isascii() and replicas.isdigit()):
        raise ConfigError(f"wait_replicas={replicas!r} is not a number of replicas", url=url)
    address = Address.of(settings, _timeout_s(settings))
    settings = replace(settings, host=address.netloc, path=address.path)
    return LeasedLocks(RedisBackend(Server(address, env), int(replicas), env), settings, env)


def _timeout_s(settings: LockUrl) -> float:
    return min(5.0, max(0.5, settings.lease_s / 6))


def redis_locks_on(client: object, *, env: Environment) -> LeasedLocks:
    """Return a provider with connections like those of ``client``, a `redis.Redis`, whose own are neither used nor closed."""
    options, service = how_it_connects(client)
    db = int(options.get("db") or 0)
    tail = f"/{db}" if db else ""
    if "path" in options:
        settings = LockUrl("redis+unix", "", f"{options['path']}{tail}")
        host = (str(options["path"]), 0)
    elif "host" in options:
        host = (str(options["host"]), int(options.get("port", 6379)))
        settings = LockUrl("redis", f"{host[0]}:{host[1]}", tail)
    else:  # of Sentinel
        host = (service, 0)
        settings = LockUrl("redis+sentinel", service, tail)
    address = Address("", (host,), None, "", db, False, (), _timeout_s(settings))
    return LeasedLocks(RedisBackend(Server(address, env, client), 0, env), settings, env)


@lru_cache(maxsize=256)
def _name(key: str) -> str:
    """Return the Redis key of a lock, the prefix of its other keys. The part in braces decides the slot in a cluster."""
    name = quote(key, safe="/:@+,=~ ")
    if len(name) > _NAME_MAX:
        name = "#" + sha256(name.encode()).hexdigest()  # no other name begins like this
    return f"lakelatch:{{{name}}}"


class RedisBackend(Backend):
    """The scripts on a server. The process keeps nothing but facts about that server."""

    fair = True
    lifts_tokens = True
    above_max = 2**52  # scripts count in doubles, which are exact up to 2^53
    batch_max = 256

    def __init__(self, server: Server, replicas: int, env: Environment) -> None:
        self.env = env
        self.replicas = replicas
        self.requests = 0
        self.durable_tokens = False  # until the server has said that it keeps them
        self.block_s = min(_BLOCK_S_MAX, server.address.timeout_s / 2)
        self.timeout_s = server.address.timeout_s
        self._server = server
        self._facts: dict[str, str] = {}
        self._owed: deque[tuple[str, str]] = deque(maxlen=_OWED_MAX)  # lines that could not be left: lock, owner

    def line_up(self, key: str) -> Contender:
        """Return a contender. Sends nothing: asking and lining up are one request."""
        return RedisContender(self, _name(key))

    def try_grant(self, request: LockRequest, contender: Contender) -> Grant | None:
        """Take a lock that was handed over meanwhile, or ask for it."""
        assert isinstance(contender, RedisContender)
        token = contender.take(request)
        if token is None:
            return None
        grant = RedisGrant(self, contender.lock, request, token, contender.asked_at)
        if self.replicas:
            grant.replicate()
        return grant

    def renew_many(self, grants: Sequence[Grant]) -> list[bool | Exception]:
        """Renew all in one round trip to each server; the result has an error where there was no answer."""
        ours = cast("Sequence[RedisGrant]", grants)
        self.requests += len(ours)
        replies = self._server.run_many(RENEW, [(each.lock, (each.proof, each.lease_ms)) for each in ours])
        return [reply if isinstance(reply, Exception) else reply == 1 for reply in replies]

    def inspect(self, key: str) -> Holder | None:
        """Read the lock, its time left and its waiters.

        ``since`` and ``until`` are by the server's clock.
        """
        value, left_ms, now_ms, waiting = self.run(INSPECT, _name(key))
        if value is None:
            return None
        try:
            owner, token, since_ms, about = value.decode("utf-8", "replace").split("\n", 3)
            told = fields_of(about)
            return Holder(
                key=key, owner=owner, token=int(token), since=int(since_ms) / 1000, until=(int(now_ms) + left_ms) / 1000,
                reason=str(told["reason"]), host=str(told["host"]), pid=int(told["pid"]),
                queue=tuple(each.decode("utf-8", "replace") for each in waiting),
                details={"server": str(self._server.address), **self._facts},
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, OverflowError) as e:
            raise LockError(
                f"The lock {key} on {self._server.address} holds what none of our writers has put there ({e!r:.80}). Make sure "
                f"that no writer runs, then delete {_name(key)}",
                key=key,
            ) from e

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """End the grant that has ``token`` and keep a record; the next waiter gets the lock."""
        record = json.dumps({"token": token, "reason": reason, "who": who, "at": self.env.now()})
        return bool(self.run(BREAK, _name(key), token, record, BREAKS_KEPT))

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """Return the records of `end`."""
        lock = _name(key)
        found = self.call(lock, "LRANGE", f"{lock}:breaks", 0, -1)
        return tuple(record for each in found if (record := break_of(key, fields_of(each))))

    def close(self) -> None:
        """Close idle connections; a lease that is still held opens one for itself."""
        self._server.close()

    def run(self, script: Script, lock: str, *args: Any) -> Any:
        """Run one script, in one request."""
        self._before(lock)
        self.requests += 1
        return self._server.run(script, lock, *args)

    def call(self, lock: str, *command: Any) -> Any:
        """Send one command, in one request."""
        self._before(lock)
        self.requests += 1
        return self._server.call(lock, *command)

    def ask_all(self, lock: str, *commands: tuple[Any, ...]) -> list[Any]:
        """Send several commands on one connection, in one round trip."""
        self.requests += len(commands)
        return self._server.pipeline(lock, *commands)

    def leave(self, lock: str, owner: str, *, doubtful: bool) -> None:
        """Withdraw a request. Without an answer this is repeated before the next request.

        A server that was only stopped would otherwise carry out the old request and grant the lock
        to no live waiter for a whole lease.
        """
        try:
            self._server.run(LEAVE, lock, owner, int(doubtful))
        except LakeLatchError:
            self._owed.append((lock, owner))
            raise

    def _before(self, lock: str) -> None:
        for debt in [each for each in self._owed if self._server.node(each[0]) == self._server.node(lock)]:
            with suppress(ValueError):  # another thread has done the same: twice is fine
                self._owed.remove(debt)
            self.requests += 1
            self.leave(*debt, doubtful=True)
        if not self._facts:
            self._look(lock)

    def _look(self, lock: str) -> None:
        """Check at first use whether this server keeps its counters.

        The result is logged once, and shown by `inspect`.
        """
        told: dict[str, str] = {}
        for reply in self.ask_all(lock, ("INFO", "persistence"), ("INFO", "memory")):
            if isinstance(reply, bytes):
                told |= dict(line.split(":", 1) for line in reply.decode().splitlines() if ":" in line)
        self._facts = {"tokens": _judge(told)}
        self.durable_tokens = self._facts["tokens"] == DURABLE
        if not self.durable_tokens:
            _log.warning("locks at Redis %s: tokens are %s", self._server.address, self._facts["tokens"])


DURABLE = "durable"


def _judge(info: dict[str, str]) -> str:
    """Return whether a server with these facts keeps a counter: "durable", or the reason why not."""
    if "aof_enabled" not in info:
        return "perhaps not kept: the server does not say how it stores (allow this user INFO)"
    faults = []
    if info["aof_enabled"] != "1":
        faults.append("a restart of the server takes them back (appendonly no)")
    if info.get("maxmemory", "0") != "0" and info.get("maxmemory_policy") != "noeviction":
        faults.append(f"a full server drops locks and counters (maxmemory-policy {info.get('maxmemory_policy')})")
    return "perishable: " + " and ".join(faults) if faults else DURABLE


class RedisContender(Contender):
    """A contender in the queue, from the first refused try on."""

    def __init__(self, backend: RedisBackend, lock: str) -> None:
        self.lock = lock
        self.asked_at = 0.0
        self._backend = backend
        self._owner = ""
        self._handed: int | None = None
        self._left_s = 0.0
        self._answered_at: float | None = None
        self._silent = False  # the last request had no answer

    def take(self, request: LockRequest) -> int | None:
        """Return the token that was handed over, or else the server's answer to a new request."""
        backend, now = self._backend, self._backend.env.monotonic()
        token, self._handed = self._handed, None
        if token is not None and now < self.asked_at + request.lease_s / 4:
            # Otherwise most of the lease may be gone: the script below renews a grant that is ours.
            return token
        self._owner, self.asked_at = request.owner, now
        about = {"reason": request.reason, "host": request.process.host, "pid": request.process.pid}
        ticket_ms = int(backend.block_s * _TICKET_BLOCKS * 1000) if request.waits else 0
        try:
            answer = backend.run(
                ACQUIRE,
                self.lock,
                request.owner,
                int(request.lease_s * 1000),
                request.token_above,
                json.dumps(about),
                ticket_ms,
            )
        except LockUnavailableError:
            # A waiter tolerates silence for as long as a holder would: a restart, a fail-over.
            self._silent = True
            if self._answered_at is None or now > self._answered_at + request.lease_s:
                raise
            return None
        self._silent, self._answered_at = False, now
        self._left_s = -answer / 1000
        return answer if answer > 0 else None

    def wait(self, limit_s: float) -> None:
        """Block until the lock is handed over, the holder's lease ends, or it is time to show that we live."""
        backend = self._backend
        until_end_s = self._left_s + backend.env.random() * _SPREAD_S
        # Zero would mean to block for ever.
        block_s = max(0.01, min(limit_s, backend.block_s, until_end_s))
        if self._silent:
            backend.env.sleep(min(limit_s, backend.block_s))
            return
        try:
            found = backend.call(self.lock, "BLPOP", f"{self.lock}:go:{self._owner}", f"{block_s:.3f}")
        except LockUnavailableError:
            self._silent = True
            return
        if found is not None:
            self._handed = int(found[1])

    def leave(self) -> None:
        """Leave the queue. A lock that was handed over at the last moment goes to the next waiter."""
        if self._owner:
            self._backend.leave(self.lock, self._owner, doubtful=self._silent)


class RedisGrant(Grant):
    """The lock's value as it was set for us."""

    def __init__(self, backend: RedisBackend, lock: str, request: LockRequest, token: int, asked_at: float) -> None:
        self.token = token
        self.lock = lock
        self.asked_at = asked_at
        self.lease_ms = int(request.lease_s * 1000)
        self.proof = f"{request.owner}\n{token}\n"
        self._backend = backend

    def renew(self) -> bool:
        return bool(self._backend.run(RENEW, self.lock, self.proof, self.lease_ms))

    def check(self) -> bool:
        value = self._backend.call(self.lock, "GET", self.lock)
        return value is not None and bool(value.startswith(self.proof.encode()))

    def release(self) -> Release:
        # Sent again after a lost reply, the script finds the mark that the first one left, and answers the same.
        return Release.RELEASED if self._backend.run(RELEASE, self.lock, self.proof) else Release.WAS_LOST

    def replicate(self) -> None:
        """Wait until the replicas confirm, or raise. Then the queue is left, which releases the lock."""
        backend, wait_ms = self._backend, int(self._backend.timeout_s * 500)
        # The sign of life is a write of this very connection, and WAIT is about those; it comes after the grant.
        renewal = ("EVAL", RENEW.text, 1, self.lock, self.proof, self.lease_ms)
        ours, copies = backend.ask_all(self.lock, renewal, ("WAIT", backend.replicas, wait_ms))
        for reply in (ours, copies):
            if isinstance(reply, Exception):
                raise LockUnavailableError(
                    f"The replicas of {self.lock!r} cannot be asked: {reply}. The grant was given back", key=self.lock
                ) from reply
        if ours != 1 or copies < backend.replicas:
            raise LockUnavailableError(
                f"A grant of lock {self.lock!r} reached {copies} of the {backend.replicas} replicas that wait_replicas asks "
                f"for, within {wait_ms / 1000:g} s; it was given back. Look at the replicas, or try again",
                key=self.lock, replicas=copies, wanted=backend.replicas,
            )  # fmt: skip
