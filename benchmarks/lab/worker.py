"""One process of writers: ``python -m lakelatch.bench.worker``. The runner controls it by JSON on standard input.

    job     what to write where, once
    start   the moment (monotonic seconds) at which all processes begin
    end     standard input is closed: leave at once, as when the runner is gone

It answers with events, a line of JSON each: ``ready``, ``progress``, ``strikes`` (a fault of the scenario strikes it now),
``done``, ``crashed``. Each writer records its operations in a file (`operations.Recorder`).
"""

from __future__ import annotations

import json
import mmap
import os
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..locks import observe
from .operations import ABORTED, DONE, FAILED, UNKNOWN, Hold, Operation, Recorder, Try
from .rows import BY, KEY
from .scenario import Role, of
from .systems import load
from .works import WORKS, Aborted, Hand

if TYPE_CHECKING:
    import pyarrow as pa

COUNT, INSIDE, OVERLAPS, CELLS = range(4)  # cells of the memory that holders of a bare lock share
_FAILURES_MAX = 20  # consecutive failures after which the writer gives up
_PROGRESS_S = 0.25
_BACKOFF_S, _BACKOFF_MAX_S = 0.05, 5.0  # between two attempts of a system that leaves them to its user; as our own
_BURST = 5
_say_lock = threading.Lock()


def say(event: str, **facts: Any) -> None:
    """Send an event to the runner."""
    with _say_lock:
        sys.stdout.write(json.dumps({"event": event, **facts}, default=str) + "\n")
        sys.stdout.flush()


class Strike:
    """The fault of a role: SIGKILL or SIGSTOP in the middle of an operation; while the lock is held if there is one."""

    def __init__(self, role: Role, chance: random.Random) -> None:
        self._fault, self._chance = role.fault, chance
        self._armed = threading.Event()
        self._at_grant = False  # True once a grant was observed: then faults strike at grants
        self._timer: threading.Timer | None = None
        self._number, self._took_s = 0, 0.05

    def begins(self, number: int) -> None:
        """Arm the fault if it is due at this operation."""
        if self._fault is None or number % self._fault.every:
            return
        self._number = number
        self._armed.set()
        if not self._at_grant:
            # No grant was observed, so strike at a random moment of an operation's usual duration.
            self._timer = threading.Timer(self._chance.random() * self._took_s, self._hit)
            self._timer.start()

    def granted(self) -> None:
        """Strike at the lock's grant, if armed."""
        self._at_grant = True
        self._hit()

    def ends(self, took_s: float) -> None:
        """Disarm the fault; ``took_s`` bounds the delay of the next one."""
        self._armed.clear()
        self._took_s = took_s
        if self._timer is not None:
            self._timer.cancel()

    def _hit(self) -> None:
        if self._fault is not None and self._armed.is_set():
            self._armed.clear()
            # Reported first, because a killed process reports nothing.
            say("strikes", kind=self._fault.kind, number=self._number, pause_s=self._fault.pause_s)
            os.kill(os.getpid(), signal.SIGKILL if self._fault.kind == "kill" else signal.SIGSTOP)


class WriterNote:
    """The record of a session's steps in one operation."""

    def __init__(self, operation: Operation, think_s: float, strike: Strike, shared: memoryview | None) -> None:
        self.operation, self._think_s, self._strike, self._shared = operation, think_s, strike, shared

    def attempt(self) -> None:
        now = time.monotonic()
        self._lose(now)
        self.operation.tries.append(Try(now))

    def _lose(self, now: float) -> None:
        if self.operation.tries and not self.operation.tries[-1].ended:
            self.operation.tries[-1].ended = now

    def think(self) -> None:
        if self.operation.work == "hold":
            self._hold()
        elif self._think_s:
            time.sleep(self._think_s)

    def _hold(self) -> None:
        shared = self._shared
        assert shared is not None
        me, asked = self.operation.writer + 1, self.operation.tries[-1].began
        held = Hold(asked, time.monotonic())
        # Two holders at the same time see each other's mark, or lose an increment.
        before, overlap = shared[COUNT], shared[INSIDE] != 0
        shared[INSIDE] = me
        if self._think_s:
            time.sleep(self._think_s)
        if overlap or shared[INSIDE] != me or shared[COUNT] != before:
            shared[OVERLAPS] += 1
        shared[COUNT], shared[INSIDE] = before + 1, 0
        held.released = time.monotonic()
        self.operation.holds.append(held)

    def saw(self, found: pa.Table) -> None:
        self.operation.saw = dict(zip(found[KEY].to_pylist(), found[BY].to_pylist(), strict=True))

    def landed(self, commit: str, losses: list[tuple[str, str]]) -> None:
        self.operation.commit = commit
        self.lost(losses)

    def lost(self, losses: list[tuple[str, str]]) -> None:
        """Record why earlier attempts lost, in their order."""
        for each, (reason, winner) in zip(self.operation.tries, losses, strict=False):
            each.reason, each.winner = reason, winner

    def granted(self, waited_s: float) -> None:
        """Record the grant of the table's lock."""
        now = time.monotonic()
        self.operation.holds.append(Hold(now - waited_s, now))
        self._strike.granted()

    def released(self) -> bool:
        """Record its release; return False if it was another operation's."""
        if self.operation.holds and self.operation.holds[-1].released is None:
            self.operation.holds[-1].released = time.monotonic()
            return True
        return False


