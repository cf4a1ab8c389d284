"""Writes one base file of one transaction: meta columns, marker before, exclusive creation after.

One name per (file group, T), whoever writes it. A task that Spark runs again, or twice at once, meets the name of its
first run; `publish` then loses, and the file that stands is reported instead, after a look whether it holds the same
keys. So there are never two files of one file group and T, which readers would refuse or count twice.

Memory: at most one row group of rows per open file.
"""

from __future__ import annotations

import json
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..errors import CommitError, InputError, RolledBackError, StorageError
from ..storage import Outcome, Store
from .avro import WriteStat
from .heartbeat import heartbeat_path
from .keys import RECORD_KEY, record_keys, wide_hashes
from .markers import announce, stands
from .names import PARTITION_METADATA, BaseName, base_file_name, join, new_file_id, partition_metadata
from .partition_path import partition_paths
from .properties import TableConfig
from .schema import META_COLUMNS

COMMIT_TIME, SEQNO, _, PARTITION_PATH, FILE_NAME = META_COLUMNS
_FAMILY = uuid.UUID("6f2d8a44-5f0e-5b1f-9a44-1a7c3e2b9d10")
_MIN_KEY, _MAX_KEY = "hoodie_min_record_key", "hoodie_max_record_key"
_NOTE = "lakelatch.file"
_LEVEL = {"zstd": 3}  # Spark's own; Arrow's default is 1
_SAMPLED_ROWS = 4096


@dataclass(frozen=True)
class FileSpec:
    """Everything that the files of one transaction have in common. Pickles, so it travels to Spark's workers.

    Attributes:
        schema: the table's data columns after this transaction, without meta columns.
        buckets: of the bucket index; None is the simple index.
        row_group_rows: rows of a row group, and the most that an open file keeps in memory.
        file_bytes_max: a file of inserted rows is closed when it has grown so large, and the next group begun.
    """

    store: Store
    instant: str
    schema: pa.Schema
    config: TableConfig
    buckets: int | None = None
    codec: str = "zstd"
    row_group_rows: int = 131_072
    file_bytes_max: int = 120 << 20


@dataclass
class RowNumbers:
    """Numbers the new rows of one task, for ``_hoodie_commit_seqno``."""

    task: int = 0
    rows: int = 0

    def take(self, count: int) -> int:
        """The first of ``count`` numbers that nobody else gets."""
        first, self.rows = self.rows, self.rows + count
        return first


@dataclass
class _Tally:
    rows: int = 0
    inserts: int | None = None
    updates: int | None = None
    deletes: int = 0
    new_rows: int = 0
    digest: int = 0  # sum of the new keys' hashes: the same rows in any order give the same
    min_key: str | None = None
    max_key: str | None = None


def group_id(instant: str, partition: str, task: int, number: int = 0, *, bucket: int | None = None) -> str:
    """The file id of a new file group: the same for every run of the same task of the same transaction."""
    return new_file_id(str(uuid.uuid5(_FAMILY, f"{instant}\n{partition}\n{task}\n{number}")), bucket=bucket)


def token(task: int) -> str:
    """The write token of a task: it names no attempt, so that a second attempt meets the first one's file."""
    return f"{task}-0-0"


def refuse_if_over(store: Store, instant: str) -> None:
    """Raise `RolledBackError` when the transaction has ended: its heartbeat file is the stop sign."""
    if store.head(heartbeat_path(instant)) is None:
        raise RolledBackError(
            f"transaction {instant} is over (its heartbeat is gone); no file of it may appear any more. "
            "Run the write again if it was not you who ended it",
            instant=instant,
        )


