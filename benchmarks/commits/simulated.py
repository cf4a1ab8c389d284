"""Many writers of one table on an object store, in virtual time: a request takes as long as it does there, work of the CPU none.

    python -m benchmarks.commits.simulated [--writers 100,1000] [--commits 3] [--request-ms 30] [--slow 0.05] [--seed 1]
                                           [--lock-ms 5 [--coordinated [--at-once]]] [--published s3-standard]

The real library in the simulator of the tests (tests/simulation): each writer is a process with a handle of its own, which adds
one file in each commit, without a lock, or under one of a service that answers in `--lock-ms` and serves its waiters in order.
`--coordinated`: a coordinator begins and commits for all of them, a millisecond away; `--at-once` with the setting
`publish_at_once`.

A request takes its time half before and half after it is carried out; a slow one ten times as long. `--published`: it takes what
is drawn from the published latencies of that store (benchmarks/latencies.py). What is told is of a store
that answers all requests at once in that time; a rate is per virtual second. Afterwards the timeline has to name every commit
that was acknowledged, and no other.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
from greenlet import getcurrent

import lakelatch
from lakelatch.environment import Process
from lakelatch.hudi.files.file_names import PARTITION_METADATA, partition_metadata
from lakelatch.locks import Grant, LeasedLocks, LockRequest, Release, parse_lock_url
from lakelatch.locks.memory import MemoryBackend, _Space
from lakelatch.occ.coordination import Answer, Question
from lakelatch.occ.entries.settings import NO_LOCK
from lakelatch.occ.landing import Coordinator
from lakelatch.occ.log.epochs import LOG
from lakelatch.occ.table.table import Table
from lakelatch.testing import FakeEnvironment
from tests.simulation.environment import SimEnvironment, SimEvent
from tests.simulation.files import put
from tests.simulation.history import Value
from tests.simulation.install import simulated
from tests.simulation.scheduler import Scheduler, SimProcess
from tests.simulation.store import Objects, SimStore

from .._report import machine, percentile, show
from ..latencies import STORES, Published

PART = "part=a"
SLOW = 10.0  # times as long


class Latency:
    """The network between a process and the store: nothing is lost, and everything takes its time.

    ``spread``: by what share of it that varies; ``published``: what it is drawn from instead.
    """

    process = None  # the store asks who sends a request; nobody here is told apart

    def __init__(
        self,
        scheduler: Scheduler,
        request_s: float,
        slow: float,
        spread: float = 0.3,
        published: Published | None = None,
    ) -> None:
        self.scheduler, self._request_s, self._slow, self._spread = scheduler, request_s, slow, spread
        self._published, self._halves = published, dict[object, float]()  # by who waits for its answer
        self.requests = Counter[str]()

    def before(self, step: str) -> str:
        """The way there."""
        self.requests[step] += 1
        if self._published is not None:
            self._halves[getcurrent()] = half = self._published.draw(self.scheduler.random, step) / 2
            self.scheduler.pause(half)
        else:
            self.scheduler.pause(self._way())
        return ""

    def after(self, fault: str) -> bool:  # noqa: ARG002 - there is none
        """The way back."""
        self.scheduler.pause(self._halves.pop(getcurrent()) if self._published is not None else self._way())
        return False

    def _way(self) -> float:
        luck = self.scheduler.random
        even = self._request_s / 2 * luck.uniform(1 - self._spread, 1 + self._spread)
        return even * (SLOW if luck.random() < self._slow else 1.0)


class FairLock(MemoryBackend):
    """A lock service with a way to it. Waiters are told when it is their turn, as by ZooKeeper."""

    def __init__(self, space: _Space, env: SimEnvironment, way_s: float) -> None:
        super().__init__("", env)
        self._shared, self._sim, self._way_s = space, env, way_s

    @property
    def _space(self) -> _Space:
        return self._shared

    def try_grant(self, ask: LockRequest, place: Any) -> Grant | None:
        """There and back."""
        self._sim.sleep(self._way_s)
        grant: Any = super().try_grant(ask, place)
        self._sim.sleep(self._way_s)
        return grant and _FarGrant(grant, self._sim, self._way_s)


class _FarGrant:
    asked_at = None

    def __init__(self, grant: Any, env: SimEnvironment, way_s: float) -> None:
        self.token, self._grant, self._env, self._way_s = grant.token, grant, env, way_s
        self.renew, self.check, self.listen = grant.renew, grant.check, grant.listen

    def ends_at(self) -> float:
        """Tell the simulator, which watches that nobody relies on a lease that has ended."""
        slot = self._grant._ours()
        return float(slot.deadline) if slot else 0.0

    def release(self) -> Release:
        self._env.sleep(self._way_s)
        found: Release = self._grant.release()
        self._env.sleep(self._way_s)
        return found


def new_table(lock: str = NO_LOCK, **settings: bool) -> dict[str, bytes]:
    """The objects of a table, as `create` makes it on an object store: without a lock, or with that one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t")
        schema = pa.schema([("id", pa.string()), ("part", pa.string())])
        env = FakeEnvironment(seed=1)
        lakelatch.create(
            str(path), record_key="id", partition_by="part", schema=schema, lock="none://", unique_keys=False, env=env
        ).close()
        found = {str(each.relative_to(path)): each.read_bytes() for each in path.rglob("*") if each.is_file()}
    return with_lock(found, lock, **settings) | {f"{PART}/{PARTITION_METADATA}": partition_metadata("0" * 17, PART)}