class LockWatch:
    """An observer that records for each operation when the lock was requested, granted and released."""

    def __init__(self) -> None:
        self._here = threading.local()

    def enter(self, note: WriterNote | None) -> None:
        """Assign this thread's lock events to ``note`` from now on."""
        self._here.note = note

    def asked(self, scheme: str, key: str) -> None:
        """Implement `locks.Observer`."""

    def waited(self, scheme: str, key: str, seconds: float, *, granted: bool) -> None:  # noqa: ARG002
        """Implement `locks.Observer`."""
        note = getattr(self._here, "note", None)
        if note is not None and granted and note.operation.work != "hold":
            note.granted(seconds)

    def renewed(self, scheme: str, key: str, outcome: str, late_s: float) -> None:
        """Implement `locks.Observer`."""

    def ended(self, scheme: str, key: str, seconds: float, reason: str) -> None:  # noqa: ARG002
        """Implement `locks.Observer`."""
        note = getattr(self._here, "note", None)
        if note is not None:
            note.released()

    def broke(self, scheme: str, key: str) -> None:
        """Implement `locks.Observer`."""


class Writer:
    """One writer of a role, on one thread."""

    def __init__(self, job: dict[str, Any], number: int, role: Role, watch: LockWatch) -> None:
        self.number, self.role, self.job, self._watch = number, role, job, watch
        generation = job["generation"]
        self.label = f"w{number}" + f".{generation}" * bool(generation)
        chance = random.Random(f"{job['seed']}/{self.label}")
        self._chance = chance
        partitions = job["partitions"]
        scenario = job["scenario"]
        self._hand = Hand(number, chance, partitions, scenario["keys"], role.pick, role.spread, role.rows)
        self._strike = Strike(role, chance)
        self._system = load(job["system"])(job["settings"])
        self._session = self._system.open(job["place"], self.label, role.priority)
        self._recorder = Recorder(Path(job["folder"], f"writer-{number:04d}-{generation}.jsonl"))
        self._shared: memoryview | None = None
        if role.work == "hold":
            with open(Path(job["folder"], "cells"), "r+b") as file:
                self._shared = memoryview(mmap.mmap(file.fileno(), 8 * CELLS)).cast("q")
        self.done = self.aborted = self.lost = self._failed = self.overdue = 0

    def warm(self) -> None:
        """Make one operation before the start, so that imports and first reads are not measured."""
        self._one(0, None, warm=True)

    def run(self, start: float) -> None:
        """Make all operations."""
        seconds, operations = self.job["seconds"], self.job["operations"]
        for number, intended in enumerate(self._due(start), self.job["first"]):
            if operations and number > operations:
                break
            if intended is not None:
                time.sleep(max(0.0, intended - time.monotonic()))
            if not operations and time.monotonic() >= start + seconds:
                self.overdue += intended is not None and intended < start + seconds
                if intended is None or intended >= start + seconds:
                    break
                continue  # count the remaining operations that were due and never began
            self._one(number, intended)
        self._session.close()
        self._recorder.close()

    def _due(self, start: float) -> Iterator[float | None]:
        """Yield the time at which each operation should begin; None: as soon as the one before has ended."""
        rate, kind = self.role.rate, self.role.arrivals
        at, number = start, 0
        if rate and kind == "even":
            at += self._chance.random() / rate  # not all writers at the same moment
        while True:
            if not rate:
                yield None
                continue
            yield at
            number += 1
            if kind == "poisson":
                at += self._chance.expovariate(rate)
            elif kind == "even" or number % _BURST == 0:
                at += _BURST / rate if kind == "bursts" else 1 / rate

    def _one(self, number: int, intended: float | None, *, warm: bool = False) -> None:
        began = time.monotonic()
        operation = Operation(
            f"{self.label}-{number}", self.number, self.role.name, self.role.work, intended or began, began, warm=warm
        )
        act = WORKS[self.role.work](self._hand, operation)
        note = WriterNote(operation, 0.0 if warm else self.role.think_s, self._strike, self._shared)
        self._recorder.begins(operation)
        self._watch.enter(note)
        if number:
            self._strike.begins(number)
        try:
            self._until_it_lands(act, note)
        except Exception as e:
            # This library's errors know whether anything was committed. After any other error it is unknown.
            operation.outcome = FAILED if getattr(e, "landed", None) is False else UNKNOWN
            operation.reason = f"{type(e).__name__}: {e}"[:300]
            self._failed += 1
            if self._failed >= _FAILURES_MAX:
                raise
        finally:
            self._watch.enter(None)
            operation.ended = time.monotonic()
            self._strike.ends(operation.ended - began)
            if operation.tries and not operation.tries[-1].ended:
                operation.tries[-1].ended = operation.ended
            self._recorder.ends(operation)

    def _until_it_lands(self, act: Any, note: WriterNote) -> None:
        operation, losses = note.operation, []
        for attempt in range(1, self.job["tries"] + 1):
            try:
                act(self._session, note)
            except Aborted as e:
                losses += e.losses or [(e.reason, e.winner)]
                operation.reason = e.reason
            else:
                operation.outcome, operation.reason, self._failed = DONE, "", 0
                self.done += 1
                break
            # Full jitter: writers that lost to the same commit must not retry at the same moment.
            if attempt < self.job["tries"]:
                time.sleep(random.random() * min(_BACKOFF_S * 2.0 ** (attempt - 1), _BACKOFF_MAX_S))
        else:
            operation.outcome = ABORTED
            self.aborted += 1
        if losses:
            note.lost(losses)
        self.lost += len(operation.tries) - 1


