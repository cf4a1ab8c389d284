"""Locks in a DynamoDB table, shared with Amazon's lock client: ``dynamodb://region/table?key=flights``.

No clocks are compared. A holder renews by writing a new record version. A contender may take over
once it has seen the same version for the holder's lease *by its own monotonic clock*.

**Tokens.** A grant takes the next number from the lock's own item, in the same request. A JVM writer replaces or deletes
that item, so the numbers are reserved in blocks in a second item that it does not know: every token up to the limit
there may have been granted. Where the item has no number or its block is used up:

    1  take the lock (conditional on what was seen), without a number
    2  reserve the next block in the second item
    3  write the number, on condition that the lock is still ours

A number comes from a block that was reserved between 1 and 3, while the lock was ours without interruption, so numbers
have the order of the grants. Without 3, a writer that slept after 1 would come back with a larger number than its
successor's.

**Waiting.** A contender that finds the lock busy appends its name to the queue in the item: at once if others are
queued, otherwise after a few more reads, which most often find it free. The first in the queue takes the lock. A
process that had it before may overtake the first, so few times that no waiter starves: a turn without a hand-over is a
short one. A first waiter that does not take a free lock is removed after a while. A JVM writer knows no queue and may
always overtake.
"""

from __future__ import annotations

import hashlib
from typing import Any

from ...environment import Environment
from ...errors import ConfigError, LockUnavailableError
from ..core import Contender, Grant, LeasedLocks, LockRequest
from ..interface import BREAKS_KEPT, BreakRecord, Holder
from ..lock_url import LEASE_S, LockUrl, parse_lock_url
from .contender import DynamoGrant, DynamoPlace
from .item import (
    CREATED,
    MINE,
    NOT_RELEASED,
    Seen,
    break_json,
    holder_values,
    item_key,
    parse_breaks,
    parse_item,
    second_key,
)
from .table import Answer, Table

_TABLE = "lakelatch_locks"  # of locks on a user's client
BLOCK = 1000  # tokens reserved at once: a JVM writer's grant skips up to this many; one extra request per block
QUEUE_MAX = 100
LOOKS_ALONE = 4  # with an empty queue, a lock found busy this often is worth the request that joining takes
_DRIFT = 1.001  # two machines' clocks do not run equally fast

_TAKE = "SET ownerName = :owner, recordVersionNumber = :version, leaseDuration = :lease, lakelatchHolder = :holder"
_HAS_NUMBER = " AND lakelatchFence < lakelatchLimit AND lakelatchFence >= :above"
_FREE = "isReleased = :yes"
_NOBODY_WAITS = " AND attribute_not_exists(lakelatchQueue[0])"
_MAY_OVERTAKE = " AND (attribute_not_exists(lakelatchQueue[0]) OR lakelatchOvertaken < :most)"
_FIRST = " AND lakelatchQueue[0] = :owner"


def open_dynamodb_locks(url: str, *, env: Environment) -> LeasedLocks:
    """Return the provider for ``dynamodb://region/table``; ``endpoint=`` is for emulators, ``create=0`` forbids creation."""
    settings = parse_lock_url(url, options=("create", "endpoint"))
    name = settings.path.strip("/")
    if not settings.host or not name or "/" in name:
        raise ConfigError(
            f"{url!r} names no DynamoDB table; write dynamodb://region/table, such as dynamodb://eu-west-1/hudi_locks",
            url=url,
        )
    create = settings.options.get("create", "1")
    if create not in ("0", "1"):
        raise ConfigError(f"create={create!r} in a lock URL must be 0 or 1", url=url)
    endpoint = settings.options.get("endpoint")
    if endpoint is not None and not endpoint.startswith(("http://", "https://")):
        raise ConfigError(f"endpoint={endpoint!r} must begin with http:// or https://", url=url)
    table = Table(
        settings.host, name, endpoint=endpoint, create=create == "1", lease_s=settings.lease_s, env=env
    )  # fmt: skip
    return LeasedLocks(DynamoBackend(table, env), settings, env, account=_account(endpoint))


