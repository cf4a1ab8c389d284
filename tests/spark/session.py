"""The Spark session of the tests: a process has one, and anyone who asks first makes it."""

from __future__ import annotations

import functools
import os
import sys
from typing import Any

from ..servers.spark_cluster import WITH_S3A


@functools.cache
def session() -> Any:
    """One for all tests: starting one takes longer than all that a test does with it. It ends with the process."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.update(WITH_S3A)
    made = (
        # A task that fails is run up to three times, as on a cluster.
        SparkSession.builder.master("local[2,3]")
        .appName("lakelatch-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("OFF")
    return made
