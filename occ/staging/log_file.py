"""Write one log file of one transaction onto a file slice: rows to upsert and keys to delete, or the result of a log compaction.

The slice is not read: readers merge the log file onto it. Memory: the rows passed in, and once more as Parquet or Avro.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...conflict import NEW_KEYS
from ...errors import CommitError, StorageError
from ...hudi.files import LogName, avro_block, delete_block, join, log_file_name, parquet_block
from ...hudi.merge import ordering_of
from ...hudi.table import with_meta_columns
from ...hudi.timeline import NO_PREVIOUS_COMMIT, FileSlice, WriteStat
from ..entries import FileFacts, hashed_keys, keys_in
from .data_file import DataFile
from .file_spec import FileSpec, refuse_if_over
from .meta_columns import FileRows, RowNumbers
from .parquet_file import ALMOST, ParquetFile, RowBytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from ..liveness import Marker

# Log files of one write onto one slice, at most: the next write numbers its files from there on. The last one takes the rest.
LOGS_MAX = 1000
_BLOCK_BYTES_MAX = 32 << 20  # readers decode a block at a time


class LogFileWriter:
    """Writes ``<partition>/.<file_id>_<T>.log.<n>_<token>``; `close` it, published or not.

    Args:
        onto: the slice that the changes belong to; it has no file where a stream begins a file group.
        announced: returns the marker that a path already has, or None.
        token: names the task and the write of the transaction, not the attempt: another run of the task meets the file.
        version: orders the log files of a transaction onto the slice; the larger comes later.
        merged: for a log compaction, T of the commits whose blocks it replaces.
        inserted: keys of written rows that the slice lacks, recorded in the commit where the table's settings ask for it.
    """

    def __init__(
        self,
        spec: FileSpec,
        onto: FileSlice,
        *,
        token: str,
        version: int = 1,
        numbers: RowNumbers,
        announced: Callable[[str], Marker | None] = lambda _path: None,
        merged: Sequence[str] = (),
        inserted: pa.Array | None = None,
    ) -> None:
        self._spec, self._onto, self._merged = spec, onto, tuple(merged)
        self._inserted = inserted if spec.wanted.keys else None
        self._version = version
        self.name = log_file_name(LogName(onto.file_id, spec.instant, version, token))
        self._new = onto.base is None and not onto.logs  # a file group without a commit in our snapshot
        self.path = join(onto.partition, self.name)
        marker = announced(self.path)
        self._file = DataFile(
            spec, partition=onto.partition, name=self.name, io="APPEND", first=self._new, marker=marker
        )
        self._shape = FileRows(
            spec, partition=onto.partition, name=onto.file_id, numbers=numbers, trusted=True, keep_hashes=False
        )
        self._schema = with_meta_columns(spec.schema, spec.config.name)
        self._texts_order = any(pa.types.is_string(spec.schema.field(name).type) for name in ordering_of(spec.config))
        self._blocks: list[bytes] = []
        self._rows = self._deleted = self._inserts = 0
        self.size = 0  # in bytes, of the blocks so far

    def write(self, rows: pa.Table, *, inserts: int = 0, note: Mapping[str, str] | None = None) -> None:
        """Add a block of rows that replace those with the same key; ``inserts`` of them are known to be new.

        ``note`` goes to the block's footer. Avro blocks, for tables ordered by a text, have no footer; nor do those have streams.

        Raises as `BaseFileWriter.write`.
        """
        self._rows += rows.num_rows
        self._inserts += inserts
        if self._texts_order:
            whole = self._shape.completed(rows)
            self._append(avro_block(self._spec.instant, self._schema, whole, merged=self._merged))
            return
        body = io.BytesIO()
        parquet = ParquetFile(body, self._shape, codec=self._spec.codec, row_group_rows=self._spec.row_group_rows)
        parquet.write(rows)
        parquet.end_rows()
        parquet.close(inserts=0, updates=rows.num_rows, deletes=0, more=note)
        self._append(parquet_block(self._spec.instant, self._schema, body.getvalue(), merged=self._merged))

    def delete(self, keys: Sequence[str]) -> None:
        """Add a block that deletes all earlier versions of the rows with these record keys."""
        self._delete([(key, self._onto.partition, None) for key in keys])

    def delete_up_to(self, deletes: Iterable[tuple[str, Any]], ordering: Sequence[pa.DataType]) -> None:
        """Add a block that deletes the rows with these record keys up to an ordering value of these types.

        The values are as `Block.deletes` gives them.

        Raises:
            InputError: one of the values cannot order a delete.
        """
        self._delete([(key, self._onto.partition, value) for key, value in deletes], ordering)

    def _delete(self, deletes: Sequence[tuple[str, str, Any]], ordering: Sequence[pa.DataType] = ()) -> None:
        block = delete_block(self._spec.instant, self._schema, deletes, ordering, merged=self._merged)
        self._append(block)
        self._deleted += len(deletes)

    def _append(self, block: bytes) -> None:
        self._blocks.append(block)
        self.size += len(block)

    def publish(self) -> WriteStat:
        """Publish the file under its name. If another run of the task already did, with equal bytes, report that file.

        Raises:
            RolledBackError: the transaction has ended meanwhile.
            CommitError: another run wrote other rows under this name; the transaction must be run again.
            StorageError: the store gave no answer, or refused.
        """
        body = b"".join(self._blocks)
        self._file.open().write(body)
        size = self._file.publish()
        if size is None and (there := self._spec.store.body(self.path)) != body:
            if there is None:  # deleted by the writer that ended the transaction
                refuse_if_over(self._spec.store, self._spec.instant)
                raise StorageError(f"{self.path} was not read: it is gone since it was written", path=self.path)
            # All executors of a log compaction's plan write the same rows, perhaps encoded by another version of Arrow.
            if not self._merged:
                raise self._written_otherwise()
            body = there
        return WriteStat(
            file_id=self._onto.file_id,
            path=self.path,
            partition=self._onto.partition,
            prev_commit=NO_PREVIOUS_COMMIT if self._new else self._onto.instant,
            num_writes=self._rows + self._deleted,
            num_inserts=self._inserts,
            num_updates=self._shape.new_rows - self._inserts,
            num_deletes=self._deleted,
            total_write_bytes=len(body),
            file_size=len(body),
            base_file=self._onto.base.path.rpartition("/")[2] if self._onto.base else "",
            log_files=(self.name,),
            log_version=self._version,
            log_offset=0,
            facts=self._facts(),
        )

    def _facts(self) -> FileFacts | None:
        keys = hashed_keys(self._inserted) if self._inserted is not None else None
        return None if keys is None else FileFacts(b"", {NEW_KEYS: keys_in(self._onto.partition, keys)})

    def _written_otherwise(self) -> CommitError:
        return CommitError(
            f"{self.path} was written twice with different rows, because the source gave other rows when Spark ran "
            "a task again; nothing landed. Write from a source that gives the same rows each time (store it first)",
            path=self.path,
            instant=self._spec.instant,
        )

    def abandon(self) -> None:
        """Drop unpublished bytes and leave; the marker stays, so that cleaning finds the file."""
        self._file.close()


def in_log_files(
    spec: FileSpec,
    begin: Callable[[int], LogFileWriter],
    rows: pa.Table | None,
    deletes: Sequence[str] = (),
    *,
    inserts: int = 0,
    note: Mapping[str, str] | None = None,
) -> Iterator[LogFileWriter]:
    """Yield the log files of a write onto one slice, each when it is complete; the next begins when one has its size.

    Args:
        begin: opens the file with this number, from 0.
        rows: replace those with the same key; the last ``inserts`` of them are known to be new.
        deletes: keys deleted after the rows; with a ``note`` the keys of the rows themselves, deleted in each row's file.
        note: metadata for each block's footer.
    """
    size_max, size = spec.target_file_bytes, RowBytes()
    number, writer = 0, begin(0)

    def room() -> float:
        """Bytes for the next block; 0 if the file has its size."""
        left = size_max - writer.size if number + 1 < LOGS_MAX else _BLOCK_BYTES_MAX
        return min(left, _BLOCK_BYTES_MAX) if left > (1 - ALMOST) * size_max else 0

    count, start, beside = rows.num_rows if rows is not None else 0, 0, bool(note and deletes)
    while rows is not None and start < count:
        if not room():
            yield writer
            number, writer = number + 1, begin(number + 1)
        left, before = rows.slice(start, spec.row_group_rows), writer.size
        piece = left.slice(0, size.fit(left, room()))
        end = start + piece.num_rows
        writer.write(piece, inserts=max(0, end - max(start, count - inserts)), note=note)
        size.learn(piece.num_rows, writer.size - before)
        if beside:
            writer.delete(deletes[start:end])
        start = end
    for first in range(0, 0 if beside else len(deletes), spec.row_group_rows):
        if not room():
            yield writer
            number, writer = number + 1, begin(number + 1)
        writer.delete(deletes[first : first + spec.row_group_rows])
    yield writer
