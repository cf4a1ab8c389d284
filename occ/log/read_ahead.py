"""Entries of the log on their way: on a store with long ways several slots are asked for at once.

    t=0  slots 7, 8 and 9 are asked for together; 8 is looked at first, and is free
    t=1  A puts 8, and B, who has read it, puts 9
    t=2  9 is looked at, and holds B's entry

To apply 9 now would be to miss 8 for ever. So entries are given in the order of their slots, as far as there is one in
each; whatever stands behind the first free slot is dropped, and asked for again when that slot is taken.
"""

from __future__ import annotations

from collections import deque
from functools import partial

from ...ahead import Task
from ...environment import Environment
from ...storage import Store, is_far
from .epochs import slot_path

AT_ONCE = 16  # requests; a reader that is far behind comes near the head by 1, 2, 4, 8, 16, 16, ...


class ReadAhead:
    """Reads the slots of one catch-up. Nothing is asked for ahead before the first of them holds an entry.

    Args:
        met: path and bytes of an entry that has been read already: of the one that took the slot of ours.
        hurried: the reader waits for nothing else. One who has to wait anyway asks for no slot that may be free.
    """

    def __init__(
        self, store: Store, env: Environment, met: tuple[str, bytes] | None = None, *, hurried: bool = True
    ) -> None:
        far = is_far(store.url)
        self._store, self._env = store, env
        self._most = AT_ONCE if far and hurried else 1  # on a local disk the log is read one by one
        self._met = met if far else None
        self._window = 1
        self._coming: deque[tuple[str, Task[bytes | None]]] = deque()

    def body(self, epoch: int, slot: int) -> bytes | None:
        """The bytes of that entry; None where there was none when the store was asked, which was since this was made.

        Raises what the store raises for this very entry. Of those behind it nothing is told yet, an error neither.
        """
        path = slot_path(epoch, slot)
        found = self._ask(path, epoch, slot)
        if found is None:
            self._coming.clear()  # their threads end by themselves: to wait for them would cost as much as to read on
            self._window = 1
        elif not self._coming:
            self._window = min(2 * self._window, self._most)
        return found

    def _ask(self, path: str, epoch: int, slot: int) -> bytes | None:
        met, self._met = self._met, None
        if met is not None and met[0] == path:
            return met[1]
        if not self._coming or self._coming[0][0] != path:  # what lies behind the end of an epoch is not the log's
            self._coming.clear()
            if self._window == 1:
                return self._store.body(path)
            for each in (slot_path(epoch, slot + number) for number in range(self._window)):
                self._coming.append((each, Task(self._env, partial(self._store.body, each))))
        return self._coming.popleft()[1].take()
