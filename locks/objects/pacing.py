"""Decide who takes a free lock object next, and when each waiter polls again.

An object store wakes no waiter. A bare compare-and-set loop is unfair (the last holder is the first
to retry) and expensive (every waiter polls all the time). Here the lock object itself carries the
order: each holder leaves a *line* in it, the processes that were served lately, the longest ago
first. Its head goes at once; number r lets r others go first and polls when its turn should be
near. It costs no request.

    line [B, C, A], A holds          B polls often, C after half a hand-off, A (if it comes again) after one and a half
    A releases                       B sees it and takes the lock; the line is now [C, A, B]
    B is dead                        C sees the lock free, waits a little for B, takes it; the line is [-B, A, C]
    B misses more turns              no one waits for it again, but it keeps its place; with four marks it is dropped

A *turn* is a few times as long as a read: within it the process that released may take the lock again at once, without
a read, by replacing the version that it has left there. Where no other process comes, it may always do so. A newcomer
that waits leaves no trace, though, and would never win against a process that takes the lock back at once; so that
process makes a short pause now and then, in which the newcomer finds the lock free and gets into the line.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...environment import Environment
from .record import LINE_MAX, LockObject

_LOOKS = 8  # polls in a turn, by the next in line
_PAUSE_S_MIN = 0.0003
_FIRST_GUESS_S = 0.02  # of a hand-off
_WEIGHT = 0.3  # of what was seen last;
_WEIGHT_LONGER = 0.1  # of a turn longer than before: sleeping too long makes turns longer, which must not feed itself
_SLEEP = 0.8  # of the time until the own turn, by that measure
_TURN_LOOKS = 10  # a turn lasts as long as this many reads; within it its process may take the lock again,
_TURN_GRANTS = 6  # up to this many times in all, fewer when more wait,
_TURN_GRANTS_MIN = 2
_MISSED_MAX = 4  # a process that misses more turns is dropped from the line
# After this many grants, or this long, a process that seems alone leaves room for newcomers: the lock stays free for
# a sixteenth of the time that it was used.
_ALONE_GRANTS, _ALONE_S = 16, 1.0
_ROOM = 16


@dataclass(frozen=True, slots=True)
class Found:
    """A lock object and the version that was read or written."""

    lock: LockObject
    tag: str


class Rhythm:
    """The estimates of a process for one key: how long things take, and the version it left there itself."""

    def __init__(self, env: Environment) -> None:
        self._env = env
        self.cycle_s = _FIRST_GUESS_S  # from one turn to the next
        self.look_s = 0.0
        self._left: Found | None = None
        self._left_at = 0.0
        self._turn_began, self._grants = 0.0, 0
        self._alone = False  # no other process came between our last two holds

    def looked(self, seconds: float, found: Found | None) -> None:
        """Learn from the duration of one read."""
        self.look_s += (seconds - self.look_s) * _WEIGHT
        self._alone = found is not None and self._left is not None and found.tag == self._left.tag

    def cycled(self, seconds: float, turns: int) -> None:
        """Learn from the duration of ``turns`` turns."""
        weight = _WEIGHT if seconds < turns * self.cycle_s else _WEIGHT_LONGER
        self.cycle_s += (seconds / turns - self.cycle_s) * (1 - (1 - weight) ** turns)

    def left(self, found: Found) -> None:
        """Record our release."""
        self._left, self._left_at = found, self._env.monotonic()

    def recall(self) -> Found | None:
        """Return the version that we left, if it is probably still there: no other process comes, or our turn is not over."""
        left = self._left
        if left is None:
            return None
        now = self._env.monotonic()
        if self._alone and not left.lock.line:
            if self.room_s() == 0.0:
                self._turn_began, self._grants = now, 0
            ours = self._grants < _ALONE_GRANTS and now - self._turn_began < _ALONE_S
        else:
            most = max(_TURN_GRANTS_MIN, _TURN_GRANTS - len(left.lock.line) // 4)
            over = self._grants >= most or now - self._turn_began > _TURN_LOOKS * self.look_s
            ours = not over and now - self._left_at < self.look_s
        if not ours:
            return None
        self._left = None
        return left

    def room_s(self) -> float:
        """Return for how long the lock stays free before we take it again; a pause since the release counts."""
        if self._left is None or not self._alone or self._left.lock.line:
            return 0.0
        lasted_s = self._left_at - self._turn_began
        return max(0.0, lasted_s / _ROOM + self.look_s - (self._env.monotonic() - self._left_at))

    def took(self, *, turn: bool) -> None:
        """Record that we hold the lock, perhaps in a new turn."""
        if turn:
            self._turn_began, self._grants = self._env.monotonic(), 0
        self._grants += 1

    def behind(self, me: str) -> int:
        """Return how many waiters we left behind, if that was just now."""
        if self._left is None or self._env.monotonic() - self._left_at > self.cycle_s:
            return 0
        return rank(self._left.lock, me) or 0


class Pace:
    """One wait of one process, called ``me`` in the line."""

    def __init__(self, env: Environment, me: str, rhythm: Rhythm, pause_s_max: float) -> None:
        self._env = env
        self._me = me
        self._rhythm = rhythm
        self._pause_s_max = pause_s_max
        self.waited = False
        self._seen: tuple[int, float] | None = None  # the last turn that was seen, and when for the first time
        self._free: tuple[str, float] | None = None  # the free lock's tag, and from when we may take it
        self._turn: int | None = None  # a newcomer's, drawn by lot
        self._lots = 0
        self._pause_s = 0.0

    def holds_back(self) -> bool:
        """Return True when a read would be wasted: others go first, or may, as we know from our own release."""
        if self.waited:
            return False
        pause_s = max(0.0, self._rhythm.behind(self._me) - 0.5) * _SLEEP * self._rhythm.cycle_s
        self._pause_s = min(max(pause_s, self._rhythm.room_s()), self._pause_s_max)
        return self._pause_s > 0.0

    def saw_held(self, lock: LockObject, ends_in_s: float) -> None:
        """Note a holder whose lease, as published, ends in ``ends_in_s`` seconds."""
        now, seen_at = self._env.monotonic(), self._saw_turn(lock)
        # Half a hand-off before the end of the turn before ours, then often; less often when it is overdue.
        elapsed_s, turn_s = now - seen_at, (self._rank(lock) + 0.5) * self._rhythm.cycle_s
        pause_s = max(self._look_s, (turn_s - elapsed_s) * _SLEEP, (elapsed_s - 2 * turn_s) / 4)
        self._pause_s = min(pause_s * (0.75 + self._env.random() / 2), max(ends_in_s, _PAUSE_S_MIN), self._pause_s_max)

    def saw_free(self, lock: LockObject, tag: str) -> bool:
        """Return whether the lock is ours to take now. Processes before us in the line get the time to see it too."""
        self._saw_turn(lock)
        now = self._env.monotonic()
        if self._free is None or self._free[0] != tag:
            patience_s = self._before(lock) * (1.5 * self._look_s + 2 * self._rhythm.look_s)
            self._free = tag, now + min(patience_s, self._pause_s_max)
        self._pause_s = max(0.0, self._free[1] - now)
        return self._pause_s == 0.0

    def _saw_turn(self, lock: LockObject) -> float:
        """Return when this turn was first seen; learns how long turns are."""
        now = self._env.monotonic()
        if self._seen is None or lock.turn != self._seen[0]:
            if self._seen is not None and 0 < (turns := lock.turn - self._seen[0]) < LINE_MAX:
                self._rhythm.cycled(min(now - self._seen[1], turns * self._pause_s_max * 8), turns)
            self._seen = lock.turn, now
        return self._seen[1]

    def wait(self, limit_s: float) -> None:
        """Wait until another read is worth its cost."""
        self.waited = True
        self._env.sleep(min(limit_s, self._pause_s))

    def line_with_me(self, lock: LockObject | None, *, waits: bool) -> list[str]:
        """Return the line that we leave as the holder of a new turn.

        A process that stood before us and did not come gets a mark, or is dropped.
        """
        line = lock.line if lock else []
        at = _position(line, self._me)
        if at is None:
            left = line
        elif waits:
            left = [f"-{name}" for name in line[:at] if not name.startswith("-" * _MISSED_MAX)] + line[at + 1 :]
        else:
            left = line[:at] + line[at + 1 :]
        return [*left, self._me][-LINE_MAX:] if left or self.waited else []

    @property
    def _look_s(self) -> float:
        return max(_PAUSE_S_MIN, self._rhythm.cycle_s / _LOOKS)

    def _before(self, lock: LockObject) -> int:
        """Return how many processes get the lock first for a moment; those that have missed a turn do not count."""
        at = _position(lock.line, self._me)
        if at is None:
            return min(self._rank(lock), len(lock.line))
        return sum(name[0] != "-" for name in lock.line[:at])

    def _rank(self, lock: LockObject) -> int:
        known = rank(lock, self._me)
        if known is not None:
            return known
        if self._turn is None or lock.turn > self._turn + 1:
            # A newcomer draws a lot, from more lots after each failure: all at once would get in each other's way.
            self._lots = min(2 * self._lots, len(lock.line)) + 1
            self._turn = lock.turn + int(self._env.random() * self._lots)
        return max(0, self._turn - lock.turn)


def rank(lock: LockObject, me: str) -> int | None:
    """Return how many go before ``me``; None for a newcomer."""
    return _position(lock.line, me)


def _position(line: list[str], me: str) -> int | None:
    return next((at for at, name in enumerate(line) if name.lstrip("-") == me), None)
