"""What a table with streams holds, by the rules of docs/streams.md, a row at a time: what the library is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lakelatch.streams import CLEARED, DELETED, UPSERT, Stream

Row = dict[str, Any]


@dataclass
class State:
    """One key: whether it has a row, the newest ordering value of each stream, the values."""

    there: bool = False
    newest: dict[str, Any] = field(default_factory=dict)
    values: Row = field(default_factory=dict)


class Model:
    """Events in slot order: each batch is what one commit brings of one stream."""

    def __init__(self, keys: tuple[str, ...], streams: list[Stream]) -> None:
        self.keys, self.streams, self.states = keys, {each.name: each for each in streams}, {}

    def declare(self, stream: Stream) -> None:
        """Columns that a stream gets have their defaults in rows that appear from now on."""
        self.streams[stream.name] = stream

    def apply(self, name: str, kind: str, batch: list[Row]) -> None:
        stream = self.streams[name]
        for event in self._folded(stream, kind, batch):
            key = tuple(event[each] for each in self.keys)
            state = self.states.setdefault(key, State())
            newest = state.newest.get(name)
            if newest is not None and event[stream.ordering] < newest:
                continue
            state.newest[name] = event[stream.ordering]
            if kind == UPSERT:
                if not state.there:
                    state.there, state.values = True, self._defaults()
                for column in stream.columns:
                    if column in event and (event[column] is not None or stream.null == "write"):
                        state.values[column] = event[column]
            elif kind == CLEARED and state.there:
                for column in stream.columns:
                    state.values[column] = self._defaults().get(column)
            elif kind == DELETED:
                state.there, state.values = False, {}

    def _folded(self, stream: Stream, kind: str, batch: list[Row]) -> list[Row]:
        found: dict[tuple[Any, ...], Row] = {}
        for event in sorted(batch, key=lambda each: each[stream.ordering]):
            key = tuple(event[each] for each in self.keys)
            before = found.get(key, {})
            kept = {c: v for c, v in before.items() if event.get(c) is None and stream.null == "keep"}
            found[key] = event | (kept if kind == UPSERT else {})
        return list(found.values())

    def _defaults(self) -> Row:
        return {each.column: each.value for stream in self.streams.values() for each in stream.defaults}

    def rows(self) -> dict[tuple[Any, ...], Row]:
        """The rows there are, by key: all columns of all streams."""
        found = {}
        for key, state in self.states.items():
            if state.there:
                row = {column: state.values.get(column) for each in self.streams.values() for column in each.columns}
                found[key] = row | {each.ordering: state.newest.get(each.name) for each in self.streams.values()}
        return found
