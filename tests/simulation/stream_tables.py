"""Tables with streams: real log files and base files, which writers fill without a lock, each event its stream's columns.

A row is what the model of `tests/streams` makes of the events of all commits so far, one commit after the other in the order
of the log. So every look at the table, and every state that a service has to leave alone, is compared with that serial merge.
What decides later and no reader sees (ordering values of rows that are gone) goes with each state.
"""

from __future__ import annotations

import functools
import re
import tempfile
from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

import lakelatch
from lakelatch.errors import CommitStateUnknownError, ConfigError, InputError, LakeLatchError, LockError, StorageError
from lakelatch.hudi.files import FileGroupId
from lakelatch.hudi.timeline import FileSlice, Snapshot
from lakelatch.occ.entries.entries import Begin, Commit, LogEntry, Open, Setting
from lakelatch.occ.staging import StreamPlan, slices_by_partition
from lakelatch.occ.table.table import Table
from lakelatch.occ.transaction.transaction import Transaction
from lakelatch.occ.writing import Verb, stream_writes
from lakelatch.spark.writing.rebase import stats_of
from lakelatch.spark.writing.streams import PLACE, EventsTask
from lakelatch.streams import CLEAR, CLEARED, DELETED, RETRACTED, UPSERT, Stream, declared_in, stitched
from lakelatch.testing import FakeEnvironment

from ..streams.model import Model, Row
from .history import Anomaly, Attempt, State
from .row_tables import NAME, ReadOnly
from .store import Bodies

_TEXTS = ("a1", "b1", "c1", "d1", "e1", "f1", "g1", "g_id")
_NUMBERS, _ORDERS = tuple(f"{each}2" for each in "abcdefg"), tuple(f"{each}_at" for each in "abcdefg")
_KEPT = [("g_at", pa.int64()), ("g1", pa.string()), ("g2", pa.int64()), ("g_id", pa.string())]
_VALUES = (*_TEXTS, *_NUMBERS, *_ORDERS)
_SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("id", "part", *_TEXTS)),
        *((name, pa.int64()) for name in (*_NUMBERS, *_ORDERS)),
        ("g_events", pa.list_(pa.struct(_KEPT))),
    ]
)
KEYS, _PARTS = tuple("klm"), ("a", "b")
_DECLARED: dict[str, dict[str, Any]] = {
    "a": {"columns": ["a1", "a2"], "on_delete": "row"},
    "b": {"columns": ["b1", "b2"], "null": "write", "foreign_readers": False, "default": {"b1": "of b"}},
    "c": {"columns": ["c1", "c2"], "on_delete": "ignore", "default": {"c2": -1}},
    "d": {"columns": ["d1", "d2"], "default": {"d2": -2}},
    "e": {"columns": ["e2", "e1"], "merge": {"e2": "sum"}, "default": {"e2": 100}, "foreign_readers": False},
    "f": {
        "columns": ["f1", "f2"],
        "merge": {"f1": "max", "f2": "sum"},
        "null": "write",
        "on_delete": "ignore",
        "foreign_readers": False,
    },
    "g": {
        "columns": ["g1", "g2"],
        "merge": {"g1": "first", "g2": "sum"},
        "event_id": "g_id",
        "events": "g_events",
        "foreign_readers": False,
    },
}
# What is declared from the beginning, and with which columns; the rest comes while others write.
SETS = (("", 0), ("ab", 2), ("abcd", 1), ("cd", 1), ("bd", 2), ("ae", 1), ("ef", 1), ("ag", 2))
PLAIN = 4  # the first of these have no mergers, and get none

_BY_SPARK = 0.15
_OVERWRITE, _DROP = "overwrite", "drop"  # kinds of `Event` beside those of log files


class Wide(NamedTuple):
    """One row: its values, in the order of the columns."""

    cells: tuple[Any, ...]
    rows = ()  # as of a list (`history.Value`)


class Rows(State):
    """What readers see, with the states of all keys that there ever were."""

    states: Mapping[Any, Any]

    @classmethod
    def of(cls, model: Model) -> Rows:
        found = cls(
            {
                FileGroupId(f"part={part}", key): Wide(tuple(row.get(each) for each in _VALUES))
                for (part, key), row in model.rows().items()
            }
        )
        found.states = model.states
        return found


class Event(NamedTuple):
    """Some of one stream in one transaction; ``columns`` are those that it had when they were written, ``over`` the partitions
    whose events they replace.
    """

    stream: str
    kind: str
    batch: list[Row]
    columns: tuple[str, ...]
    over: frozenset[str] = frozenset()

    @property
    def parts(self) -> frozenset[str]:
        return self.over | {row["part"] for row in self.batch}


