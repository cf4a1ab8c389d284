"""Check a Spark session and set the Python of its workers."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from ..errors import ConfigError

_OLDEST = (3, 5)


def of_connect(spark: Any) -> bool:
    """Return whether it is a session of Spark Connect."""
    return ".connect." in f"{type(spark).__module__}."


def settle(spark: Any) -> None:
    """Refuse an unsuitable session, and make local workers start the driver's Python.

    Raises:
        ConfigError: not a session of PySpark, a session of Spark Connect, or Spark below 3.5.
    """
    kind = type(spark)
    if of_connect(spark):
        raise ConfigError(
            "this is a Spark Connect session, which runs in another process than the writers' transactions; it reads tables by "
            'lakelatch.spark.register(spark) and spark.read.format("lakelatch"). To write use a classic one: '
            "SparkSession.builder.master(...) without remote(...), and with SPARK_REMOTE unset"
        )
    if not hasattr(spark, "_jsparkSession"):
        raise ConfigError(f"{kind.__name__} is no SparkSession; call lakelatch.spark.open(spark, table)")
    if tuple(map(int, spark.version.split(".")[:2])) < _OLDEST:
        raise ConfigError(
            f"this is Spark {spark.version}, and 3.5 is the oldest that works: pip install 'pyspark>=3.5'"
        )
    context = spark.sparkContext
    if "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python"):
        return
    if context.master.startswith("local"):
        context.pythonExec = sys.executable
    else:
        warnings.warn(
            f"PYSPARK_PYTHON is not set, so the workers of {context.master} start {context.pythonExec}: it has to be a "
            "Python with lakelatch. Name one with PYSPARK_PYTHON before the session starts",
            stacklevel=3,
        )
