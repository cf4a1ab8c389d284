"""Rows as a base file stores them: meta columns first, data columns in the table's types.

A row that has meta columns is copied and keeps its commit time and number; one without, or with null in them, is new
and gets the transaction's.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...hudi.merge import TEXTS, cast, filled, holds, plain, without_unused
from ...hudi.table import (
    META_COLUMNS,
    RECORD_KEY,
    Span,
    distinct_paths,
    java_span,
    joined_span,
    record_keys,
    wide_hashes,
)
from ..entries import Hashed, constraint_values, joined, name_of
from ..incoming import refuse_nulls, refuse_unordered
from .file_spec import FileSpec

COMMIT_TIME, SEQNO, _, PARTITION_PATH, FILE_NAME = META_COLUMNS
KEY_HASHES = "_lakelatch_key_hash"  # `wide_hashes` of the keys, where they are known and all rows are new
_HIDDEN = frozenset({*META_COLUMNS, KEY_HASHES})
_FEW_ROWS = 256


@dataclass
class RowNumbers:
    """Numbers the new rows of one task, for ``_hoodie_commit_seqno``."""

    task: int = 0
    rows: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def take(self, count: int) -> int:
        """Reserve ``count`` consecutive numbers and return the first."""
        with self._lock:
            first, self.rows = self.rows, self.rows + count
        return first


class FileRows:
    """Completes the rows of one file with meta columns, and counts them.

    Attributes:
        new_rows: rows so far that this transaction changed.
        digest: sum of the new keys' hashes, independent of their order.
        min_key, max_key: the smallest and largest key so far, in byte order.
        java_span: the same in Java's order, as Hudi's footers have it; None without rows.
        key_column: the column equal to the record key in all rows so far, or None.
        key_hashes: `wide_hashes` of the new keys, where they are wanted.
    """

    def __init__(
        self,
        spec: FileSpec,
        *,
        partition: str,
        name: str,
        numbers: RowNumbers,
        trusted: bool,
        keep_hashes: bool,
    ) -> None:
        self._instant, self._schema, self._config = spec.instant, spec.schema, spec.config
        self._partition, self._name = partition, name
        self._again = bool(spec.begun)
        self._numbers, self._trusted, self._wanted = numbers, trusted, spec.wanted
        self._required, self._checks, self._url = spec.required, spec.checks, spec.store.url
        self.new_rows, self.digest = 0, 0
        self.min_key: str | None = None
        self.max_key: str | None = None
        self.java_span: tuple[str, str] | None = None
        fields = spec.config.record_key_fields
        self.key_column = fields[0] if len(fields) == 1 and fields[0] in spec.schema.names else None
        self.key_hashes: list[npt.NDArray[np.uint64]] | None = [] if keep_hashes or spec.wanted.keys else None
        self._under: dict[str, list[Hashed | None]] = {}

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The file's schema for the Parquet writer."""
        types = [TEXTS, pa.string(), pa.string(), TEXTS, TEXTS]
        meta = [pa.field(n, t) for n, t in zip(META_COLUMNS, types, strict=True)]
        return pa.schema([*meta, *(f.with_nullable(True).remove_metadata() for f in self._schema)])

    def completed(self, rows: pa.Table) -> pa.Table:
        """Return the rows with all columns of the file. Raises `InputError` as `BaseFileWriter.write`."""
        data = self._data_columns(rows)
        new = self._new_rows(rows)
        count = rows.num_rows if new is None else new.true_count
        if count and not self._trusted:
            self._refuse_strangers(_those(rows, new))
        if count and (ordered := self._config.newer_by):
            known = [*dict.fromkeys((*self._config.record_key_fields, *ordered))]
            refuse_unordered(_those(data.select([n for n in known if n in data.column_names]), new), self._config)
        if count and any(data.column(name).null_count for name in self._required):
            refuse_nulls(_those(data, new), self._required, self._config)
        keys = self._keys(rows, new)
        if count and self._checks:
            self._refuse_broken(data.append_column(RECORD_KEY, keys), new)
        hashed = new is None and KEY_HASHES in rows.column_names
        hashes = np.asarray(rows.column(KEY_HASHES)) if hashed else None
        zeros = pa.array(np.zeros(rows.num_rows, np.int32))
        meta = [
            self._commit_times(rows, new, zeros),
            self._seqnos(rows, new, count),
            keys,
            _constant(self._partition, zeros),
            _constant(self._name, zeros),
        ]
        self._note_keys(keys, new, hashes)
        if self.key_column and not _equal(keys, data.column(self.key_column)):
            self.key_column = None
        self._note_values(data, new)
        arrays = [*meta, *data.columns]
        kinds = (column.type for column in arrays)  # a dictionary where the rows come with one
        fields = [
            field if field.type == kind else field.with_type(kind)
            for field, kind in zip(self.schema, kinds, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))

    def _data_columns(self, rows: pa.Table) -> pa.Table:
        schema = self._schema
        if unknown := [n for n in rows.column_names if n not in schema.names and n not in _HIDDEN]:
            raise InputError(
                f"the rows have columns that the table's schema of this transaction lacks: {', '.join(unknown)}; "
                "pass the wider schema when the transaction's files are planned",
                columns=unknown,
            )
        columns: list[Any] = []
        for wanted in schema:
            if wanted.name not in rows.column_names:
                columns.append(pa.nulls(rows.num_rows, wanted.type))
                continue
            column = rows.column(wanted.name)
            if column.type == wanted.type:
                columns.append(column)
            else:
                columns.append(without_unused(column) if holds(column.type, wanted.type) else _cast(column, wanted))
        return pa.Table.from_arrays(columns, names=schema.names)

    def _new_rows(self, rows: pa.Table) -> pa.Array | None:
        """Return a mask of the rows that this transaction changes, in this write or an earlier one; None: all."""
        if COMMIT_TIME not in rows.column_names:
            return None
        times = rows.column(COMMIT_TIME)
        new = times.is_null()
        if self._again:
            new = pc.or_(new, pc.fill_null(pc.equal(plain(times), self._instant), fill_value=False))
        return new.combine_chunks()

    def _keys(self, rows: pa.Table, new: pa.Array | None) -> Any:
        fields = self._config.record_key_fields
        if RECORD_KEY not in rows.column_names:
            return record_keys(rows, fields)
        keys = rows.column(RECORD_KEY)
        if not keys.null_count:
            return keys
        fresh = _those(rows, new)
        if new is None or fresh.column(RECORD_KEY).null_count != keys.null_count:
            raise InputError(
                f"rows that were copied have no {RECORD_KEY}; keep the meta columns of copied rows together"
            )
        return pc.replace_with_mask(keys, new, record_keys(fresh, fields))

    def _commit_times(self, rows: pa.Table, new: pa.Array | None, zeros: pa.Array) -> Any:
        if new is None:
            return _constant(self._instant, zeros)
        return without_unused(filled(cast(rows.column(COMMIT_TIME), TEXTS), self._instant))

    def _seqnos(self, rows: pa.Table, new: pa.Array | None, count: int) -> Any:
        first = self._numbers.take(count)
        prefix = f"{self._instant}_{self._numbers.task}_"
        if count < _FEW_ROWS:
            fresh = pa.array([f"{prefix}{n}" for n in range(first, first + count)], pa.string())
        else:
            fresh = numbered(prefix, first, count)
        if new is None:
            return fresh
        if SEQNO not in rows.column_names:
            raise InputError(f"rows that were copied have no {SEQNO}; keep the meta columns of copied rows together")
        old = rows.column(SEQNO).cast(pa.string())
        return pc.replace_with_mask(old, new, fresh) if count else old

    def _refuse_strangers(self, fresh: pa.Table) -> None:
        if others := [p for p in distinct_paths(fresh, self._config) if p != self._partition]:
            raise InputError(
                f"rows of partition {others[0]!r} were written into a file group of {self._partition!r}; "
                "split the rows by partition first",
                partition=self._partition,
            )

    def _refuse_broken(self, rows: pa.Table, new: pa.Array | None) -> None:
        for check in self._checks:
            if (broken := check.those(_those(rows, new))).num_rows:
                raise check.error(self._url, broken, "Nothing landed; give these rows other values, or leave them out")

    def _note_keys(self, keys: Any, new: pa.Array | None, hashes: npt.NDArray[np.uint64] | None) -> None:
        low, high = _span(keys)
        self.min_key = low if self.min_key is None else min(self.min_key, low)
        self.max_key = high if self.max_key is None else max(self.max_key, high)
        if len(keys):
            self.java_span = java_span(keys, (low, high), self.java_span)
        fresh = keys if new is None else keys.filter(new)
        fresh = fresh.combine_chunks() if isinstance(fresh, pa.ChunkedArray) else fresh
        self.new_rows += len(fresh)
        hashes = wide_hashes(fresh) if hashes is None else hashes
        self.digest = (self.digest + int(hashes.sum(dtype=np.uint64))) % 2**64
        if self.key_hashes is not None:
            self.key_hashes.append(hashes)

    def _note_values(self, data: pa.Table, new: pa.Array | None) -> None:
        for constraint in self._wanted.unique_constraints:
            fresh = data.select(constraint) if new is None else data.select(constraint).filter(new)
            values = constraint_values(fresh, constraint)
            if values is not None:
                self.digest = (self.digest + int(values.hashes.sum(dtype=np.uint64))) % 2**64
            self._under.setdefault(name_of(constraint), []).append(values)

    def copied(self, span: Span, key_column: str | None) -> None:
        """Account for rows copied from an older file, none of them new, by their `java_span` and `key_column`."""
        self.java_span = joined_span(span, self.java_span)
        self.key_column = key_column if key_column == self.key_column else None

    def file_names(self, rows: int) -> pa.DictionaryArray:
        """The column of file names for so many rows."""
        return _constant(self._name, pa.array(np.zeros(rows, np.int32)))

    def new_keys(self) -> Hashed | None:
        """The keys of the rows that this transaction inserted or updated; None if they were not collected."""
        if not self.key_hashes or self.min_key is None or self.max_key is None:
            return None
        return Hashed(self.min_key, self.max_key, np.concatenate(self.key_hashes))

    def constrained(self) -> dict[str, Hashed]:
        """The values that these rows have under each unique constraint."""
        found = {name: joined(pieces) for name, pieces in self._under.items()}
        return {name: values for name, values in found.items() if values is not None}


