"""One writer's change of a table, as its writer sees it. Its parts do the work:

    Attempt            T and its place in the log, from begin to end; a retry is another attempt
    Workspace          the staged files and declarations
    CommitValidator    may it commit?
    Landing            lock, decide, append, publish; in between it waits (`occ.turns`) and merges again (`occ.rebase`)

The lock gives progress, the log gives correctness (docs/protocol.md).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ...arguments import Missing, NewColumns, number, suggesting, text
from ...conflict import Claim, Reservation, WriteSet
from ...environment import ran_out
from ...errors import InputError
from ...streams import of_name
from ..entries import UNTOLD, Origin
from ..entries import operation as refuse_unknown
from ..landing import CommitValidator, Landing, Participant
from ..session import nothing_left
from ..staging import Staged
from ..turns import Asked, ConflictWatcher, reservation_of, take_turn
from ..workspace import Attempt, Workspace
from ..writing import Merge, TransactionStream, like, merging, reading, replacing, row_writes, stream_writes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from ...conditions import Given
    from ...conflict import Conflict
    from ...hudi.files import FileGroupId
    from ...hudi.timeline import FileSlice, Snapshot, WriteStat
    from ..entries import Begin, Settings
    from ..rebase import Again
    from ..scan import Scan
    from ..session import CommitResult, Partition, Session
    from ..staging import FileSpec, NewFile


@suggesting
class Transaction:
    """A transaction, made by `Table.transaction`. Leaving the block commits; an exception in it aborts.

    Commit or abort from one thread only; workers only need `file_spec`.

    Attributes:
        operation: as it was begun.
        url: of the table.
        watcher: watches for conflicting writers of higher rank while it works.
        member: it is part of a transaction over several tables, which alone ends it.
        workspace: for engines that write files themselves; the transaction has methods for everything that users need.
    """

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        lock_first: bool = False,
        isolation: str | None = None,
        reserved: Reservation | None = None,
        first: int | None = None,
        origin: Origin = UNTOLD,
    ) -> None:
        self._origin, self.member = origin, False
        self.session, self.operation, self.url, self._isolation = session, name, session.url, isolation
        self._block: AbstractContextManager[object] | None = None
        self._begin(Claim("", first, session.priority, reserved or None), lock_first=lock_first)

    # --- begin -----------------------------------------------------------------------------------------------

    def _begin(self, claim: Claim, *, lock_first: bool = False) -> None:
        session, lease = self.session, None
        changes = Staged(self.operation, merge_on_read=session.config.merge_on_read)

        # At every slot tried, because the settings there may be newer than those that this handle knows.
        def under(settings: Settings) -> None:
            session.refuse_rule(settings, None)
            self._validator = CommitValidator.of(session, changes, settings, isolation=self._isolation)

        if lock_first:
            # Bounded, so that others' waits do not time out. A transaction that takes longer goes on without the lock,
            # and validates.
            lease = session.lease(f"{self.operation}, from its beginning", max_hold_s=session.settings.lock_wait_s / 2)
        self._attempt = Attempt.begin(
            session, self.operation, changes.operation, claim, lease=lease, origin=self._origin, under=under
        )
        self.workspace = Workspace(self._attempt, changes)
        self._landing = Landing(self._attempt, self.workspace, self._validator)
        self.workspace.watcher = self.watcher = ConflictWatcher(self)

    def begin_anew(self, reserved: Reservation | None) -> None:
        """Replace an attempt that is over and had done nothing by a new one, with its own T and a fresh snapshot."""
        self.watcher.close()
        self._begin(replace(self.claim, reserved=reserved))
        if self._block is not None:
            # The trace span of the block belongs to the attempt that is over.
            self._leave()
            self._enter()

    @property
    def instant(self) -> str:
        """Its requested time T."""
        return self._attempt.instant

    @property
    def begin_slot(self) -> int:
        """Its place in the log; the snapshot is the state there."""
        return self._attempt.begin_slot

    @property
    def result(self) -> CommitResult | None:
        """The result of the commit; None before it."""
        return self._landing.result

    @property
    def isolation(self) -> str:
        """The isolation level in force for it."""
        return self._validator.isolation(self.session.settings)

    # --- what is read ----------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The table as of the begin slot, whatever was committed since. Lists all data files."""
        return self._attempt.seen(self.workspace.snapshot.whole)

    @property
    def current(self) -> Snapshot:
        """The snapshot with the staged changes of this transaction."""
        return self.workspace.current

    @property
    def schema(self) -> pa.Schema | None:
        """The table's data columns as of the begin slot, as `Table.schema`; None if it had no schema yet."""
        from ...hudi.table import with_required

        schema = self.workspace.schema
        return None if schema is None else with_required(schema, self.workspace.required)

    @property
    def written_schema(self) -> pa.Schema | None:
        """The data columns, including those added by this transaction so far."""
        return self.workspace.written_schema

    def read(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Any = None,
        partitions: Iterable[Partition] | None = None,
    ) -> Scan:
        """Return rows of the snapshot with the staged changes so far, as a `Scan`; arguments as in `Table.read`.

        The read is declared: the partitions and, by its simple comparisons, the condition. Above isolation ``snapshot``
        others may only change what these exclude. A path in ``partitions`` need not exist yet.
        """
        return reading.read(
            self.workspace,
            self._attempt,
            isolation=self.isolation,
            columns=columns,
            where=where,
            partitions=partitions,
        )

    def read_slice(self, group: FileSlice, *, columns: list[str] | None = None, meta: bool = False) -> pa.Table:
        """Return the rows of a file slice; with ``meta`` also Hudi's five columns, so that a rewrite keeps rows unchanged.

        Staged changes of this transaction in its file group are included. Columns that the table got after the file was
        written hold nulls, so that the rows can be written again.
        """
        return self.workspace.read_slice(group, columns=columns, meta=meta)

    def depends_on(
        self, partition: str | None, *, where: Given = (), met: Iterable[FileSlice] | None = None
    ) -> list[FileSlice]:
        """Declare that the result depends on everything in a partition (None: the table).

        Args:
            where: only on the rows for which this condition is true, as ``"amount < 10 and city is not null"``, or
                terms or an expression of pyarrow (docs/conditions.md). A new file is then no conflict if its statistics
                or its partition exclude such rows.
            met: slices that have such rows and are not rewritten, if they were searched row by row.

        Returns the slices that may hold such rows, by partitions and statistics; staged slices of this transaction
        included.
        """
        return self.workspace.depends_on(partition, where=where, met=met)

    def mark_scanned(self, partition: str | None, *, where: Given = ()) -> list[FileSlice]:
        """Declare that rows of a partition (None: the table) were read. Counts above isolation ``snapshot``.

        Without a declaration everything counts as read there; slices given by `read_slice` are declared automatically.
        ``where`` and the result as in `depends_on`: no other slices have to be read.
        """
        return self.workspace.mark_scanned(partition, where=where)

    def mark_lookup(self, partition: str | None, file_id: str = "") -> None:
        """Declare the key lookup of a merge in a partition (None: the table), which `merge_on_conflict` repeats.

        Counts above isolation ``snapshot``, as `mark_scanned` does; a rebase under ``write-serializable`` looks them up
        again. With ``file_id`` in one file group only: by the bucket index no other can hold them.
        """
        self.workspace.mark_lookup(partition, file_id)

    def reads_complete(self) -> None:
        """Declare that nothing else was read. Without it, above isolation ``snapshot``, everything counts as read."""
        self.workspace.reads_complete()

    # --- rows, in plain Python -------------------------------------------------------------------------------

    def upsert(
        self, rows: Any, *, missing: Missing = "refuse", new_columns: NewColumns = "refuse", zone: str | None = None
    ) -> None:
        """Replace the rows with the same key in the same partition; insert new keys. Merged again on conflict.

        Args:
            rows: a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars frame, a DuckDB relation, a list
                of dicts or of record batches, or anything with `__arrow_c_stream__` or `__arrow_c_array__`. Readers and
                streams are read once, batch by batch, and need not fit in memory (docs/rows.md). Values are cast to the
                table's types if none of them changes. A pandas index is a column if it has a name.
            missing: for columns that the rows lack: ``"refuse"``, or ``"null"``, which also overwrites existing values.
            new_columns: for columns that the table lacks: ``"refuse"``, or ``"add"``, which adds them for good. The
                first rows of a table created without columns define them.
            zone: the zone of times without one (as those of pandas), such as ``"UTC"``; without it they are refused.

        Raises:
            InputError: a key occurs twice and the table has no ordering field; a column is missing or unknown; a value
                would change in the type of its column; or ``rows`` are in another form. Nothing was written.
            ConstraintError: the rows break a unique constraint or a check. Nothing was written.
            StorageError: the temporary folder has no room for the rows of a reader. Nothing was written.
        """
        self.require_open()
        row_writes.upsert(self.session, rows, missing, new_columns, zone).stage(self)

    @like(upsert)
    def insert(
        self, rows: Any, *, missing: Missing = "refuse", new_columns: NewColumns = "refuse", zone: str | None = None
    ) -> None:
        """Add rows in new files, without looking up existing keys, as in Hudi's ``insert``.

        A key may then exist twice, and later writes change all of its copies. With the bucket index, which reads the
        files anyway, this is an `upsert`.

        Args:
            rows: as in `upsert`.
            missing: as in `upsert`.
            new_columns: as in `upsert`.
            zone: as in `upsert`.

        Raises:
            InputError: as in `upsert`.
            ConstraintError: as in `upsert`.
            StorageError: as in `upsert`.
        """
        self.require_open()
        replacing.insert(self.session, rows, missing, new_columns, zone).stage(self)

    @like(upsert)
    def overwrite(
        self,
        rows: Any,
        *,
        partitions: Iterable[Partition] | None = None,
        missing: Missing = "refuse",
        new_columns: NewColumns = "refuse",
        zone: str | None = None,
    ) -> None:
        """Replace all rows of the partitions by these rows; in a transaction begun as ``insert_overwrite``.

        Rows that others add to these partitions before the commit are a conflict.

        Args:
            rows: as in `upsert`.
            partitions: by value (``[{"origin": "JFK"}]``) or path; those without new rows become empty. Default: the
                partitions that occur in the rows.
            missing: as in `upsert`.
            new_columns: as in `upsert`.
            zone: as in `upsert`.

        Raises:
            InputError: as in `upsert`. Also if a row belongs to none of ``partitions``.
            ConstraintError: as in `upsert`.
            StorageError: as in `upsert`.
        """
        self.require_open()
        replacing.overwrite(self.session, rows, partitions, missing, new_columns, zone).stage(self)

    @like(upsert)
    def overwrite_table(
        self, rows: Any, *, missing: Missing = "refuse", new_columns: NewColumns = "refuse", zone: str | None = None
    ) -> None:
        """Replace all rows of the table by these rows; in a transaction begun as ``insert_overwrite_table``.

        Without any rows the table becomes empty.

        Args:
            rows: as in `upsert`.
            missing: as in `upsert`.
            new_columns: as in `upsert`.
            zone: as in `upsert`.

        Raises:
            InputError: as in `upsert`.
            ConstraintError: as in `upsert`.
            StorageError: as in `upsert`.
        """
        self.require_open()
        replacing.overwrite_table(self.session, rows, missing, new_columns, zone).stage(self)

    def update_where(self, where: Given, set: Mapping[str, Any], *, partition: Partition | None = None) -> None:  # noqa: A002
        """Set values in the rows that meet a condition, also in rows that others add meanwhile.

        Args:
            where: SQL text such as ``"delay > 15"``, terms, or an expression of pyarrow (docs/conditions.md); evaluated again
                on commits of others. ``"true"`` for all rows.
            set: values by column: a value of Python, or an expression over the row, `lakelatch.sql("delay + 1")` or one
                of pyarrow; all see the row as it was before. A plain text is a value.
            partition: only in this one; by value, ``{"origin": "JFK"}``, or its path.

        Raises:
            InputError: no condition or value that fits the table; a column of the record key or partition; a result
                that its column cannot hold unchanged. Nothing was written.
        """
        self.require_open()
        row_writes.update_where(self.session, where, set, partition).stage(self)

    @like(upsert)
    def merge(self, rows: Any, *, new_columns: NewColumns = "refuse", zone: str | None = None) -> Merge[None]:
        """Merge rows (``s``) with existing ones of the same key and partition (``t``), by clauses; see `Merge`.

            txn.merge(rows).when_matched("s.updated > t.updated", update="all").when_not_matched(insert="all").run()

        Args:
            rows: as in `upsert`. Columns that the table lacks may be used in conditions and values.
            new_columns: for columns that the table lacks and that no clause names, if a clause says ``"all"``:
                ``"refuse"``, or ``"add"``.
            zone: as in `upsert`.

        Raises:
            InputError: as in `upsert`. Also if a clause does not fit the table.
        """
        self.require_open()
        return merging(self.session, rows, new_columns, zone, lambda write: write.stage(self))

    def delete(self, keys: Any) -> None:
        """Delete the rows with these keys; keys that the table does not have are ignored.

        Args:
            keys: the key columns, and the partition columns if they are known, in any of the forms of `upsert`; other columns
                are ignored. If the record key is one column, also a list or array of its values. With the ordering field
                among the columns only rows that are not newer are deleted.

        Raises:
            InputError: a key column is missing, or its values do not fit. Nothing was written.
        """
        self.require_open()
        row_writes.delete(self.session, keys).stage(self)

    def delete_where(self, where: Given, *, partition: Partition | None = None) -> None:
        """Delete the rows that meet a condition, also rows that others add meanwhile.

        Args:
            where: SQL text such as ``"delay > 15"``, terms, or an expression of pyarrow (docs/conditions.md); evaluated again
                on commits of others.
            partition: only in this one; by value, ``{"origin": "JFK"}``, or its path.

        Raises:
            InputError: no condition that fits the table (use `delete_all` for none), or no such partition.
        """
        self.require_open()
        row_writes.delete_where(self.session, where, partition).stage(self)

    def delete_all(self, *, partition: Partition | None = None) -> None:
        """Delete all rows of the table or of a partition, also rows that others add meanwhile.

        In a table with streams all goes that these have said there, also of rows that were deleted; only in a transaction begun
        as ``delete_partition`` or ``insert_overwrite``. Events that others commit meanwhile are a conflict.

        Args:
            partition: only in this one; by value, ``{"origin": "JFK"}``, or its path.

        Raises:
            InputError: no such partition.
        """
        self.require_open()
        stream_writes.delete_all(self.session, partition).stage(self)

    # --- streams ---------------------------------------------------------------------------------------------

    def stream(self, name: str) -> TransactionStream:
        """Return a stream of the table (`Table.stream`), for a transaction that writes stream events only.

        Raises:
            InputError: there is no such stream.
        """
        self.require_open()
        of_name(self.session.streams, text(name, "name"), self.url)
        return TransactionStream(self, name)

    # --- columns ---------------------------------------------------------------------------------------------

    def add_column(self, name: str, type: pa.DataType | str) -> None:  # noqa: A002
        """Add a column to the table, or a field inside one, null in all existing rows; commits without any rows, too.

        Args:
            name: of the column, or a path to a new field of a struct, as for `Table.add_column`.
            type: of Arrow, or its name in Spark or Arrow, such as ``"bigint"``, ``"decimal(12,2)"`` or
                ``"array<string>"``; stored as the next wider one that tables have.

        Raises:
            InputError: there is a column of that name, also in other case, or no table holds such a name or type.
        """
        self.workspace.add_column(name, type)

    def widen_column(self, name: str, type: pa.DataType | str) -> None:  # noqa: A002
        """Widen a column as `Table.widen_column`. Rewrites no file; commits without any rows, too.

        Raises:
            InputError: there is no such column, or readers would disagree about its values.
        """
        self.workspace.widen_column(name, type)

    def drop_column(self, name: str) -> None:
        """Drop a column as `Table.drop_column`. Rewrites no file; commits without any rows, too.

        Rows that this transaction writes afterwards lack the column; its reads do too.

        Raises:
            InputError: there is no such column, or the table needs it. Nothing was changed.
        """
        self.workspace.drop_column(name)

    # --- files -----------------------------------------------------------------------------------------------

    def rewrite(self, group: FileSlice) -> NewFile:
        """Return the successor of a file slice: its name and marker exist before the file does.

        Its file group then holds exactly these rows, whatever this transaction staged there before.
        """
        self.workspace.changes.verbs.add("rewrite")
        return self.workspace.rewrite(group)

    def new_file(self, partition: str = "", *, file_id: str | None = None) -> NewFile:
        """Begin a new file group in a partition."""
        self.workspace.changes.verbs.add("new_file")
        return self.workspace.new_file(partition, file_id=file_id)

    def file_spec(self, schema: pa.Schema) -> FileSpec:
        """Return the spec with which workers write data files of this transaction; pickles. Checks and widens the schema.

        Raises:
            InputError: a column is dropped or changes its type, or its type cannot be held by every reader.
        """
        return self.workspace.file_spec(schema)

    def add(self, stats: Iterable[WriteStat]) -> None:
        """Add files written by workers to the commit; one per file group."""
        self.workspace.add(stats)

    @property
    def files(self) -> tuple[WriteStat, ...]:
        """The files that the commit will hold or holds; a rebase replaces some of them."""
        return self.workspace.files

    @property
    def staged(self) -> bool:
        """True if there is something to commit so far."""
        return self.workspace.staged

    def drop_file_groups(self, slices: Iterable[FileSlice]) -> None:
        """Hide file groups from readers; only in overwrites and delete_partition."""
        self.workspace.drop_file_groups(slices)

    def overwrites(self, partition: str | None) -> None:
        """Claim a partition (None: the table) with everything that appears in it before the commit."""
        self.workspace.overwrites(partition)

    def merge_on_conflict(self, again: Again | None = None, *, looks_again: bool = False) -> None:
        """Merge again instead of losing, if the only conflict is that others changed the same file groups.

        Not against overwrites, table services, changes of the schema, or changes of rows that were read (isolation
        above ``snapshot``). ``rebase`` has the rules of a round.

        Args:
            again: called by `commit`, outside the lock, with what was lost; returns the new files. None: the changes of
                this transaction are applied row by row to the new slices; a row that both changed is a conflict unless
                the table's ordering field decides.
            looks_again: ``again`` also reads ``lost.appeared``, so commits within this transaction's condition
                (`depends_on`) or keys (`mark_lookup`) are no conflict either, except under ``serializable``.
        """
        self.workspace.merge_on_conflict(again, looks_again=looks_again)

    def allow_empty(self) -> None:
        """Commit this transaction even if it changes nothing; by default it then leaves no trace."""
        self.workspace.allow_empty()

    # --- who goes first --------------------------------------------------------------------------------------

    def claim_turn(self, groups: Iterable[FileSlice]) -> None:
        """Declare the file groups that this writer is about to write, before it does the work.

        Raises:
            ConflictError: a writer of higher rank is at work on them, or has committed there, and the table's
                ``early_conflict_detection`` is not ``off``. Nothing was written; `Table.run` waits for the end of that
                writer and retries.
        """
        self.require_open()
        mine = {each.group for each in groups}
        take_turn(self, lambda _near: mine, by_itself=True)

    @property
    def claim(self) -> Claim:
        """Its rank, and its reservation."""
        return self._attempt.claim

    @property
    def fresh(self) -> bool:
        """True if nothing was done yet, so that it might as well begin later; one of several has begun with the others."""
        return self.workspace.fresh and not self.member

    @property
    def participant(self) -> Participant:
        """Its parts, for a commit over several tables."""
        return Participant(self._attempt, self.workspace, self._landing)

    @property
    def has_lock(self) -> bool:
        """True if it holds the table's lock."""
        return self._attempt.lease is not None

    @property
    def lost_on(self) -> tuple[FileGroupId, ...]:
        """The file groups on which it lost or yields."""
        return self._attempt.lost_on

    @lost_on.setter
    def lost_on(self, groups: tuple[FileGroupId, ...]) -> None:
        self._attempt.lost_on = groups

    def announced(self, other: Begin) -> WriteSet:
        """The write set of another open transaction, as far as its plan or its markers reveal it."""
        return self._validator.announced(other)

    def lost_already(self, groups: frozenset[FileGroupId], *, merges: bool) -> Conflict | None:
        """Return the conflict with a commit since its begin, if it writes these file groups; None if there is none."""
        # A copy, because another thread that reads the log extends the list.
        session, commits = self.session, list(self._attempt.follower.commits)
        appends = self.workspace.changes.operation.action == "deltacommit"
        return self._validator.foreseen(
            session.log.state, self.instant, commits, groups, merges=merges, appends=appends
        )

    def size_of(self, groups: Collection[FileGroupId]) -> int:
        """The bytes of these file groups in its snapshot."""
        found = (self.workspace.snapshot.get(self.workspace.changes.place_of(each)) for each in groups)
        return sum(each.total_size for each in found if each is not None)

    @property
    def merges(self) -> bool:
        """True if its writes so far can be merged again."""
        return self.workspace.rebase is not None

    # --- the end ---------------------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise if it is over, or its table was closed."""
        self._attempt.require_open()

    def check(self) -> None:
        """Raise `RolledBackError` if another process has ended this transaction, before more work is wasted."""
        self._attempt.check()

    def commit(self) -> CommitResult | None:
        """Commit; if the result's ``published`` is False, the next writer puts the commit on the timeline.

        Return None if nothing was staged, or others made the same change first. After any error but
        `CommitStateUnknownError` nothing was committed and its files are deleted or will be; it is then over, and a
        retry needs a new transaction.

        Raises:
            ConflictError: another writer won; names it, the overlap and the next step.
            BatchLandedError: another transaction has committed its batch meanwhile.
            RolledBackError: another process ended this transaction, because its heartbeat had stopped.
            LockTimeoutError: the lock was busy for the whole wait.
            CommitStateUnknownError: no answer from the store; check the outcome before you delete anything.
        """
        self._refuse_member()
        # First, because from here the commit check decides: a late finding must not end a committed transaction.
        self.watcher.close()
        if self._origin.batch is not None and self._attempt.state == "open":
            # an empty batch is remembered too: if it is sent again later, there might be something to do
            self.allow_empty()
        return self._landing.commit()

    def abort(self, reason: str = "asked to") -> None:
        """End the transaction without committing and delete its files. A no-op if it is over already.

        If its end cannot be written now, the heartbeat stops and the next writer rolls the transaction back.

        Args:
            reason: a text, stored in the log for `Table.why`.
        """
        text(reason, "reason", empty=True)
        self._refuse_member()
        self.watcher.close()
        self._landing.abort(reason)

    def _refuse_member(self) -> None:
        if self.member:
            raise InputError(
                f"{self.instant} is the part of {self.url} in a transaction over several tables, which commits or aborts all of "
                "them; leave its block, or call its `commit` or `abort`",
                table=self.url,
                instant=self.instant,
            )

    def __reduce__(self) -> tuple[Any, ...]:
        return self._attempt.__reduce__()

    def __enter__(self) -> Self:
        self._refuse_member()
        self._enter()
        return self

    def _enter(self) -> None:
        self._block = self._attempt.trace.within()
        self._block.__enter__()

    def _leave(self) -> None:
        if self._block is not None:
            self._block.__exit__(None, None, None)
            self._block = None

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        try:
            if exc is not None:
                self.watcher.close()
                self._landing.leave(exc)
            elif self._attempt.state == "open":
                self.commit()
        finally:
            # Also after an error of the commit, or the span of the block would stay the current one.
            self._leave()


