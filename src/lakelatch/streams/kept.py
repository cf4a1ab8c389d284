"""The events of a stream that keeps them: each has an id, by which it can be taken back.

A row keeps its events in `Stream.events`, a list of structs of id, ordering values and values. The other columns of the stream
are merged from them, in the order of their ordering values and then of their ids:

    an event          counts while no retraction of its id is there; of several with one id the one with the greatest
                      ordering value, of equal ones the later
    a retraction      is an entry without ordering value. It holds for ever, also for an event that comes after it, and where
                      there is no row yet (`floors`)
    clear and delete  remove the events before them, and leave the retractions; an overwrite removes both

So a row's entries are a set that grows by union until it is emptied. Whatever a merger does with them is the same in any
order of arrival, with events and retractions that come twice, and with compactions in between.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..hudi.merge import alike
from ..hudi.table import one_array
from ..mergers import Groups, Merger, ages_of, find, ranks
from .declaration import KEEP, Stream

_Places = npt.NDArray[np.int64]
_BASE = -1  # the block number of entries that the base file has


def mergers_of_kept(stream: Stream) -> dict[str, Merger]:
    """Return the merger of each column. Raises `ConfigError` if one cannot be imported here."""
    plain = "last_non_null" if stream.null == KEEP else "last"
    return {column: find(dict(stream.merge).get(column, plain)) for column in stream.columns}


@dataclass
class KeptEvents:
    """The entries of one stream in a file slice. ``codes`` are the numbers of record keys.

    Args:
        columns: the columns to merge, and with `Stream.events` that one too.
        kind: the type of that one.
    """

    stream: Stream
    columns: Collection[str]
    kind: pa.DataType
    _tables: list[pa.Table] = field(default_factory=list)
    _codes: list[_Places] = field(default_factory=list)
    _blocks: list[_Places] = field(default_factory=list)
    _back: list[npt.NDArray[np.bool_]] = field(default_factory=list)

    def add_kept(self, lists: pa.ChunkedArray, codes: _Places) -> None:
        """Add the entries of a base file's rows, or of its floors."""
        lists = one_array(lists)
        owner = codes[np.asarray(pc.list_parent_indices(lists)).astype(np.int64)]
        entries = pa.Table.from_arrays(lists.flatten().flatten(), [each.name for each in lists.type.value_type])
        self._add(entries, owner, _BASE, np.asarray(entries.column(self.stream.ordering).is_null()))

    def add(self, rows: pa.Table, codes: _Places, block: int, *, back: bool) -> None:
        """Add the rows of a block: events, or retractions."""
        self._add(rows, codes, block, np.full(len(codes), back))

    def _add(self, rows: pa.Table, codes: _Places, block: int, back: npt.NDArray[np.bool_]) -> None:
        wanted = {self.stream.event_id, *self.stream.ordered_by}
        wanted |= set(self.stream.columns) & set(self.columns)
        if self.stream.events in self.columns:
            wanted |= set(self.stream.columns)
        self._tables.append(rows.select([name for name in rows.column_names if name in wanted]))
        self._codes.append(codes)
        self._blocks.append(np.full(len(codes), block))
        self._back.append(back)

    def unsay(self, codes: _Places) -> None:
        """Forget the entries of these codes so far, retractions too."""
        for number, owners in enumerate(self._codes):
            left = ~np.isin(owners, codes)
            self._tables[number] = self._tables[number].filter(pa.array(left))
            self._codes[number], self._blocks[number] = owners[left], self._blocks[number][left]
            self._back[number] = self._back[number][left]

    def settle(self, emptied: _Places) -> Settled:
        """Return the entries that stand. ``emptied``: by code, after which block they were emptied last; -1: never."""
        names = [self.stream.event_id, *self.stream.ordered_by]
        names += [name for name in self.stream.columns if name not in names]
        kinds = {each.name: each.type for each in self.kind.value_type}
        shape = pa.schema([(name, kinds[name]) for name in names]).empty_table()
        rows = pa.concat_tables(alike([shape, *self._tables])).select(names).combine_chunks()
        codes, blocks, back = (
            np.concatenate([np.zeros(0, kind), *each])
            for each, kind in ((self._codes, np.int64), (self._blocks, np.int64), (self._back, bool))
        )
        # Of the base file's entries all came before the first block.
        stands = np.flatnonzero(back | (emptied[codes] < np.maximum(blocks, 0)))
        ids, age = (
            ranks(one_array(rows.column(0))),
            ages_of([one_array(rows.column(n)) for n in self.stream.ordered_by]),
        )
        # Of the entries with one id a retraction comes last, and else the newest.
        order = stands[np.lexsort((stands, age[stands], back[stands], ids[stands], codes[stands]))]
        last = np.ones(len(order), bool)
        last[:-1] = (codes[order][1:] != codes[order][:-1]) | (ids[order][1:] != ids[order][:-1])
        order = order[last]
        order = order[np.lexsort((ids[order], age[order], back[order], codes[order]))]
        return Settled(self, rows.take(pa.array(order)), codes[order], back[order])


