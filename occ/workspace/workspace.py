"""The work of a writer between begin and commit: read the snapshot, announce and add files, declare reads.

No protocol in here: that is `attempt` and `landing`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from ...arguments import instance, many, text
from ...conflict import Kind, Where, kind_of, where_of
from ...errors import InputError
from ...hudi.files import FileGroupId
from ...hudi.table import (
    META_COLUMNS,
    can_become,
    is_held,
    refuse_grown_maps,
    to_avro,
    with_column,
    with_required,
    with_wider,
    without_column,
)
from ...hudi.timeline import NO_PREVIOUS_COMMIT, WriteStat
from ...progress import Reporter
from ...tracing import step
from ..rebase import Rebase
from ..session import arrow_schema, dropped_by, refuse_misspelled, required_by

if TYPE_CHECKING:
    import pyarrow as pa

    from ...conditions import Condition, Given
    from ...hudi.timeline import FileSlice, Snapshot
    from ..entries import Batch
    from ..incoming import Incoming
    from ..rebase import Again, Lost
    from ..staging import FileSpec, FileWatcher, NewFile, Staged
    from .attempt import Attempt


_FILE_ID = re.compile(r"[A-Za-z0-9-]+")

H = TypeVar("H", bound="Hook")


class Hook(Protocol):
    """A function that merges again the writes of one kind; ``by_condition``: a condition chose their rows."""

    by_condition: ClassVar[bool]

    def __call__(self, lost: Lost) -> Iterable[WriteStat]: ...


class Workspace:
    """The staged work of one open attempt. `Transaction` documents the methods that it has too.

    Attributes:
        changes: the staged and declared changes.
        rebase: merges them again after a conflict, if that is possible.
        reserves_next: on a conflict the caller retries with a reservation of what it lost on.
        failed: the error of a write that failed half-way.
        report: receives the progress of row writes.
        watcher: called with each data file before it is written.
        schema_text: the table's schema with the columns added here, as Avro JSON; None before the first write.
    """

    def __init__(self, attempt: Attempt, changes: Staged) -> None:
        self._attempt, self.changes = attempt, changes
        self.session, self.operation, self.url = attempt.session, attempt.operation, attempt.url
        self.begin_slot, self.require_open, self.explaining = (
            attempt.begin_slot,
            attempt.require_open,
            attempt.explaining,
        )
        self.schema_text: str | None = None
        self.rebase: Rebase | None = None
        self._runs_again = self._replacing_events = False
        self.watcher: FileWatcher | None = None
        self.failed = ""
        self.report = Reporter()
        self._columns: pa.Schema | None = None
        self._altered: pa.Schema | None = None  # the table's columns after `add_column` and `widen_column`
        self._open_files: list[NewFile] = []
        self._write = -1  # number of the current write, counting those that merge rows
        # Possible new file groups -> the staged groups that they succeed.
        self._successors: dict[FileGroupId, FileGroupId] = {}
        self._hook: Any = None  # of the writes that merge rows
        self._spec: FileSpec | None = None
        self._spelled: set[str] = set()
        self.reserves_next = False

    @property
    def batch(self) -> Batch | None:
        """The batch of a source that it commits."""
        return self._attempt.origin.batch

    @property
    def snapshot(self) -> Snapshot:
        """The table as of the begin slot, whatever was committed since."""
        return self._attempt.snapshot

    @property
    def current(self) -> Snapshot:
        """The snapshot with the staged changes."""
        self.close_files()
        return self.changes.onto(self.snapshot)

    @property
    def schema(self) -> pa.Schema | None:
        """The table's data columns as of the begin slot; None if it had no schema yet."""
        text = self._attempt.schema_text
        return arrow_schema(text) if text else None

    @property
    def written_schema(self) -> pa.Schema | None:
        """The data columns, including those added by this transaction so far."""
        return self.schema if self._columns is None else self._columns

    @property
    def required(self) -> tuple[str, ...]:
        """The columns declared not null."""
        return required_by(self.schema_text or self._attempt.schema_text)

    @property
    def _dropped(self) -> tuple[str, ...]:
        return dropped_by(self.schema_text or self._attempt.schema_text)

    def received(self, incoming: Incoming) -> pa.Table:
        """The rows passed in, with the columns of the table.

        Raises:
            InputError: they do not fit the table, or lack a required value; or the table has streams.
            ConstraintError: they break a check.
        """
        from ...hudi.merge import rule_of
        from ..incoming import refuse_nulls

        self._refuse_beside_streams()
        rows, settings = incoming.rows(self.written_schema), self.session.settings
        if (self.required or settings.check) and rule_of(self.session.config, settings.merge, settings.ties).plain:
            # with column merging the row they are merged into may have the value
            refuse_nulls(rows, self.required, self.session.config)
            if not incoming.on_disk:  # each file looks at its rows; here all that are wrong are named at once
                self._refuse_broken(rows)
        return rows

    def _refuse_broken(self, rows: pa.Table) -> None:
        from ...hudi.table import RECORD_KEY, record_keys
        from ..entries import value_checks

        for check in value_checks(self.session.settings.check, self.written_schema or rows.schema):
            if (broken := check.those(rows)).num_rows:
                keys = record_keys(broken, self.session.config.record_key_fields)
                next_ = "Nothing was written; give these rows other values, or leave them out"
                raise check.error(self.url, broken.append_column(RECORD_KEY, keys), next_)

    def read_slice(self, group: FileSlice, *, columns: list[str] | None = None, meta: bool = False) -> pa.Table:
        """See `Transaction.read_slice`."""
        import pyarrow as pa

        self.require_open()
        _is_slice(group, "group")
        self.changes.saw(group)
        present = self.present(group)
        rows = self._attempt.seen(lambda: self.session.read_slice(present, columns=columns, meta=meta))
        if (schema := self.written_schema) is not None:  # a file may still have dropped columns
            kept = {*META_COLUMNS, *schema.names}
            rows = rows.select([each for each in rows.column_names if each in kept])
        for field in schema or ():
            place = rows.schema.get_field_index(field.name)
            if place < 0 and (columns is None or field.name in columns):
                rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
            elif place >= 0 and _casts(rows.schema.types[place], field.type):
                rows = rows.set_column(place, field, rows.column(place).cast(field.type))
        return rows

    def rewrite(self, group: FileSlice) -> NewFile:
        """See `Transaction.rewrite`."""
        from ..staging import NewFile

        self._refuse_rows()
        self._refuse_beside_streams()
        _is_slice(group, "group")
        if self.changes.dropped(group.group):
            raise InputError(
                f"file group {group.group} was dropped by this transaction of {self.url}, so it has no successor; write a "
                "`new_file`",
                group=str(group.group),
            )
        return NewFile(self, partition=group.partition, file_id=group.file_id, replaces=group)

    def new_file(self, partition: str = "", *, file_id: str | None = None) -> NewFile:
        """See `Transaction.new_file`."""
        from ...hudi.files import new_file_id
        from ..staging import NewFile

        self._refuse_rows()
        self._refuse_beside_streams()
        refuse_misspelled(self.url, self.session.config, partition)
        if file_id is not None and not _FILE_ID.fullmatch(text(file_id, "file_id")):
            raise InputError(f"file_id={file_id!r} cannot stand in a file's name; take letters, digits and -")
        return NewFile(self, partition=partition, file_id=file_id or new_file_id(self.session.env.uuid()))

    def write_events(self) -> None:
        """Declare that this transaction writes stream events only. They read nothing, and wait for no lock.

        Rows written before the table had its first stream keep it from committing.
        """
        self.require_open()
        self.changes.streams_only = self.streams_only or not (
            self._open_files or self.changes.stats or self.changes.replaces
        )
        self.reads_complete()

    @property
    def streams_only(self) -> bool:
        """True if it writes stream events and nothing else."""
        return self.changes.streams_only

    @contextmanager
    def replacing_events(self) -> Iterator[None]:
        """Context of replacing file groups of a table with streams by what their rules make of them."""
        self._replacing_events = True
        try:
            yield
        finally:
            self._replacing_events = False

    def _refuse_beside_streams(self) -> None:
        streams, allowed = self.session.streams, self._replacing_events or self.streams_only
        if (streams or self.session.config.for_streams) and not (allowed or self.changes.operation.service):
            known = ", ".join(each.name for each in streams) or "none declared yet"
            raise InputError(
                f"{self.url} has streams ({known}), and rows are written and deleted through them only, because their order "
                "would be lost beside other writes; nothing was written. Write through a "
                "stream: table.stream(name).upsert, .delete or .overwrite, in a shell --stream NAME; delete_all drops partitions",
                table=self.url,
            )

    def adopt(self, file: NewFile) -> None:
        """Register a file that is being written; it is closed before the next write or the commit."""
        self.require_open()
        self._open_files.append(file)
        self.written_unasked()

    def close_files(self) -> None:
        """Close and stage the files still being written, so that the next write builds on them."""
        for file in self._open_files:
            file.close()

    def abandon(self) -> None:
        """Drop the files still being written, without publishing them."""
        for file in self._open_files:
            file.abandon()

    def present(self, slice_: FileSlice) -> FileSlice:
        """Return the staged slice in place of this one, or this one."""
        if self._attempt.state != "open":
            return slice_
        for file in self._open_files:
            if file.over == self.changes.now(slice_.group):
                file.close()
        return self.changes.present(slice_)

    def next_write(self) -> None:
        """Begin another write that merges rows: it sees the staged changes, and its files get names of their own."""
        self.require_open()
        self.close_files()
        self._write += 1

    @contextmanager
    def staging(self) -> Iterator[None]:
        """Context of file writes: after a failure a file may still appear late, beside the one written instead."""
        try:
            with step("write"):
                yield
        except BaseException as e:
            self.failed = self.failed or f"{type(e).__name__}: {e}"
            raise

    def written_unasked(self) -> None:
        """Note that files were written that no condition chose: evaluating conditions again would not restore them."""
        if self._hook is not None and self._hook.by_condition:
            self.rebase = None

    def hook_of(self, kind: type[H], *more: Any) -> H:
        """Return the hook that merges again all writes of one kind. Writes of several kinds are run again instead."""
        if self._hook is None:
            self._hook = kind(*more)
            if kind.by_condition and self.staged:
                self.rebase = None
            else:
                self.merge_on_conflict(self._hook, looks_again=True)
        elif not isinstance(self._hook, kind):
            self.rebase = None
            return kind(*more)
        return self._hook

    def file_spec(self, schema: pa.Schema) -> FileSpec:
        """See `Transaction.file_spec`."""
        import pyarrow as pa

        from ..entries import value_checks
        from ..staging import wanted_of

        self.require_open()
        self._refuse_beside_streams()
        instance(schema, pa.Schema, "schema", "a pyarrow.Schema, such as `rows.schema`")
        base, required = self._altered or self.schema, self.required
        dropped = self._dropped
        spec, self.schema_text = self.session.file_spec(self._attempt.instant, schema, base, required, dropped)
        if self._columns is not None and self._columns.names != spec.schema.names:
            # Several files of this transaction may add different columns; the table gets all of them.
            more = [field for field in spec.schema if field.name not in self._columns.names]
            wide = pa.schema([*self._columns, *more])
            spec, self.schema_text = self.session.file_spec(self._attempt.instant, wide, base, required, dropped)
        service = self.changes.operation.service  # it rewrites rows that are there
        spec = replace(
            spec,
            wanted=spec.wanted if service else wanted_of(self.session.settings, spec.schema, self.operation),
            required=() if service else required,
            checks=() if service else value_checks(self.session.settings.check, spec.schema),
            write=max(self._write, 0),
            begun=self._begun(),
            watcher=self.watcher,
        )
        self._successors |= {FileGroupId(g.partition, spec.successor_id(g)): g for g in spec.begun}
        self._columns, self._spec = spec.schema, spec
        self.changes.placed_by.add((spec.bucket_count, spec.merge, spec.ties))
        return spec

    def add_column(self, name: str, kind: pa.DataType | str) -> None:
        """See `Transaction.add_column`."""
        self._alter(lambda schema: with_column(schema, name, kind))

    def widen_column(self, name: str, kind: pa.DataType | str) -> None:
        """See `Transaction.widen_column`."""
        if name in self.session.config.partition_fields:
            raise InputError(
                f"column {name!r} cannot become {kind}: the partitions of {self.url} go by it, and Hudi's JVM reader fails on "
                "times before the change as soon as a folder has a larger value",
                column=name,
            )
        for each in self.session.streams:
            if each.event_id and name in each.own:
                raise InputError(
                    f"column {name!r} cannot become {kind}: {each.events} of {self.url} keeps the events of stream {each.name!r} "
                    "with its present type; give the wider column to another stream",
                    column=name,
                )
        config, settings = self.session.config, self.session.settings

        def wider(schema: pa.Schema) -> pa.Schema:
            found = with_wider(schema, name, kind)
            apart = [
                *config.record_key_fields,
                *config.ordered_by,
                *(each for one in settings.unique_constraints for each in one),
            ]
            if not is_held(schema.field(name).type, found.field(name).type) and (name in apart or config.for_streams):
                why = "streams merge its values" if config.for_streams else "it tells rows or their versions apart"
                raise InputError(f"column {name!r} of {self.url} may become a bigint only: {why}", column=name)
            return found

        self._alter(wider)

    def drop_column(self, name: str) -> None:
        """See `Transaction.drop_column`."""
        session, outer = self.session, text(name, "name").partition(".")[0]
        config, settings = session.config, session.settings
        roles = {
            "it is part of the record key": config.record_key_fields,
            "the partitions go by it": (*config.partition_fields, config.time_source),
            "it orders the versions of a row": config.ordered_by,
        }
        found = [role for role, names in roles.items() if outer in {each.partition(".")[0] for each in names if each}]
        found += [f"{each} names it" for each in settings.uses_of(name)]
        if settings.timeline_first:
            found.append("JVM writers beside ours (neighbours) would write it again")
        if outer != name and config.merge_on_read:
            found.append(
                "hudi-rs fails on log files that still have a field of a merge-on-read table; drop the whole column"
            )
        if found:
            raise InputError(
                f"column {name!r} of {self.url} is not dropped: {'; '.join(found)}. Nothing was changed", column=name
            )
        self._alter(lambda schema: without_column(schema, name), [name])

    def remember_dropped(self, names: Sequence[str]) -> None:
        """Take these names, of columns that were dropped before another engine wrote the schema without them."""
        self._alter(lambda schema: schema, names)

    def _alter(self, change: Callable[[pa.Schema], pa.Schema], dropped: Sequence[str] = ()) -> None:
        self._refuse_rows()
        if (schema := self.written_schema) is None:
            raise InputError(f"{self.url} has no schema yet, because nothing was written to it; write some rows first")
        altered = change(schema)
        self.session.refuse_rule(self.session.settings, altered)
        if self.session.config.merge_on_read:
            refuse_grown_maps(schema, altered)
        gone = (*self._dropped, *dropped)
        self.schema_text = to_avro(with_required(altered, self.required), self.session.config.name, gone)
        self._altered = self._columns = altered
        self.allow_empty()

    @property
    def spec(self) -> FileSpec:
        """The `FileSpec` of the last write."""
        return self._spec or self.file_spec(self.written_schema)

    def _begun(self) -> dict[FileGroupId, FileSlice | None]:
        found: dict[FileGroupId, FileSlice | None] = {}
        for group, stat in self.changes.files.items():
            place = self.changes.place_of(group)
            # began here, so there is no slice to find
            fresh = place == group and stat.prev_commit == NO_PREVIOUS_COMMIT
            found[group] = None if fresh else self.snapshot.get(place)
        return found

    def add(self, stats: Iterable[WriteStat]) -> None:
        """See `Transaction.add`."""
        self.require_open()
        stats = [
            instance(each, WriteStat, "stats", "what `FileSpec` and `NewFile` tell of the files they wrote")
            for each in many(stats, "stats")
        ]
        if any(FileGroupId(stat.partition, stat.file_id) in self._successors for stat in stats):
            self.changes.follow(stats, self._successors, self.snapshot)
        else:
            self.changes.add(stats)

    @property
    def staged(self) -> bool:
        """True if there is something to commit so far."""
        return bool(self._open_files) or not self.changes.empty

    @property
    def fresh(self) -> bool:
        """True if nothing was done yet, so that it might as well begin later."""
        untouched = self.changes.untouched and not self._open_files and self.rebase is None
        return untouched and not self._attempt.has_looked

    @property
    def files(self) -> tuple[WriteStat, ...]:
        """The files that the commit will hold or holds; a rebase replaces some of them."""
        return self.changes.stats

    # --- what is written and read --------------------------------------------------------------------------------

    def drop_file_groups(self, slices: Iterable[FileSlice]) -> None:
        """See `Transaction.drop_file_groups`."""
        self.require_open()
        self._refuse_beside_streams()
        self.changes.drop_file_groups([_is_slice(each, "slices") for each in many(slices, "slices")])

    def overwrites(self, partition: str | None) -> None:
        """See `Transaction.overwrites`."""
        self.require_open()
        self._refuse_beside_streams()
        self._refuse_misspelled(partition)
        self.changes.overwrites(partition)

    def depends_on(
        self, partition: str | None, *, where: Given = (), met: Iterable[FileSlice] | None = None
    ) -> list[FileSlice]:
        """See `Transaction.depends_on`."""
        self.require_open()
        self._refuse_misspelled(partition)
        condition = self.condition(where)
        slices = self.may_match(self.snapshot, partition, condition) if met is None else list(met)
        for place, there, terms in self._claims(partition, condition, slices):
            self.changes.depends_on(place, there, terms)
        return slices if met is not None else self._as_staged(slices, partition, condition)

    def mark_scanned(self, partition: str | None, *, where: Given = ()) -> list[FileSlice]:
        """See `Transaction.mark_scanned`."""
        self.require_open()
        self._refuse_misspelled(partition)
        condition = self.condition(where)
        slices = self.may_match(self.snapshot, partition, condition)
        for place, there, terms in self._claims(partition, condition, slices):
            self.changes.mark_scanned(place, there, terms)
        return self._as_staged(slices, partition, condition)

    def _as_staged(
        self, slices: list[FileSlice], partition: str | None, condition: Condition | None
    ) -> list[FileSlice]:
        now = self.current
        return slices if now is self.snapshot else self.may_match(now, partition, condition)

    def condition(self, given: Given) -> Condition | None:
        """Parse a condition on rows of this table and check its columns; None if it is empty, because all rows meet it."""
        if isinstance(given, Sequence) and not isinstance(given, str) and not given:
            return None
        import pyarrow as pa

        from ...conditions import condition_on

        return condition_on(self.written_schema or pa.schema([]), given)

    def _claims(
        self, partition: str | None, condition: Condition | None, slices: list[FileSlice]
    ) -> list[tuple[str | None, list[FileSlice], Where]]:
        """The partitions where rows that meet the condition may be or appear, with their slices and the terms of the rows."""
        if condition is None:
            return [(partition, slices, ())]
        from ..scan import only_partitions

        terms, schema = where_of(condition.terms), self.written_schema
        named = None
        if partition is None and schema is not None:
            named = only_partitions(self.session.config, schema, condition.terms)
        if named is None:
            return [(partition, slices, terms)]
        return [(each, [s for s in slices if s.partition == each], terms) for each in named]

    def _refuse_misspelled(self, partition: str | None) -> None:
        """Raise for a partition path that does not fit the table. A new partition is fine, because claiming it is useful."""
        if partition is not None and text(partition, "partition", empty=True) not in self._spelled:
            if partition not in (known := self._attempt.partitions_seen):
                refuse_misspelled(self.url, self.session.config, partition, known)
            self._spelled.add(partition)

    def may_match(self, now: Snapshot, partition: str | None, condition: Condition | None) -> list[FileSlice]:
        """The slices that may hold rows that meet the condition, by their partitions and statistics."""
        slices, schema = self._attempt.seen(lambda: now.file_slices(partition)), self.written_schema
        if condition is None or schema is None:
            return slices
        from ..entries import slices_that_may_match
        from ..scan import partitions_that_may_match

        there = {each.partition for each in slices}
        wanted = partitions_that_may_match(there, self.session.config, schema, condition)
        slices = [each for each in slices if each.partition in wanted]
        terms = where_of(condition.terms)
        return slices_that_may_match(self.session.store, slices, terms) if terms else slices

    def merge_on_conflict(self, again: Again | None = None, *, looks_again: bool = False) -> None:
        """See `Transaction.merge_on_conflict`."""
        self.require_open()
        self.rebase = None if self._runs_again else Rebase(self, again, looks_again=looks_again)

    def runs_again(self) -> None:
        """Note that only another run of the transaction can settle a conflict: what it read decided what it wrote."""
        self._runs_again, self.rebase = True, None

    def mark_lookup(self, partition: str | None, file_id: str = "") -> None:
        """See `Transaction.mark_lookup`."""
        self.require_open()
        self._refuse_misspelled(partition)
        self.changes.mark_lookup(partition, file_id)

    def reads_complete(self) -> None:
        """See `Transaction.reads_complete`."""
        self.require_open()
        self.changes.tells_all = True

    def check_constraints(self) -> None:
        """Raise `ConstraintError` if written rows have values that other rows have.

        Compares with the rows of the snapshot, or, after a round of a rebase, of the state that it was made on. Commits
        before that are in the state, and later ones are compared at the commit.
        """
        constraints = self.session.settings.unique_constraints
        stats = self.changes.stats
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
        found = self.rebase.base if self.rebase else self.snapshot
        others = [each for each in found.file_slices() if each.group not in gone]
        checker = Checker(self.session.store, self.url, self._attempt.instant, stats, self.changes.values(), others)
        for constraint in constraints:
            checker.check(constraint)

    def allow_empty(self) -> None:
        """See `Transaction.allow_empty`."""
        self.require_open()
        self.changes.empty_too = True

    def refuse_merge(self, what: str) -> None:
        """Raise `InputError` for merging rows in a transaction that was begun to replace rows."""
        self.require_open()
        self.changes.verbs.add(what)
        if kind_of(self.changes.operation.hudi_name) is Kind.OVERWRITE:
            claim = "claim what it replaces (`overwrites`, `drop_file_groups`) and write its files (`new_file`)"
            raise InputError(
                f"`{what}` changes single rows, and this transaction of {self.url} was begun as {self.operation!r}, which "
                "replaces all of a partition or table; nothing was written. Begin it as 'upsert' or 'delete', or "
                f"{'overwrite streams in it (`stream(name).overwrite`)' if self.session.streams else claim}",
                operation=self.operation,
            )

    def refuse_unless_overwrite(self, what: str, *operations: str) -> None:
        """Raise `InputError` unless the transaction was begun as one of these operations."""
        self.require_open()
        if self.operation not in operations:
            raise InputError(
                f"`{what}` in a transaction of {self.url} that was begun as {self.operation!r}; nothing was written. "
                f"Begin it as {operations[0]!r}, as in run(job, operation={operations[0]!r})",
                operation=self.operation,
            )

    def refuse_unclaimed(self) -> None:
        """Raise `InputError` if a transaction begun to replace rows has written some and replaces nothing."""
        overwrites = kind_of(self.changes.operation.hudi_name) is Kind.OVERWRITE
        if overwrites and self.changes.files and not self.changes.replaces:
            raise InputError(
                f"this transaction of {self.url} was begun as {self.operation!r} and says nothing that it replaces, so its rows "
                "would stand beside those that are there; nothing landed. Say it (`overwrites`, `drop_file_groups`), use "
                "`overwrite`, or begin it as 'insert'",
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


def _casts(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether a column of a file is shown in another type. One inside which fields were dropped is, too."""
    import pyarrow.types as types

    return stored != kind and (types.is_nested(stored) or can_become(stored, kind))


def _is_slice(group: Any, name: str) -> FileSlice:
    from ...hudi.timeline import FileSlice

    found: FileSlice = instance(group, FileSlice, name, "a file slice, as `snapshot.file_slices()` lists them")
    return found
