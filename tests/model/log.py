"""The log as one reader knows it: an immutable sequence of entries and what follows from it.

Logs are interned: two equal logs are the same object, so a state holds, compares and hashes them for nothing.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

NOBODY = -1


class Entry(NamedTuple):
    """One slot's content. ``txn`` is a transaction's identity (a real entry carries a unique id beside T)."""

    kind: str  # open, begin, commit, abort, rollback, change, close
    txn: int = NOBODY
    t: int = 0
    c: int = 0
    seen: int = 0
    """Of a commit, for the judge only: the set of transactions that its snapshot held."""
    relied: int = 0
    """Of a commit, for the judge only: the changes of settings and columns that its transaction knew."""
    carried: Carried | None = None
    """Of an open entry: the state of the log before it."""


class Carried(NamedTuple):
    """What the next epoch needs to know of all earlier ones."""

    time: int
    open: tuple[tuple[int, int, int], ...]  # (transaction, T, begin slot)
    last: int
    """The last transaction that committed: the only one that may not be published yet."""
    changes: int


class Log:
    """Entries by slot, slot numbers going on across epochs. None stands for a slot whose entry is deleted."""

    _interned: ClassVar[dict[tuple[Entry | None, ...], Log]] = {}

    entries: tuple[Entry | None, ...]
    epoch: int
    closed: bool
    time: int
    open: dict[int, tuple[int, int]]
    commits: tuple[tuple[int, int, int], ...]  # (slot, transaction, C)
    committed: int
    settled: int
    """Transactions that this log shows to be committed by its newest epoch: its commits and the one it carried over."""
    last: int
    changes: int
    """How often settings have changed, or a column was dropped."""
    epoch_of: tuple[int, ...]

    @classmethod
    def of(cls, entries: tuple[Entry | None, ...]) -> Log:
        log = cls._interned.get(entries)
        if log is None:
            log = cls._interned[entries] = cls(entries)
        return log

    def __init__(self, entries: tuple[Entry | None, ...]) -> None:
        self.entries = entries
        self._longer: dict[Entry, Log] = {}
        self.epoch, self.closed, self.time, self.last = -1, True, 0, NOBODY
        self._first, self._carried, self.changes = 0, NOBODY, 0
        self.open = {}
        commits: list[tuple[int, int, int]] = []
        epoch_of = []
        epoch_in_place = -1
        for slot, entry in enumerate(entries):
            if entry is not None:
                self._take(slot, entry, commits)
                epoch_in_place = self.epoch
            epoch_of.append(epoch_in_place)
        self.commits = tuple(commits)
        self.committed = sum(1 << txn for _, txn, _ in commits)
        self.settled = sum(1 << txn for slot, txn, _ in commits if slot >= self._first)
        self.settled |= 0 if self._carried == NOBODY else 1 << self._carried
        self.epoch_of = tuple(epoch_of)
        self.ended = {e.txn for e in entries if e is not None and e.kind in ("abort", "rollback")}
        self.begins = {e.txn for e in entries if e is not None and e.kind == "begin"}

    def _take(self, slot: int, entry: Entry, commits: list[tuple[int, int, int]]) -> None:
        self.time = max(self.time, entry.t, entry.c)
        if entry.kind == "open":
            carried = entry.carried
            assert carried is not None
            self.epoch, self.closed = entry.t, False
            self.time, self.last, self.changes = carried.time, carried.last, carried.changes
            self.open = {txn: (t, begin) for txn, t, begin in carried.open}
            self._first, self._carried = slot, carried.last
        elif entry.kind == "close":
            self.closed = True
        elif entry.kind == "change":
            self.changes += 1
        elif entry.kind == "begin":
            self.open[entry.txn] = (entry.t, slot)
        else:
            self.open.pop(entry.txn, None)
            if entry.kind == "commit":
                commits.append((slot, entry.txn, entry.c))
                self.last = entry.txn

    def __len__(self) -> int:
        return len(self.entries)

    def plus(self, entry: Entry) -> Log:
        log = self._longer.get(entry)
        if log is None:
            log = self._longer[entry] = Log.of((*self.entries, entry))
        return log

    def next_open(self, *, forget: bool = False) -> Entry:
        """The first entry of the next epoch; a log that was lost remembers no open transaction."""
        kept = () if forget else tuple(sorted((txn, t, slot) for txn, (t, slot) in self.open.items()))
        return Entry("open", t=self.epoch + 1, carried=Carried(self.time, kept, self.last, self.changes))
