"""The server process: a socket on loopback by default, TLS elsewhere, and bounded patience for clients."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvicorn

from ..errors import ConfigError
from .bounded_http import BoundedHttp

if TYPE_CHECKING:
    from .application import Application


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