# Begin a transaction; the first one of a table lays the floor of its timeline.
#
# **The floor of a timeline** is an empty commit that is older than every transaction with files.
#
#     t=0  W (T=10) begins on a table without a commit, puts a data file, and is killed; the put is still on its way
#     t=1  a cleaner ends W and sweeps; X (T=20) makes the first commit of the table
#     t=2  W's put arrives: a file of T=10, older than the first active instant, 20
#
# Readers take files older than the first active instant for files of archived commits, and count their rows. With a floor
# (T=5) the file belongs to no commit, and no reader reads it.


def begin(
    session: Session,
    operation: str,
    *,
    lock_first: bool = False,
    isolation: str | None = None,
    reserve: Asked | None = None,
    first: int | None = None,
    origin: Origin = UNTOLD,
) -> Transaction:
    """Begin a transaction; arguments and errors are those of `Table.transaction`."""
    session.require_open()
    refuse_unknown(text(operation, "operation"))
    if first is not None:
        number(first, "first", least=0, whole=True)
    try:
        session.require_log()
        if not session.far:  # on a far store the attempt checks this while it puts its begin entry
            session.refuse_if_unwritable()
        if session.log.state.last is None:  # created only in part, or adopted and not yet written to
            lay_floor(session)
        reserved = reservation_of(session, reserve, operation) if reserve is not None else None
        return Transaction(
            session,
            operation,
            lock_first=lock_first,
            isolation=isolation,
            reserved=reserved,
            first=first,
            origin=origin,
        )
    except (MemoryError, RuntimeError) as e:
        if ran_out(e):
            raise nothing_left(session.url, operation, e) from e
        raise


def lay_floor(session: Session) -> None:
    """Publish an empty commit unless the table has a commit already. Safe to run twice at once."""
    if session.log.state.last is None and not session.timeline().commits:
        with Transaction(session, "insert") as txn:
            txn.allow_empty()
