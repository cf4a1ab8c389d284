"""A small table, writers that act as separate processes, and what must be true of the table afterwards."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import lakelatch
from lakelatch.environment import Process
from lakelatch.hudi.timeline.avro_schemas import schema_of
from lakelatch.hudi.timeline.commit_metadata import encode_container
from lakelatch.hudi.timeline.instant import COMMIT_ACTIONS, file_name
from lakelatch.occ.entries.entries import Begin, Commit, End
from lakelatch.occ.entries.service_content import paths_of
from lakelatch.occ.entries.side_objects import SIDES
from lakelatch.occ.liveness.heartbeat import HEARTBEATS
from lakelatch.occ.liveness.markers import MARKERS
from lakelatch.occ.log.publisher import metadata_of, plain_metadata_of
from lakelatch.occ.table.table import Table
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.storage.local.store import LocalStore
from lakelatch.testing import FakeEnvironment
from lakelatch.testing.faults import Fault, FaultStore

SCHEMA = pa.schema([("id", pa.string()), ("part", pa.string()), ("v", pa.int64())])
PARTITIONS = ("a", "b")


def rows(part: str, values: dict[str, int]) -> pa.Table:
    return pa.table({"id": list(values), "part": [part] * len(values), "v": list(values.values())}, schema=SCHEMA)


def make_empty(folder: Path, env=None, **settings) -> Table:
    given = {"env": env} if env else {}
    return lakelatch.create(
        str(folder), record_key="id", partition_by="part", schema=SCHEMA, writer="founder", **given, **settings
    )


def make(folder: Path, env=None, **settings) -> None:
    """A table with one file group in each of two partitions, two rows in each, all v = 0."""
    with make_empty(folder, env, **settings) as table, table.transaction("insert") as txn:
        for part in PARTITIONS:
            txn.new_file(f"part={part}").write(rows(part, {f"{part}0": 0, f"{part}1": 0}))


def add(txn: Transaction, part: str, delta: int = 1) -> None:
    """Add to v of all rows of a partition, through every file group that the snapshot shows."""
    for group in txn.snapshot.file_slices(f"part={part}"):
        old = txn.read_slice(group)
        txn.rewrite(group).write(old.set_column(2, "v", pa.array([v + delta for v in old["v"].to_pylist()])))


def insert(txn: Transaction, part: str, *ids: str, v: int = 1) -> None:
    """A new file group with these rows."""
    txn.new_file(f"part={part}").write(rows(part, dict.fromkeys(ids, v)))


def overwrite(txn: Transaction, part: str, *ids: str, v: int = 1) -> None:
    """Replace a partition by these rows; begin it as insert_overwrite."""
    txn.overwrites(f"part={part}")
    txn.drop_file_groups(txn.snapshot.file_slices(f"part={part}"))
    if ids:
        insert(txn, part, *ids, v=v)


def content(table: Table) -> dict[str, int]:
    """All rows as {id: v}; fails on a key that occurs twice."""
    read = table.read().to_arrow().to_pydict()
    assert len(set(read["id"])) == len(read["id"]), f"duplicate keys: {sorted(read['id'])}"
    return dict(zip(read["id"], read["v"], strict=True))


def independent_content(folder: Path) -> dict[str, int]:
    """The same as another implementation of Hudi reads it."""
    from hudi import HudiTableBuilder

    batches = HudiTableBuilder.from_base_uri(str(folder)).build().read()
    if not batches:  # of a table without rows
        return {}
    read = pa.Table.from_batches(batches)
    return dict(zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True))


BEGUN = {f"{p}{i}": 0 for p in PARTITIONS for i in (0, 1)}
# Tables of the plainest kinds that are made once, before any test changes the code, and copied for each: `models` of conftest.
MODELS: dict[str, Path] = {}


@dataclass
class Writer:
    """One process: its own environment, store with faults, and handle."""

    name: str
    env: FakeEnvironment
    store: FaultStore
    table: Table

    def add(self, part: str, delta: int = 1) -> lakelatch.CommitResult | None:
        with self.table.transaction("upsert") as txn:
            add(txn, part, delta)
        return txn.result

    def begin_add(self, part: str, delta: int = 1, operation: str = "upsert") -> Transaction:
        txn = self.table.transaction(operation)
        add(txn, part, delta)
        return txn

    def insert(self, part: str, *ids: str, v: int = 1) -> lakelatch.CommitResult | None:
        with self.table.transaction("insert") as txn:
            insert(txn, part, *ids, v=v)
        return txn.result

    def die(self) -> None:
        """Its process ends now, as all others on its host can see. Nothing is given back."""
        self.env.kill(self.env.process())


def after(writer: Writer, seconds: float, call: Callable[[], object]) -> None:
    """On the writer's own thread of time, once."""
    timer = writer.env.every(seconds, lambda: (timer.cancel(), call()), name="test")


