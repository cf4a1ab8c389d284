"""The history of one row: every event of its key that is still in log files, and the source of each value.

The rules are those of `merge`, applied row by row instead of column by column; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import InputError, TableError
from ..hudi.files import LogFile, StoredParquet
from ..hudi.table import META_COLUMNS, RECORD_KEY
from ..hudi.timeline import FileSlice
from ..mergers import Groups
from ..storage import Store
from .contributions import mergers_of
from .declaration import KEEP, Stream, scalar
from .events import CLEARED, RETRACTED, UPSERT, Events, events_of, floors_of
from .kept import mergers_of_kept

COMMIT_TIME = META_COLUMNS[0]


@dataclass(frozen=True)
class Event:
    """One event of the row's key.

    Attributes:
        ordering: its ordering value; of a retraction the id that it takes back.
        instant, completion: T and C of its commit.
        counted: True if it had an effect; otherwise the stream already had a larger ordering value.
        late: True if the stream had a larger one, and the event contributed to columns with a merger all the same.
    """

    stream: str
    kind: str
    ordering: Any
    instant: str
    completion: str
    counted: bool
    late: bool = False


@dataclass(frozen=True)
class Cell:
    """One column of the row.

    Attributes:
        stream: the stream that owns the column; "" for a shared one, such as the key.
        ordering: the ordering value of the event that set it; for a value in the base file the stream's newest one there.
        instant, completion: T and C of the commit that set it; C is "" for a value that is in the base file.
        why: the reason in words.
        beat: the earlier values with their T, oldest first.
        parts: for a column with a merger, its contributions in slot order: values with their ordering values and T. A
            default has neither, and a base file's value has no ordering value. Of events that are kept those that count, in
            their own order, with T "" for those in the base file.
    """

    column: str
    value: Any
    stream: str
    ordering: Any
    instant: str
    completion: str
    why: str
    beat: tuple[tuple[Any, str], ...] = ()
    parts: tuple[tuple[Any, Any, str], ...] = ()


@dataclass(frozen=True)
class RowHistory:
    """A key of a table: ``cells`` of its row, () if there is no row, and the events that are not compacted yet."""

    partition: str
    file_id: str
    there: bool
    cells: tuple[Cell, ...]
    events: tuple[Event, ...]


@dataclass
class _Row:
    there: bool = False
    newest: dict[str, Any] = field(default_factory=dict)
    emptied: dict[str, Any] = field(default_factory=dict)  # the newest value at which each stream with mergers was
    cells: dict[str, Cell] = field(default_factory=dict)
    kinds: dict[str, pa.DataType] = field(default_factory=dict)
    kept: dict[str, dict[Any, _Kept | None]] = field(default_factory=dict)  # by stream and id; None: it was taken back

    def empty(self, stream: Stream) -> None:
        """Record that older events of the stream do not contribute any more."""
        if stream.gathers and stream.name in self.newest:
            self.emptied[stream.name] = self.newest[stream.name]
        back = self.kept.get(stream.name, {})
        self.kept[stream.name] = {event: None for event, each in back.items() if each is None}

    def keep(self, stream: Stream, values: dict[str, Any], log: LogFile | None) -> None:
        """Keep an event, or a retraction, which has no ordering value."""
        kept, event, order = self.kept.setdefault(stream.name, {}), values[stream.event_id], stream.order_of(values)
        before = kept.get(event, _NO_EVENT)
        if order is None or (before is not None and (before is _NO_EVENT or order >= before.ordering)):
            shown = {name: values.get(name) for name in (*stream.ordered_by, *stream.columns)}
            kept[event] = None if order is None else _Kept(order, shown, log)


@dataclass(frozen=True)
class _Kept:
    """An event that a row keeps. ``log`` is where it was read; None: in the base file."""

    ordering: Any
    values: dict[str, Any]
    log: LogFile | None


_NO_EVENT = _Kept(None, {}, None)


def explained(store: Store, streams: Sequence[Stream], group: FileSlice, key: str) -> RowHistory | None:
    """Return the history of a record key's row in a slice; None if the slice knows nothing of the key.

    Raises:
        ConfigError: a merger cannot be imported here.
        TableError: the contributions of events do not fit together.
    """
    row, events = _of_base(store, streams, group, key), []
    for block in events_of(store, streams, group.logs):
        row.kinds |= {each.name: each.type for each in block.schema}
        for values in block.rows.filter(pc.equal(block.rows.column(RECORD_KEY), key)).to_pylist():
            stream, kind, log = block.stream, block.note.kind, block.log
            if kind == RETRACTED:
                events.append(
                    Event(stream.name, kind, values[stream.event_id], log.instant, log.completed, counted=True)
                )
                row.keep(stream, {stream.event_id: values[stream.event_id]}, log)
                continue
            order, before = stream.order_of(values), row.newest.get(stream.name)
            floor = row.emptied.get(stream.name)
            # Of equal ordering values the event of the later slot wins, as in `merge`.
            wins = before is None or bool(order >= before)
            late = bool(not wins and stream.gathers and kind == UPSERT and (floor is None or order >= floor))
            events.append(Event(stream.name, kind, order, log.instant, log.completed, wins or late, late))
            if wins:
                row.newest[stream.name] = order
                _apply(row, streams, block, values)
            # Of equal ordering values one that is as old as what emptied the stream counts.
            if (wins or late) and kind == UPSERT and stream.event_id:
                row.keep(stream, values, log)
            elif (wins or late) and kind == UPSERT:
                _contribute(row, stream, block.note.columns, values, log)
    if not (events or row.there or row.newest or any(row.kept.values())):
        return None
    cells = _cells(row, streams, group) if row.there else []
    return RowHistory(group.partition, group.file_id, row.there, tuple(cells), tuple(events))


def _of_base(store: Store, streams: Sequence[Stream], group: FileSlice, key: str) -> _Row:
    row = _Row()
    if group.base is None:
        return row
    with store.open(group.base.path) as stream:
        file = StoredParquet(store, group.base.path, stream)
        found = file.read(use_threads=False)
        floors = floors_of(file.metadata.metadata, group.base.path)
    row.kinds = {each.name: each.type for each in found.schema}
    found = found.filter(pc.equal(found.column(RECORD_KEY), key))
    if floors is not None:
        for values in floors.filter(pc.equal(floors.column(RECORD_KEY).cast(pa.string()), key)).to_pylist():
            row.newest = _newest(streams, values)
            for each in streams:
                row.empty(each)
                _keep_all(row, each, values)
    for values in found.to_pylist():
        row.there, row.newest = True, _newest(streams, values)
        for each in streams:
            _keep_all(row, each, values)
        for name, value in values.items():
            if name not in META_COLUMNS:
                owner = _owner(streams, name)
                order = row.newest.get(owner)
                parts: tuple[tuple[Any, Any, str], ...] = ()
                if _merges(streams, name) and value is not None:
                    parts = ((value, None, values[COMMIT_TIME]),)
                why = f"in {group.base.path}"
                row.cells[name] = Cell(name, value, owner, order, values[COMMIT_TIME], "", why, parts=parts)
    return row


def _keep_all(row: _Row, stream: Stream, values: dict[str, Any]) -> None:
    for each in (stream.event_id and values.get(stream.events)) or ():
        row.keep(stream, each, None)


def _merges(streams: Sequence[Stream], column: str) -> bool:
    return any(column == name for each in streams for name, _ in each.merge)


def _contribute(row: _Row, stream: Stream, columns: Sequence[str], values: dict[str, Any], log: LogFile) -> None:
    """Add one event's contributions to the columns with a merger; the value is computed at the end."""
    order = stream.order_of(values)
    for name in columns:
        if name in dict(stream.merge) and values.get(name) is not None:
            parts = row.cells[name].parts if name in row.cells else ()
            parts = (*parts, (values[name], order, log.instant))
            row.cells[name] = Cell(name, None, stream.name, order, log.instant, log.completed, "merged", parts=parts)


