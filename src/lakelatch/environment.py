"""Clocks, sleep, randomness, threads and process identity, behind one interface.

`occ/` and `locks/` reach all of these through an `Environment` that is passed to them, so a simulator can run the same code
on a fake clock and decide which thread runs when. `SYSTEM` is the real one.
"""

from __future__ import annotations

import functools
import logging
import os
import random
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol

_log = logging.getLogger("lakelatch")
_RANDOM = random.SystemRandom()  # without a state, which forked processes would share


@dataclass(frozen=True, slots=True)
class Process:
    """Identity of a process that survives the re-use of its number: boot, pid namespace, number and start time."""

    host: str
    boot: str
    pid: int
    started: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values for a log entry or lock record."""
        return {"host": self.host, "boot": self.boot, "pid": self.pid, "started": self.started}

    @classmethod
    def from_json(cls, value: object) -> Process | None:
        """Reverse `to_json`; None for anything else, since foreign writers leave this out."""
        if not isinstance(value, dict):
            return None
        try:
            return cls(str(value["host"]), str(value["boot"]), int(value["pid"]), str(value["started"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            return None


def ran_out(error: BaseException) -> bool:
    """Return whether the process got no more memory or threads. As an interrupt, that may be raised anywhere."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    )


class Timer(Protocol):
    """A periodic call on its own thread."""

    def cancel(self, *, join_s: float = 0.0) -> None:
        """Stop the calls; waits up to ``join_s`` for a running one. Idempotent."""
        ...


class Event(Protocol):
    """The part of `threading.Event` that is used here."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Environment(Protocol):
    """The outside world apart from storage and lock servers."""

    def now(self) -> float:
        """Return the wall clock in seconds since the epoch. May jump."""
        ...

    def monotonic(self) -> float:
        """Return this machine's clock that never goes back; not comparable between machines."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def random(self) -> float:
        """Return a number, uniform in [0, 1)."""
        ...

    def uuid(self) -> str:
        """Return 36 unique characters."""
        ...

    def event(self) -> Event: ...

    def every(self, period_s: float, call: Callable[[], None], *, name: str) -> Timer:
        """Call once per period, first after one period.

        Exceptions are logged, and the calls go on.
        """
        ...

    def thread(self, call: Callable[[], None], *, name: str) -> None:
        """Run once on a daemon thread."""
        ...

    def process(self) -> Process:
        """Return this process."""
        ...

    def is_dead(self, process: Process) -> bool:
        """Return True only if that process has certainly ended: same host and boot, and it no longer exists."""
        ...


class _SystemTimer:
    def __init__(self, period_s: float, call: Callable[[], None], name: str) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(period_s, call), name=name, daemon=True)
        self._thread.start()

    def _run(self, period_s: float, call: Callable[[], None]) -> None:
        while not self._stop.wait(period_s):
            try:
                call()
            except Exception:  # noqa: BLE001 - one failed beat must not end all beats
                _log.exception("%s failed; it goes on", threading.current_thread().name)

    def cancel(self, *, join_s: float = 0.0) -> None:
        self._stop.set()
        # A timer may be cancelled by its own call, and a thread cannot join itself.
        if join_s and self._thread is not threading.current_thread():
            self._thread.join(join_s)


_Calls = SimpleQueue[tuple[Callable[[], None], str]]


class SpareThreads:
    """Threads that have finished a call and wait for another, since every wait for a lock needs one.

    A thread ends after ``idle_s`` seconds without a call, or if `MAX` others already wait.
    """

    MAX = 8

    def __init__(self, idle_s: float) -> None:
        self._idle_s = idle_s
        self._waiting: deque[_Calls] = deque()
        if hasattr(os, "register_at_fork"):
            # Those threads are not in the child.
            os.register_at_fork(after_in_child=self._waiting.clear)

    def __len__(self) -> int:
        return len(self._waiting)

    def run(self, call: Callable[[], None], name: str) -> None:
        """Make the call on a waiting thread, or on a new one."""
        try:
            # The most recent one, so that the others reach their idle limit.
            calls = self._waiting.pop()
        except IndexError:
            calls = SimpleQueue()
            threading.Thread(target=self._work, args=(calls,), name=name, daemon=True).start()
        calls.put((call, name))

    def _work(self, calls: _Calls) -> None:
        while True:
            try:
                call, threading.current_thread().name = calls.get(timeout=self._idle_s)
            except Empty:
                if self._leaves(calls):
                    return
                continue
            call()
            del call  # frees what it refers to while the thread waits
            self._waiting.append(calls)
            if len(self._waiting) > self.MAX and self._leaves(calls):
                return

    def _leaves(self, calls: _Calls) -> bool:
        """Return whether the thread may end. If not, `run` has chosen it and its call is on the way."""
        try:
            self._waiting.remove(calls)
        except ValueError:
            return False
        return True

    def __reduce__(self) -> str:
        return "SPARE_THREADS"  # pickled by name: another process has its own threads


