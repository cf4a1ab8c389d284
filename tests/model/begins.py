"""Transactions that begin together: a coordinator begins those that have asked for it by one entry.

A writer has sent a *request*, and begins by itself whenever it likes. A coordinator names some of the requests in its entry; two
may be at work. Requests are never taken back and a coordinator may overlook any, so one that is lost, late, doubled or stale
needs no step of its own. A process that is never scheduled again is a dead one.

The log is one list, and an epoch that closes and the next one that opens are one entry of it, which carries who is open. T is
the slot and the place in the entry. All commits overlap with each other. A put may land without an answer, or late.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from .explore import Bounded

NOBODY = -1


class Request(NamedTuple):
    """Who asks, the epoch in which it has looked for itself in vain, and the slot of the settings that it knows."""

    who: int
    epoch: int
    settled: int


class Entry(NamedTuple):
    """Of the log. ``members`` of a begin entry are requests; of an epoch they are who is open in it."""

    kind: str
    members: tuple[Request, ...] = ()
    t: int = NOBODY
    """Of a commit, abort or rollback: whose it is."""


class Asker(NamedTuple):
    """A process that begins one transaction, commits it and ends."""

    at: str = "ask"
    asked: int = NOBODY
    """The epoch that its newest request names."""
    view: int = 0
    """Slots read."""
    entry: Entry | None = None
    t: int = NOBODY
    base: int = 0
    leaves: bool = False
    """It was cancelled: once it knows that it has begun it ends by its abort entry."""


class State(NamedTuple):
    """Everything at one moment."""

    askers: tuple[Asker, ...]
    log: tuple[Entry, ...] = ()
    requests: frozenset[Request] = frozenset()
    decided: tuple[tuple[int, Entry], ...] = ()
    """What coordinators are about to append, and the slot up to which each has read. Also one that dies then."""
    flying: tuple[tuple[int, Entry], ...] = ()
    """Puts without an answer that may still land."""
    told: frozenset[tuple[int, int]] = frozenset()
    """(asker, T) as a coordinator has promised it. Nobody heeds that, while `told_by_log` holds."""
    unknown: int = 0
    epochs: int = 0
    settings: int = 0
    reserver: str = "idle"
    suspects: int = 0


@dataclass(frozen=True)
class Rules:
    """What keeps begins that land together as safe as single ones."""

    remembers: bool = True
    """A coordinator takes nobody who has begun in this epoch already."""
    names_epoch: bool = True
    """Nor a request that names another epoch: of what has ended before this one nothing is remembered."""
    carried: bool = True
    """The first entry of an epoch says of those who are open what they had asked as."""
    own_begin_named: bool = True
    """The begin entry of who has asked says so, also when it is its own."""
    looks_in_vain: bool = True
    """An asker appends its own begin, or asks in the next epoch, only after it has read that it has not begun."""
    read_to_head: bool = True
    """An entry is appended at the slot up to which its writer has read; slot taken: all is decided again."""
    told_by_log: bool = True
    """An asker learns that it has begun from the log, never before the entry is there."""
    base_of_entry: bool = True
    """Its snapshot is the state at the entry that begins it, not at the slot where it reads of that."""
    same_settings: bool = True
    """Nobody is taken since whose request the settings have changed."""
    none_while_reserved: bool = True
    """Nobody is taken while anything is reserved."""
    ends_by_abort: bool = True
    """An asker that gives up begins by itself, unless it has begun, and appends its abort entry."""
    absence_is_no_answer: bool = True
    """A writer in doubt repeats its entry, until it knows what stands in the slot."""


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    askers: int = 2
    unknown: int = 0
    epochs: int = 0
    settings: int = 0
    reserver: bool = False
    suspects: int = 0
    """Open transactions that a cleaner takes for dead."""
    gives_up: bool = True
    coordinators: int = 1


class Begins(Bounded):
    """All behaviours within the bounds."""

    processes = "askers"

    def start(self) -> State:
        b = self.bounds
        reserver = "idle" if b.reserver else "done"
        return State((Asker(),) * b.askers, (Entry("epoch"),), frozenset(), (), (), frozenset(), b.unknown, b.epochs,
                     b.settings, reserver, b.suspects)  # fmt: skip

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        yield from self.each_moves(s, self._asker)
        yield from self._coordinators(s)
        yield from self.late_puts(s, _told)
        if s.epochs:
            carried = tuple(each for _, each in _open(s.log).values()) if self.rules.carried else ()
            yield "an epoch ends", s._replace(log=(*s.log, Entry("epoch", carried)), epochs=s.epochs - 1)
        if s.settings:
            yield "the settings change", s._replace(log=(*s.log, Entry("setting")), settings=s.settings - 1)
        if s.suspects:
            for t in _open(s.log):
                ended = (*s.log, Entry("rollback", t=t))
                yield f"a cleaner rolls {t} back", s._replace(log=ended, suspects=s.suspects - 1)
        if s.reserver == "idle":
            yield "somebody reserves", s._replace(log=(*s.log, Entry("reserve")), reserver="open")
        elif s.reserver == "open":
            yield "the reserver ends", s._replace(log=(*s.log, Entry("release")), reserver="done")

    # --- askers ----------------------------------------------------------------------------------------------

    def _asker(self, s: State, i: int, p: Asker) -> Iterator[tuple[str, State]]:
        match p.at:
            case "ask":
                asked = Request(i, _epoch(s.log), _settled(s.log))
                wait = p._replace(at="wait", asked=asked.epoch)
                yield "sends its request", self.moved(s, i, wait, requests=s.requests | {asked})
            case "wait":
                yield from self._wait(s, i, p)
            case "put" | "doubt":
                yield from self._put(s, i, p)
            case "work":
                yield from self._work(s, i, p)

    def _wait(self, s: State, i: int, p: Asker) -> Iterator[tuple[str, State]]:
        begun = self._found(s.log, i, p.asked)
        if begun != NOBODY:
            base = begun // 4 + 1 if self.rules.base_of_entry else len(s.log)
            yield f"finds that it has begun as {begun}", self.moved(s, i, p._replace(at="work", t=begun, base=base))
            if self.rules.looks_in_vain:
                return
        if not self.rules.told_by_log:
            for who, t in sorted(s.told):
                if who == i:
                    yield f"hears that it begins as {t}", self.moved(s, i, p._replace(at="work", t=t, base=t // 4 + 1))
        if self.bounds.gives_up and not p.leaves:
            left = p._replace(leaves=True) if self.rules.ends_by_abort else p._replace(at="end")
            yield "is cancelled", self.moved(s, i, left)
        if _epoch(s.log) != p.asked:
            yield "asks in the next epoch", self.moved(s, i, p._replace(at="ask"))
        own = Request(i if self.rules.own_begin_named else i + 100, _epoch(s.log), _settled(s.log))
        lead = p._replace(at="put", view=len(s.log), entry=Entry("begin", (own,)))
        yield "decides on its own begin", self.moved(s, i, lead)

    # --- coordinators ----------------------------------------------------------------------------------------

    def _coordinators(self, s: State) -> Iterator[tuple[str, State]]:
        """One reads to the head of the log and decides, and appends that at any later time, or never."""
        known = _begun_in_epoch(s.log)
        asking = [r for r in sorted(s.requests) if self._takes(s.log, r, known)]
        for size in range(1, len(asking) + 1 if len(s.decided) < self.bounds.coordinators else 1):
            for chosen in combinations(asking, size):
                if len({r.who for r in chosen}) == size:
                    entry = Entry("begin", chosen)
                    told = frozenset() if self.rules.told_by_log else s.told | _promised(entry, len(s.log))
                    decided = tuple(sorted((*s.decided, (len(s.log), entry))))
                    yield f"a coordinator decides on {_told(entry)}", s._replace(decided=decided, told=told)
        for n, (view, entry) in enumerate(s.decided):
            left = (*s.decided[:n], *s.decided[n + 1 :])
            if len(s.log) > view and self.rules.read_to_head:
                yield "a coordinator finds its slot taken", s._replace(decided=left)
            else:
                yield f"a coordinator puts {_told(entry)}", s._replace(decided=left, log=(*s.log, entry))

    def _takes(self, seen: tuple[Entry, ...], request: Request, known: frozenset[int]) -> bool:
        return (
            not (self.rules.remembers and request.who in known)
            and not (self.rules.names_epoch and request.epoch != _epoch(seen))
            and not (self.rules.same_settings and request.settled != _settled(seen))
            and not (self.rules.none_while_reserved and _reserved(seen))
        )

    def _found(self, seen: tuple[Entry, ...], i: int, asked: int) -> int:
        """Its T, if it is open; of who has begun before this epoch the first entry of the epoch tells."""
        mine = [t for t, (_, each) in _open(seen).items() if each.who % 100 == i]
        told = [e.members for e in seen if e.kind == "epoch"][-1]
        since = _epoch(seen)
        known = [t for t in mine if t // 4 > since or any(each.who % 100 == i for each in told) or since == asked]
        return max(known, default=NOBODY)

    def _put(self, s: State, i: int, p: Asker) -> Iterator[tuple[str, State]]:
        entry = p.entry
        assert entry is not None
        slot = p.view if self.rules.read_to_head else max(p.view, len(s.log))
        if len(s.log) > slot:
            if s.log[slot] == entry:
                yield f"finds its entry in slot {slot}", self._landed(s, i, p, entry, slot)
            else:
                back = "wait" if entry.kind == "begin" else "work"
                yield "finds its slot taken", self.moved(s, i, p._replace(at=back, entry=None, view=0))
            return
        if p.at == "doubt" and not self.rules.absence_is_no_answer:
            yield "finds nothing in its slot and gives up", self.moved(s, i, p._replace(at="end", entry=None))
            return
        after = s._replace(log=(*s.log, entry))
        yield f"puts {_told(entry)} into slot {slot}", self._landed(after, i, p, entry, slot)
        if p.at == "put" and s.unknown:
            flying = tuple(sorted((*s.flying, (slot, entry))))
            doubts = self.moved(s, i, p._replace(at="doubt"), flying=flying, unknown=s.unknown - 1)
            yield f"puts {_told(entry)} into slot {slot}: no answer", doubts

    def _landed(self, s: State, i: int, p: Asker, entry: Entry, slot: int) -> State:
        if entry.kind == "begin":
            return self.moved(s, i, p._replace(at="work", entry=None, t=4 * slot, base=slot + 1))
        return self.moved(s, i, p._replace(at="end", entry=None))

    def _work(self, s: State, i: int, p: Asker) -> Iterator[tuple[str, State]]:
        if p.t not in _open(s.log) and self.rules.told_by_log:
            yield "finds itself ended", self.moved(s, i, p._replace(at="end"))
            return
        meets = any(e.kind == "commit" for e in s.log[p.base :])
        entry = Entry("abort" if p.leaves or meets else "commit", t=p.t)
        yield f"decides on {_told(entry)}", self.moved(s, i, p._replace(at="put", view=len(s.log), entry=entry))

    # --- the judge -------------------------------------------------------------------------------------------

    def judge(self, s: State) -> str:
        """The first invariant that does not hold."""
        still = _open(s.log)
        owners = [each.who % 100 for _, each in still.values()]
        if len(set(owners)) < len(owners):
            return "one who asked has begun twice"
        for i, p in enumerate(s.askers):
            if p.at == "end" and i in owners:
                return "it was told that it is over, and its transaction is open"
        begun = _begun(s.log)
        settled, reserved = NOBODY, False
        for slot, e in enumerate(s.log):
            if e.kind == "setting":
                settled = slot
            elif e.kind in ("reserve", "release"):
                reserved = e.kind == "reserve"
            elif e.kind == "begin":
                if any(m.settled != settled for m in e.members):
                    return "it has begun under settings that it does not know"
                if reserved and len(e.members) > 1:
                    return "others have begun by one entry while somebody had reserved the place"
            elif e.kind == "commit":
                if e.t not in begun:
                    return "committed what never began"
                base = e.t // 4 + 1
                if any(other.kind == "commit" for other in s.log[base:slot]):
                    return "two overlapping transactions both committed"
        return ""


def _begun(log: tuple[Entry, ...]) -> dict[int, tuple[int, Request]]:
    return {
        4 * slot + place: (slot, each)
        for slot, e in enumerate(log)
        if e.kind == "begin"
        for place, each in enumerate(e.members)
    }


def _open(log: tuple[Entry, ...]) -> dict[int, tuple[int, Request]]:
    over = {e.t for e in log if e.kind in ("commit", "abort", "rollback")}
    return {t: each for t, each in _begun(log).items() if t not in over}


def _begun_in_epoch(log: tuple[Entry, ...]) -> frozenset[int]:
    since = _epoch(log)
    return frozenset(each.who for e in log[since:] if e.kind in ("begin", "epoch") for each in e.members)


def _epoch(log: tuple[Entry, ...]) -> int:
    return max(slot for slot, e in enumerate(log) if e.kind == "epoch")


def _settled(log: tuple[Entry, ...]) -> int:
    return max((slot for slot, e in enumerate(log) if e.kind == "setting"), default=NOBODY)


def _reserved(log: tuple[Entry, ...]) -> bool:
    return next((e.kind == "reserve" for e in reversed(log) if e.kind in ("reserve", "release")), False)


def _promised(entry: Entry, slot: int) -> frozenset[tuple[int, int]]:
    return frozenset((each.who, 4 * slot + place) for place, each in enumerate(entry.members))


def _told(entry: Entry) -> str:
    return f"{entry.kind}({', '.join(str(m.who) for m in entry.members) or entry.t})"
