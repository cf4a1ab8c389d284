"""A server that is a coordinator, as a user names it."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from ...arguments import text
from ..liveness import refuse_unsafe, token_in

if TYPE_CHECKING:
    from ...environment import Environment
    from ...storage import Store
    from .messages import Coordinating


class CoordinatorServer:
    """A ``lakelatch server --coordinate``: ``lakelatch.open(url, coordinator=CoordinatorServer(...))``.

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
        self.url = text(url, "coordinator").rstrip("/")
        refuse_unsafe(self.url, "coordinator", plain_http=plain_http)
        self._token, self._table = token_in(token, token_file, "coordinator"), text(table, "table", empty=True)
        self._authority_file = authority_file

    def __repr__(self) -> str:
        return f"CoordinatorServer({self.url!r})"

    def for_table(self, store: Store, env: Environment) -> Coordinating:
        """Return the client for this table."""
        from .connections import Connections  # HTTP and TLS are slow to import

        name = self._table or store.url.rstrip("/").rpartition("/")[2]
        path = f"/api/v1/tables/{quote(name, safe='')}/transactions"
        return Connections(self.url, path, self._token, self._authority_file, env)
