"""A stream of a table: declaring it, and writing its events. Made by `Table.stream`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Unpack

import pyarrow as pa

from ...arguments import suggesting
from ...errors import ConfigError, InputError
from ...hudi.files import bucket_of
from ...hudi.table import bucket_ids
from ...streams import (
    RowHistory,
    Stream,
    described,
    explained,
    joined,
    of_name,
    refuse_columns,
    refuse_mergers,
    refuse_table,
)
from ..entries import LogEntry, Setting, Settings
from ..log import LogState
from ..session import Partition, Session, known_partition, partition_path_of
from ..transaction import WriteOptions, WriteResult
from ..writing import Write, stream_writes

_TRIES = 5


@suggesting
class TableStream:
    """Writes the events of one stream. It is open as long as its table is."""

    def __init__(self, session: Session, name: str, write: Callable[[Write, WriteOptions], WriteResult]) -> None:
        self._session, self.name, self._write = session, name, write
        _ = self.declaration  # there is one of that name

    @property
    def declaration(self) -> Stream:
        """What the table says of it. `InputError` when it has no such stream."""
        return of_name(self._session.streams, self.name, self._session.url)

    def upsert(self, rows: Any, *, zone: str | None = None, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Set the stream's columns of the rows with these keys, where no newer event has; rows that are lacking appear.

        It takes no lock and never conflicts, neither with other streams nor with other writers of this one. Of several events
        of one key in ``rows`` the newest counts, the later one of two that are equally new.

        In columns with a merger all of them count. Where one may not count twice (sum, count) the write needs a ``batch``.

        Args:
            rows: key, partition and ordering columns and all columns of the stream, in any of the forms of `Table.upsert`.
            zone: of times that say none, as of `Table.upsert`.
            retries: bounds of `Table.run`, for the case that somebody takes this writer for dead; and ``batch``.

        Raises:
            ConfigError: a merger of the stream cannot be imported here.
            InputError: a column is missing, belongs to another stream, or its values do not fit; an ordering value is null
                or NaN; there is no ``batch`` and has to be. Nothing was written.
        """
        return self._write(stream_writes.upsert(self._session, self.name, rows, zone), retries)

    def delete(self, keys: Any, *, zone: str | None = None, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Do what the stream's ``on_delete`` says with the rows of these keys, where no newer event of the stream came.

        ``row``: the row is gone. ``clear``: the stream's columns are empty, or have their defaults. ``ignore``: nothing.

        Args:
            keys: key, partition and ordering columns; a delete is an event as every other.
            zone: as of `upsert`, as are ``retries``.

        Raises:
            InputError: as of `upsert`.
        """
        return self._write(stream_writes.delete(self._session, self.name, keys, zone), retries)

    def __repr__(self) -> str:
        return f"<stream {self.name} of {self._session.url}: {described(self.declaration)}>"


def explain(session: Session, key: str, partition: Partition | None) -> list[RowHistory]:
    """See `Table.explain_row`."""
    view, config, count = session.view(), session.config, session.settings.bucket_count
    if not session.streams:
        raise InputError(f"{session.url} has no streams, so its rows are as their newest version was written")
    where = None if partition is None else partition_path_of(session.url, config, view.arrow_schema(), partition)
    if where is not None:
        where = known_partition(session.store, config, view.snapshot, where)
    slices = view.snapshot.file_slices(where)
    if len(config.record_key_fields) == 1 and count is not None:
        bucket = int(bucket_ids([pa.array([key])], count)[0])
        slices = [each for each in slices if bucket_of(each.file_id) == bucket]
    made = (explained(session.store, session.streams, each, key) for each in slices)
    return [each for each in made if each is not None]


def declare(session: Session, wanted: Stream) -> Stream:
    """The table has this stream from now on; one that it has already may get more columns.

    Raises:
        ConfigError: the table cannot have streams; the message says why.
        InputError: a column is unknown, belongs to another stream or to the key; or the stream is declared otherwise.
    """
    session.require_log()
    session.refuse_if_unwritable()
    for _ in range(_TRIES):
        state = session.log.catch_up()
        settings, seen = state.settings, _last_slot(state)
        refuse_table(
            session.config,
            session.url,
            buckets=settings.bucket_count,
            rules=bool(settings.unique_constraints or settings.merge or settings.ties != "last"),
        )
        if not (settings.streams or session.config.for_streams):  # the latter in a log that was rebuilt without them
            _refuse_log_files(session)
        schema = session.schema()
        made = joined(settings.streams, wanted, since=state.top, table=session.url)
        stream = of_name(made, wanted.name, session.url)
        refuse_columns(stream, schema, session.config, session.url)
        if made == settings.streams:
            break
        assert schema is not None, "streams are declared of columns"
        refuse_mergers(stream, schema)

        def build(state: LogState, settings: Settings = settings, seen: int = seen) -> LogEntry | None:
            # What has no streams yet must not get log files of other writes meanwhile; and all streams must be those compared.
            if state.settings != settings or (not settings.streams and _last_slot(state) != seen):
                return None
            newest = joined(settings.streams, wanted, since=state.top, table=session.url)
            return Setting(replace(state.settings, streams=newest), session.writer)

        if session.log.append(build) is not None:
            break
    else:
        raise ConfigError(
            f"stream {wanted.name!r} of {session.url} could not be declared: others wrote meanwhile, {_TRIES} times. Try again",
            table=session.url,
        )
    session.secure_streams()
    return of_name(session.settings.streams, wanted.name, session.url)


def _last_slot(state: LogState) -> int:
    return state.last.slot if state.last else -1


def _refuse_log_files(session: Session) -> None:
    logged = [each for each in session.snapshot().file_slices() if each.logs]
    if logged:
        raise ConfigError(
            f"{session.url} has log files of other writes ({logged[0].logs[0].path}), which streams cannot be merged with. "
            "Compact it (`compact`), then declare its first stream",
            table=session.url,
        )
