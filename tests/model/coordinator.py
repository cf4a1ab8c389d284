"""Coordinators: each appends one entry for several transactions, which have asked for it, and answers them.

A writer has sent a *request*, its prepared commit, and goes on by itself whenever it likes: it looks into the log, and appends
its own commit. A coordinator names some of the requests in its entry; more than one may be at work. There is no lock here:
everybody appends as one whose lease nobody respects. Requests are never taken back and a coordinator may overlook any, so one
that is lost, late, doubled or stale needs no step of its own; nor does an answer. A process that is never scheduled again is a
dead one.

The log is one list. A put may land without an answer, or late, also after its writer has given up. Sets of transactions
and files are bit masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from .explore import Bounded

NOBODY = -1


class Request(NamedTuple):
    """A prepared commit: the transaction, which round of its merges, and the slot from which it is to be validated."""

    txn: int
    round: int
    base: int


class Entry(NamedTuple):
    """Of the log. ``members`` are those of a commit entry, in order; all other kinds have one."""

    kind: str
    members: tuple[Request, ...]


class Writer(NamedTuple):
    """A transaction after the other of one process."""

    at: str
    txn: int
    round: int = 0
    base: int = 0
    view: int = 0
    """Slots read."""
    entry: Entry | None = None


class Cleaner(NamedTuple):
    """Takes an open transaction for dead, once."""

    at: str = "look"
    target: int = NOBODY
    view: int = 0


class Coordinator(NamedTuple):
    """Leads for others, again and again."""

    at: str = "gather"
    view: int = 0
    entry: Entry | None = None


class State(NamedTuple):
    """Everything at one moment."""

    writers: tuple[Writer, ...]
    cleaner: Cleaner
    coordinators: tuple[Coordinator, ...] = ()
    log: tuple[Entry, ...] = ()
    requests: frozenset[Request] = frozenset()
    flying: tuple[tuple[int, Entry], ...] = ()
    """Puts without an answer that may still land."""
    files: int = 0
    published: int = 0
    acknowledged: int = 0
    told_lost: int = 0
    answered: int = 0
    """A coordinator has told them that they have landed."""
    unknown: int = 0


@dataclass(frozen=True)
class Rules:
    """What keeps the commits of one entry as safe as single ones."""

    fellows_count: bool = True
    """A member is validated against the members before it, too."""
    batches_of_fellows: bool = True
    """A numbered batch is looked for in the members before it, too, not only in the log."""
    own_base: bool = True
    """It is validated from the slot that its own request names, not from that of the first member."""
    own_measure: bool = True
    """By what it has read and written itself, at its isolation level, not by that of the first member."""
    request_as_it_is: bool = True
    """A request stands for itself: nothing of it is taken from a later request of the same transaction."""
    read_to_head: bool = True
    """An entry is appended at the slot up to which its writer has read; slot taken: all is decided again."""
    open_only: bool = True
    """Who is rolled back, aborted or committed is not taken."""
    outcome_of_own: bool = True
    """A writer looks whether a coordinator has committed it meanwhile."""
    ends_by_abort: bool = True
    """A member that gives up appends its abort entry before it deletes anything."""
    absence_is_no_answer: bool = True
    """A writer in doubt repeats its entry, or fills the slot with its abort entry."""
    whole_before_request: bool = True
    """A request is sent when all its files are written."""
    rollback_before_deletion: bool = True
    """A cleaner appends the rollback before it deletes anything."""
    published_in_order: bool = True
    """Members are published in the order of the entry."""
    last_member_looked_at: bool = True
    """Before an append the last member of the newest commit entry is on the timeline."""
    answered_behind_entry: bool = True
    """A coordinator answers its members when its entry is in the log, and not when it has decided."""
    answered_when_published: bool = True
    """It answers each when its instant is on the timeline."""


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    writers: int = 2
    conflicts: frozenset[tuple[int, int]] = frozenset({(0, 1), (1, 0)})
    """(later, earlier): the later one may land only if it has seen the earlier one."""
    same_batch: frozenset[int] = frozenset()
    """These writers load the same numbered batch, or some that follow the same one: one may land, no matter who has seen what."""
    attempts: int = 1
    rounds: int = 1
    """Two: who lost merges once more under the same T, and deletes the files of its first round."""
    unknown: int = 0
    cleaner: bool = False
    gives_up: bool = True
    coordinators: int = 1


class Coordinated(Bounded):
    """All behaviours within the bounds."""

    def start(self) -> State:
        first = "write" if self.rules.whole_before_request else "ask"
        writers = tuple(Writer(first, i) for i in range(self.bounds.writers))
        cleaner = Cleaner("look" if self.bounds.cleaner else "done")
        return State(writers, cleaner, (Coordinator(),) * self.bounds.coordinators, unknown=self.bounds.unknown)

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        yield from self.each_moves(s, self._writer)
        for what, after in self._cleaner(s, s.cleaner):
            yield f"cleaner {what}", after
        for k, leads in enumerate(s.coordinators):
            for what, after in self._coordinator(s, k, leads):
                yield f"coordinator {k} {what}", after
        yield from self.late_puts(s, _told)

    # --- writers ---------------------------------------------------------------------------------------------

    def _writer(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        file, whole = _file(p.txn, p.round), self.rules.whole_before_request
        match p.at:
            case "begin":
                begun = Entry("begin", (Request(p.txn, 0, 0),))
                base = len(s.log) + 1
                yield (
                    "begins again",
                    self.moved(s, i, p._replace(at="write" if whole else "ask", base=base), log=(*s.log, begun)),
                )
            case "write":
                yield (
                    "writes its file",
                    self.moved(s, i, p._replace(at="ask" if whole else "wait"), files=s.files | file),
                )
            case "ask":
                asked = s.requests | {Request(p.txn, p.round, p.base)}
                yield "sends its request", self.moved(s, i, p._replace(at="wait" if whole else "write"), requests=asked)
            case "wait":
                yield from self._look(s, i, p)
            case "decide":
                yield from self._decide(s, i, p)
            case "put" | "doubt":
                yield from self._put(s, i, p)
            case "publish":
                yield from self._publish(s, i, p)
            case "undo":
                yield "deletes its file", self._next(s._replace(files=s.files & ~file), i, p)

    def _look(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        if s.answered >> p.txn & 1:
            told = s._replace(answered=s.answered & ~(1 << p.txn), acknowledged=s.acknowledged | 1 << p.txn)
            yield "hears that it has landed", self.moved(told, i, Writer("end", p.txn))
        committed, ended = _committed(s.log), _ended(s.log)
        if committed >> p.txn & 1 and self.rules.outcome_of_own:
            yield "finds itself committed", self.moved(s, i, p._replace(at="publish", view=len(s.log), entry=None))
            return
        if ended >> p.txn & 1 and self.rules.outcome_of_own:
            yield "finds itself ended", self._lost(s, i, p)
            return
        yield f"reads to slot {len(s.log)}", self.moved(s, i, p._replace(at="decide", view=len(s.log), entry=None))
        if self.bounds.gives_up and not self.rules.ends_by_abort:
            yield "gives up", self._lost(s, i, p)

    def _decide(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        seen = s.log[: p.view]
        behind = self._unpublished(s, seen)
        if behind != NOBODY:
            yield f"publishes {behind}", s._replace(published=s.published | 1 << behind)
            return
        own = Request(p.txn, p.round, p.base)
        abort = Entry("abort", (own,))
        if not self._passes(seen, (), own):
            if p.round + 1 < self.bounds.rounds:
                merged = Writer("write", p.txn, p.round + 1, len(seen))
                yield "merges again", self.moved(s, i, merged, files=s.files & ~_file(p.txn, p.round))
            else:
                yield "has lost", self.moved(s, i, p._replace(at="put", entry=abort))
            return
        yield "decides on its commit", self.moved(s, i, p._replace(at="put", entry=Entry("commit", (own,))))
        if self.bounds.gives_up:
            yield "gives up by its abort entry", self.moved(s, i, p._replace(at="put", entry=abort))

    def _choices(self, seen: tuple[Entry, ...], requests: frozenset[Request]) -> list[Entry]:
        """The entries that a coordinator may decide on."""
        asking = sorted(r for r in requests if not self._out(seen, r))
        if not self.rules.request_as_it_is:  # one that keeps one slot for each transaction
            asking = [r._replace(base=max(other.base for other in asking if other.txn == r.txn)) for r in asking]
        choices: set[Entry] = set()
        for size in range(1, len(asking) + 1):
            for chosen in permutations(asking, size):
                members: list[Request] = []
                for each in chosen:
                    if all(each.txn != m.txn for m in members) and self._passes(seen, tuple(members), each):
                        members.append(each)
                if members:
                    choices.add(Entry("commit", tuple(members)))
        return sorted(choices)

    def _out(self, seen: tuple[Entry, ...], request: Request) -> bool:
        return self.rules.open_only and bool((_committed(seen) | _ended(seen)) >> request.txn & 1)

    def _passes(self, seen: tuple[Entry, ...], fellows: tuple[Request, ...], each: Request) -> bool:
        """Whether nothing that it has not seen is in its way: in the log, or among the members before it."""
        first = fellows[0] if fellows else each
        base = each.base if self.rules.own_base else first.base
        judge = each.txn if self.rules.own_measure else first.txn
        before = [m.txn for e in seen[base:] if e.kind == "commit" for m in e.members]
        if self.rules.fellows_count:
            before += [m.txn for m in fellows]
        if any(self._conflict(judge, other) for other in before):
            return False
        loaded = [m.txn for e in seen if e.kind == "commit" for m in e.members]
        if self.rules.batches_of_fellows:
            loaded += [m.txn for m in fellows]
        return not (self._numbered(each.txn) and any(self._numbered(other) for other in loaded))

    def _conflict(self, later: int, earlier: int) -> bool:
        n = self.bounds.writers
        return (later % n, earlier % n) in self.bounds.conflicts

    def _numbered(self, txn: int) -> bool:
        return txn % self.bounds.writers in self.bounds.same_batch

    def _put(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        entry = p.entry
        assert entry is not None
        slot = p.view if self.rules.read_to_head else max(p.view, len(s.log))
        own = Request(p.txn, p.round, p.base)
        if len(s.log) > slot:
            if s.log[slot] == entry:
                yield f"finds its entry in slot {slot}", self._landed(s, i, p, entry)
            else:
                yield "finds its slot taken", self.moved(s, i, p._replace(at="wait", entry=None, view=0))
            return
        if p.at == "doubt" and not self.rules.absence_is_no_answer:
            yield "finds nothing in its slot and gives up", self._lost(s, i, p)
            return
        yield f"puts {_told(entry)} into slot {slot}", self._landed(s._replace(log=(*s.log, entry)), i, p, entry)
        if p.at == "put" and s.unknown:
            flying = tuple(sorted((*s.flying, (slot, entry))))
            doubts = self.moved(s, i, p._replace(at="doubt"), flying=flying, unknown=s.unknown - 1)
            yield f"puts {_told(entry)} into slot {slot}: no answer", doubts
        if p.at == "doubt" and entry.kind == "commit":
            abort = Entry("abort", (own,))
            yield f"fills slot {slot} with its abort", self._landed(s._replace(log=(*s.log, abort)), i, p, abort)

    def _landed(self, s: State, i: int, p: Writer, entry: Entry) -> State:
        if entry.kind == "abort":
            return self._lost(s, i, p)
        return self.moved(s, i, p._replace(at="publish", entry=None, view=len(s.log)))

    def _publish(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        """What is committed up to the own entry, one instant a step; then the caller hears of it."""
        entry = next(e for e in s.log if e.kind == "commit" and any(m.txn == p.txn for m in e.members))
        members = entry.members if self.rules.published_in_order else entry.members[::-1]
        for member in members:
            if not s.published >> member.txn & 1:
                yield f"publishes {member.txn}", s._replace(published=s.published | 1 << member.txn)
                return
        ended = self.moved(s, i, Writer("end", p.txn), acknowledged=s.acknowledged | 1 << p.txn)
        yield "tells its caller that it has landed", ended

    def _unpublished(self, s: State, seen: tuple[Entry, ...]) -> int:
        """The next to be published of the newest commit entry, which all before it have been published for."""
        newest = next((e for e in reversed(seen) if e.kind == "commit"), None)
        if newest is None:
            return NOBODY
        looked_at = newest.members[-1 if self.rules.last_member_looked_at else 0]
        if s.published >> looked_at.txn & 1:
            return NOBODY
        members = newest.members if self.rules.published_in_order else newest.members[::-1]
        return next(m.txn for m in members if not s.published >> m.txn & 1)

    def _lost(self, s: State, i: int, p: Writer) -> State:
        return self.moved(s, i, p._replace(at="undo", entry=None, view=0), told_lost=s.told_lost | 1 << p.txn)

    def _next(self, s: State, i: int, p: Writer) -> State:
        after = p.txn + self.bounds.writers
        again = after < self.bounds.writers * self.bounds.attempts
        return self.moved(s, i, Writer("begin", after) if again else Writer("end", p.txn))

    # --- coordinators ----------------------------------------------------------------------------------------

    def _coordinator(self, s: State, k: int, p: Coordinator) -> Iterator[tuple[str, State]]:
        match p.at:
            case "gather":
                asking = [r for r in s.requests if not self._out(s.log, r)]
                if asking and (p.view < len(s.log) or not p.view):
                    yield f"reads to slot {len(s.log)}", self._led(s, k, Coordinator("choose", len(s.log)))
            case "choose":
                seen = s.log[: p.view]
                behind = self._unpublished(s, seen)
                if behind != NOBODY:
                    yield f"publishes {behind}", s._replace(published=s.published | 1 << behind)
                    return
                for entry in self._choices(seen, s.requests):
                    early = 0 if self.rules.answered_behind_entry else _bits(m.txn for m in entry.members)
                    decided = self._led(s, k, Coordinator("append", p.view, entry))
                    yield f"decides on {_told(entry)}", decided._replace(answered=s.answered | early)
            case "append":
                yield from self._append(s, k, p)
            case "tell":
                yield from self._tell(s, k, p)

    def _append(self, s: State, k: int, p: Coordinator) -> Iterator[tuple[str, State]]:
        assert p.entry is not None
        slot = p.view if self.rules.read_to_head else max(p.view, len(s.log))
        if len(s.log) > slot:
            after = "tell" if s.log[slot] == p.entry else "gather"
            yield (
                "finds its slot taken",
                self._led(s, k, Coordinator(after, p.view, p.entry if after == "tell" else None)),
            )
            return
        early = 0 if self.rules.answered_when_published else _bits(m.txn for m in p.entry.members)
        told = self._led(s, k, p._replace(at="tell"))
        landed = told._replace(log=(*s.log, p.entry), answered=s.answered | early)
        yield f"puts {_told(p.entry)} into slot {slot}", landed
        if s.unknown:  # it repeats the same entry, or dies
            flying = tuple(sorted((*s.flying, (slot, p.entry))))
            yield f"puts {_told(p.entry)} into slot {slot}: no answer", s._replace(flying=flying, unknown=s.unknown - 1)

    def _tell(self, s: State, k: int, p: Coordinator) -> Iterator[tuple[str, State]]:
        """Each member when its instant is on the timeline, in their order."""
        assert p.entry is not None
        members = p.entry.members if self.rules.published_in_order else p.entry.members[::-1]
        for member in members:
            if not s.published >> member.txn & 1:
                yield f"publishes {member.txn}", s._replace(published=s.published | 1 << member.txn)
                return
        answered = _bits(m.txn for m in members if not s.acknowledged >> m.txn & 1)
        yield (
            "answers its members",
            self._led(s, k, Coordinator("gather", p.view))._replace(answered=s.answered | answered),
        )

    def _led(self, s: State, k: int, p: Coordinator) -> State:
        return s._replace(coordinators=(*s.coordinators[:k], p, *s.coordinators[k + 1 :]))

    # --- the cleaner -----------------------------------------------------------------------------------------

    def _cleaner(self, s: State, p: Cleaner) -> Iterator[tuple[str, State]]:
        match p.at:
            case "look":
                for writer in s.writers:
                    settled = _committed(s.log) | _ended(s.log)
                    if writer.at not in ("begin", "end") and not settled >> writer.txn & 1:
                        at = "put" if self.rules.rollback_before_deletion else "sweep"
                        taken = Cleaner(at, writer.txn, len(s.log))
                        yield f"takes {writer.txn} for dead", s._replace(cleaner=taken)
            case "put":
                if len(s.log) == p.view:
                    ended = Entry("rollback", (Request(p.target, 0, 0),))
                    yield f"rolls {p.target} back", s._replace(log=(*s.log, ended), cleaner=p._replace(at="sweep"))
                else:
                    yield "finds its slot taken", s._replace(cleaner=Cleaner())
            case "sweep":
                gone = s.files & ~(_file(p.target, 0) | _file(p.target, 1))
                yield f"deletes the files of {p.target}", s._replace(files=gone, cleaner=Cleaner("done"))

    # --- the judge -------------------------------------------------------------------------------------------

    def judge(self, s: State) -> str:
        """The first invariant that does not hold."""
        landed = [(slot, m) for slot, e in enumerate(s.log) if e.kind == "commit" for m in e.members]
        committed = _committed(s.log)
        if committed.bit_count() != len(landed):
            return "a transaction is committed twice"
        if committed & _ended(s.log):
            return "a transaction is both committed and ended"
        if committed & s.told_lost:
            return "a writer was told that nothing landed, and its commit landed"
        if any(not s.files & _file(m.txn, m.round) for _, m in landed):
            return "files of a commit are not there"
        if s.acknowledged & ~(committed & s.published):
            return "a writer was told that it landed, and it did not"
        for n, (_, later) in enumerate(landed):
            for slot, earlier in landed[:n]:
                if slot >= later.base and self._conflict(later.txn, earlier.txn):
                    return "two overlapping transactions both committed"
        if sum(self._numbered(m.txn) for _, m in landed) > 1:
            return "a numbered batch has landed twice"
        if s.published & ~committed:
            return "published what never committed"
        shown = [bool(s.published >> m.txn & 1) for _, m in landed]
        if shown != sorted(shown, reverse=True):
            return "published before an earlier one"
        return ""


def _file(txn: int, round_: int) -> int:
    return 1 << 2 * txn + round_


def _committed(log: tuple[Entry, ...]) -> int:
    return _bits(m.txn for e in log if e.kind == "commit" for m in e.members)


def _ended(log: tuple[Entry, ...]) -> int:
    return _bits(e.members[0].txn for e in log if e.kind in ("abort", "rollback"))


def _bits(txns: Iterator[int]) -> int:
    mask = 0
    for txn in txns:
        mask |= 1 << txn
    return mask


def _told(entry: Entry) -> str:
    return f"{entry.kind}({', '.join(str(m.txn) for m in entry.members)})"
