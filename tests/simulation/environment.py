"""The library's outside world in a simulation: clocks, threads, mutexes and process identity of a `SimProcess`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from lakelatch.environment import Process

from .scheduler import Killed, Scheduler, SimProcess, Task

WALL = 1_770_000_000.0  # after the table was made, or every T would come from the log and none from a clock


class SimEnvironment:
    """An `Environment` for one process."""

    def __init__(self, scheduler: Scheduler, process: SimProcess, dead: set[Process], number: int) -> None:
        self.scheduler, self.sim = scheduler, process
        self.open_lock: Callable[[str], Any] = _no_lock
        self._dead = dead
        self._number = number
        self._uuids = 0

    def now(self) -> float:
        return WALL + self.scheduler.now * self.sim.rate + self.sim.skew_s

    def monotonic(self) -> float:
        return self.scheduler.now * self.sim.rate

    def sleep(self, seconds: float) -> None:
        self.scheduler.pause(max(seconds, 0.0) / self.sim.rate)

    def random(self) -> float:
        return self.scheduler.random.random()

    def uuid(self) -> str:
        self._uuids += 1
        return f"{self._number:08x}-0000-4000-8000-{self._number:06x}{self._uuids:06x}"  # a bucket takes the head

    def event(self) -> SimEvent:
        return SimEvent(self.scheduler, self.sim.rate)

    def every(self, period_s: float, call: Callable[[], None], *, name: str) -> SimTimer:
        timer = SimTimer()

        def beat() -> None:
            while True:
                self.sleep(period_s)
                if timer.cancelled:
                    return
                try:
                    call()
                except Exception as e:
                    self.scheduler.note(f"{name} failed: {e!r}"[:200])

        self.scheduler.spawn(self.sim, beat, name=name, daemon=True)
        return timer

    def thread(self, call: Callable[[], None], *, name: str) -> None:
        self.scheduler.spawn(self.sim, call, name=name, daemon=True)

    def process(self) -> Process:
        return self.sim.identity

    def is_dead(self, process: Process) -> bool:
        return process in self._dead and process.host == self.sim.identity.host


def _no_lock(url: str) -> Any:
    raise AssertionError(f"{url} was opened and there is no lock server")


class SimTimer:
    cancelled = False

    def cancel(self, *, join_s: float = 0.0) -> None:
        self.cancelled = True


class SimEvent:
    def __init__(self, scheduler: Scheduler, rate: float) -> None:
        self._scheduler, self._rate = scheduler, rate
        self._set = False
        self._waiting: list[Task] = []

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._scheduler.wake(task)

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            task = self._scheduler.current
            assert task is not None
            self._waiting.append(task)
            if timeout is None:
                self._scheduler.block()
            else:
                self._scheduler.pause(max(timeout, 0.0) / self._rate)
            # Or `set` would wake it later, where it waits for something else.
            if task in self._waiting:
                self._waiting.remove(task)
        return self._set


class SimLock:
    """A mutex among the tasks of a process. Others wait in line; only a task that gives way can be met inside it."""

    reentrant = False

    def __init__(self) -> None:
        self._owner: object = None
        self._depth = 0
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = Scheduler.active
        me = scheduler.current if scheduler else None
        if me is not None and me.process.dead:
            raise Killed
        while self._depth and not (self.reentrant and self._owner is me):
            if not blocking:
                return False
            assert scheduler is not None
            assert me is not None, "a mutex is taken and no task could wait for it"
            assert self._owner is not me, "a task waits for itself"
            self._waiting.append(me)
            scheduler.block()
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            if self._waiting and Scheduler.active is not None:
                Scheduler.active.wake(self._waiting.pop(0))

    def locked(self) -> bool:
        return self._depth > 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class SimRLock(SimLock):
    reentrant = True


class _Threading:
    """What the library's modules use of `threading`."""

    Lock = SimLock
    RLock = SimRLock
    Thread = threading.Thread

    @staticmethod
    def current_thread() -> object:
        scheduler = Scheduler.active
        return scheduler.current if scheduler and scheduler.current else threading.current_thread()


@contextmanager
def simulated_mutexes(*modules: ModuleType) -> Iterator[None]:
    """The modules make mutexes that give way to the scheduler instead of stopping its only thread."""
    before: list[tuple[ModuleType, Any]] = [(m, m.threading) for m in modules]
    for module in modules:
        module.threading = _Threading  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module, real in before:
            module.threading = real  # type: ignore[attr-defined]
