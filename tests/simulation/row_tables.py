"""Merge-on-read tables whose rows are real: Parquet base files and log files, written by the verbs of a transaction.

A row is a list, as a file group is elsewhere (`history`): its column ``names`` tells who has written it, ``v`` orders its
versions where the table goes by events. A log record carries its row whole. So on a table that goes by commits each version
has to be made from the one before, as of every list; on one that goes by events the larger ``v`` stands, and what counts is
that every reader sees what the serial order of the commits gives, log files merged or compacted.

The column ``spare`` has the names too, until somebody drops it.
"""

from __future__ import annotations

import functools
import io
import json
import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa

import lakelatch
from lakelatch import sql
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.merge import merged_rows
from lakelatch.hudi.table import TableConfig
from lakelatch.hudi.timeline import FileSlice, Snapshot
from lakelatch.occ.entries.batches import COVERS
from lakelatch.occ.entries.entries import Commit, LogEntry, singly
from lakelatch.occ.log.publisher import metadata_of
from lakelatch.occ.table.table import Table
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.storage import Store
from lakelatch.testing import FakeEnvironment

from .history import FOUNDER, Anomaly, Attempt, State, Value
from .store import Bodies, Gone

NAME = "rows"  # of the table
_SPARE = "spare"
_SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("id", "part", "names")] + [("v", pa.int64()), (_SPARE, pa.string())]
)
_KEYS = tuple("klmno")
_PARTS = ("a", "b")


