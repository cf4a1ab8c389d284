"""A writer: begin, write, commit, publish. Each step is one store operation; between any two the others may move.

A writer that is never scheduled again is a crashed or paused one, so no step stands for that. There is no lock either:
every writer behaves as one whose lease nobody respects, the worst that two holders at once can do.
"""

from __future__ import annotations

from collections.abc import Iterator

from .log import NOBODY, Entry, Log
from .state import State, World, Writer, bit

Steps = Iterator[tuple[str, State]]


class WriterSteps:
    """What a writer may do next, for every place it can be at."""

    def __init__(self, world: World) -> None:
        self.world, self.rules = world, world.rules

    def __call__(self, s: State, i: int, p: Writer) -> Steps:
        txn = self.world.identity(i, p.attempt)
        match p.at:
            case "begin:read":
                yield from self._begin_read(s, i, p, txn)
            case "begin:late":
                # Without a begin entry: T was picked before, the snapshot is read now.
                view = s.read_on(p.view)
                yield (
                    "reads its snapshot",
                    s.step(
                        i,
                        p._replace(
                            at="write:marker",
                            view=view,
                            base=len(view),
                            seen=view.committed | s.published,
                            relied=view.changes,
                        ),
                    ),
                )
            case "begin:put" | "begin:doubt":
                yield from self._append(s, i, p)
            case "begin:check":
                yield from self._begin_check(s, i, p, txn)
            case "write:marker":
                marked = s.step(i, p._replace(at="write:file"), markers=s.markers | bit(txn))
                if self.world.bounds.files_apart:
                    yield "puts its marker", marked
                else:
                    yield (
                        "puts marker and file",
                        s.step(i, p._replace(at="commit:read"), markers=s.markers | bit(txn), files=s.files | bit(txn)),
                    )
            case "write:file":
                yield "writes its file", s.step(i, p._replace(at="commit:read"), files=s.files | bit(txn))
            case "commit:read":
                yield from self._commit_read(s, i, p, txn)
            case "commit:check":
                if s.hist.epoch == p.view.epoch:
                    yield from self._decide(s, i, p, p.view, txn, "finds its epoch the newest")
                else:
                    yield "finds a newer epoch", s.step(i, p._replace(view=s.newest()))
            case "commit:put" | "commit:doubt":
                yield from self._append(s, i, p)
            case "commit:confirm":
                yield from self._confirm(s, i, p, txn)
            case "publish:earlier":
                after = s._replace(published=s.published | bit(p.view.last))
                yield from self._decide(after, i, p, p.view, txn, f"publishes {p.view.last}")
            case "publish:own":
                s = s._replace(published=s.published | bit(txn), acknowledged=s.acknowledged | bit(txn))
                if self.world.bounds.cleaners:
                    yield "publishes its commit", s.step(i, Writer("tidy", _nothing(), p.attempt))
                else:
                    yield "publishes its commit", self._next_attempt(s._replace(markers=s.markers & ~bit(txn)), i, p)
            case "tidy":
                yield "deletes its marker", self._next_attempt(s._replace(markers=s.markers & ~bit(txn)), i, p)
            case "undo:file":
                yield "deletes its file", s.step(i, p._replace(at="undo:marker"), files=s.files & ~bit(txn))
            case "undo:marker":
                yield "deletes its marker", self._next_attempt(s._replace(markers=s.markers & ~bit(txn)), i, p)

    # begin

    def _begin_read(self, s: State, i: int, p: Writer, txn: int) -> Steps:
        view = s.read_on(p.view)
        if view.closed:
            if s.hist.epoch == view.epoch:
                return
            view = s.newest()
        t = p.t if p.t and not self.rules.repick_t else view.time + 1
        seen = 0 if self.rules.log_before_timeline else s.published
        if self.rules.begin_in_log:
            moved = p._replace(at="begin:put", view=view, t=t, seen=seen, entry=Entry("begin", txn, t))
        else:
            moved = p._replace(at="begin:late", view=view, t=t)
        yield f"reads to slot {len(view)} and picks T={t}", s.step(i, moved)

    def _begin_check(self, s: State, i: int, p: Writer, txn: int) -> Steps:
        assert p.entry is not None
        newest = s.hist.epoch != p.view.epoch and self.rules.recheck_after_put
        if newest:
            view = s.newest()
            if txn not in view.open:
                # It did not count, or it did and a cleaner ended it. Nothing is written yet.
                if txn in s.hist.begins:
                    yield (
                        "finds itself rolled back",
                        self._next_attempt(s._replace(told_lost=s.told_lost | bit(txn)), i, p),
                    )
                else:
                    yield "finds its begin void", s.step(i, Writer("begin:read", view, p.attempt))
                return
            base = view.open[txn][1]
        else:
            base, view = len(p.view), p.view.plus(p.entry)
        # Epochs before the one that we began in are no evidence: their folders may be gone, and strays in their place.
        before = Log.of(view.entries[:base]).settled
        if self.rules.log_before_timeline:
            # The timeline may show later commits by now; their C is greater than our T.
            before |= s.published & _before(s.hist, p.t)
        else:
            before |= p.seen
        relied = Log.of(view.entries[:base]).changes
        p = p._replace(at="write:marker", view=view, base=base, seen=before, relied=relied, entry=None)
        if self.world.bounds.cleaners:
            yield "has begun", s.step(i, p)
        else:  # nobody else looks at files and markers
            written = s.step(i, p._replace(at="commit:read"), files=s.files | bit(txn), markers=s.markers | bit(txn))
            yield "has begun and writes", written

    # commit

    def _commit_read(self, s: State, i: int, p: Writer, txn: int) -> Steps:
        view = s.read_on(p.view)
        if view.closed:
            if s.hist.epoch == view.epoch:
                return
            view = s.newest()
        if self.rules.recheck_after_read:
            yield f"reads to slot {len(view)}", s.step(i, p._replace(at="commit:check", view=view, entry=None))
            # An entry may be proposed at once: what was read of an epoch that is the newest after the put was true.
            if txn in view.open and (view.last == NOBODY or s.published >> view.last & 1):
                yield from self._decide(s, i, p._replace(entry=None), view, txn, f"reads to slot {len(view)}")
        else:
            yield from self._decide(s, i, p._replace(entry=None), view, txn, f"reads to slot {len(view)}")

    def _decide(self, s: State, i: int, p: Writer, view: Log, txn: int, what: str) -> Steps:
        if view.closed:
            yield what, s.step(i, p._replace(at="commit:read", view=view))
        elif txn in view.open or not self.rules.begin_in_log:
            last = view.last
            if last != NOBODY and self.rules.publish_earlier and not s.published >> last & 1:
                yield f"{what}, {last} is not published", s.step(i, p._replace(at="publish:earlier", view=view))
                return
            p, entry = self._choose(p, view, txn)
            yield f"{what}, decides on {entry.kind}", s.step(i, p._replace(at="commit:put", view=view, entry=entry))
        elif self._is_committed(s, view, txn):
            yield f"{what}, finds itself committed", s.step(i, p._replace(at="publish:own", view=view))
        else:
            yield f"{what}, finds itself ended", self._undo(s, i, p, txn)

    def _choose(self, p: Writer, view: Log, txn: int) -> tuple[Writer, Entry]:
        """The decision: who committed since our begin, and do we overlap? Does still hold what we relied on?"""
        if self.rules.relied_at_landing and view.changes != p.relied:
            return p, Entry("abort", txn, p.t)
        if any(slot > p.base and self._conflict(txn, other) for slot, other, _ in view.commits):
            if self.rules.new_t_for_retry:
                return p, Entry("abort", txn, p.t)
            p = p._replace(base=len(view), seen=view.committed)
        c = p.entry.c if p.entry is not None and p.entry.c and not self.rules.repick_c else view.time + 1
        return p, Entry("commit", txn, p.t, c, p.seen, p.relied)

    def _conflict(self, txn: int, other: int) -> bool:
        bounds = self.world.bounds
        pair = frozenset({self.world.writer_of(txn), self.world.writer_of(other)})
        return pair in bounds.overlaps or (self.rules.phantoms and pair in bounds.phantoms)

    def _is_committed(self, s: State, view: Log, txn: int) -> bool:
        """The outcome of a transaction that is not open: the log first, then the timeline."""
        known = view.settled if self.rules.outcome_of_newest else view.committed
        return bool((known | (s.published if self.rules.outcome_on_timeline else 0)) >> txn & 1)

    def _append(self, s: State, i: int, p: Writer) -> Steps:
        """One put-if-absent, or its repetition after a reply that was lost."""
        entry, phase = p.entry, p.at.partition(":")[0]
        assert entry is not None
        epoch, slot = p.view.epoch, len(p.view)
        landed_at = "begin:check" if phase == "begin" else "commit:confirm"
        doubt = p.at.endswith("doubt")
        present = s.at(epoch, slot)
        if present == entry:
            yield f"finds its {entry.kind} in slot {slot}", s.step(i, p._replace(at=landed_at))
        elif present is not None:
            yield from self._lost_slot(s, i, p, doubt=doubt)
        elif doubt and phase == "commit" and not self.rules.absence_is_no_answer:
            yield f"reads slot {slot} absent and gives up", self._undo(s, i, p, entry.txn)
        else:
            landed, _ = self.world.put(s, epoch, slot, entry)
            yield f"puts {entry.kind} into slot {slot}", landed.step(i, p._replace(at=landed_at))
            if s.unknown_left and not doubt:
                flying = tuple(sorted((*s.in_flight, (epoch, slot, entry))))
                lost = s._replace(in_flight=flying, unknown_left=s.unknown_left - 1)
                yield f"puts {entry.kind} into slot {slot}: no reply", lost.step(i, p._replace(at=f"{phase}:doubt"))
            if doubt and entry.kind == "commit":
                abort = Entry("abort", entry.txn, entry.t)
                landed, _ = self.world.put(s, epoch, slot, abort)
                yield f"gives up: fills slot {slot} with abort", landed.step(i, p._replace(at=landed_at, entry=abort))

    def _lost_slot(self, s: State, i: int, p: Writer, *, doubt: bool) -> Steps:
        entry = p.entry
        assert entry is not None
        if entry.kind == "begin":
            yield "finds its slot taken", s.step(i, p._replace(at="begin:read", entry=None))
        elif doubt and not self.rules.recognise_own:
            yield "finds a stranger in its slot and gives up", self._undo(s, i, p, entry.txn)
        elif not self.rules.reread_after_loss and entry.kind == "commit":
            view = s.read_on(p.view)
            if not view.closed:
                again = entry._replace(c=view.time + 1)
                yield (
                    "finds its slot taken and tries the next",
                    s.step(i, p._replace(at="commit:put", view=view, entry=again)),
                )
        else:
            # Only the rule about C looks at the entry again.
            kept = None if self.rules.repick_c else entry
            yield from self._reread(s, i, p._replace(entry=kept))

    def _reread(self, s: State, i: int, p: Writer) -> Steps:
        if self.rules.repick_c:
            yield "finds its slot taken", s.step(i, p._replace(at="commit:read"))
            return
        view = s.read_on(p.view)
        if not view.closed:
            txn = self.world.identity(i, p.attempt)
            yield from self._decide(s, i, p, view, txn, "finds its slot taken")

    def _confirm(self, s: State, i: int, p: Writer, txn: int) -> Steps:
        entry = p.entry
        assert entry is not None
        counts = not self.rules.recheck_after_put or s.hist.epoch == p.view.epoch
        if not counts and not self.rules.folder_is_no_evidence:
            counts = stands_before_close(s, p.view, entry)
        if not counts:
            yield (
                "finds a newer epoch after its put",
                s.step(i, p._replace(at="commit:check", view=s.newest(), entry=None)),
            )
        elif entry.kind == "commit":
            yield "knows its commit counts", s.step(i, p._replace(at="publish:own", entry=None))
        else:
            yield "knows its abort counts", self._undo(s, i, p, txn)

    def _undo(self, s: State, i: int, p: Writer, txn: int) -> State:
        """The writer tells its caller that nothing landed, then removes what it wrote."""
        if not self.world.bounds.cleaners:  # nobody else looks at files and markers
            s = s._replace(files=s.files & ~bit(txn), markers=s.markers & ~bit(txn), told_lost=s.told_lost | bit(txn))
            return self._next_attempt(s, i, p)
        return s.step(i, Writer("undo:file", _nothing(), p.attempt), told_lost=s.told_lost | bit(txn))

    def _next_attempt(self, s: State, i: int, p: Writer) -> State:
        if p.attempt + 1 < self.world.bounds.attempts:
            return s.step(i, Writer("begin:read", s.newest(), p.attempt + 1))
        return s.step(i, Writer("end", _nothing(), p.attempt))


def stands_before_close(s: State, view: Log, entry: Entry) -> bool:
    """The weaker evidence: the old epoch's folder, read up to the own slot, shows every entry and no close."""
    first = max(slot for slot, e in enumerate(view.entries) if e is not None and e.kind == "open")
    shown = [s.at(view.epoch, slot) for slot in range(first, len(view))]
    return all(e is not None and e.kind != "close" for e in shown) and s.at(view.epoch, len(view)) == entry


def _before(hist: Log, t: int) -> int:
    return sum(bit(txn) for _, txn, c in hist.commits if c < t)


def _nothing() -> Log:
    """What a writer still knows when it no longer matters: states that differ only in that are one state."""
    return Log.of(())
