"""Locks in ZooKeeper: ``zk://a:2181,b:2181/base?session=30s&key=flights``.

A lock is a node, its contenders are children as Curator's ``InterProcessMutex`` names them: ephemeral, sequential,
``_c_<uuid>-lock-<10 digits>``. The lowest number holds the lock; every other contender watches the one before it. So
Curator, and with it Hudi's ``ZookeeperBasedLockProvider``, share one queue with us.

    t=0     A makes ...0007 and sees nothing lower: A holds, its token is the zxid that made the node
    t=0.1   B makes ...0008, sees ...0007 and watches it
    t=3     A proves that its node is there, by a request that a majority takes part in: held until t=3 + lease
    t=4     A's host loses its network; A tries to renew, in vain
    t=3 + lease      A knows by its own clock that it has lost
    t=4 + session    the servers remove ...0007; B's watch fires, B sees nothing lower: B holds

The lease is at most half of the session time-out that the servers granted (session.py says why), so A knows
first. One thread of the leader gives the numbers and counts zxids in one order, so tokens grow with every grant.
They go back only when the ensemble is rebuilt; then a grant above a token it never gave is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from ...environment import Environment, Process
from ...errors import ConfigError, LockUnavailableError
from ..core import EXPIRED, STOLEN, Backend, Contender, Grant, LeasedLocks, LockRequest, break_of
from ..interface import BreakRecord, Holder, Release
from ..lock_url import LEASE_S, LockUrl, parse_duration, parse_lock_url
from . import nodes
from .session import Address, NoAnswerError, Session

_OPTIONS = ("session", "tls", "ca", "cert", "cert_key")
_SESSION_S_MIN, _SESSION_S_MAX = 1.0, 24 * 3600.0
_LINE_SHOWN = 50  # the waiters that `inspect` names
_NUMBER_MAX = 2_147_000_000  # a parent counts its children in 32 bits, and then continues below zero
_BASE = "/lakelatch"  # of locks on a user's client
_T = TypeVar("_T")


def open_zookeeper_locks(url: str, *, env: Environment, lease_s: float = LEASE_S) -> LeasedLocks:
    """Return the provider for a ``zk://`` URL; connects at first use."""
    settings = parse_lock_url(url, options=_OPTIONS, lease_s=lease_s)
    options = settings.options
    if not settings.host:
        raise ConfigError(f"{url!r} names no server; write for example zk://host:2181/locks", url=url)
    tls = options.get("tls", "0")
    if tls not in ("0", "1", "chain"):
        raise ConfigError(
            f"tls={tls!r} in {url!r} means nothing; write tls=1, or tls=chain where host names are not in the servers' "
            "certificates", url=url,
        )  # fmt: skip
    if tls == "0" and {"ca", "cert", "cert_key"} & set(options):
        raise ConfigError(f"{url!r} names certificates but does not use TLS; add tls=1", url=url)
    if "session" in options:
        session_s = parse_duration(options["session"], what="session")
        if not _SESSION_S_MIN <= session_s <= _SESSION_S_MAX:
            raise ConfigError(f"A session time-out of {session_s:g} s cannot work; choose 1 s to 24 h", url=url)
    else:
        session_s = min(max(4.0, 2 * settings.lease_s), _SESSION_S_MAX)  # with the default lease 60 s, as Hudi asks for
    base = settings.path.strip("/")
    _check_path(base, url)
    _check_path(settings.key, url)
    hosts = ",".join(host if re.search(":[0-9]+$", host) else f"{host}:2181" for host in settings.host.split(","))
    place = LockUrl("zk", hosts, f"/{base}", settings.lease_s, settings.max_hold_s, settings.key, options)
    address = Address(
        hosts, session_s, tls=tls != "0", check_hostname=tls == "1", ca=options.get("ca"), cert=options.get("cert"),
        cert_key=options.get("cert_key"),
    )  # fmt: skip
    return LeasedLocks(ZooKeeperBackend(address, f"/{base}".rstrip("/"), settings.key, env), place, env)


