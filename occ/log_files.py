"""Where the commit log lies on the store, and how whole epochs of it are read."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import DamagedTableError
from ..storage import Store
from .log_state import Begin, LogEntry, Open, decode

LOG = ".hoodie/.lakelatch/log"


def slot_path(epoch: int, slot: int) -> str:
    """Where an entry lies. Epochs are numbered from the time the log was made, so a rebuilt log starts a new one."""
    return f"{LOG}/{epoch:013d}/{slot:020d}"


def epochs(store: Store, *, since: int = 0) -> list[int]:
    """Numbers of the epochs from ``since`` on that hold something, oldest first."""
    return [int(name) for name in store.folders(LOG, after=f"{since - 1:013d}" if since else "") if name.isdigit()]


def read_epoch(store: Store, epoch: int) -> Iterator[LogEntry]:
    """The entries of one epoch, in slot order."""
    for found in store.list(f"{LOG}/{epoch:013d}"):
        stored = store.get(found.path)
        if stored is not None:
            yield decode(stored.body, found.path)


def read_all(store: Store) -> Iterator[LogEntry]:
    """Every entry of every epoch that is still there, oldest first."""
    numbers = epochs(store)
    for epoch in numbers:
        yield from _read_to_the_tear(store, epoch, newest=numbers[-1])


def _read_to_the_tear(store: Store, epoch: int, *, newest: int) -> Iterator[LogEntry]:
    try:
        yield from read_epoch(store, epoch)
    except DamagedTableError:
        # Of an older epoch that is why it was replaced: no writer came past the entry, and nobody needs what follows.
        if epoch == newest:
            raise


def began_here(store: Store, instant: str) -> bool:
    """Whether some epoch saw the transaction begin: it is one of ours, not a stranger's.

    Says nothing of its outcome. An entry in an old epoch may be a zombie's that landed in an emptied slot.
    """
    numbers = epochs(store)
    for epoch in reversed(numbers):
        entries = _read_to_the_tear(store, epoch, newest=numbers[-1])
        first = next(entries, None)
        if isinstance(first, Open) and first.top < instant:  # it began in this epoch, if anywhere
            return any(isinstance(e, Begin) and e.instant == instant for e in entries)
    return False
