"""Bytes as somebody may have left them: sound ones that were cut, flipped, spliced or given other values."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

_ODD_BYTES = [
    b"", b"\x00", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"\\\n", b"#HUDI#",
    b"Obj\x01", b"../", b"\x1b[2J", b'"', b"{", b"[" * 2000, b"\xed\xa0\x80", "\U0001f600".encode(), b"9" * 5000, b"null", b"-1",
]  # fmt: skip
_ODD_VALUES = [
    None, True, 0, -1, 2**31, 2**63, 10**400, 1e308, float("inf"), float("nan"), "", "..", "../../x", "/etc/passwd", "\x00",
    "a" * 5000, "\ud800", "20260101000000000", "99999999999999999", "2026", [], {}, [[]], {"": None}, "\x1b[2J",
]  # fmt: skip


@st.composite
def mangled(draw: st.DrawFn, seeds: Sequence[bytes]) -> bytes:
    """One of the seeds after some accidents, or anything."""
    if draw(st.integers(0, 9)) == 0:
        return draw(st.binary(max_size=200))
    body = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        to = min(len(body), at + draw(st.integers(0, 12)))
        match draw(st.sampled_from(["cut", "drop", "flip", "odd", "again", "splice"])):
            case "cut":
                body = body[:at]
            case "drop":
                body = body[:at] + body[to:]
            case "flip":
                mask = draw(st.integers(1, 255))
                body = body[:at] + bytes(each ^ mask for each in body[at:to]) + body[to:]
            case "odd":
                body = body[:at] + draw(st.sampled_from(_ODD_BYTES)) + body[to:]
            case "again":
                body = body[:to] + body[at:]
            case "splice":
                body = body[:at] + draw(st.sampled_from(seeds))[at:]
    return body


@st.composite
def mangled_json(draw: st.DrawFn, seeds: Sequence[Any]) -> bytes:
    """One of the seeds, plain values, with some of its parts given other values; as JSON."""
    value = copy.deepcopy(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(value))
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        if draw(st.integers(0, 5)) == 0:
            del holder[key]
        elif draw(st.booleans()):
            holder[key] = copy.deepcopy(draw(st.sampled_from(_ODD_VALUES)))
        else:  # of another kind, but sound
            holder[key] = copy.deepcopy(draw(st.sampled_from([at[k] for at, k in places])))
    return json.dumps(value).encode()


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every part of it, as what holds it and where."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from _places(value[key])
