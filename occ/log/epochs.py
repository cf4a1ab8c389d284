"""The layout of the commit log on the store, and reading whole epochs of it."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import CorruptTableError
from ...hudi.timeline import COMMIT_ACTIONS, Instant, parse
from ...storage import Store, is_far
from ...storage.local import refuse_no_folder
from ..entries import Begin, Commit, End, Open, Single, decode, singly
from .state import LogState

LOG = ".hoodie/.lakelatch/log"


def slot_path(epoch: int, slot: int) -> str:
    """The path of an entry. Epochs are numbered from the time the log was made, so a rebuilt log starts a new one."""
    return f"{LOG}/{epoch:013d}/{slot:020d}"


def is_epoch(name: str) -> bool:
    """True for the name of an epoch's folder."""
    return len(name) == 13 and name.isascii() and name.isdigit()


def is_slot(name: str) -> bool:
    """True for the name of an entry."""
    return len(name) == 20 and name.isascii() and name.isdigit()


def epochs(store: Store, *, since: int = 0) -> list[int]:
    """The numbers of non-empty epochs from ``since`` on, oldest first."""
    names = store.folders(LOG, after=f"{since - 1:013d}" if since else "")
    return [int(name) for name in names if is_epoch(name)]


def refuse_obstacle(store: Store) -> None:
    """Raise `StorageError` if something else stands where the log or an epoch of it belongs: then the log is not missing."""
    if is_far(store.url):
        return
    full = store.uri(LOG).removeprefix("file://")
    refuse_no_folder(full, "was not listed", itself=True)
    for name in filter(is_epoch, store.names(LOG)):
        refuse_no_folder(f"{full}/{name}", "was not listed", itself=True)


def slot_names(store: Store, epoch: int) -> list[str]:
    """The names of the entries of an epoch, in slot order. Other names in the folder are skipped."""
    return [name for name in store.names(f"{LOG}/{epoch:013d}") if is_slot(name)]


def read_epoch(store: Store, epoch: int) -> Iterator[Single]:
    """The entries of one epoch, in slot order; the members of a group one after the other."""
    for name in slot_names(store, epoch):
        path = f"{LOG}/{epoch:013d}/{name}"
        stored = store.get(path)
        if stored is not None:
            yield from singly(decode(stored.body, path))


def first_slot(store: Store, epoch: int) -> int:
    """The first slot of an epoch; 0 if the epoch is gone."""
    names = slot_names(store, epoch)
    return int(names[0]) if names else 0


def read_all(store: Store) -> Iterator[Single]:
    """Every entry of every remaining epoch, oldest first."""
    numbers = epochs(store)
    for epoch in numbers:
        yield from read_to_the_tear(store, epoch, newest=numbers[-1])


def read_to_the_tear(store: Store, epoch: int, *, newest: int) -> Iterator[Single]:
    """Yield the entries of an epoch that count, up to a corrupt one in an older epoch."""
    entries = read_epoch(store, epoch)
    try:
        first = next(entries, None)
        # An old epoch without its first entry is being removed, or holds a zombie's late put. Its entries say nothing.
        if first is not None and (isinstance(first, Open) or epoch == newest):
            yield first
            yield from entries
    except CorruptTableError:
        # A corrupt entry in an older epoch is why the log was replaced: no writer got past it, and nothing behind it
        # counts.
        if epoch == newest:
            raise


def _ending(store: Store, instant: str) -> Begin | Commit | End | Instant | None:
    """Return the entry that ended a transaction which is not open any more.

    Return its begin if the epoch is there and its end is not; its instant if only the restore that undid it is left;
    None if it is foreign or the log has forgotten it.
    """
    numbers, told = epochs(store), list[Single]()
    for epoch in reversed(numbers):
        entries = list(read_to_the_tear(store, epoch, newest=numbers[-1]))
        told[:0] = entries
        # if it began anywhere in the log, then in this epoch
        if entries and isinstance(entries[0], Open) and entries[0].top < instant:
            mine = [e for e in told if isinstance(e, Begin | Commit | End) and e.instant == instant]
            if mine and isinstance(mine[0], Begin):
                ended = len(mine) > 1 and not (isinstance(mine[1], Commit) and _left_out(mine[1], told))
                return mine[1] if ended else mine[0]
            break
    undone = (parse(name, layout=2) for e in told if isinstance(e, Commit) and e.restores for name in e.undone)
    return next((each for each in undone if each and each.requested == instant), None)


def _left_out(commit: Commit, told: list[Single]) -> bool:
    """Return whether the next epoch left this commit out: it was unpublished and overlapped with a foreign one."""
    after = next((e for e in told if isinstance(e, Open) and e.slot > commit.slot), None)
    return after is not None and (after.last is None or after.last.slot < commit.slot)


def outcome_of(store: Store, instant: str) -> str | None:
    """The outcome of a transaction that is not open any more and that the timeline does not show under its T."""
    end = _ending(store, instant)
    # a savepoint is shown under another T; any other commit missing there was undone by a restore
    if isinstance(end, Commit):
        return "undone" if end.action in COMMIT_ACTIONS else "commit"
    if isinstance(end, Instant):
        return "undone"
    return "rollback" if isinstance(end, Begin) else end.kind if end else None


def landed_at(store: Store, instant: str) -> str | None:
    """The completion time of such a transaction, if it committed."""
    end = _ending(store, instant)
    if isinstance(end, Instant):
        return end.completed
    return end.completion if isinstance(end, Commit) else None


def chain(numbers: list[int]) -> list[int]:
    """The epochs of the present log. A gap in the numbers marks where the log was replaced."""
    start = len(numbers) - 1
    while start > 0 and numbers[start - 1] == numbers[start] - 1:
        start -= 1
    return numbers[max(start, 0) :]


def commits_since(store: Store, slot: int) -> list[Commit] | None:
    """The commits that count, from that slot on; None if the log does not reach back so far any more."""
    epochs_read: list[list[Single]] = []
    for epoch in reversed(chain(epochs(store))):
        entries = list(read_epoch(store, epoch))
        if not entries or not isinstance(entries[0], Open):
            return None  # the epoch is being removed
        epochs_read.insert(0, entries)
        if entries[0].slot <= slot:
            break
    else:
        return None
    slots = list(dict.fromkeys(entry.slot for entries in epochs_read for entry in entries))
    if slots != list(range(slots[0], slots[0] + len(slots))):
        return None  # an epoch was removed while we read
    state, found = LogState(), []
    for entry in (entry for entries in epochs_read for entry in entries):
        if state.closed and not isinstance(entry, Open):
            continue  # behind the close of its epoch: a zombie's entry
        state.apply(entry)
        if isinstance(entry, Commit) and state.last is entry and entry.slot >= slot:
            found.append(entry)
    return found
