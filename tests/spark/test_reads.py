"""Reads: pruning, time travel, incremental; and that both ways to a bucket agree."""

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

import lakelatch.spark
from lakelatch.errors import ConfigError, InputError
from lakelatch.hudi.table.record_keys import bucket_ids, key_parts
from lakelatch.hudi.timeline.instant import to_epoch_ms
from lakelatch.occ.scan import only_partitions
from lakelatch.spark.reading import columns
from lakelatch.spark.reading import partition_pruning as prune
from lakelatch.spark.reading.filters import comparisons
from lakelatch.spark.versions import IS_4, to_arrow

SCHEMA = "id string, city string, n long"


def filled(make: Callable[..., Any], spark: Any) -> tuple[Any, list[Any]]:
    table = make()
    done = [
        table.insert(spark.createDataFrame([("a", "sf", 1), ("b", "la", 1), ("c", "ny", 1)], SCHEMA)),
        table.upsert(spark.createDataFrame([("a", "sf", 2), ("d", "sf", 2)], SCHEMA)),
        table.delete(spark.createDataFrame([("b",)], "id string")),
        table.upsert(spark.createDataFrame([("c", "ny", 4)], SCHEMA)),
    ]
    return table, done


def pairs(rows: Any) -> set[tuple[str, int]]:
    return {(r["id"], r["n"]) for r in rows.collect()}


def test_columns_filter_and_meta(make: Callable[..., Any], spark: Any) -> None:
    table, done = filled(make, spark)
    assert table.read(columns=["n"], filter="id = 'a'").collect()[0].asDict() == {"n": 2}
    meta = table.read(filter=F.col("id") == "d", meta=True).collect()[0]
    assert (meta["_hoodie_commit_time"], meta["_hoodie_record_key"]) == (done[1].instant, "d")
    assert meta["_hoodie_partition_path"] == "city=sf"


def test_only_partitions_that_the_filter_allows_are_scanned(make: Callable[..., Any], spark: Any) -> None:
    table, _ = filled(make, spark)

    def mark_scanned(condition: Any) -> set[str]:
        return {path.split("city=")[1].split("/")[0] for path in table.read(filter=condition).inputFiles()}

    assert mark_scanned("city = 'sf' and n > 0") == {"sf"}
    assert mark_scanned(F.col("city").isin("sf", "ny")) == {"sf", "ny"}
    assert mark_scanned("city like 'n%' or city = 'la'") == {"ny", "la"}
    assert mark_scanned("n = 1 or city = 'sf'") == {"sf", "la", "ny"}
    assert mark_scanned("n = 1") == {"sf", "la", "ny"}
    assert table.read(filter="city = 'nowhere'").count() == 0


PLACES = [("1", None, 1), ("2", "", 2), ("3", "a\\b", 3), ("4", "it's", 4), ("5", "10", 5), ("6", "x", 6)]


def placed(make: Callable[..., Any], spark: Any) -> Any:
    table = make()
    table.insert(spark.createDataFrame(PLACES, SCHEMA))
    return table


# Condition, the ids of its rows, and whether only their partitions are read.
CONDITIONS: list[tuple[Any, str, bool]] = [
    ("city = ''", "2", True),
    ("city is null", "1", True),
    ("city = '' or city is null", "12", True),
    ("length(city) = 0", "2", True),
    ("city <=> null", "1", True),
    ("coalesce(city, '') = ''", "12", True),
    (lambda: F.col("city") == "a\\b", "3", True),
    (lambda: F.col("city").isin("it's", "a\\b"), "34", True),
    ("city like '%\\'s'", "4", True),
    ("exists(array(city, 'y'), each -> each = 'x')", "6", True),
    ("city between 'it' and 'k'", "4", True),
    ("n = 5 and cast(city as int) = 10", "5", False),  # of other partitions the cast fails, and no row is asked
    ("city in (select c from wanted)", "6", False),
    ("city = current_user()", "", False),
    ("date'2024-01-01' < 'today' and city = 'x'", "6", True),
]


