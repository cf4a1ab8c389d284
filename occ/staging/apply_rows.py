"""Write new rows, or deletes by key, into the file groups where they belong. Arrow and storage, no Spark.

The same code runs in Spark's workers, each for the partitions or buckets that were shuffled to it, and on the driver
for batches so small that a Spark job would cost more than the work.

Memory: the incoming rows of the task, or the keys of some of them (`WritePlan.on_disk`). Each thread adds some row groups of a
base file and a few bytes per row of it; the whole slice where it has log files or `WritePlan.combine` needs its rows.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import CorruptTableError, InputError
from ...hudi.files import BaseName, FileGroupId, LogName, StoredParquet, base_file_name, bucket_of, join, log_file_name
from ...hudi.merge import (
    Effects,
    Merged,
    cleared_keys,
    contributions,
    joined_schema,
    merge_by,
    plain,
    refuse_nan,
    remove,
    remove_where,
    supersedes,
    widened,
    with_rows,
)
from ...hudi.table import RECORD_KEY, SoughtKeys, array_of_column
from ...hudi.timeline import FileSlice, WriteStat
from ...mergers import Rule
from ...progress import Reporter
from ..incoming import refuse_unordered
from ..liveness import Io, Marker
from .base_file import BaseFileWriter
from .file_spec import FileSpec, token
from .log_file import LOGS_MAX, LogFileWriter, in_log_files
from .meta_columns import COMMIT_TIME, RowNumbers
from .old_file import OldFile, held_keys, read_slice
from .parquet_file import ALMOST, RowBytes
from .selection import RowsInMemory, Selection, in_pieces, units
from .worker_pool import Piece, WorkerPool

NEW = "new-"
FILES_OF_SLOT = 1_000_000  # keep the file ids of the slots of one (task, partition) apart
_MEASURED_ROWS = 1000  # for more new rows than this, reading the footer of a file that they might join pays
_WAITING_ROW_GROUPS_MAX = 8  # of all open files of a task together
_READ_AHEAD = 16  # files whose keys are read at a time; on an object store each takes some round trips
_THREADS_BYTES = 4 << 20  # less work than this is done before threads would have started
_TASKS_MAX = 1_000_000  # keeps the row numbers of later writes and rebase rounds apart from those of the first write

_Marks = npt.NDArray[np.bool_]
Partners = npt.NDArray[
    np.signedinteger[Any]
]  # for each row of a slice the position of its key among the incoming ones, or -1
# The partners of a slice's rows, and of its base file's rows; the second is None for a slice without log files.
_Held = tuple[Partners, Partners | None]
Found = tuple[
    FileSlice, _Marks, Partners | None
]  # a slice, a mark for each key that it takes, and its rows' partners where they are known
Kept = dict[str, Callable[[], Effects]]  # what was done in a file, by its path; made when a rebase asks
# Merges incoming rows into the rows of a slice (None: there is no slice).
Combine = Callable[[pa.Table | None, pa.Table], Merged]


@dataclass(frozen=True)
class WritePlan:
    """The input that all tasks of one write share: the files' common facts, and the slices as of the snapshot.

    ``combine`` replaces the table's merge; such rows need no ordering field. ``in_order``: rows come in arrival order.
    ``on_disk``: rows are in a mapped file, and only those at hand may be in memory.
    """

    spec: FileSpec
    slices: Mapping[str, tuple[FileSlice, ...]] = field(default_factory=dict)
    delete: bool = False
    operation: str = "upsert"
    combine: Combine | None = None
    in_order: bool = True
    on_disk: bool = False

    @property
    def ordering(self) -> tuple[str, ...]:
        """The columns that decide between an old row and an incoming one."""
        return self.spec.config.newer_by

    def ordered(self, columns: Collection[str]) -> bool:
        """Return whether rows with these columns carry the table's ordering fields."""
        return bool(self.ordering) and all(name in columns for name in self.ordering)

    def one_of_each(self, unit: Selection) -> Selection:
        """Return one row per key of a batch. Raises `InputError` where a key comes twice and no ordering field decides."""
        rule, ordering = self.spec.rule, self.spec.config.ordered_by
        if self.combine is not None:
            return unit.unrepeated(ordering if all(name in unit.column_names for name in ordering) else ())
        if rule.plain:
            return unit.unrepeated(ordering, rule.ties)
        return Selection(RowsInMemory(contributions(rule, unit.slice(), in_order=self.in_order)))

    def new(self, incoming: Selection) -> Selection | pa.Table:
        """Return the rows to insert for incoming rows whose keys the table lacks."""
        if self.combine is not None:
            return self.combine(None, incoming.slice()).rows
        rule = self.spec.rule
        return incoming if rule.plain else rule.one_of_each(incoming.slice(), RECORD_KEY)


def slices_by_partition(slices: list[FileSlice]) -> dict[str, tuple[FileSlice, ...]]:
    """Return file slices by partition, the form that `WritePlan` takes."""
    found: dict[str, list[FileSlice]] = {}
    for each in slices:
        found.setdefault(each.partition, []).append(each)
    return {partition: tuple(group) for partition, group in found.items()}


