"""Requests: what who waits for the table's lock puts beside the log, so that the holder may commit for it.

A request is a hint. It may be lost, late, doubled, stale, torn or hostile: nobody relies on it, and what counts is the entry of
the log alone. It is put when all files of its transaction are written, so that its commit is whole even if its writer dies. It
stands for itself: a later one of the same transaction takes nothing back of it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Self

from ...conflict import ISOLATION_LEVELS, ReadSet
from ...hudi.timeline import COMMIT_ACTIONS, is_time
from .entries import Commit, prepared

REQUESTS = ".hoodie/.lakelatch/requests"
REQUEST_BYTES = 256 * 1024  # of one at most, and of all that one entry takes
_NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Request:
    """A prepared commit, and everything that its validation needs.

    Attributes:
        commit: the entry, but for what is only known at its slot.
        round: how often it was merged again.
        base: slot of the begin entry; what has landed since then is in its way or not.
        since: up to that slot it has been merged with that.
        reads: its read set.
        isolation: the level that its writer raised the table's to; None: that of the table.
        began, wanted: the table's schema at its begin, and the one that it writes.
        size: of its bytes.
    """

    commit: Commit
    round: int
    base: int
    since: int
    reads: ReadSet
    isolation: str | None
    began: str | None
    wanted: str | None
    size: int = 0

    @property
    def instant(self) -> str:
        """T of its transaction."""
        return self.commit.instant

    @property
    def path(self) -> str:
        """Where it lies."""
        return f"{REQUESTS}/{self.instant}-{self.round}"

    def to_bytes(self) -> bytes:
        """A checksum, and plain values as JSON."""
        wanted = {} if self.wanted == self.began else {"wanted": self.wanted}
        body = {
            "v": 1,
            "T": self.instant,
            "round": self.round,
            "base": self.base,
            "since": self.since,
            "isolation": self.isolation,
            "reads": self.reads.to_json(),
            "began": self.began,
            "commit": self.commit.fields(),
        } | wanted
        text = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
        return hashlib.sha256(text).hexdigest().encode() + b"\n" + text

    @classmethod
    def from_bytes(cls, body: bytes) -> Self | None:
        """The reverse; None for what is torn, of another version, or cannot be."""
        digest, _, text = body.partition(b"\n")
        if len(body) > REQUEST_BYTES or hashlib.sha256(text).hexdigest().encode() != digest:
            return None
        try:
            raw = json.loads(text)
            json.dumps(raw, ensure_ascii=False).encode()  # half a character could not stand in the log
            return cls._of(raw, len(body)) if raw["v"] == 1 else None
        except _NOT_UNDERSTOOD:
            return None

    @classmethod
    def _of(cls, raw: dict[str, Any], size: int) -> Self:
        instant, texts = raw["T"], (raw["began"], raw.get("wanted", raw["began"]))
        numbers = raw["round"], raw["base"], raw["since"]
        if not is_time(instant) or not all(type(each) is int and each >= 0 for each in numbers):
            raise ValueError("it names no transaction")
        if not all(each is None or type(each) is str for each in texts):
            raise ValueError("schema")
        if raw["isolation"] is not None and raw["isolation"] not in ISOLATION_LEVELS:
            raise ValueError("isolation")
        commit = prepared(raw["commit"], instant=instant, slot=raw["base"])
        if commit.undone or commit.named or commit.echo or commit.action not in COMMIT_ACTIONS:
            raise ValueError("a service commits by itself")
        return cls(
            replace(commit, schema=None, completion=""),
            *numbers,
            ReadSet.from_json(raw["reads"]),
            raw["isolation"],
            *texts,
            size,
        )
