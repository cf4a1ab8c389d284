"""The rows of a file slice after the events of its streams, applied block by block in slot order.

    upsert  sets the stream's columns, if its ordering value is not smaller than the newest one of that key and stream;
            a key without a row gets one, with the defaults of all streams
    clear   the stream's columns become as in a new row, under the same condition; no row appears
    delete  removes the row under the same condition, with the values of all streams, but not their ordering values: older
            events stay without effect
    retract takes events back by their ids, in a stream that keeps its events (`kept`)
    unsaid  the stream has had no event of these keys: its columns become as in a new row, and a row goes that only its events
            made. An overwrite begins with it; no log file has one

In a column with a merger an event counts unless it is older than the event that emptied the column: its bound is the newest
ordering value that the stream had when a clear or a delete did so. Without such a bound all events count, however late.

So a row's state is its values and two ordering values per stream, the newest one and the one at which it was emptied. Nothing
else decides the effect of an event. Both are in the base file: an ordering column is a column of the row, and the rest is in
its floors (`events`). Hence the result is the same before and after a compaction, which holds exactly the blocks before a
slot.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..errors import CorruptTableError, InputError, TableError
from ..hudi.files import LogFile, StoredParquet
from ..hudi.merge import joined, merged_rows, needed_columns, read_key, stacked, widened, without
from ..hudi.table import META_COLUMNS, RECORD_KEY, TableConfig, array_of_column, shown
from ..hudi.timeline import LATEST, FileSlice
from ..mergers import Groups
from ..storage import Store
from .contributions import mergers_of
from .declaration import KEEP, Stream, scalar, shared_columns
from .events import CLEARED, RETRACTED, UPSERT, BlockNote, Events, events_of, floors_of
from .kept import KeptEvents, Settled

_Places = npt.NDArray[np.int64]
_UNSAID = "unsaid"
_NULL, _DEFAULT = -1, -2  # instead of the place of a value; the stream's second default is -3, and so on


@dataclass(frozen=True)
class Stitched:
    """Rows with meta columns; and, if all columns are read, the floors (`events`): key and ordering columns."""

    rows: pa.Table
    floors: pa.Table


@dataclass(frozen=True)
class Overwrite:
    """Events of a stream in place of all that it has said in a slice. The rows that change have no commit time.

    Attributes:
        events: as `to_write` returns them.
        schema: the table's columns.
        identity: the key and partition columns, which every row has.
    """

    stream: Stream
    events: pa.Table
    schema: pa.Schema
    identity: tuple[str, ...]

    def blocks(self, base: pa.Table | None, floors: pa.Table | None, blocks: Sequence[Events]) -> list[Events]:
        """Return it as blocks on a slice with these."""
        said = [pa.chunked_array([], pa.string())]
        said += [each.rows.column(RECORD_KEY) for each in blocks if each.stream.name == self.stream.name]
        for rows in (base, floors):
            for name in (self.stream.ordering, self.stream.events):
                if rows is not None and name in rows.column_names:
                    said.append(rows.filter(rows.column(name).is_valid()).column(RECORD_KEY).cast(pa.string()))
        keys = pa.chunked_array([chunk for each in said for chunk in each.chunks], pa.string()).unique()
        # The commit comes after all that the slice holds, and fails if a default has changed since it began.
        log = LogFile("", "", "", "", 0, "", 0, completed=LATEST)
        made = ((_UNSAID, pa.table({RECORD_KEY: keys})), (UPSERT, self.events))
        return [
            Events(self.stream, BlockNote(self.stream.name, kind, columns, self.stream.null), log, rows, self.schema)
            for (kind, rows), columns in zip(made, (self.identity, self.stream.columns), strict=True)
        ]


def slice_rows(
    store: Store,
    config: TableConfig,
    streams: Sequence[Stream],
    group: FileSlice,
    *,
    columns: Collection[str] | None = None,
    meta: bool = True,
    strict: bool = False,
    in_place: bool = True,
) -> pa.Table:
    """Return the rows of a slice with log files, by the rules of its streams, or of its table if it has none.

    Arguments and errors as for `hudi.merge.merged_rows`; needs memory for the slice's rows, twice.
    """
    if not streams:
        return merged_rows(store, config, group, columns=columns, meta=meta, strict=strict, in_place=in_place)
    key = read_key(config.record_key_fields, columns, meta=meta)
    return stitched(store, streams, group, columns=columns, meta=meta, strict=strict, key=key).rows


def stitched(
    store: Store,
    streams: Sequence[Stream],
    group: FileSlice,
    *,
    columns: Collection[str] | None = None,
    meta: bool = True,
    strict: bool = False,
    key: str = RECORD_KEY,
    instead: Overwrite | None = None,
) -> Stitched:
    """Return the rows and floors of a slice. Arguments as for `hudi.merge.merged_rows`; and ``key``, as of `read_key`.

    ``instead``: as they are after this overwrite; needs all columns.

    Raises as `events_of` does, and:
        ConfigError: a merger of a column that is read cannot be imported here.
        TableError: the contributions to a column do not fit together.
    """
    more = [name for each in streams for name in each.ordered_by]
    more += [name for each in streams for name in each.needed(columns or ())]
    needed = needed_columns(columns, more, meta=meta)
    if needed is not None and key != RECORD_KEY:
        needed = {*needed} - {RECORD_KEY}
    base, floors = _base(store, group, needed)
    if base is not None and strict and pc.count_distinct(base.column(key)).as_py() < base.num_rows:
        raise _repeated()
    blocks = list(events_of(store, streams, group.logs, columns=needed, strict=strict))
    if instead is not None:
        blocks += instead.blocks(base, floors, blocks)
    if key != RECORD_KEY:
        tables = [*([base] if base is not None else []), *(each.rows for each in blocks)]
        if any(
            each.schema.field(key).type != pa.string() for each in tables
        ):  # floors have record keys, which are texts
            return stitched(store, streams, group, columns=columns, meta=meta, strict=strict)
    try:
        return _stitched(base, floors, blocks, streams, columns, key)
    except pa.ArrowException as e:
        raise CorruptTableError(
            f"The log files of {group.group} do not fit together ({e}), the newest is {group.logs[-1].path}. Restore them "
            "from a copy",
            path=group.logs[-1].path,
        ) from e
    except _Unmerged as e:
        raise TableError(
            f"column {e.column!r} of {group.group} cannot be merged: {e.why} (record keys {shown(e.keys)}). Other columns can be "
            "read. Empty it with an event: a delete of its stream for these keys, no older than their newest one",
            column=e.column,
            keys=e.keys.to_pylist(),
        ) from e


def _stitched(
    base: pa.Table | None,
    floors: pa.Table | None,
    blocks: Sequence[Events],
    streams: Sequence[Stream],
    columns: Collection[str] | None,
    key: str = RECORD_KEY,
) -> Stitched:
    """Merge the keys that have events, and put their rows behind the others, of which only the key is looked at."""
    # Most keys of a base file have no event. The number of a key is that of its first event.
    chunks = [chunk for each in blocks for chunk in each.rows.column(key).chunks]
    found = joined(pa.chunked_array(chunks, pa.string()).dictionary_encode())
    keys, codes = found.dictionary, [found.indices]
    old, rest, met = base, None, pa.array([], pa.bool_())
    if base is not None:
        match = pc.index_in(array_of_column(base, key), value_set=keys)
        met = match.is_valid()
        old = base.take(pc.indices_nonzero(met))
        codes.insert(0, match.drop_null())
    if floors is not None:
        match = pc.index_in(array_of_column(floors, RECORD_KEY), value_set=keys)
        floors, rest = floors.filter(match.is_valid()), floors.filter(match.is_null())
        codes.append(match.drop_null())
    made = _Slice(old, floors, blocks, streams, columns, keys, np.asarray(pa.concat_arrays(codes)).astype(np.int64))
    for number, block in enumerate(blocks):
        made.apply(number, block)
    rows, floors = made.result(columns)
    if base is not None:
        rows = pa.concat_tables([without(widened(base, rows.schema), met), rows])
    if columns is None and rest is not None and rest.num_rows:
        floors = pa.concat_tables([floors, widened(rest, floors.schema)])
    return Stitched(rows, floors)


def _repeated() -> CorruptTableError:
    return CorruptTableError("a base file of a table with streams holds a key twice; `lakelatch check` tells which")


class _Unmerged(Exception):
    """The failure to merge the values of a column for these keys."""

    def __init__(self, column: str, keys: pa.Array, why: str) -> None:
        super().__init__(why)
        self.column, self.keys, self.why = column, keys, why


def _base(store: Store, group: FileSlice, needed: Collection[str] | None) -> tuple[pa.Table | None, pa.Table | None]:
    if group.base is None:
        return None, None
    with store.open(group.base.path, size=group.base.size or None) as stream:
        file = StoredParquet(store, group.base.path, stream)
        names = [n for n in file.schema_arrow.names if needed is None or n in needed]
        return file.read(names, use_threads=False), floors_of(file.metadata.metadata, group.base.path)


class _Slice:
    """The rows of the base file, then of each block; for each key the index of the row that its current value comes from."""

    def __init__(
        self,
        base: pa.Table | None,
        floors: pa.Table | None,
        blocks: Sequence[Events],
        streams: Sequence[Stream],
        columns: Collection[str] | None,
        keys: pa.Array,
        codes: _Places,
    ) -> None:
        tables = [*([base] if base is not None else []), *(each.rows for each in blocks)]
        self._rows = stacked(tables) if tables else pa.table({})
        self._rows = self._with_defaults(blocks, streams, columns).combine_chunks()
        ends = np.cumsum([0, *(each.num_rows for each in tables)])
        old = int(ends[1]) if base is not None else 0
        self._ends = ends[1:] if base is not None else ends
        self._streams = {each.name: each for each in streams}
        self._keys, self._codes, count = keys, codes, len(keys)
        data = [n for n in self._rows.column_names if n not in META_COLUMNS]
        orders = {name for each in streams for name in each.ordered_by}
        self._shared = shared_columns(streams, data)
        self._kept = self._kept_events(base, floors, blocks, streams, columns)
        kept = {name for each in streams if each.name in self._kept for name in (*each.columns, each.events)}
        self._values = [n for n in data if n not in orders and n not in self._shared and n not in kept]
        self._places = {n: np.full(count, _NULL, np.int64) for n in (*self._values, *self._shared)}
        self._there, self._touched = np.zeros(count, bool), np.full(count, _NULL, np.int64)
        first = self._codes[:old]
        for places in (*self._places.values(), self._touched):
            places[first] = np.arange(old)
        self._there[first] = True
        if np.count_nonzero(self._there) < old:
            raise _repeated()
        self._orders = {each.name: _Order(each, self._rows, floors, self._codes, old, count) for each in streams}
        self._given: dict[str, list[_Given]] = {column: [] for each in streams for column, _ in each.merge}
        # By key: after which block the columns of a stream with mergers were emptied last; the base file counts as block -1.
        self._emptied = {each.name: np.full(count, -1, np.int64) for each in streams if each.gathers}
        for name, found in self._kept.items():
            column = self._streams[name].events
            if base is not None and column in base.column_names:
                found.add_kept(base.column(column), first)
            if floors is not None and column in floors.column_names:
                found.add_kept(floors.column(column), self._codes[self._rows.num_rows :])

    @staticmethod
    def _kept_events(
        base: pa.Table | None,
        floors: pa.Table | None,
        blocks: Sequence[Events],
        streams: Sequence[Stream],
        columns: Collection[str] | None,
    ) -> dict[str, KeptEvents]:
        """Return by name what gathers the events of the streams that keep them, if one of their columns is read."""
        schemas = [*(each.schema for each in (base, floors) if each is not None), *(each.schema for each in blocks)]
        found = {}
        for each in streams:
            wanted = {*each.columns, each.events} if columns is None else {*each.columns, each.events} & set(columns)
            # Before the column was added there were no events.
            kinds = [schema.field(each.events).type for schema in schemas if each.events in schema.names]
            if each.event_id and wanted and kinds:
                found[each.name] = KeptEvents(each, wanted, kinds[-1])
        return found

    def _with_defaults(
        self, blocks: Sequence[Events], streams: Sequence[Stream], columns: Collection[str] | None
    ) -> pa.Table:
        """Return the rows with the columns that no block carries and that have a default."""
        kinds = {field.name: field.type for block in blocks for field in block.schema}
        rows = self._rows
        for each in (default for stream in streams for default in stream.defaults):
            told = each.value is not None and (columns is None or each.column in columns)
            if told and each.column not in rows.column_names:
                # If no file of the slice has the column yet, the reader casts it to the table's type.
                kind = kinds.get(each.column, pa.scalar(each.value).type)
                rows = rows.append_column(each.column, pa.nulls(rows.num_rows, kind))
        return rows

    def apply(self, number: int, events: Events) -> None:
        """Apply one block."""
        at = np.arange(self._ends[number], self._ends[number + 1])
        order = self._orders[events.stream.name]
        # Contributions are taken before `advance`, since late events count for mergers too.
        if events.note.kind == RETRACTED:
            self._touched[self._codes[at]] = at
            self._keep(number, events, at, back=True)
            return
        if events.note.kind == _UNSAID:
            self._unsay(number, events, self._codes[at], at)
            return
        if events.stream.gathers and events.note.kind == UPSERT:
            self._contribute(number, events, at[order.counts(self._codes[at], at)])
        wins = order.advance(self._codes[at], at)
        at = at[wins]
        keys = self._codes[at]
        if events.note.kind == UPSERT:
            self._upsert(events, keys, at)
        elif events.note.kind == CLEARED:
            there = self._there[keys]
            for name in self._of(events):
                self._places[name][keys] = np.where(there, self._default_at(events.stream, name, events), _NULL)
            self._touched[keys[there]] = at[there]
            self._empty(number, events.stream.name, keys)
        else:
            self._there[keys] = False
            for name in self._values:
                self._places[name][keys] = _NULL
            # The ordering values are not reset: an event older than the delete must stay without effect.
            for stream in self._streams:
                self._empty(number, stream, keys)

    def _contribute(self, number: int, events: Events, at: _Places) -> None:
        """Record contributions, late ones too. They show only in rows that exist: without one nothing was written since it
        was emptied.
        """
        self._touched[self._codes[at]] = at
        for name in self._of(events):
            if name in self._given:
                self._given[name].append(_Given(number, at))
        self._keep(number, events, at)

    def _keep(self, number: int, events: Events, at: _Places, *, back: bool = False) -> None:
        if (kept := self._kept.get(events.stream.name)) is not None:
            kept.add(self._rows.take(pa.array(at)), self._codes[at], number, back=back)

    def _unsay(self, number: int, events: Events, keys: _Places, at: _Places) -> None:
        stream, order, there = events.stream, self._orders[events.stream.name], self._there[keys]
        for name in {*stream.columns} & self._places.keys():
            self._places[name][keys] = np.where(there, self._default_at(stream, name, events), _NULL)
        gone = keys[there & (order.ranks[keys] >= 0) & ~self._told_by_others(stream, keys, events.note.columns)]
        self._there[gone] = False
        for name in self._values:
            self._places[name][gone] = _NULL
        self._touched[keys] = at
        order.unsay(keys)
        if stream.name in self._emptied:
            self._emptied[stream.name][keys] = number
        if stream.name in self._kept:
            self._kept[stream.name].unsay(keys)

    def _told_by_others(self, stream: Stream, keys: _Places, identity: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return a mask of the rows that another stream has had an event of, or that have a value which no event has set."""
        found = np.zeros(len(keys), bool)
        for name, order in self._orders.items():
            found |= (name != stream.name) & (order.ranks[keys] >= 0)
        for name in {*self._values, *self._shared}.difference(identity, stream.columns):
            left = np.flatnonzero(~found & (self._places[name][keys] >= 0))
            values = self._rows.column(name).take(pa.array(self._places[name][keys[left]]))
            valued = np.asarray(values.is_valid())
            # A compaction has written defaults down like values.
            for each in (default for other in self._streams.values() for default in other.defaults):
                if each.column == name and each.value is not None:
                    default = pa.array([scalar(each, values.type).as_py()], values.type)
                    valued &= ~np.asarray(pc.is_in(values, value_set=default))
            found[left] = valued
        return found

    def _empty(self, number: int, stream: str, keys: _Places) -> None:
        if stream in self._emptied:
            self._emptied[stream][keys] = number
            self._orders[stream].empty(keys)

    def _upsert(self, events: Events, keys: _Places, at: _Places) -> None:
        new = ~self._there[keys]
        # Defaults of all streams come first; the event's own columns then replace theirs.
        for stream in self._streams.values():
            for name in {each.column for each in stream.defaults} & self._places.keys():
                self._places[name][keys[new]] = self._default_at(stream, name, events)
        for name in self._shared:
            self._places[name][keys[new]] = at[new]
        for name in self._of(events):
            if name in self._given:
                continue
            there = name in events.rows.column_names
            if events.note.null == KEEP and (not there or events.rows.column(name).null_count):
                set_ = np.asarray(pc.is_valid(self._rows.column(name).take(pa.array(at))))
                self._places[name][keys[set_]] = at[set_]
            else:
                self._places[name][keys] = at
        self._there[keys] = True
        self._touched[keys] = at

    def _of(self, events: Events) -> list[str]:
        return [name for name in events.note.columns if name in self._places]

    @staticmethod
    def _default_at(stream: Stream, name: str, events: Events) -> int:
        """Return the place of a column's default in rows that these events create or clear; that of null if it has none."""
        some = [n for n, e in enumerate(stream.defaults) if e.column == name and e.since < events.log.completed]
        return _DEFAULT - some[-1] if some else _NULL

    def result(self, columns: Collection[str] | None) -> tuple[pa.Table, pa.Table]:
        """Return the rows that exist, in the order of the keys, and the floors."""
        there = np.flatnonzero(self._there)
        settled = {name: each.settle(self._emptied[name]) for name, each in self._kept.items()}
        found = {name: column for each in settled.values() for name, column in self._of_kept(each, there).items()}
        for name in self._rows.column_names:
            if any(name in (*each.stream.columns, each.stream.events) for each in self._kept.values()):
                continue
            if name in META_COLUMNS:
                found[name] = _taken(self._rows.column(name), self._touched[there])
            elif name in self._places and (columns is None or name in columns):
                found[name] = self._merged(name, there)
            elif columns is None or name in columns:
                order = next(each for each in self._orders.values() if name in each.columns)
                found[name] = order.values(name, there)
        for order in self._orders.values():  # the columns may occur in a floor only
            for name in order.columns if order.known else ():
                if name not in found and (columns is None or name in columns):
                    found[name] = order.values(name, there)
        return pa.table(found), self._floors(settled.values()) if columns is None else pa.table({})

    def _of_kept(self, settled: Settled, there: _Places) -> dict[str, pa.ChunkedArray]:
        """Return the columns to read of a stream that keeps its events."""
        of, found = settled.of, {}
        for name in of.stream.columns:
            if name in of.columns:
                try:
                    found[name] = settled.merged(name, there)
                except InputError as error:
                    raise _Unmerged(name, self._keys.take(pa.array(there)), str(error)) from error
        if of.stream.events in of.columns:
            found[of.stream.events] = pa.chunked_array([settled.entries(there)])
        return found

    def _floors(self, settled: Collection[Settled]) -> pa.Table:
        """Return the newest ordering values of keys without a row, and of the others those at which they were emptied."""
        orders = [each for each in self._orders.values() if each.known]
        known = [np.where(self._there, order.floors, order.ranks) >= 0 for order in orders]
        known += [~self._there & np.isin(np.arange(len(self._there)), each.codes[each.back]) for each in settled]
        kept = np.flatnonzero(np.any(known, axis=0)) if known else np.zeros(0, np.int64)
        kept = np.concatenate([kept[~self._there[kept]], kept[self._there[kept]]])
        count = int((~self._there[kept]).sum())
        values = {
            name: pa.chunked_array(
                [*each.values(name, kept[:count]).chunks, *each.emptied(name, kept[count:]).chunks], each.kind(name)
            )
            for each in orders
            for name in each.columns
        }
        # Retractions of keys without a row wait for their events; those of the others are in the row.
        for each in settled:
            if each.of.stream.events in each.of.columns:
                lists = [each.entries(kept[:count], back_only=True), pa.nulls(len(kept) - count, each.of.kind)]
                values[each.of.stream.events] = pa.chunked_array(lists)
        return pa.table({RECORD_KEY: self._keys.take(pa.array(kept))} | values)

    def _merged(self, name: str, there: _Places) -> pa.ChunkedArray:
        """Return a column of the existing rows; with a merger, merged with the contributions since it was emptied."""
        column = self._column(name, self._places[name][there])
        if not (given := self._given.get(name)):
            return column
        stream = next(each for each in self._streams.values() if name in each.columns)
        emptied, place = self._emptied[stream.name], np.full(len(self._there), _NULL, np.int64)
        place[there] = np.arange(len(there))
        # A contribution counts only if its block came after the one that last emptied its key.
        at = np.concatenate([each.at[emptied[self._codes[each.at]] < each.block] for each in given])
        owner = place[self._codes[at]]
        at, owner = at[owner >= 0], owner[owner >= 0]
        if not len(at):
            return column
        rows = np.unique(owner)
        values = [*column.take(pa.array(rows)).chunks, *self._rows.column(name).take(pa.array(at)).chunks]
        owner = np.concatenate([rows, owner])
        # Stable: the stored value first, then contributions in slot order.
        order = np.argsort(owner, kind="stable")
        ends = np.flatnonzero(np.append(np.diff(owner[order]) > 0, [True])) + 1
        groups = Groups(np.concatenate([[0], ends]))
        merged = self._made(name, stream, pa.concat_arrays(values).take(pa.array(order)), groups, there[rows])
        places = np.arange(len(there))
        places[rows] = len(there) + np.arange(len(rows))
        return pa.chunked_array([*column.chunks, merged], column.type).take(pa.array(places))

    def _made(self, name: str, stream: Stream, values: pa.Array, groups: Groups, keys: _Places) -> pa.Array:
        merger = mergers_of(stream, [name])[name]
        try:
            return merger.merge(values, groups)
        except InputError as error:
            # The error does not say which key failed, so merge key by key to name the ones that do.
            bad = []
            for number, (start, end) in enumerate(zip(groups.offsets[:-1], groups.offsets[1:], strict=True)):
                try:
                    merger.merge(values.slice(start, end - start), Groups(np.array([0, end - start])))
                except InputError:
                    bad.append(keys[number])
            raise _Unmerged(name, self._keys.take(pa.array(bad, pa.int64())), str(error)) from error

    def _column(self, name: str, places: _Places) -> pa.ChunkedArray:
        column = _taken(self._rows.column(name), places)
        for place in np.unique(places[low]) if (low := places <= _DEFAULT).any() else ():
            stream = next(each for each in self._streams.values() if name in each.columns)
            default = scalar(stream.defaults[_DEFAULT - place], column.type)
            column = pc.if_else(pa.array(places == place), default, column)
        return column


