"""HTTP with limits on the wait for a request's head and for a slow reader; uvicorn itself waits for ever.

Malformed HTTP, and requests over the limit, are answered in JSON like everything else.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, ClassVar

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from .answers import refusal
from .guard import CROWDED, Limits


class BoundedHttp(H11Protocol):
    """One connection."""

    limits: ClassVar[Limits] = Limits()
    more_headers: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.app = partial(self._counted, self.app)
        self._head: asyncio.TimerHandle | None = None
        self._reader: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        # Beyond this even an answer would cost too much; up to here each gets one, from `Guard`.
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
        # uvicorn waits for a slow reader as long as it takes. This closes its connection instead.
        if self._reader is None:
            self._reader = self.loop.call_later(self.limits.write_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._reader = _stopped(self._reader)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head, self._reader = _stopped(self._head), _stopped(self._reader)
        super().connection_lost(exc)

    async def _counted(self, app: Any, scope: Any, receive: Any, send: Any) -> None:
        # uvicorn has a limit of its own, but answers in plain text.
        scope[CROWDED] = max(len(self.connections), len(self.tasks)) > self.limits.connections
        await app(scope, receive, send)

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP, and close. Called while h11's error is handled."""
        error = sys.exc_info()[1]
        status = HTTPStatus(getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST))
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = (
                True  # the request being answered reads no more, and sends nothing into this answer
            )
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            told = refusal(status, f"this cannot be read as an HTTP request: {error or msg}")
            headers = [*told.raw_headers, *((n.encode(), v.encode()) for n, v in self.more_headers.items())]
            for event in (
                h11.Response(status_code=status, headers=[*headers, (b"connection", b"close")], reason=status.phrase),
                h11.Data(data=bytes(told.body)),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _wait_for_head(self) -> None:
        """Limit the time for each request's head, however slowly its bytes arrive."""
        idle = self.cycle is None or self.cycle.response_complete
        if idle and self._head is None and not self.transport.is_closing():
            self._head = self.loop.call_later(self.limits.headers_s, self.transport.abort)
        elif not idle:
            self._head = _stopped(self._head)


def _stopped(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """Cancel the timer and return None."""
    if timer is not None:
        timer.cancel()
    return None
