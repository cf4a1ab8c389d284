"""Rows of file slices with log files, which Spark's own Parquet scan does not merge: a slice at a time, in Python workers."""

from __future__ import annotations

import heapq
import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from ...hudi.merge import ordering_of, widened
from ...hudi.table import TableConfig
from ...hudi.timeline import FileSlice
from ...occ.table import Table
from ...storage import Store
from ...streams import Stream, slice_rows
from ..shipping import shipped
from ..tasks import FILE_COLUMN, ROW_COLUMN, name_of
from ..versions import frame_of, spark_schema

_BATCH_ROWS = 64 << 10
# A Python task costs some 0.1 s of a core besides its work, so there are several for a core only where they have work.
_TASK_BYTES = 32 << 20
_TASKS_PER_CORE = 4


@dataclass
class MergeSlices:
    """A function for ``mapInArrow``: pickled slices become their rows. Memory is one slice.

    With ``named`` each row has its slice and its position there, as `RemoveTask` takes them.
    """

    store: Store
    config: TableConfig
    schema: pa.Schema
    named: bool = False
    streams: tuple[Stream, ...] = ()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all slices, in their order."""
        for batch in batches:
            for packed in batch.column(0).to_pylist():
                group: FileSlice = pickle.loads(packed)  # noqa: S301 - written by our own driver
                columns, in_place = self.schema.names, self.named
                rows = slice_rows(
                    self.store, self.config, self.streams, group, columns=columns, meta=False, in_place=in_place
                )
                rows = widened(rows.select([n for n in rows.column_names if n in self.schema.names]), self.schema)
                if self.named:
                    rows = rows.append_column(FILE_COLUMN, pa.repeat(pa.scalar(name_of(group)), rows.num_rows))
                    rows = rows.append_column(ROW_COLUMN, pa.array(np.arange(rows.num_rows, dtype=np.int64)))
                yield from rows.to_batches(max_chunksize=_BATCH_ROWS)


def merged(spark: Any, table: Table, slices: Sequence[FileSlice], schema: pa.Schema, *, named: bool = False) -> Any:
    """Return a DataFrame over slices with log files. Nothing is read until it is evaluated.

    Raises:
        UnsupportedTableError: the table's merge rules are unknown to this library.
    """
    ordering_of(table.config)
    # A chunk of the column is a partition of the DataFrame, so that nothing has to be shuffled.
    chunks = [
        [pickle.dumps(each) for each in some] for some in dealt(slices, int(spark.sparkContext.defaultParallelism))
    ]
    packed = pa.table({"slice": pa.chunked_array(chunks, pa.binary())})
    columns = [*schema, *([pa.field(FILE_COLUMN, pa.string()), pa.field(ROW_COLUMN, pa.int64())] if named else [])]
    task = MergeSlices(table.store, table.config, schema, named=named, streams=table.streams)
    return frame_of(spark, packed).mapInArrow(shipped(task), spark_schema(pa.schema(columns)))


def dealt(slices: Sequence[FileSlice], cores: int) -> list[list[FileSlice]]:
    """Deal slices to tasks: the largest first, each to the task that has the fewest bytes.

    As many tasks as cores, and more where each has enough to do, so that a slow one holds up little.
    """
    sizes = [max(1, (each.base.size if each.base else 0) + sum(log.size for log in each.logs)) for each in slices]
    count = max(cores, min(cores * _TASKS_PER_CORE, sum(sizes) // _TASK_BYTES))
    tasks: list[tuple[int, int, list[FileSlice]]] = [(0, number, []) for number in range(min(count, len(slices)))]
    for size, _, each in sorted(zip(sizes, range(len(slices)), slices, strict=True), reverse=True):
        total, number, some = tasks[0]
        some.append(each)
        heapq.heapreplace(tasks, (total + size, number, some))
    return [some for _total, _number, some in sorted(tasks, key=lambda task: task[1])]