@pytest.mark.parametrize("escaped", ["false", "true"])
def test_a_filter_on_partitions_means_what_it_means_on_rows(make: Callable[..., Any], spark: Any, escaped: str) -> None:
    """Empty texts and nulls share a folder; literals are not spelled again; what may change is not asked beforehand."""
    table = placed(make, spark)
    spark.createDataFrame([("x",)], "c string").createOrReplaceTempView("wanted")
    spark.conf.set("spark.sql.parser.escapedStringLiterals", escaped)
    try:
        for condition, ids, pruned in CONDITIONS:
            if isinstance(condition, str) and escaped == "true" and "\\" in condition:
                continue  # text means something else there
            found = table.read(filter=condition() if callable(condition) else condition)
            assert pairs(found) == {(row[0], row[2]) for row in PLACES if row[0] in ids}, condition
            if pruned:
                folders = {path.rpartition("/")[0] for path in found.inputFiles()}
                shared = {"1", "2"} & set(ids)
                assert len(folders) == len(set(ids) - {"1", "2"}) + bool(shared), condition
    finally:
        spark.conf.unset("spark.sql.parser.escapedStringLiterals")


def test_a_users_function_in_a_filter_is_asked_of_the_rows(make: Callable[..., Any], spark: Any) -> None:
    table = placed(make, spark)
    short = F.udf(lambda text: text is not None and len(text) == 1, "boolean")
    assert pairs(table.read(filter=short("city"))) == {("6", 6)}
    table.delete_where(short("city"))
    assert pairs(table.read()) == {(row[0], row[2]) for row in PLACES[:-1]}


@pytest.mark.parametrize(("condition", "gone"), [("city = ''", "2"), ("city is null", "1"), ("length(city) < 2", "26")])
def test_a_delete_tells_null_and_empty_partition_values_apart(
    make: Callable[..., Any], spark: Any, condition: str, gone: str
) -> None:
    table = placed(make, spark)
    assert table.delete_where(condition).deleted == len(gone)
    assert pairs(table.read()) == {(row[0], row[2]) for row in PLACES if row[0] not in gone}


def test_partitions_of_every_type_are_pruned(make: Callable[..., Any], spark: Any) -> None:
    schema = "id string, b boolean, i int, d date, x decimal(10,2), n long"
    rows = spark.sql(
        """select '1' id, true b, 7 i, date'0099-01-02' d, 1.50BD x, 1L n union all
        select '2', false, -7, date'2024-12-31', -0.05BD, 2L union all select '3', null, null, null, null, 3L"""
    ).to(spark.createDataFrame([], schema).schema)
    table = make(partition_by=["b", "i", "d", "x"])
    table.insert(rows)
    for condition in ("b", "i < 8 and i > 0", "d < date'1500-01-01'", "d = '0099-01-02'", "x > 1", "x = 1.5"):
        found = table.read(filter=condition)
        assert (pairs(found), len(found.inputFiles())) == ({("1", 1)}, 1), condition
    assert pairs(table.read(filter="i is null and x is null")) == {("3", 3)}


FLOATS = ["v > 1D", "v >= 1D", "v = double('NaN')", "v in (double('NaN'))", "not v < 1D", "v <=> double('NaN')"]
FLOATS += ["v = 0D", "v in (0D)", "v >= 0D", "v = -0D", "v <= -0D", "v <=> 0D", "v > -0D", "v < 0D", "v != 0.3D"]
FLOATS += [each.replace("v", "s.x") for each in FLOATS] + ["f > 1", "f = 0", "f = float('NaN')", "f = float('-0.0')"]


