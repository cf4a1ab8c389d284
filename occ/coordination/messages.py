"""The messages between a writer and its coordinator. Pure.

A writer asks to begin or to commit, and says which slot of the log it would read next. The answer has the entries from
there on, the writer's own among them if it was taken. A question is a hint: it may be lost, late, doubled, stale or
hostile, and what is in an entry was judged. An answer tells what stands in the log; without
one the writer reads the log itself.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, Self

from ..entries import BeginRequest, Request

_VERSION = 1
ANSWER_BYTES = 32 << 20
ALONE_S = 1.0  # how long nobody else was at work, and how long its writer goes on by itself then
_NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Question:
    """A question: to begin, or to commit.

    Attributes:
        slot: the next one that its writer would read.
        wanted: what is to be begun or committed.
    """

    slot: int
    wanted: BeginRequest | Request

    def to_bytes(self) -> bytes:
        """Encode it: a line of JSON, and the request."""
        begins = isinstance(self.wanted, BeginRequest)
        head = {"v": _VERSION, "slot": self.slot, "kind": "begin" if begins else "commit"}
        return json.dumps(head, separators=(",", ":")).encode() + b"\n" + self.wanted.to_bytes()

    @classmethod
    def from_bytes(cls, message: bytes) -> Self | None:
        """Decode a question; None if it is torn, invalid or of another version."""
        head, _, body = message.partition(b"\n")
        try:
            raw = json.loads(head)
            slot, kind = raw["slot"], raw["kind"]
            if raw["v"] != _VERSION or type(slot) is not int or slot < 0 or kind not in ("begin", "commit"):
                return None
            wanted = BeginRequest.from_bytes(body) if kind == "begin" else Request.from_bytes(body)
        except _NOT_UNDERSTOOD:
            return None
        return None if wanted is None else cls(slot, wanted)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer: path and bytes of the log's entries from the slot asked for, durable if the writer's is among them.

    No entries: the writer is too far behind to be told all of them. ``published``: its commit is on the timeline.
    ``alone``: nobody else is at work, so it is quicker by itself for the next seconds (`ALONE_S`).
    """

    entries: tuple[tuple[str, bytes], ...] = ()
    published: bool = True
    alone: bool = False

    def to_bytes(self) -> bytes:
        """Encode it: a line of JSON with the entries' places, and the entries."""
        places = [(path, len(body)) for path, body in self.entries]
        raw = {"v": _VERSION, "published": self.published, "alone": self.alone, "entries": places}
        head = json.dumps(raw, separators=(",", ":")).encode()
        return b"".join((head, b"\n", *(body for _, body in self.entries)))

    @classmethod
    def from_bytes(cls, message: bytes) -> Self | None:
        """Decode an answer; None if it is torn, invalid or of another version."""
        head, _, bodies = message.partition(b"\n")
        try:
            raw = json.loads(head)
            paths, sizes = [path for path, _ in raw["entries"]], [size for _, size in raw["entries"]]
            flags = raw["published"], raw["alone"]
            known = (
                raw["v"] == _VERSION and {type(each) for each in flags} == {bool} and {type(p) for p in paths} <= {str}
            )
            if not known or not all(type(size) is int and size >= 0 for size in sizes) or sum(sizes) != len(bodies):
                return None
        except _NOT_UNDERSTOOD:
            return None
        ends = [0]
        for size in sizes:
            ends.append(ends[-1] + size)
        found = tuple((path, bodies[i:j]) for path, (i, j) in zip(paths, pairwise(ends), strict=True))
        return cls(found, *flags)


class Coordinating(Protocol):
    """A coordinator as a writer asks it; passed to `lakelatch.open` as ``coordinator``."""

    def ask(self, question: Question, patience_s: float) -> Answer | None:
        """Ask, and wait for the answer. None: nothing was heard, and the transaction may be taken nevertheless, or later."""
        ...

    def close(self) -> None:
        """Note that a handle which asks it is closed. Idempotent."""
        ...
