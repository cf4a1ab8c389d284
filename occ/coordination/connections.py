"""The client of a coordinator behind HTTP: connections that are kept, one for each thread that asks at a time.

Whatever goes wrong (no server, an error, silence, another version) is "nothing was heard": the writer reads the log and
goes on by itself. The server is then left alone for some seconds, so that not every transaction waits for one that is gone.
"""

from __future__ import annotations

import http.client
import logging
import os
import ssl
from collections import deque
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ...errors import ConfigError
from .messages import ANSWER_BYTES, Answer, Question

if TYPE_CHECKING:
    from ...environment import Environment

_APART_S, _APART_MAX_S = 1.0, 10.0  # until a server that gave no answer is asked again; doubled while it gives none
_KEPT = 64  # connections that wait for another question
_log = logging.getLogger("lakelatch.coordinator")


class Connections:
    """The connections to a server that begins and commits for one table. Safe to share between threads."""

    def __init__(self, url: str, path: str, token: str, authority_file: str, env: Environment) -> None:
        self.url, self._parts, self._env = url, urlsplit(url), env
        self._trust: ssl.SSLContext | None = None
        if self._parts.scheme == "https":
            try:
                self._trust = ssl.create_default_context(cafile=authority_file or None)
            except (OSError, ssl.SSLError) as e:
                raise ConfigError(f"the certificate file {authority_file} cannot be used: {e}") from e
        self._headers = {"authorization": f"Bearer {token}"}
        self._path = self._parts.path.rstrip("/") + path
        self._idle: deque[http.client.HTTPConnection] = deque()
        self._process = os.getpid()
        self._left_alone, self._apart_s = 0.0, _APART_S  # until then (monotonic), and for how long next time

    def ask(self, question: Question, patience_s: float) -> Answer | None:
        """Implement `Coordinating`."""
        if self._env.monotonic() < self._left_alone:
            return None
        try:
            found = self._told(question.to_bytes(), patience_s)
        except (OSError, http.client.HTTPException, ValueError) as e:
            self._left_alone = self._env.monotonic() + self._apart_s
            self._apart_s = min(2 * self._apart_s, _APART_MAX_S)
            _log.warning("the coordinator %s was not heard, and writers go on without it: %s", self.url, e or type(e))
            return None
        self._apart_s = _APART_S
        return found

    def _told(self, message: bytes, patience_s: float) -> Answer | None:
        while True:
            connection = self._kept()
            fresh = connection is None
            if connection is None:
                connection = self._opened()
            try:
                connection.timeout = patience_s
                if connection.sock is not None:
                    connection.sock.settimeout(patience_s)
                connection.request("POST", self._path, body=message, headers=self._headers)
                answer = connection.getresponse()
                told = answer.read(ANSWER_BYTES)
            except (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected):
                connection.close()
                # A server closes connections that were idle for long. To ask twice is safe.
                if fresh:
                    raise
                continue
            except BaseException:
                connection.close()
                raise
            if answer.will_close:
                connection.close()
            elif len(self._idle) < _KEPT:
                self._idle.append(connection)
            if answer.status != http.client.OK:
                raise ValueError(f"it answered {answer.status}: {told[:300].decode(errors='replace')}")
            told = told.lstrip(b"\n")
            if not told:
                return None
            found = Answer.from_bytes(told)
            if found is None:
                raise ValueError("its answer cannot be understood; is it a server of another version?")
            return found

    def _kept(self) -> http.client.HTTPConnection | None:
        if self._process != os.getpid():  # after a fork the connections are those of the parent
            self._idle, self._process = deque(), os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _opened(self) -> http.client.HTTPConnection:
        assert self._parts.hostname is not None
        if self._trust is None:
            return http.client.HTTPConnection(self._parts.hostname, self._parts.port)
        return http.client.HTTPSConnection(self._parts.hostname, self._parts.port, context=self._trust)

    def close(self) -> None:
        """Close the connections that are not in use."""
        while (connection := self._kept()) is not None:
            connection.close()
