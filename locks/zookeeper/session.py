"""A ZooKeeper session: connects, sends requests with time limits, and cleans up lost nodes.

ZooKeeper keeps a node of ours for as long as it hears from our session. It may forget us a session time-out after it
last heard, so a lease is at most half of that: the other half covers messages that we believe sent but the server
did not hear. A follower reports us to the leader only every half tick, and a follower that dies in between reports
nothing. A lease counts only from requests that a majority took part in (`Session.proved_at`): a follower on the wrong
side of a cut network still answers reads for a while.

A request that timed out may still be carried out later. So a node that may exist is remembered by the id in its
name (`Session.leave_behind`) and searched for after the next connection, until the node or the session is gone.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any

from kazoo import exceptions as zk
from kazoo.client import KazooClient, KazooRetry
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState
from kazoo.security import CREATOR_ALL_ACL

from ...environment import Environment, Event
from ...errors import ConfigError, LockError, LockUnavailableError
from ..core import EXPIRED
from ..lock_url import check_readable
from .handler import Handler

AUTH_VARIABLE = "LAKELATCH_ZK_AUTH"
_LEASE_SHARE = 0.5  # of the session; see above
_STOP_S = 2.0

_log = logging.getLogger("lakelatch.locks")
_kazoo_log = _log.getChild("kazoo")
_kazoo_log.setLevel(logging.ERROR)  # it warns of every attempt to connect; our errors report the outcome

_NO_ANSWER = (
    KazooTimeoutError, zk.ConnectionLoss, zk.ConnectionClosedError, zk.SessionExpiredError, zk.SessionMovedError,
    zk.OperationTimeoutError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Address:
    """The servers and the options to reach them; no secrets."""

    hosts: str
    session_s: float
    tls: bool = False
    check_hostname: bool = True
    ca: str | None = None
    cert: str | None = None
    cert_key: str | None = None
    like: Any = None
    """A user's KazooClient: servers, credentials and TLS are its own then."""


class NoAnswerError(LockUnavailableError):
    """A request without an answer: it may or may not have been carried out."""


