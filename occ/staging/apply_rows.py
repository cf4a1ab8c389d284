"""Puts new rows, or the keys of rows to delete, into the file groups where they belong. Arrow and storage, no Spark.

The same code runs in Spark's workers, each for the partitions or buckets that were shuffled to it, and on the driver
for batches so small that a Spark job would cost more than the work.

Memory: the incoming rows of the task, one base file for each thread, and the keys of some more while they are looked up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...errors import CorruptTableError, InputError
from ...hudi.files import BaseName, FileGroupId, LogName, base_file_name, bucket_of, join, log_file_name, note_of
from ...hudi.merge import (
    Effects,
    Merged,
    cleared_keys,
    contributions,
    deduplicate,
    holds,
    merge_by,
    plain,
    remove,
    stored_texts,
)
from ...hudi.table import (
    META_COLUMNS,
    RECORD_KEY,
    all_outside,
    bucket_ids,
    key_parts,
    partition_paths,
    record_keys,
)
from ...hudi.timeline import FileSlice, WriteStat
from ...progress import Reporter
from ...streams import slice_rows
from ..liveness import Io, Marker
from .base_file import BaseFileWriter
from .crew import Crew
from .file_spec import FileSpec, token
from .log_file import LogFileWriter
from .meta_columns import COMMIT_TIME, FILE_NAME, PARTITION_PATH, RowNumbers
from .ordering_values import refuse_unordered

PARTITION_COLUMN = "_lakelatch_partition"  # given where rows have no partition columns (deletes by key)
GROUP_COLUMN = "_lakelatch_group"  # given where the index was a join: a file id, or NEW and a slot
NEW = "new-"
# New keys join an existing file of at most this size, rather than start one of their own: a small file is rewritten
# in a moment, and thousands of tiny files would make every read slow.
_SMALL_FILE_BYTES = 4 << 20
_WAITING_ROW_GROUPS_MAX = 8  # of all open files of a task together
_READ_AHEAD = 16  # files whose keys are read at a time; on an object store each takes some round trips
_THREADS_BYTES = 4 << 20  # less is done sooner than threads are begun
_TASKS_MAX = 1_000_000  # later writes and rounds of a rebase number their rows apart from those of the first one


# What becomes of the rows of a slice (None: of no slice) and incoming ones that may have keys of them.
Combine = Callable[[pa.Table | None, pa.Table], Merged]


@dataclass(frozen=True)
class Plan:
    """What every task of one write needs to know: the files' common facts, and the slices as of the snapshot.

    ``combine`` stands in the place of the table's merge; such rows need no ordering field. ``in_order``: rows come in the
    order in which they arrived.
    """

    spec: FileSpec
    slices: Mapping[str, tuple[FileSlice, ...]] = field(default_factory=dict)
    delete: bool = False
    operation: str = "upsert"
    combine: Combine | None = None
    in_order: bool = True

    @property
    def ordering(self) -> str | None:
        """The column that decides between an old row and an incoming one."""
        return self.spec.config.newer_by

    def one_of_each(self, rows: pa.Table) -> pa.Table:
        """What a batch of rows has to say of each key. Raises `InputError` where a key comes twice and nothing decides."""
        rule, ordering = self.spec.rule, self.spec.config.ordering_field
        if self.combine is not None:
            return deduplicate(rows, ordering=ordering if ordering in rows.column_names else None)
        if rule.plain:
            return deduplicate(rows, ordering=ordering, ties=rule.ties)
        return contributions(rule, rows, in_order=self.in_order)

    def new(self, incoming: pa.Table) -> pa.Table:
        """What the table gets of rows whose keys it does not have."""
        if self.combine is not None:
            return self.combine(None, incoming).rows
        rule = self.spec.rule
        return incoming if rule.plain else rule.one_of_each(incoming, RECORD_KEY)


def slices_by_partition(slices: list[FileSlice]) -> dict[str, tuple[FileSlice, ...]]:
    """File slices in the form that `Plan` wants."""
    found: dict[str, list[FileSlice]] = {}
    for each in slices:
        found.setdefault(each.partition, []).append(each)
    return {partition: tuple(group) for partition, group in found.items()}


class Files:
    """The files of one task. Publishing waits for the disk, so it runs beside the next file's work.

    Args:
        threads: how many file groups are worked on at a time, where that is worth a thread.
        report: is told the rows of each file that stands.

    Attributes:
        looked: where `apply` looked keys up: file groups, or partitions as groups without file id.
        idle: some incoming row changed nothing, because the row that was there is newer.
        kept: by path of a file, what was done in it; kept when it is a dict, for a rebase in the same process.
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
        self.kept: dict[str, Effects] | None = None
        made_before = spec.write + round  # files of the same group, by this transaction
        self._token = token(task, made_before)
        self.hashes: dict[str, list[npt.NDArray[np.uint64]]] = {}
        self._keep_hashes = keep_hashes
        self._numbers = RowNumbers(task + made_before * _TASKS_MAX)
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="lakelatch-publish")
        self._markers: dict[str, Marker] = {}  # of files that are announced and not begun, by path
        self._open: list[BaseFileWriter] = []
        self._publishing: list[Future[WriteStat]] = []

    def crew(self, slices: Iterable[FileSlice], more_bytes: int = 0) -> Crew:
        """Who works on these slices, and so many bytes of new rows; each piece of work has file groups of its own."""
        return Crew(self._threads if more_bytes + sum(map(_bytes, slices)) >= _THREADS_BYTES else 1)

    def expect(self, slices: Iterable[FileSlice] = (), new: Iterable[FileGroupId] = ()) -> None:
        """Announce the files that these slices and new groups are about to get, in one request to the server for markers.

        Without one there is nothing to save: each file is announced when it is begun. A marker without a file does no harm.
        """
        spec, files = self.spec, list[tuple[str, Io]]()
        if spec.desk is None:
            return
        for old in slices:
            if appends(spec, old):
                name = log_file_name(LogName(old.file_id, spec.instant, spec.write + 1, self._token))
                files.append((join(old.partition, name), "APPEND"))
            elif old.instant != spec.instant:  # else its successor has a name that is not known yet
                files.append((self._base_path(old.partition, old.file_id), "MERGE"))
        files += [(self._base_path(group.partition, group.file_id), "CREATE") for group in new]
        self._markers |= {marker.path: marker for marker in spec.announce(files)}

    def _base_path(self, partition: str, file_id: str) -> str:
        return join(partition, base_file_name(BaseName(file_id, self._token, self.spec.instant)))

    def begin(
        self, partition: str, file_id: str, replaces: FileSlice | None = None, *, begun: str | None = None
    ) -> BaseFileWriter:
        """Open a file; `end` or the end of the block closes it. ``begun`` as in `BaseFileWriter`."""
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
            begun=begun,
            marker=self._markers.get(self._base_path(partition, file_id)) if self._markers else None,
        )
        writer.__enter__()
        self._open.append(writer)
        return writer

    def end(self, writer: BaseFileWriter) -> None:
        """All rows are in: publish it meanwhile."""
        writer.finish()
        if writer.key_hashes:
            self.hashes.setdefault(writer.partition, []).extend(writer.key_hashes)
        self._open.remove(writer)
        self._publishing.append(self._pool.submit(self._publish, writer))

    def append(
        self,
        onto: FileSlice,
        rows: pa.Table | None,
        deletes: Sequence[str] = (),
        *,
        inserts: int = 0,
        note: Mapping[str, str] | None = None,
    ) -> None:
        """A log file onto a slice, of rows and of keys to delete; published meanwhile. Arguments as of `LogFileWriter.write`."""
        writer = LogFileWriter(self.spec, onto, token=self._token, numbers=self._numbers, announced=self._markers.get)
        if rows is not None:
            writer.write(rows, inserts=inserts, note=note)
        if deletes:
            writer.delete(deletes)
        self._publishing.append(self._pool.submit(self._publish, writer))

    def _publish(self, writer: BaseFileWriter | LogFileWriter) -> WriteStat:
        try:
            stat = writer.publish()
        finally:
            writer.abandon()
        self._report.add(stat.num_writes)
        return stat

    def limit_memory(self) -> None:
        """With very many open files the fullest ones are written early, in smaller row groups."""
        waiting = sum(writer.waiting_rows for writer in self._open)
        for writer in sorted(self._open, key=lambda w: -w.waiting_rows):
            if waiting <= _WAITING_ROW_GROUPS_MAX * self.spec.row_group_rows:
                return
            waiting -= writer.waiting_rows
            writer.flush()

    def stats(self) -> list[WriteStat]:
        """Ends and publishes everything; raises the first error."""
        for writer in list(self._open):
            self.end(writer)
        return sorted((future.result() for future in self._publishing), key=lambda stat: stat.path)

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: object) -> None:
        for writer in self._open:
            writer.abandon()
        self._pool.shutdown(wait=True, cancel_futures=True)


