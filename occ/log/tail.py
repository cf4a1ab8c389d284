"""Follow the log entry by entry as it grows, for readers only."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...storage import Store
from ..entries import Close, Single, decode, singly
from .epochs import epochs, first_slot, slot_path


class Tail:
    """A place in the log that moves to its head with each `read`.

    Args:
        newest: begin at the newest epoch, whose first entry carries the state; otherwise at the oldest remaining one.
        body: returns the bytes of an entry. Default: read from the store.
    """

    def __init__(self, store: Store, *, newest: bool, body: Callable[[str], bytes | None] | None = None) -> None:
        numbers = epochs(store)
        self._store, self._body = store, body or store.body
        self._epoch = (numbers[-1] if newest else numbers[0]) if numbers else 0
        self._slot = first_slot(store, self._epoch) if numbers else 0
        self._arrived = True  # at the start of an epoch that may not exist yet, or not any more

    def read(self) -> Iterator[Single]:
        """Yield the new entries since the last read; the members of a group one after the other.

        At the head this costs one read and one listing.
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
        """Move past removed epochs, or into the log that replaced this one. Return False at the head."""
        for epoch in epochs(self._store, since=self._epoch + (not self._arrived)):
            first = first_slot(self._store, epoch)
            if (epoch > self._epoch or first > self._slot) and first and self._store.body(path) is None:
                self._epoch, self._slot, self._arrived = epoch, first, True
                return True
        return False
