"""The rows of a file slice that has log files: what its commits have made of the base file's rows.

    the changes of all log files, in the order of their commits' T    -> the newest change of each key
    these onto the base file                                          -> the rows

The newer of two changes is the one with the greater ordering value, and the later one on a tie, where the table has an
ordering field; else the later one. A delete without ordering value takes whatever came before it. Rows keep the place
of those that they replace, new keys stand at the end. What a log compaction has merged stands for the log files that it names.

Source: what Hudi 1.2.0 and hudi-rs 0.5.0 were measured to read; tests compare them row by row.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import CorruptTableError, StorageError, UnsupportedTableError
from ...storage import Store
from ..files import DELETE, NATURAL, Block, LogFile, Torn, read_blocks
from ..table import META_COLUMNS, RECORD_KEY, TableConfig
from ..timeline import FileSlice
from .merge_mode import ordering_of
from .rows import merge, remove_where, widened

_IS_DELETED, _OPERATION = "_hoodie_is_deleted", "_hoodie_operation"
_log = logging.getLogger("lakelatch.log_merge")


@dataclass(frozen=True, slots=True)
class _Change:
    """The newest of a key: a row of the log files by its place, or a delete (None); ``ordering`` may be `NATURAL`."""

    ordering: Any
    place: int | None


def merged_rows(
    store: Store, config: TableConfig, group: FileSlice, *, columns: Collection[str] | None = None, strict: bool = False
) -> pa.Table:
    """The rows of the slice with meta columns; of the data columns those in ``columns`` (None: all) that it has.

    Args:
        strict: raise for a torn block, which readers leave out: whoever writes the rows anew would make that final.

    Raises:
        UnsupportedTableError: merging follows rules, or a block is of a kind, that are not known here.
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
    changes = _Changes(ordering)
    base = _base(store, group, None if columns is None else {*columns, *META_COLUMNS, ordering})
    with _fitting(group.logs):
        changes.take(blocks)
        rows = changes.onto(base)
    wanted = [n for n in rows.column_names if columns is None or n in columns or n in META_COLUMNS]
    return rows.select(wanted)


@dataclass(frozen=True)
class LogChanges:
    """What some log files do together: rows that they set, with meta columns, and keys that they delete; no key is in both.

    A delete has its ordering value, or `NATURAL`.
    """

    rows: pa.Table | None
    deletes: tuple[tuple[str, Any], ...]


