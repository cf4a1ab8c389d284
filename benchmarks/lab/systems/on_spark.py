"""The common part of the peers on Spark: each process of the lab has a local Spark session of its own, with one core.

PySpark 3.5 and the jars are in a folder of their own, which ``scripts/ensure_jvm.sh peers`` fills: there is no Hudi bundle for
PySpark 4, which our own tables use. A session starts when a writer opens its table, and the first operation follows before the
clock starts, so neither the start of a JVM nor its first query is load.

The runner itself has no session: it makes and reads tables in short-lived processes, one system after another.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import ConfigError, LakeLatchError
from .. import rows
from ..works import Aborted, Change, Key, Note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER_VARIABLE = "LAKELATCH_BENCH_JVM"
SPARK, SPARK_VERSION = "spark", "3.5.9"
_CHANGED = "lakelatch-bench: the row was changed after it had been read"
SAME = f"t.{rows.PARTITION} = s.{rows.PARTITION} AND t.{rows.KEY} = s.{rows.KEY}"
_WINNER = re.compile(r"committed at version (\d+)")
# What the lab asks of every session: ten rows need no more.
_CONFS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC -XX:+UseSerialGC",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.catalogImplementation": "in-memory",
}


def folder() -> Path:
    """Return the folder of PySpark and the jars: ``LAKELATCH_BENCH_JVM``, or ``.cache/jvm`` below the current folder."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path(".cache", "jvm")).resolve()


def _pyspark() -> Path | None:
    """Return the folder from which that PySpark is imported; None if it does not exist."""
    return next((each.parent for each in folder().glob("venv/lib/python*/site-packages/pyspark")), None)


class OnSpark(ABC):
    """A system whose writers are Spark jobs; a subclass says which jars and settings its sessions have.

    Attributes:
        artifacts: versions by name of the jars, and of their Spark.
    """

    artifacts: ClassVar[Mapping[str, str]] = {}

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = {name: value for name, value in settings.items() if name not in ("locks", "server")}
        self.address: str = settings.get("server", "")  # of the server that the lab has started for the run

    @classmethod
    def missing(cls) -> str:
        """Return the missing requirements; "" if there are none."""
        absent = [jar.name for jar in cls._jars() if not jar.exists()]
        if _pyspark() is None:
            absent.append(f"PySpark {SPARK_VERSION}")
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            absent.append("Java 17")
        return " and ".join(absent)

    @classmethod
    def _jars(cls) -> list[Path]:
        return [folder() / "jars" / f"{name}-{version}.jar" for name, version in cls.artifacts.items() if name != SPARK]

    def create(self, place: str, first: pa.Table) -> None:
        if "://" in place and not place.startswith("file://"):
            raise ConfigError(f"{type(self).__name__} is measured on a local folder only, not at {place}")
        _elsewhere(self._make, place, first)

    def rows(self, place: str) -> pa.Table:
        found: pa.Table = _elsewhere(self._read, place)
        return found

    def open(self, place: str, writer: str, priority: int) -> SparkSqlSession:  # noqa: ARG002 - it knows no writers
        return self.session(self._spark(place), place)

    def _make(self, place: str, first: pa.Table) -> None:
        spark = self._spark(place)
        self.make(spark, place, values(spark, first))

    def _read(self, place: str) -> pa.Table:
        return collected(self.read(self._spark(place), place))

    def _spark(self, place: str) -> SparkSession:
        jars = ",".join(map(str, self._jars()))
        return _session({**_CONFS, "spark.jars": jars, **self.confs(Path(place.removeprefix("file://")).resolve())})

    @abstractmethod
    def confs(self, folder: Path) -> dict[str, str]:
        """Return the settings of a session for the table in a folder."""

    @abstractmethod
    def make(self, spark: SparkSession, place: str, first: DataFrame) -> None:
        """Make the table."""

    @abstractmethod
    def read(self, spark: SparkSession, place: str) -> DataFrame:
        """Return all rows."""

    @abstractmethod
    def session(self, spark: SparkSession, place: str) -> SparkSqlSession:
        """Return a writer of the table."""


