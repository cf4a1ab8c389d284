"""Hudi's own sync tool, into a metastore of Hive in a folder. A program of .cache/jvm/venv, no test module.

    python hive_sync.py BUNDLE.jar REQUEST.json ANSWER.json

The request has tables by name, each with its ``path`` and partition ``keys``. The answer has by name what the metastore then
has, in the words of Glue, and ``rows``, which Spark reads through it.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

bundle, request, answer = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", bundle)
    .config("spark.ui.enabled", "false")
    .config("spark.serializer", "org.apache.spark.serializer.KryoSerializer")
    .config("spark.hadoop.javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=metastore;create=true")
    .enableHiveSupport()
    .getOrCreate()
)
spark.sql("show databases").collect()  # makes the metastore
jvm = spark._jvm
loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
kind = jvm.java.lang.Class.forName("org.apache.hadoop.hive.conf.HiveConf", True, loader)
conf = jvm.org.apache.hadoop.hive.conf.HiveConf(spark.sparkContext._jsc.hadoopConfiguration(), kind)


def columns(found) -> list:
    return [{"Name": each.getName(), "Type": each.getType()} for each in found]


def definition(name: str) -> dict:
    client = jvm.org.apache.hadoop.hive.metastore.HiveMetaStoreClient(conf)
    found = client.getTable("default", name)
    stored, serde = found.getSd(), found.getSd().getSerdeInfo()
    return {
        "Name": name,
        "TableType": found.getTableType(),
        "PartitionKeys": columns(found.getPartitionKeys()),
        "StorageDescriptor": {
            "Columns": columns(stored.getCols()),
            "InputFormat": stored.getInputFormat(),
            "OutputFormat": stored.getOutputFormat(),
            "SerdeInfo": {
                "SerializationLibrary": serde.getSerializationLib(), "Parameters": dict(serde.getParameters()),
            },
        },
        "Parameters": dict(found.getParameters()),
        "partitions": sorted(list(each.getValues()) for each in client.listPartitions("default", name, 1000)),
    }  # fmt: skip


told = {}
for name, each in json.loads(Path(request).read_text()).items():
    extractor = "MultiPartKeysValueExtractor" if each["keys"] else "NonPartitionedExtractor"
    options = jvm.java.util.Properties()
    for key, value in {
        "hoodie.datasource.meta.sync.base.path": each["path"],
        "hoodie.datasource.hive_sync.mode": "hms",
        "hoodie.datasource.hive_sync.database": "default",
        "hoodie.datasource.hive_sync.table": name,
        "hoodie.datasource.hive_sync.partition_fields": ",".join(each["keys"]),
        "hoodie.datasource.hive_sync.partition_extractor_class": f"org.apache.hudi.hive.{extractor}",
        "hoodie.datasource.hive_sync.support_timestamp": "true",
    }.items():
        options.put(key, value)
    jvm.org.apache.hudi.hive.HiveSyncTool(options, conf).syncHoodieTable()
    rows = spark.sql(f"select id, origin from default.{name} order by id").collect()
    told[name] = {"rows": [list(row) for row in rows], "made": []}
    made = [row["tableName"] for row in spark.sql("show tables in default").collect()]
    told[name]["made"] = [definition(each) for each in made if each.startswith(name)]
Path(answer).write_text(json.dumps(told))
spark.stop()
