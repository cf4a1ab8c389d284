"""A foreign writer of Hudi, which reads the timeline and no log, beside ours: the timeline comes first.

The lock is mandatory and exclusive as far as it goes. The *completed instant* is the commit; the log entry follows it.
Each holder of ours imports what is completed and unknown to the log before it decides. A lease of ours may end while
its holder is paused, so the holder asks for it immediately before the put. A pause between question and put cannot be
excluded, nor can Hudi's own writers exclude it: it must be noticed at the next import. A foreign writer reads the
timeline some time after it has taken T; what has completed before that, it takes for older than its own work. Foreign
ones are slower than each other's begins: Hudi has no rule for that. All writers change one file group
until they rebase into a new one. T is the order of the begins, C that of the completed instants. Sets of writers are bit
masks; ours come first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from .explore import Bounded, Goals

NOBODY = -1
CLEANER = -2


class Writer(NamedTuple):
    """One of ours, or a foreign one."""

    at: str = "begin"
    t: int = NOBODY
    seen: int = 0
    """The commits that its snapshot, or its last merge, holds."""
    rebased: bool = False
    """Its rows are in a file group of their own, which no T of others can hide."""
    imported: int = 0
    """The number of completed instants at its last import."""
    newest: int = NOBODY
    """A foreign writer's: the largest completed T at its begin."""
    pending: int = 0
    """A foreign writer's: those that were pending at its begin."""
    beyond: bool = False
    """It has begun after the foreign restore."""
    moved: bool = False
    """It has begun, or merged again, after the foreign clustering."""


class State(NamedTuple):
    """Everything at one moment."""

    writers: tuple[Writer, ...]
    lock: int = NOBODY
    times: int = 0
    completed: tuple[int, ...] = ()
    """The timeline, in the order of C."""
    log: tuple[int, ...] = ()
    """The commits of the log, ours and imported ones."""
    open: int = 0
    """They have a begin entry."""
    ended: int = 0
    """They have an abort or rollback entry."""
    requested: int = 0
    rollbacks: int = 0
    """Named by rollback instants on the timeline."""
    files: int = 0
    silent: int = 0
    """Their heartbeat has once been silent for the time-out."""
    acknowledged: int = 0
    told_lost: int = 0
    cleaner: tuple[str, int] = ("look", NOBODY)
    """Another of ours, who comes upon one that is silent."""
    target: tuple[str, int] = ("look", NOBODY)
    """A foreign writer's rollback of one of ours."""
    restore: str = "later"
    """How far a foreign restore is: it has been planned, or has deleted, or is done."""
    taken: int = 0
    """The commits that it takes back."""
    clustering: str = "later"
    """How far a foreign clustering of the file group is: it has been planned, or is done."""
    moves: int = 0
    """The commits whose rows it takes along: those that were completed when it was planned."""
    endings: int = 0
    pauses: int = 0
    deaths: int = 0
    unsafe: bool = False
    """Somebody has published without the lock."""
    unnoticed: bool = False
    """One of ours has committed although its import saw a commit that another one had skipped."""


