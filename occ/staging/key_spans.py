"""The smallest and largest record key of each data file that a process has met, so that most are not opened again.

The ranges of a partition with many files are stored beside the log for other processes (`entries.key_ranges`).
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
_PARTITIONS = 256  # partitions whose stored object this process remembers
_WORTH = 16  # fewer files than this are opened in parallel, so a stored object saves nothing
_FRESH = 32  # the object is rewritten when one in this many of its files is new
_log = logging.getLogger("lakelatch.staging")


def span_of(footer: pq.FileMetaData) -> Span | None:
    """The smallest and largest key, in Java's order in our own files; None if the footer has none."""
    told = footer.metadata or {}
    low, high = told.get(b"hoodie_min_record_key"), told.get(b"hoodie_max_record_key")
    return None if low is None or high is None else (low, high)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The files that a partition's stored object named, and how many present files it left unknown."""

    names: frozenset[str]
    unknown: int


class KeySpans:
    """A cache of spans by path. Data files never change and names are never reused, so no entry can be stale."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._kept: OrderedDict[str, Span] = OrderedDict()
        self._asked: OrderedDict[str, _Asked] = OrderedDict()
        self._owed: set[str] = set()  # partitions of which many files have to be opened

    def learn(self, path: str, footer: pq.FileMetaData) -> None:
        """Cache the span in the footer of that file."""
        if (span := span_of(footer)) is not None:
            with self._mutex:
                self._keep(path, span)

    def _keep(self, path: str, span: Span) -> None:
        self._kept[path] = span
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def exclude(self, path: str, keys: SoughtKeys) -> bool:
        """Return whether the cached span proves that none of the keys is in the file."""
        with self._mutex:
            span = self._kept.get(path)
            if span is not None:
                self._kept.move_to_end(path)
        return span is not None and keys.outside(*span)

    # Beside the log --------------------------------------------------------------------------------------------------

    def recall(self, store: Store, slices: Iterable[FileSlice]) -> None:
        """Load the stored ranges of a partition if many of its files are unknown; at most one request, rarely needed."""
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
        """Return, once, whether many files of the partition were opened whose ranges are not stored; then forget it."""
        with self._mutex:
            there = partition in self._owed
            self._owed.discard(partition)
            return there

    def keep(self, store: Store, partition: str, slices: Iterable[FileSlice]) -> None:
        """Store the known ranges of these slices, all of one partition, for other processes. Best effort: failures are logged."""
        bases = [each.base for each in slices if each.base is not None]
        with self._mutex:
            ranges = {
                _name(base.path): (base.size, *self._kept[base.path])
                for base in bases
                if base.size > 0 and base.path in self._kept
            }
            asked = self._asked.get(partition)
            names = asked.names if asked else frozenset[str]()
            # Files without a key range in their footer stay unknown, and are no reason to read the object again.
            self._asked[partition] = _Asked(names, len(bases) - len(ranges))
        if len(ranges.keys() - names) < max(_WORTH, len(ranges) // _FRESH):
            return
        try:
            store.put(ranges_path(partition), encode_ranges(partition, ranges))
        except StorageError as e:
            _log.info("%s: the key ranges of partition %r could not be written: %s", store.url, partition, e)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
