"""Iceberg on Spark with its JDBC catalog on SQLite, on a local folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from .. import rows
from .interface import Configuration
from .on_spark import SPARK, SPARK_VERSION, OnSpark, SparkSqlSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CATALOG = "spark.sql.catalog.lab"
_NAME = "lab.db.rows"


class IcebergOnSpark(OnSpark):
    """Iceberg on Spark. The settings are properties of the table."""

    package: ClassVar[str] = "iceberg-spark-runtime-3.5_2.12"
    artifacts: ClassVar[Mapping[str, str]] = {
        SPARK: SPARK_VERSION,
        "iceberg-spark-runtime-3.5_2.12": "1.12.0",
        "sqlite-jdbc": "3.54.1.0",
    }
    works: ClassVar[frozenset[str]] = frozenset({"append", "replace", "upsert", "increment", "transfer", "delete"})
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration(
            "best",
            "a local[1] session for each writer, JDBC catalog on SQLite with a write-ahead log; 100 retries of 5 to 200 ms "
            "instead of 4 of 100 ms to 60 s, old metadata files deleted, no shuffle before a write, partitions as constants "
            "in each MERGE; what aborts is run again by the lab, up to 20 attempts with a jittered pause",
            {
                "commit.retry.num-retries": "100",
                "commit.retry.min-wait-ms": "5",
                "commit.retry.max-wait-ms": "200",
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "10",
                "write.distribution-mode": "none",
            },
            tries=20,
        ),
        Configuration("default", "a local[1] session for each writer, JDBC catalog on SQLite, properties as they come"),
    )

    def confs(self, folder: Path) -> dict[str, str]:
        return {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
            f"{_CATALOG}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{_CATALOG}.uri": f"jdbc:sqlite:{folder}/catalog.db?journal_mode=WAL&busy_timeout=30000",
            f"{_CATALOG}.warehouse": f"file://{folder}",
            # Without a cache each statement sees what others committed; a cached table is as old as its last use.
            f"{_CATALOG}.cache-enabled": "false",
        }

    def make(self, spark: SparkSession, place: str, first: DataFrame) -> None:
        Path(place.removeprefix("file://")).mkdir(parents=True)
        spark.sql("CREATE NAMESPACE lab.db")
        writer = first.writeTo(_NAME).using("iceberg").partitionedBy(first[rows.PARTITION])
        for name, value in self.settings.items():
            writer = writer.tableProperty(name, str(value))
        writer.create()

    def read(self, spark: SparkSession, place: str) -> DataFrame:  # noqa: ARG002 - the catalog knows it
        return spark.table(_NAME)

    def session(self, spark: SparkSession, place: str) -> _Session:
        return _Session(spark, place, _NAME)


class _Session(SparkSqlSession):
    lost = frozenset({"CommitFailedException", "ValidationException"})

    def add(self, new: DataFrame) -> None:
        new.writeTo(_NAME).append()

    def overwrite(self, part: str, new: DataFrame) -> None:
        from pyspark.sql.functions import col, lit

        new.writeTo(_NAME).overwrite(col(rows.PARTITION) == lit(part))