class BaseFileWriter:
    """Writes ``<partition>/<file_id>_<token>_<T>.parquet``; a context manager that publishes at its end.

    Args:
        io: CREATE for a new file group, MERGE for the next version of one; ``prev_commit`` is T of the version before.
        trusted: the caller has put every row into its partition; spares the check.
        keep_hashes: collect `wide_hashes` of the new keys in `key_hashes`, eight bytes a row.

    After the block `stat` says what stands. An exception inside the block leaves the marker and nothing else.
    """

    def __init__(
        self,
        spec: FileSpec,
        *,
        partition: str,
        file_id: str,
        token: str = "0-0-0",  # noqa: S107 - a write token is a part of a file name, no secret
        io: Literal["CREATE", "MERGE"] = "CREATE",
        prev_commit: str | None = None,
        sequence: RowNumbers | None = None,
        trusted: bool = False,
        keep_hashes: bool = False,
    ) -> None:
        self._spec, self.partition, self._file_id, self._io = spec, partition, file_id, io
        self._prev_commit, self._trusted = prev_commit, trusted
        self._sequence = sequence or RowNumbers(int(token.partition("-")[0]))
        self.name = base_file_name(BaseName(file_id, token, spec.instant))
        self.path = join(partition, self.name)
        self.stat: WriteStat | None = None
        self.key_hashes: list[npt.NDArray[np.uint64]] | None = [] if keep_hashes else None
        self._tally = _Tally()
        self._buffer: list[pa.Table] = []
        self._buffered = 0
        self._parquet: pq.ParquetWriter | None = None
        self._stack = ExitStack()

    def __enter__(self) -> BaseFileWriter:
        spec = self._spec
        refuse_if_over(spec.store, spec.instant)
        if self._io == "CREATE":
            _announce_partition(spec, self.partition)
        self._marker = announce(spec.store, spec.instant, self.path, self._io)
        self._object = self._stack.enter_context(spec.store.create(self.path))
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        try:
            if kind is None and self.stat is None:
                self.publish()
        finally:
            self._close_quietly()

    def abandon(self) -> None:
        """Leave without publishing; the marker stays for whoever cleans up."""
        self._close_quietly()

    @property
    def bytes_written(self) -> int:
        """Bytes that have left memory so far."""
        return self._object.stream.tell() if self._parquet is not None else 0

    @property
    def rows(self) -> int:
        """Rows handed in so far."""
        return self._tally.rows

    # Rows --------------------------------------------------------------------------------------------------------

    def write(self, rows: pa.Table) -> None:
        """Add rows, with or without meta columns; a row whose meta columns are null or missing is new.

        All calls hand in the same columns. Rows are looked at when a row group is full, so errors may come later.

        Raises:
            InputError: a column is missing, unknown or of another type, a new row has no key, or it belongs to
                another partition.
        """
        if not rows.num_rows:
            return
        self._tally.rows += rows.num_rows
        self._buffer.append(rows)
        self._buffered += rows.num_rows
        if self._buffered >= self._spec.row_group_rows:
            self._flush(keep_rest=True)

    def counts(self, *, inserts: int, updates: int, deletes: int) -> None:
        """Say what became of the rows of this file; without it every new row counts as inserted, or updated in MERGE."""
        self._tally.inserts, self._tally.updates, self._tally.deletes = inserts, updates, deletes

    def _completed(self, rows: pa.Table) -> pa.Table:
        data = self._data_columns(rows)
        new = self._new_rows(rows)
        fresh = rows if new is None else rows.filter(new)
        if fresh.num_rows and not self._trusted:
            self._refuse_strangers(fresh)
        keys = self._keys(rows, fresh, new)
        count = rows.num_rows
        meta = [
            self._commit_times(rows, new),
            self._seqnos(rows, new, fresh.num_rows),
            keys,
            _constant(self.partition, count),
            _constant(self.name, count),
        ]
        self._note_keys(keys, new)
        arrays = [*meta, *data.columns]
        return pa.Table.from_arrays(arrays, schema=self._file_schema)

    def _data_columns(self, rows: pa.Table) -> pa.Table:
        schema = self._spec.schema
        if unknown := [n for n in rows.column_names if n not in schema.names and n not in META_COLUMNS]:
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
            columns.append(column if column.type == wanted.type else _cast(column, wanted))
        return pa.Table.from_arrays(columns, schema=pa.schema([f.with_nullable(True) for f in schema]))

    def _new_rows(self, rows: pa.Table) -> pa.Array | None:
        """Mask of the rows that this transaction changes; None is all of them."""
        if COMMIT_TIME not in rows.column_names:
            return None
        return rows.column(COMMIT_TIME).is_null().combine_chunks()

    def _keys(self, rows: pa.Table, fresh: pa.Table, new: pa.Array | None) -> Any:
        fields = self._spec.config.record_key_fields
        if RECORD_KEY not in rows.column_names:
            return record_keys(rows, fields)
        keys = rows.column(RECORD_KEY)
        if not keys.null_count:
            return keys
        if new is None or fresh.column(RECORD_KEY).null_count != keys.null_count:
            raise InputError(
                f"rows that were copied have no {RECORD_KEY}; keep the meta columns of copied rows together"
            )
        return pc.replace_with_mask(keys, new, record_keys(fresh, fields))

    def _commit_times(self, rows: pa.Table, new: pa.Array | None) -> Any:
        if new is None:
            times = _constant(self._spec.instant, rows.num_rows)
            return times if self._io == "CREATE" else times.cast(pa.string())
        times = rows.column(COMMIT_TIME).cast(pa.string()).fill_null(self._spec.instant)
        return times if self._io == "MERGE" else times.combine_chunks().dictionary_encode()

    def _seqnos(self, rows: pa.Table, new: pa.Array | None, count: int) -> Any:
        first = self._sequence.take(count)
        numbers = pa.array(np.arange(first, first + count)).cast(pa.string())
        prefix = pa.scalar(f"{self._spec.instant}_{self._sequence.task}_")
        fresh = pc.binary_join_element_wise(prefix, numbers, "")
        if new is None:
            return fresh
        if SEQNO not in rows.column_names:
            raise InputError(f"rows that were copied have no {SEQNO}; keep the meta columns of copied rows together")
        old = rows.column(SEQNO).cast(pa.string())
        return pc.replace_with_mask(old, new, fresh) if count else old

    def _refuse_strangers(self, fresh: pa.Table) -> None:
        found = partition_paths(fresh, self._spec.config).unique().to_pylist()
        if others := [p for p in found if p != self.partition]:
            raise InputError(
                f"rows of partition {others[0]!r} were written into a file group of {self.partition!r}; "
                "split the rows by partition first",
                partition=self.partition,
            )

    def _note_keys(self, keys: Any, new: pa.Array | None) -> None:
        tally = self._tally
        span = pc.min_max(keys)
        low, high = span["min"].as_py(), span["max"].as_py()
        tally.min_key = low if tally.min_key is None else min(tally.min_key, low)
        tally.max_key = high if tally.max_key is None else max(tally.max_key, high)
        fresh = keys if new is None else keys.filter(new)
        fresh = fresh.combine_chunks() if isinstance(fresh, pa.ChunkedArray) else fresh
        tally.new_rows += len(fresh)
        hashes = wide_hashes(fresh)
        tally.digest = (tally.digest + int(hashes.sum(dtype=np.uint64))) % 2**64
        if self.key_hashes is not None:
            self.key_hashes.append(hashes)

    # File --------------------------------------------------------------------------------------------------------

    @property
    def _file_schema(self) -> pa.Schema:
        dictionary = pa.dictionary(pa.int32(), pa.string())
        times = dictionary if self._io == "CREATE" else pa.string()
        types = [times, pa.string(), pa.string(), dictionary, dictionary]
        meta = [pa.field(n, t) for n, t in zip(META_COLUMNS, types, strict=True)]
        return pa.schema([*meta, *(f.with_nullable(True).remove_metadata() for f in self._spec.schema)])

    def _flush(self, *, keep_rest: bool) -> None:
        size = self._spec.row_group_rows
        pending = pa.concat_tables(self._buffer, promote_options="default").combine_chunks()
        whole = pending.num_rows // size * size if keep_rest else pending.num_rows
        for start in range(0, whole, size):
            group = self._completed(pending.slice(start, min(size, whole - start)))
            self._open_parquet(group).write_table(group, row_group_size=size)
        rest = pending.slice(whole)
        self._buffer, self._buffered = ([rest] if rest.num_rows else []), rest.num_rows

    def _open_parquet(self, first: pa.Table) -> pq.ParquetWriter:
        if self._parquet is None:
            unique = _encodings_of_unique(first)
            self._parquet = pq.ParquetWriter(
                self._object.stream,
                self._file_schema,
                compression=self._spec.codec,
                compression_level=_LEVEL.get(self._spec.codec),
                store_schema=False,  # else dictionary types of the meta columns return to pyarrow's readers
                use_dictionary=[leaf for leaf in _leaves(self._file_schema) if leaf not in unique],
                column_encoding=unique,
                coerce_timestamps="us",
            )
        return self._parquet

    def finish(self) -> None:
        """The bytes are complete, but nobody sees them yet. `publish` does this by itself."""
        if self._buffer:
            self._flush(keep_rest=False)
        parquet = self._open_parquet(self._file_schema.empty_table())
        if parquet.is_open:
            tally = self._tally
            note = {
                "digest": tally.digest,
                "inserts": self._inserts,
                "updates": self._updates,
                "deletes": tally.deletes,
            }
            footer = {_NOTE: json.dumps(note)}
            if tally.min_key is not None and tally.max_key is not None:
                footer |= {_MIN_KEY: tally.min_key, _MAX_KEY: tally.max_key}
            parquet.add_key_value_metadata(footer)
            parquet.close()

    def publish(self) -> WriteStat:
        """The file stands under its name, this one or one with the same rows of another run of the same task.

        Raises:
            RolledBackError: the transaction has ended meanwhile.
            CommitError: another run wrote other rows under this name; the transaction must be run again.
            StorageError: the store gave no answer, or refused.
        """
        self.finish()
        spec = self._spec
        self._object.stream.flush()
        size = self._object.stream.tell()
        if not stands(spec.store, self._marker):
            raise self._withheld()
        refuse_if_over(spec.store, spec.instant)
        put = self._object.publish()
        if not stands(spec.store, self._marker):
            # Stopped after the look above, for so long that the sweep went by before the file was there.
            if put.outcome is Outcome.DONE:
                spec.store.delete(self.path)
            raise self._withheld()
        if put.outcome is Outcome.DONE:
            self.stat = self._stat(self._tally.rows, size, self._inserts, self._updates, self._tally.deletes)
        else:
            self.stat = self._existing(put.cause)
        self._close_quietly()
        return self.stat

    def _withheld(self) -> RolledBackError:
        return RolledBackError(
            f"the marker of {self.path} is gone: transaction {self._spec.instant} was ended by somebody else and its file "
            "is withheld. Run the write again",
            instant=self._spec.instant,
            path=self.path,
        )

    @property
    def _inserts(self) -> int:
        given = self._tally.inserts
        return given if given is not None else self._tally.new_rows if self._io == "CREATE" else 0

    @property
    def _updates(self) -> int:
        given = self._tally.updates
        return given if given is not None else self._tally.new_rows if self._io == "MERGE" else 0

    def _existing(self, cause: str) -> WriteStat:
        found = self._spec.store.head(self.path)
        if found is None:
            raise StorageError(
                f"{self.path} could not be published: {cause or 'the store gave no answer'}; run the write again",
                path=self.path,
            )
        with self._spec.store.open(self.path) as stream:
            footer = pq.read_metadata(stream)
        note = json.loads((footer.metadata or {}).get(_NOTE.encode(), b"{}"))
        if note.get("digest") != self._tally.digest or footer.num_rows != self._tally.rows:
            raise CommitError(
                f"{self.path} was written twice with different rows, because the source gave other rows when Spark ran "
                "a task again; nothing landed. Write from a source that gives the same rows each time (cache or store it)",
                path=self.path,
                instant=self._spec.instant,
            )
        return self._stat(footer.num_rows, found.size, note["inserts"], note["updates"], note["deletes"])

    def _stat(self, rows: int, size: int, inserts: int, updates: int, deletes: int) -> WriteStat:
        return WriteStat(
            file_id=self._file_id,
            path=self.path,
            partition=self.partition,
            prev_commit=self._prev_commit or "null",
            num_writes=rows,
            num_inserts=inserts,
            num_updates=updates,
            num_deletes=deletes,
            total_write_bytes=size,
            file_size=size,
            errors=0,
        )

    def _close_quietly(self) -> None:
        self._buffer = []
        self._stack.close()


