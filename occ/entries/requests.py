"""The requests of a writer to its coordinator: to begin its transaction, or to commit it.

A request is a hint. It may be lost, late, doubled, stale, torn or hostile: nobody relies on it, and only the entry in
the log counts. A commit is asked for after all files of its transaction are written, so that it is whole even if its
writer dies. Requests are independent: a later one of the same transaction revokes nothing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Self

from ...conflict import ISOLATION_LEVELS, ReadSet
from ...errors import LakeLatchError
from ...hudi.timeline import COMMIT_ACTIONS, EARLIEST, is_time
from .entries import BEGUN_BY_OTHERS, Begin, Commit, asked_for, prepared
from .entry_rules import is_asked
from .operations import operation

_VERSION = 2  # 1 knew no batch that follows another
REQUEST_BYTES = 256 * 1024  # the limit of one
_NOT_UNDERSTOOD = (LakeLatchError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class BeginRequest:
    """The request to begin a transaction.

    Attributes:
        epoch: in which its writer did not find itself. In another epoch it may have begun already, and ended.
        settled: slot of the entry whose settings its writer knows.
        begin: the wanted entry, without T and slot; ``asked`` is the random id by which its writer finds itself there.
    """

    epoch: int
    settled: int
    begin: Begin

    @property
    def asked(self) -> str:
        """The random id."""
        return self.begin.asked

    def to_bytes(self) -> bytes:
        """Encode it as JSON."""
        begin = {key: value for key, value in self.begin.fields().items() if key not in ("T", "asked")}
        body = {"epoch": self.epoch, "settled": self.settled, "asked": self.asked, "begin": begin}
        return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, body: bytes) -> Self | None:
        """Decode a request; None if it is invalid, or one that nobody else may begin."""
        try:
            raw = json.loads(body)
            epoch, settled, asked, begin = raw["epoch"], raw["settled"], raw["asked"], raw["begin"]
            # Half a surrogate pair cannot be written to the log.
            json.dumps(begin, ensure_ascii=False).encode()
            if type(epoch) is not int or type(settled) is not int or not is_asked(asked):
                return None
            if not begin.keys() <= BEGUN_BY_OTHERS or begin["action"] not in COMMIT_ACTIONS:
                return None
            operation(begin["op"].lower())
            return cls(epoch, settled, replace(asked_for({**begin, "asked": asked}, instant=EARLIEST), slot=-1))
        except _NOT_UNDERSTOOD:
            return None


@dataclass(frozen=True, slots=True)
class Request:
    """The request to commit a transaction: a prepared commit, and everything that its validation needs.

    Attributes:
        commit: the entry, without what is known only at its slot.
        base: slot of the begin entry; the commits since then may conflict.
        since: slot up to which it was merged with those.
        reads: its read set.
        isolation: the level that its writer raised the table's to; None: that of the table.
        began, wanted: the table's schema at its begin, and the schema that it writes.
        size: of its bytes.
    """

    commit: Commit
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

    def to_bytes(self) -> bytes:
        """Encode it: a checksum, and plain values as JSON."""
        # A schema may be large, so it is not stored twice.
        wanted = {} if self.wanted == self.began else {"wanted": self.wanted}
        body = {
            "v": _VERSION,
            "T": self.instant,
            "base": self.base,
            "since": self.since,
            "isolation": self.isolation,
            "reads": self.reads.to_json(),
            "began": self.began,
            "commit": self.commit.fields(),
            "after": self.commit.batch.after if self.commit.batch else None,
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
            return cls._of(raw, len(body)) if raw["v"] == _VERSION else None
        except _NOT_UNDERSTOOD:
            return None

    @classmethod
    def _of(cls, raw: dict[str, Any], size: int) -> Self:
        instant, texts = raw["T"], (raw["began"], raw.get("wanted", raw["began"]))
        numbers = raw["base"], raw["since"]
        if not is_time(instant) or not all(type(each) is int and each >= 0 for each in numbers):
            raise ValueError("it names no transaction")
        if not all(each is None or type(each) is str for each in texts):
            raise ValueError("schema")
        if raw["isolation"] is not None and raw["isolation"] not in ISOLATION_LEVELS:
            raise ValueError("isolation")
        commit = prepared(raw["commit"], instant=instant, slot=raw["base"])
        if commit.undone or commit.named or commit.echo or commit.action not in COMMIT_ACTIONS:
            raise ValueError("a service commits by itself")
        batch = replace(commit.batch, after=raw["after"]) if commit.batch else None
        return cls(
            replace(commit, schema=None, completion="", batch=batch),
            *numbers,
            ReadSet.from_json(raw["reads"]),
            raw["isolation"],
            *texts,
            size,
        )
