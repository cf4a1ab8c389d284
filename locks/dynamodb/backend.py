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
short one. First waiters that do not take a free lock are removed after a while, several at once; a live one among them
queues again. A waiter whose leaving was refused, or got no answer, is removed by its process at its next try. A JVM writer
knows no queue and may always overtake.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from contextlib import suppress
from typing import Any

from ...environment import Environment
from ...errors import ConfigError, LakeLatchError, LockUnavailableError
from ..core import Backend, Contender, Grant, LeasedLocks, LockRequest
from ..interface import BREAKS_KEPT, BreakRecord, Holder, Release
from ..lock_url import LEASE_S, LockUrl, parse_lock_url
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
    sign_of_life,
)
from .table import Answer, Table

_log = logging.getLogger("lakelatch.locks")

_TABLE = "lakelatch_locks"  # of locks on a user's client
BLOCK = 1000  # tokens reserved at once: a JVM writer's grant skips up to this many; one extra request per block
QUEUE_MAX = 100
LOOKS_ALONE = 4  # with an empty queue, a lock found busy this often is worth the request that joining takes
_DRIFT = 1.001  # two machines' clocks do not run equally fast
PATIENCE_S = 2.0  # how long the first in the queue may leave a free lock untaken
PATIENCE_MORE_S = 0.3  # the further time of each one behind it: after a crash all of them may be dead
_OWED_MAX = 100
_PAUSE_S, _PAUSE_S_MAX = 0.003, 0.25
_PAUSE_OVERTAKEN_S = 0.006  # a waiter that may still be overtaken need not hurry: most often it is
_BEHIND_S_MAX = 1.0
_BEHIND_PART = 0.5  # of the turns before their own that waiters further back let pass before they read again
# Weights of the last turn seen. A waiter that sleeps too long makes turns longer, and that must not feed itself.
_SHORTER, _LONGER = 0.3, 0.1
_SOON_S = 0.03  # a hold this new may be a short one
_TURN_SOON_S = 0.1  # where turns are shorter, the second in the queue may be the first when its request arrives

_TAKE = "SET ownerName = :owner, recordVersionNumber = :version, leaseDuration = :lease, lakelatchHolder = :holder"
_HAS_NUMBER = " AND lakelatchFence < lakelatchLimit AND lakelatchFence >= :above"
_FREE = "isReleased = :yes"
_NOBODY_WAITS = " AND attribute_not_exists(lakelatchQueue[0])"
_MAY_OVERTAKE = " AND (attribute_not_exists(lakelatchQueue[0]) OR lakelatchOvertaken < :most)"
_FIRST = " AND lakelatchQueue[0] = :owner"


def open_dynamodb_locks(url: str, *, env: Environment, lease_s: float = LEASE_S) -> LeasedLocks:
    """Return the provider for ``dynamodb://region/table``; ``endpoint=`` is for emulators, ``create=0`` forbids creation."""
    settings = parse_lock_url(url, options=("create", "endpoint"), lease_s=lease_s)
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


def _seen(item: dict[str, Any] | None) -> Seen | None:
    return parse_item(item) if item else None


