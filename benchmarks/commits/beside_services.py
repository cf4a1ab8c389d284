"""Ingestion beside each table service, against ingestion alone, in virtual time: latency, attempts, and the time of the lock.

    python -m benchmarks.commits.beside_services [--seconds 60] [--rate 1] [--every 3] [--request-ms 20] [--lock-ms 5] [--seeds 3]

The real library with real files in the simulator of the tests, on an object store and a lock service as in
`benchmarks.commits.simulated`: a request takes its time, work of the CPU none. So it is the same on every machine, and tells of
requests and waits alone. One process ingests, an open loop: a write of ten rows becomes due each second (`--rate`), even if the
last one has not ended. ``insert`` adds new keys; ``upsert`` changes known ones in any partition, so that it meets the file groups
of the services. Another process calls one service each `--every` seconds, which always has something to do. Every run has a table
of its own: 24 small files in four partitions, or log files in 16 buckets. Latency counts from when a write was due.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch
from lakelatch.environment import Process
from lakelatch.errors import LakeLatchError
from lakelatch.locks import LeasedLocks, observe, parse_lock_url
from lakelatch.locks.memory import _Space
from lakelatch.occ.table.table import Table
from lakelatch.testing import FakeEnvironment
from tests.simulation.environment import SimEnvironment
from tests.simulation.install import simulated
from tests.simulation.row_tables import NAME
from tests.simulation.scheduler import Scheduler, SimProcess
from tests.simulation.store import Objects, SimStore

from .._report import machine, percentile, show
from .simulated import FairLock, Latency, with_lock

PARTS, KEYS, FILES = 4, 2_400, 6
SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
SERVICES = {"plain": ("cluster", "clean", "archive"), "logs": ("compact", "compact_logs", "clean")}
CALLS: dict[str, Callable[[Table], Any]] = {
    "cluster": lambda table: table.cluster(sort_by="v"),
    "clean": lambda table: table.clean(retain_commits=2),
    "archive": lambda table: table.archive(keep_min=5, keep_max=6),
    "compact": lambda table: table.compact(),
    "compact_logs": lambda table: table.compact_logs(min_logs=2),
}


def rows(first: int, count: int, value: int) -> pa.Table:
    numbers = range(first, first + count)
    columns = [[f"k{n}" for n in numbers], [f"p{n % PARTS}" for n in numbers], [value] * count]
    return pa.table(columns, schema=SCHEMA)


def founded(kind: str) -> dict[str, bytes]:
    """The objects of a table for services of that kind."""
    more: dict[str, Any] = {"type": "merge_on_read", "bucket_count": 4} if kind == "logs" else {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, NAME)
        made = lakelatch.create(
            str(path),
            record_key="id",
            partition_by="part",
            schema=SCHEMA,
            lock="none://",
            env=FakeEnvironment(seed=1),
            **more,
        )
        with made as table:
            for number in range(FILES):
                table.insert(rows(number * (KEYS // FILES), KEYS // FILES, 0))
        return with_lock(
            {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}, "sim://lock"
        )


class Held:
    """Seconds that each process held the lock, and waited for it."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.held: dict[str, list[float]] = defaultdict(list)
        self.waits: dict[str, list[float]] = defaultdict(list)

    @property
    def _who(self) -> str:
        return self._scheduler.current.process.identity.host if self._scheduler.current else ""

    def asked(self, *_: object) -> None: ...

    def waited(self, _scheme: str, _key: str, seconds: float, *, granted: bool) -> None:  # noqa: ARG002
        self.waits[self._who].append(seconds)

    def renewed(self, *_: object) -> None:
        """See `locks.Observer`."""

    def ended(self, _scheme: str, _key: str, seconds: float, _reason: str) -> None:
        self.held[self._who].append(seconds)

    def broke(self, *_: object) -> None:
        """See `locks.Observer`."""