def _given(name: str, columns: int) -> dict[str, Any]:
    """The arguments that declare a stream with its first columns."""
    given = _DECLARED[name]
    chosen = given["columns"][:columns]
    defaults = {column: value for column, value in given.get("default", {}).items() if column in chosen}
    merge = {column: merger for column, merger in given.get("merge", {}).items() if column in chosen}
    return {**given, "columns": chosen, "default": defaults, "merge": merge, "ordering": f"{name}_at"}


@functools.cache
def founded(streams: int, bucket_count: int) -> tuple[Bodies, State]:
    """The objects of a table with a row in each partition, and what they hold."""
    names, columns = SETS[streams]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, NAME)
        made = lakelatch.create(
            str(path), record_key="id", partition_by="part", schema=_SCHEMA, type="merge_on_read", table_version=9,
            lock="none://", bucket_count=bucket_count, lease_s=5.0, heartbeat_interval_s=1.5, heartbeat_timeout_s=4.0,
            lock_wait_s=15.0, env=FakeEnvironment(seed=1),
        )  # fmt: skip
        with made as table:
            for name in names:
                table.stream(name, **_given(name, columns))
            model, luck = Model(("part", "id"), list(table.streams)), Random(1)
            with table.transaction("upsert", batch=("founder", 1)) as txn:
                for each in table.streams:
                    batch = [_event(each, UPSERT, part, "k", luck, "founder") for part in _PARTS]
                    txn.stream(each.name).upsert(batch)
                    model.apply(each.name, UPSERT, batch)
        bodies = {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}
    return bodies, Rows.of(model)


def _event(stream: Stream, kind: str, part: str, key: str, luck: Random, name: str) -> Row:
    def value(column: str) -> Any:
        if luck.random() < 0.25:
            return None
        return name if column in _TEXTS else luck.randint(0, 99)

    if stream.event_id and kind != CLEARED:
        row: Row = {"id": key, "part": part, stream.event_id: luck.choice("xyz")}
        if kind == RETRACTED:
            return row
        return row | {column: value(column) for column in stream.columns[:-1]} | {stream.ordering: luck.randint(0, 6)}
    row = {"id": key, "part": part, stream.ordering: luck.randint(0, 6)}
    return row | ({column: value(column) for column in stream.columns} if kind == UPSERT else {})


def declare(table: Table, luck: Random, streams: int) -> None:
    """One more stream, or more columns for one, or what is known already, or one is changed or dropped; where a request fails,
    perhaps nothing.
    """
    name = luck.choice([each for each in sorted(_DECLARED) if streams > PLAIN or not _DECLARED[each].get("merge")])
    try:
        if luck.random() < 0.4 and name in {each.name for each in table.streams}:
            if luck.random() < 0.5 or not _DECLARED[name].get("default"):
                (table.stream(name).drop if luck.random() < 0.5 else table.stream(name).undrop)()
            else:
                value = luck.choice((True, False))
                given = {each: ("7" if each in _TEXTS else 7) if value else None for each in _DECLARED[name]["default"]}
                table.stream(name).alter(default=given)
        else:
            table.stream(name, **_given(name, 2))
    except (StorageError, CommitStateUnknownError, LockError, ConfigError):
        pass
    except InputError as e:
        if not re.search("is declared otherwise|was dropped|no value of it", str(e)):
            raise