class TaskFiles:
    """The files of one task. Publishing waits for the disk, so it runs in threads while the next file is encoded.

    Args:
        threads: how many file groups are worked on at a time, where that is worth a thread.
        report: counts the rows of each published file.

    Attributes:
        looked: where `apply` looked keys up: file groups, or partitions as groups without file id.
        idle: True if some incoming row changed nothing, because the stored row is newer.
        kept: effects by path of a file, for a rebase in the same process; None: they are not recorded.
    """

    def __init__(
        self,
        spec: FileSpec,
        task: int,
        *,
        keep_hashes: bool = False,
        round: int = 0,  # noqa: A002
        threads: int = 1,
        report: Reporter | None = None,
    ) -> None:
        self.spec, self.task, self._threads, self._report = spec, task, threads, report or Reporter()
        self.looked: set[FileGroupId] = set()
        self.idle = False
        self.kept: Kept | None = None
        # Writes of the transaction and rounds of its rebase count on, so that no superseded file's name is used again.
        made_before = spec.write + round  # files of the same group, by this transaction
        self._token, self._first_log = token(task, made_before), made_before * LOGS_MAX + 1
        self.hashes: dict[str, list[npt.NDArray[np.uint64]]] = {}
        self._keep_hashes = keep_hashes
        self._numbers = RowNumbers(task + made_before * _TASKS_MAX)
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="lakelatch-publish")
        self._markers: dict[str, Marker] = {}  # of files that are announced and not begun, by path
        self._open: list[BaseFileWriter] = []
        self._publishing: list[Future[WriteStat]] = []
        self._beside: list[Future[None]] = []

    def pool(self, slices: Iterable[FileSlice], more_bytes: int = 0) -> WorkerPool:
        """The threads for work on these slices and so many bytes of new rows; no two pieces of work share a file group."""
        return WorkerPool(self._threads if more_bytes + sum(map(_bytes, slices)) >= _THREADS_BYTES else 1)

    def expect(self, slices: Iterable[FileSlice] = (), new: Iterable[FileGroupId] = ()) -> None:
        """Announce the next files of these slices and new groups, in one request to the marker server.

        Without a server this is a no-op: each file is announced when it is begun. A marker without a file is harmless.
        """
        spec, files = self.spec, list[tuple[str, Io]]()
        if spec.marker_client is None:
            return
        for old in slices:
            if appends(spec, old):
                name = log_file_name(LogName(old.file_id, spec.instant, self._first_log, self._token))
                files.append((join(old.partition, name), "APPEND"))
            elif old.instant != spec.instant:  # else its successor has a name that is not known yet
                files.append((self._base_path(old.partition, old.file_id), "MERGE"))
        files += [(self._base_path(group.partition, group.file_id), "CREATE") for group in new]
        self._markers |= {marker.path: marker for marker in spec.announce(files)}

    def _base_path(self, partition: str, file_id: str) -> str:
        return join(partition, base_file_name(BaseName(file_id, self._token, self.spec.instant)))

    def begin(
        self,
        partition: str,
        file_id: str,
        replaces: FileSlice | None = None,
        *,
        before: FileSlice | None = None,
        again: bool = False,
    ) -> BaseFileWriter:
        """Open a file; `end` or the end of the block closes it. ``before`` and ``again`` as in `BaseFileWriter`."""
        writer = BaseFileWriter(
            self.spec,
            partition=partition,
            file_id=file_id,
            token=self._token,
            io="MERGE" if replaces else "CREATE",
            prev_commit=replaces.instant if replaces else None,
            numbers=self._numbers,
            trusted=True,
            keep_hashes=self._keep_hashes,
            before=before,
            again=again,
            marker=self._markers.get(self._base_path(partition, file_id)) if self._markers else None,
        )
        writer.__enter__()
        self._open.append(writer)
        return writer

    @contextmanager
    def successor(self, old: FileSlice, file_id: str = "") -> Iterator[BaseFileWriter]:
        """Open the file that takes over from a slice, see `write_successor`; `end` it when the block ends."""
        before, again = None, old.instant == self.spec.instant
        if again:
            before, file_id = self.spec.begun[old.group], self.spec.successor_id(old.group)
        moves = file_id not in ("", old.file_id)
        # A group that moves has no version before it: for readers it begins here.
        writer = self.begin(
            old.partition, file_id or old.file_id, replaces=None if moves else old, before=before, again=again
        )
        yield writer
        self.end(writer)

    def end(self, writer: BaseFileWriter) -> None:
        """Complete a file that has all its rows, and publish it in a thread."""
        writer.finish()
        if writer.key_hashes:
            self.hashes.setdefault(writer.partition, []).extend(writer.key_hashes)
        # Not open any more: a file that is being published counts no memory and cannot be flushed.
        self._open.remove(writer)
        self._publishing.append(self._pool.submit(self._publish, writer))

    def append(
        self,
        onto: FileSlice,
        rows: pa.Table | None,
        deletes: Sequence[str] = (),
        *,
        inserts: int = 0,
        inserted: pa.Array | None = None,
        note: Mapping[str, str] | None = None,
    ) -> None:
        """Append rows and keys to delete to a slice as log files; a thread publishes them.

        Arguments as of `in_log_files`, and ``inserted`` as of `LogFileWriter`.
        """

        def begin(number: int) -> LogFileWriter:
            return LogFileWriter(
                self.spec,
                onto,
                token=self._token,
                version=self._first_log + number,
                numbers=self._numbers,
                announced=self._markers.get,
                inserted=None if number else inserted,
            )

        for writer in in_log_files(self.spec, begin, rows, deletes, inserts=inserts, note=note):
            self._publishing.append(self._pool.submit(self._publish, writer))

    def _publish(self, writer: BaseFileWriter | LogFileWriter) -> WriteStat:
        try:
            stat = writer.publish()
        finally:
            writer.abandon()
        self._report.add(stat.num_writes)
        return stat

    def keep_spans(self, partition: str, slices: Iterable[FileSlice]) -> None:
        """Store the key ranges of a partition for other processes, in a thread, if many of its files had to be opened."""
        if self.spec.spans is not None and self.spec.spans.owes(partition):
            self._beside.append(self._pool.submit(self.spec.spans.keep, self.spec.store, partition, slices))

    def limit_memory(self) -> None:
        """Flush the fullest open files early, in smaller row groups, while very many files are open."""
        waiting = sum(writer.waiting_rows for writer in self._open)
        for writer in sorted(self._open, key=lambda w: -w.waiting_rows):
            if waiting <= _WAITING_ROW_GROUPS_MAX * self.spec.row_group_rows:
                return
            waiting -= writer.waiting_rows
            writer.flush()

    def stats(self) -> list[WriteStat]:
        """End and publish all files, and return their statistics; raise the first error."""
        for writer in list(self._open):
            self.end(writer)
        for kept in self._beside:
            kept.result()
        return sorted((future.result() for future in self._publishing), key=lambda stat: stat.path)

    def __enter__(self) -> TaskFiles:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._open:
            writer.abandon()
        self._pool.shutdown(wait=True, cancel_futures=True)