def with_lock(objects: dict[str, bytes], lock: str, **settings: bool) -> dict[str, bytes]:
    """The objects of a table with these settings, and with that lock, which only the simulator can open."""
    found = dict(objects)
    for name, body in objects.items():
        if name.startswith(LOG) and b'"settings"' in body:
            entry = json.loads(body)
            entry["settings"] |= {"lock": lock, **settings}
            found[name] = json.dumps(entry, separators=(",", ":")).encode()
    return found


class Near:
    """A coordinator that a writer reaches in a millisecond."""

    def __init__(self, scheduler: Scheduler, process: SimProcess, coordinator: Coordinator) -> None:
        self._scheduler, self._process, self._coordinator = scheduler, process, coordinator

    def ask(self, question: Question, patience_s: float) -> Answer | None:  # noqa: ARG002 - nothing is lost here
        """See `Coordinating`."""
        heard, found = SimEvent(self._scheduler, 1.0), list[Answer | None]()

        def answer(told: Answer | None) -> None:
            found.append(told)
            self._scheduler.at(0.0005, heard.set)

        def take() -> None:
            self._coordinator.ask(question, answer)

        self._scheduler.pause(0.0005)
        self._scheduler.spawn(self._process, take, name="question", daemon=True)
        heard.wait()
        return found[0]

    def close(self) -> None:
        """See `Coordinating`."""


