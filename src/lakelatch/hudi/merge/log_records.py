"""The rows of a file slice with log files: the base file's rows after the changes of its log files.

    the changes of all log files, in the order of their commits' T  ->  the newest change of each key
    these onto the base file                                         ->  the rows

The newer of two changes has the greater ordering value, and on a tie comes later; without an ordering field the later one is
newer. Of several ordering fields the first that differs decides. A delete without an ordering value removes all earlier
versions. Rows keep the position of those that they replace, unless no order is asked for; new keys are at the end. A log
compaction's result replaces the log files that it names.

A partial update (Spark's MERGE INTO writes some) sets its columns in the existing row, and the ordering value with them. It
is refused where readers fail or disagree: after a delete, without a row, or older than part of what it meets.

Source: what Hudi 1.2.0 and hudi-rs 0.5.0 were measured to read; tests compare them row by row.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import CorruptTableError, StorageError, UnsupportedTableError
from ...storage import Store
from ..files import DELETE, NATURAL, STREAM_NOTE, BaseFile, Block, LogFile, StoredParquet, Torn, read_blocks
from ..table import META_COLUMNS, PROPERTIES_PATH, RECORD_KEY, TableConfig
from ..timeline import FileSlice
from .rows import merge, ordering_of, plain, remove_where, widened

_IS_DELETED, _OPERATION = "_hoodie_is_deleted", "_hoodie_operation"
_WHOLE_BYTES = 4 << 20
_log = logging.getLogger("lakelatch.log_merge")


@dataclass(frozen=True, slots=True)
class _Change:
    """The newest change of a key: a row of the log files by its index, or a delete (None). ``ordering`` may be `NATURAL`.

    Attributes:
        updates: partial updates since that row; ``ordering`` is the last one's.
        whole: False if no log file has the row before its first update: ``place`` is that update, the row is in the base file.
        first: ordering value of the row.
    """

    ordering: Any
    place: int | None
    updates: tuple[tuple[Any, int], ...] = ()
    whole: bool = True
    first: Any = None


def merged_rows(
    store: Store,
    config: TableConfig,
    group: FileSlice,
    *,
    columns: Collection[str] | None = None,
    meta: bool = True,
    strict: bool = False,
    in_place: bool = True,
) -> pa.Table:
    """Return the rows of the slice, with the data columns in ``columns`` that it has (None: all).

    Args:
        meta: with all meta columns; otherwise with the record key, and others that ``columns`` names.
        in_place: with each changed row where it was; otherwise behind the others, for readers who ask for no order.
        strict: raise for a torn block, which readers skip: rewriting the rows would make the loss final.

    Raises:
        UnsupportedTableError: the merge rules, or the kind of a block, are unknown here.
        CorruptTableError: a block cannot be decoded.
    """
    if config.for_streams:
        raise UnsupportedTableError(
            f"Table {config.name} has streams, whose order is in its commit log, and that was not read: open the table as a "
            "whole with this library; without its log, read it after a compaction",
            table=config.name,
            feature="streams",
        )
    ordering = ordering_of(config)
    blocks = _counting(store, group.logs, strict=strict)
    needed = needed_columns(columns, ordering, meta=meta)
    # Deletes name record keys, and partial updates may lack other columns.
    plain_rows = group.base is not None and not any(block.kind == DELETE or block.partial for block in blocks)
    key = read_key(config.record_key_fields, columns, meta=meta) if plain_rows else RECORD_KEY
    try:
        rows = _merged(store, config, group, blocks, ordering, needed, key, in_place=in_place)
    except _OtherKeys:
        rows = _merged(store, config, group, blocks, ordering, needed, RECORD_KEY, in_place=in_place)
    if columns is None:
        return rows
    return rows.drop_columns([name for name in ordering if name not in columns and name in rows.column_names])


def _merged(
    store: Store,
    config: TableConfig,
    group: FileSlice,
    blocks: Iterable[Block],
    ordering: Sequence[str],
    needed: Collection[str] | None,
    key: str,
    *,
    in_place: bool,
) -> pa.Table:
    if needed is not None and key != RECORD_KEY:
        needed = {*needed} - {RECORD_KEY}
    base = _base(store, group, needed)
    changes = _Changes(ordering, needed, key)
    changes.refuse_other_keys(base)
    with _fitting(group.logs):
        changes.take(blocks)
        if ordering and (names := changes.columns_with(base)):
            config.refuse_unordered(names)
        return changes.onto(base, in_place=in_place)


def read_key(fields: Sequence[str], columns: Collection[str] | None, *, meta: bool) -> str:
    """Return the column by which rows are told apart when these are read: the only field of the record key, if it is among
    them. Decoding the record key as well takes as long as several columns. Arguments as for `merged_rows`.
    """
    if meta or columns is None or len(fields) != 1 or fields[0] not in columns or RECORD_KEY in columns:
        return RECORD_KEY
    return fields[0]


class _OtherKeys(Exception):
    """The field of the record key does not tell rows apart by itself."""


def needed_columns(
    columns: Collection[str] | None, ordering: Collection[str], *, meta: bool = True
) -> Collection[str] | None:
    """Return the columns to read in order to merge these (None: all); arguments as for `merged_rows`."""
    return None if columns is None else {*columns, *ordering, *(META_COLUMNS if meta else (RECORD_KEY,))}


@dataclass(frozen=True)
class LogChanges:
    """The combined changes of some log files: rows that they set, with meta columns, and keys that they delete.

    No key is in both. A delete has its ordering value, or `NATURAL`.
    """

    rows: pa.Table | None
    deletes: tuple[tuple[str, Any], ...]


def merged_logs(store: Store, config: TableConfig, logs: Sequence[LogFile]) -> LogChanges:
    """Return the newest change of each key in the oldest log files of a slice, as one set that may replace them.

    Only the oldest log files can be replaced so: where a row follows a delete, the row is kept, and it does not say that an
    older one is gone.

    Raises as `merged_rows` does with ``strict``.
    """
    changes = _Changes(ordering_of(config))
    blocks = _counting(store, logs, strict=True)
    with _fitting(logs):
        changes.take(blocks)
        return changes.merged()


@contextmanager
def _fitting(logs: Sequence[LogFile]) -> Iterator[None]:
    try:
        yield
    except (TypeError, pa.ArrowException) as e:
        # Ordering values or columns of types that do not compare.
        newest = logs[-1]
        raise CorruptTableError(
            f"The log files of {newest.group} do not fit together ({e}), the newest is {newest.path}. Restore them "
            "from a copy, or roll their commits back with Hudi",
            path=newest.path,
        ) from e


def standing(store: Store, logs: Sequence[LogFile]) -> dict[str, tuple[str, ...] | None]:
    """Return T of the commits whose blocks count in a slice, in merge order -> the commits each merged (None: no log
    compaction).

    Raises `CorruptTableError` for a torn block.
    """
    commits = _commits_of(store, logs, strict=True)
    return {instant: commits[instant][0].merged for instant in _places(commits)}


def cleared_keys(store: Store, group: FileSlice) -> set[str]:
    """Return keys of which a log file of the slice deletes every earlier version.

    Where a column orders rows, a later row of such a key loses against a base file's row that is newer by the column: Hudi's
    readers merge the log files first, and forget the delete.
    """
    blocks = _counting(store, group.logs, strict=True) if group.logs else []
    return {key for block in blocks if block.kind == DELETE for key, value in block.deletes() if value is NATURAL}


def logged_rows(store: Store, logs: Sequence[LogFile], columns: Sequence[str]) -> list[pa.Table]:
    """Return these columns of the rows that log files set, one table per block, later changes of the rows ignored."""
    found = ((block, block.rows()) for block in _counting(store, logs, strict=True) if block.kind != DELETE)
    # A partial update without these columns is skipped: its key is in a whole row too.
    return [
        rows.select(columns) for block, rows in found if not block.partial or set(columns) <= set(rows.column_names)
    ]


def body_of(store: Store, log: LogFile) -> bytes:
    """Return the bytes of a log file. Raises `StorageError` if it is gone, as for a base file."""
    stored = store.get(log.path)
    if stored is None:
        raise StorageError(
            f"Log file {log.path} is gone since it was listed: it was compacted and cleaned meanwhile, or its transaction was "
            "rolled back. Read the table again; readers with a lease (`Table.pinned`) keep their files",
            path=log.path,
        )
    return stored.body


def _counting(store: Store, logs: Sequence[LogFile], *, strict: bool) -> list[Block]:
    """Return the blocks of committed changes, in the order in which readers apply them."""
    commits = _commits_of(store, logs, strict=strict)
    return [block for instant in _places(commits) for block in commits[instant]]


def _commits_of(store: Store, logs: Sequence[LogFile], *, strict: bool) -> dict[str, list[Block]]:
    """Return the blocks of each commit, by T, in the order of T; [] for a commit whose files need not be read.

    A commit that a log compaction names is not read. What it names in turn, if it is a log compaction itself, matters only if
    an older commit that nobody names exists.
    """
    files: dict[str, list[LogFile]] = {}
    for log in logs:
        # In version 6 several commits write into one file, so no file can be skipped.
        if log.among is not None:
            return _all_commits_of(store, logs, strict=strict)
        files.setdefault(log.instant, []).append(log)
    found: dict[str, list[Block]] = {}
    named: set[str] = set()
    # The newest first, because a log compaction is younger than the commits that it makes unnecessary to read.
    for instant in sorted(files, reverse=True):
        if instant in named:
            found[instant] = []
            continue
        blocks = _blocks_of(store, files[instant], strict=strict)
        # A rollback block voids blocks before it, so every file must be read, in order.
        if any(block.rolls_back for block in blocks):
            return _all_commits_of(store, logs, strict=strict)
        if kept := [block for block in blocks if block.instant == instant]:
            found[instant] = kept
            named.update(kept[0].merged or ())
    # What a skipped log compaction names in turn matters only for an older commit that nobody names. Then all files are read.
    unread = max((instant for instant, blocks in found.items() if not blocks), default="")
    if any(blocks and blocks[0].merged is None and instant < unread for instant, blocks in found.items()):
        return _all_commits_of(store, logs, strict=strict)
    return dict(sorted(found.items()))


def _all_commits_of(store: Store, logs: Sequence[LogFile], *, strict: bool) -> dict[str, list[Block]]:
    found: list[Block] = []
    for log in logs:
        for block in _blocks_of(store, [log], strict=strict):
            if undone := block.rolls_back:
                found = [each for each in found if each.instant != undone]
            elif block.instant == log.instant if log.among is None else block.instant in log.among:
                found.append(block)
    commits: dict[str, list[Block]] = {}
    for block in sorted(found, key=lambda block: block.instant):
        commits.setdefault(block.instant, []).append(block)
    return commits


def _blocks_of(store: Store, logs: Iterable[LogFile], *, strict: bool) -> list[Block]:
    found: list[Block] = []
    for log in logs:
        for block in read_blocks(body_of(store, log), log.path):
            if isinstance(block, Torn):
                told_of_torn(block, strict=strict)
            else:
                found.append(block)
    return found


def _places(commits: Mapping[str, Sequence[Block]]) -> list[str]:
    """Return T of the commits that count, in merge order.

    The commits that a log compaction merged are left out; its result takes the position of the newest of them. A log
    compaction's block counts only with one of the commits that it names, and two log compactions of one block count one after
    the other. The first block of a commit stands for all of them.

    Args:
        commits: ordered by T; [] for a commit that a log compaction names and that was not read.

    Source: measured with Hudi 1.2.0 and hudi-rs 0.5.0, which agree; `tests/jvm/test_log_compactions.py` compares them.
    """
    merged_into: dict[str, str] = {}
    kept: dict[str, None] = {}
    # From the newest: a log compaction is met before the commits that it names.
    for instant in reversed([*commits]):
        now = merged_into.get(instant, instant)
        blocks = commits[instant]
        if not blocks or (merged := blocks[0].merged) is None:
            kept[now] = None  # a dict keeps the position of the first insertion: the newest's
        else:
            merged_into |= dict.fromkeys(merged, now)
    return [*reversed(kept)]


def told_of_torn(torn: Torn, *, strict: bool) -> None:
    """Log a torn block; with ``strict`` raise `CorruptTableError` for it."""
    what = f"log file {torn.path} is torn from byte {torn.start} to {torn.end}"
    if strict:
        raise CorruptTableError(
            f"{what}: no reader counts what was there, and to compact it would make that final. Its file group is left as it "
            "is; restore the file from a copy, or compact the table with Hudi, which drops it",
            path=torn.path,
        )
    _log.warning("%s; its rows are left out, as Hudi's readers do", what)


@dataclass(frozen=True, slots=True)
class _Partial:
    """A block of partial updates: its number among the blocks of rows, and the index of its first row."""

    path: str
    number: int
    start: int


def _unclear(path: str, what: str) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"Log file {path} has partial updates that {what}: Hudi's readers fail on them, or do not agree what they make. Nothing "
        "was read or changed. Compact the table with the engine that wrote them",
        path=path,
        feature="partial_updates",
    )


class _Changes:
    """The newest change of each key so far.

    Args:
        ordering: the ordering fields; the first that differs decides.
        columns: the columns to read; None: all.
        key: the column that tells rows apart.
    """

    def __init__(self, ordering: Sequence[str], columns: Collection[str] | None = None, key: str = RECORD_KEY) -> None:
        self._ordering, self._columns, self._key = ordering, columns, key
        self._kind: pa.DataType | None = None  # of a key that is not the record key
        self._rows: list[pa.Table] = []
        self._count = 0
        self._newest: dict[str, _Change] = {}
        self._partial: list[_Partial] = []
        # The first blocks, as long as they hold whole rows only: their newest rows are found by one sort, not one by one.
        self._whole: list[tuple[Block, pa.Table]] = []

    def write(self, block: Block) -> None:
        """Apply a data block."""
        rows = block.rows(lambda names: self._read(names, block))
        if STREAM_NOTE.encode() in (rows.schema.metadata or {}):
            raise UnsupportedTableError(
                f"Log file {block.path} has events of a stream, and {PROPERTIES_PATH} does not say that the table has streams. "
                "Restore that file from a copy: events merged by another rule would be lost",
                path=block.path,
                feature="streams",
            )
        self.refuse_other_keys(rows)
        if block.partial:
            if lacking := [name for name in self._ordering if name not in rows.column_names]:
                raise _unclear(block.path, f"lack {', '.join(lacking)}, by which rows are ordered")
            self._partial.append(_Partial(block.path, len(self._rows), self._count))
        if not self._newest and not block.partial and self._are_whole(rows):
            self._whole.append((block, rows))
        else:
            self._one_by_one()
            self._look_at(block, rows, self._count)
        self._rows.append(rows)
        self._count += rows.num_rows

    def refuse_other_keys(self, rows: pa.Table | None) -> None:
        """Raise `_OtherKeys` unless equal values of the key mean the same row in all that was read."""
        if self._key == RECORD_KEY or rows is None:
            return
        keys = rows.column(self._key) if self._key in rows.column_names else pa.nulls(1)
        self._kind = self._kind or keys.type
        if (
            keys.null_count
            or keys.type != self._kind
            or not (pa.types.is_integer(keys.type) or keys.type == pa.string())
        ):
            raise _OtherKeys

    def _read(self, names: Sequence[str], block: Block) -> list[str]:
        """Return the columns of a block that must be read."""
        if _OPERATION in names:
            raise UnsupportedTableError(
                f"Log file {block.path} has rows that say which operation they are ({_OPERATION}), which is not read here. "
                "Compact the table with Hudi",
                path=block.path,
                feature="operation_field",
            )
        if lacking := [name for name in META_COLUMNS if name not in names]:
            raise CorruptTableError(
                f"Commit {block.instant} has written rows without {', '.join(lacking)} into log file {block.path}, which no "
                "reader can merge. Roll the commit back with Hudi",
                path=block.path,
                instant=block.instant,
            )
        return [name for name in names if self._columns is None or name in self._columns or name == _IS_DELETED]

    def _are_whole(self, rows: pa.Table) -> bool:
        """Return whether these rows hold no delete, and their keys and ordering values compare in Arrow as in Python."""
        keys = rows.column(self._key)
        # A delete mark, or a value that Python and Arrow order differently (null, NaN), needs the slow path.
        if _IS_DELETED in rows.column_names or keys.type not in (pa.string(), self._kind) or keys.null_count:
            return False
        if not self._ordering:
            return True
        if len(self._ordering) > 1 or self._ordering[0] not in rows.column_names:
            return False
        values = rows.column(self._ordering[0])
        others = {before.schema.field(self._ordering[0]).type for _, before in self._whole}
        kinds = pa.types.is_integer, pa.types.is_timestamp, pa.types.is_date, pa.types.is_string
        return not values.null_count and others <= {values.type} and any(is_one(values.type) for is_one in kinds)

    def _one_by_one(self) -> None:
        """Apply the whole blocks so far row by row, because the next change is more than whole rows."""
        whole, start = self._whole, 0
        self._whole = []
        for block, rows in whole:
            self._look_at(block, rows, start)
            start += rows.num_rows

    def _newest_whole(self) -> npt.NDArray[np.int64]:
        """Return the indexes of the newest rows if all blocks have whole rows only, in the order in which their keys came."""
        blocks = [rows for _, rows in self._whole]
        chunks = [chunk for rows in blocks for chunk in rows.column(self._key).chunks]
        keys = pa.chunked_array(chunks, self._kind or pa.string())
        codes = np.asarray(pc.dictionary_encode(keys.combine_chunks()).indices)
        age = np.zeros(len(codes), np.int64)
        if self._ordering:
            chunks = [chunk for rows in blocks for chunk in rows.column(self._ordering[0]).chunks]
            values = pa.concat_arrays(chunks) if chunks else pa.array([], pa.int64())
            age = np.asarray(pc.rank(values, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
        # And of equally new ones the later one last, since it is stable.
        by_key = np.lexsort((age, codes))
        last = np.append(np.diff(codes[by_key]) > 0, [True])[: len(codes)]
        newest: npt.NDArray[np.int64] = by_key[last]
        return newest

    def _look_at(self, block: Block, rows: pa.Table, start: int) -> None:
        keys = rows.column(self._key).to_pylist()
        values = self._values(rows)
        gone = rows.column(_IS_DELETED).to_pylist() if _IS_DELETED in rows.column_names else [None] * len(keys)
        for number, (key, value, is_gone) in enumerate(zip(keys, values, gone, strict=True)):
            if block.partial and not is_gone:
                self._update(key, value, start + number, block)
            else:
                self._note(key, _Change(value, None if is_gone else start + number), block)

    def delete(self, block: Block) -> None:
        """Apply a delete block."""
        self._one_by_one()
        for key, value in block.deletes():
            self._note(key, _Change(value, None), block)

    def take(self, blocks: Iterable[Block]) -> None:
        """Apply all of these blocks, in order."""
        for block in blocks:
            self.delete(block) if block.kind == DELETE else self.write(block)

    def merged(self) -> LogChanges:
        """Return these changes, apart from any base file."""
        self._one_by_one()
        if self._partial:
            raise _unclear(self._partial[0].path, "would be merged apart from the rows that they change")
        places = [each.place for each in self._newest.values() if each.place is not None]
        rows = pa.concat_tables(alike(self._rows)).take(pa.array(places, pa.int64())) if places else None
        deletes = [(key, each.ordering) for key, each in self._newest.items() if each.place is None]
        if not self._ordering:
            return LogChanges(rows, tuple((key, NATURAL) for key, _ in deletes))
        return LogChanges(rows, tuple(deletes))

    def _values(self, rows: pa.Table) -> list[Any]:
        """Return the ordering value of each row as `Block.deletes` gives it; None if the rows have none."""
        if not any(name in rows.column_names for name in self._ordering):
            return [None] * rows.num_rows
        columns = [
            comparable(rows.column(name)).to_pylist() if name in rows.column_names else [None] * rows.num_rows
            for name in self._ordering
        ]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def _note(self, key: str, change: _Change, block: Block) -> None:
        before = self._newest.get(key)
        # A delete of every earlier version must survive a later delete that is bounded by an ordering value.
        less = before is not None and before.ordering is NATURAL and change.place is None
        if before is None or (self._wins(change.ordering, before.ordering) and not less):
            self._newest[key] = change
        elif not before.whole and change.place is not None:
            raise _unclear(block.path, f"are newer than a row that came after them (record key {key!r})")

    def _update(self, key: str, ordering: Any, place: int, block: Block) -> None:
        before = self._newest.get(key)
        if before is None:
            self._newest[key] = _Change(ordering, place, ((ordering, place),), whole=False)
        elif self._wins(ordering, before.ordering):
            if before.place is None:
                raise _unclear(block.path, f"are of rows that were deleted before (record key {key!r})")
            first = before.first if before.updates else before.ordering
            self._newest[key] = replace(
                before, ordering=ordering, updates=(*before.updates, (ordering, place)), first=first
            )

    def _wins(self, new: Any, old: Any) -> bool:
        # A delete of all earlier versions always applies, and a row that follows it always wins.
        if not self._ordering or new is NATURAL or old is NATURAL or old is None:
            return True
        if len(self._ordering) == 1:
            return new is not None and bool(new >= old)
        return _not_older(new, old)

    def columns_with(self, base: pa.Table | None) -> set[str]:
        """Return the names of the columns that these changes or the base file have."""
        return {name for rows in [*self._rows, *([base] if base is not None else [])] for name in rows.column_names}

    def onto(self, base: pa.Table | None, *, in_place: bool = True) -> pa.Table:
        """Return the base file's rows after these changes. Arguments as for `merge`."""
        if base is None and not self._rows:
            return pa.table({self._key: pa.array([], self._kind or pa.string())})
        logged, columns = self._rows, self._columns
        if columns is not None:
            logged = [rows.select([n for n in rows.column_names if n in columns]) for rows in logged]
        tables = alike([*([base] if base is not None else []), *logged])
        written = pa.concat_tables(tables[-len(self._rows) :] if self._rows else [tables[0].slice(0, 0)])
        old = tables[0] if base is not None else written.slice(0, 0)
        # Deletes act on the base file's rows first. Rows that log files set after a delete are in `_newest`, and are merged
        # below.
        if self._newest:
            old = remove_where(old, self._taken(old)).rows
        if self._whole:
            rows = written.take(pa.array(self._newest_whole()))
        else:
            places = [each.place for each in self._newest.values() if each.place is not None and not each.updates]
            rows = written.take(pa.array(places, pa.int64()))
        if self._partial:
            rows = pa.concat_tables([rows, self._updated(old, written, logged)])
        return merge(old, rows, ordering=self._ordering, key=self._key, in_place=in_place).rows

    def _updated(self, old: pa.Table, written: pa.Table, logged: Sequence[pa.Table]) -> pa.Table:
        """Return the rows with partial updates applied, except those that are newer in the base file."""
        starts: list[int] = []
        owners: list[int] = []
        updates: list[int] = []
        for start, change in self._updatable(old):
            owners += [len(starts)] * len(change.updates)
            updates += [place for _, place in change.updates]
            starts.append(start)
        owner, update = np.array(owners, np.int64), np.array(updates, np.int64)
        both, found = pa.concat_tables([old, written]), {}
        for name in both.column_names:
            source = np.array(starts, np.int64)
            for each in self._partial:  # in order: the last one stands
                if name in logged[each.number].column_names:
                    mine = (update >= each.start) & (update < each.start + logged[each.number].num_rows)
                    source[owner[mine]] = old.num_rows + update[mine]
            found[name] = both.column(name).take(pa.array(source))
        return pa.table(found, schema=both.schema)

    def _updatable(self, old: pa.Table) -> Iterator[tuple[int, _Change]]:
        """Yield the rows with partial updates that count: index in the base file or after it, and the change."""
        updated = {key: each for key, each in self._newest.items() if each.updates}
        keys = plain(old.column(RECORD_KEY))
        met = np.flatnonzero(np.asarray(pc.is_in(keys, value_set=pa.array(list(updated), keys.type))))
        some = old.take(pa.array(met))
        values = self._values(some)
        there = dict(zip(some.column(RECORD_KEY).to_pylist(), zip(met.tolist(), values, strict=True), strict=True))
        for key, change in updated.items():
            if key not in there:
                if not change.whole:
                    raise _unclear(self._partial[0].path, f"are of rows that are nowhere (record key {key!r})")
                yield old.num_rows + (change.place or 0), change
                continue
            place, value = there[key]
            # Either the row and all of its updates are newer than the base file's row, or none is: in between readers
            # disagree.
            steps = [ordering for ordering, _ in change.updates] + ([change.first] if change.whole else [])
            newer = [self._wins(ordering, value) for ordering in steps]
            if all(newer):
                yield (old.num_rows + (change.place or 0) if change.whole else place), change
            elif any(newer):
                raise _unclear(self._partial[0].path, f"are older and newer than one row (record key {key!r})")

    def _taken(self, base: pa.Table) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that deletes remove."""
        deletes = {key: each.ordering for key, each in self._newest.items() if each.place is None}
        if not deletes:
            return np.zeros(base.num_rows, bool)
        all_keys = plain(base.column(self._key))
        taken = np.array(pc.is_in(all_keys, value_set=pa.array(list(deletes), all_keys.type)))
        some = base.filter(pa.array(taken))
        keys, values = some.column(self._key).to_pylist(), self._values(some)
        taken[taken] = [self._wins(deletes[k], value) for k, value in zip(keys, values, strict=True)]
        return taken


def _not_older(new: Any, old: Any) -> bool:
    """Return whether the first of several values that differs is greater; None is less than any."""
    if not (isinstance(new, tuple) and isinstance(old, tuple) and len(new) == len(old)):
        raise TypeError(f"{new!r} and {old!r} are not of the same ordering fields")
    for mine, theirs in zip(new, old, strict=True):
        if mine != theirs:
            return theirs is None or (mine is not None and bool(mine > theirs))
    return True


def comparable(column: Any) -> Any:
    """Return an ordering column in the form in which deletes have its values (`Block.deletes`)."""
    if pa.types.is_date32(column.type):
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp("us", column.type.tz), safe=False).cast(pa.int64())
    if pa.types.is_time64(column.type):
        return column.cast(pa.time64("us"), safe=False).cast(pa.int64())
    return column


def _base(store: Store, group: FileSlice, wanted: Collection[str] | None) -> pa.Table | None:
    if group.base is None:
        return None
    with store.open(group.base.path, size=group.base.size or None) as stream:
        file = _parquet_of(store, stream, group.base, wanted)
        names = [n for n in file.schema_arrow.names if wanted is None or n in wanted]
        return file.read(names, use_threads=False)


def _parquet_of(store: Store, stream: IO[bytes], base: BaseFile, wanted: Collection[str] | None) -> StoredParquet:
    """Open a base file. A small one that is needed whole is read at once, so its end is not read twice, for footer and rows."""
    whole = wanted is None and base.size <= _WHOLE_BYTES
    return StoredParquet(store, base.path, pa.BufferReader(stream.read()) if whole else stream)


def stacked(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the rows of all tables, with all of their columns, in types as of `alike`."""
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.concat_tables(alike(tables))


def alike(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Return all tables with all of their columns, in the widest type; if two types cannot be joined the later one is used."""
    kinds: dict[str, pa.DataType] = {}
    for table in tables:
        if kinds and table.schema.equals(tables[0].schema):
            continue
        for column in table.schema:
            kinds[column.name] = _wider(kinds.get(column.name, column.type), column.type)
    schema = pa.schema(list(kinds.items()))
    return [widened(table, schema) for table in tables]


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    both = [pa.schema([pa.field("x", kind)]) for kind in (one, other)]
    try:
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # Lists whose elements have other names, times with and without zone.
        return other
