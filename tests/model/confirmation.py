"""A coordinator's entries before it is known whether they count: which log they are in, who is told of them, what is published.

An epoch ends, and its folder is removed once nothing that began in it is open. A coordinator that was paused meanwhile finds
emptied slots: what it puts there, and what it reads there of others who were paused, is in no log (trap 18). It looks for a
newer epoch behind each put, while its other thread puts the next entry.

The log is one list, and an epoch that closes and the next one that opens are one entry of it. Writers go on by themselves at any
time, and who asks is told at any time. That members of one entry do not overlap, and their order, is the model of coordinators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from .explore import Bounded, Goals

NOBODY = -1


class Entry(NamedTuple):
    """Of the log. ``members`` are transactions."""

    kind: str = ""
    members: tuple[int, ...] = ()


class Known(NamedTuple):
    """What a coordinator remembers of a slot."""

    epoch: int
    slot: int
    entry: Entry


class Thread(NamedTuple):
    """One of a coordinator's two: it appends entries, one after the other."""

    at: str = "idle"
    entry: Entry = Entry()
    epoch: int = NOBODY
    """In which its entry was put; ``slot``: there."""
    slot: int = NOBODY
    looked: bool = False
    """There was no newer epoch when it decided."""


class Coordinator(NamedTuple):
    """A handle of the log, which its threads use one after the other to read and put."""

    threads: tuple[Thread, ...] = (Thread(), Thread())
    epoch: int = 0
    seen: tuple[Entry, ...] = (Entry("epoch"),)
    """The log as it has read it."""
    known: tuple[Known, ...] = ()
    """Of which it may tell."""
    certain: int = 1
    """Slots that count, as far as it knows."""
    stale: bool = False
    """It has learned that its epoch is not the newest."""


class State(NamedTuple):
    """Everything at one moment. What is committed stays so, hence who is told and what is published is judged at once."""

    coordinators: tuple[Coordinator, ...]
    log: tuple[Entry, ...]
    strays: tuple[tuple[int, Entry], ...] = ()
    """In slots of the first epoch's folder after it was removed."""
    removed: bool = False
    wrong: bool = False
    """Something was published that is not committed."""


@dataclass(frozen=True)
class Rules:
    """What lets a coordinator put the next entry before it knows whether the last one counts."""

    told: str = "certain"
    """Nobody is told of more than is known to count. ``all``: of what it has read and put; ``but own``: of what stands before
    its own first entry that is in doubt."""
    looked_behind_put: bool = True
    """That an entry counts is what a look says which was made after its put."""
    own_epoch: bool = True
    """And which asks for an epoch after the one that the entry was put into, whatever the handle has read since. Off: an entry
    before one that counts is taken to count, too."""
    forgets: bool = True
    """Who finds its epoch replaced forgets what it would tell of it."""
    looked_before_publishing: bool = True
    """What stands at the end of what was read is published by the next one to append, after a look."""


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    committers: int = 2
    """Transactions that are open at the start."""
    beginners: int = 1
    """Those that ask to begin, behind them."""
    coordinators: int = 1
    ends: int = 1
    """Epochs that end."""


