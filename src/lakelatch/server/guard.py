"""The checks on every request: limits of size and rate, the token, and the headers of every answer."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.datastructures import MutableHeaders
from starlette.responses import Response

from ..errors import (
    ConfigError,
    CorruptTableError,
    InputError,
    LakeLatchError,
    LockUnavailableError,
    StorageError,
    UnsupportedTableError,
)
from ..occ.liveness import ticket
from ..plain_text import visible, visible_json
from ..storage import read_input

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ..environment import Environment


_STATUS = (
    (InputError, HTTPStatus.BAD_REQUEST),
    (UnsupportedTableError, HTTPStatus.CONFLICT),
    (CorruptTableError, HTTPStatus.CONFLICT),
    (StorageError, HTTPStatus.BAD_GATEWAY),
    (LockUnavailableError, HTTPStatus.BAD_GATEWAY),
)


def answer(value: Any, *, status: int = 200) -> Response:
    """Return a value as JSON. Half characters and controls are escaped, so it is valid text whatever names a table has."""
    text = visible_json(json.dumps(value, ensure_ascii=False, allow_nan=False, default=str))
    return Response(text.encode(), status, media_type="application/json")


def refusal(status: HTTPStatus, message: str, *, kind: str = "", retry_s: float | None = None) -> Response:
    """Return an error with the next step. ``retry_s``: seconds until a retry makes sense."""
    told = {"error": {"type": kind or status.phrase.replace(" ", ""), "message": visible(message)}}
    found = answer(told, status=status)
    if retry_s is not None:
        found.headers["retry-after"] = str(max(math.ceil(retry_s), 1))
    if status is HTTPStatus.UNAUTHORIZED:
        found.headers["www-authenticate"] = 'Bearer realm="lakelatch"'
    return found


def of_error(error: LakeLatchError) -> Response:
    """Return the response for an error of the library."""
    status = next((each for kind, each in _STATUS if isinstance(error, kind)), HTTPStatus.CONFLICT)
    return refusal(status, str(error), kind=type(error).__name__, retry_s=1.0 if error.retryable else None)


LEAST = 16  # characters of a token: fewer can be guessed
_TICKET = re.compile(rb"markers\.([0-9]{1,12})\.[0-9a-f]{64}")
Headers = list[tuple[bytes, bytes]]


class Access:
    """The check of each request's token, in a time that does not depend on how much of it is right.

    A program sends ``Authorization: Bearer TOKEN``. A browser is opened once with ``/?token=TOKEN`` and gets a cookie
    that does not reveal the token and allows reading only. A writer's tasks have a ticket, which allows them to announce
    files of one table.
    """

    def __init__(self, token: str, *, cookie: str = "lakelatch") -> None:
        if len(token) < LEAST or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(
                f"the server's token must have {LEAST} characters or more, printable ASCII without blanks; "
                "`openssl rand -hex 32` makes one"
            )
        self.token, self.cookie = token, cookie
        self._session = hmac.new(token.encode(), b"lakelatch dashboard", hashlib.sha256).hexdigest()

    @classmethod
    def from_file(cls, path: str) -> Access:
        """Read the token from the first line of a file. Raises `ConfigError` if the file is unreadable or empty."""
        try:
            lines = read_input(path).decode().splitlines()
        except (OSError, ValueError) as e:
            reason = e.strerror if isinstance(e, OSError) else "it is no text"
            raise ConfigError(f"the token file {path} cannot be read: {reason}", path=path) from e
        return cls(lines[0].strip() if lines else "")

    @classmethod
    def made(cls) -> Access:
        """Return access by a new token, for this run."""
        return cls(secrets.token_urlsafe(32))

    def bears(self, headers: Headers) -> bool:
        """Return whether the request bears the token itself."""
        given = [value for name, value in headers if name == b"authorization"]
        if len(given) != 1:
            return False
        scheme, _, word = given[0].partition(b" ")
        return scheme.lower() == b"bearer" and _same(word.strip(), self.token)

    def knows(self, headers: Headers) -> bool:
        """Return whether the request comes from a browser that was opened with the token."""
        for name, value in headers:
            if name == b"cookie":
                for each in value.split(b";"):
                    key, _, word = each.strip().partition(b"=")
                    if key == self.cookie.encode() and _same(word, self._session):
                        return True
        return False

    def may_mark(self, headers: Headers, table: str, now: float) -> bool:
        """Return whether the request bears a ticket (`lakelatch.occ.liveness.ticket`) for that table's markers."""
        given = [value for name, value in headers if name == b"authorization"]
        scheme, _, word = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
        found = _TICKET.fullmatch(word.strip())
        if scheme.lower() != b"bearer" or found is None or int(found[1]) < now:
            return False
        return _same(found[0], ticket(self.token, table, int(found[1])))

    def opens(self, query: bytes) -> bool:
        """Return whether the query is that of the dashboard's link."""
        try:
            given = [value for name, value in parse_qsl(query.decode("latin-1"), max_num_fields=50) if name == "token"]
        except ValueError:
            return False
        return len(given) == 1 and _same(given[0].encode(), self.token)

    def set_cookie(self, *, secure: bool) -> str:
        """Return the cookie that the browser is to keep."""
        return f"{self.cookie}={self._session}; Path=/; HttpOnly; SameSite=Lax" + ("; Secure" if secure else "")


