"""The tasks of Spark's Python workers: they write data files from Arrow batches, and return one row.

Everything here is found by import on the worker and gets plain values; nothing refers to the driver's objects.
An error of this library comes back as a value. So the driver raises the error itself and not Spark's report of
it, and Spark does not rerun a task whose rows are wrong.
"""

from __future__ import annotations

import io
import pickle
import platform
import zlib
from abc import ABC, abstractmethod
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from ..errors import LakeLatchError
from ..hudi.files import FileGroupId
from ..hudi.merge import Merged, alone, remove_where
from ..hudi.table import RECORD_KEY, partition_paths, record_keys
from ..hudi.timeline import FileSlice, WriteStat
from ..occ.liveness import MarkerClient
from ..occ.rebase import Lost, merge_unit, write_changes
from ..occ.staging import (
    FileSpec,
    NewGroups,
    RowsInMemory,
    Selection,
    TaskFiles,
    WritePlan,
    apply,
    read_slice,
    refuse_if_over,
)
from ..occ.turns import targets
from ..occ.writing import NewValues, replaced
from ..storage import Store

ANSWER = "answer binary"
JOB_TASK = "lakelatch.task"  # property of a job
_STORE, _MARKER_CLIENT = "store", "marker_client"
FILE_COLUMN, ROW_COLUMN = "_lakelatch_file", "_lakelatch_row"


@dataclass
class Answer:
    """The result of a task: its files, and the hashes of the keys it inserted by partition, sorted, eight bytes each.

    ``looked`` and ``idle`` as in `TaskFiles`; ``host`` is where an error was met.
    """

    stats: list[WriteStat] = field(default_factory=list)
    hashes: dict[str, bytes] = field(default_factory=dict)
    error: LakeLatchError | None = None
    host: str = ""
    looked: set[FileGroupId] = field(default_factory=set)
    idle: bool = False


def unpack(rows: Iterable[Any]) -> list[Answer]:
    """Return the answers of all tasks, errors among them."""
    return [pickle.loads(row[0]) for row in rows]  # noqa: S301 - written by our own workers


def packed(task: Any, store: Store) -> str:
    """Return a task as the property of a job; the functions of a shell or test travel by value.

    Leaves out the objects that hold keys: the store, and the connection to the server for markers.
    """
    from pyspark import cloudpickle

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def persistent_id(self, obj: Any) -> str | None:
            assert obj is store or not hasattr(type(obj), "put_if_absent"), "a store would be in Spark's event log"
            return _STORE if obj is store else _MARKER_CLIENT if isinstance(obj, MarkerClient) else None

    body = io.BytesIO()
    Pickler(body).dump(task)
    return b64encode(zlib.compress(body.getvalue(), 1)).decode()


def _answered(answer: Answer) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([pickle.dumps(answer)], pa.binary())], ["answer"])


@dataclass
class TaskOfJob:
    """The task that the job's property `JOB_TASK` holds, run on this store, with this connection to the server for markers."""

    store: Store
    marker_client: MarkerClient | None = None

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the task; see `Task.__call__`."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        text = context.getLocalProperty(JOB_TASK)
        assert text is not None
        body = io.BytesIO(zlib.decompress(b64decode(text)))
        yield from _Unpickler(body, self.store, self.marker_client).load()(batches)


class _Unpickler(pickle.Unpickler):  # what our own driver wrote
    def __init__(self, body: io.BytesIO, store: Store, marker_client: MarkerClient | None) -> None:
        super().__init__(body)
        self._known = {_STORE: store, _MARKER_CLIENT: marker_client}

    def persistent_load(self, pid: Any) -> Any:
        return self._known[pid]


@dataclass
class Packed:
    """A function that passes the rows on as one value, null when they take more than ``bytes_max``."""

    bytes_max: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield that one value. Memory is ``bytes_max`` and a batch."""
        kept: list[pa.RecordBatch] = []
        body: bytes | None = b""
        size = 0
        for batch in batches:
            kept.append(batch)
            size += batch.nbytes
            if size > self.bytes_max:
                body = None
                break
        if body is not None and kept:
            sink = io.BytesIO()
            with pa.ipc.new_stream(sink, kept[0].schema) as stream:
                for each in kept:
                    stream.write_batch(each)
            body = sink.getvalue()
        yield pa.RecordBatch.from_arrays([pa.array([body], pa.binary())], ["answer"])


def unpacked(rows: Iterable[Any], schema: pa.Schema) -> pa.Table | None:
    """Return the rows given to `Packed`; None when there were too many."""
    bodies = [row[0] for row in rows]
    if None in bodies:
        return None
    tables = [pa.ipc.open_stream(body).read_all() for body in bodies if body]
    return pa.concat_tables(tables) if tables else schema.empty_table()


class Task(ABC):
    """A callable for ``mapInArrow``; subclasses define the work on the batches.

    ``does`` describes a job of these tasks for people.
    """

    does: ClassVar = "runs tasks"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield one row, for any number of batches."""
        try:
            answer = self.run(batches, _task_number())
        except LakeLatchError as error:
            answer = Answer(error=error, host=platform.node())
        yield _answered(answer)

    @abstractmethod
    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:
        """Run one task."""


