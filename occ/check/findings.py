"""The findings of `check`: each kind with its severity. Pure.

damage     some reader fails, misses rows or counts too many, or writers stop. Exit code 1.
leftover   what a dead transaction left: no reader sees it, `lakelatch rollback` removes it. Exit code 0, 1 if strict.
note       worth knowing; nothing is wrong with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Severity = Literal["damage", "leftover", "note"]

KINDS: dict[str, tuple[Severity, str]] = {
    # properties
    "properties-damaged": ("damage", "hoodie.properties is missing, torn, lacks a key or has a wrong checksum"),
    "properties-contradictory": ("damage", "two keys of hoodie.properties cannot both be true"),
    # timeline
    "instant-empty": ("damage", "a completed instant of zero bytes"),
    "instant-torn": ("damage", "a completed instant that cannot be decoded"),
    "instant-outside": ("damage", "an instant that names files outside of the table"),
    "instant-unknown": ("note", "a completed instant of an action that this version does not know"),
    "instant-misnamed": (
        "damage",
        "a completed instant under a name that readers ignore or take for another version's",
    ),
    "instant-times": ("damage", "an instant whose times are no times, or that completed before it was requested"),
    "instant-ahead": (
        "note",
        "commits from the future: every later one has to be later still, so times tell little here",
    ),
    "instant-twice": ("damage", "two completed instants with the same requested or completion time"),
    "clean-twice": (
        "note",
        "a clean that two engines have completed, as a JVM does with ours: both deleted the same files",
    ),
    "instant-undone": ("damage", "a commit that a restore took back stands on the timeline again"),
    "history-torn": ("damage", "the archived timeline's number, manifest or a file of it is missing or torn"),
    "history-lacks": ("damage", "a commit of the log is neither on the active timeline nor archived"),
    "archived-late": (
        "damage",
        "an archived commit stands on the active timeline again: some readers miss those after it",
    ),
    "archived-twice": ("leftover", "an instant is archived and still on the active timeline"),
    "schema-unreadable": ("damage", "the newest schema of the timeline cannot be read"),
    "columns-hidden": ("damage", "other readers show a column less: they go by the schema of the largest T"),
    "pending-of-ended": ("leftover", "the pending instant of a transaction that has ended"),
    "pending-unknown": ("note", "a pending instant that the log does not know: another writer's, or a plan"),
    # data files
    "slice-skipped": ("damage", "rows of a commit are lost: another writer's, which did not see it, took their place"),
    "file-missing": ("damage", "a file that a commit names and that readers need is not there"),
    "file-size": ("damage", "a file has another size than its commit says"),
    "file-torn": ("damage", "a Parquet file without a readable footer, or with unreadable pages"),
    "log-torn": ("damage", "a log file has bytes that are no whole block: readers leave out what was there"),
    "row-count": ("damage", "a file has another number of rows than its commit says"),
    "meta-columns": ("damage", "a data file lacks Hudi's meta columns"),
    "key-range": ("damage", "the smallest or largest key in the footer is not that of the column"),
    "key-range-kept": ("damage", "the key range that is kept of a file is not that of its footer: upserts double rows"),
    "commit-time": ("damage", "rows that are newer than the commit that wrote them"),
    "two-base-files": ("damage", "two base files of one file group and commit: readers fail or choose differently"),
    "file-not-in-commit": ("damage", "readers count a file that its commit does not name"),
    "file-never-committed": ("damage", "readers take a file for an archived commit's that never was one"),
    "file-came-back": (
        "damage",
        "a file was gone when it was archived and is there again: only other readers count it",
    ),
    "duplicate-keys": ("damage", "a record key stands twice in one partition (deep check)"),
    "duplicate-values": ("damage", "a value under a unique constraint stands in two rows (deep check)"),
    "check-broken": ("damage", "rows break a check of the table (deep check)"),
    "bucket-twice": ("damage", "two file groups of one partition belong to the same bucket"),
    "bucket-wrong": (
        "damage",
        "keys lie in another bucket than the table's number of buckets says: upserts double them",
    ),
    "old-file-missing": ("note", "an older version of a file group is gone: time travel cannot go back there"),
    "orphan-file": ("leftover", "a data file of a transaction that never landed"),
    # folders
    "no-file": ("damage", "a named pipe, a device or a link to nothing where a file or a folder belongs"),
    "stray-file": ("damage", "a file in a partition that readers choke on"),
    "folder-in-partition": ("damage", "a folder where partitions lie: one reader then shows no rows, without an error"),
    "partition-unmarked": ("damage", "a partition without its metadata file: JVM readers do not see it"),
    "other-files": ("note", "files that no reader looks at"),
    # commit log
    "log-entry-torn": ("damage", "a log entry that cannot be decoded: writers stop there"),
    "log-gap": ("damage", "a slot of the log is empty or in the wrong place: writers stop there or read half the log"),
    "log-order": ("damage", "an entry that contradicts those before it"),
    "log-newer": ("note", "a log entry that a newer version wrote; the rest of the log was not checked"),
    "side-object": ("damage", "the side object of a commit that is not on the timeline is missing or altered"),
    "side-lost": ("note", "the side object of a published commit is missing or altered; the timeline has its content"),
    "commit-unpublished": ("damage", "a commit of the log is not on the timeline, so readers miss it"),
    "commit-to-publish": ("note", "the newest commit is not yet on the timeline; the next writer puts it there"),
    "publication-differs": ("damage", "the timeline says something else of a commit than the log"),
    "several-differs": ("damage", "a commit over several tables has landed in one of them and not in another"),
    "prepared": ("note", "a commit over several tables waits for its outcome, and nothing lands behind it"),
    "stranger-commit": ("note", "commits that the log does not know: another writer's, which ours did not see"),
    "stranger-in-streams": (
        "damage",
        "another engine compacted or wrote a table with streams, by rules that are not theirs",
    ),
    # remains
    "markers-of-ended": ("leftover", "markers of a transaction that is over"),
    "heartbeat-of-ended": ("leftover", "the heartbeat of a transaction that is over"),
    "side-of-ended": ("leftover", "a side object of a transaction that never landed"),
}

ROLL_BACK = "`lakelatch rollback` removes it"
FORGOTTEN = "the log does not know it, so nothing removes it: delete it once its writer has certainly ended"
RESTORE = "restore it from a copy"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding: ``path`` is relative to the table, ``message`` describes it, ``next_step`` is the remedy."""

    kind: str
    severity: Severity
    path: str
    message: str
    next_step: str


