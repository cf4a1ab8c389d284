"""What a writer does with its transaction between begin and commit: look at the snapshot, announce and add files.

No protocol in here: that is `transaction`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar, cast

from ...conflict import Kind, Where, kind_of, where_of
from ...errors import InputError
from ...hudi.files import FileGroupId
from ...hudi.timeline import NO_PREVIOUS_COMMIT, WriteStat
from ..log import Follower
from ..rebase import Rebase
from ..session import arrow_schema, is_over, refuse_misspelled, restored_below, undisturbed
from ..staging import Staged

if TYPE_CHECKING:
    import pyarrow as pa

    from ...hudi.timeline import FileSlice, Snapshot
    from ..rebase import Again, Lost
    from ..session import Session
    from ..staging import FileSpec, NewFile
    from ..turns import Attempt


T = TypeVar("T")
H = TypeVar("H", bound="Hook")
Terms = Sequence[tuple[Any, ...]]  # comparisons of columns with values, all of which hold


class Hook(Protocol):
    """Merges again what writes of one kind have done in a transaction; ``by_condition``: from what others left alone."""

    by_condition: ClassVar[bool]

    def __call__(self, lost: Lost) -> Iterable[WriteStat]: ...


class Work:
    """The part of a `Transaction` that its writer uses while it is open.

    Attributes:
        operation: as it was begun.
        url: of the table.
        instant: its requested time T.
        begin_slot: its place in the log; the snapshot is the state there.
    """

    instant: str
    begin_slot: int

    def __init__(self, session: Session, name: str) -> None:
        self.session, self.operation, self.url = session, name, session.url
        self.changes = Staged(name)
        self._follower = Follower()
        self._schema: str | None = None
        self._columns: pa.Schema | None = None
        self._snapshot: Snapshot | None = None
        self._began_with: tuple[str | None] | None = None
        self._open_files: list[NewFile] = []
        self._write = -1  # number of the present one, of those that merge rows
        # Possible new file groups -> the staged ones that they take over from.
        self._successors: dict[FileGroupId, FileGroupId] = {}
        self._failed = ""
        self._rebase: Rebase | None = None
        self.lost_on: tuple[FileGroupId, ...] = ()
        self._hook: Any = None  # of the writes that merge rows
        self._spec: FileSpec | None = None
        self._looks_now = False  # for commits past the log, whenever it looked last
        self._spelled: set[str] = set()
        self._state = "open"

    @property
    def snapshot(self) -> Snapshot:
        """The table as of the begin slot, whatever has landed since."""
        if self._snapshot is None:
            views = self.session.views
            self._snapshot = self._seen(lambda: views.at(self.begin_slot, self.instant, self._follower)).snapshot
        return self._snapshot

    @property
    def current(self) -> Snapshot:
        """The table as this transaction has made it so far: its snapshot, with what it has staged."""
        self._close_files()
        return self.changes.onto(self.snapshot)

    @property
    def schema(self) -> pa.Schema | None:
        """The table's data columns as of the begin slot, None when it has had no schema yet."""
        text = self._schema_seen()
        return arrow_schema(text) if text else None

    @property
    def written_schema(self) -> pa.Schema | None:
        """The data columns with those that this transaction has added so far."""
        return self.schema if self._columns is None else self._columns

    def _schema_seen(self) -> str | None:
        if self._began_with is None:
            views = self.session.views
            self._began_with = (self._seen(lambda: views.schema_at(self.begin_slot, self.instant, self._follower)),)
        return self._began_with[0]

    def _seen(self, look: Callable[[], T]) -> T:
        """What the look gives; `ConflictError` when a restore since the begin takes away what is looked at."""

        def lost() -> Exception | None:
            self.session.log.catch_up()
            found = next((commit for commit in self._follower.commits if commit.restores), None)
            return restored_below(self, found) if found else None

        return undisturbed(look, lost, lambda: self.session.timeline().completed)

    def read(self, group: FileSlice, *, columns: list[str] | None = None, meta: bool = False) -> pa.Table:
        """The rows of a file slice; with ``meta`` also Hudi's five columns, which mark a row as unchanged on write.

        What this transaction has changed in its file group is read as changed.

        Columns that the table got after the file was written hold nulls, so that the rows can be written again.
        """
        import pyarrow as pa

        self.require_open()
        self.changes.saw(group)
        present = self._present(group)
        rows = self._seen(lambda: self.session.read_slice(present, columns=columns, meta=meta))
        for field in self.written_schema or ():
            if field.name not in rows.column_names and (columns is None or field.name in columns):
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows

    def rewrite(self, group: FileSlice) -> NewFile:
        """The successor of a file slice: its name and marker exist before the file does.

        Its file group holds these rows and no others, whatever this transaction has staged there before.
        """
        from ..staging import NewFile

        self._refuse_rows()
        if self.changes.dropped(group.group):
            raise InputError(
                f"file group {group.group} was dropped by this transaction of {self.url}, so it has no successor; `create` a "
                "new one",
                group=str(group.group),
            )
        return NewFile(self, partition=group.partition, file_id=group.file_id, replaces=group)

    def new_file(self, partition: str = "", *, file_id: str | None = None) -> NewFile:
        """A new file group in a partition."""
        from ...hudi.files import new_file_id
        from ..staging import NewFile

        self._refuse_rows()
        return NewFile(self, partition=partition, file_id=file_id or new_file_id(self.session.env.uuid()))

    def _adopt(self, file: NewFile) -> None:
        self.require_open()
        self._open_files.append(file)
        self._mixed()

    def _close_files(self) -> None:
        """What is still being written is staged: the next write builds on it."""
        for file in self._open_files:
            file.close()

    def _present(self, slice_: FileSlice) -> FileSlice:
        """What this transaction has staged in the place of a slice, or the slice."""
        if self._state != "open":
            return slice_
        for file in self._open_files:
            if file.over == self.changes.now(slice_.group):
                file.close()
        return self.changes.present(slice_)

    def _next_write(self) -> None:
        """Another write that merges rows begins: it sees what is staged, and its files have names of their own."""
        self.require_open()
        self._close_files()
        self._write += 1

    @contextmanager
    def _staging(self) -> Iterator[None]:
        """Around what writes files: after a failure one of them may appear late, beside what is written instead of it."""
        try:
            yield
        except BaseException as e:
            self._failed = self._failed or f"{type(e).__name__}: {e}"
            raise

    def _mixed(self) -> None:
        """Files that no condition chose are written: to evaluate conditions again would not bring them back."""
        if self._hook is not None and self._hook.by_condition:
            self._rebase = None

    def _hook_of(self, kind: type[H], *more: Any) -> H:
        """What merges again what all writes of one kind have done; beside those of another kind nothing does, it is run again."""
        if self._hook is None:
            self._hook = kind(*more)
            if kind.by_condition and self.staged:
                self._rebase = None
            else:
                self.merge_on_conflict(self._hook, looks_again=True)
        elif not isinstance(self._hook, kind):
            self._rebase = None
            return kind(*more)
        return self._hook

    def file_spec(self, schema: pa.Schema) -> FileSpec:
        """What a worker needs to write data files of this transaction; pickles. Checks and widens the schema.

        Raises:
            InputError: a column is dropped or changes its type, or its type cannot be held by every reader.
        """
        import pyarrow as pa

        from ..staging import wanted_of

        self.require_open()
        spec, self._schema = self.session.file_spec(self.instant, schema, self.schema)
        if self._columns is not None and self._columns.names != spec.schema.names:
            # Another file of this transaction has other new columns: the table gets the new columns of all of them.
            more = [field for field in spec.schema if field.name not in self._columns.names]
            wide = pa.schema([*self._columns, *more])
            spec, self._schema = self.session.file_spec(self.instant, wide, self.schema)
        spec = replace(
            spec,
            wanted=wanted_of(self.session.settings, spec.schema, self.operation),
            write=max(self._write, 0),
            begun=self._begun(),
        )
        self._successors |= {FileGroupId(g.partition, spec.successor_id(g)): g for g in spec.begun}
        self._columns, self._spec = spec.schema, spec
        return spec

    def _begun(self) -> dict[FileGroupId, str]:
        found = {}
        for group, stat in self.changes.files.items():
            place = self.changes.place_of(group)
            fresh = place == group and stat.prev_commit == NO_PREVIOUS_COMMIT  # so nobody has to look for its slice
            old = None if fresh else self.snapshot.get(place)
            found[group] = old.path if old else ""
        return found

    def add(self, stats: Iterable[WriteStat]) -> None:
        """Files that workers have written and that belong to the commit; one per file group."""
        self.require_open()
        stats = list(stats)
        if any(FileGroupId(stat.partition, stat.file_id) in self._successors for stat in stats):
            self.changes.follow(stats, self._successors, self.snapshot)
        else:
            self.changes.add(stats)

    @property
    def staged(self) -> bool:
        """Whether there is something to commit so far."""
        return bool(self._open_files) or not self.changes.empty

    @property
    def fresh(self) -> bool:
        """Whether nothing was done with it yet, so that it could as well begin later."""
        untouched = self.changes.untouched and not self._open_files and self._rebase is None
        return untouched and self._snapshot is None and self._began_with is None

    @property
    def files(self) -> tuple[WriteStat, ...]:
        """The files that the commit holds or will hold; a rebase has put others in the place of some."""
        return tuple(self.changes.files.values())

    # --- what is written and read --------------------------------------------------------------------------------

    def drop_file_groups(self, slices: Iterable[FileSlice]) -> None:
        """File groups that readers shall no longer see; only in overwrites and delete_partition."""
        self.require_open()
        self.changes.drop_file_groups(slices)

    def overwrites(self, partition: str | None) -> None:
        """Claim a partition (None: the table) with all that appears in it before the commit."""
        self.require_open()
        self._refuse_misspelled(partition)
        self.changes.overwrites(partition)

    def depends_on(
        self, partition: str | None, *, where: Terms = (), met: Iterable[FileSlice] | None = None
    ) -> list[FileSlice]:
        """Declare that the result depends on everything in a partition (None: the table).

        Args:
            where: only on the rows that meet all of these, as ``[("amount", "<", 10), ("city", "is not null")]``;
                operators are ``= != < <= > >= in``, ``is null`` and ``is not null``. A new file whose statistics say that
                it has no such row is no conflict then.
            met: slices that have such rows and are not rewritten, where that was looked up row by row.

        Returns the slices that may hold such rows, by their statistics; what this transaction has staged among them.
        """
        self.require_open()
        self._refuse_misspelled(partition)
        conditions, slices = self._looked_at(partition, where) if met is None else (where_of(where), list(met))
        self.changes.depends_on(partition, slices, conditions)
        return slices if met is not None else self._as_staged(slices, partition, where)

    def mark_scanned(self, partition: str | None, *, where: Terms = ()) -> list[FileSlice]:
        """Say that rows of a partition (None: the table) were read. Counts above isolation ``snapshot``.

        Who says nothing there may have read everything; slices that `read` gave are known by themselves. ``where`` and
        what is returned as in `reads`: no other slices have to be read.
        """
        self.require_open()
        self._refuse_misspelled(partition)
        conditions, slices = self._looked_at(partition, where)
        self.changes.mark_scanned(partition, slices, conditions)
        return self._as_staged(slices, partition, where)

    def _as_staged(self, slices: list[FileSlice], partition: str | None, where: Terms) -> list[FileSlice]:
        now = self.current
        return slices if now is self.snapshot else self._that_may_match(now.file_slices(partition), where)[1]

    def _refuse_misspelled(self, partition: str | None) -> None:
        """One that does not exist yet is fine: that nobody else makes it is worth claiming."""
        if partition is not None and partition not in self._spelled:
            known = self._snapshot.partitions() if self._snapshot is not None else []
            if partition not in known:
                refuse_misspelled(self.url, self.session.config, partition, known)
            self._spelled.add(partition)

    def _looked_at(self, partition: str | None, where: Terms) -> tuple[Where, list[FileSlice]]:
        return self._that_may_match(self.snapshot.file_slices(partition), where)

    def _that_may_match(self, slices: list[FileSlice], where: Terms) -> tuple[Where, list[FileSlice]]:
        if not where and not isinstance(where, str):
            return (), slices
        from ..log import slices_that_may_match

        conditions, schema = where_of(where), self.written_schema
        if unknown := sorted({each.column for each in conditions}.difference(schema.names if schema else ())):
            raise InputError(
                f"{self.url} has no column {', '.join(unknown)}, on which a condition was put", columns=unknown
            )
        return conditions, slices_that_may_match(self.session.store, slices, conditions)

    def merge_on_conflict(self, again: Again | None = None, *, looks_again: bool = False) -> None:
        """Merge again, rather than lose, when all that is in the way is that others changed the same file groups.

        Not against overwrites, table services, changes of the schema, or of what was read (isolation above
        ``snapshot``). ``rebase`` has the rules of a round.

        Args:
            again: called by `commit`, outside the lock, with what was lost; returns the new files. None: what this
                transaction changed is applied row by row to the new slices; a row that both changed is a conflict
                unless the table's ordering field settles it.
            looks_again: ``again`` also looks at ``lost.appeared``, so what landed where this transaction's condition
                (`reads`) or keys (`mark_lookup`) were looked up is no loss either, but under ``serializable``.
        """
        self.require_open()
        self._rebase = Rebase(self, again, looks_again=looks_again)

    def mark_lookup(self, partition: str | None, file_id: str = "") -> None:
        """Say that keys were looked up in a partition (None: the table), by a merge that `merge_on_conflict` repeats.

        Counts above isolation ``snapshot``, as `mark_scanned` does; a rebase under ``write-serializable`` looks again. With
        ``file_id`` in one file group only: by the bucket index no other can hold them.
        """
        self.require_open()
        self._refuse_misspelled(partition)
        self.changes.mark_lookup(partition, file_id)

    def reads_complete(self) -> None:
        """Say that what was declared is all that was read. Above isolation ``snapshot`` it might be everything else."""
        self.require_open()
        self.changes.tells_all = True

    def _check_constraints(self) -> None:
        """Raise `ConstraintError` when rows that were written have values that other rows of the snapshot have."""
        constraints = self.session.settings.unique_constraints
        stats = list(self.changes.files.values())
        if not constraints or not stats or self.changes.operation.service:
            return
        from .unique_constraints import Checker

        if untold := [stat.path for stat in stats if stat.facts is None]:
            raise InputError(
                f"{self.url} has unique constraints, and {len(untold)} files ({untold[0]}) do not say which values they "
                "hold; nothing landed. Write them with the writers of this library, after `file_spec`",
                paths=untold[:100],
            )
        gone = self.changes.write_set().groups
        others = [each for each in self.snapshot.file_slices() if each.group not in gone]
        checker = Checker(self.session.store, self.url, self.instant, stats, self.changes.values(), others)
        for constraint in constraints:
            checker.check(constraint)

    def claim_turn(self, groups: Iterable[FileSlice]) -> None:
        """Say which file groups this writer is about to fill by itself, before it does the work.

        Raises:
            ConflictError: another writer is at work on them, and the table's ``early_conflict_detection`` is not ``off``.
                Nothing was written; `Table.run` waits until that one has ended and runs it again.
        """
        from ..turns import take_turn

        self.require_open()
        mine = {each.group for each in groups}
        take_turn(cast("Attempt", self), lambda _near: mine, by_itself=True)

    def allow_empty(self) -> None:
        """Let this transaction land even when it changes nothing; otherwise it leaves no trace."""
        self.require_open()
        self.changes.empty_too = True

    def _refuse_merge(self, what: str) -> None:
        """Raise `InputError` in a transaction that was begun to replace rows, not to merge some into them."""
        self.require_open()
        if kind_of(self.changes.operation.hudi_name) is Kind.OVERWRITE:
            raise InputError(
                f"`{what}` changes single rows, and this transaction of {self.url} was begun as {self.operation!r}, which "
                "replaces all of a partition or table; nothing was written. Begin it as 'upsert' or 'delete', or claim what it "
                "replaces (`overwrites`, `drop`) and `create` its files",
                operation=self.operation,
            )

    def _refuse_rows(self) -> None:
        self.require_open()
        if self.operation == "delete_partition":
            raise InputError(
                f"this transaction of {self.url} was begun as 'delete_partition', which writes no rows; nothing was written. "
                "Begin it as 'insert_overwrite'",
                operation=self.operation,
            )

    def require_open(self) -> None:
        """Raise when it is over, or its table was closed."""
        self.session.require_open()
        if self._state != "open":
            raise is_over(self, self._state)