class Sums:
    """The parameter of a Spark accumulator that adds tuples element by element. PySpark's own kinds add one number."""

    def zero(self, value: tuple[int, ...]) -> tuple[int, ...]:
        """Return the initial value of a task."""
        return (0,) * len(value)

    def addInPlace(self, one: tuple[int, ...], other: tuple[int, ...]) -> tuple[int, ...]:  # noqa: N802 - PySpark's name
        """Return the sum of both."""
        return tuple(a + b for a, b in zip(one, other, strict=True))


@dataclass
class CountedTask(Task):
    """A task that reports its files, rows and bytes to the driver at its end; ``written`` is an accumulator of `Sums`."""

    task: Task
    written: Any

    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:
        """Run the task itself, then add to the accumulator."""
        answer = self.task.run(batches, task)
        files = {path for stat in answer.stats for path in stat.paths}
        rows, size = (sum(getattr(s, name) for s in answer.stats) for name in ("num_writes", "total_write_bytes"))
        self.written.add((len(files), rows, size))
        return answer


@dataclass
class InsertTask(Task):
    """Write rows into new file groups, one open file for each partition that the task meets.

    With ``exact`` the task has all rows of its keys (they were shuffled by key), so it removes repetitions itself; with
    ``check`` it returns the hashes of its keys, and the driver sees whether there are any.
    """

    does: ClassVar = "writes rows into new files"
    spec: FileSpec
    exact: bool = False
    check: bool = False

    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:
        """Write as the rows come. Memory is one row group for each open file."""
        groups: dict[str, NewGroups] = {}
        with TaskFiles(self.spec, task, keep_hashes=self.check) as files:
            chunks = [table_of(list(batches))] if self.exact else _chunks(batches, self.spec.row_group_rows)
            for chunk in chunks:
                if not chunk.num_rows:
                    continue
                rows = self._unique(chunk) if self.exact else alone(self.spec.rule, chunk)
                for partition, part in _by_partition(rows, self.spec, partial(self._expect, files, groups)):
                    if partition not in groups:
                        groups[partition] = NewGroups(files, partition)
                    groups[partition].write(part)
                files.limit_memory()
            stats = files.stats()
            hashes = {p: np.sort(np.concatenate(found)).tobytes() for p, found in files.hashes.items()}
        return Answer(stats, hashes)

    def _expect(self, files: TaskFiles, begun: Collection[str], partitions: Iterable[str]) -> None:
        new = [FileGroupId(each, self.spec.group_id(each, files.task)) for each in partitions if each not in begun]
        files.expect(new=new)

    def _unique(self, rows: pa.Table) -> pa.Table:
        config = self.spec.config
        keyed = rows.append_column(RECORD_KEY, record_keys(rows, config.record_key_fields))
        plan = WritePlan(self.spec, in_order=False)
        parts = [plan.one_of_each(Selection(RowsInMemory(part))).slice() for _, part in _by_partition(keyed, self.spec)]
        return pa.concat_tables(parts)


def applied(plan: WritePlan, rows: pa.Table, files: TaskFiles) -> Answer:
    """Merge rows, or keys to delete, into the file groups that hold them. Spark hands rows over in any order."""
    apply(replace(plan, in_order=False), rows, files)
    return Answer(files.stats(), looked=files.looked, idle=files.idle)


@dataclass
class MergeTask(Task):
    """Merge rows, or keys to delete, into the file groups that hold them.

    All rows of one unit meet in one task.
    """

    does: ClassVar = "merges rows into their file groups"
    plan: WritePlan

    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:
        """Merge. Memory is the task's rows and one base file."""
        refuse_if_over(self.plan.spec.store, self.plan.spec.instant)
        with TaskFiles(self.plan.spec, task) as files:
            return applied(self.plan, table_of(list(batches)), files)


@dataclass
class TargetsTask(Task):
    """Find the file groups that the same rows would be merged into; nothing is written."""

    does: ClassVar = "looks which file groups its rows belong to"
    plan: WritePlan

    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:  # noqa: ARG002 - as all tasks
        """Find them. Memory is the task's rows and the keys of one base file."""
        return Answer(looked=targets(self.plan, table_of(list(batches))))


