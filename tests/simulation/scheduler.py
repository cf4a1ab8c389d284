"""One thread, one clock, one seed: who runs when is decided here, and the same seed decides the same.

A task is a greenlet of a simulated process. It gives way wherever the real code touches the outside: at every call of
the store, of the lock server, at every sleep and wait. Time is virtual: it jumps to whatever is due next. A process can
be killed, so that none of its code runs any more, not even what stands in a ``finally``, or stopped for a while.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import greenlet

from lakelatch.environment import Process


class Killed(greenlet.GreenletExit):
    """Raised at every call of a dead process to the outside, until its task has ended."""


class Stuck(AssertionError):
    """Nobody can go on, or nobody gets anywhere."""


@dataclass(eq=False)
class SimProcess:
    """One process on a host whose clocks may be off: wall by ``skew_s``, both by a factor ``rate``."""

    identity: Process
    skew_s: float = 0.0
    rate: float = 1.0
    dead: bool = False
    stopped_until: float = 0.0
    cut_off_until: float = 0.0
    mourners: list[Callable[[], None]] = field(default_factory=list)  # called when it is killed

    @property
    def name(self) -> str:
        return f"{self.identity.host}:{self.identity.pid}"


@dataclass(eq=False)
class Task:
    process: SimProcess
    name: str
    daemon: bool
    greenlet: greenlet.greenlet = field(init=False)
    epoch: int = 0  # what was due for an earlier one is stale
    error: BaseException | None = None


class Scheduler:
    """Runs tasks until all that are not daemons have ended."""

    active: Scheduler | None = None  # the one whose task runs now: mutexes find it here

    def __init__(self, seed: int, *, steps_max: int = 60_000) -> None:
        self.random = random.Random(seed)
        self.now = 1_000.0
        self.steps = 0
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.trace: list[tuple[float, str, str]] | None = None  # when, which process, what
        self.violation: BaseException | None = None  # set by anyone who sees one where an exception would be caught
        self._steps_max = steps_max
        self._due: list[tuple[float, int, int, Task | Callable[[], None]]] = []
        self._number = 0
        self._awaited = 0  # tasks that have to end before `run` does
        self._hub = greenlet.getcurrent()

    # --- what a test does -------------------------------------------------------------------------------------

    def spawn(self, process: SimProcess, call: Callable[[], object], *, name: str, daemon: bool = False) -> Task:
        task = Task(process, name, daemon)

        def body() -> None:
            try:
                call()
            except Killed:
                pass
            except BaseException as e:
                task.error = e
            if not (daemon or process.dead):
                self._awaited -= 1

        task.greenlet = greenlet.greenlet(body, parent=self._hub)
        self.tasks.append(task)
        self._awaited += not daemon
        self._push(self.now, task.epoch, task)
        return task

    def at(self, after_s: float, call: Callable[[], None]) -> None:
        """Something that happens outside all processes, such as a request that arrives late."""
        self._push(self.now + after_s, 0, call)

    def kill(self, process: SimProcess) -> None:
        if process.dead:
            return
        self.note("KILLED", process)
        process.dead = True
        self._awaited -= sum(t.process is process and not t.daemon and not t.greenlet.dead for t in self.tasks)
        for call in process.mourners:
            call()

    def stop(self, process: SimProcess, seconds: float) -> None:
        self.note(f"STOPPED for {seconds:.1f} s", process)
        process.stopped_until = max(process.stopped_until, self.now + seconds)

    def run(self) -> None:
        """Raises the first error of a task, `Stuck` when nothing can go on."""
        Scheduler.active = self
        try:
            while self._awaited:
                if not self._due:
                    raise Stuck("nothing is due and nobody can go on")
                self._step()
        finally:
            self._bury()
            Scheduler.active = None

    def _step(self) -> None:
        at, _, epoch, what = heapq.heappop(self._due)
        if not isinstance(what, Task):
            self.now = max(self.now, at)
            what()
            return
        if epoch != what.epoch or what.process.dead:
            return
        if what.process.stopped_until > at:
            self._push(what.process.stopped_until, epoch, what)
            return
        self.steps += 1
        if self.steps > self._steps_max:
            raise Stuck(f"no end after {self._steps_max} steps and {self.now - 1000:.0f} s")
        self.now = max(self.now, at)
        what.epoch += 1
        self.current = what
        what.greenlet.switch()
        self.current = None
        if self.violation is not None:
            raise self.violation
        if what.error is not None:
            raise what.error

    def _bury(self) -> None:
        # Every greenlet is ended here, or the collector would end it in the middle of another schedule.
        for task in self.tasks:
            task.process.dead = True
        for task in self.tasks:
            self.current = task
            while not task.greenlet.dead:
                task.greenlet.throw(Killed)
        self.current, self._awaited = None, 0
        self.tasks.clear()
        self._due = [due for due in self._due if not isinstance(due[3], Task)]  # what is on its way still arrives
        heapq.heapify(self._due)

    # --- what a task does -------------------------------------------------------------------------------------

    def pause(self, seconds: float = 0.0) -> None:
        """The current task gives way and goes on so many seconds later."""
        task = self._alive()
        at = self.now + seconds
        if (
            (not self._due or self._due[0][0] > at)
            and task.process.stopped_until <= at
            and self.steps < self._steps_max
        ):
            self.steps += 1
            self.now = at  # nobody else is due before
            return
        self._push(at, task.epoch, task)
        self._give_way(task)

    def block(self) -> None:
        """The current task gives way until `wake`."""
        self._give_way(self._alive())

    def wake(self, task: Task) -> None:
        """Let a blocked task go on; one that is due otherwise goes on now."""
        self._push(self.now, task.epoch, task)

    def _alive(self) -> Task:
        task = self.current
        assert task is not None, "called outside every task"
        if task.process.dead:
            raise Killed
        return task

    def _give_way(self, task: Task) -> None:
        self._hub.switch()
        if task.process.dead:
            raise Killed

    def _push(self, at: float, epoch: int, what: Task | Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._due, (at, self._number, epoch, what))

    def note(self, text: str, process: SimProcess | None = None) -> None:
        """A line of the trace, if one is kept."""
        if self.trace is not None:
            who = process.name if process else self.current.process.name if self.current else "outside"
            self.trace.append((self.now - 1000, who, text))

    def story(self, *, width: int = 44) -> str:
        """The trace as a timeline with a column for each process."""
        trace = self.trace or []
        columns = list(dict.fromkeys(who for _, who, _ in trace))
        lines = [" " * 11 + "".join(f"{who:{width}}" for who in columns)]
        for at, who, text in trace:
            shown = text if len(text) < width or who == columns[-1] else f"{text[: width - 2]}…"
            lines.append(f"{at:8.3f} s " + " " * (width * columns.index(who)) + shown)
        return "\n".join(lines)
