"""Parse lock records from JSON text, which may come from any writer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..interface import BreakRecord


def fields_of(text: str | bytes) -> dict[str, Any]:
    """Return the fields of a record; {} for anything but a JSON object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def break_of(key: str, value: Mapping[str, Any]) -> BreakRecord | None:
    """Return the break record in ``value``, or None if it is not one."""
    try:
        return BreakRecord(key, int(value["token"]), str(value["reason"]), str(value["who"]), float(value["at"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        return None
