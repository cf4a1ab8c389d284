"""Entries of a log on a remote store: prefetched by several threads, and cached.

An entry never changes, so a cached one needs no request. At thirty milliseconds each, a log of ten thousand entries would
take five minutes, at the server's start and again for each `why`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from ..occ.entries import Single, decode, singly
from ..occ.log import epochs, is_slot, slot_path
from ..storage import Store, is_far

_THREADS, _AHEAD = 16, 256


class LogBodies:
    """A reader of one log's entries. For one thread, except `entries`."""

    def __init__(self, store: Store, *, kept_bytes: int = 64 << 20) -> None:
        self._store, self._kept_bytes = store, kept_bytes
        self._far = is_far(store.url)
        self._paths: deque[str] = deque()
        self._coming: dict[str, Future[bytes | None]] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._kept: dict[str, bytes] = {}
        self._size = 0

    @contextmanager
    def ahead(self) -> Iterator[None]:
        """Prefetch the existing entries inside the block, by many threads, in the order in which they will be read."""
        if not self._far:
            yield
            return
        for epoch in epochs(self._store):
            names = self._store.names(slot_path(epoch, 0).rpartition("/")[0])
            paths = (slot_path(epoch, int(name)) for name in names if is_slot(name))
            self._paths += [path for path in paths if path not in self._kept]
        with ThreadPoolExecutor(_THREADS, thread_name_prefix="lakelatch-log") as self._pool:
            try:
                yield
            finally:
                self._paths.clear()
                self._coming.clear()
                self._pool.shutdown(cancel_futures=True)
                self._pool = None

    def body(self, path: str) -> bytes | None:
        """Return an entry's bytes; None if there is none."""
        while self._pool is not None and self._paths and len(self._coming) < _AHEAD:
            each = self._paths.popleft()
            self._coming[each] = self._pool.submit(self._store.body, each)
        coming = self._coming.pop(path, None)
        # An entry that was missing when it was prefetched may exist by now.
        found = (coming.result() if coming else None) or self._store.body(path)
        if found is not None and self._far:
            self._size += len(found)
            # Too large to keep: from here on nothing is complete, so `entries` returns None.
            self._kept = self._kept if self._size <= self._kept_bytes else {}
            self._kept[path] = found
        return found

    def entries(self) -> list[Single] | None:
        """Return all entries that were read, in order; None if they are not all cached."""
        if not self._far or self._size > self._kept_bytes:
            return None
        return [each for path, body in list(self._kept.items()) for each in singly(decode(body, path))]
