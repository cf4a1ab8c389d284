"""Rows of file slices as DataFrames: by Spark's own Parquet scan, and by Python workers where it cannot read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from ...hudi.timeline import FileSlice
from ...occ.session import missing
from ...occ.table import Table
from ..tasks import FILE_COLUMN, ROW_COLUMN
from ..versions import sequence_of, spark_schema
from .file_systems import reach
from .merged_slices import merged

# Above this number of files Spark starts a job only to list them.
_DISCOVERY = "spark.sql.sources.parallelPartitionDiscovery.threshold"
# Set whatever the session says: a file that is gone or damaged must fail the read, not drop its rows.
# Source: https://spark.apache.org/docs/latest/sql-data-sources-generic-options.html
_COMPLETE = {"ignoreMissingFiles": "false", "ignoreCorruptFiles": "false"}


def rows_of(
    spark: Any,
    table: Table,
    slices: Sequence[FileSlice],
    schema: pa.Schema,
    condition: Any = None,
    columns: Any = None,
) -> Any:
    """Return the rows of slices that meet a condition, and these columns of them; None: all. Columns that a file lacks are null.

    Spark does not push its column pruning down to Python workers, so the columns that neither needs are left out here.

    Raises:
        StorageError: a cleaning has taken a file; Spark would read the others.
        CorruptTableError: another program has.
    """

    def narrow(rows: Any) -> Any:
        rows = rows if condition is None else rows.where(condition)
        return rows if columns is None else rows.select(*([columns] if isinstance(columns, str) else columns))

    whole, others = by_reader(spark, table, slices)
    if not others:
        return narrow(_base_files(spark, table, whole, schema))
    if columns is not None:
        needed = _used(narrow(spark.createDataFrame([], spark_schema(schema))))
        fields = [each for each in schema if each.name.lower() in needed]
        # One at least, to know how many rows there are.
        schema = pa.schema(fields or [schema.field(0)])
    rows = merged(spark, table, others, schema)
    return narrow(rows.unionAll(_base_files(spark, table, whole, schema)) if whole else rows)


def places_of(
    spark: Any, table: Table, slices: Sequence[FileSlice], schema: pa.Schema, condition: Any, more: Sequence[Any] = ()
) -> Any:
    """Return the rows for which a condition is true: their files and positions, and columns of ``more``.

    Raises:
        StorageError: as `rows_of`.
    """
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    whole, others = by_reader(spark, table, slices)
    named = None
    if whole:
        found = _base_files(spark, table, whole, schema).where(condition)
        place = F.expr("_metadata.file_name").alias(FILE_COLUMN), F.expr("_metadata.row_index").alias(ROW_COLUMN)
        named = found.select(*place, *more)
    if others:
        rows = merged(spark, table, others, schema, named=True).where(condition)
        rows = rows.select(FILE_COLUMN, ROW_COLUMN, *more)
        named = rows if named is None else named.unionAll(rows)
    return named


def _used(rows: Any) -> set[str]:
    """Return the columns that the steps of a DataFrame name, in lower case: Spark takes them as they are spelled there."""
    plan, found = rows._jdf.queryExecution().analyzed(), set[str]()
    while True:
        used = plan.references().toSeq()
        found |= {used.apply(i).name().lower() for i in range(used.size())}
        if not plan.children().size():
            return found
        plan = plan.children().apply(0)


def by_reader(spark: Any, table: Table, slices: Sequence[FileSlice]) -> tuple[list[FileSlice], list[FileSlice]]:
    """Return the slices that Spark's own scan reads, and those for Python workers: with log files, or out of Spark's reach."""
    if reach(spark, table.store) is None:
        return [], list(slices)
    return [each for each in slices if not each.logs], [each for each in slices if each.logs]


def _base_files(spark: Any, table: Table, slices: Sequence[FileSlice], schema: pa.Schema) -> Any:
    """Return a DataFrame over the base files of slices that Spark reaches.

    It is the relation that Spark's own reader would make. That reader takes a path with a brace, bracket, star, question
    mark or backslash for a pattern, and reads the files beside it twice.

    Raises:
        StorageError: a cleaning has taken a file; Spark would read the others.
        CorruptTableError: another program has.
    """
    from pyspark.sql import DataFrame

    columns = spark_schema(schema)
    if not slices:
        return spark.createDataFrame([], columns)
    way = reach(spark, table.store)
    assert way is not None, "by_reader tells"
    jvm, session = spark._jvm, spark._jsparkSession
    sources, none = jvm.org.apache.spark.sql.execution.datasources, jvm.scala.Option.empty()
    options = jvm.PythonUtils.toScalaMap({**way.options, **_COMPLETE})
    listing = session
    if len(slices) > int(spark.conf.get(_DISCOVERY)):
        listing = session.cloneSession()  # the user's keeps its own
        listing.conf().set(_DISCOVERY, str(len(slices)))
    text = jvm.org.apache.hadoop.util.StringUtils
    # Text with a separator that is in no path: one call for all of them.
    paths = text.stringToPath(text.getStrings("\0".join(way.uris([s.path for s in slices])), "\0"))
    paths = sequence_of(jvm, paths)
    no_cache = getattr(sources, "NoopCache$").__getattr__("MODULE$")
    files = sources.InMemoryFileIndex(listing, paths, options, none, no_cache, none, none)
    if files.allFiles().size() != len(slices):
        path = next((s.path for s in slices if table.store.head(s.path) is None), slices[0].path)
        raise missing(table.session, path, "this read began")
    kind = jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat()
    struct = session.parseDataType(columns.json()).asNullable()
    no_partitions = jvm.org.apache.spark.sql.types.StructType()
    relation = sources.HadoopFsRelation(files, no_partitions, struct, none, kind, options, session)
    return DataFrame(session.baseRelationToDataFrame(relation), spark)
