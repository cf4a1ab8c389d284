"""Delta Lake on Spark, on a local folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from .. import rows
from .interface import Configuration
from .on_spark import SPARK, SPARK_VERSION, OnSpark, SparkSqlSession

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SQL = "spark.databricks.delta."


class DeltaOnSpark(OnSpark):
    """Delta Lake on Spark. The settings are those of its Spark session."""

    package: ClassVar[str] = "delta-spark_2.12"
    artifacts: ClassVar[Mapping[str, str]] = {
        SPARK: SPARK_VERSION,
        "delta-spark_2.12": "3.3.3",
        "delta-storage": "3.3.3",
    }
    works: ClassVar[frozenset[str]] = frozenset({"append", "replace", "upsert", "increment", "transfer", "delete"})
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration(
            "best",
            "a local[1] session for each writer; the log's state computed by one task instead of 50, no statistics of files that "
            "are written, partitions as constants in each MERGE; what aborts is run again by the lab, up to 20 attempts with a "
            "jittered pause. Its log store for local disks excludes the writers of one JVM only, says its source",
            {f"{_SQL}snapshotPartitions": "1", f"{_SQL}stats.collect": "false"},
            tries=20,
        ),
        Configuration("default", "a local[1] session for each writer, settings of Delta as they come"),
    )

    def confs(self, folder: Path) -> dict[str, str]:  # noqa: ARG002 - a table is its path
        return {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            **{name: str(value) for name, value in self.settings.items()},
        }

    def make(self, spark: SparkSession, place: str, first: DataFrame) -> None:  # noqa: ARG002 - the frame has it
        first.write.format("delta").partitionBy(rows.PARTITION).save(place)

    def read(self, spark: SparkSession, place: str) -> DataFrame:
        return spark.read.format("delta").load(place)

    def session(self, spark: SparkSession, place: str) -> _Session:
        return _Session(spark, place, f"delta.`{place}`")


class _Session(SparkSqlSession):
    lost = frozenset(
        {
            "ConcurrentAppendException",
            "ConcurrentDeleteReadException",
            "ConcurrentDeleteDeleteException",
            "ConcurrentTransactionException",
            "ConcurrentWriteException",
            "MetadataChangedException",
            "ProtocolChangedException",
        }
    )

    def add(self, new: DataFrame) -> None:
        new.write.format("delta").mode("append").save(self.place)

    def overwrite(self, part: str, new: DataFrame) -> None:
        writer = new.write.format("delta").mode("overwrite").option("replaceWhere", f"{rows.PARTITION} = '{part}'")
        writer.save(self.place)
