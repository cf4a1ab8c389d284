"""File slices: the files that hold the rows of a table as of one moment. Pure; reads nothing.

    a file counts if its T is committed, or older than the first active instant: it is archived then, unless it is known
      to have come later (`archived`)
    of the base files of a group the one with the largest T counts, whatever C says
    a log file belongs to the newest base file whose T is not after its C (version 6: not after the time in its name)
    a group that a visible replacecommit names is gone
    a file that a commit names, and that no later one supersedes, counts even if it is not listed: reading it fails, where
      its rows, or older ones in their place, would be a wrong answer

Source: the rules that both readers were measured to follow.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Protocol

from ...errors import CorruptTableError, UnsupportedTableError
from ..files import BaseFile, FileGroupId, Listing, LogFile
from ..table import TableConfig
from .archived_files import ArchivedFiles
from .commit_metadata import CommitMetadata
from .instant import Instant

# A commit: the plain values of its log entry, its T and its C.
Landed = tuple[Mapping[str, Any], str, str]
Slices = Mapping[str, Mapping[str, "FileSlice"]]  # partition -> file id -> slice
_LISTED_ALONE = 16  # list partitions one by one up to here, then all at once, which takes fewer requests


@dataclass(frozen=True, slots=True)
class Replacement:
    """File groups that the replacecommit with times T and C took away."""

    requested: str
    completed: str
    groups: tuple[FileGroupId, ...]


@dataclass(frozen=True, slots=True)
class TimelineView:
    """The timeline as a snapshot needs it.

    Attributes:
        completion: T -> C of every completed commit that is known.
        first_active: smallest T on the active timeline, pending ones included; None when it is empty.
        replacements: of all completed replacecommits.
        archived_before: the T before which a file may be an archived commit's.
        archived: which of those files count; None: all before the first active T.
    """

    completion: Mapping[str, str] = field(default_factory=dict)
    first_active: str | None = None
    replacements: tuple[Replacement, ...] = ()
    archived_before: str | None = None
    archived: ArchivedFiles | None = None

    def completed_at(self, requested: str) -> str | None:
        """Return C of a commit; T itself if it is archived, as C is not known then; None while it is not committed."""
        completed = self.completion.get(requested)
        if completed is None and self.first_active is not None and requested < self.first_active:
            return requested
        return completed

    def completion_of(self, file: BaseFile | LogFile) -> str | None:
        """Return C of the commit that a file belongs to; None if the file does not count."""
        completed = self.completed_at(file.instant)
        if self.archived is None or self.archived_before is None or file.instant >= self.archived_before:
            return completed
        if (counts := self.archived.counts(file)) is None:
            return completed
        # The first active T cannot decide: it may be that of a pending instant that came late as well.
        return completed or file.instant if counts else None


@dataclass(frozen=True, slots=True)
class Moment:
    """The commits that count at a moment; bounds as of `build`."""

    view: TimelineView
    as_of: str | None = None
    as_of_completion: str | None = None

    def completed_at(self, requested: str) -> str | None:
        """Return C of a commit that counts, else None."""
        return self._within(requested, self.view.completed_at(requested))

    def completion_of(self, file: BaseFile | LogFile) -> str | None:
        """Return C of the commit that a file belongs to; None if the file does not count."""
        return self._within(file.instant, self.view.completion_of(file))

    def includes(self, archived: Instant) -> bool:
        """Return whether a commit that is archived counts."""
        return self._within(archived.requested, archived.completed) is not None

    def _within(self, requested: str, completed: str | None) -> str | None:
        if completed is None or (self.as_of is not None and requested > self.as_of):
            return None
        return None if self.as_of_completion is not None and completed > self.as_of_completion else completed

    def __contains__(self, requested: object) -> bool:
        return isinstance(requested, str) and self.completed_at(requested) is not None


@dataclass(frozen=True, slots=True)
class FileSlice:
    """One version of a file group: its base file and the log files written since. Either may be missing, but not both."""

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
        """T of the base file, or of the oldest log file if there is no base file."""
        return self.base.instant if self.base else min(log.instant for log in self.logs)

    @property
    def path(self) -> str:
        """The base file's path relative to the table. Raises `UnsupportedTableError` if there are only log files."""
        return self._rows().path

    @property
    def size(self) -> int:
        """Bytes of the base file; raises as `path` does."""
        return self._rows().size

    @property
    def paths(self) -> set[str]:
        """The paths of all its files."""
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
                group=str(self.group),
            )
        return self.base


