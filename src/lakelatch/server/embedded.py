"""A server in a writer's process: it takes the markers of its tasks, and shows its table."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import LakeLatchError
from ..occ.liveness import MarkerClient, MarkerServer
from ..occ.table import Table
from .guard import Access

if TYPE_CHECKING:
    from ..environment import Environment
    from ..storage import Store
    from .serve import Server

_START_S = 30.0
_NAME = "table"
_log = logging.getLogger("lakelatch.server")


@dataclass(slots=True)
class _Running:
    server: Server
    thread: threading.Thread
    table: Table
    markers: MarkerServer
    access: Access


class Embedded:
    """The argument of `lakelatch.open(url, markers=Embedded())`: it starts with the first write, and drains when the table
    closes.

    Args:
        host: a name or address of this machine to listen on; workers on other machines must be able to reach it.
        certificate: and ``key``: files for TLS, as PEM.
        authority_file: the authority by which workers verify the certificate, unless their machines trust it.
        plain: listen beyond this machine without TLS; anyone who can read the network can then announce files.

    One instance may serve several tables, each on a port of its own. Where it cannot start, markers are put directly and a
    warning says why.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        *,
        certificate: str = "",
        key: str = "",
        authority_file: str = "",
        plain: bool = False,
    ) -> None:
        self._host, self._tls, self._authority, self._plain = host, (certificate, key), authority_file, plain
        self._running: dict[str, _Running | None] = {}
        self._mutex = threading.Lock()

    def marker_client(self, store: Store, env: Environment) -> MarkerClient | None:
        """Implement `MarkerService`."""
        with self._mutex:
            if store.url not in self._running:
                try:
                    self._running[store.url] = self._start(store, env)
                except (LakeLatchError, ImportError, OSError) as e:
                    _log.warning("no server takes the markers of %s, which are put directly: %s", store.url, e)
                    # Remembered, so that each write does not try to start it again.
                    self._running[store.url] = None
            running = self._running[store.url]
            return running.markers.marker_client(store, env) if running is not None else None

    def link(self, store_url: str) -> str | None:
        """Return the dashboard's link, with the token; None while no server runs for this table."""
        with self._mutex:
            running = self._running.get(store_url)
        return f"{running.server.url}/?token={running.access.token}" if running is not None else None

    def close(self, store: Store) -> None:
        """Stop the table's server after it has answered open requests."""
        with self._mutex:
            running = self._running.pop(store.url, None)
        if running is not None:
            running.server.should_exit = True
            running.thread.join(_START_S)
            running.table.close()

    def _start(self, store: Store, env: Environment) -> _Running:
        from .application import Application
        from .serve import Address, Server
        from .watched import Watched

        address = Address(self._host, 0, *self._tls, plain=self._plain)
        access, started = Access.made(), threading.Event()
        table = Table(store, env=env, writer="server")
        try:
            application = Application({_NAME: Watched(_NAME, table)}, access, secure=address.secure, env=env)
            server = Server(application, address, listening=lambda _url: started.set())
            thread = threading.Thread(target=server.run_here, name="lakelatch-server", daemon=True)
            thread.start()
            # The server thread reports only success, so a failure shows as a wait that is too long.
            if not started.wait(_START_S):
                server.should_exit = True
                raise OSError(f"it did not start within {_START_S:g} s")
        except BaseException:
            table.close()
            raise
        markers = MarkerServer(
            server.url, token=access.token, table=_NAME, authority_file=self._authority, plain_http=self._plain
        )
        return _Running(server, thread, table, markers, access)
