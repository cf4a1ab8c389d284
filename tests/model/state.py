"""The shared world of the model: the log's folders, puts in flight, the timeline, data files and markers.

Sets of transactions are bit masks. ``hist`` is the true log: every entry that counts. A put counts when it lands in the
newest epoch at the first free slot; one that lands in a slot of a deleted folder is a stray, and nobody may believe it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .log import NOBODY, Entry, Log
from .rules import Bounds, Rules

Put = tuple[int, int, Entry]
"""(epoch, slot, entry)"""


class Writer(NamedTuple):
    """One writer, where it stands and what it knows."""

    at: str
    view: Log
    attempt: int = 0
    t: int = 0
    base: int = 0
    """The slot from which on commits are candidates for a conflict."""
    seen: int = 0
    """The snapshot: the transactions whose files it reads."""
    relied: int = 0
    """The changes of settings and columns before its begin."""
    entry: Entry | None = None
    """What it is appending."""


class Cleaner(NamedTuple):
    """Ends transactions whose heartbeat is silent; the model lets it suspect any, the slow living writer included."""

    at: str
    view: Log
    target: int = NOBODY
    entry: Entry | None = None
    left: int = 0
    listed: int = 0
    """The transactions whose markers it saw."""


class Reader(NamedTuple):
    """Reads one snapshot, unpublished commits included, without writing anything."""

    at: str
    view: Log
    timeline: int = 0


class State(NamedTuple):
    """Everything at one moment."""

    hist: Log
    processes: tuple[Writer | Cleaner | Reader, ...]
    unknown_left: int
    changes_left: int = 0
    gone: int = 0
    """Slots whose entry is deleted."""
    strays: tuple[Put, ...] = ()
    in_flight: tuple[Put, ...] = ()
    published: int = 0
    files: int = 0
    markers: int = 0
    acknowledged: int = 0
    told_lost: int = 0
    fault: str = ""

    def step(self, index: int, process: Writer | Cleaner | Reader, **changed: object) -> State:
        """The state after one process moved."""
        processes = (*self.processes[:index], process, *self.processes[index + 1 :])
        return self._replace(processes=processes, **changed)  # type: ignore[arg-type]

    def at(self, epoch: int, slot: int) -> Entry | None:
        """What a get of this slot in this epoch's folder answers."""
        for e, s, entry in self.strays:
            if e == epoch and s == slot:
                return entry
        hist = self.hist
        if slot < len(hist.entries) and hist.epoch_of[slot] == epoch and not self.gone >> slot & 1:
            return hist.entries[slot]
        return None

    def read_on(self, view: Log) -> Log:
        """The view after reading every slot up to the first that is absent."""
        while True:
            epoch = view.epoch + 1 if view.closed else view.epoch
            entry = self.at(epoch, len(view.entries))
            if entry is None:
                return view
            view = view.plus(entry)

    def newest(self) -> Log:
        """The view of a reader that starts again: the newest epoch, and what is left of the older ones."""
        hist = self.hist
        if not self.gone and not self.strays:
            return hist
        return Log.of(tuple(self.at(epoch, slot) for slot, epoch in enumerate(hist.epoch_of)))