class Unlisted(Protocol):
    """The partitions of a snapshot whose files have not been listed yet."""

    def slices_of(self, partition: str) -> Mapping[str, FileSlice]:
        """Return the slices of one partition, by file id; {} if it has none."""
        ...

    def all_slices(self) -> Mapping[str, Mapping[str, FileSlice]]:
        """Return the slices of every partition."""
        ...

    def after_all(self, commits: Iterable[Landed]) -> Unlisted:
        """Return these partitions once the commits count as well."""
        ...


class Snapshot:
    """The file slices of a table as of one moment. Immutable, and cheap to derive from: partitions are shared.

    Args:
        partitions: path -> file id -> slice.
        unlisted: lists partitions missing here when they are asked for: one by one, and after a few all at once. None: there
            are no others. Its errors come out of the methods here.
    """

    __slots__ = ("_alone", "_mutex", "_partitions", "_unlisted")

    def __init__(
        self, partitions: Mapping[str, Mapping[str, FileSlice]] | None = None, unlisted: Unlisted | None = None
    ) -> None:
        self._partitions: dict[str, Mapping[str, FileSlice]] = dict(partitions or {})
        self._unlisted, self._alone, self._mutex = unlisted, 0, threading.Lock()

    @property
    def is_whole(self) -> bool:
        """True if every partition has been listed."""
        return self._unlisted is None

    def whole(self) -> Snapshot:
        """Return this snapshot with every partition listed; it does not ask the store again."""
        if (unlisted := self._unlisted) is not None:
            self._list_all(unlisted)
        return self

    def partitions(self) -> list[str]:
        """Return the partitions that have at least one file slice, sorted."""
        return sorted(self.whole()._partitions)

    def file_slices(self, partition: str | None = None) -> list[FileSlice]:
        """Return the newest slice of each file group, of one partition or of all, sorted by partition and file id."""
        chosen = self.partitions() if partition is None else [partition]
        return [slices[file_id] for each in chosen for slices in [self._of(each)] for file_id in sorted(slices)]

    def get(self, group: tuple[str, str]) -> FileSlice | None:
        """Return the slice of one file group (partition, file id), or None."""
        return self._of(group[0]).get(group[1])

    def by_partition(self) -> Mapping[str, Mapping[str, FileSlice]]:
        """Return all slices: partition -> file id -> slice."""
        return self.whole()._partitions

    def partitions_seen(self) -> list[str]:
        """Return the partitions listed so far, sorted; lists nothing."""
        with self._mutex:
            return sorted(name for name, slices in self._partitions.items() if slices)

    def __len__(self) -> int:
        return sum(len(slices) for slices in self.whole()._partitions.values())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Snapshot):
            return NotImplemented
        return self.whole()._partitions == other.whole()._partitions

    __hash__ = None  # type: ignore[assignment]  # as for every container that is compared by content

    def __reduce__(self) -> tuple[type[Snapshot], tuple[Mapping[str, Mapping[str, FileSlice]]]]:
        # The receiving process has no store to list with.
        return Snapshot, (self.whole()._partitions,)

    def __repr__(self) -> str:
        groups = sum(len(slices) for slices in self._partitions.values())
        return (
            f"Snapshot({groups} file groups in {len(self._partitions)} partitions{'' if self.is_whole else ' so far'})"
        )

    def after(self, commit: CommitMetadata, requested: str, completed: str) -> Snapshot:
        """Return the snapshot once this commit counts as well."""
        return self.after_all([(commit.to_json(), requested, completed)])

    def after_all(self, commits: Iterable[Landed]) -> Snapshot:
        """Return the snapshot once these commits count as well; work and memory are per partition that they touch.

        Commits are plain values of log entries, because every writer applies every other writer's commits. They must be valid
        one after another: none writes a group that an earlier one replaced.
        """
        with self._mutex:  # a partition listed in between would be in neither part
            known, unlisted = dict(self._partitions), self._unlisted
        if unlisted is None:
            return Snapshot(_advanced(known, commits, lambda partition: known.get(partition, {})))
        landed = list(commits)
        return Snapshot(_advanced(known, landed, known.get, empty_too=True), unlisted.after_all(landed))

    def with_files(self, commits: Iterable[Landed]) -> Snapshot:
        """Return the snapshot with files that are not committed, which no listing shows."""
        found = _advanced({}, commits, self._of, empty_too=True)
        with self._mutex:
            known, unlisted = {**self._partitions, **found}, self._unlisted
        return Snapshot(known if unlisted else {name: each for name, each in known.items() if each}, unlisted)

    # Nothing is listed under the mutex: the thread that lists may wait for a lock that our caller holds. Two threads that
    # list the same partition find the same.

    def _of(self, partition: str) -> Mapping[str, FileSlice]:
        unlisted = self._unlisted  # read first: once it is None, every partition has been listed
        found = self._partitions.get(partition)
        if found is None and unlisted is not None:
            if self._alone < _LISTED_ALONE:
                listed = unlisted.slices_of(partition)
                with self._mutex:
                    # Another thread may have listed all partitions meanwhile.
                    if self._unlisted is not None:
                        self._alone += 1
                        self._partitions.setdefault(partition, listed)
            else:
                self._list_all(unlisted)
            found = self._partitions.get(partition)
        return found or {}

    def _list_all(self, unlisted: Unlisted) -> None:
        listed = unlisted.all_slices()
        with self._mutex:
            found = {**listed, **self._partitions}
            self._partitions = {name: slices for name, slices in found.items() if slices}
            self._unlisted = None