class DynamoBackend(Backend):
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
        self._owed: deque[DynamoContender] = deque(maxlen=_OWED_MAX)  # contenders that could not leave

    def __getstate__(self) -> dict[str, Any]:
        """Pickle nothing that was watched here: times of this process's clock mean nothing on another machine."""
        return {"table": self._table, "env": self._env}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    @property
    def requests(self) -> int:  # type: ignore[override] # only read
        """The number of requests sent since this was opened."""
        return self._table.requests

    @property
    def max_leases(self) -> int:  # type: ignore[override] # only read
        """The measured capacity for leases as long as the URL's."""
        return self._table.capacity.leases

    def line_up(self, key: str) -> Contender:
        """Return a contender that joins the queue only once the lock was found busy."""
        return DynamoContender(self._table, item_key(key), self._env, self._turns, self._owed)

    def try_grant(self, request: LockRequest, contender: Contender) -> Grant | None:
        """Try blindly at first, which is one request for a free lock; then by what was read."""
        assert isinstance(contender, DynamoContender)
        contender.request = request
        for debt in [each for each in self._owed if each.item == contender.item]:
            with suppress(ValueError):  # another thread has done the same: twice is fine
                self._owed.remove(debt)
            debt.leave()
            if debt in self._owed:  # no answer now either
                break
        try:
            # A read costs less than a refused write, and in the middle of a long queue each try would be refused.
            if contender.queued and not contender.expects_soon():
                return self._follow(request, contender, _seen(self._table.read(contender.item)))
            # A process that has just held the lock goes behind those that wait, once it has overtaken as many as it
            # may.
            most = self._overtakes.pop(contender.item, None)
            if request.waits and most == 0:
                answer = self._join(request, contender)
                return self._follow(request, contender, _seen(answer.item))
            values: dict[str, Any] = {":yes": "1"}
            condition = _FREE
            if contender.queued:
                condition += _FIRST
            elif request.waits and most:
                condition += _MAY_OVERTAKE
                values[":most"] = most
            elif request.waits:
                condition += _NOBODY_WAITS
            answer = self._take(request, contender, condition, values, numbered=True)
            if answer.done:
                return self._granted(request, contender, answer)
            return self._follow(request, contender, _seen(answer.item))
        except LockUnavailableError as e:
            if request.waits and e.throttled and self._env.monotonic() < contender.until:
                return None  # there is time for another try
            raise

    def inspect(self, key: str) -> Holder | None:
        """Return the holder by one read, or None when the lock is free or its lease has ended."""
        item = item_key(key)
        seen = _seen(self._table.read(item))
        if seen is None or self._ends_at(item, seen) <= self._env.monotonic():
            return None
        return seen.as_holder(key)

    def end(self, key: str, *, token: int, reason: str, who: str) -> bool:
        """Mark as released on condition that the holder is still the same; the record goes into both items."""
        item = item_key(key)
        seen = _seen(self._table.read(item))
        if seen is None or seen.released or seen.token != token:
            return False
        record = break_json(BreakRecord(key, token, reason, who, self._env.now()))
        # On the owner, not on the version: a renewal in this moment must not save a holder that is to go.
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
        kept, seen = self._table.read(second_key(item)) or {}, _seen(self._table.read(item))
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
        # By our own clock, from when we first saw this version: the holder's clock may be wrong by hours. A renewal
        # changes the version and starts the time anew.
        version, since = self._watched.get(item, ("", now))
        if version != seen.version:
            since = now
        self._watched[item] = (seen.version, since)
        return since + (seen.lease_s or LEASE_S) * _DRIFT

    def _follow(self, request: LockRequest, contender: DynamoContender, seen: Seen | None) -> Grant | None:
        """Take the lock if it is free and our turn; otherwise stand in the queue."""
        # A refused write answers with the item as it is now, so no turn needs a read of its own.
        for _ in range(4):  # each turn acts on a newer read
            if seen is None:
                answer = self._take(request, contender, "attribute_not_exists(#key)", {}, numbered=False)
                if answer.done:
                    return self._number(request, contender)
            elif seen.owner == request.owner and not seen.released:
                # The answer to an earlier take was lost.
                return self._found(request, contender, seen)
            else:
                ends_at = self._ends_at(contender.item, seen)
                free = ends_at <= self._env.monotonic()
                first = not request.waits or not seen.queue or seen.queue[0] == request.owner
                contender.note(seen, ends_at=ends_at, free=free)
                if free and first:
                    numbered = seen.fence is not None and request.token_above <= seen.fence < seen.limit
                    condition, values = self._turn(request, seen)
                    answer = self._take(request, contender, condition, values, numbered=numbered)
                    if answer.done:
                        return (
                            self._granted(request, contender, answer) if numbered else self._number(request, contender)
                        )
                elif request.waits and request.owner not in seen.queue:
                    if not seen.queue and contender.looks < LOOKS_ALONE:
                        contender.looks += 1
                        return None
                    answer = self._join(request, contender)
                elif free and (ahead := contender.absent_ahead()):
                    answer = self._table.update(
                        contender.item,
                        f"REMOVE {', '.join(f'lakelatchQueue[{at}]' for at in range(ahead))}",
                        f"lakelatchQueue[0] = :head AND lakelatchQueue[{ahead}] = :owner",
                        {":head": seen.queue[0], ":owner": request.owner},
                        want=True,
                    )
                else:
                    return None
            seen = _seen(answer.item)
        return None

    def _turn(self, request: LockRequest, seen: Seen) -> tuple[str, dict[str, Any]]:
        """Return the condition that nothing has happened since ``seen`` that would forbid us to take the lock."""
        if seen.released:
            condition, values = _FREE, {":yes": "1"}
        elif not seen.version:  # the item was damaged from outside
            condition, values = f"attribute_not_exists(recordVersionNumber) AND {NOT_RELEASED}", {}
        else:
            condition, values = f"recordVersionNumber = :seen AND {NOT_RELEASED}", {":seen": seen.version}
        if request.waits:
            condition += _FIRST if seen.queue else _NOBODY_WAITS
        return condition, values

    def _take(
        self,
        request: LockRequest,
        contender: DynamoContender,
        condition: str,
        values: dict[str, Any],
        *,
        numbered: bool,
    ) -> Answer:
        """Try once to become the owner."""
        # Known before the write, so that after a lost answer the item shows whether it was carried out.
        contender.version = self._env.uuid()
        change, gone, counted = _TAKE, ["isReleased"], []
        values = values | holder_values(request, version=contender.version, now=self._env.now())
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
            values |= {":one": 1, ":above": request.token_above}
        else:
            gone += ["lakelatchFence", "lakelatchLimit"]
        change += f" REMOVE {', '.join(gone)}" + (f" ADD {', '.join(counted)}" if counted else "")
        try:
            return self._table.update(contender.item, change, condition, values, want=True)
        except LockUnavailableError as e:
            contender.in_doubt |= bool(e.doubt)
            raise

    def _granted(self, request: LockRequest, contender: DynamoContender, answer: Answer) -> Grant:
        assert answer.item is not None
        self._watched.pop(contender.item, None)
        seen = parse_item(answer.item)
        assert seen.fence is not None
        self._overtakes[contender.item] = seen.overtakes
        return DynamoGrant(self._table, contender.item, request, seen, self._env)

    def _number(self, request: LockRequest, contender: DynamoContender) -> Grant | None:
        """Carry out steps 2 and 3 of the module's docstring. Return None when the lock was taken from us meanwhile."""
        contender.in_doubt = True  # we own the lock until there is an answer
        # Reserved in the second item before the first of them is granted. If the lock's item is deleted, the counter
        # there goes on.
        limit = self._reserve(contender.item, BLOCK)
        if limit - BLOCK < request.token_above:
            limit = self._reserve(contender.item, BLOCK + max(0, request.token_above - limit))
        first = limit - BLOCK + 1
        answer = self._table.update(
            contender.item,
            "SET lakelatchFence = :first, lakelatchLimit = :limit",
            f"recordVersionNumber = :version AND {MINE}",
            {":first": first, ":limit": limit, ":version": contender.version, ":owner": request.owner},
            want=True,
        )
        contender.in_doubt = False
        return self._granted(request, contender, answer) if answer.done else None

    def _reserve(self, item: str, count: int) -> int:
        """Return the new limit. Reserving twice, because an answer was lost, only skips numbers."""
        answer = self._table.update(second_key(item), "ADD lakelatchLimit :count", "", {":count": count}, want=True)
        assert answer.item is not None
        return int(answer.item["lakelatchLimit"]["N"])

    def _found(self, request: LockRequest, contender: DynamoContender, seen: Seen) -> Grant | None:
        """Return a grant whose answer was lost.

        It may be older than this try, so it needs a sign of life from this try.
        """
        if seen.fence is None:
            contender.version = seen.version
            grant = self._number(request, contender)
        else:
            grant = DynamoGrant(self._table, contender.item, request, seen, self._env)
        return grant if grant is not None and grant.renew() else None

    def _join(self, request: LockRequest, contender: DynamoContender) -> Answer:
        """Append our name to the queue, unless it is there."""
        answer = self._table.update(
            contender.item,
            "SET lakelatchQueue = list_append(if_not_exists(lakelatchQueue, :none), :owners)",
            f"{CREATED} AND (attribute_not_exists(lakelatchQueue) OR "
            "(NOT contains(lakelatchQueue, :owner) AND size(lakelatchQueue) < :many))",
            {":none": [], ":owners": [request.owner], ":owner": request.owner, ":many": QUEUE_MAX},
            want=True,
        )
        contender.queued = contender.queued or answer.done
        return answer


