"""A transaction over several tables: each table has a log of its own, and the log of one of them, the home, decides.

A coordinator puts a *prepare* entry into the log of every table but the home, in one order for everybody. Then it commits in
the home, which is the decision, and puts a commit entry behind each prepare entry. Nobody's commit goes behind a prepare
entry whose outcome its log does not have yet. Anybody may *settle* it: by the home's outcome, which is an abort entry of the
settler's own if the home has none. There is no lock here, and a process that is never scheduled again is a dead one.

A writer of one table is a transaction whose only table is its home. All have begun at the start; those that overlap must not
both commit. The log is one list, as in the other features. What a home has forgotten counts as aborted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .explore import Bounded

Entry = tuple[str, int]  # kind and transaction
Log = tuple[Entry, ...]


class Process(NamedTuple):
    """A coordinator, the settler or the reader."""

    at: str
    where: int = 0
    """Of the tables of its transaction, or all tables of the reader."""
    view: int = 0
    """Slots read of the log that it puts into."""
    table: int = 0
    entry: Entry | None = None
    txn: int = -1
    """That the settler is at work on."""
    cut: tuple[int, ...] = ()
    """Slots of each table that the reader has read."""


class State(NamedTuple):
    """Everything at one moment."""

    processes: tuple[Process, ...]
    logs: tuple[Log, ...]
    flying: tuple[tuple[int, int, Entry], ...] = ()
    """Puts without an answer that may still land: table, slot, entry."""
    forgotten: frozenset[int] = frozenset()
    """Transactions whose outcome their home does not know any more."""
    landed: frozenset[int] = frozenset()
    """Whose coordinators have reported a commit, and ``lost``: that nothing landed."""
    lost: frozenset[int] = frozenset()
    unknown: int = 0
    forgets: int = 0
    restores: int = 0
    settles: int = 0


@dataclass(frozen=True)
class Rules:
    """What makes the commits of several logs one."""

    prepared_first: bool = True
    """The home commits after every other log has its prepare entry."""
    home_first: bool = True
    """A prepared transaction is ended behind an abort entry in its home."""
    nothing_behind: bool = True
    """No commit goes behind a prepare entry whose outcome the log does not have."""
    read_to_head: bool = True
    """An entry is decided on everything before its slot; slot taken: all is decided again."""
    one_order: bool = True
    """Everybody prepares the tables in the same order, and the last of them is the home."""
    absence_is_no_answer: bool = True
    """A coordinator in doubt repeats its entry until it knows what stands in the slot, and ends by its abort entries."""
    kept: bool = True
    """A home does not forget a commit before every other log has its outcome."""
    undone_counts: bool = True
    """A commit that a restore has taken back in the home has landed in the other tables."""
    answered_when_settled: bool = True
    """A coordinator reports a commit when every log has it."""
    looks_twice: bool = True
    """A reader of several tables reads each log again, and starts over if a commit over several tables came meanwhile."""
    nothing_undecided: bool = True
    """It reads no log with a prepare entry whose outcome that does not have."""


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    transactions: tuple[tuple[int, ...], ...] = ((0, 1), (0, 1))
    """The tables of each, in order."""
    tables: int = 2
    overlap: bool = True
    settles: int = 2
    unknown: int = 0
    forgets: int = 0
    restores: int = 0
    reader: bool = False


class SeveralTables(Bounded):
    """All behaviours within the bounds."""

    processes = "processes"

    def start(self) -> State:
        b = self.bounds
        reader = (Process("first"),) if b.reader else ()
        settler = (Process("idle"),) if b.settles else ()
        coordinators = (Process("go"),) * len(b.transactions)
        return State(coordinators + settler + reader, ((),) * b.tables, unknown=b.unknown, forgets=b.forgets,
                     restores=b.restores, settles=b.settles)  # fmt: skip

    def goals(self) -> dict[str, object]:  # type: ignore[override]
        return {"everybody ends": lambda _s, t: all(p.at in ("end", "idle", "first", "second") for p in t.processes)}

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        yield from self.each_moves(s, self._process)
        for put in s.flying:
            table, slot, entry = put
            after = s._replace(flying=tuple(each for each in s.flying if each != put))
            if slot == len(s.logs[table]):
                after = _with(after, table, entry)
            yield f"a late put of {entry} meets slot {slot} of table {table}", after
        for txn, tables in enumerate(self.bounds.transactions):
            home, known = s.logs[self._order(txn)[-1]], txn not in s.forgotten
            outcome = _outcome(home, txn)
            if s.forgets and known and len(tables) > 1 and outcome in ("commit", "abort"):
                settled = all(_outcome(s.logs[t], txn) in ("commit", "abort") for t in tables)
                if outcome == "abort" or settled or not self.rules.kept:
                    gone = s._replace(forgotten=s.forgotten | {txn}, forgets=s.forgets - 1)
                    yield f"the home forgets {txn}", gone
            if s.restores and outcome == "commit" and ("restore", txn) not in home and not _undecided(home):
                restored = _with(s, self._order(txn)[-1], ("restore", txn))
                yield f"a restore takes {txn} back in its home", restored._replace(restores=s.restores - 1)

    def _order(self, txn: int) -> tuple[int, ...]:
        tables = self.bounds.transactions[txn]
        return tables if self.rules.one_order or txn % 2 == 0 else tables[::-1]

    def _process(self, s: State, i: int, p: Process) -> Iterator[tuple[str, State]]:
        match p.at:
            case "go":
                yield from self._go(s, i, p)
            case "put" | "doubt":
                yield from self._put(s, i, p)
            case "settle" | "lost":
                yield from self._end(s, i, p)
            case "idle" | "look" | "settling":
                yield from self._settler(s, i, p)
            case "first" | "second":
                yield from self._reader(s, i, p)

    # --- coordinators ----------------------------------------------------------------------------------------

    def _go(self, s: State, i: int, p: Process) -> Iterator[tuple[str, State]]:
        tables = self._order(i)
        if not self.rules.prepared_first:
            tables = (tables[-1], *tables[:-1])
        table, decides = tables[p.where], tables[p.where] == self._order(i)[-1]
        log = s.logs[table]
        if _outcome(log, i) == "abort":
            yield "finds itself ended", self.moved(s, i, p._replace(at="lost", where=0))
        elif self.bounds.overlap and _meets(log, i):
            yield "has lost", self.moved(s, i, p._replace(at="lost", where=0))
        elif not (self.rules.nothing_behind and _undecided(log) - {i}):
            entry = ("commit" if decides else "prepare", i)
            yield (
                f"decides on {entry} in table {table}",
                self.moved(s, i, p._replace(at="put", view=len(log), table=table, entry=entry)),
            )

    def _put(self, s: State, i: int, p: Process) -> Iterator[tuple[str, State]]:
        entry, log = p.entry, s.logs[p.table]
        assert entry is not None
        slot = p.view if self.rules.read_to_head else max(p.view, len(log))
        if len(log) > slot:
            if log[slot] == entry:
                yield f"finds {entry} in its slot", self._done(s, i, p, entry)
            else:
                back = self._back(i, p, entry)
                yield "finds its slot taken", self.moved(s, i, p._replace(at=back, entry=None))
            return
        if p.at == "doubt" and not self.rules.absence_is_no_answer and i < len(self.bounds.transactions):
            yield "finds nothing in its slot and gives up", self.moved(s, i, Process("end"), lost=s.lost | {i})
            return
        yield f"puts {entry} into table {p.table}", self._done(_with(s, p.table, entry), i, p, entry)
        if p.at == "put" and s.unknown:
            flying = tuple(sorted((*s.flying, (p.table, slot, entry))))
            doubts = self.moved(s, i, p._replace(at="doubt"), flying=flying, unknown=s.unknown - 1)
            yield f"puts {entry} into table {p.table}: no answer", doubts

    def _back(self, i: int, p: Process, entry: Entry) -> str:
        if i >= len(self.bounds.transactions):
            return "look"
        if entry[0] == "abort":
            return "lost"
        last = len(self._order(i)) - 1
        return "settle" if entry[0] == "commit" and p.where > last else "go"

    def _done(self, s: State, i: int, p: Process, entry: Entry) -> State:
        if i >= len(self.bounds.transactions):
            return self.moved(s, i, p._replace(at="look", entry=None))
        last, p = len(self._order(i)) - 1, p._replace(entry=None)
        if entry[0] == "abort":
            return self.moved(s, i, p._replace(at="lost", where=p.where + 1))
        if p.where < last:
            return self.moved(s, i, p._replace(at="go", where=p.where + 1))
        told = s.landed if self.rules.answered_when_settled else s.landed | {i}
        return self.moved(s, i, p._replace(at="settle", where=p.where + 1), landed=told)

    def _end(self, s: State, i: int, p: Process) -> Iterator[tuple[str, State]]:
        """Put the outcome into each log: of a commit the home's is there, an abort goes into the home first."""
        tables, landed = self._order(i), p.at == "settle"
        at = p.where - len(tables) if landed else p.where
        todo = tables[:-1] if landed else tables[::-1] if self.rules.home_first else tables
        if at >= len(todo):
            told = {"landed": s.landed | {i}} if landed else {"lost": s.lost | {i}}
            yield "reports", self.moved(s, i, Process("end"), **told)
            return
        log, there = s.logs[todo[at]], _outcome(s.logs[todo[at]], i)
        if there in ("commit", "abort"):
            if not landed and there == "commit" and at == 0 and self.rules.home_first:
                yield "finds itself committed", self.moved(s, i, p._replace(at="settle", where=len(tables)))
                return
            yield "finds that others have settled", self.moved(s, i, p._replace(where=p.where + 1))
            return
        entry = ("commit" if landed else "abort", i)
        put = p._replace(at="put", view=len(log), table=todo[at], entry=entry)
        yield f"decides on {entry} in table {todo[at]}", self.moved(s, i, put)

    # --- the settler -----------------------------------------------------------------------------------------

    def _settler(self, s: State, i: int, p: Process) -> Iterator[tuple[str, State]]:
        if p.at == "idle":
            for table, log in enumerate(s.logs):
                for txn in sorted(_undecided(log)) if s.settles else ():
                    look = p._replace(at="look", table=table, txn=txn, where=table)
                    yield f"meets {txn} in table {table}", self.moved(s, i, look, settles=s.settles - 1)
            return
        table, home = p.where, self._order(p.txn)[-1]
        log = s.logs[table]
        if p.at == "settling":  # with what it has read of the home, however long ago
            if _outcome(log, p.txn) in ("commit", "abort"):
                yield "finds it settled", self.moved(s, i, Process("idle"))
            else:
                yield (
                    f"decides on {p.entry} in table {table}",
                    self.moved(s, i, p._replace(at="put", view=len(log), table=table)),
                )
            return
        if _outcome(log, p.txn) in ("commit", "abort"):
            yield "finds it settled", self.moved(s, i, Process("idle"))
            return
        outcome = self._told_by_home(s, p.txn, s.logs[home])
        if outcome in ("commit", "abort"):
            read = p._replace(at="settling", entry=(outcome, p.txn))
            yield f"reads {outcome} in the home", self.moved(s, i, read)
        elif self.rules.home_first:
            ends = p._replace(at="put", view=len(s.logs[home]), table=home, entry=("abort", p.txn))
            yield "takes it for dead, and decides on an abort in the home", self.moved(s, i, ends)
        else:
            yield "takes it for dead", self.moved(s, i, p._replace(at="settling", entry=("abort", p.txn)))

    def _told_by_home(self, s: State, txn: int, home: Log) -> str:
        if txn in s.forgotten:
            return "abort"
        if ("restore", txn) in home and not self.rules.undone_counts:
            return "abort"
        return _outcome(home, txn)

    # --- the reader ------------------------------------------------------------------------------------------

    def _reader(self, s: State, i: int, p: Process) -> Iterator[tuple[str, State]]:
        if p.where == self.bounds.tables:
            if p.at == "first" and self.rules.looks_twice:
                yield "has read all once", self.moved(s, i, p._replace(at="second", where=0))
            else:
                yield "has its cut", self.moved(s, i, p._replace(at="end"))
            return
        log = s.logs[p.where]
        if self.rules.nothing_undecided and _undecided(log):
            return
        if p.at == "first":
            cut = (*p.cut, len(log))
            yield f"reads table {p.where}", self.moved(s, i, p._replace(where=p.where + 1, cut=cut))
        elif any(kind == "commit" and len(self.bounds.transactions[txn]) > 1 for kind, txn in log[p.cut[p.where] :]):
            yield "starts over", self.moved(s, i, Process("first"))
        else:
            yield f"finds table {p.where} as it was", self.moved(s, i, p._replace(where=p.where + 1))

    # --- the judge -------------------------------------------------------------------------------------------

    def judge(self, s: State) -> str:
        """The first invariant that does not hold."""
        for txn, tables in enumerate(self.bounds.transactions):
            there = {_outcome(s.logs[t], txn) for t in tables}
            if {"commit", "abort"} <= there:
                return "it has landed in one table and not in another"
            if txn in s.landed and there != {"commit"}:
                return "it was told that it landed, and a table does not have it"
            if txn in s.lost and "commit" in there:
                return "it was told that nothing landed, and a table has it"
        for log in s.logs:
            prepared, landed = frozenset[int](), list[int]()
            for slot, (kind, txn) in enumerate(log):
                if kind == "prepare" and _outcome(log[:slot], txn) == "open":
                    prepared |= {txn}
                elif kind in ("commit", "abort") and _outcome(log[:slot], txn) not in ("commit", "abort"):
                    if kind == "commit" and prepared - {txn}:
                        return "a commit went behind one that was prepared"
                    prepared -= {txn}
                    if kind == "commit":
                        landed.append(txn)
            if self.bounds.overlap and len(landed) > 1:
                return "two overlapping transactions both committed"
        if self._orders_differ(s):
            return "two tables have two transactions in different orders"
        for p in s.processes:
            if p.cut and p.at == "end":
                for txn, tables in enumerate(self.bounds.transactions):
                    if len({_outcome(s.logs[t][: p.cut[t]], txn) == "commit" for t in tables}) > 1:
                        return "a reader of several tables sees half of a commit"
        return ""

    def _orders_differ(self, s: State) -> bool:
        found: dict[tuple[int, int], bool] = {}
        for log in s.logs:
            landed = [txn for kind, txn in log if kind == "commit"]
            for n, one in enumerate(landed):
                for other in landed[n + 1 :]:
                    pair = (min(one, other), max(one, other))
                    if one != other and found.setdefault(pair, one < other) != (one < other):
                        return True
        return False


def _with(s: State, table: int, entry: Entry) -> State:
    logs = tuple((*log, entry) if t == table else log for t, log in enumerate(s.logs))
    return s._replace(logs=logs)


def _outcome(log: Log, txn: int) -> str:
    """The first outcome in a log, else prepared or open."""
    kinds = [kind for kind, each in log if each == txn]
    return next((kind for kind in kinds if kind in ("commit", "abort")), "prepare" if "prepare" in kinds else "open")


def _undecided(log: Log) -> frozenset[int]:
    return frozenset(txn for _, txn in log if _outcome(log, txn) == "prepare")


def _meets(log: Log, txn: int) -> bool:
    return any(kind == "commit" and other != txn and _outcome(log, other) == "commit" for kind, other in log)
