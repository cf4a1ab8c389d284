"""The two small JSON objects that an object store keeps for a key.

``table_lock.json`` is the lock, in the form of Hudi's storage-based lock provider (docs/locks/objects.md has the source).
Hudi's readers need all three of its fields, whole, and stop with an error otherwise; they skip what they do not know
and drop it with their next write. So our fields are in one member of their own, ``lakelatch``; data that must outlive a JVM's
write is in ``lakelatch_tokens.json`` as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from ...errors import LockError
from ..interface import BREAKS_KEPT, BreakRecord, Holder

LINE_MAX = 128  # waiters whose order is remembered
_LOCK_NAME = "table_lock.json"


@dataclass(frozen=True, slots=True)
class Names:
    """The paths of one key's objects, relative to the store's root."""

    key: str
    lock: str
    tokens: str

    @classmethod
    def of(cls, key: str, layout: str) -> Names:
        """Return Hudi's paths for the lock of a table, or a folder of the key's own, whatever characters it has."""
        if layout == "hudi":
            return cls(key, f".hoodie/.locks/{_LOCK_NAME}", ".hoodie/.lakelatch/locks/tokens.json")
        readable = "".join(each if each.isalnum() and each.isascii() else "_" for each in key[-40:])
        folder = f"{readable}-{sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
        return cls(key, f"{folder}/{_LOCK_NAME}", f"{folder}/tokens.json")


@dataclass(frozen=True, slots=True)
class LockObject:
    """The lock. ``valid_until_ms`` is wall clock; ``owner`` is new with every grant; ``ours`` is empty after a JVM's write."""

    valid_until_ms: int
    expired: bool
    owner: str
    ours: Mapping[str, Any] = field(default_factory=dict)

    @property
    def token(self) -> int:
        """Our token, or a negative number that stands for this grant of a JVM, so that it can be named and broken."""
        if "token" in self.ours:
            return int(self.ours["token"])
        return -1 - int.from_bytes(sha256(self.owner.encode()).digest()[:6])

    @property
    def turn(self) -> int:
        """The number of turns so far; a turn may hold several grants of a process (pacing.py)."""
        return int(self.ours.get("turn", 0))

    @property
    def line(self) -> list[str]:
        """The processes that were served lately and had to wait, the longest ago first."""
        return list(self.ours.get("line", ()))

    def encode(self) -> bytes:
        """Return the JSON, Hudi's three fields first, for human readers."""
        value = {"validUntil": self.valid_until_ms, "expired": self.expired, "owner": self.owner}
        return json.dumps(value | ({"lakelatch": self.ours} if self.ours else {})).encode()

    @classmethod
    def decode(cls, body: bytes, where: str) -> LockObject:
        """Parse an object from any writer. Raises `LockError` for one that a JVM could not read either."""
        try:
            value = json.loads(body)
            until, expired, owner = value["validUntil"], value["expired"], value["owner"]
            ours = value.get("lakelatch", {})
            if not (type(until) is int and type(expired) is bool and isinstance(owner, str) and isinstance(ours, dict)):
                raise TypeError("a field has the wrong type")
            found = cls(until, expired, owner, ours)
            # All that is in it can be understood.
            _ = found.holder(""), found.turn, found.line, broken_of("", found)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
            raise LockError(
                f"The lock object {where} cannot be read ({type(e).__name__}: {e}); nobody can tell who holds the lock, and "
                "JVM writers stop with an error too. Nothing is held. Make sure that no writer runs, then delete it",
                where=where,
            ) from e
        return found

    def holder(self, key: str) -> Holder:
        """Return the holder for display. Of a JVM only the owner and the end are known."""
        ours, until = self.ours, self.valid_until_ms / 1000
        if "token" not in ours:
            return Holder(key, self.owner, self.token, since=0.0, until=until, details={"writer": "JVM"})
        return Holder(
            key, str(ours["who"]), self.token, float(ours["since"]), until, str(ours["reason"]), str(ours["host"]),
            int(ours["pid"]), details={"owner": self.owner},
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class TokenObject:
    """The reserved tokens. No token above ``limit`` was ever granted.

    The limit is raised, by compare-and-set, before the first token of a block is granted.
    """

    limit: int = 0
    breaks: tuple[BreakRecord, ...] = ()

    def encode(self) -> bytes:
        """Return one line of JSON."""
        return json.dumps({"v": 1, "limit": self.limit, "breaks": [to_json(record) for record in self.breaks]}).encode()

    @classmethod
    def decode(cls, body: bytes, key: str, where: str) -> TokenObject:
        """Parse the JSON of `encode`. Raises `LockError`."""
        try:
            value = json.loads(body)
            return cls(int(value["limit"]), tuple(from_json(key, record) for record in value["breaks"]))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as e:
            raise LockError(
                f"The object {where}, which says how far tokens were given, cannot be read ({type(e).__name__}: {e}). "
                "Nothing is held. Restore it, or delete it where a table keeps its own record of the last token",
                where=where,
            ) from e

    def with_breaks(self, *records: BreakRecord) -> TokenObject:
        """Return a copy with the records that are not in it yet; a token is broken once."""
        known = {record.token for record in self.breaks}
        fresh = tuple(record for record in records if record.token not in known)
        return TokenObject(self.limit, (self.breaks + fresh)[-BREAKS_KEPT:])


def broken_of(key: str, lock: LockObject) -> tuple[BreakRecord, ...]:
    """Return the last break, which every grant of ours carries along; none after a JVM's write."""
    return (from_json(key, lock.ours["broken"]),) if "broken" in lock.ours else ()


def to_json(record: BreakRecord) -> dict[str, Any]:
    """Return the record without the key, which its place gives."""
    return {"token": record.token, "reason": record.reason, "who": record.who, "at": record.at}


def from_json(key: str, value: Mapping[str, Any]) -> BreakRecord:
    """Parse the JSON of `to_json`."""
    return BreakRecord(key, int(value["token"]), str(value["reason"]), str(value["who"]), float(value["at"]))


def ms(seconds: float) -> int:
    """Return whole milliseconds, Hudi's unit."""
    return int(seconds * 1000)
