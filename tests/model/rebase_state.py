"""Rebase: a writer that lost one of its file groups merges that group again and lands under the T that it has.

The log is one list here, and an entry is decided on everything before its slot: that this is so, whatever is lost or
repeated, is what the searches of the protocol itself show. T and C are the slots of begin and commit entry, so they grow
as they must. Writer 0 changes the groups G and U, the others G, each of them a row of its own; an overwriter replaces
both. A row is a bit, a table is a set of rows, and what it must be is told by the commits in slot order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

G, U = 0, 1
Group = tuple[int, int, int]
"""A file id: which of the two it stands for, and the T and round that it was made in."""


class Path(NamedTuple):
    """A base file's name."""

    group: Group
    t: int
    token: int


class File(NamedTuple):
    """A base file and its rows."""

    path: Path
    rows: int


class Commit(NamedTuple):
    """A commit entry."""

    slot: int
    t: int
    writer: int
    paths: frozenset[Path]
    replaced: frozenset[Group] = frozenset()
    region: bool = False
    void: bool = False
    """Its change of G was made by another one already."""


class Writer(NamedTuple):
    """A writer and what it knows."""

    at: str = "begin"
    t: int = -1
    round: int = 0
    merged: int = 0
    """The slot up to which its file of G knows what was committed."""
    on: Group = (G, 0, 0)
    """The group whose rows its own file of G holds."""
    own: Path | None = None
    beside: Path | None = None
    """Its file of U, which nobody else changes."""
    rows: int = 0
    old: Path | None = None
    """Its file of the round before."""
    replaced: frozenset[Group] = frozenset()
    used: frozenset[Group] = frozenset()
    """New file ids of its rounds."""
    listed: frozenset[Path] = frozenset()
    void: bool = False

    @property
    def paths(self) -> list[Path]:
        """What it writes in this round."""
        return [path for path in (self.own, self.beside if self.round == 0 else None) if path is not None]


class Ghost(NamedTuple):
    """A second attempt of a task of writer 0, as slow as may be."""

    at: str = "idle"
    path: Path = Path((G, 0, 0), 0, 0)
    rows: int = 0


class State(NamedTuple):
    """Everything at one moment. Sets of writers are bit masks."""

    slots: int
    log: tuple[Commit, ...]
    files: frozenset[File]
    writers: tuple[Writer, ...]
    markers: frozenset[Path] = frozenset()
    pending: frozenset[tuple[int, str]] = frozenset()
    """(writer, action) of the pending instants."""
    beats: int = 0
    open: int = 0
    published: int = 1
    acknowledged: int = 0
    told_lost: int = 0
    ghost: Ghost = Ghost()
    cleaner: tuple[str, int, frozenset[Path]] = ("look", -1, frozenset())
    left: int = 0


@dataclass(frozen=True)
class Rules:
    """What keeps a rebase right."""

    naming: str = "new"
    """``new``: each round has a file id of its own, and the commit replaces the group that it read. ``by T``: only when
    the file that it read has a larger T. ``same``: never. [2, 11]"""
    round_ids_replaced: bool = True
    """The commit also replaces the file ids of its earlier rounds. [11]"""
    current_replaced: bool = True
    """The commit replaces the group whose rows it took over."""
    drop_superseded: bool = True
    """The file of the round before is deleted before the commit entry."""
    from_merge: bool = True
    """A group that was merged again meets the commits after that merge only."""
    none_skipped: bool = True
    """And none of them is left out: not those between the merge and the commit."""
    replaced_counts: bool = True
    """Groups that a commit replaced are part of its write set."""
    overwrite_is_hard: bool = True
    """Nothing is rebased over an overwrite: the groups that were not lost stand on what is gone."""
    both_actions: bool = True
    """A sweep, its own writer's included, deletes the pending instants of either action."""
    void_rewritten: bool = True
    """A group of which nothing is left to change is rewritten and replaced all the same. [11]"""
    outcome_before_deletion: bool = True
    """A worker whose marker is gone deletes its file only when no commit names it. [19]"""


@dataclass(frozen=True)
class Bounds:
    """How much may happen."""

    writers: int = 2
    rebasers: int = 1
    """The first so many merge again when they lose."""
    rounds: int = 2
    overwriter: bool = False
    """The last writer overwrites both groups."""
    ghost: bool = False
    void: bool = False
    """Of what writer 0 changed in G nothing may be left when it merges again: others have done the same."""
    sweeps: int = 0
    """Transactions that a cleaner ends, living or dead, or tidies up after."""


def row(home: int, writer: int) -> int:
    """The row of a writer in G or U."""
    return 1 << home * 8 + writer


def gone(log: tuple[Commit, ...]) -> set[Group]:
    """Groups that are replaced."""
    return {group for commit in log for group in commit.replaced}


def serial(log: tuple[Commit, ...]) -> int:
    """The rows that the commits leave behind in this order."""
    rows = 0
    for commit in log:
        if commit.region:
            rows = 0
        if commit.writer >= 0:
            rows |= (0 if commit.void else row(G, commit.writer)) | (row(U, 0) if commit.writer == 0 else 0)
    return rows


def named(log: tuple[Commit, ...]) -> set[Path]:
    """By the commits' statistics: the newest file of each group that is not replaced."""
    newest: dict[Group, Path] = {}
    for commit in log:
        for path in commit.paths:
            newest[path.group] = max(path, newest.get(path.group, path), key=lambda p: p.t)
    return {path for group, path in newest.items() if group not in gone(log)}


def slices(s: State, home: int) -> list[File]:
    """The slices of G or U that count, as of everything committed."""
    paths = named(s.log)
    return [f for f in s.files if f.path in paths and f.path.group[0] == home]


def current(s: State, home: int, t: int) -> File:
    """The one slice of G, or of U; a new group when an overwrite left none."""
    return max(slices(s, home), default=File(Path((home, t, 0), 0, 0), 0))
