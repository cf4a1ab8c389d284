"""Rows that go to one place, as row numbers of the table that was passed in; copied piece by piece when they are written.

Memory: the numbers, the record keys and their hashes; each copied piece is freed when it is encoded. For rows that are not
in memory themselves keys and hashes are computed on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...hudi.merge import unrepeated
from ...hudi.table import (
    RECORD_KEY,
    bucket_ids,
    key_parts,
    one_array,
    partition_codes,
    record_keys,
    refuse_blank,
    wide_hashes,
)
from ...mergers import Ties
from ..incoming import TemporaryBytes
from .file_spec import FileSpec
from .meta_columns import KEY_HASHES

# Rows in a mapped file: split by partition and bucket, and read some at a time.
#
# The facts about each row (its place, the hash of its key) go into temporary files too, in sorted runs that are re-read in
# pieces. Memory: one run, and 4 bytes for each row of the unit of work at hand.

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


PARTITION_COLUMN = "_lakelatch_partition"  # present where rows have no partition columns (deletes by key)
GROUP_COLUMN = "_lakelatch_group"  # present where a join was the index: a file id, or NEW and a slot


class Keyed(Protocol):
    """Rows to take some of; ``places`` are row numbers, None means all.

    Attributes:
        whole: the rows are in memory anyway, so that their keys may be too.
    """

    num_rows: int
    column_names: list[str]
    whole: bool

    def keys(self, places: Places) -> pa.Array:
        """Return the record keys."""

    def column(self, name: str, places: Places) -> Any:
        """Return one of the columns."""

    def taken(self, places: Places, start: int, end: int, keys: pa.Array | None) -> pa.Table:
        """Return all columns and `RECORD_KEY` of the rows ``places[start:end]``.

        ``keys``: their record keys, where known.
        """


class RowsInMemory:
    """A table with its record keys; see `Keyed`.

    Args:
        key: the column equal to the record key, which is then stored only once.
    """

    whole = True

    def __init__(self, rows: pa.Table, key: str = RECORD_KEY) -> None:
        self._rows, self._key = rows, key
        self.num_rows: int = rows.num_rows
        self.column_names = [name for name in rows.column_names if name != RECORD_KEY]

    def keys(self, places: Places) -> pa.Array:
        """See `Keyed.keys`."""
        return one_array(self.column(self._key, places))

    def column(self, name: str, places: Places) -> Any:
        """See `Keyed.column`."""
        column = self._rows.column(name)
        return column if places is None else pc.take(column, pa.array(places), boundscheck=False)

    def taken(self, places: Places, start: int, end: int, keys: pa.Array | None) -> pa.Table:
        """See `Keyed.taken`."""
        assert keys is not None
        rest = self._rows.drop_columns([self._key])
        if places is None:
            taken = rest.slice(start, end - start)
        else:
            taken = pc.take(rest, pa.array(places[start:end]), boundscheck=False)
        names = [*self.column_names, RECORD_KEY]
        columns = [keys if name in (self._key, RECORD_KEY) else taken.column(name) for name in names]
        return pa.Table.from_arrays(columns, names=names)


class Selection:
    """Some rows in the order of ``places`` (None: all), with the column `RECORD_KEY`."""

    def __init__(self, rows: Keyed, places: Places = None) -> None:
        self._rows, self._places = rows, places
        self.num_rows: int = rows.num_rows if places is None else len(places)

    @cached_property
    def keys(self) -> pa.Array:
        """The record keys."""
        return self._rows.keys(self._places)

    @cached_property
    def key_hashes(self) -> npt.NDArray[np.uint64]:
        """The `wide_hashes` of the record keys."""
        return wide_hashes(self.keys)

    def column(self, name: str) -> Any:
        """One of the columns."""
        return self._rows.column(name, self._places)

    def slice(self, start: int = 0, size: int | None = None, *, hashed: bool = False) -> pa.Table:
        """Return ``size`` rows from number ``start`` on (None: to the end), with their `KEY_HASHES` if ``hashed``."""
        end = self.num_rows if size is None else min(start + size, self.num_rows)
        known = self._rows.whole or "keys" in self.__dict__
        keys = self.keys.slice(start, end - start) if known else None
        taken = self._rows.taken(self._places, start, end, keys)
        if hashed:
            there = known or "key_hashes" in self.__dict__
            hashes = self.key_hashes[start:end] if there else wide_hashes(one_array(taken.column(RECORD_KEY)))
            taken = taken.append_column(KEY_HASHES, pa.array(hashes))
        return taken

    def where(self, mask: npt.NDArray[np.bool_]) -> Selection:
        """Return the marked rows."""
        return self if mask.all() else self.at(np.flatnonzero(mask))

    @property
    def column_names(self) -> list[str]:
        """All columns but `RECORD_KEY`."""
        return self._rows.column_names

    def unrepeated(self, ordering: Sequence[str], ties: Ties = "last") -> Selection:
        """Return one row for each key; see `hudi.merge.deduplicate`, also for its errors."""
        if self.num_rows < 2:
            return self
        if not self._rows.whole and self.num_rows > KEYS_AT_ONCE:
            return self._unrepeated_in_runs(ordering, ties)
        kept = unrepeated(self.keys, self.key_hashes, ordering, self.column, ties)
        return self if kept is None else self.at(kept)

    def _unrepeated_in_runs(self, ordering: Sequence[str], ties: Ties) -> Selection:
        """Do as `unrepeated`, with only the repeated keys in memory at once."""

        def hashes(start: int) -> npt.NDArray[np.uint64]:
            return wide_hashes(self._some_keys(start))

        starts = range(0, self.num_rows, KEYS_AT_ONCE)
        # Equal hashes only find candidates; these few rows are then compared by their keys.
        twice = repeated_hashes(hashes, starts)
        if not len(twice):
            return self
        places = [start + np.flatnonzero(np.isin(hashes(start), twice)) for start in starts]
        several = np.concatenate(places)
        found = self.at(several)
        kept = unrepeated(found.keys, found.key_hashes, ordering, found.column, ties)
        if kept is None:
            return self
        lost = np.ones(len(several), bool)
        lost[kept] = False
        left = np.ones(self.num_rows, bool)
        left[several[lost]] = False
        return self.at(np.flatnonzero(left).astype(np.min_scalar_type(self.num_rows)))

    def _some_keys(self, start: int) -> pa.Array:
        end = min(start + KEYS_AT_ONCE, self.num_rows)
        return self._rows.keys(np.arange(start, end) if self._places is None else self._places[start:end])

    def at(self, numbers: npt.NDArray[Any]) -> Selection:
        """Return the rows with these numbers, in the numbers' order."""
        found = Selection(self._rows, numbers if self._places is None else self._places[numbers])
        if "key_hashes" in self.__dict__:
            found.key_hashes = self.key_hashes[numbers]
        return found

    def forget(self) -> None:
        """Drop the keys and hashes of rows that are not in memory; they are computed again if needed."""
        if not self._rows.whole:
            self.__dict__.pop("keys", None)
            self.__dict__.pop("key_hashes", None)