class Session:
    """A kazoo client, opened at the first request.

    ``number`` grows whenever the servers have forgotten us.
    """

    def __init__(self, address: Address, env: Environment, counted: Callable[[], None]) -> None:
        self.number = 0
        self.proved_at = float("-inf")
        self._address = address
        self._env = env
        self._counted = counted
        self._timeout_s = address.session_s
        self._kazoo: KazooClient | None = None
        self._handler: Handler | None = None
        self._opening = threading.Lock()
        self._mark = threading.Lock()  # guards the fields below
        self._closed = False
        self._cut_at: float | None = None  # since when there has been no connection
        self._leftovers: dict[str, str] = {}  # id of a node -> its folder
        self._sweeping = False
        self._told: set[Callable[[str], None]] = set()  # called when the session has ended
        self._waiting: set[Event] = set()

    @property
    def lease_s(self) -> float:
        """The longest lease that the session allows, known once it is open."""
        return self._timeout_s * _LEASE_SHARE

    @property
    def patience_s(self) -> float:
        """The time limit of one request in seconds: two fit into what a renewal has left."""
        return min(5.0, max(0.5, self.lease_s / 3))

    def open(self) -> KazooClient:
        """Return the client, connected once; afterwards it reconnects by itself."""
        self._leave_the_dead()
        client = self._kazoo
        if client is None:
            with self._opening:
                if self._closed:
                    raise LockError(
                        f"The provider for ZooKeeper at {self._address.hosts} is closed; open it again", key=""
                    )
                client = self._kazoo = self._kazoo or self._connect()
        return client

    def _connect(self) -> KazooClient:
        address = self._address
        handler = Handler(patience_s=min(5.0, max(0.5, address.session_s / 12)))
        client = KazooClient(
            timeout=address.session_s, handler=handler, logger=_kazoo_log,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, sleep_func=handler.sleep_func),
            **(_options(address) if address.like is None else _options_like(address)),
        )  # fmt: skip
        self._note_timeout(client)
        client.add_listener(self._changed)
        limit_s = 2.0 + handler.patience_s * len(client.hosts)
        if not client.start_async().wait(limit_s):
            _stop(client)
            raise LockUnavailableError(
                f"No ZooKeeper server of {address.hosts} answered within {limit_s:.1f} s (each was tried again and again). "
                "Nothing is held; trying again is safe. Check the addresses and that a majority of the servers runs"
                f"{'; with TLS also ca=, and whether they want cert= and cert_key= of us' if address.tls else ''}",
                hosts=address.hosts, waited_s=limit_s,
            )  # fmt: skip
        self._handler = handler
        return client

    def _note_timeout(self, client: KazooClient) -> None:
        """Note the session time-out that the server granted; kazoo shows only two thirds of it."""
        # kazoo has no public name for it. Without it a lease could outlast the session.
        connect = getattr(getattr(client, "_connection", None), "_connect", None)
        if connect is None:
            raise ConfigError(
                f"kazoo {version('kazoo')} does not tell which session time-out the server granted; nothing was locked. "
                "Install 'kazoo>=2.11,<3'"
            )

        def noting(*args: Any) -> Any:
            read_ms, connect_ms = connect(*args)
            self._timeout_s = read_ms * 1.5 / 1000
            return read_ms, connect_ms

        client._connection._connect = noting

    def ask(self, send: Callable[[KazooClient], Any], *, proves: bool = False) -> Any:
        """Return the server's answer to the request of ``send``; ``proves`` says that a majority takes part in it.

        Raises `NoAnswerError` when none came; kazoo's errors about nodes (missing, there already) pass through.
        """
        client = self.open()
        sent_at = self._env.monotonic()
        self._counted()
        try:
            answer = send(client).get(timeout=self.patience_s)
        except _NO_ANSWER as e:
            if isinstance(e, KazooTimeoutError) and self._handler is not None:
                self._handler.drop()  # another server may answer
            raise NoAnswerError(
                f"ZooKeeper at {self._address.hosts} gave no answer within {self.patience_s:.1f} s "
                f"({type(e).__name__}). A lease that is held stays held until its deadline; trying again is safe",
                hosts=self._address.hosts,
            ) from e
        except (zk.NoAuthError, zk.AuthFailedError, zk.InvalidACLError) as e:
            raise ConfigError(
                f"ZooKeeper at {self._address.hosts} refuses ({type(e).__name__}): the lock's nodes belong to another "
                f"user. Set {AUTH_VARIABLE}=digest:user:password as the other writers of this lock do",
                hosts=self._address.hosts,
            ) from e
        except (zk.NoNodeError, zk.NodeExistsError):
            raise
        except zk.KazooException as e:
            raise LockUnavailableError(
                f"ZooKeeper at {self._address.hosts} refused a request: {type(e).__name__} {e}. Nothing was granted",
                hosts=self._address.hosts,
            ) from e
        if proves:
            self.proved_at = max(self.proved_at, sent_at)
        return answer

    def post(self, send: Callable[[KazooClient], Any], answered: Callable[[Any], None]) -> None:
        """Send without waiting; ``answered`` is called with kazoo's result, on a thread that must not wait."""
        self._counted()
        send(self.open()).rawlink(answered)

    def are_there(self, paths: list[str]) -> list[bool]:
        """Return whether each node exists, as a majority sees it. One request unless one is missing."""
        found = self._check(paths)
        if all(found) or len(paths) == 1:
            return found
        return [self._check([path])[0] for path in paths]

    def _check(self, paths: list[str]) -> list[bool]:
        def send(client: KazooClient) -> Any:
            # A transaction goes to the leader and through a majority even when it changes nothing.
            transaction = client.transaction()
            for path in paths:
                transaction.check(path, -1)
            return transaction.commit_async()

        return [not isinstance(result, Exception) for result in self.ask(send, proves=True)]

    def tell(self, call: Callable[[str], None]) -> None:
        """Call ``call`` when the servers have ended the session."""
        with self._mark:
            self._told.add(call)

    def tell_no_more(self, call: Callable[[str], None]) -> None:
        """Undo `tell`."""
        with self._mark:
            self._told.discard(call)

    # Nodes that may have been left.

    def find(self, folder: str, node_id: str) -> str | None:
        """Return the name of the node with this id, if it was created; sees earlier requests to any server."""

        def send(client: KazooClient) -> Any:
            # First, in the same connection: this server catches up with the leader.
            client.sync_async(folder)
            return client.get_children_async(folder)

        try:
            names = self.ask(send)
        except zk.NoNodeError:
            return None
        return next((name for name in names if name.startswith(node_id)), None)

    def leave_behind(self, folder: str, node_id: str) -> None:
        """Remember the node, which is removed as soon as a server answers."""
        with self._mark:
            self._leftovers[node_id] = folder
        self._sweep()

    def _sweep(self) -> None:
        handler = self._handler
        with self._mark:
            if self._sweeping or not self._leftovers or handler is None or not self.connected:
                return
            self._sweeping = True
        handler.spawn(self._remove_leftovers)

    def _remove_leftovers(self) -> None:
        """Remove nodes left behind, on its own thread. Ends when none is left or the connection is lost, which restarts it."""
        try:
            while self._leftovers and self.connected:
                with self._mark:
                    todo = list(self._leftovers.items())
                for node_id, folder in todo:
                    name = self.find(folder, node_id)
                    if name is not None:
                        with suppress(zk.NoNodeError):
                            self.ask(partial(_delete, path=f"{folder}/{name}"), proves=True)
                    with self._mark:
                        self._leftovers.pop(node_id, None)
        except LockError as e:
            _log.info("a node of ours is still there: %s", e)
        except ConfigError as e:  # it will not get better; the session's end takes the node along
            _log.warning("a node of ours cannot be removed: %s", e)
            self._leftovers.clear()
        finally:
            self._sweeping = False

    # The state of the connection.

    @property
    def connected(self) -> bool:
        """Return whether there is a connection, as far as this process knows."""
        return self._kazoo is not None and self._kazoo.connected

    def wait_connected(self, event: Event, limit_s: float) -> bool:
        """Block until there is a connection, at most ``limit_s``. Return False if there is none then."""
        with self._mark:
            self._waiting.add(event)
        try:
            if not self.connected:
                event.wait(min(limit_s, self._dead_in_s))
            if not self.connected and not self._dead_in_s:
                with suppress(LockUnavailableError):
                    self.open()
        finally:
            with self._mark:
                self._waiting.discard(event)
        return self.connected

    @property
    def _dead_in_s(self) -> float:
        """Return the seconds until no server can know our session any more; infinite while connected."""
        cut_at = self._cut_at
        return float("inf") if cut_at is None else max(0.0, cut_at + self._timeout_s - self._env.monotonic())

    def _leave_the_dead(self) -> None:
        """Drop a client that was cut off for a whole session, so that the next request opens a new one.

        kazoo itself retries for ever, and a rebuilt server silently refuses a client that has seen a
        larger zxid than its own.
        """
        with self._opening:
            if self._dead_in_s or self.connected:
                return
            client, self._kazoo, self._cut_at = self._kazoo, None, None
        if client is not None:
            client.remove_listener(self._changed)
            self._changed(KazooState.LOST)
            _stop(client)

    def _changed(self, state: str) -> None:
        """Note a new state. Called on kazoo's connection thread, which must never wait for an answer."""
        told: list[Callable[[str], None]] = []
        with self._mark:
            self._cut_at = None if state == KazooState.CONNECTED else self._cut_at or self._env.monotonic()
            if state == KazooState.LOST:
                self.number += 1
                told = list(self._told)
                self._told.clear()
                self._leftovers.clear()  # they ended with the session
            waiting = list(self._waiting)
        for call in told:
            call(EXPIRED)
        for event in waiting:
            event.set()
        if state == KazooState.CONNECTED:
            self._sweep()

    def close(self) -> None:
        """End the session, and with it any node it may have left. Idempotent."""
        self._closed = True
        with self._opening:
            client, self._kazoo = self._kazoo, None
        if client is not None:
            _stop(client)


