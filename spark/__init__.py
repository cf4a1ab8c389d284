"""PySpark: write and read one table from many jobs at once.

    table = lakelatch.spark.open(spark, "file:///data/flights")
    table.upsert(df)
    table.read(filter="origin = 'JFK'").groupBy("carrier").count().show()

    lakelatch.spark.register(spark)
    spark.readStream.format("lakelatch").load("file:///data/flights")

Each write is one transaction, run again by itself when it loses against another writer. The driver holds the
transaction; Spark's Python workers write the data files with Arrow; reads are plain DataFrames on Spark's own scan.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..occ.transaction import WriteResult
    from .joined import join, top_n_per_key
    from .statements import sql
    from .table import SparkTable, create, open, register  # noqa: A004 - lakelatch.spark.open, as lakelatch.open
    from .transaction import SparkTransaction
    from .writing import JobSizes, SparkStream

__all__ = [
    "JobSizes",
    "SparkStream",
    "SparkTable",
    "SparkTransaction",
    "WriteResult",
    "create",
    "join",
    "open",
    "register",
    "sql",
    "top_n_per_key",
]

# Imported when first used: a worker needs only the modules that write files.
_LAZY = {
    "JobSizes": ".writing",
    "SparkStream": ".writing",
    "SparkTable": ".table",
    "SparkTransaction": ".transaction",
    "WriteResult": "..occ.transaction",
    "create": ".table",
    "join": ".joined",
    "open": ".table",
    "register": ".table",
    "sql": ".statements",
    "top_n_per_key": ".joined",
}

if __name__ != "lakelatch.spark":
    raise ImportError(
        "import lakelatch.spark, not the folder: a second copy of every class would not be equal to the first"
    )


if not TYPE_CHECKING:  # to a type checker it would make every name one of this module's

    def __getattr__(name: str) -> Any:
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_LAZY[name], __name__), name)


def __dir__() -> list[str]:
    return list(__all__)