def dynamodb_locks_on(client: Any, *, env: Environment) -> LeasedLocks:
    """Return a provider on connections of its own, with region, endpoint and credentials of ``client``, which is not closed.

    ``client`` is boto3's client or resource for DynamoDB, or a `Table` of it; otherwise the table is ``lakelatch_locks``.
    """
    name = str(getattr(client, "table_name", _TABLE))
    client = client.meta.client if hasattr(client.meta, "client") else client
    if client.meta.service_model.service_name != "dynamodb":
        raise ConfigError(f"Locks need a client for dynamodb, not for {client.meta.service_model.service_name}")
    settings = LockUrl("dynamodb", client.meta.region_name, f"/{name}")
    table = Table(
        client.meta.region_name, name, endpoint=client.meta.endpoint_url, create=True, lease_s=settings.lease_s, env=env,
        like=client,
    )  # fmt: skip
    account = _account(client.meta.endpoint_url, _access_key(client))
    return LeasedLocks(DynamoBackend(table, env), settings, env, account=account)


def _access_key(client: Any) -> str:
    """Return the id of a client's credentials. A role's change now and then; the place then changes too, which is harmless."""
    credentials = getattr(getattr(client, "_request_signer", None), "_credentials", None)
    return str(getattr(credentials, "access_key", ""))


def _account(*known: str | None) -> str:
    """Return a short name of the tables' account; "" where only the environment decides it."""
    said = "\n".join(each for each in known if each)
    return hashlib.sha256(said.encode()).hexdigest()[:12] if said else ""


