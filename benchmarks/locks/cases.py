"""The cases of benchmarks.locks.floors_and_faults; each function talks to worker processes and returns plain facts."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from struct import unpack

from .._report import percentile
from .servers import FLOORS, Server
from .worker import CELLS, COUNT

_HEAD_START_S = 0.1
WAIT_MAX = 1.5  # x N x (hold + the floor's hand-off): one of the floor's turns is just that
BURST_S = 0.1
_LEASE_S = 3.0
_SESSION = "session=4s"  # ZooKeeper's servers decide, not the lease; here the shortest that allows a lease of 2 s


class Worker:
    """A process of lock_worker.py."""

    def __init__(self, *arguments: object) -> None:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "benchmarks.locks.worker", *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def hear(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with {self.process.wait()}; what it said stands above")
        return json.loads(line)

    def order(self, **facts: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(facts) + "\n")
        self.process.stdin.flush()

    def end(self) -> None:
        """Let it finish; kill it if it does not."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextmanager
def started(*arguments: object) -> Iterator[Worker]:
    worker = Worker(*arguments)
    try:
        yield worker
    finally:
        worker.process.kill()
        worker.process.wait()


class Contest:
    """Processes of several contenders, of which one contends at a time."""

    def __init__(self, backend: str, server: Server, contenders: list[str], processes: int) -> None:
        self._server = server
        self._cells = server.folder / "cells"
        self._cells.write_bytes(bytes(8 * CELLS))
        self._workers: dict[str, list[Worker]] = {}
        try:
            for name in contenders:  # ours first: it makes the table or folder that others use
                made = self._workers[name] = []
                for number in range(processes):
                    made.append(Worker("contend", name, FLOORS[backend], server.url, number, self._cells))
                    if number % 4 == 3:  # not all at once
                        made[-1].hear()
                for number, worker in enumerate(made):
                    if number % 4 != 3:
                        worker.hear()
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        for workers in self._workers.values():
            for worker in workers:
                worker.end()

    def cell(self, processes: int, hold_s: float, seconds: float, rounds: int, turns: int) -> dict[str, dict]:
        """All contenders in turn, several times, so that a machine that gets slower gets slower for all.

        It lasts longer than ``seconds`` where ours would else have fewer than ``turns`` for each process.
        """
        found: dict[str, list[dict]] = {name: [] for name in self._workers}
        key = f"bench {processes} {hold_s:g}"
        rates = {}
        for name in self._workers:  # scripts are loaded, lines form
            warm = self._round(name, processes, hold_s, 1.0, key)
            rates[name] = warm["holds"] / warm["seconds"]
        seconds = max(seconds, turns * processes / max(1.0, rates["ours"]))
        for number in range(rounds):
            for name in list(self._workers)[:: -1 if number % 2 else 1]:  # there and back
                found[name].append(self._round(name, processes, hold_s, seconds / rounds, key))
        facts = {name: _together(each, processes) for name, each in found.items()}
        for name, each in facts.items():
            each["bound_ms"] = WAIT_MAX * processes * 1000 / facts["floor"]["per_s"]
            each["late"], each["late_bursts"] = _late(found[name], each["bound_ms"] / 1000)
        return facts

    def _round(self, name: str, processes: int, hold_s: float, seconds: float, key: str) -> dict:
        self._cells.write_bytes(bytes(8 * CELLS))
        workers = self._workers[name][:processes]
        begin, server_cpu = time.monotonic() + _HEAD_START_S, self._server.cpu_s()
        for worker in workers:
            worker.order(begin=begin, end=begin + seconds, hold_s=hold_s, key=key)
        answers = [worker.hear() for worker in workers]
        holds = sum(answer["holds"] for answer in answers)
        (counted,) = unpack("q", self._cells.read_bytes()[8 * COUNT : 8 * COUNT + 8])
        overlaps = sum(answer["overlaps"] for answer in answers)
        return {
            "seconds": seconds, "answers": answers, "holds": holds, "violations": max(overlaps, holds - counted),
            "server_cpu_s": self._server.cpu_s() - server_cpu,
        }  # fmt: skip


