"""PySpark: write and read one table from many jobs at once.

    table = lakelatch.spark.open(spark, "file:///data/flights")
    table.upsert(df)
    table.read(filter="origin = 'JFK'").groupBy("carrier").count().show()

Each write is one transaction, run again by itself when it loses against another writer. The driver holds the
transaction; Spark's Python workers write the data files with Arrow; reads are plain DataFrames on Spark's own scan.
"""

from .table import SparkTable, open  # noqa: A004 - lakelatch.spark.open, as lakelatch.open
from .write import WriteResult

__all__ = ["SparkTable", "WriteResult", "open"]

if __name__ != "lakelatch.spark":
    raise ImportError(
        "import lakelatch.spark, not the folder: a second copy of every class would not be equal to the first"
    )
