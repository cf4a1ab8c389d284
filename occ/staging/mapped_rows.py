"""Rows in a mapped file: split by partition and bucket, and read some at a time.

The facts about each row (its place, the hash of its key) go into temporary files too, in sorted runs that are re-read in
pieces. Memory: one run, and 4 bytes for each row of the unit of work at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...hudi.table import RECORD_KEY, bucket_ids, key_parts, partition_codes, record_keys, refuse_blank
from ..incoming import TemporaryBytes
from .file_spec import FileSpec

Places = npt.NDArray[Any] | None  # numbers of rows; None is all of them
KEYS_AT_ONCE = 1 << 20
_Hashes = npt.NDArray[np.uint64]


class MappedRows:
    """A table of many batches, none of which is copied as a whole; the `Keyed` of a `Selection`.

    Args:
        fields: the columns whose values are the record key.
    """

    whole = False

    def __init__(self, rows: pa.Table, fields: Sequence[str]) -> None:
        self._rows, self._fields = rows, list(fields)
        self._batches = rows.to_batches()
        self._starts = np.cumsum([0, *(each.num_rows for each in self._batches)])
        self.num_rows: int = rows.num_rows
        self.column_names = [name for name in rows.column_names if name != RECORD_KEY]

    def keys(self, places: Places) -> pa.Array:
        """See `Keyed.keys`."""
        count = self.num_rows if places is None else len(places)
        found = []
        for start in range(0, count, KEYS_AT_ONCE):
            rows = self._some(places, start, min(start + KEYS_AT_ONCE, count), self._fields)
            found.append(record_keys(rows, self._fields))
        return pa.concat_arrays(found) if found else pa.array([], pa.string())

    def column(self, name: str, places: Places) -> Any:
        """See `Keyed.column`."""
        return self._rows.column(name) if places is None else self._take(places, [name]).column(name)

    def taken(self, places: Places, start: int, end: int, keys: pa.Array | None) -> pa.Table:
        """See `Keyed.taken`."""
        rows = self._some(places, start, end, self.column_names)
        return rows.append_column(RECORD_KEY, record_keys(rows, self._fields) if keys is None else keys)

    def parted(self, spec: FileSpec) -> Iterator[tuple[str, int | None, Places]]:
        """Yield the rows of each partition and bucket, in their order.

        Raises:
            InputError: a row has no key, or a value that is no partition.
            StorageError: the temporary folder has no room.
        """
        refuse_blank(self._rows, self._fields)
        fields, buckets = spec.config.record_key_fields, spec.bucket_count
        if buckets is None and not spec.config.partition_fields:
            yield "", None, None
            return
        wide = buckets or 1
        known: dict[str, int] = {}
        # The units of a run, and where the rows of each begin.
        runs = list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]()
        order = _Runs(np.dtype(np.min_scalar_type(self.num_rows)))
        for start in range(0, self.num_rows, KEYS_AT_ONCE):
            rows = self._rows.slice(start, KEYS_AT_ONCE)
            codes, paths = partition_codes(rows, spec.config)
            numbers = np.array([known.setdefault(path, len(known)) for path in paths], np.int64)
            unit = numbers[codes] * wide
            if buckets is not None:
                unit += bucket_ids(key_parts(rows, fields), buckets)
            sorted_places = np.argsort(unit, kind="stable")
            units, begins = np.unique(unit[sorted_places], return_index=True)
            runs.append((units, np.append(begins, len(unit))))
            order.add(sorted_places + start)
        partitions = list(known)
        pieces = order.mapped()
        every = np.unique(np.concatenate([units for units, _ in runs]))
        for unit_number in every.tolist():
            partition, bucket = partitions[unit_number // wide], unit_number % wide if buckets is not None else None
            if len(every) == 1:
                yield partition, bucket, None
                return
            mine = []
            for (units, begins), piece in zip(runs, pieces, strict=True):
                at = int(np.searchsorted(units, unit_number))
                if at < len(units) and units[at] == unit_number:
                    mine.append(piece[begins[at] : begins[at + 1]])
            yield partition, bucket, np.concatenate(mine)

    def _some(self, places: Places, start: int, end: int, names: list[str]) -> pa.Table:
        if places is not None:
            return self._take(places[start:end], names)
        return self._rows.select(names).slice(start, end - start)

    def _take(self, places: npt.NDArray[Any], names: list[str]) -> pa.Table:
        """Take rows batch by batch: Arrow itself would first copy all batches into one."""
        if not len(places):
            return self._rows.select(names).slice(0, 0)
        # Sorted places meet each batch once; ``back`` restores the caller's order.
        back: npt.NDArray[np.int64] | None = None
        if (places[1:] < places[:-1]).any():
            order = np.argsort(places, kind="stable")
            places, back = places[order], np.empty(len(order), np.int64)
            back[order] = np.arange(len(order))
        batch_of = np.searchsorted(self._starts, places, side="right") - 1
        cuts = [0, *(np.flatnonzero(batch_of[1:] != batch_of[:-1]) + 1).tolist(), len(places)]
        found = []
        for start, end in pairwise(cuts):
            number = int(batch_of[start])
            at = pa.array(places[start:end].astype(np.int64) - self._starts[number])
            found.append(self._batches[number].select(names).take(at))
        rows = pa.Table.from_batches(found)
        return rows if back is None else rows.combine_chunks().take(pa.array(back))


class _Runs:
    """Arrays in a temporary file: appended, then mapped."""

    def __init__(self, kind: np.dtype[Any]) -> None:
        self._kind, self._sizes = kind, list[int]()
        self._file = TemporaryBytes("the places of rows")

    def add(self, run: npt.NDArray[Any]) -> None:
        """Append a run. Raises `StorageError` if the temporary folder has no room."""
        self._sizes.append(len(run))
        self._file.write(run.astype(self._kind, copy=False).tobytes())

    def mapped(self) -> list[npt.NDArray[Any]]:
        """Return all runs; none can be added afterwards."""
        whole = np.frombuffer(self._file.mapped(), self._kind)
        return np.split(whole, np.cumsum(self._sizes)[:-1])


def repeated_hashes(hashes: Callable[[int], _Hashes], starts: Iterable[int]) -> _Hashes:
    """Return the hashes that occur more than once, distinct and ascending; ``hashes`` returns those of the run at a start."""
    sorted_runs = _Runs(np.dtype(np.uint64))
    for start in starts:
        sorted_runs.add(np.sort(hashes(start)))
    runs = sorted_runs.mapped()
    bounds = [(number << 64) // len(runs) for number in range(1, len(runs))]
    edges = [np.concatenate([[0], np.searchsorted(each, np.array(bounds, np.uint64)), [len(each)]]) for each in runs]
    found = []
    # The same range of values from each run, so that equal hashes meet.
    for number in range(len(runs)):
        near = np.concatenate([each[edge[number] : edge[number + 1]] for each, edge in zip(runs, edges, strict=True)])
        near.sort()
        found.append(np.unique(near[1:][near[1:] == near[:-1]]))
    return np.concatenate(found)
