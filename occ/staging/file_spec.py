"""The facts that all files of one transaction share: its settings, its file names, its stop sign."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import pyarrow as pa

from ...errors import InputError, RolledBackError
from ...hudi.files import FileGroupId, Footers, bucket_of, new_file_id
from ...hudi.merge import rule_of
from ...hudi.table import TableConfig
from ...hudi.timeline import FileSlice
from ...mergers import Rule, Ties
from ...storage import Store
from ...streams import Stream
from ..entries import Settings, ValueCheck, columns_of, refuse_type
from ..liveness import Io, Marker, MarkerClient, OwnRecord, announce_all, heartbeat_path
from .key_spans import KeySpans

_FAMILY = uuid.UUID("6f2d8a44-5f0e-5b1f-9a44-1a7c3e2b9d10")


@dataclass(frozen=True)
class WantedFacts:
    """The facts about its rows that a commit records; the default, none, costs nothing.

    Attributes:
        keys: record the inserted record keys.
        unique_constraints: the columns of each unique constraint.
        statistics: columns whose smallest and largest values are recorded.
    """

    keys: bool = False
    unique_constraints: tuple[tuple[str, ...], ...] = ()
    statistics: tuple[str, ...] = ()


class FileWatcher(Protocol):
    """An observer of data files before they are written, in the process that began the transaction."""

    def announcing(self, group: FileGroupId) -> AbstractContextManager[None]:
        """Return a context around the writing of the file's marker; an error in it ends the write."""


@dataclass(frozen=True)
class FileSpec:
    """The facts that all files of one transaction share. It pickles, to be sent to Spark's workers.

    Attributes:
        schema: the table's data columns after this transaction, without meta columns.
        bucket_count: buckets of the bucket index; None for the simple index.
        row_group_rows: rows of a row group, and the most that an open file keeps in memory.
        required: columns declared not null.
        checks: conditions that no new row may break.
        merge: and ``ties``, as in `Settings`.
        wanted: the facts that the commit records about the rows.
        target_file_bytes: and ``small_file_bytes``, as in `Settings`; a write's log file is closed at that size, too.
        write: number of the transaction's write, which keeps the names of its files apart from those of earlier ones.
        begun: file groups staged by earlier writes of the transaction -> the slice each was made from; None for a group that
            they began.
        streams: the table's streams.
        marker_client: the server that takes the markers; None: they are put directly.
        watcher: observes each file; not pickled.
        spans: key ranges of the files that this process has met; not pickled, a worker begins with none.
        known_footers: the same of footers.
        record: the transaction's state in the process that began it; None in another process, and where asking is cheap.
    """

    store: Store
    instant: str
    schema: pa.Schema
    config: TableConfig
    bucket_count: int | None = None
    required: tuple[str, ...] = ()
    checks: tuple[ValueCheck, ...] = ()
    merge: tuple[tuple[str, str], ...] = ()
    ties: Ties = "last"
    codec: str = "zstd"
    row_group_rows: int = 65_536
    target_file_bytes: int = 120 << 20
    small_file_bytes: int = 4 << 20
    wanted: WantedFacts = field(default=WantedFacts())
    write: int = 0
    begun: Mapping[FileGroupId, FileSlice | None] = field(default_factory=dict)
    streams: tuple[Stream, ...] = ()
    marker_client: MarkerClient | None = None
    watcher: FileWatcher | None = field(default=None, repr=False, compare=False)
    spans: KeySpans | None = field(default=None, repr=False, compare=False)
    known_footers: Footers | None = field(default=None, repr=False, compare=False)
    record: OwnRecord | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        if self.record is not None:
            self.record.travels()
        state = {**self.__dict__, "watcher": None, "spans": None, "known_footers": None, "record": None}
        state.pop("footers", None)
        state.pop("rule", None)  # it is derived, and may hold what does not pickle
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, spans=KeySpans())

    def announcing(self, group: FileGroupId) -> AbstractContextManager[None]:
        """Return the watcher's context around the marker of a file of this group."""
        return self.watcher.announcing(group) if self.watcher is not None else nullcontext()

    def announce(self, files: Iterable[tuple[str, Io]]) -> list[Marker]:
        """Write the markers of these files, in one request where a server takes them."""
        wanted = list(files)
        # Recorded before they are put: a put without an answer may arrive late.
        if self.record is not None:
            self.record.markers += [Marker(self.instant, path, io) for path, io in wanted]
        return announce_all(self.store, self.instant, wanted, marker_client=self.marker_client)

    def lives(self) -> bool:
        """Return whether this process knows, without a request, that nobody has ended the transaction."""
        return self.record is not None and self.record.lives()

    def refuse_if_over(self) -> None:
        """Raise `RolledBackError` when the transaction has ended."""
        if not self.lives():
            if self.record is not None:
                self.record.arrived()  # its first heartbeat may be on its way
            refuse_if_over(self.store, self.instant)

    @cached_property
    def footers(self) -> Footers:
        """The footers of base files that this process has read."""
        return self.known_footers or Footers(self.store)

    @cached_property
    def rule(self) -> Rule:
        """The rule that merges the rows of one key."""
        return rule_of(self.config, self.merge, self.ties)

    def group_id(self, partition: str, task: int, number: int = 0, *, bucket: int | None = None) -> str:
        """The file id of a new file group: the same for every run of the same task of the same write."""
        return group_id(self.instant, partition, task, number, write=self.write, bucket=bucket)

    def successor_id(self, group: FileGroupId) -> str:
        """The file id that takes over from a file group staged by an earlier write of this transaction.

        A new id, as in a rebase: one file group and T never get a second file, even if a late task brings the first one
        back. The commit replaces the old group.
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
    """The write token of a task. It does not name the attempt, so a second attempt meets the first one's file.

    ``round_`` counts the writes of the transaction and then the rounds of its rebase: a superseded file has another name,
    so a late worker cannot bring it back under the name of its successor.
    """
    return f"{task}-{round_}-0"


def refuse_if_over(store: Store, instant: str) -> None:
    """Raise `RolledBackError` if the transaction has ended: the stop sign is that its heartbeat file is gone."""
    if store.head(heartbeat_path(instant)) is None:
        raise RolledBackError(
            f"transaction {instant} is over (its heartbeat is gone); no file of it may appear any more. "
            "Run the write again if it was not you who ended it",
            instant=instant,
        )


@functools.lru_cache(maxsize=64)
def wanted_of(settings: Settings, schema: pa.Schema, operation: str) -> WantedFacts:
    """Return the facts to record for a transaction that writes rows of this schema.

    A bucket index needs no keys: equal ones meet in one bucket. bulk_insert needs none either: it is for rows known to be
    new, and promises nothing about keys, as in Hudi.

    Raises:
        InputError: the schema lacks a column of a unique constraint, or its type cannot be compared exactly.
    """
    for name in dict.fromkeys(name for constraint in settings.unique_constraints for name in constraint):
        if name not in schema.names:
            raise InputError(
                f"unique_constraints names {name!r}, and there is no such column: write it, or leave it out of the "
                "setting unique_constraints",
                column=name,
            )
        refuse_type(name, schema.field(name).type)
    return WantedFacts(
        keys=bool(settings.unique_keys) and settings.bucket_count is None and operation != "bulk_insert",
        unique_constraints=settings.unique_constraints,
        statistics=columns_of(schema, settings.statistics, isolation=settings.isolation),
    )
