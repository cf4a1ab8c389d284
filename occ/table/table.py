"""A table: open, read, change. The front door of the library; each method calls the room that does the work."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

from ...arguments import (
    Isolation,
    LayoutName,
    Missing,
    NewColumns,
    NullEvents,
    OnDelete,
    OperationName,
    Strategy,
    brief,
    flag,
    number,
    suggesting,
    text,
)
from ...conflict import refuse_contradiction
from ...environment import SYSTEM, Environment
from ...errors import BatchLandedError, ConfigError, InputError, LakeLatchError, UnsupportedTableError
from ...hudi.table import TableConfig
from ...hudi.timeline import CommitMetadata, Instant, Time, Timeline, read_timeline
from ...locks import shown
from ...notebook import view
from ...progress import ProgressOption, Reporter, drawn, draws
from ...storage import Store, open_store
from ...streams import RowHistory, Stream, declared, refuse_incomplete
from ..entries import Batch, BatchGiven, LogEntry, Origin, Setting, Settings, SettingsDict
from ..log import EPOCH_SLOTS, LogState
from ..scan import ChangeFeed, Scan, change_feed, changes, scan
from ..services import (
    LINEAR,
    MIN_LOGS,
    RETAIN_COMMITS,
    SERVICES,
    Archival,
    Damaged,
    Executed,
    Find,
    Keep,
    Layout,
    PinnedView,
    Restored,
    Retention,
    Runner,
    ServiceRound,
    Sizes,
    archive,
    cancel,
    clustering,
    compaction,
    compaction_due,
    delete_savepoint,
    execute,
    finish_decided,
    log_compaction,
    one_by_one,
    perform,
    pinned,
    refuse_no_runner,
    remove_undone,
    restore,
    run_round,
    savepoint,
    schedule,
    take_archived_away,
)
from ..services import clean as cleaning
from ..session import (
    Partition,
    Savepoint,
    Session,
    TableLock,
    View,
    arrow_schema,
    connect,
    dropped_by,
    kept_from,
    known_partition,
    refuse_open,
    savepoints,
    settled,
    several,
)
from ..transaction import Bounds, Retries, RunResult, Transaction, WriteOptions, WriteResult, begin, refuse_unknown
from ..transaction import run as run_again
from ..turns import Asked
from ..workspace import constrained, refuse_check
from ..writing import Merge, Write, merging, replacing, retried, row_writes, stream_writes
from .adopt_streams import StreamAdoption, adopt_streams, planned
from .buckets import BucketChange, change_buckets, planned_buckets
from .coordinators import CoordinatorOf, coordinator_of
from .stream import TableStream, declarations_of, declare, explain

if TYPE_CHECKING:
    import pyarrow as pa

    from ...conditions import Given
    from ...hudi.timeline import FileSlice, Snapshot
    from ..entries import Begin
    from ..history import Account, Event, LostRows
    from ..liveness import MarkerService

T = TypeVar("T")
# Plans of an archival after a commit: a plan takes up to 500 instants, and an epoch of the log holds as many commits.
_PLANS_BY_ITSELF = 2


@suggesting
class Table:
    """One handle on one table; safe to share between threads, and a context manager. Made by `open`.

    It pickles: another process gets a handle of its own, opened with the same arguments.

    Attributes:
        session: its store, log, lock and heartbeat.
        url: the canonical URL.
        config: the properties in ``hoodie.properties``.
        writable: False for a Hudi table without our log, until it is adopted.
    """

    def __init__(
        self, store: Store, *, env: Environment = SYSTEM, writer: str = "", epoch_slots: int = EPOCH_SLOTS
    ) -> None:
        self._work_with(Session(store, env=env, writer=writer, epoch_slots=epoch_slots))

    def _work_with(self, session: Session) -> None:
        self.session = session
        self.session.first_sweep = lambda: take_archived_away(self.session)
        self.session.landed_one = self._archive_if_due
        if self.session.writable:
            connect(self.session)
        self._looked_at = -1  # the closed epoch after which `_archive_if_due` ran last
        self.store, self.env, self.url = session.store, session.env, session.url
        self.writer, self.writable = self.session.writer, self.session.writable

    @property
    def config(self) -> TableConfig:
        """The table's properties, as last read."""
        return self.session.config

    @property
    def settings(self) -> Settings:
        """The settings that all writers of the table share, as of the last read of the log."""
        return self.session.settings

    @property
    def lock(self) -> TableLock:
        """The table's lock: its provider, taking it, changing it."""
        return self.session.lock

    def _ours(self) -> Session:
        self.session.require_open()
        self.session.require_log()
        return self.session

    # --- looking ---------------------------------------------------------------------------------------------

    def timeline(self) -> Timeline:
        """Return the table's instants, from one listing, without commits that a restore has undone."""
        return self.session.timeline()

    def commits(self, *, after: Time | None = None, until: Time | None = None) -> list[tuple[Instant, CommitMetadata]]:
        """Return the commits completed after ``after`` and up to ``until``, in that order; archived ones too.

        An incremental reader needs these.

        Args:
            after: a time in any form that `times` describes; None, or Hudi's own ``0`` and ``000``, is the beginning.
            until: likewise; None is now.

        Raises:
            InputError: ``after`` or ``until`` is no time.
            UnsupportedTableError: an archive of table version 6 holds some of them.
        """
        return self.session.commits(after=after, until=until)

    def snapshot(self, *, as_of: Time | None = None, as_of_completion: Time | None = None) -> Snapshot:
        """Return the file slices now, or at a past moment; a moment after the newest commit means now.

        Args:
            as_of: commits with requested time T up to this, as in Hudi's time travel. Any form that `times` describes; a date
                means its start.
            as_of_completion: commits with completion time C up to this.

        Raises:
            InputError: not a time, or the table had no commit yet.
        """
        return self.session.snapshot(as_of=as_of, as_of_completion=as_of_completion)

    def view(self, *, as_of: Time | None = None, as_of_completion: Time | None = None) -> View:
        """Return snapshot and schema of one moment.

        Args:
            as_of: as for `snapshot`.
            as_of_completion: as for `snapshot`.

        Raises:
            InputError: as for `snapshot`.
        """
        return self.session.view(as_of=as_of, as_of_completion=as_of_completion)

    def schema(self) -> pa.Schema | None:
        """Return the data columns, without Hudi's meta columns; None before the first commit.

        All are nullable, except those that the table was made with as not null.
        """
        return self.session.declared_schema()

    def read(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Any = None,
        partitions: Iterable[Partition] | None = None,
        as_of: Time | None = None,
        as_of_completion: Time | None = None,
        read_optimized: bool = False,
        limit: int | None = None,
        progress: ProgressOption | None = None,
    ) -> Scan:
        """Return rows of the table, as it is now or was, as a lazy `Scan`.

        The state is that of this call, however late the rows are read. ``to_arrow``, ``to_pandas``, ``to_polars``, ``to_duckdb``,
        ``to_batches``, ``to_pylist``, ``head`` and ``count`` read them; ``explain`` lists the files to be read.

        Args:
            columns: names, which may include Hudi's meta columns; all data columns by default.
            where: a condition on the rows, as SQL text, terms or an expression of pyarrow (docs/conditions.md). Partitions, files
                and row groups that cannot hold such rows are not read.
            partitions: only these, by value (``{"origin": "JFK"}``; several partition columns need not all be given) or by path
                (``"origin=JFK"``). Null and an empty text have one partition.
            as_of: the state of the commits requested up to this time, as in Hudi's time travel: an instant, a date (its
                start), or
                a time.
            as_of_completion: the state of the commits completed up to this time.
            read_optimized: the rows of the base files only, as in Hudi's query of that name: changes in log files since the last
                compaction are not seen.
            limit: no more rows than this, in the order of partitions and file groups.
            progress: called with a `Progress` of rows whenever rows arrive, in the reading thread; an exception in it ends the
                reading.

        Raises:
            InputError: no such partition, column or time, or not a condition on these columns.
        """
        return scan(
            self.session,
            columns=columns,
            where=where,
            partitions=partitions,
            as_of=as_of,
            as_of_completion=as_of_completion,
            read_optimized=read_optimized,
            progress=progress,
        ).limited(limit)

    def changes(
        self, *, after: Time | None = None, until: Time | None = None, columns: Sequence[str] | None = None
    ) -> Scan:
        """Return the rows that commits completed after ``after`` and up to ``until`` inserted or changed, as a `Scan`.

        Each row comes once, in its newest version at the end of the span, with the C of its commit as column
        ``_commit_completion``. `change_feed` has each single change, deletions too. Pass the scan's ``completion`` as the next
        call's ``after``; commits appear in the order of C, so none is skipped.

        Args:
            after: None is the beginning.
            until: None is now.
            columns: names; all data columns by default.

        Raises:
            InputError: no such time or column.
            UnsupportedTableError: as for `commits`.
        """
        return changes(self.session, after=after, until=until, columns=columns)

    def change_feed(
        self, *, after: Time | None = None, until: Time | None = None, columns: Sequence[str] | None = None
    ) -> ChangeFeed:
        """Return the inserts, updates and deletes, row by row, of commits completed after ``after`` and up to ``until``.

        Each change has ``_change`` (``insert``, ``update_before`` followed by ``update_after``, ``delete``), C, T, writer (null
        if the log no longer knows it) and note (JSON) of its commit, then the data columns. Commits come in the order of C: pass
        the feed's ``completion`` as the next call's ``after``. A row rewritten with equal values is no change; the same key in
        another partition is another row. Works on both types of tables.

        Args:
            after: None is the beginning.
            until: None is now.
            columns: names; all data columns by default. An update counts if one of these has changed.

        Raises:
            InputError: no such time or column; or a cleaning has deleted states of that span.
            UnsupportedTableError: as for `commits`.
        """
        whole_from = kept_from(self.session)
        return change_feed(self.session, after=after, until=until, columns=columns, whole_from=whole_from)

    def read_slice(self, group: FileSlice, *, columns: list[str] | None = None, meta: bool = False) -> pa.Table:
        """Return the rows of one file slice, with the columns that its files have, dropped ones too.

        Args:
            group: a file slice of `snapshot`.
            columns: names; all data columns by default.
            meta: with Hudi's five meta columns.

        Raises:
            StorageError: a file of it is no longer there.
        """
        return self.session.read_slice(group, columns=columns, meta=meta)

    # --- what happened ---------------------------------------------------------------------------------------

    def why(self, instant: Time) -> Account:
        """Explain the outcome of a transaction: the winner, the overlap, the cost, and a remedy.

        Rebuilt from the log, so it works long after the writer has gone.

        Args:
            instant: its T, as a `ConflictError` has it (``instant``).

        Returns:
            An account whose text is that of ``lakelatch why``.

        Raises:
            InputError: the log does not know the transaction, or no longer.
        """
        from ..history import why

        session = self._ours()
        return why(session, session.time_of(instant, "instant"))

    def events(self, *, after: Time | None = None, every_s: float = 1.0) -> Iterator[Event]:
        """Yield the table's events as they happen: begins, commits, aborts, rollbacks, plans, settings.

        The iterator does not end by itself.

        Args:
            after: begin after this time; None: with the next event.
            every_s: seconds between two reads of the log while nothing happens.
        """
        from ..history import follow

        session = self._ours()
        number(every_s, "every_s", least=0.01)
        return follow(session, after=None if after is None else session.time_of(after, "after"), every_s=every_s)

    def lost_rows(self, instant: Time) -> LostRows:
        """Return the rows of a commit that another has hidden without having read them (`check`: ``slice-skipped``).

        Only writers that the log cannot fence lose rows so: those of other engines, and ours beside them.

        Raises:
            InputError: no commit hides rows of it.
            CorruptTableError: a cleaning has taken the files.
        """
        from ..history import lost_rows

        session = self._ours()
        return lost_rows(
            session,
            session.time_of(instant, "instant"),
            lambda columns, partitions: self.read(columns=columns, partitions=partitions).to_batches(),
        )

    def rescue(self, instant: Time) -> RunResult[LostRows]:
        """Write the rows of `lost_rows` again, in one commit; keys written since keep their values. Errors as there.

        A second time nothing is written, and the result has no commit.
        """
        from ..history import lost_rows

        session = self._ours()
        lost = session.time_of(instant, "instant")

        def attempt(txn: Transaction) -> LostRows:
            found = lost_rows(
                session,
                lost,
                lambda columns, partitions: txn.read(columns=columns, partitions=partitions).to_batches(),
            )
            if found.rows.num_rows:
                txn.upsert(found.rows, missing="null")
            return found

        try:
            # The batch tells `check` that the loss is mended.
            return self.run(attempt, isolation="serializable", batch=Batch.rescue(lost))
        except BatchLandedError:
            return RunResult(self.lost_rows(lost), None)

    # --- changing --------------------------------------------------------------------------------------------

    def transaction(
        self,
        operation: OperationName = "upsert",
        *,
        lock_first: bool = False,
        isolation: Isolation | None = None,
        reserve: Asked | None = None,
        first: int | None = None,
        batch: BatchGiven | None = None,
        note: Mapping[str, str] | None = None,
    ) -> Transaction:
        """Begin a transaction, a context manager: leaving its block commits.

        Args:
            operation: insert, bulk_insert, upsert, delete, insert_overwrite, insert_overwrite_table or
                delete_partition. It names the instant's action, and says whether the table was read.
            lock_first: take the table's lock before the snapshot and keep it to the commit: cannot lose, and nobody
                else commits meanwhile. For short transactions on a contended table; `run` does it by itself.
            isolation: a stronger level than the table's, for this transaction.
            reserve: keep others from committing there until this one has ended: ``"table"``, or a list of partition paths,
                file slices of a snapshot, or (partition, file id). Begins when older ones that reserved the same have
                ended. For long work; docs/starvation.md describes the order.
            first: begin slot of the first attempt of the same work, by which reservations are ranked; `run` passes it on.
            batch: a source and a number, as ``("nightly load", 17)``. It commits only if no batch of that source with this
                number or a larger one has; sending it again writes nothing (docs/exactly-once.md). A third value is the newest
                number that the source must have then, None if it is to have none.
            note: texts by name, as ``{"job": "nightly load"}``, stored in the commit's ``extraMetadata``; up to 4 KiB. `why`,
                `change_feed` and ``lakelatch timeline --note job=...`` show it, and so do Hudi's readers.

        Raises:
            BatchLandedError: the batch is committed already.
            BatchConflictError: it follows another batch than the newest of its source.
            InputError: no such partition or file group to reserve.
            ConflictError: another transaction's reservation was not released within ``yield_wait_s``; a retry is safe.
            UnsupportedTableError: the table cannot be written; the message says why and the way out.
        """
        return begin(
            self.session,
            operation,
            lock_first=lock_first,
            isolation=isolation,
            reserve=reserve,
            first=first,
            origin=Origin.of(batch, note),
        )

    def run(
        self,
        work: Callable[[Transaction], T],
        *,
        operation: OperationName = "upsert",
        attempts: int = 20,
        timeout_s: float = 600.0,
        backoff_s: float = 0.05,
        lost_work_max_s: float | None = None,
        isolation: Isolation | None = None,
        reserve: Asked | None = None,
        reserve_after: int | None = 1,
        batch: BatchGiven | None = None,
        note: Mapping[str, str] | None = None,
    ) -> RunResult[T]:
        """Run ``work`` in a transaction and commit it; after a conflict run it again, with a new instant and snapshot.

        After a loss, short work takes the lock before its snapshot while the table stays contended; long work reserves the file
        groups that it touched, and others wait for it.

        Args:
            work: called with the transaction; may run several times, so it must keep no state between calls.
            operation: as for `transaction`.
            attempts: the most attempts.
            timeout_s: no attempt begins after so many seconds.
            backoff_s: jittered pause after the first loss, doubled with each, 5 s at most.
            lost_work_max_s: no attempt begins once lost attempts took so many seconds together.
            isolation: for each attempt, as for `transaction`.
            reserve: for each attempt, as for `transaction`.
            reserve_after: attempts reserve after so many losses; None: never.
            batch: for each attempt, as for `transaction`.
            note: of the commit, as for `transaction`.

        Returns:
            The value that ``work`` returned, the commit, the number of attempts and the errors of those that lost.

        Raises:
            BatchLandedError: the batch is committed already; the work was not run, or not kept.
            ConflictError: the last attempt's, when the bounds are reached; a note has the number of attempts.
        """
        return run_again(
            self.session,
            work,
            Bounds(attempts, timeout_s, backoff_s, lost_work_max_s, reserve_after),
            operation=operation,
            isolation=isolation,
            reserve=reserve,
            batch=batch,
            note=note,
        )

    def last_batch(self, source: str) -> int | None:
        """Return the largest committed batch number of a source; None if none is known.

        The table remembers the last 1,000 sources. After a restore that undoes a batch, the source's newest remaining one counts.

        Args:
            source: the first part of the ``batch`` that writes were given.

        Raises:
            InputError: it is not a text.
        """
        text(source, "batch source")
        found = self._ours().log.catch_up().batches.last(source)
        return found.batch.number if found else None

    # --- rows ------------------------------------------------------------------------------------------------
    #
    # Each calls the method of `Transaction` with the same name and arguments in a transaction of its own, which `run`
    # retries when it loses. The input is read once, before the first attempt.

    @retried(Transaction.upsert)
    def upsert(
        self,
        rows: Any,
        *,
        missing: Missing = "refuse",
        new_columns: NewColumns = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Replace the rows with the same key in the same partition; insert rows with new keys.

        One transaction, which is run again when it loses to another writer.
        """
        return self._write(row_writes.upsert(self._ours(), rows, missing, new_columns, zone), retries)

    @retried(Transaction.insert)
    def insert(
        self,
        rows: Any,
        *,
        missing: Missing = "refuse",
        new_columns: NewColumns = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Add rows in new files, without looking up existing keys, as in Hudi's ``insert``.

        Raises:
            DuplicateKeyError: another writer inserted one of the keys at the same time; not run again.
        """
        return self._write(replacing.insert(self._ours(), rows, missing, new_columns, zone), retries)

    @retried(Transaction.overwrite)
    def overwrite(
        self,
        rows: Any,
        *,
        partitions: Iterable[Partition] | None = None,
        missing: Missing = "refuse",
        new_columns: NewColumns = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Replace all rows of partitions by these rows."""
        return self._write(replacing.overwrite(self._ours(), rows, partitions, missing, new_columns, zone), retries)

    @retried(Transaction.overwrite_table)
    def overwrite_table(
        self,
        rows: Any,
        *,
        missing: Missing = "refuse",
        new_columns: NewColumns = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Replace all rows of the table by these rows."""
        return self._write(replacing.overwrite_table(self._ours(), rows, missing, new_columns, zone), retries)

    @retried(Transaction.delete)
    def delete(self, keys: Any, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Delete the rows with these keys; keys that the table does not have are ignored."""
        return self._write(row_writes.delete(self._ours(), keys), retries)

    @retried(Transaction.delete_where)
    def delete_where(
        self, where: Given, *, partition: Partition | None = None, **retries: Unpack[WriteOptions]
    ) -> WriteResult:
        """Delete the rows that meet a condition, also those that others add meanwhile."""
        return self._write(row_writes.delete_where(self._ours(), where, partition), retries)

    @retried(Transaction.delete_all)
    def delete_all(self, *, partition: Partition | None = None, **retries: Unpack[WriteOptions]) -> WriteResult:
        """Delete all rows of the table or of a partition, also those that others add meanwhile.

        In a table with streams all goes that these have said there, also of rows that were deleted.
        """
        return self._write(stream_writes.delete_all(self._ours(), partition), retries)

    @retried(Transaction.update_where)
    def update_where(
        self,
        where: Given,
        set: Mapping[str, Any],  # noqa: A002 - the word of SQL
        *,
        partition: Partition | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Set values in the rows that meet a condition, also in those that others add meanwhile."""
        return self._write(row_writes.update_where(self._ours(), where, set, partition), retries)

    @retried(Transaction.merge)
    def merge(
        self, rows: Any, *, new_columns: NewColumns = "refuse", zone: str | None = None, **retries: Unpack[WriteOptions]
    ) -> Merge[WriteResult]:
        """Merge rows (``s``) with the table's rows of the same key and partition (``t``), by clauses.

            table.merge(rows).when_matched("s.updated > t.updated", update="all").when_not_matched(insert="all").run()

        Returns:
            A `Merge`, to add clauses to. Its ``run`` writes, and returns a `WriteResult` as `upsert` does.
        """
        return merging(self._ours(), rows, new_columns, zone, lambda write: self._write(write, retries))

    def _write(self, write: Write, options: WriteOptions) -> WriteResult:
        refuse_unknown(options, WriteOptions)
        Reporter(options.get("progress"))  # refused before anything begins
        bounds = cast("Retries", {name: value for name, value in options.items() if name != "progress"})

        def attempt(txn: Transaction) -> Transaction:
            txn.workspace.report = Reporter(told, write.operation)
            write.stage(txn)
            return txn

        # Around all attempts: a reader's rows are read once, before the first one, and freed after the last.
        with write.incoming or nullcontext(), drawn(options.get("progress")) as told:
            try:
                return WriteResult.of(self.run(attempt, operation=write.operation, **bounds))
            except BatchLandedError as e:
                return WriteResult.again(write.operation, e)

    # --- streams ---------------------------------------------------------------------------------------------

    def stream(
        self,
        name: str,
        *,
        columns: str | Sequence[str] | None = None,
        ordering: str | Sequence[str] | None = None,
        on_delete: OnDelete = "clear",
        null: NullEvents = "keep",
        default: Mapping[str, Any] | None = None,
        merge: Mapping[str, str] | None = None,
        foreign_readers: bool = True,
        event_id: str | None = None,
        events: str | None = None,
    ) -> TableStream:
        """Return a stream of the table, to write its events; with ``columns`` declare it, or add columns to it.

        Several jobs fill the rows of one table, each its own columns, without a lock and without conflicts (docs/streams.md).
        The declaration is stored in the table's log. A table with streams is written through them only.

        Args:
            name: the stream's name.
            columns: the columns it writes; they exist, and no other stream has one of them.
            ordering: the column by whose value a later event replaces an earlier one; used by this stream alone. Several: the
                first in which two events differ decides.
            on_delete: the effect of `TableStream.delete`: ``"row"`` (for one stream at most) deletes the row, ``"clear"``
                empties the stream's columns, ``"ignore"`` does nothing.
            null: ``"keep"``: a null leaves the stored value; ``"write"`` replaces it, which Hudi's readers cannot follow
                (``foreign_readers=False``).
            default: values by column, for rows in which no event has set them.
            merge: mergers by column, as ``{"clicks": "sum"}`` (docs/merging.md); other columns take the newest event's value.
                Needs ``foreign_readers=False``.
            foreign_readers: let Hudi's own readers see, as far as they can, events that are not compacted yet.
            event_id: a column with the id of each event, so that an event may come twice, and can be taken back
                (`TableStream.retract`). Needs ``foreign_readers=False`` and ``events``.
            events: the column, an array of structs, in which a row then keeps its events. All mergers work on these.

        Raises:
            InputError: there is no such stream, it is declared differently, its columns are not free, or an option is
                declared without ``columns``.
            ConfigError: the table cannot have streams: it must be merge-on-read, of version 9, with buckets.
        """
        session = self._ours()
        if columns is not None or ordering is not None:
            declare(
                session,
                declared(
                    name,
                    columns=columns,
                    ordering=ordering,
                    on_delete=on_delete,
                    null=null,
                    default=default,
                    merge=merge,
                    foreign_readers=foreign_readers,
                    event_id=event_id,
                    events=events,
                ),
            )
        else:
            words: dict[str, Any] = {"on_delete": on_delete, "null": null, "foreign_readers": foreign_readers}
            words |= {"default": default, "merge": merge, "event_id": event_id, "events": events}
            refuse_incomplete(name, words)
            session.log.catch_up()
        return TableStream(session, text(name, "stream name"), self._write)

    @draws
    def adopt_streams(
        self,
        streams: Mapping[str, Mapping[str, Any]],
        *,
        bucket_count: int | None = None,
        dry_run: bool = False,
        progress: ProgressOption | None = None,
        runner: Runner = one_by_one,
    ) -> StreamAdoption:
        """Give a filled table streams: it becomes merge-on-read, of version 9, with buckets, and without ordering field.

        Rows are laid out in buckets where they are not, by table services, while others write. A call that was interrupted
        goes on where it stopped. A row counts as an event of each stream in whose ordering column it has a value; in a column
        with a merger its value is what was contributed so far.

        Args:
            streams: all streams, as of `lakelatch.create`. Of a table with streams: those to declare as well.
            bucket_count: of a table with a simple index; 8 by default.
            dry_run: change nothing, and return what would be changed.
            progress: as for `compact`; ``runner`` too.

        Raises:
            ConfigError: the table cannot have streams; the message says why. Nothing was changed.
            ConflictError: writers inserted rows all the while, or a plan of another is pending. No stream was declared, and a
                retry is safe.
            InputError: the streams do not fit the columns or the rows. Nothing was changed.
        """
        session, wanted = self._ours(), declarations_of(streams)
        if bucket_count is not None:
            number(bucket_count, "bucket_count", least=1, whole=True)
        if flag(dry_run, "dry_run"):
            return planned(session, wanted, bucket_count)
        refuse_no_runner(runner)
        report = Reporter(progress, "adopt streams", "file groups")
        return adopt_streams(session, wanted, bucket_count, report, runner)

    def explain_row(self, key: str, *, partition: Partition | None = None) -> list[RowHistory]:
        """Explain for each column of a row which event set it and what that replaced; one history per partition with the key.

        Events are known until their log files are compacted; afterwards a value is only known to come from the base file.

        Args:
            key: the record key, as in ``_hoodie_record_key``: the value, or ``a:1,b:2`` for several columns.
            partition: only this partition, by value or path.

        Raises:
            InputError: the table has no streams, or no such partition.
        """
        return explain(self._ours(), text(key, "key"), partition)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The declared streams, as of the last read of the log."""
        return self.session.streams

    # --- columns and settings --------------------------------------------------------------------------------

    def add_column(
        self,
        name: str,
        type: pa.DataType | str,  # noqa: A002
        *,
        note: Mapping[str, str] | None = None,
    ) -> RunResult[None]:
        """Add a column, or a field inside one, null in all present rows, in one commit.

        Open writers go on, unless they change columns themselves: then one of the two runs again.

        Args:
            name: letters, digits and underscores; or a path to a new field of a struct: ``"home.zip"``, ``"stops.element.at"``
                inside a list, ``"marks.value.note"`` inside a map.
            type: of Arrow, or its name in Spark or Arrow, such as ``"bigint"``, ``"decimal(12,2)"`` or
                ``"array<string>"``; stored
                as the next wider one that tables have.
            note: of the commit, as for `transaction`.

        Returns:
            The commit.

        Raises:
            InputError: there is a column or field of that name, also in other case, no struct is at that path, or no table
                holds such a name or type.
        """
        return self.run(lambda txn: txn.add_column(name, type), operation="insert", note=note)

    def widen_column(
        self,
        name: str,
        type: pa.DataType | str,  # noqa: A002
        *,
        note: Mapping[str, str] | None = None,
    ) -> RunResult[None]:
        """Widen a column in one commit, without rewriting files: an ``int`` to ``bigint``, or to ``double`` where it
        tells no rows apart.

        Open writers go on as beside `add_column`.

        Args:
            name: the column.
            type: the new type, as for `add_column`.
            note: of the commit, as for `transaction`.

        Returns:
            The commit.

        Raises:
            InputError: there is no such column, or readers would disagree about its values.
        """
        return self.run(lambda txn: txn.widen_column(name, type), operation="insert", note=note)

    def drop_column(self, name: str, *, note: Mapping[str, str] | None = None) -> RunResult[None]:
        """Drop a column, or a field inside one, in one commit, without rewriting files. Its name is taken for good.

        Reads as of earlier commits still show it. Files keep its values until they are rewritten and cleaned. Writers that
        have begun before do not commit files with the column: they run again.

        Args:
            name: the column; in a copy-on-write table also a path to a field of a struct: ``"home.zip"``,
                ``"stops.element.at"`` inside a list, ``"marks.value.note"`` inside a map.
            note: of the commit, as for `transaction`.

        Returns:
            The commit.

        Raises:
            InputError: there is no such column or no other one; or it is of the record key, the partitions, the ordering
                fields, or a stream or a setting (unique_constraints, check, merge) names it. Nothing was changed.
        """
        return self.run(lambda txn: txn.drop_column(name), operation="insert", note=note)

    def set_lock(self, url: str, *, jvm_writers_stopped: bool = False) -> Settings:
        """Change the table's lock. Writers may run meanwhile: each switches to it at its next commit.

        Args:
            url: a lock URL, ``table`` or ``none://``. It must be reachable from here now.
            jvm_writers_stopped: confirm it if the present lock is shared with JVM writers, which would not switch.

        Raises:
            ConfigError: there is no such lock, or it cannot be opened here.
            LockUnavailableError: its server does not answer. The table keeps the lock that it had.
        """
        return self.lock.change(url, jvm_writers_stopped=jvm_writers_stopped)

    def change_settings(self, **changes: Unpack[SettingsDict]) -> Settings:
        """Change the table's settings, for all writers.

        Bucket counts and constraints are first checked against all rows. Transactions that began under other buckets or fewer
        constraints do not commit.

        Args:
            changes: new values by name, as of `Settings`.

        Returns:
            The settings now in force.

        Raises:
            ConfigError: unknown names or values; or the rows are not laid out in so many buckets.
            ConstraintError: rows break a new unique constraint or check; names some.
        """
        session = self._ours()
        wanted, merges = session.settings.changed(**changes), bool({"merge", "ties"} & set(changes))
        session.refuse_rule(wanted, session.schema() if merges else None)
        refuse_check(session.config, wanted, self.url)
        if "lock" in changes:
            compared = ("bucket_count", "unique_keys", "unique_constraints", "check")
            if any(getattr(wanted, name) != getattr(session.settings, name) for name in compared):
                raise ConfigError(
                    f"{self.url}: change the lock by itself; {', '.join(compared)} are compared with the rows, under one lock"
                )
            return self.lock.change(**changes)
        if wanted.unique_constraints or {"bucket_count", "check", "unique_keys"} & set(changes):
            return constrained(session, changes)

        def build(state: LogState) -> LogEntry:
            after = state.settings.changed(**changes)
            if merges and state.schema:  # a column may have been dropped since the look above
                session.refuse_rule(after, arrow_schema(state.schema))
            refuse_check(session.config, after, self.url, dropped_by(state.schema))
            if after.timeline_first and not state.settings.timeline_first:
                refuse_open(self.url, state)
            return Setting(after, self.writer)

        if "neighbours" in changes:  # nobody commits while the commit point moves
            with session.lease("changing neighbours"):
                entry = session.log.append(build, look=True)
        else:
            entry = session.log.append(build)
        assert isinstance(entry, Setting)
        return entry.settings

    @draws
    def change_buckets(
        self,
        count: int,
        *,
        dry_run: bool = False,
        progress: ProgressOption | None = None,
        runner: Runner = one_by_one,
    ) -> BucketChange:
        """Lay the rows out in another number of buckets, or give a table with a simple index buckets, beside other writers.

        A table service, and the number changes with its commit: an interrupted call has changed nothing, or, with a simple
        index, has laid some partitions out. Writers of its files wait meanwhile; transactions that began before run again.

        Args:
            count: the number of buckets of each partition. Without buckets: ``change_settings(bucket_count=None)``.
            dry_run: change nothing, and return what would be rewritten.
            progress: as for `compact`; ``runner`` too.

        Returns:
            The change.

        Raises:
            ConfigError: the table has streams, or JVM writers beside ours. Nothing was changed.
            ConflictError: others wrote rows all the while, or a plan of another is pending. The number is as before, and a
                retry is safe.
        """
        session = self._ours()
        number(count, "count", least=1, whole=True)
        if flag(dry_run, "dry_run"):
            return planned_buckets(session, count)
        refuse_no_runner(runner)
        return change_buckets(session, count, Reporter(progress, "change buckets", "files"), runner)

    def rollback_failed_writes(
        self, *, wait: bool = False, progress: Callable[[float], None] | None = None
    ) -> list[str]:
        """Roll back dead transactions, delete the leftovers of ended ones, and return the instants rolled back.

        Args:
            wait: watch silent writers for the table's time-out, or to their next sign of life; otherwise only writers
                that certainly died (their process on this host is gone) or were seen silent before are found.
            progress: called with the seconds still to wait.
        """
        session = self._ours()
        mine, since = session.heart.instants, self.env.monotonic()
        ended = session.cleaner.look(mine)
        while wait and (remaining := session.cleaner.wait_s(mine, since=since)) > 0:
            if progress:
                progress(remaining)
            self.env.sleep(min(remaining, max(self.settings.heartbeat_interval_s / 2, 0.05)))
            ended += session.cleaner.look(mine)
        try:
            session.publish_last()
        finally:
            self._sweep(mine)
        return ended

    def _sweep(self, mine: Collection[str]) -> None:
        session = self.session
        session.cleaner.sweep_leftovers(mine)
        session.cleaner.sweep_strays(read_timeline(self.store, self.config), mine)
        remove_undone(session, session.leases)
        take_archived_away(session)
        session.pruner.prune()

    def _known(self, partitions: Iterable[str] | None) -> list[str] | None:
        session, wanted = self._ours(), several(partitions)
        if not wanted:
            return wanted
        snapshot = session.snapshot()
        return [known_partition(session.store, session.config, snapshot, each) for each in wanted]

    # --- cleaning --------------------------------------------------------------------------------------------

    def plan_clean(
        self, *, retain_commits: int | None = None, retain_hours: float | None = None, wait: bool = False
    ) -> str | None:
        """Plan the deletion of superseded file slices, for any process to `execute`. Returns T, or None if none may go.

        Args:
            retain_commits: the states of so many newest commits, and the one before them, stay readable; 10 if neither is
                given, as in Hudi. 0: only the newest state, so that deleted rows are in no file afterwards.
            retain_hours: the states of the last hours stay; with both, the union.
            wait: watch readers' leases for the table's time-out, so that leases of dead readers keep nothing.
        """
        session = self._ours()
        commits = RETAIN_COMMITS if retain_commits is None and retain_hours is None else retain_commits
        retention = Retention(commits, retain_hours)
        session.refuse_if_unwritable()
        finish_decided(session)
        if wait:
            _watch_readers(session)
        timeout_s = session.settings.heartbeat_timeout_s

        def find(state: LogState) -> dict[str, object] | None:
            return cleaning.find(session, state, retention, session.leases.alive(timeout_s=timeout_s))

        begin = schedule(session, cleaning.SERVICE, find)
        return begin.instant if begin else None

    @draws
    def clean(
        self,
        *,
        retain_commits: int | None = None,
        retain_hours: float | None = None,
        wait: bool = False,
        progress: ProgressOption | None = None,
        runner: Runner = one_by_one,
    ) -> Executed | None:
        """Delete superseded file slices and files of replaced file groups; return None if none may go.

        Files that an open transaction, a reader's lease or a savepoint needs stay. Arguments as for `plan_clean`. A clean is
        decided when it is planned: if an exception in ``progress`` ends one, the next finishes it.

        Args:
            progress: called with a `Progress` for each file.
            runner: as for `compact`.
        """
        report = Reporter(progress, "clean", "files")
        # Refuse before the plan, since a clean cannot be cancelled once it is planned.
        refuse_no_runner(runner)
        planned = self.plan_clean(retain_commits=retain_commits, retain_hours=retain_hours, wait=wait)
        remove_undone(session := self._ours(), session.leases)
        return execute(session, planned, report, runner) if planned else None

    # --- archival --------------------------------------------------------------------------------------------

    def plan_archive(self, *, keep_min: int | None = None, keep_max: int | None = None) -> str | None:
        """Plan the archival of old instants, for any process to `execute`. Returns T, or None if none may go.

        Args:
            keep_min: at least so many newest commits stay; 20 if neither is given, as in Hudi.
            keep_max: with so many commits or fewer nothing is done; by default ``keep_min`` and 10 more, as in Hudi.
        """
        keep = Keep.asked(keep_min, keep_max)
        return self._plan_archive(keep.least)[0] if self._has_old(keep) else None

    def _has_old(self, keep: Keep) -> bool:
        session = self._ours()
        session.refuse_if_unwritable()
        if not self._keeps_history_here():
            raise UnsupportedTableError(
                f"{session.url} has its archived timeline in a folder of another name than history; archive it with Hudi",
                table=session.url,
            )
        self.rollback_failed_writes()
        finish_decided(session)  # one that was interrupted
        return len(session.timeline().commits) > keep.most

    def _keeps_history_here(self) -> bool:
        return self.config.raw.get("hoodie.timeline.history.path", "history") == "history"

    def _plan_archive(self, least: int) -> tuple[str | None, str]:
        session, why = self._ours(), ""
        finish_decided(session)

        def find(state: LogState) -> dict[str, object] | None:
            nonlocal why
            leases = session.leases.alive(timeout_s=session.settings.heartbeat_timeout_s)
            content, why = archive.find(session, state, least, leases)
            return content

        begin = schedule(session, archive.SERVICE, find)
        return begin.instant if begin else None, why

    @draws
    def archive(
        self, *, keep_min: int | None = None, keep_max: int | None = None, progress: ProgressOption | None = None
    ) -> Archival:
        """Move old instants from the active timeline into the history, where Hudi's readers find them.

        Instants that an open transaction, a reader's lease, a savepoint or a pending cleaning needs stay; the result names
        what was in the way. Arguments as for `plan_archive`. An archival is decided when it is planned: if an exception in
        ``progress`` ends one, the next finishes it.

        Args:
            progress: called with a `Progress` for each batch of instants.
        """
        report = Reporter(progress, "archive", "instants")
        keep, session = Keep.asked(keep_min, keep_max), self._ours()
        number, why = self._archive(keep, report)
        return Archival(number, session.timeline().first_active, why)

    def _archive(self, keep: Keep, report: Reporter, *, plans: int | None = None) -> tuple[int, str]:
        """Archive by at most so many plans; return the number of instants that went and the reason why no more did."""
        session = self.session
        number, why = 0, f"there are no more than {keep.most} commits"
        planned, last = None, ""
        if self._has_old(keep):
            # Another process may have archived, or restored, in between: then there may be fewer.
            last = min(sorted(each.requested for each in session.timeline().commits)[-keep.least :], default="")
            planned, why = self._plan_archive(keep.least)
        while planned:
            with suppress(InputError):  # another process was quicker
                number += execute(session, planned, report).files
            # Commits made meanwhile are left to the next archival: beside a busy writer this one would never end.
            if (session.timeline().first_landed or last) >= last:
                break
            if plans is not None and (plans := plans - 1) <= 0:
                return number, "the rest waits for its turn"
            planned, why = self._plan_archive(keep.least)
        return number, why

    def _archive_if_due(self) -> None:
        """Archive in the background after a commit that closed an epoch of the log, as the setting ``archive_above`` says.

        No request is needed to find out whether it is due: one writer closes each epoch, every few hundred commits. If it dies
        here, the writer that closes the next epoch archives.
        """
        session = self.session
        if (closed := session.log.closed) == self._looked_at:
            return
        self._looked_at, above = closed, session.settings.archive_above
        # No more commits than slots: with too few slots nothing is due. A JVM that shares the table archives by its own settings.
        if above is None or session.log.next_slot <= above or session.lock.shared_with_jvm:
            return

        def archive_old() -> None:
            if self._keeps_history_here() and len(session.timeline().commits) > above:
                self._archive(Keep(above // 2, above), Reporter(), plans=_PLANS_BY_ITSELF)

        session.afterwards(
            archive_old, "old commits were not archived; the writer that closes the next epoch tries again", long=True
        )

    # --- clustering ------------------------------------------------------------------------------------------

    def plan_clustering(
        self,
        *,
        small_bytes: int | None = None,
        target_bytes: int | None = None,
        partitions: Iterable[str] | None = None,
        sort_by: Iterable[str] | str | None = None,
        layout: LayoutName = LINEAR,
    ) -> str | None:
        """Plan a clustering of small files, for any process to `execute`. Returns T, or None if there are too few.

        Arguments as for `cluster`.
        """
        session, find = self._clustering(
            small_bytes, target_bytes, partitions, Layout.asked(sort_by, layout), Damaged()
        )
        begin = schedule(session, clustering.SERVICE, find)
        return begin.instant if begin else None

    def _clustering(
        self,
        small_bytes: int | None,
        target_bytes: int | None,
        partitions: Iterable[str] | None,
        layout: Layout | None,
        damaged: Damaged,
    ) -> tuple[Session, Find]:
        session = self._ours()
        session.refuse_if_unwritable()
        sizes, wanted = Sizes.asked(small_bytes, target_bytes, session.file_sizes), self._known(partitions)
        return session, lambda state: clustering.find(session, state, sizes, wanted, layout, damaged.groups)

    @draws
    def cluster(
        self,
        *,
        small_bytes: int | None = None,
        target_bytes: int | None = None,
        partitions: Iterable[str] | None = None,
        sort_by: Iterable[str] | str | None = None,
        layout: LayoutName = LINEAR,
        progress: ProgressOption | None = None,
        runner: Runner = one_by_one,
    ) -> Executed | None:
        """Join the small files of each partition, in this process; return None if there are too few.

        Args:
            small_bytes: join files smaller than this; by default those below five sixths of the target.
            target_bytes: the size of the new files; by default the setting ``target_file_bytes``.
            partitions: paths; all partitions by default.
            sort_by: columns to lay rows out by, so that conditions on them read few row groups and files. Files without this
                layout are rewritten, whatever their size.
            layout: ``linear`` sorts by the columns one after another; ``z-order`` serves conditions on each of them.
            progress: as for `compact`; ``runner`` too.

        Raises:
            InputError: no such column, or one of a type without an order.
        """
        report, damaged = Reporter(progress, "cluster", "file groups"), Damaged()
        refuse_no_runner(runner)
        asked = Layout.asked(sort_by, layout)
        session, find = self._clustering(small_bytes, target_bytes, partitions, asked, damaged)
        return perform(session, clustering.SERVICE, find, report, damaged, runner)

    # --- compaction ------------------------------------------------------------------------------------------

    def plan_compaction(self, *, partitions: Iterable[str] | None = None) -> str | None:
        """Plan a compaction of log files into base files, for any process to `execute`. Returns T, or None without log files.

        Raises:
            UnsupportedTableError: this library cannot merge the log files, or cannot write the rows.
        """
        session, find = self._compaction(partitions, Damaged())
        begin = schedule(session, compaction.SERVICE, find)
        return begin.instant if begin else None

    def _compaction(
        self, partitions: Iterable[str] | None, damaged: Damaged, keep: Keep | None = None
    ) -> tuple[Session, Find]:
        session = self._ours()
        session.refuse_if_unwritable()
        wanted = self._known(partitions)
        due = (lambda _slice: True) if keep is None else compaction_due(session, keep)
        return session, lambda state: compaction.find(session, state, wanted, damaged.groups, due)

    def _compact(
        self, partitions: Iterable[str] | None, report: Reporter, runner: Runner, keep: Keep | None = None
    ) -> Executed | None:
        """Compact; with ``keep`` only the slices that are due in a round of services with these archival bounds."""
        damaged = Damaged()
        session, find = self._compaction(partitions, damaged, keep)
        return perform(session, compaction.SERVICE, find, report, damaged, runner)

    @draws
    def compact(
        self,
        *,
        partitions: Iterable[str] | None = None,
        progress: ProgressOption | None = None,
        runner: Runner = one_by_one,
    ) -> Executed | None:
        """Merge the log files of a merge-on-read table into base files, in this process; return None if there are none.

        Args:
            partitions: paths; all partitions by default.
            progress: called with a `Progress` for each file group; an exception in it, or Ctrl-C, cancels the plan and
                deletes its files.
            runner: runs the parts of the work; `SparkTable` runs them as tasks of Spark.

        Raises:
            UnsupportedTableError: as for `plan_compaction`.
            CorruptTableError: a log file is torn. Its file group is left as it is; the others have been compacted.
        """
        report = Reporter(progress, "compact", "file groups")
        refuse_no_runner(runner)
        return self._compact(partitions, report, runner)

    def plan_log_compaction(self, *, min_logs: int = MIN_LOGS, partitions: Iterable[str] | None = None) -> str | None:
        """Plan a merge of log files into one, for any process to `execute`. Returns T, or None if there are too few.

        Arguments and errors as for `compact_logs`.
        """
        damaged = Damaged()
        session, find = self._log_compaction(min_logs, partitions, damaged)
        begin = schedule(session, log_compaction.SERVICE, find)
        if begin is None and damaged.error:
            raise damaged.error
        return begin.instant if begin else None

    def _log_compaction(
        self, min_logs: int, partitions: Iterable[str] | None, damaged: Damaged
    ) -> tuple[Session, Find]:
        session, least = self._ours(), log_compaction.checked(min_logs)
        session.refuse_if_unwritable()
        wanted = self._known(partitions)
        return session, lambda state: log_compaction.find(session, state, least, wanted, damaged)

    @draws
    def compact_logs(
        self,
        *,
        min_logs: int = MIN_LOGS,
        partitions: Iterable[str] | None = None,
        progress: ProgressOption | None = None,
        runner: Runner = one_by_one,
    ) -> Executed | None:
        """Merge the log files of a slice into one, in this process; the base file stays. Returns None if there are too few.

        Cheaper than `compact` where the base file is large and the log files are many and small. Log files younger than an open
        transaction are left to the next call.

        Args:
            min_logs: skip file slices with fewer log files to merge; 5 as in Hudi.
            partitions: paths; all partitions by default.
            progress: as for `compact`; ``runner`` too.

        Raises:
            UnsupportedTableError: the table has streams, or this library cannot merge its log files.
            CorruptTableError: as for `compact`.
        """
        refuse_no_runner(runner)
        report, damaged = Reporter(progress, "compact_logs", "file groups"), Damaged()
        session, find = self._log_compaction(min_logs, partitions, damaged)
        return perform(session, log_compaction.SERVICE, find, report, damaged, runner)

    @draws
    def run_services(
        self,
        *,
        retain_commits: int | None = None,
        keep_min: int | None = None,
        keep_max: int | None = None,
        cluster: bool = False,
        sort_by: Iterable[str] | str | None = None,
        layout: LayoutName = LINEAR,
        stop: Callable[[], bool] = lambda: False,
        progress: ProgressOption | None = None,
        runner: Runner = one_by_one,
    ) -> ServiceRound:
        """Run the services that are due, once: compaction and log compaction, clustering if asked for, clean, archival.

        Log files are merged into their base file, or, where that writes at most a tenth of it, into one another
        (docs/services.md).

        A failed service is in the result, and the next ones still run. Any number of processes may do this at once; that costs
        work, never data.

        Args:
            retain_commits: as for `clean`.
            keep_min: as for `archive`, also ``keep_max``.
            cluster: join small files too; ``sort_by`` and ``layout`` as for `cluster`.
            stop: called before each service; True skips it and the next ones.
            progress: called with the `Progress` of each service in turn; an exception in it ends the round, and the service
                as for `compact`. With a ``runner``, which reports its own parts, it is called for the archival only.
            runner: as for `compact`.
        """
        keep = Keep.asked(keep_min, keep_max)
        Retention(RETAIN_COMMITS if retain_commits is None else retain_commits, None)
        if not isinstance(cluster, bool):
            raise ConfigError(f"cluster is True or False, not {cluster!r}")
        asked = Layout.asked(sort_by, layout)
        if asked is not None and not cluster:
            raise ConfigError(f"sort_by={sort_by!r} is of a clustering, and cluster is False; say cluster=True")
        if not callable(stop):
            raise ConfigError(f"stop is a function that answers whether to stop, not {stop!r}")
        refuse_no_runner(runner)
        Reporter(progress)  # refused before anything begins
        told = progress if runner is one_by_one else None
        self._ours().refuse_if_unwritable()
        due: dict[str, Callable[[], Executed | Archival | None]] = {}
        if self.config.merge_on_read:
            due["compact"] = lambda: self._compact(None, Reporter(told, "compact", "file groups"), runner, keep)
            if not (self.settings.streams or self.config.for_streams):
                due["compact_logs"] = partial(self.compact_logs, progress=told, runner=runner)
        if cluster:
            by = asked.by if asked else None
            due["cluster"] = partial(self.cluster, sort_by=by, layout=layout, progress=told, runner=runner)
        for each in SERVICES.values():
            if each.due is not None:
                report = Reporter(told, each.name, "file groups")
                due[each.name] = partial(
                    perform, self.session, each, partial(each.due, self.session), report, runner=runner
                )
        due["clean"] = partial(self.clean, retain_commits=retain_commits, progress=told, runner=runner)
        due["archive"] = lambda: self.archive(keep_min=keep_min, keep_max=keep_max, progress=progress)
        return run_round(due, stop)

    # --- plans -----------------------------------------------------------------------------------------------

    def plans(self) -> list[Begin]:
        """Return the pending plans, oldest first."""
        session = self._ours()
        return [begin for begin in list(session.log.catch_up().open.values()) if begin.plan is not None]

    @draws
    def execute(self, instant: str, *, progress: ProgressOption | None = None, runner: Runner = one_by_one) -> Executed:
        """Execute a pending plan of any process. Several may at once: one commits, and all return its result.

        With neighbours also a compaction or clustering that another engine has planned and does not execute.

        Args:
            instant: T of the plan.
            progress: called with a `Progress` for each part; the plan stays if it raises.
            runner: as for `compact`.

        Returns:
            The commit of the plan, by whom, and if it was this call's (``mine``).

        Raises:
            InputError: there is no such plan.
            ConflictError: a later commit conflicts with the plan, which can never commit; it has been cancelled.
        """
        session = self._ours()
        refuse_no_runner(runner)
        return execute(session, text(instant, "instant"), Reporter(progress, "execute", "parts"), runner)

    def cancel_plan(self, instant: str, *, reason: str = "asked to") -> bool:
        """End a pending plan.

        Args:
            instant: its T.
            reason: for the log.

        Returns:
            False if it has committed or ended already.

        Raises:
            InputError: there is no such plan.
        """
        session = self._ours()
        return cancel(session, text(instant, "instant"), reason=text(reason, "reason", empty=True))

    # --- savepoints ------------------------------------------------------------------------------------------

    def savepoint(self, instant: Time | None = None, *, comment: str = "") -> Savepoint:
        """Keep the state of a commit readable until the savepoint is deleted.

        Args:
            instant: T of the commit; by default the newest.
            comment: stored with it.

        Returns:
            The savepoint, with its instant, comment and files.

        Raises:
            InputError: no such commit, it has a savepoint already, or files of its state have been cleaned away.
        """
        session = self._ours()
        session.refuse_if_unwritable()
        return savepoint(session, None if instant is None else session.time_of(instant, "instant"), comment)

    def savepoints(self) -> list[Savepoint]:
        """Return all savepoints, in order of their commits."""
        session = self.session
        return savepoints(session.store, session.timeline())

    def delete_savepoint(self, instant: Time) -> None:
        """Delete a savepoint, so that cleanings no longer keep its state.

        Args:
            instant: T of its commit.

        Raises:
            InputError: there is no such savepoint.
        """
        session = self._ours()
        delete_savepoint(session, session.time_of(instant, "instant"))

    def restore(self, instant: Time) -> Restored:
        """Return the table to the state of a commit; all later commits are undone for good.

        Open writers lose, and their retries see the restored table. Readers of other engines that have begun may miss files;
        readers with a lease do not.

        Args:
            instant: T of the commit.

        Returns:
            The commits that were undone.

        Raises:
            InputError: no such commit, its state is not whole any more, or a later one has a savepoint.
        """
        session = self._ours()
        session.refuse_if_unwritable()
        return restore(session, session.time_of(instant, "instant"), session.leases)

    # --- readers ---------------------------------------------------------------------------------------------

    def pinned(self, *, as_of_completion: Time | None = None) -> AbstractContextManager[PinnedView]:
        """Return a block in which the files of one state stay.

        Args:
            as_of_completion: the state of a past completion time; by default the present one. A time after the newest commit
                means now.

        Raises:
            StorageError: the lease could not be written; readers without write access rely on the retention alone.
            InputError: that past state has been cleaned, or it is not a time.
            LockLostError: at the end of the block, if the lease ended meanwhile; read again.
        """
        session = self._ours()
        past = None if as_of_completion is None else session.time_of(as_of_completion, "as_of_completion")
        return pinned(session, as_of_completion=past)

    # --- closing ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the heartbeat thread and the lock's renewer; later reads and writes with this handle are refused.

        Open transactions will be rolled back. Idempotent.
        """
        self.session.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.session,)

    def __enter__(self) -> Self:
        self.session.require_open()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<lakelatch.Table {self.url}>"

    def _repr_html_(self) -> str:
        config, title = self.config, f"table {self.url}"
        facts: list[tuple[str, object]] = [
            ("record key", ", ".join(config.record_key_fields)),
            ("partitions", ", ".join(config.partitioned_by)),
            ("ordering", ", ".join(config.ordered_by)),
            ("type", "merge-on-read" if config.merge_on_read else "copy-on-write"),
            ("lock", shown(self.settings.lock) if self.writable else "none: read-only"),
            ("isolation", self.settings.isolation if self.writable else ""),
        ]
        try:
            schema, commits = self.schema(), self.timeline().commits
        except LakeLatchError as e:  # closed, or out of reach: that is for the call that needs it to raise
            return view(title, facts, below=str(e))
        facts.append(("newest commit", commits[-1].completed or commits[-1].requested if commits else "none"))
        columns = [(each.name, each.type, "" if each.nullable else "not null") for each in schema or ()]
        return view(title, facts, headers=("column", "type", ""), rows=columns)


def _reopened(session: Session) -> Table:
    table = Table.__new__(Table)
    table._work_with(session)
    return table


@suggesting
def open(  # noqa: A001 - lakelatch.open is the name people expect
    url: str | os.PathLike[str],
    *,
    writer: str = "",
    lock: str | None = None,
    strategy: Strategy | None = None,
    isolation: Isolation | None = None,
    priority: int = 0,
    clock_is_right: bool = False,
    threads: int | None = None,
    markers: MarkerService | None = None,
    coordinator: str | CoordinatorOf | None = None,
    token_file: str = "",
    env: Environment = SYSTEM,
    storage: Mapping[str, Any] | None = None,
) -> Table:
    """Open a table. Lock backend, strategy and isolation come from the table itself.

    Args:
        url: a path, ``file://``, ``s3://``, ``gs://`` or ``az://``; every spelling of one place is the same table.
        writer: a name for logs and conflict messages; host and process number otherwise.
        lock: the lock that this writer expects; opening fails if the table has another.
        strategy: likewise.
        isolation: likewise.
        priority: rank of this writer's transactions, on tables with strategy ``priority``; the larger goes first.
        clock_is_right: begin even if this host's clock is years ahead of all times on the table, because nothing was
            written for so long.
        threads: number of file groups that a write works on at a time, each with its rows in memory; by default this
            process's number of cores.
        markers: a server that takes the markers of this writer and its Spark tasks: a `MarkerServer`, or
            `lakelatch.server.Embedded` for one in this process. By default each is an object of its own (docs/server.md).
        coordinator: begins and commits for this writer: the URL of a ``lakelatch server --coordinate``, a
            `CoordinatorServer`, or a `LocalCoordinator` for the threads of this process. By default the one that the
            table's settings name. A writer that does not hear it goes on by itself (docs/server.md).
        token_file: the file with the token of that server; the variable LAKELATCH_COORDINATOR_TOKEN otherwise.
        env: clocks, threads and randomness; for simulators.
        storage: options of the store, as ``{"endpoint": ..., "region": ..., "access_key_id": ...}`` (docs/storage.md).

    Raises:
        TableNotFoundError: there is no table.
        ConfigError: the table's settings differ from what this writer expects; names both values.
    """
    number(priority, "priority", whole=True)
    if threads is not None:
        number(threads, "threads", least=1, whole=True, error=ConfigError)
    if markers is not None and not callable(getattr(markers, "marker_client", None)):
        raise ConfigError(
            f"markers={markers!r} takes no markers; give a lakelatch.MarkerServer or a lakelatch.server.Embedded, or leave it out"
        )
    table = Table(store_of(url, storage), env=env, writer=text(writer, "writer", empty=True))
    table.session.markers = markers
    table.session.priority, table.session.clock_is_right = priority, clock_is_right
    if threads is not None:
        table.session.threads = threads
    if table.writable:
        refuse_contradiction(table.settings.strategy, bucket_count=table.settings.bucket_count, priority=priority)
        if lock is not None and lock != table.settings.lock:
            lock = settled(lock, env=env)
        table.settings.refuse_others(table.url, lock=lock, strategy=strategy, isolation=isolation)
        table.lock.expected = lock
        try:
            table.session.coordinator = coordinator_of(coordinator, token_file, table.session)
        except BaseException:
            table.close()
            raise
    elif lock is not None:
        raise ConfigError(f"{table.url} has no lock setting yet; `lakelatch adopt {table.url} {lock}` gives it one")
    return table


def store_of(url: str | os.PathLike[str], storage: Mapping[str, Any] | None) -> Store:
    """Open the store at a URL with these options. Raises `InputError` if they are not a mapping."""
    if storage is not None and not isinstance(storage, Mapping):
        raise InputError(
            f'storage={brief(storage)} is no dict; give the store\'s options, as {{"region": "eu-west-1"}}'
        )
    return open_store(url, **(storage or {}))


def _watch_readers(session: Session) -> None:
    since, timeout_s = session.env.monotonic(), session.settings.heartbeat_timeout_s
    while True:
        alive = session.leases.alive(timeout_s=timeout_s)
        remaining = session.leases.wait_s(alive, since=since, timeout_s=timeout_s)
        if remaining <= 0:
            return
        session.env.sleep(min(remaining, max(session.settings.heartbeat_interval_s / 2, 0.05)))
