"""SQL statements on tables: what they do, against what Spark's words mean, and what is refused by its clause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakelatch
from lakelatch.errors import InputError
from lakelatch.spark import sql

SCHEMA = pa.schema([
    ("id", pa.string()), ("city", pa.string()), ("n", pa.int64()), ("x", pa.float64()), ("s", pa.struct([("a", pa.int64())]))
])  # fmt: skip


@pytest.fixture
def table(make: Callable[..., Any]) -> Any:
    made = make(schema=SCHEMA)
    made.table.insert([{"id": f"{n}", "city": "Oslo", "n": n, "x": 0.5, "s": {"a": n}} for n in range(4)])
    return made


@pytest.fixture
def news(spark: Any) -> Iterator[str]:
    rows = [("1", "Oslo", 10, 1.5), ("2", "Oslo", -1, 1.5), ("9", "Oslo", 90, 1.5)]
    spark.createDataFrame(rows, "id string, city string, N bigint, x double").createOrReplaceTempView("news")
    yield "news"
    spark.catalog.dropTempView("news")


def rows(table: Any) -> dict[str, tuple[Any, ...]]:
    return {each["id"]: (each["n"], each["x"]) for each in table.table.read().to_pylist()}


def test_merge_with_each_clause(spark: Any, table: Any, news: str) -> None:
    done = sql(
        spark,
        """-- a comment
        merge into T as target using (select id, city, n, x from news) q
        ON target.id = q.ID and (target.city = q.city)
        WHEN MATCHED AND q.n < 0 THEN DELETE
        WHEN MATCHED AND target.x < q.x THEN UPDATE SET target.n = target.n + q.n * 2, `x` = 7
        WHEN NOT MATCHED BY TARGET AND q.n > 50 THEN INSERT (id, city, n) VALUES (q.id, q.city, q.n)
        """,
        {"t": table},
        note={"job": "sql"},
    )
    assert isinstance(done, lakelatch.WriteResult)
    assert (done.inserted, done.updated, done.deleted) == (1, 1, 1)
    assert rows(table) == {"0": (0, 0.5), "1": (21, 7.0), "3": (3, 0.5), "9": (90, None)}
    assert table.table.commits()[-1][1].extra["job"] == "sql"


def test_merge_of_whole_rows_by_url(spark: Any, table: Any) -> None:
    spark.range(2).selectExpr(
        "cast(id as string) id", "'Oslo' city", "id + 5 n", "1.0D x", "named_struct('a', id) s"
    ).createOrReplaceTempView("all_of_it")
    sql(
        spark,
        f"MERGE INTO lakelatch.`{table.table.url}` t USING all_of_it s ON t.id = s.id AND t.city = s.city "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    )
    assert rows(table) == {"0": (5, 1.0), "1": (6, 1.0), "2": (2, 0.5), "3": (3, 0.5)}


def test_update_and_delete(spark: Any, table: Any) -> None:
    tables = {"t": table}
    assert (
        sql(spark, "UPDATE t AS u SET n = U.n + s.a, X = NULL WHERE u.n >= 2 and length(city) = 4", tables).updated == 2
    )
    assert rows(table) == {"0": (0, 0.5), "1": (1, 0.5), "2": (4, None), "3": (6, None)}
    assert sql(spark, "update T set n = 1", tables).updated == 4
    assert sql(spark, "DELETE FROM t WHERE x IS NULL", tables, attempts=3).deleted == 2
    assert sql(spark, "DELETE FROM t", tables).deleted == 2
    assert rows(table) == {}
    assert sql(spark, "DELETE FROM t WHERE n = 5", tables).instant is None


def test_insert(spark: Any, table: Any, news: str) -> None:
    tables = {"t": table}
    sql(
        spark,
        "INSERT INTO t VALUES ('ü🌙''\"', 'Rome', 1, 1.5, NULL), ('b', 'Rome', 2, NULL, named_struct('a', 1L))",
        tables,
    )
    assert rows(table)["ü🌙'\""] == (1, 1.5)
    sql(spark, "INSERT INTO t (X, id, city) VALUES (2.5, 'c', 'Rome')", tables)
    assert rows(table)["c"] == (None, 2.5)
    sql(spark, "INSERT INTO t (id, city, n, x) SELECT concat(id, 'n'), city, n, x FROM news WHERE n > 0", tables)
    assert rows(table)["9n"] == (90, 1.5)
    sql(
        spark,
        "INSERT INTO t BY NAME SELECT 5L AS n, 'z' id, 'Rome' city, 0D x, s FROM (SELECT named_struct('a', 1L) s)",
        tables,
    )
    assert rows(table)["z"] == (5, 0.0)
    assert len(rows(table)) == 4 + 2 + 1 + 2 + 1


def test_a_source_may_be_another_table_of_ours(spark: Any, table: Any, make: Callable[..., Any]) -> None:
    other = make("other", schema=SCHEMA)
    before = [each.name for each in spark.catalog.listTables()]
    sql(spark, "INSERT INTO o SELECT * FROM t WHERE n < 2", {"o": other, "t": table})
    assert set(rows(other)) == {"0", "1"}
    sql(spark, f"DELETE FROM lakelatch.`{other.table.url}` WHERE id = '0'")
    merge = "MERGE INTO o USING t ON o.id = t.id AND o.city = t.city WHEN NOT MATCHED THEN INSERT *"
    assert sql(spark, merge, {"o": other.table, "t": table.table.url}).inserted == 3
    assert [each.name for each in spark.catalog.listTables()] == before


def test_everything_else_goes_to_spark(spark: Any, table: Any) -> None:
    assert sql(spark, "SELECT 'delete from t' AS update_, 1 AS n").collect()[0]["n"] == 1
    assert sql(spark, "SHOW TABLES").columns
    with pytest.raises(Exception, match="TABLE_OR_VIEW_NOT_FOUND"):
        sql(spark, "DELETE FROM nobody WHERE a = 1", {"t": table})
    with pytest.raises(Exception, match="PARSE_SYNTAX_ERROR"):
        sql(spark, "DELETE FROMM nobody")


ON = "MERGE INTO t USING news s ON t.id = s.id AND t.city = s.city "


@pytest.mark.parametrize(
    ("query", "why"),
    [
        (
            ON + "WHEN NOT MATCHED BY SOURCE THEN DELETE",
            "WHEN NOT MATCHED BY SOURCE",
        ),
        ("MERGE INTO t USING news s ON t.id = s.id WHEN MATCHED THEN DELETE", "ON lacks city"),
        ("MERGE INTO t USING news s ON t.n = s.n WHEN MATCHED THEN DELETE", "lacks|beside"),
        ("MERGE INTO t USING news s ON t.id = s.city WHEN MATCHED THEN DELETE", r"ON t\.id = s\.city"),
        (
            ON + "AND s.n > 1 WHEN MATCHED THEN DELETE",
            r"ON s\.n > 1",
        ),
        (
            "MERGE INTO t USING news s ON t.id = s.id OR t.city = s.city WHEN MATCHED THEN DELETE",
            "rows match by record key",
        ),
        ("MERGE INTO t USING news t ON t.id = t.id WHEN MATCHED THEN DELETE", "calls target and source 't'"),
        ("MERGE INTO t USING (SELECT 1) ON t.id = s.id WHEN MATCHED THEN DELETE", "needs a name"),
        (
            ON + "WHEN MATCHED THEN UPDATE SET n = n + 1",
            "n is in both tables",
        ),
        (
            ON + "WHEN MATCHED THEN UPDATE SET nope = 1",
            "no column 'nope'",
        ),
        (
            ON + "WHEN MATCHED THEN UPDATE SET n = DEFAULT",
            "DEFAULT",
        ),
        (
            ON + "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id, 1)",
            "2 values for 1",
        ),
        (ON + "WHEN NOT MATCHED THEN INSERT (id, city) VALUES (upper(s.id), s.city)", "'id' comes from the source"),
        (ON + "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 1)", "'city' comes from the source"),
        ("UPDATE t SET n = 1 FROM news WHERE t.id = news.id", "FROM in this UPDATE"),
        ("UPDATE t SET s.a = 1", "sets no whole column"),
        ("UPDATE t SET n = 1 WHERE id IN (SELECT id FROM news)", "no subquery"),
        ("UPDATE t SET n = 1 WHERE id = :id", "parameters"),
        ("UPDATE t SET id = 'x'", "tells where a row"),
        ("UPDATE t SET nope = 1", "no column 'nope'"),
        ("DELETE FROM t USING news WHERE t.id = news.id", "USING in this DELETE"),
        ("DELETE FROM t LIMIT 5", "LIMIT in this DELETE"),
        ("DELETE FROM t VERSION AS OF 1", "VERSION in this DELETE"),
        ("INSERT OVERWRITE t SELECT * FROM t", "OVERWRITE in this INSERT"),
        ("INSERT INTO t PARTITION (city = 'Rome') SELECT 'a', 1, 1.5, NULL", "PARTITION in this INSERT"),
        ("INSERT INTO t REPLACE WHERE n > 1 SELECT * FROM news", "REPLACE WHERE in this INSERT"),
        ("WITH q AS (SELECT 1) INSERT INTO t SELECT * FROM q", "WITH in this INSERT"),
        ("INSERT INTO t SELECT 1", "1 values for 5 columns"),
        ("INSERT INTO t (id, nope) VALUES ('a', 1)", "no column 'nope'"),
        ("INSERT INTO t SELECT * FROM t", "which it changes"),
        ("DELETE FROM t; DELETE FROM t", "more than one statement"),
        ("MERGE WITH SCHEMA EVOLUTION INTO t USING news s ON t.id = s.id WHEN MATCHED THEN DELETE", "not understood"),
    ],
)
def test_a_clause_without_a_verb_is_named_and_nothing_is_written(
    spark: Any, table: Any, news: str, query: str, why: str
) -> None:
    before = table.table.commits()
    with pytest.raises(InputError, match=why):
        sql(spark, query, {"t": table})
    assert table.table.commits() == before
    assert not table.table.session.log.catch_up().open


def test_wrong_arguments_are_refused(spark: Any, table: Any) -> None:
    with pytest.raises(InputError, match="query="):
        sql(spark, 5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="tables="):
        sql(spark, "DELETE FROM t", [table])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'atempts'"):
        sql(spark, "DELETE FROM t", {"t": table}, atempts=1)  # type: ignore[call-arg]
    with pytest.raises(lakelatch.TableNotFoundError):
        sql(spark, "DELETE FROM lakelatch.`/nowhere/at/all`")
