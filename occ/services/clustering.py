"""Clustering: the small files of a partition become few. For tables that one process can read; executed with Arrow.

A file slice with log files gives its merged rows. Whoever appends to a file group of the plan waits for it or ends it, as
whoever writes it anew does, so that no log file is left behind with a file group that is replaced.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...arguments import number
from ...errors import ConfigError, UnsupportedTableError
from ...hudi.files import new_file_id
from ...hudi.merge import ordering_of
from ...hudi.timeline import FileSlice
from ..entries import by_partition
from ..log import LogState
from .rewriting import free_slices, refuse_types, rows_of, slices_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from ...hudi.files import FileGroupId
    from ..session import Session
    from .execution import Execution

SMALL_BYTES = 100 << 20  # Apache Hudi's hoodie.parquet.small.file.limit
TARGET_BYTES = 120 << 20  # and its hoodie.parquet.max.file.size


@dataclass(frozen=True, slots=True)
class Sizes:
    """Files of less than ``small`` bytes are joined, to files of about ``target`` bytes."""

    small: int = SMALL_BYTES
    target: int = TARGET_BYTES

    def __post_init__(self) -> None:
        for value, name in ((self.small, "small_bytes"), (self.target, "target_bytes")):
            number(value, name, least=1, whole=True, error=ConfigError)
        if not 0 < self.small <= self.target:
            raise ConfigError(
                f"files below {self.small} bytes cannot be joined to files of {self.target}: the first must be positive "
                "and not the larger one"
            )


def find(
    session: Session,
    state: LogState,
    sizes: Sizes,
    partitions: Iterable[str] | None,
    but: Collection[FileGroupId] = (),
) -> dict[str, Any] | None:
    """The content of a clustering plan on the table as it is; None when there are not two small files together.

    ``but`` are left.
    """
    if session.settings.bucket_count is not None:
        raise UnsupportedTableError(
            f"{session.url} has a bucket index: a bucket is one file group, so there is nothing to join; change the number "
            "of buckets by writing the table anew",
            table=session.url,
        )
    view = session.view()
    schema = view.arrow_schema()
    small: dict[str, list[FileSlice]] = defaultdict(list)
    for each in free_slices(session, state, view, partitions, but):
        if each.total_size < sizes.small:
            small[each.partition].append(each)
    groups, chosen = [], list[FileSlice]()
    for partition in sorted(small):
        for slices in _joined(small[partition], sizes.target):
            read = [path for each in slices for path in each.paths]
            names = by_partition(read)[partition]
            groups.append({"partition": partition, "files": names, "file_id": new_file_id(session.env.uuid())})
            chosen += slices
    if not groups:
        return None
    if schema is not None and any(each.logs for each in chosen):
        ordering_of(session.config)
        refuse_types(session, schema, "cluster")
    return {"groups": groups, "slices": by_partition(path for each in chosen for path in each.paths)}


def _joined(slices: list[FileSlice], target: int) -> list[list[FileSlice]]:
    """The smallest first, two or more together."""
    found: list[list[FileSlice]] = []
    size = target
    for each in sorted(slices, key=lambda s: (s.total_size, s.file_id)):
        if size + each.total_size > target:
            found.append([])
            size = 0
        found[-1].append(each)
        size += each.total_size
    return [group for group in found if len(group) > 1]


def run(execution: Execution) -> None:
    """Write the joined files and stage them."""
    workspace = execution.workspace
    execution.report.of(len(execution.content["groups"]))
    for group in execution.content["groups"]:
        slices = slices_of(group["partition"], group["files"])
        with workspace.new_file(group["partition"], file_id=group["file_id"]) as file:
            for each in slices:
                file.write(rows_of(execution, each))
        workspace.drop_file_groups(slices)
        execution.report.add()