class NewGroups:
    """Write rows of one partition into new file groups; begin the next group when one has the target size."""

    def __init__(self, files: TaskFiles, partition: str, *, slot: int = 0) -> None:
        self._files, self._partition, self._number = files, partition, slot * FILES_OF_SLOT
        self._writer: BaseFileWriter | None = None
        self._rows = 0  # of the present file
        self._size = RowBytes()

    def write(self, rows: pa.Table | Selection) -> None:
        """Add rows; memory is a row group and the piece of the rows that is at hand."""
        for piece in in_pieces(rows, self._files.spec.row_group_rows):
            start = 0
            while start < piece.num_rows:
                some = piece.slice(start)
                writer, room = self._with_room(some)
                writer.write(some.slice(0, room))
                start, self._rows = start + room, self._rows + min(room, some.num_rows)

    def _with_room(self, rows: pa.Table) -> tuple[BaseFileWriter, int]:
        """Return the file for the next of these rows, and how many of them fit."""
        target, writer = self._files.spec.target_file_bytes, self._writer
        if writer is not None:
            left = self._left(writer, rows)
            # An estimate from rows that are not encoded yet; flushing measures them.
            if left < self._size.of(rows):
                writer.flush()
                left = self._left(writer, rows)
            if left > (1 - ALMOST) * target:
                return writer, self._size.fit(rows, left)
            self.end()
        file_id = self._files.spec.group_id(self._partition, self._files.task, self._number)
        self._writer = self._files.begin(self._partition, file_id)
        self._number, self._rows = self._number + 1, 0
        return self._writer, self._size.fit(rows, target)

    def _left(self, writer: BaseFileWriter, rows: pa.Table) -> float:
        self._size.learn(self._rows - writer.waiting_rows, writer.bytes_written)
        waiting = writer.waiting_rows * self._size.of(rows)
        return self._files.spec.target_file_bytes - writer.bytes_written - waiting

    def end(self) -> None:
        """End the present file; the next rows begin another."""
        if self._writer is not None:
            self._files.end(self._writer)
            self._writer = None


