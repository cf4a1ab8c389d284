"""Text that others have chosen, such as names from a table, a log or a lock, as it may reach a terminal."""

from __future__ import annotations

import re

# What moves the cursor, clears lines or answers for the user, turns the direction of reading round, or is no character.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str, *, lines: bool = False) -> str:
    """The text with control characters as codes, as Python writes them; on one line unless it may have ``lines``."""
    return _UNSEEN.sub(lambda found: found[0] if lines and found[0] == "\n" else _code(found[0]), text)


def visible_json(text: str) -> str:
    """JSON text, with the control characters that it may hold as its own codes; the value stays the same."""
    return _UNSEEN.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _code(char: str) -> str:
    return char.encode("unicode_escape").decode()