SPARE_THREADS = SpareThreads(idle_s=1.0)


class SystemEnvironment:
    """The real clocks, threads and processes.

    ``proc`` is the folder in which the kernel shows processes, if it does.
    """

    def __init__(self, proc: str = "/proc", threads: SpareThreads = SPARE_THREADS) -> None:
        self._proc = proc
        self._threads = threads

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)
    # The only place where the library does; tests hand in a clock of their own.
    sleep = staticmethod(time.sleep)
    # Not the module's generator: a thread of ours would change the numbers of a program that has seeded it.
    random = staticmethod(_RANDOM.random)
    event = staticmethod(threading.Event)

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def every(self, period_s: float, call: Callable[[], None], *, name: str) -> Timer:
        return _SystemTimer(period_s, call, name)

    def thread(self, call: Callable[[], None], *, name: str) -> None:
        self._threads.run(call, name)

    def process(self) -> Process:
        return _this_process(self._proc)

    def is_dead(self, process: Process) -> bool:
        me = self.process()
        # Another host's processes, or those before a restart, cannot be asked about here.
        if (process.host, process.boot) != (me.host, me.boot) or not me.boot:
            return False
        if not _exists(process.pid):
            return True
        # The number is in use, perhaps by a newer process. The start times in /proc decide; if they are hidden, assume it lives.
        started = _start_time(self._proc, process.pid) if me.started else ""
        return started == _ENDED or (started != process.started and "" not in (started, process.started))


_ENDED = "ended"  # in place of a start time: only the zombie is left
_FIRST_TIME_NAMESPACE = "time:[4026531834]"  # PROC_TIME_INIT_INO of the kernel; in others start times are shifted


@functools.cache  # asked several times for each lock; cleared in a child of fork
def _this_process(proc: str) -> Process:
    pid = os.getpid()
    try:
        # The boot id distinguishes restarts of a machine, the namespace a container with its own process numbers.
        boot = Path(f"{proc}/sys/kernel/random/boot_id").read_text().strip() + os.readlink(f"{proc}/self/ns/pid")
        # After `unshare --pid` without a new /proc, the numbers there are those of another namespace.
        mine = os.readlink(f"{proc}/self") == str(pid) and _time_namespace(proc) == _FIRST_TIME_NAMESPACE
        started = _start_time(proc, pid) if mine else ""
    except OSError:
        boot = started = ""  # not Linux, or hidden: no process is declared dead before its time-out
    return Process(socket.gethostname(), boot, pid, started)


def _time_namespace(proc: str) -> str:
    try:
        return os.readlink(f"{proc}/self/ns/time")
    except FileNotFoundError:  # before Linux 5.6 there was one only
        return _FIRST_TIME_NAMESPACE


def _exists(pid: int) -> bool:
    """Return whether the kernel knows the process. /proc cannot decide: it may be hidden, or file handles may be used up."""
    if pid <= 0:
        return True  # such a number means a group of processes, not one process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # it belongs to another user, or cannot be queried
    return True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_this_process.cache_clear)


def _start_time(proc: str, pid: int) -> str:
    """Return field 22 of /proc/<pid>/stat (clock ticks since boot), `_ENDED` for a zombie, "" if it cannot be read."""
    try:
        with open(f"{proc}/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
        # A process whose first thread has ended looks like a zombie, but has others (field 20).
        return _ENDED if fields[0] in "ZX" and int(fields[17]) <= 1 else fields[19]
    except (OSError, IndexError, ValueError):
        return ""


SYSTEM = SystemEnvironment()