def apply(plan: WritePlan, rows: pa.Table, files: TaskFiles) -> None:
    """Write a successor of each file group that the rows touch; ``files.stats()`` publishes them."""
    if plan.combine is None:
        refuse_unordered(rows, plan.spec.config, rows.column_names if plan.delete else None)
    if not plan.delete:
        refuse_nan(rows, [name for name in plan.spec.config.ordered_by if name in rows.column_names])
    with files.pool(chain.from_iterable(plan.slices.values()), rows.get_total_buffer_size()) as pool:
        work = units(plan.spec, rows, on_disk=plan.on_disk)
        if plan.spec.marker_client is None:
            for unit in work:
                pool.do(_follow, plan, files, *unit)
            return
        # All keys are looked up before the first file is begun, so that one request announces all files.
        known = [piece for unit in work for piece in _pieces(plan, files, *unit)]
        files.expect((old for each in known for old in each.slices), (group for each in known for group in each.new))
        for each in known:
            pool.do(each.call, plan, files, *each.args)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A unit of work that shares no file group with others: the slices it changes and the new groups it begins."""

    call: Callable[..., None]
    args: tuple[Any, ...]
    slices: tuple[FileSlice, ...] = ()
    new: tuple[FileGroupId, ...] = ()


def _follow(plan: WritePlan, files: TaskFiles, partition: str, place: int | str | None, unit: Selection) -> list[Piece]:
    """Return the pieces of one unit of work for a pool, whose threads look the keys up."""
    return [(each.call, plan, files, *each.args) for each in _pieces(plan, files, partition, place, unit)]


def _pieces(
    plan: WritePlan, files: TaskFiles, partition: str, place: int | str | None, unit: Selection
) -> Iterator[_Piece]:
    """Yield the pieces of one unit of work."""
    spec, there = plan.spec, plan.slices.get(partition, ())
    incoming = unit if plan.delete else plan.one_of_each(unit)

    def begun(file_id: str) -> tuple[FileGroupId, ...]:
        return () if plan.delete else (FileGroupId(partition, file_id),)

    if isinstance(place, str):
        named = tuple(old for old in there if old.file_id == place)
        slot = int(place[len(NEW) :]) if place.startswith(NEW) else None
        new = () if slot is None else begun(spec.group_id(partition, files.task, slot * FILES_OF_SLOT))
        yield _Piece(_into_named, (partition, place, incoming), named, new)
        return
    if place is not None:
        filled = tuple(old for old in there if bucket_of(old.file_id) == place)
        new = () if filled else begun(spec.group_id(partition, 0, place, bucket=place))
        yield _Piece(_into_bucket, (partition, place, incoming), filled, new)
        return
    # Simple index inside one partition: look every incoming key up in the key columns of its slices.
    files.looked.add(FileGroupId(partition, ""))
    # Without slices no key is looked up: all rows are new, and there is nothing to delete.
    fresh = np.ones(incoming.num_rows, bool)
    found, fresh = _looked_up(plan, files, partition, incoming) if there else ([], fresh)
    if fresh.any() and not plan.delete:
        new = begun(spec.group_id(partition, files.task))
        yield _Piece(_into_new, (partition, incoming.where(fresh)), (), new)
    for old, mine, partners in found:
        yield _Piece(rewrite, (old, incoming.where(mine), _renumbered(partners, mine)), (old,))


def _looked_up(plan: WritePlan, files: TaskFiles, partition: str, incoming: Selection) -> tuple[list[Found], _Marks]:
    """Return the slices that take some of the rows, and a mark for each row to insert that none of them takes."""
    keys = incoming.keys
    # A key may come several times: as contributions to be merged, or as deletes with different ordering values.
    repeat = plan.ordered(incoming.column_names) if plan.delete else not plan.spec.rule.plain
    once = keys.unique() if repeat else keys
    if plan.delete:
        found, fresh = holders(plan, partition, once), np.zeros(len(once), bool)
    else:
        found, fresh = owners(plan, partition, once)
    files.keep_spans(partition, plan.slices[partition])
    if len(once) < len(keys):
        places = np.asarray(pc.index_in(keys, value_set=once))
        found, fresh = [(old, mine[places], None) for old, mine, _ in found], fresh[places]
    return found, fresh


# One kind of index each -------------------------------------------------------------------------------------------


def _into_bucket(plan: WritePlan, files: TaskFiles, partition: str, bucket: int, incoming: Selection) -> None:
    found = [s for s in plan.slices.get(partition, ()) if bucket_of(s.file_id) == bucket]
    if len(found) > 1:
        raise CorruptTableError(
            f"bucket {bucket} of partition {partition!r} has {len(found)} file groups "
            f"({', '.join(s.file_id for s in found)}), so its keys are not unique; was the table always written with "
            f"{plan.spec.bucket_count} buckets?",
            partition=partition,
            bucket=bucket,
        )
    if found:
        files.looked.add(found[0].group)
        rewrite(plan, files, found[0], incoming)
    elif plan.delete:
        files.looked.add(FileGroupId(partition, ""))
    elif (new := plan.new(incoming)).num_rows:
        # The name derives from the transaction and the bucket only, so each run of a task meets the same file.
        writer = files.begin(partition, plan.spec.group_id(partition, 0, bucket, bucket=bucket))
        for piece in in_pieces(new, plan.spec.row_group_rows):
            writer.write(piece)
        files.end(writer)


def _into_named(plan: WritePlan, files: TaskFiles, partition: str, name: str, incoming: Selection) -> None:
    files.looked.add(FileGroupId(partition, ""))
    if not name.startswith(NEW):
        found = next(s for s in plan.slices[partition] if s.file_id == name)
        more = _too_many(plan, found, incoming)
        if not more.any():
            rewrite(plan, files, found, incoming)
            return
        rewrite(plan, files, found, incoming.where(~more))
        new = NewGroups(files, partition, slot=_TASKS_MAX + zlib.crc32(name.encode()))
        new.write(incoming.where(more))
        new.end()
    elif not plan.delete:
        new = NewGroups(files, partition, slot=int(name[len(NEW) :]))
        new.write(plan.new(incoming))
        new.end()


def _too_many(plan: WritePlan, old: FileSlice, incoming: Selection) -> _Marks:
    """Mark new rows for which a slice has no room: the join that assigned them could not count them."""
    marks = np.zeros(incoming.num_rows, bool)
    if (
        incoming.num_rows <= _MEASURED_ROWS
        or plan.delete
        or plan.combine is not None
        or not plan.spec.rule.plain
        or old.logs
    ):
        return marks
    with OldFile(plan.spec, old.path) as file:
        fresh = np.flatnonzero(~_met(file.partners(incoming.keys), incoming.num_rows))
    if len(fresh):
        marks[fresh[_room(plan.spec, old, None, len(fresh)) :]] = True
    return marks


def _into_new(plan: WritePlan, files: TaskFiles, partition: str, incoming: Selection) -> None:
    new = NewGroups(files, partition)
    new.write(plan.new(incoming))
    new.end()


def _met(partner: Partners, count: int) -> _Marks:
    """Mark the keys that are the partner of some row."""
    met = np.zeros(count, bool)
    met[partner[partner >= 0]] = True
    return met


def _renumbered(partner: Partners | None, kept: _Marks) -> Partners | None:
    """Return the partners as positions among the kept keys."""
    if partner is None or kept.all():
        return partner
    none = partner.dtype.type(-1)
    places = np.where(kept, np.cumsum(kept, dtype=np.int32) - np.int32(1), np.int32(-1)).astype(partner.dtype)
    return np.where(partner >= 0, places[partner], none)


def holders(plan: WritePlan, partition: str, keys: pa.Array) -> list[Found]:
    """Return the slices that hold some of the keys. Inserts look no key up, so several slices may hold one key."""
    slices = list(plan.slices.get(partition, ()))
    found: list[Found] = []
    with closing(_held_by_each(plan.spec, slices, keys)) as held:
        for old, each in zip(slices, held, strict=True):
            if each is not None and (mine := _met(each[0], len(keys)) | _stored(each, len(keys))).any():
                found.append((old, mine, each[0]))
    return found


def owners(plan: WritePlan, partition: str, keys: pa.Array) -> tuple[list[Found], _Marks]:
    """Return the slices of a partition that take some of the distinct keys, and a mark for each key that none takes.

    A key in several slices (inserts look no key up) goes into all of them, as in Hudi. A key that a log file deleted is still
    in the base file, where Hudi's simple index finds it: it stays in its group, unless another group holds its row.
    """
    # The smallest slices first, so that new keys fill these up.
    slices, count = sorted(plan.slices.get(partition, ()), key=_bytes), len(keys)
    with closing(_held_by_each(plan.spec, slices, keys)) as found:
        held = list(found)
    # Settled in three steps, each for the keys that the one before left: rows that are there, rows that only a base
    # file still has, and room in small files.
    partners = [each[0] if each is not None else None for each in held]
    marks = [_met(each, count) if each is not None else np.zeros(count, bool) for each in partners]
    fresh = ~np.logical_or.reduce(marks) if marks else np.ones(count, bool)
    # Keys that only a base file still has, deleted by its log files, stay in that group: no other group holds their rows.
    for mine, each in zip(marks, held, strict=True):
        if each is not None and fresh.any():
            back = fresh & _stored(each, count)
            mine |= back
            fresh &= ~back
    touched = {number for number, mine in enumerate(marks) if mine.any()}
    for number in _with_room(slices, touched, plan.spec):
        places = np.flatnonzero(fresh)
        if not len(places):
            break
        some = places[: _room(plan.spec, slices[number], partners[number], len(places))]
        marks[number][some], fresh[some] = True, False
    return [each for each in zip(slices, marks, partners, strict=True) if each[1].any()], fresh


def _bytes(slice_: FileSlice) -> int:
    return slice_.base.size if slice_.base else 0


def _with_room(slices: list[FileSlice], touched: set[int], spec: FileSpec) -> Iterator[int]:
    """Yield the slices that take new keys: those that are rewritten anyway, and small ones; the smallest first.

    Never into a log file, where Hudi's simple index would not find them.
    """
    if spec.config.merge_on_read:
        return
    for number, old in enumerate(slices):
        if old.size < (spec.target_file_bytes if number in touched else spec.small_file_bytes):
            yield number


def _room(spec: FileSpec, old: FileSlice, partners: Partners | None, count: int) -> int:
    """Return how many of ``count`` new rows fit until a slice has the target size, by the bytes per row it has now."""
    if count > _MEASURED_ROWS:
        with spec.store.open(old.path) as stream:
            footer = StoredParquet(spec.store, old.path, stream).metadata
        rows, size = footer.num_rows, old.size - footer.serialized_size
    elif partners is not None:
        rows, size = len(partners), old.size
    else:
        return count
    return int((spec.target_file_bytes - old.size) * rows / max(size, 1)) if rows else min(count, spec.row_group_rows)


def _stored(held: _Held, count: int) -> _Marks:
    """Mark the keys in the base file of a slice with log files, deleted or not."""
    return np.zeros(count, bool) if held[1] is None else _met(held[1], count)


def _held_by_each(spec: FileSpec, slices: Sequence[FileSlice], keys: pa.Array) -> Generator[_Held | None]:
    """Yield `_held` of each slice, in order. Reads ahead in threads, since most of the time is waiting for the store."""
    if spec.spans is not None:
        spec.spans.recall(spec.store, slices)
    sought = SoughtKeys(keys)
    opened = [each for each in slices if not _excluded(spec, each, sought)]
    with closing(_of_opened(spec, opened, sought)) as found:
        following = iter(opened)
        next_opened = next(following, None)
        for each in slices:
            if each is next_opened:
                yield next(found)
                next_opened = next(following, None)
            else:
                yield None


def _excluded(spec: FileSpec, old: FileSlice, keys: SoughtKeys) -> bool:
    """Return whether the known key ranges prove, without a read, that a slice has none of the keys."""
    return spec.spans is not None and not old.logs and spec.spans.exclude(old.path, keys)


def _of_opened(spec: FileSpec, slices: Sequence[FileSlice], keys: SoughtKeys) -> Generator[_Held | None]:
    if len(slices) == 1:
        yield _held(spec, slices[0], keys)
        return
    with ThreadPoolExecutor(_READ_AHEAD, thread_name_prefix="lakelatch-index") as pool:
        rest = iter(slices)
        ahead = deque(pool.submit(_held, spec, each, keys) for each in islice(rest, _READ_AHEAD))
        try:
            while ahead:
                found = ahead.popleft().result()
                ahead.extend(pool.submit(_held, spec, each, keys) for each in islice(rest, 1))
                yield found
        finally:
            for each in ahead:
                each.cancel()


def _held(spec: FileSpec, old: FileSlice, sought: SoughtKeys) -> _Held | None:
    """Return for each row of a slice the position of its key among these, or -1; None if it can hold none of them."""
    if not old.logs:
        with OldFile(spec, old.path) as file:
            return None if file.lacks_all(sought) else (file.partners(sought.keys), None)
    partners = np.asarray(pc.index_in(held_keys(spec, old), value_set=sought.keys).fill_null(-1))
    if old.base is None:
        return partners, None
    with OldFile(spec, old.base.path) as file:
        return partners, None if file.lacks_all(sought) else file.partners(sought.keys)


# One file group ---------------------------------------------------------------------------------------------------


def rewrite(
    plan: WritePlan, files: TaskFiles, old: FileSlice, incoming: Selection, partners: Partners | None = None
) -> None:
    """Write the successor of one slice, or a log file onto it in a merge-on-read table; a no-op if nothing changes.

    Args:
        partners: `OldFile.partners` of the incoming keys, where known.
    """
    if plan.delete:
        mine = _not_newer(plan, files, old, incoming)
        if not mine.any():
            return
        if not mine.all():  # a key may come twice, and the other row may be the one to delete by
            incoming, partners = incoming.where(mine), None
    # Readers merge a log file onto the slice, so the slice need not be read where Hudi's merge gives the same as our rule.
    appended = appends(plan.spec, old)
    blind = plan.combine is None and appended and (plan.delete or plan.spec.rule.as_hudi)
    if blind and (plan.delete or not _has_reinserted(plan.spec, old, incoming.keys)):
        if plan.delete:
            files.append(old, None, incoming.keys.to_pylist())
        else:
            files.append(old, incoming.slice(), inserted=_reinserted_keys(plan.spec, old, incoming.keys, partners))
        return
    ours = old.instant == plan.spec.instant
    simple = plan.combine is None and (plan.delete or plan.spec.rule.plain) and not plan.spec.streams
    if not simple or ours or old.logs or appended:
        # Rules that look at whole rows, log files, and our own earlier file: a row group alone does not tell the
        # result.
        path, known = _merged_whole(plan, files, old, incoming)
    else:
        path, known = _by_row_groups(plan, files, old, incoming, partners)
    if files.kept is not None and path and old.instant != plan.spec.instant:
        incoming.forget()
        files.kept[path] = partial(_effects, incoming, known, delete=plan.delete)


def _reinserted_keys(spec: FileSpec, old: FileSlice, keys: pa.Array, partners: Partners | None) -> pa.Array | None:
    """Keys in the base file that the slice's log files deleted; writing them is an insert. None if no fact needs them."""
    if not old.logs or not spec.wanted.keys:
        return None
    if partners is None:
        return keys.filter(pc.invert(pc.is_in(keys, value_set=held_keys(spec, old))))
    return keys.filter(pa.array(~_met(partners, len(keys))))


