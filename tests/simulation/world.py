"""One schedule: a table in memory, writers that change it, readers that watch it, and faults."""

from __future__ import annotations

import functools
import itertools
import json
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

import lakelatch
from lakelatch.conflict import ISOLATION_LEVELS
from lakelatch.environment import Process
from lakelatch.errors import (
    BatchConflictError,
    BatchLandedError,
    CommitStateUnknownError,
    ConflictError,
    ConstraintError,
    CorruptTableError,
    DuplicateKeyError,
    LakeLatchError,
    LockError,
    RolledBackError,
    StorageError,
    TableError,
)
from lakelatch.hudi.files.file_names import PARTITION_METADATA, new_file_id, partition_metadata
from lakelatch.hudi.files.listing import BaseFile
from lakelatch.hudi.table.config import TableConfig
from lakelatch.hudi.timeline.instant import file_name
from lakelatch.hudi.timeline.snapshot import FileSlice, Snapshot
from lakelatch.hudi.timeline.timeline import TIMELINE, read_timeline
from lakelatch.locks import LockProvider
from lakelatch.occ.entries import BeginRequest
from lakelatch.occ.entries.entries import Commit, LogEntry
from lakelatch.occ.entries.entries import decode as decode_entry
from lakelatch.occ.liveness.heartbeat import HEARTBEATS
from lakelatch.occ.log.epochs import LOG, read_all
from lakelatch.occ.session import PROPERTIES, kept_from
from lakelatch.occ.session.snapshot_cache import cold_view
from lakelatch.occ.table.table import Table
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.testing import FakeEnvironment

from ..occ.world import check_clean, check_history, check_published
from . import row_tables, stream_tables
from .bank import Bank
from .batches import Sent, judge_batches
from .begins import Asked, judge_begins
from .coordinators import Coordinators
from .environment import SimEnvironment
from .faults import Faults, Network
from .files import content_of, decode, put, read_slice
from .graph import check, without
from .ground import ground
from .history import FOUNDER, Anomaly, Attempt, Follow, Look, Roots, State, Value, judge, judge_losses, judge_tokens
from .install import simulated
from .locks import LockServer, open_locks
from .neighbourhood import Neighbourhood, UnnoticedError
from .row_tables import RowWork
from .rows import EMAIL
from .scheduler import Scheduler, SimProcess
from .shape import BUCKETS, LOCKS, LOG_EPOCHS, MIXES, NO_LOCK, SHARED_LOCK, Shape
from .store import Bodies, Objects, SimStore
from .strangers import SILENT_S, Stranger
from .stream_tables import StreamWork
from .upkeep import Upkeep
from .work import FIRST_BALANCE, OPERATION, PARTITIONS, Work

_SECOND_TOKENS, _SHARED_TOKENS = 1_000_000, 2_000_000  # so that one lock's tokens are not taken for the other's