def _newest(streams: Sequence[Stream], values: dict[str, Any]) -> dict[str, Any]:
    return {each.name: order for each in streams if (order := each.order_of(values)) is not None}


def _owner(streams: Sequence[Stream], column: str) -> str:
    return next((each.name for each in streams if column in each.own), "")


def _apply(
    row: _Row,
    streams: Sequence[Stream],
    block: Events,
    values: dict[str, Any],
) -> None:
    stream, log, kind, columns, null = block.stream, block.log, block.note.kind, block.note.columns, block.note.null
    order, defaults = stream.order_of(values), _defaults(row, streams, log)
    put = partial(_put, row, streams, order, log)
    if kind == UPSERT:
        if not row.there:
            row.there = True
            for name, value in values.items():
                if name not in META_COLUMNS and not _owner(streams, name):
                    put(name, value, "the row appeared")
            for name, value in defaults.items():
                put(name, value, "default of a row that appeared")
        for name in (*columns, *stream.ordered_by):
            if not _merges(streams, name) and (values.get(name) is not None or null != KEEP):
                put(name, values.get(name), "set")
    elif kind == CLEARED:
        now = {name: defaults.get(name) for name in columns} | {name: values[name] for name in stream.ordered_by}
        for name, value in now.items() if row.there else ():
            put(name, value, "cleared")
        row.empty(stream)
    else:
        # The newest ordering values stay: they decide whether later events count.
        row.there, row.cells = False, {}
        for each in streams:
            row.empty(each)