def _effects(incoming: Selection, known: _Marks, *, delete: bool) -> Effects:
    updated, added = incoming.where(known), incoming.where(~known)
    if delete:
        return Effects(incoming.slice(0, 0), incoming.slice(0, 0), updated.keys)
    return Effects(updated.slice(), added.slice(), pa.array([], pa.string()))


def _merged_whole(plan: WritePlan, files: TaskFiles, old: FileSlice, incoming: Selection) -> tuple[str, _Marks]:
    base, rows = read_slice(plan.spec, old), incoming.slice()
    # Against the slice as it was: after the merge every key is known.
    known = np.asarray(pc.is_in(incoming.keys, value_set=array_of_column(base, RECORD_KEY)))
    if plan.combine is not None:
        merged = plan.combine(base, rows)
    elif plan.delete:
        merged = remove(base, incoming.keys)
    else:
        merged = merge_by(plan.spec.rule, base, rows)
        if merged.inserts + merged.updates < incoming.num_rows:
            files.idle = True
    if not plan.delete and merged.changed and (change := log_change(plan.spec, old, base, merged)) is not None:
        files.append(old, change.rows, change.deleted, inserts=merged.inserts, inserted=merged.inserted_keys)
        return "", known
    return write_successor(files, old, merged), known


def _not_newer(plan: WritePlan, files: TaskFiles, old: FileSlice, keys: Selection) -> _Marks:
    """Mark the keys whose row is not newer than its delete, where deletes have ordering values; null is older than any."""
    ordering, all_of_them = plan.ordering, np.ones(keys.num_rows, bool)
    if not plan.ordered(keys.column_names):
        return all_of_them
    base = read_slice(plan.spec, old, columns=ordering)
    if not all(name in base.column_names for name in ordering):
        return all_of_them
    place = pc.index_in(keys.keys, value_set=array_of_column(base, RECORD_KEY))
    there = [plain(array_of_column(base, name)).take(place) for name in ordering]
    values = [keys.column(name) for name in ordering]
    unordered = np.logical_and.reduce([np.asarray(pc.is_null(each)) for each in there])  # or not there at all
    fits: _Marks = supersedes(values, there, np.arange(keys.num_rows), plan.spec.ties) | unordered
    files.idle |= not fits.all()
    return fits


