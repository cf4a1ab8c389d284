"""One request to a server that takes markers. A module of its own, because HTTP and TLS are slow to import."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from .marker_lists import is_list

_ANSWER_S = 10.0
_APART_S = 5.0  # between two tries of a server that did not reply
_ANSWER_BYTES = 4 << 20


class NotTakenError(Exception):
    """The server is gone, refuses, or gave an unintelligible reply; it may have taken the markers.

    ``wait_s``: seconds to skip the server.
    """

    def __init__(self, why: str, wait_s: float = _APART_S) -> None:
        super().__init__(why)
        self.wait_s = wait_s


def post(url: str, path: str, names: Sequence[str], ticket: str, authority: str) -> list[str]:
    """Return the list that holds each of these marker names. `NotTakenError` unless all are in one."""
    body = json.dumps({"markers": list(names)}, ensure_ascii=False).encode()
    headers = {"authorization": f"Bearer {ticket}", "content-type": "application/json"}
    for again in (False, True):
        try:
            connection = _to(url, authority)
            try:
                connection.request("POST", urlsplit(url).path.rstrip("/") + path, body=body, headers=headers)
                answer = connection.getresponse()
                return _lists(answer, answer.read(_ANSWER_BYTES), len(names))
            finally:
                connection.close()
        except ConnectionResetError as e:
            # The server restarted in between; repeating the request is safe.
            if again:
                raise NotTakenError(str(e)) from e
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as e:
            raise NotTakenError(str(e) or type(e).__name__) from e
    raise AssertionError


def _to(url: str, authority: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    assert parts.hostname is not None
    if parts.scheme == "http":
        return http.client.HTTPConnection(parts.hostname, parts.port, timeout=_ANSWER_S)
    trust = ssl.create_default_context(cadata=authority or None)
    return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=_ANSWER_S, context=trust)


def _lists(answer: http.client.HTTPResponse, told: bytes, count: int) -> list[str]:
    if answer.status != http.client.OK:
        wait = answer.getheader("retry-after", "")
        why = f"it answered {answer.status}: {told[:300].decode(errors='replace')}"
        raise NotTakenError(why, float(wait) if wait.isdecimal() and wait.isascii() else _APART_S)
    found = json.loads(told)
    lists = found.get("lists") if isinstance(found, dict) else None
    if not isinstance(lists, list) or len(lists) != count or not all(isinstance(x, str) and is_list(x) for x in lists):
        raise NotTakenError("its answer names no lists; is it a server of another version?")
    return lists
