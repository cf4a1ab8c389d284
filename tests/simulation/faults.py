"""What can go wrong with a request, how often it does, and where it has struck already."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .scheduler import Scheduler, SimProcess

# What strikes each kind of request. "crash" ends the process, "stop" suspends it, "slow" delays the request or its
# answer beyond every lease, "late" carries it out when its sender has given up, "forget" lets the lock server lose
# what it granted last, "jump" sets the wall clock to another time, "outage" cuts the process off for a while, "unflushed"
# makes an object that the disk could not flush, "torn" is a listing of which each name is as of another moment.
_ALWAYS = ("crash before", "crash after", "lose reply", "refuse", "stop", "slow", "slow answer", "jump", "outage")
READ_FAULTS = tuple(f for f in _ALWAYS if f != "refuse")  # a refused read is one without an answer
WRITE_FAULTS = (*_ALWAYS, "lose request", "late", "twice")
LOCK_FAULTS = (*_ALWAYS, "forget")
FAULTS = (*WRITE_FAULTS, "forget", "unflushed", "torn")
# Whose names need not be on disk.
_UNFLUSHED = (
    "put begin",
    "put requested",
    "put inflight",
    "put completed",
    "put heartbeat",
    "put marker",
    "put lease",
)

_FOLDERS = (
    (".hoodie/.lakelatch/log", "log"),
    (".hoodie/timeline", "timeline"),
    (".hoodie/.heartbeat", "heartbeat"),
    (".hoodie/.temp", "marker"),
    (".hoodie/.lakelatch/sides", "side"),
    (".hoodie/.lakelatch/readers", "lease"),
    ("part=", "data"),
)


def step_of(op: str, path: str, body: bytes) -> str:
    """What a request is for, so that coverage can be told: operation and folder, of log entries the kind."""
    # All data files are found by one listing of the table.
    name = next((name for folder, name in _FOLDERS if path.startswith(folder)), "other") if path else "data"
    if op == "put":
        if name == "log":
            return "put " + body.partition(b'"kind":"')[2].partition(b'"')[0].decode()
        if name == "timeline":
            return f"put {path.rpartition('.')[2] if path.endswith(('requested', 'inflight')) else 'completed'}"
    return f"{op} {name}"


# The steps of the protocol that every fault has to have struck.
PROTOCOL_STEPS = (
    "put begin", "put commit", "put abort", "put rollback", "put close", "put open", "put setting", "get log", "list log",
    "put requested", "put inflight", "put completed", "list timeline", "delete timeline",
    "put heartbeat", "replace heartbeat", "get heartbeat", "delete heartbeat",
    "put marker", "list marker", "head marker", "delete marker", "put data", "get data", "list data", "delete data",
    "lock grant", "lock renew", "lock release", "lock leave",
    "put lease", "replace lease", "list lease", "get lease", "delete lease", "secure log", "secure data",
)  # fmt: skip
# Of coordinators; apart, so that the schedules of a seed without them stay what they were.
COORDINATOR_STEPS = ("ask begin", "ask commit", "put begins", "put commits")
SEVERAL_STEPS = ("put prepare",)
ALL_STEPS = PROTOCOL_STEPS + COORDINATOR_STEPS + SEVERAL_STEPS


def faults_of(step: str) -> tuple[str, ...]:
    """The faults that can strike a step."""
    if step.startswith("lock"):
        return LOCK_FAULTS if step == "lock grant" else _ALWAYS
    if step.startswith(("get", "head", "list")):
        return (*READ_FAULTS, "torn") if step.startswith("list") else READ_FAULTS
    flushed = step.startswith(("put", "secure")) and step not in _UNFLUSHED
    return (*WRITE_FAULTS, "unflushed") if flushed else WRITE_FAULTS


# Rare steps are struck more often, and what happens all the time less, or most faults would strike there.
_WEIGHT = {
    "get log": 0.4, "list log": 0.4, "list marker": 0.5, "put commit": 2, "put completed": 2, "put rollback": 6,
    "put setting": 6, "put close": 4, "put open": 4, "put abort": 2, "lock renew": 4, "lock release": 2, "lock leave": 15,
    "put commits": 4, "put begins": 2, "delete data": 2, "secure log": 4, "secure data": 4, "put prepare": 4,
}  # fmt: skip


@dataclass
class Faults:
    """How often each fault strikes, as a probability for each call, and how often each has struck where.

    The name of a fault may be followed by the only step that it strikes: "slow at list timeline".
    """

    rates: dict[str, float] = field(default_factory=dict)
    crashes_left: int = 2
    long_s: float = 12.0  # longer than every lease and time-out
    struck: Counter[tuple[str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        names = (name.partition(" at ") for name in self.rates)
        until = itertools.accumulate(self.rates.values())
        self._until = [(fault, only, rate) for (fault, _, only), rate in zip(names, until, strict=True)]
        self._sum = self._until[-1][2] if self._until else 0.0

    def end(self) -> None:
        """Nothing goes wrong any more."""
        self._sum = 0.0

    def draw(self, scheduler: Scheduler, step: str) -> str:
        """The fault that strikes this call, or nothing."""
        if not self._sum or (luck := scheduler.random.random() / _WEIGHT.get(step, 1)) >= self._sum:
            return ""
        fault, only = next((fault, only) for fault, only, until in self._until if luck < until)
        if fault not in faults_of(step) or (only and only != step):
            return ""
        if fault.startswith("crash"):
            if not self.crashes_left:
                return ""
            self.crashes_left -= 1
        self.struck[fault, step] += 1
        scheduler.note(f"  {fault} at {step}")
        return fault


class Network:
    """Between one process and the servers."""

    def __init__(self, scheduler: Scheduler, process: SimProcess, faults: Faults) -> None:
        self.scheduler, self.process, self.faults = scheduler, process, faults
        self._random = scheduler.random.random

    def before(self, step: str) -> str:
        """The request travels; returns the fault that strikes it."""
        scheduler, seconds = self.scheduler, self._random() * 0.02
        fault = self.faults.draw(scheduler, step)
        if fault:
            seconds += self._strike(fault)
        scheduler.pause(seconds)
        if scheduler.now < self.process.cut_off_until:
            lost = "lose request" if "lose request" in faults_of(step) else "refuse"
            return "lose reply" if self._random() < 0.5 or step.startswith(("get", "head", "list")) else lost
        return fault

    def after(self, fault: str) -> bool:
        """The answer travels; True when it does not arrive."""
        if fault == "crash after":
            self.scheduler.kill(self.process)
            self.scheduler.pause()
        if fault == "slow answer":
            self.scheduler.pause(self._long())
        elif self._random() < 0.3:  # the others may act between the request and what its sender does then
            self.scheduler.pause(self._random() * 0.02)
        return fault in ("lose reply", "lose request", "late")

    def between(self) -> None:
        """Others act while one listing is made."""
        self.scheduler.pause(self._random() * 2)

    def send_later(self, step: str, act: Callable[[float], Any]) -> None:
        """The request is carried out once more, or only then."""
        scheduler = self.scheduler

        def arrive() -> None:
            answer = act(scheduler.now)
            scheduler.note(f"{step} arrives late -> {answer.outcome.value}")

        scheduler.at(self._random() * 2 * self.faults.long_s, arrive)

    def _strike(self, fault: str) -> float:
        if fault == "crash before":
            self.scheduler.kill(self.process)
        elif fault == "stop":
            self.scheduler.stop(self.process, self._long())
        elif fault == "outage":
            # Often longer than the patience of an append, so that its outcome stays unknown.
            self.process.cut_off_until = self.scheduler.now + self._random() * 10 * self.faults.long_s
        elif fault == "jump":
            self.process.skew_s += (2 * self._random() - 1) * 7200
        return self._long() if fault == "slow" else 0.0

    def _long(self) -> float:
        return 0.5 + self._random() * self.faults.long_s
