"""The version that each version of a file group was made from. A version that was skipped is a lost update.

    t=0  another engine reads slice 1 of a file group; so does a transaction of ours
    t=1  ours commits slice 3, made from 1
    t=2  the other completes slice 2, made from 1, and reports success: no reader ever shows it

The log does not know the other transaction, and the timeline shows it too late. But commits record the version they built on
(``prevCommit``), so the loss can be found later, as long as both are on the active timeline.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from ..files import BaseFile
from .commit_metadata import CommitMetadata, WriteStat
from .instant import is_time


@dataclass(frozen=True, slots=True)
class Skipped:
    """The rows that ``lost`` has at ``path`` are in no version since ``kept``, which was made from ``built_on``."""

    lost: str
    path: str
    kept: str
    built_on: str

    def __str__(self) -> str:
        return (
            f"rows of {self.lost} are lost: {self.kept} has written the same file group on top of {self.built_on}, as if "
            f"{self.lost} had not been"
        )


def skipped(commits: Iterable[CommitMetadata]) -> list[Skipped]:
    """Return versions that the next one of their file group was not made from, among base files that these commits name.

    Not for merge-on-read tables, where a version is made from log files too.
    """
    versions: dict[object, list[tuple[str, WriteStat]]] = defaultdict(list)
    for stat in (stat for commit in commits for stat in commit.stats if stat.path):
        if (base := BaseFile.at(stat.path, 0)) is not None:
            versions[base.group].append((base.instant, stat))
    found = []
    for group in versions.values():
        ordered = sorted(group, key=lambda each: each[0])
        for (lost, before), (kept, stat) in pairwise(ordered):
            # Not every engine says it of every file.
            if is_time(stat.prev_commit) and stat.prev_commit < lost:
                found.append(Skipped(lost, before.path, kept, stat.prev_commit))
        # A version under a smaller T than the one that it was made from; that one began the file group, if it is not above.
        seen = {each.lost for each in found}
        for lost, stat in ordered:
            if is_time(stat.prev_commit) and stat.prev_commit > lost and lost not in seen:
                found.append(Skipped(lost, stat.path, stat.prev_commit, "nothing"))
    return found
