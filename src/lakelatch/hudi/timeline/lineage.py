"""Versions of a file group that the next one was not made from. What was skipped is a lost update.

    t=0  another engine reads slice 1 of a file group; so does a transaction of ours
    t=1  ours commits slice 3, made from 1
    t=2  the other completes slice 2, made from 1, and reports success: no reader ever shows it

The log does not know the other transaction, and the timeline shows it too late. But commits record what they were made from,
so the loss can be found later, as long as both are on the active timeline: a base file names the version before it
(``prevCommit``), the plan of a compaction or clustering the files that it merges, and a replacecommit the file groups that
end with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ...errors import CorruptTableError
from ..files import BaseFile, FileGroupId, LogFile
from .commit_metadata import CommitMetadata, WriteStat, decode_container
from .instant import Instant, file_name, is_time


@dataclass(frozen=True, slots=True)
class Skipped:
    """The rows that ``lost`` has at ``path`` are in no version since ``kept``; ``how`` says what that did to them."""

    lost: str
    path: str
    kept: str
    how: str

    def __str__(self) -> str:
        return f"rows of {self.lost} are lost: {self.kept} has {self.how}, as if {self.lost} had not been"


def skipped(
    commits: Iterable[tuple[Instant, CommitMetadata]], read: Callable[[str], bytes | None], *, merge_on_read: bool
) -> list[Skipped]:
    """Return the files of these commits whose rows a later one of them hides without having read them.

    ``read`` returns the body of an instant by its name, or None: the plans of compactions and clusterings are looked up.
    """
    commits = list(commits)
    found = [] if merge_on_read else list(_skipped_bases(content for _, content in commits))
    written: dict[FileGroupId, list[tuple[Instant, BaseFile | LogFile]]] = defaultdict(list)
    moves = set[Instant]()  # they bring no rows of their own: where the file group is gone, nothing is lost with them
    for instant, content in commits:
        if (content.operation or "").upper() == "LOG_COMPACT" or (merge_on_read and instant.action == "commit"):
            moves.add(instant)
        for path in (stat.path for stat in content.stats if instant.completed):  # layout 1 has no C
            if file := BaseFile.at(path, 0) or LogFile.at(path, 0):
                written[file.group].append((instant, file))
    for instant, content in commits:
        replaced = {FileGroupId(partition, each) for partition, ids in content.replaced.items() for each in ids}
        compacts = merge_on_read and instant.action == "commit"
        clusters = (content.operation or "").upper() == "CLUSTER"
        inputs = _inputs(instant, read) if compacts or clusters else {}
        for group in replaced | inputs.keys():
            for by, file in written[group]:
                if by == instant:
                    continue
                if group in replaced and _completed(by) > _completed(instant):
                    if by in moves:
                        continue
                    found.append(Skipped(by.requested, file.path, instant.requested, "replaced the file group before"))
                elif group in inputs and _is_left_out(by, file, instant, inputs[group]):
                    found.append(
                        Skipped(by.requested, file.path, instant.requested, "merged the file group without it")
                    )
    return found


def _completed(instant: Instant) -> str:
    return instant.completed or instant.requested


def _is_left_out(by: Instant, file: BaseFile | LogFile, instant: Instant, inputs: Collection[str]) -> bool:
    """Return whether a compaction or clustering hides this file of its file group, and did not merge it.

    A log file belongs to the newest base file whose T is not above its C. So a compaction hides those completed before its T.
    A clustering ends its file groups, so it hides those completed before it.
    """
    newest = max((base.instant for name in inputs if (base := BaseFile.at(name, 0))), default="")
    since = file.instant if isinstance(file, BaseFile) else _completed(by)
    until = instant.requested if instant.action == "commit" else _completed(instant)
    return file.path.rpartition("/")[2] not in inputs and since > newest and _completed(by) < until


def _inputs(instant: Instant, read: Callable[[str], bytes | None]) -> dict[FileGroupId, set[str]]:
    """Return the names of the files that a compaction or clustering merges, by file group; none if its plan is gone or torn."""
    found: dict[FileGroupId, set[str]] = defaultdict(set)
    for action in ("compaction",) if instant.action == "commit" else ("clustering", "replacecommit"):
        name = file_name(Instant(instant.requested, action, "requested"))
        if body := read(name):
            with suppress(CorruptTableError):  # `check` reports it
                plan = decode_container(body, "HoodieCompactionPlan", "HoodieRequestedReplaceMetadata", name=name)
                for each in _slices(plan):
                    paths = [each.get("dataFilePath"), *(each.get("deltaFilePaths") or ())]
                    group = FileGroupId(each.get("partitionPath") or "", each.get("fileId") or "")
                    found[group] |= {path.rpartition("/")[2] for path in paths if path}
    return found


def _slices(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from plan.get("operations") or ()
    for group in (plan.get("clusteringPlan") or {}).get("inputGroups") or ():
        yield from group.get("slices") or ()


def _skipped_bases(commits: Iterable[CommitMetadata]) -> Iterator[Skipped]:
    versions: dict[FileGroupId, list[tuple[str, WriteStat]]] = defaultdict(list)
    for stat in (stat for commit in commits for stat in commit.stats if stat.path):
        if (base := BaseFile.at(stat.path, 0)) is not None:
            versions[base.group].append((base.instant, stat))
    for group in versions.values():
        ordered, seen = sorted(group, key=lambda each: each[0]), set[str]()
        for (lost, before), (kept, stat) in pairwise(ordered):
            # Not every engine says it of every file.
            if is_time(stat.prev_commit) and stat.prev_commit < lost:
                seen.add(lost)
                yield Skipped(lost, before.path, kept, f"written the same file group on top of {stat.prev_commit}")
        # A version under a smaller T than the one that it was made from; that one began the file group, if it is not above.
        for lost, stat in ordered:
            if is_time(stat.prev_commit) and stat.prev_commit > lost and lost not in seen:
                yield Skipped(lost, stat.path, stat.prev_commit, "the larger T on the same file group")