@functools.cache
def founded(bucket_count: int | None, by_events: bool) -> tuple[Bodies, State]:
    """The objects of a table with two rows in each partition, and what they hold."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, NAME)
        made = lakelatch.create(
            str(path), record_key="id", partition_by="part", schema=_SCHEMA, type="merge_on_read", lock="none://",
            ordering_field="v" if by_events else None, bucket_count=bucket_count, lease_s=5.0, heartbeat_interval_s=1.5,
            heartbeat_timeout_s=4.0, lock_wait_s=15.0, env=FakeEnvironment(seed=1),
        )  # fmt: skip
        with made as table:
            table.upsert(_rows({_new(part, key, FOUNDER): Value((FOUNDER,), 1, 5) for part in _PARTS for key in "kl"}))
            state = {root: each for s in table.snapshot().file_slices() for root, each in read_slice(table, s).items()}
        return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}, state


def _new(part: str, key: str, maker: str) -> FileGroupId:
    """The name of a row; one that comes back after it was deleted is another."""
    return FileGroupId(f"part={part}", f"{key} of {maker}")


def key_of(root: FileGroupId) -> tuple[str, str]:
    return root.partition, root.file_id.partition(" ")[0]


def _rows(values: State) -> pa.Table:
    keys = [key_of(root) for root in values]
    columns = [
        [key for _, key in keys],
        [partition.removeprefix("part=") for partition, _ in keys],
        [",".join(each.names) for each in values.values()],
        [each.balance for each in values.values()],
        [",".join(each.names) for each in values.values()],
    ]
    return pa.table(columns, schema=_SCHEMA)


def _state(rows: pa.Table) -> State:
    found = State()
    for row in rows.to_pylist():
        names = tuple(row["names"].split(","))
        root = _new(row["part"], row["id"], names[0])
        if root in found:
            raise Anomaly(f"{root} stands twice in one file slice")
        found[root] = Value(names, len(names), row["v"])
    return found


def read_slice(table: Table, each: FileSlice) -> State:
    return _state(table.read_slice(each))


class Contents:
    """What snapshots hold. A file slice is read once, as no file ever changes."""

    def __init__(self, body: Callable[[str], bytes], config: TableConfig) -> None:
        self._store, self._config = ReadOnly(body), config
        self._known: dict[frozenset[str], State] = {}

    def __call__(self, snapshot: Snapshot) -> State:
        state: dict[tuple[str, str], FileGroupId] = {}
        found = State()
        for each in snapshot.file_slices():
            paths = frozenset(each.paths)
            if paths not in self._known:
                self._known[paths] = _state(merged_rows(self._store, self._config, each, strict=True))  # type: ignore[arg-type]
            for root, value in self._known[paths].items():
                if key_of(root) in state:
                    raise Anomaly(f"a record key stands twice: {root} and {state[key_of(root)]}")
                state[key_of(root)], found[root] = root, value
        return found


class ReadOnly:
    """As much of a store as merging reads."""

    def __init__(self, body: Callable[[str], bytes]) -> None:
        self._body = body

    def get(self, path: str) -> Any:
        return lakelatch.storage.Stored(self._body(path), "")

    @contextmanager
    def open(self, path: str, *, size: int | None = None) -> Any:
        yield io.BytesIO(self._body(path))


class RowWork:
    """One attempt at one kind of work on rows, in a transaction that is open."""

    def __init__(self, txn: Transaction, attempt: Attempt, luck: Random, *, by_events: bool) -> None:
        self.txn, self.attempt, self.luck, self._by_events = txn, attempt, luck, by_events

    def put(self) -> None:
        """Change some rows that are there, and perhaps add one."""
        there = self._there()
        chosen = self._some(there, 0, 2)
        self._upsert(there, chosen, new=not chosen or self.luck.random() < 0.3)

    def take(self) -> None:
        """Delete rows that are there."""
        there = self._there()
        if chosen := self._some(there, 1, 2):
            self._delete(there, chosen)
        else:
            self._upsert(there, [], new=True)

    def both(self) -> None:
        """Change one row and delete another, in one transaction."""
        there = self._there()
        chosen = self._some(there, 2, 2)
        if len(chosen) < 2:
            return self.put()
        self._upsert(there, chosen[:1], new=False)
        return self._delete(there, chosen[1:])

    def drop(self) -> None:
        """Drop the spare column, if it is there, perhaps beside a change of rows."""
        if _SPARE not in self.txn.schema.names or self.luck.random() < 0.3:
            self.put()
        if _SPARE in self.txn.schema.names:
            self.txn.drop_column(_SPARE)
            self.attempt.spare = None

    def set_where(self) -> None:
        """Change a row by condition, as it is by then, and leave no name."""
        part, key = self.luck.choice(_PARTS), self.luck.choice(_KEYS)
        step = self.luck.choice((-2, 1))
        self.attempt.changes = {(f"part={part}", key): step}
        self.txn.update_where([("part", "=", part), ("id", "=", key)], {"v": sql(f"v + ({step})")})

    def _there(self) -> State:
        found = State()
        for each in self.txn.snapshot.file_slices():
            try:
                rows = self.txn._attempt.seen(lambda each=each: self.txn.session.read_slice(each))  # type: ignore[misc]
            except Gone as e:
                self.txn.check()  # somebody has taken it for dead
                raise Anomaly(f"{self.attempt.name} is open, and {e.path} of its snapshot is gone") from e
            found |= _state(rows)
        return found

    def _some(self, there: State, least: int, most: int) -> list[FileGroupId]:
        most = min(most, len(there))
        return self.luck.sample(sorted(there), self.luck.randint(min(least, most), most))

    def _upsert(self, there: State, chosen: Iterable[FileGroupId], *, new: bool) -> None:
        name, values = self.attempt.name, State()
        for root in chosen:
            old = there[root]
            self.attempt.reads[root] = old
            step = self.luck.choice((-2, 0, 1, 3)) if self._by_events else 1
            values[root] = Value((*old.names, name), old.count + 1, old.balance + step)
        part, taken = self.luck.choice(_PARTS), {key_of(root) for root in there}
        free = [key for key in _KEYS if (f"part={part}", key) not in taken]
        if new and free:
            values[_new(part, self.luck.choice(free), name)] = Value((name,), 1, self.luck.randint(1, 9))
        if values:
            self.attempt.writes |= values
            rows = _rows(values)
            self.attempt.spare = _SPARE in self.txn.schema.names
            self.txn.upsert(rows if self.attempt.spare else rows.drop_columns(_SPARE))

    def _delete(self, there: State, chosen: Iterable[FileGroupId]) -> None:
        self.attempt.reads |= {root: there[root] for root in chosen}
        self.attempt.drops |= set(chosen)
        self.txn.delete(_rows({root: there[root] for root in chosen}).select(["id", "part"]))


def follow(attempt: Attempt, snapshot: State, before: State, *, by_events: bool) -> State:
    """The state after this one has landed (`history.judge`)."""
    state, here = dict(before), {key_of(root): root for root in before}
    for root, seen in attempt.reads.items():
        if snapshot.get(root) != seen:
            raise Anomaly(f"{attempt.name} read {seen} in {root}; its snapshot held {snapshot.get(root)}")
        now = before.get(root)
        # Both may have deleted it. Where events order rows, an upsert stands beside whatever landed before it; what it makes
        # of that the readers are asked.
        settled = now is None if root in attempt.drops else by_events
        if now != seen and not settled:
            raise Anomaly(f"lost update: {attempt.name} changed {root} as of {seen}, when it was {now}")
    for root in attempt.drops:
        state.pop(root, None)
    for root, value in attempt.writes.items():
        old = here.get(key_of(root))
        if old not in (None, root) and not by_events:
            raise Anomaly(f"lost update: {attempt.name} made {root}, and {old} was there")
        if old is None or before[old].balance <= value.balance:
            state.pop(old, None)  # type: ignore[arg-type]
            state[root] = value
    for key, step in attempt.changes.items():
        if (root := here.get(key)) is not None:  # type: ignore[assignment]
            state[root] = before[root]._replace(balance=before[root].balance + step)
    return state


def judge_columns(attempts: Iterable[Attempt], entries: Iterable[LogEntry]) -> int:
    """Rows land with the columns that they were written for. Return how many dropped one."""
    landed = {each.instant: each for entry in entries for each in singly(entry) if isinstance(each, Commit)}
    drops = 0
    for attempt in attempts:
        if (entry := landed.get(attempt.instant)) is not None and attempt.spare is not False:
            there = f'"name": "{_SPARE}"' in json.dumps(json.loads(entry.schema or "[]"))
            if attempt.spare and not there:
                raise Anomaly(f"{attempt.name} landed rows with {_SPARE}, which was dropped before")
            if attempt.spare is None and there:
                raise Anomaly(f"{attempt.name} dropped {_SPARE}, and its own commit has it")
            drops += attempt.spare is None
    return drops


def covers(store: Store, entries: Iterable[LogEntry]) -> list[Attempt]:
    """The empty commits that writers have made to cover another (`cover_log_files`), each as an attempt at nothing."""
    commits = (each for entry in entries for each in singly(entry) if isinstance(each, Commit))
    told = ((commit, metadata_of(store, commit)) for commit in commits if commit.operation == "UPSERT")
    return [
        Attempt(f"cover of {metadata.extra[COVERS]}", commit.instant, outcome="committed")
        for commit, metadata in told
        if COVERS in metadata.extra
    ]


def judge_covered(store: Store, entries: Iterable[LogEntry]) -> int:
    """A compaction of Hudi's meets the blocks of every log file. Return how many commits another had to cover for that.

    It reads up to the largest T of the completed commits and deltacommits, and replacecommits do not count.
    """
    counted, covered = "", 0
    for commit in (each for entry in entries for each in singly(entry) if isinstance(each, Commit)):
        if commit.action != "replacecommit":
            counted = max(counted, commit.instant)
        elif any(stat.log_files for stat in metadata_of(store, commit).stats):
            covered += 1
            if counted < commit.instant:
                raise Anomaly(
                    f"a compaction of Hudi's would pass over the log files of {commit.instant}, above {counted}"
                )
    return covered


class InPlace:
    """An executor whose work is done by the caller at once: a simulation has no threads."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*given))
        except Exception as e:
            future.set_exception(e)
        return future

    def shutdown(self, **_: object) -> None:
        pass

    def __enter__(self) -> InPlace:
        return self

    def __exit__(self, *_: object) -> None:
        pass
