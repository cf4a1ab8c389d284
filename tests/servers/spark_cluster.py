"""The demonstration's Spark standalone cluster, for tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lakelatch.demo.cluster import Cluster
from lakelatch.demo.cluster import spark_cluster as started

from . import TOOLS, missing

S3A = TOOLS / "s3a" / "jars"
# Spark takes these jars after its own; before them they would be in the way of the archive of its classes.
WITH_S3A = {"SPARK_DIST_CLASSPATH": f"{S3A}/*"}


@contextmanager
def spark_cluster(folder: Path) -> Iterator[Cluster]:
    """Ends with all of its processes."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        missing("Java 17 is missing")
    # What a worker imports: the package is installed in this environment, the tests are not.
    with started(folder, environment={"PYTHONPATH": str(Path(__file__).parents[2])} | WITH_S3A) as cluster:
        yield cluster
