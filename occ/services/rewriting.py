"""What compactions and clustering share: file slices that nobody else rewrites, and their rows to be written anew."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...errors import InputError, LakeLatchError, TableError, UnsupportedTableError
from ...hudi.files import BaseFile, FileGroupId, LogFile, Torn, join, read_blocks
from ...hudi.merge import body_of, merged_rows, widened
from ...hudi.table import META_COLUMNS, storable
from ...hudi.timeline import COMPLETED_AS, FileSlice, decode_container
from ..entries import groups_of, held, paths_of
from ..log import LogState

if TYPE_CHECKING:
    from ..session import Session, View
    from .execution import Execution

_UNKNOWN: Mapping[str, str] = {}


@dataclass
class Damaged:
    """File groups that a service leaves as they are, because a log file of theirs cannot be read; why, of the first one."""

    groups: set[FileGroupId] = field(default_factory=set)
    error: TableError | None = None

    def takes(self, error: TableError, group: FileGroupId) -> None:
        """This file group is left."""
        self.groups.add(group)
        self.error = self.error or error

    def met(self, session: Session, content: Mapping[str, Any], error: TableError) -> bool:
        """Whether an execution of this plan has failed for a log file, so that the rest is worth another plan.

        All file groups of the plan with torn log files are left then, so that there is one more plan, and not one for each.
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
        """The error, after the service has done the rest."""
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
    """The file slices of these partitions (None: of all) that no pending plan names, ours or another engine's.

    ``but``: those of these file groups are left out too.
    """
    taken = {g for begin in list(state.open.values()) if begin.plan for g in groups_of(held(session.store, begin.plan))}
    taken |= _planned_by_others(session) | set(but)
    wanted = None if partitions is None else set(partitions)
    slices = view.snapshot.file_slices()
    return [each for each in slices if each.group not in taken and (wanted is None or each.partition in wanted)]


def _planned_by_others(session: Session) -> set[FileGroupId]:
    """File groups in pending plans of another engine, which may execute them still, and would find their files gone."""
    timeline, found = session.timeline(), set()
    for each in timeline.pending:
        path = timeline.path(replace(each, state="requested"))
        if each.action not in COMPLETED_AS or session.log.outcome(each.requested) is not None:
            continue  # the log has told of our own
        if not (stored := session.store.get(path)) or not stored.body:
            continue
        plan = decode_container(stored.body, "HoodieCompactionPlan", "HoodieRequestedReplaceMetadata", name=path)
        parts = list(plan.get("operations") or ())
        for group in (plan.get("clusteringPlan") or {}).get("inputGroups") or ():
            parts += group["slices"] or ()
        found |= {FileGroupId(part["partitionPath"] or "", part["fileId"]) for part in parts}
    return found


def refuse_types(session: Session, schema: pa.Schema, verb: str) -> None:
    """Raise `UnsupportedTableError` unless a base file of ours can hold the table's own types; it has those stored here."""
    try:
        stored = storable(schema)
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
    """The file slices that these files of a plan make up, in the order of their file ids; ``completed``: C of log files."""
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


def rows_of(execution: Execution, slice_: FileSlice) -> pa.Table:
    """The rows of a slice of the plan, with meta columns, so that an incremental reader does not see them again.

    Raises:
        CorruptTableError: a log file is torn. Readers leave the rest out, and written anew that would be final.
    """
    session, workspace = execution.session, execution.workspace
    if not slice_.logs:
        return workspace.read_slice(slice_, meta=True)
    rows = execution.attempt.seen(lambda: merged_rows(session.store, session.config, slice_, strict=True))
    return in_columns(execution, rows)


def in_columns(execution: Execution, rows: pa.Table) -> pa.Table:
    """The rows with all columns of the table, meta columns first."""
    workspace = execution.workspace
    return widened(rows, pa.schema([*((name, pa.string()) for name in META_COLUMNS), *(workspace.schema or ())]))
