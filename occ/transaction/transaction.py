"""One writer's change of a table, as its writer sees it. What it does is done by its parts:

    Attempt            T and its place in the log, from begin to end; to begin anew is another attempt
    Workspace          what is staged, and what was declared of it
    CommitValidator    may it land?
    Landing            lock, decide, append, publish; in between it waits (`occ.turns`) and merges again (`occ.rebase`)

The lock gives progress, the log gives correctness (docs/protocol.md).
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ...arguments import suggesting, text
from ...conflict import Claim, Reservation, WriteSet
from ...streams import of_name
from ..landing import CommitValidator, Landing
from ..staging import Staged
from ..turns import Lookout, take_turn
from ..workspace import Attempt, Workspace
from ..writing import Merge, TransactionStream, merging, reading, replacing, row_writes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from ...conditions import Given
    from ...conflict import Conflict
    from ...hudi.files import FileGroupId
    from ...hudi.timeline import FileSlice, Snapshot, WriteStat
    from ..entries import Batch, Begin
    from ..rebase import Again
    from ..scan import Scan
    from ..session import CommitResult, Partition, Session
    from ..staging import FileSpec, NewFile


@suggesting
class Transaction:
    """Made by `Table.transaction`. Leaving the block commits; an exception in it aborts.

    Not to be shared between threads for writing its outcome; workers only need `file_spec`.

    Attributes:
        operation: as it was begun.
        url: of the table.
        lookout: looks for those that go first while it works.
        workspace: for engines that write files themselves; what users need of it are methods of the transaction.
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
        batch: Batch | None = None,
    ) -> None:
        self._batch = batch
        self.session, self.operation, self.url, self._isolation = session, name, session.url, isolation
        self._block: AbstractContextManager[object] | None = None
        self._begin(Claim("", first, session.priority, reserved or None), lock_first=lock_first)

    # --- begin -----------------------------------------------------------------------------------------------

    def _begin(self, claim: Claim, *, lock_first: bool = False) -> None:
        session, lease = self.session, None
        changes = Staged(self.operation, merge_on_read=session.config.merge_on_read)
        validator = CommitValidator.of(session, changes, isolation=self._isolation)  # before anything is written
        session.refuse_rule(session.settings, None)
        if lock_first:
            # Bounded, so that others' waits do not run out: whoever holds it longer goes on without, and validates.
            lease = session.lease(f"{self.operation}, from its beginning", max_hold_s=session.settings.lock_wait_s / 2)
        self._attempt = Attempt.begin(session, self.operation, changes.operation, claim, lease=lease, batch=self._batch)
        self.workspace, self._validator = Workspace(self._attempt, changes), validator
        self._landing = Landing(self._attempt, self.workspace, validator)
        self.workspace.lookout = self.lookout = Lookout(self)

    def begin_anew(self, reserved: Reservation | None) -> None:
        """In place of an attempt that is over and had done nothing: one with a T of its own and a fresh snapshot."""
        self.lookout.close()
        self._begin(replace(self.claim, reserved=reserved))
        if self._block is not None:
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
        """How it landed; None before that."""
        return self._landing.result

    @property
    def isolation(self) -> str:
        """The level in force for it."""
        return self._validator.isolation(self.session.settings)

    # --- what is read ----------------------------------------------------------------------------------------

    @property
    def snapshot(self) -> Snapshot:
        """The table as of the begin slot, whatever has landed since. All data files are listed for it."""
        return self.workspace.snapshot.whole()

    @property
    def current(self) -> Snapshot:
        """The table as this transaction has made it so far: its snapshot, with what it has staged."""
        return self.workspace.current

    @property
    def schema(self) -> pa.Schema | None:
        """The table's data columns as of the begin slot, None when it has had no schema yet."""
        return self.workspace.schema

    @property
    def written_schema(self) -> pa.Schema | None:
        """The data columns with those that this transaction has added so far."""
        return self.workspace.written_schema

    def read(
        self,
        *,
        columns: Sequence[str] | None = None,
        where: Any = None,
        partitions: Iterable[Partition] | None = None,
    ) -> Scan:
        """Rows of the snapshot with what this transaction has staged so far, as a `Scan`; arguments as of `Table.read`.

        It declares what is read: the partitions and, by its simple comparisons, the condition. Above isolation
        ``snapshot`` others may change whatever these exclude. A path in ``partitions`` need not exist yet.
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
        """The rows of a file slice; with ``meta`` also Hudi's five columns, which mark a row as unchanged on write.

        What this transaction has changed in its file group is read as changed.

        Columns that the table got after the file was written hold nulls, so that the rows can be written again.
        """
        return self.workspace.read_slice(group, columns=columns, meta=meta)

    def depends_on(
        self, partition: str | None, *, where: Given = (), met: Iterable[FileSlice] | None = None
    ) -> list[FileSlice]:
        """Declare that the result depends on everything in a partition (None: the table).

        Args:
            where: only on the rows for which this condition is true, as ``"amount < 10 and city is not null"``, or terms
                or an expression of pyarrow (docs/conditions.md). A new file whose statistics say that it has no such row
                is no conflict then, nor one in a partition that the condition excludes.
            met: slices that have such rows and are not rewritten, where that was looked up row by row.

        Returns the slices that may hold such rows, by partitions and statistics; what this transaction has staged among them.
        """
        return self.workspace.depends_on(partition, where=where, met=met)

    def mark_scanned(self, partition: str | None, *, where: Given = ()) -> list[FileSlice]:
        """Say that rows of a partition (None: the table) were read. Counts above isolation ``snapshot``.

        Who says nothing there may have read everything; slices that `read_slice` gave are known by themselves. ``where`` and
        what is returned as in `depends_on`: no other slices have to be read.
        """
        return self.workspace.mark_scanned(partition, where=where)

    def mark_lookup(self, partition: str | None, file_id: str = "") -> None:
        """Say that keys were looked up in a partition (None: the table), by a merge that `merge_on_conflict` repeats.

        Counts above isolation ``snapshot``, as `mark_scanned` does; a rebase under ``write-serializable`` looks again. With
        ``file_id`` in one file group only: by the bucket index no other can hold them.
        """
        self.workspace.mark_lookup(partition, file_id)

    def reads_complete(self) -> None:
        """Say that what was declared is all that was read. Above isolation ``snapshot`` it might be everything else."""
        self.workspace.reads_complete()

    # --- rows, in plain Python -------------------------------------------------------------------------------

    def upsert(
        self, rows: Any, *, missing: str = "refuse", new_columns: str = "refuse", zone: str | None = None
    ) -> None:
        """Rows replace those with the same key in the same partition; new keys are inserted. Rebased by itself.

        Args:
            rows: a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars frame, a DuckDB relation, a list of
                dicts or of record batches, or anything with `__arrow_c_stream__` or `__arrow_c_array__`. Readers and streams are
                read once, batch by batch, and need not fit in memory (docs/rows.md). Values are cast to
                the types of the table where none of them changes. An index of pandas is a column if it has a name.
            missing: what the rows hold in columns that they lack: ``"refuse"``, or ``"null"``, also in place of a value
                that is there now.
            new_columns: columns that the table lacks: ``"refuse"``, or ``"add"``, and it gets them for good. The first rows of a
                table that was created without columns define them.
            zone: of times that say none (as those of pandas do), such as ``"UTC"``; they are refused without.

        Raises:
            InputError: a key occurs twice and the table has no ordering field; a column is missing, or one is unknown; a value
                would change in the type of its column; or ``rows`` are in another form. Nothing was written.
            StorageError: the temporary folder has no room for the rows of a reader. Nothing was written.
        """
        self.require_open()
        row_writes.upsert(self.session, rows, missing, new_columns, zone).stage(self)

    def insert(
        self, rows: Any, *, missing: str = "refuse", new_columns: str = "refuse", zone: str | None = None
    ) -> None:
        """Rows are added, in new files. Keys that are there already are not looked up, as in Hudi's ``insert``.

        So a key may be there twice afterwards, and later writes change all of its copies; with the bucket index, which looks
        at the files anyway, it is an `upsert`.

        Args:
            rows: as of `upsert`, as are ``missing``, ``new_columns`` and ``zone``.

        Raises:
            InputError: as of `upsert`.
        """
        self.require_open()
        replacing.insert(self.session, rows, missing, new_columns, zone).stage(self)

    def overwrite(
        self,
        rows: Any,
        *,
        partitions: Iterable[Partition] | None = None,
        missing: str = "refuse",
        new_columns: str = "refuse",
        zone: str | None = None,
    ) -> None:
        """Partitions hold these rows and no others; in a transaction begun as ``insert_overwrite``.

        What others add to these partitions before the commit is a conflict.

        Args:
            rows: as of `upsert`, as are ``missing``, ``new_columns`` and ``zone``.
            partitions: these, by value (``[{"origin": "JFK"}]``) or path, also where no row comes for them; by default
                those that occur in the rows.

        Raises:
            InputError: as of `upsert`; or a row belongs to none of ``partitions``.
        """
        self.require_open()
        replacing.overwrite(self.session, rows, partitions, missing, new_columns, zone).stage(self)

    def overwrite_table(
        self, rows: Any, *, missing: str = "refuse", new_columns: str = "refuse", zone: str | None = None
    ) -> None:
        """The table holds these rows and no others; in a transaction begun as ``insert_overwrite_table``.

        Args:
            rows: as of `upsert`, as are ``missing``, ``new_columns`` and ``zone``; without any, the table is empty.
        """
        self.require_open()
        replacing.overwrite_table(self.session, rows, missing, new_columns, zone).stage(self)

    def update_where(self, where: Given, set: Mapping[str, Any], *, partition: Partition | None = None) -> None:  # noqa: A002
        """The rows for which a condition (as in `depends_on`) is true have new values, also ones that others add meanwhile.

        Args:
            where: which rows; evaluated again on what others commit meanwhile. ``"true"`` for all.
            set: values by column: a value of Python, or an expression over the row, `lakelatch.sql("delay + 1")` or one of
                pyarrow; all see the row as it was before. A plain text is a value.
            partition: only in this one; by value, ``{"origin": "JFK"}``, or its path.

        Raises:
            InputError: no condition or value that fits the table; a column of the record key or partition; a result that its
                column cannot hold unchanged. Nothing was written.
        """
        self.require_open()
        row_writes.update_where(self.session, where, set, partition).stage(self)

    def merge(self, rows: Any, *, new_columns: str = "refuse", zone: str | None = None) -> Merge[None]:
        """Rows (``s``) are merged with those of the same key and partition that are there (``t``), by clauses; see `Merge`.

            txn.merge(rows).when_matched("s.updated > t.updated", update="all").when_not_matched(insert="all").run()

        Args:
            rows: in any of the forms of `upsert`; other columns than those of the table may stand in conditions and values.
            new_columns: columns that the table lacks and that no clause names, where one says ``"all"``: as of `upsert`, as is
                ``zone``.
        """
        self.require_open()
        return merging(self.session, rows, new_columns, zone, lambda write: write.stage(self))

    def delete(self, keys: Any) -> None:
        """The rows with these keys are gone: the key columns, and the partition columns where they are known.

        Args:
            keys: in any of the forms of `upsert`; other columns are not looked at. Where the record key is one column, also a
                list or array of its values.
        """
        self.require_open()
        row_writes.delete(self.session, keys).stage(self)

    def delete_where(self, where: Given, *, partition: Partition | None = None) -> None:
        """The rows for which a condition (as in `depends_on`) is true are gone, also ones that others add meanwhile.

        Args:
            where: which rows; evaluated again on what others commit meanwhile.
            partition: only in this one; by value, ``{"origin": "JFK"}``, or its path.

        Raises:
            InputError: no condition that fits the table (`delete_all` is the word for none), or no such partition.
        """
        self.require_open()
        row_writes.delete_where(self.session, where, partition).stage(self)

    def delete_all(self, *, partition: Partition | None = None) -> None:
        """All rows of the table or of a partition are gone, also ones that others add meanwhile."""
        self.require_open()
        row_writes.delete_all(partition).stage(self)

    # --- streams ---------------------------------------------------------------------------------------------

    def stream(self, name: str) -> TransactionStream:
        """A stream of the table (`Table.stream`), to write its events in this transaction, which writes nothing else.

        Raises:
            InputError: there is no such stream.
        """
        self.require_open()
        of_name(self.session.streams, text(name, "name"), self.url)
        return TransactionStream(self, name)

    # --- columns ---------------------------------------------------------------------------------------------

    def add_column(self, name: str, type: pa.DataType | str) -> None:  # noqa: A002
        """The table has one more column, null in all rows that are there; this lands without any rows, too.

        Args:
            type: of Arrow, or its name, such as ``"int64"``; stored as the next wider one that tables have.

        Raises:
            InputError: there is a column of that name, also in other case, or no table holds such a name or type.
        """
        self.workspace.add_column(name, type)

    def widen_column(self, name: str, type: pa.DataType | str) -> None:  # noqa: A002
        """A column of ``int32`` becomes ``int64``; no file is written again, and this lands without any rows, too.

        Raises:
            InputError: there is no such column, or readers do not agree on what its values become.
        """
        self.workspace.widen_column(name, type)

    # --- files -----------------------------------------------------------------------------------------------

    def rewrite(self, group: FileSlice) -> NewFile:
        """The successor of a file slice: its name and marker exist before the file does.

        Its file group holds these rows and no others, whatever this transaction has staged there before.
        """
        self.workspace.changes.verbs.add("rewrite")
        return self.workspace.rewrite(group)

    def new_file(self, partition: str = "", *, file_id: str | None = None) -> NewFile:
        """A new file group in a partition."""
        self.workspace.changes.verbs.add("new_file")
        return self.workspace.new_file(partition, file_id=file_id)

    def file_spec(self, schema: pa.Schema) -> FileSpec:
        """What a worker needs to write data files of this transaction; pickles. Checks and widens the schema.

        Raises:
            InputError: a column is dropped or changes its type, or its type cannot be held by every reader.
        """
        return self.workspace.file_spec(schema)

    def add(self, stats: Iterable[WriteStat]) -> None:
        """Files that workers have written and that belong to the commit; one per file group."""
        self.workspace.add(stats)

    @property
    def files(self) -> tuple[WriteStat, ...]:
        """The files that the commit holds or will hold; a rebase has put others in the place of some."""
        return self.workspace.files

    @property
    def staged(self) -> bool:
        """Whether there is something to commit so far."""
        return self.workspace.staged

    def drop_file_groups(self, slices: Iterable[FileSlice]) -> None:
        """File groups that readers shall no longer see; only in overwrites and delete_partition."""
        self.workspace.drop_file_groups(slices)

    def overwrites(self, partition: str | None) -> None:
        """Claim a partition (None: the table) with all that appears in it before the commit."""
        self.workspace.overwrites(partition)

    def merge_on_conflict(self, again: Again | None = None, *, looks_again: bool = False) -> None:
        """Merge again, rather than lose, when all that is in the way is that others changed the same file groups.

        Not against overwrites, table services, changes of the schema, or of what was read (isolation above
        ``snapshot``). ``rebase`` has the rules of a round.

        Args:
            again: called by `commit`, outside the lock, with what was lost; returns the new files. None: what this
                transaction changed is applied row by row to the new slices; a row that both changed is a conflict
                unless the table's ordering field settles it.
            looks_again: ``again`` also looks at ``lost.appeared``, so what landed where this transaction's condition
                (`depends_on`) or keys (`mark_lookup`) were looked up is no loss either, but under ``serializable``.
        """
        self.workspace.merge_on_conflict(again, looks_again=looks_again)

    def allow_empty(self) -> None:
        """Let this transaction land even when it changes nothing; otherwise it leaves no trace."""
        self.workspace.allow_empty()

    # --- who goes first --------------------------------------------------------------------------------------

    def claim_turn(self, groups: Iterable[FileSlice]) -> None:
        """Say which file groups this writer is about to fill by itself, before it does the work.

        Raises:
            ConflictError: another writer that goes first is at work on them, or has landed there, and the table's
                ``early_conflict_detection`` is not ``off``.
                Nothing was written; `Table.run` waits until that one has ended and runs it again.
        """
        self.require_open()
        mine = {each.group for each in groups}
        take_turn(self, lambda _near: mine, by_itself=True)

    @property
    def claim(self) -> Claim:
        """Its rank among others, and what it has reserved."""
        return self._attempt.claim

    @property
    def fresh(self) -> bool:
        """Whether nothing was done with it yet, so that it could as well begin later."""
        return self.workspace.fresh

    @property
    def has_lock(self) -> bool:
        """Whether it holds the table's lock."""
        return self._attempt.lease is not None

    @property
    def lost_on(self) -> tuple[FileGroupId, ...]:
        """The file groups on which it lost or gives way."""
        return self._attempt.lost_on

    @lost_on.setter
    def lost_on(self, groups: tuple[FileGroupId, ...]) -> None:
        self._attempt.lost_on = groups

    def announced(self, other: Begin) -> WriteSet:
        """What another open transaction will write, as far as its plan or its markers say."""
        return self._validator.announced(other)

    def lost_already(self, groups: frozenset[FileGroupId], *, merges: bool) -> Conflict | None:
        """The conflict with what has landed since its begin, if it writes these file groups."""
        session, commits = self.session, list(self._attempt.follower.commits)
        appends = session.config.merge_on_read
        return self._validator.foreseen(
            session.log.state, self.instant, commits, groups, merges=merges, appends=appends
        )

    def size_of(self, groups: Collection[FileGroupId]) -> int:
        """Bytes of these file groups in its snapshot."""
        found = (self.workspace.snapshot.get(self.workspace.changes.place_of(each)) for each in groups)
        return sum(each.total_size for each in found if each is not None)

    @property
    def merges(self) -> bool:
        """Whether what it wrote so far can be merged again."""
        return self.workspace.rebase is not None

    # --- the end ---------------------------------------------------------------------------------------------

    def require_open(self) -> None:
        """Raise when it is over, or its table was closed."""
        self._attempt.require_open()

    def check(self) -> None:
        """Raise `RolledBackError` when somebody has ended this transaction: stop before more work is wasted."""
        self._attempt.check()

    def commit(self) -> CommitResult | None:
        """The transaction has landed when this returns, and is on the timeline unless ``published`` is False.

        None when nothing was staged, or others have done the same meanwhile. On any error but `CommitStateUnknownError`
        nothing of it landed and its files are gone or will be; it is then over, and a retry needs a new transaction.

        Raises:
            ConflictError: another writer won; names it, the overlap and the next step.
            BatchLandedError: its batch has landed meanwhile by another transaction.
            RolledBackError: somebody ended this transaction, because its heartbeat had stopped.
            LockTimeoutError: the lock was busy for the whole wait.
            CommitStateUnknownError: no answer from the store; look before you delete anything.
        """
        self.lookout.close()
        if self._batch is not None and self._attempt.state == "open":
            self.allow_empty()  # that nothing was to be done is remembered too: sent again later, there might be
        return self._landing.commit()

    def abort(self, reason: str = "asked to") -> None:
        """The transaction has ended without landing and its files are deleted. Does nothing when it is over already.

        When the end cannot be written now, the heartbeat stops and the next writer rolls the transaction back.
        """
        self.lookout.close()
        self._landing.abort(reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return self._attempt.__reduce__()

    def __enter__(self) -> Self:
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
                self.lookout.close()
                self._landing.leave(exc)
            elif self._attempt.state == "open":
                self.commit()
        finally:
            self._leave()
