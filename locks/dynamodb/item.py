"""The lock's item in DynamoDB: the attributes of Amazon's lock client, and ours beside them.

    key                  S  the lock's name; partition key of the table
    ownerName            S  one owner per grant of ours
    leaseDuration        S  milliseconds, in decimal
    recordVersionNumber  S  a UUID, new with every sign of life
    isReleased           S  "1" once it was released; otherwise not there

Source: awslabs/amazon-dynamodb-lock-client 1.2, as Hudi's DynamoDBBasedLockProvider uses it. That client replaces the
whole item when it takes the lock and deletes it when it releases. So ours may vanish at any time:

    lakelatchFence       N  the token of the last grant
    lakelatchLimit       N  tokens up to this one may be granted from this item alone
    lakelatchReleased    N  the token of the last lease that was released by its holder
    lakelatchHolder      S  JSON: owner, since, until (both by the holder's clock, for people), reason, host, pid
    lakelatchQueue       L  owners that wait, first come first
    lakelatchOvertaken   N  how many took the lock before the first of them
    lakelatchBroken      S  JSON: the last record of a break

A second item, which only we touch, keeps what must not vanish: the limit that was reserved, and the records of breaks.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..core import LockRequest, break_of, facts_in, fields_of
from ..interface import BreakRecord, Holder

_MARK = "#lakelatch-"
_KEY_BYTES_MAX = 1900  # DynamoDB takes 2,048, and the second item's name is longer

CREATED = "attribute_exists(recordVersionNumber)"
NOT_RELEASED = "attribute_not_exists(isReleased)"
OVERTAKEN_MAX = 2  # how often processes that had the lock may take it before its first waiter
OVERTAKEN_MAX_ALONE = 8  # the same while no other process waits
MINE = f"ownerName = :owner AND {NOT_RELEASED}"


def item_key(key: str) -> str:
    """Return the name of the item: ``key`` itself, as JVM writers need it, or a digest if it is too long."""
    raw = key.encode()
    if len(raw) <= _KEY_BYTES_MAX and _MARK not in key:
        return key
    return f"{raw[:100].decode(errors='ignore').partition(_MARK)[0]}{_MARK}sha256-{hashlib.sha256(raw).hexdigest()}"


def second_key(item: str) -> str:
    """Return the name of the item that JVM writers do not know."""
    return f"{item}{_MARK}fence"


@dataclass(frozen=True, slots=True)
class Seen:
    """The item as one read showed it.

    ``ours``: the holder is one of this library's, so its facts are current.
    """

    owner: str
    version: str
    lease_s: float | None
    released: bool
    fence: int | None
    limit: int
    last_released: int
    queue: tuple[str, ...]
    overtaken: int
    holder: dict[str, Any]
    broken: str

    @property
    def ours(self) -> bool:
        return self.holder.get("owner") == self.owner

    @property
    def overtakes(self) -> int:
        """The number of grants that may still overtake the first waiter; 0 when none may."""
        most = OVERTAKEN_MAX if self.queue[1:] else OVERTAKEN_MAX_ALONE
        return 0 if self.queue and self.overtaken >= most else most

    @property
    def token(self) -> int:
        """The grant's token. A writer that gives none gets a negative number made of its name, so `break_lease` can name it."""
        if self.ours and self.fence is not None:
            return self.fence
        return -int.from_bytes(hashlib.sha256(self.owner.encode()).digest()[:4])

    def as_holder(self, key: str) -> Holder:
        """Return the holder for `inspect`. A JVM writer does not record when its hold began."""
        facts = self.holder if self.ours else {}
        return Holder(
            key=key, owner=self.owner, token=self.token, queue=self.queue,
            details={} if facts else {"client": "Amazon DynamoDB lock client"}, **facts_in(facts),
        )  # fmt: skip


def parse_item(item: dict[str, Any]) -> Seen:
    """Parse an item from any writer; missing or odd values become harmless ones."""

    def text(name: str) -> str:
        return str(item.get(name, {}).get("S", ""))

    def number(name: str) -> int | None:
        try:
            found = int(item[name]["N"])
        except (KeyError, ValueError):
            return None
        return found if found >= 0 else None

    try:
        lease_ms = float(text("leaseDuration"))
    except ValueError:
        lease_ms = math.nan
    holder = fields_of(text("lakelatchHolder"))
    return Seen(
        owner=text("ownerName"),
        version=text("recordVersionNumber"),
        lease_s=lease_ms / 1000 if 0 <= lease_ms < math.inf else None,  # or nobody would ever follow its holder
        released="isReleased" in item,
        fence=number("lakelatchFence"),
        limit=number("lakelatchLimit") or 0,
        last_released=number("lakelatchReleased") or 0,
        queue=tuple(each.get("S", "") for each in item.get("lakelatchQueue", {}).get("L", ())),
        overtaken=number("lakelatchOvertaken") or 0,
        holder=holder,
        broken=text("lakelatchBroken"),
    )


def holder_values(request: LockRequest, *, version: str, now: float) -> dict[str, Any]:
    """Return the values that a new holder writes, by the names that the expressions use."""
    facts = {
        "owner": request.owner, "since": now, "reason": request.reason, "host": request.process.host, "pid": request.process.pid,
    }  # fmt: skip
    return sign_of_life(request, facts, version=version, now=now)


def sign_of_life(request: LockRequest, facts: dict[str, Any], *, version: str, now: float) -> dict[str, Any]:
    """Return the values that a holder writes at each renewal. ``facts`` are those of `Seen.holder`."""
    return {
        ":owner": request.owner,
        ":version": version,
        ":lease": str(round(request.lease_s * 1000)),
        ":holder": json.dumps({**facts, "until": round(now + request.lease_s, 3)}),
    }


def break_json(record: BreakRecord) -> str:
    """Return a break record as both items keep it."""
    return json.dumps({"token": record.token, "reason": record.reason, "who": record.who, "at": record.at})


def parse_breaks(key: str, texts: Iterable[str]) -> tuple[BreakRecord, ...]:
    """Return the records, oldest first, each once."""
    found = {text: break_of(key, fields_of(text)) for text in texts if text}
    return tuple(each for each in found.values() if each)