def _advanced(
    known: Mapping[str, Mapping[str, FileSlice]],
    commits: Iterable[Landed],
    slices_of: Callable[[str], Mapping[str, FileSlice] | None],
    *,
    empty_too: bool = False,
) -> dict[str, Mapping[str, FileSlice]]:
    """Return the known partitions with the commits applied to those that ``slices_of`` knows."""
    changed: dict[str, dict[str, FileSlice]] = {}

    def changing(partition: str) -> dict[str, FileSlice] | None:
        if partition not in changed:
            before = slices_of(partition)
            if before is None:
                return None
            changed[partition] = dict(before)
        return changed[partition]

    for commit, _, completed in commits:
        # Replaced groups go first: the same commit writes the groups that take their place.
        replaced = commit.get("replaced", {})
        for partition, file_ids in replaced.items():
            if (slices := changing(partition)) is not None:
                for file_id in file_ids:
                    slices.pop(file_id, None)
        for file in _files_in(commit, completed):
            if (
                file.file_id not in replaced.get(file.partition, ())
                and (slices := changing(file.partition)) is not None
            ):
                slices[file.file_id] = _with_file(slices.get(file.file_id), file)
    return {name: slices for name, slices in {**known, **changed}.items() if slices or empty_too}


def _files_in(commit: Mapping[str, Any], completed: str) -> Iterator[BaseFile | LogFile]:
    """Yield the data files that a commit names."""
    for stat in commit.get("stats", ()):
        paths, size = [stat["path"] or ""], stat.get("file_size", 0)
        if logs := stat.get("log_files"):
            folder = f"{stat['partition']}/" if stat["partition"] else ""
            paths = sorted({*paths, *(folder + name.rpartition("/")[2] for name in logs)})
        for path in paths:
            file = BaseFile.at(path, size) or LogFile.at(path, size, completed=completed)
            if file is not None:
                yield file


