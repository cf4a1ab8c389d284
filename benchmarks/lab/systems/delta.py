"""delta-rs, the Python package ``deltalake``, on a local folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import CommitFailedError

from ...errors import ConfigError
from .. import rows
from ..works import Aborted, Change, Key, Note
from .interface import Configuration


class DeltaRs:
    """delta-rs. The setting is ``max_commit_retries`` of the library's own loop; None is its default."""

    package: ClassVar[str] = "deltalake"
    works: ClassVar[frozenset[str]] = frozenset(
        {"append", "replace", "upsert", "increment", "transfer", "event", "delete", "serve"}
    )
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration(
            "best",
            "max_commit_retries=10000, handle updated incrementally before each write; what aborts is run again by the lab, up "
            "to 20 attempts with a jittered pause",
            {"max_commit_retries": 10000},
            tries=20,
        ),
        Configuration("default", "the library's own 15 retries, handle updated incrementally before each write"),
    )

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._retries = settings.get("max_commit_retries")

    def create(self, place: str, first: pa.Table) -> None:
        if "://" in place and not place.startswith("file://"):
            raise ConfigError(f"delta-rs is measured on a local folder only, not at {place.partition('://')[0]}://")
        deltalake.write_deltalake(place, first, partition_by=[rows.PARTITION])

    def open(self, place: str, writer: str, priority: int) -> _Session:  # noqa: ARG002 - it knows no writers
        return _Session(place, self._retries)

    def rows(self, place: str) -> pa.Table:
        table = deltalake.DeltaTable(place)
        wide = len(table.schema().fields) == len(rows.WIDE)
        return table.to_pyarrow_table(columns=(rows.WIDE if wide else rows.SCHEMA).names)


class _Session:
    def __init__(self, place: str, retries: int | None) -> None:
        self._table = deltalake.DeltaTable(place)
        self._folder = Path(place.removeprefix("file://"))
        self._commit = deltalake.CommitProperties(max_commit_retries=retries)

    def append(self, new: pa.Table, note: Note) -> None:
        def write() -> None:
            note.think()
            deltalake.write_deltalake(
                self._table, new, mode="append", partition_by=[rows.PARTITION], commit_properties=self._commit
            )

        self._do(write, note)

    def replace(self, part: str, new: pa.Table, note: Note) -> None:
        def write() -> None:
            note.think()
            deltalake.write_deltalake(
                self._table,
                new,
                mode="overwrite",
                predicate=f"{rows.PARTITION} = '{part}'",
                commit_properties=self._commit,
            )

        self._do(write, note)

    def upsert(self, new: pa.Table, note: Note) -> None:
        def write() -> None:
            note.think()
            self._merge(new)

        self._do(write, note)

    def modify(self, keys: list[Key], change: Change, note: Note) -> None:
        def write() -> None:
            parts = sorted({part for part, _ in keys})
            # Only partitions are filtered here: a filter on the key fails in PyArrow, on statistics of string views.
            there = self._table.to_pyarrow_table(
                columns=rows.SCHEMA.names, partitions=[(rows.PARTITION, "in", parts)]
            ).cast(rows.SCHEMA)
            found = there.filter(pc.is_in(there[rows.KEY], value_set=pa.array([key for _, key in keys])))
            note.saw(found)
            note.think()
            self._merge(change(found))

        self._do(write, note)

    def event(self, stream: int, new: pa.Table, note: Note) -> None:
        at, by = rows.stream_columns(stream)
        set_ = {f"t.{name}": f"s.{name}" for name in (at, by)}

        def write() -> None:
            note.think()
            merger = self._merger(new).when_matched_update(set_, predicate=f"t.{at} IS NULL OR t.{at} <= s.{at}")
            merger.when_not_matched_insert(
                {f"t.{name}": f"s.{name}" for name in (rows.KEY, rows.PARTITION, at, by)}
            ).execute()

        self._do(write, note)

    def delete(self, value: int, note: Note) -> None:
        def write() -> None:
            note.think()
            self._table.delete(
                f"{rows.VALUE} = {value} AND {rows.KEY} LIKE '{rows.APPENDED}%'", commit_properties=self._commit
            )

        self._do(write, note)

    def serve(self, note: Note) -> None:
        self._do(lambda: self._table.optimize.compact(commit_properties=self._commit), note)

    def close(self) -> None:
        pass

    def _merge(self, new: pa.Table) -> None:
        self._merger(new).when_matched_update_all().when_not_matched_insert_all().execute()

    def _merger(self, new: pa.Table) -> deltalake.table.TableMerger:
        # Partitions are constants: with a join condition alone each merge would read everything and conflict with every other.
        parts = ", ".join(f"'{part}'" for part in sorted(set(new[rows.PARTITION].to_pylist())))
        same = f"t.{rows.PARTITION} = s.{rows.PARTITION} AND t.{rows.KEY} = s.{rows.KEY}"
        return self._table.merge(
            new,
            f"t.{rows.PARTITION} IN ({parts}) AND {same}",
            source_alias="s",
            target_alias="t",
            commit_properties=self._commit,
        )

    def _do(self, write: Callable[[], object], note: Note) -> None:
        note.attempt()
        self._table.update_incremental()
        try:
            write()
        except CommitFailedError as e:
            raise Aborted(str(e).partition("\n")[0]) from e
        note.landed(str(self._table.version()), [])
