"""Scans of a table's state, of a transaction's state, and of changed rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ...arguments import brief, flag, many
from ...errors import InputError
from ...hudi.table import META_COLUMNS
from ...hudi.timeline import FileSlice, Time
from ...progress import ProgressOption, Reporter
from ..session import chosen_partitions, some
from .pruning import partitions_that_may_match
from .row_groups import Wanted
from .scan import Hold, Scan, ScannedFile, held

if TYPE_CHECKING:
    from ..session import Partition, Session, View

COMMIT_TIME = META_COLUMNS[0]
COMPLETION = "_commit_completion"  # a column of `changes`


def scan(
    session: Session,
    *,
    columns: Sequence[str] | None,
    where: Any,
    partitions: Iterable[Partition] | None,
    as_of: Time | None,
    as_of_completion: Time | None,
    read_optimized: bool = False,
    progress: ProgressOption | None = None,
) -> Scan:
    """See `Table.read`."""
    Reporter(progress)
    flag(read_optimized, "read_optimized")
    view, completion = seen(session, as_of, as_of_completion)
    return scan_view(
        session,
        view,
        columns=columns,
        where=where,
        partitions=partitions,
        read_optimized=read_optimized,
        completion=completion,
        hold=partial(held, session, completion),
    ).telling(progress)


def scan_view(
    session: Session,
    view: View,
    *,
    columns: Sequence[str] | None = None,
    where: Any = None,
    partitions: Iterable[Partition] | None = None,
    read_optimized: bool = False,
    completion: str | None = None,
    hold: Hold = nullcontext,
) -> Scan:
    """Return the scan of one state; arguments as for `Table.read`."""
    wanted, snapshot = wanted_of(session, view.arrow_schema(), columns, where), view.snapshot

    def slices(partition: str | None = None) -> list[FileSlice]:
        found = snapshot.file_slices(partition)
        return [replace(each, logs=()) for each in found if each.base is not None] if read_optimized else found

    if partitions is None:
        return scan_slices(session, slices(), wanted, completion=completion, hold=hold)
    chosen = chosen_partitions(session.store, session.config, view.arrow_schema(), snapshot, partitions)
    asked = [each for partition in chosen for each in slices(partition)]
    return scan_slices(session, asked, wanted, of=slices, completion=completion, hold=hold)


def scan_slices(
    session: Session,
    slices: Sequence[FileSlice],
    wanted: Wanted,
    *,
    of: Callable[[], Sequence[FileSlice]] | None = None,
    completion: str | None = None,
    hold: Hold = nullcontext,
) -> Scan:
    """Return a scan of the slices that may hold wanted rows; ``of`` returns all slices of the state, for explanations."""
    may = asked = {each.partition for each in slices}
    if wanted.condition is not None:
        may = partitions_that_may_match(sorted(asked), session.config, wanted.table, wanted.condition)

    def pruned() -> list[ScannedFile]:
        excluded, unasked = "the condition excludes its partition", "of no partition that was asked for"
        return [
            ScannedFile(
                each.base.path if each.base else each.logs[-1].path,
                False,
                excluded if each.partition in asked else unasked,
            )
            for each in (of() if of is not None else slices)
            if each.partition not in may
        ]

    kept = [each for each in slices if each.partition in may]
    return Scan(session, kept, wanted, pruned=pruned, completion=completion, hold=hold)


def changes(session: Session, *, after: Time | None, until: Time | None, columns: Sequence[str] | None) -> Scan:
    """See `Table.changes`."""
    from ...conditions import condition_on

    commits = session.commits(after=after, until=until)
    view, _ = seen(session, None, until)
    last = commits[-1][0].order[0] if commits else None if after is None else session.time_of(after, "after")
    schema = view.arrow_schema()
    if schema is not None and COMPLETION in schema.names:
        raise InputError(
            f"{session.url} has a column {COMPLETION} of its own, under which `changes` tells C; rename it"
        )
    wanted = wanted_of(session, schema, columns, None)
    known = {instant.requested: instant.order[0] for instant, _ in commits}
    # Each row carries the T of the commit that wrote it, so a condition on that column finds the changed rows.
    of_commits = condition_on(wanted.table, [(COMMIT_TIME, "in", tuple(known))])
    columns = [*dict.fromkeys([*wanted.columns, COMMIT_TIME])]
    groups = {(stat.partition, stat.file_id) for _, commit in commits for stat in commit.stats}
    slices = [each for each in view.snapshot.file_slices() if tuple(each.group) in groups]
    return Scan(
        session,
        slices,
        Wanted(wanted.table, tuple(columns), of_commits),
        completion=last,
        hold=partial(held, session, last),
        finish=_WithCompletion(known, wanted.columns),
    )


@dataclass(frozen=True)
class _WithCompletion:
    """A finish that selects columns and adds the C of the commit that wrote each row, looked up by its T."""

    known: Mapping[str, str]
    columns: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> pa.Table:
        place = pc.index_in(rows.column(COMMIT_TIME), value_set=pa.array(list(self.known), pa.string()))
        completed = pa.array(list(self.known.values()), pa.string()).take(place)
        return rows.select(list(self.columns)).append_column(COMPLETION, completed)


def wanted_of(session: Session, schema: pa.Schema | None, columns: Sequence[str] | None, where: Any) -> Wanted:
    """Check the columns and the condition; ``schema`` None: the table has no column yet."""
    session.config.refuse_reading()
    data = schema if schema is not None else pa.schema([])
    table = pa.schema([*(pa.field(name, pa.string()) for name in META_COLUMNS), *data])
    names = data.names if columns is None else [columns] if isinstance(columns, str) else list(many(columns, "columns"))
    if unknown := [name for name in names if name not in table.names]:
        raise InputError(
            f"{session.url} has no column {unknown[0]!r}; it has {some(data.names)}", columns=list(map(str, unknown))
        )
    if columns is not None and (not names or len(set(names)) < len(names)):
        raise InputError(
            f"columns={brief(columns)}: name at least one column, and none twice; `read(...).count()` counts rows",
            columns=list(map(str, names)),
        )
    if where is None:
        return Wanted(table, tuple(names))
    from ...conditions import condition_on

    return Wanted(table, tuple(names), condition_on(table, where))


def seen(session: Session, as_of: Time | None, as_of_completion: Time | None) -> tuple[View, str | None]:
    """Return the state, and the completion time by which a lease can name it, or None."""
    session.require_open()
    if as_of is None and as_of_completion is None and session.writable:
        return session.latest()
    view = session.view(as_of=as_of, as_of_completion=as_of_completion)
    if as_of is not None or as_of_completion is None or not session.writable:
        return view, None
    moment, last = session.time_of(as_of_completion, "as_of_completion"), session.log.state.last
    # A lease at a future moment would keep the state of that moment, not this one.
    return view, moment if last is not None and moment <= last.completion else None
