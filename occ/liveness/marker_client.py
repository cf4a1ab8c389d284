"""The client of a server that takes markers, for the driver and for the workers of a transaction.

One request announces all files of a task; the reply means that they are in the lists of the transaction
(`marker_lists`). Anything else (no server, an error, no reply in time) gives None, for this request only,
and the caller puts direct markers: an announcement is never lost. After a failure the server is skipped for some
seconds, so that tasks do not wait again and again for a server that is gone.

Workers receive a ticket made from the server's token, never the token: it opens the markers of one table for some
hours, and nothing else.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from ...arguments import text
from ...environment import SYSTEM, Environment
from ...errors import ConfigError
from ...storage import Store, read_input

_NAMES_MAX, _BYTES_MAX = 5000, 512 << 10  # of one request
_TICKET_S = 6 * 3600.0
_log = logging.getLogger("lakelatch.markers")
_left_alone: dict[str, float] = {}  # by URL of a server, skipped until then (monotonic)


def ticket(token: str, table: str, until: int) -> str:
    """Make a ticket: its bearer may announce files of a table on the server until then (seconds since 1970)."""
    sealed = hmac.new(token.encode(), f"markers\n{table}\n{until}".encode(), hashlib.sha256)
    return f"markers.{until}.{sealed.hexdigest()}"


@dataclass(frozen=True)
class MarkerClient:
    """A connection to the server at ``url``, for a table as the server calls it. Pickles with its ticket.

    Attributes:
        ticket: see `ticket`; must appear in no job property, event log or message.
        authority: certificates as PEM that verify the server's; "" for those of the machine.
        apart_max_s: the longest time a failed server is skipped, whatever it says.
    """

    url: str
    table: str
    ticket: str = field(repr=False)
    authority: str = field(default="", repr=False)
    apart_max_s: float = 60.0

    def take(self, instant: str, names: Sequence[str]) -> dict[str, str] | None:
        """Announce files by the names of their markers; return the list that holds each. None: not all are announced.

        Idempotent.
        """
        if SYSTEM.monotonic() < _left_alone.get(self.url, 0.0):
            return None
        from .marker_request import NotTakenError, post  # HTTP, imported only when it is used

        path = f"/api/v1/tables/{quote(self.table, safe='')}/markers/{instant}"
        found: dict[str, str] = {}
        try:
            for some in _portions(names):
                found.update(zip(some, post(self.url, path, some, self.ticket, self.authority), strict=True))
        except NotTakenError as e:
            _left_alone[self.url] = SYSTEM.monotonic() + min(e.wait_s, self.apart_max_s)
            _log.warning("%s took no markers of %s, which are put directly: %s", self.url, instant, e)
            return None
        return found


def _portions(names: Sequence[str]) -> Iterator[list[str]]:
    some: list[str] = []
    size = 0
    for name in names:
        length = len(name.encode()) + 4
        if some and (len(some) == _NAMES_MAX or size + length > _BYTES_MAX):
            yield some
            some, size = [], 0
        some.append(name)
        size += length
    if some:
        yield some


class MarkerService(Protocol):
    """The service that takes the markers of a writer; passed to `lakelatch.open` as ``markers``."""

    def marker_client(self, store: Store, env: Environment) -> MarkerClient | None:
        """The client that announces this table's files now. None: markers are put directly."""
        ...

    def close(self, store: Store) -> None:
        """Note that the writer has closed this table."""
        ...


class MarkerServer:
    """A ``lakelatch server`` that takes the markers of a writer: ``lakelatch.open(url, markers=MarkerServer(...))``.

    Args:
        url: of the server.
        token: its token, or ``token_file``: the file that holds it.
        table: the server's name for the table; the last part of the table's URL by default.
        authority_file: certificates as PEM, if machines do not trust the server's by default.
        plain_http: accept ``http://`` beyond this machine, because a proxy in front of the server has TLS.

    Raises:
        ConfigError: no URL of a server, no token, or a file that cannot be read.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        token_file: str = "",
        table: str = "",
        authority_file: str = "",
        plain_http: bool = False,
    ) -> None:
        self.url = text(url, "url").rstrip("/")
        refuse_unsafe(self.url, "server for markers", plain_http=plain_http)
        self._token = token_in(token, token_file, "server for markers")
        self._table = text(table, "table", empty=True)
        self._authority = _contents(authority_file, "certificate") if authority_file else ""
        self._made: tuple[float, MarkerClient] | None = None

    def __repr__(self) -> str:
        return f"MarkerServer({self.url!r})"

    def marker_client(self, store: Store, env: Environment) -> MarkerClient:
        """See `MarkerService`. Return the same client for half of a ticket's life: each request has hours of it left."""
        now = env.now()
        if self._made is None or now - self._made[0] > _TICKET_S / 2:
            table = self._table or store.url.rstrip("/").rpartition("/")[2]
            sealed = ticket(self._token, table, int(now + _TICKET_S))
            self._made = (now, MarkerClient(self.url, table, sealed, self._authority))
        return self._made[1]

    def close(self, store: Store) -> None:
        """Do nothing; there is no open connection."""


def token_in(token: str, token_file: str, what: str) -> str:
    """The token of a server, given or in a file. Raises `ConfigError` if it is neither or both, or no token."""
    if bool(token) == bool(token_file):
        raise ConfigError(f"a {what} wants its token: give token or token_file, and not both")
    given = token or (_contents(token_file, "token file").splitlines() or [""])[0].strip()
    if not given or not given.isascii() or not given.isprintable():
        raise ConfigError(f"the token of the {what} is empty or no printable ASCII; give the server's own")
    return given


def refuse_unsafe(url: str, what: str, *, plain_http: bool) -> None:
    """Raise `ConfigError` unless it is the URL of a server to which a token may be sent."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError as e:
        raise ConfigError(f"the {what} has no URL that can be read: {e}; write http://127.0.0.1:8047") from e
    if parts.scheme not in ("http", "https") or not host or "@" in parts.netloc or parts.query or parts.fragment:
        raise ConfigError(
            f"the {what} wants a URL with http or https, a host and a port, and neither user nor query; write "
            "http://127.0.0.1:8047, and give the token by itself"
        )
    if parts.scheme == "http" and not plain_http and not _is_loopback(host):
        raise ConfigError(
            f"http to {host} would show the ticket to the network; take https, or plain_http=True where a proxy has TLS",
            host=host,
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _contents(path: str, what: str) -> str:
    try:
        return read_input(path).decode()
    except (OSError, ValueError) as e:
        reason: Any = e.strerror if isinstance(e, OSError) else "it is no text"
        raise ConfigError(f"the {what} {path} cannot be read: {reason}", path=path) from e
