"""Parquet files opened for reading, and a cache of the footers that this process has read."""

from __future__ import annotations

import io
import json
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import CorruptTableError

if TYPE_CHECKING:
    from ...storage import Store


class StoredParquet(pq.ParquetFile):  # type: ignore[misc]
    """The file at a path of a store, for one thread. It raises as `torn_is_told`, also while rows are read.

    Args:
        store: the store that holds it.
        path: its path there.
        source: an open stream of it.
        options: pyarrow's own.
    """

    def __init__(self, store: Store, path: str, source: Any, **options: Any) -> None:
        self._at = store, path
        with torn_is_told(store, path):
            super().__init__(source, **options)

    def read(self, *args: Any, **options: Any) -> pa.Table:
        with torn_is_told(*self._at):
            return super().read(*args, **options)

    def read_row_group(self, *args: Any, **options: Any) -> pa.Table:
        with torn_is_told(*self._at):
            return super().read_row_group(*args, **options)


@contextmanager
def torn_is_told(store: Store, path: str) -> Iterator[None]:
    """Raise `CorruptTableError`, naming the file, if Arrow finds that it is no whole Parquet file."""
    try:
        yield
    except (pa.ArrowException, OSError) as e:
        # Errors of the operating system, an interrupt and a lack of memory say nothing about the file.
        if getattr(e, "errno", None) is not None or isinstance(e, pa.ArrowCancelled | MemoryError):
            raise
        raise CorruptTableError(
            f"{path} of {store.url} is no whole Parquet file: {e}. Restore it from a copy, or go back to a savepoint; `lakelatch "
            "check` lists all damage. Nothing landed",
            path=path,
            table=store.url,
        ) from e


_FOOTERS_KEPT = 512


class Footers:
    """The footers used most recently, by path. None goes stale: a data file never changes, and its name is never reused."""

    def __init__(self, store: Store) -> None:
        self._store, self._mutex = store, threading.Lock()
        self._kept: OrderedDict[str, pq.FileMetaData] = OrderedDict()

    def get(self, path: str) -> pq.FileMetaData | None:
        """Return the footer if it is cached, else None."""
        with self._mutex:
            if path in self._kept:
                self._kept.move_to_end(path)
            return self._kept.get(path)

    @contextmanager
    def open(self, path: str, size: int) -> Iterator[StoredParquet]:
        """Open the file for one thread; ``size`` in bytes, 0 if unknown.

        Raises:
            StorageError: there is no such file.
            CorruptTableError: the file is torn, as `torn_is_told`; raised while it is read as well.
        """
        with self._store.open(path, size=size or None) as stream, _native(stream) as source:
            # With a known footer Arrow does not read the end of the file again.
            known = self.get(path)
            file = StoredParquet(self._store, path, source, metadata=known)
            if known is None:
                with self._mutex:
                    self._kept[path] = file.metadata
                    if len(self._kept) > _FOOTERS_KEPT:
                        self._kept.popitem(last=False)
            yield file

    def of(self, path: str, size: int) -> pq.FileMetaData:
        """Return the footer; open the file if it is not cached."""
        found = self.get(path)
        if found is None:
            with self.open(path, size) as file:
                found = file.metadata
        return found


@contextmanager
def _native(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """Yield a local file as one that Arrow reads without Python's lock; yield any other stream as it is."""
    import pyarrow as pa

    if not isinstance(stream, io.BufferedReader) or not isinstance(stream.raw, io.FileIO):
        yield stream
        return
    try:
        # Opened by descriptor, because the name may be gone since: a cleaner deletes files of old slices.
        source = pa.OSFile(f"/proc/self/fd/{stream.fileno()}")
    except OSError:  # where there is no /proc
        yield stream
        return
    with source:
        yield source


NOTE = "lakelatch.file"
STREAM_NOTE = "lakelatch.stream"  # of a block: its rows are events of a stream (`lakelatch.streams`)


def note_of(footer: Any) -> dict[str, Any]:
    """Return the note: ``digest``, counts, ``checksums``, and ``key``, the column that holds the record keys. {} without one."""
    try:
        found = json.loads((footer.metadata or {}).get(NOTE.encode(), b"{}"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