def test_no_row_of_nan_or_minus_zero_hides_from_a_filter(make: Callable[..., Any], spark: Any) -> None:
    """Each file has one kind of value, as statistics and dictionaries see it."""
    columns = "'{0}' id, '{0}' city, {1} v, float({1}) f, named_struct('x', {1}) s"
    kinds = ["0.5D", "-0D", "0D", "double('NaN')", "if(rand(1) < 2, 0.5D, double('NaN'))", "null"]
    one = " union all ".join(f"select {columns.format(n, value)}" for n, value in enumerate(kinds))
    mixed = " union all ".join(
        f"select {columns.format(9, v)}".replace("'9' id", f"'m{n}' id") for n, v in enumerate(kinds)
    )
    table = make()
    table.insert(spark.sql(f"{one} union all {mixed}"))
    rows = spark.createDataFrame(to_arrow(table.read()))
    for condition in FLOATS:
        expected = {row["id"] for row in rows.where(condition).collect()}
        assert {row["id"] for row in table.read(filter=condition).collect()} == expected, condition
        assert {row["id"] for row in table.read().where(condition).collect()} == expected, condition
    expected = {row["id"] for row in rows.where("not (v > 1D) or v is null").collect()}
    table.delete_where("v > 1D")
    assert {row["id"] for row in table.read().collect()} == expected


def test_a_folder_that_does_not_tell_its_values_is_always_read(make: Callable[..., Any], spark: Any) -> None:
    table = make(partition_by="day")
    table.insert(spark.sql("select '1' id, date'2024-01-17' day, 1L n"))
    schema, config = table.table.schema(), table.table.config
    known = ["day=2024-01-17", "day=2024-01-18", "day=19739", "day=2024/01/17", "day=20240117", "2024-1-17"]
    found = prune.matching_partitions(spark, config, schema, known, "day = date'2024-01-17'")
    assert found == set(known) - {"day=2024-01-18"}


def test_a_pinned_value_that_no_partition_can_have_is_no_error(make: Callable[..., Any], spark: Any) -> None:
    table = placed(make, spark)
    assert table.read(filter="city = '__HIVE_DEFAULT_PARTITION__'").count() == 0
    assert table.delete_where("city = '__HIVE_DEFAULT_PARTITION__'").deleted == 0


def test_the_scan_is_sparks_own_with_pushdown(make: Callable[..., Any], spark: Any) -> None:
    table, _ = filled(make, spark)
    plan = table.read(columns=["id"], filter="n > 1")._jdf.queryExecution().executedPlan().toString()
    assert "FileScan parquet" in plan
    assert "GreaterThan(n,1)" in plan
    assert "city" not in plan.split("ReadSchema")[1]


def test_pinned_partitions_hold_for_partitions_that_do_not_exist_yet(make: Callable[..., Any], spark: Any) -> None:
    table, _ = filled(make, spark)
    schema = table.table.schema()

    def pinned(condition: Any) -> list[str] | None:
        return only_partitions(table.table.config, schema, comparisons(spark, schema, condition))

    assert pinned("CITY = 'rome' and n = 1") == ["city=rome"]
    assert pinned("city in ('a', 'b')") == ["city=a", "city=b"]
    assert pinned("city > 'a'") is None
    assert pinned("city = 'a' or n = 1") is None
    assert pinned("n = 1") is None
    assert comparisons(spark, schema, "n > 1 and current_date() < date'+10000-01-01'") == [("n", ">", 1)]


def test_time_travel_by_t_and_by_c(make: Callable[..., Any], spark: Any) -> None:
    import hudi

    table, done = filled(make, spark)
    states = [{("a", 1), ("b", 1), ("c", 1)}, {("a", 2), ("b", 1), ("c", 1), ("d", 2)}]
    states += [states[1] - {("b", 1)}, {("a", 2), ("c", 4), ("d", 2)}]
    for result, state in zip(done, states, strict=True):
        assert pairs(table.read(as_of=result.instant)) == state
        assert pairs(table.read(as_of_completion=result.completion)) == state
        reader = hudi.HudiTableBuilder.from_base_uri(table.table.url).build()
        batches = reader.read(hudi.HudiReadOptions().with_as_of_timestamp(result.instant))
        assert {(r["id"], r["n"]) for r in pa.Table.from_batches(batches).to_pylist()} == state


