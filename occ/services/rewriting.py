"""The common ground of compaction and clustering: choose file slices that no other plan takes, and rewrite their rows.

Memory of a part: one row group; the rows of the new file where a slice has log files or rows are laid out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ...errors import InputError, LakeLatchError, TableError, UnsupportedTableError
from ...hudi.files import BaseFile, FileGroupId, LogFile, StoredParquet, Torn, join, read_blocks
from ...hudi.merge import body_of, merged_rows, widened
from ...hudi.table import META_COLUMNS, storable
from ...hudi.timeline import COMPLETED_AS, FileSlice, WriteStat
from ...streams import floors_to_footer, stitched
from ..entries import groups_of, held, paths_of
from ..liveness import groups_of_plan
from ..log import LogState
from ..staging import BaseFileWriter, FileSpec, token
from .layout import NOTE, Buckets, Layout

if TYPE_CHECKING:
    from ..session import Session, View

_UNKNOWN: Mapping[str, str] = {}


@dataclass
class Damaged:
    """The file groups that a service skips because a log file cannot be read, and the error of the first one."""

    groups: set[FileGroupId] = field(default_factory=set)
    error: TableError | None = None

    def takes(self, error: TableError, group: FileGroupId) -> None:
        """Skip this file group."""
        self.groups.add(group)
        self.error = self.error or error

    def met(self, session: Session, content: Mapping[str, Any], error: TableError) -> bool:
        """Return whether a log file made this plan's execution fail, so that another plan without it is worthwhile.

        Skips all file groups of the plan with torn log files at once, so that one more plan suffices.
        """
        found = LogFile.at(str(error.details.get("path", "")), 0)
        if found is None or found.group in self.groups or found.group not in groups_of(content):
            return False
        self.takes(error, found.group)
        for path in paths_of(content):
            log = LogFile.at(path, 0)
            if log is not None and log.group not in self.groups and not _whole(session, log):
                self.takes(error, log.group)
        return True

    def told(self, name: str, done: str) -> TableError | None:
        """Return the error to raise after the service has done the rest, or None."""
        if (error := self.error) is None:
            return None
        words = f"{str(error.args[0]).rstrip('.')}. Nothing else was held up: {name} {done} has landed"
        return type(error)(words, **error.details)


def _whole(session: Session, log: LogFile) -> bool:
    try:
        return not any(isinstance(block, Torn) for block in read_blocks(body_of(session.store, log), log.path))
    except LakeLatchError:
        return False


def free_slices(
    session: Session,
    state: LogState,
    view: View,
    partitions: Iterable[str] | None,
    but: Collection[FileGroupId] = (),
) -> list[FileSlice]:
    """Return the file slices of these partitions (None: of all) that no pending plan names, ours or another engine's.

    ``but``: more file groups to leave out.
    """
    taken = {g for begin in list(state.open.values()) if begin.plan for g in groups_of(held(session.store, begin.plan))}
    taken |= _planned_by_others(session) | set(but)
    wanted = None if partitions is None else set(partitions)
    slices = view.snapshot.file_slices()
    return [each for each in slices if each.group not in taken and (wanted is None or each.partition in wanted)]


def _planned_by_others(session: Session) -> set[FileGroupId]:
    """The file groups in pending plans of another engine, which would later find their files gone."""
    timeline, found = session.timeline(), set[FileGroupId]()
    for each in timeline.pending:
        path = timeline.path(replace(each, state="requested"))
        if each.action not in COMPLETED_AS or session.log.outcome(each.requested) is not None:
            continue  # our own plan: the caller has it from the log
        if not (stored := session.store.get(path)) or not stored.body:
            continue
        found |= groups_of_plan(stored.body, path)
    return found


def refuse_types(session: Session, schema: pa.Schema, verb: str) -> None:
    """Raise `UnsupportedTableError` unless our base files store the table's column types exactly."""
    try:
        stored = storable(schema, known=schema.names)
        other = [field.name for field in schema if not stored.field(field.name).type.equals(field.type)]
        reason = f"the types of columns {', '.join(other)} are not written here" if other else ""
    except InputError as e:
        reason = str(e)
    if reason:
        raise UnsupportedTableError(
            f"{session.url} cannot be {verb}ed here: {reason}. Nothing was planned; {verb} the table with Hudi",
            table=session.url,
            feature="column_types",
        )


