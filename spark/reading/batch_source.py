"""``spark.read.format("lakelatch")``: planned once, in one of Spark's processes, and read by its tasks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import datasource as api

from ...occ.scan import ScanPart
from .source_options import PART_BYTES, Asked, as_spark_takes_them, refuse_other


@dataclass
class Part(api.InputPartition):  # type: ignore[misc]
    """The input of one task."""

    scan: ScanPart


class BatchReader(api.DataSourceReader):  # type: ignore[misc]
    """A reader of one state: that of the time when Spark first plans a query of the DataFrame.

    It takes no conditions from Spark (``pushFilters``): Spark 4.3 keeps the reader of a DataFrame from one query to the
    next, and with it the conditions that the first pushed down, so the next would lose rows. Use the option ``where``.
    """

    def __init__(self, asked: Asked, schema: pa.Schema) -> None:
        self._asked, self._schema = asked, schema

    def partitions(self) -> list[Part]:
        """Return one part for each task: some file slices of the current state."""
        asked = self._asked
        with asked.opened() as table:
            refuse_other(self._schema, asked.schema(table), table.url)
            scan = table.read(
                columns=self._schema.names,
                where=asked.where,
                as_of=asked.as_of,
                as_of_completion=asked.as_of_completion,
                read_optimized=asked.read_optimized,
            )
            return [Part(each) for each in scan.parts(PART_BYTES)]

    def read(self, partition: api.InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a part, in a worker. Memory is that of `ScanPart.to_batches`."""
        if not isinstance(partition, Part):  # Spark's own, where there is none
            return iter(())
        return as_spark_takes_them(partition.scan.to_batches(), self._schema)