def _by_row_groups(
    plan: WritePlan, files: TaskFiles, old: FileSlice, incoming: Selection, partners: Partners | None
) -> tuple[str, _Marks]:
    """Copy unchanged row groups and rewrite the others; return the successor's path, or "", and the keys the slice has."""
    with OldFile(plan.spec, old.path) as file:
        partner = file.partners(incoming.keys) if partners is None else partners
        give_back = _giver(old, incoming)
        give_back()
        known = _met(partner, incoming.num_rows)
        taken = partner >= 0
        added = incoming.where(~known) if not plan.delete and not known.all() else None
        # A row that is older than the stored one changes nothing, so its row group can be copied as it is.
        if not plan.delete and plan.spec.rule.ordering and taken.any():
            taken &= _newer(file, incoming, partner, plan.spec.rule)
        count, inserts = int(taken.sum()), added.num_rows if added else 0
        if not plan.delete and inserts + count < incoming.num_rows:
            files.idle = True
        if not (count or inserts):
            return "", known
        with files.successor(old) as writer:
            counted = {"updates": 0, "deletes": count} if plan.delete else {"updates": count, "deletes": 0}
            writer.counts(inserts=inserts, **counted, inserted=added.keys if added else pa.array([], pa.string()))
            schema: pa.Schema | None = None
            for number, (start, end) in enumerate(file.row_groups):
                mine = taken[start:end]
                # New rows are joined to the last row group if they fit, so that no small one follows it.
                joined = added is not None and end == len(taken) and end - start + inserts <= plan.spec.row_group_rows
                if not mine.any() and not joined and writer.copy(file, number, shrunk=plan.delete):
                    continue
                rows = _changed_rows(plan, file, number, mine, partner[start:end], incoming, give_back)
                schema = rows.schema
                give_back()
                writer.write(rows)
                del rows
            for piece in in_pieces(added, plan.spec.row_group_rows) if added else ():
                writer.write(piece if schema is None else widened(piece, joined_schema(schema, piece.schema)))
        return writer.path, known


