"""A place in a DynamoDB lock's queue, and a grant of the lock."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...environment import Environment
from ...errors import LakeLatchError
from ..core import LockRequest
from ..interface import Release
from .item import MINE, Seen, parse_breaks, parse_item, sign_of_life
from .table import Table

_log = logging.getLogger("lakelatch.locks")

PATIENCE_S = 2.0  # how long the first in the queue may leave a free lock untaken
_PAUSE_S, _PAUSE_S_MAX = 0.003, 0.25
_PAUSE_OVERTAKEN_S = 0.006  # a waiter that may still be overtaken need not hurry: most often it is
_BEHIND_S_MAX = 1.0
_BEHIND_PART = 0.5  # of the turns before their own that waiters further back let pass before they read again
# Weights of the last turn seen. A waiter that sleeps too long makes turns longer, and that must not feed itself.
_SHORTER, _LONGER = 0.3, 0.1
_SOON_S = 0.03  # a hold this new may be a short one
_TURN_SOON_S = 0.1  # where turns are shorter, the second in the queue may be the first when its request arrives


class DynamoPlace:
    """A name in the queue, and the pace of polling. ``in_doubt``: a write may have made us the owner.

    ``turns`` holds this process's estimate, by item, of how long the queue takes to move by one.
    """

    def __init__(self, table: Table, item: str, env: Environment, turns: dict[str, float]) -> None:
        self.item = item
        self.ask: LockRequest | None = None
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
        self._turns = turns

    def note(self, seen: Seen, *, ends_at: float, free: bool) -> None:
        """Remember what was seen, for the pace."""
        state = (seen.owner, free, seen.queue[:1] if free else ())
        if state != self._state:
            self._state, self._since = state, self._env.monotonic()
        self._seen, self._ends_at = seen, ends_at
        if self.ask is None or self.ask.owner not in seen.queue:
            return
        now, at = self._env.monotonic(), seen.queue.index(self.ask.owner)
        if self._stood is None:
            self._stood = at, now
        elif at < self._stood[0]:
            turn_s = (now - self._stood[1]) / (self._stood[0] - at)
            known_s = self._turns.get(self.item, turn_s)
            self._turns[self.item] = known_s + (turn_s - known_s) * (_SHORTER if turn_s < known_s else _LONGER)
            self._stood = at, now

    def expects_soon(self) -> bool:
        """Return True when the lock may be free for us now: then asking for the lock itself saves a read."""
        if self._seen is None or self.ask is None or self.ask.owner not in self._seen.queue[:2]:
            return False
        if self._seen.queue[0] == self.ask.owner:
            return self._env.monotonic() < self._since + _SOON_S
        return self._turns.get(self.item, _TURN_SOON_S) < _TURN_SOON_S

    def head_is_absent(self) -> bool:
        """Return True when the lock is free and its first waiter does not take it."""
        return self._env.monotonic() > self._since + PATIENCE_S

    def wait(self, limit_s: float) -> None:
        """Wait for a part of the time that this state has lasted; further back in the queue, for half the turns before ours."""
        env, seen, ask = self._env, self._seen, self.ask
        self.until = env.monotonic() + limit_s
        if seen is None or ask is None:
            pause_s = _PAUSE_S_MAX * env.random()  # throttled before anything was seen
        else:
            behind = seen.queue.index(ask.owner) if ask.owner in seen.queue else len(seen.queue)
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
        if self.ask is None or not (self.queued or self.in_doubt):
            return
        try:
            for _ in range(5):  # others change the queue meanwhile
                found = self._table.read(self.item)
                seen = parse_item(found) if found else None
                if seen is None or self._clean(self.ask, seen):
                    return
        except LakeLatchError as e:
            _log.warning("lock %r: could not leave the queue: %s", self.ask.key, e)

    def _clean(self, ask: LockRequest, seen: Seen) -> bool:
        """True when nothing of ours is left."""
        if seen.owner == ask.owner and not seen.released:
            self._table.update(self.item, "SET isReleased = :yes", MINE, {":yes": "1", ":owner": ask.owner})
        if ask.owner not in seen.queue:
            return True
        at = f"lakelatchQueue[{seen.queue.index(ask.owner)}]"
        return self._table.update(self.item, f"REMOVE {at}", f"{at} = :owner", {":owner": ask.owner}).done


class DynamoGrant:
    """A grant. The owner's name is new each time, so it proves whose the item is even after lost answers."""

    def __init__(self, table: Table, item: str, ask: LockRequest, seen: Seen, env: Environment) -> None:
        assert seen.fence is not None
        self.token = seen.fence
        self._facts = seen.holder
        self._table = table
        self._item = item
        self._ask = ask
        self._env = env

    def renew(self) -> bool:
        """Write a new version. Return False when the item is no longer ours."""
        values = sign_of_life(self._ask, self._facts, version=self._env.uuid(), now=self._env.now())
        change = "SET recordVersionNumber = :version, leaseDuration = :lease, lakelatchHolder = :holder"
        return self._table.update(self._item, change, MINE, values).done

    def check(self) -> bool:
        """Read the item, and return whether it is still ours."""
        seen = self._read()
        return seen is not None and seen.owner == self._ask.owner and not seen.released

    def release(self) -> Release:
        """Mark as released. The item stays, and with it the token."""
        values = {":owner": self._ask.owner, ":yes": "1", ":token": self.token}
        change = "SET isReleased = :yes, lakelatchReleased = :token"
        answer = self._table.update(self._item, change, MINE, values)
        if answer.done:
            return Release.RELEASED
        if not answer.doubt:
            return Release.WAS_LOST
        # An earlier try of this release got no answer; it may be the reason that the item is not ours now.
        seen = parse_item(answer.item) if answer.item else None
        if seen is not None and seen.last_released == self.token:
            return Release.RELEASED
        broken = parse_breaks(self._ask.key, [seen.broken]) if seen else ()
        return Release.WAS_LOST if any(each.token == self.token for each in broken) else Release.UNKNOWN

    def listen(self, call: Callable[[str], None]) -> None:
        """Do nothing: DynamoDB sends no notifications."""

    def _read(self) -> Seen | None:
        found = self._table.read(self._item)
        return parse_item(found) if found else None
