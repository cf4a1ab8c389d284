"""The smallest and the largest record key of the data files that one process has met, so that most are not opened again."""

from __future__ import annotations

import threading
from collections import OrderedDict

import pyarrow as pa
import pyarrow.parquet as pq

from ...hudi.table import all_outside

Span = tuple[bytes, bytes]
_KEPT = 65_536  # a few hundred bytes each


def span_of(footer: pq.FileMetaData) -> Span | None:
    """The smallest and the largest key, in Java's order if it is a file of ours; None where nothing is said."""
    told = footer.metadata or {}
    low, high = told.get(b"hoodie_min_record_key"), told.get(b"hoodie_max_record_key")
    return None if low is None or high is None else (low, high)


class KeySpans:
    """Spans by path, those last used. A data file never changes and its name is never used again, so none is outdated."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._kept: OrderedDict[str, Span] = OrderedDict()

    def learn(self, path: str, footer: pq.FileMetaData) -> None:
        """Keep what the footer of that file says."""
        if (span := span_of(footer)) is not None:
            with self._mutex:
                self._kept[path] = span
                if len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)

    def exclude(self, path: str, keys: pa.Array) -> bool:
        """Whether it is known that none of the keys is in the file."""
        with self._mutex:
            span = self._kept.get(path)
            if span is not None:
                self._kept.move_to_end(path)
        return span is not None and all_outside(keys, *span)