def slices_of(partition: str, names: Iterable[str], completed: Mapping[str, str] = _UNKNOWN) -> list[FileSlice]:
    """Return the slices that these file names form, in the order of their file ids; ``completed``: C of log files."""
    bases: dict[str, BaseFile] = {}
    logs: dict[str, list[LogFile]] = {}
    for name in names:
        if base := BaseFile.at(join(partition, name), 0):
            bases[base.file_id] = base
        elif log := LogFile.at(join(partition, name), 0, completed=completed.get(name, "")):
            logs.setdefault(log.file_id, []).append(log)
    return [
        FileSlice(
            FileGroupId(partition, file_id),
            bases.get(file_id),
            tuple(sorted(logs.get(file_id, ()), key=lambda log: log.order)),
        )
        for file_id in sorted({*bases, *logs})
    ]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A part of a plan: write the rows of some slices into a new base file.

    Attributes:
        spec: the spec of the plan's execution.
        replaces: the slice whose file group gets its next version; None begins a group.
        bytes: see `Part`.
        layout: of the rows; the file gets the ``share`` (number, of how many) of them.
    """

    spec: FileSpec
    partition: str
    file_id: str
    slices: tuple[FileSlice, ...]
    replaces: FileSlice | None = None
    bytes: int | None = None
    layout: Layout | Buckets | None = None
    share: tuple[int, int] = (0, 1)

    def run(self) -> list[WriteStat]:
        """Write the file. Raises `CorruptTableError` for a torn log file.

        Readers skip the rest of a torn file; a rewrite without it would make that loss final.
        """
        old = self.replaces if self.replaces is not None and self.replaces.base else None
        writer = BaseFileWriter(
            self.spec,
            partition=self.partition,
            file_id=self.file_id,
            token=token(0),
            io="MERGE" if old else "CREATE",
            prev_commit=old.instant if old else None,
        )
        with writer:
            for rows in self._stitched(writer) if self.replaces and self.spec.streams else self._rows():
                writer.write(rows)
            if self.layout is not None:
                writer.note({NOTE: json.dumps(self.layout.said)})
        assert writer.stat is not None
        return [writer.stat]

    def _stitched(self, writer: BaseFileWriter) -> Iterator[pa.Table]:
        spec, (each,) = self.spec, self.slices
        made = stitched(spec.store, spec.streams, each, strict=True)
        writer.note(floors_to_footer(made.floors))
        yield in_columns(spec, made.rows)

    def _rows(self) -> Iterator[pa.Table]:
        if self.layout is not None:
            return _laid_out(self.spec, self.slices, self.layout, self.share)
        return (piece.rows() for each in self.slices for piece in _pieces(self.spec, each))


@dataclass(frozen=True, slots=True)
class _KeptRows:
    """Some rows of a slice. They keep their meta columns, so that no incremental reader sees them again."""

    count: int
    rows: Callable[[], pa.Table]


def _pieces(spec: FileSpec, slice_: FileSlice, columns: Sequence[str] | None = None) -> Iterator[_KeptRows]:
    """Yield the rows of a slice by row groups, in the table's types; with log files all at once."""
    schema = _columns(spec) if columns is None else pa.schema([spec.schema.field(name) for name in columns])
    if slice_.logs:
        rows = merged_rows(spec.store, spec.config, slice_, columns=columns, strict=True)
        yield _KeptRows(rows.num_rows, lambda: widened(rows, schema))
        return
    with spec.store.open(slice_.path) as stream:
        file = StoredParquet(spec.store, slice_.path, stream)
        names = [name for name in file.schema_arrow.names if name in schema.names]
        for number in range(file.metadata.num_row_groups):
            count = file.metadata.row_group(number).num_rows
            yield _KeptRows(count, partial(_read, file, number, names, schema, count))


def _read(file: StoredParquet, number: int, names: list[str], schema: pa.Schema, count: int) -> pa.Table:
    if not names:  # the file is older than all of these columns
        return pa.table([pa.nulls(count, field.type) for field in schema], schema=schema)
    return widened(file.read_row_group(number, names, use_threads=False), schema)


def _laid_out(
    spec: FileSpec, slices: Sequence[FileSlice], layout: Layout | Buckets, share: tuple[int, int]
) -> Iterator[pa.Table]:
    """Yield a share of the rows in the order of a layout. Reads the layout's columns first, then the share's rows."""
    keys = [piece.rows() for each in slices for piece in _pieces(spec, each, layout.by)]
    mine = layout.share(pa.concat_tables(keys), *share) if keys else np.zeros(0, np.int64)
    del keys
    # In the order of the files, so that each row group is read once; ``wanted`` restores the layout's order.
    places = np.sort(mine)
    taken, start = [], 0
    for piece in (piece for each in slices for piece in _pieces(spec, each)):
        first, last = np.searchsorted(places, [start, start + piece.count])
        if first < last:
            rows = piece.rows().take(pa.array(places[first:last] - start))
            taken.append(widened(rows, _long(rows.schema)))
        start += piece.count
    if not taken:
        yield _columns(spec).empty_table()
        return
    whole, wanted = pa.concat_tables(taken), np.searchsorted(places, mine)
    for begin in range(0, len(wanted), spec.row_group_rows):
        yield widened(whole.take(pa.array(wanted[begin : begin + spec.row_group_rows])), _columns(spec))


def _long(schema: pa.Schema) -> pa.Schema:
    """Widen texts to 64-bit offsets: many row groups together may exceed the 2 GiB of Arrow's short types."""
    longer = {pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    return pa.schema([field.with_type(longer.get(field.type, field.type)) for field in schema])


def in_columns(spec: FileSpec, rows: pa.Table) -> pa.Table:
    """Return the rows with all columns of the table, meta columns first."""
    return widened(rows, _columns(spec))


def _columns(spec: FileSpec) -> pa.Schema:
    return pa.schema([*((name, pa.string()) for name in META_COLUMNS), *spec.schema])
