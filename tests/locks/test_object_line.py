"""Whom the waiters at an object store let go first, in a model: many processes on two cores, in virtual time.

The order comes out of what each process decides by itself (`Pace`, `Rhythm`); only all of them together show whether it
is fair, and a busy machine could not tell it from chance.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Generator
from dataclasses import replace
from itertools import count

import pytest

from lakelatch.locks.objects.pacing import Found, Pace, Rhythm
from lakelatch.locks.objects.record import LockObject

REQUEST_S = 0.0018  # of a core, client and server together
STALL = 0.003  # of the requests take much longer
Step = tuple[str, float]  # "work" on a core or "sleep", seconds
Process = Generator[Step, None, None]


class Clock:
    """What a pace needs of an environment."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def monotonic(self) -> float:
        return self._model.now

    def random(self) -> float:
        return self._model.chance.random()


class Model:
    """Processes that take and give back one lock as often as they can."""

    def __init__(self, processes: int, hold_s: float, seed: int) -> None:
        self.now = 0.0
        self.chance = random.Random(seed)
        self.served = [0] * processes
        self.looks = 0
        self._hold_s = hold_s
        self._tags = count()
        self._stored = Found(LockObject(0, True, "", {}), "first")
        self._events: list[tuple[float, int, bool, Process]] = []
        self._order = count()
        self._idle_cores = 2
        self._queue: list[tuple[float, Process]] = []

    def run(self, seconds: float) -> None:
        for me in range(len(self.served)):
            self._at(self.chance.random() * 0.05, self._process(me), core=False)
        while self._events[0][0] < seconds:
            self.now, _, core, process = heapq.heappop(self._events)
            self._idle_cores += core
            self._next(process)
            while self._queue and self._idle_cores:
                took_s, waiting = self._queue.pop(0)
                self._idle_cores -= 1
                self._at(took_s, waiting, core=True)

    def _at(self, later_s: float, process: Process, *, core: bool) -> None:
        heapq.heappush(self._events, (self.now + later_s, next(self._order), core, process))

    def _next(self, process: Process) -> None:
        kind, seconds = next(process)
        if kind == "work":
            self._queue.append((seconds, process))
        else:
            self._at(seconds, process, core=False)

    def _request(self) -> Step:
        stall_s = self.chance.uniform(0.01, 0.1) if self.chance.random() < STALL else 0.0
        return "work", REQUEST_S * self.chance.lognormvariate(-0.125, 0.5) + stall_s

    def _replace(self, found: Found, lock: LockObject) -> Found | None:
        if self._stored.tag != found.tag:
            return None
        self._stored = Found(lock, f"{next(self._tags)}")
        return self._stored

    def _process(self, number: int) -> Process:
        me, clock = f"p{number}", Clock(self)
        rhythm = Rhythm(clock)  # type: ignore[arg-type]
        while True:
            pace, mine = Pace(clock, me, rhythm, 3.0), None  # type: ignore[arg-type]
            while mine is None:  # as ObjectBackend.try_grant and ObjectContender.wait
                found, turn = rhythm.recall(), False
                if found is None:
                    turn = True
                    found = None if pace.holds_back() else (yield from self._free(pace, rhythm))
                if found is None:
                    pace.waited = True
                    yield "sleep", pace._pause_s
                    continue
                line = pace.line_with_me(found.lock, waits=True) if turn else found.lock.line
                facts = {"token": 1, "turn": found.lock.turn + turn, "line": line}
                yield self._request()
                mine = self._replace(found, LockObject(0, False, me, facts))
            rhythm.took(turn=turn)
            yield "sleep", self._hold_s
            yield self._request()
            left = self._replace(mine, replace(mine.lock, expired=True))
            assert left is not None, "somebody wrote over a lock that was held"
            rhythm.left(left)
            self.served[number] += 1

    def _free(self, pace: Pace, rhythm: Rhythm) -> Generator[Step, None, Found | None]:
        """One look: the lock, if it is ours to take."""
        began = self.now
        yield self._request()
        found = self._stored
        self.looks += 1
        rhythm.looked(self.now - began, found)
        if not found.lock.expired:
            pace.saw_held(found.lock, 30.0)
            return None
        return found if pace.saw_free(found.lock, found.tag) else None


@pytest.mark.parametrize(
    ("processes", "hold_s", "soon_per_s"), [(2, 0.0, 200), (8, 0.005, 80), (32, 0.0, 60), (32, 0.005, 60)]
)
def test_processes_are_served_evenly_for_few_looks(processes: int, hold_s: float, soon_per_s: int) -> None:
    model = Model(processes, hold_s, seed=processes)
    model.run(3.0)
    assert sum(model.served) >= 3 * soon_per_s, "who come at once get in each other's way"
    model.served, model.looks = [0] * processes, 0  # by now there is a line
    model.run(15.0)
    assert min(model.served) >= 0.7 * max(model.served), sorted(model.served)
    assert model.looks <= 5 * sum(model.served)