def zookeeper_locks_on(client: object, *, env: Environment) -> LeasedLocks:
    """Return a provider on a session of its own, made like ``client``'s, below ``/lakelatch`` in its chroot.

    ``client``, a `KazooClient`, is neither used nor closed: a lease has to know the session time-out that the servers
    granted, which kazoo keeps to itself.
    """
    if not isinstance(client, KazooClient):
        raise ConfigError(
            f"Locks need a kazoo.client.KazooClient, not {type(client).__module__}.{type(client).__qualname__}"
        )
    hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in client.hosts)
    place = LockUrl("zk", hosts, f"{client.chroot}{_BASE}")
    address = Address(hosts, 2 * place.lease_s, like=client)
    return LeasedLocks(ZooKeeperBackend(address, _BASE, "", env), place, env)


def _check_path(path: str, url: str) -> None:
    if any(part in (".", "..") for part in path.split("/")) or "//" in path or re.search(r"[\x00-\x1f\x7f-\x9f]", path):
        raise ConfigError(f"{path!r} in {url!r} is not a path that ZooKeeper allows", url=url)


class ZooKeeperBackend(Backend):
    """One session per process, opened when it is needed."""

    fair = True
    durable_tokens = True
    lifts_tokens = False
    batch_max = 256

    def __init__(self, address: Address, base: str, fixed_key: str, env: Environment) -> None:
        self.requests = 0
        self._address = address
        self._base = base
        self._fixed_key = fixed_key
        self._env = env
        self._sessions: dict[Process, Session] = {}

    def __getstate__(self) -> dict[str, object]:
        if self._address.like is not None:
            raise ConfigError("Locks on a KazooClient cannot be sent to another process; open them by URL there")
        return {"address": self._address, "base": self._base, "fixed_key": self._fixed_key, "env": self._env}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def lease_s_max(self) -> float:
        """Return the longest lease that the session allows, in seconds. Connects if need be."""
        session = self._session()
        session.open()
        return session.lease_s

    def line_up(self, key: str) -> Contender:
        """Return a contender that makes its node at the first try."""
        return ZooKeeperContender(self._session(), self._folder(key), self._env)

    def try_grant(self, request: LockRequest, contender: Contender) -> Grant | None:
        """Hold if no contender stands before us.

        A waiter sits out a lost connection; its place may still be there.
        """
        assert isinstance(contender, ZooKeeperContender)
        if not request.waits:
            return self._twice(lambda: contender.try_grant(request))
        try:
            return contender.try_grant(request)
        except NoAnswerError as e:
            contender.ahead, contender.failure = None, e
            return None

    def renew_many(self, grants: Sequence[Grant]) -> list[bool | Exception]:
        """Renew all of them in one request."""
        ours = cast("Sequence[ZooKeeperGrant]", grants)
        # By a request and not by the session's state: a server that lost its majority answers nobody, and does not
        # say so.
        there = self._session().are_there([grant.path for grant in ours])
        for grant in ours:
            grant.watch()
        return list(there)

    def inspect(self, key: str) -> Holder | None:
        """Return the lowest child as its maker described it, and the contenders behind it."""
        return self._twice(lambda: self._inspect(key))

    def _inspect(self, key: str) -> Holder | None:
        session, folder = self._session(), self._folder(key)
        while True:
            names = nodes.line(session, folder, fresh=True)
            if not names:
                return None
            shown = names[: _LINE_SHOWN + 1]
            found = [nodes.read(session, f"{folder}/{name}") for name in shown]
            if found[0] is not None:
                break  # otherwise the holder has left meanwhile
        value, stat = found[0]
        return Holder(
            key=key, token=stat.czxid, queue=tuple(each[0]["owner"] for each in found[1:] if each is not None),
            details={"node": f"{folder}/{names[0]}"}, **value | {"until": None},
        )  # fmt: skip

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """Remove the holder's node and keep a record, both in one transaction."""
        session, folder = self._session(), self._folder(key)
        record_id = self._env.uuid()
        record = {"id": record_id, "token": token, "reason": reason, "who": who, "at": self._env.now()}
        path = ""

        def send(client: KazooClient) -> Any:
            # One transaction, so that no break lacks its record, also if the breaker dies.
            transaction = client.transaction()
            transaction.create(f"{nodes.breaks_folder(folder)}/b-", json.dumps(record).encode(), sequence=True)
            # A name is never given twice, so this is a compare-and-set on the token.
            transaction.delete(path)
            return transaction.commit_async()

        def end() -> bool:
            nonlocal path
            names = nodes.line(session, folder, fresh=True)
            path = f"{folder}/{names[0]}" if names else ""
            found = nodes.read(session, path) if path else None
            if found is None or found[1].czxid != token:
                # Our own first request may have removed it, with its answer lost. The record shows that.
                return any(each.get("id") == record_id for each in nodes.records(session, folder))
            nodes.make(session, nodes.breaks_folder(folder))
            return not any(isinstance(result, Exception) for result in session.ask(send, proves=True))

        return self._twice(end)

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """Return the records of `end` for the key, oldest first."""
        found = self._twice(lambda: nodes.records(self._session(), self._folder(key)))
        return tuple(record for each in found if (record := break_of(key, each)))

    def close(self) -> None:
        """End this process's session."""
        session = self._sessions.get(self._env.process())
        if session is not None:
            session.close()

    def _twice(self, call: Callable[[], _T]) -> _T:
        """Return the result of ``call``, retried once: after an outage the first request may only report the session's end."""
        try:
            return call()
        except NoAnswerError:
            session = self._session()
            if not session.wait_connected(self._env.event(), session.patience_s):
                raise
            return call()

    def _folder(self, key: str) -> str:
        return f"{self._base}/{self._fixed_key or nodes.node_name(key)}"

    def _session(self) -> Session:
        process = self._env.process()
        found = self._sessions.get(process)
        if found is None:
            found = self._sessions.setdefault(process, Session(self._address, self._env, self._count))
        return found

    def _count(self) -> None:
        self.requests += 1


