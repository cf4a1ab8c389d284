"""Compaction: merge the log files of a file group into its next base file. For tables that one process can read.

    t=0  the plan names a slice: its base file and all completed log files
    t=1  a writer that began earlier completes a log file: its C is greater than the plan's T
    t=2  the base file of the plan's T appears; readers merge log files of C >= T onto it, whatever their T

So a log file that completed before the plan's T and is not in the plan would be lost. T is greater than every time on the
timeline. Right before the plan's entry and before the commit, under the lock, the timeline is read again: another engine's
commit that the log does not know ends the compaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ...hudi.files import FileGroupId
from ...hudi.merge import ordering_of
from ..entries import by_partition
from ..log import LogState
from .execution import Part
from .planned_service import PlannedService, service_operation
from .rewriting import Rewrite, free_slices, refuse_types, slices_of

if TYPE_CHECKING:
    from ...hudi.timeline import FileSlice
    from ..session import Session
    from .execution import Execution


def find(
    session: Session,
    state: LogState,
    partitions: Iterable[str] | None,
    but: Collection[FileGroupId] = (),
    due: Callable[[FileSlice], bool] = lambda _slice: True,
) -> dict[str, Any] | None:
    """Return the content of a compaction plan on the present table; None if no file group has log files to compact.

    ``but``: file groups to leave out. ``due``: returns whether a slice with log files is compacted now.
    """
    view = session.view()
    chosen = [each for each in free_slices(session, state, view, partitions, but) if each.logs and due(each)]
    schema = view.arrow_schema()
    if not chosen or schema is None:
        return None
    ordering_of(session.config)
    refuse_types(session, schema, "compact")
    return {
        "groups": [
            {
                "partition": each.partition,
                "file_id": each.file_id,
                "instant": each.instant,
                "base": _name(each.base.path) if each.base else "",
                "logs": [_name(log.path) for log in each.logs],
                "log_bytes": sum(log.size for log in each.logs),
                "bytes": each.total_size,
            }
            | ({"completed": [log.completed for log in each.logs]} if session.streams else {})
            for each in chosen
        ],
        "slices": by_partition(path for each in chosen for path in each.paths),
    }


def grown(content: Mapping[str, Any], completion: str, plain: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the plan with the log files of a stream commit (C, metadata) that completed while the plan was made.

    Streams take no lock, so a plan that restarted for each of their commits might never finish. Log files that the plan has
    already are not added again, since sums would count them twice. Returns None if the commit did more than append.
    """
    stats = plain.get("stats", ())
    if "replaced" in plain or not all(stat.get("log_files") for stat in stats):
        return None
    groups = {(group["partition"], group["file_id"]): dict(group) for group in content["groups"]}
    paths = []
    for stat in stats:
        group = groups.get((stat["partition"], stat["file_id"]))
        if group and _name(stat["path"]) not in group["logs"]:
            group["logs"] = [*group["logs"], _name(stat["path"])]
            group["completed"] = [*group["completed"], completion]
            group["log_bytes"] += stat.get("file_size", 0)
            group["bytes"] += stat.get("file_size", 0)
            paths.append(stat["path"])
    slices = {partition: list(names) for partition, names in content["slices"].items()}
    for partition, names in by_partition(paths).items():
        slices.setdefault(partition, []).extend(names)
    return {**content, "groups": list(groups.values()), "slices": slices}


def run(execution: Execution) -> None:
    """Write the merged base files and stage them."""
    spec, parts = execution.file_spec(), list[Part]()
    for group in execution.content["groups"]:
        names = [*group["logs"], *([group["base"]] if group["base"] else ())]
        # Only plans of streams have times.
        times = dict(zip(group["logs"], group.get("completed", ()), strict=False))
        (each,) = slices_of(group["partition"], names, times)
        parts.append(Rewrite(spec, each.partition, each.file_id, (each,), each, group.get("bytes")))
    execution.carry_out(parts)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


SERVICE = PlannedService("compact", service_operation("compaction", "COMPACT"), run)
