"""Reads: which files hold the rows is decided here, the rest is Spark's own Parquet scan, pruning included."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ..errors import InputError
from ..occ.schema import META_COLUMNS
from ..occ.snapshot import FileSlice
from ..occ.table import Table
from ..occ.times import Time
from .columns import spark_schema
from .prune import matching_partitions

COMMIT_TIME = META_COLUMNS[0]
# Above this number of files Spark starts a job only to look whether they exist.
_DISCOVERY = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def prepare_session(spark: Any) -> None:
    """Settings of the session that nobody chose, and that cost much where they stand."""
    if spark.conf.get(_DISCOVERY) == "32":
        spark.conf.set(_DISCOVERY, "100000")
    if spark.conf.get(_BATCH_ROWS) == "10000":
        spark.conf.set(_BATCH_ROWS, "65536")


def scan(spark: Any, table: Table, slices: Sequence[FileSlice], schema: pa.Schema) -> Any:
    """A DataFrame over base files; columns that a file does not have yet are null."""
    columns = spark_schema(schema)
    if not slices:
        return spark.createDataFrame([], columns)
    paths = [table.store.uri(s.path) for s in slices]
    # The schema is given, so no footer is read here; a partition value may look like a glob.
    return spark.read.schema(columns).option("__globPaths__", "false").parquet(*paths)


def with_meta(schema: pa.Schema) -> pa.Schema:
    """The data columns with Hudi's meta columns in front."""
    return pa.schema([*(pa.field(n, pa.string()) for n in META_COLUMNS), *schema])


def read(
    spark: Any,
    table: Table,
    *,
    columns: Sequence[str] | None,
    condition: Any | None,
    as_of: Time | None,
    as_of_completion: Time | None,
    meta: bool,
) -> Any:
    """See `SparkTable.read`."""
    table.config.refuse_scanning()
    view = table.view(as_of=as_of, as_of_completion=as_of_completion)
    schema = view.arrow_schema()
    if schema is None:
        raise InputError(f"{table.url} has no schema yet, because nothing was written to it; write some rows first")
    full = with_meta(schema) if meta else schema
    slices = view.snapshot.file_groups()
    if condition is not None:
        wanted = matching_partitions(spark, table.config, schema, view.snapshot.partitions(), condition)
        slices = [s for s in slices if s.partition in wanted]
    rows = scan(spark, table, slices, full)
    if condition is not None:
        rows = rows.where(condition)
    if columns is None:
        return rows
    return rows.select(*([columns] if isinstance(columns, str) else columns))


def read_incremental(spark: Any, table: Table, *, after: Time | None, until: Time | None, meta: bool) -> Any:
    """See `SparkTable.read_incremental`."""
    table.config.refuse_scanning()
    commits = table.commits(after=after, until=until)
    view = table.view(as_of_completion=until)
    schema = view.arrow_schema()
    if schema is None:
        raise InputError(f"{table.url} has no schema yet, because nothing was written to it; write some rows first")
    groups = {(stat.partition, stat.file_id) for _, commit in commits for stat in commit.stats}
    slices = [s for s in view.snapshot.file_groups() if tuple(s.group) in groups]
    rows = scan(spark, table, slices, with_meta(schema)).where(_in(COMMIT_TIME, [i.requested for i, _ in commits]))
    return rows if meta else rows.select(*schema.names)


def _in(column: str, values: Sequence[str]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    return F.col(column).isin(list(values))
