"""Locks in ZooKeeper: ``zk://a:2181,b:2181/base?session=30s&key=flights``.

A lock is a node, its contenders are children as Curator's ``InterProcessMutex`` names them: ephemeral, sequential,
``_c_<uuid>-lock-<10 digits>``. Who has the lowest number holds; everybody else watches the one before. So Curator, and
with it Hudi's ``ZookeeperBasedLockProvider``, stand in one line with us.

    t=0     A makes ...0007 and sees nothing lower: A holds, its token is the zxid that made the node
    t=0.1   B makes ...0008, sees ...0007 and watches it
    t=3     A proves that its node is there, by a request that a majority takes part in: held until t=3 + lease
    t=4     A's host loses its network; A tries to renew, in vain
    t=3 + lease      A knows by its own clock that it has lost
    t=4 + session    the servers remove ...0007; B's watch fires, B sees nothing lower: B holds

The lease is at most half of the session time-out that the servers granted (zookeeper_session.py says why), so A knows
first. Numbers are given, and zxids counted, by one thread of the leader in one order, so tokens grow with every grant.
They go back only when the ensemble is built anew; then a grant above a token it never gave is refused.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from ..environment import Environment, Process
from ..errors import ConfigError, LockError, LockUnavailableError
from .config import LockUrl, parse_duration, parse_lock_url
from .held import EXPIRED, STOLEN, Grant
from .interface import BREAKS_KEPT, BreakRecord, Holder, Release
from .leased import Ask, LeasedLocks, Place
from .zookeeper_session import Address, NoAnswerError, Session

_OPTIONS = ("session", "tls", "ca", "cert", "cert_key")
_SESSION_S_MIN, _SESSION_S_MAX = 1.0, 24 * 3600.0
_NAME_MAX = 200
_NUMBER_MAX = 2_147_000_000  # a parent counts its children in 32 bits, and goes on below zero
_LINE_SHOWN = 50  # so many waiters are named by `inspect`
_CHECKS_AT_ONCE = 500  # paths in one request, whose size the server limits to 1 MB
_TAIL = re.compile(r"-?\d{10}$")  # of Curator's names, of ours, and of those of kazoo's own Lock


_T = TypeVar("_T")


def open_zookeeper_locks(url: str, *, env: Environment) -> LeasedLocks:
    """The provider for a ``zk://`` URL; connects at first use."""
    settings = parse_lock_url(url, options=_OPTIONS)
    options = settings.options
    if not settings.host:
        raise ConfigError(f"{url!r} names no server; write for example zk://host:2181/locks.", url=url)
    tls = options.get("tls", "0")
    if tls not in ("0", "1", "chain"):
        raise ConfigError(
            f"tls={tls!r} in {url!r} means nothing; write tls=1, or tls=chain where host names are not in the servers' "
            "certificates.", url=url,
        )  # fmt: skip
    if tls == "0" and {"ca", "cert", "cert_key"} & set(options):
        raise ConfigError(f"{url!r} names certificates but does not use TLS; add tls=1.", url=url)
    if "session" in options:
        session_s = parse_duration(options["session"], what="session")
        if not _SESSION_S_MIN <= session_s <= _SESSION_S_MAX:
            raise ConfigError(f"A session time-out of {session_s:g} s cannot work; choose 1 s to 24 h.", url=url)
    else:
        session_s = max(4.0, 2 * settings.lease_s)  # with the default lease 60 s, as Hudi asks for
    base = settings.path.strip("/")
    _check_path(base, url)
    _check_path(settings.key, url)
    hosts = ",".join(host if re.search(r":\d+$", host) else f"{host}:2181" for host in settings.host.split(","))
    place = LockUrl("zk", hosts, f"/{base}", settings.lease_s, settings.max_hold_s, settings.key, options)
    address = Address(
        hosts, session_s, tls=tls != "0", check_hostname=tls == "1", ca=options.get("ca"), cert=options.get("cert"),
        cert_key=options.get("cert_key"),
    )  # fmt: skip
    return _ZooKeeperLocks(ZooKeeperBackend(address, f"/{base}".rstrip("/"), settings.key, env), place, env)


def _check_path(path: str, url: str) -> None:
    if any(part in (".", "..") for part in path.split("/")) or "//" in path or re.search(r"[\x00-\x1f\x7f-\x9f]", path):
        raise ConfigError(f"{path!r} in {url!r} is not a path that ZooKeeper allows.", url=url)


class _ZooKeeperLocks(LeasedLocks):
    """With leases that are no longer than the session allows."""

    def _ask(self, *args: Any, **options: Any) -> Ask:
        ask = super()._ask(*args, **options)
        assert isinstance(self._backend, ZooKeeperBackend)
        return replace(ask, lease_s=min(ask.lease_s, self._backend.lease_s_max()))