class Run:
    """One table, and those who work on it."""

    def __init__(self, objects: dict[str, bytes], given: argparse.Namespace, seed: int) -> None:
        self.scheduler, self._given = Scheduler(seed, steps_max=10**9), given
        self._objects, self._space = Objects(dict(objects)), _Space()
        self._latency = Latency(self.scheduler, given.request_ms / 1000, 0.0)
        self.held = Held(self.scheduler)
        self.late: list[float] = []
        self.attempts = 0
        self.lost, self.outcomes = Counter[str](), Counter[str]()
        self.took: list[float] = []
        self._over = False

    def perform(self, verb: str, service: str) -> None:
        """Run to the end of the ingestion. Afterwards every row is there once."""
        work = [
            ("ingestion", lambda table: self._ingest(table, verb)),
            ("services", lambda table: self._serve(table, service)),
        ]
        observe(self.held)
        try:
            for host, call in work[: 2 if service else 1]:
                self._spawn(host, call)
            self.scheduler.run()
        finally:
            observe(None)
        count = KEYS + (10 * len(self.late) if verb == "insert" else 0)
        self._spawn("judge", lambda table: self._judge(table, count), far=False)
        self.scheduler.run()

    def _spawn(self, host: str, call: Callable[[Table], None], *, far: bool = True) -> None:
        process = SimProcess(Process(host, "boot", 1, host))

        def work() -> None:
            env = SimEnvironment(self.scheduler, process, set(), len(host))
            way_s = self._given.lock_ms / 2000
            env.open_lock = lambda url: LeasedLocks(FairLock(self._space, env, way_s), parse_lock_url(url), env)
            store = SimStore(self._objects, self._latency if far else None)  # type: ignore[arg-type]
            with Table(store, env=env, writer=host) as table:  # type: ignore[arg-type]
                call(table)

        self.scheduler.spawn(process, work, name=host)

    def _ingest(self, table: Table, verb: str) -> None:
        start = self.scheduler.now + 2.0
        for number in range(int(self._given.seconds * self._given.rate)):
            due = start + number / self._given.rate
            self.scheduler.pause(max(0.0, due - self.scheduler.now))
            new = rows(10**6 + 10 * number, 10, 1) if verb == "insert" else rows(number * 70 % (KEYS - 10), 10, number)
            done = table.run(lambda txn, new=new: getattr(txn, verb)(new), operation=verb)
            self.late.append(self.scheduler.now - due)
            self.attempts += done.attempts
            self.lost.update(str(getattr(e, "details", {}).get("rule") or type(e).__name__) for e in done.losses)
        self._over = True

    def _serve(self, table: Table, service: str) -> None:
        due = self.scheduler.now + 2.5
        while not self._over:
            self.scheduler.pause(max(0.0, due - self.scheduler.now))
            began = self.scheduler.now
            try:
                found = CALLS[service](table)
                self.outcomes["done" if getattr(found, "instants", found) else "nothing to do"] += 1
            except LakeLatchError as e:
                self.outcomes[type(e).__name__] += 1
            self.took.append(self.scheduler.now - began)
            due = max(due + self._given.every, self.scheduler.now)

    def _judge(self, table: Table, count: int) -> None:
        keys = [key for each in table.snapshot().file_slices() for key in table.read_slice(each)["id"].to_pylist()]
        assert len(keys) == len(set(keys)) == count, (len(keys), len(set(keys)), count)


def told(runs: list[Run]) -> dict[str, Any]:
    """The figures of the same work with several seeds, together."""
    late = [each for run in runs for each in run.late]
    found = {f"p{share * 100:g}_s": round(percentile(late, share), 2) for share in (0.5, 0.99)}
    found["attempts"] = round(sum(run.attempts for run in runs) / len(late), 3)
    found["lost"] = dict(sum((run.lost for run in runs), Counter()))
    for who in ("ingestion", "services"):
        held = [each for run in runs for each in run.held.held[who]]
        if held:
            found[f"{who}_held_s"] = round(statistics.median(held), 2), round(max(held), 2)
    found["waited_most_s"] = round(max(each for run in runs for each in run.held.waits["ingestion"]), 2)
    if took := [each for run in runs for each in run.took]:
        found["service_s"] = round(statistics.median(took), 1)
        found["service"] = dict(sum((run.outcomes for run in runs), Counter()))
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=60.0)
    options.add_argument("--rate", type=float, default=1.0, help="writes a second")
    options.add_argument("--every", type=float, default=3.0, help="seconds from one call of a service to the next")
    options.add_argument("--request-ms", type=float, default=20.0)
    options.add_argument("--lock-ms", type=float, default=5.0)
    options.add_argument("--seeds", type=int, default=3)
    given = options.parse_args()
    show("machine", machine())
    for kind, services in SERVICES.items():
        objects = founded(kind)
        for verb in ("insert", "upsert"):
            alone: dict[str, Any] = {}
            for service in ("", *services):
                runs = []
                for seed in range(given.seeds):
                    with simulated():
                        runs.append(Run(objects, given, seed))
                        runs[-1].perform(verb, service)
                found = told(runs)
                alone = alone or found
                more = {
                    f"{each}_to_alone": round(found[each] / alone[each], 2) for each in ("p50_s", "p99_s") if service
                }
                show(f"{kind}, {verb}, {service or 'alone'}", found | more)


if __name__ == "__main__":
    main()
