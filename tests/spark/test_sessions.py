"""What a session may be, which Python its workers start, and what Spark writes down of our jobs."""

import base64
import os
import re
import subprocess
import sys
import types
import zlib
from pathlib import Path
from typing import Any

import pyspark
import pytest

import lakelatch.spark
from lakelatch.errors import ConfigError

from ..java import CLASSES

HEAD = """
import sys
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
"""
WORKERS = """
spark = builder.getOrCreate()
import lakelatch, lakelatch.spark
table = lakelatch.spark.open(spark, lakelatch.create(sys.argv[1] + "/t", record_key="id"))
table.bulk_insert(spark.range(50_000).selectExpr("cast(id as string) id"))
print("rows", table.read().count())
"""
LOGGED = """
builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", "file://" + sys.argv[1] + "/events")
spark = builder.config("spark.eventLog.compress", "false").getOrCreate()
import lakelatch, lakelatch.spark, lakelatch.occ.table
from lakelatch.storage.local import LocalStore

class Keyed(LocalStore):
    def __init__(self, root, key):
        super().__init__(root)
        self.key = key

lakelatch.create(sys.argv[1] + "/t", record_key="id", partition_by="city").close()
plain = lakelatch.occ.table.table.Table(Keyed(sys.argv[1] + "/t", sys.argv[2]))
table = lakelatch.spark.open(spark, plain)
rows = spark.range(60_000).selectExpr("cast(id as string) id", "cast(id % 2 as string) city", "id n")
table.insert(rows)
table.upsert(rows.where("id < 40000"))
table.upsert(rows.selectExpr("concat('x', id) id", "city", "n"))
table.delete(rows.where("n < 30000").select("id"))
table.delete_where("n = 30001")
print("rows", table.read().count())
spark.stop()
"""


def run(folder: Path, script: str, *args: str, **env: str) -> str:
    (folder / "job.py").write_text(HEAD + script)
    done = subprocess.run(
        [sys.executable, str(folder / "job.py"), str(folder), *args],
        env=env,
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip()


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK", "SPARK"))}
    return kept | {"SPARK_HOME": str(Path(pyspark.__file__).parent)} | more


@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_workers_start_the_drivers_python_where_none_is_named(tmp_path: Path) -> None:
    bare = tmp_path / "bin" / "python3"
    bare.parent.mkdir()
    bare.write_text("#!/bin/sh\necho a python3 without lakelatch >&2\nexit 1\n")
    bare.chmod(0o755)
    path = f"{bare.parent}{os.pathsep}{os.environ['PATH']}"
    assert run(tmp_path, WORKERS, **environment(PATH=path)) == "rows 50000"


@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_sparks_event_log_holds_no_key_of_a_store(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    key = "a-key-that-nobody-else-knows"
    assert run(tmp_path, LOGGED, key, **environment(PYSPARK_PYTHON=sys.executable)) == "rows 89998"
    text = "".join(each.read_text() for each in (tmp_path / "events").rglob("*") if each.is_file())
    tasks = 0
    for word in {*re.findall(r"[A-Za-z0-9+/=]{60,}", text)}:
        try:
            body = zlib.decompress(base64.b64decode(word, validate=True))
        except (ValueError, zlib.error):
            continue
        tasks += 1
        assert key.encode() not in body
    assert tasks >= 2, "the tasks of jobs, whatever else"
    assert key not in text


@pytest.mark.skipif(str(CLASSES) not in os.environ["JDK_JAVA_OPTIONS"], reason="scripts/ensure_tools.sh all makes it")
def test_the_session_of_the_tests_takes_its_classes_from_the_archive(spark: Any) -> None:
    """Java says nothing where it does not, as with jars before Spark's own, and each session costs half as much again."""
    jvm = spark.sparkContext._gateway.proc.pid
    mapped = Path(f"/proc/{jvm}/maps").read_text()
    assert str(CLASSES) in mapped, "made for another Java or other jars: scripts/ensure_tools.sh all"


class OfConnect:
    __module__ = "pyspark.sql.connect.session"
    version = "4.3.0"


@pytest.mark.parametrize(
    ("session", "message"),
    [
        (OfConnect(), "Spark Connect session"),
        (types.SimpleNamespace(version="3.4.4", _jsparkSession=object()), "Spark 3.4.4, and 3.5 is the oldest"),
        (None, "NoneType is no SparkSession"),
        ("file:///table", "str is no SparkSession"),
    ],
)
def test_a_session_that_cannot_work_is_refused_before_the_table_is_looked_at(session: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        lakelatch.spark.open(session, "/there/is/no/such/table")


@pytest.mark.thorough
@pytest.mark.process
def test_a_session_of_spark_connect_reads(tmp_path: Path) -> None:
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    ours = {name: value for name, value in os.environ.items() if name not in ("SPARK_REMOTE", "SPARK_LOCAL_IP")}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parents[1] / "packaging/connect.py"), str(tmp_path / "t")],
        cwd=tmp_path, env=ours | {"PYSPARK_PYTHON": sys.executable}, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
