"""Parquet files of a table; an error that Arrow raises about one names the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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
