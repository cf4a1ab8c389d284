"""Write one base file of one transaction: a Parquet file in a data file, and its statistics for the commit.

A task that meets the file of another run of itself checks that it holds the same keys, and reports that file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ...conflict import NEW_KEYS
from ...errors import CommitError
from ...hudi.files import BaseName, StoredParquet, base_file_name, note_of
from ...hudi.timeline import NO_PREVIOUS_COMMIT, FileSlice, WriteStat
from ..entries import FileFacts, Hashed, encoded, hashed_keys, keys_in, of_footer, without
from ..liveness import Marker
from .data_file import DataFile
from .file_spec import FileSpec
from .meta_columns import FileRows, RowNumbers, key_span
from .old_file import OldFile, held_keys
from .parquet_file import ParquetFile


class BaseFileWriter:
    """Writes ``<partition>/<file_id>_<token>_<T>.parquet``; a context manager that publishes at its end.

    Args:
        io: CREATE for a new file group, MERGE for the next version of one; ``prev_commit`` is T of the version before.
        trusted: the caller has put every row into its partition; spares the check.
        keep_hashes: collect `wide_hashes` of the new keys in `key_hashes`, eight bytes a row.
        before: the slice before: rows with other keys are inserts, unless `counts` says so. None: all rows are.
        again: an earlier write of the transaction staged rows of the group, and ``before`` is the slice that it found;
            the commit's counts are relative to it.
        marker: the file's marker, if it is announced already.

    After the block `stat` describes the published file. An exception inside the block leaves only the marker.
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
        numbers: RowNumbers | None = None,
        trusted: bool = False,
        keep_hashes: bool = False,
        before: FileSlice | None = None,
        again: bool = False,
        marker: Marker | None = None,
    ) -> None:
        self._spec, self.partition, self._file_id, self._io = spec, partition, file_id, io
        self._before, self._again = before, again
        self._prev_commit = prev_commit
        self.name = base_file_name(BaseName(file_id, token, spec.instant))
        self._file = DataFile(spec, partition=partition, name=self.name, io=io, marker=marker)
        self.path = self._file.path
        self.stat: WriteStat | None = None
        self._shape = FileRows(
            spec,
            partition=partition,
            name=self.name,
            numbers=numbers or RowNumbers(int(token.partition("-")[0])),
            trusted=trusted,
            keep_hashes=keep_hashes or again,
        )
        self._more: dict[str, str] = {}
        self._counts: tuple[int, int, int] | None = None
        self._inserted: pa.Array | None = None

    def __enter__(self) -> BaseFileWriter:
        spec = self._spec
        self._parquet = ParquetFile(
            self._file.open(), self._shape, codec=spec.codec, row_group_rows=spec.row_group_rows
        )
        return self

    def __exit__(self, kind: object, _error: object, _trace: object) -> None:
        try:
            if kind is None and self.stat is None:
                self.publish()
        finally:
            self._file.close()

    def abandon(self) -> None:
        """Leave without publishing; the marker stays, so that cleaning finds the file."""
        self._file.close()

    @property
    def bytes_written(self) -> int:
        """Bytes that have left memory so far."""
        return self._parquet.bytes_written

    @property
    def key_hashes(self) -> list[npt.NDArray[np.uint64]] | None:
        """Hashes of the new keys so far, where they were asked for."""
        return self._shape.key_hashes

    # Rows --------------------------------------------------------------------------------------------------------

    def write(self, rows: pa.Table) -> None:
        """Add rows, with or without meta columns; a row whose meta columns are null or missing is new.

        All calls pass the same columns. Rows are checked when a row group is full, so errors may come later.

        Raises:
            InputError: a column is missing, unknown or of another type, a new row has no key, or it belongs to
                another partition.
        """
        self._parquet.write(rows)

    @property
    def waiting_rows(self) -> int:
        """Rows in memory that no row group holds yet."""
        return self._parquet.waiting_rows

    def flush(self) -> None:
        """Write the waiting rows as a row group before it is full, to free memory."""
        self._parquet.flush()

    def copy(self, old: OldFile, row_group: int, *, shrunk: bool) -> bool:
        """Copy a row group of the version before, none of whose rows changes; return False if its rows must be written.

        Args:
            shrunk: other row groups lose rows, so the old file's key range no longer holds.
        """
        start, end = old.row_groups[row_group]
        size = self._spec.row_group_rows
        # Small row groups are rewritten to be joined with their neighbours; copied, they would add up over the versions.
        # Bytes are copied and not decoded, which is what makes an update of one row in a large file cheap.
        if 2 * (end - start) < size or 0 < 4 * self.waiting_rows < size:
            return False
        if old.raw is None or not self._parquet.takes(old.raw.columns) or not (chunks := old.chunks(row_group)):
            return False
        span = None if shrunk or old.span is None else (old.span[0].decode(), old.span[1].decode())
        self._shape.copied(span or key_span(old.keys(row_group)), old.key_column)
        self._parquet.copy(old.stream, chunks, end - start)
        return True

    def counts(self, *, inserts: int, updates: int, deletes: int, inserted: pa.Array | None = None) -> None:
        """Set the counts for the commit; by default each new row counts as inserted, in MERGE as updated.

        ``inserted``: the keys that are new in the table.
        """
        # The writer sees rows of the new file alone, and cannot tell an update from an insert.
        self._counts, self._inserted = (inserts, updates, deletes), inserted

    def note(self, more: Mapping[str, str]) -> None:
        """Add key-value metadata to the footer."""
        self._more |= more

    # File --------------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Complete the bytes, which nobody sees before `publish`; `publish` calls this itself."""
        self._parquet.end_rows()
        inserts, updates, deletes = self._settled_counts()
        self._parquet.close(inserts=inserts, updates=updates, deletes=deletes, more=self._more)

    def publish(self) -> WriteStat:
        """Publish the file under its name. If another run of the task already did, with the same rows, report that file.

        Raises:
            RolledBackError: the transaction has ended meanwhile.
            CommitError: another run wrote other rows under this name; the transaction must be run again.
            StorageError: the store gave no answer, or refused.
        """
        self.finish()
        size = self._file.publish()
        if size is None:
            self.stat = self._existing()
        else:
            assert self._parquet.footer is not None
            if self._spec.spans is not None:
                self._spec.spans.learn(self.path, self._parquet.footer)
            self.stat = self._stat(self._parquet.rows, size, *self._settled_counts(), self._parquet.footer)
        self._file.close()
        return self.stat

    def _settled_counts(self) -> tuple[int, int, int]:
        new = self._shape.new_rows
        return self._counts or ((new, 0, 0) if self._io == "CREATE" else (0, new, 0))

    def _existing(self) -> WriteStat:
        with self._spec.store.open(self.path) as stream:
            size = stream.seek(0, os.SEEK_END)
            footer = StoredParquet(self._spec.store, self.path, stream).metadata
        note = note_of(footer)
        # The digest does not depend on the order of the rows, in which two runs of a task may differ.
        if note.get("digest") != self._shape.digest or footer.num_rows != self._parquet.rows:
            raise CommitError(
                f"{self.path} was written twice with different rows, because the source gave other rows when Spark ran "
                "a task again; nothing landed. Write from a source that gives the same rows each time (store it first)",
                path=self.path,
                instant=self._spec.instant,
            )
        return self._stat(footer.num_rows, size, note["inserts"], note["updates"], note["deletes"], footer)

    def _stat(
        self, rows: int, size: int, inserts: int, updates: int, deletes: int, footer: pq.FileMetaData
    ) -> WriteStat:
        return WriteStat(
            file_id=self._file_id,
            path=self.path,
            partition=self.partition,
            prev_commit=self._prev_commit or NO_PREVIOUS_COMMIT,
            num_writes=rows,
            num_inserts=inserts,
            num_updates=updates,
            num_deletes=deletes,
            total_write_bytes=size,
            file_size=size,
            errors=0,
            facts=self._facts(footer),
            whole=self._counted_from_begin(rows) if self._again else None,
        )

    def _counted_from_begin(self, rows: int) -> tuple[int, int, int]:
        inserted = self._inserted_keys
        inserts, old = len(inserted.hashes) if inserted else 0, self._old_keys
        return inserts, self._shape.new_rows - inserts, (len(old.hashes) if old else 0) - (rows - inserts)

    def _facts(self, footer: pq.FileMetaData) -> FileFacts | None:
        wanted = self._spec.wanted
        if not (wanted.keys or wanted.unique_constraints or wanted.statistics):
            return None
        values = self._shape.constrained()
        if wanted.keys:
            keys = self._inserted_keys
            if keys is not None:
                values[NEW_KEYS] = keys_in(self.partition, keys)
        statistics = encoded(of_footer(footer, wanted.statistics)) if wanted.statistics else b""
        return FileFacts(statistics, values)

    @cached_property
    def _inserted_keys(self) -> Hashed | None:
        if self._inserted is not None and not self._again:
            return hashed_keys(self._inserted)
        changed = self._shape.new_keys()
        return changed if changed is None else without(changed, self._old_keys)

    @cached_property
    def _old_keys(self) -> Hashed | None:
        # The keys of the slice, not of its base file: a key that a log file has deleted is new.
        return None if self._before is None else hashed_keys(held_keys(self._spec, self._before))
