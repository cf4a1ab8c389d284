"""Reads: selects the files and leaves the rest, pruning included, to Spark's own Parquet scan."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from ...arguments import flag
from ...errors import InputError, StorageError
from ...hudi.table import META_COLUMNS
from ...hudi.timeline import FileSlice, Time
from ...occ.scan import Explanation, ScannedFile, seen
from ...occ.session import Partition, chosen_partitions
from ...occ.table import Table
from ..tasks import FILE_COLUMN, ROW_COLUMN
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


def by_place(
    spark: Any, table: Table, slices: Sequence[FileSlice], schema: pa.Schema, condition: Any, more: Sequence[Any] = ()
) -> Any:
    """The rows of `scan` for which a condition is true: not they, but their files and positions, and columns of ``more``."""
    from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

    whole, others = by_reader(spark, table, slices)
    named = None
    if whole:
        found = scan_base_files(spark, table, whole, schema).where(condition)
        place = F.expr("_metadata.file_name").alias(FILE_COLUMN), F.expr("_metadata.row_index").alias(ROW_COLUMN)
        named = found.select(*place, *more)
    if others:
        rows = merged(spark, table, others, schema, named=True).where(condition)
        rows = rows.select(FILE_COLUMN, ROW_COLUMN, *more)
        named = rows if named is None else named.unionAll(rows)
    return named


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


@dataclass(frozen=True)
class Selected:
    """What a read takes of one state: slices, and why it leaves out others; the condition as Spark takes it."""

    schema: pa.Schema
    completion: str | None
    condition: Any
    slices: Sequence[FileSlice]
    pruned: Sequence[ScannedFile]


def selected(
    spark: Any,
    table: Table,
    *,
    condition: Any | None,
    partitions: Iterable[Partition] | None = None,
    as_of: Time | None,
    as_of_completion: Time | None,
    read_optimized: bool,
) -> Selected:
    """The slices of a read; arguments as of `SparkTable.read`."""
    flag(read_optimized, "read_optimized")
    table.config.refuse_reading()
    view, completion = seen(table.session, as_of, as_of_completion)
    schema = view.arrow_schema()
    if schema is None:
        raise InputError(f"{table.url} has no schema yet, because nothing was written to it; write some rows first")
    slices, pruned = view.snapshot.file_slices(), list[ScannedFile]()
    if read_optimized:
        slices = [replace(each, logs=()) for each in slices if each.base is not None]

    def narrow(wanted: Collection[str], why: str) -> None:
        nonlocal slices
        pruned.extend(ScannedFile(_shown(each), False, why) for each in slices if each.partition not in wanted)
        slices = [each for each in slices if each.partition in wanted]

    if partitions is not None:
        chosen = set(chosen_partitions(table.store, table.config, schema, view.snapshot, partitions))
        narrow(chosen, "of no partition that was asked for")
    if condition is not None:
        condition = in_spark(schema, condition)
        wanted = matching_partitions(spark, table.config, schema, view.snapshot.partitions(), condition)
        narrow(wanted, "the condition excludes its partition")
    return Selected(schema, completion, condition, slices, pruned)


def read(spark: Any, table: Table, lease: ScanLease, *, columns: Sequence[str] | None, meta: bool, **which: Any) -> Any:
    """See `SparkTable.read`; ``which`` as of `selected`."""
    found = selected(spark, table, **which)
    full = with_meta(found.schema) if meta else found.schema
    rows = narrowed(spark, table, found.slices, full, found.condition, columns)
    if found.slices:
        lease.hold(rows, found.completion)
    return rows


def explain(spark: Any, table: Table, **which: Any) -> Explanation:
    """See `SparkTable.explain`; ``which`` as of `selected`."""
    found = selected(spark, table, **which)
    whole, others = by_reader(spark, table, found.slices)
    told = [ScannedFile(_shown(each), True, "by Spark's own scan") for each in whole]
    for each in others:
        why = f"with {len(each.logs)} log files" if each.logs else "Spark does not reach the store"
        told.append(ScannedFile(_shown(each), True, f"by a Python worker: {why}"))
    return Explanation((*told, *found.pruned))


def _shown(each: FileSlice) -> str:
    return each.base.path if each.base else each.logs[-1].path


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