class DynamoContender(Contender):
    """A name in the queue, and the pace of polling. ``in_doubt``: a write may have made us the owner.

    ``turns`` holds this process's estimate, by item, of how long the queue takes to move by one. One that cannot leave goes
    into ``owed``.
    """

    def __init__(
        self, table: Table, item: str, env: Environment, turns: dict[str, float], owed: deque[DynamoContender]
    ) -> None:
        self.item = item
        self.request: LockRequest | None = None
        self.queued = False
        self.looks = 0  # reads of a busy lock with an empty queue
        self.in_doubt = False
        self.version = ""
        self.until = float("inf")  # how long the caller waits; known from the first wait on
        self._table = table
        self._env = env
        self._seen: Seen | None = None
        self._state: tuple[object, ...] = ()
        self._since = 0.0  # when this holder, or this free lock with this head of the queue, was first seen
        self._ends_at = 0.0
        self._stood: tuple[int, float] | None = None  # the place in the queue, and when it was first seen
        self._turns, self._owed = turns, owed

    def note(self, seen: Seen, *, ends_at: float, free: bool) -> None:
        """Remember what was seen, for the pace."""
        state = (seen.owner, free, seen.queue[:1] if free else ())
        if state != self._state:
            self._state, self._since = state, self._env.monotonic()
        self._seen, self._ends_at = seen, ends_at
        if self.request is None or self.request.owner not in seen.queue:
            return
        now, at = self._env.monotonic(), seen.queue.index(self.request.owner)
        if self._stood is None:
            self._stood = at, now
        elif at < self._stood[0]:
            turn_s = (now - self._stood[1]) / (self._stood[0] - at)
            known_s = self._turns.get(self.item, turn_s)
            self._turns[self.item] = known_s + (turn_s - known_s) * (_SHORTER if turn_s < known_s else _LONGER)
            self._stood = at, now

    def expects_soon(self) -> bool:
        """Return True when the lock may be free for us now: then asking for the lock itself saves a read."""
        if self._seen is None or self.request is None or self.request.owner not in self._seen.queue[:2]:
            return False
        if self._seen.queue[0] == self.request.owner:
            return self._env.monotonic() < self._since + _SOON_S
        return self._turns.get(self.item, _TURN_SOON_S) < _TURN_SOON_S

    def absent_ahead(self) -> int:
        """Return the number of waiters before us if the lock is free and none of them takes it; else 0.

        Each place has its own moment, the next in line the first, so that a live one acts before those behind it.
        """
        if self._seen is None or self.request is None or self.request.owner not in self._seen.queue:
            return 0
        ahead = self._seen.queue.index(self.request.owner)
        patience_s = PATIENCE_S + PATIENCE_MORE_S * (ahead - 1)
        return ahead if self._env.monotonic() > self._since + patience_s else 0

    def wait(self, limit_s: float) -> None:
        """Wait for a part of the time that this state has lasted; further back in the queue, for half the turns before ours."""
        env, seen, request = self._env, self._seen, self.request
        self.until = env.monotonic() + limit_s
        if seen is None or request is None:
            pause_s = _PAUSE_S_MAX * env.random()  # throttled before anything was seen
        else:
            behind = seen.queue.index(request.owner) if request.owner in seen.queue else len(seen.queue)
            lasted_s = env.monotonic() - self._since
            least_s = _PAUSE_OVERTAKEN_S if seen.overtakes else _PAUSE_S
            pause_s = min(max(lasted_s / 4, least_s), _PAUSE_S_MAX) * (0.75 + env.random() / 2)
            if behind:
                pause_s = min(max(pause_s, behind * self._turns.get(self.item, 0.0) * _BEHIND_PART), _BEHIND_S_MAX)
            if env.monotonic() < self._ends_at:
                pause_s = min(pause_s, self._ends_at - env.monotonic() + 0.001)
        env.sleep(min(limit_s, pause_s))

    def leave(self) -> None:
        """Leave the queue, and release a grant that we may have got without knowing."""
        if self.request is None or not (self.queued or self.in_doubt):
            return
        try:
            for _ in range(5):  # others change the queue meanwhile
                seen = _seen(self._table.read(self.item))
                if seen is None or self._clean(self.request, seen):
                    return
        except LakeLatchError as e:
            self._owed.append(self)
            _log.warning("lock %r: could not leave the queue: %s", self.request.key, e)

    def _clean(self, request: LockRequest, seen: Seen) -> bool:
        """True when nothing of ours is left."""
        if seen.owner == request.owner and not seen.released:
            self._table.update(self.item, "SET isReleased = :yes", MINE, {":yes": "1", ":owner": request.owner})
        if request.owner not in seen.queue:
            return True
        at = f"lakelatchQueue[{seen.queue.index(request.owner)}]"
        return self._table.update(self.item, f"REMOVE {at}", f"{at} = :owner", {":owner": request.owner}).done


