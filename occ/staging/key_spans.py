"""The smallest and the largest record key of the data files that one process has met, so that most are not opened again.

What it learns of a partition with many files is kept beside the log for the next process (`entries.key_ranges`).
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from ...errors import StorageError
from ...hudi.table import SoughtKeys
from ..entries import decode_ranges, encode_ranges, ranges_path

if TYPE_CHECKING:
    from ...hudi.timeline import FileSlice
    from ...storage import Store

Span = tuple[bytes, bytes]
_KEPT = 65_536  # a few hundred bytes each
_PARTITIONS = 256  # of which it is known what is kept of them
_WORTH = 16  # files less are opened at once, so that an object of their ranges saves nothing
_FRESH = 32  # the object is written again when one of so many of its files is new
_log = logging.getLogger("lakelatch.staging")


def span_of(footer: pq.FileMetaData) -> Span | None:
    """The smallest and the largest key, in Java's order if it is a file of ours; None where nothing is said."""
    told = footer.metadata or {}
    low, high = told.get(b"hoodie_min_record_key"), told.get(b"hoodie_max_record_key")
    return None if low is None or high is None else (low, high)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which files the object of a partition named, and how many of those there it left unknown."""

    names: frozenset[str]
    unknown: int


class KeySpans:
    """Spans by path, those last used. A data file never changes and its name is never used again, so none is outdated."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._kept: OrderedDict[str, Span] = OrderedDict()
        self._asked: OrderedDict[str, _Asked] = OrderedDict()
        self._owed: set[str] = set()  # partitions of which many files have to be opened

    def learn(self, path: str, footer: pq.FileMetaData) -> None:
        """Keep what the footer of that file says."""
        if (span := span_of(footer)) is not None:
            with self._mutex:
                self._keep(path, span)

    def _keep(self, path: str, span: Span) -> None:
        self._kept[path] = span
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def exclude(self, path: str, keys: SoughtKeys) -> bool:
        """Whether it is known that none of the keys is in the file."""
        with self._mutex:
            span = self._kept.get(path)
            if span is not None:
                self._kept.move_to_end(path)
        return span is not None and keys.outside(*span)

    # Beside the log --------------------------------------------------------------------------------------------------

    def recall(self, store: Store, slices: Iterable[FileSlice]) -> None:
        """Learn what is kept of a partition, where many of its files are unknown; one request, and seldom."""
        bases = {each.base.path: each.base for each in slices if each.base is not None}
        if len(bases) < _WORTH:
            return
        with self._mutex:
            unknown = [base for path, base in bases.items() if path not in self._kept]
            partition = next(iter(bases.values())).partition
            asked = self._asked.get(partition)
        if len(unknown) - (asked.unknown if asked else 0) < _WORTH:
            return
        try:
            body = store.body(ranges_path(partition))
        except StorageError as e:
            _log.info("%s: the key ranges of partition %r could not be read: %s", store.url, partition, e)
            body = None
        known = (decode_ranges(partition, body) if body is not None else None) or {}
        with self._mutex:
            left = len(unknown)
            for base in unknown:
                size, *span = known.get(_name(base.path), (-1, b"", b""))
                if size == base.size:
                    self._keep(base.path, (span[0], span[1]))
                    left -= 1
            self._asked[partition] = _Asked(frozenset(known), left)
            self._asked.move_to_end(partition)
            if len(self._asked) > _PARTITIONS:
                self._owed.discard(self._asked.popitem(last=False)[0])
            if left >= _WORTH:
                self._owed.add(partition)

    def owes(self, partition: str) -> bool:
        """Whether many files of the partition were opened of which nothing is kept; asked again it is not."""
        with self._mutex:
            there = partition in self._owed
            self._owed.discard(partition)
            return there

    def keep(self, store: Store, partition: str, slices: Iterable[FileSlice]) -> None:
        """Keep what is known of these slices, all of a partition, for other processes. Its failure is only noted."""
        bases = [each.base for each in slices if each.base is not None]
        with self._mutex:
            ranges = {
                _name(base.path): (base.size, *self._kept[base.path])
                for base in bases
                if base.size > 0 and base.path in self._kept
            }
            asked = self._asked.get(partition)
            names = asked.names if asked else frozenset[str]()
            # Files that say nothing of their keys stay unknown, and are no reason to ask again.
            self._asked[partition] = _Asked(names, len(bases) - len(ranges))
        if len(ranges.keys() - names) < max(_WORTH, len(ranges) // _FRESH):
            return
        try:
            store.put(ranges_path(partition), encode_ranges(partition, ranges))
        except StorageError as e:
            _log.info("%s: the key ranges of partition %r could not be written: %s", store.url, partition, e)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
