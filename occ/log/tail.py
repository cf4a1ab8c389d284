"""Reads the log entry by entry as it grows, for those who only look on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...storage import Store
from ..entries import Close, Single, decode, singly
from .epochs import epochs, first_slot, slot_path


class Tail:
    """A place in the log that moves to its head with each `read`.

    Args:
        newest: begin at the newest epoch, whose first entry carries the state; otherwise at the oldest that is there.
        body: gives the bytes of an entry; the store itself by default.
    """

    def __init__(self, store: Store, *, newest: bool, body: Callable[[str], bytes | None] | None = None) -> None:
        numbers = epochs(store)
        self._store, self._body = store, body or store.body
        self._epoch = (numbers[-1] if newest else numbers[0]) if numbers else 0
        self._slot = first_slot(store, self._epoch) if numbers else 0
        self._arrived = True  # at the beginning of an epoch that may not be there, or not any more

    def read(self) -> Iterator[Single]:
        """The entries that are there now and were not read before; the commits of one entry one after the other.

        At the head it costs one read and one listing.
        """
        while True:
            path = slot_path(self._epoch, self._slot)
            body = self._body(path)
            if body is not None:
                entry = decode(body, path)
                self._slot += 1
                self._arrived = isinstance(entry, Close)
                self._epoch += self._arrived
                yield from singly(entry)
            elif not self._skip(path):
                return

    def _skip(self, path: str) -> bool:
        """Past epochs that were removed, or into a log that was made anew."""
        for epoch in epochs(self._store, since=self._epoch + (not self._arrived)):
            first = first_slot(self._store, epoch)
            if (epoch > self._epoch or first > self._slot) and first and self._store.body(path) is None:
                self._epoch, self._slot, self._arrived = epoch, first, True
                return True
        return False
