"""Parquet files opened for reading, and a cache of the footers that this process has read."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from .stored_parquet import StoredParquet

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from ...storage import Store

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