def _options(address: Address) -> dict[str, Any]:
    auth, acl = _auth()
    check_readable(path for path in (address.ca, address.cert, address.cert_key) if path)
    return {
        "hosts": address.hosts, "auth_data": auth, "default_acl": acl, "use_ssl": address.tls, "ca": address.ca,
        "check_hostname": address.check_hostname, "certfile": address.cert, "keyfile": address.cert_key,
    }  # fmt: skip


def _options_like(address: Address) -> dict[str, Any]:
    client = address.like
    options = {
        name: getattr(client, name)
        for name in (
            "default_acl", "use_ssl", "verify_certs", "check_hostname", "ca", "certfile", "keyfile", "keyfile_password",
        )
    }  # fmt: skip
    sasl = client._connection.sasl_options  # kazoo has no public name for it
    return options | {"hosts": address.hosts + client.chroot, "auth_data": list(client.auth_data), "sasl_options": sasl}


def _delete(client: KazooClient, *, path: str) -> Any:
    return client.delete_async(path)


def _auth() -> tuple[list[tuple[str, str]], Any]:
    """Return credentials and the rights on new nodes, from the environment."""
    text = os.environ.get(AUTH_VARIABLE, "")
    if not text:
        return [], None
    scheme, _, credential = text.partition(":")
    if scheme != "digest" or not all(credential.partition(":")):
        raise ConfigError(f"{AUTH_VARIABLE} must read digest:user:password; what it has is not shown here")
    return [(scheme, credential)], CREATOR_ALL_ACL


def _stop(client: KazooClient) -> None:
    """End the session and its threads. Waits only shortly, because a server may hang."""

    def stop() -> None:
        try:
            client.stop()
            client.close()
        except zk.KazooException as e:
            _log.info("the ZooKeeper client did not end in time: %s", e)

    client.handler.spawn(stop).join(_STOP_S)
