"""A contender for a zk:// lock: its node in the queue, and its grant once that node is first."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.protocol.states import EventType, WatchedEvent

from ...environment import Environment
from ...errors import LockUnavailableError
from ..core import EXPIRED, STOLEN, LockRequest
from ..interface import Release
from . import nodes as nodes
from .session import NoAnswerError, Session

_NUMBER_MAX = 2_147_000_000  # a parent counts its children in 32 bits, and then continues below zero


class Contender:
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

    def try_grant(self, ask: LockRequest) -> Grant | None:
        session = self.session
        if self._name is None and not ask.waits and nodes.line(session, self._folder, fresh=True):
            return None
        # No contender can come before us any more, so if the holder has left, the listing need not be read again.
        while not (self._turn and self._turn == self._gone and self._seen_in == session.number):
            self._stand(ask)
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
        if self._env.monotonic() - session.proved_at > ask.lease_s / 6 and not session.are_there([path])[0]:
            self._forget()
            return None
        return Grant(session, self._seen_in, self._folder, self._id, path, self._token)

    def _forget(self) -> None:
        self._name = self.ahead = None
        self._turn = ""

    def _stand(self, ask: LockRequest) -> None:
        """Make sure that we have a node in the queue."""
        session = self.session
        if self._name is not None:
            return
        name = session.find(self._folder, self._id) if self._asked else None  # an answer may have been lost
        found = nodes.read(session, f"{self._folder}/{name}") if name else None
        if found is not None:
            self._name, self._token = name, found[1].czxid
            return
        # Set before the request: if its answer is lost, the next try and `leave` search for the node by its id.
        self._asked = True
        value = {
            "owner": ask.owner, "host": ask.process.host, "pid": ask.process.pid, "since": self._env.now(),
            "reason": ask.reason,
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
                key=ask.key,
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


class Grant:
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
        if isinstance(answer.exception, NoNodeError):  # removed before the servers knew that we watch
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