@functools.cache
def _new_table() -> Bodies:
    """The objects of a new table, made once by the real `create`."""
    schema = pa.schema([("id", pa.string()), ("part", pa.string()), ("email", pa.string())])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "table")
        lakelatch.create(
            str(path), record_key="id", partition_by="part", schema=schema, lock=NO_LOCK, lease_s=5.0,
            heartbeat_interval_s=1.5, heartbeat_timeout_s=4.0, lock_wait_s=15.0,
            env=FakeEnvironment(seed=1),
        ).close()  # fmt: skip
        found = {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
    # As `BaseFileWriter` leaves it, before the first file of a partition.
    return found | {f"{part}/{PARTITION_METADATA}": partition_metadata("0" * 17, part) for part in PARTITIONS}


@functools.cache
def _founded(
    groups: int, lock: str, isolation: str, log_epochs: int, unique: bool, bucket_count: int | None
) -> tuple[Objects, State]:
    """The objects of a table with so many file groups, and what they hold."""
    world = World(Shape(0, groups=groups), objects=Objects(_new_table()))
    state: State = {}

    def found() -> None:
        with world.table(world.process("founder"), alone=True) as table:
            with table.transaction("insert") as txn:
                for number in range(groups):
                    bucket = None if bucket_count is None else number // len(PARTITIONS)
                    file_id = new_file_id(table.env.uuid(), bucket=bucket)
                    put(txn, PARTITIONS[number % 2], file_id, Value((f"{FOUNDER}{number}",), 1, FIRST_BALANCE))
            state.update(world.state(table))

    world.alone(found)
    settings = {"lock": lock, "isolation": isolation, "log_epochs": log_epochs}
    settings |= {
        "unique_constraints": [EMAIL] if unique else [],
        "bucket_count": bucket_count,
        "neighbours": "hudi" if lock == SHARED_LOCK else "none",
    }
    return _set_up(world.objects.bodies(), settings), state


def _set_up(bodies: Bodies, settings: dict[str, Any]) -> Objects:
    """The objects of a table with other settings."""

    def changed(path: str, body: bytes) -> bytes:
        if not path.startswith(LOG) or b'"settings"' not in body:
            return body
        entry = json.loads(body)
        entry["settings"] |= settings
        return json.dumps(entry, separators=(",", ":")).encode()

    return Objects({path: changed(path, body) for path, body in bodies.items()})


@functools.cache
def _merge_on_read(groups: int, lock: str, log_epochs: int) -> Objects:
    return _set_up(ground(groups).bodies, {"lock": lock, "log_epochs": log_epochs})


def founded_with(shape: Shape, lock: str) -> tuple[Objects, State]:
    """A table of the bank."""
    return _founded(shape.groups, lock, shape.isolation, shape.log_epochs, False, None)


def prepare() -> None:
    """Make all tables that schedules begin with; a mutant must not have a hand in them."""
    with simulated():
        for groups in (1, 2, 3):
            for lock in (NO_LOCK, *LOCKS):
                for level in ISOLATION_LEVELS:
                    for log_epochs in LOG_EPOCHS:
                        for unique in (False, True):
                            for bucket_count in BUCKETS:
                                _founded(groups, lock, level, log_epochs, unique, bucket_count)
            for level in ISOLATION_LEVELS:
                for log_epochs in LOG_EPOCHS:
                    for bucket_count in BUCKETS:
                        _founded(groups, SHARED_LOCK, level, log_epochs, False, bucket_count)
        for bucket_count in (1, 2):
            for number in range(1, len(stream_tables.SETS)):
                stream_tables.founded(number, bucket_count)
            for by_events in (False, True):
                row_tables.founded(bucket_count, by_events)


class World:
    """Runs one schedule and judges it."""

    def __init__(self, shape: Shape, *, trace: bool = False, objects: Objects | None = None) -> None:
        self.shape = shape
        self.scheduler = Scheduler(shape.seed)
        self.scheduler.trace = [] if trace else None
        self.base: State = {}
        self.ground = ground(shape.groups).commits if shape.merge_on_read and not shape.appends else ()
        if shape.appends:
            bodies, self.base = (
                stream_tables.founded(shape.streams, shape.bucket_count or 1)
                if shape.streams
                else row_tables.founded(shape.bucket_count, shape.by_events)
            )
            settings = {"lock": shape.lock, "log_epochs": shape.log_epochs}
            objects = _set_up(bodies, settings)
        elif shape.merge_on_read:
            objects, self.base = (
                _merge_on_read(shape.groups, shape.lock, shape.log_epochs),
                self.ground[-1][2],
            )
        if objects is None:
            objects, self.base = _founded(
                shape.groups,
                shape.lock,
                shape.isolation,
                shape.log_epochs,
                shape.unique,
                shape.bucket_count,
            )
        if shape.at_once:
            objects = _set_up(objects.bodies(), {"publish_at_once": True})
        self.objects = objects.copy()
        self.lock_servers = {LOCKS[0]: LockServer(), LOCKS[1]: LockServer(token=_SECOND_TOKENS)}
        self.lock_servers[SHARED_LOCK] = LockServer(token=_SHARED_TOKENS)
        self.neighbourhood = Neighbourhood(self)
        self.coordinators = Coordinators(self)
        self.faults = Faults(shape.faults, shape.crashes)
        self.attempts: list[Attempt] = []
        self.looks: list[Look] = []
        self.roots = Roots()
        self.upkeep = Upkeep(self)
        self.entries: list[object] = []
        self._asked = Asked()
        self._sent: list[stream_tables.Event] = []
        self._batches, self._numbers = Sent(shape.seed) if shape.batches else None, itertools.count()
        self.also: Counter[str] = Counter()
        self._dead: set[Process] = set()
        self._processes = 0
        self._handles = 0 if self.base else 1_000_000  # no file id of the founder's is made again
        self._networks: dict[SimProcess, Network] = {}
        self._watched = SimStore(self.objects, None)

    # --- the schedule -----------------------------------------------------------------------------------------

    def run(self) -> None:
        """Raises `Anomaly`, or what a broken promise raises."""
        self.config = TableConfig.from_bytes(self.objects.stored[PROPERTIES].body, table="sim")
        self._rows = row_tables.Contents(self._body, self.config)
        self._wide = stream_tables.Contents(self._body)
        for path in sorted(self.objects.stored):
            self._settings_at(path)
        self.objects.changed = self._on_change
        for number in range(self.shape.writers):
            self._start(f"host{number % 2}", self._write)
        if self.shape.admin:
            self._start("host0", self.upkeep.administer)
        for number in range(self.shape.keepers):
            self._start(f"host{number % 2}", self.upkeep.keep)
        for number in range(self.shape.readers):
            self._start(f"host{number % 2}", self.upkeep.read)
        for number in range(self.shape.strangers):
            self._start(f"host{number % 2}", self._work_beside)
        for number in range(self.shape.coordinators):
            self._start(f"host{number % 2}", self.coordinators.lead)
        try:
            self.scheduler.run()
        except (Anomaly, TableError) as e:
            if not self.neighbourhood.broken or isinstance(e, UnnoticedError):
                raise
            self.also["hidden commits that were noticed"] += isinstance(e, CorruptTableError)
        if self.neighbourhood.broken:
            self.also["schedules whose lock did not exclude"] += 1
            self.neighbourhood.judge_told(self.attempts)
            return
        # A request may still arrive whose sender has given up, and hide what was put meanwhile.
        late = self.shape.strangers > 0
        self.objects.changed = lambda path, what: self.neighbourhood.made(path) if late and what == "made" else None
        try:
            self.alone(self._audit)
        except Anomaly:
            if not self.neighbourhood.broken:
                raise

    def alone(self, call: Callable[[], None]) -> None:
        """One honest process, and nothing goes wrong any more."""
        self.faults.end()
        self.scheduler.spawn(self.process("auditor"), call, name="auditor")
        self.scheduler.run()

    def process(self, host: str, *, skewed: bool = False) -> SimProcess:
        self._processes += 1
        luck, shape = self.scheduler.random, self.shape
        skew = luck.uniform(-1, 1) * shape.skew_s if skewed else 0.0
        rate = 1.0 + luck.uniform(-1, 1) * shape.drift if skewed else 1.0
        number = self._processes
        return SimProcess(Process(host, f"boot of {host}", number, str(number)), skew, rate)

    def table(self, process: SimProcess, *, alone: bool = False) -> Table:
        network = self._networks.setdefault(process, Network(self.scheduler, process, self.faults))
        env = self.environment(process)
        env.open_lock = functools.partial(self._open_lock, env, network)
        store = SimStore(self.objects, None if alone else network, far=self.shape.far)
        return Table(store, env=env, writer=process.name, epoch_slots=self.shape.epoch_slots)

    def environment(self, process: SimProcess) -> SimEnvironment:
        self._handles += 1
        return SimEnvironment(self.scheduler, process, self._dead, self._handles)

    def asked_to_begin(self, request: BeginRequest) -> None:
        """A writer has asked for a begin by a message."""
        self._asked.requests.add(request)

    def _work_beside(self, process: SimProcess) -> None:
        Stranger(self, process).work()

    def _open_lock(self, env: SimEnvironment, network: Network, url: str) -> LockProvider:
        return open_locks(url, self.lock_servers[url], env, network)

    def _start(self, host: str, call: Callable[[SimProcess], None]) -> None:
        process = self.process(host, skewed=True)

        def replace() -> None:
            """Others on the host learn that it died, and a new one starts in its place."""
            self._dead.add(process.identity)
            self._start(host, call)

        process.mourners.append(replace)
        self.scheduler.spawn(process, lambda: call(process), name=call.__name__)

    def open_table(self, process: SimProcess) -> Table | None:
        self.scheduler.pause(self.scheduler.random.random() * (1.0 if self._dead else 0.2))
        for _ in range(5):
            try:
                return self.table(process)
            except LakeLatchError as e:
                self.scheduler.note(f"could not open: {e}"[:160])
                self.scheduler.pause(1.0)
        return None

    # --- what writers do --------------------------------------------------------------------------------------

    def _write(self, process: SimProcess) -> None:
        table = self.open_table(process)
        if table is None:
            return
        table.session.coordinator = self.coordinators.asked_by(self._networks[process])
        for _ in range(self.shape.threads - 1):
            self.scheduler.spawn(process, lambda: self._transact(table), name="thread")
        self._transact(table)
        if self.shape.threads == 1:
            table.close()

    def _transact(self, table: Table) -> None:
        luck, mix = self.scheduler.random, MIXES[self.shape.mix]
        for _ in range(self.shape.transactions):
            kind = luck.choices(list(mix), list(mix.values()))[0]
            if kind == "declare":
                stream_tables.declare(table, luck, self.shape.streams)
            elif kind == "increment" or luck.random() < 0.2:
                self._retried(table, kind)
            else:
                self._once(table, kind)
            self.scheduler.pause(luck.random() * 0.1)

    def _once(self, table: Table, kind: str) -> None:
        attempt, batched = self.attempt(self.scheduler.now), self._batched(table)
        attempt.sends(batched.get("batch"))
        serializable = self.scheduler.random.random() < 0.1

        def go() -> None:
            level = "serializable" if serializable else None
            with table.transaction(OPERATION[kind], isolation=level, **self._reserved(kind), **batched) as txn:
                attempt.level = level or table.settings.isolation
                self._work(txn, attempt, kind)
            attempt.outcome = "committed" if txn.result else "aborted"
            self._on_disk(attempt)

        self._told([attempt], go)

    def _reserved(self, kind: str) -> dict[str, Any]:
        luck = self.scheduler.random
        if luck.random() >= self.shape.reserve:
            return {}
        may_be_empty = kind in ("insert", "insert_overwrite")  # else the library refuses to reserve what is not there
        return {"reserve": luck.choice(("table", *([[p] for p in PARTITIONS] if may_be_empty else [])))}

    def _batched(self, table: Table) -> dict[str, tuple[Any, ...]]:
        def newest(source: str) -> int | None:
            last = table.session.log.state.batches.last(source)  # as far as its handle has read
            return None if last is None else last.batch.number

        batch = self._batches.next(newest) if self._batches else None
        if batch is None and self.shape.streams > stream_tables.PLAIN:
            batch = f"once {next(self._numbers)}", 1
        return {"batch": batch} if batch else {}

    def _retried(self, table: Table, kind: str) -> None:
        attempts: list[Attempt] = []
        began, batched = self.scheduler.now, self._batched(table)

        def work(txn: Transaction) -> None:
            nonlocal began
            if attempts:
                attempts[-1].outcome = "lost"
            attempts.append(self.attempt(began))
            began = self.scheduler.now  # the next one begins after this, but when is not told
            attempts[-1].level = table.settings.isolation
            attempts[-1].sends(batched.get("batch"))
            self._work(txn, attempts[-1], kind)

        def go() -> None:
            # The answer names the attempt that landed; those before have lost.
            result = table.run(work, operation=OPERATION[kind], attempts=3, timeout_s=60.0, **batched)
            attempts[-1].outcome = "committed" if result.commit else "aborted"
            self._on_disk(attempts[-1])

        self._told(attempts, go)

    def _on_disk(self, attempt: Attempt) -> None:
        """Who is told that it has landed can rely on it when the power goes."""
        if attempt.outcome != "committed":
            return
        objects, mine = self.objects, f'"T":"{attempt.instant}"'.encode()
        for path in itertools.chain.from_iterable(objects.unflushed.values()):
            if self.shape.strangers:  # beside another engine the completed instant is the commit
                entry = path.startswith(f"{TIMELINE}/{attempt.instant}_")
            else:
                entry = (
                    path.startswith(LOG) and b'"kind":"commit' in (body := objects.stored[path].body) and mine in body
                )
            if entry or (path.startswith("part=") and attempt.instant in path):
                self.scheduler.violation = Anomaly(
                    f"{attempt.name} was told that it has landed, and {path} is on no disk"
                )

    def attempt(self, began: float) -> Attempt:
        attempt = Attempt(f"t{len(self.attempts)}", began=began)
        self.attempts.append(attempt)
        return attempt

    def _work(self, txn: Transaction, attempt: Attempt, kind: str) -> None:
        attempt.instant = txn.instant
        self.scheduler.note(f"{attempt.name} = {kind} {txn.instant}")
        if self.shape.streams:
            getattr(StreamWork(txn, attempt, self.scheduler.random, self._sent), kind)()
            return
        if self.shape.appends:
            getattr(RowWork(txn, attempt, self.scheduler.random, by_events=self.shape.by_events), kind)()
            return
        work = Work(txn, attempt, self.scheduler.random, self.roots)
        if attempt.level != "snapshot" and self.scheduler.random.random() < 0.5:
            work.scan()
        getattr(work, kind)()

    def _told(self, attempts: list[Attempt], go: Callable[[], None]) -> None:
        """Notes what the writer of the last attempt was told."""
        outcome = ""
        try:
            go()
        except CommitStateUnknownError:
            outcome = "unknown"
        except ConflictError as e:
            in_vain = "is still running" in str(e) or "of another engine in vain" in str(e)
            outcome = "waited in vain" if in_vain else "conflict"
            if attempts and not in_vain:
                attempts[-1].winner = e.details.get("winner", "")
                attempts[-1].duplicate = isinstance(e, DuplicateKeyError)
        except ConstraintError:
            outcome = "not unique"
            if not attempts[-1].merged:
                self.scheduler.violation = Anomaly(f"{attempts[-1].name} had looked which values are free")
        except BatchConflictError:
            outcome = "out of order"
            self.also["batches out of order"] += 1
        except BatchLandedError:
            outcome = "repeated"
            self.also["batches sent again"] += 1
        except RolledBackError:
            outcome = "rolled back"
        except LockError:
            outcome = "no lock"
        except StorageError:  # any other error says something of the table that is not so
            outcome = "failed"
        for attempt in attempts[-1:]:
            attempt.outcome = outcome or attempt.outcome
            attempt.ended = self.scheduler.now
            self.scheduler.note(f"{attempt.name} {attempt.outcome}")

    # --- what readers see -------------------------------------------------------------------------------------

    def _on_change(self, path: str, what: str) -> None:
        """Reads as Hudi's readers do whenever that can have changed: the timeline, then the files; no log."""
        again = path.startswith(HEARTBEATS) and what == "made" and path in self.objects.taken_away
        again = again and path.rpartition("/")[2] not in self.neighbourhood.foreign
        if again and self.scheduler.current is not None and not self._is_plan(path.rpartition("/")[2]):
            self.scheduler.violation = Anomaly(f"the heartbeat {path} was removed and its writer made it again")
        if what == "made":
            self._settings_at(path)
            self._asked.made(path, self.objects)
            if self.shape.strangers:
                self.neighbourhood.made(path)
        completed = path.startswith(TIMELINE) and "_" in path
        if path.startswith("part=") and what == "made" and not self.shape.appends:
            base = BaseFile.at(path, 0)
            if base is not None:
                self.roots.hold(base.group, decode(self.objects.stored[path].body))
        if self.shape.at_once or (not completed and not (path.startswith("part=") and what == "deleted")):
            return
        timeline = read_timeline(self._watched, self.config)
        if not all(timeline.path(each) not in self.objects.taken_away for each in timeline.commits):
            return  # a publisher that has slept during a restore has put back what was taken away, until somebody looks
        state = self.content(cold_view(self._watched, timeline).snapshot)
        self.looks.append(Look(tuple(i.requested for i in timeline.commits), state))

    def _settings_at(self, path: str) -> None:
        """What streams there are, by the newest entry of the log that says so."""
        if self.shape.streams and path.startswith(LOG):
            body = self.objects.stored[path].body
            if b'"settings"' in body:
                self._wide.told(path, decode_entry(body, path))

    def _is_plan(self, instant: str) -> bool:
        """Whether several may execute it, one after the other."""
        there = {path: stored.body for path, stored in self.objects.stored.items()} | self.objects.taken_away
        begun = f'"T":"{instant}"'.encode()
        return any(begun in body and b'"planned_at"' in body for path, body in there.items() if path.startswith(LOG))

    def _audit(self) -> None:
        """After everybody: one honest process cleans up, then everything has to be right."""
        self.scheduler.pause(3 * self.faults.long_s)  # whatever was on its way has arrived
        seen = self._cut_the_power() if self.shape.power_cut else None
        table = self.table(self.process("auditor"), alone=True)
        table.rollback_failed_writes(wait=True)
        if self.shape.strangers:
            self._settle_beside(table)
        if seen is not None and seen != self.state(table):
            raise Anomaly(f"after a power cut a reader saw {seen}, and once it was repaired {self.state(table)}")
        if self.shape.keepers:
            self.upkeep.finish(table)
            self._delete_what_is_forgotten(table)
        entries = list(read_all(SimStore(self.objects.before_pruning(LOG), None)))
        self.entries = entries
        table.session.log.entries = lambda: iter(entries)
        check_history(table)
        if not self.ground:
            check_published(table)
        assert read_timeline(self._watched, self.config).commits == table.timeline().commits, (
            "put back, and still there"
        )
        if not any(path.startswith(LOG) for path in self.objects.taken_away):
            if not self.ground:
                check_clean(
                    table, self.neighbourhood.foreign
                )  # what arrives late of a transaction that the log has forgotten, nobody can judge
            if self.shape.keepers:
                self.upkeep.check_all(table)
        if not self.shape.faults:
            _refuse_false_alarm(self.attempts, in_vain=bool(self.shape.keepers))
        story = judge(
            entries,
            [*self.attempts, *row_tables.covers(table.store, entries)],
            self.looks,
            self.state(table),
            self.base,
            unique=self.shape.unique,
            bucketed=self.shape.bucket_count is not None and not self.shape.appends,
            kept_from=kept_from(table.session),
            ground=self.ground,
            follow=self._follow(entries),
        )
        self.upkeep.judge(table, entries, story)
        if self.shape.strangers:
            self.neighbourhood.judge(entries, table.timeline())
        self.also["commits that others made"] += sum(isinstance(e, Commit) and e.place > 0 for e in entries)
        self.also["begins that others made"] += judge_begins(
            entries, self._asked, self.attempts, faults=bool(self.shape.faults)
        )
        self.also["archivals"] += sum(isinstance(e, Commit) and e.operation == "ARCHIVE" for e in entries)
        self.also["compactions"] += sum(isinstance(e, Commit) and e.operation == "COMPACT" for e in entries)
        if self.shape.batches and not self.ground:
            judge_batches(entries, self.attempts)
        self.also["tables with buckets"] += self.shape.bucket_count is not None
        # Who writes events takes no lock.
        locking = [each for each in self.attempts if each.region] if self.shape.streams else self.attempts
        judge_tokens(entries, locking, {url: server.granted for url, server in self.lock_servers.items()})
        if not self.shape.appends:
            judge_losses(
                table.store,
                entries,
                self.attempts,
                self.roots,
                bucketed=self.shape.bucket_count is not None,
                foreign=self.neighbourhood.foreign,
            )
        self.also["commits that another covers"] += row_tables.judge_covered(table.store, entries)
        self.also["columns dropped"] += row_tables.judge_columns(self.attempts, entries)
        if self.shape.streams:
            stream_tables.judge_conflicts(self.attempts, entries)
            stream_tables.judge_declared(table, self.attempts, entries)
            stream_tables.judge_explained(table, self.state(table), self.scheduler.random.choice(stream_tables.KEYS))
            self.also["streams overwritten"] += sum(
                bool(each.region) and each.outcome == "committed" for each in self.attempts
            )
            self.also["streams declared meanwhile"] += len(table.streams) - len(
                stream_tables.SETS[self.shape.streams][0]
            )
        elif not self.shape.by_events:  # where one write may stand in the place of another that it has not seen
            check(*without(story.undone, self.attempts, [*story.seen, self.state(table)]))
        if not self.ground:
            kind = "event" if self.shape.streams else "put" if self.shape.appends else "insert"
            batch = ("auditor", 1) if self.shape.streams else None
            with table.transaction(OPERATION[kind], batch=batch) as txn:  # it is still writable
                self._work(txn, Attempt("last"), kind)
            assert txn.result is not None or self.shape.appends
        table.close()

    def _settle_beside(self, table: Table) -> None:
        """Another engine cleans up too, and ours imports the last of its commits."""
        stranger = Stranger(self, self.process("stranger"))
        self.scheduler.pause(SILENT_S)
        stranger.tidy()
        with table.session.lease("importing"):
            table.session.log.append(lambda _: None, look=True)

    def _cut_the_power(self) -> State:
        """Some names on the timeline are gone; returns what somebody sees then who only reads."""
        folders = self.objects.unflushed
        names = sorted(path for path in folders.get(TIMELINE, ()) if "_" in path.rpartition("/")[2])
        lost = [path for path in names if self.scheduler.random.random() < 0.5]
        self.objects.power_cut(lost)
        self.also += {"power cuts": 1, "names lost in them": len(lost)}
        with self.table(self.process("reader"), alone=True) as reader:
            return self.state(reader)

    def _delete_what_is_forgotten(self, table: Table) -> None:
        """A savepoint that comes back when no epoch tells any more that it was deleted: its user deletes it again."""
        for each in table.savepoints():
            gone = self.objects.came_back.get(table.timeline().path(each.shown), set())
            deletions = (self.objects.taken_away[path] for path in gone if path.startswith(LOG))
            if any(b"SAVEPOINT_DELETE" in body and file_name(each.shown).encode() in body for body in deletions):
                table.delete_savepoint(each.instant)

    def _follow(self, entries: list[LogEntry]) -> Follow | None:
        if self.shape.streams:
            return stream_tables.Follow(entries)
        return functools.partial(row_tables.follow, by_events=self.shape.by_events) if self.shape.appends else None

    def state(self, table: Table) -> State:
        return self.content(table.snapshot())

    def read_slice(self, table: Table, each: FileSlice) -> State:
        if self.shape.streams:
            return stream_tables.read_slice(table, each)
        return row_tables.read_slice(table, each) if self.shape.appends else read_slice(table.store, each)

    def _body(self, path: str) -> bytes:
        """A file that readers need."""
        stored = self.objects.stored.get(path)
        if stored is None:
            raise Anomaly(f"{path} is gone, and is in a version that readers may see")
        return stored.body

    def content(self, snapshot: Snapshot) -> State:
        if self.shape.streams:
            return self._wide(snapshot)
        if self.shape.appends:
            return self._rows(snapshot)
        state = State()
        for group in snapshot.file_slices():
            found = content_of(self._body, group)
            if not found.keys().isdisjoint(state):
                raise Anomaly(f"two file groups hold one list: {sorted(found)} of {group.group}")
            state |= found
        return state


def _refuse_false_alarm(attempts: list[Attempt], *, in_vain: bool) -> None:
    """``in_vain``: there may be plans that nobody executes, for which one waits."""
    told = {"committed", "conflict", "lost", "aborted", "repeated", "out of order", "not unique"} | (
        {"waited in vain"} if in_vain else set()
    )
    for attempt in attempts:
        if attempt.outcome not in told:
            raise Anomaly(f"nothing was wrong, and {attempt.name} was told {attempt.outcome!r}")


def words(error: BaseException) -> str:
    """What was wrong, in one line; of an `assert` without words the line itself."""
    line = traceback.extract_tb(error.__traceback__)[-1].line
    return f"{type(error).__name__}: {error if str(error) else line}"


def world_of(shape: Shape, *, trace: bool = False) -> World | Bank:
    """What runs a schedule of that shape."""
    return Bank(shape, trace=trace) if shape.tables > 1 else World(shape, trace=trace)


def run(shape: Shape | int, *, trace: bool = False) -> World | Bank:
    """Run a schedule. On failure its shape and the world are added to the error."""
    with simulated():
        world = world_of(Shape.of(shape) if isinstance(shape, int) else shape, trace=trace)
        try:
            world.run()
        except BaseException as e:
            e.add_note(f"{world.shape}")
            e.world = world  # type: ignore[attr-defined]
            raise
    return world