class ZooKeeperBackend:
    """One session per process, opened when it is needed."""

    fair = True
    durable_tokens = True
    lifts_tokens = False
    max_leases = None

    def __init__(self, address: Address, base: str, fixed_key: str, env: Environment) -> None:
        self.requests = 0
        self._address = address
        self._base = base
        self._fixed_key = fixed_key
        self._env = env
        self._sessions: dict[Process, Session] = {}

    def __getstate__(self) -> dict[str, object]:
        return {"address": self._address, "base": self._base, "fixed_key": self._fixed_key, "env": self._env}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def lease_s_max(self) -> float:
        """What the session allows; connects if need be."""
        session = self._session()
        session.open()
        return session.lease_s

    def line_up(self, key: str) -> Place:
        """A place that makes its node at the first try."""
        return _Place(self._session(), self._folder(key), self._env)

    def try_grant(self, ask: Ask, place: Place) -> Grant | None:
        """Hold if nobody stands before us. A waiter sits out a lost connection; its place may still be there."""
        assert isinstance(place, _Place)
        if not ask.waits:
            return self._twice(lambda: place.try_grant(ask))
        try:
            return place.try_grant(ask)
        except NoAnswerError as e:
            place.ahead, place.failure = None, e
            return None

    def renew_many(self, grants: Sequence[Any]) -> list[bool | Exception]:
        """Renew in a request for each few hundred of them."""
        answers: list[bool | Exception] = []
        for i in range(0, len(grants), _CHECKS_AT_ONCE):
            some = grants[i : i + _CHECKS_AT_ONCE]
            try:
                answers += self._session().are_there([grant.path for grant in some])
                for grant in some:
                    grant.watch()
            except LockUnavailableError as e:
                answers += [e] * len(some)
        return answers

    def inspect(self, key: str) -> Holder | None:
        """The lowest child, as its maker described it, and who stands behind it."""
        return self._twice(lambda: self._inspect(key))

    def _inspect(self, key: str) -> Holder | None:
        session, folder = self._session(), self._folder(key)
        while True:
            names = session_line(session, folder, fresh=True)
            if not names:
                return None
            shown = names[: _LINE_SHOWN + 1]
            found = [_read(session, f"{folder}/{name}") for name in shown]
            if found[0] is not None:
                break  # otherwise the holder has left meanwhile
        value, stat = found[0]
        return Holder(
            key=key, owner=value["owner"], token=stat.czxid, since=value.get("since", stat.ctime / 1000), until=None,
            reason=value.get("reason", ""), host=value["host"], pid=value.get("pid", 0),
            queue=tuple(each[0]["owner"] for each in found[1:] if each is not None), details={"node": f"{folder}/{names[0]}"},
        )  # fmt: skip

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """Remove the holder's node and keep a record, both in one transaction."""
        session, folder = self._session(), self._folder(key)
        record_id = self._env.uuid()
        record = {"id": record_id, "token": token, "reason": reason, "who": who, "at": self._env.now()}
        path = ""

        def send(client: KazooClient) -> Any:
            transaction = client.transaction()
            transaction.create(f"{_breaks(folder)}/b-", json.dumps(record).encode(), sequence=True)
            # A name is never given twice, so this is a compare-and-set on the token.
            transaction.delete(path)
            return transaction.commit_async()

        def end() -> bool:
            nonlocal path
            names = session_line(session, folder, fresh=True)
            path = f"{folder}/{names[0]}" if names else ""
            found = _read(session, path) if path else None
            if found is None or found[1].czxid != token:
                # Perhaps we have done it, and the answer was lost.
                return any(each["id"] == record_id for each in _records(session, folder))
            _make(session, _breaks(folder))
            return not any(isinstance(result, Exception) for result in session.ask(send, proves=True))

        return self._twice(end)

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """What `end` did to the key, oldest first."""
        found = self._twice(lambda: _records(self._session(), self._folder(key)))
        return tuple(BreakRecord(key, each["token"], each["reason"], each["who"], each["at"]) for each in found)

    def close(self) -> None:
        """End this process's session, at once or with the last node of ours."""
        session = self._sessions.get(self._env.process())
        if session is not None:
            session.close()

    def _twice(self, call: Callable[[], _T]) -> _T:
        """What ``call`` returns; after an outage the first request may only tell that the session has ended."""
        try:
            return call()
        except NoAnswerError:
            session = self._session()
            if not session.wait_connected(self._env.event(), session.patience_s):
                raise
            return call()

    def _folder(self, key: str) -> str:
        return f"{self._base}/{self._fixed_key or node_name(key)}"

    def _session(self) -> Session:
        process = self._env.process()
        found = self._sessions.get(process)
        if found is None:
            found = self._sessions.setdefault(process, Session(self._address, self._env, self._count))
        return found

    def _count(self) -> None:
        self.requests += 1


