"""The rows of a file slice after the events of its streams, one block after the other in slot order.

    upsert    of the stream's columns, where its ordering value is not smaller than the newest one of that key and stream;
              a key without a row gets one, with the defaults of all streams
    clear     the stream's columns are as in a new row, under the same condition; no row appears
    delete    the row is gone under the same condition, with the values of all streams, but not their ordering values: what is
              older than these stays lost

So a row is its values and the newest ordering value of each stream, nothing else decides what an event does. Both are in
the base file: an ordering column is a column of the row, and keys without a row are in its floors (`notes`). Hence it is the
same before and after a compaction, which holds exactly the blocks before a slot.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import CorruptTableError
from ..hudi.merge import alike, merged_rows
from ..hudi.table import META_COLUMNS, RECORD_KEY, TableConfig
from ..hudi.timeline import FileSlice
from ..storage import Store
from .declaration import KEEP, Stream, scalar, shared_columns
from .events import Events, events_of
from .notes import CLEARED, UPSERT, floors_of

_Places = npt.NDArray[np.int64]
_NULL, _DEFAULT = -1, -2  # instead of the place of a value


@dataclass(frozen=True)
class Stitched:
    """Rows with meta columns, and the floors of keys without a row: key and ordering columns."""

    rows: pa.Table
    floors: pa.Table


def slice_rows(
    store: Store,
    config: TableConfig,
    streams: Sequence[Stream],
    group: FileSlice,
    *,
    columns: Collection[str] | None = None,
    strict: bool = False,
) -> pa.Table:
    """The rows of a slice with log files, by the rules of its streams, or of its table where it has none.

    Arguments and errors as of `hudi.merge.merged_rows`; memory is that of the slice's rows, twice.
    """
    if not streams:
        return merged_rows(store, config, group, columns=columns, strict=strict)
    return stitched(store, streams, group, columns=columns, strict=strict).rows


def stitched(
    store: Store,
    streams: Sequence[Stream],
    group: FileSlice,
    *,
    columns: Collection[str] | None = None,
    strict: bool = False,
) -> Stitched:
    """The rows and floors of a slice. Raises as `events_of` does."""
    needed = None if columns is None else {*columns, *META_COLUMNS, *(each.ordering for each in streams)}
    base, floors = _base(store, group, needed)
    blocks = list(events_of(store, streams, group.logs, columns=needed, strict=strict))
    try:
        made = _Slice(base, floors, blocks, streams, columns)
        for number, block in enumerate(blocks):
            made.apply(number, block)
        return made.result(columns)
    except pa.ArrowException as e:
        raise CorruptTableError(
            f"The log files of {group.group} do not fit together ({e}), the newest is {group.logs[-1].path}. Restore them "
            "from a copy",
            path=group.logs[-1].path,
        ) from e


def _base(store: Store, group: FileSlice, needed: set[str] | None) -> tuple[pa.Table | None, pa.Table | None]:
    if group.base is None:
        return None, None
    with store.open(group.base.path) as stream:
        file = pq.ParquetFile(stream)
        names = [n for n in file.schema_arrow.names if needed is None or n in needed]
        return file.read(names, use_threads=False), floors_of(file.metadata.metadata, group.base.path)


class _Slice:
    """All rows one after the other (base file, then blocks), and for each key the places of what it has of them."""

    def __init__(
        self,
        base: pa.Table | None,
        floors: pa.Table | None,
        blocks: Sequence[Events],
        streams: Sequence[Stream],
        columns: Collection[str] | None,
    ) -> None:
        tables = alike([*([base] if base is not None else []), *(each.rows for each in blocks)])
        self._rows = pa.concat_tables(tables) if tables else pa.table({RECORD_KEY: pa.array([], pa.string())})
        self._rows = self._with_defaults(blocks, streams, columns).combine_chunks()
        ends = np.cumsum([0, *(each.num_rows for each in tables)])
        old = int(ends[1]) if base is not None else 0
        self._ends = ends[1:] if base is not None else ends
        self._streams = {each.name: each for each in streams}
        keys = self._rows.column(RECORD_KEY)
        if floors is not None:
            keys = pa.chunked_array([*keys.chunks, *floors.column(RECORD_KEY).cast(pa.string()).chunks], pa.string())
        encoded = keys.combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = pa.concat_arrays(encoded.unify_dictionaries().chunks)
        self._keys, self._codes = encoded.dictionary, np.asarray(encoded.indices).astype(np.int64)
        count = len(self._keys)
        data = [n for n in self._rows.column_names if n not in META_COLUMNS]
        orders = {each.ordering for each in streams}
        self._shared = shared_columns(streams, data)
        self._values = [n for n in data if n not in orders and n not in self._shared]
        self._places = {n: np.full(count, _NULL, np.int64) for n in (*self._values, *self._shared)}
        self._there, self._touched = np.zeros(count, bool), np.full(count, _NULL, np.int64)
        first = self._codes[:old]
        if int(first.max(initial=-1)) + 1 < len(first):  # codes are given in the order in which keys come
            raise CorruptTableError(
                "a base file of a table with streams holds a key twice; `lakelatch check` tells which"
            )
        for places in (*self._places.values(), self._touched):
            places[first] = np.arange(old)
        self._there[first] = True
        self._orders = {each.name: _Order(each, self._rows, floors, self._codes, old, count) for each in streams}

    def _with_defaults(
        self, blocks: Sequence[Events], streams: Sequence[Stream], columns: Collection[str] | None
    ) -> pa.Table:
        """The rows, also with the columns that no block carries and that have a default."""
        kinds = {field.name: field.type for block in blocks for field in block.schema}
        rows = self._rows
        for each in (default for stream in streams for default in stream.defaults):
            if each.column not in rows.column_names and (columns is None or each.column in columns):
                # Where no file of the slice knows the column yet, whoever reads gives it the table's type.
                kind = kinds.get(each.column, pa.scalar(each.value).type)
                rows = rows.append_column(each.column, pa.nulls(rows.num_rows, kind))
        return rows

    def apply(self, number: int, events: Events) -> None:
        """What one block does."""
        at = np.arange(self._ends[number], self._ends[number + 1])
        wins = self._orders[events.stream.name].advance(self._codes[at], at)
        at = at[wins]
        keys = self._codes[at]
        if events.note.kind == UPSERT:
            self._upsert(events, keys, at)
        elif events.note.kind == CLEARED:
            there = self._there[keys]
            for name in self._of(events):
                defaulted = self._defaulted(events.stream, name, events)
                self._places[name][keys] = np.where(there, _DEFAULT if defaulted else _NULL, _NULL)
            self._touched[keys[there]] = at[there]
        else:
            self._there[keys] = False
            for name in self._values:
                self._places[name][keys] = _NULL

    def _upsert(self, events: Events, keys: _Places, at: _Places) -> None:
        new = ~self._there[keys]
        for stream in self._streams.values():
            for each in stream.defaults:
                if each.column in self._places and self._defaulted(stream, each.column, events):
                    self._places[each.column][keys[new]] = _DEFAULT
        for name in self._shared:
            self._places[name][keys[new]] = at[new]
        for name in self._of(events):
            if events.stream.null == KEEP:
                set_ = np.asarray(pc.is_valid(self._rows.column(name).take(pa.array(at))))
                self._places[name][keys[set_]] = at[set_]
            else:
                self._places[name][keys] = at
        self._there[keys] = True
        self._touched[keys] = at

    def _of(self, events: Events) -> list[str]:
        return [name for name in events.note.columns if name in self._places]

    @staticmethod
    def _defaulted(stream: Stream, name: str, events: Events) -> bool:
        return any(each.column == name and each.since < events.log.completed for each in stream.defaults)

    def result(self, columns: Collection[str] | None) -> Stitched:
        """The rows there are now, in the order in which their keys came, and the floors."""
        there = np.flatnonzero(self._there)
        found = {}
        for name in self._rows.column_names:
            if name in META_COLUMNS:
                found[name] = _taken(self._rows.column(name), self._touched[there])
            elif name in self._places and (columns is None or name in columns):
                found[name] = self._column(name, self._places[name][there])
            elif columns is None or name in columns:
                order = next(each for each in self._orders.values() if each.column == name)
                found[name] = order.values(there)
        for order in self._orders.values():  # no row that was read has it, but a floor may
            if order.column not in found and order.known and (columns is None or order.column in columns):
                found[order.column] = order.values(there)
        orders = [each for each in self._orders.values() if each.known]
        gone = np.flatnonzero(~self._there)
        gone = gone[np.any([order.ranks[gone] >= 0 for order in orders], axis=0)] if orders else gone[:0]
        floors = {RECORD_KEY: self._keys.take(pa.array(gone))} | {each.column: each.values(gone) for each in orders}
        return Stitched(pa.table(found), pa.table(floors))

    def _column(self, name: str, places: _Places) -> pa.ChunkedArray:
        column = _taken(self._rows.column(name), np.where(places == _DEFAULT, _NULL, places))
        if not (defaulted := places == _DEFAULT).any():
            return column
        default = next(e for stream in self._streams.values() for e in stream.defaults if e.column == name)
        return pc.if_else(pa.array(defaulted), scalar(default, column.type), column)


class _Order:
    """The newest ordering value of each key in one stream: as a rank among all that there are, and where it stands.

    Attributes:
        column: its name.
        known: whether some row or floor has the column.
        ranks: by key; -1 where no event has come yet.
    """

    def __init__(
        self, stream: Stream, rows: pa.Table, floors: pa.Table | None, codes: _Places, old: int, count: int
    ) -> None:
        self.column = stream.ordering
        pieces = [
            each.column(self.column) for each in (rows, floors) if each is not None and self.column in each.column_names
        ]
        self.known = bool(pieces)
        self.ranks, self._places = np.full(count, -1, np.int64), np.full(count, _NULL, np.int64)
        if not self.known:
            return
        kind = pieces[0].type if self.column in rows.column_names else pieces[-1].type
        before = rows.num_rows if self.column in rows.column_names else 0
        self._offset = before
        self._all = pa.chunked_array([chunk for piece in pieces for chunk in piece.cast(kind).chunks], kind)
        self._all = self._all.combine_chunks()
        ranked = np.asarray(pc.rank(self._all, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
        self._ranked = np.where(np.asarray(self._all.is_valid()), ranked, -1)
        if before:
            self._set(codes[:old], np.arange(old))
        if floors is not None and self.column in floors.column_names:
            self._set(codes[rows.num_rows :], np.arange(before, len(self._all)))

    def _set(self, keys: _Places, at: _Places) -> None:
        self.ranks[keys] = self._ranked[at]
        self._places[keys] = np.where(self._ranked[at] >= 0, at, _NULL)

    def advance(self, keys: _Places, at: _Places) -> npt.NDArray[np.bool_]:
        """The newest of these keys are the ones at these places, where they are not older; marks those."""
        wins: npt.NDArray[np.bool_] = self._ranked[at] >= self.ranks[keys]
        self._set(keys[wins], at[wins])
        return wins

    def values(self, keys: _Places) -> pa.ChunkedArray:
        """The ordering values of keys."""
        return _taken(self._all, self._places[keys])


def _taken(column: pa.Array | pa.ChunkedArray, places: _Places) -> pa.ChunkedArray:
    """The values at these places; null where there is none."""
    if len(places) and places[0] == 0 and places[-1] == len(places) - 1 and (places == np.arange(len(places))).all():
        found = column.slice(0, len(places))
    else:
        found = column.take(pa.array(places, mask=places < 0))
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found], column.type)
