"""One Spark session for the whole folder: starting one takes longer than all that a test does with it."""

import os
import shutil
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
    from .session import session

    made = session()
    yield made
    made.stop()
    session.cache_clear()


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