def _giver(old: FileSlice, incoming: Selection) -> Callable[[], None]:
    """Return a function that gives unused memory of Arrow's pool back to the system, where few rows go into a large file.

    The pool would keep as much as two row groups. Allocating it again costs a fifth of the work on a row group: too much where
    many rows change, so the function is a no-op there.
    """
    if incoming.num_rows > _MEASURED_ROWS or old.size < _THREADS_BYTES:
        return lambda: None
    return pa.default_memory_pool().release_unused  # type: ignore[no-any-return]


def _changed_rows(
    plan: WritePlan,
    file: OldFile,
    row_group: int,
    mine: _Marks,
    partner: Partners,
    incoming: Selection,
    give_back: Callable[[], None],
) -> pa.Table:
    """Return a row group without the marked rows, or with their incoming rows; decode a few columns at a time."""
    if not mine.any():
        return file.rows(row_group)
    new = None if plan.delete else incoming.at(partner[mine]).slice()

    def change(some: pa.Table) -> pa.Table:
        changed = remove_where(some, mine).rows if new is None else with_rows(some, mine, new)
        give_back()
        return changed

    rows = file.rows(row_group, change=change)
    for later in new.schema if new is not None else ():
        if later.name not in rows.column_names:  # the file was written before the table had it
            before = pa.table({later.name: pa.nulls(rows.num_rows, later.type)})
            rows = rows.append_column(later, with_rows(before, mine, new).column(0))
    return rows


