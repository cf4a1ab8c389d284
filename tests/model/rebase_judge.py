"""Rebase: what must hold in every state, for readers of all kinds and for anyone who cleans up."""

from __future__ import annotations

from .rebase_state import Commit, G, State, U, gone, named, row, serial


def judge(s: State) -> str:
    """The first invariant that does not hold."""
    landed = sum(1 << c.writer for c in s.log[1:])
    here = {f.path for f in s.files}
    if any(c.paths - here for c in s.log):
        return "files of a committed transaction are deleted"
    if s.told_lost & landed:
        return "a writer was told that nothing landed, and its commit landed"
    if s.acknowledged & ~landed:
        return "an acknowledged commit is not in the log"
    committed = {c.t for c in s.log}
    # Anyone who is about to look after a file; if he dies now, only a cleaning that lists every file finds it.
    cared = {path for p in s.writers if p.at == "look" for path in p.paths} | {s.ghost.path}
    cared |= s.cleaner[2].union(*(p.listed for p in s.writers))
    if any(path.t not in committed and path not in s.markers | cared for path in here):
        return "a file of no commit has no marker: no cleaner will find it"
    for i, action in s.pending:
        mine = next((c for c in s.log if c.writer == i), None)
        needed = s.open >> i & 1 or (mine and action == ("replacecommit" if mine.replaced else "commit"))
        unaware = mine is None and s.writers[i].at != "end"  # it will find out, and sweep
        if not needed and not unaware and not s.beats >> i & 1 and all(path.t != s.writers[i].t for path in s.markers):
            return "a pending instant of an ended transaction is left, and nothing leads to it"
    return _judge_readers(s, s.log) or _judge_readers(s, s.log[: s.published])


def _judge_readers(s: State, log: tuple[Commit, ...]) -> str:
    committed, replaced = {c.t for c in log}, gone(log)
    shown = 0
    for group in {f.path.group for f in s.files} - replaced:
        files = [f for f in s.files if f.path.group == group and f.path.t in committed]
        newest = max((f.path.t for f in files), default=-1)
        if len([f for f in files if f.path.t == newest]) > 1:
            return "readers meet two files of one file group and T"
        for file in files:
            if file.path.t == newest:
                if shown & file.rows:
                    return "readers meet a row twice"
                shown |= file.rows
    if shown != serial(log):
        return "readers do not see the result of the commits in slot order"
    for first in range(1, len(log)):
        for last in range(first, len(log)):
            if _read_between(s, log[first : last + 1]) != serial(log[first : last + 1]):
                return "an incremental reader misses or repeats rows"
    return ""


def _read_between(s: State, log: tuple[Commit, ...]) -> int:
    """As Hudi reads by completion time: the newest file of each group in the commits' statistics, own rows only."""
    changed = sum(row(home, c.writer) for c in log for home in (G, U))
    paths = named(log)
    rows = 0
    for file in s.files:
        rows |= file.rows if file.path in paths else 0
    return rows & changed