def _late(rounds: list[dict], bound_s: float) -> tuple[int, int]:
    """Count waits longer than the bound, and their bursts: one stop of the machine makes all waiters late."""
    ends = sorted(
        end
        for each in rounds
        for answer in each["answers"]
        for wait, end in zip(answer["waits"], answer["ends"], strict=True)
        if wait > bound_s
    )
    return len(ends), len(ends[:1]) + sum(after - before > BURST_S for before, after in pairwise(ends))


def _together(rounds: list[dict], processes: int) -> dict:
    waits = [w for each in rounds for answer in each["answers"] for w in [*answer["waits"], answer["last"]]]
    served = [sum(len(each["answers"][i]["waits"]) for each in rounds) for i in range(processes)]
    seconds, holds = sum(each["seconds"] for each in rounds), sum(each["holds"] for each in rounds)
    cpu_s = sum(answer["cpu_s"] for each in rounds for answer in each["answers"])
    return {
        "per_s": sum(served) / seconds,
        "per_s_by_round": [round(sum(len(a["waits"]) for a in each["answers"]) / each["seconds"]) for each in rounds],
        "least": min(served),
        "most": max(served),
        "changed_hands": sum(answer["passed"] for each in rounds for answer in each["answers"]) / holds,
        "wait_ms_p50": 1000 * percentile(waits, 0.5),
        "wait_ms_p99": 1000 * percentile(waits, 0.99),
        "wait_ms_max": 1000 * max(waits),
        "requests": sum(answer["requests"] for each in rounds for answer in each["answers"]) / holds,
        "client_cpu_us": 1e6 * cpu_s / holds,
        "server_cpu_us": 1e6 * sum(each["server_cpu_s"] for each in rounds) / holds,
        "violations": sum(each["violations"] for each in rounds),
    }


def _short(backend: str, server: Server) -> tuple[str, float]:
    """A URL with a short lease, and how long the server waits for a silent holder."""
    if backend == "zk":
        return f"{server.url}?{_SESSION}&lease=2s", 4.0
    return server.with_lease(_LEASE_S), _LEASE_S


def loss(backend: str, server: Server, times: int) -> dict:
    """Measure how late a holder hears of its loss when its server is stopped."""
    url, _ = _short(backend, server)
    late = []
    reasons = set()
    for i in range(times):
        with started("hold", url, f"loss {i}") as holder:
            holder.hear()
            time.sleep(i / times * _LEASE_S / 3)  # anywhere between two renewals
            server.signal(signal.SIGSTOP)
            try:
                told = holder.hear()
            finally:
                server.signal(signal.SIGCONT)
            late.append(told["told"] - told["deadline"])
            reasons.add(told["reason"])
    return {"told_after_deadline_s": late, "worst_s": max(late), "reasons": sorted(reasons)}


def kill(backend: str, server: Server, times: int) -> dict:
    """Measure how long a waiter waits after its holder's kill -9."""
    url, silent_s = _short(backend, server)
    allowed_s = {"file": 0.0}.get(backend, silent_s) + (1.5 if backend == "s3" else 0.5)
    waited = []
    for i in range(times):
        with ExitStack() as stack:
            holder = stack.enter_context(started("hold", url, f"kill {i}"))
            holder.hear()
            waiter = stack.enter_context(started("wait", url, f"kill {i}"))
            waiter.hear()
            time.sleep(1 + i / times * _LEASE_S / 3)  # it stands in line, and the last renewal is this old or older
            killed = time.monotonic()
            holder.process.send_signal(signal.SIGKILL)
            waited.append(waiter.hear()["granted"] - killed)
    return {"waited_s": waited, "worst_s": max(waited), "allowed_s": allowed_s}


def idle(server: Server, counts: list[int], seconds: float) -> list[dict]:
    """Measure the cost of leases that a process only holds."""
    lease_s = 30.0
    found = []
    for count in counts:
        with started("idle", server.with_lease(lease_s), count, seconds) as worker:
            facts = worker.hear()
        found.append(
            facts | {"requests_per_third": facts["requests"] / facts["leases"] / (facts["seconds"] / lease_s * 3)}
        )
        if facts["leases"] < count:
            break  # as many as are allowed
    return found
