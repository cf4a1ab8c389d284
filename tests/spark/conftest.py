"""One Spark session for the whole folder: starting one takes longer than all that a test does with it."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # Spark says so of every new pandas; it is not used here.
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        reason = "Java 17 is missing: apt-get install openjdk-17-jre-headless"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    pytest.importorskip("pyspark")
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        # A task that fails is run up to three times, as on a cluster.
        SparkSession.builder.master("local[2,3]")
        .appName("lakelatch-tests")
        # The second compiler costs more than it saves in a session as short as this.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture
def make(tmp_path: Path, spark: Any) -> Iterator[Callable[..., Any]]:
    """Makes a table of its own for the test and opens it in Spark, with these sizes; its store is a `DriverStore`."""
    import lakelatch.spark
    from lakelatch.occ.table import Table

    from .driver import DriverStore

    opened = []

    def new(name: str = "t", *, sizes: Any = None, **settings: Any) -> Any:
        defaults: dict[str, Any] = {"record_key": "id", "partition_by": "city"}
        with lakelatch.create(str(tmp_path / name), **{**defaults, **settings}) as made:
            opened.append(Table(DriverStore(made.store)))
        return lakelatch.spark.open(spark, opened[-1], sizes=sizes or lakelatch.spark.JobSizes())

    yield new
    for table in opened:
        table.close()
