"""The matrix of operations as people read it: what `resolve` answers, beside what Apache Hudi does.

    python scripts/conflict_matrix.py     prints the generated part of docs/conflicts.md

The answers are not written down here: each cell asks `resolve` about two transactions that share a file group. Where
Hudi differs, a note says why; a test demands one for each such cell, and none for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from lakelatch.conflict.operations import INGESTION, PLANNED, Kind
from lakelatch.conflict.reservation import Party
from lakelatch.conflict.resolve import resolve
from lakelatch.conflict.write_set import ReadSet, Region, WriteSet
from lakelatch.hudi.files import FileGroupId

_OPERATION = {
    Kind.REWRITE: "UPSERT",
    Kind.APPEND: "UPSERT",
    Kind.STREAM: "UPSERT",
    Kind.OVERWRITE: "INSERT_OVERWRITE",
    Kind.COMPACTION: "COMPACT",
    Kind.LOG_COMPACTION: "LOG_COMPACT",
    Kind.CLUSTERING: "CLUSTER",
} | {kind: kind.name for kind in (Kind.CLEAN, Kind.ROLLBACK, Kind.SAVEPOINT, Kind.RESTORE)}
LANDS, BEATS, LOSES, WAITS = "lands", "lands, the other loses", "loses", "waits"


def example(kind: Kind, instant: str, *, landed: bool, stranger: bool = False) -> Party:
    """A transaction of that kind on one file group, the same for all."""
    group = frozenset({FileGroupId("p", "g")})
    region = Region(frozenset({"p"})) if kind is Kind.OVERWRITE else Region()
    appended = group if kind in (Kind.APPEND, Kind.STREAM) else frozenset()
    writes = WriteSet(group, region, appended, streamed=kind is Kind.STREAM)
    return Party(instant, instant if landed else "", _OPERATION[kind], "writer", writes, stranger=stranger)


def answer(ours: Kind, theirs: Kind, *, landed: bool, by: str = "simple", stranger: bool = False) -> str:
    """What becomes of ours when it commits and theirs has landed since, or is pending."""
    other = example(theirs, "2", landed=landed, stranger=stranger)
    verdict = resolve(example(ours, "1", landed=False), ReadSet(), [other], by=by)
    if verdict.lost:
        return WAITS if verdict.lost.waits else LOSES
    return BEATS if verdict.beats else LANDS


# --- Hudi --------------------------------------------------------------------------------------------------------
#
#   F fails    o goes on    n is not checked    b is refused at its begin
#
# Its events of streams are writes under NON_BLOCKING_CONCURRENCY_CONTROL among each other, and log files to all others.

_SHORT = dict(zip("RATOCLKNBSX", Kind, strict=True))
_HUDI_COMPLETED = """
  R A T O C L K N B S X
R F F F F o F F o o o n
A F F F F o F F o o o n
T F F o F o F F o o o n
O F F F F o F F o o o n
C n n n n n n n n n n n
L o o o o F o o o o o n
K n n n n n n n n n n n
N n n n n n n n n n n n
B n n n n n n n n n n n
S n n n n n n n n n n n
X n n n n n n n n n n n
"""
_HUDI_PENDING = """
  R A T O C L K N B S X
