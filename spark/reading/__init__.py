"""Reading as DataFrames: partitions pruned on the driver, files by Spark's own scan, slices with log files merged."""

from ..versions import spark_schema
from . import columns
from .columns import arrow_schema
from .filters import in_spark, one_of, value_in_spark
from .partition_pruning import analysed
from .reads import Reads