class Confirmation(Bounded):
    """All behaviours within the bounds."""

    processes = "coordinators"

    def start(self) -> State:
        begun = Entry("begin", tuple(range(self.bounds.committers)))
        return State((Coordinator(),) * self.bounds.coordinators, (Entry("epoch"), begun))

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        yield from self.each_moves(s, self._coordinator)
        if sum(e.kind == "epoch" for e in s.log) <= self.bounds.ends:
            yield "an epoch ends", s._replace(log=(*s.log, Entry("epoch")))
        still = _open(s.log)
        newest = _epoch(s.log)
        if newest and not s.removed and not any(t in still for e in s.log[:newest] for t in e.members):
            yield "the folder of the first epoch is removed", s._replace(removed=True)
        for t in still:
            yield f"{t} ends itself", s._replace(log=(*s.log, Entry("abort", (t,))))

    # --- coordinators ----------------------------------------------------------------------------------------

    def _coordinator(self, s: State, k: int, p: Coordinator) -> Iterator[tuple[str, State]]:
        busy = any(t.at in ("look", "decide", "put") for t in p.threads)
        for i, thread in enumerate(p.threads):
            for what, after in self._thread(s, k, p, i, thread, busy=busy):
                yield f"thread {i} {what}", after

    def _thread(
        self, s: State, k: int, p: Coordinator, i: int, t: Thread, *, busy: bool
    ) -> Iterator[tuple[str, State]]:
        match t.at:
            case "idle":
                if busy:
                    return
                read = self._restarted(s, p) if p.stale else self._read(s, p)
                yield "reads on", self._at(s, k, read, i, Thread("decide"))
            case "look":  # nothing is to be appended, or what was read is to be published: is its epoch the newest?
                yield "looks for a newer epoch", self._looked(s, k, p, i, t)
            case "decide":
                yield from self._decide(s, k, p, i)
            case "put":
                yield from self._put(s, k, p, i, t)
            case "confirm":
                yield from self._confirm(s, k, p, i, t)
            case "publish":
                yield "publishes its members", self._at(self._published(s, t.entry.members), k, p, i, Thread())

    def _read(self, s: State, p: Coordinator) -> Coordinator:
        """Read to a free slot; past the end of an epoch the next one goes on."""
        seen, known, epoch = list(p.seen), list(p.known), p.epoch
        while (found := self._at_slot(s, epoch, len(seen))) is not None:
            epoch = len(seen) if found.kind == "epoch" else epoch
            known.append(Known(epoch, len(seen), found))
            seen.append(found)
        return p._replace(seen=tuple(seen), known=tuple(known), epoch=epoch)

    def _at_slot(self, s: State, epoch: int, slot: int) -> Entry | None:
        if s.removed and not epoch:
            return dict(s.strays).get(slot)
        return s.log[slot] if slot < len(s.log) else None

    def _restarted(self, s: State, p: Coordinator) -> Coordinator:
        """Read the newest epoch from its first slot on."""
        newest = _epoch(s.log)
        fresh = tuple(Known(newest, slot, s.log[slot]) for slot in range(newest, len(s.log)))
        known = fresh if self.rules.forgets else (*p.known, *fresh)
        return p._replace(seen=s.log, known=known, epoch=newest, stale=False)

    def _looked(self, s: State, k: int, p: Coordinator, i: int, t: Thread) -> State:
        if _epoch(s.log) > p.epoch:
            return self._at(s, k, p._replace(stale=True), i, Thread())
        sure = p._replace(certain=max(p.certain, len(p.seen)))
        return self._at(self._published(s, _last_commit(p.seen)), k, sure, i, Thread())

    def _decide(self, s: State, k: int, p: Coordinator, i: int) -> Iterator[tuple[str, State]]:
        yield "has nothing to append", self._at(s, k, p, i, Thread("look"))
        if not self.rules.looked_before_publishing:
            yield "publishes what others left", self._at(self._published(s, _last_commit(p.seen)), k, p, i, Thread())
        looked = _epoch(s.log) <= p.epoch
        still, begun = _open(p.seen), _of("begin", p.seen)
        new = [t for t in range(self.bounds.committers + self.bounds.beginners) if t not in begun]
        for kind, asking in (("commit", sorted(still)), ("begin", new)):
            for size in range(1, len(asking) + 1):
                for members in combinations(asking, size):
                    entry = Entry(kind, members)
                    yield f"decides on {_named(entry)}", self._at(s, k, p, i, Thread("put", entry, looked=looked))

    def _put(self, s: State, k: int, p: Coordinator, i: int, t: Thread) -> Iterator[tuple[str, State]]:
        slot, stray = len(p.seen), s.removed and not p.epoch
        if self._at_slot(s, p.epoch, slot) is not None:
            yield "finds its slot taken", self._at(s, k, p, i, Thread())
            return
        put = {"strays": tuple(sorted((*s.strays, (slot, t.entry))))} if stray else {"log": (*s.log, t.entry)}
        mine = p._replace(seen=(*p.seen, t.entry), known=(*p.known, Known(p.epoch, slot, t.entry)))
        after = self._at(s._replace(**put), k, mine, i, t._replace(at="confirm", epoch=p.epoch, slot=slot))
        yield f"puts {_named(t.entry)} into slot {slot} of epoch {p.epoch}", after

    def _confirm(self, s: State, k: int, p: Coordinator, i: int, t: Thread) -> Iterator[tuple[str, State]]:
        replaced = _epoch(s.log) > t.epoch
        if not self.rules.looked_behind_put:
            replaced = not t.looked
        elif not self.rules.own_epoch and t.slot < p.certain:
            replaced = False
        if replaced:
            stale = p.stale or p.epoch == t.epoch
            yield "learns that its epoch was replaced", self._at(s, k, p._replace(stale=stale), i, Thread())
            return
        sure = p._replace(certain=max(p.certain, t.slot + 1))
        then = Thread("publish", t.entry) if t.entry.kind == "commit" else Thread()
        yield f"learns that slot {t.slot} counts", self._at(s, k, sure, i, then)

    def _told(self, p: Coordinator) -> list[Entry]:
        """What who asks now is told."""
        end = p.certain
        if self.rules.told != "certain":
            own = [t.slot for t in p.threads if t.at == "confirm"] if self.rules.told == "but own" else []
            end = min(own, default=len(p.seen))
        return [each.entry for each in p.known if each.slot < end]

    def _published(self, s: State, members: tuple[int, ...]) -> State:
        return s if _of("commit", s.log).issuperset(members) else s._replace(wrong=True)

    def _at(self, s: State, k: int, p: Coordinator, i: int, t: Thread) -> State:
        there = p._replace(threads=tuple(sorted((*p.threads[:i], t, *p.threads[i + 1 :]))))
        # Sorted, as are the threads: they differ by their number only.
        return s._replace(coordinators=tuple(sorted((*s.coordinators[:k], there, *s.coordinators[k + 1 :]))))

    # --- the judge -------------------------------------------------------------------------------------------

    def goals(self) -> Goals[State]:
        """What must stay possible: a coordinator reads the newest epoch, and what it has read is known to count."""

        def follows(_: State, s: State) -> bool:
            return all(p.epoch == _epoch(s.log) and p.certain == len(p.seen) for p in s.coordinators)

        return {"coordinators follow the newest epoch": follows}

    def judge(self, s: State) -> str:
        """The first invariant that does not hold."""
        if s.wrong:
            return "published what never committed"
        for told in map(self._told, s.coordinators):
            if not _of("commit", told) <= _of("commit", s.log):
                return "a writer was told that it landed, and it did not"
            if not _of("begin", told) <= _of("begin", s.log):
                return "a writer was told that it has begun, and it has not"
        return ""


def _epoch(log: tuple[Entry, ...]) -> int:
    return max(slot for slot, e in enumerate(log) if e.kind == "epoch")


def _of(kind: str, log: Sequence[Entry]) -> frozenset[int]:
    return frozenset(t for e in log if e.kind == kind for t in e.members)


def _open(log: tuple[Entry, ...]) -> frozenset[int]:
    return _of("begin", log) - _of("commit", log) - _of("abort", log)


def _last_commit(log: tuple[Entry, ...]) -> tuple[int, ...]:
    return next((e.members for e in reversed(log) if e.kind == "commit"), ())


def _named(entry: Entry) -> str:
    return f"{entry.kind}({', '.join(map(str, entry.members))})"