def merged_logs(store: Store, config: TableConfig, logs: Sequence[LogFile]) -> LogChanges:
    """The newest change of each key in the oldest log files of a slice. To read it is to read them, whatever follows.

    Of others than the oldest it would not be: where a row follows a delete, the row is left, which does not tell that an
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
    except (TypeError, pa.ArrowException) as e:  # ordering values or columns of types that do not compare
        newest = logs[-1]
        raise CorruptTableError(
            f"The log files of {newest.group} do not fit together ({e}), the newest is {newest.path}. Restore them "
            "from a copy, or roll their commits back with Hudi",
            path=newest.path,
        ) from e


def standing(store: Store, logs: Sequence[LogFile]) -> dict[str, tuple[str, ...] | None]:
    """T of the commits whose blocks count in a slice, in the order of their places; what each has merged (None: it is no
    log compaction). Raises `CorruptTableError` for a torn block.
    """
    commits = _commits_of(store, logs, strict=True)
    return {instant: commits[instant][0].merged for instant in _places(commits)}


def cleared_keys(store: Store, group: FileSlice) -> set[str]:
    """Keys whose every earlier version a log file of the slice deletes.

    Where rows are ordered by a column, a row of such a key that comes after the delete loses, for all of Hudi's readers,
    against one in the base file that is newer by the column: they merge the log files first, and forget the delete.
    """
    blocks = _counting(store, group.logs, strict=True) if group.logs else []
    return {key for block in blocks if block.kind == DELETE for key, value in block.deletes() if value is NATURAL}


def logged_rows(store: Store, logs: Sequence[LogFile], columns: Sequence[str]) -> list[pa.Table]:
    """These columns of the rows that log files set, one table for each block, whatever has become of the rows since."""
    return [block.rows().select(columns) for block in _counting(store, logs, strict=True) if block.kind != DELETE]


def body_of(store: Store, log: LogFile) -> bytes:
    """The bytes of a log file. Raises `StorageError`, as for a base file, when it is gone."""
    stored = store.get(log.path)
    if stored is None:
        raise StorageError(
            f"Log file {log.path} is gone since it was listed: it was compacted and cleaned meanwhile, or its transaction was "
            "rolled back. Read the table again; readers with a lease (`Table.pinned`) keep their files",
            path=log.path,
        )
    return stored.body


def _counting(store: Store, logs: Sequence[LogFile], *, strict: bool) -> list[Block]:
    """The blocks of committed changes, in the order in which readers apply them."""
    commits = _commits_of(store, logs, strict=strict)
    return [block for instant in _places(commits) for block in commits[instant]]


def _commits_of(store: Store, logs: Sequence[LogFile], *, strict: bool) -> dict[str, list[Block]]:
    """The blocks of each commit, by T, in the order of T; none of one whose files need not be read.

    That is one which a log compaction names. What it may name in turn, if it is one itself, is looked at only where there is
    something below it that nobody names.
    """
    files: dict[str, list[LogFile]] = {}
    for log in logs:
        if log.among is not None:
            return _all_commits_of(store, logs, strict=strict)
        files.setdefault(log.instant, []).append(log)
    found: dict[str, list[Block]] = {}
    named: set[str] = set()
    for instant in sorted(files, reverse=True):
        if instant in named:
            found[instant] = []
            continue
        blocks = _blocks_of(store, files[instant], strict=strict)
        if any(block.rolls_back for block in blocks):
            return _all_commits_of(store, logs, strict=strict)
        if kept := [block for block in blocks if block.instant == instant]:
            found[instant] = kept
            named.update(kept[0].merged or ())
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
    """T of the commits that count, in the order in which they do.

    Not those that a log compaction has merged; what it made of them stands where the newest of them did.
    A block of a log compaction counts only with one of those that it names, and two log compactions of one block are one
    after the other. The first block of a commit speaks for all of them.

    Args:
        commits: ordered by T; without blocks those that need not be read, which a log compaction names.

    Source: measured with Hudi 1.2.0 and hudi-rs 0.5.0, which agree; `tests/jvm/test_log_compactions.py` compares them.
    """
    merged_into: dict[str, str] = {}
    kept: dict[str, None] = {}
    for instant in reversed([*commits]):
        now = merged_into.get(instant, instant)
        blocks = commits[instant]
        if not blocks or (merged := blocks[0].merged) is None:
            kept[now] = None  # where it stood first, which is that of the newest
        else:
            merged_into |= dict.fromkeys(merged, now)
    return [*reversed(kept)]


def told_of_torn(torn: Torn, *, strict: bool) -> None:
    """Log a torn block, or with ``strict`` raise `CorruptTableError` for it."""
    what = f"log file {torn.path} is torn from byte {torn.start} to {torn.end}"
    if strict:
        raise CorruptTableError(
            f"{what}: no reader counts what was there, and to compact it would make that final. Its file group is left as it "
            "is; restore the file from a copy, or compact the table with Hudi, which drops it",
            path=torn.path,
        )
    _log.warning("%s; its rows are left out, as Hudi's readers do", what)


class _Changes:
    """The newest change of each key so far."""

    def __init__(self, ordering: str | None) -> None:
        self._ordering = ordering
        self._rows: list[pa.Table] = []
        self._count = 0
        self._newest: dict[str, _Change] = {}

    def write(self, block: Block) -> None:
        """The rows of a data block."""
        rows = block.rows()
        if _OPERATION in rows.column_names:
            raise UnsupportedTableError(
                f"Log file {block.path} has rows that say which operation they are ({_OPERATION}), which is not read here. "
                "Compact the table with Hudi",
                path=block.path,
                feature="operation_field",
            )
        if lacking := [name for name in META_COLUMNS if name not in rows.column_names]:
            raise CorruptTableError(
                f"Commit {block.instant} has written rows without {', '.join(lacking)} into log file {block.path}, which no "
                "reader can merge. Roll the commit back with Hudi",
                path=block.path,
                instant=block.instant,
            )
        keys = rows.column(RECORD_KEY).to_pylist()
        values = self._values(rows) or [None] * len(keys)
        gone = rows.column(_IS_DELETED).to_pylist() if _IS_DELETED in rows.column_names else [None] * len(keys)
        for number, (key, value, is_gone) in enumerate(zip(keys, values, gone, strict=True)):
            self._note(key, _Change(value, None if is_gone else self._count + number))
        self._rows.append(rows)
        self._count += rows.num_rows

    def delete(self, block: Block) -> None:
        """The keys of a delete block."""
        for key, value in block.deletes():
            self._note(key, _Change(value, None))

    def take(self, blocks: Iterable[Block]) -> None:
        """All of these, in order."""
        for block in blocks:
            self.delete(block) if block.kind == DELETE else self.write(block)

    def merged(self) -> LogChanges:
        """These changes, apart from any base file."""
        places = [each.place for each in self._newest.values() if each.place is not None]
        rows = pa.concat_tables(alike(self._rows)).take(pa.array(places, pa.int64())) if places else None
        deletes = [(key, each.ordering) for key, each in self._newest.items() if each.place is None]
        if self._ordering is None:
            return LogChanges(rows, tuple((key, NATURAL) for key, _ in deletes))
        return LogChanges(rows, tuple(deletes))

    def _values(self, rows: pa.Table) -> list[Any] | None:
        return rows.column(self._ordering).to_pylist() if self._ordering in rows.column_names else None

    def _note(self, key: str, change: _Change) -> None:
        before = self._newest.get(key)
        # A delete of whatever came before stays when one follows that says less.
        less = before is not None and before.ordering is NATURAL and change.place is None
        if before is None or (self._wins(change.ordering, before.ordering) and not less):
            self._newest[key] = change

    def _wins(self, new: Any, old: Any) -> bool:
        if self._ordering is None or new is NATURAL or old is NATURAL or old is None:
            return True
        return new is not None and bool(new >= old)

    def onto(self, base: pa.Table | None) -> pa.Table:
        """The base file's rows after these changes."""
        if base is None and not self._rows:
            return pa.table({RECORD_KEY: pa.array([], pa.string())})
        tables = alike([*([base] if base is not None else []), *self._rows])
        written = pa.concat_tables(tables[-len(self._rows) :] if self._rows else [tables[0].slice(0, 0)])
        old = tables[0] if base is not None else written.slice(0, 0)
        old = remove_where(old, self._taken(old)).rows
        places = [each.place for each in self._newest.values() if each.place is not None]
        return merge(old, written.take(pa.array(places, pa.int64())), ordering=self._ordering).rows

    def _taken(self, base: pa.Table) -> npt.NDArray[np.bool_]:
        """Marks the rows that deletes take."""
        deletes = {key: each.ordering for key, each in self._newest.items() if each.place is None}
        if not deletes:
            return np.zeros(base.num_rows, bool)
        keys = base.column(RECORD_KEY).to_pylist()
        values = self._values(base) or [None] * len(keys)
        taken = [k in deletes and self._wins(deletes[k], value) for k, value in zip(keys, values, strict=True)]
        return np.array(taken, bool)


def _base(store: Store, group: FileSlice, wanted: Collection[str | None] | None) -> pa.Table | None:
    if group.base is None:
        return None
    with store.open(group.base.path) as stream:
        file = pq.ParquetFile(stream)
        names = [n for n in file.schema_arrow.names if wanted is None or n in wanted]
        return file.read(names, use_threads=False)


def alike(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """All tables with the columns that any of them has, in the widest type; between kinds of one type the later one's."""
    kinds: dict[str, pa.DataType] = {}
    for table in tables:
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
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # lists whose elements have other names, times with and without zone
        return other
