"""Reading as DataFrames: partitions pruned on the driver, files by Spark's own scan, slices with log files merged."""

from . import columns
from .columns import arrow_schema, spark_schema
from .filters import in_spark, one_of, value_in_spark
from .partition_pruning import analysed
from .reads import Reads

__all__ = [
    "Reads",
    "analysed",
    "arrow_schema",
    "columns",
    "in_spark",
    "one_of",
    "spark_schema",
    "value_in_spark",
]