def test_time_travel_to_what_was_cleaned_is_refused(make: Callable[..., Any], spark: Any) -> None:
    table, done = filled(make, spark)
    table.clean(retain_commits=0)
    first = done[0].instant
    doors = [
        lambda: table.read(as_of=first),
        lambda: table.read(as_of_completion=done[0].completion),
        lambda: table.explain(as_of=first),
        lambda: table.read_incremental(None, done[0].completion),
    ]
    if IS_4:
        lakelatch.spark.register(spark)
        doors.append(lambda: spark.read.format("lakelatch").option("as_of", first).load(table.table.url).collect())
    else:
        with pytest.raises(ConfigError, match=r"has no data sources in Python; .* PySpark 4.0 or newer"):
            lakelatch.spark.register(spark)
    for door in doors:
        with pytest.raises(Exception, match="has been cleaned; states are whole from"):
            door()
    assert pairs(table.read(as_of=done[-1].instant)) == pairs(table.read())


def test_a_table_of_a_session_does_not_travel_and_says_what_does(make: Callable[..., Any], spark: Any) -> None:
    table, _ = filled(make, spark)
    with pytest.raises(InputError, match="cannot travel; hand its `table`"):
        pickle.dumps(table)
    assert pickle.loads(pickle.dumps(table.table)).read().count() == table.read().count()

    def job(txn: Any) -> None:
        with pytest.raises(InputError, match="cannot travel: it belongs to the process that began it"):
            pickle.dumps(txn)

    table.run(job)


def test_no_door_for_a_time_takes_what_is_none(make: Callable[..., Any], spark: Any) -> None:
    table, results = filled(make, spark)
    doors = (
        lambda time: table.read(as_of=time),
        lambda time: table.read(as_of_completion=time),
        lambda time: table.read_incremental(time),
        lambda time: table.read_incremental(None, time),
    )
    for door in doors:
        for time in ("yesterday", "abc", "", "20261124", 5):
            with pytest.raises(InputError, match="no time"):
                door(time)
    moment = datetime.fromtimestamp(to_epoch_ms(results[0].completion) / 1000, timezone(timedelta(hours=9)))
    assert pairs(table.read_incremental(moment)) == pairs(table.read_incremental(results[0].completion))
    assert pairs(table.read(as_of_completion=moment.isoformat())) == pairs(
        table.read(as_of_completion=results[0].completion)
    )
    with pytest.raises(InputError, match="no commit yet"):
        table.read(as_of=datetime(2000, 1, 1, tzinfo=UTC))
    assert table.read("id").columns == ["id"]


def test_partitions_to_overwrite_are_a_list_of_paths(make: Callable[..., Any], spark: Any) -> None:
    table, _ = filled(make, spark)
    rows, before = spark.createDataFrame([("a", "sf", 9)], SCHEMA), pairs(table.read())
    for partitions, words in (("city=sf", r"partitions=\['city=sf'\]"), (["sf"], "city=VALUE"), ([""], "city=VALUE")):
        with pytest.raises(InputError, match=words):
            table.overwrite(rows, partitions=partitions)
    assert pairs(table.read()) == before


def test_incremental_by_completion_time(make: Callable[..., Any], spark: Any) -> None:
    table, done = filled(make, spark)
    c = [r.completion for r in done]
    assert pairs(table.read_incremental(None)) == {("a", 2), ("c", 4), ("d", 2)}
    assert pairs(table.read_incremental(c[0])) == {("a", 2), ("c", 4), ("d", 2)}
    assert pairs(table.read_incremental(c[1])) == {("c", 4)}
    assert pairs(table.read_incremental(c[0], c[1])) == {("a", 2), ("d", 2)}
    assert pairs(table.read_incremental("0", c[0])) == {("a", 1), ("b", 1), ("c", 1)}
    assert pairs(table.read_incremental(c[3])) == set()


