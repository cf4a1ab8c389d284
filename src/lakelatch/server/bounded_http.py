"""HTTP that waits neither for a request's head nor for a reader longer than it should; uvicorn itself waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from .guard import Limits


class BoundedHttp(H11Protocol):
    """One connection."""

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._head: asyncio.TimerHandle | None = None
        self._reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > 4 * self.limits.connections:
            transport.abort()
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait_for_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._reader is None:
            self._reader = self.loop.call_later(self.limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reader = _stopped(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head, self._reader = _stopped(self._head), _stopped(self._reader)
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        """Each request has a time limit of its own for its head, however slowly the bytes of it drip."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._head is None and not self.transport.is_closing():
            self._head = self.loop.call_later(self.limits.headers_s, self.transport.abort)
        elif not idle:
            self._head = _stopped(self._head)


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """None, when the timer will not go off any more."""
    if timer is not None:
        timer.cancel()
    return None
