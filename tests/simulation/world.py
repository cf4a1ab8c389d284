"""One schedule: a table in memory, writers that change it, readers that watch it, and faults."""

from __future__ import annotations

import functools
import json
import logging
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pyarrow as pa

import lakelatch
from lakelatch.conflict import FileGroupId
from lakelatch.environment import Process
from lakelatch.errors import (
    CommitUnknownError,
    ConflictError,
    LatchError,
    LockError,
    RolledBackError,
)
from lakelatch.locks import held, memory, queue, renewer
from lakelatch.occ import commit_log, heartbeat, table_lock, view
from lakelatch.occ.avro import WriteStat
from lakelatch.occ.file_spec import refuse_if_over
from lakelatch.occ.log_files import LOG
from lakelatch.occ.log_state import Commit
from lakelatch.occ.markers import announce, stands
from lakelatch.occ.names import BaseName, base_file_name, join, new_file_id
from lakelatch.occ.table import Table
from lakelatch.occ.transaction import Transaction
from lakelatch.occ.view import cold_view

from ..occ.world import check_sound
from .environment import SimEnvironment, simulated_mutexes
from .history import Attempt, Look, State, judge
from .locks import LockServer, open_locks
from .scheduler import Scheduler, SimProcess
from .store import Faults, Objects, SimStore

PARTITIONS = ("part=a", "part=b")
LOCK = "sim://server"


@dataclass(frozen=True)
class Shape:
    """What a schedule consists of; all of it follows from the seed unless it is given."""

    seed: int
    writers: int
    transactions: int
    groups: int
    lock: bool
    faults: dict[str, float] = field(default_factory=dict)
    crashes: int = 0
    skew_s: float = 0.0
    drift: float = 0.0
    epoch_slots: int = 1000

    @classmethod
    def of(cls, seed: int) -> Shape:
        luck = random.Random(seed * 7919 + 1)
        bad = luck.choice((0.0, 0.002, 0.01, 0.03))
        kinds = luck.sample(("crash before", "crash after", "lose reply", "late", "twice", "refuse", "stop", "slow"), 4)
        return cls(
            seed=seed,
            writers=luck.randint(2, 4),
            transactions=luck.randint(1, 3),
            groups=luck.randint(1, 3),
            lock=luck.random() < 0.7,
            faults={kind: bad for kind in kinds} if bad else {},
            crashes=luck.randint(0, 2),
            skew_s=luck.choice((0.0, 0.0, 5.0, 7200.0)),
            drift=luck.choice((0.0, 0.0, 0.0005)),
            epoch_slots=luck.choice((1000, 1000, 12, 5)),
        )