def test_incremental_reads_neither_skip_nor_repeat_what_completes_late(make: Callable[..., Any], spark: Any) -> None:
    """A reader that keeps the completion time of the last commit as its checkpoint, after each commit."""
    table, done = filled(make, spark)
    plain, seen, checkpoint = table.table, [], done[-1].completion
    open_ones = [plain.transaction("insert") for _ in range(3)]
    for number, txn in enumerate(open_ones):
        txn.new_file("city=sf").write(pa.table({"id": [f"x{number}"], "city": ["sf"], "n": [number]}))
    for late in (2, 0, 1):  # completed in another order than they were requested
        result = open_ones[late].commit()
        seen.append(pairs(table.read_incremental(checkpoint)))
        checkpoint = result.completion
    assert seen == [{("x2", 2)}, {("x0", 0)}, {("x1", 1)}]
    assert pairs(table.read_incremental(done[-1].completion)) == {("x0", 0), ("x1", 1), ("x2", 2)}
    table.table.cluster()
    assert pairs(table.read_incremental(checkpoint)) == set(), "rows that were only moved are not seen again"


def test_a_table_without_schema_says_so(make: Callable[..., Any]) -> None:
    with pytest.raises(InputError, match="no schema yet"):
        make().read()


KEYS = ["a", "id1", "ä", "😀x", "x" * 100, "1:2", "a,b:c", " ", "\x01"]


def test_a_bucket_is_the_same_in_the_jvm_and_in_arrow(spark: Any) -> None:
    rows = spark.createDataFrame([(k, n * 7919 - 4) for n, k in enumerate(KEYS * 30)], "k string, n long")
    arrow = to_arrow(rows)
    for fields in (["k"], ["n"], ["k", "n"]):
        native = to_arrow(rows.select(columns.bucket_column(fields, 97).alias("b")))["b"].to_pylist()
        assert native == bucket_ids(key_parts(arrow, fields), 97).tolist()


def test_a_key_is_the_same_in_the_jvm_and_in_arrow(spark: Any) -> None:
    from lakelatch.hudi.table.record_keys import record_keys

    rows = spark.sql(
        """select 'ü' s, cast(-3 as tinyint) b, 12345678901 l, true t, date'0099-01-02' d, cast(0.000001 as decimal(20,6)) x
        union all select 's', cast(7 as tinyint), -1, false, date'2024-12-31', cast(-12.5 as decimal(20,6))"""
    )
    arrow = to_arrow(rows)
    for fields in [["s", "b", "l", "t", "d", "x"]] + [[n] for n in arrow.column_names]:
        native = to_arrow(rows.select(columns.key_column(fields).alias("key")))["key"].to_pylist()
        assert native == record_keys(arrow, fields).to_pylist()


@pytest.mark.parametrize("kind", ["copy_on_write", "merge_on_read"])
def test_columns_are_found_in_any_case_and_may_be_expressions(make: Callable[..., Any], spark: Any, kind: str) -> None:
    t = make(type=kind)
    t.upsert(
        spark.createDataFrame([("a", "x{", 1, None), ("b", "", 2, "n")], "id string, city string, V long, note string")
    )
    t.upsert(spark.createDataFrame([("a", "x{", 3, None)], "id string, city string, V long, note string"))
    assert sorted(row[0] for row in t.read(columns=["v"]).collect()) == [2, 3]
    assert [row[0] for row in t.read(columns=["v"], filter="NOTE is null").collect()] == [3]
    assert sorted(row[0] for row in t.read(columns=[F.col("v") + 1]).collect()) == [3, 4]
    assert [tuple(row) for row in t.read(columns=["id", "id"], filter="city = ''").collect()] == [("b", "b")]
    assert t.read(columns=[]).count() == 2
    assert t.read(columns="*").columns == ["id", "city", "V", "note"]
    if kind == "copy_on_write":
        assert t.read(columns=["_metadata.file_name"]).count() == 2
