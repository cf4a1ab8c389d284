"""Clustering: the small files of a partition become few. For tables that one process can read; executed with Arrow.

Rows keep their meta columns, so an incremental reader does not see them again.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...arguments import number
from ...errors import ConfigError, UnsupportedTableError
from ...hudi.files import BaseFile, join, new_file_id
from ...hudi.timeline import FileSlice
from ..log import LogState, by_partition, groups_of, held

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def find(session: Session, state: LogState, sizes: Sizes, partitions: Iterable[str] | None) -> dict[str, Any] | None:
    """The content of a clustering plan on the table as it is; None when there are not two small files together."""
    if session.settings.bucket_count is not None:
        raise UnsupportedTableError(
            f"{session.url} has a bucket index: a bucket is one file group, so there is nothing to join; change the number "
            "of buckets by writing the table anew",
            table=session.url,
        )
    taken = {g for begin in list(state.open.values()) if begin.plan for g in groups_of(held(session.store, begin.plan))}
    wanted = None if partitions is None else set(partitions)
    small: dict[str, list[FileSlice]] = defaultdict(list)
    for each in session.snapshot().file_slices():
        joinable = each.base is not None and not each.logs and each.group not in taken and each.size < sizes.small
        if joinable and (wanted is None or each.partition in wanted):
            small[each.partition].append(each)
    groups, paths = [], []
    for partition in sorted(small):
        for slices in _joined(small[partition], sizes.target):
            read = sorted(each.path for each in slices)
            names = [path.rpartition("/")[2] for path in read]
            groups.append({"partition": partition, "files": names, "file_id": new_file_id(session.env.uuid())})
            paths += read
    return {"groups": groups, "slices": by_partition(paths)} if groups else None


def _joined(slices: list[FileSlice], target: int) -> list[list[FileSlice]]:
    """The smallest first, two or more together."""
    found: list[list[FileSlice]] = []
    size = target
    for each in sorted(slices, key=lambda s: (s.size, s.path)):
        if size + each.size > target:
            found.append([])
            size = 0
        found[-1].append(each)
        size += each.size
    return [group for group in found if len(group) > 1]


def run(execution: Execution) -> None:
    """Write the joined files and stage them."""
    workspace = execution.workspace
    for group in execution.content["groups"]:
        partition = group["partition"]
        slices = []
        with workspace.new_file(partition, file_id=group["file_id"]) as file:
            for name in group["files"]:
                base = BaseFile.at(join(partition, name), 0)
                assert base is not None
                slices.append(FileSlice(base.group, base))
                file.write(workspace.read_slice(slices[-1], meta=True))
        workspace.drop_file_groups(slices)
