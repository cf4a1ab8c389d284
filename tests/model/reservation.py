"""Reservations: who waits for whom before a begin entry and before a commit entry, and whether somebody can always go on.

Only what waiting depends on is here: which transactions are open, who reserved, how old each is, who holds the lock. The
log is one list, an entry is decided at its slot. Writers come again and again: after a loss with a reservation and the
age of the first attempt, after landing as somebody new. So there is no last state, and a way that never ends is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .explore import Bounded

NOBODY = -1


class Writer(NamedTuple):
    """A writer and its transaction."""

    at: str = "idle"
    again: bool = False
    """It has lost, and reserves now."""
    age: int = NOBODY
    """As others see it."""
    first: int = NOBODY
    """The place of its first attempt among all: the age that it ought to have."""
    open: bool = False
    reserved: bool = False
    """In the log, while it is open."""
    met: bool = False
    """An overlapping one has landed since it began."""
    ahead: int = 0
    """Those that went first and were open when it began."""
    ignores: int = 0
    """Whose reservation it has seen for too long."""
    dead: bool = False


class State(NamedTuple):
    """Everything at one moment."""

    writers: tuple[Writer, ...]
    lock: int = NOBODY
    deaths: int = 0
    suspects: int = 0
    expiries: int = 0
    epochs: int = 0
    fault: str = ""


@dataclass(frozen=True)
class Rules:
    """What lets the oldest land at its next attempt, and lets nobody wait in a circle."""

    age_kept: bool = True
    """The age is the slot of the first attempt. [14]"""
    reserve_with_begin: bool = True
    """Reservation and snapshot begin with one entry."""
    carried: bool = True
    """An epoch carries the reservations of those who are open."""
    begins_after: bool = True
    """A reserver begins only when no reserver that goes first is open. [14]"""
    looked_at_slot: bool = True
    """That is looked up at the slot of the begin entry, not before."""
    heeded_at_commit: bool = True
    """Anyone who meets a reservation of one that goes first waits before its commit entry."""
    waits_outside: bool = True
    """Nobody waits for a transaction with the lock in hand."""
    lock_after_wait: bool = True
    """Nor does one that takes the lock before it begins."""
    one_order: bool = True
    """Who goes first by his reservation does not yield by his kind, nor reserves who yields to all ingestion."""
    validated: bool = True
    """A reservation replaces no comparison with what has landed."""
    dead_are_ended: bool = True
    """A reservation ends with its transaction, and dead ones are rolled back."""


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    writers: int = 3
    apart: frozenset[frozenset[int]] = frozenset()
    """Pairs that do not overlap."""
    declared: int = 0
    """Writers that reserve at once."""
    lock_first: int = 0
    services: int = 0
    """Table services. They yield to ingestion, or with ``plans_first`` ingestion to them."""
    plans_first: bool = False
    whole_table: bool = False
    """Reservations are of the whole table, so that the others wait before they begin."""
    priorities: tuple[int, ...] = ()
    deaths: int = 0
    suspects: int = 0
    """Living ones that are taken for dead."""
    expiries: int = 0
    epochs: int = 0


class Reservations(Bounded):
    """All behaviours within the bounds."""

    def __init__(self, rules: Rules, bounds: Bounds) -> None:
        super().__init__(rules, bounds)
        self.fair = len(set(bounds.priorities)) < 2 and not bounds.services

    def start(self) -> State:
        b = self.bounds
        return State((Writer(),) * b.writers, NOBODY, b.deaths, b.suspects, b.expiries, b.epochs)

    def goals(self) -> dict[str, Callable[[State, State], bool]]:
        """What must stay possible: each writer lands, or is dead."""

        def lands(i: int) -> Callable[[State, State], bool]:
            return lambda s, t: t.writers[i].dead or (s.writers[i].at == "locked" and t.writers[i] == Writer())

        return {f"writer {i} lands": lands(i) for i in range(self.bounds.writers)}

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        for i, p in enumerate(s.writers):
            for what, after in self._dead(s, i, p) if p.dead else self._writer(s, i, p):
                yield f"writer {i} {what}", self._tidy(after)
        if s.epochs:
            writers = s.writers if self.rules.carried else tuple(p._replace(reserved=False) for p in s.writers)
            yield "the epoch ends", self._tidy(s._replace(writers=writers, epochs=s.epochs - 1))

    # --- a writer --------------------------------------------------------------------------------------------

    def _writer(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        rules = self.rules
        wants = p.again or bool(self.bounds.declared >> i & 1)
        match p.at:
            case "idle":
                if self.bounds.lock_first >> i & 1:
                    if s.lock == NOBODY and (not rules.lock_after_wait or not self._waits_to_begin(s, i, wants)):
                        yield "takes the lock", self.moved(s, i, p._replace(at="begin"), lock=i)
                elif not self._waits_to_begin(s, i, wants):
                    if rules.looked_at_slot:
                        yield "begins", self._begun(s, i, p, wants=wants)
                    else:
                        yield "finds nobody in the way", self.moved(s, i, p._replace(at="begin"))
            case "begin":
                if s.lock == i and self._waits_to_begin(s, i, wants):
                    if rules.lock_after_wait:
                        yield "gives the lock back", self.moved(s, i, p._replace(at="idle"), lock=NOBODY)
                else:
                    yield "begins", self._begun(s, i, p, wants=wants)
            case "reserve":
                yield "reserves", self.moved(s, i, p._replace(at="open", reserved=True))
            case "open":
                if s.lock == NOBODY:
                    yield "takes the lock", self.moved(s, i, p._replace(at="locked"), lock=i)
            case "locked":
                yield from self._decide(s, i, p)
            case "waiting":
                if not self._in_the_way(s, i):
                    yield "has waited", self.moved(s, i, p._replace(at="locked" if s.lock == i else "open"))
        yield from self._weather(s, i, p)

    def _weather(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        if s.deaths:
            yield "dies", self.moved(s, i, p._replace(dead=True), deaths=s.deaths - 1)
        if s.suspects and p.open and s.lock != i:
            yield "is taken for dead", self._again(s, i, p)._replace(suspects=s.suspects - 1)
        if s.expiries and p.at == "waiting":
            for j, other in enumerate(s.writers):
                if other.reserved and not p.ignores >> j & 1:
                    patient = p._replace(ignores=p.ignores | 1 << j)
                    yield (
                        f"has seen the reservation of {j} too long",
                        self.moved(s, i, patient, expiries=s.expiries - 1),
                    )

    def _dead(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        if s.lock == i:
            yield "(dead) has no lease any more", s._replace(lock=NOBODY)
        elif p.open and self.rules.dead_are_ended:
            yield "(dead) is rolled back", self.moved(s, i, Writer("end", dead=True))

    def _begun(self, s: State, i: int, p: Writer, *, wants: bool) -> State:
        newest = max(max(q.age, q.first) for q in s.writers) + 1
        first = newest if p.first == NOBODY else p.first
        age = first if self.rules.age_kept else newest
        at = "locked" if s.lock == i else "open"
        reserved = wants and self.rules.reserve_with_begin
        if wants and not reserved:
            at = "reserve"
        me = p._replace(at=at, age=age, first=first, open=True, reserved=reserved, met=False)
        ahead = sum(1 << j for j in range(len(s.writers)) if j != i and self._open_before(s, j, me))
        writers = tuple(q._replace(ahead=q.ahead & ~(1 << i), ignores=q.ignores & ~(1 << i)) for q in s.writers)
        return self.moved(s._replace(writers=writers), i, me._replace(ahead=ahead if wants else 0))

    def _open_before(self, s: State, j: int, me: Writer) -> bool:
        other = s.writers[j]
        return other.open and other.reserved and other.first < me.first

    def _decide(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        if p.met and not (p.reserved and not self.rules.validated):
            yield "loses", self._again(s, i, p)._replace(lock=NOBODY)
        elif self._in_the_way(s, i):
            lock = NOBODY if self.rules.waits_outside else i
            yield "waits", self.moved(s, i, p._replace(at="waiting"), lock=lock)
        else:
            landed = self.moved(s, i, Writer(), lock=NOBODY, fault=self._fault_of_landing(s, i, p))
            writers = [
                q._replace(met=True) if q.open and self._overlap(i, j) else q for j, q in enumerate(landed.writers)
            ]
            yield "lands", landed._replace(writers=tuple(writers))

    def _again(self, s: State, i: int, p: Writer) -> State:
        return self.moved(s, i, Writer(again=True, first=p.first, age=p.first if self.rules.age_kept else NOBODY))

    # --- who goes first --------------------------------------------------------------------------------------

    def _overlap(self, i: int, j: int) -> bool:
        return i != j and frozenset({i, j}) not in self.bounds.apart

    def _outranks(self, s: State, j: int, i: int, *, reserves: bool) -> bool:
        """Whether j, who has reserved, goes before i."""
        other, me, ours = s.writers[j], s.writers[i], self.bounds.priorities
        if ours and ours[i] != ours[j]:
            return ours[j] > ours[i]
        if not reserves:
            return True
        return me.age == NOBODY or other.age < me.age

    def _waits_to_begin(self, s: State, i: int, wants: bool) -> bool:
        if not (self.rules.begins_after if wants else self.bounds.whole_table):
            return False
        return any(
            q.open and q.reserved and self._overlap(i, j) and self._outranks(s, j, i, reserves=wants)
            for j, q in enumerate(s.writers)
        )

    def _in_the_way(self, s: State, i: int) -> bool:
        """Whether somebody is open for whom this one waits before it commits."""
        return any(q.open and self._overlap(i, j) and self._yields(s, i, j) for j, q in enumerate(s.writers))

    def _yields(self, s: State, i: int, j: int) -> bool:
        me, other = s.writers[i], s.writers[j]
        counts = other.reserved and self.rules.heeded_at_commit and not me.ignores >> j & 1
        if self.rules.one_order and self._yields_by_kind(j, i):
            counts = False  # a service that yields to us: we may be the one that it waits for
        if counts and self._outranks(s, j, i, reserves=me.reserved):
            return True
        priorities = self.bounds.priorities
        if priorities and priorities[i] != priorities[j]:
            return priorities[j] > priorities[i]
        if self._yields_by_kind(i, j):
            goes_first = me.reserved and not (other.reserved and other.age < me.age)
            return not (self.rules.one_order and goes_first and self.bounds.services >> j & 1)
        return False

    def _yields_by_kind(self, i: int, j: int) -> bool:
        mine, theirs = self.bounds.services >> i & 1, self.bounds.services >> j & 1
        return bool(mine < theirs) if self.bounds.plans_first else bool(mine > theirs)

    # --- the judge -------------------------------------------------------------------------------------------

    def judge(self, s: State) -> str:
        """The first promise that is broken."""
        if s.fault or not self.fair or not self.rules.heeded_at_commit:
            return s.fault
        oldest = min((p.first for p in s.writers if p.again and p.at != "end"), default=NOBODY)
        declared = any(q.reserved and not q.again for q in s.writers)  # by one that may be older
        for i, p in enumerate(s.writers):
            waits = (p.at == "waiting" and self._in_the_way(s, i)) or (
                p.at == "idle" and self._waits_to_begin(s, i, True)
            )
            if waits and p.again and p.first == oldest and not p.dead and not declared:
                return "the one that has lost first waits for another"
        return ""

    def _fault_of_landing(self, s: State, i: int, p: Writer) -> str:
        if p.met:
            return "two overlapping transactions both committed"
        if not self.fair or not self.rules.heeded_at_commit:
            return ""
        for j, q in enumerate(s.writers):
            wants = q.open and (q.again or self.bounds.declared >> j & 1)
            if wants and self._overlap(i, j) and not p.ignores >> j & 1:
                if q.first < p.first or not (p.again or self.bounds.declared >> i & 1):
                    return "somebody landed in the attempt of one that goes first"
                if q.ahead >> i & 1:
                    return "a reserver lost against one that went first and was open when it began"
        return ""

    # --- states ----------------------------------------------------------------------------------------------

    def _tidy(self, s: State) -> State:
        """Ages as ranks: only their order matters."""
        ranks = {age: n for n, age in enumerate(sorted({a for p in s.writers for a in (p.age, p.first)} - {NOBODY}))}
        ranks[NOBODY] = NOBODY
        return s._replace(writers=tuple(p._replace(age=ranks[p.age], first=ranks[p.first]) for p in s.writers))
