"""Java's `.properties` text, read and written as `java.util.Properties` does, escape for escape."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_UNESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_SEPARATOR = re.compile(r"((?:\\.|[^\\=: \t\f])*)[ \t\f]*[=:]?[ \t\f]*", re.DOTALL)


def parse(body: bytes) -> dict[str, str]:
    """Return keys and values as Java reads them: Latin-1 bytes, escapes, continuation lines, the last of equal keys wins.

    Raises ValueError for a broken unicode escape, as Java does.
    """
    properties: dict[str, str] = {}
    for line in _logical_lines(body.decode("latin-1")):
        found = _SEPARATOR.match(line)
        assert found is not None, line
        properties[_unescape(found[1])] = _unescape(line[found.end() :])
    return properties


def render(properties: Mapping[str, str]) -> bytes:
    """Return the bytes that Java reads as these keys and values, in the order given."""
    lines = ["#Written by LakeLatch"]
    lines += [f"{_escape(key, key=True)}={_escape(value, key=False)}" for key, value in properties.items()]
    return ("\n".join(lines) + "\n").encode("ascii")


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    pending: list[str] = []  # the beginning of a line that goes on
    for natural in re.split(r"\r\n|\n|\r", text):
        line = natural.lstrip(" \t\f")
        if not pending and (not line or line[0] in "#!"):
            continue
        # An even number of backslashes at the end is escaped backslashes, not a continuation.
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending.append(line[:-1])
        else:
            lines.append("".join([*pending, line]))
            pending = []
    if rest := "".join(pending):
        lines.append(rest)
    return lines


def _unescape(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        if found[1]:
            return chr(int(found[1], 16))
        if found[2] == "u":
            raise ValueError(f"broken unicode escape in {text[:80]!r}")
        return _ESCAPES.get(found[2], found[2]) if found[2] else ""

    plain_text = _UNESCAPE.sub(plain, text)
    # Java escapes UTF-16 units: a character beyond them comes as two.
    return plain_text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, key: bool) -> str:
    out: list[str] = []
    for place, char in enumerate(text):
        if char == " ":
            # Only where Java would skip it: anywhere in a key, at the start of a value.
            out.append("\\ " if key or place == 0 else " ")
        elif char in "\t\n\r\f":
            out.append("\\" + {value: name for name, value in _ESCAPES.items()}[char])
        elif char in "=:#!\\":
            out.append("\\" + char)
        elif " " < char < "\x7f":
            out.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass").hex()
            out += [f"\\u{units[at : at + 4].upper()}" for at in range(0, len(units), 4)]
    return "".join(out)