@functools.lru_cache(maxsize=1)
def _empty_table() -> dict[str, tuple[bytes, str, float]]:
    """The objects of a new table, made once by the real `create`."""
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table")
        with lakelatch.create(
            str(path), record_key="id", partition_by="part", schema=schema, lock="none://", lease_s=30.0,
            heartbeat_interval_s=5.0, heartbeat_timeout_s=20.0, lock_wait_s=60.0,
        ):  # fmt: skip
            pass
        found = {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
    return {name: (body, f"base{i}", 0.0) for i, (name, body) in enumerate(found.items())}


def _with_lock(objects: dict[str, tuple[bytes, str, float]]) -> dict[str, tuple[bytes, str, float]]:
    def changed(path: str, body: bytes) -> bytes:
        return body.replace(b'"none://"', json.dumps(LOCK).encode()) if path.startswith(LOG) else body

    return {path: (changed(path, body), tag, at) for path, (body, tag, at) in objects.items()}


@contextmanager
def simulated() -> Iterator[None]:
    """The library's modules as they are, but for their mutexes and for how a lock URL is opened."""
    with ExitStack() as stack:
        logging.disable(logging.CRITICAL)  # tracebacks of simulated faults cost more than the schedule
        stack.callback(logging.disable, logging.NOTSET)
        stack.enter_context(
            simulated_mutexes(commit_log, heartbeat, view, table_lock, held, memory, queue, renewer)
        )
        stack.enter_context(mock.patch.object(table_lock, "open_provider", _open_provider))
        yield


def _open_provider(url: str, *, env: SimEnvironment) -> object:
    world: World = env.world  # type: ignore[attr-defined]
    return open_locks(world.lock_server, env, env.faults)  # type: ignore[attr-defined]


class World:
    """Runs one schedule and judges it."""

    def __init__(self, shape: Shape, *, trace: bool = False) -> None:
        self.shape = shape
        self.scheduler = Scheduler(shape.seed)
        self.scheduler.trace = [] if trace else None
        objects = _empty_table()
        self.objects = Objects(_with_lock(objects) if shape.lock else objects)
        self.lock_server = LockServer()
        self.faults = Faults(shape.faults, shape.crashes)
        self.calm = Faults()
        self.attempts: list[Attempt] = []
        self.looks: list[Look] = []
        self._dead: set[Process] = set()
        self._names = 0
        self._processes = 0

    # --- the schedule -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises `Anomaly`, or what a broken promise raises."""
        with simulated():
            founder = self._process(host="founder")
            self.scheduler.spawn(founder, lambda: self._found(founder), name="founder")
            self.scheduler.run()
            base = {a.instant for a in self.attempts}
            self.attempts.clear()
            for number in range(self.shape.writers):
                self._start_writer(number)
            watcher = self._process(host="watcher")
            self.scheduler.spawn(watcher, lambda: self._watch(watcher), name="watcher", daemon=True)
            self.scheduler.spawn(watcher, self._see_deaths, name="deaths", daemon=True)
            self.scheduler.run()
            auditor = self._process(host="auditor")
            self.scheduler.spawn(auditor, lambda: self._audit(auditor, base), name="auditor")
            self.scheduler.run()

    def _process(self, host: str, *, skewed: bool = False) -> SimProcess:
        self._processes += 1
        luck = self.scheduler.random
        skew = luck.uniform(-1, 1) * self.shape.skew_s if skewed else 0.0
        rate = 1.0 + luck.uniform(-1, 1) * self.shape.drift if skewed else 1.0
        return SimProcess(Process(host, f"boot of {host}", self._processes, str(self._processes)), skew, rate)

    def _table(self, process: SimProcess, *, faults: Faults) -> Table:
        env = SimEnvironment(self.scheduler, process, self._dead)
        env.world, env.faults = self, faults  # type: ignore[attr-defined]
        store = SimStore(self.objects, self.scheduler, process, faults)
        return Table(store, env=env, writer=process.name, epoch_slots=self.shape.epoch_slots)

    def _see_deaths(self) -> None:
        """Others on a host learn of a death at once; the simulator starts a new writer in its place."""
        while True:
            self.scheduler.pause(1.0)
            for task in list(self.scheduler.tasks):
                identity = task.process.identity
                if task.process.dead and identity not in self._dead and not task.daemon:
                    self._dead.add(identity)
                    self._start_writer(identity.pid)

    def _found(self, process: SimProcess) -> None:
        with self._table(process, faults=self.calm) as table:
            attempt = self._attempt("founder")
            with table.transaction("insert") as txn:
                attempt.instant = txn.instant
                for number in range(self.shape.groups):
                    self._put(txn, attempt, PARTITIONS[number % 2], new_file_id(table.env.uuid()), ())

    def _start_writer(self, number: int) -> None:
        process = self._process(host=f"host{number % 2}", skewed=True)
        self.scheduler.spawn(process, lambda: self._write(process), name="writer")

    def _write(self, process: SimProcess) -> None:
        self.scheduler.pause(self.scheduler.random.random() * 0.2)
        for _ in range(5):
            try:
                table = self._table(process, faults=self.faults)
                break
            except LatchError as e:
                self.scheduler.note(f"could not open: {e}"[:160])
                self.scheduler.pause(1.0)
        else:
            return
        for _ in range(self.shape.transactions):
            self._one(table)
            self.scheduler.pause(self.scheduler.random.random() * 0.1)
        table.close()

    def _one(self, table: Table) -> None:
        luck = self.scheduler.random
        kind = luck.choices(("upsert", "insert", "insert_overwrite"), (6, 2, 2))[0]
        attempt = self._attempt(f"t{self._names}")
        attempt.operation = kind
        try:
            with table.transaction(kind) as txn:
                attempt.instant = txn.instant
                self.scheduler.note(f"{attempt.name} = {kind} {txn.instant}")
                getattr(self, f"_{kind}")(txn, attempt)
                if luck.random() < 0.05:
                    txn.abort("it changed its mind")
            attempt.outcome = "committed" if txn.result else "aborted"
        except CommitUnknownError:
            attempt.outcome = "unknown"
        except ConflictError:
            attempt.outcome = "conflict"
        except RolledBackError:
            attempt.outcome = "rolled back"
        except LockError:
            attempt.outcome = "no lock"
        except LatchError as e:
            attempt.outcome = f"failed: {type(e).__name__}"
        self.scheduler.note(f"{attempt.name} {attempt.outcome}")

    def _attempt(self, name: str) -> Attempt:
        self._names += 1
        attempt = Attempt(name)
        self.attempts.append(attempt)
        return attempt

    # --- what transactions do ---------------------------------------------------------------------------------

    def _upsert(self, txn: Transaction, attempt: Attempt) -> None:
        groups = txn.snapshot.file_groups()
        if not groups:
            return self._insert(txn, attempt)
        luck = self.scheduler.random
        for group in luck.sample(groups, luck.randint(1, min(2, len(groups)))):
            seen = self._read(txn, group.path)
            attempt.reads[group.group] = seen
            if luck.random() < 0.9 or not attempt.writes:
                self._put(txn, attempt, group.partition, group.file_id, seen, prev=group.instant)
        return None

    def _insert(self, txn: Transaction, attempt: Attempt) -> None:
        partition = self.scheduler.random.choice(PARTITIONS)
        self._put(txn, attempt, partition, new_file_id(txn._table.env.uuid()), ())

    def _insert_overwrite(self, txn: Transaction, attempt: Attempt) -> None:
        partition = self.scheduler.random.choice(PARTITIONS)
        attempt.region = frozenset({partition})
        txn.overwrites(partition)
        dropped = txn.snapshot.file_groups(partition)
        txn.drop(dropped)
        attempt.drops = {s.group for s in dropped}
        self._put(txn, attempt, partition, new_file_id(txn._table.env.uuid()), ())

    def _read(self, txn: Transaction, path: str) -> tuple[str, ...]:
        with txn._table.store.open(path) as stream:
            return tuple(json.load(stream))

    def _put(
        self, txn: Transaction, attempt: Attempt, partition: str, file_id: str, seen: tuple[str, ...], prev: str = ""
    ) -> None:
        """A data file, by the steps of `BaseFileWriter`, with a list in it instead of Parquet."""
        store = txn._table.store
        path = join(partition, base_file_name(BaseName(file_id, "0-0-0", txn.instant)))
        refuse_if_over(store, txn.instant)
        marker = announce(store, txn.instant, path, "MERGE" if prev else "CREATE")
        with store.create(path) as new:
            names = () if attempt.name == "founder" else (*seen, attempt.name)
            new.stream.write(json.dumps(names).encode())
            size = new.stream.tell()
            if not stands(store, marker):
                raise RolledBackError("its marker is gone", instant=txn.instant)
            refuse_if_over(store, txn.instant)
            put = new.publish()
            if not stands(store, marker):
                if put.done:
                    store.delete(path)
                raise RolledBackError("its marker is gone", instant=txn.instant)
            if not put.done and store.head(path) is None:
                raise lakelatch.errors.StorageError(f"{path} could not be published", path=path)
        stat = WriteStat(file_id, path, partition, prev or "null", num_writes=1, file_size=size, total_write_bytes=size)
        txn.add([stat])
        attempt.writes[FileGroupId(partition, file_id)] = path

    # --- what readers see -------------------------------------------------------------------------------------

    def _watch(self, process: SimProcess) -> None:
        """Reads as Hudi's readers do: the timeline, then the files; no log."""
        table = self._table(process, faults=self.calm)
        writes = -1
        while True:
            self.scheduler.pause(self.scheduler.random.random() * 0.3)
            if writes == self.objects.writes:
                continue
            writes = self.objects.writes
            timeline = table.timeline()
            files = {s.group: s.path for s in cold_view(table.store, timeline).snapshot.file_groups()}
            state = {g: tuple(json.loads(self.objects.objects[path][0])) for g, path in files.items()}
            order = sorted(timeline.completed, key=lambda i: i.completed or "")
            self.looks.append(Look(tuple(i.requested for i in order), state))

    def _audit(self, process: SimProcess, base: set[str]) -> None:
        """After everybody: one honest process cleans up, then everything has to be right."""
        self.scheduler.pause(4 * self.faults.long_s)  # whatever was on its way has arrived
        table = self._table(process, faults=self.calm)
        table.clean(wait=True)
        check_sound(table)
        entries = list(table.log.entries())
        base |= {e.instant for e in entries if isinstance(e, Commit) and e.empty}
        judge(entries, self.attempts, self.looks, self._state(table), base)
        with table.transaction("insert") as txn:  # it is still writable
            self._insert(txn, self._attempt("last"))

    def _state(self, table: Table) -> State:
        slices = table.snapshot().file_groups()
        return {s.group: tuple(json.loads(self.objects.objects[s.path][0])) for s in slices}


def run(seed: int, *, trace: bool = False, change: Callable[[Shape], Shape] = lambda s: s) -> World:
    """Run the schedule of a seed. On failure the seed and how to see it are added to the error."""
    world = World(change(Shape.of(seed)), trace=trace)
    try:
        world.run()
    except BaseException as e:
        e.add_note(f"seed {seed}: {world.shape}; python -m tests.simulation {seed} shows the trace")
        raise
    return world
