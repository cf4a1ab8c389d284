"""The calls that differ between PySpark 3.5 and 4; all other code is the same for both."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyspark

IS_4 = int(pyspark.__version__.partition(".")[0]) > 3


def spark_schema(schema: pa.Schema) -> Any:
    """Return the Spark schema of a table's Arrow schema."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=False)


def to_arrow(frame: Any) -> pa.Table:
    """Collect a DataFrame; its times are in UTC."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    schema, batches = to_arrow_schema(frame.schema), frame._collect_as_arrow()
    # Its times have the zone of the session, which the same moments are moved out of.
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def frame_of(spark: Any, rows: pa.Table) -> Any:
    """Return a DataFrame of an Arrow table."""
    if IS_4:
        return spark.createDataFrame(rows, spark_schema(rows.schema))
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    # As its own conversion of pandas hands batches to the JVM (`pyspark.sql.pandas.conversion`).
    jvm, schema = spark._jvm, spark_schema(rows.schema)
    batches = spark.sparkContext._serialize_to_jvm(
        rows.to_batches(),
        ArrowStreamSerializer(),
        jvm.PythonSQLUtils.readArrowStreamFromFile,
        jvm.ArrowIteratorServer,
    )
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(batches, schema.json(), spark._jsparkSession), spark)


def expression_of(column: Any) -> Any:
    """Return the Catalyst expression of a column, in the JVM."""
    return (
        active_jvm().org.apache.spark.sql.classic.ExpressionUtils.expression(column._jc) if IS_4 else column._jc.expr()
    )


def column_of(expression: Any) -> Any:
    """Wrap a Catalyst expression in a column."""
    jvm = active_jvm()
    if IS_4:
        from pyspark.sql.classic.column import Column

        return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(expression))
    from pyspark.sql import Column as OldColumn

    return OldColumn(jvm.org.apache.spark.sql.Column(expression))


def sequence_of(jvm: Any, array: Any) -> Any:
    """Return an array of the JVM as a sequence of Scala, without a copy where Scala is 2.13."""
    if IS_4:
        return jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(array)
    return jvm.scala.collection.mutable.WrappedArray.make(array)


def active_jvm() -> Any:
    """Return the gateway to the JVM of the running session."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    assert context is not None
    return context._jvm