class StreamWork:
    """One attempt at one kind of work on streams, in a transaction that is open. ``sent``: all batches so far."""

    def __init__(self, txn: Transaction, attempt: Attempt, luck: Random, sent: list[Event]) -> None:
        self.txn, self.attempt, self.luck, self._sent = txn, attempt, luck, sent

    def event(self) -> None:
        """Some of one stream set values."""
        self._write(self._stream(), UPSERT)

    def remove(self) -> None:
        """One stream deletes, whatever that means to it."""
        self._write(self._stream(), DELETED)

    def several(self) -> None:
        """Several writes land together, perhaps of one stream."""
        for _ in range(self.luck.randint(2, 3)):
            self._write(self._stream(), UPSERT if self.luck.random() < 0.7 else DELETED)

    def again(self) -> None:
        """A batch that somebody has sent already, whatever he was told of it."""
        there = {each.name for each in self.txn.session.streams if not each.dropped}
        known = [each for each in self._sent if each.stream in there]  # others are declared since its last look
        if not known:
            return self.event()
        event = self.luck.choice(known)
        now = self._now(event.stream)
        more = dict.fromkeys(now.columns if event.kind == UPSERT else ())
        return self._send(now, event.kind, [more | row for row in event.batch])

    def replace(self) -> None:
        """Streams have said nothing else than this in some partitions, of which one may be dropped then."""
        for _ in range(self.luck.choice((1, 1, 2))):
            stream, over = self._stream(), frozenset(self.luck.choice((*_PARTS, "ab")))
            batch = [
                _event(stream, UPSERT, part, self.luck.choice(KEYS), self.luck, f"{self.attempt.name}.{part}")
                for part in sorted(over)
                for _ in range(self.luck.randint(0, 2))
            ]
            try:
                self.txn.stream(stream.name).overwrite(batch, partitions=[{"part": each} for each in sorted(over)])
            except InputError:
                if (
                    self._now(stream.name) == stream
                ):  # else it was declared otherwise, or dropped, since it was looked at
                    raise
            else:
                self._over(Event(stream.name, _OVERWRITE, batch, stream.columns, over))
        if self.luck.random() < 0.1:
            self.drop_partition()

    def drop_partition(self) -> None:
        """All that streams have said in a partition goes."""
        part = self.luck.choice(_PARTS)
        self.txn.delete_all(partition={"part": part})
        self._over(Event("", _DROP, [], (), frozenset(part)))

    def _over(self, event: Event) -> None:
        self.attempt.events.append(event)
        self.attempt.region |= event.over

    def _stream(self) -> Stream:
        there = [each for each in self.txn.session.streams if not each.dropped]
        return self.luck.choice(there or self.txn.session.streams)

    def _now(self, name: str) -> Stream:
        return next(each for each in self.txn.session.streams if each.name == name)

    def _write(self, stream: Stream, kind: str) -> None:
        if kind == DELETED and stream.on_delete == CLEAR:
            kind = RETRACTED if stream.event_id and self.luck.random() < 0.7 else CLEARED
        size = self.luck.choice((1, 1, 2, 3))
        name = f"{self.attempt.name}.{len(self.attempt.events)}"
        self._send(
            stream,
            kind,
            [
                _event(stream, kind, self.luck.choice(_PARTS), self.luck.choice(KEYS), self.luck, f"{name}.{number}")
                for number in range(size)
            ],
        )

    def _send(self, stream: Stream, kind: str, batch: list[Row]) -> None:
        event = Event(stream.name, kind, batch, stream.columns)
        self._sent.append(event)
        if kind == UPSERT or stream.on_delete != "ignore":
            self.attempt.events.append(event)
        by_spark = self.luck.random() < _BY_SPARK and len({(row["part"], row["id"]) for row in batch}) == len(batch)
        try:
            if by_spark:
                self._as_spark(stream, kind, batch)
            else:
                getattr(self.txn.stream(stream.name), _verb(kind))(batch)
        except InputError:
            if self._now(stream.name) == stream:
                raise
            self._sent.remove(event)
            if event in self.attempt.events:
                self.attempt.events.remove(event)

    def _as_spark(self, stream: Stream, kind: str, batch: list[Row]) -> None:
        """A task writes them, and perhaps a second attempt of it the same, beside the first one or later."""
        txn, env = self.txn, self.txn.session.env
        plan = stream_writes.plan_of(txn, stream.name, _verb(kind))
        if plan.idle:
            return
        slices = slices_by_partition(txn.current.file_slices())
        if plan.spec.record is not None:
            plan.spec.record.travels()  # as it does when the task is pickled
        task = EventsTask(StreamPlan(plan.spec, plan.stream, plan.kind, slices), txn.url, replaces=False)
        rows = pa.Table.from_pylist(batch, pa.schema([_SCHEMA.field(name) for name in batch[0]]))
        batches = rows.append_column(PLACE, pa.array(range(len(batch)))).to_batches()

        def second() -> None:
            env.sleep(self.luck.random() * self.luck.choice((0.02, 0.5)))
            with suppress(LakeLatchError):
                task.run(batches, 0)

        if self.luck.random() < 0.5:
            env.thread(second, name="second attempt")
        with txn.workspace.staging():
            txn.workspace.add(stats_of([task.run(batches, 0)]))


def _verb(kind: str) -> Verb:
    return "upsert" if kind == UPSERT else "retract" if kind == RETRACTED else "delete"