class ZooKeeperContender(Contender):
    """A node in the queue of a lock, from the first try on."""

    def __init__(self, session: Session, folder: str, env: Environment) -> None:
        self.ahead: str | None = None  # the name before ours, if we know
        self.failure: NoAnswerError | None = None  # of the last try
        self.session = session
        self._folder = folder
        self._env = env
        self._id = f"_c_{env.uuid()}"  # by which Curator too finds its node again
        self._asked = False  # a node of ours may be there
        self._name: str | None = None
        self._token = 0
        self._seen_in = -1  # the session in which the line was seen last
        self._turn = ""  # the name that held the lock then, if it stood right before us
        self._gone = ""  # a name that has left

    def try_grant(self, request: LockRequest) -> ZooKeeperGrant | None:
        session = self.session
        # Who does not wait makes no node while the lock is busy: each node wakes the one behind it when it goes.
        if self._name is None and not request.waits and nodes.line(session, self._folder, fresh=True):
            return None
        # No contender can come before us any more, so if the holder has left, the listing need not be read again.
        while not (self._turn and self._turn == self._gone and self._seen_in == session.number):
            self._stand(request)
            self._seen_in = session.number
            names = nodes.line(session, self._folder)
            if self._name not in names:
                self._forget()  # it was removed from outside, or the session has ended
                continue
            i = names.index(self._name)
            if i > 0:
                self.ahead, self._turn = names[i - 1], names[0] if i == 1 else ""
                return None
            break
        path = f"{self._folder}/{self._name}"
        if self._env.monotonic() - session.proved_at > request.lease_s / 6 and not session.are_there([path])[0]:
            self._forget()
            return None
        return ZooKeeperGrant(session, self._seen_in, self._folder, self._id, path, self._token)

    def _forget(self) -> None:
        self._name = self.ahead = None
        self._turn = ""

    def _stand(self, request: LockRequest) -> None:
        """Make sure that we have a node in the queue."""
        session = self.session
        if self._name is not None:
            return
        # An answer may have been lost.
        name = session.find(self._folder, self._id) if self._asked else None
        found = nodes.read(session, f"{self._folder}/{name}") if name else None
        if found is not None:
            self._name, self._token = name, found[1].czxid
            return
        # Set before the request: if its answer is lost, the next try and `leave` search for the node by its id.
        self._asked = True
        value = {
            "owner": request.owner, "host": request.process.host, "pid": request.process.pid, "since": self._env.now(),
            "reason": request.reason,
        }  # fmt: skip
        send = partial(nodes.create, path=f"{self._folder}/{self._id}-lock-", value=json.dumps(value).encode())
        try:
            path, stat = session.ask(send, proves=True)
        except NoNodeError:
            nodes.make(session, self._folder)
            path, stat = session.ask(send, proves=True)
        self._name, self._token = path.rpartition("/")[2], stat.czxid
        number = self._name[-10:]
        if not (number.isascii() and number.isdigit()) or int(number) > _NUMBER_MAX:
            raise LockUnavailableError(
                f"The lock node {self._folder} has counted nearly 2^31 contenders, which is all that ZooKeeper can. "
                "Delete the node while no writer uses the lock; it is created again",
                key=request.key,
            )

    def wait(self, limit_s: float) -> None:
        event = self._env.event()
        if self.ahead is None:
            if not self.session.wait_connected(event, limit_s) and not event.is_set() and self.failure is not None:
                raise self.failure  # the time is up, and this says more than that the lock was busy
            return

        ahead = self.ahead

        def left(news: WatchedEvent) -> None:
            if news.type == EventType.DELETED:
                self._gone = ahead
            event.set()  # also when the connection is lost, and with it the watch

        try:
            # A watch for children of a node that has none fires only at its end, not for changed data.
            watch = partial(KazooClient.get_children_async, path=f"{self._folder}/{ahead}", watch=left)
            self.session.ask(watch)
        except NoNodeError:
            self._gone = ahead
            return
        except NoAnswerError:
            self.ahead = None
            return
        event.wait(limit_s)

    def leave(self) -> None:
        if not self._asked:
            return
        reachable = self._name is not None and self.session.connected
        if not reachable or nodes.remove(self.session, f"{self._folder}/{self._name}") is None:
            self.session.leave_behind(self._folder, self._id)


