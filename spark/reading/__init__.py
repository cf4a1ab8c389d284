"""Reading as DataFrames: partitions pruned on the driver, files by Spark's own scan, slices with log files merged."""

from . import columns, read
from .columns import arrow_schema, spark_schema
from .filters import comparisons, in_spark, one_of, value_in_spark
from .leases import ScanLease
from .partition_pruning import analysed, matching_partitions, pinned_partitions
from .read import by_place, by_reader, narrowed, scan, with_meta

__all__ = [
    "ScanLease",
    "analysed",
    "arrow_schema",
    "by_place",
    "by_reader",
    "columns",
    "comparisons",
    "in_spark",
    "matching_partitions",
    "narrowed",
    "one_of",
    "pinned_partitions",
    "read",
    "scan",
    "spark_schema",
    "value_in_spark",
    "with_meta",
]
