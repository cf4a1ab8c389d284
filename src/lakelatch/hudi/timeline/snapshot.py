"""File slices: which files hold the rows of a table as of one moment. Pure; reads nothing.

    a file counts when its T is committed, or older than the first instant that is still active: archived then, unless it
      is known that it came later (`archived_files`)
    of the base files of a group the one with the largest T counts, whatever C says
    a log file belongs to the newest base file whose T is not after its C (version 6: not after the time in its name)
    a group that a visible replacecommit names is gone

Source: the rules that both readers were measured to follow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...errors import CorruptTableError, UnsupportedTableError
from ..files import BaseFile, FileGroupId, Listing, LogFile
from ..table import TableConfig
from .archived_files import ArchivedFiles
from .commit_metadata import CommitMetadata


@dataclass(frozen=True, slots=True)
class Replacement:
    """File groups that the replacecommit with times T and C took away."""

    requested: str
    completed: str
    groups: tuple[FileGroupId, ...]


@dataclass(frozen=True, slots=True)
class TimelineView:
    """All that a snapshot needs to know of the timeline.

    Attributes:
        completion: T -> C of every completed commit that is known.
        first_active: smallest T on the active timeline, pending ones included; None when it is empty.
        replacements: of all completed replacecommits.
        archived_before: the T before which files may be of archived commits.
        archived: what is known of those; None: those before the first active T count.
    """

    completion: Mapping[str, str] = field(default_factory=dict)
    first_active: str | None = None
    replacements: tuple[Replacement, ...] = ()
    archived_before: str | None = None
    archived: ArchivedFiles | None = None

    def completed_at(self, requested: str) -> str | None:
        """C of a commit; T itself when it is archived, as nobody knows better; None while it is not committed."""
        completed = self.completion.get(requested)
        if completed is None and self.first_active is not None and requested < self.first_active:
            return requested
        return completed

    def completion_of(self, file: BaseFile | LogFile) -> str | None:
        """C of the commit that a file belongs to; None where it does not count."""
        completed = self.completed_at(file.instant)
        if self.archived is None or self.archived_before is None or file.instant >= self.archived_before:
            return completed
        if (counts := self.archived.counts(file)) is None:
            return completed
        # Not by the first active T: that may be of a pending instant that came late as well.
        return completed or file.instant if counts else None


@dataclass(frozen=True, slots=True)
class Moment:
    """The commits that count at a moment; bounds as of `build`."""

    view: TimelineView
    as_of: str | None = None
    as_of_completion: str | None = None

    def completed_at(self, requested: str) -> str | None:
        """C of a commit that counts, else None."""
        return self._within(requested, self.view.completed_at(requested))

    def completion_of(self, file: BaseFile | LogFile) -> str | None:
        """C of the commit that a file belongs to; None where it does not count."""
        return self._within(file.instant, self.view.completion_of(file))

    def _within(self, requested: str, completed: str | None) -> str | None:
        if completed is None or (self.as_of is not None and requested > self.as_of):
            return None
        return None if self.as_of_completion is not None and completed > self.as_of_completion else completed

    def __contains__(self, requested: object) -> bool:
        return isinstance(requested, str) and self.completed_at(requested) is not None


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: its base file, and the log files written since. Only one of them may be missing."""

    group: FileGroupId
    base: BaseFile | None
    logs: tuple[LogFile, ...] = ()

    @property
    def partition(self) -> str:
        """Partition path, "" when unpartitioned."""
        return self.group.partition

    @property
    def file_id(self) -> str:
        """File id of the group."""
        return self.group.file_id

    @property
    def instant(self) -> str:
        """T of the base file; without one, of the oldest log file."""
        return self.base.instant if self.base else min(log.instant for log in self.logs)

    @property
    def path(self) -> str:
        """The base file's path relative to the table. Raises `UnsupportedTableError` when there are only log files."""
        return self._rows().path

    @property
    def size(self) -> int:
        """Bytes of the base file; raises as `path` does."""
        return self._rows().size

    @property
    def paths(self) -> set[str]:
        """Of all its files."""
        return {log.path for log in self.logs} | ({self.base.path} if self.base else set())

    @property
    def total_size(self) -> int:
        """Bytes of all its files."""
        return sum(log.size for log in self.logs) + (self.base.size if self.base else 0)

    def _rows(self) -> BaseFile:
        if self.base is None:
            raise UnsupportedTableError(
                f"File group {self.file_id} in partition {self.partition!r} has only log files and no "
                "base file yet. Compact the table",
                group=self.group,
            )
        return self.base