def _announce_partition(spec: FileSpec, partition: str) -> None:
    """JVM readers find a partition only by this file, so it stands before the first data file."""
    path = join(partition, PARTITION_METADATA)
    if spec.store.head(path) is None:
        put = spec.store.put_if_absent(path, partition_metadata(spec.instant, partition))
        if put.outcome is Outcome.UNKNOWN and spec.store.head(path) is None:
            raise StorageError(
                f"{path} could not be written: {put.cause}; nothing landed, run the write again", path=path
            )


def _constant(text: str, count: int) -> pa.DictionaryArray:
    # Four bytes a row in memory; a plain text column in the file.
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), pa.array([text]))


def _cast(column: Any, wanted: pa.Field) -> Any:
    try:
        return column.cast(wanted.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as e:
        raise InputError(
            f"column {wanted.name!r} is {column.type} in the rows and {wanted.type} in the table: {e}; cast it first",
            column=wanted.name,
        ) from e


def _encodings_of_unique(first: pa.Table) -> dict[str, str]:
    """Encodings of the columns whose values are nearly all different: a dictionary would be larger than they are."""
    sample = first.slice(0, _SAMPLED_ROWS)
    found = dict.fromkeys((SEQNO, RECORD_KEY), "DELTA_BYTE_ARRAY")
    for field in sample.schema:
        whole_number = pa.types.is_integer(field.type) or pa.types.is_timestamp(field.type)
        if not (whole_number or pa.types.is_string(field.type)) or field.name in found or not sample.num_rows:
            continue
        if pc.count_distinct(sample.column(field.name)).as_py() > 0.9 * sample.num_rows:
            found[field.name] = "DELTA_BINARY_PACKED" if whole_number else "DELTA_BYTE_ARRAY"
    return found


def _leaves(schema: pa.Schema) -> list[str]:
    """Paths of the Parquet columns, which is how encodings are chosen per column."""

    def below(path: str, kind: pa.DataType) -> list[str]:
        if pa.types.is_struct(kind):
            return [leaf for f in kind for leaf in below(f"{path}.{f.name}", f.type)]
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            return below(f"{path}.list.element", kind.value_type)
        if pa.types.is_map(kind):
            return below(f"{path}.key_value.key", kind.key_type) + below(f"{path}.key_value.value", kind.item_type)
        return [path]

    return [leaf for f in schema for leaf in below(f.name, f.type)]


__all__ = ["BaseFileWriter", "FileSpec", "RowNumbers", "group_id", "refuse_if_over", "token"]
