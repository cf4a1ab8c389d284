"""Shared mode: a JVM writer that reads the timeline and no log writes beside ours. Designed, not built yet.

Here the lock is mandatory and exclusive, as far as it goes: a lease of ours may end while its holder is suspended, and
its holder finds out by its own clock. A commit entry is an intention; what counts is its *publication*, under the held
lock, after a second look at the timeline. All writers change one file group. T is the order of the begins, C that of the
completed instants. Sets of writers are bit masks; ours come first, the stranger is the last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from .explore import Bounded

NOBODY = -1


class Writer(NamedTuple):
    """One of ours, or the stranger."""

    at: str = "begin"
    t: int = NOBODY
    seen: int = 0
    """The completed ones that its snapshot holds."""
    newest: int = NOBODY
    """The stranger's: the largest completed T at its begin."""
    pending: int = 0
    """The stranger's: those that were pending at its begin."""


class State(NamedTuple):
    """Everything at one moment."""

    writers: tuple[Writer, ...]
    lock: int = NOBODY
    times: int = 0
    completed: tuple[int, ...] = ()
    requested: int = 0
    rollbacks: int = 0
    """Named by rollback instants on the timeline."""
    files: int = 0
    intended: int = 0
    ended: int = 0
    """By an abort or rollback entry."""
    silent: int = 0
    """Their heartbeat has once been silent for the time-out."""
    acknowledged: int = 0
    told_lost: int = 0
    shown: int = 0
    target: tuple[str, int] = ("look", NOBODY)
    """The stranger's rollback of one of ours."""
    helper: tuple[str, int] = ("look", NOBODY)
    """Another of ours who comes upon a dead one."""
    endings: int = 0


@dataclass(frozen=True)
class Rules:
    """What keeps shared mode as safe as its lock."""

    begun_under_lock: bool = True
    """T, the begin entry and the requested instant are put under the lock: T is above all there. [1]"""
    validated_again: bool = True
    """Whoever lost his lease after the entry looks at the timeline again before he publishes. [3]"""
    published_under_lock: bool = True
    """Nobody publishes without the lock."""
    pending_looked_at: bool = True
    """Before publication: one's own requested instant is there, and no rollback instant names it. [3]"""
    nobody_publishes_for_others: bool = True
    """An intention of a dead writer is rolled back, not published. [3]"""
    silence_stops: bool = True
    """A writer whose own heartbeat was silent for the time-out does not publish any more."""
    readers_wait: bool = True
    """Readers do not merge intentions."""


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    ours: int = 2
    endings: int = 1
    """Leases of ours that end."""
    rolls_back: bool = False
    """The stranger rolls back what is silent, without a second look under the lock."""
    eager: bool = False
    """It rolls back whatever is pending, silent or not, with that look."""
    helper: bool = False