@contextmanager
def at_work(executor: Writer, planned: str, *, seen_by: Writer) -> Iterator[None]:
    """An execution of that plan is under way, and beats while the one who sees it waits."""
    executor.table.session.heart.start(planned, shared=True)
    interval_s = executor.table.settings.heartbeat_interval_s
    beats = seen_by.env.every(interval_s, executor.table.session.heart.beat, name="at work")
    try:
        yield
    finally:
        beats.cancel()
        executor.table.session.heart.stop(planned)


class World:
    """The table and its writers: one monotonic clock, each its own timers: while one acts the others stand still."""

    def __init__(self, folder: Path, *, empty: bool = False, model: Path | None = None, **settings) -> None:
        self.folder, self.env = folder, FakeEnvironment(seed=1)
        self.writers: list[Writer] = []
        if empty:
            make_empty(folder, self.env, **settings).close()
            return
        model = model or MODELS.get(f"model {settings}") or folder.parent / f"model {settings}"
        if not model.exists():
            make(model, self.env, **settings)
        shutil.copytree(model, folder)

    def writer(self, name: str, *, host: str = "host-a", wall: float | None = None, flush=os.fsync, **table) -> Writer:
        number = 200 + len(self.writers)
        env = self.env.peer(process=Process(host, f"boot of {host}", number, str(number)), wall=wall)
        store = FaultStore(LocalStore(self.folder, flush=flush))
        writer = Writer(name, env, store, Table(store, env=env, writer=name, **table))
        store.reset()
        self.writers.append(writer)
        return writer

    def writer_of(self, table: Table) -> Writer:
        """A writer around a handle that somebody has opened otherwise."""
        assert isinstance(table.env, FakeEnvironment)
        writer = Writer(table.writer, table.env, FaultStore(table.store), table)
        self.writers.append(writer)
        return writer

    def fresh(self) -> Table:
        """A new handle without faults, on another host."""
        process = Process("host-z", "boot of host-z", 1, "1")
        return Table(LocalStore(self.folder), env=self.env.peer(process=process), writer="fresh")

    def content(self) -> dict[str, int]:
        with self.fresh() as table:
            return content(table)

    def close(self) -> None:
        for writer in self.writers:
            writer.store.reset()
            writer.table.close()


def struck(writer: Writer, fault: Fault, act: Callable[[Writer], object]) -> object:
    """What ``act`` answers, or the error that it raises, while the store has this fault."""
    writer.store.add(fault)
    try:
        return act(writer)
    except lakelatch.LakeLatchError as e:
        return e
    finally:
        writer.store.reset()


def entries(table: Table) -> list[Begin | Commit | End]:
    """Begins and ends of transactions, in slot order."""
    return [e for e in table.session.log.entries() if isinstance(e, Begin | Commit | End)]


def fate(table: Table, instant: str) -> list[str]:
    """What the log says of one transaction."""
    return [e.kind for e in entries(table) if e.instant == instant]


def commits(table: Table) -> list[Commit]:
    """Commits that count, in slot order."""
    return [e for e in table.session.log.entries() if isinstance(e, Commit)]


def writes(table: Table) -> list[Commit]:
    """The same without the empty commit that every table begins with."""
    return [c for c in commits(table) if not c.empty]


def check_history(table: Table) -> None:
    """The log is one story: every T once, every end after its begin and only one, labels that only grow."""
    log = entries(table)
    begins = [e.instant for e in log if isinstance(e, Begin)]
    assert begins == sorted(set(begins))
    ends = [e.instant for e in log if isinstance(e, Commit | End)]
    assert len(ends) == len(set(ends)), "a transaction has ended twice"
    imported = {e.instant for e in log if isinstance(e, Commit) and e.imported}  # another engine's have no begin entry
    assert set(ends) - imported <= set(begins)
    # Those that have begun by one entry follow each other by T.
    places = [(e.slot, getattr(e, "place", 0), e.instant if isinstance(e, Begin) else "") for e in log]
    assert places == sorted(set(places))
    completions = [e.completion for e in log if isinstance(e, Commit)]
    assert completions == sorted(set(completions)), "C out of order: a reader at a checkpoint would skip one"
    for commit in commits(table):
        assert commit.instant < commit.completion