class Follow:
    """The state after an attempt has landed (`history.judge`): its events, by the declarations of before its slot.

    What it overwrites nobody has written to since it began.
    """

    def __init__(self, entries: Sequence[LogEntry]) -> None:
        self._begun = {each.instant: each.slot for each in entries if isinstance(each, Begin)}
        self._last: dict[str, tuple[int, str]] = {}
        self._settings = [each for each in entries if isinstance(each, Setting | Open)]
        self._slots = {each.instant: each.slot for each in entries if isinstance(each, Commit)}

    def __call__(self, attempt: Attempt, snapshot: State, before: State) -> State:
        at = bisect([each.slot for each in self._settings], self._slots[attempt.instant])
        model = Model(("part", "id"), list(self._settings[at - 1].settings.streams))
        model.states = deepcopy(dict(getattr(before, "states", {})))
        for part in attempt.region & self._last.keys():
            slot, name = self._last[part]
            if slot > self._begun[attempt.instant]:
                raise Anomaly(f"{attempt.name} overwrote part={part}, to which {name} had written since it began")
        self._last |= {
            part: (self._slots[attempt.instant], attempt.name) for event in attempt.events for part in event.parts
        }
        for event in attempt.events:
            if event.kind == _DROP:
                model.drop({*event.over})
                continue
            now = model.streams[event.stream]
            if now.dropped:
                raise Anomaly(f"{attempt.name} wrote events of {event.stream}, which was dropped before they landed")
            model.streams[event.stream] = replace(now, columns=event.columns)
            if event.kind == _OVERWRITE:
                model.overwrite(event.stream, {*event.over}, event.batch)
            else:
                model.apply(event.stream, event.kind, event.batch)
            model.streams[event.stream] = now
        return Rows.of(model)


def judge_conflicts(attempts: Iterable[Attempt], entries: Iterable[LogEntry]) -> None:
    """Events lose against nobody but a restore, and beside an overwrite of their partitions; so does that one."""
    entries, attempts = list(entries), list(attempts)
    known = {each.instant: each for each in attempts}
    restores = {each.instant for each in entries if isinstance(each, Commit) and each.restores}
    declared = {each.settings.streams for each in entries if isinstance(each, Setting | Open)}
    changed = any(each.edition for streams in declared for each in streams)
    for attempt in attempts:
        if not attempt.winner and (changed or (attempt.region and len(declared) > 1)):
            continue
        other = known.get(attempt.winner)
        meet = other is not None and (attempt.region & _parts(other) or other.region & _parts(attempt))
        if attempt.outcome == "conflict" and attempt.winner not in restores and not meet:
            raise Anomaly(f"{attempt.name} wrote events and lost against {attempt.winner or 'nobody'}")


def _parts(attempt: Attempt) -> set[str]:
    return {part for event in attempt.events for part in event.parts}


def judge_declared(table: Table, attempts: Iterable[Attempt], entries: Iterable[LogEntry]) -> None:
    """Were the log lost now, the properties would know every stream and column of which an event has landed."""
    declared = declared_in(table.session.read_config())
    known = {each.name: set(each.columns) for each in (declared.streams if declared else ())}
    there = {each.instant for each in entries if isinstance(each, Commit)}
    for event in (event for attempt in attempts if attempt.instant in there for event in attempt.events):
        if not set(event.columns) <= known.get(event.stream, set()):
            raise Anomaly(f"the properties know {known}, and {event.stream} has written {event.columns}")


def judge_explained(table: Table, state: State, key: str) -> None:
    """What is told of a row is what is read of it."""
    told = {}
    for row in table.explain_row(key):
        cells = {each.column: each.value for each in row.cells}
        if row.there:
            told[cells["part"]] = tuple(cells.get(each) for each in _VALUES)
    read = {root.partition.removeprefix("part="): row.cells for root, row in state.items() if root.file_id == key}
    if told != read:
        raise Anomaly(f"of {key} {told} is told, and {read} is read")


def _state(rows: pa.Table) -> State:
    found = State()
    for row in rows.to_pylist():
        root = FileGroupId(f"part={row['part']}", row["id"])
        if root in found:
            raise Anomaly(f"{root} stands twice in one file slice")
        found[root] = Wide(tuple(row.get(each) for each in _VALUES))
    return found


def read_slice(table: Table, each: FileSlice) -> State:
    return _state(table.read_slice(each))


class Contents:
    """What snapshots hold by the streams of the newest setting. A slice is read once, as no file ever changes."""

    def __init__(self, body: Callable[[str], bytes]) -> None:
        self._store = ReadOnly(body)
        self._known: dict[Any, State] = {}
        self.streams: tuple[Stream, ...] = ()
        self._newest = ""

    def told(self, path: str, entry: LogEntry) -> None:
        """An entry of the log stands at that path."""
        if isinstance(entry, Setting | Open) and path >= self._newest:
            self._newest, self.streams = path, entry.settings.streams

    def __call__(self, snapshot: Snapshot) -> State:
        found = State()
        for each in snapshot.file_slices():
            files = (each.base and each.base.path, tuple((log.path, log.completed) for log in each.logs), self.streams)
            if files not in self._known:
                self._known[files] = _state(stitched(self._store, self.streams, each, strict=True).rows)
            if twice := found.keys() & self._known[files].keys():
                raise Anomaly(f"a record key stands twice: {twice}")
            found |= self._known[files]
        return found
