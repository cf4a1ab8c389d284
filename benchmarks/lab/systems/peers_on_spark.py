"""The peers on Spark: Delta Lake, Iceberg with its JDBC catalog on SQLite, and Hudi's own writer; each on a local folder."""

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

_DELTA = "spark.databricks.delta."
_CATALOG, _ICEBERG_TABLE = "spark.sql.catalog.lab", "lab.db.rows"
_HUDI_TABLE, _LOCK = "rows", "hoodie.write.lock."
_CHANGES = frozenset({"append", "replace", "upsert", "increment", "transfer", "delete"})


class DeltaOnSpark(OnSpark):
    """Delta Lake on Spark. The settings are those of its Spark session."""

    package: ClassVar[str] = "delta-spark_2.12"
    artifacts: ClassVar[Mapping[str, str]] = {
        SPARK: SPARK_VERSION,
        "delta-spark_2.12": "3.3.3",
        "delta-storage": "3.3.3",
    }
    works: ClassVar[frozenset[str]] = _CHANGES
    configurations: ClassVar[tuple[Configuration, ...]] = (
        Configuration(
            "best",
            "a local[1] session for each writer; the log's state computed by one task instead of 50, no statistics of files that "
            "are written, partitions as constants in each MERGE; what aborts is run again by the lab, up to 20 attempts with a "
            "jittered pause. Its log store for local disks excludes the writers of one JVM only, says its source",
            {f"{_DELTA}snapshotPartitions": "1", f"{_DELTA}stats.collect": "false"},
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

    def session(self, spark: SparkSession, place: str) -> _DeltaSession:
        return _DeltaSession(spark, place, f"delta.`{place}`")


class _DeltaSession(SparkSqlSession):
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


class IcebergOnSpark(OnSpark):
    """Iceberg on Spark. The settings are properties of the table."""

    package: ClassVar[str] = "iceberg-spark-runtime-3.5_2.12"
    artifacts: ClassVar[Mapping[str, str]] = {
        SPARK: SPARK_VERSION,
        "iceberg-spark-runtime-3.5_2.12": "1.12.0",
        "sqlite-jdbc": "3.54.1.0",
    }
    works: ClassVar[frozenset[str]] = _CHANGES
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
        writer = first.writeTo(_ICEBERG_TABLE).using("iceberg").partitionedBy(first[rows.PARTITION])
        for name, value in self.settings.items():
            writer = writer.tableProperty(name, str(value))
        writer.create()

    def read(self, spark: SparkSession, place: str) -> DataFrame:  # noqa: ARG002 - the catalog knows it
        return spark.table(_ICEBERG_TABLE)

    def session(self, spark: SparkSession, place: str) -> _IcebergSession:
        return _IcebergSession(spark, place, _ICEBERG_TABLE)


class _IcebergSession(SparkSqlSession):
    lost = frozenset({"CommitFailedException", "ValidationException"})

    def add(self, new: DataFrame) -> None:
        new.writeTo(_ICEBERG_TABLE).append()

    def overwrite(self, part: str, new: DataFrame) -> None:
        from pyspark.sql.functions import col, lit

        new.writeTo(_ICEBERG_TABLE).overwrite(col(rows.PARTITION) == lit(part))


class HudiOnSpark(OnSpark):
    """Hudi on Spark. The settings are options of each write."""

    package: ClassVar[str] = "hudi-spark3.5-bundle_2.12"
    artifacts: ClassVar[Mapping[str, str]] = {SPARK: SPARK_VERSION, "hudi-spark3.5-bundle_2.12": "1.2.0"}
    works: ClassVar[frozenset[str]] = _CHANGES
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
            "hoodie.table.name": _HUDI_TABLE,
            "hoodie.datasource.write.recordkey.field": rows.KEY,
            "hoodie.datasource.write.partitionpath.field": rows.PARTITION,
            "hoodie.datasource.write.hive_style_partitioning": "true",
            "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
            "hoodie.clean.failed.writes.policy": "LAZY",
            f"{_LOCK}provider": "org.apache.hudi.client.transaction.lock.ZookeeperBasedLockProvider",
            f"{_LOCK}zookeeper.url": there.netloc,
            f"{_LOCK}zookeeper.port": str(there.port),
            f"{_LOCK}zookeeper.base_path": "/lakelatch-bench",
            f"{_LOCK}zookeeper.lock_key": _HUDI_TABLE,
            **{name: str(value) for name, value in self.settings.items() if name != "lab.append"},
        }

    def make(self, spark: SparkSession, place: str, first: DataFrame) -> None:  # noqa: ARG002 - the frame has it
        first.write.format("hudi").options(**self.options).mode("overwrite").save(place)

    def read(self, spark: SparkSession, place: str) -> DataFrame:
        return spark.read.format("hudi").load(place)

    def session(self, spark: SparkSession, place: str) -> _HudiSession:
        for name, value in self.options.items():
            spark.conf.set(name, value)  # statements have no options
        spark.sql(f"CREATE TABLE IF NOT EXISTS {_HUDI_TABLE} USING hudi LOCATION '{place}'")
        return _HudiSession(spark, place, _HUDI_TABLE, self.options, str(self.settings.get("lab.append", "insert")))


class _HudiSession(SparkSqlSession):
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