@dataclass(frozen=True)
class Rules:
    """What keeps the table as safe as its lock."""

    begun_under_lock: bool = True
    """T, the begin entry and the requested instant are put under the lock: T is above all there. [1]"""
    lease_after_request: bool = True
    """A writer that finds its lease ended after its requested instant aborts. [1]

    A foreign writer may have begun between T and that instant, and would not compare with it."""
    imported_before_decision: bool = True
    """The timeline is listed again under the commit's lock. [3]"""
    timeline_first: bool = True
    """The completed instant is put before the log's commit entry. [3]"""
    lease_asked: bool = True
    """The lock's service is asked for the lease immediately before the put."""
    pending_looked_at: bool = True
    """Before the put: one's own requested instant is there, and no rollback instant names it. [3]"""
    waits_for_begins: bool = True
    """Nobody of ours publishes over a foreign writer with a smaller T that may not have read the timeline. [1]"""
    waits_for_restores: bool = True
    """Nobody of ours publishes while a foreign restore is planned: its plan does not name what comes later. [4]"""
    restores_imported: bool = True
    """Who has begun before a foreign restore loses. [4]"""
    waits_for_clusterings: bool = True
    """Nobody of ours publishes while a foreign clustering of its file group is planned: it replaces the group unread."""
    clusterings_imported: bool = True
    """Who has begun before a foreign clustering was completed merges again, or loses: its file group is replaced."""
    silence_stops: bool = True
    """A writer whose own heartbeat was silent for the time-out does not publish any more. [13]"""
    rolled_back_under_lock: bool = True
    """A silent transaction is rolled back by ours under the lock only."""
    imported_before_rollback: bool = True
    """The timeline is listed before the rollback entry: a T that is completed there has committed. [3]"""
    skips_noticed: bool = True
    """Each import compares every commit with those before it, and stops our writers when one was skipped."""


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    ours: int = 2
    foreign: int = 1
    rounds: bool = True
    """Ours may merge again instead of losing."""
    endings: int = 0
    """Leases of ours that end."""
    pauses: int = 0
    """Puts of ours after their lease has ended, though it was there when it was asked for; and of foreign ones."""
    deaths: int = 0
    """Of ours, at any step."""
    lazy: bool = False
    """The foreign writer rolls back what is silent, without a second look under the lock."""
    eager: bool = False
    """It rolls back whatever is pending, silent or not, with that look."""
    cleaner: bool = False
    restore: bool = False
    """A foreign process takes all back that is completed."""
    clustering: bool = False
    """A foreign process clusters the file group. It compares with nothing: foreign writers keep away from its plan."""


