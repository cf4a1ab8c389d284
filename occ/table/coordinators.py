"""The coordinator that a handle asks: one in this process, a server, or that of the table's settings."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Protocol

from ...errors import ConfigError
from ..coordination import Answer, Coordinating, CoordinatorServer, Question
from ..landing import Coordinator
from ..session import Session

if TYPE_CHECKING:
    from ...environment import Environment
    from ...storage import Store

TOKEN = "LAKELATCH_COORDINATOR_TOKEN"  # noqa: S105 (the name of a variable)
_log = logging.getLogger("lakelatch.coordinator")


class CoordinatorOf(Protocol):
    """The argument ``coordinator`` of `lakelatch.open`."""

    def for_table(self, store: Store, env: Environment) -> Coordinating:
        """Return what a handle on this table asks."""
        ...


class LocalCoordinator:
    """A coordinator in this process, for its threads: ``lakelatch.open(url, coordinator=shared)`` for each handle.

    It has a handle of its own on each table, which closes with the last of those that ask it.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._of: dict[str, _Shared] = {}

    def for_table(self, store: Store, env: Environment) -> Coordinating:
        """Implement `CoordinatorOf`."""
        with self._mutex:
            if store.url not in self._of:
                self._of[store.url] = _Shared(Session(store, env=env, writer="coordinator"))
            shared = self._of[store.url]
            shared.handles += 1
        return _Handle(shared, self)

    def left(self, shared: _Shared) -> None:
        """Note that a handle is closed."""
        with self._mutex:
            shared.handles -= 1
            if shared.handles:
                return
            self._of.pop(shared.session.url, None)
        shared.session.close()


class _Shared:
    """The coordinator of one table in this process."""

    def __init__(self, session: Session) -> None:
        self.session, self.coordinator, self.handles = session, Coordinator(session), 0


class _Handle:
    """The coordinator as one handle asks it."""

    def __init__(self, shared: _Shared, of: LocalCoordinator) -> None:
        self._shared, self._of, self._open = shared, of, True

    def ask(self, question: Question, patience_s: float) -> Answer | None:
        """Implement `Coordinating`."""
        heard, found = self._shared.session.env.event(), list[Answer | None]()

        def answer(told: Answer | None) -> None:
            found.append(told)
            heard.set()

        self._shared.coordinator.ask(question, answer)
        # It is in this process, so it is not dead; its round may wait for the lock.
        heard.wait(max(patience_s, self._shared.session.settings.lock_wait_s))
        return found[0] if found else None

    def close(self) -> None:
        """Implement `Coordinating`."""
        was_open, self._open = self._open, False
        if was_open:
            self._of.left(self._shared)


def coordinator_of(given: str | CoordinatorOf | None, token_file: str, session: Session) -> Coordinating | None:
    """Return what a handle asks: what was given, or the server that the table's settings name.

    Without a token for that one its writers go on by themselves, and a warning says so.
    """
    if given is not None and not isinstance(given, str):
        if not callable(getattr(given, "for_table", None)):
            raise ConfigError(
                f"coordinator={given!r} is none; give the URL of a `lakelatch server --coordinate`, a "
                "lakelatch.CoordinatorServer or a lakelatch.LocalCoordinator, or leave it out"
            )
        return given.for_table(session.store, session.env)
    named, token = session.settings.coordinator, os.environ.get(TOKEN, "")
    if given is None and named and not token and not token_file:
        _log.warning(
            "%s has the coordinator %s, and this writer no token for it: it goes on by itself. Give token_file, or set %s",
            session.url,
            named,
            TOKEN,
        )
        return None
    url = given if given is not None else named
    if not url:
        return None
    return CoordinatorServer(url, token="" if token_file else token, token_file=token_file).for_table(
        session.store, session.env
    )
