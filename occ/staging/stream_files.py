"""Write events of a stream into log files, one for each file group that they belong to. The table is not read.

An overwrite reads the file groups of its partitions, and writes their rows into new ones: one for each bucket that had one, if
no row is left too, because the id that all writers derive is used once.

All writers derive the same id for the first file of a bucket, so two that begin it at once write one file group.

Source of that id: Apache Hudi, ``BucketIdentifier.newBucketFileIdForNBCC``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import CorruptTableError
from ...hudi.files import FileGroupId, bucket_of, new_file_id
from ...hudi.merge import widened
from ...hudi.table import META_COLUMNS, RECORD_KEY
from ...hudi.timeline import FileSlice, WriteStat
from ...streams import (
    DELETED,
    IGNORE,
    RETRACTED,
    UPSERT,
    BlockNote,
    Overwrite,
    Stream,
    floors_to_footer,
    gross_of,
    keep_within_range,
    stitched,
    to_write,
)
from .apply_rows import TaskFiles
from .base_file import BaseFileWriter
from .file_spec import FileSpec, token
from .selection import placed

_SAME_FOR_ALL = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class StreamPlan:
    """The input that all tasks of one write of events share; ``kind`` is one of `BlockNote`.

    ``required``: columns of the table declared not null.
    """

    spec: FileSpec
    stream: Stream
    kind: str = UPSERT
    slices: Mapping[str, tuple[FileSlice, ...]] = field(default_factory=dict)
    required: tuple[str, ...] = ()

    @property
    def idle(self) -> bool:
        """True if the stream's declaration makes these events no-ops."""
        return self.kind not in (UPSERT, RETRACTED) and self.stream.on_delete == IGNORE

    @property
    def note(self) -> BlockNote:
        """The note in each block's footer."""
        columns = (self.stream.event_id,) if self.kind == RETRACTED else self.stream.columns
        return BlockNote(self.stream.name, self.kind, columns, self.stream.null)


def append_events(plan: StreamPlan, rows: pa.Table, files: TaskFiles) -> None:
    """Append a log file to each file group that the rows touch; ``files.stats()`` publishes them.

    Args:
        rows: key and partition columns, the ordering column, and of an upsert all columns of the stream.
    """
    for partition, bucket, unit in placed(plan.spec, rows):
        assert isinstance(bucket, int), "streams have a bucket index"
        events, group = to_write(unit, plan.stream, plan.kind), _onto(plan, partition, bucket)
        gone = events.column(RECORD_KEY).to_pylist() if plan.kind == DELETED else ()
        if plan.kind == UPSERT and plan.stream.merge:
            read = partial(_totals, plan, group, pc.unique(events.column(RECORD_KEY)))
            keep_within_range(plan.stream, events, partial(_largest, plan, group), read)
        files.append(group, events, gone, note=plan.note.to_footer())


def replace_events(plan: StreamPlan, rows: pa.Table, *, rest: bool = True) -> list[WriteStat]:
    """Write a new file group for each of the plan's slices and each bucket that these events begin; return their statistics.

    They have the rows of the slices with the events in place of all that their stream has said. ``rest``: also for slices that no
    event belongs to.
    """
    spec, stream, config = plan.spec, plan.stream, plan.spec.config
    identity, stats = (*config.record_key_fields, *config.partition_fields), []
    none = spec.schema.empty_table().select(list(dict.fromkeys((*identity, *stream.ordered_by, *stream.columns))))
    none = none.append_column(RECORD_KEY, pa.array([], pa.string()))
    slices = [each for some in plan.slices.values() for each in some] if rest else []
    units = {(each.partition, bucket_of(each.file_id)): none for each in slices}
    for partition, bucket, unit in placed(spec, rows):
        assert isinstance(bucket, int), "streams have a bucket index"
        units[partition, bucket] = unit
    for (partition, bucket), unit in units.items():
        assert bucket is not None, "streams have a bucket index"
        events, group = to_write(unit, stream, UPSERT), _onto(plan, partition, bucket)
        keep_within_range(stream, events, lambda _: 0, lambda _: {})
        instead = Overwrite(stream, events, spec.schema, identity)
        made = stitched(spec.store, spec.streams, group, strict=True, instead=instead)
        stats.append(write_bucket(spec, group, made.rows, floors_to_footer(made.floors)))
    return stats


def write_bucket(spec: FileSpec, old: FileSlice, rows: pa.Table, note: Mapping[str, str]) -> WriteStat:
    """Write these rows into a new file group in place of an old one of the same bucket; ``note`` is for its footer."""
    bucket = bucket_of(old.file_id)
    assert bucket is not None, "streams have a bucket index"
    file_id = spec.group_id(old.partition, 0, bucket, bucket=bucket)
    with BaseFileWriter(spec, partition=old.partition, file_id=file_id, token=token(0)) as writer:
        writer.note(note)
        writer.write(widened(rows, pa.schema([*((name, pa.string()) for name in META_COLUMNS), *spec.schema])))
    assert writer.stat is not None
    return writer.stat


def _largest(plan: StreamPlan, group: FileSlice, column: str) -> Any:
    """Return the largest absolute value in a column of the base file, by its footer; None if that does not tell."""
    # A total of kept events may become any part of them.
    if group.base is None or plan.stream.event_id:
        return 0
    footer = plan.spec.footers.of(group.base.path, group.base.size)
    names = [footer.schema.column(n).path for n in range(footer.num_columns)]
    if column not in names:
        return 0
    at, found = names.index(column), [0]
    for each in (footer.row_group(n) for n in range(footer.num_row_groups)):
        statistics = each.column(at).statistics
        if statistics is None or (not statistics.has_min_max and statistics.null_count != each.num_rows):
            return None
        found += [abs(statistics.min), abs(statistics.max)] if statistics.has_min_max else []
    return max(found)


def _totals(plan: StreamPlan, group: FileSlice, keys: pa.Array, column: str) -> Mapping[str, Any]:
    """Return the present values of a column by record key, of these keys; of kept events `gross_of`."""
    spec, stream = plan.spec, plan.stream
    if group.base is None and not group.logs:
        return {}
    rows = stitched(spec.store, spec.streams, group, columns=[stream.events or column], meta=False).rows
    if stream.event_id:
        return gross_of(stream, rows, column, set(keys.to_pylist()), RECORD_KEY)
    if column not in rows.column_names:
        return {}
    rows = rows.filter(pc.is_in(rows.column(RECORD_KEY), value_set=keys))
    return dict(zip(rows.column(RECORD_KEY).to_pylist(), rows.column(column).to_pylist(), strict=True))


def _onto(plan: StreamPlan, partition: str, bucket: int) -> FileSlice:
    found = [each for each in plan.slices.get(partition, ()) if bucket_of(each.file_id) == bucket]
    if len(found) > 1:
        raise CorruptTableError(
            f"bucket {bucket} of partition {partition!r} has {len(found)} file groups "
            f"({', '.join(each.file_id for each in found)}), so its keys are not unique; was the table always written with "
            f"{plan.spec.bucket_count} buckets?",
            partition=partition,
            bucket=bucket,
        )
    return found[0] if found else FileSlice(FileGroupId(partition, new_file_id(_SAME_FOR_ALL, bucket=bucket)), None)
