"""What all files of one transaction have in common: what is known of it, its names, its stop sign."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from ...errors import RolledBackError
from ...hudi.files import FileGroupId, bucket_of, new_file_id
from ...hudi.merge import rule_of
from ...hudi.table import TableConfig
from ...hudi.timeline import FileSlice
from ...mergers import Rule, Ties
from ...storage import Store
from ...streams import Stream
from ..liveness import Io, Marker, MarkerDesk, OwnRecord, announce_all, heartbeat_path
from .key_spans import KeySpans

_FAMILY = uuid.UUID("6f2d8a44-5f0e-5b1f-9a44-1a7c3e2b9d10")


@dataclass(frozen=True)
class Wanted:
    """What a commit is to know of the rows that its files hold; nothing costs nothing.

    Attributes:
        keys: the record keys that are inserted.
        unique: the columns of each unique constraint.
        statistics: columns whose smallest and largest values are told.
    """

    keys: bool = False
    unique_constraints: tuple[tuple[str, ...], ...] = ()
    statistics: tuple[str, ...] = ()


class FileLookout(Protocol):
    """Whoever wants to know of a data file before it is written, in the process that began the transaction."""

    def announcing(self, group: FileGroupId) -> AbstractContextManager[None]:
        """Around the file's marker; an error ends the write."""


@dataclass(frozen=True)
class FileSpec:
    """Everything that the files of one transaction have in common. Pickles, so it travels to Spark's workers.

    Attributes:
        schema: the table's data columns after this transaction, without meta columns.
        buckets: of the bucket index; None is the simple index.
        row_group_rows: rows of a row group, and the most that an open file keeps in memory.
        required: columns that were declared not null.
        merge: and ``ties``, as in `Settings`.
        wanted: what the commit is to know of the rows.
        target_file_bytes: and ``small_file_bytes``, as in `Settings`; a write's log file is closed at that size, too.
        write: number of the transaction's write, which keeps the names of its files apart from those of earlier ones.
        begun: file groups that earlier writes of the transaction have staged -> the slice that they made it from; None
            where they began it.
        streams: of the table.
        desk: of the server that takes the markers; None: they are put directly.
        lookout: is told of each file; it does not travel.
        spans: the keys of the files that this process has met; does not travel, a worker begins with none.
        record: what the process that began the transaction knows of it; None in another, and where asking costs little.
    """

    store: Store
    instant: str
    schema: pa.Schema
    config: TableConfig
    bucket_count: int | None = None
    required: tuple[str, ...] = ()
    merge: tuple[tuple[str, str], ...] = ()
    ties: Ties = "last"
    codec: str = "zstd"
    row_group_rows: int = 65_536
    target_file_bytes: int = 120 << 20
    small_file_bytes: int = 4 << 20
    wanted: Wanted = field(default=Wanted())
    write: int = 0
    begun: Mapping[FileGroupId, FileSlice | None] = field(default_factory=dict)
    streams: tuple[Stream, ...] = ()
    desk: MarkerDesk | None = None
    lookout: FileLookout | None = field(default=None, repr=False, compare=False)
    spans: KeySpans | None = field(default=None, repr=False, compare=False)
    record: OwnRecord | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        if self.record is not None:
            self.record.travels()
        return {**self.__dict__, "lookout": None, "spans": None, "record": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, spans=KeySpans())

    def announcing(self, group: FileGroupId) -> AbstractContextManager[None]:
        """Around the marker of a file of this group."""
        return self.lookout.announcing(group) if self.lookout is not None else nullcontext()

    def announce(self, files: Iterable[tuple[str, Io]]) -> list[Marker]:
        """Markers of these files stand when this returns: in one request where a server takes them."""
        wanted = list(files)
        if self.record is not None:  # before they are put: one without an answer may arrive late
            self.record.markers += [Marker(self.instant, path, io) for path, io in wanted]
        return announce_all(self.store, self.instant, wanted, desk=self.desk)

    def lives(self) -> bool:
        """Whether this process knows, without asking, that nobody has ended the transaction."""
        return self.record is not None and self.record.lives()

    def refuse_if_over(self) -> None:
        """Raise `RolledBackError` when the transaction has ended."""
        if not self.lives():
            refuse_if_over(self.store, self.instant)

    @property
    def rule(self) -> Rule:
        """By which rule rows of one key become one."""
        return rule_of(self.config, self.merge, self.ties)

    def group_id(self, partition: str, task: int, number: int = 0, *, bucket: int | None = None) -> str:
        """The file id of a new file group: the same for every run of the same task of the same write."""
        return group_id(self.instant, partition, task, number, write=self.write, bucket=bucket)

    def successor_id(self, group: FileGroupId) -> str:
        """The file id that takes over from a file group which an earlier write of this transaction has staged.

        A new one, as in a rebase: of one file group and T there is never a second file, also not when a late task brings
        the first one back; the commit replaces the old group.
        """
        bucket = bucket_of(group.file_id) if self.bucket_count is not None else None
        name = f"{self.instant}\n{group.partition}\n{group.file_id}\nwrite {self.write}"
        return new_file_id(str(uuid.uuid5(_FAMILY, name)), bucket=bucket)


def group_id(
    instant: str, partition: str, task: int, number: int = 0, *, write: int = 0, bucket: int | None = None
) -> str:
    """The file id of a new file group: the same for every run of the same task of the same write."""
    name = f"{instant}\n{partition}\n{task}\n{number}" + (f"\n{write}" if write else "")
    return new_file_id(str(uuid.uuid5(_FAMILY, name)), bucket=bucket)


def token(task: int, round_: int = 0) -> str:
    """The write token of a task: it names no attempt, so that a second attempt meets the first one's file.

    ``round_`` counts the writes of the transaction and then the rounds of its rebase: the file that one supersedes has
    another name, so that a late worker cannot bring the old one back under the new one's.
    """
    return f"{task}-{round_}-0"


def refuse_if_over(store: Store, instant: str) -> None:
    """Raise `RolledBackError` when the transaction has ended: its heartbeat file is the stop sign."""
    if store.head(heartbeat_path(instant)) is None:
        raise RolledBackError(
            f"transaction {instant} is over (its heartbeat is gone); no file of it may appear any more. "
            "Run the write again if it was not you who ended it",
            instant=instant,
        )
