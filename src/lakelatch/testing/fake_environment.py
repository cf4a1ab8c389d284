"""A deterministic `Environment`: time passes only on request.

`FakeEnvironment` is deterministic as long as one real thread uses it. Nothing runs concurrently:

- `sleep` and `Event.wait` move the clock, and while it moves, timers (`every`) fire at their due times, in order.
- `thread` queues the call; it runs, in the caller's thread, at the caller's next `sleep`, `Event.wait`, `advance` or
  `run_threads`. An exception of such a call is raised there.
- `peer` makes a second environment on the same monotonic clock, with timers of its own. Advancing one lets the other
  stand still while time passes, like a paused or suspended process.
- `stopped` makes one with clocks of its own, which stand still while all others go on.
"""

from __future__ import annotations

import os
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..environment import Event, Process, Timer

_START = 1_000.0  # not zero, so that a forgotten default does not look like a time
_WALL = 1_750_000_000.0
_SLICE_S = 0.01  # seconds of real time between checks of state that another thread may change


class _Clock:
    """A clock that stands still until it is advanced."""

    def __init__(self, now_s: float = _START) -> None:
        self._now_s = now_s

    @property
    def now_s(self) -> float:
        return self._now_s

    def skip(self, seconds: float) -> None:
        """Jump without firing timers."""
        self._now_s += seconds

    def go_to(self, at_s: float) -> None:
        """Let time pass until then, or part of the way."""
        self._now_s = max(self._now_s, at_s)


class _RealClock(_Clock):
    """A clock that runs by itself, for tests against a server with a clock of its own."""

    def __init__(self) -> None:
        self._now_s = 0.0

    @property
    def now_s(self) -> float:
        return time.monotonic() + self._now_s

    def go_to(self, at_s: float) -> None:
        time.sleep(max(0.0, min(at_s - self.now_s, _SLICE_S)))


@dataclass(eq=False)
class _FakeTimer:
    period_s: float
    call: Callable[[], None]
    due_s: float
    name: str
    cancelled: bool = False

    def cancel(self, *, join_s: float = 0.0) -> None:  # noqa: ARG002 (nothing runs beside us, so nothing to wait for)
        """Stop the calls."""
        self.cancelled = True


class _FakeEvent:
    def __init__(self, env: FakeEnvironment) -> None:
        self._env = env
        self._set = False

    def set(self) -> None:
        """Wake the waiter."""
        self._set = True

    def is_set(self) -> bool:
        """Return True after `set`."""
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        """Let time pass until set, at most ``timeout``. Raise RuntimeError for an endless wait that nothing can end."""
        self._env._pass_time(timeout, self.is_set)
        return self._set


class FakeEnvironment:
    """A fake environment as the module describes it. ``wall`` is the wall clock at the start; ``seed`` fixes `random` and
    `uuid`.

    With ``real_time`` the clocks run by themselves and `advance` and `sleep` really wait, but timers and threads still run
    only when the caller yields. It is for a server that judges leases by its own clock.
    """

    def __init__(
        self, *, seed: int = 0, wall: float | None = None, process: Process | None = None, number: int = 0,
        real_time: bool = False,
    ) -> None:  # fmt: skip
        self._clock = _RealClock() if real_time else _Clock()
        if wall is None:
            wall = time.time() if real_time else _WALL
        self._wall_offset = wall - self._clock.now_s
        self._random = random.Random(seed)
        self._seed = seed
        self._number = number
        self._uuids = 0
        self._peers = [0]
        self._process = process or Process("host-a", "boot-a", 100, "1")
        self._real_pid = os.getpid()
        self._dead: set[Process] = set()
        self._timers: list[_FakeTimer] = []
        self._threads: deque[Callable[[], None]] = deque()

    # What the code under test sees.

    def now(self) -> float:
        return self._clock.now_s + self._wall_offset

    def monotonic(self) -> float:
        return self._clock.now_s

    def sleep(self, seconds: float) -> None:
        self._pass_time(max(0.0, seconds), lambda: False)

    def random(self) -> float:
        return self._random.random()

    def uuid(self) -> str:
        self._uuids += 1
        return f"{self._seed:08x}-0000-4000-8000-{self._number:04x}{self._uuids:08x}"  # owners use the tail

    def event(self) -> Event:
        return _FakeEvent(self)

    def every(self, period_s: float, call: Callable[[], None], *, name: str) -> Timer:
        timer = _FakeTimer(period_s, call, self._clock.now_s + period_s, name)
        self._timers.append(timer)
        return timer

    def thread(self, call: Callable[[], None], *, name: str) -> None:  # noqa: ARG002 (the name is for people)
        self._threads.append(call)

    def process(self) -> Process:
        pid = os.getpid()
        if pid != self._real_pid:  # a real fork in a test: the child is another process
            return replace(self._process, pid=pid, started="forked")
        return self._process

    def is_dead(self, process: Process) -> bool:
        return process in self._dead and (process.host, process.boot) == (self._process.host, self._process.boot)

    # What the test does.

    def advance(self, seconds: float) -> None:
        """Let time pass; timers fire at their due times.

        An overdue timer fires once, immediately.
        """
        self.sleep(seconds)

    def suspend(self, seconds: float) -> None:
        """Let time pass while nothing here runs, as if the process was stopped; timers are overdue afterwards."""
        self._clock.skip(seconds)

    def set_wall(self, wall: float) -> None:
        """Set the wall clock, also backwards; the monotonic one goes on."""
        self._wall_offset = wall - self._clock.now_s

    def become(self, process: Process) -> None:
        """Turn into another process, such as a child of fork."""
        self._process = process

    def kill(self, process: Process) -> None:
        """Declare a process ended; all peers that share its host and boot see it."""
        self._dead.add(process)

    def peer(self, *, process: Process | None = None, wall: float | None = None) -> FakeEnvironment:
        """Return a second environment on the same monotonic clock, for the same process unless another is given."""
        self._peers[0] += 1
        number = self._peers[0]
        other = FakeEnvironment(seed=self._seed, process=process or self._process, number=number)
        other._clock = self._clock
        # Seeded by number, so that a peer's values do not depend on how often others drew.
        other._random = random.Random(f"{self._seed}/{number}")
        other._peers = self._peers
        other._dead = self._dead
        other._wall_offset = self._wall_offset if wall is None else wall - self._clock.now_s
        return other

    def stopped(self) -> FakeEnvironment:
        """Return a peer with clocks of its own, which stand still until it is advanced."""
        other = self.peer()
        other._clock = _Clock(self._clock.now_s)
        return other

    def run_threads(self) -> None:
        """Run the calls that `thread` queued, and the calls that they queue."""
        while self._threads:
            self._threads.popleft()()

    def _pass_time(self, seconds: float | None, enough: Callable[[], bool]) -> None:
        until = None if seconds is None else self._clock.now_s + seconds
        self.run_threads()
        while not enough():
            self._timers = [timer for timer in self._timers if not timer.cancelled]
            timer = min(self._timers, key=lambda timer: timer.due_s, default=None)
            if timer is None or (until is not None and timer.due_s > until):
                if until is None:
                    raise RuntimeError("a wait without time limit that no timer or queued thread can end")
                self._clock.go_to(until)
                if self._clock.now_s >= until:
                    return
                continue
            self._clock.go_to(timer.due_s)
            if self._clock.now_s >= timer.due_s:
                # Rescheduled before the call, which may cancel the timer or let time pass itself.
                timer.due_s = self._clock.now_s + timer.period_s
                timer.call()
                self.run_threads()
