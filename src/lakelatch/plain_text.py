"""Text that others have chosen, such as names from a table, a log or a lock, as it may reach a terminal."""

from __future__ import annotations

import re
from urllib.parse import unquote

# What moves the cursor, clears lines or answers for the user, turns the direction of reading round, or is no character.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_SCHEME = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:(?=/)")
_PASSWORD = re.compile(r":[^@]*@", re.DOTALL)
_KEY = re.compile(
    r"[?&#;,][^=/]{0,60}(?:secret|passw|token|credential|signature|access_?key|account_?key|sas)[^=/]{0,60}=", re.I
)


def may_hold_password(address: str) -> bool:
    """Whether an address, written right or not, may hold one: a ':' and then an '@', or an option of that name.

    Percent-encoded as well, and also twice.
    """
    for _ in range(3):
        rest = _SCHEME.sub("", address, count=1)
        if _PASSWORD.search(rest) or _KEY.search(rest):
            return True
        address = unquote(address)
    return False


def has_odd_port(address: str) -> bool:
    """Whether behind a ':' of the servers of a URL stands no port, but perhaps a password that lacks its '@'."""
    servers = re.split(r"[/?#]", unquote(address.partition("://")[2]), maxsplit=1)[0].rpartition("@")[2]
    return any(
        ":" in place and not re.fullmatch(r"(?:\[[^\]]*\]|[^:]*)(?::[0-9]{1,5})?", place)
        for place in servers.split(",")
    )


def visible(text: str, *, lines: bool = False) -> str:
    """The text with control characters as codes, as Python writes them; on one line unless it may have ``lines``."""
    return _UNSEEN.sub(lambda found: found[0] if lines and found[0] == "\n" else _code(found[0]), text)


def visible_json(text: str) -> str:
    """JSON text, with the control characters that it may hold as its own codes; the value stays the same."""
    return _UNSEEN.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", text)


def _code(char: str) -> str:
    return char.encode("unicode_escape").decode()
