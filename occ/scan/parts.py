"""A scan cut into self-contained parts, which other processes read without a handle on the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from ...environment import SYSTEM, Environment
from ...hudi.files import Footers
from ...hudi.table import TableConfig
from ...hudi.timeline import FileSlice
from ...storage import Store
from ...streams import Stream
from .row_groups import RowReader, Wanted

BATCH_ROWS_MAX = 131_072


@dataclass(frozen=True)
class ScanPart:
    """Some slices of a scan, to be pickled and read elsewhere. Only the scan's owner keeps the files from cleanings."""

    store: Store
    config: TableConfig
    streams: tuple[Stream, ...]
    wanted: Wanted
    slices: tuple[FileSlice, ...]
    finish: Callable[[pa.Table], pa.Table]

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; about two row groups are in memory, or a slice with log files.

        Raises:
            StorageError: a file has been deleted.
        """
        for rows in RowReader(_Files(self.store, self.config, self.streams), self.wanted).tables(self.slices, 1):
            yield from self.finish(rows).to_batches(max_chunksize=BATCH_ROWS_MAX)


@dataclass(frozen=True)
class _Files:
    """A `Source` of one process."""

    store: Store
    config: TableConfig
    streams: tuple[Stream, ...]

    @property
    def url(self) -> str:
        """The table's URL."""
        return self.store.url

    @property
    def env(self) -> Environment:
        """The process's environment."""
        return SYSTEM

    @cached_property
    def footers(self) -> Footers:
        """A cache of the footers read so far."""
        return Footers(self.store)
