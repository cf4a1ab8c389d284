"""What a table with streams holds, by the rules of docs/streams.md, a row at a time: what the library is compared with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lakelatch.streams import CLEARED, DELETED, RETRACTED, UPSERT, Stream

from ..mergers.model import table, union

Row = dict[str, Any]
MERGED: dict[str, Callable[[list[Any]], Any]] = {
    "sum": sum,
    "count": sum,
    "min": min,
    "max": max,
    "bool_and": all,
    "bool_or": any,
    "collect_set(2)": lambda lists: sorted({each for some in lists for each in some})[:2],
    "merge_map(2, by='ts')": lambda maps: union(maps, "ts")[:2],
    "nested_update('x', by='ts', count=2)": lambda lists: table(lists, ("x",), "ts")[:2],
    "top_n(2)": lambda lists: sorted({each for some in lists for each in some}, reverse=True)[:2],
}
# Of what a stream keeps, in its order; a null is a value of an event.
KEPT: dict[str, Callable[[list[Any]], Any]] = {
    "last": lambda values: values[-1],
    "last_non_null": lambda values: next((each for each in reversed(values) if each is not None), None),
    "first": lambda values: values[0],
    "first_non_null": lambda values: next((each for each in values if each is not None), None),
    "sum": lambda values: sum(some) if (some := [each for each in values if each is not None]) else None,
    "top_n(2)": lambda lists: sorted({each for some in lists for each in some or ()}, reverse=True)[:2],
    "collect_list(3)": lambda lists: [each for some in lists for each in some or ()][-3:],
}


@dataclass
class State:
    """One key: whether it has a row, the newest ordering value of each stream, the values; of a column with a merger a list
    of what events have contributed since it was emptied, with the newest value that its stream had then; of a stream that
    keeps its events these by id, None for one that was taken back."""

    there: bool = False
    newest: dict[str, Any] = field(default_factory=dict)
    emptied: dict[str, Any] = field(default_factory=dict)
    values: Row = field(default_factory=dict)
    kept: dict[str, dict[Any, Row | None]] = field(default_factory=dict)

    def empty(self, name: str) -> None:
        """What was taken back stays so."""
        self.kept[name] = {key: None for key, event in self.kept.get(name, {}).items() if event is None}


class Model:
    """Events one after the other, in slot order, and those of one commit and stream as they stand in it."""

    def __init__(self, keys: tuple[str, ...], streams: list[Stream]) -> None:
        self.keys, self.streams, self.states = keys, {each.name: each for each in streams}, {}

    def declare(self, stream: Stream) -> None:
        """Columns that a stream gets have their defaults in rows that appear from now on."""
        self.streams[stream.name] = stream

    def apply(self, name: str, kind: str, batch: list[Row]) -> None:
        stream = self.streams[name]
        if kind == RETRACTED:
            for event in batch:
                state = self.states.setdefault(tuple(event[each] for each in self.keys), State())
                state.kept.setdefault(name, {})[event[stream.event_id]] = None
            return
        self._set(stream, kind, batch)
        if kind == UPSERT:
            for event in batch:
                self._contribute(stream, event)

    def _contribute(self, stream: Stream, event: Row) -> None:
        """Also late ones, unless they are older than what emptied the columns."""
        state = self.states[tuple(event[each] for each in self.keys)]
        floor = state.emptied.get(stream.name)
        if floor is not None and self._order(stream, event) < floor:
            return
        if stream.event_id:
            kept = state.kept.setdefault(stream.name, {})
            before = kept.get(event[stream.event_id], {})
            if before == {} or (before is not None and self._order(stream, before) <= self._order(stream, event)):
                kept[event[stream.event_id]] = {each: event[each] for each in (*stream.ordered_by, *stream.columns)}
            return
        for column, merger in stream.merge:
            if column in stream.columns and column in event:
                value = event[column]
                if merger == "count":
                    value = int(value is not None)
                if value is not None:
                    state.values[column] = [*(state.values.get(column) or []), value]

    def _set(self, stream: Stream, kind: str, batch: list[Row]) -> None:
        name = stream.name
        for event in batch:
            key = tuple(event[each] for each in self.keys)
            state = self.states.setdefault(key, State())
            newest = state.newest.get(name)
            if newest is not None and self._order(stream, event) < newest:
                continue
            state.newest[name] = self._order(stream, event)
            if kind == UPSERT:
                if not state.there:
                    state.there, state.values = True, self._defaults()
                for column in stream.columns:
                    merged = column in dict(stream.merge)
                    if not merged and column in event and (event[column] is not None or stream.null == "write"):
                        state.values[column] = event[column]
            elif kind == CLEARED:
                state.emptied[name] = self._order(stream, event)
                state.empty(name)
                for column in stream.columns if state.there else ():
                    state.values[column] = self._defaults().get(column)
            elif kind == DELETED:
                state.there, state.values, state.emptied = False, {}, dict(state.newest)
                for each in self.streams:
                    state.empty(each)

    def overwrite(self, name: str, parts: set[str], batch: list[Row]) -> None:
        """In these partitions the stream has said nothing but this."""
        stream, whose = self.streams[name], {column: each for each in self.streams.values() for column in each.columns}
        for (part, _), state in self.states.items():
            if part not in parts:
                continue
            had = state.newest.pop(name, None) is not None
            state.emptied.pop(name, None)
            state.kept.pop(name, None)
            if had and state.there and not state.newest and not self._adopted(state, whose, name):
                state.there, state.values = False, {}
            if (had or stream.event_id) and state.there:
                state.values |= {column: self._defaults().get(column) for column in stream.columns}
        self.apply(name, UPSERT, batch)

    @staticmethod
    def _adopted(state: State, whose: dict[str, Stream], name: str) -> bool:
        """Whether a value is there that no event has set and that is no default, as in a table that got its streams later."""
        for column, value in state.values.items():
            defaults = [each.value for each in whose[column].defaults if each.column == column]
            defaults += [[each] for each in defaults]
            if whose[column].name != name and value is not None and value not in defaults:
                return True
        return False

    def drop(self, parts: set[str]) -> None:
        """Nothing of these partitions is known any more."""
        self.states = {key: state for key, state in self.states.items() if key[0] not in parts}

    def _defaults(self) -> Row:
        merged = {column for stream in self.streams.values() for column, _ in stream.merge}
        defaults = [each for stream in self.streams.values() for each in stream.defaults]
        found: Row = {each.column: each.value for each in defaults}  # of a column the last one is in force
        return {name: [value] if name in merged else value for name, value in found.items() if value is not None}

    def rows(self) -> dict[tuple[Any, ...], Row]:
        """The rows there are, by key: all columns of all streams."""
        found = {}
        for key, state in self.states.items():
            if state.there:
                row = {column: state.values.get(column) for each in self.streams.values() for column in each.columns}
                for each in self.streams.values():
                    row |= self._kept(each, state.kept.get(each.name, {})) if each.event_id else {}
                summed = [each for each in self.streams.values() if not each.event_id]
                for column, merger in [pair for each in summed for pair in each.merge]:
                    if column in row:
                        row[column] = MERGED[merger](row[column]) if row[column] else None
                for each in self.streams.values():
                    newest = state.newest.get(each.name) or (None,) * len(each.ordered_by)
                    row |= dict(zip(each.ordered_by, newest, strict=True))
                found[key] = row
        return found

    def _kept(self, stream: Stream, kept: dict[Any, Row | None]) -> Row:
        events = [each for each in kept.values() if each is not None]
        events.sort(key=lambda event: (self._order(stream, event), event[stream.event_id]))
        plain, fields = "last_non_null" if stream.null == "keep" else "last", (*stream.ordered_by, *stream.columns)
        row: Row = {
            each: KEPT[dict(stream.merge).get(each, plain)]([event[each] for event in events]) if events else None
            for each in stream.columns
        }
        back = sorted(key for key, event in kept.items() if event is None)
        return row | {
            stream.events: [*events, *(dict.fromkeys(fields) | {stream.event_id: key} for key in back)] or None
        }

    @staticmethod
    def _order(stream: Stream, event: Row) -> tuple[Any, ...]:
        """The first ordering column in which two events differ decides."""
        return tuple(event[name] for name in stream.ordered_by)
