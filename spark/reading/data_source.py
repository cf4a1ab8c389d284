"""``spark.read.format("lakelatch")`` and ``spark.readStream.format("lakelatch")``: a table as a data source in Python.

Spark plans a read in a separate Python process, not in the driver's, and keeps nothing of it. So these reads have no
reader's lease, and a table is opened by its URL alone, with the credentials of the environment. Tasks get Arrow batches.

Source: `pyspark.sql.datasource` of PySpark 4.0 to 4.3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import datasource as api

from ...errors import InputError
from ..versions import spark_schema
from .batch_source import BatchReader
from .source_options import NAME, Asked, in_arrow
from .stream_source import StreamReader

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def register(spark: Any) -> None:
    """Make the format ``lakelatch`` known to a session."""
    spark.dataSource.register(LakeLatchSource)


class LakeLatchSource(api.DataSource):  # type: ignore[misc]
    """The format ``lakelatch``; `lakelatch.spark.register` makes it known to a session.

    Options of a read, as of `Table.read`: ``as_of``, ``as_of_completion``, ``read_optimized``, ``where`` and ``columns``
    (``"a,b"``). Of a stream: ``columns``, ``change_feed``; ``starting``: ``earliest``, ``latest``, or a completion time
    after which it begins.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format``."""
        return NAME

    def schema(self) -> StructType:
        """Return the columns of the rows. With options of a stream they are those of a change feed or of changes."""
        asked = Asked.of(self.options, streams=None)
        with asked.opened() as table:
            return spark_schema(asked.schema(table))

    def reader(self, schema: StructType) -> api.DataSourceReader:
        """Return the reader for ``spark.read``."""
        return BatchReader(Asked.of(self.options, streams=False), in_arrow(schema))

    def streamReader(self, schema: StructType) -> api.DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader for ``spark.readStream``."""
        return StreamReader(Asked.of(self.options, streams=True), in_arrow(schema))

    def writer(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: ARG002 - Spark's
        """Refuse: this format only reads."""
        raise InputError(
            f'df.write.format("{NAME}") cannot write: Spark asks neither which rows belong to one file nor who holds the '
            "transaction. Nothing was written; use lakelatch.spark.open(spark, url).upsert(df), or insert, merge, overwrite"
        )

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:  # noqa: N802, ARG002 - Spark's
        """Refuse: this format only reads."""
        raise InputError(
            f'df.writeStream.format("{NAME}") cannot write each batch once; nothing was written. Use '
            'df.writeStream.foreachBatch(lakelatch.spark.open(spark, url).sink("upsert"))'
        )