class _Place:
    """A node in the line of a lock, from the first try on."""

    def __init__(self, session: Session, folder: str, env: Environment) -> None:
        self.ahead: str | None = None  # the name before ours, if we know
        self.failure: NoAnswerError | None = None  # of the last try
        self.session = session
        self._folder = folder
        self._env = env
        self._id = f"_c_{env.uuid()}"  # by which Curator too finds its node again
        self._number = -1  # of the session that knows about our node, or may
        self._name: str | None = None
        self._token = 0
        self._last_before_us = False  # the one ahead held the lock: nobody stood before it
        self._gone = False  # and has left

    def try_grant(self, ask: Ask) -> Grant | None:
        session = self.session
        if self._name is None and not ask.waits and session_line(session, self._folder, fresh=True):
            return None
        while not (self._last_before_us and self._gone and self._is_standing()):
            self._stand(ask)
            names = session_line(session, self._folder)
            if self._name not in names:
                self._forget()  # somebody has removed it, or the session has ended
                continue
            i = names.index(self._name)
            self._gone = False
            if i > 0:
                self.ahead, self._last_before_us = names[i - 1], i == 1
                return None
            break
        path = f"{self._folder}/{self._name}"
        if self._env.monotonic() - session.proved_at > ask.lease_s / 6 and not session.are_there([path])[0]:
            self._forget()
            return None
        return _Grant(session, self._folder, self._id, path, self._token)

    def _is_standing(self) -> bool:
        return self._name is not None and self._number == self.session.number

    def _forget(self) -> None:
        self._name = self.ahead = None
        self._number = -1
        self._last_before_us = False

    def _stand(self, ask: Ask) -> None:
        """Have a node in the line."""
        session = self.session
        if self._is_standing():
            return
        if self._number == session.number:  # it was asked for, and no answer came
            name = session.find(self._folder, self._id)
            if name is not None:
                found = _read(session, f"{self._folder}/{name}")
                if found is not None:
                    self._name, self._token = name, found[1].czxid
                    return
        self._forget()
        session.open()
        self._number = session.number
        value = {
            "owner": ask.owner, "host": ask.process.host, "pid": ask.process.pid, "since": self._env.now(),
            "reason": ask.reason,
        }  # fmt: skip
        send = partial(_create, path=f"{self._folder}/{self._id}-lock-", value=json.dumps(value).encode())
        try:
            path, stat = session.ask(send, proves=True)
        except NoNodeError:
            _make(session, self._folder)
            path, stat = session.ask(send, proves=True)
        self._name, self._token = path.rpartition("/")[2], stat.czxid
        if not self._name[-10:].isdigit() or int(self._name[-10:]) > _NUMBER_MAX:
            raise LockUnavailableError(
                f"The lock node {self._folder} has counted nearly 2^31 contenders, which is all that ZooKeeper can. "
                "Delete the node while nobody uses the lock; it is made anew.",
                key=ask.key,
            )

    def wait(self, limit_s: float) -> None:
        event = self._env.event()
        if self.ahead is None:
            if not self.session.wait_connected(event, limit_s) and not event.is_set() and self.failure is not None:
                raise self.failure  # the time is up, and this says more than that the lock was busy
            return

        def left(news: WatchedEvent) -> None:
            self._gone = news.type == EventType.DELETED
            event.set()  # also when the connection is lost, and with it the watch

        try:
            # A watch for children of a node that has none tells of its end only, not of changed data.
            watch = partial(KazooClient.get_children_async, path=f"{self._folder}/{self.ahead}", watch=left)
            self.session.ask(watch)
        except NoNodeError:
            self._gone = True
            return
        except NoAnswerError:
            self.ahead = None
            return
        event.wait(limit_s)

    def leave(self) -> None:
        if self._number != self.session.number:
            return  # never there, or gone with its session
        reachable = self._name is not None and self.session.connected
        if not reachable or _remove(self.session, f"{self._folder}/{self._name}") is None:
            self.session.leave_behind(self._folder, self._id)


