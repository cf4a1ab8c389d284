"""Unique constraints and checks, tried on the rows of a table. Unique: no two rows have the same values in these columns.

    before the commit   the written rows, against all other rows of the snapshot: here, exactly
    at the commit       against commits since the begin: by hashes in the commits (`uniqueness`)

Nulls are never equal, as in SQL. Reads only files whose footers do not exclude the values, and only these columns of
them. Memory: the columns of the written rows, and those of a few files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...conflict import Term, Values, Where, may_match
from ...errors import ConfigError, ConstraintError
from ...hudi.files import StoredParquet
from ...hudi.table import RECORD_KEY, TableConfig, python_rows
from ...hudi.timeline import FileSlice, WriteStat
from ...storage import Store
from ..check import OTHER_KEY, refuse_misplaced, repeated, shown_values, with_values
from ..entries import TABLE_KEYS, LogEntry, Setting, Settings, name_of, of_footer, value_checks
from ..log import LogState
from ..staging import COMMIT_TIME, wanted_of

if TYPE_CHECKING:
    from ..session import Session

_LISTED = 100  # up to so many values are compared one by one with a file's statistics, more as a span


@dataclass(frozen=True)
class Checker:
    """The check of one transaction's rows.

    Attributes:
        stats: its files.
        values: hashes of the values it wrote, by name of the constraint.
        others: slices of its snapshot that it does not replace.
    """

    store: Store
    url: str
    instant: str
    stats: Sequence[WriteStat]
    values: Mapping[str, Values]
    others: Sequence[FileSlice]

    def check(self, constraint: tuple[str, ...]) -> None:
        """Raise `ConstraintError` if a written row has the values of another row."""
        name = name_of(constraint)
        pieces = [stat.facts.values[name] for stat in self.stats if stat.facts and name in stat.facts.values]
        # Own files with copied rows count too: those rows were not written by us, and their old slices are being
        # replaced.
        paths = [stat.path for stat in self.stats if stat.num_inserts < stat.num_writes]
        paths += [each.path for each in self.others]
        several = len(self.values[name].hashes()) < sum(len(each.hashes) for each in pieces) if pieces else False
        if not pieces or not (paths or several):
            return
        written = pa.concat_tables([self._written(stat.path, constraint) for stat in self.stats])
        if several:
            self._refuse(constraint, repeated([written], constraint))
        looked_for = _looked_for(written, constraint)
        for path in paths:
            self._refuse(constraint, self._held(path, written, constraint, looked_for))

    def _written(self, path: str, constraint: Sequence[str]) -> pa.Table:
        with self.store.open(path) as stream:
            file = StoredParquet(self.store, path, stream)
            rows = file.read([RECORD_KEY, COMMIT_TIME, *constraint], use_threads=False)
        return with_values(rows.filter(pc.equal(rows.column(COMMIT_TIME), self.instant)), constraint)

    def _held(self, path: str, written: pa.Table, constraint: Sequence[str], looked_for: Where) -> pa.Table:
        """Rows of a file with written values, except the rows that we wrote."""
        with self.store.open(path) as stream:
            file = StoredParquet(self.store, path, stream)
            names = file.schema_arrow.names
            if any(name not in names for name in constraint) or not may_match(
                looked_for, of_footer(file.metadata, constraint)
            ):
                return written.slice(0, 0)
            rows = file.read([RECORD_KEY, COMMIT_TIME, *constraint], use_threads=False)
        return _same(rows.filter(pc.not_equal(rows.column(COMMIT_TIME), self.instant)), written, constraint)

    def _refuse(self, constraint: Sequence[str], same: pa.Table) -> None:
        if same.num_rows:
            next_ = "Nothing landed; give these rows other values, or leave them out"
            raise _broken(self.url, constraint, same, next_, self.instant)


def with_table_keys(settings: Settings, config: TableConfig, before: Settings | None = None) -> Settings:
    """Return the settings with the constraint on the record key that ``unique_keys="table"`` means; or without the one that
    it meant ``before``.
    """
    key, constraints = config.record_key_fields, settings.unique_constraints
    if settings.unique_keys == TABLE_KEYS:
        wanted = constraints if key in constraints else (*constraints, key)
    elif before is not None and before.unique_keys == TABLE_KEYS and constraints == before.unique_constraints:
        wanted = tuple(each for each in constraints if each != key)
    else:
        return settings
    return settings.changed(unique_constraints=wanted)


def refuse_unique(config: TableConfig, settings: Settings, url: str) -> None:
    """Raise `ConfigError` for unique constraints on a merge-on-read table: its log files have no hashes of the values."""
    if config.merge_on_read and settings.unique_constraints:
        raise ConfigError(
            f"{url} is merge-on-read, and unique constraints, so also unique_keys={TABLE_KEYS}, are kept on copy-on-write tables "
            "only; leave them out",
            setting="unique_constraints",
        )


def refuse_check(config: TableConfig, settings: Settings, url: str, dropped: Sequence[str] = ()) -> None:
    """Raise `ConfigError` for neighbours of a table with a time column, which they would not compute, or with dropped ones,
    which they would write again; and for a check on a merge-on-read table with merge rules: readers compute its rows, not
    writers.
    """
    from ...hudi.merge import rule_of

    if settings.timeline_first and config.time_unit:
        raise ConfigError(
            f"{url} is partitioned by {', '.join(config.partitioned_by)}, and neighbours={settings.neighbours} would not compute "
            f"{config.time_column}. Leave neighbours out, or make a table with a column of your own in its place",
            setting="neighbours",
        )
    if settings.timeline_first and dropped:
        raise ConfigError(
            f"{url} has dropped {', '.join(dropped)}, and neighbours={settings.neighbours} could write such columns again, where "
            "readers would show old values. Leave neighbours out",
            setting="neighbours",
        )
    if settings.check and config.merge_on_read and not rule_of(config, settings.merge, settings.ties).plain:
        raise ConfigError(
            f"{url} is merge-on-read and merges columns of rows, which readers do: no writer sees the values that a check is of. "
            "Leave check out, or the rules",
            setting="check",
        )


def constrained(session: Session, changes: Mapping[str, Any]) -> Settings:
    """Change settings that existing rows must satisfy (`Table.change_settings`), after checking the rows.

    Holds the table's lock, so that nothing is committed meanwhile. If there is no lock, or it is lost, the commits
    since are checked as well.
    """

    def changed(had: Settings) -> Settings:
        return with_table_keys(had.changed(**changes), session.config, had)

    refuse_unique(session.config, changed(session.settings), session.url)
    lease, checked = session.lease("settings that the rows must go with"), -1

    def build(state: LogState) -> LogEntry | None:
        unseen = state.last is not None and state.last.slot > checked
        return None if unseen else Setting(changed(state.settings), session.writer)

    try:
        while True:
            state = session.log.catch_up()
            wanted, had = changed(state.settings), state.settings
            checked = session.log.next_slot - 1
            for constraint in sorted(set(wanted.unique_constraints) - set(had.unique_constraints)):
                _refuse_broken(session, constraint)
            if more := tuple(each for each in wanted.check if each not in had.check):
                _refuse_unchecked(session, more)
            if wanted.bucket_count != had.bucket_count:
                refuse_misplaced(session.store, session.config, session.snapshot().file_slices(), wanted.bucket_count)
            entry = session.log.append(build, look=session.lock.shared_with_jvm or None)
            if isinstance(entry, Setting):
                return entry.settings
    finally:
        lease.release()


def _refuse_broken(session: Session, constraint: tuple[str, ...]) -> None:
    if (schema := session.schema()) is not None:
        wanted_of(Settings(unique_constraints=(constraint,)), schema, "insert")
        next_ = "The settings are as before; mend these rows first"
        refuse_repeated(session, constraint, session.snapshot().file_slices(), next_)


def _refuse_unchecked(session: Session, checks: tuple[str, ...]) -> None:
    if (schema := session.schema()) is not None:
        refuse_broken(
            session,
            checks,
            schema,
            session.snapshot().file_slices(),
            "The settings are as before; mend these rows first",
        )


def refuse_broken(
    session: Session, checks: tuple[str, ...], schema: pa.Schema, slices: Iterable[FileSlice], next_: str
) -> None:
    """Raise `ConstraintError` if a row of these slices breaks a check."""
    bound = value_checks(checks, schema)
    columns = [RECORD_KEY, *dict.fromkeys(name for each in bound for name in each.columns)]
    for slice_ in slices:
        rows = session.read_slice(slice_, columns=columns, meta=True)
        for check in bound:
            if (broken := check.those(rows)).num_rows:
                raise check.error(session.url, broken, next_)


def refuse_repeated(session: Session, constraint: tuple[str, ...], slices: Iterable[FileSlice], next_: str) -> None:
    """Raise `ConstraintError` if several rows of these slices have the same values under a constraint."""
    columns = [RECORD_KEY, *constraint]
    rows = [session.read_slice(each, columns=columns, meta=True) for each in slices]
    same = repeated([each.select(columns) for each in rows if set(columns) <= set(each.column_names)], constraint)
    if same.num_rows:
        raise _broken(session.url, constraint, same, next_, None)


def _broken(url: str, constraint: Sequence[str], same: pa.Table, next_: str, instant: str | None) -> ConstraintError:
    few = python_rows(same.slice(0, 100))
    return ConstraintError(
        f"{url}: {same.num_rows} values would stand twice that are unique in this table ({name_of(constraint)}): "
        f"{shown_values(same, constraint)}. {next_}",
        table=url,
        instant=instant,
        constraint=tuple(constraint),
        values=[tuple(row[name] for name in constraint) for row in few],
        keys=[row[RECORD_KEY] for row in few],
    )


def _same(rows: pa.Table, written: pa.Table, constraint: Sequence[str]) -> pa.Table:
    """The rows with the values of a written row, with both keys."""
    for name in constraint:
        kind = written.schema.field(name).type
        place = rows.schema.get_field_index(name)
        if rows.schema.field(place).type != kind:  # the table's column was widened since
            rows = rows.set_column(place, name, rows.column(name).cast(kind))
        rows = rows.filter(pc.is_in(rows.column(name), value_set=written.column(name).combine_chunks()))
    left = written.select([RECORD_KEY, *constraint])
    right = rows.select([RECORD_KEY, *constraint]).rename_columns([OTHER_KEY, *constraint])
    return left.join(right, list(constraint), join_type="inner", use_threads=False)


def _looked_for(written: pa.Table, constraint: Sequence[str]) -> Where:
    """The conditions that every row with the values of a written row meets."""
    found = []
    for name in constraint:
        column = written.column(name)
        try:
            if written.num_rows <= _LISTED:
                found.append(Term(name, "in", tuple(column.to_pylist())))
            else:
                low, high = (each.as_py() for each in pc.min_max(column).values())
                found += [Term(name, ">=", low), Term(name, "<=", high)]
        except (ValueError, OverflowError):
            # A date or time outside Python's range excludes no file.
            continue
    return tuple(found)
