"""Responses of the server: JSON, and errors as sentences."""

from __future__ import annotations

import json
import math
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from ..errors import (
    CorruptTableError,
    InputError,
    LakeLatchError,
    LockUnavailableError,
    StorageError,
    UnsupportedTableError,
)
from ..plain_text import visible, visible_json

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