class Stranger(Bounded):
    """All behaviours within the bounds."""

    def start(self) -> State:
        return State((Writer(),) * (self.bounds.ours + 1), endings=self.bounds.endings)

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        for i, p in enumerate(s.writers[:-1]):
            for what, after in self._ours(s, i, p):
                yield f"writer {i} {what}", after
        for what, after in self._stranger(s, len(s.writers) - 1, s.writers[-1]):
            yield f"stranger {what}", after
        if self.bounds.rolls_back or self.bounds.eager:
            yield from self._rolls_back(s)
        if self.bounds.helper:
            yield from self._helps(s)
        if s.endings and 0 <= s.lock < self.bounds.ours:
            yield f"the lease of {s.lock} ends", s._replace(lock=NOBODY, endings=s.endings - 1)

    # --- ours ------------------------------------------------------------------------------------------------

    def _ours(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        bit = 1 << i
        match p.at:
            case "begin":
                if not self.rules.begun_under_lock:
                    yield "picks its T", self.moved(s, i, p._replace(at="late", t=s.times), times=s.times + 1)
                elif s.lock == NOBODY:
                    begun = p._replace(at="write", t=s.times, seen=_set(s.completed))
                    yield (
                        "takes the lock and begins",
                        self.moved(s, i, begun, times=s.times + 1, requested=s.requested | bit),
                    )
            case "late":
                begun = p._replace(at="write", seen=_set(s.completed))
                yield "puts its begin entry and request", self.moved(s, i, begun, requested=s.requested | bit)
            case "write":
                yield "writes its file", self.moved(s, i, p._replace(at="lock"), files=s.files | bit)
            case "lock" | "lock again":
                if s.lock == NOBODY:
                    at = "publish" if p.at == "lock again" and not self.rules.validated_again else "decide"
                    yield "takes the lock", self.moved(s, i, p._replace(at=at), lock=i)
            case "decide":
                if s.lock != i:
                    yield "finds its lease ended", self.moved(s, i, p._replace(at="lock"))
                elif i in s.completed:
                    known = s._replace(lock=NOBODY, acknowledged=s.acknowledged | bit)
                    yield "finds itself published", self.moved(known, i, p._replace(at="end"))
                elif self._may(s, i, p):
                    yield "puts its commit entry", self.moved(s, i, p._replace(at="publish"), intended=s.intended | bit)
                else:
                    yield "loses", self._lost(s, i, p)
            case "publish":
                if s.lock == i or not self.rules.published_under_lock:
                    if self.rules.silence_stops and s.silent & bit:
                        yield "has been silent, and gives up", self._lost(s, i, p)
                    else:
                        lock = NOBODY if s.lock == i else s.lock
                        yield (
                            "publishes",
                            self.moved(
                                s,
                                i,
                                p._replace(at="end"),
                                lock=lock,
                                completed=(*s.completed, i),
                                acknowledged=s.acknowledged | bit,
                            ),
                        )
                else:
                    yield "finds its lease ended", self.moved(s, i, p._replace(at="lock again"))
        if (
            (self.bounds.rolls_back or self.bounds.helper)
            and p.at not in ("begin", "late", "end")
            and not s.silent & bit
        ):
            yield "is silent for the time-out", s._replace(silent=s.silent | bit)

    def _may(self, s: State, i: int, p: Writer) -> bool:
        """Everything that is looked at under the lock before the entry, and again before the publication."""
        bit = 1 << i
        if s.ended & bit or _set(s.completed) & ~p.seen:
            return False
        return not self.rules.pending_looked_at or bool(s.requested & bit and not s.rollbacks & bit)

    def _lost(self, s: State, i: int, p: Writer) -> State:
        """abort(T), then the files, then the pending instant; the lock goes back."""
        bit = 1 << i
        return self.moved(
            s, i, p._replace(at="end"), lock=NOBODY if s.lock == i else s.lock, ended=s.ended | bit,
            files=s.files & ~bit, requested=s.requested & ~bit, told_lost=s.told_lost | bit,
        )  # fmt: skip

    def _helps(self, s: State) -> Iterator[tuple[str, State]]:
        """Another one of ours finds a silent transaction; under the lock, so that its writer is not publishing."""
        at, target = s.helper
        if at == "look":
            for i in range(self.bounds.ours):
                if s.silent >> i & 1 and not (_set(s.completed) | s.ended) >> i & 1:
                    yield f"a helper takes {i} for dead", s._replace(helper=("end", i))
        elif at == "end" and s.lock == NOBODY:
            bit = 1 << target
            if (_set(s.completed) | s.ended) & bit:
                yield f"a helper finds that {target} has an end", s._replace(helper=("done", NOBODY))
            elif s.intended & bit and not self.rules.nobody_publishes_for_others:
                done = s._replace(helper=("done", NOBODY), completed=(*s.completed, target))
                yield f"a helper publishes {target}", done
            else:
                ended = s._replace(ended=s.ended | bit, files=s.files & ~bit, requested=s.requested & ~bit)
                yield f"a helper rolls {target} back", ended._replace(helper=("done", NOBODY))

    # --- the stranger ----------------------------------------------------------------------------------------

    def _stranger(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        bit = 1 << i
        match p.at:
            case "begin":
                if s.lock == NOBODY:
                    newest = max((s.writers[j].t for j in s.completed), default=NOBODY)
                    begun = Writer("write", s.times, _set(s.completed), newest, s.requested & ~_set(s.completed))
                    yield "begins", self.moved(s, i, begun, times=s.times + 1)
            case "write":
                yield "writes its file", self.moved(s, i, p._replace(at="commit"), files=s.files | bit)
            case "commit":
                if s.lock == NOBODY:
                    # Measured: it compares with what is newer than the newest that it knew, and with what was pending.
                    new = [j for j in s.completed if s.writers[j].t > p.newest or p.pending >> j & 1]
                    if any(not p.seen >> j & 1 for j in new):
                        yield "loses", self.moved(s, i, p._replace(at="end"), files=s.files & ~bit)
                    else:
                        yield "publishes", self.moved(s, i, p._replace(at="end"), completed=(*s.completed, i))

    def _rolls_back(self, s: State) -> Iterator[tuple[str, State]]:
        at, target = s.target
        match at:
            case "look":
                for i in range(self.bounds.ours):
                    pending = s.requested >> i & 1 and i not in s.completed
                    if pending and (self.bounds.eager or s.silent >> i & 1):
                        yield f"stranger takes {i} for failed", s._replace(target=("plan", i))
            case "plan":
                if s.lock == NOBODY:
                    if self.bounds.eager and target in s.completed:
                        yield f"stranger finds {target} completed", s._replace(target=("done", NOBODY))
                    else:
                        yield (
                            f"stranger plans the rollback of {target}",
                            s._replace(target=("delete", target), rollbacks=s.rollbacks | 1 << target),
                        )
            case "delete":
                gone = s._replace(files=s.files & ~(1 << target), target=("withdraw", target))
                yield f"stranger deletes the file of {target}", gone
            case "withdraw":
                yield (
                    f"stranger withdraws {target}",
                    s._replace(requested=s.requested & ~(1 << target), target=("done", NOBODY)),
                )

    # --- the judge -------------------------------------------------------------------------------------------

    def judge(self, s: State) -> str:
        """The first invariant that does not hold."""
        landed = _set(s.completed)
        if len(s.completed) != landed.bit_count():
            return "an instant is published twice"
        if landed & ~s.files:
            return "files of a published commit are deleted"
        if landed & s.ended:
            return "a transaction is both published and ended"
        if landed & s.told_lost:
            return "a writer was told that nothing landed, and its commit landed"
        for n, later in enumerate(s.completed):
            for earlier in s.completed[:n]:
                if not s.writers[later].seen >> earlier & 1:
                    return "two overlapping transactions both committed"
                if s.writers[earlier].t >= s.writers[later].t:
                    return "a T above that of its successor, which readers then miss"
        if not self.rules.readers_wait and s.intended & (s.ended | ~s.files) & ~landed:
            return "a reader has shown what never landed"
        return ""


def _set(writers: tuple[int, ...]) -> int:
    return sum(1 << i for i in writers)
