"""The driver's side of a rebase: turn lost file groups into a round, and stage what the round wrote."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from ...conflict import Conflict, Repeatable
from ...errors import InputError
from ...hudi.files import FileGroupId, bucket_of
from ...hudi.timeline import FileSlice, Snapshot, WriteStat
from ..entries import Commit
from ..staging import NewFile, Staged
from .rebase import Again, Appended, Lost, OwnFile, Unit

if TYPE_CHECKING:
    import pyarrow as pa

    from ..session import Session
    from ..staging import FileSpec


class MergeAgain(Exception):
    """Only outdated merges conflict: these file groups of ours, with commits before the slot."""

    def __init__(self, conflicts: Sequence[Conflict], groups: frozenset[FileGroupId], slot: int) -> None:
        super().__init__(conflicts[0].rule)
        self.conflicts, self.groups, self.slot = tuple(conflicts), groups, slot


@dataclass(frozen=True, slots=True)
class Round:
    """One round before it runs: the `Lost` passed to ``again``, and the slice that each new file succeeds."""

    lost: Lost
    slices: dict[FileGroupId, FileSlice]  # file group of a possible new file -> the slice it succeeds


class Merging(Protocol):
    """The view of a transaction that a rebase needs."""

    url: str
    operation: str
    begin_slot: int
    session: Session
    changes: Staged

    @property
    def snapshot(self) -> Snapshot: ...
    def file_spec(self, schema: pa.Schema) -> FileSpec:
        """The `FileSpec` of the files of this transaction."""

    def require_open(self) -> None:
        """Raise if it is over."""


class Rebase:
    """The state of a transaction's rebase, kept from round to round.

    Attributes:
        slot: all our changes are compared and merged with the commits before this slot.
        round: the number of rounds so far.
        took_s: seconds of the last one.
        stalls: True if the round prepared last is more than half as large as the one before, in bytes of slices.
    """

    def __init__(self, work: Merging, again: Again | None, *, looks_again: bool) -> None:
        self.slot, self.round, self.took_s = work.begin_slot, 0, 0.0
        self.stalls, self._bytes = False, 0
        self._work, self._again, self._looks_again = work, again, looks_again
        self._made_from: dict[FileGroupId, FileSlice] = {}  # own file group -> slice, for files of a round
        self._now: Snapshot | None = None
        self._before: tuple[int, Snapshot | None] = self.slot, None  # slot and state before the last round

    @property
    def base(self) -> Snapshot:
        """The state that the staged files were last computed from: of the last round, or the snapshot before the first one."""
        return self._now or self._work.snapshot

    def repeatable(self, staged: Staged) -> Repeatable:
        """The input of `resolve` about merging again."""
        return Repeatable(staged.mergeable(), self._looks_again)

    def prepare(self, lost: MergeAgain, commits: Sequence[Commit], spec: FileSpec) -> Round | None:
        """Prepare the next round, on the state at ``lost.slot``; None if rows of ours have no file group left."""
        work, before = self._work, self.base
        now = before
        for commit in commits:
            # Earlier commits are in ``before`` already, and later ones are left to the next round.
            if self.slot <= commit.slot < lost.slot:
                now = now.after_all([(work.session.files_of(commit), commit.instant, commit.completion)])
        units = self._units(lost.groups, before, now, bucketed=spec.bucket_count is not None)
        if any(not unit.current for unit in units):
            return None
        appended = self._appended(lost.groups, now)
        if appended is None:
            return None
        covered = {each.group for unit in units for each in unit.current} | {each.current.group for each in appended}
        appeared = tuple(self._appeared(before, now, covered)) if self._looks_again else ()
        self._before = self.slot, self._now
        self.round, self.slot, self._now = self.round + 1, lost.slot, now
        told = Lost(
            replace(spec, begun={}),
            self.round,
            tuple(units),
            appeared,
            appended,
            {commit.instant: commit.operation for commit in commits if commit.slot < lost.slot},
            work.url,
            work.operation,
        )
        slices = [each for unit in units for each in unit.current] + list(appeared)
        size = sum(each.total_size for each in (*slices, *(each.current for each in appended)))
        self.stalls, self._bytes = 2 * size > self._bytes > 0, size
        return Round(told, {FileGroupId(each.partition, told.file_id(each)): each for each in slices})

    def _units(self, lost: frozenset[FileGroupId], before: Snapshot, now: Snapshot, *, bucketed: bool) -> list[Unit]:
        staged = self._work.changes
        found: dict[tuple[FileSlice, ...], list[OwnFile]] = {}
        for group, stat in staged.files.items():
            place = staged.place_of(group)
            if not {group, place} & lost:
                continue
            old = self._made_from.get(group) or self._work.snapshot.get(place)
            current = _successors(place, before, now, bucketed=bucketed)
            # Files with the same successors are one unit, because only the keys say which successor has a row.
            found.setdefault(current, []).append(OwnFile(group, stat.path, old))
        return [Unit(files[0].group.partition, tuple(files), current) for current, files in found.items()]

    def _appended(self, lost: frozenset[FileGroupId], now: Snapshot) -> tuple[Appended, ...] | None:
        """Our log files in lost groups; None if one of the groups is gone, because nobody would read our log file then."""
        found = []
        for group, logs in self._work.changes.logs.items():
            if group in lost:
                current = now.get(group)
                if current is None:
                    return None
                found.append(Appended(logs, self._work.snapshot.get(group), current))
        return tuple(found)

    def _appeared(self, before: Snapshot, now: Snapshot, covered: set[FileGroupId]) -> Iterable[FileSlice]:
        where = self._work.changes.looked_where
        for partition in now.partitions():
            if where.covers(partition):
                for each in now.file_slices(partition):
                    if each.group not in covered and each != before.get(each.group):
                        yield each

    def run(self, task: Round) -> None:
        """Run the round and stage its files in place of the superseded ones. Raises what ``again`` raises."""
        work, lost = self._work, task.lost
        began = work.session.env.monotonic()
        files = _RoundFiles(work, lost)
        made = (self._again or _by_rows)(Lost(**{**lost.__dict__, "_open": files.rewrite}))
        stats = [*(made or ()), *files.stats()]
        if not work.changes.only(own.group for unit in lost.units for own in unit.ours) or stats:
            stats += self._unchanged(task, stats)
        moved: dict[FileGroupId, FileGroupId] = {}
        for stat in stats:
            group = FileGroupId(stat.partition, stat.file_id)
            if (slice_ := task.slices.get(group)) is not None:
                self._made_from[group] = slice_
                moved[group] = slice_.group
            elif not stat.log_files and self._now is not None and self._now.get(group):
                raise InputError(
                    f"the rebase of {lost.spec.instant} wrote file group {group}, which it did not lose; nothing landed. "
                    "Write the slices that it is told of, under the file ids that it is told",
                    group=str(group),
                )
        superseded = [own.group for unit in lost.units for own in unit.ours]
        fresh = {group for group in superseded if work.snapshot.get(group) is None}
        work.changes.supersede(superseded, stats, moved, fresh)
        self.took_s = work.session.env.monotonic() - began

    def take_back(self) -> None:
        """Undo the last round: its files do not belong to the transaction. Its number is not used again."""
        self.slot, self._now = self._before

    def _unchanged(self, task: Round, stats: Sequence[WriteStat]) -> list[WriteStat]:
        """Copy slices in which nothing of ours changes any more: our old file of that group must not come back there."""
        made, staged = {FileGroupId(stat.partition, stat.file_id) for stat in stats}, self._work.changes
        ours = {
            place for unit in task.lost.units for own in unit.ours for place in (own.group, staged.place_of(own.group))
        }
        left = [each for group, each in task.slices.items() if group not in made and each.group in ours]
        if not left:
            return []
        from .replay_rows import copies

        return copies(task.lost, left)


def _successors(place: FileGroupId, before: Snapshot, now: Snapshot, *, bucketed: bool) -> tuple[FileSlice, ...]:
    """The slices that may hold the rows of a file group now: its own, or the new ones if its rows were moved."""
    # In a bucketed table a key's bucket never changes, so the bucket finds the rows even after a winner moved them.
    if bucketed:
        bucket = bucket_of(place.file_id)
        return tuple(each for each in now.file_slices(place.partition) if bucket_of(each.file_id) == bucket)
    own = now.get(place)
    if own is not None:
        return (own,)
    return tuple(each for each in now.file_slices(place.partition) if before.get(each.group) is None)


def _by_rows(lost: Lost) -> list[WriteStat]:
    from .replay_rows import merge_rows

    return merge_rows(lost)


class _RoundFiles:
    """The files that `Lost.rewrite` makes. They belong to the round, not yet to the transaction."""

    def __init__(self, work: Merging, lost: Lost) -> None:
        self._work, self._lost = work, lost
        self._open: list[NewFile] = []
        self._stats: list[WriteStat] = []

    def rewrite(self, current: FileSlice) -> NewFile:
        file_id, number = self._lost.file_id(current), self._lost.round
        return NewFile(self, partition=current.partition, file_id=file_id, moves=current, round=number)

    def stats(self) -> list[WriteStat]:
        for file in self._open:
            file.close()
        return self._stats

    def file_spec(self, schema: pa.Schema) -> FileSpec:
        return self._work.file_spec(schema)

    def add(self, stats: Iterable[WriteStat]) -> None:
        self._stats.extend(stats)

    def present(self, slice_: FileSlice) -> FileSlice:
        return slice_

    def staging(self) -> AbstractContextManager[None]:
        return nullcontext()

    def adopt(self, file: NewFile) -> None:
        self._open.append(file)

    def require_open(self) -> None:
        self._work.require_open()
