"""A place in a DynamoDB lock's queue, and a grant of the lock."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from ..environment import Environment
from ..errors import LatchError
from .backend import Ask
from .dynamodb_item import MINE, Seen, parse_breaks, parse_item
from .dynamodb_table import Table
from .interface import Release

_log = logging.getLogger("lakelatch.locks")

# By how many the first waiter may be overtaken, where it is the only one and where more wait.
OVERTAKEN_MAX, OVERTAKEN_MAX_MANY = 8, 2
LONG_S = 0.05  # nobody overtakes after a hold as long as this
PATIENCE_S = 2.0  # how long the first in the queue may leave a free lock lying
_PAUSE_S, _PAUSE_S_MAX = 0.003, 0.25
_REST_S_MAX, _BEHIND_S_MAX = 0.1, 1.0  # the first one, and those behind
_PART = 0.5  # of the turns before theirs that waiters let pass before they look again
# Weights of the turn that was seen last. Who sleeps too long makes turns longer, and that must not grow by itself.
_SHORTER, _LONGER = 0.3, 0.1
_SOON_S = 0.03  # a hold this new may be a short one
_TURN_SOON_S = 0.1  # where turns are shorter, the second in the queue may be the first when its request arrives


@dataclass(slots=True)
class Rhythm:
    """What this process has learned about one lock.

    ``turn_s``: how long a turn lasts. ``hot``: who releases it comes back at once. ``crowded``: nobody may overtake now.
    """

    turn_s: float = 0.0
    hot: bool = False
    crowded: bool = False
    _ours: tuple[int, float] = (0, 0.0)  # our last token, and since when we had it

    def granted(self, token: int, now: float) -> None:
        """Two grants of ours in a row show how long a turn is for one who comes back at once."""
        last, since = self._ours
        if token == last + 1:
            self.turn_s = _learned(self.turn_s, now - since)
        self._ours = token, now


def _learned(known_s: float, seen_s: float) -> float:
    """What is known after one more observation."""
    return known_s + (seen_s - known_s) * (_SHORTER if seen_s < known_s else _LONGER) if known_s else seen_s


def overtaking(seen: Seen) -> int:
    """By how many the first waiter may be overtaken."""
    return OVERTAKEN_MAX_MANY if len(seen.queue) > 1 else OVERTAKEN_MAX


class DynamoPlace:
    """A name in the queue, and the pace of looking again. ``in_doubt``: a write may have made us the owner."""

    def __init__(self, table: Table, item: str, env: Environment, rhythm: Rhythm) -> None:
        self.item = item
        self.ask: Ask | None = None
        self.queued = False
        self.in_doubt = False
        self.version = ""
        self.until = float("inf")  # how long the caller waits; known from the first wait on
        self._table = table
        self._env = env
        self._seen: Seen | None = None
        self._state: tuple[object, ...] = ()
        self._since = 0.0  # when this holder, or this free lock with this head of the queue, was first seen
        self._ends_at = 0.0
        self._looked: tuple[int, float] | None = None  # the token of the last look, and its time
        self._rhythm = rhythm
        self._came: tuple[int, int] | None = None  # of the first look: the token, and how many before us

    def note(self, seen: Seen, *, ends_at: float, free: bool) -> None:
        """Remember what was seen, for the pace."""
        state = (seen.owner, free, seen.queue[:1] if free else ())
        if state != self._state:
            self._state, self._since = state, self._env.monotonic()
        self._seen, self._ends_at = seen, ends_at
        if seen.fence is not None:
            now, rhythm = self._env.monotonic(), self._rhythm
            self._came = self._came or (seen.fence, self._behind(seen))
            if self._looked is not None and seen.fence > self._looked[0]:
                turns = seen.fence - self._looked[0]
                rhythm.turn_s = _learned(rhythm.turn_s, (now - self._looked[1]) / turns)
            self._looked = seen.fence, now

    def _behind(self, seen: Seen) -> int:
        """How many others are to come before us."""
        assert self.ask is not None
        return seen.queue.index(self.ask.owner) if self.ask.owner in seen.queue else len(seen.queue)

    def granted(self, token: int) -> None:
        """Learn whether those before us came back at once, each as soon as it had released."""
        if self._came is not None:
            fence, before = self._came
            self._rhythm.hot = token - fence > 1.5 * (before + 1)
        self._rhythm.granted(token, self._env.monotonic())

    def expects_soon(self) -> bool:
        """The lock may be free for us now: asking for the lock itself saves the look before it."""
        if self._seen is None or self.ask is None or self.ask.owner not in self._seen.queue[:2]:
            return False
        if self._seen.queue[0] == self.ask.owner:
            return self._env.monotonic() < self._since + _SOON_S + (_REST_S_MAX if self._rhythm.hot else 0.0)
        return 0 < self._rhythm.turn_s < _TURN_SOON_S

    def head_is_absent(self) -> bool:
        """The lock lies free and its first waiter does not come."""
        return self._env.monotonic() > self._since + PATIENCE_S

    def wait(self, limit_s: float) -> None:
        """Look again after a part of the time that this state has lasted; those behind, after half the turns before theirs."""
        env, seen, ask = self._env, self._seen, self.ask
        self.until = env.monotonic() + limit_s
        if seen is None or ask is None:
            pause_s = _PAUSE_S_MAX * env.random()  # throttled before anything was seen
        else:
            behind = self._behind(seen)
            lasted_s = env.monotonic() - self._since
            pause_s = min(max(lasted_s / 4, _PAUSE_S), _PAUSE_S_MAX) * (0.75 + env.random() / 2)
            rhythm = self._rhythm
            most = overtaking(seen) if rhythm.hot else 0
            if behind:
                turns = behind * (OVERTAKEN_MAX_MANY + 1 if rhythm.hot else 1)
                pause_s = min(max(pause_s, turns * rhythm.turn_s * _PART), _BEHIND_S_MAX)
            elif seen.overtaken < most:  # the holder comes back at once, as it may: every try of ours makes it slower
                rest_s = (most - seen.overtaken) * rhythm.turn_s * _PART
                pause_s = max(pause_s, min(rest_s, _REST_S_MAX))
            if env.monotonic() < self._ends_at:
                pause_s = min(pause_s, self._ends_at - env.monotonic() + 0.001)
        env.sleep(min(limit_s, pause_s))

    def leave(self) -> None:
        """Take the name out of the queue, and give back what may have been granted without our knowing."""
        if self.ask is None or not (self.queued or self.in_doubt):
            return
        try:
            for _ in range(5):  # others change the queue meanwhile
                found = self._table.read(self.item)
                seen = parse_item(found) if found else None
                if seen is None or self._clean(self.ask, seen):
                    return
        except LatchError as e:
            _log.warning("lock %r: could not leave the queue: %s", self.ask.key, e)

    def _clean(self, ask: Ask, seen: Seen) -> bool:
        """True when nothing of ours is left."""
        if seen.owner == ask.owner and not seen.released:
            self._table.update(self.item, "SET isReleased = :yes", MINE, {":yes": "1", ":owner": ask.owner})
        if ask.owner not in seen.queue:
            return True
        at = f"lakelatchQueue[{seen.queue.index(ask.owner)}]"
        return self._table.update(self.item, f"REMOVE {at}", f"{at} = :owner", {":owner": ask.owner}).done


class DynamoGrant:
    """The owner's name is new in every grant, so it proves whose the item is, whatever answers got lost."""

    def __init__(self, table: Table, item: str, ask: Ask, taken: Seen, env: Environment, rhythm: Rhythm) -> None:
        assert taken.fence is not None
        self.token = taken.fence
        self._taken = taken  # the item as it was then
        self._rhythm = rhythm
        self._began = env.monotonic()
        self._table = table
        self._item = item
        self._ask = ask
        self._env = env

    def renew(self) -> bool:
        """A new version, unless it is no longer ours."""
        values = {
            ":owner": self._ask.owner,
            ":version": self._env.uuid(),
            ":lease": str(round(self._ask.lease_s * 1000)),
            ":until": str(round(self._env.now() + self._ask.lease_s, 3)),
        }
        change = "SET recordVersionNumber = :version, leaseDuration = :lease, lakelatchUntil = :until"
        return self._table.update(self._item, change, MINE, values).done

    def check(self) -> bool:
        """Read it."""
        seen = self._read()
        return seen is not None and seen.owner == self._ask.owner and not seen.released

    def release(self) -> Release:
        """Mark as released. The item stays, and with it the token."""
        values = {":owner": self._ask.owner, ":yes": "1", ":token": self.token}
        change = "SET isReleased = :yes, lakelatchReleased = :token"
        long = self._env.monotonic() >= self._began + LONG_S
        if long:
            change += ", lakelatchOvertaken = :most"
            values[":most"] = OVERTAKEN_MAX
        answer = self._table.update(self._item, change, MINE, values)
        if answer.done:
            taken = self._taken
            self._rhythm.crowded = bool(taken.queue) and (long or taken.overtaken >= overtaking(taken))
            return Release.RELEASED
        if not answer.doubt:
            return Release.WAS_LOST
        seen = parse_item(answer.item) if answer.item else None
        # An earlier try of this release got no answer; it may be the reason that the item is not ours now.
        if seen is not None and seen.last_released == self.token:
            return Release.RELEASED
        broken = parse_breaks(self._ask.key, [seen.broken]) if seen else ()
        return Release.WAS_LOST if any(each.token == self.token for each in broken) else Release.UNKNOWN

    def listen(self, call: Callable[[str], None]) -> None:
        """DynamoDB brings no news of its own."""

    def _read(self) -> Seen | None:
        found = self._table.read(self._item)
        return parse_item(found) if found else None