def _put(row: _Row, streams: Sequence[Stream], order: Any, log: LogFile, column: str, value: Any, why: str) -> None:
    old = row.cells.get(column)
    beat = (*old.beat, (old.value, old.instant)) if old else ()
    parts: tuple[tuple[Any, Any, str], ...] = ()
    if _merges(streams, column):  # an emptied column starts from no contributions
        beat, parts = (), () if value is None else ((value, None, ""),)
    owner = _owner(streams, column)
    row.cells[column] = Cell(column, value, owner, order, log.instant, log.completed, why, beat, parts)


def _defaults(row: _Row, streams: Sequence[Stream], log: LogFile) -> dict[str, Any]:
    """Return the values of columns in a row that this commit creates or clears."""
    defaults = [each for one in streams for each in one.defaults if each.since < log.completed]
    found = {
        each.column: scalar(each, row.kinds[each.column]).as_py() if each.column in row.kinds else each.value
        for each in defaults
    }
    return {column: value for column, value in found.items() if value is not None}


def _cells(row: _Row, streams: Sequence[Stream], group: FileSlice) -> list[Cell]:
    """Return the cells of all columns, also of those that nothing has set in this row."""
    cells = dict(row.cells)
    for each in streams:
        order = row.newest.get(each.name)
        ordering = dict(
            zip(each.ordered_by, order if each.then_by and order else [order] * len(each.ordered_by), strict=True)
        )
        for name in (*each.columns, *ordering):
            if name not in cells:
                value, why = (ordering[name], "kept when the row was deleted") if name in ordering else (None, "")
                why = "no event has set it" if order is None else why or "not set since the row appeared"
                cells[name] = Cell(name, value, each.name, order, "", "", why)
        if each.event_id:
            _of_kept(row, each, cells, group)
            continue
        for name, merger in mergers_of(each, [name for name in each.columns if cells[name].why == "merged"]).items():
            values = pa.array([value for value, _, _ in cells[name].parts], row.kinds[name])
            try:
                (value,) = merger.merge(values, Groups(np.array([0, len(values)]))).to_pylist()
            except InputError as e:
                raise TableError(f"column {name!r} of {group.group} cannot be merged: {e}", column=name) from e
            cells[name] = replace(cells[name], value=value, why=f"{dict(each.merge)[name]} of {len(values)}")
    return list(cells.values())


def _of_kept(row: _Row, stream: Stream, cells: dict[str, Cell], group: FileSlice) -> None:
    """Set the cells of a stream that keeps its events."""
    kept = row.kept.get(stream.name, {})
    found = [(event, each) for event, each in kept.items() if each is not None]
    found.sort(key=lambda pair: (pair[1].ordering, pair[0]))
    newest = found[-1][1] if found else _NO_EVENT
    at = (newest.log.instant, newest.log.completed) if newest.log else ("", "")
    for name, merger in mergers_of_kept(stream).items():
        values = [each.values.get(name) for _, each in found]
        parts = tuple((each.values.get(name), each.ordering, each.log.instant if each.log else "") for _, each in found)
        try:
            array = pa.array(values, row.kinds.get(name))
            value = merger.merge(array, Groups(np.array([0, len(values)])))[0].as_py() if values else None
        except InputError as e:
            raise TableError(f"column {name!r} of {group.group} cannot be merged: {e}", column=name) from e
        why = f"{dict(stream.merge).get(name, 'last')} of {len(values)} events" if values else "no event counts"
        cells[name] = Cell(name, value, stream.name, newest.ordering, *at, why, parts=parts)
    none = dict.fromkeys((*stream.ordered_by, *stream.columns))
    back = [none | {stream.event_id: event} for event in sorted(event for event, each in kept.items() if each is None)]
    value = [*(each.values for _, each in found), *back] or None
    cells[stream.events] = Cell(stream.events, value, stream.name, newest.ordering, *at, "its events")
