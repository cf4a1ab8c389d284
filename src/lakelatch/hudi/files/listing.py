"""All data files of a table as the store lists them, before it is decided which of them count.

A partition is a folder with a `.hoodie_partition_metadata` file: the JVM finds partitions only by it. The other reader takes
any folder with data files. Such a folder is listed too and named in `Listing.unmarked`, because rows that only one reader
sees are damage that a check must find.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from .file_names import PARTITION_METADATA, FileGroupId, base_name_parts, parse_log_name

if TYPE_CHECKING:
    from ...storage import Entry, Store


class BaseFile(NamedTuple):
    """A base file: ``path`` relative to the table, ``instant`` T of its commit, ``size`` in bytes.

    A tuple, because a table may have a hundred thousand of them.
    """

    path: str
    partition: str
    file_id: str
    write_token: str
    instant: str
    extension: str
    size: int

    @classmethod
    def at(cls, path: str, size: int) -> BaseFile | None:
        """Return the base file at a path, or None if the name is no base file's."""
        partition, _, name = path.rpartition("/")
        parts = base_name_parts(name)
        return None if parts is None else cls(path, partition, *parts, size)

    @property
    def group(self) -> FileGroupId:
        """The file group it belongs to."""
        return FileGroupId(self.partition, self.file_id)


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file. ``instant`` is the time in its name, ``completed`` C of its commit ("" until a snapshot knows it).

    ``among``: in version 6, where several commits write into one file, the T of the commits whose blocks count.
    """

    path: str
    partition: str
    file_id: str
    instant: str
    version: int
    write_token: str
    size: int
    completed: str = ""
    among: Container[str] | None = field(default=None, compare=False, repr=False)

    @classmethod
    def at(cls, path: str, size: int, *, completed: str = "") -> LogFile | None:
        """Return the log file at a path, or None if the name is no log file's."""
        partition, _, name = path.rpartition("/")
        parts = parse_log_name(name)
        if parts is None or parts.cdc:
            return None
        return cls(path, partition, parts.file_id, parts.instant, parts.version, parts.write_token, size, completed)

    @property
    def group(self) -> FileGroupId:
        """The file group it belongs to."""
        return FileGroupId(self.partition, self.file_id)

    @property
    def order(self) -> tuple[str, int, str]:
        """The sort key that puts the log files of one group in merge order."""
        return (self.instant, self.version, self.write_token)


@dataclass(frozen=True, slots=True)
class Listing:
    """The files of a table, sorted by path.

    Attributes:
        bases: base files, of committed and other transactions alike.
        logs: log files, the same.
        partitions: folders that are partitions; "" for the root of an unpartitioned table.
        unmarked: partitions without their metadata file.
        others: everything else outside ``.hoodie``: stray files.
        only: the partitions that were listed; None: all of them.
    """

    bases: tuple[BaseFile, ...] = ()
    logs: tuple[LogFile, ...] = ()
    partitions: tuple[str, ...] = ()
    unmarked: tuple[str, ...] = ()
    others: tuple[Entry, ...] = ()
    only: frozenset[str] | None = None

    def covers(self, partition: str) -> bool:
        """Return whether the files of a partition were listed."""
        return self.only is None or partition in self.only


def list_data_files(store: Store, partitions: Iterable[str] | None = None) -> Listing:
    """List the data files of the table at the store's root, or of some of its partitions ("" is the root itself)."""
    if partitions is not None:
        only = frozenset(partitions)
        return replace(_sort(entry for partition in sorted(only) for entry in store.list(partition)), only=only)
    # Hidden folders hold no rows; `.hoodie` may hold a metadata table, whose files look like data.
    return _sort(store.list("", recursive=True, hidden=False))


def _sort(entries: Iterable[Entry]) -> Listing:
    """Sort entries into base files, log files, partition marks and the rest."""
    bases: list[BaseFile] = []
    logs: list[LogFile] = []
    others: list[Entry] = []
    marked: set[str] = set()
    partition = ""
    for entry in entries:
        folder, _, name = entry.path.rpartition("/")
        partition = partition if folder == partition else folder  # one text for all files of it
        # With a base format's ending where that was asked for.
        if name.startswith(PARTITION_METADATA):
            marked.add(partition)
        elif (parts := base_name_parts(name)) is not None:
            bases.append(BaseFile(entry.path, partition, *parts, entry.size))
        elif (log := LogFile.at(entry.path, entry.size)) is not None:
            logs.append(log)
        else:
            others.append(entry)
    # A folder with data files is a partition for one of the readers even without the JVM's mark.
    holding = {base.partition for base in bases} | {log.partition for log in logs}
    return Listing(
        bases=tuple(sorted(bases, key=lambda file: file.path)),
        logs=tuple(sorted(logs, key=lambda file: file.path)),
        partitions=tuple(sorted(holding | marked)),
        unmarked=tuple(sorted(holding - marked)),
        others=tuple(sorted(others, key=lambda entry: entry.path)),
    )
