"""A stream of a table: its declaration, and writing its events. Made by `Table.stream`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import pyarrow as pa
import pyarrow.compute as pc

from ...arguments import NullEvents, suggesting
from ...errors import ConfigError, InputError
from ...hudi.files import bucket_of
from ...hudi.table import TableConfig, bucket_ids
from ...hudi.timeline import FileSlice
from ...streams import (
    CLEAR,
    RowHistory,
    Stream,
    altered,
    declared,
    described,
    dropped,
    explained,
    has_events,
    joined,
    of_name,
    refuse_columns,
    refuse_mergers,
    refuse_table,
    undropped,
)
from ..entries import LogEntry, Setting, Settings
from ..log import LogState
from ..session import Partition, Session, known_partition, partition_path_of, required_by
from ..transaction import WriteOptions, WriteResult
from ..writing import Write, stream_writes

_TRIES = 5


@suggesting
class TableStream:
    """Writes the events of one stream. Usable while its table is open."""

    def __init__(self, session: Session, name: str, write: Callable[[Write, WriteOptions], WriteResult]) -> None:
        self._session, self.name, self._write = session, name, write
        _ = self.declaration  # raises if the table has no stream of that name

    @property
    def declaration(self) -> Stream:
        """The stream's declaration in the table's log. Raises `InputError` if there is no such stream."""
        return of_name(self._session.streams, self.name, self._session.url)

    def upsert(self, rows: Any, *, zone: str | None = None, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Set the stream's columns of the rows with these keys, where no newer event has; missing rows are inserted.

        It takes no lock and never conflicts, neither with other streams nor with other writers of this one; only beside an
        overwrite it is run again. Several events of one key in ``rows`` count one after the other, as if each had been committed
        by itself.

        In columns with a merger all events count. Where none may count twice (sum, count) the write needs a ``batch``.

        Args:
            rows: key, partition and ordering columns and all columns of the stream, in any of the forms of `Table.upsert`.
            zone: the time zone of times without one, as for `Table.upsert`.
            retries: bounds of `Table.run`, for the case that this writer is taken for dead; ``batch`` and ``note``.

        Raises:
            ConfigError: a merger of the stream cannot be imported here.
            InputError: a column is missing, belongs to another stream, or its values do not fit; an ordering value is null
                or NaN; a ``batch`` is needed. Nothing was written.
        """
        return self._write(stream_writes.write_of("upsert", self._session, self.name, rows, zone), retries)

    def delete(self, keys: Any, *, zone: str | None = None, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Apply the stream's ``on_delete`` to the rows of these keys, where the stream has no newer event.

        ``row``: delete the row. ``clear``: empty the stream's columns, or set their defaults. ``ignore``: a no-op.

        Args:
            keys: key, partition and ordering columns; a delete is an event like any other.
            zone: as for `upsert`, as are ``retries``.

        Raises:
            InputError: as for `upsert`.
        """
        return self._write(stream_writes.write_of("delete", self._session, self.name, keys, zone), retries)

    def retract(self, events: Any, *, zone: str | None = None, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Take back the events with these ids, in a stream that keeps its events (``event_id``).

        The row is then as if they had never come, but for its newest ordering value. An id that is taken back stays so: the same
        event counts for nothing when it comes later, or again. Like an event it takes no lock and never conflicts.

        Args:
            events: key and partition columns and the ``event_id``; other columns are not looked at.
            zone: as for `upsert`, as are ``retries``.

        Raises:
            InputError: the stream does not keep its events; or as for `upsert`.
        """
        return self._write(stream_writes.write_of("retract", self._session, self.name, events, zone), retries)

    def overwrite(
        self,
        rows: Any,
        *,
        partitions: Iterable[Partition] | None = None,
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Put these events in place of all that the stream has said in their partitions, whatever its ordering values are.

        Its columns become as in rows that it had no event of, then the events count. What other streams have written stays; a
        row goes that has nothing else. Events that others commit to these partitions meanwhile are a conflict, and it is run
        again. No ``batch`` is needed.

        Args:
            rows: as for `upsert`.
            partitions: by value (``[{"origin": "JFK"}]``) or path; in those without new events the stream has none then.
                Default: the partitions that occur in the rows.
            zone: as for `upsert`, as are ``retries``.

        Raises:
            ConfigError: as for `upsert`.
            InputError: as for `upsert`. Also if a row belongs to none of ``partitions``.
        """
        write = stream_writes.write_of("overwrite", self._session, self.name, rows, zone, partitions)
        return self._write(write, retries)

    def alter(
        self,
        *,
        default: Mapping[str, Any] | None = None,
        null: NullEvents | None = None,
        merge: Mapping[str, str] | None = None,
        foreign_readers: bool | None = None,
    ) -> Stream:
        """Change the stream's declaration, and return it. Events that are in the table stay what they are.

        Open transactions with events do not commit, and are run again.

        Args:
            default: values by column, for rows that appear from now on; None for no default any more.
            null: the rule for events that are written from now on.
            merge: mergers by column, ``"last"`` for none. Only while the stream has had no event.
            foreign_readers: as of `Table.stream`.

        Raises:
            InputError: a value does not fit, or the stream has had events, or was dropped. Nothing was changed.
        """
        session, given = (
            self._session,
            {"null": null, "merge": merge, "default": default, "foreign_readers": foreign_readers},
        )

        def change(streams: Sequence[Stream], since: str) -> tuple[Stream, ...]:
            return tuple(altered(each, since=since, **given) if each.name == self.name else each for each in streams)

        def check(settings: Settings, stream: Stream) -> bool:
            schema = session.schema()
            refuse_columns(stream, schema, session.config, session.url)
            assert schema is not None, "streams are declared of columns"
            refuse_mergers(stream, schema)
            if stream.merge == of_name(settings.streams, self.name, session.url).merge:
                return False
            _refuse_events(session, stream)
            return True

        return _change(session, self.name, change, check)

    def drop(self) -> Stream:
        """Drop the stream: no event of it lands any more, and new rows have none of its defaults. Return its declaration.

        Its columns keep their values, and belong to no other stream. Open transactions with events do not commit, and are run
        again.
        """

        def change(streams: Sequence[Stream], since: str) -> tuple[Stream, ...]:
            return tuple(dropped(each, since=since) if each.name == self.name else each for each in streams)

        return _change(self._session, self.name, change, lambda *_: False)

    def undrop(self) -> Stream:
        """Let a dropped stream take events again, as it was, but without defaults. Return its declaration.

        Raises:
            InputError: another stream owns the life of the rows since (``on_delete="row"``).
        """

        def change(streams: Sequence[Stream], _: str) -> tuple[Stream, ...]:
            return undropped(streams, self.name, self._session.url)

        def check(_: Settings, stream: Stream) -> bool:
            session = self._session
            refuse_required([stream], session.view().schema, session.config, session.url)
            return False

        return _change(self._session, self.name, change, check)

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


def declarations_of(streams: Mapping[str, Mapping[str, Any]] | None) -> list[Stream]:
    """Return the streams that these arguments of `Table.stream` declare, by name. Raises `InputError` for others."""
    if streams is None:
        return []
    told = 'streams are told by name, as {"orders": {"columns": ["amount"], "ordering": "paid_at"}}'
    if not isinstance(streams, Mapping) or not all(isinstance(each, Mapping) for each in streams.values()):
        raise InputError(f"{told}, not as {streams!r:.200}")
    made = []
    for name, arguments in streams.items():
        try:
            made.append(declared(name, **({"columns": None, "ordering": None} | dict(arguments))))
        except TypeError as e:
            raise InputError(f"stream {name!r}: {e}; its arguments are those of Table.stream") from None
    return made


def declare(session: Session, wanted: Stream) -> Stream:
    """Declare a stream of the table, or add columns to one; return it as declared.

    Raises:
        ConfigError: the table cannot have streams; the message says why.
        InputError: a column is unknown, or belongs to another stream or to the key; or the stream is declared differently.
    """

    def change(streams: Sequence[Stream], since: str) -> tuple[Stream, ...]:
        return joined(streams, wanted, since=since, table=session.url)

    def check(settings: Settings, stream: Stream) -> bool:
        rules = bool(settings.unique_constraints or settings.check or settings.merge or settings.ties != "last")
        refuse_table(session.config, session.url, buckets=settings.bucket_count, rules=rules)
        # A rebuilt log may lack the streams that the table's properties know of.
        if not (settings.streams or session.config.for_streams):
            _refuse_log_files(session)
        schema, known = session.schema(), settings.streams
        made = change(known, "")
        refuse_columns(stream, schema, session.config, session.url)
        refuse_required(made, session.view().schema, session.config, session.url)
        assert schema is not None, "streams are declared of columns"
        if stream not in known:
            refuse_mergers(stream, schema)
        if not any(each.name == stream.name for each in known):
            refuse_stored(session, stream)
            refuse_orders(session, [stream], session.snapshot().file_slices())
        # What was looked at, that no log file is there, has to hold when the first stream is declared.
        return not known

    return _change(session, wanted.name, change, check)


def _change(
    session: Session,
    name: str,
    change: Callable[[Sequence[Stream], str], tuple[Stream, ...]],
    check: Callable[[Settings, Stream], bool],
) -> Stream:
    """Change the declarations of streams, and return that of this one.

    Args:
        change: returns them changed, given the present ones and the newest time of the table.
        check: raises if the new one cannot be; returns True if that holds only while nothing is committed.
    """
    session.require_log()
    session.refuse_if_unwritable()
    for _ in range(_TRIES):
        state = session.log.catch_up()
        if session.streams:
            session.secure_streams()
        settings, schema, seen = state.settings, state.schema, last_slot(state)
        made = change(settings.streams, state.top)
        alone = check(settings, of_name(made, name, session.url))
        if made == settings.streams:
            break

        def build(
            state: LogState,
            looked_at: tuple[Settings, str | None] = (settings, schema),
            seen: int = seen,
            alone: bool = alone,
        ) -> LogEntry | None:
            # Retry unless the streams and columns are still those that were compared.
            if (state.settings, state.schema) != looked_at or (alone and last_slot(state) != seen):
                return None
            return Setting(replace(state.settings, streams=change(state.settings.streams, state.top)), session.writer)

        if session.log.append(build) is not None:
            break
    else:
        raise ConfigError(
            f"stream {name!r} of {session.url} could not be changed: others wrote meanwhile, {_TRIES} times. Try again",
            table=session.url,
        )
    session.secure_streams()
    return of_name(session.settings.streams, name, session.url)


def _refuse_events(session: Session, stream: Stream) -> None:
    """Raise `InputError` if the stream has had an event: its contributions were made by the merger of then."""
    if any(has_events(session.store, stream, each) for each in session.snapshot().file_slices()):
        raise InputError(
            f"stream {stream.name!r} of {session.url} has had events, and what they have contributed cannot be merged otherwise. "
            "Nothing was changed; declare another stream, of new columns, and write the events there"
        )


def refuse_stored(session: Session, stream: Stream) -> None:
    """Raise `InputError` if base files have values in the columns of a stream that keeps its events: no event tells of them."""
    for each in session.snapshot().file_slices() if stream.event_id else ():
        if each.base is None:
            continue
        footer = session.footers.of(each.base.path, each.base.size)
        for number in range(footer.num_columns):
            name, *_ = footer.schema.column(number).path.split(".")
            chunks = [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)]
            if name in stream.columns and any(said is None or said.num_values for said in chunks):
                raise InputError(
                    f"stream {stream.name!r} keeps its events, and {each.base.path} of {session.url} has values of {name!r} "
                    "that no event tells of, which the first event of a row would replace. Add new columns (`add_column`) for it",
                    column=name,
                )


def refuse_orders(session: Session, streams: Sequence[Stream], slices: Sequence[FileSlice]) -> None:
    """Raise `InputError` if stored rows have a NaN, or some of several ordering values: no event tells whether it is newer."""
    schema = session.schema()
    assert schema is not None, "streams are declared of columns"
    for stream in streams:
        names = stream.ordered_by
        floats = [name for name in names if pa.types.is_floating(schema.field(name).type)]
        for each in slices if floats or len(names) > 1 else ():
            rows = session.read_slice(each, columns=[*names])
            columns = [rows.column(n) if n in rows.column_names else pa.nulls(rows.num_rows) for n in names]
            nans = [pc.fill_null(pc.is_nan(rows.column(n)), fill_value=False) for n in floats if n in rows.column_names]
            partly = [pc.not_equal(columns[0].is_valid(), more.is_valid()) for more in columns[1:]]
            if any(pc.any(bad, min_count=0).as_py() for bad in (*nans, *partly)):
                raise InputError(
                    f"stream {stream.name!r}: rows of {each.group} in {session.url} have a NaN in {', '.join(names)}, or some of "
                    "these columns and not the others, so no event would be newer than they are. Nothing was changed; give them "
                    "values, or none",
                    column=names[0],
                )


def refuse_at_creation(
    streams: Sequence[Stream], schema: pa.Schema, config: TableConfig, url: str, settings: Settings
) -> None:
    """Raise what `declare` would of these streams, before their table is there."""
    rules = bool(settings.unique_constraints or settings.check or settings.merge or settings.ties != "last")
    refuse_table(config, url, buckets=settings.bucket_count, rules=rules)
    made: tuple[Stream, ...] = ()
    for each in streams:
        made = joined(made, each, since="", table=url)
        refuse_columns(each, schema, config, url)
        refuse_mergers(each, schema)
    refuse_required(made, config.create_schema, config, url)


def refuse_required(streams: Sequence[Stream], schema: str | None, config: TableConfig, url: str) -> None:
    """Raise `InputError` if rows of these streams may lack a value that was declared not null."""
    streams = [each for each in streams if not each.dropped]
    for column in required_by(schema):
        if column in (*config.record_key_fields, *config.partition_fields):
            continue
        for each in streams:
            if column not in each.own:
                why = "it does not write the column, and rows that it begins have no value there"
            elif column in each.columns and each.on_delete == CLEAR:
                why = 'its deletes empty the column, unless you say `on_delete="row"` or "ignore"'
            else:
                continue
            raise InputError(
                f"column {column!r} of {url} was declared not null, which stream {each.name!r} does not keep: {why}. "
                "Nothing was changed; else make the table with a nullable column",
                column=column,
            )


def last_slot(state: LogState) -> int:
    """Return the slot of the newest commit; -1 before the first."""
    return state.last.slot if state.last else -1


def _refuse_log_files(session: Session) -> None:
    logged = [each for each in session.snapshot().file_slices() if each.logs]
    if logged:
        raise ConfigError(
            f"{session.url} has log files of other writes ({logged[0].logs[0].path}), which streams cannot be merged with. "
            "Compact it (`compact`), then declare its first stream",
            table=session.url,
        )