def check_published(table: Table) -> None:
    """The timeline says what the log says, no more and no less."""
    told = [file_name(instant) for instant in table.timeline().completed if instant.action != "rollback"]
    decided = commits(table)
    undone = {name for c in decided for name in c.undone}
    assert told == [name for c in decided for name in c.published if name not in undone]


def check_archived(table: Table) -> None:
    """Every commit that was not taken back is on the timeline or archived, once, as its log entry says."""
    rows = [
        row
        for name, _ in table.session.history.manifest().files
        for row in table.session.history._rows(name, ["instantTime", "action"])
    ]
    assert len(rows) == len({(row["instantTime"], row["action"]) for row in rows}), "archived twice"
    decided = commits(table)
    undone = {name for c in decided for name in c.undone if c.restores}
    wanted = {n: c for c in decided if c.action in COMMIT_ACTIONS for n in c.published if n not in undone}
    found = {file_name(instant): metadata for instant, metadata in table.commits()}
    assert list(found) == list(wanted)
    for name, metadata in found.items():
        stats = set(metadata_of(table.store, wanted[name]).stats)
        assert set(metadata.stats) == (set() if name == wanted[name].echo else stats), name


def check_no_strays(table: Table, foreign: Collection[str] = ()) -> None:
    """Every committed file is there, and no other but those of transactions that are open, or ``foreign``."""
    store, alive = table.store, {*table.session.log.catch_up().open, *foreign}
    decided = commits(table)
    undone = {name for c in decided for name in c.undone if c.operation != "ARCHIVE"}
    kept = {s.path for c in decided if c.shown not in undone for s in metadata_of(store, c).stats}
    kept -= {path for c in decided if c.action == "clean" for path in paths_of(plain_metadata_of(store, c))}
    there = {
        e.path
        for part in ("", *store.folders(""))
        if not part.startswith(".")
        for e in store.list(part, recursive=bool(part))
        if e.path.endswith(".parquet") or ".log." in e.path
    }
    assert kept <= there, f"committed files are gone: {sorted(kept - there)}"
    strays = {p for p in there - kept if not any(t in p for t in alive)}
    assert not strays, f"orphan files: {sorted(strays)}"


def check_clean(table: Table, foreign: Collection[str] = ()) -> None:
    """Nothing is left of transactions that are over: no file, marker, heartbeat, side object or pending instant.

    ``foreign``: T of jobs of another engine, whose failed rollbacks are its own to repeat.
    """
    check_no_strays(table, foreign)
    store, alive = table.store, set(table.session.log.catch_up().open)
    assert set(store.folders(MARKERS)) <= alive, "markers of transactions that are over"
    assert {e.name for e in store.list(HEARTBEATS)} <= alive, "heartbeats of transactions that are over"
    sides = {e.name.partition("-")[0] for e in store.list(SIDES)}
    assert sides <= alive | {c.instant for c in commits(table)}, "side objects of transactions that are over"
    undone = {name for c in commits(table) for name in c.undone}
    landed = {c.instant for c in commits(table) if c.shown not in undone}
    ours = [
        i for i in table.timeline().pending if i.requested not in foreign and not (foreign and i.action == "rollback")
    ]
    pending = {i.requested for i in ours} - landed
    assert pending <= alive, f"pending instants of transactions that are over: {sorted(pending - alive)}"


def check_sound(table: Table) -> None:
    """All of it; repairs are whatever a cleaning does."""
    table.rollback_failed_writes()
    check_history(table)
    check_published(table)
    check_archived(table)
    check_clean(table)


def rollback_of(instant: str) -> bytes:
    """Return what another engine says of a commit that it has rolled back."""
    content = {
        "startRollbackTime": instant,
        "timeTakenInMillis": 1,
        "totalFilesDeleted": 0,
        "commitsRollback": [instant],
        "partitionMetadata": {},
        "version": 1,
        "instantsRollback": [],
    }
    return encode_container(schema_of("HoodieRollbackMetadata"), content)