def _same(given: bytes, right: str) -> bool:
    # Digests have equal length whatever was given, so the time of the comparison reveals nothing of the token's.
    return hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(right.encode()).digest())


CROWDED = "lakelatch.crowded"  # in the scope of a request over the connection limit
_PEERS_MAX = 4096
_MARKERS = re.compile(r"/api/v1/tables/([^/]+)/markers/[^/]+")
_TRANSACTIONS = re.compile(r"/api/v1/tables/[^/]+/transactions")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits on one client, and on all of them together.

    Attributes:
        body_bytes: the size of a request's body.
        requests_s: requests per second of a client with the token, and as many without it where none is needed; bursts double.
        markers_s: the same for requests that announce files, begin or commit.
        markers_answer_s: seconds until such a request gets 503.
        failures_s: a client's requests per second with a wrong token.
        connections: open connections; ``streams`` of these may be live views.
        calls: calls that read tables at the same time; ``calls_waiting`` more may wait.
        answer_s: seconds until a request gets 504.
        headers_s: seconds that a client may take to send a request's head.
        write_s: seconds that a client may leave an answer unread.
        drain_s: seconds that requests may go on after the server is asked to stop.
    """

    body_bytes: int = 1 << 20
    requests_s: float = 100.0
    markers_s: float = 5000.0
    markers_answer_s: float = 8.0
    failures_s: float = 5.0
    connections: int = 512
    streams: int = 64
    calls: int = 8
    calls_waiting: int = 64
    answer_s: float = 30.0
    headers_s: float = 10.0
    write_s: float = 20.0
    drain_s: float = 10.0


class _Rates:
    """A token bucket for each client: it fills at ``per_s`` a second and holds twice as many."""

    def __init__(self, env: Environment, per_s: float) -> None:
        self._env, self._per_s = env, per_s
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, peer: str) -> float:
        """Take one and return 0, or return the seconds to wait until there is one."""
        now, most = self._env.monotonic(), 2 * self._per_s
        # Popped and stored again, so that the first entry is always the client that was silent longest.
        left, at = self._left.pop(peer, (most, now))
        left = min(most, left + (now - at) * self._per_s)
        wait_s = 0.0 if left >= 1.0 else (1.0 - left) / self._per_s
        self._left[peer] = (left if wait_s else left - 1.0, now)
        if len(self._left) > _PEERS_MAX:
            self._left.popitem(last=False)
        return wait_s


class Guard:
    """The outermost part of the application."""

    def __init__(
        self, app: ASGIApp, access: Access, limits: Limits, env: Environment, headers: Mapping[str, str]
    ) -> None:
        self._app, self._access, self._limits, self._headers = app, access, limits, headers
        self._env = env
        self._requests, self._failures = _Rates(env, limits.requests_s), _Rates(env, limits.failures_s)
        self._markers, self._strangers = _Rates(env, limits.markers_s), _Rates(env, limits.requests_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        unread = _has_body(scope)

        async def receive_on() -> Message:
            nonlocal unread
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                unread = False
            return message

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
                if unread:
                    headers["connection"] = "close"  # an unread body must not be parsed as the next request
            await send(message)

        await (self._refused(scope) or self._app)(scope, receive_on, send_on)

    def _refused(self, scope: Scope) -> ASGIApp | None:
        if scope.get(CROWDED):
            return refusal(HTTPStatus.SERVICE_UNAVAILABLE, "too many connections; ask again in a second", retry_s=1.0)
        peer = scope["client"][0] if scope.get("client") else ""
        announced = _MARKERS.fullmatch(scope["path"]) if scope["method"] == "POST" else None
        # The token is checked first, so that a flood of requests without it, or with guesses, does not lock out its owner.
        known = self._knows(scope, announced[1] if announced else "")
        if not known and scope["path"] != "/healthz":
            if wait_s := self._failures.take(peer):
                return refusal(
                    HTTPStatus.TOO_MANY_REQUESTS, "too many wrong tokens; wait, then try again", retry_s=wait_s
                )
            return refusal(
                HTTPStatus.UNAUTHORIZED,
                "no token, or a wrong one; send it as `Authorization: Bearer TOKEN`, or open the dashboard's link, "
                "/?token=TOKEN",
            )
        many = announced or (scope["method"] == "POST" and _TRANSACTIONS.fullmatch(scope["path"]))
        rates = self._markers if many else self._requests if known else self._strangers
        if wait_s := rates.take(peer):
            return refusal(HTTPStatus.TOO_MANY_REQUESTS, "too many requests; ask more slowly", retry_s=wait_s)
        length = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
        if not length.isdigit() or int(length[:20]) > self._limits.body_bytes:
            most = self._limits.body_bytes
            return refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body is too large; send {most:,} bytes at most")
        return None

    def _knows(self, scope: Scope, marked: str) -> bool:
        """Return whether a request's credentials allow it; ``marked``: the table whose files it announces."""
        headers, access = scope["headers"], self._access
        return (
            access.bears(headers)
            or (scope["method"] != "POST" and access.knows(headers))  # a browser looks, and changes nothing
            or (bool(marked) and access.may_mark(headers, marked, self._env.now()))
            or (scope["path"] == "/" and access.opens(scope["query_string"]))
        )


def _has_body(scope: Scope) -> bool:
    return any(
        name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
        for name, value in scope["headers"]
    )