def in_pieces(rows: pa.Table | Selection, size: int) -> Iterator[pa.Table]:
    """Yield the rows, at most ``size`` at a time."""
    for start in range(0, rows.num_rows, size):
        yield rows.slice(start, size) if isinstance(rows, pa.Table) else rows.slice(start, size, hashed=True)


def units(
    spec: FileSpec, rows: pa.Table, *, on_disk: bool = False
) -> Iterator[tuple[str, int | str | None, Selection]]:
    """Yield each unit of work: the partition; the bucket, or the file id or slot that a join found; the rows.

    ``on_disk``: the rows are in a mapped file, and notes about each of them go into another.
    """
    if not rows.num_rows:
        return
    if on_disk:
        mapped = MappedRows(rows, spec.config.record_key_fields)
        for partition, bucket, chosen in mapped.parted(spec):
            yield partition, bucket, Selection(mapped, chosen)
        return
    fields, buckets = spec.config.record_key_fields, spec.bucket_count
    parts = key_parts(rows, fields)
    paths, partitions = _partitions(spec, rows)
    names: list[Any] | None = None
    if buckets is not None:
        places: Any = bucket_ids(parts, buckets)
    elif GROUP_COLUMN in rows.column_names:
        groups = rows.column(GROUP_COLUMN).combine_chunks().dictionary_encode()
        places, names = np.asarray(groups.indices), groups.dictionary.to_pylist()
    else:
        places = None
    key = fields[0] if len(fields) == 1 and pa.types.is_string(rows.schema.field(fields[0]).type) else RECORD_KEY
    given = [name for name in (PARTITION_COLUMN, GROUP_COLUMN, RECORD_KEY) if name in rows.column_names]
    keyed = rows.drop_columns(given) if given else rows
    if key == RECORD_KEY:
        keyed = keyed.append_column(RECORD_KEY, parts[0] if len(parts) == 1 else record_keys(rows, fields))
    for path, place, unit in _split(keyed, key, paths, places):
        yield partitions[path], names[place] if names else place if buckets is not None else None, unit


def placed(spec: FileSpec, rows: pa.Table) -> Iterator[tuple[str, int | str | None, pa.Table]]:
    """Yield as `units`, with the rows as tables."""
    for partition, place, unit in units(spec, rows):
        yield partition, place, unit.slice()


def _partitions(spec: FileSpec, rows: pa.Table) -> tuple[npt.NDArray[np.int32], list[str]]:
    if PARTITION_COLUMN in rows.column_names:
        given = rows.column(PARTITION_COLUMN).combine_chunks().dictionary_encode()
        return np.asarray(given.indices), given.dictionary.to_pylist()
    return partition_codes(rows, spec.config)


def _split(
    rows: pa.Table, key: str, paths: npt.NDArray[np.int32], places: npt.NDArray[np.int32] | None
) -> Iterator[tuple[int, int, Selection]]:
    """Yield the rows of each (partition, place), in their order."""
    wide = 1 if places is None else int(places.max()) + 1
    codes = paths.astype(np.int64) * wide + places if places is not None else paths
    if (codes == codes[0]).all():
        yield *divmod(int(codes[0]), wide), Selection(RowsInMemory(rows, key))
        return
    # NumPy sorts integers of up to 16 bits by counting, in a tenth of the time.
    codes = codes.astype(np.min_scalar_type(int(codes.max())))
    order = np.argsort(codes, kind="stable").astype(np.min_scalar_type(rows.num_rows))
    codes = codes[order]
    ends = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    whole = rows.combine_chunks()  # else each take would copy all chunks into one again
    start = 0
    for end in [*ends.tolist(), len(order)]:
        yield *divmod(int(codes[start]), wide), Selection(RowsInMemory(whole, key), order[start:end])
        start = end