@dataclass(frozen=True)
class _Given:
    """The rows of a block that contribute to a column."""

    block: int
    at: _Places


class _Order:
    """The newest ordering values of each key in one stream: their rank among all, and their index.

    Attributes:
        columns: their names.
        known: True if some row or floor has the columns.
        ranks: by key; -1 if there was no event yet.
        floors: by key, in a stream with mergers: the rank at which it was emptied; -1 if it never was.
    """

    def __init__(
        self, stream: Stream, rows: pa.Table, floors: pa.Table | None, codes: _Places, old: int, count: int
    ) -> None:
        self.columns = stream.ordered_by
        pieces = [
            each.select(self.columns)
            for each in (rows, floors)
            if each is not None and self.columns[0] in each.column_names
        ]
        self.known = bool(pieces)
        self.ranks, self._places = np.full(count, -1, np.int64), np.full(count, _NULL, np.int64)
        self.floors, self._emptied = np.full(count, -1, np.int64), np.full(count, _NULL, np.int64)
        if not self.known:
            return
        # The values of rows come first, then those of floors; `before` is the index at which the floors start.
        before = rows.num_rows if self.columns[0] in rows.column_names else 0
        self._all = pa.concat_tables(
            [pieces[0], *(each.cast(pieces[0].schema) for each in pieces[1:])]
        ).combine_chunks()
        ranked, *more = (
            np.asarray(pc.rank(each, sort_keys="ascending", tiebreaker="dense")).astype(np.int64)
            for each in self._all.columns
        )
        for each in more:  # the first column in which two events differ decides, so later ones only divide equal ranks
            ranked = np.unique(ranked * (int(each.max(initial=0)) + 1) + each, return_inverse=True)[1].astype(np.int64)
        self._ranked = np.where(np.asarray(array_of_column(self._all, self.columns[0]).is_valid()), ranked, -1)
        if before:
            self._set(codes[:old], np.arange(old))
        if floors is not None and self.columns[0] in floors.column_names:
            keys, at = codes[rows.num_rows :], np.arange(before, self._all.num_rows)
            newer = (
                self._ranked[at] > self.ranks[keys]
            )  # false for a key with a row, which has its newest value in the row
            self._set(keys[newer], at[newer])
            if stream.gathers:
                self.floors[keys] = self._ranked[at]
                self._emptied[keys] = np.where(self._ranked[at] >= 0, at, _NULL)

    def kind(self, name: str) -> pa.DataType:
        """Return the type of a column."""
        return self._all.schema.field(name).type

    def _set(self, keys: _Places, at: _Places) -> None:
        self.ranks[keys] = self._ranked[at]
        self._places[keys] = np.where(self._ranked[at] >= 0, at, _NULL)

    def advance(self, keys: _Places, at: _Places) -> npt.NDArray[np.bool_]:
        """Make these indexes the newest of their keys unless they are older, and return a mask of the ones that are not."""
        wins: npt.NDArray[np.bool_] = self._ranked[at] >= self.ranks[keys]
        self._set(keys[wins], at[wins])
        return wins

    def counts(self, keys: _Places, at: _Places) -> npt.NDArray[np.bool_]:
        """Return a mask of the indexes that are not older than the event that emptied their key."""
        found: npt.NDArray[np.bool_] = self._ranked[at] >= self.floors[keys]
        return found

    def empty(self, keys: _Places) -> None:
        """Mark these keys as emptied; events older than the newest so far do not count any more."""
        self.floors[keys], self._emptied[keys] = self.ranks[keys], self._places[keys]

    def unsay(self, keys: _Places) -> None:
        """Forget the events of these keys."""
        self.ranks[keys] = self.floors[keys] = -1
        self._places[keys] = self._emptied[keys] = _NULL

    def values(self, name: str, keys: _Places) -> pa.ChunkedArray:
        """Return the newest ordering values of keys in a column."""
        return _taken(self._all.column(name), self._places[keys])

    def emptied(self, name: str, keys: _Places) -> pa.ChunkedArray:
        """Return the ordering values at which keys were emptied, in a column."""
        return _taken(self._all.column(name), self._emptied[keys])


def _taken(column: pa.Array | pa.ChunkedArray, places: _Places) -> pa.ChunkedArray:
    """Return the values at these indexes; null for a negative one."""
    # The identity is common, and so is nothing; a slice copies nothing.
    if not len(places) or (
        places[0] == 0 and places[-1] == len(places) - 1 and (places == np.arange(len(places))).all()
    ):
        found = column.slice(0, len(places))
    else:
        found = column.take(pa.array(places, mask=places < 0))
    return found if isinstance(found, pa.ChunkedArray) else pa.chunked_array([found], column.type)
