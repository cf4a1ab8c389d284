"""Reads: selects the files and leaves the rest, pruning included, to Spark's own Parquet scan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from ...errors import InputError, StorageError
from ...hudi.table import META_COLUMNS
from ...hudi.timeline import FileSlice, Time
from ...occ.scan import seen
from ...occ.session import Partition, chosen_partitions
from ...occ.table import Table
from .columns import spark_schema
from .file_systems import reach
from .filters import in_spark
from .leases import ScanLease
from .merged_slices import merged
from .partition_pruning import matching_partitions

COMMIT_TIME = META_COLUMNS[0]
# Above this number of files Spark starts a job only to look for them.
_DISCOVERY = "spark.sql.sources.parallelPartitionDiscovery.threshold"


def scan(spark: Any, table: Table, slices: Sequence[FileSlice], schema: pa.Schema) -> Any:
    """Return a DataFrame over file slices; columns that a file lacks are null.

    Raises:
        StorageError: a file is not there; Spark would read the others.
    """
    return narrowed(spark, table, slices, schema, None, None)


def narrowed(
    spark: Any, table: Table, slices: Sequence[FileSlice], schema: pa.Schema, condition: Any, columns: Any
) -> Any:
    """The rows of `scan` that meet a condition, and columns of them; None: all.

    Spark does not tell Python workers what it wants, so these are told here which columns neither needs.
    """

    def narrow(rows: Any) -> Any:
        rows = rows if condition is None else rows.where(condition)
        return rows if columns is None else rows.select(*([columns] if isinstance(columns, str) else columns))

    whole, others = by_reader(spark, table, slices)
    if not others:
        return narrow(scan_base_files(spark, table, whole, schema))
    if columns is not None and not whole:
        needed = _used(narrow(spark.createDataFrame([], spark_schema(schema))))
        fields = [each for each in schema if each.name.lower() in needed]
        schema = pa.schema(fields or [schema.field(0)])  # one at least, to know how many rows there are
    rows = merged(spark, table, others, schema)
    return narrow(rows.unionAll(scan_base_files(spark, table, whole, schema)) if whole else rows)


def _used(rows: Any) -> set[str]:
    """The columns that the steps of a DataFrame name, in lower case: Spark takes them as they are spelled there."""
    plan, found = rows._jdf.queryExecution().analyzed(), set[str]()
    while True:
        used = plan.references().toSeq()
        found |= {used.apply(i).name().lower() for i in range(used.size())}
        if not plan.children().size():
            return found
        plan = plan.children().apply(0)


def by_reader(spark: Any, table: Table, slices: Sequence[FileSlice]) -> tuple[list[FileSlice], list[FileSlice]]:
    """Return the slices that Spark's own scan reads, and those that Python workers read: with log files, or out of its reach."""
    if reach(spark, table.store) is None:
        return [], list(slices)
    return [each for each in slices if not each.logs], [each for each in slices if each.logs]


def scan_base_files(spark: Any, table: Table, slices: Sequence[FileSlice], schema: pa.Schema) -> Any:
    """Return a DataFrame over the base files of slices that Spark reaches; columns that a file lacks are null.

    It is the relation that Spark's own reader would make. That one takes a path with a brace, bracket, star, question
    mark or backslash for a pattern, and reads the files beside it twice.

    Raises:
        StorageError: a file is not there; Spark would read the others.
    """
    from pyspark.sql import DataFrame

    columns = spark_schema(schema)
    if not slices:
        return spark.createDataFrame([], columns)
    way = reach(spark, table.store)
    assert way is not None, "by_reader tells"
    jvm, session = spark._jvm, spark._jsparkSession
    sources, none = jvm.org.apache.spark.sql.execution.datasources, jvm.scala.Option.empty()
    options = jvm.PythonUtils.toScalaMap(way.options)
    listing = session
    if len(slices) > int(spark.conf.get(_DISCOVERY)):
        listing = session.cloneSession()  # the user's keeps its own
        listing.conf().set(_DISCOVERY, str(len(slices)))
    text = jvm.org.apache.hadoop.util.StringUtils
    # Text with a separator that is in no path: one call for all of them.
    paths = text.stringToPath(text.getStrings("\0".join(way.uris([s.path for s in slices])), "\0"))
    paths = jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(paths)
    no_cache = getattr(sources, "NoopCache$").__getattr__("MODULE$")
    files = sources.InMemoryFileIndex(listing, paths, options, none, no_cache, none, none)
    if files.allFiles().size() != len(slices):
        raise _gone(table, slices)
    kind = jvm.org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat()
    struct = session.parseDataType(columns.json()).asNullable()
    no_partitions = jvm.org.apache.spark.sql.types.StructType()
    relation = sources.HadoopFsRelation(files, no_partitions, struct, none, kind, options, session)
    return DataFrame(session.baseRelationToDataFrame(relation), spark)


def _gone(table: Table, slices: Sequence[FileSlice]) -> StorageError:
    missing = next((s.path for s in slices if table.store.head(s.path) is None), slices[0].path)
    return StorageError(
        f"{missing} of {table.url} is not there; if a cleaning has taken it meanwhile, read again (or keep more with "
        "retain_hours), else `lakelatch check` says what is missing",
        path=missing,
        table=table.url,
    )


def with_meta(schema: pa.Schema) -> pa.Schema:
    """The data columns with Hudi's meta columns in front."""
    return pa.schema([*(pa.field(n, pa.string()) for n in META_COLUMNS), *schema])


def read(
    spark: Any,
    table: Table,
    lease: ScanLease,
    *,
    columns: Sequence[str] | None,
    condition: Any | None,
    partitions: Iterable[Partition] | None = None,
    as_of: Time | None,
    as_of_completion: Time | None,
    meta: bool,
) -> Any:
    """See `SparkTable.read`."""
    table.config.refuse_reading()
    view, completion = seen(table.session, as_of, as_of_completion)
    schema = view.arrow_schema()
    if schema is None:
        raise InputError(f"{table.url} has no schema yet, because nothing was written to it; write some rows first")
    full = with_meta(schema) if meta else schema
    slices = view.snapshot.file_slices()
    if partitions is not None:
        chosen = set(chosen_partitions(table.store, table.config, schema, view.snapshot, partitions))
        slices = [s for s in slices if s.partition in chosen]
    if condition is not None:
        condition = in_spark(schema, condition)
        wanted = matching_partitions(spark, table.config, schema, view.snapshot.partitions(), condition)
        slices = [s for s in slices if s.partition in wanted]
    rows = narrowed(spark, table, slices, full, condition, columns)
    if slices:
        lease.hold(rows, completion)
    return rows


def read_incremental(
    spark: Any, table: Table, lease: ScanLease, *, after: Time | None, until: Time | None, meta: bool
) -> Any:
    """See `SparkTable.read_incremental`."""
    table.config.refuse_reading()
    commits = table.commits(after=after, until=until)
    view, completion = seen(table.session, None, until)
    schema = view.arrow_schema()
    if schema is None:
        raise InputError(f"{table.url} has no schema yet, because nothing was written to it; write some rows first")
    groups = {(stat.partition, stat.file_id) for _, commit in commits for stat in commit.stats}
    slices = [s for s in view.snapshot.file_slices() if tuple(s.group) in groups]
    rows = scan(spark, table, slices, with_meta(schema))
    if slices:
        lease.hold(rows, completion)
    rows = rows.where(_in(COMMIT_TIME, [i.requested for i, _ in commits]))
    return rows if meta else rows.select(*schema.names)


def _in(column: str, values: Sequence[str]) -> Any:
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    return F.col(column).isin(list(values))
