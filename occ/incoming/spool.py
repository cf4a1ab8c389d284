"""Rows of one schema from a reader: in memory while they are few, else in a mapped temporary file.

A mapped table is read like any other, and the operating system may drop its pages and read them again. The file never has a
name, so nothing is left of it however the process ends.
"""

from __future__ import annotations

import mmap
import tempfile
from contextlib import suppress
from typing import IO

import pyarrow as pa

from ...errors import StorageError

MEMORY_BYTES = 64 << 20  # up to so many bytes stay in memory; with more, all rows go to a file
_BATCH_BYTES = 16 << 20  # small batches are joined to about this size, since each read of some rows visits all batches
_BATCH_ROWS = 1 << 20


class Spool:
    """Collects rows piece by piece, all with the columns of ``schema``; `table` returns them all.

    `close` it if `table` is not reached. A mapped file is freed with the last reference to its rows.

    Attributes:
        rows: the number of rows so far.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._waiting: list[pa.Table] = []
        self._bytes = 0
        self.rows = 0
        self._file: TemporaryBytes | None = None
        self._writer: pa.RecordBatchFileWriter | None = None

    def add(self, rows: pa.Table) -> None:
        """Take more rows.

        Raises:
            StorageError: the temporary folder has no room.
        """
        self.rows += rows.num_rows
        if not rows.num_rows:
            return
        self._waiting.append(rows)
        self._bytes += rows.nbytes
        if self._writer is None and self._bytes > MEMORY_BYTES:
            self._file = TemporaryBytes("rows of a reader")
            self._writer = pa.ipc.new_file(self._file, self._schema)
        if self._writer is not None and self._bytes >= _BATCH_BYTES:
            self._write()

    def _write(self) -> None:
        assert self._writer is not None
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        joined, size = list[pa.Table](), 0
        for each in waiting:
            joined.append(each)
            size += each.nbytes
            if size >= _BATCH_BYTES:
                self._writer.write_table(pa.concat_tables(joined).combine_chunks(), max_chunksize=_BATCH_ROWS)
                joined, size = [], 0
        if joined:
            self._writer.write_table(pa.concat_tables(joined).combine_chunks(), max_chunksize=_BATCH_ROWS)

    def table(self) -> tuple[pa.Table, bool]:
        """Return all rows, and whether they are in a file; none can be added afterwards. Errors as for `add`."""
        if self._writer is None:
            tables, self._waiting = self._waiting, []
            return (pa.concat_tables(tables) if tables else self._schema.empty_table()), False
        assert self._file is not None
        self._write()
        self._writer.close()
        return pa.ipc.open_file(pa.BufferReader(self._file.mapped())).read_all(), True

    def close(self) -> None:
        """Free the room. Idempotent."""
        self._waiting = []
        if self._file is not None:
            self._file.close()


class TemporaryBytes:
    """A nameless file in the temporary folder: written once, then mapped.

    Args:
        what: a description of the content, for messages.

    Raises:
        StorageError: there is no temporary folder, or it has no room.
    """

    def __init__(self, what: str) -> None:
        self._what, self._size = what, 0
        try:
            self._file: IO[bytes] = tempfile.TemporaryFile(prefix="lakelatch-")  # noqa: SIM115 - `mapped` or `close` ends it
        except OSError as e:
            raise self._refused(e) from e

    @property
    def closed(self) -> bool:
        """True if nothing can be written any more."""
        return self._file.closed

    def write(self, body: bytes) -> int:
        """Append bytes."""
        try:
            count = self._file.write(body)
        except OSError as e:
            raise self._refused(e) from e
        self._size += count
        return count

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self._size

    def flush(self) -> None:
        """Do nothing: writers expect the method, and `mapped` flushes."""

    def mapped(self) -> pa.Buffer:
        """Return all bytes as a mapped buffer and close the file; its room is freed with the buffer."""
        if not self._size:
            self.close()
            return pa.py_buffer(b"")
        try:
            # The mapping outlives the file object that is closed below.
            self._file.flush()
            return pa.py_buffer(mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ))
        except OSError as e:
            raise self._refused(e) from e
        finally:
            self.close()

    def close(self) -> None:
        """Free the room, except that of a mapped buffer. Idempotent."""
        # Closing flushes; bytes that the disk refuses are not needed any more.
        with suppress(OSError):
            self._file.close()

    def _refused(self, error: OSError) -> StorageError:
        try:
            folder = tempfile.gettempdir()
        except OSError:
            folder = "any temporary folder"
        return StorageError(
            f"{self._what} were not put into {folder} ({self._size >> 20} MiB so far): {error.strerror or error}; nothing was "
            "written. Make room there, or set TMPDIR to a folder with more",
            path=folder,
        )