class Run:
    """Some writers of one new table, until each has made its commits."""

    def __init__(
        self,
        writers: int,
        commits: int,
        request_s: float,
        slow: float,
        seed: int,
        *,
        lock_s: float,
        coordinated: bool,
        published: Published | None = None,
        **settings: bool,
    ) -> None:
        self.scheduler = Scheduler(seed, steps_max=10**9)
        self.objects = Objects(new_table("sim://lock" if lock_s else NO_LOCK, **settings))
        self._space, self._lock_s = _Space(), lock_s
        self.latency = Latency(self.scheduler, request_s, slow, published=published)
        self.took: list[float] = []
        self.landed: list[str] = []
        self.began, self.ended, self.commits = 0.0, 0.0, commits
        self._waiting, self._writers = writers, writers
        self._coordinated, self._near = coordinated, list[Near]()

    def perform(self) -> None:
        if self._coordinated:
            leader = SimProcess(Process("coordinator", "boot", 0, "0"))
            self.scheduler.spawn(leader, lambda: self._lead(leader), name="coordinator")
        for number in range(self._writers):
            process = SimProcess(Process(f"host{number}", "boot", number, str(number)))
            self.scheduler.spawn(process, lambda n=number, p=process: self._write(n, p), name=f"w{number}")  # type: ignore[misc]
        self.scheduler.run()

    def table(self, process: SimProcess, number: int, latency: Latency | None) -> Table:
        env = SimEnvironment(self.scheduler, process, set(), number)
        env.open_lock = lambda url: LeasedLocks(FairLock(self._space, env, self._lock_s / 2), parse_lock_url(url), env)
        return Table(SimStore(self.objects, latency), env=env, writer=f"w{number}")  # type: ignore[arg-type]

    def _lead(self, process: SimProcess) -> None:
        table = self.table(process, 10**6, self.latency)
        self._near.append(Near(self.scheduler, process, Coordinator(table.session)))

    def _write(self, number: int, process: SimProcess) -> None:
        table = self.table(process, number + 1, self.latency)
        while self._coordinated and not self._near:
            self.scheduler.pause(0.01)
        table.session.coordinator = self._near[0] if self._coordinated else None
        self._commit(table, number, 0)  # warm
        # The measurement begins when all have made a commit, and so does every writer's second one.
        self._waiting -= 1
        while self._waiting:
            self.scheduler.pause(0.1)
        if not self.began:
            self.began = self.scheduler.now
            self.latency.requests.clear()
        for count in range(1, self.commits + 1):
            began = self.scheduler.now
            self._commit(table, number, count)
            self.ended = self.scheduler.now
            self.took.append(self.ended - began)
        table.close()

    def _commit(self, table: Table, number: int, count: int) -> None:
        name = f"{number}-{count}"

        def work(txn: Any) -> None:
            put(txn, PART, f"{table.env.uuid()}-0", Value((name,), 1, 0))

        result = table.run(work, operation="insert")
        assert result.commit is not None
        self.landed.append(result.commit.instant)

    def judge(self) -> None:
        """Nothing was lost, doubled or invented."""

        def look() -> None:
            table = self.table(process, 0, None)
            there = [instant.requested for instant, facts in table.commits() if facts.stats]  # the first has the schema
            assert sorted(there) == sorted(self.landed), (
                f"{len(there)} on the timeline, {len(self.landed)} acknowledged"
            )
            assert len(table.snapshot().file_slices()) == len(self.landed)

        process = SimProcess(Process("judge", "boot", 0, "judge"))
        self.scheduler.spawn(process, look, name="judge")
        self.scheduler.run()

    def facts(self) -> dict[str, Any]:
        seconds = self.ended - self.began
        return {
            "writers": self._writers,
            "commits": len(self.took),
            "virtual_s": round(seconds, 1),
            "commits_per_s": round(len(self.took) / seconds, 1),
            "p50_s": round(percentile(self.took, 0.5), 2),
            "p99_s": round(percentile(self.took, 0.99), 2),
            "requests_per_commit": round(self.latency.requests.total() / len(self.took), 1),
            "most": {step: round(n / len(self.took), 1) for step, n in self.latency.requests.most_common(4)},
        }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--writers", default="100,1000")
    options.add_argument("--commits", type=int, default=3, help="of each writer, after one that is not counted")
    options.add_argument("--request-ms", type=float, default=30.0)
    options.add_argument("--slow", type=float, default=0.05, help="share of requests that take ten times as long")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--lock-ms", type=float, default=0.0, help="of a request to the lock service; 0: no lock")
    options.add_argument("--coordinated", action="store_true", help="a coordinator begins and commits for all")
    options.add_argument("--at-once", action="store_true", help="the instants of an entry are put at the same time")
    options.add_argument("--published", choices=sorted(STORES), help="a store whose latencies are drawn from")
    given = options.parse_args()
    show("machine", machine())
    for writers in map(int, given.writers.split(",")):
        began = time.process_time()
        facts = measured(
            writers, given.commits, given.request_ms / 1000, given.slow, given.seed, lock_s=given.lock_ms / 1000,
            coordinated=given.coordinated, published=STORES.get(given.published), publish_at_once=given.at_once,
        )  # fmt: skip
        show("one table", facts | {"cpu_s": round(time.process_time() - began, 1)})


def measured(*given: Any, **more: Any) -> dict[str, Any]:
    """Perform one `Run` and return its facts, once it is seen that nothing was lost."""
    with simulated():
        run = Run(*given, **more)
        run.perform()
        facts = run.facts()
        run.judge()
    return facts


if __name__ == "__main__":
    main()
