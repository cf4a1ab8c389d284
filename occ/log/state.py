"""The state that the entries of the commit log add up to, and the first entry of the next epoch. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ...hudi.timeline import EARLIEST
from ..entries import (
    Batches,
    Begin,
    Close,
    Commit,
    End,
    GroupBegin,
    GroupCommit,
    LogEntry,
    Open,
    Prepare,
    Setting,
    Settings,
)


@dataclass(slots=True)
class LogState:
    """The sum of all entries up to a slot.

    Attributes:
        top: the largest T or C so far.
        token: of the last commit in this generation of the lock.
        newest: the commits of the newest entry that has any; ``last`` is the last of them.
        settled: the slot of the newest entry that set the settings.
        ended: the outcome of every transaction that this reader saw end.
        undone: names of instants that were taken back.
        schemas: the table's schemas, each from a slot on. None where the log does not say: after a restore, and in an
            epoch opened without one, because of foreign commits before it or by an older version.
        batches: the newest committed batch of each source.
        pending: T of the transactions of other engines that were not completed when the epoch before this one was closed.
        prepared: the prepared commits of transactions over several tables that have no outcome here yet, by T.
        asked: the transactions that began in this epoch or were open at its start, by the id of their begin requests.
    """

    settings: Settings = field(default_factory=Settings)
    top: str = EARLIEST
    token: int = 0
    open: dict[str, Begin] = field(default_factory=dict)
    last: Commit | None = None
    newest: tuple[Commit, ...] = ()
    settled: int = -1
    ended: dict[str, str] = field(default_factory=dict)
    undone: set[str] = field(default_factory=set)
    closed: bool = False
    schemas: list[tuple[int, str | None]] = field(default_factory=list)
    batches: Batches = field(default_factory=Batches)
    asked: dict[str, Begin] = field(default_factory=dict)
    prepared: dict[str, Prepare] = field(default_factory=dict)
    pending: tuple[str, ...] = ()

    def fork(self) -> LogState:
        """Copy the state, to try entries that are not in a log yet."""
        return replace(
            self,
            open=dict(self.open),
            ended=dict(self.ended),
            undone=set(self.undone),
            schemas=list(self.schemas),
            batches=Batches(self.batches),
            asked=dict(self.asked),
            prepared=dict(self.prepared),
        )

    @property
    def schema(self) -> str | None:
        """The table's schema (Avro JSON) from here on; None if the log does not say."""
        return self.schemas[-1][1] if self.schemas else None

    def schema_before(self, slot: int) -> str | None:
        """The table's schema (Avro JSON) after every entry before that slot; None if the log does not say."""
        return next((schema for since, schema in reversed(self.schemas) if since < slot), None)

    def _schema_from(self, slot: int, schema: str | None) -> None:
        if not self.schemas or self.schema != schema:
            self.schemas.append((slot, schema))

    def apply(self, entry: LogEntry) -> None:
        """Add the next entry. Entries of a transaction that is not open are ignored."""
        match entry:
            case Begin():
                self.open[entry.instant] = entry
                self.top = max(self.top, entry.instant)
                if entry.asked:
                    self.asked[entry.asked] = entry
            case Commit() if entry.instant in self.open or (entry.imported and entry.instant not in self.ended):
                self._land(entry)
            case Prepare() if entry.instant in self.open:
                self.prepared[entry.instant] = entry
            case GroupCommit() | GroupBegin():
                for each in entry.members:
                    self.apply(each)
            case End() if entry.instant in self.open:
                del self.open[entry.instant]
                self.prepared.pop(entry.instant, None)
                self.ended[entry.instant] = entry.kind
            case Setting():
                if entry.settings.generation != self.settings.generation:
                    self.token = 0  # Before the settings, because a reader without a lock reads the token later.
                self.settings, self.settled = entry.settings, entry.slot
            case Close():
                self.closed, self.pending = True, entry.pending
            case Open():
                self.settings, self.top, self.token, self.last = entry.settings, entry.top, entry.token, entry.last
                self.newest = (entry.last,) if entry.last else ()
                self.open = {b.instant: b for b in entry.open}
                self.asked = {b.asked: b for b in entry.open if b.asked}
                self.batches = Batches(entry.batches)
                self.closed, self.settled, self.pending = False, entry.slot, entry.pending
                self.prepared = {each.instant: each for each in entry.prepared}
                self._schema_from(entry.slot, entry.schema)

    def _land(self, entry: Commit) -> None:
        self.prepared.pop(entry.instant, None)
        self.open.pop(entry.instant, None)  # an imported one need not have begun here
        self.ended.update(dict.fromkeys((entry.instant, entry.schema_under), "commit"))
        if entry.restores:
            undone = [name.partition("_")[0] for name in entry.undone]
            self.ended.update(dict.fromkeys(undone, "undone"))
            self.batches.take_back(undone, entry.standing)
        if entry.batch is not None:
            self.batches.add(entry.batch, entry.instant)
        self.undone.update(entry.undone)  # Last, because a reader without a lock reads this first.
        self.top = max(self.top, entry.completion)
        self.token = max(self.token, entry.token)
        together = bool(entry.place) and self.last is not None and self.last.slot == entry.slot
        self.last, self.newest = entry, (*self.newest, entry) if together else (entry,)
        if entry.schema or entry.restores:
            self._schema_from(entry.slot, entry.schema)

    def counts(self, entry: LogEntry, landed: Callable[[str], str | None]) -> bool:
        """Return whether an entry of an earlier epoch counts in this one; ``landed`` returns C of an instant, if committed."""
        match entry:
            case GroupBegin():  # for its writer, the first member; the others check for themselves
                return self.counts(entry.members[0], landed)
            case Begin():
                # Not if it has ended: the end may be of another begin with the same T, and the folder is gone. Nor if a
                # writer whose clock is behind ours has begun with that T since.
                return entry.instant in self.open and self.open[entry.instant].slot == entry.slot
            case Commit():
                # By its C: another execution of the same plan may have committed under the same T.
                return entry.instant not in self.open and landed(entry.instant) == entry.completion
            case Prepare():
                return entry.instant in self.prepared or landed(entry.instant) is not None
            case End():
                return entry.instant not in self.open and landed(entry.instant) is None
            case Setting():
                return entry.settings == self.settings
        return False

    def carried(self, slot: int) -> Open:
        """The first entry of the next epoch. A function of the log before it, so all writers propose the same bytes."""
        begun = tuple(self.open[t] for t in sorted(self.open))
        return Open(
            self.top,
            self.token,
            self.settings,
            begun,
            self.last,
            slot,
            self.schema_before(slot),
            tuple(self.batches),
            self.pending,
            tuple(self.prepared.values()),
        )
