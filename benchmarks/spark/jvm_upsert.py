"""JVM Hudi 1.2.0 doing the upserts and reads of ``upsert.py``, in a process and an environment of its own (PySpark 3.5).

The environment is named by two variables, which `make test-jvm` also uses:

    LAKELATCH_JVM_PYTHON   python of an environment with pyspark 3.5
    LAKELATCH_HUDI_JAR     hudi-spark3.5-bundle_2.12-1.2.0.jar

Without them ``.cache/jvm/venv/bin/python`` and the first ``hudi-spark3.5-bundle*.jar`` below ``.cache/jvm`` are taken.
The process stays warm between commands, which are a line each: a folder of rows for an upsert, or ``read``. Answers are JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache" / "jvm"


class Peer:
    """One warm JVM writer with a table of its own."""

    def __init__(self, folder: Path, index: str, bucket_count: int, base: str, *, kind: str = "COPY_ON_WRITE") -> None:
        python = os.environ.get("LAKELATCH_JVM_PYTHON") or str(CACHE / "venv" / "bin" / "python")
        jar = os.environ.get("LAKELATCH_HUDI_JAR") or next(map(str, CACHE.rglob("hudi-spark3.5-bundle*.jar")), "")
        if not Path(python).exists() or not jar:
            sys.exit(
                "no environment for JVM Hudi: set LAKELATCH_JVM_PYTHON and LAKELATCH_HUDI_JAR, or run make test-jvm"
            )
        self._noise = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK_")}
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.spark.jvm_upsert", jar, str(folder), index, str(bucket_count), base, kind],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            text=True,
            cwd=ROOT,
            env={**environment, "PYSPARK_PYTHON": python},
        )
        self._answer()

    def upsert(self, rows: str) -> tuple[float, float]:
        """Wall and CPU seconds of one upsert."""
        return self._ask(rows)

    def read(self) -> tuple[float, float]:
        """Wall and CPU seconds of reading all columns of the snapshot."""
        return self._ask("read")

    def _ask(self, command: str) -> tuple[float, float]:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        return answer["wall"], answer["cpu"]

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        code = self._process.wait()
        self._noise.seek(0)
        sys.exit(f"JVM Hudi stopped with {code}: {self._noise.read()[-2000:]}")

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()


def serve(jar: str, folder: str, index: str, bucket_count: str, base: str, kind: str) -> None:
    from pyspark.sql import SparkSession

    from .timing import timed

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "6g")
        .config("spark.jars", jar)
        .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
        .config("spark.kryo.registrator", "org.apache.spark.HoodieSparkKryoRegistrar")
        .config("spark.sql.extensions", "org.apache.spark.sql.hudi.HoodieSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.hudi.catalog.HoodieCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.extraJavaOptions", "-Duser.timezone=UTC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.table.type": kind,
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "part",
        "hoodie.datasource.write.precombine.field": "ts",
        "hoodie.datasource.write.hive_style_partitioning": "true",
        "hoodie.index.type": "BUCKET" if index == "bucket" else "SIMPLE",
        "hoodie.bucket.index.num.buckets": bucket_count,
        "hoodie.parquet.compression.codec": "zstd",
        "hoodie.metadata.enable": "false",
        "hoodie.write.table.version": "8",
        "hoodie.write.auto.upgrade": "false",
        # Four groups in each partition with the simple index as well, of the size of ours.
        "hoodie.bulkinsert.shuffle.parallelism": bucket_count,
        "hoodie.bulkinsert.sort.mode": "NONE",
        "hoodie.parquet.small.file.limit": "0",
    }

    def write(rows: Any, operation: str, mode: str) -> None:
        writer = rows.write.format("hudi").options(**options, **{"hoodie.datasource.write.operation": operation})
        writer.mode(mode).save(folder)

    write(spark.read.parquet(base).repartition(int(bucket_count)), "bulk_insert", "overwrite")
    print(json.dumps({"ready": True}), flush=True)

    def read() -> None:
        spark.read.format("hudi").load(folder).write.format("noop").mode("overwrite").save()

    def upsert(path: str) -> None:
        write(spark.read.parquet(path), "upsert", "append")

    for line in sys.stdin:
        command = line.strip()
        wall, cpu, _ = timed(read if command == "read" else lambda command=command: upsert(command))
        print(json.dumps({"wall": wall, "cpu": cpu}), flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
