"""The events of a file slice's log files, in slot order: blocks of one stream each.

Slot order is the order of C, because a commit's C is chosen at its slot, larger than every one before it. T does not order
events: a writer that began early may commit late, and a compaction holds exactly the commits before its slot.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import CorruptTableError, InputError, UnsupportedTableError
from ..hudi.files import DELETE, PARQUET, STREAM_NOTE, Block, LogFile, StoredParquet, Torn, read_blocks
from ..hudi.merge import body_of, told_of_torn
from ..hudi.table import META_COLUMNS, RECORD_KEY, array_of_column
from ..hudi.timeline import FileSlice
from ..mergers import Groups, ages_of, in_time
from ..storage import Store
from .contributions import lifted, mergers_of
from .declaration import KEEP, NULL, Stream, of_name

# The note in a block of a stream's log file, and the floors in a base file, which no row of it holds.
#
# Both are in the key-value metadata of a Parquet footer, which Hudi's readers ignore.
#
#     lakelatch.stream   of a block: the stream, the effect of its rows, and the columns that they carry
#     lakelatch.floors   of a base file: keys without a row, each with the newest ordering value of every stream, so that
#                        an event older than a delete stays without effect after the compaction; and keys with a row that a
#                        stream with mergers emptied, each with the ordering value at which it did

FLOORS = "lakelatch.floors"
UPSERT, CLEARED, DELETED, RETRACTED = KINDS = ("upsert", "clear", "delete", "retract")


@dataclass(frozen=True, slots=True)
class BlockNote:
    """The note of a block. ``kind``: its rows set values, clear the stream's columns, delete rows, or take events back.
    ``columns`` have values. ``null``: the stream's rule when they were written.
    """

    stream: str
    kind: str
    columns: tuple[str, ...]
    null: str = KEEP

    def to_footer(self) -> dict[str, str]:
        """Return it as key-value metadata."""
        content = {"stream": self.stream, "kind": self.kind, "columns": list(self.columns), "null": self.null}
        return {STREAM_NOTE: json.dumps(content, ensure_ascii=False)}

    @classmethod
    def of(cls, metadata: Mapping[bytes, bytes] | None, path: str) -> BlockNote | None:
        """Return the note of a block; None if no stream wrote it.

        Raises:
            CorruptTableError: the note is invalid.
        """
        stored = (metadata or {}).get(STREAM_NOTE.encode())
        if stored is None:
            return None
        try:
            raw = json.loads(stored)
            note = cls(raw["stream"], raw["kind"], tuple(raw["columns"]), raw.get("null", KEEP))
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise _damaged(path, "a note of its stream that cannot be read") from e
        if (
            note.kind not in KINDS
            or note.null not in NULL
            or not all(isinstance(each, str) for each in (note.stream, *note.columns))
        ):
            raise _damaged(path, f"a note of its stream that is none: {stored!r:.80}")
        return note


def floors_to_footer(floors: pa.Table) -> dict[str, str]:
    """Return the floors as key-value metadata; {} if there are none."""
    if not floors.num_rows:
        return {}
    # A footer holds text only, so the table is an Arrow stream in base64.
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, floors.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(floors.combine_chunks())
    return {FLOORS: base64.b64encode(sink.getvalue()).decode()}


def floors_of(metadata: Mapping[bytes, bytes] | None, path: str) -> pa.Table | None:
    """Return the floors of a base file, None if it has none. Raises `CorruptTableError` if they cannot be read."""
    stored = (metadata or {}).get(FLOORS.encode())
    if stored is None:
        return None
    try:
        return pa.ipc.open_stream(base64.b64decode(stored, validate=True)).read_all()
    except (ValueError, OSError, pa.ArrowException) as e:  # of Arrow's own, some are an OSError
        raise _damaged(path, "floors of rows that cannot be read") from e


def _damaged(path: str, what: str) -> CorruptTableError:
    details: dict[str, Any] = {"path": path}
    return CorruptTableError(f"{path} has {what}. Restore the file from a copy", **details)


@dataclass(frozen=True)
class Events:
    """The rows of one block. ``log`` has T and C of its commit, ``schema`` all columns of the table at that time."""

    stream: Stream
    note: BlockNote
    log: LogFile
    rows: pa.Table
    schema: pa.Schema


def events_of(
    store: Store,
    streams: Sequence[Stream],
    logs: Sequence[LogFile],
    *,
    columns: Collection[str] | None = None,
    strict: bool = False,
) -> Iterator[Events]:
    """Yield the blocks of log files in slot order.

    Args:
        columns: the columns to read; None: all. Those that order the events are always read.
        strict: raise for a torn block, which readers skip.

    Raises:
        CorruptTableError: a block cannot be decoded.
        StorageError: a file is gone.
        UnsupportedTableError: no stream wrote a block.
    """
    for log in sorted(logs, key=slot_order):
        # A stream's delete is written twice; the second block is for Hudi's readers only.
        said = False
        for block in read_blocks(body_of(store, log), log.path):
            if isinstance(block, Torn):
                told_of_torn(block, strict=strict)
                continue
            # A block that names another commit than its file belongs to no commit of this file, and readers skip it.
            if block.instant != log.instant or (block.kind == DELETE and said):
                continue
            events = _read(block, streams, log, columns)
            said = events.note.kind == DELETED
            yield events


def slot_order(log: LogFile) -> tuple[str, int, str]:
    """Return the sort key of log files: the slots of their commits, then the writes of one commit."""
    return (log.completed, log.version, log.write_token)


@contextmanager
def _damage_is_told(block: Block) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as e:
        raise CorruptTableError(
            f"A block of commit {block.instant} in log file {block.path} cannot be decoded ({e}). Restore the file "
            "from a copy",
            path=block.path,
        ) from e


def refuse_undeclared(store: Store, streams: Sequence[Stream], logs: Sequence[LogFile]) -> None:
    """Raise if an event in these log files is of a stream, or has a column, that is not declared.

    Raises:
        CorruptTableError: a block cannot be decoded.
        UnsupportedTableError: a stream is not declared, or with fewer columns; or, beside streams, no stream wrote a block.
    """
    known = {each.name: each for each in streams}
    for log in logs:
        for block in read_blocks(body_of(store, log), log.path):
            if isinstance(block, Torn) or block.kind == DELETE or block.instant != log.instant:
                continue
            note, _ = _opened(block)
            if note is None and not streams:
                continue
            if note is None:
                raise _no_event(block)
            stream = known.get(note.stream)
            if stream is None or not set(note.columns) <= set(stream.columns):
                raise UnsupportedTableError(
                    f"Log file {log.path} has events of stream {note.stream!r} with {', '.join(note.columns)}, which neither a "
                    "log nor the properties declare so. Nothing was changed. Restore one of them from a copy, or declare all "
                    "streams with all columns that they had",
                    path=log.path,
                    feature="streams",
                )


def has_events(store: Store, stream: Stream, group: FileSlice) -> bool:
    """Return whether a file slice has an event of the stream, or tells that it had one of a row that is gone."""
    for log in group.logs:
        blocks = (each for each in read_blocks(body_of(store, log), log.path) if not isinstance(each, Torn))
        if any(note is not None and note.stream == stream.name for note, _ in map(_opened, blocks)):
            return True
    if group.base is None:
        return False
    with store.open(group.base.path, size=group.base.size or None) as source:
        file = StoredParquet(store, group.base.path, source)
        tables = [file.read([name for name in file.schema_arrow.names if name == stream.ordering])]
        if (floors := floors_of(file.metadata.metadata, group.base.path)) is not None:
            tables.append(floors)
    columns = [each.column(stream.ordering) for each in tables if stream.ordering in each.column_names]
    return any(each.null_count < len(each) for each in columns)


def _opened(block: Block) -> tuple[BlockNote | None, pq.ParquetFile | None]:
    """Return the note of a block, None if no stream wrote it, and its content."""
    if block.kind != PARQUET:
        return None, None
    with _damage_is_told(block):
        file = pq.ParquetFile(pa.BufferReader(block.content), pre_buffer=False)
    return BlockNote.of(file.metadata.metadata, block.path), file


def _no_event(block: Block) -> UnsupportedTableError:
    return UnsupportedTableError(
        f"Log file {block.path} of commit {block.instant} was not written by a stream, and the table has streams, whose "
        "events have an order of their own. Roll that commit back, and write through streams only",
        path=block.path,
        feature="streams",
    )


def _read(block: Block, streams: Sequence[Stream], log: LogFile, columns: Collection[str] | None) -> Events:
    note, file = _opened(block)
    if file is None or note is None:
        raise _no_event(block)
    stream = of_name(streams, note.stream, f"the table of log file {block.path}")
    schema = file.schema_arrow
    # A block has all columns of the table, because Hudi's readers need them. Only those named in its note carry values.
    carried = {*META_COLUMNS, *stream.ordered_by, *note.columns}
    carried |= set(schema.names) - {column for each in streams for column in each.own}
    wanted = [
        name
        for name in schema.names
        if name in carried and (columns is None or name in columns or name in stream.ordered_by)
    ]
    with _damage_is_told(block):
        rows = file.read(wanted, use_threads=False)
    for name in stream.ordered_by:
        if name not in wanted or (rows.column(name).null_count and note.kind != RETRACTED):
            raise CorruptTableError(
                f"Log file {block.path} has events of stream {stream.name!r} without {name}, which orders them. Restore the file "
                "from a copy",
                path=block.path,
            )
    return Events(stream, note, log, rows, schema)


def to_write(rows: pa.Table, stream: Stream, kind: str) -> pa.Table:
    """Return the rows to write for these events, those of a key adjacent and the newest last.

    A stream that keeps its events has a row for each, the others what `folded` returns, which tells arguments and errors.
    """
    if kind == RETRACTED:
        return rows
    if kind != UPSERT or not stream.event_id:
        return folded(rows, stream, kind)
    rows = lifted(stream, rows)
    codes = np.asarray(pc.dictionary_encode(array_of_column(rows, RECORD_KEY)).indices)
    age = ages_of([array_of_column(rows, name) for name in stream.ordered_by])
    return rows.take(pa.array(np.lexsort((np.arange(len(codes)), age, codes))))


def folded(rows: pa.Table, stream: Stream, kind: str = UPSERT) -> pa.Table:
    """Return the events without those that change nothing, whatever the table holds. The result is as if all were applied in
    turn.

    An event is late if one with a larger ordering value came before it. Of the others the last one counts, and earlier ones
    fill its nulls where a null keeps the old value. They stay separate rows, in the order of their ordering values: an older
    one may be too old for the table, and then so is what it would fill.

    A stream with mergers has one row per ordering value, with the contributions of all events of that value, late ones
    included. Rows of a key are adjacent, the newest last.

    Args:
        rows: in order of arrival.

    Raises:
        ConfigError: a merger cannot be imported here.
        InputError: a value cannot contribute or is too large, or several do not fit together.
    """
    merging, keeps = kind == UPSERT and bool(stream.merge), kind == UPSERT and stream.null == KEEP
    if merging:
        rows = lifted(stream, rows)
    codes = np.asarray(pc.dictionary_encode(array_of_column(rows, RECORD_KEY)).indices).astype(np.int64)
    # Without a repeated key there is nothing to fold; a merger still needs its rows in groups.
    if not len(codes) or (not merging and int(codes.max()) + 1 == len(codes)):
        return rows
    age = ages_of([array_of_column(rows, name) for name in stream.ordered_by])
    order = np.lexsort((np.arange(len(codes)), age, codes))
    counts = in_time(codes, order)
    if not merging:
        order = order[counts[order]]
    by_key, by_age = codes[order], age[order]
    new = np.append([True], by_key[1:] != by_key[:-1])
    # A fill must not travel with a newer ordering value, so rows of different ordering values stay apart.
    if merging or keeps:
        new[1:] |= by_age[1:] != by_age[:-1]
    starts = np.flatnonzero(new)
    ends = np.append(starts[1:], len(order)) - 1
    last, owner = order[ends], by_key[ends]
    needed = np.append(owner[1:] != owner[:-1], [True]) | merging
    mergers = mergers_of(stream, rows.column_names) if merging else {}
    groups = Groups(np.append(starts, len(order)))
    found, places = {}, dict.fromkeys(rows.column_names, last)
    for name in rows.column_names:
        if name in mergers:
            try:
                found[name] = mergers[name].merge(array_of_column(rows, name).take(pa.array(order)), groups)
            except InputError as e:
                raise InputError(f"column {name!r}: {e}; nothing was written", column=name) from e
        elif keeps and name in stream.columns:
            sets = np.asarray(rows.column(name).is_valid())[order] & counts[order]
            newest = np.maximum.accumulate(np.where(sets, np.arange(len(order)), -1))[ends]
            places[name] = np.where(newest >= starts, order[newest], -1)
            filled = np.flatnonzero(newest >= starts)
            needed[filled[np.append(owner[filled][1:] != owner[filled][:-1], [True])[: len(filled)]]] = True
    # `needed` marks the winner of each key, and older rows that fill one of its nulls.
    kept = np.flatnonzero(needed)
    if not merging:
        kept = kept[np.argsort(last[kept])]  # as the rows came
    for name in rows.column_names:
        if name not in found:
            at = places[name][kept]
            found[name] = rows.column(name).take(pa.array(at, mask=at < 0))
    return pa.table({name: found[name] for name in rows.column_names})