@dataclass(frozen=True)
class Settled:
    """The entries that stand, one for each id, by key: first its events in their order, then its retractions."""

    of: KeptEvents
    rows: pa.Table
    codes: _Places
    back: npt.NDArray[np.bool_]

    @cached_property
    def _events(self) -> tuple[pa.Table, Groups, _Places]:
        """The events alone, their groups, and the code of each group."""
        codes = self.codes[~self.back]
        starts = np.flatnonzero(np.append([True], codes[1:] != codes[:-1])[: len(codes)])
        return self.rows.filter(pa.array(~self.back)), Groups(np.append(starts, len(codes))), codes[starts]

    def merged(self, column: str, keys: _Places) -> pa.ChunkedArray:
        """Return a column of the rows of these codes. Raises `InputError` if its values cannot be merged."""
        rows, groups, owners = self._events
        values = mergers_of_kept(self.of.stream)[column].merge(one_array(rows.column(column)), groups)
        # An index past the end is for keys without an event.
        places = np.full(int(max(keys.max(initial=-1), owners.max(initial=-1))) + 1, len(owners))
        places[owners] = np.arange(len(owners))
        found = places[keys]
        return pa.chunked_array([values.take(pa.array(found, mask=found == len(owners)))])

    def entries(self, keys: _Places, *, back_only: bool = False) -> pa.Array:
        """Return the lists of entries of these codes, null for none; ``back_only``: of retractions."""
        some = self.back if back_only else np.ones(len(self.codes), bool)
        codes, rows = self.codes[some], self.rows.filter(pa.array(some))
        first, after = np.searchsorted(codes, keys), np.searchsorted(codes, keys, "right")
        sizes = after - first
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        at = np.repeat(first - offsets[:-1], sizes) + np.arange(offsets[-1])
        taken, kind = rows.take(pa.array(at)), self.of.kind
        fields = list(kind.value_type)
        structs = pa.StructArray.from_arrays([one_array(taken.column(each.name)) for each in fields], fields=fields)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), structs, type=kind, mask=pa.array(sizes == 0))


def gross_of(stream: Stream, rows: pa.Table, column: str, keys: Collection[str], key: str) -> Mapping[str, Any]:
    """Return for these keys the sum of the absolute values that their kept events have in a column.

    However events are taken back, no total is larger than that.
    """
    found: dict[str, Any] = {}
    if stream.events in rows.column_names:
        kept = one_array(rows.column(stream.events))
        owners = rows.column(key).combine_chunks().take(pc.list_parent_indices(kept))
        values = pc.struct_field(kept.flatten(), column)
        for owner, value in zip(owners.to_pylist(), values.to_pylist(), strict=True):
            if value is not None and owner in keys:
                found[owner] = found.get(owner, 0) + abs(value)
    return found