class Neighbours(Bounded):
    """All behaviours within the bounds."""

    def start(self) -> State:
        b = self.bounds
        return State((Writer(),) * (b.ours + b.foreign), endings=b.endings, pauses=b.pauses, deaths=b.deaths)

    def goals(self) -> Goals[Any]:
        return {"everybody ends": lambda _s, t: all(p.at in ("end", "dead") for p in t.writers)}

    def steps(self, s: State) -> Iterator[tuple[str, State]]:
        for i, p in enumerate(s.writers):
            name = f"writer {i}" if i < self.bounds.ours else f"foreign writer {i}"
            for what, after in self._ours(s, i, p) if i < self.bounds.ours else self._foreign(s, i, p):
                yield f"{name} {what}", after
        if self.bounds.lazy or self.bounds.eager:
            yield from self._foreign_rolls_back(s)
        if self.bounds.cleaner:
            yield from self._cleans(s)
        if self.bounds.restore:
            yield from self._foreign_restores(s)
        if self.bounds.clustering:
            yield from self._foreign_clusters(s)
        if 0 <= s.lock < self.bounds.ours:
            if s.writers[s.lock].at == "dead":
                yield f"the lock of {s.lock}, which is dead, is removed", s._replace(lock=NOBODY)
            elif s.endings:
                yield f"the lease of {s.lock} ends", s._replace(lock=NOBODY, endings=s.endings - 1)

    # --- ours ----------------------------------------------------------------------------------------------------

    def _ours(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        bit = 1 << i
        match p.at:
            case "begin":
                if not self.rules.begun_under_lock:
                    yield "picks its T", self.moved(s, i, p._replace(at="import first", t=s.times), times=s.times + 1)
                elif s.lock == NOBODY:
                    yield "takes the lock", self.moved(s, i, p._replace(at="import first"), lock=i)
            case "import first":
                yield from self._imports(s, i, p, "place")
            case "place":
                t, times = (s.times, s.times + 1) if p.t == NOBODY else (p.t, s.times)
                begun = p._replace(at="request", t=t, seen=_set(s.log))
                begun = begun._replace(beyond=s.restore == "done", moved=s.clustering == "done")
                yield "puts its begin entry", self.moved(s, i, begun, times=times, open=s.open | bit)
            case "request":
                lost = self.rules.begun_under_lock and self.rules.lease_after_request and s.lock != i
                after = self.moved(s, i, p._replace(at="write"), requested=s.requested | bit, lock=_without(s, i))
                yield "puts its requested instant", self._ends(after, i, after.writers[i]) if lost else after
            case "write":
                yield "writes its file", self.moved(s, i, p._replace(at="lock"), files=s.files | bit)
            case "lock":
                if s.lock == NOBODY:
                    at = "import" if self.rules.imported_before_decision else "decide"
                    yield "takes the lock", self.moved(s, i, p._replace(at=at), lock=i)
            case "import":
                yield from self._imports(s, i, p, "decide")
            case "decide":
                if s.lock != i:
                    yield "finds its lease ended", self.moved(s, i, p._replace(at="lock"))
                elif not self._may(s, i):
                    yield "has been rolled back", self._ends(s, i, p)
                elif self.rules.restores_imported and s.restore == "done" and not p.beyond:
                    yield "loses against the restore", self._ends(s, i, p)
                elif (unseen := _set(s.log) & ~(p.seen | bit)) or self._was_moved(s, p):
                    yield f"loses against {unseen:b}", self._ends(s, i, p)
                    if self.bounds.rounds and not p.rebased:
                        merged = p._replace(at="lock", seen=_set(s.log), rebased=True, moved=s.clustering == "done")
                        yield "merges again", self.moved(s, i, merged, lock=NOBODY)
                elif self.rules.timeline_first:
                    yield "may commit", self.moved(s, i, p._replace(at="put"))
                else:
                    yield "puts its commit entry", self.moved(s, i, p._replace(at="put"), log=(*s.log, i))
            case "put":
                yield from self._puts(s, i, p)
            case "log":
                # Who took the lock since may have imported it.
                log = s.log if i in s.log else (*s.log, *(j for j in s.completed if j not in s.log))
                done = p._replace(at="end")
                yield (
                    "puts its commit entry",
                    self.moved(s, i, done, log=log, acknowledged=s.acknowledged | bit, lock=_without(s, i)),
                )
        if p.at not in ("begin", "end", "dead"):
            if s.deaths:
                yield "dies", self.moved(s, i, p._replace(at="dead"), deaths=s.deaths - 1, silent=s.silent | bit)
            if (self.bounds.lazy or self.bounds.cleaner) and not s.silent & bit:
                yield "is silent for the time-out", s._replace(silent=s.silent | bit)

    def _imports(self, s: State, i: int, p: Writer, then: str) -> Iterator[tuple[str, State]]:
        new = tuple(j for j in s.completed if j not in s.log)
        if self.rules.skips_noticed and self._skipped(s, len(s.completed)):
            yield "notices a commit that was skipped, and stops", self._ends(s, i, p)
        else:
            seen = p._replace(at=then, imported=len(s.completed))
            left = tuple(j for j in s.log if s.restore != "done" or not s.taken >> j & 1)
            yield f"imports {list(new)}", self.moved(s, i, seen, log=(*left, *new))

    def _may(self, s: State, i: int) -> bool:
        """Return True if all that is looked at before the put, except the lease, allows it."""
        bit = 1 << i
        if s.ended & bit or (self.rules.silence_stops and s.silent & bit):
            return False
        return not self.rules.pending_looked_at or bool(s.requested & bit and not s.rollbacks & bit)

    def _puts(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        planned = self.rules.waits_for_restores and s.restore in ("planned", "deleted")
        planned = planned or (self.rules.waits_for_clusterings and s.clustering == "planned")
        if planned or (self.rules.waits_for_begins and self._begins_below(s, p.t)):
            yield "waits for a foreign writer", self.moved(s, i, p._replace(at="lock"), lock=_without(s, i))
            if planned or not s.pauses:
                return
            # The foreign one is paused for longer than it is waited for.
            s = s._replace(pauses=s.pauses - 1, unsafe=True)
        if s.lock != i and self.rules.lease_asked:
            yield "finds its lease ended", self.moved(s, i, p._replace(at="lock"))
            if not s.pauses:
                return
        if s.lock == i and not self._may(s, i):
            yield "has been rolled back", self._ends(s, i, p)
            return
        unsafe = s.lock != i and self.rules.lease_asked
        at = "log" if self.rules.timeline_first else "end"
        yield (
            "was paused, and publishes" if unsafe else "publishes",
            self.moved(
                s, i, p._replace(at=at), completed=(*s.completed, i),
                unsafe=s.unsafe or unsafe, pauses=s.pauses - unsafe,
                unnoticed=s.unnoticed or self._skipped(s, p.imported),
                acknowledged=s.acknowledged | (0 if self.rules.timeline_first else 1 << i),
                lock=s.lock if self.rules.timeline_first else _without(s, i),
            ),
        )  # fmt: skip

    def _was_moved(self, s: State, p: Writer) -> bool:
        return self.rules.clusterings_imported and s.clustering == "done" and not p.moved

    def _begins_below(self, s: State, t: int) -> bool:
        return any(f.at == "read" and f.t < t for f in s.writers[self.bounds.ours :])

    def _ends(self, s: State, i: int, p: Writer) -> State:
        """Append abort(T), then delete the files, then the pending instant; give the lock back."""
        bit = 1 << i
        return self.moved(
            s, i, p._replace(at="end"), lock=_without(s, i), ended=s.ended | bit,
            files=s.files & ~bit, requested=s.requested & ~bit, told_lost=s.told_lost | bit,
        )  # fmt: skip

    def _cleans(self, s: State) -> Iterator[tuple[str, State]]:
        """Another one of ours finds a silent transaction, which may be alive."""
        at, i = s.cleaner
        bit = 1 << i if i >= 0 else 0
        match at:
            case "look":
                for i in range(self.bounds.ours):
                    if (s.silent & s.open & ~s.ended) >> i & 1 and i not in s.log:
                        yield f"a cleaner takes {i} for dead", s._replace(cleaner=("list", i))
            case "list" if s.lock == NOBODY or not self.rules.rolled_back_under_lock:
                if self.rules.rolled_back_under_lock:
                    s = s._replace(lock=CLEANER)
                if self.rules.imported_before_rollback:
                    if self.rules.skips_noticed and self._skipped(s, len(s.completed)):
                        stopped = s._replace(cleaner=("done", NOBODY), lock=_without(s, CLEANER))
                        yield "a cleaner notices a commit that was skipped", stopped
                        return
                    s = s._replace(log=(*s.log, *(j for j in s.completed if j not in s.log)))
                yield "a cleaner lists the timeline", s._replace(cleaner=("roll back", i))
            case "roll back":
                s = s._replace(lock=_without(s, CLEANER))
                if i in s.log or s.ended & bit:
                    yield f"a cleaner finds that {i} has an end", s._replace(cleaner=("done", NOBODY))
                else:
                    yield f"a cleaner rolls {i} back", s._replace(ended=s.ended | bit, cleaner=("sweep", i))
            case "sweep":
                swept = s._replace(files=s.files & ~bit, requested=s.requested & ~bit, cleaner=("done", NOBODY))
                yield f"a cleaner deletes what {i} left", swept

    # --- foreign writers -----------------------------------------------------------------------------------------

    def _foreign(self, s: State, i: int, p: Writer) -> Iterator[tuple[str, State]]:
        bit = 1 << i
        match p.at:
            case "begin":
                if s.lock == NOBODY:
                    yield "begins", self.moved(s, i, Writer("read", s.times), times=s.times + 1)
            case "read":
                newest = max((s.writers[j].t for j in s.completed), default=NOBODY)
                known = _set(s.completed)
                read = p._replace(at="write", seen=known, newest=newest, pending=s.requested & ~known)
                yield "reads the timeline", self.moved(s, i, read)
            case "write":
                yield "writes its file", self.moved(s, i, p._replace(at="commit"), files=s.files | bit)
            case "commit" if s.lock == NOBODY and not self._begins_below(s, p.t):
                # Measured: it compares with what is newer than the newest that it knew, and with what was pending.
                new = [j for j in s.completed if s.writers[j].t > p.newest or p.pending >> j & 1]
                if any(not p.seen >> j & 1 for j in new):
                    yield "loses", self.moved(s, i, p._replace(at="end"), files=s.files & ~bit)
                    return
                yield "publishes", self.moved(s, i, p._replace(at="end"), completed=(*s.completed, i))
                if s.pauses:
                    yield "is paused", self.moved(s, i, p._replace(at="publish"), pauses=s.pauses - 1)
            case "publish":
                done = p._replace(at="end")
                yield "wakes up and publishes", self.moved(s, i, done, completed=(*s.completed, i), unsafe=True)

    def _foreign_rolls_back(self, s: State) -> Iterator[tuple[str, State]]:
        at, i = s.target
        bit = 1 << i if i >= 0 else 0
        match at:
            case "look":
                for i in range(self.bounds.ours):
                    pending = s.requested >> i & 1 and i not in s.completed
                    if pending and (self.bounds.eager or s.silent >> i & 1):
                        yield f"a foreign writer takes {i} for failed", s._replace(target=("plan", i))
            case "plan":
                if s.lock == NOBODY:
                    if self.bounds.eager and i in s.completed:
                        yield f"a foreign writer finds {i} completed", s._replace(target=("done", NOBODY))
                    else:
                        planned = s._replace(target=("delete", i), rollbacks=s.rollbacks | bit)
                        yield f"a foreign writer plans the rollback of {i}", planned
            case "delete":
                gone = s._replace(files=s.files & ~bit, target=("withdraw", i))
                yield f"a foreign writer deletes the file of {i}", gone
            case "withdraw":
                gone = s._replace(requested=s.requested & ~bit, target=("done", NOBODY))
                yield f"a foreign writer withdraws {i}", gone

    def _foreign_restores(self, s: State) -> Iterator[tuple[str, State]]:
        match s.restore:
            case "later" if s.lock == NOBODY and s.completed:
                yield "a restore is planned", s._replace(restore="planned", taken=_set(s.completed))
            case "planned":
                left = tuple(j for j in s.completed if not s.taken >> j & 1)
                gone = s._replace(restore="deleted", completed=left, files=s.files & ~s.taken)
                yield "the restore deletes instants and files", gone
            case "deleted":
                yield "the restore is completed", s._replace(restore="done")

    def _foreign_clusters(self, s: State) -> Iterator[tuple[str, State]]:
        match s.clustering:
            case "later" if s.lock == NOBODY and s.completed:
                yield "a clustering is planned", s._replace(clustering="planned", moves=_set(s.completed))
            case "planned" if s.lock == NOBODY:
                yield "the clustering is completed", s._replace(clustering="done")

    # --- the judge -----------------------------------------------------------------------------------------------

    def judge(self, s: State) -> str:
        """The first invariant that does not hold."""
        committed = _set(s.completed)
        if s.unnoticed:
            return "a skipped commit went unnoticed"
        if any(s.writers[i].seen & s.taken for i in s.completed if not s.taken >> i & 1):
            return "a commit stands on what was taken back"
        if s.clustering == "done" and self._left_behind(s):
            return "a commit stands in a file group that a clustering has replaced"
        if s.acknowledged & ~committed & ~s.taken:
            return "an acknowledged commit is on no timeline"
        log = tuple(i for i in s.log if not s.taken >> i & 1)
        if _set(log) & ~committed:
            if not self._still_puts(s):
                return "the log holds a commit that is on no timeline"
        elif log != tuple(i for i in s.completed if not s.taken >> i & 1)[: len(log)] and not s.unsafe:
            return "the log has not the order of the timeline"
        if s.unsafe:
            return ""
        if len(s.completed) != committed.bit_count():
            return "an instant is published twice"
        if committed & ~s.files:
            return "files of a published commit are deleted"
        if committed & s.ended:
            return "a transaction is both committed and ended"
        if committed & s.told_lost:
            return "a writer was told that nothing landed, and its commit landed"
        return self._overlapping(s, len(s.completed))

    def _left_behind(self, s: State) -> bool:
        return any(not s.moves >> i & 1 and not s.writers[i].moved for i in s.completed)

    def _still_puts(self, s: State) -> bool:
        """An entry may stand before its instant, as long as its writer is there to put it."""
        left = (i for i in s.log if i not in s.completed and not s.taken >> i & 1)
        return all(s.writers[i].at == "put" for i in left)

    def _skipped(self, s: State, count: int) -> bool:
        """Return True if an import can see that a commit was skipped, or that one was ended or lacks its files."""
        first = _set(s.completed[:count])
        return bool(first & (s.ended | ~s.files)) or bool(self._overlapping(s, count))

    def _overlapping(self, s: State, count: int) -> str:
        for n, later in enumerate(s.completed[:count]):
            for earlier in s.completed[:n]:
                if not s.writers[later].seen >> earlier & 1:
                    return "two overlapping transactions both committed"
                if s.writers[earlier].t >= s.writers[later].t and not s.writers[later].rebased:
                    return "a T above that of its successor, which readers then miss"
        return ""


def _set(writers: tuple[int, ...]) -> int:
    return sum({1 << i for i in writers})


def _without(s: State, i: int) -> int:
    return NOBODY if s.lock == i else s.lock
