"""Parquet files that are opened for reading, and the footers that one process has read of late."""

from __future__ import annotations

import io
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from ...errors import CorruptTableError

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from ...storage import Store

_FOOTERS_KEPT = 512


class Footers:
    """Footers by path, those last used. A data file never changes and its name is never used again, so none is outdated."""

    def __init__(self, store: Store) -> None:
        self._store, self._mutex = store, threading.Lock()
        self._kept: OrderedDict[str, pq.FileMetaData] = OrderedDict()

    def get(self, path: str) -> pq.FileMetaData | None:
        """The footer if it is known."""
        with self._mutex:
            if path in self._kept:
                self._kept.move_to_end(path)
            return self._kept.get(path)

    @contextmanager
    def open(self, path: str, size: int) -> Iterator[pq.ParquetFile]:
        """The file, for one thread; ``size`` in bytes, 0 where it is not known.

        Raises:
            StorageError: there is none.
            CorruptTableError: as `torn_is_told`.
        """
        import pyarrow.parquet as pq

        with self._store.open(path, size=size or None) as stream, _native(stream) as source:
            known = self.get(path)
            with torn_is_told(self._store, path):
                file = pq.ParquetFile(source, metadata=known)
            if known is None:
                with self._mutex:
                    self._kept[path] = file.metadata
                    if len(self._kept) > _FOOTERS_KEPT:
                        self._kept.popitem(last=False)
            yield file

    def of(self, path: str, size: int) -> pq.FileMetaData:
        """The footer; opens the file where it is not known yet."""
        found = self.get(path)
        if found is None:
            with self.open(path, size) as file:
                found = file.metadata
        return found


@contextmanager
def torn_is_told(store: Store, path: str) -> Iterator[None]:
    """Raise `CorruptTableError`, which names the file, where Arrow finds no whole Parquet file in the block."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, OSError) as e:
        if isinstance(e, OSError) and e.errno is not None:  # of the system
            raise
        raise CorruptTableError(
            f"{path} of {store.url} is no whole Parquet file: {e}. Restore it from a copy, or go back to a savepoint; `lakelatch "
            "check` lists all damage. Nothing landed",
            path=path,
            table=store.url,
        ) from e


@contextmanager
def _native(stream: IO[bytes]) -> Iterator[IO[bytes]]:
    """A local file as Arrow reads it without Python's lock; another stream as it is."""
    import pyarrow as pa

    if not isinstance(stream, io.BufferedReader) or not isinstance(stream.raw, io.FileIO):
        yield stream
        return
    try:
        source = pa.OSFile(f"/proc/self/fd/{stream.fileno()}")
    except OSError:  # where there is no /proc
        yield stream
        return
    with source:
        yield source
