"""Log compaction: merge the oldest log files of a slice into one log file; the base file stays. For one process.

    t=0  logs of T=1, 2, 3 on a base file; a writer has begun with T=4, and has not committed
    t=1  the plan names 1, 2, 3: all that are older than every writer that may still commit
    t=2  the writer commits a log file of T=4
    t=3  the log file of the plan's T=5 appears and says that it replaces 1, 2, 3; readers apply it in 3's place, then 4

Readers order log files by T. A log file committed after the plan, with a smaller T than one that the plan names, would count as
older than the whole merged file, though part of that is older still, and its rows would be lost. So a plan names only log files
whose T is smaller than that of every open writer. Writers neither wait nor lose; log files that a long writer holds back are
left to the next log compaction.

Merged log files stay until the slice is compacted and cleaned: Hudi's readers count a log compaction
only beside one of them. Readers of this library do not open them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...arguments import number
from ...conflict import INGESTION, kind_of
from ...errors import ConfigError, InputError, TableError, UnsupportedTableError
from ...hudi.files import NATURAL, FileGroupId, LogFile, join
from ...hudi.merge import merged_logs, ordering_of, standing
from ...hudi.timeline import COMMIT_ACTIONS, FileSlice, WriteStat
from ..entries import by_partition
from ..log import LogState
from ..staging import FileSpec, LogFileWriter, RowNumbers, token
from .execution import Part
from .planned_service import PlannedService, service_operation
from .rewriting import Damaged, free_slices, in_columns, refuse_types, slices_of

if TYPE_CHECKING:
    from ..session import Session
    from .execution import Execution

MIN_LOGS = 5  # Apache Hudi's hoodie.log.compaction.blocks.threshold


def checked(min_logs: int) -> int:
    """Return ``min_logs``; raise `ConfigError` unless it is a whole number of at least 2."""
    return int(number(min_logs, "min_logs", least=2, whole=True, error=ConfigError))


def find(
    session: Session, state: LogState, min_logs: int, partitions: Iterable[str] | None, damaged: Damaged
) -> dict[str, Any] | None:
    """Return the content of a plan on the present table; None if no file slice has so many log files to merge.

    File groups whose log files cannot be read are added to ``damaged`` and left out.
    """
    if session.streams or session.config.for_streams:
        raise UnsupportedTableError(
            f"{session.url} has streams, whose log files count in the order in which they landed, and one that merged several "
            "could not say that of each; nothing was planned. Compact the table (`compact`)",
            table=session.url,
            feature="streams",
        )
    # Before the view: a writer that is open now and commits before the view is read is in the view, and above the bound.
    bound = _bound(session, state)
    view = session.view()
    groups: list[dict[str, Any]] = []
    chosen: list[str] = []
    for each in free_slices(session, state, view, partitions, damaged.groups):
        if len(each.logs) < min_logs:
            continue
        try:
            merged = _merged_of(session, each, bound, min_logs)
        except TableError as e:
            damaged.takes(e, each.group)
            continue
        if merged:
            logs = [log for log in each.logs if log.instant in merged]
            groups.append(
                {
                    "partition": each.partition,
                    "file_id": each.file_id,
                    "instant": each.instant,
                    "base": each.base.path.rpartition("/")[2] if each.base else "",
                    "logs": [log.path.rpartition("/")[2] for log in logs],
                    "log_bytes": sum(log.size for log in logs),
                }
            )
            chosen += [*(log.path for log in logs), *([each.base.path] if each.base else ())]
    schema = view.arrow_schema()
    if not groups or schema is None:
        return None
    ordering_of(session.config)
    refuse_types(session, schema, "compact")
    return {"groups": groups, "slices": by_partition(chosen)}


def _bound(session: Session, state: LogState) -> str:
    """The T below which a plan may name log files: each writer that may still commit has this T or a larger one.

    Later writers get a larger T than all in the state.
    """
    mine = {begin.instant for begin in list(state.open.values()) if kind_of(begin.operation) in INGESTION}
    others = {
        each.requested
        for each in session.timeline().pending
        if each.action in COMMIT_ACTIONS and session.log.outcome(each.requested) is None
    }
    # Greater than that time, and smaller than any later one.
    return min(mine | others, default=f"{state.top}~")


def stands_beside(content: Mapping[str, Any], instant: str, groups: Collection[FileGroupId]) -> bool:
    """Return whether a plan stays valid beside a later commit of this T that only appended to these groups of it."""
    named = [
        log.instant
        for group in content["groups"]
        for name in group["logs"]
        if (log := LogFile.at(join(group["partition"], name), 0)) and log.group in groups
    ]
    return instant > max(named)


def _merged_of(session: Session, each: FileSlice, bound: str, min_logs: int) -> frozenset[str]:
    """T of the slice's log files to merge, with the inputs of earlier log compactions; empty if too few."""
    there = {log.instant for log in each.logs}
    merged: set[str] = set()
    count = 0
    for instant, before in standing(session.store, each.logs).items():
        newest = instant if before is None else max(before)
        if newest >= bound:
            if before is not None:  # older log files must not be merged without it
                return frozenset()
            break
        count += 1
        merged |= {instant, *(before or ())}
    return frozenset(merged & there) if count >= min_logs else frozenset()


def run(execution: Execution) -> None:
    """Write the merged log files and stage them."""
    spec, parts = execution.file_spec(), list[Part]()
    for group in execution.content["groups"]:
        names = [*group["logs"], *([group["base"]] if group["base"] else ())]
        (each,) = slices_of(group["partition"], names)
        parts.append(MergedLogs(spec, each, group["log_bytes"]))
    execution.carry_out(parts)


@dataclass(frozen=True, slots=True)
class MergedLogs:
    """A part of a plan: merge some log files of a slice into one.

    Attributes:
        spec: the spec of the plan's execution.
        slice: a slice with only the log files that the plan names.
        bytes: see `Part`.
    """

    spec: FileSpec
    slice: FileSlice
    bytes: int | None

    def run(self) -> list[WriteStat]:
        """Write the merged log file; a no-op if nothing is left to write."""
        spec, logs = self.spec, self.slice.logs
        changes = merged_logs(spec.store, spec.config, logs)
        if changes.rows is None and not changes.deletes:
            return []
        merged = sorted({log.instant for log in logs})
        writer = LogFileWriter(spec, self.slice, token=token(0), numbers=RowNumbers(), merged=merged)
        try:
            if changes.rows is not None:
                writer.write(in_columns(spec, changes.rows))
            if natural := [key for key, value in changes.deletes if value is NATURAL]:
                writer.delete(natural)
            if others := [(key, value) for key, value in changes.deletes if value is not NATURAL]:
                _delete_up_to(writer, logs, others, spec)
            return [writer.publish()]
        finally:
            writer.abandon()


def _delete_up_to(
    writer: LogFileWriter, logs: Sequence[LogFile], deletes: Sequence[tuple[str, Any]], spec: FileSpec
) -> None:
    """Write the deletes with ordering values, which they keep."""
    try:
        if any(value is None or (isinstance(value, tuple) and None in value) for _, value in deletes):
            raise InputError("a deleted row has no ordering value")
        writer.delete_up_to(deletes, [spec.schema.field(name).type for name in ordering_of(spec.config)])
    except InputError as e:
        raise UnsupportedTableError(
            f"The log files of {logs[-1].group} cannot be merged into one: {e}. Nothing was written; compact the table "
            "(`compact`), which makes a base file of them",
            path=logs[-1].path,
            feature="ordered_deletes",
        ) from e


SERVICE = PlannedService("compact_logs", service_operation("logcompaction", "LOG_COMPACT"), run)
