"""The server process: a socket on loopback by default, TLS elsewhere, and bounded patience for clients."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import ConfigError
from .guard import CROWDED, Limits, refusal

if TYPE_CHECKING:
    from .application import Application


# HTTP with limits on the wait for a request's head and for a slow reader; uvicorn itself waits for ever.
#
# Malformed HTTP, and requests over the limit, are answered in JSON like everything else.


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


@dataclass(frozen=True, slots=True)
class Address:
    """The address that the server listens on.

    Attributes:
        certificate: a file with the certificate and its chain, as PEM; with ``key`` the server speaks TLS.
        plain: listen beyond this machine without TLS, because a proxy before the server has it.
    """

    host: str = "127.0.0.1"
    port: int = 8047
    certificate: str = ""
    key: str = ""
    plain: bool = False

    @property
    def secure(self) -> bool:
        """True if the server speaks TLS."""
        return bool(self.certificate)

    def refuse_unsafe(self) -> None:
        """Raise `ConfigError` if the token would cross a network unencrypted."""
        if bool(self.certificate) != bool(self.key):
            raise ConfigError("TLS needs both: --tls-cert FILE and --tls-key FILE")
        if self.secure or self.plain or _is_loopback(self.host):
            return
        raise ConfigError(
            f"listening on {self.host} without TLS would show the token to the network; give --tls-cert and --tls-key, or "
            "--plain-http where a proxy before this server has TLS",
            host=self.host,
        )

    def socket(self) -> socket.socket:
        """Return the bound socket. Raises `ConfigError` if the port is taken or the address is unusable."""
        self.refuse_unsafe()
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)[0]
            bound = socket.socket(family, kind, protocol)
            # A restarted server takes its port again while old connections are still closing.
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind(address)
        except (OSError, OverflowError) as e:
            reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
            raise ConfigError(
                f"cannot listen on {self.host} port {self.port}: {reason}; choose another with --port (0 picks a free one)",
                host=self.host,
                port=self.port,
            ) from e
        return bound


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Server(uvicorn.Server):
    """A server of one application until SIGINT or SIGTERM; then it answers open requests and ends.

    Args:
        listening: called with the URL once requests are accepted.
    """

    def __init__(
        self, application: Application, address: Address, *, listening: Callable[[str], object] = lambda _url: None
    ) -> None:
        self._application, self._address, self._listening = application, address, listening
        self._socket = address.socket()
        port = self._socket.getsockname()[1]
        host = f"[{address.host}]" if ":" in address.host else address.host
        application.access.cookie = f"lakelatch-{port}"  # browsers share cookies between the ports of a host
        self.url = f"{'https' if address.secure else 'http'}://{host}:{port}"
        limits = application.limits
        try:
            config = uvicorn.Config(
                application.asgi,
                # uvicorn makes the protocol objects itself, so their limits are attributes of a class.
                http=type("Http", (BoundedHttp,), {"limits": limits, "more_headers": application.headers}),
                ws="none",
                lifespan="on",
                log_config=None,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=int(limits.headers_s),
                timeout_graceful_shutdown=int(limits.drain_s),
                ssl_certfile=address.certificate or None,
                ssl_keyfile=address.key or None,
            )
            config.load()
        except (OSError, ssl.SSLError) as e:
            self._socket.close()
            raise ConfigError(f"the certificate or its key cannot be used: {e}") from e
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listening(self.url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._application.drain()
        await super().shutdown(sockets)

    def run_here(self) -> None:
        """Serve on this thread until asked to stop."""
        try:
            self.run(sockets=[self._socket])
        finally:
            self._socket.close()
