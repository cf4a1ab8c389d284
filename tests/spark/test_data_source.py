"""``format("lakelatch")``: what `SparkTable.read` and plain Python read, and a stream by completion times."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

import lakelatch.spark
from lakelatch.errors import CorruptTableError
from lakelatch.occ.table import Table

from ..thorough import some
from .frames import planned

UTC = dt.UTC


@pytest.fixture(scope="module")
def source(spark: Any) -> Any:
    lakelatch.spark.register(spark)
    return spark


ROWS: dict[str, Any] = {
    "id": ["a", "b", "c", "d", "e", "f"],
    "city": ["x", "{%} ü😀", None, "", "x", "x"],
    "n": pa.array([1, 2, None, -(2**31), 2**31 - 1, 0], pa.int32()),
    "share": [1.5, math.nan, None, -0.0, math.inf, 0.0],
    "day": [
        dt.date(2026, 1, 1),
        dt.date(1500, 1, 1),
        None,
        dt.date(1970, 1, 1),
        dt.date(9999, 12, 31),
        dt.date(2026, 1, 2),
    ],
    "at": pa.array(
        [dt.datetime(2026, 1, 1, tzinfo=UTC), None, dt.datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)] * 2,
        pa.timestamp("us", "UTC"),
    ),
    "price": pa.array([Decimal("1.20"), None, Decimal("-0.01")] * 2, pa.decimal128(9, 2)),
    "ok": [True, False, None] * 2,
    "raw": [b"\0", b"", None] * 2,
    "tags": pa.array([["p", None], [], None] * 2, pa.list_(pa.string())),
    "pair": [{"l": 1, "r": "q"}, None, {"l": None, "r": ""}] * 2,
}
CONDITIONS = [
    "n > 0",
    "n is null",
    "n in (1, 2, null)",
    "n <> 1",
    "not (n <= 0)",
    "share = double('NaN')",
    "share > 1",
    "share <= 0",
    "day < date'2026-01-01'",
    "at >= timestamp'2026-01-01 00:00:00'",
    "at = timestamp'1969-12-31 23:59:59.999999'",
    "price = 1.2",
    "price < 0",
    "ok",
    "not ok",
    "ok = false and id > 'a'",
    "city = 'x'",
    "city is null",
    "city = ''",
    "city <=> null",
    "city like '{%'",
    "id = 'f'",
    "raw = x'00'",
    "pair.l = 1",
    "array_contains(tags, 'p')",
    "n = 1 or city = ''",
    "n = 3000000000",
]

ONLY_SPARK = {"array_contains(tags, 'p')"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    rows = pa.table(ROWS)
    with lakelatch.create(str(tmp_path_factory.mktemp("source") / "t"), record_key="id", partition_by="city") as made:
        for number in range(rows.num_rows):  # a file each, so that there is something to leave out
            made.insert(rows.slice(number, 1))
        made.delete([{"id": "e", "city": "x"}])
        made.upsert(rows.slice(0, 1))
        yield made


def told(rows: Any) -> list[str]:
    return sorted(repr(row.asDict(recursive=True)) for row in planned(rows.collect))


def load(source: Any, url: str, **options: str) -> Any:
    return planned(lambda: source.read.format("lakelatch").options(**options).load(url))


def test_a_read_by_the_format_is_that_of_the_table(source: Any, table: Table) -> None:
    """Of every type and condition, also where it is an option; and plain Python finds the same rows."""
    ours = lakelatch.spark.open(source, table)
    theirs = load(source, table.url)
    assert theirs.schema == ours.read().schema
    assert told(theirs) == told(ours.read())
    # What each condition is true for is asked of all rows in one job, in which nothing can be left out.
    met = {f"met{n}": F.expr(condition) for n, condition in enumerate(CONDITIONS)}
    rows = [row.asDict(recursive=True) for row in ours.read().withColumns(met).collect()]
    for number, condition in enumerate(CONDITIONS):
        whole = [{k: v for k, v in row.items() if k not in met} for row in rows if row[f"met{number}"]]
        wanted = sorted(map(repr, whole))
        assert told(theirs.where(condition)) == wanted, condition
        if condition in some(CONDITIONS, 9):
            assert told(ours.read(filter=condition)) == wanted, condition
        if condition not in ONLY_SPARK:
            if condition in some(CONDITIONS, 9):
                assert told(load(source, table.url, where=condition)) == wanted, condition
            plain = table.read(where=condition, columns=["id"]).to_pylist()
            assert sorted(row["id"] for row in plain) == sorted(row["id"] for row in whole), condition


def test_options_say_what_is_read(source: Any, table: Table) -> None:
    first = table.commits()[1][0]
    rows = load(source, table.url, as_of=first.requested, columns="n, id")
    assert told(rows) == ["{'n': 1, 'id': 'a'}"]
    some = planned(lambda: source.read.format("lakelatch").schema("id string, n int").load(table.url))
    assert told(some.where("n = 2")) == ["{'id': 'b', 'n': 2}"]
    assert planned(some.count) == 5, "Spark keeps the reader, and what it was told for the query before"
    assert planned(some.where("n = 1").union(some.where("n = 2")).count) == 2
    nothing = load(source, table.url, where="city = 'nowhere'")
    assert planned(nothing.count) == 0, "Spark makes up a part where there is none"


def test_sql_reads_it_by_name(source: Any, table: Table) -> None:
    ours = lakelatch.spark.open(source, table)
    assert source.sql("select count(*) as n from {t} where city = 'x'", t=ours.read()).first().n == 2
    ours.read(columns=["id"]).createOrReplaceTempView("of_ours")
    view = f"create or replace temporary view by_format using lakelatch options (path '{table.url}')"
    planned(lambda: source.sql(view))
    assert planned(source.sql("select count(*) as n from of_ours join by_format using (id)").first).n == 5


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda s, url: s.range(1).write.format("lakelatch").mode("append").save(url), r"upsert\(df\)"),
        (lambda s, _: s.read.format("lakelatch").load().count(), "needs the table"),
        (lambda s, url: s.read.format("lakelatch").option("secret", "x").load(url).count(), "no option 'secret'"),
        (lambda s, url: s.read.format("lakelatch").option("starting", "latest").load(url).count(), "for spark.read"),
        (lambda s, url: s.read.format("lakelatch").option("where", "nope = 1").load(url), "nope"),
        (lambda s, url: s.read.format("lakelatch").option("columns", "nope").load(url), "no column 'nope'"),
        (lambda s, url: s.read.format("lakelatch").schema("id long").load(url).count(), "and not int64"),
        (
            lambda s, url: s.read.format("lakelatch").option("read_optimized", "maybe").load(url),
            "neither true nor false",
        ),
    ],
)
def test_what_it_cannot_do_is_refused_in_a_sentence(
    source: Any, table: Table, act: Callable[[Any, str], Any], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        planned(lambda: act(source, table.url))


# --- streams -----------------------------------------------------------------------------------------------------


class Query:
    """A streaming query on a table, started again from its checkpoint as often as one likes."""

    def __init__(self, spark: Any, url: str, checkpoint: Path, **options: str) -> None:
        self.spark, self.url, self.checkpoint, self.options = spark, url, checkpoint, options

    def run(self, land: Callable[[Any, int], object] | None = None) -> list[dict[str, Any]]:
        """Read all that there is, and return what came."""
        self.came: list[dict[str, Any]] = []

        def keep(rows: Any, number: int) -> None:
            self.came.extend(row.asDict() for row in rows.collect())
            self.came.sort(key=lambda row: (row.get("_commit_completion", ""), row["id"], row.get("_change", "")))
            if land is not None:
                land(rows, number)

        rows = planned(lambda: self.spark.readStream.format("lakelatch").options(**self.options).load(self.url))
        query = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.checkpoint))

        def run() -> None:
            self.came.clear()
            query.trigger(availableNow=True).start().awaitTermination()

        planned(run)
        return self.came


@pytest.fixture
def counted(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Table]:
    kind = getattr(request, "param", "copy_on_write")
    with lakelatch.create(str(tmp_path / "counted"), record_key="id", type=kind) as made:
        made.insert([{"id": "a", "n": 1}, {"id": "b", "n": 1}])
        made.upsert([{"id": "a", "n": 2}])
        yield made


@pytest.mark.parametrize("counted", ["merge_on_read"], indirect=True)
def test_a_stream_goes_on_where_its_checkpoint_says(source: Any, counted: Table, tmp_path: Path) -> None:
    """Two queries on one table, each at its own place; what they write lands once."""
    target = lakelatch.spark.open(source, lakelatch.create(str(tmp_path / "target"), record_key="id"))
    first = Query(source, counted.url, tmp_path / "first")
    late = Query(source, counted.url, tmp_path / "late", starting="latest", columns="id")
    assert first.run(target.sink("upsert")) == [{"id": "a", "n": 2}, {"id": "b", "n": 1}]
    assert late.run() == []
    counted.upsert([{"id": "b", "n": 3}, {"id": "c", "n": 3}])
    counted.cluster(small_bytes=1 << 20, target_bytes=1 << 20)  # changes no row
    counted.clean(retain_commits=1)
    assert first.run(target.sink("upsert")) == [{"id": "b", "n": 3}, {"id": "c", "n": 3}]
    assert late.run() == [{"id": "b"}, {"id": "c"}]
    assert first.run() == late.run() == []
    assert target.table.read().count() == 3
    target.table.close()


def test_a_stream_of_the_change_feed_tells_each_change(source: Any, counted: Table, tmp_path: Path) -> None:
    query = Query(source, counted.url, tmp_path / "feed", change_feed="true")
    counted.delete([{"id": "b"}])
    came = [(row["_change"], row["id"], row["n"]) for row in query.run()]
    assert came == [
        ("insert", "a", 1),
        ("insert", "b", 1),
        ("update_after", "a", 2),
        ("update_before", "a", 1),
        ("delete", "b", 1),
    ]
    counted.upsert([{"id": "b", "n": 4}])
    assert [(row["_change"], row["n"]) for row in query.run()] == [("insert", 4)]
    for n in range(3):
        counted.upsert([{"id": "b", "n": n}])
    counted.clean(retain_commits=0)
    with pytest.raises(StreamingQueryException, match="states between them have been cleaned"):
        query.run()


def test_a_batch_whose_state_was_cleaned_before_it_ran_again_is_told(
    source: Any, counted: Table, tmp_path: Path
) -> None:
    query = Query(source, counted.url, tmp_path / "again")

    def dies(_rows: Any, _number: int) -> None:
        raise RuntimeError("the driver dies")

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="the driver dies"):
            query.run(dies)
        assert query.came == [{"id": "a", "n": 2}, {"id": "b", "n": 1}], "the same batch has the same rows"
        counted.upsert([{"id": "a", "n": 5}])
    counted.clean(retain_commits=0)
    with pytest.raises(StreamingQueryException, match="a cleaning has taken files of the state at"):
        query.run()


@pytest.mark.parametrize(
    "line", ["hoodie.table.precombine.field=tss", "hoodie.datasource.write.hive_style_partitioning=yes", None]
)
def test_properties_that_nobody_can_mean_are_named_in_spark_too(
    source: Any, make: Callable[..., Any], tmp_path: Path, line: str | None
) -> None:
    table = make(ordering_field="n", type="merge_on_read")
    rows = source.createDataFrame([("a", "x", 1)], "id string, city string, n int")
    table.upsert(rows)
    properties = tmp_path / "t" / ".hoodie/hoodie.properties"
    properties.write_bytes(properties.read_bytes() + f"{line}\n".encode() if line else b"")
    said = line or "is empty"
    for write in (
        lambda: table.upsert(rows),
        lambda: table.delete(rows),
        lambda: table.delete_where("n = 1"),
        table.compact,
    ):
        with pytest.raises(CorruptTableError, match=said):
            write()
    with pytest.raises(CorruptTableError, match=said):
        lakelatch.spark.open(source, str(tmp_path / "t"))
    with pytest.raises(PySparkException, match=said):
        source.read.format("lakelatch").load(str(tmp_path / "t")).collect()