def _those(rows: pa.Table, chosen: pa.Array | None) -> pa.Table:
    return rows if chosen is None else rows.filter(chosen)


def _span(keys: Any) -> tuple[Any, Any]:
    if len(keys) < _FEW_ROWS:
        texts = keys.to_pylist()
        return min(texts, default=None), max(texts, default=None)
    span = pc.min_max(keys)
    return span["min"].as_py(), span["max"].as_py()


def key_span(keys: pa.Array) -> Span:
    """Return the smallest and largest of some keys, in Java's order."""
    return java_span(keys, _span(keys))


@functools.cache
def _digits() -> npt.NDArray[np.uint32]:
    """The four decimal digits, as bytes, of each number below 10,000."""
    places = np.arange(10_000)[:, None] // [1000, 100, 10, 1] % 10
    return (places + ord("0")).astype(np.uint8).view(np.uint32).ravel()


def numbered(prefix: str, first: int, count: int) -> pa.Array:
    """Return the prefix with each of the numbers from ``first`` on. Built in one buffer: Arrow's kernels take several."""
    head = np.frombuffer(prefix.encode(), np.uint8)
    pieces, sizes, at, end = [], [], first, first + count
    while at < end:  # numbers of as many digits each
        digits = len(str(at))
        upto = min(end, 10**digits)
        texts = np.empty((upto - at, len(head) + digits), np.uint8)
        texts[:, : len(head)] = head
        rest = np.arange(at, upto, dtype=np.uint32 if upto < 1 << 32 else np.uint64)
        for last in range(digits, 0, -4):
            wide = min(last, 4)
            above = rest // 10_000
            four = _digits()[rest - above * 10_000].view(np.uint8).reshape(-1, 4)
            texts[:, len(head) + last - wide : len(head) + last] = four[:, 4 - wide :]
            rest = above
        pieces.append(texts.ravel())
        sizes.append(np.full(upto - at, texts.shape[1], np.int32))
        at = upto
    if not pieces:
        return pa.array([], pa.string())
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.concatenate(sizes), out=offsets[1:])
    body = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(offsets), pa.py_buffer(body)])


def _equal(some: Any, others: pa.ChunkedArray) -> bool:
    return bool(others.equals(some if isinstance(some, pa.ChunkedArray) else pa.chunked_array([some])))


def _constant(text: str, zeros: pa.Array) -> pa.DictionaryArray:
    # Four bytes a row in memory, shared by all such columns; a plain text column in the file.
    return pa.DictionaryArray.from_arrays(zeros, pa.array([text]))


def _cast(column: Any, wanted: pa.Field) -> Any:
    try:
        return column.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise InputError(
            f"column {wanted.name!r} is {column.type} in the rows and {wanted.type} in the table: {e}; cast it first",
            column=wanted.name,
        ) from e
