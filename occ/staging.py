"""What a transaction is about to commit: files written, file groups replaced, regions claimed. No protocol in here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..conflict import FileGroupId, ReadSet, Scan, WriteSet
from ..conflict.write_set import NOWHERE, Region
from ..errors import ConfigError, InputError
from .avro import CommitMetadata, WriteStat
from .log_state import Commit
from .snapshot import FileSlice


@dataclass(frozen=True, slots=True)
class Operation:
    """How one kind of write appears on the timeline, and whether it reads nothing of the table (blind)."""

    action: str
    hudi_name: str
    blind: bool = False


OPERATIONS = {
    "insert": Operation("commit", "INSERT", blind=True),
    "bulk_insert": Operation("commit", "BULK_INSERT", blind=True),
    "upsert": Operation("commit", "UPSERT"),
    "delete": Operation("commit", "DELETE"),
    "insert_overwrite": Operation("replacecommit", "INSERT_OVERWRITE"),
    "insert_overwrite_table": Operation("replacecommit", "INSERT_OVERWRITE_TABLE"),
    "delete_partition": Operation("replacecommit", "DELETE_PARTITION"),
}


def operation(name: str) -> Operation:
    """The operation of that name; `ConfigError` listing all for another name."""
    if name not in OPERATIONS:
        raise ConfigError(f"no operation {name!r}; known: {', '.join(OPERATIONS)}")
    return OPERATIONS[name]


class Staged:
    """Collects until the commit; then only read."""

    def __init__(self, name: str) -> None:
        self.operation = operation(name)
        self._name = name
        self._stats: dict[FileGroupId, WriteStat] = {}
        self._replaced: set[FileGroupId] = set()
        self._region = NOWHERE
        self._read = NOWHERE
        self._scanned: Region | None = None
        self._saw: set[FileGroupId] = set()
        self.empty_too = False

    def add(self, stats: Iterable[WriteStat]) -> None:
        """Files that were written and belong to the commit. One per file group."""
        for stat in stats:
            group = FileGroupId(stat.partition, stat.file_id)
            before = self._stats.setdefault(group, stat)
            if before.path != stat.path:
                raise InputError(
                    f"two files of one transaction for file group {group}: {before.path} and {stat.path}; readers refuse "
                    "such a table, so nothing was committed. Write each file group once",
                    group=str(group),
                )

    def drop(self, slices: Iterable[FileSlice]) -> None:
        """File groups that readers shall no longer see."""
        if self.operation.action != "replacecommit":
            raise ConfigError(
                f"a transaction begun as {self._name!r} cannot drop file groups; begin it as 'insert_overwrite', "
                "'insert_overwrite_table' or 'delete_partition'"
            )
        self._replaced.update(FileGroupId(s.partition, s.file_id) for s in slices)

    def overwrites(self, partition: str | None) -> None:
        """Everything in the partition (None: the table) is replaced, also what appears there meanwhile."""
        self._region |= _region(partition)

    def reads(self, partition: str | None) -> None:
        """The result depends on everything in the partition (None: the table)."""
        self._read |= _region(partition)

    def scanned(self, partition: str | None, slices: Iterable[FileSlice]) -> None:
        """Rows of the partition (None: the table) were read: these slices, and nothing that is not there."""
        self._scanned = (self._scanned or NOWHERE) | _region(partition)
        self._saw.update(each.group for each in slices)

    def saw(self, slice_: FileSlice) -> None:
        """This slice was read."""
        self._saw.add(slice_.group)

    @property
    def empty(self) -> bool:
        """True when there is nothing to commit."""
        return not (self._stats or self._replaced or self._region or self.empty_too)

    def paths(self) -> set[str]:
        """Data files that belong to the commit."""
        return {s.path for s in self._stats.values()}

    def write_set(self) -> WriteSet:
        """File groups created, changed or replaced, and the region claimed."""
        return WriteSet(frozenset(self._stats) | frozenset(self._replaced), self._region)

    def read_set(self) -> ReadSet:
        """What the result depends on."""
        looked = bool(self._read or self._scanned or self._saw)
        scans = None if self._scanned is None else (Scan(self._scanned, groups=frozenset(self._saw)),)
        return ReadSet(self._read, blind=self.operation.blind and not looked, scans=scans)

    def metadata(self, schema: str | None) -> CommitMetadata:
        """The commit as the timeline tells it."""
        replaced: dict[str, tuple[str, ...]] = {}
        for partition, file_id in sorted(self._replaced):
            replaced[partition] = (*replaced.get(partition, ()), file_id)
        return CommitMetadata(
            operation=self.operation.hudi_name, schema=schema, stats=tuple(self._stats.values()), replaced=replaced
        )


def write_set_of(commit: Commit, plain: Mapping[str, Any]) -> WriteSet:
    """The write set of a commit that has landed, from the plain values of its metadata.

    Read under the lock once for each candidate, so no more of the metadata is decoded than this needs.
    """
    groups = {FileGroupId(s["partition"], s["file_id"]) for s in plain.get("stats", ())}
    groups |= {FileGroupId(p, f) for p, ids in plain.get("replaced", {}).items() for f in ids}
    return WriteSet(frozenset(groups), commit.region)


def _region(partition: str | None) -> Region:
    return Region(whole_table=True) if partition is None else Region(frozenset({partition}))
