"""The JVM Hudi reader: answers lists of requests in one Spark session. A program of .cache/jvm/venv, no test module.

    python jvm_reader.py BUNDLE.jar

Each line of its input names two files: the list of requests, and where to write the answers. When they stand there, it
says "answered". It ends with its input.

A request is ``{"path", "kind", ...}``; its answer ``{"rows": [...]}`` or ``{"error": "..."}``. Kinds:

    snapshot                    the rows now
    as_of        as_of          the rows of the commits with T not after this
    incremental  begin, end     the rows of the commits with C in (begin, end]; end may be missing
    upsert       rows, options  writes the rows, and answers with all rows of the table then; ``schema`` as Spark writes one:
                                the columns of the rows, and of a table that is made by this
    sql          statements     runs them one after the other, and answers with all rows of the table then
    compact      instant        executes that plan, and answers with all rows of the table then
    cluster      instant        the same with a plan of a clustering
    compact_logs instant        the same with a plan of a log compaction; with the table's ``name``, Avro ``schema``, ``options``
    service      service        plans and runs a table service, or what OPERATIONS in operations.py says else, and answers with
                                all rows then; with the same, and the ``instant`` to restore to
    markers                     the markers in the lists of that folder, and the type that it says it has

One after the other: Hudi changes settings of the session while it plans a read, so reads side by side fail now and then
(`ColumnarBatchRow cannot be cast to ColumnarBatch`, 1.2.0).
"""

import datetime as dt
import decimal
import json
import os
import sys
from contextlib import closing
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import from_json

sys.path.append(str(Path(__file__).parents[2] / "benchmarks/demo"))  # the package needs more than this Python has
from hudi_job import session

# As `WRITE_OPTIONS` in cases.py, for the statements that write.
SQL_SETTINGS = {
    "hoodie.metadata.enable": "false",
    "hoodie.write.auto.upgrade": "false",
    "hoodie.index.type": "SIMPLE",
    "hoodie.compact.inline": "false",
    "hoodie.spark.sql.insert.into.operation": "upsert",
}


def read(spark: SparkSession, request: dict) -> DataFrame:
    reader = spark.read.format("hudi")
    if request["kind"] == "as_of":
        reader = reader.option("as.of.instant", request["as_of"])
    elif request["kind"] == "incremental":
        reader = reader.option("hoodie.datasource.query.type", "incremental")
        reader = reader.option("hoodie.datasource.read.begin.instanttime", request["begin"])
        if request.get("end"):
            reader = reader.option("hoodie.datasource.read.end.instanttime", request["end"])
    return reader.load(request["path"])


def upsert(spark: SparkSession, request: dict) -> DataFrame:
    if "schema" in request:
        told = spark.createDataFrame([(json.dumps(row),) for row in request["rows"]], "told string")
        rows = told.select(from_json("told", request["schema"]).alias("row")).select("row.*")
    else:
        like = spark.read.format("hudi").load(request["path"])
        columns = [name for name in like.columns if not name.startswith("_hoodie_")]
        schema = like.select(columns).schema
        rows = spark.createDataFrame([tuple(row[name] for name in columns) for row in request["rows"]], schema)
    rows.write.format("hudi").options(**request["options"]).mode("append").save(request["path"])
    return read(spark, {"kind": "snapshot", "path": request["path"]})


def sql(spark: SparkSession, request: dict) -> DataFrame:
    for key, value in SQL_SETTINGS.items():
        spark.conf.set(key, value)
    try:
        for statement in request["statements"]:
            spark.sql(statement).collect()
    finally:
        for key in SQL_SETTINGS:
            spark.conf.unset(key)
    return read(spark, {"kind": "snapshot", "path": request["path"]})


def compact(spark: SparkSession, request: dict) -> DataFrame:
    # The path is quoted; the timestamp has to be a bare number.
    spark.sql(
        f"call run_compaction(op => 'run', path => '{request['path']}', timestamp => {request['instant']})"
    ).collect()
    return read(spark, {"kind": "snapshot", "path": request["path"]})


def cluster(spark: SparkSession, request: dict) -> DataFrame:
    spark.sql(
        f"call run_clustering(op => 'execute', path => '{request['path']}', instants => '{request['instant']}')"
    ).collect()
    return read(spark, {"kind": "snapshot", "path": request["path"]})