R o o o o o o F o o o b
A o o o o o o F o o o b
T o o o o o o F o o o b
O o o o o o o F o o o b
C n n n n n n n n n n n
L o o o o F o o o o o n
K n n n n n n n n n n n
N n n n n n n n n n n n
B n n n n n n n n n n n
S n n n n n n n n n n n
X n n n n n n n n n n n
"""
_WORDS = {"F": "fails", "o": "goes on", "n": "not checked", "b": "refused at its begin"}


def _grid(text: str) -> dict[tuple[Kind, Kind], str]:
    head, *rows = (line.split() for line in text.strip().splitlines())
    return {(_SHORT[row[0]], _SHORT[name]): cell for row in rows for name, cell in zip(head, row[1:], strict=True)}


# Strategy Simple, table version 8 and later.
HUDI = {True: _grid(_HUDI_COMPLETED), False: _grid(_HUDI_PENDING)}


def differs(ours: Kind, theirs: Kind, *, landed: bool) -> bool:
    """Whether Hudi would decide otherwise."""
    stopped = answer(ours, theirs, landed=landed) in (LOSES, WAITS)
    return stopped != (HUDI[landed][ours, theirs] in "Fb")


@dataclass(frozen=True, slots=True)
class Note:
    """Why some cells are not as in Hudi. ``states``: of the other one, landed (True) or pending."""

    ours: frozenset[Kind]
    theirs: frozenset[Kind]
    states: tuple[bool, ...]
    why: str

    def covers(self, ours: Kind, theirs: Kind, *, landed: bool) -> bool:
        """Whether it speaks of that cell."""
        return ours in self.ours and theirs in self.theirs and landed in self.states


def _kinds(*kinds: Kind) -> frozenset[Kind]:
    return frozenset(kinds)


_BOTH, _LANDED, _PENDING = (True, False), (True,), (False,)
NOTES = (
    Note(
        _kinds(Kind.REWRITE),
        _kinds(Kind.COMPACTION),
        _BOTH,
        "stricter: readers take the larger T, and ours was made without the log files that the compaction merged",
    ),
    Note(
        _kinds(Kind.REWRITE),
        _kinds(Kind.LOG_COMPACTION),
        _PENDING,
        "stricter: its older rows would be read on top of our base file",
    ),
    Note(
        _kinds(Kind.APPEND, Kind.STREAM, Kind.OVERWRITE),
        _kinds(Kind.LOG_COMPACTION),
        _LANDED,
        "laxer: it changes no row, and names no log file that an open append could land below",
    ),
    Note(
        _kinds(Kind.COMPACTION),
        _kinds(Kind.REWRITE, Kind.OVERWRITE, *PLANNED),
        _LANDED,
        "stricter: one whose plan is outdated hides rows or writes into a group that is gone",
    ),
    Note(
        _kinds(Kind.LOG_COMPACTION),
        _kinds(Kind.REWRITE, Kind.OVERWRITE, Kind.LOG_COMPACTION, Kind.CLUSTERING),
        _LANDED,
        "stricter: the log files that it merged belong to another slice by now, or to a group that is gone (HUDI-6719)",
    ),
    Note(
        _kinds(Kind.LOG_COMPACTION),
        _kinds(Kind.CLUSTERING),
        _PENDING,
        "stricter: the clustering would lose, which is the dearer of the two",
    ),
    Note(
        _kinds(Kind.CLUSTERING),
        _kinds(*INGESTION, *PLANNED),
        _LANDED,
        "stricter: rows written since the plan would be lost (apache/hudi issue 17907), and two replacements of one group "
        "contradict each other (HUDI-6719)",
    ),
    Note(
        _kinds(Kind.CLEAN),
        _kinds(Kind.SAVEPOINT),
        _LANDED,
        "stricter: it would delete what the savepoint keeps; plan the clean again",
    ),
    Note(
        _kinds(Kind.SAVEPOINT),
        _kinds(Kind.CLEAN),
        _BOTH,
        "stricter: the clean may have deleted what the savepoint is to keep",
    ),
    Note(
        frozenset(Kind) - {Kind.ROLLBACK, Kind.RESTORE},
        _kinds(Kind.RESTORE),
        _LANDED,
        "stricter: what began before a restore must not come back after it; Hudi only refuses to begin during one",
    ),
    Note(
        frozenset(Kind) - INGESTION - {Kind.ROLLBACK, Kind.RESTORE},
        _kinds(Kind.RESTORE),
        _PENDING,
        "stricter: Hudi refuses ingestion only, and only at its begin",
    ),
    Note(
        _kinds(Kind.RESTORE),
        frozenset(Kind) - {Kind.ROLLBACK},
        _LANDED,
        "stricter: its plan does not know what has landed since; make it again",
    ),
)


# --- the page ----------------------------------------------------------------------------------------------------


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _table(head: list[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    yield _row(head)
    yield _row("---" for _ in head)
    yield from map(_row, rows)
    yield ""


def _answers(*, landed: bool) -> Iterator[str]:
    kinds = [kind for kind in Kind if kind is not Kind.ROLLBACK]  # it meets nobody: a test says so
    marks = {LANDS: "", BEATS: "wins", LOSES: "**loses**", WAITS: "*waits*"}
    rows = []
    for ours in kinds:
        cells = (
            marks[answer(ours, theirs, landed=landed)] + (" ≠" if differs(ours, theirs, landed=landed) else "")
            for theirs in kinds
        )
        rows.append([ours.value, *(cell.strip() for cell in cells)])
    yield from _table(["commits \\ other", *(kind.value for kind in kinds)], rows)


def _preferences() -> Iterator[tuple[str, str, str, str]]:
    """What both strategies do, kinds of which the same holds in one line."""
    changed: dict[tuple[Kind, str, str], set[Kind]] = {}
    for ours, theirs in product(Kind, Kind):
        simple, writer = (answer(ours, theirs, landed=False, by=by) for by in ("simple", "prefer-writer"))
        if simple != writer:
            changed.setdefault((ours, simple, writer), set()).add(theirs)
    alike: dict[tuple[frozenset[Kind], str, str], set[Kind]] = {}
    for (ours, simple, writer), theirs in changed.items():
        alike.setdefault((frozenset(theirs), simple, writer), set()).add(ours)
    for (theirs, simple, writer), ours in alike.items():
        yield _names(frozenset(ours)), _names(theirs), simple, writer


def _names(kinds: frozenset[Kind]) -> str:
    if len(kinds) > len(Kind) - 3:
        left = [kind.value for kind in Kind if kind not in kinds]
        return "all but " + ", ".join(left)
    return "; ".join(kind.value for kind in Kind if kind in kinds)


def render() -> str:
    """The generated part of docs/conflicts.md."""
    notes = (
        (
            _names(note.ours),
            _names(note.theirs),
            " or ".join("landed" if state else "pending" for state in note.states),
            ", ".join(
                sorted({_WORDS[HUDI[state][a, b]] for state in note.states for a in note.ours for b in note.theirs})
            ),
            note.why,
        )
        for note in NOTES
    )
    lines = [
        "### The other one has landed since",
        "",
        *_answers(landed=True),
        "### The other one is pending",
        "",
        *_answers(landed=False),
        "### Where Hudi decides otherwise",
        "",
        *_table(["commits", "other", "which is", "in Hudi", "here"], notes),
        "### What `prefer-writer` changes",
        "",
        *_table(["commits", "pending other", "under `simple`", "under `prefer-writer`"], _preferences()),
    ]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    print(render(), end="")
