"""Hudi's own writer on Spark, with optimistic concurrency control and a ZooKeeper that the lab starts, on a local folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from .. import rows
from .interface import Configuration
from .on_spark import SAME, SPARK, SPARK_VERSION, OnSpark, SparkSqlSession, values

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_NAME = "rows"
_LOCK = "hoodie.write.lock."


class HudiOnSpark(OnSpark):
    """Hudi on Spark. The settings are options of each write."""

    package: ClassVar[str] = "hudi-spark3.5-bundle_2.12"
    artifacts: ClassVar[Mapping[str, str]] = {SPARK: SPARK_VERSION, "hudi-spark3.5-bundle_2.12": "1.2.0"}
    works: ClassVar[frozenset[str]] = frozenset({"append", "replace", "upsert", "increment", "transfer", "delete"})
    server: ClassVar[str] = "zookeeper"
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration(
            "best",
            "a local[1] session for each writer, lock on ZooKeeper, early conflict detection off; no metadata table, markers "
            "written directly without a timeline server, appends as bulk_insert of one task; a write that lost is run again "
            "by Hudi three times (hoodie.write.num.retries.on.conflict.failures), then by the lab, up to 20 attempts with a "
            "jittered pause",
            {
                "hoodie.metadata.enable": "false",
                "hoodie.embed.timeline.server": "false",
                "hoodie.write.markers.type": "DIRECT",
                "hoodie.write.num.retries.on.conflict.failures": "3",
                "hoodie.bulkinsert.shuffle.parallelism": "1",
                "hoodie.upsert.shuffle.parallelism": "1",
                "hoodie.delete.shuffle.parallelism": "1",
                "lab.append": "bulk_insert",
            },
            tries=20,
        ),
        Configuration(
            "default",
            "a local[1] session for each writer, lock on ZooKeeper, early conflict detection off, options as they come, appends "
            "as insert",
        ),
    )

    def confs(self, folder: Path) -> dict[str, str]:  # noqa: ARG002 - a table is its path
        return {
            "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
            "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
            "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        }

    @property
    def options(self) -> dict[str, str]:
        """The options of every write of this system."""
        there = urlsplit(self.address)
        return {
            "hoodie.table.name": _NAME,
            "hoodie.datasource.write.recordkey.field": rows.KEY,
            "hoodie.datasource.write.partitionpath.field": rows.PARTITION,
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.clean.failed.writes.policy": "LAZY",
            f"{_LOCK}provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
            f"{_LOCK}zookeeper.url": there.netloc,
            f"{_LOCK}zookeeper.port": str(there.port),
            f"{_LOCK}zookeeper.base_path": "/lakelatch-bench",
            f"{_LOCK}zookeeper.lock_key": _NAME,
            **{name: str(value) for name, value in self.settings.items() if name != "lab.append"},
        }

    def make(self, spark: SparkSession, place: str, first: DataFrame) -> None:  # noqa: ARG002 - the frame has it
        first.write.format("hudi").options(**self.options).mode("overwrite").save(place)

    def read(self, spark: SparkSession, place: str) -> DataFrame:
        return spark.read.format("hudi").load(place)

    def session(self, spark: SparkSession, place: str) -> _Session:
        for name, value in self.options.items():
            spark.conf.set(name, value)  # statements have no options
        spark.sql(f"CREATE TABLE IF NOT EXISTS {_NAME} USING hudi LOCATION '{place}'")
        return _Session(spark, place, _NAME, self.options, str(self.settings.get("lab.append", "insert")))


class _Session(SparkSqlSession):
    lost = frozenset({"HoodieWriteConflictException"})

    def __init__(self, spark: SparkSession, place: str, table: str, options: dict[str, str], append: str) -> None:
        super().__init__(spark, place, table)
        self._options, self._append = options, append

    def add(self, new: DataFrame) -> None:
        self._write(new, self._append)

    def overwrite(self, part: str, new: DataFrame) -> None:  # noqa: ARG002 - the rows name it
        self._write(new, "insert_overwrite")

    def merge(self, new: pa.Table) -> None:
        self._write(values(self.spark, new), "upsert")

    def same(self, new: pa.Table) -> str:  # noqa: ARG002 - it finds the partitions itself, and takes nothing but equalities
        return SAME

    def remove(self, condition: str) -> None:
        self._write(self.spark.table(self.table).where(condition).select(*rows.SCHEMA.names), "delete")

    def _write(self, frame: DataFrame, operation: str) -> None:
        options = {**self._options, "hoodie.datasource.write.operation": operation}
        frame.write.format("hudi").options(**options).mode("append").save(self.place)
