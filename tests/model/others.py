"""A cleaner that ends silent transactions, and a reader that merges unpublished commits."""

from __future__ import annotations

from collections.abc import Iterator

from .log import Entry, Log
from .state import Cleaner, Reader, State, World, bit

Steps = Iterator[tuple[str, State]]


class CleanerSteps:
    """Rollback entry first, then the files, then the markers."""

    def __init__(self, world: World) -> None:
        self.world, self.rules = world, world.rules

    def __call__(self, s: State, i: int, p: Cleaner) -> Steps:
        match p.at:
            case "look":
                if p.left:
                    yield "lists the markers", s.step(i, p._replace(at="look:read", listed=s.markers))
            case "look:read":
                view = s.read_on(p.view)
                if view.closed:
                    if s.hist.epoch == view.epoch:
                        return
                    view = s.newest()
                if self.rules.recheck_after_read:
                    yield f"reads to slot {len(view)}", s.step(i, p._replace(at="look:check", view=view))
                else:
                    yield from self._choose(s, i, p, view)
            case "look:check":
                if s.hist.epoch == p.view.epoch:
                    yield from self._choose(s, i, p, p.view)
                else:
                    yield "finds a newer epoch", s.step(i, p._replace(view=s.newest()))
            case "end:put" | "end:doubt":
                yield from self._append(s, i, p)
                # Anyone who was looked at in the newest epoch has begun. The entry itself may be proposed for any later slot.
                view = s.read_on(p.view)
                if p.at == "end:put" and view != p.view and not view.closed and p.target in view.open:
                    yield f"reads to slot {len(view)}", s.step(i, p._replace(view=view))
            case "end:check":
                if s.hist.epoch == p.view.epoch or not self.rules.recheck_after_put:
                    yield f"knows that {p.target} is rolled back", self._sweep(s, i, p)
                else:
                    yield "finds a newer epoch after its put", self._outcome(s, i, p, s.newest())
            case "sweep:file":
                # Only a marker that was seen before its file is deleted may be deleted after it.
                if not s.markers >> p.target & 1:
                    yield f"finds nothing of {p.target}", s.step(i, self._done(p))
                elif not self.rules.grace or not self._is_writing(s, p.target):
                    swept = s._replace(files=s.files & ~bit(p.target))
                    yield f"deletes the file of {p.target}", swept.step(i, p._replace(at="sweep:marker"))
            case "sweep:marker":
                swept = s._replace(markers=s.markers & ~bit(p.target))
                yield f"deletes the marker of {p.target}", swept.step(i, self._done(p))

    def _choose(self, s: State, i: int, p: Cleaner, view: Log) -> Steps:
        """Any open transaction may look silent; files of an ended one may be left."""
        if view.closed:
            yield "finds its epoch closed", s.step(i, p._replace(at="look", view=view))
            return
        for txn, (t, _) in view.open.items():
            at = "end:put" if self.rules.entry_before_deletion else "sweep:file"
            moved = p._replace(at=at, view=view, target=txn, entry=Entry("rollback", txn, t))
            yield f"takes {txn} for dead", s.step(i, moved._replace(listed=0))
        listed = p.listed if self.rules.markers_before_log else s.markers
        for txn in range(listed.bit_length()):
            if listed >> txn & 1 and txn not in view.open and not self._is_committed(s, view, txn):
                yield (
                    f"finds remains of {txn}",
                    self._sweep(s, i, p._replace(view=view, target=txn, entry=None, listed=0)),
                )

    def _append(self, s: State, i: int, p: Cleaner) -> Steps:
        entry = p.entry
        assert entry is not None
        view = p.view if self.rules.read_to_head else s.read_on(p.view)
        if view.closed:
            return
        slot = len(view)
        landed, present = self.world.put(s, view.epoch, slot, entry)
        if present is None or present == entry:
            yield f"puts rollback({entry.txn}) into slot {slot}", landed.step(i, p._replace(at="end:check", view=view))
        else:
            yield "finds its slot taken", s.step(i, p._replace(at="look", target=-1, entry=None))
        if present is None and s.unknown_left and p.at == "end:put":
            flying = tuple(sorted((*s.in_flight, (view.epoch, slot, entry))))
            lost = s._replace(in_flight=flying, unknown_left=s.unknown_left - 1)
            yield f"puts rollback({entry.txn}): no reply", lost.step(i, p._replace(at="end:doubt", view=view))

    def _outcome(self, s: State, i: int, p: Cleaner, view: Log) -> State:
        if p.target in view.open:
            return s.step(i, p._replace(at="look", view=view, target=-1, entry=None))
        if self._is_committed(s, view, p.target):
            return s.step(i, self._again(p, view))
        return self._sweep(s, i, p._replace(view=view))

    def _sweep(self, s: State, i: int, p: Cleaner) -> State:
        if not self.rules.entry_before_deletion:
            return s.step(i, self._again(p, p.view))
        return s.step(i, p._replace(at="sweep:file", entry=None))

    def _done(self, p: Cleaner) -> Cleaner:
        if self.rules.entry_before_deletion:
            return self._again(p, p.view)
        return p._replace(at="end:put")

    def _again(self, p: Cleaner, view: Log) -> Cleaner:
        left = p.left - 1
        return Cleaner("look", view if left else Log.of(()), left=left)

    def _is_committed(self, s: State, view: Log, txn: int) -> bool:
        known = view.settled if self.rules.outcome_of_newest else view.committed
        return bool((known | (s.published if self.rules.outcome_on_timeline else 0)) >> txn & 1)

    def _is_writing(self, s: State, txn: int) -> bool:
        writer = self.world.writer_of(txn)
        process = s.processes[writer]
        return process.at == "write:file" and self.world.identity(writer, process.attempt) == txn  # type: ignore[union-attr]


class ReaderSteps:
    """A snapshot without a begin entry: log to the head, newest epoch looked up, then the timeline."""

    def __init__(self, world: World) -> None:
        self.rules = world.rules

    def __call__(self, s: State, i: int, p: Reader) -> Steps:
        if p.at == "read":
            view = s.read_on(p.view)
            moved = p._replace(at="read:check", view=view, timeline=s.published)
            if self.rules.recheck_after_read:
                yield f"reads to slot {len(view)}", s.step(i, moved)
            else:
                yield f"reads to slot {len(view)} and the timeline", self._judge(s, i, moved)
        elif p.at == "read:check":
            if s.hist.epoch == p.view.epoch:
                yield "reads the timeline", self._judge(s, i, p)
            else:
                yield "finds a newer epoch", s.step(i, p._replace(view=s.newest()))

    def _judge(self, s: State, i: int, p: Reader) -> State:
        timeline = s.published if self.rules.log_before_timeline else p.timeline
        shown = timeline | p.view.settled
        prefix, prefixes = 0, {0}
        for _, txn, _ in s.hist.commits:
            prefix |= bit(txn)
            prefixes.add(prefix)
        after = s.step(i, Reader("end", Log.of(())))
        if shown & ~s.hist.committed:
            return after._replace(fault="a reader shows what is not committed")
        return after if shown in prefixes else after._replace(fault="a reader shows a commit without an earlier one")
