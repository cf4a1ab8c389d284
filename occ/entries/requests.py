"""Commit requests, put beside the log by writers that wait for the lock, so that its holder may commit for them.

A request is a hint. It may be lost, late, doubled, stale, torn or hostile: nobody relies on it, and only the entry in
the log counts. It is put after all files of its transaction are written, so that its commit is whole even if its writer
dies. Requests are independent: a later one of the same transaction revokes nothing.
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
REQUEST_BYTES = 256 * 1024  # the limit of one, and of all that one entry takes
_NOT_UNDERSTOOD = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Request:
    """A prepared commit, and everything that its validation needs.

    Attributes:
        commit: the entry, without what is known only at its slot.
        round: the number of its rebase rounds.
        base: slot of the begin entry; the commits since then may conflict.
        since: slot up to which it was merged with those.
        reads: its read set.
        isolation: the level that its writer raised the table's to; None: that of the table.
        began, wanted: the table's schema at its begin, and the schema that it writes.
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
        """The path of the request."""
        return f"{REQUESTS}/{self.instant}-{self.round}"

    def to_bytes(self) -> bytes:
        """Encode it: a checksum, and plain values as JSON."""
        # A schema may be large, so it is not stored twice.
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
        """Decode a request; None if it is torn, invalid or of another version."""
        digest, _, text = body.partition(b"\n")
        if len(body) > REQUEST_BYTES or hashlib.sha256(text).hexdigest().encode() != digest:
            return None
        try:
            raw = json.loads(text)
            # Half a surrogate pair cannot be written to the log.
            json.dumps(raw, ensure_ascii=False).encode()
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