def main() -> int:
    """Do the job; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the runner ends its processes itself
    job = json.loads(sys.stdin.readline())
    scenario = of(job["scenario"]["name"], job["scenario"])
    watch = LockWatch()
    observe(watch)
    crashes: list[BaseException] = []
    try:
        writers = [
            Writer(job, number, next(role for role in scenario.roles if role.name == name), watch)
            for number, name in job["writers"]
        ]
        # A successor of a killed writer starts in the middle of the run, so it does not warm up.
        if scenario.warm and not job["generation"]:
            for writer in writers:
                writer.warm()
        say("ready")
        start = json.loads(sys.stdin.readline())["start"]
        threading.Thread(target=_leave_with_the_runner, name="leaves", daemon=True).start()
        time.sleep(max(0.0, start - time.monotonic()))
        cpu_s = time.process_time()
        threads = [threading.Thread(target=run_writer, args=(each, start, crashes), daemon=True) for each in writers]
        for thread in threads:
            thread.start()
        while running := [thread for thread in threads if thread.is_alive()]:
            running[0].join(_PROGRESS_S)
            done, aborted, lost = (sum(getattr(w, what) for w in writers) for what in ("done", "aborted", "lost"))
            say("progress", done=done, aborted=aborted, lost=lost)
        cpu_s = time.process_time() - cpu_s
    except Exception as e:
        crashes.append(e)
    if crashes:
        traceback.print_exception(crashes[0])
        say("crashed", error=f"{type(crashes[0]).__name__}: {crashes[0]}"[:1000])
        return 1
    say("done", cpu_s=cpu_s, overdue=sum(writer.overdue for writer in writers))
    return 0


def run_writer(writer: Writer, start: float, crashes: list[BaseException]) -> None:
    """Make all operations of a writer; an error that ends it early goes into ``crashes``."""
    try:
        writer.run(start)
    except Exception as e:
        crashes.append(e)


def _leave_with_the_runner() -> None:
    sys.stdin.read()
    os._exit(3)


if __name__ == "__main__":
    sys.exit(main())
