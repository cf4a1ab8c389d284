"""What compaction and clustering share: file slices that nobody else rewrites, and their rows to be written anew."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from ...errors import InputError, UnsupportedTableError
from ...hudi.files import BaseFile, FileGroupId, LogFile, join
from ...hudi.merge import merged_rows, widened
from ...hudi.table import META_COLUMNS, storable
from ...hudi.timeline import COMPLETED_AS, FileSlice, decode_container
from ..entries import groups_of, held
from ..log import LogState

if TYPE_CHECKING:
    from ..session import Session, View
    from .execution import Execution

_UNKNOWN: Mapping[str, str] = {}


def free_slices(session: Session, state: LogState, view: View, partitions: Iterable[str] | None) -> list[FileSlice]:
    """The file slices of these partitions (None: of all) that no pending plan names, ours or another engine's."""
    taken = {g for begin in list(state.open.values()) if begin.plan for g in groups_of(held(session.store, begin.plan))}
    taken |= _planned_by_others(session)
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
