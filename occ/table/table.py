"""A table: open, look, change. The front door of the library; each method hands on to the room that does it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

from ...arguments import brief, number, suggesting, text
from ...conflict import refuse_contradiction
from ...environment import SYSTEM, Environment
from ...errors import BatchLandedError, ConfigError, InputError, UnsupportedTableError
from ...hudi.table import TableConfig
from ...hudi.timeline import CommitMetadata, Instant, Time, Timeline, read_timeline
from ...progress import Reporter, Told
from ...storage import Store, open_store
from ...streams import RowHistory, Stream, declared, refuse_incomplete
from ..entries import Batch, LogEntry, Setting, Settings
from ..history import Account, Event, follow, why
from ..log import EPOCH_SLOTS, LogState
from ..scan import ChangeFeed, Scan, change_feed, changes, scan
from ..services import (
    LINEAR,
    MIN_LOGS,
    RETAIN_COMMITS,
    Archival,
    Damaged,
    Executed,
    Find,
    Keep,
    Layout,
    PinnedView,
    Restored,
    Retention,
    Round,
    Runner,
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
    kept_from,
    known_partition,
    savepoints,
    settled,
    several,
)
from ..transaction import Bounds, Retries, RunResult, Transaction, WriteOptions, WriteResult, begin, refuse_unknown
from ..transaction import run as run_again
from ..turns import Asked
from ..workspace import constrained
from ..writing import Merge, Write, merging, replacing, row_writes
from .stream import TableStream, declare, explain

if TYPE_CHECKING:
    import pyarrow as pa

    from ...conditions import Given
    from ...hudi.timeline import FileSlice, Snapshot
    from ..entries import Begin
    from ..liveness import MarkerService

T = TypeVar("T")
_PLANS_BY_ITSELF = (
    2  # of what one commit has archived: a plan takes up to 500 instants, an epoch of the log holds as many commits
)


@suggesting
class Table:
    """One handle on one table; safe to share between threads, and a context manager. Made by `open`.

    It pickles: another process gets a handle of its own, opened with the same arguments.

    Attributes:
        session: what it works with: store, log, lock, heartbeat.
        url: the one spelling of its place.
        config: what ``hoodie.properties`` says.
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
        self._looked_at = -1  # the newest epoch of the log after which this was due
        self.store, self.env, self.url = session.store, session.env, session.url
        self.writer, self.writable = self.session.writer, self.session.writable

    @property
    def config(self) -> TableConfig:
        """The table's properties, as of the last look at them."""
        return self.session.config

    @property
    def settings(self) -> Settings:
        """The settings that all writers of the table share, as of the last look at the log."""
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
        """The table's instants, from one listing, without commits that a restore has taken back."""
        return self.session.timeline()

    def commits(self, *, after: Time | None = None, until: Time | None = None) -> list[tuple[Instant, CommitMetadata]]:
        """The commits with a completion time after one and up to another, in that order; archived ones too.

        What an incremental reader has to look at. Times in any form that `times` tells; ``after`` None, or Hudi's own
        ``0`` and ``000``, is the beginning.

        Raises:
            InputError: ``after`` or ``until`` is no time.
            UnsupportedTableError: an archive of table version 6 holds some of them.
        """
        return self.session.commits(after=after, until=until)

    def snapshot(self, *, as_of: Time | None = None, as_of_completion: Time | None = None) -> Snapshot:
        """The file slices now, or at a past moment: at one after the newest commit those of now.

        Args:
            as_of: commits with requested time T not after this, as Hudi's readers travel in time. Any form that `times`
                tells; a date is its start.
            as_of_completion: commits with completion time C not after this.

        Raises:
            InputError: it is no time, or the table had no commit yet.
        """
        return self.session.snapshot(as_of=as_of, as_of_completion=as_of_completion)

    def view(self, *, as_of: Time | None = None, as_of_completion: Time | None = None) -> View:
        """Snapshot and schema together, of one moment; arguments and errors of `snapshot`."""
        return self.session.view(as_of=as_of, as_of_completion=as_of_completion)

    def schema(self) -> pa.Schema | None:
        """The data columns, without Hudi's meta columns; None before the first commit."""
        return self.session.schema()

    def read(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Any = None,
        partitions: Iterable[Partition] | None = None,
        as_of: Time | None = None,
        as_of_completion: Time | None = None,
        read_optimized: bool = False,
        progress: Told | None = None,
    ) -> Scan:
        """Rows of the table as it is now, or was: a `Scan`, which reads them when it is asked for them.

        The state is that of this call, however late the rows are read. ``to_arrow``, ``to_pandas``, ``to_polars``,
        ``to_duckdb``, ``to_batches``, ``to_pylist`` and ``count`` read; ``explain`` tells which files that takes.

        Args:
            columns: names, Hudi's meta columns among them if need be; all data columns otherwise.
            where: a condition on the rows, as SQL text, terms or an expression of pyarrow (docs/conditions.md).
                Partitions, files and row groups that cannot hold such rows are not read.
            partitions: only of these, by value (``{"origin": "JFK"}``; of some columns, where there are several) or by
                path (``"origin=JFK"``). Null and an empty text have one partition.
            as_of: as of `snapshot`.
            as_of_completion: as of `snapshot`.
            read_optimized: the rows of the base files only, as Hudi's query of that name: what log files have changed since
                the last compaction is not seen, and not merged.
            progress: called with a `Progress` of rows whenever rows come, in the thread that reads; what it raises ends the
                reading.

        Raises:
            InputError: no such partition, column or time, or no condition on these columns.
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
        )

    def changes(
        self, *, after: Time | None = None, until: Time | None = None, columns: Sequence[str] | None = None
    ) -> Scan:
        """Rows that commits with a completion time after one and up to another have inserted or changed, as a `Scan`.

        Of each row its newest version at the end of that time, with the C of the commit that wrote it as column
        ``_commit_completion``. `change_feed` tells each change by itself, deletions among them. The scan's ``completion`` is
        the ``after`` of the next call; commits appear in the order of C, so none is skipped.

        Args:
            after: None is the beginning.
            until: None is now.
            columns: names; all data columns otherwise.

        Raises:
            InputError: no such time or column.
            UnsupportedTableError: as `commits`.
        """
        return changes(self.session, after=after, until=until, columns=columns)

    def change_feed(
        self, *, after: Time | None = None, until: Time | None = None, columns: Sequence[str] | None = None
    ) -> ChangeFeed:
        """What commits with a completion time after one and up to another have inserted, updated and deleted, row by row.

        Each change has ``_change`` (``insert``, ``update_before`` and the ``update_after`` that follows it, ``delete``), C, T
        and writer of its commit (null where the log does not tell), then the data columns. Commits come in the order of C, so
        its ``completion`` is the ``after`` of the next call. A row that a commit wrote as it was is no change; that of a key
        in another partition is another row. On both types of tables.

        Args:
            after: None is the beginning.
            until: None is now.
            columns: names; all data columns otherwise. An update is told when one of these has changed.

        Raises:
            InputError: no such time or column; or a cleaning has taken states of that span.
            UnsupportedTableError: as `commits`.
        """
        whole_from = kept_from(self.session)
        return change_feed(self.session, after=after, until=until, columns=columns, whole_from=whole_from)

    def read_slice(self, group: FileSlice, *, columns: list[str] | None = None, meta: bool = False) -> pa.Table:
        """The rows of one file slice; columns that the file does not have yet are left out."""
        return self.session.read_slice(group, columns=columns, meta=meta)

    # --- what happened ---------------------------------------------------------------------------------------

    def why(self, instant: Time) -> Account:
        """What became of a transaction (T), and why: who won, where both met, what it cost, what would have helped.

        Rebuilt from the log, so it can be asked when the writer has long gone.

        Raises:
            InputError: the log does not know it, or not any more.
        """
        session = self._ours()
        return why(session, session.time_of(instant, "instant"))

    def events(self, *, after: Time | None = None, every_s: float = 1.0) -> Iterator[Event]:
        """Yield what happens to the table as it happens: begins, commits, aborts, rollbacks, plans, settings.

        It does not end by itself.

        Args:
            after: begin with what happened after this time; None: with what happens from now on.
            every_s: seconds between two looks at the log while nothing happens.
        """
        session = self._ours()
        number(every_s, "every_s", least=0.01)
        return follow(session, after=None if after is None else session.time_of(after, "after"), every_s=every_s)

    # --- changing --------------------------------------------------------------------------------------------

    def transaction(
        self,
        operation: str = "upsert",
        *,
        lock_first: bool = False,
        isolation: str | None = None,
        reserve: Asked | None = None,
        first: int | None = None,
        batch: Batch | tuple[str, int] | None = None,
    ) -> Transaction:
        """Begin a transaction; leave its block to commit.

        Args:
            operation: insert, bulk_insert, upsert, delete, insert_overwrite, insert_overwrite_table or
                delete_partition. It names the instant's action, and says whether the table was read.
            lock_first: take the table's lock before the snapshot and keep it to the commit: cannot lose, and nobody
                else commits meanwhile. For short transactions on a contended table; `run` does it by itself.
            isolation: a stronger level than the table's, for this one.
            reserve: keep others from landing there until this one has ended: ``"table"``, or a list of partition paths,
                file slices of a snapshot, or (partition, file id). Begins when older ones that reserved the same have
                ended. For long work; docs/starvation.md says who waits for whom.
            first: begin slot of the first attempt of the same work, by which reservations are ranked; `run` carries it.
            batch: a source and a number, as ``("nightly load", 17)``. It lands if no batch of that source with this number
                or a larger one has; whoever sends it again, from wherever, writes nothing (docs/exactly-once.md).

        Raises:
            BatchLandedError: the batch has landed.
            InputError: no such partition or file group to reserve.
            ConflictError: what others have reserved was not free within ``yield_wait_s``.
            UnsupportedTableError: the table cannot be written; the message says why and the way out.
        """
        return begin(
            self.session,
            operation,
            lock_first=lock_first,
            isolation=isolation,
            reserve=reserve,
            first=first,
            batch=batch,
        )

    def run(
        self,
        work: Callable[[Transaction], T],
        *,
        operation: str = "upsert",
        attempts: int = 20,
        timeout_s: float = 600.0,
        backoff_s: float = 0.05,
        lost_work_max_s: float | None = None,
        isolation: str | None = None,
        reserve: Asked | None = None,
        reserve_after: int | None = 1,
        batch: Batch | tuple[str, int] | None = None,
    ) -> RunResult[T]:
        """Run ``work`` in a transaction and commit it; on conflict run it again with a fresh instant and snapshot.

        After a loss, short work takes the lock before its snapshot while the table stays contended; long work reserves
        what it touched, and others wait for it.

        Args:
            work: called with the transaction; may run several times, so it must keep nothing from one time to the next.
            attempts: how often at most.
            timeout_s: no new attempt begins after so many seconds.
            lost_work_max_s: no new attempt begins when the lost ones took so many seconds together.
            backoff_s: jittered pause after the first loss, doubled with each, 5 s at most.
            isolation: of each attempt, see `transaction`.
            reserve: of each attempt, see `transaction`.
            reserve_after: after so many lost attempts the next ones reserve; None: never.
            batch: of each attempt, see `transaction`.

        Raises:
            BatchLandedError: the batch has landed; the work was not run, or not kept.
            ConflictError: of the last attempt, when the bounds are reached; a note says how many there were.
        """
        return run_again(
            self.session,
            work,
            Bounds(attempts, timeout_s, backoff_s, lost_work_max_s, reserve_after),
            operation=operation,
            isolation=isolation,
            reserve=reserve,
            batch=batch,
        )

    def last_batch(self, source: str) -> int | None:
        """The largest number of a source's batches that has landed (``batch`` of `transaction`); None: none that is known.

        The table remembers the last 1,000 sources. A restore that takes the commit of a batch back makes it forget that source.
        """
        text(source, "batch source")
        found = self._ours().log.catch_up().batches.last(source)
        return found.batch.number if found else None

    # --- rows ------------------------------------------------------------------------------------------------
    #
    # Each is the method of `Transaction` with the same name and arguments in a transaction of its own, which `run` runs
    # again when it loses. The input is read once, before the first attempt.

    def upsert(
        self,
        rows: Any,
        *,
        missing: str = "refuse",
        new_columns: str = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Rows replace those with the same key in the same partition; new keys are inserted.

        Args:
            rows: as of `Transaction.upsert`, as are ``missing``, ``new_columns`` and ``zone``.
            retries: ``attempts``, ``timeout_s``, ``isolation`` and the other bounds of `run`; ``progress``, which is
                called with a `Progress` for each file that is written (what it raises ends the write and takes it back); and
                ``batch``: of a batch that has landed, nothing is written again, and the result is ``repeated``.

        Raises:
            InputError: as `Transaction.upsert`. Nothing was written.
            StorageError: the temporary folder has no room for the rows of a reader. Nothing was written.
            ConflictError: of the last attempt, as of `run`.
        """
        return self._write(row_writes.upsert(self._ours(), rows, missing, new_columns, zone), retries)

    def insert(
        self,
        rows: Any,
        *,
        missing: str = "refuse",
        new_columns: str = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Rows are added, in new files; their keys are not looked up. See `Transaction.insert`, and `upsert` for the rest."""
        return self._write(replacing.insert(self._ours(), rows, missing, new_columns, zone), retries)

    def overwrite(
        self,
        rows: Any,
        *,
        partitions: Iterable[Partition] | None = None,
        missing: str = "refuse",
        new_columns: str = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """Partitions hold these rows and no others: those that occur in the rows, or ``partitions``.

        See `Transaction.overwrite`, and `upsert` for the rest.
        """
        return self._write(replacing.overwrite(self._ours(), rows, partitions, missing, new_columns, zone), retries)

    def overwrite_table(
        self,
        rows: Any,
        *,
        missing: str = "refuse",
        new_columns: str = "refuse",
        zone: str | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """The table holds these rows and no others. See `Transaction.overwrite_table`, and `upsert` for the rest."""
        return self._write(replacing.overwrite_table(self._ours(), rows, missing, new_columns, zone), retries)

    def delete(self, keys: Any, **retries: Unpack[WriteOptions]) -> WriteResult:
        """The rows with these keys are gone. See `Transaction.delete`, and `upsert` for the rest."""
        return self._write(row_writes.delete(self._ours(), keys), retries)

    def delete_where(
        self, where: Given, *, partition: Partition | None = None, **retries: Unpack[WriteOptions]
    ) -> WriteResult:
        """The rows for which a condition is true are gone. See `Transaction.delete_where`, and `upsert` for the rest."""
        return self._write(row_writes.delete_where(self._ours(), where, partition), retries)

    def delete_all(self, *, partition: Partition | None = None, **retries: Unpack[WriteOptions]) -> WriteResult:
        """All rows of the table or of a partition are gone. See `Transaction.delete_all`, and `upsert` for the rest."""
        return self._write(row_writes.delete_all(partition), retries)

    def update_where(
        self,
        where: Given,
        set: Mapping[str, Any],  # noqa: A002 - the word of SQL
        *,
        partition: Partition | None = None,
        **retries: Unpack[WriteOptions],
    ) -> WriteResult:
        """The rows for which a condition is true have new values. See `Transaction.update_where`, and `upsert` for the rest."""
        return self._write(row_writes.update_where(self._ours(), where, set, partition), retries)

    def merge(
        self, rows: Any, *, new_columns: str = "refuse", zone: str | None = None, **retries: Unpack[WriteOptions]
    ) -> Merge[WriteResult]:
        """Rows (``s``) are merged with those of the same key and partition that are there (``t``), by clauses; see `Merge`.

            table.merge(rows).when_matched("s.updated > t.updated", update="all").when_not_matched(insert="all").run()

        Arguments as of `Transaction.merge`, and `upsert` for the rest.
        """
        return merging(self._ours(), rows, new_columns, zone, lambda write: self._write(write, retries))

    def _write(self, write: Write, options: WriteOptions) -> WriteResult:
        refuse_unknown(options, WriteOptions)
        told = options.get("progress")
        Reporter(told)  # refused before anything begins
        bounds = cast("Retries", {name: value for name, value in options.items() if name != "progress"})

        def attempt(txn: Transaction) -> Transaction:
            txn.workspace.report = Reporter(told, write.operation)
            write.stage(txn)
            return txn

        with write.incoming or nullcontext():
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
        ordering: str | None = None,
        on_delete: str = "clear",
        null: str = "keep",
        default: Mapping[str, Any] | None = None,
        merge: Mapping[str, str] | None = None,
        foreign_readers: bool = True,
    ) -> TableStream:
        """A stream of the table, to write its events; with ``columns`` it is declared, or gets more of them.

        Several jobs fill the rows of one table, each its own columns, without a lock and without conflicts (docs/streams.md).
        The declaration is stored in the table's log. A table with streams is written through them only.

        Args:
            name: of the stream.
            columns: what it writes; they exist, and no other stream has one of them.
            ordering: the column by whose value a later event replaces an earlier one; of this stream alone.
            on_delete: what `TableStream.delete` does: ``"row"`` (of one stream at most) takes the row away, ``"clear"`` empties
                the stream's columns, ``"ignore"`` does nothing.
            null: ``"keep"``: a null leaves the value that was there; ``"write"`` takes its place, which Hudi's readers
                cannot follow (``foreign_readers=False``).
            default: values by column, for rows in which no event has set them.
            merge: mergers by column, as ``{"clicks": "sum"}`` (docs/merging.md); the others have the newest event's value. It
                needs ``foreign_readers=False``.
            foreign_readers: whether Hudi's own readers shall see what they can of it before a compaction.

        Raises:
            InputError: there is no such stream, it is declared otherwise, its columns are not free, or something is
                declared without ``columns``.
            ConfigError: the table cannot have streams: it has to be merge-on-read, of version 9, with buckets.
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
                ),
            )
        else:
            words = {"on_delete": on_delete, "null": null, "foreign_readers": foreign_readers}
            refuse_incomplete(name, {**words, "default": default, "merge": merge})
            session.log.catch_up()
        return TableStream(session, text(name, "stream name"), self._write)

    def explain_row(self, key: str, *, partition: Partition | None = None) -> list[RowHistory]:
        """Tell of each column of a row which event set it and what that replaced: one answer for each partition with the key.

        What is in a base file is told as that; events are told as long as their log files are not compacted.

        Args:
            key: the record key, as in ``_hoodie_record_key``: the value, or ``a:1,b:2`` where it has several columns.
            partition: only there; by value or path.

        Raises:
            InputError: the table has no streams, or no such partition.
        """
        return explain(self._ours(), text(key, "key"), partition)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams that are declared, as of the last look at the log."""
        return self.session.streams

    # --- columns and settings --------------------------------------------------------------------------------

    def add_column(self, name: str, type: pa.DataType | str) -> RunResult[None]:  # noqa: A002
        """The table has one more column, null in all rows so far: one commit, as `Transaction.add_column`.

        Writers at work go on, unless they change columns themselves: then one of the two runs again.
        """
        return self.run(lambda txn: txn.add_column(name, type), operation="insert")

    def widen_column(self, name: str, type: pa.DataType | str) -> RunResult[None]:  # noqa: A002
        """A column of ``int32`` is one of ``int64`` from now on: one commit, as `Transaction.widen_column`.

        Writers at work go on as beside `add_column`.
        """
        return self.run(lambda txn: txn.widen_column(name, type), operation="insert")

    def set_lock(self, url: str, *, jvm_writers_stopped: bool = False) -> Settings:
        """The table has this lock from now on. Writers may run meanwhile: each goes over to it at its next commit.

        Args:
            url: a lock URL, ``table`` or ``none://``. It must be reachable from here now.
            jvm_writers_stopped: say so when the present lock is shared with JVM writers, who would not go over.

        Raises:
            ConfigError: there is no such lock, or it cannot be opened here.
            LockUnavailableError: its server does not answer. The table keeps the lock that it had.
        """
        return self.lock.change(url, jvm_writers_stopped=jvm_writers_stopped)

    def change_settings(self, **changes: Any) -> Settings:
        """The table has these settings from now on, for every writer.

        What would make rows unfindable, or untrue, is compared with all rows first. Transactions that began under other
        buckets or fewer constraints do not land.

        Raises:
            ConfigError: unknown names or values; or the rows do not lie in so many buckets.
            ConstraintError: rows break a new unique constraint; names some.
        """
        session = self._ours()
        wanted = session.settings.changed(**changes)
        session.refuse_rule(wanted, session.schema() if {"merge", "ties"} & set(changes) else None)
        if "lock" in changes:
            compared = ("bucket_count", "unique_constraints")
            if any(getattr(wanted, name) != getattr(session.settings, name) for name in compared):
                raise ConfigError(
                    f"{self.url}: change the lock by itself; {' and '.join(compared)} are compared with the rows, under one lock"
                )
            return self.lock.change(**changes)
        if wanted.unique_constraints or "bucket_count" in changes:
            return constrained(session, changes)

        def build(state: LogState) -> LogEntry:
            return Setting(state.settings.changed(**changes), self.writer)

        entry = session.log.append(build)
        assert isinstance(entry, Setting)
        return entry.settings

    def rollback_failed_writes(
        self, *, wait: bool = False, progress: Callable[[float], None] | None = None
    ) -> list[str]:
        """Roll back dead transactions and remove what ended ones left; returns the instants rolled back.

        Args:
            wait: watch silent writers for the table's time-out, or to their next sign of life; otherwise only writers
                that certainly died (their process on this host is gone) or were seen silent before are found.
            progress: called with the seconds that are still to wait.
        """
        session = self._ours()
        mine, since = session.heart.instants, self.env.monotonic()
        ended = session.cleaner.look(mine)
        while wait and (remaining := session.cleaner.wait_s(mine, since=since)) > 0:
            if progress:
                progress(remaining)
            self.env.sleep(min(remaining, max(self.settings.heartbeat_interval_s / 2, 0.05)))
            ended += session.cleaner.look(mine)
        session.log.publish_last()
        session.cleaner.sweep_leftovers(mine)
        session.cleaner.sweep_strays(read_timeline(self.store, self.config), mine)
        remove_undone(session, session.leases)
        take_archived_away(session)
        session.pruner.prune()
        return ended

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
        """Decide which superseded file slices go; anybody may `execute` it then. Returns T, None when none may go.

        Args:
            retain_commits: the states of so many newest commits stay readable, and the one before them; 10 when neither is
                given, as in Hudi. 0: the newest state alone, so that deleted rows are in no file afterwards.
            retain_hours: those of the last hours stay; with both, whatever either of them keeps.
            wait: watch readers' leases for the table's time-out, so that those of readers who died keep nothing.
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

        begin = schedule(session, "clean", find)
        return begin.instant if begin else None

    def clean(
        self,
        *,
        retain_commits: int | None = None,
        retain_hours: float | None = None,
        wait: bool = False,
        progress: Told | None = None,
        runner: Runner = one_by_one,
    ) -> Executed | None:
        """Delete superseded file slices, and files of replaced file groups; None when none may go.

        Never one that an open transaction, a reader's lease or a savepoint needs. Arguments as of `plan_clean`. A clean is
        decided when it is planned: one that ``progress`` has ended by raising is finished by the next.

        Args:
            progress: called with a `Progress` for each file.
            runner: as of `compact`.
        """
        report = Reporter(progress, "clean", "files")
        refuse_no_runner(runner)
        planned = self.plan_clean(retain_commits=retain_commits, retain_hours=retain_hours, wait=wait)
        remove_undone(session := self._ours(), session.leases)
        return execute(session, planned, report, runner) if planned else None

    # --- archival --------------------------------------------------------------------------------------------

    def plan_archive(self, *, keep_min: int | None = None, keep_max: int | None = None) -> str | None:
        """Decide which old instants leave the active timeline; anybody may `execute` it then. Returns T, or None.

        Args:
            keep_min: so many newest commits stay at least; 20 when neither is given, as in Hudi.
            keep_max: with so many commits or fewer nothing is done; ``keep_min`` and 10 more, as in Hudi.
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

        begin = schedule(session, "archive", find)
        return begin.instant if begin else None, why

    def archive(
        self, *, keep_min: int | None = None, keep_max: int | None = None, progress: Told | None = None
    ) -> Archival:
        """Move old instants from the active timeline into the history, where Hudi's readers look for them.

        Never one that an open transaction, a reader's lease, a savepoint or a cleaning that has not run needs; the answer
        says what was in the way. Arguments as of `plan_archive`. An archival is decided when it is planned: one that
        ``progress`` has ended by raising is finished by the next.

        Args:
            progress: called with a `Progress` for each batch of instants.
        """
        report = Reporter(progress, "archive", "instants")
        keep, session = Keep.asked(keep_min, keep_max), self._ours()
        number, why = self._archive(keep, report)
        return Archival(number, session.timeline().first_active, why)

    def _archive(self, keep: Keep, report: Reporter, *, plans: int | None = None) -> tuple[int, str]:
        """How many instants went, by so many plans at most, and why no more did."""
        session = self.session
        number, why = 0, f"there are no more than {keep.most} commits"
        planned, last = None, ""
        if self._has_old(keep):
            last = sorted(each.requested for each in session.timeline().commits)[-keep.least]
            planned, why = self._plan_archive(keep.least)
        while planned:
            with suppress(InputError):  # somebody else was quicker
                number += execute(session, planned, report).files
            # What has landed meanwhile is for the next archival. Beside a busy writer this one would never end.
            if (session.timeline().first_landed or last) >= last:
                break
            if plans is not None and (plans := plans - 1) <= 0:
                return number, "the rest waits for its turn"
            planned, why = self._plan_archive(keep.least)
        return number, why

    def _archive_if_due(self) -> None:
        """After a commit: who has closed an epoch of the log archives what the setting ``archive_above`` says, beside its work.

        Nobody asks the store whether it is due: epochs are closed by one writer each, every few hundred commits. One that dies
        at it leaves it to the next.
        """
        session = self.session
        if (closed := session.log.closed) == self._looked_at:
            return
        self._looked_at, above = closed, session.settings.archive_above
        # Fewer slots than that hold no more commits. A JVM that writes the table archives by its own settings.
        if above is None or session.log.next_slot <= above or session.lock.shared_with_jvm:
            return

        def archive_old() -> None:
            if self._keeps_history_here() and len(session.timeline().commits) > above:
                self._archive(Keep(above // 2, above), Reporter(), plans=_PLANS_BY_ITSELF)

        session.afterwards(
            archive_old, "old commits were not archived; whoever closes the next epoch tries it again", long=True
        )

    # --- clustering ------------------------------------------------------------------------------------------

    def plan_clustering(
        self,
        *,
        small_bytes: int | None = None,
        target_bytes: int | None = None,
        partitions: Iterable[str] | None = None,
        sort_by: Iterable[str] | str | None = None,
        layout: str = LINEAR,
    ) -> str | None:
        """Decide which small files are joined; anybody may `execute` it then. Returns T, None when there are too few.

        Arguments as of `cluster`.
        """
        session, find = self._clustering(
            small_bytes, target_bytes, partitions, Layout.asked(sort_by, layout), Damaged()
        )
        begin = schedule(session, "cluster", find)
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

    def cluster(
        self,
        *,
        small_bytes: int | None = None,
        target_bytes: int | None = None,
        partitions: Iterable[str] | None = None,
        sort_by: Iterable[str] | str | None = None,
        layout: str = LINEAR,
        progress: Told | None = None,
        runner: Runner = one_by_one,
    ) -> Executed | None:
        """Join the small files of each partition, in this process; None when there are too few.

        Args:
            small_bytes: files that are smaller are joined, by default those that lack more than a sixth of the target,
            target_bytes: to files of about this size; the setting ``target_file_bytes`` where nothing is said.
            partitions: paths; all partitions otherwise.
            sort_by: columns by which rows are laid out, so that conditions on them read few row groups and files. Files that
                are not laid out so yet are written anew, whatever their size.
            layout: ``linear`` sorts by the columns one after another; ``z-order`` serves conditions on each of them.
            progress: as of `compact`; ``runner`` too.

        Raises:
            InputError: no such column, or one of a type without an order.
        """
        report, damaged = Reporter(progress, "cluster", "file groups"), Damaged()
        refuse_no_runner(runner)
        asked = Layout.asked(sort_by, layout)
        session, find = self._clustering(small_bytes, target_bytes, partitions, asked, damaged)
        return perform(session, "cluster", find, report, damaged, runner)

    # --- compaction ------------------------------------------------------------------------------------------

    def plan_compaction(self, *, partitions: Iterable[str] | None = None) -> str | None:
        """Decide which log files are merged into base files; anybody may `execute` it then. Returns T, None when there are none.

        Raises:
            UnsupportedTableError: how to merge them is not known here, or the rows cannot be written here.
        """
        session, find = self._compaction(partitions, Damaged())
        begin = schedule(session, "compact", find)
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
        """With ``keep`` only what a round of services compacts, which keeps so many commits."""
        damaged = Damaged()
        session, find = self._compaction(partitions, damaged, keep)
        return perform(session, "compact", find, report, damaged, runner)

    def compact(
        self,
        *,
        partitions: Iterable[str] | None = None,
        progress: Told | None = None,
        runner: Runner = one_by_one,
    ) -> Executed | None:
        """Merge the log files of a merge-on-read table into base files, in this process; None when there are none.

        Args:
            partitions: paths; all partitions otherwise.
            progress: called with a `Progress` for each file group; what it raises, as does Ctrl-C, cancels the plan, and its
                files are deleted.
            runner: who does the parts of the work; `SparkTable` has tasks of Spark do them.

        Raises:
            UnsupportedTableError: as of `plan_compaction`.
            CorruptTableError: a log file is torn. Its file group is left as it is, and the others have been compacted.
        """
        report = Reporter(progress, "compact", "file groups")
        refuse_no_runner(runner)
        return self._compact(partitions, report, runner)

    def plan_log_compaction(self, *, min_logs: int = MIN_LOGS, partitions: Iterable[str] | None = None) -> str | None:
        """Decide which log files are merged into one log file; anybody may `execute` it then. Returns T, None when too few are.

        Args and errors as of `compact_logs`.
        """
        damaged = Damaged()
        session, find = self._log_compaction(min_logs, partitions, damaged)
        begin = schedule(session, "compact_logs", find)
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

    def compact_logs(
        self,
        *,
        min_logs: int = MIN_LOGS,
        partitions: Iterable[str] | None = None,
        progress: Told | None = None,
        runner: Runner = one_by_one,
    ) -> Executed | None:
        """Merge the log files of a slice into one log file, in this process; the base file stays. None when there are too few.

        Cheaper than `compact` where the base file is large and the log files are many and small. Those that an open
        transaction is older than are left to the next one.

        Args:
            min_logs: file slices with fewer log files that are to be merged are left alone; 5 as in Hudi.
            partitions: paths; all partitions otherwise.
            progress: as of `compact`; ``runner`` too.

        Raises:
            UnsupportedTableError: the table has streams, or how to merge its log files is not known here.
            CorruptTableError: as of `compact`.
        """
        refuse_no_runner(runner)
        report, damaged = Reporter(progress, "compact_logs", "file groups"), Damaged()
        session, find = self._log_compaction(min_logs, partitions, damaged)
        return perform(session, "compact_logs", find, report, damaged, runner)

    def run_services(
        self,
        *,
        retain_commits: int | None = None,
        keep_min: int | None = None,
        keep_max: int | None = None,
        cluster: bool = False,
        sort_by: Iterable[str] | str | None = None,
        layout: str = LINEAR,
        stop: Callable[[], bool] = lambda: False,
        progress: Told | None = None,
        runner: Runner = one_by_one,
    ) -> Round:
        """Run what is due, once: compaction and log compaction, clustering if asked for, clean, archival.

        Log files are merged into their base file, or, where that writes at most a tenth of it, into one another
        (docs/services.md).

        A service that fails is told in the answer, and the next ones still run. Any number of processes may do this at once;
        that costs work, never data.

        Args:
            retain_commits: as of `clean`.
            keep_min: as of `archive`, also ``keep_max``.
            cluster: whether small files are joined too; ``sort_by`` and ``layout`` as of `cluster`.
            stop: asked before each service; True leaves it and the next ones to others.
            progress: called with the `Progress` of each service in turn; what it raises ends the round, and the service as of
                `compact`. A ``runner`` tells of its parts by itself, and this is told of the archival alone then.
            runner: as of `compact`.
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
        due["clean"] = partial(self.clean, retain_commits=retain_commits, progress=told, runner=runner)
        due["archive"] = lambda: self.archive(keep_min=keep_min, keep_max=keep_max, progress=progress)
        return run_round(due, stop)

    # --- plans -----------------------------------------------------------------------------------------------

    def plans(self) -> list[Begin]:
        """Plans that nobody has finished, oldest first."""
        session = self._ours()
        return [begin for begin in list(session.log.catch_up().open.values()) if begin.plan is not None]

    def execute(self, instant: str, *, progress: Told | None = None, runner: Runner = one_by_one) -> Executed:
        """Execute a pending plan, whoever made it. Several may at once: one lands, and all are told which.

        ``progress`` is called with a `Progress` for each part; the plan stays when it raises. ``runner`` as of `compact`.

        Raises:
            InputError: there is no such plan.
            ConflictError: a commit since the plan is in its way, so that it can never land; it has been cancelled.
        """
        session = self._ours()
        refuse_no_runner(runner)
        return execute(session, text(instant, "instant"), Reporter(progress, "execute", "parts"), runner)

    def cancel_plan(self, instant: str, *, reason: str = "asked to") -> bool:
        """End a pending plan; False when it has landed or ended meanwhile."""
        session = self._ours()
        return cancel(session, text(instant, "instant"), reason=text(reason, "reason", empty=True))

    # --- savepoints ------------------------------------------------------------------------------------------

    def savepoint(self, instant: Time | None = None, *, comment: str = "") -> Savepoint:
        """The state of a commit (T; the newest one otherwise) stays readable until the savepoint is deleted.

        Raises:
            InputError: no such commit, it has a savepoint already, or files of its state have been cleaned away.
        """
        session = self._ours()
        session.refuse_if_unwritable()
        return savepoint(session, None if instant is None else session.time_of(instant, "instant"), comment)

    def savepoints(self) -> list[Savepoint]:
        """All savepoints, in order of their commits."""
        session = self.session
        return savepoints(session.store, session.timeline())

    def delete_savepoint(self, instant: Time) -> None:
        """Cleanings no longer keep that state. `InputError` when there is no such savepoint."""
        session = self._ours()
        delete_savepoint(session, session.time_of(instant, "instant"))

    def restore(self, instant: Time) -> Restored:
        """The table has the state of that commit (T) again; every later commit is taken back for good.

        Writers that are open meanwhile lose, and what they run again sees the restored table. Readers of other engines
        that have begun may miss files; readers with a lease do not.

        Raises:
            InputError: no such commit, its state is not whole any more, or a later one has a savepoint.
        """
        session = self._ours()
        session.refuse_if_unwritable()
        return restore(session, session.time_of(instant, "instant"), session.leases)

    # --- readers ---------------------------------------------------------------------------------------------

    def pinned(self, *, as_of_completion: Time | None = None) -> AbstractContextManager[PinnedView]:
        """A state of the table whose files stay while the block lasts: that of now, or of a past completion time.

        A time after the newest commit is now.

        Raises:
            StorageError: the lease could not be written; who may not write is covered by retention only.
            InputError: that past state has been cleaned, or it is no time.
            LockLostError: at the end of the block, when the lease has ended meanwhile; read again.
        """
        session = self._ours()
        past = None if as_of_completion is None else session.time_of(as_of_completion, "as_of_completion")
        return pinned(session, as_of_completion=past)

    # --- closing ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop the heartbeat thread and the lock's renewer; nothing is read or written with this handle any more.

        Transactions still open will be rolled back. Twice is fine.
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


