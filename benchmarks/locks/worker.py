"""One process of `floors_and_faults`. Commands come as lines of JSON on standard input, answers go to standard output.

python -m benchmarks.locks.worker contend CONTENDER BACKEND URL NUMBER CELLS    take and give one lock as asked
python -m benchmarks.locks.worker hold URL KEY                                  take it, tell when it is lost
python -m benchmarks.locks.worker wait URL KEY                                  tell when it comes
python -m benchmarks.locks.worker idle URL COUNT SECONDS                        hold many, do nothing
"""

from __future__ import annotations

import importlib
import json
import logging
import mmap
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Protocol

from lakelatch.errors import LockError
from lakelatch.locks import open_provider

COUNT, INSIDE, LAST, CELLS = range(4)  # of the memory that all contenders share


def main() -> None:
    kind, *arguments = sys.argv[1:]
    logging.getLogger("lakelatch.locks").setLevel(logging.ERROR)  # a server without a disk is what is wanted here
    {"contend": contend, "hold": hold, "wait": wait, "idle": idle}[kind](*arguments)


def tell(facts: object) -> None:
    print(json.dumps(facts), flush=True)


def told() -> Iterator[dict]:
    tell("ready")
    for line in sys.stdin:
        yield json.loads(line)


class Lock(Protocol):
    """A floor or a peer; the seconds waited."""

    def cycle(self, hold: Callable[[], None]) -> float: ...
    def close(self) -> None: ...


class Ours:
    """This library."""

    def __init__(self, url: str, worker: int) -> None:  # noqa: ARG002
        self._locks = open_provider(url)
        self.key = "bench"

    def cycle(self, hold: Callable[[], None]) -> float:
        begin = time.perf_counter()
        with self._locks.acquire(self.key, wait_s=300):
            waited_s = time.perf_counter() - begin
            hold()
        return waited_s

    @property
    def requests(self) -> int:
        return self._locks.requests

    def close(self) -> None:
        self._locks.close()


def contend(contender: str, backend: str, url: str, number: str, cells: str) -> None:
    """One round for each command {begin, end, hold_s, key}, in monotonic seconds."""
    if contender == "ours":
        lock = Ours(url, int(number))
    else:
        module = importlib.import_module(f"benchmarks.locks.floors.{backend}")
        lock = (module.Floor if contender == "floor" else module.PEERS[contender])(url, int(number))
    with open(cells, "r+b") as file:
        shared = memoryview(mmap.mmap(file.fileno(), 8 * CELLS)).cast("q")
    for order in told():
        if contender == "ours":
            lock.key = order["key"]
        tell(contend_once(lock, int(number) + 1, shared, order["begin"], order["end"], order["hold_s"]))
    lock.close()


def contend_once(lock: Lock, me: int, shared: memoryview, begin: float, end: float, hold_s: float) -> dict:
    overlaps = passed = 0

    def hold() -> None:
        nonlocal overlaps, passed
        before, overlap = shared[COUNT], shared[INSIDE] != 0
        shared[INSIDE] = me
        passed += shared[LAST] != me
        shared[LAST] = me
        if hold_s:
            time.sleep(hold_s)  # the work under the lock
        overlaps += overlap or shared[INSIDE] != me or shared[COUNT] != before
        shared[COUNT] = before + 1
        shared[INSIDE] = 0

    waits: list[float] = []
    ends: list[float] = []  # when each of these turns was over
    asked = 0.0
    time.sleep(max(0.0, begin - time.monotonic()))  # all begin at once
    cpu_s, sent = time.process_time(), getattr(lock, "requests", 0)
    while (now := time.monotonic()) < end:
        asked = now
        waits.append(lock.cycle(hold))
        ends.append(time.monotonic())
    cpu_s = time.process_time() - cpu_s
    # The last turn ended after the end: it is not counted, but its wait was as long as this at least.
    last = min(waits.pop(), end - asked) if waits else 0.0
    return {
        "waits": waits,
        "ends": ends[: len(waits)],
        "last": last,
        "overlaps": overlaps,
        "passed": passed,
        "cpu_s": cpu_s,
        "requests": getattr(lock, "requests", 0) - sent,  # ours only; the others do not count them
        "holds": len(waits) + bool(asked),
    }


def hold(url: str, key: str) -> None:
    """The lease as it is lost, in monotonic seconds, or the end of standard input."""
    with open_provider(url) as locks:
        lease = locks.acquire(key, wait_s=60)

        def lost(reason: str) -> None:
            tell({"told": time.monotonic(), "deadline": lease.deadline, "reason": reason})

        lease.on_lost(lost)
        for _ in told():
            pass
        with suppress(Exception):
            lease.release()


def wait(url: str, key: str) -> None:
    with open_provider(url) as locks:
        locks.inspect(key)  # connected
        tell("ready")
        with locks.acquire(key, wait_s=120):
            tell({"granted": time.monotonic()})


def idle(url: str, count: str, seconds: str) -> None:
    """Measure held leases while nothing is done with them."""
    with open_provider(url) as locks:
        began, leases = time.monotonic(), []
        with suppress(LockError):  # as many as are allowed
            for i in range(int(count)):
                leases.append(locks.acquire(f"idle {count} {i}", wait_s=60))
        took_s = time.monotonic() - began
        before, sent, cpu = time.monotonic(), locks.requests, resource.getrusage(resource.RUSAGE_SELF)
        deepest = 0
        while time.monotonic() < before + float(seconds):
            time.sleep(0.5)  # a look now and then: it must not itself be what the leases cost
            deepest = max(deepest, _threads())
        spent_s = time.monotonic() - before
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu_s = after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime
        tell(
            {
                "leases": len(leases), "taking_s": took_s, "seconds": spent_s, "requests": locks.requests - sent,
                "cpu_share": cpu_s / spent_s, "threads_max": deepest, "lost": sum(lease.lost is not None for lease in leases),
                "rss_mib": after.ru_maxrss / 1024,
            }
        )  # fmt: skip
        os._exit(0)  # giving ten thousand leases back one by one is not what is measured


def _threads() -> int:
    return threading.active_count() - 1  # but the one that does nothing


if __name__ == "__main__":
    main()
