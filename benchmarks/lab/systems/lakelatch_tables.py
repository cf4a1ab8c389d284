"""Our own tables, through the methods that users call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from ...errors import (
    ConfigError,
    ConflictError,
    LakeLatchError,
    LockTimeoutError,
    LockUnavailableError,
    RolledBackError,
)
from ...occ.table import Table, create
from ...occ.table import open as open_table
from .. import rows
from ..works import WORKS, Aborted, Change, Key, Note
from .interface import Configuration

if TYPE_CHECKING:
    import pyarrow as pa

    from ...arguments import OperationName
    from ...occ.transaction import Transaction

_LOST = (ConflictError, RolledBackError, LockTimeoutError, LockUnavailableError)
# What a table with streams has to be.
_STREAMED: dict[str, Any] = {"type": "merge_on_read", "table_version": 9, "bucket_count": 4}


class LakeLatch:
    """This library; the settings are those of `lakelatch.create`."""

    package: ClassVar[str] = "lakelatch"
    works: ClassVar[frozenset[str]] = frozenset(WORKS)
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration("default", "all settings of the table as they come"),
    )

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)

    def create(self, place: str, first: pa.Table) -> None:
        wide = first.schema.equals(rows.WIDE)
        needed = _STREAMED | self._settings if wide else self._settings
        with create(place, record_key=rows.KEY, partition_by=rows.PARTITION, schema=first.schema, **needed) as table:
            table.insert(first)
            for stream in range(rows.STREAMS if wide else 0):
                ordering, by = rows.stream_columns(stream)
                table.stream(f"s{stream}", columns=[by], ordering=ordering)

    def open(self, place: str, writer: str, priority: int) -> _Session:
        return _Session(open_table(place, writer=writer, priority=priority))

    def rows(self, place: str) -> pa.Table:
        with open_table(place) as table:
            return table.read(columns=(rows.WIDE if table.streams else rows.SCHEMA).names).to_arrow()


class _Session:
    def __init__(self, table: Table) -> None:
        self._table = table

    def append(self, new: pa.Table, note: Note) -> None:
        self._run("insert", lambda txn: txn.insert(new), note)

    def replace(self, part: str, new: pa.Table, note: Note) -> None:  # noqa: ARG002 - the rows name it
        self._run("insert_overwrite", lambda txn: txn.overwrite(new), note)

    def upsert(self, new: pa.Table, note: Note) -> None:
        self._run("upsert", lambda txn: txn.upsert(new), note)

    def modify(self, keys: list[Key], change: Change, note: Note) -> None:
        parts = sorted({f"{rows.PARTITION}={part}" for part, _ in keys})
        condition = [(rows.KEY, "in", [key for _, key in keys])]

        def work(txn: Transaction) -> None:
            found = txn.read(columns=rows.SCHEMA.names, where=condition, partitions=parts).to_arrow()
            note.saw(found)
            txn.upsert(change(found))

        self._run("upsert", work, note)

    def event(self, stream: int, new: pa.Table, note: Note) -> None:
        self._run("upsert", lambda txn: txn.stream(f"s{stream}").upsert(new), note)

    def delete(self, value: int, note: Note) -> None:
        condition = f"{rows.VALUE} = {value} AND {rows.KEY} LIKE '{rows.APPENDED}%'"
        self._run("delete", lambda txn: txn.delete_where(condition), note)

    def serve(self, note: Note) -> None:
        note.attempt()
        try:
            if self._table.streams:
                self._table.compact()
            else:
                self._table.cluster()
            self._table.clean(retain_commits=10)
            self._table.archive(keep_min=20, keep_max=30)
        except _LOST as e:
            raise Aborted(*_why(e)) from e
        note.landed("", [])

    def hold(self, note: Note) -> None:
        note.attempt()
        found = self._table.lock.provider()
        if found is None:
            raise ConfigError("there is no lock to hold with none://; name another --lock")
        try:
            with found[0].acquire(found[1], wait_s=self._table.settings.lock_wait_s):
                note.think()
        except LakeLatchError as e:
            raise Aborted(type(e).__name__) from e
        note.landed("", [])

    def close(self) -> None:
        self._table.close()

    def _run(self, operation: OperationName, work: Callable[[Transaction], object], note: Note) -> None:
        def attempt(txn: Transaction) -> None:
            note.attempt()
            work(txn)
            note.think()

        try:
            result = self._table.run(attempt, operation=operation)
        except _LOST as e:
            raise Aborted(*_why(e)) from e
        note.landed(result.commit.instant if result.commit else "", [_why(each) for each in result.losses])


def _why(error: Exception) -> tuple[str, str]:
    facts = getattr(error, "details", {})
    return str(facts.get("rule") or type(error).__name__), str(facts.get("winner") or "")
