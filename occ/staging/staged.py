"""The changes that a transaction will commit: files written, file groups replaced, regions claimed. No protocol here."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from ...conflict import NOWHERE, ReadSet, Region, Scan, Values, Where, WriteSet
from ...errors import ConfigError, InputError
from ...hudi.files import BaseFile, FileGroupId, LogFile
from ...hudi.timeline import COMPLETED_AS, LATEST, CommitMetadata, FileSlice, Snapshot, WriteStat
from ..entries import Operation, operation, together

# Verbs with a name of their own in Hudi, for a transaction that used only this one.
_ALONE = {"insert": "INSERT", "delete": "DELETE", "delete_where": "DELETE", "delete_all": "DELETE"}


class Staged:
    """Collects the changes until the commit; read-only afterwards.

    ``service``: the operation of a table service, which has no name in `operation`.

    Attributes:
        verbs: the writing methods that were called so far.
        placed_by: the number of buckets, merge and ties that its files were written by.
    """

    def __init__(self, name: str, service: Operation | None = None, *, merge_on_read: bool = False) -> None:
        self.operation = service or operation(name, merge_on_read=merge_on_read)
        self._name = name
        self._stats: dict[FileGroupId, WriteStat] = {}
        self._logs: dict[FileGroupId, list[WriteStat]] = {}
        self._replaced: set[FileGroupId] = set()
        self._region = NOWHERE
        self._moved: dict[FileGroupId, FileGroupId] = {}  # own new file group -> the one whose rows moved there
        self._given_up: frozenset[FileGroupId] = frozenset()  # file groups of our own superseded files
        self._became: dict[FileGroupId, FileGroupId] = {}  # file group -> the one where a later write put its rows
        self._read = NOWHERE
        self._looked = NOWHERE
        self._looked_into: set[FileGroupId] = set()
        self._scanned: Region | None = None
        self._saw: set[FileGroupId] = set()
        self._conditions: list[Scan] = []
        self._scans: list[Scan] = []
        self._values: dict[str, Values] | None = None
        self._metadata: CommitMetadata | None = None
        self.verbs = set[str]()
        self.placed_by = set[tuple[object, ...]]()
        self.empty_too = self.streams_only = False
        self.tells_all = False  # the writer declares all its reads; otherwise it may have read everything
        self.named: frozenset[FileGroupId] = frozenset()  # file groups that a service names and does not write

    def add(self, stats: Iterable[WriteStat]) -> None:
        """Add written files to the commit: one base file per file group, or any number of log files."""
        self._values = None
        for each in stats:
            group, stat = FileGroupId(each.partition, each.file_id), each
            if each.whole is not None:
                # Relative to the slice that the transaction began with; the counts of one write would say that its
                # own rows were updated.
                inserts, updates, deletes = each.whole
                stat = replace(each, num_inserts=inserts, num_updates=updates, num_deletes=deletes, whole=None)
            if each.log_files:
                # Two runs of a task report the same file, which counts once.
                logs = self._logs.setdefault(group, [])
                logs += [] if any(log.path == stat.path for log in logs) else [stat]
                continue
            before = self._stats.setdefault(group, stat)
            if before.path != stat.path:
                raise InputError(
                    f"two files of one transaction for file group {group}: {before.path} and {stat.path}; readers refuse "
                    "such a table, so nothing was committed. Write each file group once",
                    group=str(group),
                )

    def drop_file_groups(self, slices: Iterable[FileSlice]) -> None:
        """Remove file groups from the readers' view."""
        if COMPLETED_AS.get(self.operation.action, self.operation.action) != "replacecommit":
            raise ConfigError(
                f"a transaction begun as {self._name!r} cannot drop file groups; begin it as 'insert_overwrite', "
                "'insert_overwrite_table' or 'delete_partition'"
            )
        for slice_ in slices:
            group = self.now(slice_.group)
            self._replaced |= {slice_.group, group}
            self._values = None
            self._logs.pop(group, None)
            # The dropped file may hold the rows of another group, which readers would see again without it.
            if self._stats.pop(group, None) is not None and (place := self._moved.pop(group, None)) is not None:
                self._replaced.add(place)

    # --- several writes ------------------------------------------------------------------------------------------

    def now(self, group: FileGroupId) -> FileGroupId:
        """The file group that holds the rows of ``group`` after the writes so far."""
        while group in self._became:
            group = self._became[group]
        return group

    def present(self, slice_: FileSlice) -> FileSlice:
        """Return the staged state of a slice: the file in its place, or the slice with our log files on it."""
        group = self.now(slice_.group)
        stat = self._stats.get(group)
        if stat is not None:
            return FileSlice(group, BaseFile.at(stat.path, stat.file_size))
        logs = [log for each in self._logs.get(group, ()) if (log := LogFile.at(each.path, each.file_size))]
        return replace(slice_, logs=(*slice_.logs, *logs)) if logs else slice_

    def dropped(self, group: FileGroupId) -> bool:
        """Return whether the commit removes the file group from the readers' view."""
        return group in self._replaced

    def onto(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot as it would be after this commit."""
        if not (self.stats or self._replaced):
            return snapshot
        files = [_as_committed(each) for each in self.stats]
        return snapshot.with_files([*files, ({"replaced": self._replaced_by_partition()}, "", "")])

    def follow(self, stats: Sequence[WriteStat], after: Mapping[FileGroupId, FileGroupId], snapshot: Snapshot) -> None:
        """Add the files of a write. ``after`` maps the group of a new file to the group of the staged file it replaces."""
        new = {FileGroupId(stat.partition, stat.file_id) for stat in stats}
        old = {group: before for group, before in after.items() if group in new and before in self._stats}
        places = {group: self.place_of(before) for group, before in old.items()}
        self._became.update({before: group for group, before in old.items()})
        self.supersede(
            old.values(),
            stats,
            {group: place for group, place in places.items() if snapshot.get(place) is not None},
            {before for before in old.values() if snapshot.get(before) is None},
        )

    def overwrites(self, partition: str | None) -> None:
        """Claim the partition (None: the table): the commit replaces all in it, even rows that appear before it."""
        self._region |= _region(partition)

    def depends_on(self, partition: str | None, slices: Iterable[FileSlice] = (), where: Where = ()) -> None:
        """Declare that the result depends on all rows in the partition (None: the table); with ``where`` see `Scan`."""
        if where:
            self._conditions.append(Scan(_region(partition), where, frozenset(each.group for each in slices)))
        else:
            self._read |= _region(partition)

    def mark_lookup(self, partition: str | None, file_id: str = "") -> None:
        """Record a key lookup in the partition (None: the table) or in one group, by a merge that can repeat it."""
        self.tells_all = True
        if partition is not None and file_id:
            self._looked_into.add(FileGroupId(partition, file_id))
        else:
            self._looked |= _region(partition)

    @property
    def looked_where(self) -> Region:
        """The region in which the write's condition was evaluated or its keys were looked up."""
        region = self._read | self._looked
        for scan in self._conditions:
            region |= scan.region
        return region

    def mark_scanned(self, partition: str | None, slices: Iterable[FileSlice], where: Where = ()) -> None:
        """Record a read of the partition's rows (None: the table's): these slices, complete at the snapshot."""
        groups = frozenset(each.group for each in slices)
        if where:
            self._scans.append(Scan(_region(partition), where, groups))
        else:
            self._scanned = (self._scanned or NOWHERE) | _region(partition)
            self._saw |= groups

    def saw(self, slice_: FileSlice) -> None:
        """Record that this slice was read."""
        self._saw.add(slice_.group)

    # --- a rebase ------------------------------------------------------------------------------------------------

    @property
    def files(self) -> dict[FileGroupId, WriteStat]:
        """The written base files, by file group."""
        return dict(self._stats)

    @property
    def logs(self) -> dict[FileGroupId, tuple[WriteStat, ...]]:
        """The written log files, in order, by the file group that they belong to."""
        return {group: tuple(logs) for group, logs in self._logs.items()}

    def mergeable(self) -> frozenset[FileGroupId]:
        """The file groups that a rebase can merge again: those of written files, of their rows, of superseded files."""
        return frozenset(self._stats) | frozenset(self._logs) | frozenset(self._moved.values()) | self._given_up

    def place_of(self, group: FileGroupId) -> FileGroupId:
        """The file group whose rows a staged group holds: itself, or the group that it replaces."""
        return self._moved.get(group, group)

    def only(self, groups: Iterable[FileGroupId]) -> bool:
        """Return whether nothing but these groups is staged."""
        return self._stats.keys() | self._logs.keys() <= set(groups) and not (
            self._replaced or self._region or self.empty_too
        )

    def supersede(
        self,
        old: Iterable[FileGroupId],
        new: Iterable[WriteStat],
        moved: Mapping[FileGroupId, FileGroupId],
        fresh: Collection[FileGroupId],
    ) -> None:
        """Replace staged files: ``old`` leave the commit, ``new`` join it.

        Args:
            moved: new file group -> the group whose rows it took over, which the commit replaces.
            fresh: groups of ``old`` that this transaction began; the commit replaces them too, so that a late worker cannot
                bring them back.
        """
        for group in old:
            del self._stats[group]
            self._moved.pop(group, None)
        self.add(new)
        self._moved.update(moved)
        self._given_up |= frozenset(fresh)

    @property
    def replaces(self) -> bool:
        """True if the write declared to replace file groups, a partition or the table."""
        return bool(self._replaced or self._region)

    @property
    def moves(self) -> bool:
        """True if the commit replaces file groups because their rows moved, or because it began and superseded them."""
        return bool(self._moved or self._given_up)

    @property
    def untouched(self) -> bool:
        """True if no write and no read is recorded so far."""
        read = self.tells_all or self.looked_where or self._looked_into or self._saw or self._scans or self._conditions
        return self.empty and self._scanned is None and not read

    @property
    def empty(self) -> bool:
        """True if there is nothing to commit."""
        return not (self._stats or self._logs or self._replaced or self._region or self.empty_too)

    def paths(self) -> set[str]:
        """The paths of the commit's data files."""
        return {stat.path for stat in self.stats}

    @property
    def stats(self) -> tuple[WriteStat, ...]:
        """All written files, base files first."""
        return (*self._stats.values(), *(stat for logs in self._logs.values() for stat in logs))

    def write_set(self) -> WriteSet:
        """The file groups created, changed or replaced, and the region claimed."""
        appended, rewritten = frozenset(self._logs), frozenset(self._stats) | self._all_replaced()
        others = self.named | rewritten
        # The same object, so that comparing the two sets is free.
        groups = appended | others if others else appended
        return WriteSet(groups, self._region, appended - rewritten if rewritten else appended, unique=self.values())

    def values(self) -> dict[str, Values]:
        """The written values that no two rows may share: new keys, and values under unique constraints."""
        if self._values is None:
            facts = [(s.partition, s.facts.values) for s in self.stats if s.facts]
            if not facts:
                return {}
            self._values = together(facts)
        return self._values

    def _all_replaced(self) -> frozenset[FileGroupId]:
        return frozenset(self._replaced) | frozenset(self._moved.values()) | self._given_up

    @property
    def label(self) -> str:
        """Hudi's name of the operation; for a general transaction, derived from the verbs it used."""
        found = {_ALONE.get(each, "UPSERT") for each in self.verbs} if self.operation.hudi_name == "UPSERT" else set()
        return found.pop() if len(found) == 1 else self.operation.hudi_name

    @property
    def region(self) -> Region:
        """The partitions that it overwrites, and all that appears in them."""
        return self._region

    @property
    def blind(self) -> bool:
        """True if it adds rows and has read nothing."""
        return self.operation.blind and not (self.looked_where or self._scanned or self._saw or self._scans)

    def read_set(self) -> ReadSet:
        """The reads that the result depends on."""
        if self.operation.service:
            return ReadSet(self._read, scans=())
        lookups = (Scan(self._looked, groups=frozenset(self._looked_into)),)
        scans: tuple[Scan, ...] | None
        if self._scanned is not None or self._scans:
            scans = (Scan(self._scanned or NOWHERE, groups=frozenset(self._saw)), *self._scans)
        else:
            scans = () if self.tells_all and not self._saw else None
        condition = tuple(self._conditions)
        return ReadSet(self._read, blind=self.blind, condition=condition, scans=scans, lookups=lookups)

    def metadata(self, schema: str | None, extra: Mapping[str, str] = MappingProxyType({})) -> CommitMetadata:
        """Return the commit's metadata for the timeline, with ``extra`` entries."""
        # Kept so that this process publishes its own commit without reading it back (`log.metadata_of`).
        self._metadata = CommitMetadata(
            operation=self.label,
            schema=schema,
            extra=extra,
            stats=self.stats,
            replaced=self._replaced_by_partition(),
            compacted=self.operation.action in ("compaction", "logcompaction"),
        )
        return self._metadata

    def _replaced_by_partition(self) -> dict[str, tuple[str, ...]]:
        replaced: dict[str, list[str]] = {}
        for partition, file_id in sorted(self._all_replaced()):
            replaced.setdefault(partition, []).append(file_id)
        return {partition: tuple(ids) for partition, ids in replaced.items()}


def _as_committed(stat: WriteStat) -> tuple[Mapping[str, Any], str, str]:
    """Return this file as a commit that a snapshot accepts, ordered after all committed ones."""
    return (
        {
            "stats": [
                {
                    "partition": stat.partition,
                    "path": stat.path,
                    "file_size": stat.file_size,
                    "log_files": stat.log_files,
                }
            ]
        },
        "",
        LATEST,
    )


def _region(partition: str | None) -> Region:
    return Region(whole_table=True) if partition is None else Region(frozenset({partition}))