class DynamoBackend:
    """One item per lock and one beside it."""

    fair = True
    durable_tokens = True
    lifts_tokens = True

    def __init__(self, table: Table, env: Environment) -> None:
        self._table = table
        self._env = env
        self._watched: dict[str, tuple[str, float]] = {}  # item -> its version, and when it was first seen
        self._turns: dict[str, float] = {}
        self._overtakes: dict[str, int] = {}  # `Seen.overtakes` of items when we took the lock

    def __getstate__(self) -> dict[str, Any]:
        """Pickle nothing that was watched here: times of this process's clock mean nothing on another machine."""
        return {"table": self._table, "env": self._env}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def requests(self) -> int:
        """The number of requests sent since this was opened."""
        return self._table.requests

    @property
    def max_leases(self) -> int:
        """The measured capacity for leases as long as the URL's."""
        return self._table.capacity.leases

    def line_up(self, key: str) -> Contender:
        """Return a place that joins the queue only once the lock was found busy."""
        return DynamoPlace(self._table, item_key(key), self._env, self._turns)

    def try_grant(self, ask: LockRequest, place: Contender) -> Grant | None:
        """Try blindly at first, which is one request for a free lock; then by what was read."""
        assert isinstance(place, DynamoPlace)
        place.ask = ask
        try:
            if place.queued and not place.expects_soon():
                return self._follow(ask, place, self._look(place.item))
            most = self._overtakes.pop(place.item, None)
            if ask.waits and most == 0:
                answer = self._join(ask, place)
                return self._follow(ask, place, parse_item(answer.item) if answer.item else None)
            values: dict[str, Any] = {":yes": "1"}
            condition = _FREE
            if place.queued:
                condition += _FIRST
            elif ask.waits and most:
                condition += _MAY_OVERTAKE
                values[":most"] = most
            elif ask.waits:
                condition += _NOBODY_WAITS
            answer = self._take(ask, place, condition, values, numbered=True)
            if answer.done:
                return self._granted(ask, place, answer)
            return self._follow(ask, place, parse_item(answer.item) if answer.item else None)
        except LockUnavailableError as e:
            if ask.waits and e.throttled and self._env.monotonic() < place.until:
                return None  # there is time for another try
            raise

    def _look(self, item: str) -> Seen | None:
        """Return the current item."""
        found = self._table.read(item)
        return None if found is None else parse_item(found)

    def inspect(self, key: str) -> Holder | None:
        """Return the holder by one read, or None when the lock is free or its lease has ended."""
        item = item_key(key)
        seen = self._look(item)
        if seen is None or self._ends_at(item, seen) <= self._env.monotonic():
            return None
        return seen.as_holder(key)

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """Mark as released on condition that the holder is still the same; the record goes into both items."""
        item = item_key(key)
        seen = self._look(item)
        if seen is None or seen.released or seen.token != token:
            return False
        record = break_json(BreakRecord(key, token, reason, who, self._env.now()))
        values = {":owner": seen.owner, ":yes": "1", ":record": record}
        answer = self._table.update(item, "SET isReleased = :yes, lakelatchBroken = :record", MINE, values)
        mine = answer.doubt and answer.item is not None and parse_item(answer.item).broken == record
        if not answer.done and not mine:
            return False
        kept = self._table.update(
            second_key(item),
            "SET breaks = list_append(if_not_exists(breaks, :none), :records)",
            "attribute_not_exists(breaks) OR NOT contains(breaks, :record)",
            {":none": [], ":records": [record], ":record": record},
            want=True,
        )
        if kept.done and kept.item and len(kept.item["breaks"]["L"]) > 2 * BREAKS_KEPT:
            oldest = ", ".join(f"breaks[{i}]" for i in range(BREAKS_KEPT))
            self._table.update(second_key(item), f"REMOVE {oldest}", "size(breaks) > :many", {":many": 2 * BREAKS_KEPT})
        return True

    def breaks(self, key: str) -> tuple[BreakRecord, ...]:
        """Read both items: a breaker may have died between its two writes."""
        item = item_key(key)
        kept, seen = self._table.read(second_key(item)) or {}, self._look(item)
        texts = [each["S"] for each in kept.get("breaks", {}).get("L", ())]
        return parse_breaks(key, [*texts, seen.broken if seen else ""])

    def close(self) -> None:
        """Close the connections."""
        self._table.close()

    def _ends_at(self, item: str, seen: Seen) -> float:
        """Return when, by our clock, an unchanged lock is free: now, or a lease after we first saw this version."""
        now = self._env.monotonic()
        if seen.released:
            self._watched.pop(item, None)
            return now
        version, since = self._watched.get(item, ("", now))
        if version != seen.version:
            since = now
        self._watched[item] = (seen.version, since)
        return since + (seen.lease_s or LEASE_S) * _DRIFT

    def _follow(self, ask: LockRequest, place: DynamoPlace, seen: Seen | None) -> Grant | None:
        """Take the lock if it is free and our turn; otherwise stand in the queue."""
        for _ in range(4):  # each turn acts on a newer read
            if seen is None:
                answer = self._take(ask, place, "attribute_not_exists(#key)", {}, numbered=False)
                if answer.done:
                    return self._number(ask, place)
            elif seen.owner == ask.owner and not seen.released:
                return self._found(ask, place, seen)  # the answer to an earlier take was lost
            else:
                ends_at = self._ends_at(place.item, seen)
                free = ends_at <= self._env.monotonic()
                first = not ask.waits or not seen.queue or seen.queue[0] == ask.owner
                place.note(seen, ends_at=ends_at, free=free)
                if free and first:
                    numbered = seen.fence is not None and ask.token_above <= seen.fence < seen.limit
                    condition, values = self._turn(ask, seen)
                    answer = self._take(ask, place, condition, values, numbered=numbered)
                    if answer.done:
                        return self._granted(ask, place, answer) if numbered else self._number(ask, place)
                elif ask.waits and ask.owner not in seen.queue:
                    if not seen.queue and place.looks < LOOKS_ALONE:
                        place.looks += 1
                        return None
                    answer = self._join(ask, place)
                elif free and place.head_is_absent():
                    answer = self._table.update(
                        place.item,
                        "REMOVE lakelatchQueue[0]",
                        "lakelatchQueue[0] = :head",
                        {":head": seen.queue[0]},
                        want=True,
                    )
                else:
                    return None
            seen = parse_item(answer.item) if answer.item else None
        return None

    def _turn(self, ask: LockRequest, seen: Seen) -> tuple[str, dict[str, Any]]:
        """Return the condition that nothing has happened since ``seen`` that would forbid us to take the lock."""
        if seen.released:
            condition, values = _FREE, {":yes": "1"}
        elif not seen.version:  # the item was damaged from outside
            condition, values = f"attribute_not_exists(recordVersionNumber) AND {NOT_RELEASED}", {}
        else:
            condition, values = f"recordVersionNumber = :seen AND {NOT_RELEASED}", {":seen": seen.version}
        if ask.waits:
            condition += _FIRST if seen.queue else _NOBODY_WAITS
        return condition, values

    def _take(
        self, ask: LockRequest, place: DynamoPlace, condition: str, values: dict[str, Any], *, numbered: bool
    ) -> Answer:
        """Try once to become the owner."""
        place.version = self._env.uuid()
        change, gone, counted = _TAKE, ["isReleased"], []
        values = values | holder_values(ask, version=place.version, now=self._env.now())
        if _FIRST in condition:
            gone.append("lakelatchQueue[0]")
            values[":overtaken"] = 0
            change = f"{_TAKE}, lakelatchOvertaken = :overtaken"
        else:
            counted.append("lakelatchOvertaken :one")
            values[":one"] = 1
        if numbered:
            counted.append("lakelatchFence :one")
            condition += _HAS_NUMBER
            values |= {":one": 1, ":above": ask.token_above}
        else:
            gone += ["lakelatchFence", "lakelatchLimit"]
        change += f" REMOVE {', '.join(gone)}" + (f" ADD {', '.join(counted)}" if counted else "")
        try:
            return self._table.update(place.item, change, condition, values, want=True)
        except LockUnavailableError as e:
            place.in_doubt |= e.doubt
            raise

    def _granted(self, ask: LockRequest, place: DynamoPlace, answer: Answer) -> Grant:
        assert answer.item is not None
        self._watched.pop(place.item, None)
        seen = parse_item(answer.item)
        assert seen.fence is not None
        self._overtakes[place.item] = seen.overtakes
        return DynamoGrant(self._table, place.item, ask, seen, self._env)

    def _number(self, ask: LockRequest, place: DynamoPlace) -> Grant | None:
        """Carry out steps 2 and 3 of the module's docstring. Return None when the lock was taken from us meanwhile."""
        place.in_doubt = True  # we own the lock until there is an answer
        limit = self._reserve(place.item, BLOCK)
        if limit - BLOCK < ask.token_above:
            limit = self._reserve(place.item, BLOCK + max(0, ask.token_above - limit))
        first = limit - BLOCK + 1
        answer = self._table.update(
            place.item,
            "SET lakelatchFence = :first, lakelatchLimit = :limit",
            f"recordVersionNumber = :version AND {MINE}",
            {":first": first, ":limit": limit, ":version": place.version, ":owner": ask.owner},
            want=True,
        )
        place.in_doubt = False
        return self._granted(ask, place, answer) if answer.done else None

    def _reserve(self, item: str, count: int) -> int:
        """Return the new limit. Reserving twice, because an answer was lost, only skips numbers."""
        answer = self._table.update(second_key(item), "ADD lakelatchLimit :count", "", {":count": count}, want=True)
        assert answer.item is not None
        return int(answer.item["lakelatchLimit"]["N"])

    def _found(self, ask: LockRequest, place: DynamoPlace, seen: Seen) -> Grant | None:
        """Return a grant whose answer was lost.

        It may be older than this try, so it needs a sign of life from this try.
        """
        if seen.fence is None:
            place.version = seen.version
            grant = self._number(ask, place)
        else:
            grant = DynamoGrant(self._table, place.item, ask, seen, self._env)
        return grant if grant is not None and grant.renew() else None

    def _join(self, ask: LockRequest, place: DynamoPlace) -> Answer:
        """Append our name to the queue, unless it is there."""
        answer = self._table.update(
            place.item,
            "SET lakelatchQueue = list_append(if_not_exists(lakelatchQueue, :none), :owners)",
            f"{CREATED} AND (attribute_not_exists(lakelatchQueue) OR "
            "(NOT contains(lakelatchQueue, :owner) AND size(lakelatchQueue) < :many))",
            {":none": [], ":owners": [ask.owner], ":owner": ask.owner, ":many": QUEUE_MAX},
            want=True,
        )
        place.queued = place.queued or answer.done
        return answer