class SparkSqlSession(ABC):
    """One writer. A subclass names its table in SQL, adds rows and replaces partitions; the rest is the same statement.

    One statement is one transaction, so a writer thinks before the statement, between reading and writing.

    Attributes:
        lost: simple names of JVM exceptions after which nothing is committed and a retry makes sense.
    """

    lost: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, spark: SparkSession, place: str, table: str) -> None:
        self.spark, self.place, self.table = spark, place, table

    @abstractmethod
    def add(self, new: DataFrame) -> None:
        """Append rows."""

    @abstractmethod
    def overwrite(self, part: str, new: DataFrame) -> None:
        """Replace a partition."""

    def append(self, new: pa.Table, note: Note) -> None:
        self._do(lambda: self.add(values(self.spark, new)), note)

    def replace(self, part: str, new: pa.Table, note: Note) -> None:
        self._do(lambda: self.overwrite(part, values(self.spark, new)), note)

    def upsert(self, new: pa.Table, note: Note) -> None:
        self._do(lambda: self.merge(new), note)

    def merge(self, new: pa.Table) -> None:
        """Insert rows, or replace rows with the same keys."""
        self.spark.sql(
            f"MERGE INTO {self.table} t USING ({values_sql(new)}) s ON {self.same(new)} "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def same(self, new: pa.Table) -> str:
        """Return the condition under which a row of the table (t) and one of the source (s) are the same."""
        # Partitions are constants: with a join condition alone each merge would read everything and conflict with every other.
        parts = ", ".join(map(_quoted, sorted(set(new[rows.PARTITION].to_pylist()))))
        return f"t.{rows.PARTITION} IN ({parts}) AND {SAME}"

    def modify(self, keys: list[Key], change: Change, note: Note) -> None:
        with self._attempt(note):
            parts, names = (", ".join(map(_quoted, sorted(set(each)))) for each in zip(*keys, strict=True))
            condition = f"{rows.PARTITION} IN ({parts}) AND {rows.KEY} IN ({names})"
            found = collected(self.spark.table(self.table).where(condition))
            note.saw(found)
            note.think()
            # The statement is a transaction of its own, and does not know of the read above. So it checks that each row is
            # still the one that was read, and fails as a whole if one is not.
            new = change(found)
            seen = new.append_column("seen", _matching(found, new))
            kept = f"IF(t.{rows.BY} = s.seen, s.{rows.BY}, CAST(raise_error({_quoted(_CHANGED)}) AS STRING))"
            self.spark.sql(
                f"MERGE INTO {self.table} t USING ({values_sql(seen)}) s ON {self.same(new)} "
                f"WHEN MATCHED THEN UPDATE SET t.{rows.VALUE} = s.{rows.VALUE}, t.{rows.BY} = {kept}"
            )

    def delete(self, value: int, note: Note) -> None:
        condition = f"{rows.VALUE} = {value} AND {rows.KEY} LIKE '{rows.APPENDED}%'"
        self._do(lambda: self.remove(condition), note)

    def remove(self, condition: str) -> None:
        """Delete rows."""
        self.spark.sql(f"DELETE FROM {self.table} WHERE {condition}")

    def close(self) -> None:  # noqa: B027 - nothing to do
        """Leave the session to other writers of this process; it ends with that."""

    def _do(self, write: Callable[[], None], note: Note) -> None:
        with self._attempt(note):
            note.think()
            write()

    @contextmanager
    def _attempt(self, note: Note) -> Iterator[None]:
        note.attempt()
        try:
            yield
        except Exception as e:
            if (lost := self._why(e)) is None:
                raise
            raise lost from e
        note.landed("", [])

    def _why(self, error: Exception) -> Aborted | None:
        """Return the loss that an error reports; None for other errors."""
        for name, message in _causes(error):
            if name in self.lost:
                winner = _WINNER.search(message)
                return Aborted(name, winner.group(1) if winner else "")
            if _CHANGED in message:
                return Aborted("a row was changed after it had been read")
        return None


def values_sql(table: pa.Table) -> str:
    """Return rows as a SELECT of constants, so that no Python worker has to send them to the JVM."""
    lines = (", ".join(map(_literal, row.values())) for row in table.to_pylist())
    listed = ", ".join(f"({line})" for line in lines)
    return f"SELECT * FROM VALUES {listed} AS new({', '.join(table.column_names)})"


def values(spark: SparkSession, table: pa.Table) -> DataFrame:
    """Return rows as a frame."""
    return spark.sql(values_sql(table))


def collected(frame: DataFrame) -> pa.Table:
    """Return all rows of a frame, in the columns of `rows.SCHEMA`; through Py4J, to be independent of package versions."""
    found = [list(row) for row in frame.select(*rows.SCHEMA.names).collect()]
    columns = [list(column) for column in zip(*found, strict=True)] or [[] for _ in rows.SCHEMA]
    return pa.table(columns, schema=rows.SCHEMA)


def _matching(found: pa.Table, new: pa.Table) -> pa.Array:
    """Return the writers of the rows that ``new`` replaces, in its order."""
    return pc.take(found[rows.BY], pc.index_in(new[rows.KEY], value_set=found[rows.KEY].combine_chunks()))


def _literal(value: object) -> str:
    return _quoted(value) if isinstance(value, str) else f"{value}L"


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _causes(error: BaseException) -> Iterator[tuple[str, str]]:
    """Yield simple class name and message of a JVM's exception and of its causes."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        yield java.getClass().getSimpleName(), str(java.getMessage())
        java = java.getCause()


def _session(confs: Mapping[str, str]) -> SparkSession:
    """Return this process's session: the first call makes it, and later ones have the same settings."""
    found = _pyspark()
    if found is None:
        raise ConfigError(f"there is no PySpark in {folder()}; scripts/ensure_jvm.sh peers puts it there")
    if str(found) not in sys.path:
        os.environ.pop("SPARK_HOME", None)  # another Spark's
        sys.path.insert(0, str(found))
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        conf = SparkConf(loadDefaults=False).setMaster("local[1]").setAppName("lakelatch-bench").setAll(confs.items())
        # Standard output carries the writer's events to the runner, so the JVM prints to standard error, which is kept. In
        # the runner's own child processes its words are dropped: they would garble the display.
        in_pool = multiprocessing.parent_process() is not None
        gateway = launch_gateway(
            conf, popen_kwargs={"stdout": sys.stderr, "stderr": subprocess.DEVNULL if in_pool else None}
        )
        SparkContext(conf=conf, gateway=gateway).setLogLevel("ERROR")
    return SparkSession.builder.getOrCreate()


def _elsewhere(act: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of a function run in a process of its own."""
    with alone() as pool:
        return pool.submit(_told, act, *arguments).result()


def alone() -> ProcessPoolExecutor:
    """Return a pool of one process, for one system: a process has one Spark, with one set of jars."""
    return ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))


def _told(act: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return act(*arguments)
    except LakeLatchError:
        raise
    except Exception as e:
        raise LakeLatchError(f"{type(e).__name__}: {e}"[:1000]) from None