@dataclass(frozen=True)
class World:
    """The rules and bounds of one search."""

    rules: Rules
    bounds: Bounds

    def identity(self, writer: int, attempt: int) -> int:
        return writer * self.bounds.attempts + attempt

    def writer_of(self, txn: int) -> int:
        return txn // self.bounds.attempts

    def put(self, state: State, epoch: int, slot: int, entry: Entry) -> tuple[State, Entry | None]:
        """Put-if-absent: the state after it, and the entry that stood there already."""
        present = state.at(epoch, slot)
        if present is not None:
            return state, present
        hist = state.hist
        if slot == len(hist.entries) and epoch == hist.epoch and not hist.closed:
            return state._replace(hist=hist.plus(entry)), None
        return state._replace(strays=tuple(sorted((*state.strays, (epoch, slot, entry))))), None

    def is_mirrored(self, hist: Log) -> bool:
        """Whether equal writers only swapped their names: of them, the lower number begins first."""
        if not self.bounds.equal_writers or not self.rules.begin_in_log:
            return False
        first = [self.identity(writer, 0) in hist.begins for writer in range(self.bounds.writers)]
        return first != sorted(first, reverse=True)

    def start(self) -> State:
        """An empty log; the first ``begun`` writers have begun and written."""
        bounds = self.bounds
        log = Log.of(()).plus(Log.of(()).next_open())
        for writer in range(bounds.begun):
            log = log.plus(Entry("begin", self.identity(writer, 0), t=log.time + 1))
        processes: list[Writer | Cleaner | Reader] = []
        for writer in range(bounds.writers):
            if writer < bounds.begun:
                t, slot = log.open[self.identity(writer, 0)]
                processes.append(Writer("commit:read", log, 0, t, slot))
            else:
                processes.append(Writer("begin:read", log))
        processes += [Cleaner("look", log, left=bounds.rollbacks)] * bounds.cleaners
        processes += [Reader("read", log)] * bounds.readers
        written = sum(1 << self.identity(w, 0) for w in range(bounds.begun))
        return State(log, tuple(processes), bounds.unknown, bounds.changes, files=written, markers=written)

    def surroundings(self, state: State) -> Iterator[tuple[str, State]]:
        """What happens without a writer: replies late, epochs end, old folders go, a log is lost."""
        hist = state.hist
        if state.changes_left and not hist.closed:
            # It looks at the slot that it takes, so which transactions are open then does not matter.
            changed = hist.plus(Entry("change"))
            yield (
                "a setting changes, or a column is dropped",
                state._replace(hist=changed, changes_left=state.changes_left - 1),
            )
        for number, (epoch, slot, entry) in enumerate(state.in_flight):
            landed, present = self.put(state, epoch, slot, entry)
            if present is not None:
                continue  # it would change nothing: like a put that never arrives
            rest = state.in_flight[:number] + state.in_flight[number + 1 :]
            yield f"the late put of {entry.kind}({entry.txn}) arrives", landed._replace(in_flight=rest)
        if hist.closed:
            # Its content follows from the log before it, so it does not matter who writes it.
            entry = hist.next_open()
            opened = state._replace(hist=hist.plus(entry))
            yield f"epoch {hist.epoch + 1} opens", opened
            if state.unknown_left:
                flying = tuple(sorted((*state.in_flight, (hist.epoch + 1, len(hist), entry))))
                twice = opened._replace(in_flight=flying, unknown_left=state.unknown_left - 1)
                yield f"epoch {hist.epoch + 1} opens, a second put of its entry is under way", twice
        elif hist.epoch + 1 < self.bounds.epochs:
            if self.bounds.rebuild:
                yield from self._lose_log(state)
            else:
                closed = hist.plus(Entry("close"))
                if self.bounds.open_apart:
                    yield f"epoch {hist.epoch} closes", state._replace(hist=closed)
                else:
                    both = closed.plus(closed.next_open())
                    yield f"epoch {hist.epoch} closes, the next opens", state._replace(hist=both)
        if hist.epoch:
            yield from self._delete_folders(state)

    def _delete_folders(self, state: State) -> Iterator[tuple[str, State]]:
        hist, rules = state.hist, self.rules
        begins = {hist.epoch_of[slot] for _, slot in hist.open.values()}
        for epoch in range(hist.epoch):
            if rules.keep_open and epoch in begins:
                continue
            if rules.keep_later and any(begun < epoch for begun in begins):
                continue
            slots = [s for s, e in enumerate(hist.epoch_of) if e == epoch and not state.gone >> s & 1]
            if any(e is not None and e.kind == "commit" and not state.published >> e.txn & 1
                   for e in (hist.entries[s] for s in slots)):  # fmt: skip
                continue
            if self.bounds.delete_singly:
                for slot in slots:
                    yield f"entry {slot} of epoch {epoch} is deleted", state._replace(gone=state.gone | 1 << slot)
            elif slots:
                gone = state.gone | sum(1 << s for s in slots)
                yield f"the folder of epoch {epoch} is deleted", state._replace(gone=gone)

    def _lose_log(self, state: State) -> Iterator[tuple[str, State]]:
        hist = state.hist
        if hist.committed & ~state.published:
            return
        if self.rules.new_identity:
            log = hist.plus(Entry("close"))
            log = log.plus(log.next_open(forget=True))
            yield "the log is lost and built again", state._replace(hist=log, gone=(1 << len(hist) + 1) - 1)
        elif not hist.committed and not state.strays:
            first = hist.next_open(forget=True)._replace(t=hist.epoch)
            # The bounds allow one loss: this one leaves a log that is as short as the first.
            if len(hist) > 1:
                yield "the log is lost and built again in its place", state._replace(hist=Log.of((first,)))


def bit(txn: int) -> int:
    """The set that holds one transaction."""
    return 1 << txn if txn != NOBODY else 0
