"""What made one row: every event of its key that is still in log files, an event at a time, and where each value is from.

These are the rules of `merge`, told row by row instead of column by column; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..hudi.files import LogFile
from ..hudi.table import META_COLUMNS, RECORD_KEY
from ..hudi.timeline import FileSlice
from ..storage import Store
from .declaration import KEEP, Stream
from .events import events_of
from .notes import CLEARED, UPSERT, floors_of

COMMIT_TIME = META_COLUMNS[0]


@dataclass(frozen=True)
class Event:
    """One event of the row's key.

    Attributes:
        instant, completion: T and C of its commit.
        counted: whether it did something; otherwise the stream had a larger ordering value then.
    """

    stream: str
    kind: str
    ordering: Any
    instant: str
    completion: str
    counted: bool


@dataclass(frozen=True)
class Cell:
    """One column of the row.

    Attributes:
        stream: whose column it is; "" for one of all, such as the key.
        ordering: of the event that set it; of a value in the base file the stream's newest one there.
        instant, completion: T and C of the commit that set it; C is "" for a value that is in the base file.
        why: how it came there.
        beat: what stood there before, oldest first: values with their T.
    """

    column: str
    value: Any
    stream: str
    ordering: Any
    instant: str
    completion: str
    why: str
    beat: tuple[tuple[Any, str], ...] = ()


@dataclass(frozen=True)
class RowHistory:
    """A key of a table: ``cells`` of its row, none where there is no row, and the events that are not compacted yet."""

    partition: str
    file_id: str
    there: bool
    cells: tuple[Cell, ...]
    events: tuple[Event, ...]


@dataclass
class _Row:
    there: bool = False
    newest: dict[str, Any] = field(default_factory=dict)
    cells: dict[str, Cell] = field(default_factory=dict)


def explained(store: Store, streams: Sequence[Stream], group: FileSlice, key: str) -> RowHistory | None:
    """What made the row of a record key in a slice; None where nothing is known of that key there."""
    row, events = _of_base(store, streams, group, key), []
    for block in events_of(store, streams, group.logs):
        for values in block.rows.filter(pc.equal(block.rows.column(RECORD_KEY), key)).to_pylist():
            order, before = values[block.stream.ordering], row.newest.get(block.stream.name)
            counts = before is None or bool(order >= before)
            events.append(
                Event(block.stream.name, block.note.kind, order, block.log.instant, block.log.completed, counts)
            )
            if counts:
                row.newest[block.stream.name] = order
                _apply(row, streams, block.stream, block.note.kind, block.note.columns, values, block.log)
    if not (events or row.there or row.newest):
        return None
    cells = _cells(row, streams) if row.there else []
    return RowHistory(group.partition, group.file_id, row.there, tuple(cells), tuple(events))


def _of_base(store: Store, streams: Sequence[Stream], group: FileSlice, key: str) -> _Row:
    row = _Row()
    if group.base is None:
        return row
    with store.open(group.base.path) as stream:
        file = pq.ParquetFile(stream)
        found = file.read(use_threads=False)
        floors = floors_of(file.metadata.metadata, group.base.path)
    found = found.filter(pc.equal(found.column(RECORD_KEY), key))
    if floors is not None:
        for values in floors.filter(pc.equal(floors.column(RECORD_KEY).cast(pa.string()), key)).to_pylist():
            row.newest = _newest(streams, values)
    for values in found.to_pylist():
        row.there, row.newest = True, _newest(streams, values)
        for name, value in values.items():
            if name not in META_COLUMNS:
                owner = _owner(streams, name)
                order = row.newest.get(owner)
                row.cells[name] = Cell(name, value, owner, order, values[COMMIT_TIME], "", f"in {group.base.path}")
    return row


def _newest(streams: Sequence[Stream], values: dict[str, Any]) -> dict[str, Any]:
    return {each.name: values[each.ordering] for each in streams if values.get(each.ordering) is not None}


def _owner(streams: Sequence[Stream], column: str) -> str:
    return next((each.name for each in streams if column in each.own), "")


def _apply(
    row: _Row,
    streams: Sequence[Stream],
    stream: Stream,
    kind: str,
    columns: Sequence[str],
    values: dict[str, Any],
    log: LogFile,
) -> None:
    order = values[stream.ordering]

    def put(column: str, value: Any, why: str) -> None:
        old = row.cells.get(column)
        beat = (*old.beat, (old.value, old.instant)) if old else ()
        row.cells[column] = Cell(column, value, _owner(streams, column), order, log.instant, log.completed, why, beat)

    defaults = {each.column: each.value for one in streams for each in one.defaults if each.since < log.completed}
    if kind == UPSERT:
        if not row.there:
            row.there = True
            for name, value in values.items():
                if name not in META_COLUMNS and not _owner(streams, name):
                    put(name, value, "the row appeared")
            for name, value in defaults.items():
                put(name, value, "default of a row that appeared")
        for name in (*columns, stream.ordering):
            if values.get(name) is not None or stream.null != KEEP:
                put(name, values.get(name), "set")
    elif kind == CLEARED:
        for name in columns if row.there else ():
            put(name, defaults.get(name), "cleared")
        if row.there:
            put(stream.ordering, order, "cleared")
    else:
        row.there, row.cells = False, {}


def _cells(row: _Row, streams: Sequence[Stream]) -> list[Cell]:
    """Of all columns, also those that nothing has set in this row."""
    cells = dict(row.cells)
    for each in streams:
        order = row.newest.get(each.name)
        for name in (*each.columns, each.ordering):
            if name not in cells:
                value, why = (order, "kept when the row was deleted") if name == each.ordering else (None, "")
                why = "no event has set it" if order is None else why or "not set since the row appeared"
                cells[name] = Cell(name, value, each.name, order, "", "", why)
    return list(cells.values())