class DynamoGrant(Grant):
    """A grant. The owner's name is new each time, so it proves whose the item is even after lost answers."""

    def __init__(self, table: Table, item: str, request: LockRequest, seen: Seen, env: Environment) -> None:
        assert seen.fence is not None
        self.token = seen.fence
        self._facts = seen.holder
        self._table = table
        self._item = item
        self._request = request
        self._env = env

    def renew(self) -> bool:
        """Write a new version. Return False when the item is no longer ours."""
        values = sign_of_life(self._request, self._facts, version=self._env.uuid(), now=self._env.now())
        change = "SET recordVersionNumber = :version, leaseDuration = :lease, lakelatchHolder = :holder"
        return self._table.update(self._item, change, MINE, values).done

    def check(self) -> bool:
        """Read the item, and return whether it is still ours."""
        seen = _seen(self._table.read(self._item))
        return seen is not None and seen.owner == self._request.owner and not seen.released

    def release(self) -> Release:
        """Mark as released. The item stays, and with it the token."""
        values = {":owner": self._request.owner, ":yes": "1", ":token": self.token}
        change = "SET isReleased = :yes, lakelatchReleased = :token"
        answer = self._table.update(self._item, change, MINE, values)
        if answer.done:
            return Release.RELEASED
        if not answer.doubt:
            return Release.WAS_LOST
        # An earlier try of this release got no answer; it may be the reason that the item is not ours now.
        seen = _seen(answer.item)
        if seen is not None and seen.last_released == self.token:
            return Release.RELEASED
        broken = parse_breaks(self._request.key, [seen.broken]) if seen else ()
        return Release.WAS_LOST if any(each.token == self.token for each in broken) else Release.UNKNOWN
