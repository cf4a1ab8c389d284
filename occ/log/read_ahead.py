"""Read several log slots at once on a store with long round trips.

    t=0  slots 7, 8 and 9 are requested together; 8 is read first, and is free
    t=1  A puts 8, and B, who has read it, puts 9
    t=2  9 is read, and holds B's entry

Applying 9 now would skip 8 for ever. So entries are returned in slot order, up to the first free slot; everything
behind it is dropped, and requested again once that slot is taken.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from ...ahead import Task
from ...environment import Environment
from ...storage import Store, is_far
from .epochs import slot_path

AT_ONCE = 16  # the most requests; a reader far behind approaches the head by 1, 2, 4, 8, 16, 16, ...


class ReadAhead:
    """The reads of one catch-up. Reads ahead only after the first slot holds an entry.

    Args:
        met: path and bytes of an entry already read: the one that took the slot we tried.
    """

    def __init__(self, store: Store, env: Environment, met: tuple[str, bytes] | None = None) -> None:
        far = is_far(store.url)
        self._store, self._env = store, env
        self._most = AT_ONCE if far else 1  # on a local disk the log is read one by one
        self._met = met if far else None
        self._window = 1
        self._coming: deque[tuple[str, Task[bytes | None]]] = deque()

    def body(self, epoch: int, slot: int) -> bytes | None:
        """Return the bytes of an entry; None if the slot was free when read, which was after this object was made.

        Raises only the store's error for this entry; errors of slots behind it come later or never.
        """
        path = slot_path(epoch, slot)
        found = self._ask(path, epoch, slot)
        if found is None:
            self._coming.clear()  # their threads end by themselves; waiting for them would cost as much as reading on
            self._window = 1
        elif not self._coming:
            self._window = min(2 * self._window, self._most)
        return found

    def _ask(self, path: str, epoch: int, slot: int) -> bytes | None:
        met, self._met = self._met, None
        if met is not None and met[0] == path:
            return met[1]
        if not self._coming or self._coming[0][0] != path:  # requests past the end of an epoch are not for the next one
            self._coming.clear()
            if self._window == 1:
                return self._store.body(path)
            for each in (slot_path(epoch, slot + number) for number in range(self._window)):
                self._coming.append((each, Task(self._env, partial(self._store.body, each))))
        return self._coming.popleft()[1].take()
