"""Compaction: the log files of a file group are merged into its next base file. For tables that one process can read.

    t=0  the plan names a slice: base file and log files, all that have completed
    t=1  a writer of log files that had begun before completes one: its C is greater than the plan's T
    t=2  the base file of the plan's T appears; readers put a log file of C >= T onto it, whatever its T

So a log file that completed before the plan's T and is not in the plan would be lost. T is greater than every time of
the timeline, and right before the plan's entry and the commit, below the lock, the timeline is looked at once more:
another engine's commit that the log does not know ends the compaction.

Rows keep their meta columns, so an incremental reader does not see them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...errors import InputError, UnsupportedTableError
from ...hudi.files import BaseFile, FileGroupId, LogFile, join
from ...hudi.merge import ordering_of
from ...hudi.timeline import COMPLETED_AS, FileSlice, decode_container
from ..log import LogState, by_partition, groups_of, held

if TYPE_CHECKING:
    import pyarrow as pa

    from ..session import Session
    from .execution import Execution


def find(session: Session, state: LogState, partitions: Iterable[str] | None) -> dict[str, Any] | None:
    """The content of a compaction plan on the table as it is; None when no file group has log files."""
    taken = {g for begin in list(state.open.values()) if begin.plan for g in groups_of(held(session.store, begin.plan))}
    taken |= _planned_by_others(session)
    wanted, view = None if partitions is None else set(partitions), session.view()
    chosen = [
        each
        for each in view.snapshot.file_slices()
        if each.logs and each.group not in taken and (wanted is None or each.partition in wanted)
    ]
    schema = view.arrow_schema()
    if not chosen or schema is None:
        return None
    ordering_of(session.config)
    _refuse_types(session, schema)
    return {
        "groups": [
            {
                "partition": each.partition,
                "file_id": each.file_id,
                "instant": each.instant,
                "base": _name(each.base.path) if each.base else "",
                "logs": [_name(log.path) for log in each.logs],
                "log_bytes": sum(log.size for log in each.logs),
            }
            | ({"completed": [log.completed for log in each.logs]} if session.streams else {})
            for each in chosen
        ],
        "slices": by_partition(path for each in chosen for path in each.paths),
    }


def grown(content: Mapping[str, Any], completion: str, plain: Mapping[str, Any]) -> dict[str, Any] | None:
    """The plan with the log files of a commit of streams (C, metadata) that landed while it was made.

    They wait for no lock, so a plan that had to be made anew for each of them might never be made. None where the commit has
    done more than append.
    """
    stats = plain.get("stats", ())
    if "replaced" in plain or not all(stat.get("log_files") for stat in stats):
        return None
    groups = {(group["partition"], group["file_id"]): dict(group) for group in content["groups"]}
    paths = []
    for stat in stats:
        if group := groups.get((stat["partition"], stat["file_id"])):
            group["logs"] = [*group["logs"], _name(stat["path"])]
            group["completed"] = [*group["completed"], completion]
            group["log_bytes"] += stat.get("file_size", 0)
            paths.append(stat["path"])
    slices = {partition: list(names) for partition, names in content["slices"].items()}
    for partition, names in by_partition(paths).items():
        slices.setdefault(partition, []).extend(names)
    return {**content, "groups": list(groups.values()), "slices": slices}


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


def _refuse_types(session: Session, schema: pa.Schema) -> None:
    """A base file of ours has the types that are stored here, so these must be the table's own."""
    from ...hudi.table import storable

    try:
        stored = storable(schema)
        other = [field.name for field in schema if not stored.field(field.name).type.equals(field.type)]
        reason = f"the types of columns {', '.join(other)} are not written here" if other else ""
    except InputError as e:
        reason = str(e)
    if reason:
        raise UnsupportedTableError(
            f"{session.url} cannot be compacted here: {reason}. Nothing was planned; compact the table with Hudi",
            table=session.url,
            feature="column_types",
        )


def run(execution: Execution) -> None:
    """Write the merged base files and stage them."""
    import pyarrow as pa

    from ...hudi.merge import merged_rows, widened
    from ...hudi.table import META_COLUMNS
    from ...streams import floors_to_footer, stitched

    session, workspace = execution.session, execution.workspace
    schema = pa.schema([*((name, pa.string()) for name in META_COLUMNS), *(workspace.schema or ())])
    for group in execution.content["groups"]:
        each = _slice(group)
        new = workspace.rewrite(each) if each.base else workspace.new_file(each.partition, file_id=each.file_id)
        with new as file:
            if session.streams:
                made = stitched(session.store, session.streams, each, strict=True)
                rows = made.rows
                file.note(floors_to_footer(made.floors))
            else:
                rows = merged_rows(session.store, session.config, each, strict=True)
            file.write(widened(rows, schema))


def _slice(group: Mapping[str, Any]) -> FileSlice:
    partition = group["partition"]
    base = BaseFile.at(join(partition, group["base"]), 0)
    completed = group.get("completed") or [""] * len(group["logs"])
    named = zip(group["logs"], completed, strict=True)
    logs = [log for name, time in named if (log := LogFile.at(join(partition, name), 0, completed=time))]
    return FileSlice(FileGroupId(partition, group["file_id"]), base, tuple(sorted(logs, key=lambda log: log.order)))


def _name(path: str) -> str:
    return path.rpartition("/")[2]
