"""Clustering: join the small files of a partition, and lay rows out by columns. Executed with Arrow.

A file slice with log files contributes its merged rows. A writer that appends to or rewrites a file group of the plan waits
for the plan or ends it, so no log file is left behind in a replaced file group.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...arguments import number
from ...errors import ConfigError, ConflictError, UnsupportedTableError
from ...hudi.files import new_file_id
from ...hudi.merge import ordering_of
from ...hudi.timeline import FileSlice
from ..check import misplaced
from ..entries import by_partition
from ..log import LogState
from .execution import Part
from .layout import NOTE, Buckets, Layout
from .planned_service import PlannedService, service_operation
from .rewriting import Rewrite, free_slices, refuse_types, slices_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from ...hudi.files import FileGroupId
    from ..entries import FileSizes
    from ..session import Session
    from .execution import Execution

_TOGETHER = 8  # files laid out together, at most: each of them is read once for each new file


@dataclass(frozen=True, slots=True)
class Sizes:
    """File sizes in bytes: files smaller than ``small`` are joined into files of about ``target``."""

    small: int
    target: int

    @classmethod
    def asked(cls, small: int | None, target: int | None, table: FileSizes) -> Sizes:
        """Return the requested sizes. Default: the table's target size; a file below five sixths of it is small."""
        target = _bytes(table.target if target is None else target, "target_bytes")
        return cls(5 * target // 6 or 1 if small is None else small, target)

    def __post_init__(self) -> None:
        for value, name in ((self.small, "small_bytes"), (self.target, "target_bytes")):
            _bytes(value, name)
        if not 0 < self.small <= self.target:
            raise ConfigError(
                f"files below {self.small} bytes cannot be joined to files of {self.target}: the first must be positive "
                "and not the larger one"
            )


def _bytes(value: Any, name: str) -> int:
    return int(number(value, name, least=1, whole=True, error=ConfigError))


def find(
    session: Session,
    state: LogState,
    sizes: Sizes,
    partitions: Iterable[str] | None,
    layout: Layout | None = None,
    but: Collection[FileGroupId] = (),
) -> dict[str, Any] | None:
    """Return the content of a clustering plan on the present table; None if no partition has two small files.

    A layout adds the files that do not have it, of any size; the rows of several are then redistributed. ``but``: file groups
    to leave out.
    """
    if session.settings.bucket_count is not None:
        raise UnsupportedTableError(
            f"{session.url} has a bucket index: a bucket is one file group, so there is nothing to join; `lakelatch services "
            "buckets` (Table.change_buckets) changes their number",
            table=session.url,
        )
    view = session.view()
    schema = view.arrow_schema()
    if layout is not None and schema is not None:
        layout.refuse(schema, session.url)
    chosen: dict[str, list[FileSlice]] = defaultdict(list)
    unsorted = set[FileSlice]()
    for each in free_slices(session, state, view, partitions, but):
        if layout is not None and not _is_laid_out(session, each, layout):
            unsorted.add(each)
        if each.total_size < sizes.small or each in unsorted:
            chosen[each.partition].append(each)
    groups, found = [], list[FileSlice]()
    for partition in sorted(chosen):
        for slices in _joined(chosen[partition], sizes.target if layout is None else _TOGETHER * sizes.target):
            size = sum(each.total_size for each in slices)
            files = 1 if layout is None else max(1, size // sizes.target)
            if files >= len(slices) and unsorted.isdisjoint(slices):
                continue
            ids = [new_file_id(session.env.uuid()) for _ in range(files)]
            names = by_partition(path for each in slices for path in each.paths)[partition]
            group: dict[str, Any] = {"partition": partition, "files": names, "file_id": ids[0], "bytes": size}
            groups.append(group | ({"more_ids": ids[1:]} if files > 1 else {}))
            found += slices
    if not groups:
        return None
    if schema is None:
        raise UnsupportedTableError(
            f"{session.url} has no schema, so that its files cannot be joined here; nothing was planned. Write some rows first",
            table=session.url,
        )
    # Refused before anything is planned, since no execution could merge these log files.
    if any(each.logs for each in found):
        ordering_of(session.config)
        refuse_types(session, schema, "cluster")
    content = {"groups": groups, "slices": by_partition(path for each in found for path in each.paths)}
    return content | ({"layout": layout.said} if layout is not None else {})


def find_buckets(session: Session, state: LogState, count: int) -> dict[str, Any] | None:
    """Return the content of a plan that lays the rows of the table out in so many buckets; None if they are.

    Partition by partition, so that one that is in buckets already is left alone. A table with another number of buckets has the
    new one by the plan's commit itself, which nothing may have landed beside. One with a simple index finds its rows in any
    files, and stays so until its setting is changed: layouts land beside writers.

    Raises:
        ConflictError: another plan takes some of the files.
    """
    view, had = session.view(), state.settings.bucket_count
    schema = view.arrow_schema()
    groups, found, free = [], list[FileSlice](), set(free_slices(session, state, view, None))
    for partition, slices in out_of_buckets(session, view.snapshot.file_slices(), count):
        if taken := [each for each in slices if each not in free]:
            raise ConflictError.without_winner(
                f"{session.url}: a pending plan of a table service takes {taken[0].group}, which has to be laid out in buckets. "
                "Nothing was planned; execute or cancel that plan (`lakelatch services`), then try again",
                table=session.url,
                instant="",
                overlap=(str(taken[0].group),),
                rule="a file group is in one pending plan",
            )
        ids = [new_file_id(session.env.uuid(), bucket=number) for number in range(count)]
        names = by_partition(path for each in slices for path in each.paths)[partition]
        size = sum(each.total_size for each in slices)
        groups.append({"partition": partition, "files": names, "file_id": ids[0], "bytes": size, "more_ids": ids[1:]})
        found += slices
    if not groups:
        return None
    assert schema is not None, "files have columns"
    refuse_types(session, schema, "cluster")
    content = {"groups": groups, "slices": by_partition(path for each in found for path in each.paths)}
    content["layout"] = Buckets(session.config.record_key_fields).said
    return content | ({} if had is None else {"bucket_count": {"from": had, "to": count}})


def out_of_buckets(session: Session, slices: Iterable[FileSlice], count: int) -> Iterator[tuple[str, list[FileSlice]]]:
    """Yield the partitions whose rows are not in so many buckets, with their slices. Reads keys."""
    chosen = defaultdict[str, list[FileSlice]](list)
    for each in slices:
        chosen[each.partition].append(each)
    for partition, some in sorted(chosen.items()):
        if any(misplaced(session.store, session.config, some, count)):
            yield partition, some


def _is_laid_out(session: Session, slice_: FileSlice, layout: Layout) -> bool:
    """Return whether the file's footer names this layout; a later rewrite of the file drops the note."""
    if slice_.logs:
        return False
    said = (session.footers.of(slice_.path, slice_.size).metadata or {}).get(NOTE.encode())
    try:
        return said is not None and bool(json.loads(said) == layout.said)
    except (ValueError, RecursionError):  # a note of another writer
        return False


def _joined(slices: list[FileSlice], most: int) -> list[list[FileSlice]]:
    """Return groups of slices of at most ``most`` bytes each, filled from the smallest slice on."""
    found: list[list[FileSlice]] = []
    size = 0
    for each in sorted(slices, key=lambda s: (s.total_size, s.file_id)):
        if not found or size + each.total_size > most:
            found.append([])
            size = 0
        found[-1].append(each)
        size += each.total_size
    return found


def _layout(execution: Execution) -> Layout | Buckets | None:
    """Return the layout of the plan. Raises `UnsupportedTableError` if the table has got other buckets since it was planned."""
    session, said = execution.session, execution.content.get("layout")
    if session.settings.bucket_count != execution.content.get("bucket_count", {}).get("from"):
        raise UnsupportedTableError(
            f"{session.url} has other buckets since clustering {execution.instant} was planned, which would move rows out of "
            f"their buckets. Nothing was written; `lakelatch services cancel {session.url} {execution.instant}`",
            table=session.url,
        )
    return Buckets(tuple(said["by"])) if said and said.get("buckets") else Layout.planned(execution.content)


def run(execution: Execution) -> None:
    """Write the joined files and stage them."""
    spec, layout = execution.file_spec(), _layout(execution)
    parts, gone = list[Part](), list[FileSlice]()
    for group in execution.content["groups"]:
        partition, slices = group["partition"], slices_of(group["partition"], group["files"])
        ids = [group["file_id"], *group.get("more_ids", ())]
        for place, file_id in enumerate(ids):
            share, size = (place, len(ids)), group.get("bytes")
            parts.append(Rewrite(spec, partition, file_id, tuple(slices), bytes=size, layout=layout, share=share))
        gone += slices
    if "bucket_count" in execution.content:  # rows that have come meanwhile lie in the old buckets
        execution.workspace.changes.depends_on(None)
    execution.carry_out(parts)
    execution.workspace.drop_file_groups(gone)


SERVICE = PlannedService("cluster", service_operation("clustering", "CLUSTER"), run)
