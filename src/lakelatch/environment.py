"""The outside world apart from storage and locks: clocks, sleep, randomness, threads, process identity.

`occ/` and `locks/` reach all of these through an `Environment` that is handed to them, so a simulator can run the
same code on a fake clock and decide who runs when. `SYSTEM` is the real one.
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


@dataclass(frozen=True, slots=True)
class Process:
    """Identity of a process that survives the re-use of its number: boot, pid namespace, number and start time."""

    host: str
    boot: str
    pid: int
    started: str

    def to_json(self) -> dict[str, Any]:
        """Plain values for a log entry or lock record."""
        return {"host": self.host, "boot": self.boot, "pid": self.pid, "started": self.started}

    @classmethod
    def from_json(cls, value: object) -> Process | None:
        """The reverse of `to_json`; None for anything else, since foreign writers leave this out."""
        if not isinstance(value, dict):
            return None
        try:
            return cls(str(value["host"]), str(value["boot"]), int(value["pid"]), str(value["started"]))
        except (KeyError, TypeError, ValueError):
            return None


class Timer(Protocol):
    """A repeated call on a thread of its own."""

    def cancel(self, *, join_s: float = 0.0) -> None:
        """No new call starts after this; waits up to ``join_s`` for one that is running. Twice is fine."""
        ...


class Event(Protocol):
    """The part of `threading.Event` that is used here."""

    def set(self) -> None: ...
    def is_set(self) -> bool: ...
    def wait(self, timeout: float | None = None) -> bool: ...


class Environment(Protocol):
    """Everything outside that is neither storage nor a lock server."""

    def now(self) -> float:
        """Wall clock, seconds since the epoch. May jump."""
        ...

    def monotonic(self) -> float:
        """This machine's clock that never goes back; not comparable between machines."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...

    def uuid(self) -> str:
        """36 characters, unique."""
        ...

    def event(self) -> Event: ...

    def every(self, period_s: float, call: Callable[[], None], *, name: str) -> Timer:
        """Call again and again, first after one period. An exception is logged and the calls go on."""
        ...

    def thread(self, call: Callable[[], None], *, name: str) -> None:
        """Run once on a daemon thread."""
        ...

    def process(self) -> Process:
        """This process."""
        ...

    def is_dead(self, process: Process) -> bool:
        """True only when that process certainly ended: same host, same boot, and no such process any more."""
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
        if join_s and self._thread is not threading.current_thread():
            self._thread.join(join_s)


_Calls = SimpleQueue[tuple[Callable[[], None], str]]
_spare: deque[_Calls] = deque()  # of threads that have made their call: whoever waits for a lock needs one, each time
_SPARE_MAX, _SPARE_S = 8, 1.0


def _work(calls: _Calls) -> None:
    while True:
        try:
            call, threading.current_thread().name = calls.get(timeout=_SPARE_S)
        except Empty:
            try:
                _spare.remove(calls)
            except ValueError:
                continue  # it has just been chosen: the call comes
            return
        call()
        del call  # and with it what it has held
        if len(_spare) >= _SPARE_MAX:
            return
        _spare.append(calls)


class SystemEnvironment:
    """The real clocks, threads and processes. Stateless, so it pickles."""

    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # the only place where the library does; tests hand in a clock of their own

    def random(self) -> float:
        return random.random()

    def uuid(self) -> str:
        return str(uuid.uuid4())

    def event(self) -> threading.Event:
        return threading.Event()

    def every(self, period_s: float, call: Callable[[], None], *, name: str) -> Timer:
        return _SystemTimer(period_s, call, name)

    def thread(self, call: Callable[[], None], *, name: str) -> None:
        try:
            calls = _spare.pop()
        except IndexError:
            calls = SimpleQueue()
            threading.Thread(target=_work, args=(calls,), name=name, daemon=True).start()
        calls.put((call, name))

    def process(self) -> Process:
        return _this_process()

    def is_dead(self, process: Process) -> bool:
        me = self.process()
        if (process.host, process.boot) != (me.host, me.boot) or not me.boot:
            return False
        return _start_time(process.pid) != process.started


@functools.cache  # asked several times for each lock; a child of fork asks anew
def _this_process() -> Process:
    pid = os.getpid()
    try:
        # The boot id tells a restarted machine apart, the namespace a container with its own process numbers.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip() + os.readlink("/proc/self/ns/pid")
    except OSError:
        boot = ""  # not Linux: nobody is ever declared dead without waiting for the time-out
    return Process(socket.gethostname(), boot, pid, _start_time(pid))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_this_process.cache_clear)
    os.register_at_fork(after_in_child=_spare.clear)  # those threads are not in the child


def _start_time(pid: int) -> str:
    """Field 22 of /proc/<pid>/stat (clock ticks since boot), or "" when there is no such process or only its zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


SYSTEM = SystemEnvironment()