def looked_at(answers: Iterable[Answer]) -> set[FileGroupId]:
    """Return the file groups that any of the tasks has read."""
    return set[FileGroupId]().union(*(answer.looked for answer in answers))


@dataclass
class ChosenTask(Task):
    """Delete, or set new values in, rows named by file and position: Spark's own scan has evaluated a condition.

    Attributes:
        values: the new values, of which Spark has computed some beside the names; None: the rows are deleted.
        lost: in a round of a rebase.
    """

    does: ClassVar = "changes the rows that meet its condition"
    plan: WritePlan
    values: NewValues | None = None
    lost: Lost | None = None

    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:
        """Apply. Memory is two numbers for each chosen row, its new values, and one base file."""
        rows = table_of(list(batches))
        slices = {name_of(s): s for group in self.plan.slices.values() for s in group}
        with TaskFiles(self.plan.spec, task, round=self.lost.round if self.lost else 0) as files:
            if rows.num_rows:
                named = rows.column(FILE_COLUMN).combine_chunks().dictionary_encode()
                codes = np.asarray(named.indices)
                if self.lost is None:
                    files.expect(slices[name] for name in named.dictionary.to_pylist())
                for code, name in enumerate(named.dictionary.to_pylist()):
                    old = read_slice(self.plan.spec, slices[name])
                    merged = self._changed(old, rows.filter(pa.array(codes == code)))
                    write_changes(files, slices[name], old, merged, self.lost)
            return Answer(files.stats())

    def _changed(self, old: pa.Table, chosen: pa.Table) -> Merged:
        places = np.asarray(chosen.column(ROW_COLUMN))
        if self.values is None:
            gone = np.zeros(old.num_rows, bool)
            gone[places] = True
            return remove_where(old, gone)
        found = self.values.of(chosen)
        return Merged(replaced(old, places, lambda _: found), updates=len(places))


@dataclass
class RebaseTask(Task):
    """Repeat the transaction's changes in some units that it lost; the rows are numbers of units."""

    does: ClassVar = "merges again what others have changed meanwhile"
    lost: Lost

    def run(self, batches: Iterable[pa.RecordBatch], task: int) -> Answer:
        """Repeat. Memory is the rows that the transaction changed in one unit and one base file."""
        with TaskFiles(self.lost.spec, task, round=self.lost.round) as files:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    merge_unit(self.lost, self.lost.units[number], files)
            return Answer(files.stats())


def name_of(slice_: FileSlice) -> str:
    """Return the name of a slice in its rows: of the base file, which is Spark's own, or of a group with log files."""
    return "/".join(slice_.group) if slice_.logs else slice_.path.rpartition("/")[2]


def repeated_keys(answers: Iterable[Answer]) -> bool:
    """Return False only when no two inserted rows of one partition have the same key, in whatever tasks they were."""
    by_partition: dict[str, list[bytes]] = {}
    for answer in answers:
        for partition, packed in answer.hashes.items():
            by_partition.setdefault(partition, []).append(packed)
    for pieces in by_partition.values():
        hashes = np.sort(np.frombuffer(b"".join(pieces), np.uint64), kind="stable")  # merges runs that are sorted
        if (hashes[1:] == hashes[:-1]).any():
            return True
    return False


def _task_number() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return int(context.partitionId()) if context is not None else 0


def table_of(batches: list[pa.RecordBatch]) -> pa.Table:
    """Return the rows of all batches."""
    return pa.Table.from_batches(batches).combine_chunks() if batches else pa.table({})


def _chunks(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Yield batches joined to about ``rows`` rows: each kernel call then does enough to be worth it."""
    waiting: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        if count >= rows:
            yield table_of(waiting)
            waiting, count = [], 0
    if waiting:
        yield table_of(waiting)


def _by_partition(
    rows: pa.Table, spec: FileSpec, foreseen: Callable[[list[str]], object] = lambda _names: None
) -> Iterator[tuple[str, pa.Table]]:
    paths = partition_paths(rows, spec.config).dictionary_encode()
    names = paths.dictionary.to_pylist()
    foreseen(names)
    if len(names) == 1:
        yield names[0], rows
        return
    codes = np.asarray(paths.indices)
    order = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[order], np.arange(len(names)), side="right").tolist()
    start = 0
    for name, end in zip(names, ends, strict=True):
        # A copy of its own: a view would keep the whole batch in memory for as long as a few rows of it wait.
        yield name, rows.take(pa.array(order[start:end]))
        start = end