def build(
    listing: Listing,
    view: TimelineView,
    config: TableConfig,
    *,
    as_of: str | None = None,
    as_of_completion: str | None = None,
    named: Slices = MappingProxyType({}),
) -> Snapshot:
    """Return the visible file slices.

    Args:
        listing: the files that exist.
        view: the committed transactions of the whole timeline.
        config: the table's; its layout decides how log files are attached.
        as_of: only commits with T not after this, as both Hudi readers travel in time.
        as_of_completion: only commits with C not after this.
        named: the slices that these commits left (`named_slices`), as far as the listing covers their partitions.

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
        group = base.group
        if group in gone or moment.completion_of(base) is None:
            continue
        other = bases.get(group)
        if other is not None and other.instant == base.instant:
            raise _two_base_files(other, base)
        if other is None or base.instant > other.instant:
            bases[group] = base
    logs: dict[FileGroupId, list[LogFile]] = defaultdict(list)
    for log in listing.logs:
        completed = moment.completion_of(log)
        if log.group not in gone and completed is not None:
            # Its name has the base file's time, which is also what attaches it.
            if config.layout == 1:
                log = replace(log, completed=log.instant, among=moment)
            else:
                log = replace(log, completed=completed)
            logs[log.group].append(log)
    known = [each for slices in named.values() for each in slices.values() if each.group not in gone]
    for each in _not_replaced(moment, known, bases, logs if config.layout != 1 else None):
        there = bases.get(each.group)
        if each.base and (there is None or (there.path != each.base.path and there.instant <= each.base.instant)):
            bases[each.group] = each.base
        # Layout 1 appends to one log file, so a file that is not listed has no size and no order there.
        if each.logs and config.layout != 1:
            paths = {log.path for log in logs[each.group]}
            logs[each.group] += (log for log in each.logs if log.path not in paths)
    if view.archived is not None and view.archived_before is not None:
        old = (each for each in view.archived.named(view.archived_before) if listing.covers(each.partition))
        lacking = [each for each in old if each.group not in gone and moment.completion_of(each) is not None]
        lacking = [each for each in lacking if (b := bases.get(each.group)) is None or b.instant < each.instant]
        bases |= {each.group: each for each in view.archived.not_replaced(lacking)}
    return _snapshot(bases, logs)


def _not_replaced(
    moment: Moment,
    named: list[FileSlice],
    bases: Mapping[FileGroupId, BaseFile],
    logs: Mapping[FileGroupId, Sequence[LogFile]] | None,
) -> list[FileSlice]:
    """Return the named slices without those of file groups that an archived commit has replaced.

        t=0  X commits T=6 to file group g; Y, with T=5, merges again and replaces g
        t=1  a clean deletes the files of g; an archival takes Y's instant off the timeline, and not yet X's

    So the history is asked where a named file is not there. ``logs``: None if names of log files do not tell.
    """
    lacking: list[str] = []
    for each in named:
        if (base := each.base) and ((there := bases.get(each.group)) is None or there.instant < base.instant):
            lacking.append(base.instant)
        if each.logs and logs is not None:
            paths = {log.path for log in logs.get(each.group, ())}
            lacking += (log.instant for log in each.logs if log.path not in paths)
    if not lacking or moment.view.archived is None:
        return named
    landed = min(moment.completed_at(each) or "" for each in lacking)
    gone = moment.view.archived.replaced(counts=lambda each: (each.completed or "") > landed and moment.includes(each))
    return [each for each in named if each.group not in gone]


def named_slices(commits: Iterable[Landed]) -> Slices:
    """Return the slices that these commits, in order of C, left of what they wrote, whether the files exist or not."""
    return _advanced({}, commits, lambda _: {})


def _snapshot(bases: Mapping[FileGroupId, BaseFile], logs: Mapping[FileGroupId, Sequence[LogFile]]) -> Snapshot:
    partitions: dict[str, dict[str, FileSlice]] = defaultdict(dict)
    for group in {**bases, **logs}:
        base = bases.get(group)
        since = _since(base, logs.get(group, ()))
        partitions[group.partition][group.file_id] = FileSlice(group, base, since)
    return Snapshot(partitions)


def _since(base: BaseFile | None, logs: Sequence[LogFile]) -> tuple[LogFile, ...]:
    """Return the log files that the base file does not contain yet, in merge order."""
    if not logs:
        return ()
    # A compaction takes its T when it is planned. A log file completed after that is not in its base file, whatever its own
    # T.
    kept = [log for log in logs if base is None or log.completed >= base.instant]
    return tuple(sorted(kept, key=lambda log: log.order))


def _with_file(current: FileSlice | None, file: BaseFile | LogFile) -> FileSlice:
    """Return the slice with one more committed file."""
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
        group=str(one.group),
        paths=(one.path, other.path),
    )
