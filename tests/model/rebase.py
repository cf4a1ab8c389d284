"""Rebase: what each may do next. See `rebase_state` for what is modelled, `rebase_judge` for what must hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .explore import Bounded
from .rebase_judge import judge
from .rebase_state import Bounds, Commit, File, G, Ghost, Group, Path, Rules, State, U, Writer, current, row, slices

__all__ = ["Bounds", "Rebase", "Rules"]

Steps = Iterator[tuple[str, State]]


class Rebase(Bounded):
    """All behaviours within the bounds. ``seek`` makes a fault of what ought to be possible."""

    def __init__(self, rules: Rules, bounds: Bounds, *, seek: bool = False) -> None:
        super().__init__(rules, bounds)
        self.seek = seek

    def start(self) -> State:
        base = [Path((home, 0, 0), 0, 0) for home in (G, U)]
        first = Commit(0, 0, -1, frozenset(base))
        files = frozenset(File(path, 0) for path in base)
        return State(1, (first,), files, (Writer(),) * self.bounds.writers, left=self.bounds.sweeps)

    def steps(self, s: State) -> Steps:
        yield from self.each_moves(s, self._writer)
        if self.bounds.ghost:
            yield from self._ghost(s)
        if self.bounds.sweeps:
            yield from self._cleaner(s)

    # --- a writer --------------------------------------------------------------------------------------------

    def _writer(self, s: State, i: int, p: Writer) -> Steps:
        over = self.bounds.overwriter and i == self.bounds.writers - 1

        def move(after: State, **changed: object) -> State:
            return self.moved(after, i, p._replace(**changed))  # type: ignore[arg-type, no-any-return]

        match p.at:
            case "begin":
                t = s.slots
                begun = s._replace(slots=t + 1, open=s.open | 1 << i, beats=s.beats | 1 << i)
                begun = begun._replace(pending=s.pending | {(i, "replacecommit" if over else "commit")})
                read = current(s, G, t)
                own = Path((G, t, 0) if over else read.path.group, t, 0)
                rows = row(G, i) if over else read.rows | row(G, i)
                replaced = frozenset(f.path.group for home in (G, U) for f in slices(s, home)) if over else p.replaced
                beside = Path(current(s, U, t).path.group, t, 0) if i == 0 else None
                yield f"begins with T={t}", move(
                    begun, at="marker", t=t, merged=t, on=read.path.group, own=own, beside=beside, rows=rows,
                    replaced=replaced,
                )  # fmt: skip
            case "marker":
                yield "puts its marker", move(s._replace(markers=s.markers | set(p.paths)), at="file")
            case "file":
                if not (s.beats >> i & 1 and s.markers.issuperset(p.paths)):
                    yield "finds its heartbeat or marker gone", self._stopped(s, i, p)
                    return
                files = {File(path, p.rows if path == p.own else row(U, 0)) for path in p.paths}
                files = {f for f in files if all(f.path != other.path for other in s.files)}
                yield f"writes round {p.round}", move(s._replace(files=s.files | files), at="look")
            case "look":
                if not s.markers.issuperset(p.paths):
                    kept = frozenset(f for f in s.files if f.path not in p.paths)
                    yield "finds its marker gone, and deletes its file", self._stopped(s._replace(files=kept), i, p)
                elif p.round == 0 or not self.rules.drop_superseded:
                    yield "finds its marker", move(s, at="decide", **self._merged(s, p))
                else:
                    yield "finds its marker", move(s, at="drop")
            case "drop":
                left = frozenset(f for f in s.files if f.path != p.old)
                dropped = s._replace(files=left, markers=s.markers - {p.old} if p.old else s.markers)
                yield "deletes its file of the round before", move(dropped, at="decide", **self._merged(s, p))
            case "decide":
                yield from self._decide(s, i, p, move, over=over)
            case "merge":
                read = current(s, G, p.t)
                group, replaced, used = read.path.group, p.replaced, p.used
                if self.rules.naming == "new" or (self.rules.naming == "by T" and read.path.t > p.t):
                    group = (G, p.t, p.round)
                    replaced |= {read.path.group} if self.rules.current_replaced else set()
                    replaced |= used if self.rules.round_ids_replaced else set()
                    used |= {group}
                at = "pend" if group in used and (i, "replacecommit") not in s.pending else "marker"
                merged = p._replace(
                    at=at, on=read.path.group, merged=s.slots, own=Path(group, p.t, p.round), old=p.own,
                    rows=read.rows | row(G, i), replaced=replaced, used=used, void=False,
                )  # fmt: skip
                yield f"reads T={read.path.t} of G, merges for round {p.round}", move(s, **merged._asdict())
                if self.bounds.void and i == 0:
                    if self.rules.void_rewritten:
                        merged = merged._replace(rows=read.rows, void=True)
                    else:
                        merged = merged._replace(at="drop", own=None, replaced=p.replaced, used=p.used, void=True)
                    yield f"reads T={read.path.t} of G, and nothing is left to merge", move(s, **merged._asdict())
            case "pend":
                put = s._replace(pending=s.pending | {(i, "replacecommit")})
                yield "puts its other pending instant", move(put, at="pend old")
            case "pend old":
                put = s._replace(pending=s.pending - {(i, "commit")})
                yield "deletes its first pending instant", move(put, at="marker")
            case "publish":
                known = s._replace(published=len(s.log), acknowledged=s.acknowledged | 1 << i)
                yield "publishes", move(known, at="tidy", own=None, beside=None, old=None)
            case "tidy":
                yield "tidies up", move(self._tidied(s, i), at="end", rows=0, replaced=frozenset())
            case "undo" | "undo markers" | "undo rest":
                at, after, listed = self._swept(s, i, p.at.removeprefix("undo").strip(), p.listed)
                yield "undoes what it did", move(after, at=f"undo {at}" if at else "end", listed=listed)

    def _stopped(self, s: State, i: int, p: Writer) -> State:
        """Somebody has ended it, and sweeps; it does so, too, because it may have put something after that."""
        ended = Writer("undo", p.t, p.round)
        return self.moved(s, i, ended, told_lost=s.told_lost | 1 << i)

    def _merged(self, s: State, p: Writer) -> dict[str, int]:
        """Off: what is committed while a round is written counts as merged."""
        return {} if self.rules.none_skipped or p.round == 0 else {"merged": s.slots}

    def _decide(self, s: State, i: int, p: Writer, move: Callable[..., State], *, over: bool) -> Steps:
        if not s.open >> i & 1:
            yield "finds itself rolled back", self._stopped(s, i, p)
            return
        later = [c for c in s.log if c.slot > p.t]
        hard = over and any(self._groups(c) for c in later)
        if self.rules.overwrite_is_hard:
            hard = hard or any(c.region for c in later)
        since = p.merged if self.rules.from_merge else p.t
        lost = any(p.on in self._groups(c) for c in later if c.slot >= since)
        if not hard and not lost:
            paths = frozenset(path for path in (p.own, p.beside) if path is not None)
            commit = Commit(s.slots, p.t, i, paths, p.replaced, over, p.void)
            landed = s._replace(slots=s.slots + 1, log=(*s.log, commit), published=len(s.log), open=s.open & ~(1 << i))
            yield "lands", move(landed, at="publish", listed=frozenset())
        elif not hard and i < self.bounds.rebasers and p.round < self.bounds.rounds:
            yield "lost G", move(s, at="merge", round=p.round + 1)
        else:
            ended = s._replace(slots=s.slots + 1, open=s.open & ~(1 << i), told_lost=s.told_lost | 1 << i)
            yield "loses", move(ended, at="undo", own=None, beside=None, old=None, rows=0, replaced=frozenset())

    def _groups(self, commit: Commit) -> set[Group]:
        """The write set."""
        return {p.group for p in commit.paths} | (commit.replaced if self.rules.replaced_counts else set())

    # --- the others ------------------------------------------------------------------------------------------

    def _ghost(self, s: State) -> Steps:
        ghost, owner = s.ghost, s.writers[0]
        beats = s.beats & 1
        match ghost.at:
            case "idle":
                if beats and owner.own is not None and owner.own in s.markers:
                    yield (
                        f"a second attempt at round {owner.round} starts",
                        s._replace(ghost=Ghost("announce", owner.own, owner.rows)),
                    )
            case "announce":
                announced = s._replace(markers=s.markers | {ghost.path})
                yield "the second attempt puts its marker", announced._replace(ghost=ghost._replace(at="look"))
            case "look":
                if beats and ghost.path in s.markers:
                    yield "the second attempt may go on", s._replace(ghost=ghost._replace(at="put"))
            case "put":
                if all(f.path != ghost.path for f in s.files):
                    written = s._replace(files=s.files | {File(ghost.path, ghost.rows)})
                    yield "the second attempt's file appears", written._replace(ghost=ghost._replace(at="check"))
            case "check":
                files = s.files
                named = self.rules.outcome_before_deletion and any(ghost.path in c.paths for c in s.log)
                if ghost.path not in s.markers and not named:
                    files = frozenset(f for f in s.files if f.path != ghost.path)
                yield "the second attempt looks at its marker", s._replace(files=files, ghost=Ghost("end"))

    def _cleaner(self, s: State) -> Steps:
        at, target, listed = s.cleaner
        if at != "look":
            at, after, listed = self._swept(s, target, "" if at == "sweep" else at, listed)
            yield f"the cleaner sweeps {target}", after._replace(cleaner=(at or "look", target if at else -1, listed))
        elif s.left:
            landed = {c.writer for c in s.log}
            for i, p in enumerate(s.writers):
                if s.open >> i & 1:
                    ended = s._replace(slots=s.slots + 1, open=s.open & ~(1 << i), left=s.left - 1)
                    yield f"the cleaner ends {i}", ended._replace(cleaner=("sweep", i, frozenset()))
                elif p.t >= 0 and (s.beats >> i & 1 or any(path.t == p.t for path in s.markers)):
                    if i not in landed:
                        yield (
                            f"the cleaner finds remains of {i}",
                            s._replace(left=s.left - 1, cleaner=("sweep", i, frozenset())),
                        )
                    else:
                        tidied = self._tidied(s._replace(published=len(s.log)), i)
                        yield f"the cleaner tidies up after {i}", tidied._replace(left=s.left - 1)

    def _swept(self, s: State, i: int, at: str, listed: frozenset[Path]) -> tuple[str, State, frozenset[Path]]:
        """TaskFiles, markers, once more the files and the pending instant; the heartbeat last."""
        t = s.writers[i].t
        if not at:
            listed = frozenset(path for path in s.markers if path.t == t)
        if at != "markers":
            s = s._replace(files=frozenset(f for f in s.files if f.path not in listed))
        if not at:
            return "markers", s, listed
        if at == "markers":
            return "rest", s._replace(markers=s.markers - listed), listed
        first = "replacecommit" if self.bounds.overwriter and i == self.bounds.writers - 1 else "commit"
        actions = {"commit", "replacecommit"} if self.rules.both_actions else {first}
        rest = s._replace(pending=s.pending - {(i, action) for action in actions}, beats=s.beats & ~(1 << i))
        return "", rest, frozenset()

    def _tidied(self, s: State, i: int) -> State:
        """After publication: markers and heartbeat."""
        markers = frozenset(path for path in s.markers if path.t != s.writers[i].t)
        return s._replace(markers=markers, beats=s.beats & ~(1 << i))

    def judge(self, s: State) -> str:
        """The first invariant that does not hold."""
        if self.seek and any(c.writer == 0 and s.writers[0].round for c in s.log[1:]):
            return "landed after a rebase"
        return judge(s)
