"""A kazoo handler that waits for its sockets faster, and gives up sooner on one server of several."""

from __future__ import annotations

import select
import socket
from contextlib import suppress
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler

_READABLE = select.POLLIN | select.POLLPRI
_WRITABLE = select.POLLOUT  # errors and hang-ups are always reported, and met at the next read or write


class Handler(SequentialThreadingHandler):  # type: ignore[misc] # kazoo has no types
    """kazoo's threads, with less patience for one server of several, and a way to leave it."""

    def __init__(self, patience_s: float) -> None:
        super().__init__()
        self.patience_s = patience_s
        self._socket: Any = None

    def create_connection(self, *args: Any, **options: Any) -> Any:
        """Return a connection within ``patience_s``, instead of the whole session time-out."""
        options["timeout"] = min(options.get("timeout") or self.patience_s, self.patience_s)
        self._socket = super().create_connection(*args, **options)
        return self._socket

    def select(self, reads: Any, writes: Any, others: Any, timeout: float | None = None) -> Any:  # noqa: ARG002
        """Wait for the sockets. A single socket in the middle of a handshake or message gets only ``patience_s``.

        kazoo calls this several times for each answer, so speed matters: its own version creates a selector each time.
        """
        if len(reads) + len(writes) == 1:
            timeout = self.patience_s if timeout is None else min(timeout, self.patience_s)
        poll = select.poll()
        for sock in reads:
            poll.register(sock, _READABLE)
        for sock in writes:
            poll.register(sock, _WRITABLE)
        try:
            ready = {number for number, _ in poll.poll(None if timeout is None else timeout * 1000)}
        except ValueError as e:  # closed meanwhile
            raise OSError(str(e)) from e
        return [s for s in reads if s.fileno() in ready], [s for s in writes if s.fileno() in ready], []

    def drop(self) -> None:
        """End the present connection, so that kazoo tries the next server."""
        with suppress(OSError, AttributeError):  # it has ended already, or never was
            self._socket.shutdown(socket.SHUT_RDWR)