class ZooKeeperGrant(Grant):
    """A node that was seen to be the first of its queue."""

    def __init__(self, session: Session, number: int, folder: str, node_id: str, path: str, token: int) -> None:
        self.token = token
        self.path = path
        self.asked_at = session.proved_at  # when the last request went out in which a majority heard of us
        self._session = session
        self._number = number
        self._folder = folder
        self._id = node_id
        self._call: Callable[[str], None] | None = None
        self._watched = False
        self._released = False

    def renew(self) -> bool:
        there = self.check()
        self.watch()
        return there

    def check(self) -> bool:
        return self._session.are_there([self.path])[0]

    def release(self) -> Release:
        self._released = True
        session = self._session
        session.tell_no_more(self._ended)
        if session.number != self._number:
            return Release.WAS_LOST
        removed = nodes.remove(session, self.path)
        if removed is None:
            removed = nodes.remove(session, self.path)
            if removed is False:  # gone: by our first request, or by a break
                removed = self._gone_by_us()
        if removed is None:
            session.leave_behind(self._folder, self._id)
            return Release.UNKNOWN
        return Release.RELEASED if removed else Release.WAS_LOST

    def _gone_by_us(self) -> bool | None:
        try:
            broken = any(record["token"] == self.token for record in nodes.records(self._session, self._folder))
        except LockUnavailableError:
            return None
        return not broken and self._session.number == self._number

    def listen(self, call: Callable[[str], None]) -> None:
        self._call = call
        # Registered before the check: the session may end between the two, and then both report it, which does no
        # harm.
        self._session.tell(self._ended)
        if self._session.number != self._number:
            call(EXPIRED)

    def watch(self) -> None:
        """Watch for the removal of the node. Does not wait for the answer."""
        if not self._watched:
            self._watched = True
            self._session.post(
                partial(KazooClient.get_children_async, path=self.path, watch=self._news), self._watch_answered
            )

    def _watch_answered(self, answer: Any) -> None:
        # Removed before the servers knew that we watch.
        if isinstance(answer.exception, NoNodeError):
            if not self._released:
                self._ended(STOLEN)
        elif not answer.successful():
            self._watched = False

    def _news(self, news: WatchedEvent) -> None:
        if news.type != EventType.DELETED:
            self._watched = False  # the connection was lost, and with it the watch
        elif not self._released:
            self._ended(STOLEN)

    def _ended(self, reason: str) -> None:
        if self._call is not None:
            self._call(reason)
