"""The sessions of other tables that a handle has met in transactions over several tables."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class _Session(Protocol):
    url: str
    closed: bool

    def close(self) -> None: ...
    def require_log(self) -> None: ...


S = TypeVar("S", bound=_Session)


class Partners(Generic[S]):
    """Sessions by URL. Those given by `meet` belong to others; the rest are opened when asked for, and closed with this one.

    Args:
        opens: opens the session of a URL.
    """

    def __init__(self, opens: Callable[[str], S]) -> None:
        self._opens, self._mutex = opens, threading.Lock()
        self._met: dict[str, S] = {}
        self._opened: dict[str, S] = {}

    def meet(self, session: S) -> None:
        """Use this session of another table from now on."""
        with self._mutex:
            self._met[session.url] = session

    def at(self, url: str) -> S:
        """Return the session of a table.

        Raises:
            TableNotFoundError: there is no table.
            UnsupportedTableError: it has no commit log.
        """
        with self._mutex:
            found = self._met.get(url)
            if found is None or found.closed:
                found = self._opened.get(url)
            if found is None or found.closed:
                found = self._opened[url] = self._opens(url)
        found.require_log()
        return found

    def close(self) -> None:
        """Close those that were opened here. Idempotent."""
        with self._mutex:
            opened = list(self._opened.values())
            self._opened.clear()
        for each in opened:
            each.close()