def _reopened(session: Session) -> Table:
    table = Table.__new__(Table)
    table._work_with(session)
    return table


@suggesting
def open(  # noqa: A001 - lakelatch.open is the name people expect
    url: str,
    *,
    writer: str = "",
    lock: str | None = None,
    strategy: str | None = None,
    isolation: str | None = None,
    priority: int = 0,
    clock_is_right: bool = False,
    threads: int | None = None,
    markers: MarkerService | None = None,
    env: Environment = SYSTEM,
    storage: Mapping[str, Any] | None = None,
) -> Table:
    """Open a table. Lock backend, strategy and isolation come from the table itself.

    Args:
        url: a path, ``file://``, ``s3://``, ``gs://`` or ``az://``; every spelling of one place is the same table.
        writer: a name for logs and conflict messages; host and process number otherwise.
        lock: what this writer expects; refused when the table says otherwise.
        strategy: likewise.
        isolation: likewise.
        priority: of this writer's transactions, on tables with strategy ``priority``; the larger goes first.
        clock_is_right: begin also when this host's clock is years ahead of all that the table has: nothing was written
            for so long.
        threads: how many file groups a write of rows works on at a time, each with its rows in memory; as many as this
            process has cores by default.
        markers: a server that takes the markers of this writer and its Spark tasks: a `MarkerServer`, or
            `lakelatch.server.Embedded` for one in this process. By default each is an object of its own (docs/server.md).
        env: clocks, threads and randomness; for simulators.
        storage: options of the store, as ``{"endpoint": ..., "region": ..., "access_key_id": ...}`` (docs/storage.md).

    Raises:
        TableNotFoundError: there is no table.
        ConfigError: the table is set otherwise than this writer expects; names both values.
    """
    number(priority, "priority", whole=True)
    if threads is not None:
        number(threads, "threads", least=1, whole=True, error=ConfigError)
    if markers is not None and not callable(getattr(markers, "desk", None)):
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
    elif lock is not None:
        raise ConfigError(f"{table.url} has no lock setting yet; `lakelatch adopt {table.url} {lock}` gives it one")
    return table


def store_of(url: str, storage: Mapping[str, Any] | None) -> Store:
    """The store at a URL, with these options. Raises `InputError` for what are no options."""
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