def _newer(file: OldFile, incoming: Selection, partner: Partners, rule: Rule) -> _Marks:
    """Mark the rows that their partner supersedes."""
    newer, values = np.zeros(len(partner), bool), [incoming.column(name) for name in rule.ordering]
    for number, (start, end) in enumerate(file.row_groups):
        met = partner[start:end] >= 0
        if met.any():
            old = [
                pa.nulls(end - start, value.type) if (there := file.column(name, number)) is None else there
                for name, value in zip(rule.ordering, values, strict=True)
            ]
            newer[start:end] = met & supersedes(values, old, partner[start:end], rule.ties)
    return newer


def _has_reinserted(spec: FileSpec, old: FileSlice, keys: pa.Array) -> bool:
    """Return whether a log file deleted one of the rows: appended again, it might lose against its older self."""
    if not WritePlan(spec).ordering:
        return False
    back = cleared_keys(spec.store, old) & set(keys.to_pylist())
    _refuse_in_one(spec, old, back, "deleted and written again")
    return bool(back)


def _refuse_in_one(spec: FileSpec, old: FileSlice, keys: Collection[str], what: str) -> None:
    """Raise `InputError` if these rows need a base file and this transaction already has a log file on the slice."""
    if keys and any(log.instant == spec.instant for log in old.logs):
        raise InputError(
            f"{len(keys)} rows ({min(keys)!r}) of {spec.config.name} are {what} in one transaction, and the table is "
            f"merge-on-read and ordered by {', '.join(WritePlan(spec).ordering)}; nothing was written. Write them in a "
            "transaction of their own",
            keys=sorted(keys)[:100],
        )


@dataclass(frozen=True)
class LogChange:
    """The content of a log file: rows that are new or changed, and keys that are deleted."""

    rows: pa.Table | None
    deleted: list[str]


def log_change(spec: FileSpec, old: FileSlice, base: pa.Table, merged: Merged) -> LogChange | None:
    """Return the merge of a slice's rows (``base``) as a log file onto it; None if it needs a base file.

    A log file cannot give a row an older ordering value, nor bring a deleted row back: readers keep the newer version.
    """
    if not appends(spec, old):
        return None
    # A merge leaves the commit time null in the rows that it made or changed.
    rows = merged.rows.filter(pc.is_null(merged.rows.column(COMMIT_TIME)))
    if rows.num_rows and (ordering := WritePlan(spec).ordering):
        if _has_reinserted(spec, old, array_of_column(rows, RECORD_KEY)):
            return None
        if older := _older(base, rows, ordering):
            _refuse_in_one(spec, old, older, f"given an older {', '.join(ordering)} after a change")
            return None
    left = pc.is_in(base.column(RECORD_KEY), value_set=array_of_column(merged.rows, RECORD_KEY))
    gone = base.column(RECORD_KEY).filter(pc.invert(left)).to_pylist()
    return LogChange(rows if rows.num_rows else None, gone)


def _older(base: pa.Table, rows: pa.Table, ordering: Sequence[str]) -> set[str]:
    """Keys of rows with a smaller ordering value than the stored row."""
    place = pc.index_in(array_of_column(rows, RECORD_KEY), value_set=array_of_column(base, RECORD_KEY))
    before = [plain(array_of_column(base, name)).take(place) for name in ordering]
    now = [array_of_column(rows, name) for name in ordering]
    newer = supersedes(now, before, np.arange(rows.num_rows), "last")
    return set(array_of_column(rows, RECORD_KEY).filter(pa.array(~newer)).to_pylist())


def appends(spec: FileSpec, old: FileSlice) -> bool:
    """Return whether changes of a slice go into a log file, rather than into a successor of this transaction's own file."""
    return spec.config.merge_on_read and old.instant != spec.instant


def write_successor(files: TaskFiles, old: FileSlice, merged: Merged, file_id: str = "") -> str:
    """Write the merge of a slice, by default into its own group; return its path, or "" if nothing changed.

    The successor of a slice that this transaction staged itself goes into a new group.
    """
    if not merged.changed:
        return ""
    with files.successor(old, file_id) as writer:
        writer.counts(
            inserts=merged.inserts, updates=merged.updates, deletes=merged.deletes, inserted=merged.inserted_keys
        )
        writer.write(merged.rows)
    return writer.path
