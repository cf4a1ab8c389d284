"""Log compaction: the oldest log files of a slice are merged into one log file, and the base file stays. For one process.

    t=0  logs of T=1, 2, 3 on a base file; a writer has begun with T=4, and has not landed
    t=1  the plan names 1, 2, 3: all that are older than every writer who may still land
    t=2  the writer lands a log file of T=4
    t=3  the log file of the plan's T=5 appears, which says that it stands for 1, 2, 3; readers apply it in the place of 3, then 4

Readers order log files by T. A log file that lands after the plan with a smaller T than one that the plan names would count
as older than all that was merged, though some of it is older, and its rows would be lost. So a plan names no log file whose T is
not smaller than that of every open writer. Writers wait for nothing and lose nothing by it, and what one long writer keeps
from this log compaction falls to the next one.

The log files that were merged stay until the slice is compacted and cleaned: Hudi's readers count a log compaction
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
from .parts import Part
from .rewriting import Damaged, free_slices, in_columns, refuse_types, slices_of

if TYPE_CHECKING:
    from ..session import Session
    from .execution import Execution

MIN_LOGS = 5  # Apache Hudi's hoodie.log.compaction.blocks.threshold


def checked(min_logs: int) -> int:
    """``min_logs``, or `ConfigError`."""
    return int(number(min_logs, "min_logs", least=2, whole=True, error=ConfigError))


def find(
    session: Session, state: LogState, min_logs: int, partitions: Iterable[str] | None, damaged: Damaged
) -> dict[str, Any] | None:
    """The content of a plan on the table as it is; None when no file slice has so many log files to merge.

    Those whose log files cannot be read are ``damaged``, and left.
    """
    if session.streams or session.config.for_streams:
        raise UnsupportedTableError(
            f"{session.url} has streams, whose log files count in the order in which they landed, and one that merged several "
            "could not say that of each; nothing was planned. Compact the table (`compact`)",
            table=session.url,
            feature="streams",
        )
    bound = _bound(session, state)  # before the view, so that what is open now and lands before the view is in it
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
    """What a plan names has a T below this one: every writer who may still land has this T or a larger one.

    Those that begin from now on have a larger T than all that the state has seen.
    """
    mine = {begin.instant for begin in list(state.open.values()) if kind_of(begin.operation) in INGESTION}
    others = {
        each.requested
        for each in session.timeline().pending
        if each.action in COMMIT_ACTIONS and session.log.outcome(each.requested) is None
    }
    return min(mine | others, default=f"{state.top}~")  # greater than that time, and smaller than any later one


def stands_beside(content: Mapping[str, Any], instant: str, groups: Collection[FileGroupId]) -> bool:
    """Whether a plan may stay as it is though a commit of this T has landed since, which only appended to these groups of it."""
    named = [
        log.instant
        for group in content["groups"]
        for name in group["logs"]
        if (log := LogFile.at(join(group["partition"], name), 0)) and log.group in groups
    ]
    return instant > max(named)


def _merged_of(session: Session, each: FileSlice, bound: str, min_logs: int) -> frozenset[str]:
    """T of the log files of a slice that are merged, those of which an earlier log compaction was made too; or none of them."""
    there = {log.instant for log in each.logs}
    merged: set[str] = set()
    count = 0
    for instant, before in standing(session.store, each.logs).items():
        newest = instant if before is None else max(before)
        if newest >= bound:
            if before is not None:  # what is older than it must not be merged without it
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
    """A part of a plan: some log files of a slice become one.

    Attributes:
        spec: of the plan's execution.
        slice: its log files are those that the plan names.
        bytes: as of `Part`.
    """

    spec: FileSpec
    slice: FileSlice
    bytes: int | None

    def run(self) -> list[WriteStat]:
        """Write it, unless nothing is left of them."""
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
    """A delete that had an ordering value keeps it."""
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
