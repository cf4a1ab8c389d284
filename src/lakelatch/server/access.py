"""Access control: one token for the whole server, and a cookie for the browser that was opened with it."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from urllib.parse import parse_qsl

from ..errors import ConfigError
from ..occ.liveness import ticket
from ..storage import read_input

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
