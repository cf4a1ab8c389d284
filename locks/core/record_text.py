"""Records of locks as JSON text, which anybody may have written there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..interface import BreakRecord


def fields_of(text: str | bytes) -> dict[str, Any]:
    """The fields of a record; none of what is no JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def break_of(key: str, value: Mapping[str, Any]) -> BreakRecord | None:
    """The record of a break; None for what is none."""
    try:
        return BreakRecord(key, int(value["token"]), str(value["reason"]), str(value["who"]), float(value["at"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