class NewGroups:
    """Rows of one partition into new file groups, the next begun when one is large enough."""

    def __init__(self, files: Files, partition: str, *, slot: int = 0) -> None:
        self._files, self._partition, self._slot = files, partition, slot
        self._number = 0
        self._writer: BaseFileWriter | None = None

    def write(self, rows: pa.Table) -> None:
        """Add rows, in pieces of a row group so that the size is looked at in between."""
        size = self._files.spec.row_group_rows
        for start in range(0, rows.num_rows, size):
            if self._writer is not None and self._writer.bytes_written >= self._files.spec.file_bytes_max:
                self.end()
            if self._writer is None:
                # Slots keep file ids of one (task, partition) apart; a thousand files of one task in between suffice.
                number = self._slot * 1000 + self._number
                file_id = self._files.spec.group_id(self._partition, self._files.task, number)
                self._writer = self._files.begin(self._partition, file_id)
                self._number += 1
            self._writer.write(rows.slice(start, size))

    def end(self) -> None:
        """No more rows for the present file."""
        if self._writer is not None:
            self._files.end(self._writer)
            self._writer = None


def apply(plan: Plan, rows: pa.Table, files: Files) -> None:
    """Every file group that the rows touch has its successor when this returns (published by ``files.stats()``)."""
    if plan.combine is None:
        refuse_unordered(rows, plan.spec.config, rows.column_names if plan.delete else None)
    with files.crew(chain.from_iterable(plan.slices.values()), rows.get_total_buffer_size()) as crew:
        pieces: Iterator[_Piece] = (piece for unit in placed(plan, rows) for piece in _pieces(plan, files, *unit))
        if plan.spec.desk is not None:  # all keys are looked up first, so that one request announces all files
            known = list(pieces)
            files.expect(
                (old for each in known for old in each.slices), (group for each in known for group in each.new)
            )
            pieces = iter(known)
        for each in pieces:
            crew.do(each.call, plan, files, *each.args)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Work on file groups of its own: the slices that it changes, and the new groups that it begins."""

    call: Callable[..., None]
    args: tuple[Any, ...]
    slices: tuple[FileSlice, ...] = ()
    new: tuple[FileGroupId, ...] = ()


def _pieces(plan: Plan, files: Files, partition: str, place: int | str | None, unit: pa.Table) -> Iterator[_Piece]:
    """The pieces of one unit of work."""
    spec, there = plan.spec, plan.slices.get(partition, ())
    incoming = unit if plan.delete else plan.one_of_each(unit)

    def begun(file_id: str) -> tuple[FileGroupId, ...]:
        return () if plan.delete else (FileGroupId(partition, file_id),)

    if isinstance(place, str):
        named = tuple(old for old in there if old.file_id == place)
        slot = int(place[len(NEW) :]) if place.startswith(NEW) else None
        new = () if slot is None else begun(spec.group_id(partition, files.task, slot * 1000))
        yield _Piece(_into_named, (partition, place, incoming), named, new)
    elif place is not None:
        filled = tuple(old for old in there if bucket_of(old.file_id) == place)
        new = () if filled else begun(spec.group_id(partition, 0, place, bucket=place))
        yield _Piece(_into_bucket, (partition, place, incoming), filled, new)
    elif plan.delete:
        # Simple index inside one partition: look every incoming key up in the key columns of its slices.
        files.looked.add(FileGroupId(partition, ""))
        for old, mine in holders(plan, partition, incoming):
            yield _Piece(rewrite, (old, incoming.filter(pa.array(mine))), (old,))
    else:
        files.looked.add(FileGroupId(partition, ""))
        found, fresh = owners(plan, partition, incoming)
        if fresh.any():
            rows = incoming if fresh.all() else incoming.filter(pa.array(fresh))
            yield _Piece(_into_new, (partition, rows), (), begun(spec.group_id(partition, files.task)))
        for old, mine in found:
            yield _Piece(rewrite, (old, incoming if mine.all() else incoming.filter(pa.array(mine))), (old,))


def placed(plan: Plan, rows: pa.Table) -> Iterator[tuple[str, int | str | None, pa.Table]]:
    """The rows of each unit of work: partition, and the bucket, or the file id or slot where the index was a join."""
    if not rows.num_rows:
        return
    fields = plan.spec.config.record_key_fields
    parts = key_parts(rows, fields)
    keyed = _replace_column(rows, RECORD_KEY, parts[0] if len(parts) == 1 else record_keys(rows, fields))
    paths = _paths(plan, keyed).dictionary_encode()
    if plan.spec.bucket_count is not None:
        places: Any = bucket_ids(parts, plan.spec.bucket_count)
        names: list[Any] | None = None
    elif GROUP_COLUMN in keyed.column_names:
        groups = keyed.column(GROUP_COLUMN).combine_chunks().dictionary_encode()
        places, names = np.asarray(groups.indices), groups.dictionary.to_pylist()
    else:
        places, names = np.zeros(rows.num_rows, np.int32), None
    for name in (PARTITION_COLUMN, GROUP_COLUMN):
        if name in keyed.column_names:
            keyed = keyed.drop_columns([name])
    partitions = paths.dictionary.to_pylist()
    for path, place, unit in _units(keyed, np.asarray(paths.indices), places):
        yield partitions[path], names[place] if names else place if plan.spec.bucket_count is not None else None, unit


def _paths(plan: Plan, rows: pa.Table) -> pa.Array:
    if PARTITION_COLUMN in rows.column_names:
        return rows.column(PARTITION_COLUMN).combine_chunks()
    return partition_paths(rows, plan.spec.config)


def _units(rows: pa.Table, paths: Any, places: Any) -> Iterator[tuple[int, int, pa.Table]]:
    """The rows of each (partition, place), in their order."""
    if (paths == paths[0]).all() and (places == places[0]).all():
        yield int(paths[0]), int(places[0]), rows
        return
    order = np.lexsort((places, paths))
    paths, places = paths[order], places[order]
    ends = np.flatnonzero((paths[1:] != paths[:-1]) | (places[1:] != places[:-1])) + 1
    whole = rows.take(pa.array(order))
    start = 0
    for end in [*ends.tolist(), len(order)]:
        yield int(paths[start]), int(places[start]), whole.slice(start, end - start).combine_chunks()
        start = end


_Marks = npt.NDArray[np.bool_]


# One kind of index each -------------------------------------------------------------------------------------------


def _into_bucket(plan: Plan, files: Files, partition: str, bucket: int, incoming: pa.Table) -> None:
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
        # Derived from nothing but the transaction and the bucket: every run of a task meets the same name.
        writer = files.begin(partition, plan.spec.group_id(partition, 0, bucket, bucket=bucket))
        writer.write(new)
        files.end(writer)


def _into_named(plan: Plan, files: Files, partition: str, name: str, incoming: pa.Table) -> None:
    files.looked.add(FileGroupId(partition, ""))
    if not name.startswith(NEW):
        found = next(s for s in plan.slices[partition] if s.file_id == name)
        rewrite(plan, files, found, incoming)
    elif not plan.delete:
        new = NewGroups(files, partition, slot=int(name[len(NEW) :]))
        new.write(plan.new(incoming))
        new.end()


def _into_new(plan: Plan, files: Files, partition: str, incoming: pa.Table) -> None:
    new = NewGroups(files, partition)
    new.write(plan.new(incoming))
    new.end()


def holders(plan: Plan, partition: str, keys: pa.Table) -> list[tuple[FileSlice, npt.NDArray[np.bool_]]]:
    """The slices that hold some of the keys, each with a mark for those. An insert looks no key up, so several may hold one."""
    slices, wanted = list(plan.slices.get(partition, ())), _array(keys, RECORD_KEY)
    found = []
    with closing(_held_by_each(plan.spec, slices, wanted)) as held_by_each:
        for old, held in zip(slices, held_by_each, strict=True):
            mine = np.asarray(pc.is_in(wanted, value_set=held)) if held is not None else np.zeros(len(wanted), bool)
            if mine.any():
                found.append((old, mine))
    return found


def owners(plan: Plan, partition: str, incoming: pa.Table) -> tuple[list[tuple[FileSlice, _Marks]], _Marks]:
    """The slices of a partition that take some of the rows to write, each with a mark for those; a mark for rows of none.

    A row whose key stands in several slices, because an insert looked no key up, goes into all of them, as in Hudi.
    """
    slices = sorted(plan.slices.get(partition, ()), key=_bytes)
    keys = _array(incoming, RECORD_KEY)
    marks = []
    with closing(_held_by_each(plan.spec, slices, keys)) as found:
        for held in found:
            marks.append(np.zeros(len(keys), bool) if held is None else np.array(pc.is_in(keys, value_set=held)))
    fresh = ~np.logical_or.reduce(marks) if marks else np.ones(len(keys), bool)
    if fresh.any():
        target = _packing_target(slices, {number for number, mine in enumerate(marks) if mine.any()}, plan.spec)
        if target is not None:
            marks[target] |= fresh
            fresh = np.zeros(len(keys), bool)
    return [(old, mine) for old, mine in zip(slices, marks, strict=True) if mine.any()], fresh


def _bytes(slice_: FileSlice) -> int:
    return slice_.base.size if slice_.base else 0


def _packing_target(slices: list[FileSlice], touched: set[int], spec: FileSpec) -> int | None:
    """Where new keys go without a file of their own: a slice that is rewritten anyway, or a small one.

    Never into a log file, where Hudi's simple index would not find them.
    """
    if spec.config.merge_on_read:
        return None
    for number, old in enumerate(slices):  # smallest first
        limit = spec.file_bytes_max // 2 if number in touched else _SMALL_FILE_BYTES
        if old.size < limit:
            return number
    return None


def _held_by_each(spec: FileSpec, slices: Sequence[FileSlice], keys: pa.Array) -> Generator[pa.Array | None]:
    """What `_held_keys` tells of each slice, in order; the next ones are read meanwhile, since most wait for the store."""
    if len(slices) == 1:
        yield _held_keys(spec, slices[0], keys)
        return
    with ThreadPoolExecutor(_READ_AHEAD, thread_name_prefix="lakelatch-index") as pool:
        rest = iter(slices)
        ahead = deque(pool.submit(_held_keys, spec, each, keys) for each in islice(rest, _READ_AHEAD))
        try:
            while ahead:
                held = ahead.popleft().result()
                ahead.extend(pool.submit(_held_keys, spec, each, keys) for each in islice(rest, 1))
                yield held
        finally:
            for each in ahead:
                each.cancel()


def _held_keys(spec: FileSpec, old: FileSlice, keys: pa.Array) -> pa.Array | None:
    """The key column of a slice, or None when its footer says that none of ``keys`` can be in it."""
    if old.logs:
        # A key that a log file deletes is in the base file still, and Hudi's simple index looks there: it stays in its group.
        merged = _array(read_slice(spec, old, columns=()), RECORD_KEY)
        return merged if old.base is None else pa.concat_arrays([merged, _keys_of(spec, old.base.path)])
    with spec.store.open(old.path) as stream:
        file = pq.ParquetFile(stream)
        notes = file.metadata.metadata or {}
        low, high = notes.get(b"hoodie_min_record_key"), notes.get(b"hoodie_max_record_key")
        if low is not None and high is not None and all_outside(keys, low, high):
            return None
        return _array(file.read(columns=[RECORD_KEY], use_threads=False), RECORD_KEY)


def _keys_of(spec: FileSpec, path: str) -> pa.Array:
    with spec.store.open(path) as stream:
        return _array(pq.ParquetFile(stream).read(columns=[RECORD_KEY], use_threads=False), RECORD_KEY)


# One file group ---------------------------------------------------------------------------------------------------


def rewrite(plan: Plan, files: Files, old: FileSlice, incoming: pa.Table) -> None:
    """The successor of one slice, unless nothing in it changes; of a merge-on-read table a log file onto it."""
    if plan.delete and not (incoming := _not_newer(plan, files, old, incoming)).num_rows:
        return
    blind = plan.combine is None and appends(plan.spec, old) and (plan.delete or plan.spec.rule.as_hudi)
    if blind and (plan.delete or not _comes_back(plan.spec, old, incoming)):
        keys = _array(incoming, RECORD_KEY)
        files.append(old, None, keys.to_pylist()) if plan.delete else files.append(old, incoming)
        return
    base = read_slice(plan.spec, old)
    if plan.combine is not None:
        merged = plan.combine(base, incoming)
    elif plan.delete:
        merged = remove(base, _array(incoming, RECORD_KEY))
    else:
        merged = merge_by(plan.spec.rule, base, incoming)
        if merged.inserts + merged.updates < incoming.num_rows:
            files.idle = True
    if not plan.delete and merged.changed and (change := log_change(plan.spec, old, base, merged)) is not None:
        files.append(old, change.rows, change.deleted, inserts=merged.inserts)
        return
    path = write_successor(files, old, merged)
    if files.kept is not None and path and old.instant != plan.spec.instant:
        files.kept[path] = Effects.of(base, incoming, delete=plan.delete)


def _not_newer(plan: Plan, files: Files, old: FileSlice, keys: pa.Table) -> pa.Table:
    """The keys whose row is not newer than its delete, where deletes have ordering values; null is older than any."""
    ordering = plan.ordering
    if ordering is None or ordering not in keys.column_names:
        return keys
    base = read_slice(plan.spec, old, columns=(ordering,))
    if ordering not in base.column_names:
        return keys
    place = pc.index_in(_array(keys, RECORD_KEY), value_set=_array(base, RECORD_KEY))
    there, value = plain(_array(base, ordering)).take(place), _array(keys, ordering)
    less = pc.less if plan.spec.ties == "last" else pc.less_equal
    newer = pc.and_(pc.is_valid(there), pc.fill_null(less(value, there), fill_value=True))
    files.idle |= bool(pc.any(newer, min_count=0).as_py())
    return keys.filter(pc.invert(newer))


def _comes_back(spec: FileSpec, old: FileSlice, incoming: pa.Table) -> bool:
    """Whether one of the rows was deleted by a log file, so that appended it might lose against what was deleted."""
    if Plan(spec).ordering is None:
        return False
    back = cleared_keys(spec.store, old) & set(_array(incoming, RECORD_KEY).to_pylist())
    _refuse_in_one(spec, old, back, "deleted and written again")
    return bool(back)


def _refuse_in_one(spec: FileSpec, old: FileSlice, keys: Collection[str], what: str) -> None:
    """Raise `InputError` when these rows want a base file, and this transaction has a log file on the slice already."""
    if keys and any(log.instant == spec.instant for log in old.logs):
        raise InputError(
            f"{len(keys)} rows ({min(keys)!r}) of {spec.config.name} are {what} in one transaction, and the table is "
            f"merge-on-read and ordered by {Plan(spec).ordering}; nothing was written. Write them in a transaction of their own",
            keys=sorted(keys)[:100],
        )


@dataclass(frozen=True)
class LogChange:
    """What a log file says of a slice: rows that are new or have new values, and keys that are deleted."""

    rows: pa.Table | None
    deleted: list[str]


def log_change(spec: FileSpec, old: FileSlice, base: pa.Table, merged: Merged) -> LogChange | None:
    """What was made of a slice's rows (``base``) by whoever has read them, as a log file onto it; None: it wants a base file.

    A log file cannot say that a row has an older ordering value than before, nor that a deleted one is there again: readers
    would take the newer one.
    """
    if not appends(spec, old):
        return None
    rows = merged.rows.filter(pc.is_null(merged.rows.column(COMMIT_TIME)))
    if rows.num_rows and ((ordering := Plan(spec).ordering) is not None):
        if _comes_back(spec, old, rows):
            return None
        if older := _older(base, rows, ordering):
            _refuse_in_one(spec, old, older, f"given an older {ordering} after a change")
            return None
    left = pc.is_in(base.column(RECORD_KEY), value_set=_array(merged.rows, RECORD_KEY))
    gone = base.column(RECORD_KEY).filter(pc.invert(left)).to_pylist()
    return LogChange(rows if rows.num_rows else None, gone)


def _older(base: pa.Table, rows: pa.Table, ordering: str) -> set[str]:
    """Keys of rows that have a smaller ordering value than the row that is there."""
    place = pc.index_in(_array(rows, RECORD_KEY), value_set=_array(base, RECORD_KEY))
    before = plain(_array(base, ordering)).take(place)
    less = pc.fill_null(pc.less(plain(_array(rows, ordering)), before), fill_value=False)
    return set(_array(rows, RECORD_KEY).filter(less).to_pylist())


def appends(spec: FileSpec, old: FileSlice) -> bool:
    """Whether changes of a slice go into a log file, and not into a base file after one that this transaction began."""
    return spec.config.merge_on_read and old.instant != spec.instant


def write_successor(files: Files, old: FileSlice, merged: Merged, file_id: str = "") -> str:
    """Write what a merge made of a slice, by default into its own group; its path, or "" when it made no difference.

    A slice that this transaction has staged itself has its successor in a new group.
    """
    if not merged.changed:
        return ""
    begun = files.spec.begun[old.group] if old.instant == files.spec.instant else None
    if begun is not None:
        file_id = files.spec.successor_id(old.group)
    moves = file_id not in ("", old.file_id)
    writer = files.begin(old.partition, file_id or old.file_id, replaces=None if moves else old, begun=begun)
    writer.counts(inserts=merged.inserts, updates=merged.updates, deletes=merged.deletes, inserted=merged.inserted_keys)
    writer.write(merged.rows)
    files.end(writer)
    return writer.path


def read_slice(spec: FileSpec, old: FileSlice | str, *, columns: Collection[str] | None = None) -> pa.Table:
    """All rows of a slice (or base file) with the meta columns that stay with a row, in the types of the table.

    Texts that the file stores with a dictionary are in one. ``columns`` of slices with log files: those data columns only.
    """
    if isinstance(old, FileSlice) and old.logs:
        rows = slice_rows(spec.store, spec.config, spec.streams, old, columns=columns, strict=True)
        return _in_types(rows.drop_columns([PARTITION_PATH, FILE_NAME]), spec)
    with spec.store.open(old if isinstance(old, str) else old.path) as stream:
        metadata = pq.read_metadata(stream)
        texts = stored_texts(metadata, but=(RECORD_KEY, *spec.config.record_key_fields))
        file = pq.ParquetFile(stream, metadata=metadata, read_dictionary=texts)
        # The successor has a file name of its own and the same partition: the longest texts of all, and never needed.
        same = note_of(metadata).get("key")
        same = same if same in spec.config.record_key_fields else None
        rows = file.read(
            [n for n in file.schema_arrow.names if n not in (PARTITION_PATH, FILE_NAME, same)], use_threads=False
        )
    if same:
        rows = rows.append_column(same, rows.column(RECORD_KEY))
    return _in_types(rows, spec)


def _in_types(rows: pa.Table, spec: FileSpec) -> pa.Table:
    wanted = {f.name: f.type for f in spec.schema} | dict.fromkeys(META_COLUMNS, pa.string())
    for place, column in enumerate(rows.schema):
        kind = wanted.get(column.name, column.type)
        if not holds(column.type, kind):
            rows = rows.set_column(place, pa.field(column.name, kind), rows.column(place).cast(kind))
    return rows


def _array(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name).combine_chunks()
    return column if isinstance(column, pa.Array) else pa.concat_arrays(column.chunks)


def _replace_column(rows: pa.Table, name: str, values: pa.Array) -> pa.Table:
    if name in rows.column_names:
        rows = rows.drop_columns([name])
    return rows.append_column(name, values)