def compact_logs(spark: SparkSession, request: dict) -> DataFrame:
    """No SQL call does this."""
    options = {"hoodie.datasource.write.table.type": "MERGE_ON_READ", "hoodie.log.compaction.enable": "true"}
    with closing(_client(spark, request, options)) as client:
        client.logCompact(request["instant"], True)
    return read(spark, {"kind": "snapshot", "path": request["path"]})


def service(spark: SparkSession, request: dict) -> DataFrame:
    """The SQL calls take no options of the lock."""
    options = {
        "hoodie.log.compaction.enable": "true",
        "hoodie.log.compaction.blocks.threshold": "2",
        "hoodie.compact.inline.max.delta.commits": "1",
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "4",
        "hoodie.keep.max.commits": "5",
        "hoodie.clustering.inline.max.commits": "1",
    }
    if "MERGE_ON_READ" in request["options"].values():
        options["hoodie.datasource.write.table.type"] = "MERGE_ON_READ"
    nothing = spark._jvm.org.apache.hudi.common.util.Option.empty()
    with closing(_client(spark, request, options)) as client:

        def planned(plan, run) -> None:
            instant = plan(nothing)
            if instant.isPresent():
                run(instant.get(), True)

        def restored() -> None:
            if not request.get("again"):
                client.savepoint(request["instant"], "tests", "")
            client.restoreToSavepoint(request["instant"])

        {
            "compaction": lambda: planned(client.scheduleCompaction, client.compact),
            "log compaction": lambda: planned(client.scheduleLogCompaction, client.logCompact),
            "clustering": lambda: planned(client.scheduleClustering, client.cluster),
            "clean": client.clean,
            "archival": client.archive,
            "plan of a compaction": lambda: client.scheduleCompaction(nothing),
            "plan of a clustering": lambda: client.scheduleClustering(nothing),
            "savepoint": lambda: client.savepoint(request["instant"], "tests", ""),
            "restore": restored,
        }[request["service"]]()
    return read(spark, {"kind": "snapshot", "path": request["path"]})


def _client(spark: SparkSession, request: dict, options: dict = {}):  # noqa: B006 - it stays empty
    options = {"hoodie.datasource.write.table.type": "COPY_ON_WRITE"} | options | request["options"]
    return spark._jvm.org.apache.hudi.DataSourceUtils.createHoodieClient(
        spark._jsc, request["schema"], request["path"], request["name"], options
    )


def markers(spark: SparkSession, request: dict) -> dict:
    jvm = spark._jvm
    folder = jvm.org.apache.hudi.storage.StoragePath(request["path"])
    conf = jvm.org.apache.hudi.hadoop.fs.HadoopFSUtils.getStorageConf(spark._jsc.hadoopConfiguration())
    storage = jvm.org.apache.hudi.storage.HoodieStorageUtils.getStorage(folder, conf)
    utils = jvm.org.apache.hudi.common.util.MarkerUtils
    context = jvm.org.apache.hudi.common.engine.HoodieLocalEngineContext(conf)
    lists = utils.readTimelineServerBasedMarkersFromFileSystem(request["path"], storage, context, 1)
    names = sorted(str(name) for each in lists.values() for name in each)
    return {"type": str(utils.readMarkerType(storage, request["path"]).get()), "names": names}


def answer(spark: SparkSession, request: dict) -> dict:
    try:
        if request["kind"] == "markers":
            return markers(spark, request)
        calls = {"upsert": upsert, "sql": sql, "compact": compact, "cluster": cluster}
        calls |= {"compact_logs": compact_logs, "service": service}
        frame = calls.get(request["kind"], read)(spark, request)
        return {"rows": [plain(row) for row in frame.collect()]}
    except Exception as error:  # an answer like any other: some are expected
        told = f"{type(error).__name__}: {error}"
        causes = [line for line in told.splitlines() if line.startswith("Caused by: ")]
        return {"error": "\n".join([told[:4000], *dict.fromkeys(causes)])}


def plain(value):
    """The value as JSON; tests/jvm/rows.py does the same with values from Arrow."""
    if isinstance(value, Row):
        return {name: plain(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value


def main(bundle: str) -> None:
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Hudi prints is no answer
    spark = session(bundle, cores=2)
    for line in sys.stdin:
        requests_path, answers_path = json.loads(line)
        with open(requests_path, encoding="utf-8") as stream:
            requests = json.load(stream)
        answers = [answer(spark, request) for request in requests]
        with open(answers_path, "w", encoding="utf-8") as stream:
            json.dump(answers, stream)
        print("answered", file=told, flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