class Snapshot:
    """The file slices of a table as of one moment. Immutable, and cheap to derive from: partitions are shared."""

    __slots__ = ("_partitions",)

    def __init__(self, partitions: Mapping[str, Mapping[str, FileSlice]] | None = None) -> None:
        self._partitions = dict(partitions or {})

    def partitions(self) -> list[str]:
        """Partitions that have at least one file slice, sorted."""
        return sorted(self._partitions)

    def file_slices(self, partition: str | None = None) -> list[FileSlice]:
        """The newest slice of each file group, of one partition or of all, sorted by partition and file id."""
        chosen = self.partitions() if partition is None else [partition]
        return [
            slices[file_id]
            for each in chosen
            for slices in [self._partitions.get(each, {})]
            for file_id in sorted(slices)
        ]

    def get(self, group: tuple[str, str]) -> FileSlice | None:
        """The slice of one file group (partition, file id), or None."""
        return self._partitions.get(group[0], {}).get(group[1])

    def __len__(self) -> int:
        return sum(len(slices) for slices in self._partitions.values())

    def __eq__(self, other: object) -> bool:
        return self._partitions == other._partitions if isinstance(other, Snapshot) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as for every container that is compared by content

    def __repr__(self) -> str:
        return f"Snapshot({len(self)} file groups in {len(self._partitions)} partitions)"

    def after(self, commit: CommitMetadata, requested: str, completed: str) -> Snapshot:
        """The snapshot once this commit counts as well."""
        del requested  # the files' own names carry it
        return self.after_all([(commit.to_json(), completed)])

    def after_all(self, commits: Iterable[tuple[Mapping[str, Any], str]]) -> Snapshot:
        """The snapshot once these commits (and their C) count as well; work and memory are per partition that they touch.

        They come as the plain values of their log entries, because every writer does this for all others' commits, and
        must be such that validated, one after another: none writes a group that an earlier one replaced.
        """
        changed: dict[str, dict[str, FileSlice]] = {}

        def slices_of(partition: str) -> dict[str, FileSlice]:
            if partition not in changed:
                changed[partition] = dict(self._partitions.get(partition, {}))
            return changed[partition]

        for commit, completed in commits:
            replaced = commit.get("replaced", {})
            for partition, file_ids in replaced.items():
                slices = slices_of(partition)
                for file_id in file_ids:
                    slices.pop(file_id, None)
            for stat in commit.get("stats", ()):
                paths, size = [stat["path"]], stat.get("file_size", 0)
                if logs := stat.get("log_files"):
                    folder = f"{stat['partition']}/" if stat["partition"] else ""
                    paths = sorted({*paths, *(folder + name.rpartition("/")[2] for name in logs)})
                for path in paths:
                    file = BaseFile.at(path, size) or LogFile.at(path, size, completed=completed)
                    if file is not None and file.file_id not in replaced.get(file.partition, ()):
                        slices = slices_of(file.partition)
                        slices[file.file_id] = _with_file(slices.get(file.file_id), file)
        return Snapshot({name: slices for name, slices in {**self._partitions, **changed}.items() if slices})


def build(
    listing: Listing,
    view: TimelineView,
    config: TableConfig,
    *,
    as_of: str | None = None,
    as_of_completion: str | None = None,
) -> Snapshot:
    """The file slices that are visible.

    Args:
        listing: the files there are.
        view: the commits that count, of the whole timeline.
        config: of the table; its layout decides how log files are attached.
        as_of: only commits with T not after this, as both Hudi readers travel in time.
        as_of_completion: only commits with C not after this.

    Raises:
        CorruptTableError: a commit left two base files of one file group; readers would choose differently.
    """
    moment = Moment(view, as_of, as_of_completion)
    gone = {
        group
        for each in view.replacements
        if (as_of is None or each.requested <= as_of)
        and (as_of_completion is None or each.completed <= as_of_completion)
        for group in each.groups
    }
    bases: dict[FileGroupId, BaseFile] = {}
    for base in listing.bases:
        if base.group in gone or moment.completion_of(base) is None:
            continue
        other = bases.get(base.group)
        if other is not None and other.instant == base.instant:
            raise _two_base_files(other, base)
        if other is None or base.instant > other.instant:
            bases[base.group] = base
    logs: dict[FileGroupId, list[LogFile]] = defaultdict(list)
    for log in listing.logs:
        completed = moment.completion_of(log)
        if log.group not in gone and completed is not None:
            if config.layout == 1:  # its name has the base file's time, which is also what attaches it
                log = replace(log, completed=log.instant, among=moment)
            else:
                log = replace(log, completed=completed)
            logs[log.group].append(log)
    return _snapshot(bases, logs)


def _snapshot(bases: Mapping[FileGroupId, BaseFile], logs: Mapping[FileGroupId, Sequence[LogFile]]) -> Snapshot:
    partitions: dict[str, dict[str, FileSlice]] = defaultdict(dict)
    for group in {**bases, **logs}:
        base = bases.get(group)
        since = _since(base, logs.get(group, ()))
        partitions[group.partition][group.file_id] = FileSlice(group, base, since)
    return Snapshot(partitions)


def _since(base: BaseFile | None, logs: Sequence[LogFile]) -> tuple[LogFile, ...]:
    """The log files that are not yet part of the base file, in the order of merging."""
    if not logs:
        return ()
    kept = [log for log in logs if base is None or log.completed >= base.instant]
    return tuple(sorted(kept, key=lambda log: log.order))


def _with_file(current: FileSlice | None, file: BaseFile | LogFile) -> FileSlice:
    """The slice with one more committed file."""
    base, logs = (current.base, current.logs) if current else (None, ())
    if isinstance(file, LogFile):
        return FileSlice(file.group, base, _since(base, (*logs, file)))
    if base is None or file.instant > base.instant:
        base = file
    return FileSlice(file.group, base, _since(base, logs))


def _two_base_files(one: BaseFile, other: BaseFile) -> CorruptTableError:
    return CorruptTableError(
        f"Commit {one.instant} left two base files of file group {one.file_id}: {one.path} and {other.path}. "
        "The commit's statistics name the one that counts; delete the other (`lakelatch check` tells which)",
        instant=one.instant,
        group=one.group,
        paths=(one.path, other.path),
    )