class _Grant:
    def __init__(self, session: Session, folder: str, node_id: str, path: str, token: int) -> None:
        self.token = token
        self.path = path
        self.asked_at = session.proved_at  # when the last request went out in which a majority heard of us
        self._session = session
        self._number = session.number
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
        removed = _remove(session, self.path)
        if removed is None:
            removed = _remove(session, self.path)
            if removed is False:  # gone: by our first request, or had somebody broken it?
                removed = self._gone_by_us()
        if removed is None:
            session.leave_behind(self._folder, self._id)
            return Release.UNKNOWN
        return Release.RELEASED if removed else Release.WAS_LOST

    def _gone_by_us(self) -> bool | None:
        try:
            broken = any(record["token"] == self.token for record in _records(self._session, self._folder))
        except LockUnavailableError:
            return None
        return not broken and self._session.number == self._number

    def listen(self, call: Callable[[str], None]) -> None:
        self._call = call
        self._session.tell(self._ended)
        if self._session.number != self._number:
            call(EXPIRED)

    def watch(self) -> None:
        """Be told when somebody removes the node; asks for that and waits for no answer."""
        if not self._watched:
            self._watched = True
            self._session.post(partial(KazooClient.get_children_async, path=self.path, watch=self._news))

    def _news(self, news: WatchedEvent) -> None:
        if news.type != EventType.DELETED:
            self._watched = False  # the connection was lost, and with it the watch
        elif not self._released:
            self._ended(STOLEN)

    def _ended(self, reason: str) -> None:
        if self._call is not None:
            self._call(reason)


def node_name(key: str) -> str:
    """The name of a key's node: legible, allowed in ZooKeeper, and another for every key."""
    name = quote(key, safe="").replace("~", "%7E").replace(".", "%2E")
    if len(name) > _NAME_MAX:
        name = f"{name[: _NAME_MAX // 2]}~{hashlib.sha256(key.encode()).hexdigest()}"
    return name


def _breaks(folder: str) -> str:
    """Beside the lock, because Curator takes every child for a contender."""
    return f"{folder}~breaks"


def _records(session: Session, folder: str) -> list[dict[str, Any]]:
    """What `end` has written, oldest first; older ones than are kept are removed."""
    place = _breaks(folder)
    try:
        names = sorted(session.ask(lambda client: client.get_children_async(place)))
    except NoNodeError:
        return []
    for name in names[:-BREAKS_KEPT]:
        _remove(session, f"{place}/{name}")
    found = [_get(session, f"{place}/{name}") for name in names[-BREAKS_KEPT:]]
    return [json.loads(each[0]) for each in found if each is not None]


def session_line(session: Session, folder: str, *, fresh: bool = False) -> list[str]:
    """The contenders' names, first the holder's; ``fresh`` has this server catch up with the leader first."""

    def send(client: KazooClient) -> Any:
        if fresh:
            client.sync_async(folder)
        return client.get_children_async(folder)

    try:
        names = session.ask(send)
    except NoNodeError:
        return []
    return sorted((name for name in names if _TAIL.search(name)), key=lambda name: name[-10:])


def _read(session: Session, path: str) -> tuple[dict[str, Any], Any] | None:
    """What a node says, with its stat; None when it is gone."""
    found = _get(session, path)
    if found is None:
        return None
    body, stat = found
    try:
        value = json.loads(body)
        assert isinstance(value, dict)
        value["owner"], value["host"]
    except (ValueError, AssertionError, KeyError):
        text = body.decode("utf-8", "replace")  # Curator writes its host's address
        value = {"owner": text or path.rpartition("/")[2], "host": text}
    return value, stat


def _get(session: Session, path: str) -> tuple[bytes, Any] | None:
    try:
        found: tuple[bytes, Any] = session.ask(lambda client: client.get_async(path))
    except NoNodeError:
        return None
    return found


def _create(client: KazooClient, *, path: str, value: bytes) -> Any:
    return client.create_async(path, value, ephemeral=True, sequence=True, include_data=True)


def _make(session: Session, path: str) -> None:
    """Have a lasting node at ``path``, and those above it."""
    parts = path.split("/")[1:]
    for i in range(len(parts), 0, -1):
        try:
            session.ask(partial(KazooClient.create_async, path="/" + "/".join(parts[:i])))
        except NoNodeError:
            continue
        except NodeExistsError:
            pass
        for j in range(i + 1, len(parts) + 1):
            _make_one(session, "/" + "/".join(parts[:j]))
        return


def _make_one(session: Session, path: str) -> None:
    with suppress(NodeExistsError):
        session.ask(partial(KazooClient.create_async, path=path))


def _remove(session: Session, path: str) -> bool | None:
    """True: removed. False: it was not there. None: nobody knows."""
    try:
        session.ask(lambda client: client.delete_async(path), proves=True)
    except NoNodeError:
        return False
    except LockError:
        return None
    return True