@dataclass(frozen=True, slots=True)
class Report:
    """The result of `check`.

    Attributes:
        findings: worst first, then by kind and path.
        facts: numbers and names worth showing in any case.
        unchecked: the parts that this check cannot judge, as noun phrases.
    """

    table: str
    findings: tuple[Finding, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    unchecked: tuple[str, ...] = ()

    def count(self, severity: Severity) -> int:
        """Return the number of findings of that severity."""
        return sum(1 for each in self.findings if each.severity == severity)

    def sound(self, *, strict: bool = False) -> bool:
        """True without damage; with ``strict`` also without leftovers."""
        return not self.count("damage") and not (strict and self.count("leftover"))

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values; the keys are stable."""
        return {
            "table": self.table,
            "sound": self.sound(),
            "damage": self.count("damage"),
            "leftovers": self.count("leftover"),
            "notes": self.count("note"),
            "findings": [asdict(each) for each in self.findings],
            "facts": dict(self.facts),
            "unchecked": list(self.unchecked),
        }


class Findings:
    """Collects findings while the parts of the check run."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], Finding] = {}
        self._suspects: list[tuple[str, str, str, str]] = []
        self.facts: dict[str, Any] = {}
        self.unchecked: list[str] = []

    def add(self, kind: str, path: str, message: str, next_step: str) -> None:
        """Add a finding; duplicates count once."""
        severity, _ = KINDS[kind]
        self._found.setdefault((kind, path, message), Finding(kind, severity, path, message, next_step))

    def suspect(self, kind: str, path: str, message: str, next_step: str) -> None:
        """Add a finding that counts only if ``path`` still exists at the end: its writer may be removing it right now."""
        self._suspects.append((kind, path, message, next_step))

    def confirm(self, exists: Callable[[str], bool]) -> None:
        """Turn the suspects that still exist into findings."""
        for kind, path, message, next_step in self._suspects:
            if exists(path):
                self.add(kind, path, message, next_step)
        self._suspects.clear()

    def at(self, kind: str, path: str) -> bool:
        """Return whether a finding of this kind is at that path."""
        return any((each.kind, each.path) == (kind, path) for each in self._found.values())

    def report(self, table: str) -> Report:
        """Return the report, worst findings first."""
        order = list(KINDS)
        rank = {"damage": 0, "leftover": 1, "note": 2}
        found = sorted(self._found.values(), key=lambda f: (rank[f.severity], order.index(f.kind), f.path, f.message))
        return Report(table, tuple(found), self.facts, tuple(dict.fromkeys(self.unchecked)))
